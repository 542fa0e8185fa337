//! A store that does as it is told, someone who listens, and short words for rules and wants.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tollgate::clock::Clock;
use tollgate::core::board::{Board, Notice, Post};
use tollgate::core::check::{Check, Refund};
use tollgate::core::decision::{Decision, Found, Refunded, Verb};
use tollgate::core::few::Few;
use tollgate::core::key::Key;
use tollgate::core::policy::Origin;
use tollgate::core::push::{Listener, Push};
use tollgate::core::store::{AtOnce, Heartbeat, Reach, Store, StoreError};
use tollgate::observe::{GuardChange, Observer, Taken};
use tollgate::store::memory::MemoryStore;
use tollgate::{
    Algorithm, Answer, Ask, By, Cost, Engine, EngineBuilder, Kind, Micros, OnOutage, Policy, Rate, Rule,
    Source, Verdict, Want,
};

/// A moment in 2027, at the beginning of a minute.
pub(crate) const START: Micros = Micros(1_800_000_000_000_000);

/// Memory on a clock that its owner moves.
pub(crate) fn memory() -> (MemoryStore, Arc<AtomicU64>) {
    let (clock, hand) = Clock::manual(START);
    (MemoryStore::builder().max_keys(10_000).clock(clock).build(), hand)
}

/// How the fake store takes a call.
#[derive(Debug, Clone, Default)]
pub(crate) enum Manner {
    /// From memory, at once.
    #[default]
    Answers,
    /// With this error, at once.
    Errs(StoreError),
    /// Never.
    Hangs,
}

/// What a test tells its fake store, and what the store tells the test.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    calls: Mutex<Manner>,
    heartbeats: Mutex<Manner>,
    instances: AtomicU32,
    called: AtomicU32,
    beaten: AtomicU32,
    scripted: Mutex<VecDeque<Decision>>,
}

impl Strings {
    /// How calls other than heartbeats are taken from here on.
    pub(crate) fn calls(&self, manner: Manner) {
        *held(&self.calls) = manner;
    }

    /// How heartbeats are.
    pub(crate) fn heartbeats(&self, manner: Manner) {
        *held(&self.heartbeats) = manner;
    }

    /// How both are.
    pub(crate) fn all(&self, manner: &Manner) {
        self.calls(manner.clone());
        self.heartbeats(manner.clone());
    }

    /// How many instances a heartbeat sees.
    pub(crate) fn instances(&self, instances: u32) {
        self.instances.store(instances, Ordering::SeqCst);
    }

    /// What the next takes answer, before memory is asked again.
    pub(crate) fn script(&self, decisions: impl IntoIterator<Item = Decision>) {
        held(&self.scripted).extend(decisions);
    }

    /// Calls that reached the store, heartbeats aside.
    pub(crate) fn called(&self) -> u32 {
        self.called.load(Ordering::SeqCst)
    }

    /// Heartbeats that reached it.
    pub(crate) fn beaten(&self) -> u32 {
        self.beaten.load(Ordering::SeqCst)
    }
}

/// A lock that no panic of ours matters to: the test is over then.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().expect("nobody panics while holding it")
}

/// The error that says that nothing was spent.
pub(crate) fn away() -> StoreError {
    StoreError::Unreachable { why: "a test".into() }
}

/// A store that does as it is told.
#[derive(Debug)]
pub(crate) struct Puppet {
    strings: Arc<Strings>,
    memory: MemoryStore,
}

impl Puppet {
    async fn taken(&self) -> Result<(), StoreError> {
        self.strings.called.fetch_add(1, Ordering::SeqCst);
        let manner = held(&self.strings.calls).clone();
        carry_out(manner).await
    }
}

async fn carry_out(manner: Manner) -> Result<(), StoreError> {
    match manner {
        Manner::Answers => Ok(()),
        Manner::Errs(error) => Err(error),
        Manner::Hangs => std::future::pending().await,
    }
}

impl Store for Puppet {
    async fn take(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        self.taken().await?;
        let scripted = held(&self.strings.scripted).pop_front();
        match scripted {
            Some(decision) => Ok(Few::One(decision)),
            None => self.memory.take(checks).await,
        }
    }

