//! State in this process's memory: for tests, for single instances, and for outages.
//!
//! Sharded by a keyed hash; a visit locks one shard, an ask of several checks locks its shards in
//! ascending order and holds them until all is spent or undone. Memory is bounded: the table is
//! laid out once for the stated maximum and never grows. Where a general-purpose cache evicts the
//! oldest entry, this one forgets only limits that are whole again, for which forgetting is free.
//! So a flood of new keys cannot reset a drained bucket: at the bound the newcomers of one scope
//! and limit share one overflow bucket instead.
//!
//! In reading order: `hash` makes a key 128 bits, `table` finds them, `shape` turns slots into
//! the core's states, `logs` keeps what fits no slot, `shard` is one visit, `several` and `each` are many.
//!
//! Proved by: memory/tests, testkit::contract

mod board;
mod each;
mod hash;
mod logs;
mod room;
mod several;
mod shape;
mod shard;
mod table;
#[cfg(test)]
mod tests;

use std::num::NonZero;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread;

use tollgate_core::algorithm::token_bucket::Plain;
use tollgate_core::algorithm::{Algorithm, Kind};
use tollgate_core::board::{Board, Notice, Post};
use tollgate_core::check::{Check, Refund};
use tollgate_core::decision::{Decision, Found, Refunded};
use tollgate_core::few::Few;
use tollgate_core::key::Key;
use tollgate_core::push::{Heard, Listener, Push};
use tollgate_core::store::{AtOnce, Heartbeat, Reach, Store, StoreError};

use self::board::MemoryBoard;
use self::hash::{KeyHash, KeyHasher};
use self::room::Room;
use self::shape::Shapes;
use self::shard::{Rest, Shard, Visitor, refusal_for_want_of_room};
use self::table::Table;
use super::ears::Ears;
use crate::clock::Clock;

/// A lock that is let go of with a plain store, where one that can put threads to sleep needs a
/// second atomic exchange: a tenth of a check. It is held for some twenty nanoseconds, and whoever
/// finds it taken gives up its time slice instead of spinning on.
type Mutex<T> = spin::mutex::SpinMutex<T, spin::Yield>;
type MutexGuard<'a, T> = spin::mutex::SpinMutexGuard<'a, T, spin::Yield>;

/// The most keys remembered unless set.
pub const MAX_KEYS: u64 = 1_000_000;
/// The most bytes of sliding logs unless set.
pub const LOG_BYTES_MAX: u64 = 64 << 20;

/// Overflow buckets: one per scope and limit that ever found the store full.
const OVERFLOW_KEYS: u64 = 4096;
/// Few enough to stay in the cache, enough that two threads seldom meet.
const SHARDS_PER_CORE: usize = 16;
/// Fewer keys than this per shard would spread too unevenly.
const SHARD_KEYS_MIN: u64 = 1024;
/// Groups a heartbeat sweeps.
const SWEEP_PER_HEARTBEAT: usize = 64;

/// Limiter state in memory.
///
/// ```
/// use tollgate::store::memory::MemoryStore;
///
/// let store = MemoryStore::builder().max_keys(100_000).build();
/// assert_eq!(store.live_keys(), 0);
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[Aligned]>,
    hasher: KeyHasher,
    clock: Clock,
    room: Room,
    overflow: Aligned,
    overflow_room: Room,
    overflowed: AtomicU64,
    sweeps: AtomicUsize,
    board: MemoryBoard,
    ears: Ears,
}

/// Its own cache lines, so that one shard's lock does not slow down its neighbour's.
#[derive(Debug)]
#[repr(align(128))]
struct Aligned {
    /// Beside the lock and not behind it, for those who only touch it.
    table: Table,
    rest: Mutex<Rest>,
}

impl Aligned {
    /// A shard of at least `slots` slots.
    fn new(slots: usize) -> Aligned {
        Aligned { table: Table::new(slots), rest: Mutex::new(Rest::default()) }
    }

    #[inline]
    fn lock(&self) -> Shard<'_> {
        Shard { rest: self.rest.lock(), table: &self.table }
    }
}

/// Settings of a [`MemoryStore`].
#[derive(Debug, Clone)]
pub struct Builder {
    max_keys: u64,
    log_bytes_max: u64,
    shards: Option<u64>,
    clock: Clock,
}

impl MemoryStore {
    /// A store with the default bounds.
    pub fn new() -> MemoryStore {
        MemoryStore::builder().build()
    }

