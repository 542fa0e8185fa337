//! What this instance holds of one hot key: a state machine without clock or wire.
//!
//! Tokens come in batches, each one take of the store's that may be spent until it ends. The next batch
//! is fetched when half of what a quarter of the lease time needs is left, one fetch at a time, so that
//! callers rarely wait. Where the store has less than that, everything there is is taken, and it is asked
//! again only after a pause: in between, calls are refused here. The pause follows what was found: too
//! much left lying means that somebody was refused for nothing.
//!
//! Proved by: lease/tests.rs, against random fleets under driven time

use std::collections::VecDeque;

use tollgate_core::algorithm::Kind;
use tollgate_core::decision::{Decision, Found, Take};
use tollgate_core::policy::LeaseTerms;
use tollgate_core::units::{Cost, Micros};

use super::traffic::{QUARTERS, Traffic};

/// The most batches at a time that have not ended.
const BATCHES_MAX: usize = 3;

/// The shortest pause between two fetches from a drained limit, as a part of the longest, and at all.
const PAUSE_PART: u64 = 16;
const PAUSE_MIN: Micros = Micros(500);

/// What one instance holds of one key.
#[derive(Debug)]
pub(super) struct Holding {
    kind: Kind,
    limit: u32,
    terms: LeaseTerms,
    traffic: Traffic,
    asked_last: Micros,
    batches: VecDeque<Batch>,
    is_fetching: bool,
    gate: Gate,
    /// What there was when there was too little.
    found: Option<u32>,
    pause: Micros,
    /// When the window ends that tokens are counted in: those of every batch end with it.
    window_ends: Option<Micros>,
    known: Known,
    /// Counts revocations: what was fetched before one is given back.
    epoch: u32,
}

/// Tokens of one take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Batch {
    take: Take,
    spent: u32,
    left: u32,
    until: Micros,
}

/// Whether the store may be asked for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    /// There is nothing to be had before this.
    Drained(Micros),
    /// It did not answer: every call asks for itself until then.
    Away(Micros),
}

/// What the store said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    remaining: u32,
    whole_at: Micros,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It passes, on tokens held here.
    Spent(Spent),
    /// It does not: the store had nothing.
    Refused { retry_after: Micros, remaining: u32, reset_after: Micros },
    /// Tokens are on their way.
    Wait,
    /// The store decides.
    Exact,
}

/// A call that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spent {
    /// What a refund calls it by.
    pub(super) take: Take,
    pub(super) remaining: u32,
    pub(super) reset_after: Micros,
}

/// A fetch to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    /// What to ask for first.
    pub(super) amount: u32,
    /// What would do.
    pub(super) enough: u32,
    pub(super) epoch: u32,
}

/// What came of a fetch.
#[derive(Debug, Clone, Copy)]
pub(super) enum Landed {
    /// So many tokens, which may be spent until then, in a window that ends then.
    Got { amount: u32, decision: Decision, until: Micros, window_ends: Option<Micros> },
    /// The store had none, and might after that.
    Nothing { decision: Decision, retry_after: Micros },
    /// The store did not answer.
    Failed,
}

/// Tokens to give back: the rest of one take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unspent {
    /// The first of them, by the name a refund calls it by.
    pub(crate) take: Take,
    /// How many.
    pub(crate) amount: Cost,
    /// Whether their time was over.
    pub(crate) is_ended: bool,
}

impl Holding {
    /// Nothing yet, of a key that was found to be hot.
    pub(super) fn new(kind: Kind, limit: u32, terms: LeaseTerms, now: Micros, cost: Cost) -> Holding {
        Holding {
            kind,
            limit,
            terms,
            traffic: Traffic::hot(now, cost),
            asked_last: now,
            batches: VecDeque::new(),
            is_fetching: false,
            gate: Gate::Open,
            found: None,
            pause: quarter(terms),
            window_ends: None,
            known: Known { remaining: 0, whole_at: now },
            epoch: 0,
        }
    }

    /// One call: what becomes of it, and what is to be fetched.
    ///
    /// hot path: no allocation.
    #[inline]
    pub(super) fn ask(&mut self, now: Micros, cost: Cost) -> (Turn, Option<Wanted>) {
        self.traffic.count(now, quarter(self.terms), cost);
        self.asked_last = now;
        self.again(now, cost)
    }

