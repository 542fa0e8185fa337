//! Breakers of several instances on one real Redis.

#[path = "breaker/alone.rs"]
mod alone;
#[path = "breaker/driven.rs"]
mod driven;
#[path = "breaker/fleet.rs"]
mod fleet;
#[path = "breaker/plain.rs"]
mod plain;
#[path = "breaker/probes.rs"]
mod probes;
#[path = "breaker/stand.rs"]
mod stand;
