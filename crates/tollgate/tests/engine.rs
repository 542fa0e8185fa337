//! The engine as its callers see it: what it answers, what it spends, and what it does while its
//! store errs or hangs.
//!
//! The stores here are memory on a clock of ours, and a fake that errs, hangs and answers on
//! command: what is tested is what stands around a store. Redis itself fails in `faults.rs`.

#[path = "engine/advice.rs"]
mod advice;
#[path = "engine/asks.rs"]
mod asks;
#[path = "engine/guarded.rs"]
mod guarded;
#[path = "engine/leasing.rs"]
mod leasing;
#[path = "engine/outage.rs"]
mod outage;
#[path = "engine/stand.rs"]
mod stand;
#[path = "engine/waiting.rs"]
mod waiting;
