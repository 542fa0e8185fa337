//! The spine: one ask in, one verdict out, always.

mod builder;
mod denied;
mod leasing;
mod watch;

pub use builder::EngineBuilder;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tollgate_core::ask::{Ask, AskProblem, By, InlineLimit, Want};
use tollgate_core::board::{Board, Notice, Post};
use tollgate_core::check::{Check, Refund};
use tollgate_core::decision::{Decision, Verb};
use tollgate_core::few::Few;
use tollgate_core::key::Key;
use tollgate_core::policy::{Entry, Matched, Overrides, Policy, Role, Rule};
use tollgate_core::push::{Listener, Push};
use tollgate_core::store::{AtOnce, Store, StoreError};
use tollgate_core::units::Cost;
use tollgate_core::verdict::{Answer, Judged, RefundAnswer, Source, Verdict};

use crate::clock;
use crate::deny_cache::{DenyCache, Look, Queueing};
use crate::fallback::Fallback;
use crate::guard::{Guard, Outage, once};
use crate::lease::Leases;
use crate::observe::{Observer, Operation, Taken};
use crate::store::memory::MemoryStore;
use leasing::Leased;

/// How long whoever looks at the board waits for it. No ask does.
const BOARD_PATIENCE: Duration = Duration::from_millis(500);

/// Decides asks. Cheap to clone: all clones share one policy, one store and one guard.
#[derive(Debug)]
pub struct Engine<S> {
    inner: Arc<Inner<S>>,
}

struct Inner<S> {
    policy: ArcSwap<Policy>,
    /// Held by whoever changes the policy or its overrides, so that neither undoes the other.
    swapping: Mutex<()>,
    store: S,
    /// For a store that is shared.
    deny_cache: Option<Arc<DenyCache>>,
    guard: Guard,
    fallback: Fallback,
    leases: Leases,
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
    /// Decides one ask: everything it wants is spent, or nothing is.
    ///
    /// Infallible on purpose. A limiter that can fail hands its caller a second question ("and
    /// now?") at the worst moment; here the policy has answered it in advance.
    ///
    /// hot path: 1 store round trip, 0 locks held across it, 0 allocations for one check.
    pub async fn decide(&self, ask: &Ask<'_>) -> Verdict {
        // One snapshot for the whole ask: a reload in mid-flight cannot mix old and new rules.
        self.judge(Verb::Take, self.inner.policy.load_full(), ask).await
    }

    /// The same under a policy that the caller has looked into to read the ask: [`Engine::policy`] of a
    /// moment ago. Rules and [companion](Policy::companion) are then of one reload.
    pub async fn decide_under(&self, policy: Arc<Policy>, ask: &Ask<'_>) -> Verdict {
        self.judge(Verb::Take, policy, ask).await
    }

    /// What [`Engine::decide`] would answer, without spending.
    pub async fn peek(&self, ask: &Ask<'_>) -> Verdict {
        self.judge(Verb::Peek, self.inner.policy.load_full(), ask).await
    }

    /// What [`Engine::decide_under`] would answer, without spending.
    pub async fn peek_under(&self, policy: Arc<Policy>, ask: &Ask<'_>) -> Verdict {
        self.judge(Verb::Peek, policy, ask).await
    }