    /// A store with bounds of your own.
    pub fn builder() -> Builder {
        Builder { max_keys: MAX_KEYS, log_bytes_max: LOG_BYTES_MAX, shards: None, clock: Clock::system() }
    }

    /// Keys remembered now, some of which may be whole again and not yet swept.
    pub fn live_keys(&self) -> u64 {
        self.room.keys()
    }

    /// The most keys it remembers.
    pub fn max_keys(&self) -> u64 {
        self.room.keys_max()
    }

    /// Takes that were answered from an overflow bucket, or refused, for want of room.
    pub fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// hot path: one lock, no allocation.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see Taking")]
    fn take_one(&self, check: &Check<'_>) -> Decision {
        self.take_visitor(&self.visitor(check))
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see Taking")]
    fn take_visitor(&self, visitor: &Visitor<'_>) -> Decision {
        let check = visitor.check;
        let mut shard = self.shard(visitor.hash).lock();
        if let Algorithm::TokenBucket(bucket) = check.algorithm
            && let Some(Plain { left, is_spent, was_full }) = shard.take_plain(visitor, bucket)
        {
            drop(shard);
            // A bucket that had filled up counts as absent, swept or not.
            let found = if was_full { Found::Nothing } else { Found::State };
            return if is_spent {
                left.after_spending(bucket, found)
            } else {
                left.when_refused(bucket, check.cost, found)
            };
        }
        self.take_any(shard, visitor)
    }

    #[inline(never)]
    fn take_any(&self, mut shard: Shard<'_>, visitor: &Visitor<'_>) -> Decision {
        let taken = shard.take(visitor, &self.room);
        drop(shard);
        taken.map_or_else(|| self.take_overflow(visitor.check), |(decision, _)| decision)
    }

    fn peek_one(&self, check: &Check<'_>) -> Decision {
        let visitor = self.visitor(check);
        let peeked = self.shard(visitor.hash).lock().peek(&visitor, &self.room);
        peeked.unwrap_or_else(|| {
            let visitor = self.overflow_visitor(check);
            let peeked = self.overflow.lock().peek(&visitor, &self.overflow_room);
            peeked.unwrap_or_else(|| refusal_for_want_of_room(check.algorithm, visitor.now))
        })
    }

    #[cold]
    fn take_overflow(&self, check: &Check<'_>) -> Decision {
        self.overflowed.fetch_add(1, Ordering::Relaxed);
        let visitor = self.overflow_visitor(check);
        let taken = self.overflow.lock().take(&visitor, &self.overflow_room);
        taken.map_or_else(|| refusal_for_want_of_room(check.algorithm, visitor.now), |(decision, _)| decision)
    }

    /// A take that found no place of its own is not given back: its overflow bucket is shared, and
    /// only ever charged too much.
    fn refund_one(&self, refund: &Refund<'_>) -> Refunded {
        let visitor = self.visitor(&refund.check);
        self.shard(visitor.hash).lock().refund(&visitor, refund.take, &self.room)
    }

    fn forget_one(&self, key: &Key<'_>) {
        for kind in Kind::ALL {
            let hash = self.hasher.key(key, kind);
            self.shard(hash).lock().forget(hash, &self.room);
        }
    }

    /// Sweeps a little of one shard, each time of the next.
    fn sweep(&self) {
        let turn = self.sweeps.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        let now = self.clock.now();
        self.shards[turn].lock().sweep(SWEEP_PER_HEARTBEAT, now, &self.room);
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see Taking")]
    fn visitor<'a>(&'a self, check: &'a Check<'a>) -> Visitor<'a> {
        let hash = self.hasher.key(&check.key, check.algorithm.kind());
        Visitor { hash, check, now: self.clock.now(), clock: &self.clock }
    }

