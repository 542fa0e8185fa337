//! An engine under load on several servers, and a record of every answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use testkit::unique_prefix;
use tokio::task::JoinHandle;
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{
    Algorithm, Ask, By, Cost, Engine, InlineLimit, Kind, OnOutage, Rate, Source, Verdict, Want, clock,
};

/// What each key is admitted at once, and per second.
pub(crate) const CAPACITY: u32 = 50;
pub(crate) const RATE: u32 = 100;

/// How long a check may wait for Redis.
pub(crate) const DEADLINE: Duration = Duration::from_millis(25);

/// Decisions come from Redis again so soon after another server was promoted.
pub(crate) const BACK_WITHIN: Duration = Duration::from_secs(2);

/// How long Redis must have answered to be back.
const SETTLED: Duration = Duration::from_millis(300);

/// The pause of a task between two asks.
const PAUSE: Duration = Duration::from_millis(4);

/// One ask and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Which of the keys.
    pub key: usize,
    /// When it was asked.
    pub at: Instant,
    /// How long the answer took.
    pub took: Duration,
    /// Whether it passed.
    pub is_allowed: bool,
    /// Who decided.
    pub source: Source,
}

/// Tasks that ask until they are stopped. Nothing passes but by Redis: rules deny in an outage.
pub(crate) struct Load {
    pub engine: Engine<RedisStore>,
    asked: Arc<Mutex<Vec<Asked>>>,
    is_over: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

/// A store's settings, as a user would have them.
pub(crate) fn config(url: &str) -> RedisConfig {
    let mut config = RedisConfig::new(RedisUrl::parse(url).expect("a URL of testkit's"));
    config.key_prefix = unique_prefix();
    config
}

/// The limit that every key has.
pub(crate) fn limit() -> InlineLimit {
    let rate = Rate::parse(&format!("{RATE}/s")).expect("a rate");
    let algorithm = Algorithm::try_new(Kind::TokenBucket, rate, Some(CAPACITY), 1000).expect("a limit");
    InlineLimit::new(algorithm, rate.period())
}

/// An engine that denies what Redis does not answer.
pub(crate) fn engine(config: RedisConfig) -> Engine<RedisStore> {
    let store = RedisStore::new(config).expect("TLS files of testkit's");
    // Every ask is to be Redis': what remembers refusals would answer most of them.
    Engine::builder(store).deadline(DEADLINE).on_outage(OnOutage::Deny).deny_cache(None).build()
}

/// Asks once for one key.
pub(crate) async fn ask(engine: &Engine<RedisStore>, limit: &InlineLimit, key: &str) -> Verdict {
    let want = Want { by: By::Inline(limit), key: key.as_bytes(), cost: Cost::ONE, takes: &[] };
    engine.decide(&Ask { wants: &[want] }).await
}

/// Waits until every one of the keys is answered by Redis.
pub(crate) async fn is_served(engine: &Engine<RedisStore>, keys: &[String]) {
    let limit = limit();
    let deadline = clock::instant() + Duration::from_secs(20);
    for key in keys {
        loop {
            let verdict = ask(engine, &limit, key).await;
            if !is_without_redis(verdict.source) {
                break;
            }
            assert!(clock::instant() < deadline, "{key} is not served: {:?}", engine.health());
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Load {
    /// Two tasks ask for each of the keys, once Redis answers for all of them.
    pub(crate) async fn start(config: RedisConfig, keys: Vec<String>) -> Load {
        let engine = engine(config);
        is_served(&engine, &keys).await;
        let (asked, is_over) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::<AtomicBool>::default());
        let tasks = (0..2 * keys.len()).map(|task| {
            let (engine, asked, is_over) = (engine.clone(), Arc::clone(&asked), Arc::clone(&is_over));
            let (key, limit, name) = (task / 2, limit(), keys[task / 2].clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let at = clock::instant();
                    let verdict = ask(&engine, &limit, &name).await;
                    let (is_allowed, source) = (verdict.is_allowed(), verdict.source);
                    asked.lock().push(Asked { key, at, took: at.elapsed(), is_allowed, source });
                    tokio::time::sleep(PAUSE).await;
                }
            })
        });
        let tasks = tasks.collect();
        Load { engine, asked, is_over, tasks }
    }

    /// Lets it run for a while.
    pub(crate) async fn run_for(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until all that was asked since `from` for so long was answered by Redis, or `at_most`.
    pub(crate) async fn settles(&self, at_most: Duration) {
        let begun = clock::instant();
        loop {
            let asked = |asked: &&Asked| is_without_redis(asked.source);
            let last = self.asked.lock().iter().rev().find(asked).map(|asked| asked.at);
            if last.is_none_or(|last| last.elapsed() > SETTLED) && begun.elapsed() > SETTLED {
                return;
            }
            assert!(begun.elapsed() < at_most, "still not by Redis: {:?}", self.engine.health());
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Stops, and hands over what was asked, in order of asking.
    pub(crate) async fn stop(self) -> Vec<Asked> {
        self.is_over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("an ask does not panic");
        }
        let mut asked = std::mem::take(&mut *self.asked.lock());
        asked.sort_by_key(|asked| asked.at);
        asked
    }
}

/// Whether an answer was not Redis': what it refused a moment ago is its word still.
pub(crate) fn is_without_redis(source: Source) -> bool {
    !matches!(source, Source::Store | Source::DenyCache)
}

/// When Redis was back, of what was asked after `from`: with the last answer that was not its own.
///
/// But a busy machine stalls at any time. What begins later than Redis has to be back, after it answered for
/// [`SETTLED`] without a break, and with an ask that waited for it in vain, is a stall. Whatever else begins then is
/// another outage, and so are more than a few stalls.
pub(crate) fn back_after(asked: &[Asked], from: Instant) -> Duration {
    let (mut back, mut last, mut stalled) = (Duration::ZERO, Duration::ZERO, 0);
    for late in asked.iter().filter(|asked| asked.at >= from && is_without_redis(asked.source)) {
        let at = late.at - from;
        let begins = at > last + SETTLED;
        last = at;
        if stalled == 0 && (at <= BACK_WITHIN || !begins) {
            back = at;
            continue;
        }
        assert!(!begins || late.took >= DEADLINE, "lost again {at:?} later, and told so in {:?}", late.took);
        stalled += 1;
    }
    let since = asked.iter().filter(|asked| asked.at > from + back).count();
    assert!(stalled * 20 <= since, "{stalled} of {since} answers were not by Redis after it was back");
    back
}

/// By how much the worst interval of the worst key exceeds rate × time: at most the capacity where nothing
/// was lost. An admission counts when it was answered.
pub(crate) fn burst(asked: &[Asked], keys: usize) -> f64 {
    let mut worst = 0.0f64;
    for key in 0..keys {
        let admitted = asked.iter().filter(|asked| asked.key == key && asked.is_allowed);
        let mut instants: Vec<Instant> = admitted.map(|asked| asked.at + asked.took).collect();
        instants.sort();
        let Some(&first) = instants.first() else { continue };
        let mut least = f64::INFINITY;
        for (count, at) in instants.iter().enumerate() {
            let poured = (*at - first).as_secs_f64() * f64::from(RATE);
            #[expect(clippy::cast_precision_loss, reason = "a test admits no 2^52")]
            let before = count as f64 - poured;
            least = least.min(before);
            worst = worst.max(before + 1.0 - least);
        }
    }
    worst
}
