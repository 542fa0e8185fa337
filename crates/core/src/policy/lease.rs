//! How a rule leases: on what terms an instance may take tokens ahead of the calls that spend them.
//!
//! A lease trades a stated, small share of accuracy for round trips. What may be traded depends on the
//! algorithm, so the terms are worked out for each limit; what a file asks for beyond them is refused.

use crate::algorithm::fixed_window::Windows;
use crate::algorithm::{Algorithm, Kind};
use crate::units::Micros;

/// The longest lease there is: whatever revokes one is seen everywhere by then.
pub const LEASE_TIME_MAX: Micros = Micros::SECOND;

/// The shortest: below it a lease would end before the next call comes.
pub const LEASE_TIME_MIN: Micros = Micros::from_millis(1);

/// How many lease times the window of a `sliding_log` must hold.
const LOG_SHARE: u64 = 50;

/// The most tokens of a `sliding_log` that are taken at once.
const LOG_TOKENS_MAX: u32 = 500;

/// Whether and how a rule leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// As long and as much as the limit and the traffic suggest.
    Auto,
    /// Within these bounds.
    Within {
        /// The most tokens of one lease.
        max: u32,
        /// How long they may be spent.
        time: Micros,
    },
}

/// The terms of leases on one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerms {
    /// The most tokens of one lease.
    pub max: u32,
    /// How long they may be spent.
    pub time: Micros,
}

/// Why a limit cannot be leased as a rule asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// Nothing could be leased.
    #[error("max is {max}: a lease of fewer than 2 saves nothing")]
    TooFew {
        /// What was asked for.
        max: u32,
    },
    /// More than the limit ever holds.
    #[error("max is {max}, and the limit never holds more than {limit}")]
    TooMany {
        /// What was asked for.
        max: u32,
        /// The limit.
        limit: u32,
    },
    /// Too short to be of use.
    #[error("for is {time}: at least {LEASE_TIME_MIN}")]
    TooShort {
        /// What was asked for.
        time: Micros,
    },
    /// Longer than the algorithm can bear.
    #[error("for is {time}: at most {longest} on this {kind}")]
    TooLong {
        /// What was asked for.
        time: Micros,
        /// The longest allowed.
        longest: Micros,
        /// The algorithm.
        kind: Kind,
    },
    /// The windows are over before a lease would be of use.
    #[error("a {kind} of {window} is too short to lease from: at least {shortest}")]
    Window {
        /// The algorithm.
        kind: Kind,
        /// Its window.
        window: Micros,
        /// The shortest that will do.
        shortest: Micros,
    },
    /// Several limits are spent together, or not at all; a lease on one of them would be neither.
    #[error("is for rules of one limit, and this one has {limits}: all of them must be asked together")]
    Several {
        /// How many.
        limits: usize,
    },
}

impl Lease {
    /// Whether this limit may be leased so.
    pub fn check(&self, algorithm: &Algorithm) -> Result<(), LeaseError> {
        let (kind, longest, limit) = (algorithm.kind(), longest(algorithm), algorithm.limit());
        if longest < LEASE_TIME_MIN {
            let times = if kind == Kind::SlidingLog { LOG_SHARE } else { 1 };
            let shortest = Micros(LEASE_TIME_MIN.0.saturating_mul(times));
            return Err(LeaseError::Window { kind, window: algorithm.window(), shortest });
        }
        match *self {
            Lease::Within { max, .. } if max < 2 => Err(LeaseError::TooFew { max }),
            Lease::Within { max, .. } if max > limit => Err(LeaseError::TooMany { max, limit }),
            Lease::Within { time, .. } if time < LEASE_TIME_MIN => Err(LeaseError::TooShort { time }),
            Lease::Within { time, .. } if time > longest => Err(LeaseError::TooLong { time, longest, kind }),
            Lease::Auto | Lease::Within { .. } => Ok(()),
        }
    }

    /// The terms on this limit; `None` if it cannot be leased. An override may have another limit than
    /// the one that was checked: what is beyond its bounds is cut off.
    #[inline]
    pub fn terms(&self, algorithm: &Algorithm) -> Option<LeaseTerms> {
        let (longest, limit) = (longest(algorithm), algorithm.limit().min(most(algorithm)));
        let terms = match *self {
            Lease::Auto => LeaseTerms { max: limit, time: usual(algorithm).min(longest) },
            Lease::Within { max, time } => LeaseTerms { max: max.min(limit), time: time.min(longest) },
        };
        (terms.max >= 2 && terms.time >= LEASE_TIME_MIN).then_some(terms)
    }
}

