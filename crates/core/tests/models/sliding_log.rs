//! The textbook log: one element per token, and every question reads all of them.

use tollgate_core::decision::{Decision, Outcome, Refunded, Take, Verb};
use tollgate_core::units::Micros;

use super::{Answer, GiveBack, Reading, Visit, denied, first_fit, found, narrow, refunded, returned};

/// At most `limit` in any `span` microseconds. Tokens may be taken that are spent within `lease`; those of a
/// visit are spent within `ahead`, and count from the end of that on.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "a limit's limit is what everybody calls it")]
pub(crate) struct Limit {
    pub(crate) limit: u32,
    pub(crate) span: u64,
    pub(crate) lease: u64,
    pub(crate) ahead: u64,
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

/// How many of `entries` count at `now`: an entry counts until one span after it, and if it is booked ahead
/// it counts already.
fn used(limit: &Limit, entries: &[Entry], now: u64) -> u64 {
    entries.iter().filter(|entry| now < entry.at + limit.span).count() as u64
}

/// How long until at most `most` count.
fn wait_until(limit: &Limit, entries: &[Entry], now: u64, most: u64) -> u64 {
    first_fit(0, limit.span + limit.lease, |wait| used(limit, entries, now + wait) <= most)
}

impl Model {
    /// Everything remembered, in order.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = self.entries.clone();
        entries.sort_unstable();
        entries
    }

    /// Whoever booked the latest did so no longer than a lease time before it.
    fn reading(&self, limit: &Limit, now: u64) -> Reading {
        let latest = self.entries.iter().map(|entry| entry.at).max();
        Reading::of(now, latest.map(|at| at.saturating_sub(limit.lease)))
    }

    /// What a clock believes in: after it stepped back, nothing that is ahead of it.
    fn believed(&self, reading: Reading) -> Vec<Entry> {
        let Reading { now, is_stepped, .. } = reading;
        self.entries.iter().copied().filter(|entry| !is_stepped || entry.at <= now).collect()
    }

    pub(crate) fn visit(&mut self, limit: &Limit, visit: Visit) -> Answer {
        let is_there = self.is_there;
        let reading = self.reading(limit, visit.now);
        let Reading { now, behind, is_stepped } = reading;
        let mut entries = self.believed(reading);
        let most = u64::from(limit.limit);
        let cost = u64::from(visit.cost);
        let before = used(limit, &entries, now);
        let booked = now + limit.ahead;
        // What has left the window is as good as gone, and so is its number.
        let there = entries.iter().filter(|entry| entry.at == booked && now < entry.at + limit.span);
        let next = there.map(|entry| entry.number + 1).max();
        let take = Take { at: Micros(booked), entry: next.unwrap_or(0) };

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
            entries.retain(|entry| visit.now < entry.at + limit.span);
            entries.extend((0..visit.cost).map(|n| Entry { at: booked, number: take.entry + n }));
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
        let reading = self.reading(limit, back.now);
        let live: Vec<Entry> = self.believed(reading).into_iter().filter(is_named).collect();
        let given = narrow(used(limit, &live, reading.now));
        self.entries.retain(|entry| !is_named(entry));

        let reading = self.reading(limit, back.now);
        let Reading { now, behind, .. } = reading;
        let entries = self.believed(reading);
        let after = used(limit, &entries, now);
        let remaining = narrow(u64::from(limit.limit).saturating_sub(after));
        let wait = if after == 0 { 0 } else { behind + wait_until(limit, &entries, now, 0) };
        refunded(returned(given, back.cost), limit.limit, remaining, wait)
    }
}
