//! Leases on a real Redis: fleets of processes that die in the middle, and what becomes of tokens that nobody
//! spent.

#[path = "leases/fleet.rs"]
mod fleet;
#[path = "leases/returned.rs"]
mod returned;
