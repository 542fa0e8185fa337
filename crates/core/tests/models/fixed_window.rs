//! The textbook fixed window: a count per window, and windows looked up in a list or cut from 1970.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::algorithm::fixed_window::{Bounds, Calendar};
use tollgate_core::decision::{Decision, Outcome, Refunded, Take, Verb};
use tollgate_core::units::Micros;

use super::{Answer, GiveBack, Reading, Visit, denied, found, narrow, refunded, returned};

/// At most `limit` per window.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    pub(crate) limit: u32,
    pub(crate) windows: Windows,
}

#[derive(Debug, Clone)]
pub(crate) enum Windows {
    Every(u64),
    Irregular(Arc<Irregular>),
}

/// A calendar no country has: windows of any length, one after the other.
#[derive(Debug)]
pub(crate) struct Irregular {
    pub(crate) name: String,
    /// Ascending, from 0 to beyond every time that is asked for.
    pub(crate) boundaries: Vec<u64>,
}

impl Calendar for Irregular {
    fn around(&self, now: Micros) -> Bounds {
        let after = self.boundaries.partition_point(|&boundary| boundary <= now.0);
        let at = |index: usize| Micros(self.boundaries.get(index).copied().unwrap_or(u64::MAX));
        Bounds {
            previous: at(after.saturating_sub(2)),
            current: at(after - 1),
            next: at(after),
            end: at(after + 1),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl Windows {
    /// The first instant in the window that holds `at`, and the first after it.
    pub(crate) fn around(&self, at: u64) -> (u64, u64) {
        match self {
            Windows::Every(span) => (at / span * span, (at / span + 1) * span),
            Windows::Irregular(calendar) => {
                let start = calendar.boundaries.iter().rev().find(|&&boundary| boundary <= at);
                let end = calendar.boundaries.iter().find(|&&boundary| boundary > at);
                (*start.expect("begins at 0"), *end.expect("ends beyond every time"))
            }
        }
    }
}

/// One key.
#[derive(Debug, Default)]
pub(crate) struct Model {
    admitted: BTreeMap<u64, u64>,
}

struct View {
    start: u64,
    end: u64,
    count: u64,
    now: u64,
    behind: u64,
}

impl View {
    fn reset_after(&self) -> u64 {
        if self.count == 0 { 0 } else { self.behind + self.end - self.now }
    }
}

impl Model {
    /// Where the newest window begins, and what it admitted.
    pub(crate) fn newest(&self) -> Option<(u64, u64)> {
        self.admitted.last_key_value().map(|(start, count)| (*start, *count))
    }

    fn view(&self, limit: &Limit, now: u64) -> View {
        let newest = self.newest();
        let Reading { now, behind, is_stepped } = Reading::of(now, newest.map(|(start, _)| start));
        let (start, end) = limit.windows.around(now);
        // A count belongs to the window in which its own began, also when the windows are others now.
        let count = newest
            .filter(|(counted_from, _)| !is_stepped && limit.windows.around(*counted_from) == (start, end))
            .map_or(0, |(_, count)| count);
        View { start, end, count, now, behind }
    }

    fn write(&mut self, view: &View) {
        self.admitted.retain(|start, _| *start < view.start);
        self.admitted.insert(view.start, view.count);
    }

    pub(crate) fn visit(&mut self, limit: &Limit, visit: Visit) -> Answer {
        let is_there = !self.admitted.is_empty();
        let mut view = self.view(limit, visit.now);
        let (most, cost) = (u64::from(limit.limit), u64::from(visit.cost));

        let outcome = if cost > most {
            Outcome::Never
        } else if view.count + cost > most {
            denied(view.behind + view.end - view.now)
        } else {
            Outcome::Allowed
        };
        if visit.verb == Verb::Take && outcome == Outcome::Allowed {
            view.count += cost;
        }
        if visit.spends() && outcome == Outcome::Allowed {
            self.write(&view);
        }
        let decision = Decision {
            outcome,
            limit: limit.limit,
            remaining: narrow(most.saturating_sub(view.count)),
            reset_after: Micros(view.reset_after()),
            take: Take { at: Micros(visit.now), entry: 0 },
            found: found(is_there),
        };
        Answer { decision, mends: false }
    }

    pub(crate) fn refund(&mut self, limit: &Limit, back: GiveBack) -> Refunded {
        let mut view = self.view(limit, back.now);
        let is_current = (view.start..view.end).contains(&back.take.at.0);
        let given = if is_current { view.count.min(u64::from(back.cost)) } else { 0 };
        if given > 0 {
            view.count -= given;
            self.write(&view);
        }
        let remaining = narrow(u64::from(limit.limit).saturating_sub(view.count));
        refunded(returned(narrow(given), back.cost), limit.limit, remaining, view.reset_after())
    }
}
