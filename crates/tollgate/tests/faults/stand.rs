//! An engine under load against a Redis that is about to fail, and a record of every answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::{eventually, unique_prefix};
use tokio::task::JoinHandle;
use tollgate::core::decision::{Decision, Verb};
use tollgate::core::store::{Spent, StoreError};
use tollgate::observe::{Call, GuardChange, Observer, Operation};
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{
    Algorithm, Ask, By, Cost, Engine, EngineBuilder, Kind, OnOutage, Policy, Rate, Rule, Source, Verdict,
    Want, clock,
};

use crate::report::Report;

/// What each rule admits at once.
pub(crate) const CAPACITY: u32 = 50;

/// What each rule admits per second.
pub(crate) const RATE: u32 = 100;

/// How long a check may wait for Redis.
pub(crate) const DEADLINE: Duration = Duration::from_millis(25);

/// The three rules, each named after what it answers in an outage.
pub(crate) const RULES: [OnOutage; 3] = [OnOutage::Allow, OnOutage::Deny, OnOutage::Local];

/// Tasks that ask for each rule.
const TASKS_PER_RULE: usize = 2;

/// The pause of a task between two asks: together they ask for several times the rate.
const PAUSE: Duration = Duration::from_millis(4);

/// One ask and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// The rule, by its `on_outage`.
    pub rule: OnOutage,
    /// When it was asked.
    pub at: Instant,
    /// How long the answer took.
    pub took: Duration,
    /// Whether it passed.
    pub is_allowed: bool,
    /// Who decided.
    pub source: Source,
    /// The decision on its one check.
    pub decision: Decision,
}

/// Hears what the engine says, and keeps it.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    from_store: AtomicU64,
    from_fallback: AtomicU64,
    /// Takes that failed and may have spent.
    pub unknown: AtomicU64,
    changes: parking_lot::Mutex<Vec<(Instant, Change)>>,
    errors: parking_lot::Mutex<BTreeMap<String, u64>>,
}

/// How the guard changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// It opened, because of this error.
    Opened(String),
    /// It closed.
    Closed,
}

impl Observer for Heard {
    fn decided(&self, _: Verb, verdict: &Verdict) {
        match verdict.source {
            Source::Store => self.from_store.fetch_add(1, Ordering::SeqCst),
            Source::Fallback(_) => self.from_fallback.fetch_add(1, Ordering::SeqCst),
            Source::DenyCache | Source::Lease | Source::DenyList | Source::Shadow | Source::Unlimited => 0,
        };
    }

    fn called(&self, call: &Call<'_>) {
        let Some(error) = call.error else { return };
        if call.operation == Operation::Take && error.spent() == Spent::Unknown {
            self.unknown.fetch_add(1, Ordering::SeqCst);
        }
        *self.errors.lock().entry(error.name().to_owned()).or_default() += 1;
    }

    fn guard_changed(&self, change: &GuardChange<'_>) {
        let change = match change {
            GuardChange::Opened { error } => Change::Opened(error.to_string()),
            GuardChange::Closed { .. } => Change::Closed,
        };
        self.changes.lock().push((clock::instant(), change));
    }
}

impl Heard {
    /// Verdicts that came from the store.
    pub(crate) fn by_store(&self) -> u64 {
        self.from_store.load(Ordering::SeqCst)
    }

    /// Verdicts that came from a rule's `on_outage`.
    pub(crate) fn by_fallback(&self) -> u64 {
        self.from_fallback.load(Ordering::SeqCst)
    }

    /// How the guard changed, in order.
    pub(crate) fn changes(&self) -> Vec<(Instant, Change)> {
        self.changes.lock().clone()
    }

    /// How often each error was seen.
    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().clone()
    }
}

/// An engine under load.
#[derive(Debug)]
pub(crate) struct Stand {
    /// The engine.
    pub engine: Engine<RedisStore>,
    /// What it said.
    pub heard: Arc<Heard>,
    load: Vec<JoinHandle<Vec<Asked>>>,
    stall: JoinHandle<Duration>,
    is_over: Arc<AtomicBool>,
    broke: Option<Instant>,
    well: Option<Instant>,
}

impl Stand {
    /// Starts an engine and its load, and returns when decisions come from Redis and the buckets
    /// have been drained.
    pub(crate) async fn start(url: &str) -> Stand {
        let stand = Stand::start_anyway(url);
        stand.is_served(150).await;
        stand
    }

