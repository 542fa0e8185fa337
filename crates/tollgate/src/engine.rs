//! The spine: one ask in, one verdict out, always.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tollgate_core::ask::{Ask, AskProblem, By, InlineLimit, Want};
use tollgate_core::check::Refund;
use tollgate_core::decision::{Decision, Outcome, Verb};
use tollgate_core::few::Few;
use tollgate_core::policy::{Matched, OnOutage, Origin, Policy};
use tollgate_core::store::{Store, StoreError};
use tollgate_core::units::Cost;
use tollgate_core::verdict::{Answer, Judged, RefundAnswer, Source, Verdict};

use crate::fallback::Fallback;
use crate::guard::{DEADLINE, FAILURES_TO_OPEN, Guard, Outage};
use crate::observe::{Observer, Operation, Silent};
use crate::store::memory::MemoryStore;

/// How often a healthy store hears from this instance.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);

/// How often a store that was set aside is tried again.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// Decides asks. Cheap to clone: all clones share one policy, one store and one guard.
#[derive(Debug)]
pub struct Engine<S> {
    inner: Arc<Inner<S>>,
}

struct Inner<S> {
    policy: ArcSwap<Policy>,
    store: S,
    guard: Guard,
    fallback: Fallback,
    observer: Arc<dyn Observer>,
}

/// How an engine is put together.
pub struct EngineBuilder<S> {
    store: S,
    policy: Policy,
    deadline: Duration,
    failures_to_open: u32,
    on_outage: OnOutage,
    instances: u32,
    local: Option<MemoryStore>,
    observer: Arc<dyn Observer>,
}

/// How the engine is doing.
#[derive(Debug, Clone)]
pub struct Health {
    /// The outage, while the store is set aside.
    pub outage: Option<Outage>,
    /// Instances a local share is computed for.
    pub instances: u32,
    /// The policy in force.
    pub policy_version: u64,
}

