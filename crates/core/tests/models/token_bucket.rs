//! The textbook bucket: tokens are a fraction, and a microsecond adds count / period to them.

use tollgate_core::decision::{Decision, Outcome, Refunded, Returned, Take, Verb};
use tollgate_core::units::Micros;

use super::ratio::Ratio;
use super::{Answer, GiveBack, Reading, Visit, denied, found, refunded};

/// `count` tokens per `period` microseconds, as written: nothing is reduced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) count: u32,
    pub(crate) period: u64,
    pub(crate) capacity: u32,
}

/// One key.
#[derive(Debug, Default)]
pub(crate) struct Model {
    bucket: Option<Bucket>,
}

/// What was in the bucket, when, and under which limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    pub(crate) tokens: Ratio,
    pub(crate) at: u64,
    pub(crate) limit: Limit,
}

struct View {
    tokens: Ratio,
    now: u64,
    behind: u64,
    mends: bool,
}

impl Limit {
    fn rate(&self) -> Ratio {
        Ratio::new(u128::from(self.count), u128::from(self.period))
    }

    fn full(&self) -> Ratio {
        Ratio::whole(u128::from(self.capacity))
    }

    fn poured_in(&self, elapsed: u64) -> Ratio {
        self.rate() * Ratio::whole(u128::from(elapsed))
    }

    /// 10/s and 20/2s are one limit.
    fn is_same_as(&self, other: &Limit) -> bool {
        self.capacity == other.capacity && self.rate() == other.rate()
    }

    /// The first whole microsecond by which `tokens` more have come.
    fn wait_for(&self, tokens: Ratio) -> u64 {
        u64::try_from((tokens / self.rate()).ceil()).expect("no bucket takes 500,000 years")
    }

    fn reset_after(&self, tokens: Ratio, behind: u64) -> u64 {
        if tokens == self.full() { 0 } else { behind + self.wait_for(self.full() - tokens) }
    }
}

impl Model {
    pub(crate) fn bucket(&self) -> Option<Bucket> {
        self.bucket
    }

    fn view(&self, limit: &Limit, now: u64) -> View {
        let Some(Bucket { tokens, at, limit: old }) = self.bucket else {
            return View { tokens: limit.full(), now, behind: 0, mends: false };
        };
        let reading = Reading::of(now, Some(at));
        let tokens = if reading.is_stepped {
            tokens
        } else {
            old.full().min(tokens + old.poured_in(reading.now - at))
        };
        let is_changed = !old.is_same_as(limit);
        // The same share of the new bucket, down to what a microsecond's refill is counted in.
        let tokens = if is_changed {
            (tokens * (limit.full() / old.full())).floor_to_parts_of(limit.rate())
        } else {
            tokens
        };
        View { tokens, now: reading.now, behind: reading.behind, mends: is_changed || reading.is_stepped }
    }

    pub(crate) fn visit(&mut self, limit: &Limit, visit: Visit) -> Answer {
        let is_there = self.bucket.is_some();
        let View { tokens, now, behind, mends } = self.view(limit, visit.now);
        let cost = Ratio::whole(u128::from(visit.cost));
        let is_take = visit.verb == Verb::Take;

        let (outcome, left) = if visit.cost > limit.capacity {
            (Outcome::Never, tokens)
        } else if cost > tokens {
            (denied(behind + limit.wait_for(cost - tokens)), tokens)
        } else {
            (Outcome::Allowed, if is_take { tokens - cost } else { tokens })
        };
        if visit.spends() && outcome == Outcome::Allowed {
            self.bucket = Some(Bucket { tokens: left, at: now, limit: *limit });
        } else if is_take && mends {
            self.bucket = Some(Bucket { tokens, at: now, limit: *limit });
        }
        let decision = Decision {
            outcome,
            limit: limit.capacity,
            remaining: u32::try_from(left.floor()).expect("at most the capacity"),
            reset_after: Micros(limit.reset_after(left, behind)),
            take: Take { at: Micros(visit.now), entry: 0 },
            found: found(is_there),
        };
        Answer { decision, mends }
    }

    pub(crate) fn refund(&mut self, limit: &Limit, back: GiveBack) -> Refunded {
        let View { tokens, now, behind, mends } = self.view(limit, back.now);
        let cost = Ratio::whole(u128::from(back.cost));
        let come_back = limit.poured_in(now.saturating_sub(back.take.at.0));
        // No more than a bucketful can be missing, whatever was taken under a larger limit.
        let missing = cost.min(limit.full());
        let owed = if come_back >= missing { Ratio::whole(0) } else { missing - come_back };
        let after = limit.full().min(tokens + owed);

        let returned = if after == tokens {
            Returned::Nothing
        } else if after - tokens < cost {
            Returned::Part
        } else {
            Returned::All
        };
        if self.bucket.is_some() && (returned != Returned::Nothing || mends) {
            self.bucket = Some(Bucket { tokens: after, at: now, limit: *limit });
        }
        let remaining = u32::try_from(after.floor()).expect("at most the capacity");
        refunded(returned, limit.capacity, remaining, limit.reset_after(after, behind))
    }
}
