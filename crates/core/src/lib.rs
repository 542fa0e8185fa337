//! The pure heart of Tollgate: what a limit is, and what it decides.
//!
//! Nothing here reads a clock, opens a socket or spawns a task. A store brings the state and the
//! time that state is read by; this crate turns the two into a decision. That is why every number
//! below can be tested against a textbook model in microseconds, and why the Lua twins that run
//! inside Redis have something exact to be compared with.
//!
//! In reading order:
//!
//! 1. [`units`]: time and cost as integers that saturate.
//! 2. [`limit`]: `"100/s"` as a person writes it.
//! 3. [`algorithm`]: the four limiters, each a pure function of state, now and cost.
//! 4. [`key`] and [`check`]: what is counted together, and one limit applied to one ask; [`sip`]
//!    hashes keys.
//! 5. [`decision`] and [`verdict`]: the store's answer, and the engine's.
//! 6. [`ask`] and [`policy`]: the question, and the rules that turn it into checks; [`attributes`] and
//!    [`address`] are what a question can say about a call.
//! 7. [`store`]: the one seam between deciding and remembering; [`board`] is what instances leave there
//!    for each other, [`push`] what they call out.
//! 8. [`breaker`]: the state machine of a circuit breaker, for a fleet and for one instance.
#![deny(clippy::float_arithmetic, clippy::arithmetic_side_effects)]

pub mod address;
pub mod algorithm;
pub mod ask;
pub mod attributes;
pub mod board;
pub mod breaker;
pub mod check;
pub mod decision;
pub mod few;
pub mod key;
pub mod limit;
pub mod policy;
pub mod push;
pub mod sip;
pub mod store;
pub mod units;
pub mod verdict;
