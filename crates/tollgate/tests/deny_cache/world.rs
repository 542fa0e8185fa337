//! A shared store some way off, on a clock of its own that a test moves, and instances that ask it.
//!
//! State lives in memory, which is exact and can be looked into at the very instant of an ask. What makes it a shared store is
//! around it: a call takes time both ways, two instances use it, and pushes between them can be lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use tollgate::clock::Clock;
use tollgate::core::board::{Board, Notice, Post};
use tollgate::core::check::{Check, Refund};
use tollgate::core::decision::{Decision, Refunded};
use tollgate::core::few::Few;
use tollgate::core::key::Key;
use tollgate::core::push::{Listener, Push};
use tollgate::core::store::{Heartbeat, Reach, Store, StoreError};
use tollgate::deny_cache::DenyCache;
use tollgate::store::memory::MemoryStore;
use tollgate::{Engine, EngineBuilder, Micros};

/// A moment in 2027, at the beginning of a minute.
const START: Micros = Micros(1_800_000_000_000_000);

/// The store, its clock, and the clock of those who ask it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) memory: MemoryStore,
    there: Arc<AtomicU64>,
    here: Arc<AtomicU64>,
    clock: Clock,
    /// By how many millionths the store's clock runs faster, and what is owed of it.
    drift_ppm: i64,
    owed: Mutex<i64>,
    /// How long a call is under way at most, each way.
    travel_max: u64,
    dice: Mutex<fastrand::Rng>,
    is_deaf: AtomicBool,
    /// A take goes on only with a permit, while there is one to be had.
    held: Mutex<Option<Arc<Semaphore>>>,
    is_away: AtomicBool,
    takes: AtomicU64,
    published: AtomicU64,
}

impl World {
    pub(crate) fn new(seed: u64, drift_ppm: i64, travel_max: Micros) -> Arc<World> {
        let (clock, there) = Clock::manual(START);
        // What clocks say is nobody's business but their own.
        let (here_clock, here) = Clock::manual(Micros(77_000_000));
        Arc::new(World {
            memory: MemoryStore::builder().max_keys(10_000).clock(clock).build(),
            there,
            here,
            clock: here_clock,
            drift_ppm,
            owed: Mutex::new(0),
            travel_max: travel_max.0,
            dice: Mutex::new(fastrand::Rng::with_seed(seed)),
            is_deaf: AtomicBool::new(false),
            held: Mutex::default(),
            is_away: AtomicBool::new(false),
            takes: AtomicU64::new(0),
            published: AtomicU64::new(0),
        })
    }

    /// A number below `most`, as chance has it.
    pub(crate) fn chance(&self, most: u64) -> u64 {
        self.dice.lock().expect("nobody panics while holding it").u64(..most)
    }

    /// Time passes, here and there.
    pub(crate) fn pass(&self, micros: u64) {
        let mut owed = self.owed.lock().expect("nobody panics while holding it");
        let micros = i64::try_from(micros).expect("not for ever");
        *owed += micros * self.drift_ppm;
        let extra = owed.div_euclid(1_000_000);
        *owed -= extra * 1_000_000;
        self.here.fetch_add(micros.unsigned_abs(), Ordering::SeqCst);
        self.there.fetch_add((micros + extra).max(0).unsigned_abs(), Ordering::SeqCst);
    }

    /// What the clock of those who ask says.
    pub(crate) fn now(&self) -> Micros {
        Micros(self.here.load(Ordering::SeqCst))
    }

    /// Takes that came so far.
    pub(crate) fn takes(&self) -> u64 {
        self.takes.load(Ordering::SeqCst)
    }

    /// Whether pushes are lost from here on.
    pub(crate) fn lose_pushes(&self, are_lost: bool) {
        self.is_deaf.store(are_lost, Ordering::SeqCst);
    }

    /// Holds every take up until it is given a permit.
    pub(crate) fn hold(&self) -> Arc<Semaphore> {
        let permits = Arc::new(Semaphore::new(0));
        *self.held.lock().expect("nobody panics while holding it") = Some(Arc::clone(&permits));
        permits
    }

    /// Fails every call, or none.
    pub(crate) fn be_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    fn there(&self) -> Result<(), StoreError> {
        let is_away = self.is_away.load(Ordering::SeqCst);
        if is_away { Err(StoreError::Unreachable { why: "a test".into() }) } else { Ok(()) }
    }

    /// Pushes that were called out, heard or not.
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::SeqCst)
    }

    fn travel(&self) {
        self.pass(self.chance(self.travel_max + 1));
    }

    /// An instance that asks this store.
    pub(crate) fn instance(self: &Arc<World>) -> Engine<Distant> {
        self.instance_with(|builder| builder)
    }

    /// One with settings of its own.
    pub(crate) fn instance_with(
        self: &Arc<World>,
        set: impl FnOnce(EngineBuilder<Distant>) -> EngineBuilder<Distant>,
    ) -> Engine<Distant> {
        let cache = DenyCache::builder().max_entries(64).clock(self.clock.clone());
        let engine = set(Engine::builder(Distant(Arc::clone(self))).deny_cache(Some(cache))).build();
        // Nothing is heard of what was before it listened.
        self.pass(1);
        engine
    }
}

/// Lets a push that was called out on the side arrive, or get lost.
pub(crate) async fn pushed(world: &World, before: u64) {
    while world.published() == before {
        tokio::task::yield_now().await;
    }
}

/// The store as an instance sees it.
#[derive(Debug)]
pub(crate) struct Distant(Arc<World>);

impl Store for Distant {
    async fn take(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        self.0.there()?;
        self.0.takes.fetch_add(1, Ordering::SeqCst);
        let held = self.0.held.lock().expect("nobody panics while holding it").clone();
        if let Some(permits) = held {
            permits.acquire().await.expect("it is not closed").forget();
        }
        self.0.travel();
        let decisions = self.0.memory.take(checks).await;
        self.0.travel();
        decisions
    }

    async fn peek(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        self.0.memory.peek(checks).await
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<Few<Refunded>, StoreError> {
        self.0.travel();
        self.0.memory.refund(refunds).await
    }

    async fn forget(&self, keys: &[Key<'_>]) -> Result<(), StoreError> {
        self.0.travel();
        self.0.memory.forget(keys).await
    }

    async fn post(&self, name: &[u8], notice: Option<Notice<'_>>) -> Result<Post, StoreError> {
        self.0.memory.post(name, notice).await
    }

    async fn board(&self, seen: u64) -> Result<Option<Board>, StoreError> {
        self.0.memory.board(seen).await
    }

    async fn publish(&self, push: Push<'_>) -> Result<(), StoreError> {
        if !self.0.is_deaf.load(Ordering::SeqCst) {
            self.0.memory.publish(push).await?;
        }
        self.0.published.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.0.memory.listen(listener);
    }

    fn reach(&self) -> Reach {
        Reach::Fleet
    }

    async fn heartbeat(&self) -> Result<Heartbeat, StoreError> {
        self.0.there()?;
        Ok(Heartbeat { instances: 2 })
    }
}