    /// The same call after it has waited.
    #[inline]
    pub(super) fn again(&mut self, now: Micros, cost: Cost) -> (Turn, Option<Wanted>) {
        if cost.get() > self.terms.max {
            return (Turn::Exact, None);
        }
        if matches!(self.gate, Gate::Drained(until) | Gate::Away(until) if until <= now) {
            self.gate = Gate::Open;
        }
        let spent = self.spend(now, cost);
        let wanted = self.wanted(now, cost);
        let turn = match (spent, self.gate) {
            (Some(take), _) => Turn::Spent(Spent {
                take,
                remaining: self.remaining(now),
                reset_after: self.known.whole_at - now,
            }),
            (None, Gate::Drained(until)) => Turn::Refused {
                retry_after: until - now,
                remaining: self.left(now),
                reset_after: (self.known.whole_at - now).max(until - now),
            },
            (None, Gate::Open) if self.is_fetching => Turn::Wait,
            (None, Gate::Open | Gate::Away(_)) => Turn::Exact,
        };
        (turn, wanted)
    }

    /// Takes the cost from the oldest batch that has it.
    #[inline]
    fn spend(&mut self, now: Micros, cost: Cost) -> Option<Take> {
        let batch = self.batches.iter_mut().find(|batch| batch.until > now && batch.left >= cost.get())?;
        let take = batch.first_left(self.kind);
        batch.left = batch.left.saturating_sub(cost.get());
        batch.spent = batch.spent.saturating_add(cost.get());
        self.traffic.spent(cost);
        Some(take)
    }

    /// Tokens that can still be spent.
    #[inline]
    pub(super) fn left(&self, now: Micros) -> u32 {
        let live = self.batches.iter().filter(|batch| batch.until > now);
        live.fold(0, |sum: u32, batch| sum.saturating_add(batch.left))
    }

    /// What is left here, and what was left in the store when it was last asked.
    #[inline]
    fn remaining(&self, now: Micros) -> u32 {
        self.left(now).saturating_add(self.known.remaining).min(self.limit)
    }

    /// What to fetch now, if anything.
    #[inline]
    fn wanted(&mut self, now: Micros, cost: Cost) -> Option<Wanted> {
        if self.is_fetching || self.gate != Gate::Open || !self.traffic.is_hot() {
            return None;
        }
        let enough = self.tokens_until_window_ends(now).max(cost.get()).min(self.terms.max);
        let live = self.batches.iter().filter(|batch| batch.until > now && batch.left > 0).count();
        if self.left(now) > enough / 2 || live >= BATCHES_MAX {
            return None;
        }
        self.is_fetching = true;
        let amount = self.found.map_or(enough, |found| found.clamp(1, enough));
        Some(Wanted { amount, enough, epoch: self.epoch })
    }

    /// What a quarter takes; less where the window that would be counted in ends before it does.
    #[inline]
    fn tokens_until_window_ends(&self, now: Micros) -> u32 {
        let (tokens, quarter) = (self.traffic.tokens(), quarter(self.terms));
        match self.window_ends {
            Some(end) if end > now && end - now < quarter => {
                let part = u64::from(tokens) * (end - now).0 / quarter.0.max(1);
                u32::try_from(part).unwrap_or(tokens)
            }
            _ => tokens,
        }
    }

    /// A fetch has ended. Pauses are spread by `spread` thousandths, so that a fleet does not ask in step.
    /// Says what is to be given back, if it came too late.
    pub(super) fn landed(
        &mut self,
        now: Micros,
        wanted: Wanted,
        landed: Landed,
        spread: u64,
    ) -> Vec<Unspent> {
        self.is_fetching = false;
        let is_revoked = wanted.epoch != self.epoch;
        match landed {
            Landed::Got { amount, decision, until, window_ends } => {
                let batch = Batch { take: decision.take, spent: 0, left: amount, until };
                if is_revoked {
                    return batch.unspent(self.kind, now).into_iter().collect();
                }
                if decision.found == Found::Nothing {
                    // Somebody reset the key. What was taken before is of what was forgotten: to spend it
                    // would be too much, and so would giving it back.
                    self.batches.clear();
                }
                self.batches.push_back(batch);
                self.window_ends = window_ends;
                self.knows(now, &decision);
                let found = amount.saturating_add(decision.remaining);
                if found < wanted.enough {
                    self.drained(now, found, self.longest_pause(None), spread);
                } else {
                    (self.gate, self.found) = (Gate::Open, None);
                }
            }
            Landed::Nothing { decision, retry_after } if !is_revoked => {
                self.knows(now, &decision);
                self.drained(now, 0, self.longest_pause(Some(retry_after)), spread);
            }
            Landed::Failed if !is_revoked => self.gate = Gate::Away(now + quarter(self.terms)),
            Landed::Nothing { .. } | Landed::Failed => {}
        }
        self.ended(now)
    }

