//! Engines that ask for one key all the time, each on a thread of its own, and a record of every answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use testkit::{enter_namespace, eventually, unique_prefix};
use tokio::runtime;
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Ask, By, Cost, Engine, InlineLimit, Kind, OnOutage, Rate, Source, Want, clock};

/// What the key is admitted at once, and per second.
pub(crate) const CAPACITY: u32 = 500;
pub(crate) const RATE: u32 = 200;

/// How long a check may wait for Redis.
pub(crate) const DEADLINE: Duration = Duration::from_millis(25);

/// Tasks of a client, and the pause of a task between two asks: each client alone asks for more than the rate.
const TASKS: usize = 4;
const PAUSE: Duration = Duration::from_millis(4);

/// So long without an answer that is not Redis', and it is back.
const QUIET: Duration = Duration::from_millis(500);

/// One ask and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Which of the clients.
    pub client: usize,
    /// When it was asked.
    pub at: Instant,
    /// When it was answered.
    pub answered: Instant,
    /// Whether it passed.
    pub is_allowed: bool,
    /// Who decided.
    pub source: Source,
    /// When it was decided, by the clock of who decided.
    pub decided_us: u64,
    /// What was left.
    pub remaining: u32,
}

impl Asked {
    pub(crate) fn is_by_redis(&self) -> bool {
        self.source == Source::Store
    }
}

/// Clients that ask until they are stopped.
pub(crate) struct Clients {
    asked: Arc<Mutex<Vec<Asked>>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Starts one client in each of the namespaces, where there are any, and returns when Redis has refused each of
    /// them: the limit is drained.
    pub(crate) async fn start(url: &str, key: &str, namespaces: &[Option<&str>]) -> Clients {
        let (asked, is_over) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::<AtomicBool>::default());
        let prefix = unique_prefix();
        let instances = u32::try_from(namespaces.len()).expect("a few");
        let threads = namespaces.iter().enumerate().map(|(client, namespace)| {
            let mut config = RedisConfig::new(RedisUrl::parse(url).expect("a URL of testkit's"));
            config.key_prefix.clone_from(&prefix);
            let (namespace, key) = (namespace.map(str::to_owned), key.to_owned());
            let (asked, is_over) = (Arc::clone(&asked), Arc::clone(&is_over));
            thread::spawn(move || {
                // Before the runtime is there: it makes no thread but this.
                if let Some(namespace) = namespace {
                    enter_namespace(&namespace);
                }
                let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(run(client, config, instances, key, asked, is_over));
            })
        });
        let clients = Clients { threads: threads.collect(), asked, is_over };
        for client in 0..namespaces.len() {
            let is_refused = || {
                let asked = clients.asked.lock();
                asked.iter().any(|asked| asked.client == client && asked.is_by_redis() && !asked.is_allowed)
            };
            eventually("the limit is drained", is_refused).await;
        }
        clients
    }

    /// Waits until every answer has come from Redis for a while, or `at_most`: the figures will tell.
    pub(crate) async fn settle(&self, at_most: Duration) {
        let begun = clock::instant();
        loop {
            let last =
                self.asked.lock().iter().rev().find(|asked| !asked.is_by_redis()).map(|asked| asked.answered);
            let is_quiet = last.is_none_or(|last| last.elapsed() > QUIET) && begun.elapsed() > QUIET;
            if is_quiet || begun.elapsed() > at_most {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Stops, and hands over what was asked.
    pub(crate) fn stop(self) -> Vec<Asked> {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("an ask does not panic");
        }
        std::mem::take(&mut *self.asked.lock())
    }
}

async fn run(
    client: usize,
    config: RedisConfig,
    instances: u32,
    key: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    is_over: Arc<AtomicBool>,
) {
    let store = RedisStore::new(config).expect("no TLS to go wrong");
    // Every ask is to be Redis': what remembers refusals would answer most of them.
    let engine = Engine::builder(store).deadline(DEADLINE).on_outage(OnOutage::Local);
    let engine = engine.instances(instances).deny_cache(None).build();
    let rate = Rate::parse(&format!("{RATE}/s")).expect("a rate");
    let algorithm = Algorithm::try_new(Kind::TokenBucket, rate, Some(CAPACITY), 1000).expect("a limit");
    let limit = InlineLimit::new(algorithm, rate.period());
    let tasks = (0..TASKS).map(|_| {
        let (engine, limit, key) = (engine.clone(), limit.clone(), key.clone());
        let (asked, is_over) = (Arc::clone(&asked), Arc::clone(&is_over));
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let want = Want { by: By::Inline(&limit), key: key.as_bytes(), cost: Cost::ONE, takes: &[] };
                let at = clock::instant();
                let verdict = engine.decide(&Ask { wants: &[want] }).await;
                let decision = verdict.checks[0].decision;
                asked.lock().push(Asked {
                    client,
                    at,
                    answered: clock::instant(),
                    is_allowed: verdict.is_allowed(),
                    source: verdict.source,
                    decided_us: decision.take.at.0,
                    remaining: decision.remaining,
                });
                tokio::time::sleep(PAUSE).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("an ask does not panic");
    }
}
