//! Circuit breakers for callers elsewhere: which breakers there are, and what is asked of them, free of any door.
//!
//! `policy.rs` is the file's `breakers`: which of them an id belongs to, and how it behaves. `service.rs` answers what a door
//! asks, in the words of `words.rs`; `read.rs` makes those of what callers write. A caller elsewhere holds a token where a caller in
//! this process holds a permit: `token.rs` is what it says, `table.rs` keeps what it stands for. `fleet.rs` is where the records live.

mod fleet;
mod policy;
mod read;
mod service;
mod table;
mod token;
mod words;

pub(crate) use policy::{BreakerPolicy, KINDS_MAX, Kind};
pub(crate) use read::{LIST, list_limit, report_within_ms, retry_after_ms};
pub(crate) use service::{Figures, Service};
pub(crate) use words::{
    Acquired, BreakerError, Granted, Late, Listed, Outcome, Override, Report, Reported, Seen,
};
