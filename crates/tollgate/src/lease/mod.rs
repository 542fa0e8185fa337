//! Tokens taken ahead for hot keys, a handful at a time, and spent without asking the store.
//!
//! A lease is an ordinary take of several tokens whose calls come within the lease time. So every call
//! is covered by a take of at most that long ago, and over any elapsed T no more passes than C + r·(T +
//! lease time), whatever the number of instances and whoever dies. A cold key never gets here.
//!
//! `traffic` tells hot keys from cold ones, `holding` is what is done about one hot key, and this file is
//! the table of those: sharded, bounded, and the only one that reads a clock. The engine makes the calls
//! (`engine/leasing.rs`); nothing here waits for anything.

mod holding;
#[cfg(test)]
mod tests;
mod traffic;

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tollgate_core::algorithm::Algorithm;
use tollgate_core::check::{Check, Refund};
use tollgate_core::decision::{Decision, Found, Outcome, Take};
use tollgate_core::key::{Key, Scope};
use tollgate_core::policy::{Lease, LeaseTerms};
use tollgate_core::sip::Sip;
use tollgate_core::units::{Cost, Micros};

use crate::clock::Clock;
pub(crate) use holding::Unspent;
use holding::{Holding, Landed, Spent, Wanted};
use traffic::{QUARTERS, Sketch};

const SHARDS: usize = 64;

/// Hot keys of one shard. Beyond that, keys are not leased.
const HOLDINGS_MAX: usize = 64;

/// Pauses are spread by a quarter either way, in thousandths.
const SPREAD: std::ops::RangeInclusive<u64> = 750..=1250;

/// All leases of one instance.
pub(crate) struct Leases {
    shards: Box<[Mutex<Shard>]>,
    secret: [u64; 2],
    clock: Clock,
    is_closed: AtomicBool,
    /// Fetches and give-backs that are under way, and who is told when there is none.
    under_way: AtomicUsize,
    settled: Notify,
    /// Told whenever there is one more key to sweep.
    stirred: Arc<Notify>,
}

#[derive(Debug)]
struct Shard {
    sketch: Sketch,
    holdings: HashMap<[u64; 2], Held, BuildHasherDefault<Ready>>,
}

#[derive(Debug)]
struct Held {
    named: Arc<Named>,
    holding: Holding,
    landed: Arc<Notify>,
}

/// Which key a lease is on, and under which limit.
#[derive(Debug)]
pub(crate) struct Named {
    scope: Scope,
    subject: Box<[u8]>,
    algorithm: Algorithm,
    /// The same, for takes of several ahead.
    ahead: Algorithm,
    terms: LeaseTerms,
}

/// What becomes of a call.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It is decided.
    Decided(Decision),
    /// Tokens are on their way: ask again when they have come.
    Wait(OwnedNotified),
    /// The store decides.
    Exact,
}

/// Tokens to be fetched.
#[derive(Debug)]
pub(crate) struct Fetch {
    hash: [u64; 2],
    named: Arc<Named>,
    wanted: Wanted,
}

/// The store's answer to a fetch: the last of its takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fetched {
    /// When that take was sent, by this instance's clock.
    pub(crate) sent: Micros,
    /// What it asked for.
    pub(crate) amount: Cost,
    /// What the store said.
    pub(crate) decision: Decision,
}

/// Tokens to be given back.
#[derive(Debug)]
pub(crate) struct GiveBack {
    named: Arc<Named>,
    pub(crate) unspent: Unspent,
}

impl Named {
    /// As a store is asked for so many ahead.
    pub(crate) fn check(&self, cost: Cost) -> Check<'_> {
        let key = Key { scope: &self.scope, subject: &self.subject };
        Check { key, algorithm: &self.ahead, cost }
    }

    /// How long after this instant of the store's its window ends, where there are windows: what is
    /// counted in one is spent in it.
    fn until_window_ends(&self, taken_at: Micros) -> Option<Micros> {
        match &self.algorithm {
            Algorithm::TokenBucket(_) | Algorithm::SlidingLog(_) => None,
            Algorithm::SlidingWindow(window) => {
                Some(window.span() - Micros(taken_at.0.checked_rem(window.span().0).unwrap_or(0)))
            }
            Algorithm::FixedWindow(window) => Some(window.windows().window_of(taken_at).end - taken_at),
        }
    }
}

impl Fetch {
    /// What to ask for.
    pub(crate) fn check(&self, cost: Cost) -> Check<'_> {
        self.named.check(cost)
    }

    /// What to ask for first.
    pub(crate) fn amount(&self) -> Cost {
        Cost::new(self.wanted.amount).unwrap_or(Cost::ONE)
    }

    /// What to ask for when that was refused with so many remaining.
    pub(crate) fn rather(&self, remaining: u32) -> Option<Cost> {
        Cost::new(remaining.min(self.wanted.enough))
    }
}

impl GiveBack {
    /// As a store is asked for it.
    pub(crate) fn refund(&self) -> Refund<'_> {
        Refund { check: self.named.check(self.unspent.amount), take: self.unspent.take }
    }
}

