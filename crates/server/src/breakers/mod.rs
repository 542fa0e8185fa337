//! Circuit breakers for callers elsewhere: which breakers there are, and what is asked of them, free of any door.
//!
//! `policy.rs` is the file's `breakers`: which of them an id belongs to, and how it behaves. `service.rs` answers what a door
//! asks. A caller elsewhere holds a token where a caller in this process holds a permit: `token.rs` is what it says,
//! `table.rs` keeps what it stands for. `fleet.rs` is where the records live.

mod fleet;
mod policy;
mod service;
mod table;
mod token;

pub(crate) use policy::{BreakerPolicy, KINDS_MAX, Kind};
pub(crate) use service::{
    Acquired, BreakerError, Granted, LIST_MAX, Outcome, Override, Report, Reported, Seen, Service,
};
pub(crate) use token::Token;
