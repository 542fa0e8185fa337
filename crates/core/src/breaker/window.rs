//! Outcomes over a window, in a handful of buckets.
//!
//! A window by time has ten of them, each a tenth of it wide and aligned to the clock, so that it looks
//! back between nine and ten tenths. A window by calls opens a bucket when the last one has a tenth of
//! the calls, and forgets the oldest once there are enough without it: outcomes come in deltas, which
//! are kept whole, so it holds at least the calls it is set to and at most one bucket more.
//!
//! Keeping each outcome instead (as a ring of calls does) would cost memory by the size of the window,
//! and could not take in a delta of a thousand calls at once.

use super::settings::Window;
use crate::units::{EXACT_MAX, Micros};

/// Into how many buckets a window is divided.
pub const BUCKETS: u64 = 10;

/// The most of one outcome that a bucket counts.
pub const COUNT_MAX: u64 = u32::MAX as u64;

/// How calls ended. Every call is one of the three: one that fails is not also slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Counts {
    /// Succeeded in time.
    pub ok: u64,
    /// Failed.
    pub failed: u64,
    /// Succeeded, but slowly.
    pub slow: u64,
}

impl Counts {
    /// All calls.
    pub fn calls(self) -> u64 {
        self.ok.saturating_add(self.failed).saturating_add(self.slow)
    }

    pub(super) fn add(&mut self, other: Counts) {
        let sum = |a: u64, b: u64| a.saturating_add(b.min(COUNT_MAX)).min(COUNT_MAX);
        self.ok = sum(self.ok, other.ok);
        self.failed = sum(self.failed, other.failed);
        self.slow = sum(self.slow, other.slow);
    }
}

/// Calls that ended at about the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// By time: which tenth of a window since 1970. By calls: how many were counted before it.
    pub at: u64,
    /// How they ended.
    pub counts: Counts,
}

/// What a window remembers: buckets, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Buckets {
    /// At most eleven.
    pub buckets: Vec<Bucket>,
    /// Calls ever counted, where the window is of calls.
    pub counted: u64,
    /// Which window counts, as [`Window::mark`] has it.
    pub counted_by: u64,
}

impl Window {
    /// How wide a bucket is: in microseconds, or in calls.
    pub fn width(self) -> u64 {
        match self {
            Window::Time(span) => span.0.div_ceil(BUCKETS),
            Window::Calls(calls) => u64::from(calls).div_ceil(BUCKETS),
        }
    }

    /// Tells it from every other window: twice its reach, and one more if it is of calls.
    pub fn mark(self) -> u64 {
        self.reach().saturating_mul(2).saturating_add(u64::from(matches!(self, Window::Calls(_))))
    }

    /// How far it looks back: in microseconds, or in calls.
    pub fn reach(self) -> u64 {
        match self {
            Window::Time(span) => span.0,
            Window::Calls(calls) => u64::from(calls),
        }
    }
}

impl Buckets {
    /// Where the window stands: now, or the number of calls counted.
    pub(super) fn position(&self, window: Window, now: Micros) -> u64 {
        match window {
            Window::Time(_) => now.0,
            Window::Calls(_) => self.counted,
        }
    }

    /// Counts what ended by `now`.
    pub(super) fn add(&mut self, window: Window, now: Micros, counts: Counts) {
        let width = window.width();
        let at = match window {
            Window::Time(_) => now.0.checked_div(width).unwrap_or(0),
            Window::Calls(_) => match self.buckets.last() {
                Some(last) if last.counts.calls() < width => last.at,
                _ => self.counted,
            },
        };
        match self.buckets.last_mut() {
            Some(last) if last.at == at => last.counts.add(counts),
            _ => {
                let mut bucket = Bucket { at, counts: Counts::default() };
                bucket.counts.add(counts);
                self.buckets.push(bucket);
            }
        }
        if let Window::Calls(_) = window {
            self.counted = self.counted.saturating_add(counts.calls()).min(EXACT_MAX);
        }
        self.forget(window, now);
    }

    /// Forgets what the window no longer looks back to.
    pub(super) fn forget(&mut self, window: Window, now: Micros) {
        match window {
            Window::Time(_) => {
                let current = now.0.checked_div(window.width()).unwrap_or(0);
                self.buckets.retain(|bucket| bucket.at.saturating_add(BUCKETS) > current);
            }
            Window::Calls(calls) => {
                let mut left = self.total().calls();
                while let Some(oldest) = self.buckets.first() {
                    left = left.saturating_sub(oldest.counts.calls());
                    if left < u64::from(calls) {
                        break;
                    }
                    self.buckets.remove(0);
                }
            }
        }
    }

    /// All of it together.
    pub fn total(&self) -> Counts {
        self.buckets.iter().fold(Counts::default(), |sum, bucket| Counts {
            ok: sum.ok.saturating_add(bucket.counts.ok),
            failed: sum.failed.saturating_add(bucket.counts.failed),
            slow: sum.slow.saturating_add(bucket.counts.slow),
        })
    }
}
