//! What a call is given, and gives back: a permit that records how it ended, by itself if need be.

use std::time::Duration;

use tollgate_core::breaker::{Fleet, Outcome, SPAN_MAX};
use tollgate_core::units::Micros;

use super::gate::Tag;
use super::{Handle, Heard};

/// No: the breaker is open, or probes enough are under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the breaker refuses; try again in {} ms", retry_after.as_millis())]
pub struct Refused {
    /// When to ask again.
    pub retry_after: Duration,
}

/// Leave to make one call. Say how it ended; a permit that is dropped without a word says nothing about
/// the other side, and gives its lease back if it was a probe's.
#[must_use = "a permit says how its call ended"]
#[derive(Debug)]
pub struct Permit<F: Fleet> {
    handle: Handle<F>,
    pub(super) leave: Leave,
    began: Option<Micros>,
}

/// By what right a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    /// Calls flow.
    Flow(Tag),
    /// It probes.
    Probe(Probe),
    /// It has said how it ended.
    Over,
}

/// A lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probe {
    pub token: u64,
    pub epoch: u64,
    pub ends: Micros,
    pub whose: Whose,
}

/// Who gave a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whose {
    /// The fleet's record: any instance can settle it.
    Fleet,
    /// This instance's own.
    Own,
}

/// A probe's lease, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Its token.
    pub token: u64,
    /// The epoch it was given in.
    pub epoch: u64,
    /// Who gave it.
    pub whose: Whose,
}

impl<F: Fleet> Permit<F> {
    pub(super) fn new(handle: Handle<F>, leave: Leave, began: Option<Micros>) -> Permit<F> {
        Permit { handle, leave, began }
    }

    /// It went well; slowly, if it took longer than `slow_after`.
    pub fn success(mut self) {
        let outcome = self.went_well(None);
        self.end(outcome, None);
    }

    /// What it is to have gone well after so long, or, without a time, by now.
    pub fn went_well(&self, took: Option<Duration>) -> Outcome {
        match (took, self.began) {
            (Some(took), _) => self.handle.outcome_of(Micros::from(took)),
            (None, Some(began)) => self.handle.outcome_of(self.handle.now() - began),
            (None, None) => Outcome::Success,
        }
    }

    /// Whose it is.
    pub fn id(&self) -> &[u8] {
        self.handle.id()
    }

    /// It ended so; and whether that counts, where that is known at once: what becomes of a probe is not.
    pub fn record(mut self, outcome: Outcome, retry_after: Option<Duration>) -> Heard {
        self.end(outcome, retry_after.map(Micros::from))
    }

    /// It failed.
    pub fn failure(mut self) {
        self.end(Outcome::Failure, None);
    }

    /// It failed, and the other side said when to come again: within a day, the longest a breaker is open.
    pub fn failure_until(mut self, retry_after: Duration) {
        self.end(Outcome::Failure, Some(Micros::from(retry_after).min(SPAN_MAX)));
    }

    /// It went well, but slowly.
    pub fn slow(mut self) {
        self.end(Outcome::Slow, None);
    }

    /// It says nothing about the other side: the caller gave up, or asked for nonsense.
    pub fn ignore(self) {
        drop(self);
    }

    /// The call begins now: what came before, as a wait for its turn, does not make it slow.
    pub fn begin(&mut self) {
        self.began = self.began.map(|_| self.handle.now());
    }

    /// How long a probe may take; `None` for any other call. Whoever makes it cancels it then and says that it
    /// failed. It is a moment before the lease ends, for what arrives after that decides nothing.
    pub fn lease_left(&self) -> Option<Duration> {
        match self.leave {
            Leave::Probe(probe) => {
                Some((probe.ends - self.handle.now() - self.handle.room_to_tell()).to_duration())
            }
            Leave::Flow(_) | Leave::Over => None,
        }
    }

    /// Makes a probe's lease something that can be told to others, who settle it by
    /// [`Handle::settle`]: from here on dropping it gives nothing back. With it, how long it lasts to its very end. Any
    /// other call stays a permit.
    pub fn into_lease(mut self) -> Result<(Lease, Duration), Permit<F>> {
        match self.leave {
            Leave::Probe(Probe { token, epoch, whose, ends }) => {
                self.leave = Leave::Over;
                Ok((Lease { token, epoch, whose }, (ends - self.handle.now()).to_duration()))
            }
            Leave::Flow(_) | Leave::Over => Err(self),
        }
    }

    /// Who gave a probe its lease; `None` for any other call.
    pub fn whose(&self) -> Option<Whose> {
        match self.leave {
            Leave::Probe(probe) => Some(probe.whose),
            Leave::Flow(_) | Leave::Over => None,
        }
    }

    #[inline]
    fn end(&mut self, outcome: Outcome, hint: Option<Micros>) -> Heard {
        match std::mem::replace(&mut self.leave, Leave::Over) {
            Leave::Flow(tag) if self.handle.count(tag, outcome, hint) => Heard::Counted,
            Leave::Flow(_) | Leave::Over => Heard::Late,
            Leave::Probe(probe) => {
                self.handle.end_probe(probe, Some((outcome, hint)));
                Heard::Unanswered
            }
        }
    }
}

impl<F: Fleet> Drop for Permit<F> {
    fn drop(&mut self) {
        if let Leave::Probe(probe) = self.leave {
            self.handle.end_probe(probe, None);
        }
    }
}
