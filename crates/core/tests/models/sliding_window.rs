//! The textbook sliding window: a count per window, and the definition of a share.
//!
//! At `into` microseconds of a window of `span`, what counts is all of this window and
//! ⌊previous · (span − into) / span⌋ of the one before. How long to wait is searched for.

use std::collections::BTreeMap;

use tollgate_core::decision::{Decision, Outcome, Refunded, Take, Verb};
use tollgate_core::units::Micros;

use super::{Answer, GiveBack, Reading, Visit, denied, first_fit, found, narrow, refunded, returned};

/// At most `limit` in any `span` microseconds, nearly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) limit: u32,
    pub(crate) span: u64,
}

/// One key.
#[derive(Debug, Default)]
pub(crate) struct Model {
    written: Option<Counts>,
}

/// What was admitted, by where its window begins.
#[derive(Debug, Clone, Default)]
struct Counts {
    span: u64,
    admitted: BTreeMap<i128, u64>,
}

struct View {
    counts: Counts,
    now: u64,
    behind: u64,
}

fn start_of(at: i128, span: u64) -> i128 {
    at - at.rem_euclid(i128::from(span))
}

impl Counts {
    fn newest(&self) -> i128 {
        *self.admitted.keys().next_back().expect("whoever writes, writes a window")
    }

    fn in_window(&self, start: i128) -> u64 {
        self.admitted.get(&start).copied().unwrap_or(0)
    }

    /// The same counts for windows of another length: the newest count goes to the window that its own
    /// began in, and the one before goes to the one before.
    fn over(&self, span: u64) -> Counts {
        if self.span == span {
            return self.clone();
        }
        let newest = self.newest();
        let start = start_of(newest, span);
        let admitted = BTreeMap::from([
            (start, self.in_window(newest)),
            (start - i128::from(span), self.in_window(newest - i128::from(self.span))),
        ]);
        Counts { span, admitted }
    }

    fn used_at(&self, now: u64) -> u64 {
        let (now, span) = (i128::from(now), i128::from(self.span));
        let start = start_of(now, self.span);
        let into = now - start;
        let share = i128::from(self.in_window(start - span)) * (span - into) / span;
        self.in_window(start) + u64::try_from(share).expect("a share of a count")
    }

    /// How long until at most `most` count. After two windows nothing does.
    fn wait_until(&self, now: u64, most: u64) -> u64 {
        first_fit(0, 2 * self.span, |wait| self.used_at(now + wait) <= most)
    }

    fn reset_after(&self, now: u64, behind: u64) -> u64 {
        if self.used_at(now) == 0 { 0 } else { behind + self.wait_until(now, 0) }
    }
}

impl Model {
    /// Where the newest window begins, what it admitted, and what the one before did.
    pub(crate) fn newest(&self) -> Option<(i128, u64, u64)> {
        self.written.as_ref().map(|counts| {
            let newest = counts.newest();
            (newest, counts.in_window(newest), counts.in_window(newest - i128::from(counts.span)))
        })
    }

    fn view(&self, limit: &Limit, now: u64) -> View {
        let nothing = || Counts { span: limit.span, admitted: BTreeMap::new() };
        let Some(written) = &self.written else {
            return View { counts: nothing(), now, behind: 0 };
        };
        let newest = u64::try_from(written.newest()).expect("windows begin after 1970");
        let Reading { now, behind, is_stepped } = Reading::of(now, Some(newest));
        let counts = if is_stepped { nothing() } else { written.over(limit.span) };
        View { counts, now, behind }
    }

    pub(crate) fn visit(&mut self, limit: &Limit, visit: Visit) -> Answer {
        let is_there = self.written.is_some();
        let View { mut counts, now, behind } = self.view(limit, visit.now);
        let (most, cost) = (u64::from(limit.limit), u64::from(visit.cost));

        let outcome = if cost > most {
            Outcome::Never
        } else if counts.used_at(now) + cost > most {
            denied(behind + counts.wait_until(now, most - cost))
        } else {
            Outcome::Allowed
        };
        if visit.verb == Verb::Take && outcome == Outcome::Allowed {
            *counts.admitted.entry(start_of(i128::from(now), limit.span)).or_insert(0) += cost;
        }
        if visit.spends() && outcome == Outcome::Allowed {
            self.written = Some(counts.clone());
        }
        let decision = Decision {
            outcome,
            limit: limit.limit,
            remaining: narrow(most.saturating_sub(counts.used_at(now))),
            reset_after: Micros(counts.reset_after(now, behind)),
            take: Take { at: Micros(visit.now), entry: 0 },
            found: found(is_there),
        };
        Answer { decision, mends: false }
    }

    pub(crate) fn refund(&mut self, limit: &Limit, back: GiveBack) -> Refunded {
        let View { mut counts, now, behind } = self.view(limit, back.now);
        let current = start_of(i128::from(now), limit.span);
        let is_current = start_of(i128::from(back.take.at.0), limit.span) == current;
        let mut given = 0;
        if let Some(admitted) = counts.admitted.get_mut(&current).filter(|_| is_current) {
            given = u64::from(back.cost).min(*admitted);
            *admitted -= given;
        }
        if given > 0 {
            self.written = Some(counts.clone());
        }
        let remaining = narrow(u64::from(limit.limit).saturating_sub(counts.used_at(now)));
        refunded(returned(narrow(given), back.cost), limit.limit, remaining, counts.reset_after(now, behind))
    }
}
