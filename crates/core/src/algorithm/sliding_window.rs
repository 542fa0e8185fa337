//! Sliding window: two counters stand for a log, in constant memory whatever the limit.
//!
//! What the previous window admitted is taken to have been spread evenly over it, and the share
//! of it that still lies inside the last `span` counts, floored. Rounding up instead would keep
//! the full rate from ever passing; rounding down admits at most one more than C + r·T.
//!
//! Twin:      tollgate/scripts/sliding_window.lua
//! Model:     tests/models/sliding_window.rs
//! Proved by: tests/algorithms.rs, tollgate/tests/twins.rs

use crate::decision::{Decision, Found, Outcome, Refunded, Returned, Step, Take, Verb};
use crate::limit::{LimitError, Rate};
use crate::units::{Cost, Micros, Reading, count, mul_div};

/// So many per any window, nearly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingWindow {
    pub(super) limit: u32,
    pub(super) span: Micros,
}

/// What is remembered about one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Where the window of `current` begins.
    pub start: Micros,
    /// Admitted in that window.
    pub current: u32,
    /// Admitted in the one before.
    pub previous: u32,
}

impl SlidingWindow {
    /// At most `count` per any `span`.
    pub fn try_new(rate: Rate) -> Result<SlidingWindow, LimitError> {
        Ok(SlidingWindow { limit: rate.count(), span: rate.span()? })
    }

    /// The most that is admitted per window.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The window's length.
    pub fn span(&self) -> Micros {
        self.span
    }

    /// The previous window's share at `into` the current one.
    fn share(&self, previous: u32, into: Micros) -> u32 {
        count(mul_div(u64::from(previous), (self.span - into).0, self.span.0))
    }

    /// How far into a window the share of `previous` has shrunk to `room`.
    ///
    /// `floor(previous · (span − into) / span) ≤ room` first holds at
    /// `into = floor(span · (previous − room − 1) / previous) + 1`.
    fn shrunk_at(&self, previous: u32, room: u32) -> Micros {
        let Some(excess) = previous.checked_sub(room).and_then(|n| n.checked_sub(1)) else {
            return Micros::ZERO;
        };
        Micros(mul_div(self.span.0, u64::from(excess), u64::from(previous)).saturating_add(1))
    }
}

/// The counters brought up to the present.
struct Present {
    state: State,
    into: Micros,
    behind: Micros,
    found: Found,
}

fn present(sliding: &SlidingWindow, state: Option<&State>, now: Micros) -> Present {
    let found = if state.is_some() { Found::State } else { Found::Nothing };
    let steady = state.and_then(|state| match Reading::of(now, state.start) {
        Reading::Steady { now, behind } => Some((*state, now, behind)),
        Reading::Stepped => None,
    });
    let (state, now, behind) =
        steady.unwrap_or((State { start: Micros::ZERO, current: 0, previous: 0 }, now, Micros::ZERO));

    let into = Micros(now.0.checked_rem(sliding.span.0).unwrap_or(0));
    let start = now - into;
    // By where the counted window began, not by equality: a changed span keeps its counts.
    let (current, previous) = if state.start >= start {
        (state.current, state.previous)
    } else if state.start + sliding.span >= start {
        (0, state.current)
    } else {
        (0, 0)
    };
    Present { state: State { start, current, previous }, into, behind, found }
}

impl Present {
    fn used(&self, sliding: &SlidingWindow) -> u32 {
        self.state.current.saturating_add(sliding.share(self.state.previous, self.into))
    }

    /// Until `cost` fits, if nobody else spends.
    fn wait_for(&self, sliding: &SlidingWindow, cost: u32) -> Micros {
        let State { current, previous, .. } = self.state;
        let room = sliding.limit.checked_sub(current).and_then(|left| left.checked_sub(cost));
        let until = match room {
            // In this window (or as it ends), once the previous one's share has shrunk enough.
            Some(room) => sliding.shrunk_at(previous, room),
            // Only in the next, when this window's own count has become a share.
            None => sliding.span + sliding.shrunk_at(current, sliding.limit.saturating_sub(cost)),
        };
        self.behind + (until - self.into)
    }

    /// Until nothing counts any more.
    fn wait_for_whole(&self, sliding: &SlidingWindow) -> Micros {
        let State { current, previous, .. } = self.state;
        let until = if current > 0 {
            sliding.span + sliding.shrunk_at(current, 0)
        } else {
            sliding.shrunk_at(previous, 0)
        };
        if until <= self.into { Micros::ZERO } else { self.behind + (until - self.into) }
    }
}

/// Decides one visit at `now`. Counts `cost` if it fits beside what still counts.
///
/// hot path: no allocation, no clock, no float.
pub fn visit(
    sliding: &SlidingWindow,
    state: Option<&State>,
    now: Micros,
    cost: Cost,
    verb: Verb,
) -> Step<State> {
    let take = Take { at: now, entry: 0 };
    let mut present = present(sliding, state, now);
    // By what is left, not by a sum: a sum that saturates at the largest limit would always fit.
    let fits = cost.get() <= sliding.limit.saturating_sub(present.used(sliding));

    let outcome = if cost.get() > sliding.limit {
        Outcome::Never
    } else if !fits {
        Outcome::Denied { retry_after: present.wait_for(sliding, cost.get()) }
    } else {
        if verb == Verb::Take {
            present.state.current = present.state.current.saturating_add(cost.get());
        }
        Outcome::Allowed
    };
    Step {
        decision: Decision {
            outcome,
            limit: sliding.limit,
            remaining: sliding.limit.saturating_sub(present.used(sliding)),
            reset_after: present.wait_for_whole(sliding),
            take,
            found: present.found,
        },
        spend: (outcome == Outcome::Allowed).then_some(present.state),
        mend: None,
    }
}

/// Takes back what was counted at `taken_at`, if that was in the window that is current.
pub fn refund(
    sliding: &SlidingWindow,
    state: Option<&State>,
    now: Micros,
    cost: Cost,
    taken_at: Micros,
) -> (Refunded, Option<State>) {
    let mut present = present(sliding, state, now);
    let State { start, current, .. } = present.state;
    let is_current = taken_at >= start && taken_at < start + sliding.span;
    let given = if is_current { cost.get().min(current) } else { 0 };
    present.state.current = current.saturating_sub(given);
    let refunded = Refunded {
        returned: Returned::of(u64::from(given), u64::from(cost.get())),
        limit: sliding.limit,
        remaining: sliding.limit.saturating_sub(present.used(sliding)),
        reset_after: present.wait_for_whole(sliding),
    };
    (refunded, (given > 0).then_some(present.state))
}