impl Leases {
    /// No leases yet; and none ever, unless they are wanted.
    pub(crate) fn new(clock: Clock, is_wanted: bool) -> Leases {
        let word = || RandomState::new().build_hasher().finish();
        let shard = || Mutex::new(Shard { sketch: Sketch::new(), holdings: HashMap::default() });
        Leases {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            secret: [word(), word()],
            clock,
            is_closed: AtomicBool::new(!is_wanted),
            under_way: AtomicUsize::new(0),
            settled: Notify::new(),
            stirred: Arc::default(),
        }
    }

    /// The time that leases end by.
    pub(crate) fn now(&self) -> Micros {
        self.clock.now()
    }

    /// One call of a rule that leases: what becomes of it, and what is to be fetched. `is_first` unless
    /// the call has waited.
    ///
    /// hot path: one hash, one short lock, no allocation.
    #[inline]
    pub(crate) fn ask(&self, check: &Check<'_>, lease: Lease, is_first: bool) -> (Turn, Option<Fetch>) {
        let hash = self.hash(&check.key);
        let Some(shard) = self.shard(hash) else { return (Turn::Exact, None) };
        let now = self.now();
        let mut shard = shard.lock();
        let Some(held) = shard.holdings.get_mut(&hash) else {
            return self.ask_cold(&mut shard, hash, check, lease, now);
        };
        if held.named.algorithm != *check.algorithm {
            // Another policy is in force, and what was held under the old one has been given back: a
            // policy is swapped before its leases are revoked.
            if held.holding.is_active() {
                return (Turn::Exact, None);
            }
            shard.holdings.remove(&hash);
            return self.ask_cold(&mut shard, hash, check, lease, now);
        }
        let (turn, wanted) =
            if is_first { held.holding.ask(now, check.cost) } else { held.holding.again(now, check.cost) };
        let fetch = wanted.map(|wanted| Fetch { hash, named: Arc::clone(&held.named), wanted });
        (held.told(turn), fetch)
    }

    /// A call of a key that holds nothing, and may be about to.
    fn ask_cold(
        &self,
        shard: &mut Shard,
        hash: [u64; 2],
        check: &Check<'_>,
        lease: Lease,
        now: Micros,
    ) -> (Turn, Option<Fetch>) {
        let Some(terms) = lease.terms(check.algorithm) else { return (Turn::Exact, None) };
        // The limit of an override that was made while we ran: its log would take what is booked ahead for
        // a clock that stepped back.
        if matches!(check.algorithm, Algorithm::SlidingLog(log) if log.lease() != terms.time) {
            return (Turn::Exact, None);
        }
        let is_full = shard.holdings.len() >= HOLDINGS_MAX || self.is_closed.load(Ordering::Acquire);
        if is_full || !shard.sketch.is_hot_by(hash, now, Micros(terms.time.0 / QUARTERS)) {
            return (Turn::Exact, None);
        }
        let named = Arc::new(Named {
            scope: check.key.scope.clone(),
            subject: check.key.subject.into(),
            algorithm: check.algorithm.clone(),
            ahead: check.algorithm.ahead(),
            terms,
        });
        let (kind, limit) = (check.algorithm.kind(), check.algorithm.limit());
        let mut holding = Holding::new(kind, limit, terms, now, check.cost);
        let (turn, wanted) = holding.ask(now, check.cost);
        let fetch = wanted.map(|wanted| Fetch { hash, named: Arc::clone(&named), wanted });
        let held = Held { named, holding, landed: Arc::default() };
        let turn = held.told(turn);
        shard.holdings.insert(hash, held);
        self.stirred.notify_one();
        (turn, fetch)
    }

    /// A fetch has ended: `None` if the store did not answer. Says what is to be given back.
    pub(crate) fn landed(&self, fetch: &Fetch, fetched: Option<Fetched>) -> Vec<GiveBack> {
        let now = self.now();
        let landed = match fetched {
            None => Landed::Failed,
            Some(Fetched { sent, amount, decision }) => match decision.outcome {
                Outcome::Allowed => {
                    // From before it was sent: by the store's clock it is not that late then.
                    let window_ends = fetch.named.until_window_ends(decision.take.at).map(|span| sent + span);
                    let until = sent + fetch.named.terms.time;
                    let until = window_ends.map_or(until, |end| end.min(until));
                    Landed::Got { amount: amount.get(), decision, until, window_ends }
                }
                Outcome::Denied { retry_after } => Landed::Nothing { decision, retry_after },
                Outcome::Never => Landed::Failed,
            },
        };
        let held_still = self.shard(fetch.hash).and_then(|shard| {
            let mut shard = shard.lock();
            let held = shard.holdings.get_mut(&fetch.hash)?;
            if !Arc::ptr_eq(&held.named, &fetch.named) {
                return None;
            }
            let unspent = held.holding.landed(now, fetch.wanted, landed, fastrand::u64(SPREAD));
            held.landed.notify_waiters();
            Some(unspent)
        });
        let unspent = held_still.unwrap_or_else(|| match landed {
            Landed::Got { amount, decision, .. } => {
                let whole = |amount| Unspent { take: decision.take, amount, is_ended: false };
                Cost::new(amount).map(whole).into_iter().collect()
            }
            Landed::Nothing { .. } | Landed::Failed => Vec::new(),
        });
        let back = |unspent| GiveBack { named: Arc::clone(&fetch.named), unspent };
        unspent.into_iter().map(back).collect()
    }

