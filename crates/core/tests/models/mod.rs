//! Textbook limiters: slow, and obviously right.
//!
//! Each is written from the promise, not from the code it judges: tokens are fractions, a log has one
//! element per token, a wait is searched for instead of computed. A formula shared with the
//! implementation would agree with it about its mistakes too.

pub(crate) mod fixed_window;
pub(crate) mod ratio;
pub(crate) mod sliding_log;
pub(crate) mod sliding_window;
pub(crate) mod token_bucket;

use tollgate_core::decision::{Decision, Found, Outcome, Refunded, Returned, Take, Verb};
use tollgate_core::units::Micros;

/// A clock may be behind what is stored by this much and is waited for; by more, it is believed.
const STEP_TOLERATED: u64 = 1_000_000;

/// One ask, as a model sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit {
    pub(crate) now: u64,
    pub(crate) cost: u32,
    pub(crate) verb: Verb,
    pub(crate) others: Others,
}

/// What the other checks of the same ask say: it is spent all together or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    Pass,
    Refuse,
}

impl Visit {
    /// Whether a cost that fits is spent.
    fn spends(&self) -> bool {
        self.verb == Verb::Take && self.others == Others::Pass
    }
}

/// One refund, as a model sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GiveBack {
    pub(crate) now: u64,
    pub(crate) cost: u32,
    pub(crate) take: Take,
}

/// What a model says to a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) decision: Decision,
    /// Whether something is to be remembered even if the ask is refused.
    pub(crate) mends: bool,
}

/// The clock compared with the latest stored time.
#[derive(Debug, Clone, Copy)]
struct Reading {
    now: u64,
    behind: u64,
    is_stepped: bool,
}

impl Reading {
    fn of(now: u64, stored: Option<u64>) -> Reading {
        let stored = stored.unwrap_or(0);
        if now >= stored {
            Reading { now, behind: 0, is_stepped: false }
        } else if stored - now <= STEP_TOLERATED {
            Reading { now: stored, behind: stored - now, is_stepped: false }
        } else {
            Reading { now, behind: 0, is_stepped: true }
        }
    }
}

/// The least `wait` in `from..=to` for which `fits`, which once true stays true.
fn first_fit(from: u64, to: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut refused_below, mut fits_at) = (from, to);
    assert!(fits(fits_at), "nothing fits even after {to} microseconds");
    while refused_below < fits_at {
        let middle = refused_below + (fits_at - refused_below) / 2;
        if fits(middle) {
            fits_at = middle;
        } else {
            refused_below = middle + 1;
        }
    }
    fits_at
}

fn found(is_there: bool) -> Found {
    if is_there { Found::State } else { Found::Nothing }
}

fn returned(given: u32, cost: u32) -> Returned {
    if given == 0 {
        Returned::Nothing
    } else if given < cost {
        Returned::Part
    } else {
        Returned::All
    }
}

fn denied(retry_after: u64) -> Outcome {
    Outcome::Denied { retry_after: Micros(retry_after) }
}

/// Counts that a model keeps wide, as an answer states them.
fn narrow(count: u64) -> u32 {
    u32::try_from(count).expect("a count stays within its limit")
}

fn refunded(returned: Returned, limit: u32, remaining: u32, reset_after: u64) -> Refunded {
    Refunded { returned, limit, remaining, reset_after: Micros(reset_after) }
}
