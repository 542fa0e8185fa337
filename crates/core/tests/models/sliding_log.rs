//! The textbook log: one element per token, and every question reads all of them.

use tollgate_core::decision::{Decision, Outcome, Refunded, Take, Verb};
use tollgate_core::units::Micros;

use super::{Answer, GiveBack, Reading, Visit, denied, first_fit, found, narrow, refunded, returned};

/// At most `limit` in any `span` microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) limit: u32,
    pub(crate) span: u64,
}

/// One key.
#[derive(Debug, Default)]
pub(crate) struct Model {
    entries: Vec<Entry>,
    is_there: bool,
}

/// One token: when it was spent, and its number among those of that microsecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) at: u64,
    pub(crate) number: u32,
}

/// How many of `entries` count at `now`: an entry counts for exactly one span.
fn used(limit: &Limit, entries: &[Entry], now: u64) -> u64 {
    entries.iter().filter(|entry| entry.at <= now && now < entry.at + limit.span).count() as u64
}

/// How long until at most `most` count.
fn wait_until(limit: &Limit, entries: &[Entry], now: u64, most: u64) -> u64 {
    first_fit(0, limit.span, |wait| used(limit, entries, now + wait) <= most)
}

impl Model {
    /// Everything remembered, in order.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = self.entries.clone();
        entries.sort_unstable();
        entries
    }

    fn reading(&self, now: u64) -> Reading {
        Reading::of(now, self.entries.iter().map(|entry| entry.at).max())
    }

    /// What a clock at `now` believes in: nothing written after it.
    fn believed(&self, now: u64) -> Vec<Entry> {
        self.entries.iter().copied().filter(|entry| entry.at <= now).collect()
    }

    pub(crate) fn visit(&mut self, limit: &Limit, visit: Visit) -> Answer {
        let is_there = self.is_there;
        let Reading { now, behind, is_stepped } = self.reading(visit.now);
        let mut entries = self.believed(now);
        let most = u64::from(limit.limit);
        let cost = u64::from(visit.cost);
        let before = used(limit, &entries, now);
        let next = entries.iter().filter(|entry| entry.at == now).map(|entry| entry.number + 1).max();
        let take = Take { at: Micros(now), entry: next.unwrap_or(0) };

        let outcome = if cost > most {
            Outcome::Never
        } else if before + cost > most {
            denied(behind + wait_until(limit, &entries, now, most - cost))
        } else {
            Outcome::Allowed
        };
        if visit.verb == Verb::Take && is_stepped {
            self.entries.clone_from(&entries);
        }
        if visit.verb == Verb::Take && outcome == Outcome::Allowed {
            entries.retain(|entry| now < entry.at + limit.span);
            entries.extend((0..visit.cost).map(|n| Entry { at: now, number: take.entry + n }));
        }
        if visit.spends() && outcome == Outcome::Allowed {
            self.entries.clone_from(&entries);
            self.is_there = true;
        }
        let after = used(limit, &entries, now);
        let wait = if after == 0 { 0 } else { behind + wait_until(limit, &entries, now, 0) };
        let decision = Decision {
            outcome,
            limit: limit.limit,
            remaining: narrow(most.saturating_sub(after)),
            reset_after: Micros(wait),
            take,
            found: found(is_there),
        };
        Answer { decision, mends: is_stepped }
    }

    pub(crate) fn refund(&mut self, limit: &Limit, back: GiveBack) -> Refunded {
        let (at, from) = (back.take.at.0, u64::from(back.take.entry));
        let names = from..from + u64::from(back.cost);
        let is_named = |entry: &Entry| entry.at == at && names.contains(&u64::from(entry.number));
        let now = self.reading(back.now).now;
        let live: Vec<Entry> = self.believed(now).into_iter().filter(is_named).collect();
        let given = narrow(used(limit, &live, now));
        self.entries.retain(|entry| !is_named(entry));

        let Reading { now, behind, .. } = self.reading(back.now);
        let entries = self.believed(now);
        let after = used(limit, &entries, now);
        let remaining = narrow(u64::from(limit.limit).saturating_sub(after));
        let wait = if after == 0 { 0 } else { behind + wait_until(limit, &entries, now, 0) };
        refunded(returned(given, back.cost), limit.limit, remaining, wait)
    }
}