    /// Lets go of what has ended and of what nobody asks for any more.
    pub(crate) fn sweep(&self) -> Vec<GiveBack> {
        let now = self.now();
        self.collect(|held| held.holding.sweep(now), |held| !held.holding.is_idle(now))
    }

    /// Lets go of everything.
    pub(crate) fn revoke_all(&self) -> Vec<GiveBack> {
        let now = self.now();
        self.collect(|held| held.holding.revoke(now), |_| true)
    }

    /// Lets go of everything, and takes nothing any more.
    pub(crate) fn close(&self) -> Vec<GiveBack> {
        self.is_closed.store(true, Ordering::Release);
        let now = self.now();
        self.collect(|held| held.holding.revoke(now), |_| false)
    }

    /// Something goes under way: what it brings must not be lost.
    pub(crate) fn set_out(&self) {
        self.under_way.fetch_add(1, Ordering::AcqRel);
    }

    /// It has ended, however it ended.
    pub(crate) fn arrived(&self) {
        if self.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.settled.notify_waiters();
        }
    }

    /// Returns when nothing is under way.
    pub(crate) async fn settled(&self) {
        loop {
            let mut settled = pin!(self.settled.notified());
            settled.as_mut().enable();
            if self.under_way.load(Ordering::Acquire) == 0 {
                return;
            }
            settled.await;
        }
    }

    /// Lets go of what is held of these keys. It is not given back: they are about to be whole.
    pub(crate) fn forget(&self, keys: &[Key<'_>]) {
        let now = self.now();
        for key in keys {
            let hash = self.hash(key);
            if let Some(shard) = self.shard(hash)
                && let Some(held) = shard.lock().holdings.get_mut(&hash)
            {
                held.holding.revoke(now);
            }
        }
    }

    /// How many keys tokens are held of.
    pub(crate) fn active(&self) -> usize {
        let active = |shard: &Mutex<Shard>| {
            shard.lock().holdings.values().filter(|held| held.holding.is_active()).count()
        };
        self.shards.iter().map(active).sum()
    }

    /// What tells when there is something to sweep, unless there is already.
    pub(crate) fn stirred(&self) -> Option<Arc<Notify>> {
        let is_empty = self.shards.iter().all(|shard| shard.lock().holdings.is_empty());
        is_empty.then(|| Arc::clone(&self.stirred))
    }

    fn collect(
        &self,
        mut let_go: impl FnMut(&mut Held) -> Vec<Unspent>,
        mut keeps: impl FnMut(&Held) -> bool,
    ) -> Vec<GiveBack> {
        let mut back = Vec::new();
        for shard in &self.shards {
            shard.lock().holdings.retain(|_, held| {
                let unspent = let_go(held);
                back.extend(
                    unspent.into_iter().map(|one| GiveBack { named: Arc::clone(&held.named), unspent: one }),
                );
                let keeps = keeps(held);
                if !keeps {
                    held.landed.notify_waiters();
                }
                keeps
            });
        }
        back
    }

    #[inline]
    fn hash(&self, key: &Key<'_>) -> [u64; 2] {
        let ([first, second], digest) = (self.secret, key.scope.digest());
        Sip::new(first ^ digest[0], second ^ digest[1]).hash(key.subject)
    }

    #[inline]
    fn shard(&self, hash: [u64; 2]) -> Option<&Mutex<Shard>> {
        self.shards.get(usize::try_from(hash[1] >> 58).unwrap_or(0))
    }
}

impl Held {
    /// A turn as the engine is told it.
    #[inline]
    fn told(&self, turn: holding::Turn) -> Turn {
        let limit = self.named.algorithm.limit();
        let none = Take { at: Micros::ZERO, entry: 0 };
        match turn {
            holding::Turn::Spent(Spent { take, remaining, reset_after }) => Turn::Decided(Decision {
                outcome: Outcome::Allowed,
                limit,
                remaining,
                reset_after,
                take,
                found: Found::State,
            }),
            holding::Turn::Refused { retry_after, remaining, reset_after } => Turn::Decided(Decision {
                outcome: Outcome::Denied { retry_after },
                limit,
                remaining,
                reset_after,
                take: none,
                found: Found::State,
            }),
            holding::Turn::Wait => Turn::Wait(Arc::clone(&self.landed).notified_owned()),
            holding::Turn::Exact => Turn::Exact,
        }
    }
}

/// Hashes what is a hash already: its words, folded.
#[derive(Debug, Default)]
struct Ready(u64);

impl Hasher for Ready {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks::<8>();
        self.0 = words.iter().fold(self.0, |folded, word| folded ^ u64::from_le_bytes(*word));
    }
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases").field("active", &self.active()).finish_non_exhaustive()
    }
}