/// The longest that tokens of this limit may be out.
fn longest(algorithm: &Algorithm) -> Micros {
    let window = match algorithm {
        Algorithm::TokenBucket(_) => LEASE_TIME_MAX,
        // Booked at the end of the lease, an entry weighs on the window that much longer.
        Algorithm::SlidingLog(log) => Micros(log.span().0.div_euclid(LOG_SHARE)),
        Algorithm::SlidingWindow(window) => window.span(),
        Algorithm::FixedWindow(window) => match window.windows() {
            Windows::Every(span) => *span,
            Windows::Calendar(_) => LEASE_TIME_MAX,
        },
    };
    window.min(LEASE_TIME_MAX)
}

/// The most tokens of one lease: each is an entry in a log, and nobody else is served while they are written.
fn most(algorithm: &Algorithm) -> u32 {
    match algorithm {
        Algorithm::SlidingLog(_) => LOG_TOKENS_MAX,
        Algorithm::TokenBucket(_) | Algorithm::SlidingWindow(_) | Algorithm::FixedWindow(_) => u32::MAX,
    }
}

/// How long `auto` lets tokens be out, where that may be.
///
/// A bucket that fills in less time than that gives no more per lease than it holds, so a longer lease
/// would only widen the bound; in a counter's window there should be room for more than one lease.
fn usual(algorithm: &Algorithm) -> Micros {
    match algorithm {
        Algorithm::TokenBucket(bucket) => bucket.time_to_full().max(LEASE_TIME_MIN),
        Algorithm::SlidingWindow(window) => Micros(window.span().0.div_euclid(2)),
        Algorithm::FixedWindow(window) => match window.windows() {
            Windows::Every(span) => Micros(span.0.div_euclid(2)),
            Windows::Calendar(_) => LEASE_TIME_MAX,
        },
        Algorithm::SlidingLog(_) => LEASE_TIME_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Rate;

    fn limit(kind: Kind, rate: &str) -> Algorithm {
        Algorithm::try_new(kind, Rate::parse(rate).unwrap(), None, 10_000).unwrap()
    }

    fn terms(kind: Kind, rate: &str) -> Option<(u32, u64)> {
        Lease::Auto.terms(&limit(kind, rate)).map(|terms| (terms.max, terms.time.0))
    }

    #[test]
    fn auto_follows_the_limit() {
        assert_eq!(terms(Kind::TokenBucket, "1000/min"), Some((1000, 1_000_000)));
        assert_eq!(terms(Kind::TokenBucket, "1000/100ms"), Some((1000, 100_000)));
        assert_eq!(terms(Kind::FixedWindow, "1000/s"), Some((1000, 500_000)));
        assert_eq!(terms(Kind::SlidingWindow, "1000/h"), Some((1000, 1_000_000)));
        assert_eq!(terms(Kind::SlidingLog, "1000/s"), Some((500, 20_000)));
        assert_eq!(terms(Kind::SlidingLog, "1000/min"), Some((500, 1_000_000)));
        assert_eq!(terms(Kind::SlidingLog, "1000/49ms"), None);
        assert_eq!(terms(Kind::TokenBucket, "1/s"), None, "a limit of one leaves nothing to lease");
    }

    #[test]
    fn what_is_out_of_bounds_is_named() {
        let check = |max, millis, kind, rate| {
            let lease = Lease::Within { max, time: Micros::from_millis(millis) };
            lease.check(&limit(kind, rate)).map_err(|error| error.to_string())
        };
        assert_eq!(check(50, 100, Kind::TokenBucket, "100/s"), Ok(()));
        assert_eq!(
            check(1, 100, Kind::TokenBucket, "100/s").unwrap_err(),
            "max is 1: a lease of fewer than 2 saves nothing"
        );
        assert_eq!(
            check(101, 100, Kind::TokenBucket, "100/s").unwrap_err(),
            "max is 101, and the limit never holds more than 100"
        );
        assert_eq!(check(50, 0, Kind::FixedWindow, "100/s").unwrap_err(), "for is 0us: at least 1ms");
        assert_eq!(
            check(50, 1001, Kind::TokenBucket, "100/s").unwrap_err(),
            "for is 1001ms: at most 1s on this token_bucket"
        );
        assert_eq!(
            check(50, 21, Kind::SlidingLog, "100/s").unwrap_err(),
            "for is 21ms: at most 20ms on this sliding_log"
        );
        assert_eq!(
            Lease::Auto.check(&limit(Kind::SlidingLog, "100/40ms")).unwrap_err().to_string(),
            "a sliding_log of 40ms is too short to lease from: at least 50ms"
        );
    }

    #[test]
    fn an_overrides_limit_cuts_the_terms() {
        let lease = Lease::Within { max: 50, time: Micros::from_millis(900) };
        let cut = lease.terms(&limit(Kind::FixedWindow, "10/100ms")).unwrap();
        assert_eq!(cut, LeaseTerms { max: 10, time: Micros::from_millis(100) });
    }
}
