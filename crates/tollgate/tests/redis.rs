//! The Redis store against a real Redis: every way to reach it, every way it refuses to work, and
//! the least a user must be allowed.
//!
//! What the scripts compute is held to the Rust twins in `twins.rs`; what outages do, in `faults.rs`.

#[path = "redis/acl.rs"]
mod acl;
#[path = "redis/batches.rs"]
mod batches;
#[path = "redis/board.rs"]
mod board;
#[path = "redis/breaker.rs"]
mod breaker;
#[path = "redis/bytes.rs"]
mod bytes;
#[path = "redis/functions.rs"]
mod functions;
#[path = "redis/pool.rs"]
mod pool;
#[path = "redis/push.rs"]
mod push;
#[path = "redis/reach.rs"]
mod reach;
#[path = "redis/refusals.rs"]
mod refusals;
#[path = "redis/stand.rs"]
mod stand;
#[path = "redis/tls.rs"]
mod tls;
