//! The only file that reads a clock.
//!
//! Time is counted in microseconds since 1970, anchored to the wall clock once and monotonic from
//! there: a stepped wall clock neither mints tokens nor locks anybody out.
//!
//! The kernel's clock costs 25 ns a reading, a third of a check. So the processor's counter is read
//! instead, and set right by the kernel's clock every ten milliseconds: the counter alone would run
//! away from it by seconds a day, and carry the boundaries of windows along.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tollgate_core::units::Micros;

/// How long the counter is trusted, in nanoseconds. At a rate wrong by one in ten thousand it is
/// then off by a microsecond, the smallest time there is here.
const TRUSTED_NANOS: u64 = 10_000_000;

/// The longest that reading the kernel's clock may take, for the counter to be set by it.
const TOGETHER_NANOS: u64 = 2_000;

/// Where a store that keeps its own state reads the time.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's monotonic clock, anchored to its wall clock.
    System(Arc<System>),
    /// A number that a test moves.
    Manual(Arc<AtomicU64>),
}

/// The machine's clocks, and how far the counter is from them.
#[derive(Debug)]
pub struct System {
    start: Instant,
    /// What the wall clock said at `start`, in nanoseconds since 1970.
    wall: u64,
    counter: quanta::Clock,
    counter_start: u64,
    /// Where the counter stood when it was last set right, in nanoseconds since its start.
    synced: AtomicU64,
    /// What to add to the counter to have nanoseconds since 1970.
    offset: AtomicU64,
}

impl Clock {
    /// The machine's clock, anchored now.
    pub fn system() -> Clock {
        Clock::System(Arc::new(System::new()))
    }

    /// A clock that stands still at `at` until its owner moves it.
    pub fn manual(at: Micros) -> (Clock, Arc<AtomicU64>) {
        let hand = Arc::new(AtomicU64::new(at.0));
        (Clock::Manual(Arc::clone(&hand)), hand)
    }

    /// The time. Two threads may disagree by a microsecond or two, which is far below what the
    /// algorithms take for a step.
    ///
    /// hot path: no allocation, no lock, no system call.
    #[inline]
    pub fn now(&self) -> Micros {
        match self {
            Clock::System(system) => Micros(system.nanos() / 1000),
            Clock::Manual(hand) => Micros(hand.load(Ordering::Acquire)),
        }
    }
}

impl System {
    #[expect(clippy::disallowed_methods, reason = "the one place where time enters")]
    fn new() -> System {
        let counter = quanta::Clock::new();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        System {
            start: Instant::now(),
            wall: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX / 2),
            counter_start: counter.raw(),
            counter,
            synced: AtomicU64::new(u64::MAX / 2), // not yet
            offset: AtomicU64::new(0),
        }
    }

    #[inline]
    fn nanos(&self) -> u64 {
        let count = self.count();
        // A counter that went back wraps to far more than it is trusted for.
        if count.wrapping_sub(self.synced.load(Ordering::Relaxed)) > TRUSTED_NANOS {
            return self.sync();
        }
        count.wrapping_add(self.offset.load(Ordering::Relaxed))
    }

    /// Asks the kernel, and sets the counter right if the two were read together. A thread that was
    /// stopped between them would push the time of all others forward by as long.
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "the one place where time enters")]
    fn sync(&self) -> u64 {
        let before = self.count();
        let elapsed = Instant::now().saturating_duration_since(self.start);
        let after = self.count();
        let nanos = self.wall + u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX / 2);
        if after.wrapping_sub(before) < TOGETHER_NANOS {
            // By the later count: what is lost is time, never gained.
            self.offset.store(nanos.wrapping_sub(after), Ordering::Relaxed);
            self.synced.store(after, Ordering::Relaxed);
        }
        nanos
    }

    #[inline]
    fn count(&self) -> u64 {
        self.counter.delta_as_nanos(self.counter_start, self.counter.raw())
    }
}

/// The host's wall clock. Only for what people read, and to guess calendar windows by.
#[expect(clippy::disallowed_methods, reason = "the one place where time enters")]
pub fn wall() -> Micros {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(Micros::ZERO, Micros::from)
}

/// A moment, for measuring how long something took.
#[expect(clippy::disallowed_methods, reason = "the one place where time enters")]
pub fn instant() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over twenty settings, between two readings of the kernel's clock.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "compares with the kernel's clock")]
    fn the_counter_keeps_the_kernels_time() {
        let system = System::new();
        let kernel = || system.wall + u64::try_from(system.start.elapsed().as_nanos()).unwrap();
        let slack = 20_000;
        let start = Instant::now();
        while start.elapsed().as_millis() < 200 {
            let (before, now, after) = (kernel(), system.nanos(), kernel());
            assert!(now + slack >= before && now <= after + slack, "{before} {now} {after}");
        }
    }
}
