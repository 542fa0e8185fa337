//! Fixed window: one counter per window, aligned to the epoch or to a calendar.
//!
//! For quotas ("1000 a month in Berlin") and for Envoy's dialect. Twice the limit may pass around
//! a boundary; that is what a fixed window means, and the reason it is not the default.
//!
//! Twin:      tollgate/scripts/fixed_window.lua
//! Model:     tests/models/fixed_window.rs
//! Proved by: tests/algorithms.rs, tollgate/tests/twins.rs

use std::fmt;
use std::sync::Arc;

use crate::decision::{Decision, Found, Outcome, Refunded, Returned, Step, Take, Verb};
use crate::limit::{LimitError, Rate};
use crate::units::{Cost, Micros, Reading};

/// So many per window.
#[derive(Debug, Clone, PartialEq)]
pub struct FixedWindow {
    pub(super) limit: u32,
    pub(super) windows: Windows,
}

/// Where windows begin and end.
#[derive(Debug, Clone)]
pub enum Windows {
    /// Every so long, counted from 1970.
    Every(Micros),
    /// As a calendar says: days, weeks or months in a time zone.
    Calendar(Arc<dyn Calendar>),
}

impl PartialEq for Windows {
    fn eq(&self, other: &Windows) -> bool {
        match (self, other) {
            (Windows::Every(a), Windows::Every(b)) => a == b,
            (Windows::Calendar(a), Windows::Calendar(b)) => a.name() == b.name(),
            _ => false,
        }
    }
}

/// Knows time zones, which neither this crate nor Lua does.
pub trait Calendar: fmt::Debug + Send + Sync {
    /// The windows before, at and after `now`. Pure: the same answer for the same `now`.
    fn around(&self, now: Micros) -> Bounds;

    /// Says which calendar this is (`month in Europe/Berlin`); equal names mean equal calendars.
    fn name(&self) -> &str;

    /// About how long its windows are, to be told to callers.
    fn usual_length(&self) -> Micros {
        Micros::from_secs(31 * 86_400)
    }
}

/// Three windows in a row, by their four boundaries, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Where the previous window begins.
    pub previous: Micros,
    /// Where the current window begins.
    pub current: Micros,
    /// Where the next window begins.
    pub next: Micros,
    /// Where the next window ends.
    pub end: Micros,
}

/// One window: from `start`, up to but not including `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first instant in it.
    pub start: Micros,
    /// The first instant after it.
    pub end: Micros,
}

/// What is remembered about one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Where the window that was counted begins.
    pub start: Micros,
    /// What was admitted in it.
    pub count: u32,
}

impl FixedWindow {
    /// Windows of the rate's own span, aligned to the epoch.
    pub fn try_new(rate: Rate) -> Result<FixedWindow, LimitError> {
        Ok(FixedWindow { limit: rate.count(), windows: Windows::Every(rate.span()?) })
    }

    /// `limit` per calendar window.
    pub fn by_calendar(limit: u32, calendar: Arc<dyn Calendar>) -> Result<FixedWindow, LimitError> {
        if limit == 0 {
            return Err(LimitError::BadCount { count: "0".to_owned() });
        }
        Ok(FixedWindow { limit, windows: Windows::Calendar(calendar) })
    }

    /// The most that is admitted in one window.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Where its windows begin and end.
    pub fn windows(&self) -> &Windows {
        &self.windows
    }
}

impl Windows {
    /// The window that holds `now`.
    pub fn window_of(&self, now: Micros) -> Window {
        match self {
            Windows::Every(span) => {
                let into = Micros(now.0.checked_rem(span.0).unwrap_or(0));
                let start = now - into;
                Window { start, end: start + *span }
            }
            Windows::Calendar(calendar) => {
                let bounds = calendar.around(now);
                Window { start: bounds.current, end: bounds.next }
            }
        }
    }
}

/// The counter brought up to the present.
struct Present {
    window: Window,
    count: u32,
    now: Micros,
    behind: Micros,
    found: Found,
}

fn present(fixed: &FixedWindow, state: Option<&State>, now: Micros) -> Present {
    let found = if state.is_some() { Found::State } else { Found::Nothing };
    let steady = state.and_then(|state| match Reading::of(now, state.start) {
        Reading::Steady { now, behind } => Some((state, now, behind)),
        Reading::Stepped => None,
    });
    let Some((state, now, behind)) = steady else {
        let window = fixed.windows.window_of(now);
        return Present { window, count: 0, now, behind: Micros::ZERO, found };
    };
    let window = fixed.windows.window_of(now);
    // `>=`, not `==`: a limit whose period grew keeps what its shorter window had counted.
    let count = if state.start >= window.start { state.count } else { 0 };
    Present { window, count, now, behind, found }
}

/// Decides one visit at `now`. Counts `cost` if the window has room for all of it.
///
/// hot path: no allocation, no clock, no float.
pub fn visit(fixed: &FixedWindow, state: Option<&State>, now: Micros, cost: Cost, verb: Verb) -> Step<State> {
    let take = Take { at: now, entry: 0 };
    let Present { window, count, now, behind, found } = present(fixed, state, now);
    let until_end = behind + (window.end - now);
    let room = fixed.limit.saturating_sub(count);

    let (outcome, after) = if cost.get() > fixed.limit {
        (Outcome::Never, count)
    } else if cost.get() > room {
        (Outcome::Denied { retry_after: until_end }, count)
    } else if verb == Verb::Peek {
        (Outcome::Allowed, count)
    } else {
        (Outcome::Allowed, count.saturating_add(cost.get()))
    };
    Step {
        decision: Decision {
            outcome,
            limit: fixed.limit,
            remaining: fixed.limit.saturating_sub(after),
            reset_after: if after == 0 { Micros::ZERO } else { until_end },
            take,
            found,
        },
        spend: (outcome == Outcome::Allowed).then_some(State { start: window.start, count: after }),
        mend: None,
    }
}

/// Takes back what was counted at `taken_at`, if that was in the window that is current.
pub fn refund(
    fixed: &FixedWindow,
    state: Option<&State>,
    now: Micros,
    cost: Cost,
    taken_at: Micros,
) -> (Refunded, Option<State>) {
    let Present { window, count, now, behind, .. } = present(fixed, state, now);
    let is_current = taken_at >= window.start && taken_at < window.end;
    let given = if is_current { cost.get().min(count) } else { 0 };
    let after = count.saturating_sub(given);
    let refunded = Refunded {
        returned: Returned::of(u64::from(given), u64::from(cost.get())),
        limit: fixed.limit,
        remaining: fixed.limit.saturating_sub(after),
        reset_after: if after == 0 { Micros::ZERO } else { behind + (window.end - now) },
    };
    (refunded, (given > 0).then_some(State { start: window.start, count: after }))
}
