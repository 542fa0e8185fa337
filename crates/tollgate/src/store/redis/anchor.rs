//! Our own reckoning of Redis' clock, for servers whose scripts may not read it.
//!
//! Redis' `TIME`, sampled on the connection, plus the monotonic time since. Never the host's wall
//! clock, and never moved backwards: a later sample that reads earlier is not believed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tollgate_core::units::Micros;

use crate::clock;

/// A sampled time and when it was sampled.
#[derive(Debug, Default)]
pub(super) struct Anchor {
    is_used: AtomicBool,
    sampled: Mutex<Option<(Micros, Instant)>>,
}

impl Anchor {
    /// Whether calls must bring their own time.
    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// From here on they must.
    pub(super) fn start_using(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Believes a sample, unless it would move time backwards.
    pub(super) fn set(&self, time: Micros) {
        let mut sampled = self.sampled.lock();
        let now = clock::instant();
        let reckoned = sampled.map_or(Micros::ZERO, |(at, since)| at + Micros::from(now - since));
        *sampled = Some((time.max(reckoned), now));
    }

    /// What Redis' clock reads, by our reckoning.
    pub(super) fn now(&self) -> Option<Micros> {
        let sampled = *self.sampled.lock();
        sampled.map(|(at, since)| at + Micros::from(clock::instant() - since))
    }
}
