//! Time and cost as integers: exact, saturating, and never a float.
//!
//! Times are microseconds since 1970 (or a span of them). Everything stays below 2^53, so that the
//! Lua twins, whose only number is a double, compute the very same integers.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::{Add, Sub};
use std::time::Duration;

/// The largest integer a Lua number holds exactly, and so the largest time we accept.
pub const EXACT_MAX: u64 = (1 << 53) - 1;

/// A point in time (since 1970) or a span of it, in microseconds. Arithmetic saturates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// No time at all.
    pub const ZERO: Micros = Micros(0);
    /// One second.
    pub const SECOND: Micros = Micros(1_000_000);

    /// A span of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Micros {
        Micros(millis.saturating_mul(1_000))
    }

    /// A span of whole seconds.
    pub const fn from_secs(secs: u64) -> Micros {
        Micros(secs.saturating_mul(1_000_000))
    }

    /// Whole milliseconds, rounded up: whoever waits that long has waited long enough.
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// The same span for the standard library.
    pub const fn to_duration(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

impl Add for Micros {
    type Output = Micros;
    #[inline]
    fn add(self, other: Micros) -> Micros {
        Micros(self.0.saturating_add(other.0))
    }
}

impl Sub for Micros {
    type Output = Micros;
    #[inline]
    fn sub(self, other: Micros) -> Micros {
        Micros(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for Micros {
    fn from(span: Duration) -> Micros {
        Micros(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Micros {
    /// In the largest unit that divides it: `1s`, `15min`, `250ms`, `7us`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] = [
            (86_400_000_000, "d"),
            (3_600_000_000, "h"),
            (60_000_000, "min"),
            (1_000_000, "s"),
            (1_000, "ms"),
        ];
        for (micros, name) in UNITS {
            if self.0 != 0 && self.0.is_multiple_of(micros) {
                return write!(f, "{}{name}", self.0.div_euclid(micros));
            }
        }
        write!(f, "{}us", self.0)
    }
}

/// How much one ask spends: at least one. Looking without spending is a peek, not a cost of zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(NonZeroU32);

impl Cost {
    /// The usual cost.
    pub const ONE: Cost = Cost(NonZeroU32::MIN);

    /// A cost of at least one, or `None`.
    pub fn new(cost: u32) -> Option<Cost> {
        NonZeroU32::new(cost).map(Cost)
    }

    /// The number itself.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

/// `floor(a * b / c)`, exact. Callers guarantee `c > 0`; the result saturates at `u64::MAX`.
pub(crate) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    let product = u128::from(a).saturating_mul(u128::from(b));
    u64::try_from(product.checked_div(u128::from(c)).unwrap_or(u128::MAX)).unwrap_or(u64::MAX)
}

/// A count that is known to fit, because it is bounded by a `u32` limit.
#[inline]
pub(crate) fn count(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// How far a clock may step back before the state is re-anchored instead of waited for.
///
/// Waiting (`max(stored, now)` alone) locks users out for the length of a backward step;
/// re-anchoring alone leaks tokens under jitter. One second tells the two apart.
pub const STEP_TOLERATED: Micros = Micros::SECOND;

/// The time to decide at, given the stored time, and what a caller must wait beyond that.
pub(crate) enum Reading {
    /// The clock is at or past the stored time, or behind it by at most [`STEP_TOLERATED`]:
    /// decide at `now`, and add `behind` to whatever must be waited.
    Steady { now: Micros, behind: Micros },
    /// The clock stepped back further than that: the stored time means nothing any more.
    Stepped,
}

impl Reading {
    /// Compares the clock with the latest time the state has seen.
    #[inline]
    pub(crate) fn of(now: Micros, stored: Micros) -> Reading {
        if now >= stored {
            return Reading::Steady { now, behind: Micros::ZERO };
        }
        let behind = stored - now;
        if behind <= STEP_TOLERATED { Reading::Steady { now: stored, behind } } else { Reading::Stepped }
    }
}