    fn overflow_visitor<'a>(&'a self, check: &'a Check<'a>) -> Visitor<'a> {
        let hash = self.hasher.overflow(check.key.scope, check.algorithm);
        Visitor { hash, check, now: self.clock.now(), clock: &self.clock }
    }

    #[inline]
    fn shard(&self, hash: KeyHash) -> &Aligned {
        &self.shards[self.shard_of(hash)]
    }

    /// By the bits that slots do not keep. The number of shards is a power of two.
    #[inline]
    fn shard_of(&self, hash: KeyHash) -> usize {
        (hash.second >> 48) as usize & (self.shards.len() - 1)
    }

    fn lock(&self, shard: usize) -> Shard<'_> {
        self.shards[shard].lock()
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl Builder {
    /// The most keys to remember, at least 1. Memory for them is laid out at once and used as keys
    /// come: about 55 bytes each.
    #[must_use]
    pub fn max_keys(mut self, keys: u64) -> Builder {
        self.max_keys = keys.max(1);
        self
    }

    /// The most bytes of sliding logs to remember.
    #[must_use]
    pub fn log_bytes_max(mut self, bytes: u64) -> Builder {
        self.log_bytes_max = bytes;
        self
    }

    /// Where to read the time; tests bring a clock of their own.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.clock = clock;
        self
    }

    #[cfg(test)]
    fn shards(mut self, shards: u64) -> Builder {
        self.shards = Some(shards);
        self
    }

    /// Lays out the memory.
    pub fn build(self) -> MemoryStore {
        let Builder { max_keys, log_bytes_max, shards, clock } = self;
        let least = slots_for(max_keys).div_ceil(Shapes::SLOTS_MAX).next_power_of_two();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let most = to_usize(max_keys / SHARD_KEYS_MIN).max(1);
        let usual = (cores * SHARDS_PER_CORE).min(most).next_power_of_two();
        let shards = shards.map_or(usual.max(least), to_usize);
        let slots = slots_for(max_keys).div_ceil(shards);
        MemoryStore {
            shards: (0..shards).map(|_| Aligned::new(slots)).collect(),
            hasher: KeyHasher::random(),
            clock,
            room: Room::new(max_keys, log_bytes_max),
            overflow: Aligned::new(slots_for(OVERFLOW_KEYS)),
            overflow_room: Room::new(OVERFLOW_KEYS, log_bytes_max / 8),
            overflowed: AtomicU64::new(0),
            sweeps: AtomicUsize::new(0),
            board: MemoryBoard::default(),
            ears: Ears::default(),
        }
    }
}

/// Half as many again as keys: searches stay short, and no shard is full before the store is.
fn slots_for(keys: u64) -> usize {
    to_usize(keys + keys.div_ceil(2))
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).expect("more keys than this machine can address")
}

/// A take that happens when it is polled, and is ready then.
///
/// Written out because an `async fn` is not inlined into its caller for the asking, and a decision
/// that is handed over by way of the stack costs a tenth of a check.
struct Taking<'a, 'b, 'c> {
    store: &'a MemoryStore,
    checks: &'b [Check<'c>],
}

impl Future for Taking<'_, '_, '_> {
    type Output = Result<Few<Decision>, StoreError>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: 39 ns a check without, 35 with")]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(match self.checks {
            [check] => Few::One(self.store.take_one(check)),
            checks => self.store.take_several(checks),
        }))
    }
}

impl Store for MemoryStore {
    #[inline]
    fn take(&self, checks: &[Check<'_>]) -> impl Future<Output = Result<Few<Decision>, StoreError>> + Send {
        Taking { store: self, checks }
    }

    #[inline]
    fn take_each<'c>(
        &self,
        checks: impl Iterator<Item = Check<'c>> + Clone,
        each: impl FnMut(&Decision),
    ) -> AtOnce {
        self.take_all(checks, each);
        AtOnce::Done
    }

    async fn peek(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        Ok(match checks {
            [check] => Few::One(self.peek_one(check)),
            checks => self.peek_several(checks),
        })
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<Few<Refunded>, StoreError> {
        Ok(refunds.iter().map(|refund| self.refund_one(refund)).collect())
    }

    async fn forget(&self, keys: &[Key<'_>]) -> Result<(), StoreError> {
        for key in keys {
            self.forget_one(key);
        }
        Ok(())
    }

    async fn post(&self, name: &[u8], notice: Option<Notice<'_>>) -> Result<Post, StoreError> {
        Ok(self.board.post(name, notice, self.clock.now()))
    }

    async fn board(&self, seen: u64) -> Result<Option<Board>, StoreError> {
        Ok(self.board.since(seen, self.clock.now()))
    }

    async fn publish(&self, push: Push<'_>) -> Result<(), StoreError> {
        self.ears.tell(Heard::Push(push));
        Ok(())
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        listener.heard(Heard::Gap);
        self.ears.add(&listener);
    }

    fn reach(&self) -> Reach {
        Reach::Process
    }

    async fn heartbeat(&self) -> Result<Heartbeat, StoreError> {
        self.sweep();
        Ok(Heartbeat { instances: 1 })
    }
}
