//! Tollgate decides whether a call may pass: exact rate limits with one answer across every
//! instance that shares a Redis, and an answer still when Redis does not give one.
//!
//! In reading order: [`engine`] is the spine; [`guard`] and [`fallback`] stand around the store;
//! [`store`] holds the two places state can live; [`observe`] tells the outside what happened.

pub mod calendar;
pub mod clock;
pub mod engine;
pub mod fallback;
pub mod guard;
pub mod observe;
pub mod store;

pub use tollgate_core as core;

pub use engine::{Engine, EngineBuilder};
pub use store::memory::MemoryStore;
pub use store::redis::RedisStore;
pub use tollgate_core::algorithm::{Algorithm, Kind};
pub use tollgate_core::ask::{Ask, By, InlineLimit, Want};
pub use tollgate_core::limit::{LimitError, Rate};
pub use tollgate_core::policy::{OnOutage, Policy, Rule};
pub use tollgate_core::units::{Cost, Micros};
pub use tollgate_core::verdict::{Answer, Source, Verdict};
