//! The four limiters, and the one place that tells them apart.
//!
//! A closed enum on purpose: a new algorithm needs a Lua twin on every node, so the honest place
//! to extend is this repository, and the compiler then lists every place to visit.

pub mod fixed_window;
mod share;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;

use std::fmt;
use std::sync::Arc;

pub use fixed_window::{Calendar, FixedWindow};
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use token_bucket::TokenBucket;

use crate::limit::{LimitError, Rate};
use crate::units::Micros;

/// One limit, ready to decide.
#[derive(Debug, Clone, PartialEq)]
pub enum Algorithm {
    /// Bursts up to capacity, a smooth rate after.
    TokenBucket(TokenBucket),
    /// Exact windows, for small limits.
    SlidingLog(SlidingLog),
    /// Nearly exact windows in constant memory.
    SlidingWindow(SlidingWindow),
    /// One counter per aligned window.
    FixedWindow(FixedWindow),
}

/// Which of the four: its name is the same in files, metrics and Lua; keys have its initials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// `token_bucket`
    #[default]
    TokenBucket,
    /// `sliding_log`
    SlidingLog,
    /// `sliding_window`
    SlidingWindow,
    /// `fixed_window`
    FixedWindow,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::TokenBucket, Kind::SlidingLog, Kind::SlidingWindow, Kind::FixedWindow];

    /// The one name it has everywhere.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::TokenBucket => "token_bucket",
            Kind::SlidingLog => "sliding_log",
            Kind::SlidingWindow => "sliding_window",
            Kind::FixedWindow => "fixed_window",
        }
    }

    /// As it stands at the end of a key. Redis reads every byte of a key several times for a check, and keeps
    /// up to 31 of them in one piece of 32.
    pub const fn initials(self) -> &'static str {
        match self {
            Kind::TokenBucket => "tb",
            Kind::SlidingLog => "sl",
            Kind::SlidingWindow => "sw",
            Kind::FixedWindow => "fw",
        }
    }

    /// Reads the initials.
    pub fn of_initials(initials: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.initials() == initials)
    }

    /// Reads the name.
    pub fn parse(name: &str) -> Result<Kind, LimitError> {
        Kind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| LimitError::UnknownAlgorithm { name: name.chars().take(40).collect() })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Algorithm {
    /// Builds any of the four from a rate, an optional burst and the longest log allowed.
    ///
    /// Only a token bucket has a burst; it defaults to the rate's own count.
    pub fn try_new(
        kind: Kind,
        rate: Rate,
        burst: Option<u32>,
        log_max: u32,
    ) -> Result<Algorithm, LimitError> {
        if kind != Kind::TokenBucket && burst.is_some() {
            return Err(LimitError::BurstUnused { algorithm: kind.name() });
        }
        Ok(match kind {
            Kind::TokenBucket => {
                Algorithm::TokenBucket(TokenBucket::try_new(rate, burst.unwrap_or(rate.count()))?)
            }
            Kind::SlidingLog => Algorithm::SlidingLog(SlidingLog::try_new(rate, log_max)?),
            Kind::SlidingWindow => Algorithm::SlidingWindow(SlidingWindow::try_new(rate)?),
            Kind::FixedWindow => Algorithm::FixedWindow(FixedWindow::try_new(rate)?),
        })
    }

    /// A fixed window that follows a calendar.
    pub fn by_calendar(limit: u32, calendar: Arc<dyn Calendar>) -> Result<Algorithm, LimitError> {
        FixedWindow::by_calendar(limit, calendar).map(Algorithm::FixedWindow)
    }

    /// The same limit, of which tokens may be taken ahead that are spent within `lease`. Only a log has to
    /// know.
    #[must_use]
    pub fn leased(self, lease: Micros) -> Algorithm {
        match self {
            Algorithm::SlidingLog(log) => Algorithm::SlidingLog(log.leased(lease)),
            other => other,
        }
    }

    /// The same limit, for a take of tokens ahead.
    #[must_use]
    pub fn ahead(&self) -> Algorithm {
        match self {
            Algorithm::SlidingLog(log) => Algorithm::SlidingLog(log.ahead()),
            other => other.clone(),
        }
    }

    /// Which of the four.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self {
            Algorithm::TokenBucket(_) => Kind::TokenBucket,
            Algorithm::SlidingLog(_) => Kind::SlidingLog,
            Algorithm::SlidingWindow(_) => Kind::SlidingWindow,
            Algorithm::FixedWindow(_) => Kind::FixedWindow,
        }
    }

    /// The most that can be admitted at once.
    pub fn limit(&self) -> u32 {
        match self {
            Algorithm::TokenBucket(bucket) => bucket.capacity(),
            Algorithm::SlidingLog(log) => log.limit(),
            Algorithm::SlidingWindow(window) => window.limit(),
            Algorithm::FixedWindow(window) => window.limit(),
        }
    }

    /// How long state must be remembered after a spend; forgotten later, nothing more is admitted.
    ///
    /// A bucket needs the time it takes to fill, and gets twice that; a window needs its own
    /// length (two, where the previous one still counts), and gets up to a minute more. The margin
    /// is never below a second, so that a tolerated clock step cannot expire a key early.
    pub fn keep_for(&self) -> Micros {
        let needed = self.time_to_whole();
        let margin = match self {
            Algorithm::TokenBucket(_) => needed,
            _ => needed.min(Micros::from_secs(60)),
        };
        needed + margin.max(Micros::SECOND)
    }

    /// The span in which its limit may be admitted, as callers are told it.
    pub fn window(&self) -> Micros {
        match self {
            Algorithm::TokenBucket(bucket) => bucket.time_to_full(),
            Algorithm::SlidingLog(log) => log.span(),
            Algorithm::SlidingWindow(window) => window.span(),
            Algorithm::FixedWindow(window) => match window.windows() {
                fixed_window::Windows::Every(span) => *span,
                fixed_window::Windows::Calendar(calendar) => calendar.usual_length(),
            },
        }
    }

    /// The longest it can take a spent limit to be whole again.
    pub fn time_to_whole(&self) -> Micros {
        match self {
            Algorithm::TokenBucket(bucket) => bucket.time_to_full(),
            // What is taken ahead counts from the end of its lease on.
            Algorithm::SlidingLog(log) => log.span() + log.lease(),
            // The count of one window still weighs on the next.
            Algorithm::SlidingWindow(window) => window.span() + window.span(),
            Algorithm::FixedWindow(window) => match window.windows() {
                fixed_window::Windows::Every(span) => *span,
                // The longest month, and a day for changes of the clock.
                fixed_window::Windows::Calendar(_) => Micros::from_secs(32 * 86_400),
            },
        }
    }
}