    /// Starts an engine and its load, whether Redis is there or not.
    pub(crate) fn start_anyway(url: &str) -> Stand {
        let heard = Arc::new(Heard::default());
        let engine = builder(url, &unique_prefix()).observer(Arc::clone(&heard) as Arc<dyn Observer>).build();
        let is_over = Arc::new(AtomicBool::new(false));
        let load = RULES
            .into_iter()
            .flat_map(|rule| (0..TASKS_PER_RULE).map(move |_| rule))
            .map(|rule| tokio::spawn(ask_on(engine.clone(), rule, Arc::clone(&is_over))))
            .collect();
        let stall = tokio::spawn(longest_stall(Arc::clone(&is_over)));
        Stand { engine, heard, load, stall, is_over, broke: None, well: None }
    }

    /// Waits for that many more decisions from the store.
    pub(crate) async fn is_served(&self, more: u64) {
        let wanted = self.heard.by_store() + more;
        eventually("decisions come from Redis", || self.heard.by_store() >= wanted).await;
    }

    /// Notes that Redis fails from here on.
    pub(crate) fn broke(&mut self) {
        self.broke = Some(clock::instant());
    }

    /// Notes that Redis is well from here on.
    pub(crate) fn well(&mut self) {
        self.well = Some(clock::instant());
    }

    /// Lets the fault last, under load.
    pub(crate) async fn lasts(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    /// Waits until decisions come from Redis again and have done so for a while; then ends the load
    /// and draws up the report. `losses` is the L of this fault: how often Redis lost its state.
    pub(crate) async fn finish(self, fault: &'static str, losses: u32) -> Report {
        self.is_served(50).await;
        eventually("the guard closes", || self.engine.health().outage.is_none()).await;
        self.lasts(Duration::from_millis(900)).await;
        self.is_over.store(true, Ordering::SeqCst);
        let mut asked = Vec::new();
        for task in self.load {
            asked.extend(task.await.unwrap());
        }
        let now = clock::instant();
        Report {
            fault,
            losses,
            asked,
            stall: self.stall.await.unwrap(),
            broke: self.broke.unwrap_or(now),
            well: self.well.or(self.broke).unwrap_or(now),
            changes: self.heard.changes(),
            errors: self.heard.errors(),
            instances: self.engine.health().instances,
            note: String::new(),
        }
    }
}

/// A store on the Redis at `url`.
pub(crate) fn store(url: &str, prefix: &str) -> RedisStore {
    let mut config = RedisConfig::new(RedisUrl::parse(url).unwrap());
    prefix.clone_into(&mut config.key_prefix);
    RedisStore::new(config).unwrap()
}

/// An engine with the three rules, to be built.
pub(crate) fn builder(url: &str, prefix: &str) -> EngineBuilder<RedisStore> {
    let rules = RULES.map(|rule| Rule::try_new(rule.name(), vec![bucket()], Some(rule)).unwrap());
    Engine::builder(store(url, prefix)).deadline(DEADLINE).policy(Policy::try_new(1, rules.to_vec()).unwrap())
}

/// The limit of every rule.
pub(crate) fn bucket() -> Algorithm {
    let rate = Rate::parse(&format!("{RATE}/s")).unwrap();
    Algorithm::try_new(Kind::TokenBucket, rate, Some(CAPACITY), 1000).unwrap()
}

/// Asks once.
pub(crate) async fn ask(engine: &Engine<RedisStore>, rule: OnOutage) -> Asked {
    let want = Want { by: By::Rule(rule.name()), key: b"somebody", cost: Cost::ONE, takes: &[] };
    let at = clock::instant();
    let verdict = engine.decide(&Ask { wants: &[want] }).await;
    let decision = verdict.checks[0].decision;
    Asked { rule, at, took: at.elapsed(), is_allowed: verdict.is_allowed(), source: verdict.source, decision }
}

async fn ask_on(engine: Engine<RedisStore>, rule: OnOutage, is_over: Arc<AtomicBool>) -> Vec<Asked> {
    let mut asked = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        asked.push(ask(&engine, rule).await);
        tokio::time::sleep(PAUSE).await;
    }
    asked
}

/// By how much the machine itself overslept a deadline's worth of sleep, at worst: what no engine
/// on it could have done better.
async fn longest_stall(is_over: Arc<AtomicBool>) -> Duration {
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::SeqCst) {
        let started = clock::instant();
        tokio::time::sleep(DEADLINE).await;
        longest = longest.max(started.elapsed().saturating_sub(DEADLINE));
    }
    longest
}

/// Whether an error says that the outcome of a spend is unknown, for tests that speak to a store.
pub(crate) fn is_unknown<T>(result: &Result<T, StoreError>) -> bool {
    result.as_ref().is_err_and(|error| error.spent() == Spent::Unknown)
}
