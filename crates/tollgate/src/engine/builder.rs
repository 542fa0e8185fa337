//! How an engine is put together: every setting has a default, and a store is all it needs.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tollgate_core::policy::{OnOutage, Policy};
use tollgate_core::store::{Reach, Store};

use super::{Engine, Inner};
use crate::clock::Clock;
use crate::deny_cache::{self, DenyCache};
use crate::fallback::Fallback;
use crate::guard::{DEADLINE, FAILURES_TO_OPEN, Guard};
use crate::lease::Leases;
use crate::observe::{Observer, Silent};
use crate::store::memory::MemoryStore;

/// How an engine is put together.
pub struct EngineBuilder<S> {
    store: S,
    policy: Policy,
    deadline: Duration,
    failures_to_open: u32,
    on_outage: OnOutage,
    instances: u32,
    local: Option<MemoryStore>,
    deny_cache: Option<deny_cache::Builder>,
    clock: Clock,
    has_leases: bool,
    observer: Arc<dyn Observer>,
}

impl<S: Store> Engine<S> {
    /// Starts to put an engine together around a store.
    pub fn builder(store: S) -> EngineBuilder<S> {
        EngineBuilder {
            store,
            policy: Policy::empty(),
            deadline: DEADLINE,
            failures_to_open: FAILURES_TO_OPEN,
            on_outage: OnOutage::default(),
            instances: 1,
            local: None,
            deny_cache: Some(DenyCache::builder()),
            clock: Clock::system(),
            has_leases: true,
            observer: Arc::new(Silent),
        }
    }
}

impl<S: Store> EngineBuilder<S> {
    /// The rules in force from the start.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How long a check waits for the store (25 ms).
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How many failures in a row set the store aside (5).
    #[must_use]
    pub fn failures_to_open(mut self, failures: u32) -> Self {
        self.failures_to_open = failures;
        self
    }

    /// What answers for rules that name no `on_outage`, and for inline limits (`local`).
    #[must_use]
    pub fn on_outage(mut self, on_outage: OnOutage) -> Self {
        self.on_outage = on_outage;
        self
    }

    /// The fewest instances a local share is computed for (1).
    #[must_use]
    pub fn instances(mut self, instances: u32) -> Self {
        self.instances = instances;
        self
    }

    /// The memory that `local` decides from.
    #[must_use]
    pub fn local(mut self, local: MemoryStore) -> Self {
        self.local = Some(local);
        self
    }

    /// What remembers the refusals of a store that is shared (65,536 of them); `None` remembers none.
    #[must_use]
    pub fn deny_cache(mut self, cache: Option<deny_cache::Builder>) -> Self {
        self.deny_cache = cache;
        self
    }

    /// What lease times are measured by: the machine's clock, unless a test moves one of its own.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Takes no lease, whatever the rules say: for a store in this very process, which answers as fast.
    #[must_use]
    pub fn without_leases(mut self) -> Self {
        self.has_leases = false;
        self
    }

    /// Who hears what happens.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Puts the engine together. On a tokio runtime it also starts [`Engine::watch`]; elsewhere,
    /// run that yourself.
    pub fn build(self) -> Engine<S> {
        let EngineBuilder {
            store,
            policy,
            deadline,
            failures_to_open,
            on_outage,
            instances,
            local,
            deny_cache,
            clock,
            has_leases,
            observer,
        } = self;
        observer.policy_swapped(&policy);
        let deny_cache = deny_cache.filter(|_| store.reach() == Reach::Fleet).map(deny_cache::Builder::build);
        if let Some(cache) = &deny_cache {
            store.listen(Arc::<DenyCache>::clone(cache));
        }
        let engine = Engine {
            inner: Arc::new(Inner {
                policy: ArcSwap::from_pointee(policy),
                swapping: Mutex::new(()),
                store,
                deny_cache,
                guard: Guard::new(deadline, failures_to_open, Arc::clone(&observer)),
                fallback: Fallback::new(local.unwrap_or_default(), on_outage, instances),
                leases: Leases::new(clock, has_leases),
                observer,
            }),
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(Engine::watch(engine.downgrade()));
        }
        engine
    }
}

impl<S> std::fmt::Debug for EngineBuilder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineBuilder").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
