//! Tollgate decides whether a call may pass: exact rate limits with one answer across every
//! instance that shares a Redis, and an answer still when Redis does not give one.
//!
//! ```
//! use tollgate::store::memory::MemoryStore;
//! use tollgate::{Algorithm, Ask, By, Cost, Engine, InlineLimit, Kind, Policy, Rate, Rule, Want};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let five_a_minute = Algorithm::try_new(Kind::TokenBucket, Rate::parse("5/min")?, None, 1000)?;
//! let login = Rule::try_new("login", vec![five_a_minute], None)?;
//! let engine = Engine::builder(MemoryStore::new()).policy(Policy::try_new(1, vec![login])?).build();
//!
//! let want = Want { by: By::Rule("login"), key: b"ann", cost: Cost::ONE, takes: &[] };
//! let verdict = engine.decide(&Ask { wants: &[want] }).await;
//! assert!(verdict.is_allowed());
//! assert_eq!(verdict.checks[0].decision.remaining, 4);
//!
//! // Without a policy: the caller brings the limit along.
//! let rate = Rate::parse("100/s")?;
//! let limit = InlineLimit::new(Algorithm::try_new(Kind::default(), rate, None, 1000)?, rate.period());
//! assert!(engine.check("bob", &limit).await.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! For a shared Redis, put `RedisStore::new(RedisConfig::new(RedisUrl::parse(url)?))?` in place of the
//! memory: [`store::redis`].
//!
//! In reading order: [`engine`] is the spine; [`deny_cache`], [`guard`] and [`fallback`] stand around the store;
//! [`store`] holds the two places state can live; [`breaker`] has the circuit breakers; [`observe`] tells the outside what happened.
//!
//! Over HTTP (feature `http`), `identity` finds out who is asking and `answer` says what is answered; `middleware`
//! (feature `tower`) has the layers for axum, tonic and any other tower service.

#[cfg(feature = "http")]
pub mod answer;
pub mod breaker;
pub mod calendar;
pub mod clock;
pub mod deny_cache;
pub mod engine;
pub mod fallback;
pub mod guard;
#[cfg(feature = "http")]
pub mod identity;
mod lease;
#[cfg(feature = "tower")]
pub mod middleware;
pub mod observe;
pub mod store;

pub use tollgate_core as core;

pub use engine::{Engine, EngineBuilder};
pub use store::memory::MemoryStore;
pub use store::redis::RedisStore;
pub use tollgate_core::algorithm::{Algorithm, Kind};
pub use tollgate_core::ask::{Ask, By, InlineLimit, Want};
pub use tollgate_core::limit::{LimitError, Rate};
pub use tollgate_core::policy::{KeyTemplate, OnOutage, Policy, Rule};
pub use tollgate_core::units::{Cost, Micros};
pub use tollgate_core::verdict::{Answer, Source, Verdict};
