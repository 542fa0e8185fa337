//! The built binary as a breaker for callers elsewhere: two instances on a real Redis, and what becomes of them.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

#[path = "breakers/alone.rs"]
mod alone;
#[path = "breakers/bad.rs"]
mod bad;
#[path = "breakers/fleet.rs"]
mod fleet;
#[path = "breakers/inspecting.rs"]
mod inspecting;
#[path = "breakers/metrics.rs"]
mod metrics;
#[path = "breakers/persons.rs"]
mod persons;
#[path = "breakers/stand.rs"]
mod stand;
