//! The only file that reads a clock.
//!
//! Time is counted in microseconds since 1970, anchored to the wall clock once and monotonic from
//! there: a stepped wall clock neither mints tokens nor locks anybody out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tollgate_core::units::Micros;

/// Where a store that keeps its own state reads the time.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's monotonic clock, anchored to its wall clock.
    System(Anchor),
    /// A number that a test moves.
    Manual(Arc<AtomicU64>),
}

/// One instant by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Anchor {
    start: Instant,
    wall: Micros,
}

impl Clock {
    /// The machine's clock, anchored now.
    #[expect(clippy::disallowed_methods, reason = "the one place where time enters")]
    pub fn system() -> Clock {
        let start = Instant::now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(Micros::ZERO, Micros::from);
        Clock::System(Anchor { start, wall })
    }

    /// A clock that stands still at `at` until its owner moves it.
    pub fn manual(at: Micros) -> (Clock, Arc<AtomicU64>) {
        let hand = Arc::new(AtomicU64::new(at.0));
        (Clock::Manual(Arc::clone(&hand)), hand)
    }

    /// The time, never before an earlier answer of the same system clock.
    ///
    /// hot path: no allocation, no lock, no system call where the kernel maps its clock.
    #[inline]
    #[expect(clippy::disallowed_methods, reason = "the one place where time enters")]
    pub fn now(&self) -> Micros {
        match self {
            Clock::System(Anchor { start, wall }) => {
                let elapsed = Instant::now().saturating_duration_since(*start);
                // Not `as_micros`: that divides 128 bits.
                Micros(wall.0 + elapsed.as_secs() * 1_000_000 + u64::from(elapsed.subsec_micros()))
            }
            Clock::Manual(hand) => Micros(hand.load(Ordering::Acquire)),
        }
    }
}