    /// As a store would that can.
    fn take_each<'c>(
        &self,
        checks: impl Iterator<Item = Check<'c>> + Clone,
        each: impl FnMut(&Decision),
    ) -> AtOnce {
        self.strings.called.fetch_add(1, Ordering::SeqCst);
        self.memory.take_each(checks, each)
    }

    async fn peek(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        self.taken().await?;
        self.memory.peek(checks).await
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<Few<Refunded>, StoreError> {
        self.taken().await?;
        self.memory.refund(refunds).await
    }

    async fn forget(&self, keys: &[Key<'_>]) -> Result<(), StoreError> {
        self.taken().await?;
        self.memory.forget(keys).await
    }

    async fn post(&self, name: &[u8], notice: Option<Notice<'_>>) -> Result<Post, StoreError> {
        self.taken().await?;
        self.memory.post(name, notice).await
    }

    async fn board(&self, seen: u64) -> Result<Option<Board>, StoreError> {
        self.taken().await?;
        self.memory.board(seen).await
    }

    async fn publish(&self, push: Push<'_>) -> Result<(), StoreError> {
        self.taken().await?;
        self.memory.publish(push).await
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.memory.listen(listener);
    }

    fn reach(&self) -> Reach {
        self.memory.reach()
    }

    async fn heartbeat(&self) -> Result<Heartbeat, StoreError> {
        self.strings.beaten.fetch_add(1, Ordering::SeqCst);
        let manner = held(&self.strings.heartbeats).clone();
        carry_out(manner).await?;
        Ok(Heartbeat { instances: self.strings.instances.load(Ordering::SeqCst) })
    }
}

/// An engine over a store that does as it is told, and its strings.
pub(crate) fn puppet(rules: Vec<Rule>) -> (EngineBuilder<Puppet>, Arc<Strings>) {
    puppet_on(rules, memory().0)
}

/// The same, answering from this memory.
pub(crate) fn puppet_on(rules: Vec<Rule>, memory: MemoryStore) -> (EngineBuilder<Puppet>, Arc<Strings>) {
    let strings = Arc::new(Strings::default());
    strings.instances(1);
    let store = Puppet { strings: Arc::clone(&strings), memory };
    let (local, _) = self::memory();
    (Engine::builder(store).policy(policy(1, rules)).local(local), strings)
}

/// One verdict as an observer heard it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) verb: Verb,
    pub(crate) answer: Answer,
    pub(crate) source: Source,
    pub(crate) checks: Vec<(Origin, Found)>,
}

/// Remembers everything it hears.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    decided: Mutex<Vec<Heard>>,
    changes: Mutex<Vec<String>>,
    errors: Mutex<Vec<&'static str>>,
    policies: Mutex<Vec<u64>>,
    refunds: AtomicU32,
    taken: Mutex<Vec<Taken>>,
}

impl Ear {
    pub(crate) fn taken(&self) -> Vec<Taken> {
        held(&self.taken).clone()
    }

    pub(crate) fn decided(&self) -> Vec<Heard> {
        held(&self.decided).clone()
    }

    pub(crate) fn changes(&self) -> Vec<String> {
        held(&self.changes).clone()
    }

    pub(crate) fn errors(&self) -> Vec<&'static str> {
        held(&self.errors).clone()
    }

    pub(crate) fn policies(&self) -> Vec<u64> {
        held(&self.policies).clone()
    }

    pub(crate) fn refunds(&self) -> u32 {
        self.refunds.load(Ordering::SeqCst)
    }
}

impl Observer for Ear {
    fn decided(&self, verb: Verb, verdict: &Verdict) {
        let checks = verdict.checks.iter().map(|judged| (judged.origin, judged.decision.found)).collect();
        held(&self.decided).push(Heard {
            verb,
            answer: verdict.answer.clone(),
            source: verdict.source,
            checks,
        });
    }

    fn took(&self, taken: &Taken) {
        held(&self.taken).push(*taken);
    }

    fn refunded(&self, refunds: &[Refunded]) {
        self.refunds.fetch_add(u32::try_from(refunds.len()).unwrap_or(u32::MAX), Ordering::SeqCst);
    }

    fn called(&self, call: &tollgate::observe::Call<'_>) {
        held(&self.errors).extend(call.error.map(StoreError::name));
    }

    fn guard_changed(&self, change: &GuardChange<'_>) {
        held(&self.changes).push(match change {
            GuardChange::Opened { error } => format!("opened: {error}"),
            GuardChange::Closed { .. } => "closed".to_owned(),
        });
    }

    fn policy_swapped(&self, policy: &Policy) {
        held(&self.policies).push(policy.version());
    }
}

pub(crate) fn limit(kind: Kind, rate: &str) -> Algorithm {
    Algorithm::try_new(kind, Rate::parse(rate).expect("a rate"), None, 1000).expect("a limit")
}

pub(crate) fn bucket(rate: &str) -> Algorithm {
    limit(Kind::TokenBucket, rate)
}

/// A rule of token buckets.
pub(crate) fn rule(name: &str, rates: &[&str], on_outage: impl Into<Option<OnOutage>>) -> Rule {
    let limits = rates.iter().map(|rate| bucket(rate)).collect();
    Rule::try_new(name, limits, on_outage.into()).expect("a rule")
}

pub(crate) fn policy(version: u64, rules: Vec<Rule>) -> Policy {
    Policy::try_new(version, rules).expect("a policy")
}

pub(crate) fn want<'a>(rule: &'a str, key: &'a str, cost: u32) -> Want<'a> {
    let cost = Cost::new(cost).expect("a cost of at least one");
    Want { by: By::Rule(rule), key: key.as_bytes(), cost, takes: &[] }
}

/// Asks for one thing.
pub(crate) async fn decide<S: Store>(engine: &Engine<S>, rule: &str, key: &str, cost: u32) -> Verdict {
    engine.decide(&Ask { wants: &[want(rule, key, cost)] }).await
}

/// What is left of a rule's limits, without spending.
pub(crate) async fn left<S: Store>(engine: &Engine<S>, rule: &str, key: &str) -> Vec<u32> {
    let verdict = engine.peek(&Ask { wants: &[want(rule, key, 1)] }).await;
    verdict.checks.iter().map(|judged| judged.decision.remaining).collect()
}

/// Decides until refused; how many passed.
pub(crate) async fn drain<S: Store>(engine: &Engine<S>, rule: &str, key: &str) -> u32 {
    for passed in 0..100_000 {
        if !decide(engine, rule, key, 1).await.is_allowed() {
            return passed;
        }
    }
    panic!("{rule} never refuses");
}
