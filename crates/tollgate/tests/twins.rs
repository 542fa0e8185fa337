//! The Lua that ships, on a real Redis, against the Rust it is the twin of.
//!
//! Every test here talks to Redis through `RedisStore`, as a caller would, and drives Redis' clock,
//! and with it every TTL, through the clock shim. What the scripts answer is compared, integer by
//! integer, with the pure functions of `tollgate-core`.

#[path = "twins/breaker.rs"]
mod breaker;
#[path = "twins/client_time.rs"]
mod client_time;
#[path = "twins/history.rs"]
mod history;
#[path = "twins/keys.rs"]
mod keys;
#[path = "twins/limits.rs"]
mod limits;
#[path = "twins/reference.rs"]
mod reference;
#[path = "twins/shapes.rs"]
mod shapes;
#[path = "twins/sums.rs"]
mod sums;
#[path = "twins/trips.rs"]
mod trips;
#[path = "twins/ttl.rs"]
mod ttl;
#[path = "twins/world.rs"]
mod world;
#[path = "twins/writes.rs"]
mod writes;
