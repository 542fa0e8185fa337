//! The only file that reads a clock.
//!
//! Everything else receives its time, so that tests can drive it and no two parts of one decision
//! can disagree about now.
#![expect(clippy::disallowed_methods, reason = "this is the file the lint points to")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tollgate_core::units::Micros;

/// The time an embedded store reads its state by.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Monotonic, and anchored to the wall clock once, at start: it never steps.
    System {
        /// When it was anchored.
        anchor: Instant,
        /// The wall clock at that moment.
        anchored_at: Micros,
    },
    /// Moved by hand.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that runs.
    pub fn system() -> Clock {
        Clock::System { anchor: Instant::now(), anchored_at: wall() }
    }

    /// A clock that stands at `micros` until it is moved.
    pub fn manual(micros: u64) -> (Clock, Arc<AtomicU64>) {
        let hand = Arc::new(AtomicU64::new(micros));
        (Clock::Manual(Arc::clone(&hand)), hand)
    }

    /// Microseconds since 1970.
    #[inline]
    pub fn now(&self) -> Micros {
        match self {
            Clock::System { anchor, anchored_at } => *anchored_at + Micros::from(anchor.elapsed()),
            Clock::Manual(hand) => Micros(hand.load(Ordering::Relaxed)),
        }
    }
}

/// The host's wall clock. Only for what people read, never for a decision.
pub fn wall() -> Micros {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(Micros::ZERO, Micros::from)
}

/// A moment, for measuring how long something took.
pub fn instant() -> Instant {
    Instant::now()
}