    /// Takes under limits that callers bring along, each by itself and in order, where the store answers
    /// without waiting: what so many [`Engine::decide`] would answer, for a caller who has all of them in
    /// hand. Where it does not, nothing is done.
    ///
    /// hot path: 0 allocations; what all callers share is written once for all of them.
    #[inline]
    pub fn take_each<'c>(
        &self,
        checks: impl Iterator<Item = Check<'c>> + Clone,
        mut each: impl FnMut(&Decision),
    ) -> AtOnce {
        let inner = &*self.inner;
        if inner.guard.is_open() {
            return AtOnce::MustWait;
        }
        let mut taken = Taken::default();
        let at_once = inner.store.take_each(checks, |decision| {
            taken.count(decision);
            each(decision);
        });
        if at_once == AtOnce::Done {
            inner.observer.took(&taken);
        }
        at_once
    }

    async fn judge(&self, verb: Verb, policy: Arc<Policy>, ask: &Ask<'_>) -> Verdict {
        let inner = &self.inner;
        let matched = policy.matched(ask);
        let (answer, source, checks) = match &matched {
            Err(problem) => (Answer::Invalid(problem.clone()), Source::Unlimited, Few::Many(Vec::new())),
            Ok(matched) if matched.is_usual() => inner.enforce(verb, &policy, matched).await,
            // Boxed, like all that is rare: what is usual should not make room for it.
            Ok(matched) => Box::pin(inner.with_advice(verb, &policy, matched)).await,
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
        let Matched { enforced, .. } = match policy.matched(ask) {
            Ok(matched) => matched,
            Err(problem) => return RefundAnswer::Invalid(problem),
        };
        let mut refunds = Vec::with_capacity(enforced.len());
        for (at, want) in ask.wants.iter().enumerate() {
            let spent = || enforced.iter().filter(|entry| entry.want == at);
            let (named, needed) = (want.takes.len(), spent().count());
            if named != needed {
                return RefundAnswer::Invalid(AskProblem::WrongTakes { at, named, needed });
            }
            let named = spent().zip(want.takes);
            refunds.extend(named.map(|(entry, take)| Refund { check: entry.check(), take: *take }));
        }
        let shards = inner.store.shards_of(refunds.iter().map(|refund| refund.check.key));
        let answered = inner.guard.run(&shards, Operation::Refund, inner.store.refund(&refunds)).await;
        // Whatever was answered: it may have been done.
        self.inner.eased(refunds.iter().map(|refund| refund.check.key));
        match answered {
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
        let Matched { enforced, advisory, .. } = policy.matched(ask).map_err(ForgetError::Invalid)?;
        let mut keys: Vec<_> = enforced.iter().chain(&advisory).map(|entry| entry.check().key).collect();
        // What a list or an override keeps from being asked for may still be remembered.
        for want in ask.wants {
            let (By::Rule(name) | By::RuleFor(name, _)) = want.by else { continue };
            let Some(rule) = policy.rule(name) else { continue };
            let limits = rule.limits().iter().chain(rule.candidate());
            keys.extend(limits.map(|limit| Key { scope: limit.scope(), subject: want.key }));
        }
        let mut seen = HashSet::with_capacity(keys.len());
        keys.retain(|key| seen.insert(*key));
        if keys.is_empty() {
            return Ok(());
        }
        let shards = self.inner.store.shards_of(keys.iter().copied());
        let call = self.inner.store.forget(&keys);
        let answered = self.inner.guard.run(&shards, Operation::Forget, call).await;
        // Last: a lease that was taken in between is of what was forgotten.
        self.inner.leases.forget(&keys);
        self.inner.eased(keys.iter().copied());
        answered.map_err(ForgetError::Store)
    }

    /// Puts a notice on the board that all instances on this store see, or takes it down.
    pub async fn post(&self, name: &[u8], notice: Option<Notice<'_>>) -> Result<Post, StoreError> {
        let call = self.inner.store.post(name, notice);
        self.inner.guard.aside(Operation::Post, BOARD_PATIENCE, call).await
    }

    /// What is on that board, unless it is still as it was in version `seen`.
    pub async fn board(&self, seen: u64) -> Result<Option<Board>, StoreError> {
        let call = self.inner.store.board(seen);
        self.inner.guard.aside(Operation::Board, BOARD_PATIENCE, call).await
    }

    /// Calls a push out to all instances on this store. It may be lost, and nobody is told.
    pub async fn publish(&self, push: Push<'_>) -> Result<(), StoreError> {
        let call = self.inner.store.publish(push);
        self.inner.guard.aside(Operation::Publish, BOARD_PATIENCE, call).await
    }

    /// Has `listener` told what any instance calls out.
    pub fn listen(&self, listener: Arc<dyn Listener>) {
        self.inner.store.listen(listener);
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

    /// Puts another policy in force, as one; overrides stay. Asks under way finish under the old one.
    pub fn swap_policy(&self, policy: &Policy) {
        let _turn = self.inner.swapping.lock();
        let overrides = self.inner.policy.load().overrides().clone();
        let policy = Arc::new(policy.with_overrides(overrides));
        self.inner.observer.policy_swapped(&policy);
        self.inner.policy.store(policy);
        self.inner.give_back_aside(self.inner.leases.revoke_all());
    }

    /// Puts other overrides in force, as one, beside the policy that is.
    pub fn swap_overrides(&self, overrides: Overrides) {
        let _turn = self.inner.swapping.lock();
        let policy = self.inner.policy.load().with_overrides(overrides);
        self.inner.policy.store(Arc::new(policy));
        self.inner.give_back_aside(self.inner.leases.revoke_all());
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

    /// What remembers refusals, where the store is shared and this is not switched off.
    pub fn deny_cache(&self) -> Option<&DenyCache> {
        self.inner.deny_cache.as_deref()
    }

    /// The memory that `local` decides from while the store is away.
    pub fn local(&self) -> &MemoryStore {
        self.inner.fallback.local()
    }

    /// How many keys this instance holds leases on.
    pub fn leases(&self) -> usize {
        self.inner.leases.active()
    }

    /// Gives back what is held on lease, and takes no lease any more: for the end of a process, or of a runtime
    /// on which asks were decided. What is being fetched is waited for, and given back. Asks are still answered,
    /// by the store.
    pub async fn close(&self) {
        self.inner.give_back(self.inner.leases.close()).await;
        self.inner.leases.settled().await;
    }

    /// A handle that does not keep the engine alive.
    pub fn downgrade(&self) -> WeakEngine<S> {
        WeakEngine { inner: Arc::downgrade(&self.inner) }
    }
}

impl<S: Store> Inner<S> {
    /// What must pass: decided by the store, or by each rule's `on_outage`.
    async fn enforce(
        self: &Arc<Self>,
        verb: Verb,
        policy: &Policy,
        matched: &Matched<'_>,
    ) -> (Answer, Source, Few<Judged>) {
        let mut patience = self.guard.deadline();
        if let (Verb::Take, Few::One(entry)) = (verb, &matched.enforced)
            && let Some(lease) = policy.rule_of(entry.origin).and_then(Rule::lease)
        {
            match self.leased(entry, lease).await {
                Leased::Answered(answered) => return answered,
                Leased::Ask(left) => patience = left,
            }
        }
        let checks = matched.checks();
        let shards = self.store.shards_of(checks.iter().map(|check| check.key));
        let mut asking = None;
        // While the store is set aside what it said before is no answer.
        if let Some(cache) =
            self.deny_cache.as_deref().filter(|_| verb == Verb::Take && !self.guard.is_open_for_any(&shards))
        {
            match cache.look(&matched.enforced, Queueing::May) {
                Look::Refused(checks) => return (Answer::Refused, Source::DenyCache, checks),
                Look::Ask(mine) => asking = Some(mine),
                Look::Queue(gate) => {
                    return Box::pin(self.after_another(cache, gate, policy, matched, patience)).await;
                }
            }
        }
        // Pinned here, so that handing the call on does not copy it.
        let answered = match verb {
            _ if patience.is_zero() => Err(StoreError::TimedOut { waited: self.guard.deadline() }),
            Verb::Take => {
                let call = pin!(self.store.take(&checks));
                self.guard.run_within(&shards, Operation::Take, patience, call).await
            }
            Verb::Peek => self.guard.run(&shards, Operation::Peek, pin!(self.store.peek(&checks))).await,
        };
        match answered {
            Ok(decisions) => self.as_decided(asking, matched, &decisions),
            Err(_) => Box::pin(self.fallback.decide(policy, &matched.enforced, verb == Verb::Peek)).await,
        }
    }

    /// An ask that meets a list, or a rule that only watches, or no rule at all.
    async fn with_advice(
        self: &Arc<Self>,
        verb: Verb,
        policy: &Policy,
        matched: &Matched<'_>,
    ) -> (Answer, Source, Few<Judged>) {
        let started = clock::instant();
        let (refused, noted): (Vec<_>, Vec<_>) =
            matched.blocked.iter().partition(|blocked| blocked.role == Role::Enforced);
        if !refused.is_empty() {
            return (Answer::Refused, Source::DenyList, refused.into_iter().map(Judged::blocked).collect());
        }
        let (answer, source, mut checks) = if !matched.enforced.is_empty() {
            let (answer, source, checks) = self.enforce(verb, policy, matched).await;
            (answer, source, checks.into_iter().collect::<Vec<_>>())
        } else if matched.advisory.is_empty() && noted.is_empty() {
            (Answer::Allowed, Source::Unlimited, Vec::new())
        } else {
            (Answer::Allowed, Source::Shadow, Vec::new())
        };
        checks.extend(noted.into_iter().map(Judged::blocked));
        // Only an ask that passes is counted by what watches it.
        let verb = if answer == Answer::Allowed { verb } else { Verb::Peek };
        // Nor is anybody sent for advice on what was refused without a trip.
        if !matched.advisory.is_empty() && !matches!(source, Source::Fallback(_) | Source::DenyCache) {
            let mut advice = pin!(self.advise(verb, &matched.advisory));
            let advice = match once(advice.as_mut()).await {
                Poll::Ready(advice) => Some(advice),
                // What comes too late is not reported: nobody waits longer for advice than for the answer.
                Poll::Pending => {
                    let left = self.guard.deadline().saturating_sub(started.elapsed());
                    tokio::time::timeout(left, advice).await.ok()
                }
            };
            checks.extend(advice.into_iter().flatten());
        }
        (answer, source, checks.into_iter().collect())
    }

    /// What the checks say that refuse nobody: each by itself, all at once.
    async fn advise(&self, verb: Verb, advisory: &[Entry<'_>]) -> Vec<Judged> {
        let asked = advisory.iter().map(async |entry| {
            let check = [entry.check()];
            let shards = self.store.shards_of(check.iter().map(|check| check.key));
            let answered = match verb {
                Verb::Take => self.guard.run(&shards, Operation::Take, self.store.take(&check)).await,
                Verb::Peek => self.guard.run(&shards, Operation::Peek, self.store.peek(&check)).await,
            };
            let decision = answered.ok()?.first().copied()?;
            Some(Judged::new(entry, decision))
        });
        together(asked).await.into_iter().flatten().collect()
    }
}

/// Each decision beside its check.
#[inline]
fn judged(entries: &Few<Entry<'_>>, decisions: &Few<Decision>) -> Few<Judged> {
    if let (Few::One(entry), &Few::One(decision)) = (entries, decisions) {
        return Few::One(Judged::new(entry, decision));
    }
    entries.iter().zip(decisions).map(|(entry, &decision)| Judged::new(entry, decision)).collect()
}

/// Drives futures side by side until all are done; their outputs in order. For the few asks of a batch:
/// every one is polled whenever any of them may go on.
pub async fn together<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut all {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(done) => *output = Some(done),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    all.into_iter().filter_map(|(_, output)| output).collect()
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