    fn knows(&mut self, now: Micros, decision: &Decision) {
        self.known = Known { remaining: decision.remaining, whole_at: now + decision.reset_after };
    }

    /// There was less than enough.
    fn drained(&mut self, now: Micros, found: u32, longest: Micros, spread: u64) {
        let shortest = Micros(quarter(self.terms).0 / PAUSE_PART).max(PAUSE_MIN).min(longest);
        let (too_much, too_little) = match self.kind {
            // What is left lying in a bucket is lost only once the bucket is full.
            Kind::TokenBucket => (self.limit / 2, self.limit / 4),
            // What is left lying in a sliding window is room that is used the later.
            Kind::SlidingWindow | Kind::SlidingLog => (self.limit / 80, self.limit / 160),
            // In a fixed one it is not lost before the window ends.
            Kind::FixedWindow => (u32::MAX, u32::MAX),
        };
        if found > too_much.max(1) {
            self.pause = Micros(self.pause.0 / 2);
        } else if found <= too_little {
            self.pause = Micros(self.pause.0 + self.pause.0 / 4);
        }
        self.pause = self.pause.max(shortest).min(longest);
        self.found = Some(found);
        self.gate = Gate::Drained(now + Micros(self.pause.0 * spread / 1000).max(Micros(1)));
    }

    /// A quarter; less where there is nearly enough for all, or where the store says that all will be new
    /// before.
    fn longest_pause(&self, retry_after: Option<Micros>) -> Micros {
        let quarter = quarter(self.terms);
        let quarter = if self.traffic.is_mostly_served() { Micros(quarter.0 / 8) } else { quarter };
        match (self.kind, retry_after) {
            (Kind::FixedWindow, Some(retry_after)) => retry_after.min(quarter),
            _ => quarter,
        }
    }

    /// Lets go of everything, and of what is on its way.
    pub(super) fn revoke(&mut self, now: Micros) -> Vec<Unspent> {
        self.epoch = self.epoch.wrapping_add(1);
        (self.gate, self.found, self.pause) = (Gate::Open, None, quarter(self.terms));
        let kind = self.kind;
        self.batches.drain(..).filter_map(|batch| batch.unspent(kind, now)).collect()
    }

    /// What has ended, or is wanted no more: no call came for half a lease time.
    pub(super) fn sweep(&mut self, now: Micros) -> Vec<Unspent> {
        if now - self.asked_last >= Micros(self.terms.time.0 / 2) {
            let kind = self.kind;
            return self.batches.drain(..).filter_map(|batch| batch.unspent(kind, now)).collect();
        }
        self.ended(now)
    }

    fn ended(&mut self, now: Micros) -> Vec<Unspent> {
        let mut ended = Vec::new();
        let kind = self.kind;
        self.batches.retain(|batch| {
            let is_over = batch.until <= now;
            if is_over {
                ended.extend(batch.unspent(kind, now));
            }
            !is_over && batch.left > 0
        });
        ended
    }

    /// Whether there is nothing to be remembered.
    pub(super) fn is_idle(&self, now: Micros) -> bool {
        self.batches.is_empty()
            && !self.is_fetching
            && now - self.asked_last >= self.terms.time + self.terms.time
    }

    /// Whether it holds something that can be spent.
    pub(super) fn is_active(&self) -> bool {
        self.batches.iter().any(|batch| batch.left > 0)
    }
}

impl Batch {
    /// The name of its next token. Only a log tells the tokens of one take apart.
    fn first_left(&self, kind: Kind) -> Take {
        let entry = match kind {
            Kind::SlidingLog => self.take.entry.saturating_add(self.spent),
            Kind::TokenBucket | Kind::SlidingWindow | Kind::FixedWindow => self.take.entry,
        };
        Take { entry, ..self.take }
    }

    fn unspent(&self, kind: Kind, now: Micros) -> Option<Unspent> {
        let amount = Cost::new(self.left)?;
        Some(Unspent { take: self.first_left(kind), amount, is_ended: self.until <= now })
    }
}

/// The quarter of a lease time.
#[inline]
fn quarter(terms: LeaseTerms) -> Micros {
    Micros(terms.time.0 / QUARTERS)
}
