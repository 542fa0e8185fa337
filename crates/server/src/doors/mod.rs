//! The doors: one listener for each protocol.
//!
//! A door is two translations and one call: bytes to an `Ask`, the engine's answer, a `Verdict` to
//! bytes. It holds no rule, no key and no counter, and it does not know the other doors. Each has a
//! folder with `decode` (every bad input ends there, with the field named and nothing spent),
//! `encode` (an exhaustive match on what the engine can answer) and the listener in `mod`.
//!
//! Doors that take checks run on a current-thread runtime per worker with a listener of its own, so
//! that a check never changes thread.

pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod resp;