impl<S> Clone for Engine<S> {
    fn clone(&self) -> Self {
        Engine { inner: Arc::clone(&self.inner) }
    }
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
            observer: Arc::new(Silent),
        }
    }

    /// Decides one ask: everything it wants is spent, or nothing is.
    ///
    /// Infallible on purpose. A limiter that can fail hands its caller a second question ("and
    /// now?") at the worst moment; here the policy has answered it in advance.
    ///
    /// hot path: 1 store round trip, 0 locks held across it, 0 allocations for one check.
    pub async fn decide(&self, ask: &Ask<'_>) -> Verdict {
        self.judge(Verb::Take, ask).await
    }

    /// What [`Engine::decide`] would answer, without spending.
    pub async fn peek(&self, ask: &Ask<'_>) -> Verdict {
        self.judge(Verb::Peek, ask).await
    }

    async fn judge(&self, verb: Verb, ask: &Ask<'_>) -> Verdict {
        let inner = &*self.inner;
        // One snapshot for the whole ask: a reload in mid-flight cannot mix old and new rules.
        let policy = inner.policy.load_full();
        let matched = policy.checks_for(ask);
        let (answer, source, checks) = match &matched {
            Err(problem) => (Answer::Invalid(problem.clone()), Source::Unlimited, Few::Many(Vec::new())),
            Ok(Matched { checks, origins, .. }) => {
                // Pinned here, so that handing the call on does not copy it.
                let answered = match verb {
                    Verb::Take => inner.guard.run(Operation::Take, pin!(inner.store.take(checks))).await,
                    Verb::Peek => inner.guard.run(Operation::Peek, pin!(inner.store.peek(checks))).await,
                };
                match answered {
                    Ok(decisions) => {
                        let is_refused = decisions.iter().any(|d| d.outcome != Outcome::Allowed);
                        let answer = if is_refused { Answer::Refused } else { Answer::Allowed };
                        (answer, Source::Store, judged(origins, &decisions))
                    }
                    Err(_) => inner.fallback.decide(&policy, checks, origins, verb == Verb::Peek).await,
                }
            }
        };
        drop(matched);
        let verdict = Verdict { answer, source, checks, policy };
        inner.observer.decided(verb, &verdict);
        verdict
    }

    /// Undoes earlier takes: every want names its own.
    pub async fn refund(&self, ask: &Ask<'_>) -> RefundAnswer {
        let inner = &*self.inner;
        let policy = inner.policy.load_full();
        let Matched { checks, wants, .. } = match policy.checks_for(ask) {
            Ok(matched) => matched,
            Err(problem) => return RefundAnswer::Invalid(problem),
        };
        let mut refunds = Vec::with_capacity(checks.len());
        for (at, want) in ask.wants.iter().enumerate() {
            let spent = || checks.iter().zip(&wants).filter(|&(_, &of)| of == at).map(|(check, _)| check);
            let (named, needed) = (want.takes.len(), spent().count());
            if named != needed {
                return RefundAnswer::Invalid(AskProblem::WrongTakes { at, named, needed });
            }
            refunds
                .extend(spent().zip(want.takes).map(|(check, take)| Refund { check: *check, take: *take }));
        }
        match inner.guard.run(Operation::Refund, inner.store.refund(&refunds)).await {
            Ok(refunded) => {
                inner.observer.refunded(&refunded);
                RefundAnswer::Done(refunded)
            }
            Err(why) => RefundAnswer::NotDone { why },
        }
    }

    /// Forgets the keys an ask names: their next visitors find whole limits.
    pub async fn forget(&self, ask: &Ask<'_>) -> Result<(), ForgetError> {
        let policy = self.inner.policy.load_full();
        let Matched { checks, .. } = policy.checks_for(ask).map_err(ForgetError::Invalid)?;
        let keys: Vec<_> = checks.iter().map(|check| check.key).collect();
        let call = self.inner.store.forget(&keys);
        self.inner.guard.run(Operation::Forget, call).await.map_err(ForgetError::Store)
    }

    /// The plain call: may `key` pass `limit` once more?
    pub async fn check(&self, key: &str, limit: &InlineLimit) -> Verdict {
        let want = Want { by: By::Inline(limit), key: key.as_bytes(), cost: Cost::ONE, takes: &[] };
        self.decide(&Ask { wants: &[want] }).await
    }

    /// Waits until the ask passes, for at most `at_most`. If the answer says that it cannot pass
    /// in that time, it comes back at once: waiting would be in vain.
    pub async fn wait(&self, ask: &Ask<'_>, at_most: Duration) -> Verdict {
        // The clock that the sleep below is measured by.
        let started = tokio::time::Instant::now();
        loop {
            let verdict = self.decide(ask).await;
            let Some(retry_after) = verdict.retry_after() else { return verdict };
            let pause = retry_after.to_duration();
            if started.elapsed().saturating_add(pause) > at_most {
                return verdict;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        self.inner.policy.load_full()
    }

    /// Puts another policy in force, as one. Asks under way finish under the old one.
    pub fn swap_policy(&self, policy: Policy) {
        let policy = Arc::new(policy);
        self.inner.observer.policy_swapped(&policy);
        self.inner.policy.store(policy);
    }

    /// How the engine is doing.
    pub fn health(&self) -> Health {
        Health {
            outage: self.inner.guard.outage(),
            instances: self.inner.fallback.instances(),
            policy_version: self.inner.policy.load().version(),
        }
    }

    /// The store decisions come from.
    pub fn store(&self) -> &S {
        &self.inner.store
    }

    /// The memory that `local` decides from while the store is away.
    pub fn local(&self) -> &MemoryStore {
        self.inner.fallback.local()
    }

    /// Shows this instance alive to the others, and finds the store again when it was set aside.
    /// Runs until the engine is dropped; [`EngineBuilder::build`] starts it where it can.
    pub async fn watch(watched: WeakEngine<S>) {
        loop {
            let Some(inner) = watched.inner.upgrade() else { return };
            let beat = inner.guard.probe(Operation::Heartbeat, inner.store.heartbeat()).await;
            if let Ok(beat) = beat {
                inner.fallback.saw_instances(beat.instances);
            }
            let (is_open, opened) = (inner.guard.is_open(), inner.guard.opened());
            drop(inner);
            if !is_open {
                // A guard that opens meanwhile does not wait for the next heartbeat to be due.
                let _ = tokio::time::timeout(jittered(HEARTBEAT_EVERY), opened.notified()).await;
            }
            let Some(inner) = watched.inner.upgrade() else { return };
            let is_open = inner.guard.is_open();
            drop(inner);
            if is_open {
                tokio::time::sleep(jittered(PROBE_EVERY)).await;
            }
        }
    }

    /// A handle that does not keep the engine alive.
    pub fn downgrade(&self) -> WeakEngine<S> {
        WeakEngine { inner: Arc::downgrade(&self.inner) }
    }
}

/// Each decision beside where its check came from.
#[inline]
fn judged(origins: &Few<Origin>, decisions: &Few<Decision>) -> Few<Judged> {
    if let (&Few::One(origin), &Few::One(decision)) = (origins, decisions) {
        return Few::One(Judged { origin, decision });
    }
    origins.iter().zip(decisions).map(|(&origin, &decision)| Judged { origin, decision }).collect()
}

/// Keeps a fleet that lost its store together from returning in step.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.75 + fastrand::f64() / 2.0)
}

/// A handle that does not keep its engine alive.
#[derive(Debug)]
pub struct WeakEngine<S> {
    inner: Weak<Inner<S>>,
}

/// Why keys were not forgotten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForgetError {
    /// The ask could not be understood.
    #[error("invalid ask")]
    Invalid(#[source] AskProblem),
    /// The store did not answer.
    #[error("the store did not forget")]
    Store(#[source] StoreError),
}

impl<S> std::fmt::Debug for Inner<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("guard", &self.guard)
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
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
            observer,
        } = self;
        observer.policy_swapped(&policy);
        let engine = Engine {
            inner: Arc::new(Inner {
                policy: ArcSwap::from_pointee(policy),
                store,
                guard: Guard::new(deadline, failures_to_open, Arc::clone(&observer)),
                fallback: Fallback::new(local.unwrap_or_default(), on_outage, instances),
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
