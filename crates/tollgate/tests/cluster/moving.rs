//! Slots that move while they are asked for: no decision is lost, and none is made twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use testkit::{RedisCluster, slot_of};
use tollgate::core::check::Check;
use tollgate::core::decision::Outcome;
use tollgate::core::key::{Key, Scope};
use tollgate::core::store::Store;
use tollgate::store::redis::RedisStore;
use tollgate::{Algorithm, Cost, Kind, Rate};

use crate::stand::config;

/// A window of a day counts every admission and forgets none: what is left says exactly how many there were.
const LIMIT: u32 = 100_000;

struct Counter {
    scope: Scope,
    algorithm: Algorithm,
}

impl Counter {
    fn new(kind: Kind) -> Counter {
        let rate = Rate::parse(&format!("{LIMIT}/day")).expect("a rate");
        let algorithm = Algorithm::try_new(kind, rate, None, LIMIT).expect("a limit");
        Counter { scope: Scope::of_rule("login", 0, kind), algorithm }
    }

    fn check<'a>(&'a self, subject: &'a str) -> Check<'a> {
        let key = Key { scope: &self.scope, subject: subject.as_bytes() };
        Check { key, algorithm: &self.algorithm, cost: Cost::ONE }
    }
}

/// Names of one slot.
fn names_in(slot: u16, count: usize) -> Vec<String> {
    (0..).map(|number| format!("n{number}")).filter(|name| slot_of(name) == slot).take(count).collect()
}

fn patient(url: &str) -> RedisStore {
    let mut config = config(url);
    // A machine busy with other tests must not fail this one.
    config.read_timeout = Duration::from_secs(20);
    config.write_timeout = Duration::from_secs(20);
    config.dial_timeout = Duration::from_secs(20);
    RedisStore::new(config).expect("no TLS to go wrong")
}

/// A slot goes to and fro while four tasks spend from eight keys of it. Every take is answered; the counts that
/// were handed out are each handed out once; and what is left at the end is the limit less their number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resharding_under_load_loses_and_doubles_nothing() {
    let cluster = RedisCluster::builder().without_replicas().start().await;
    let store = Arc::new(patient(&cluster.url()));
    let slot = slot_of("n0");
    let names = Arc::new(names_in(slot, 8));
    let counter = Arc::new(Counter::new(Kind::FixedWindow));
    let (is_over, left) = (Arc::<AtomicBool>::default(), Arc::<Mutex<HashMap<String, Vec<u32>>>>::default());
    let failed = Arc::<Mutex<Vec<String>>>::default();
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let (store, names, counter) = (Arc::clone(&store), Arc::clone(&names), Arc::clone(&counter));
            let (is_over, left, failed) = (Arc::clone(&is_over), Arc::clone(&left), Arc::clone(&failed));
            tokio::spawn(async move {
                for number in task.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = &names[number % names.len()];
                    match store.take(&[counter.check(name)]).await {
                        Ok(decisions) => {
                            assert_eq!(decisions[0].outcome, Outcome::Allowed);
                            left.lock().entry(name.clone()).or_default().push(decisions[0].remaining);
                        }
                        Err(error) => failed.lock().push(error.to_string()),
                    }
                }
            })
        })
        .collect();
    let mut from = cluster.owner_by(0, slot).await.expect("somebody serves it");
    for _ in 0..6 {
        let to = (from + 1) % 3;
        tokio::time::sleep(Duration::from_millis(100)).await;
        cluster.begin_moving(slot, from, to).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        cluster.move_keys(slot, from, to).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        cluster.end_moving(slot, from, to).await;
        from = to;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("a task");
    }
    assert_eq!(*failed.lock(), [""; 0], "every one was to be answered");
    let left = std::mem::take(&mut *left.lock());
    assert_eq!(left.len(), names.len());
    for (name, mut left) in left {
        assert!(left.len() > 100, "{name} was asked for {} times: too few to tell", left.len());
        left.sort_unstable();
        left.reverse();
        let expected: Vec<u32> =
            (1..=u32::try_from(left.len()).unwrap()).map(|taken| LIMIT - taken).collect();
        assert_eq!(left, expected, "{name}: each count once, and none left out");
    }
}

/// Between two nodes: what is still here is answered here, what is not is asked for there, and a new key is
/// made there. Nobody is told of it.
#[tokio::test]
async fn a_slot_on_its_way_is_asked_for_on_both_sides() {
    let cluster = RedisCluster::builder().without_replicas().start().await;
    let store = patient(&cluster.url());
    let slot = slot_of("n0");
    let [old, new] = <[String; 2]>::try_from(names_in(slot, 2)).expect("two");
    let from = cluster.owner_by(0, slot).await.expect("somebody serves it");
    let to = (from + 1) % 3;
    for kind in Kind::ALL {
        let counter = Counter::new(kind);
        let left = async |name: &str| {
            let decisions = store.take(&[counter.check(name)]).await.expect("it is answered");
            (decisions[0].outcome, LIMIT - decisions[0].remaining)
        };
        assert_eq!(left(&old).await, (Outcome::Allowed, 1), "{kind}");
        cluster.begin_moving(slot, from, to).await;
        assert_eq!(left(&old).await, (Outcome::Allowed, 2), "{kind}: it is still here");
        assert_eq!(left(&new).await, (Outcome::Allowed, 1), "{kind}: it is made there");
        assert_eq!(left(&new).await, (Outcome::Allowed, 2), "{kind}: and found there");
        // Both at once: they are on two nodes, so nothing can be decided, and nothing is.
        let both = [counter.check(&old), counter.check(&new)];
        let error = store.take(&both).await.expect_err("they are on two nodes");
        assert!(error.to_string().contains("tryagain"), "{kind}: {error}");
        cluster.move_keys(slot, from, to).await;
        assert_eq!(left(&old).await, (Outcome::Allowed, 3), "{kind}: it has gone there");
        let both = store.take(&both).await.expect("they are together again");
        assert_eq!((LIMIT - both[0].remaining, LIMIT - both[1].remaining), (4, 3), "{kind}");
        cluster.end_moving(slot, from, to).await;
        assert_eq!(left(&old).await, (Outcome::Allowed, 5), "{kind}: it is served there");
        let peeked = store.peek(&[counter.check(&new)]).await.expect("it is answered");
        assert_eq!(LIMIT - peeked[0].remaining, 3, "{kind}");
        store.forget(&[counter.check(&old).key, counter.check(&new).key]).await.expect("it is answered");
        assert_eq!(left(&new).await, (Outcome::Allowed, 1), "{kind}: it was forgotten");
        store.forget(&[counter.check(&new).key]).await.expect("it is answered");
        // And back, for the next kind.
        cluster.begin_moving(slot, to, from).await;
        cluster.move_keys(slot, to, from).await;
        cluster.end_moving(slot, to, from).await;
    }
}
