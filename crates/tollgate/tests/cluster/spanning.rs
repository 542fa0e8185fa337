//! Asks whose keys are on several nodes: all or nothing, and what was taken is given back.

use std::sync::Arc;
use std::time::Duration;

use testkit::{RedisCluster, Reply};
use tollgate::core::check::{Check, Refund};
use tollgate::core::decision::{Outcome, Returned};
use tollgate::core::key::{Key, Scope};
use tollgate::core::store::Store;
use tollgate::store::redis::RedisStore;
use tollgate::{Algorithm, Cost, Kind, Rate};

use crate::following::a_key_in;
use crate::stand::config;

struct Limit {
    scope: Scope,
    subject: String,
    algorithm: Algorithm,
}

impl Limit {
    fn new(kind: Kind, rate: &str, subject: &str) -> Limit {
        let algorithm =
            Algorithm::try_new(kind, Rate::parse(rate).expect("a rate"), None, 1000).expect("a limit");
        Limit { scope: Scope::of_rule("login", 0, kind), subject: subject.to_owned(), algorithm }
    }

    fn check(&self, cost: u32) -> Check<'_> {
        let key = Key { scope: &self.scope, subject: self.subject.as_bytes() };
        Check { key, algorithm: &self.algorithm, cost: Cost::new(cost).expect("a cost") }
    }
}

async fn left(store: &RedisStore, limit: &Limit) -> u32 {
    store.peek(&[limit.check(1)]).await.expect("it is answered")[0].remaining
}

fn store(cluster: &RedisCluster) -> RedisStore {
    let mut config = config(&cluster.url());
    config.read_timeout = Duration::from_secs(5);
    RedisStore::new(config).expect("no TLS to go wrong")
}

#[tokio::test]
async fn several_nodes_are_spent_from_together_or_not_at_all() {
    let cluster = RedisCluster::builder().without_replicas().start().await;
    let store = store(&cluster);
    for (nth, kind) in Kind::ALL.into_iter().enumerate() {
        // In the order of the ask the small one comes first; by slot it comes in the middle.
        let limits = [(1, "3/h"), (0, "10/h"), (2, "10/h"), (0, "9/h")];
        let limits: Vec<Limit> = limits
            .iter()
            .enumerate()
            .map(|(at, (shard, rate))| Limit::new(kind, rate, &a_key_in(*shard, 10 * nth + at)))
            .collect();
        let checks = |cost| limits.iter().map(|limit| limit.check(cost)).collect::<Vec<_>>();

        let peeked = store.peek(&checks(1)).await.expect("it is answered");
        assert_eq!(peeked.iter().map(|d| d.remaining).collect::<Vec<_>>(), [3, 10, 10, 9], "{kind}");
        let taken = store.take(&checks(2)).await.expect("it is answered");
        assert!(taken.iter().all(|decision| decision.outcome == Outcome::Allowed), "{kind}: {taken:?}");
        assert_eq!(taken.iter().map(|d| d.remaining).collect::<Vec<_>>(), [1, 8, 8, 7], "{kind}");

        // The first by slot passes, the second refuses, the third is not reached.
        let refused = store.take(&checks(2)).await.expect("it is answered");
        assert!(matches!(refused[0].outcome, Outcome::Denied { .. }), "{kind}: {refused:?}");
        assert_eq!(
            refused.iter().map(|d| d.remaining).collect::<Vec<_>>(),
            [1, 8, 8, 7],
            "{kind}: given back"
        );
        for (limit, expected) in limits.iter().zip([1, 8, 8, 7]) {
            assert_eq!(left(&store, limit).await, expected, "{kind}");
        }
        let refunds: Vec<Refund<'_>> = checks(2)
            .into_iter()
            .zip(&taken)
            .map(|(check, decision)| Refund { check, take: decision.take })
            .collect();
        let refunded = store.refund(&refunds).await.expect("it is answered");
        // Part of what was taken from a bucket has come back by itself.
        let is_bucket = kind == Kind::TokenBucket;
        for (refunded, whole) in refunded.iter().zip([3, 10, 10, 9]) {
            let (is_all, is_whole) = (refunded.returned == Returned::All, refunded.remaining == whole);
            assert!(is_all || is_bucket && refunded.returned == Returned::Part, "{kind}: {refunded:?}");
            assert!(is_whole || is_bucket && refunded.remaining + 1 == whole, "{kind}: {refunded:?}");
        }

        store.take(&checks(1)).await.expect("it is answered");
        let keys: Vec<_> = limits.iter().map(|limit| limit.check(1).key).collect();
        store.forget(&keys).await.expect("it is answered");
        for (limit, expected) in limits.iter().zip([3, 10, 10, 9]) {
            assert_eq!(left(&store, limit).await, expected, "{kind}: forgotten");
        }
    }
}

/// Many asks for the same two limits on two nodes: each of them passes or leaves nothing behind, so the smaller
/// is drained and the larger is short by exactly as many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_never_admit_more_and_leave_nothing_behind() {
    let cluster = RedisCluster::builder().without_replicas().start().await;
    let store = Arc::new(store(&cluster));
    let small = Arc::new(Limit::new(Kind::FixedWindow, "20/day", &a_key_in(2, 0)));
    let large = Arc::new(Limit::new(Kind::FixedWindow, "1000/day", &a_key_in(0, 0)));
    let asks: Vec<_> = (0..100)
        .map(|_| {
            let (store, small, large) = (Arc::clone(&store), Arc::clone(&small), Arc::clone(&large));
            tokio::spawn(async move {
                let decisions = store.take(&[large.check(1), small.check(1)]).await.expect("it is answered");
                decisions.iter().all(|decision| decision.outcome == Outcome::Allowed)
            })
        })
        .collect();
    let mut admitted = 0;
    for ask in asks {
        admitted += u32::from(ask.await.expect("a task"));
    }
    assert_eq!((admitted, left(&store, &small).await), (20, 0), "exactly what the small one has");
    assert_eq!(left(&store, &large).await, 1000 - 20, "what was taken and refused is given back");
}

/// The second node hangs: the caller gives up, and what the first one took is given back although nobody waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_taken_is_given_back_though_nobody_waits() {
    let cluster = RedisCluster::builder().without_replicas().start().await;
    let mut config = config(&cluster.url());
    config.read_timeout = Duration::from_millis(400);
    let store = RedisStore::new(config).expect("no TLS to go wrong");
    let first = Limit::new(Kind::FixedWindow, "10/day", &a_key_in(0, 0));
    let second = Limit::new(Kind::FixedWindow, "10/day", &a_key_in(1, 0));
    let both = [first.check(1), second.check(1)];
    store.take(&both).await.expect("it is answered");
    cluster.nodes[1].pause();
    let waited = tokio::time::timeout(Duration::from_millis(25), store.take(&both)).await;
    assert!(waited.is_err(), "the second node hangs");
    // Taken; and then the connection is given up, and with it the hope for an answer.
    for expected in [8, 9] {
        let seen = async {
            while left(&store, &first).await != expected {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let seen = tokio::time::timeout(Duration::from_secs(10), seen).await;
        assert!(seen.is_ok(), "{expected} were to be left");
    }
    cluster.nodes[1].resume();
    // What hung was in the socket, and is spent when it goes on: charged, and never admitted.
    let charged = async {
        loop {
            // The connection to it may still be given up, and dialled again.
            if let Ok(peeked) = store.peek(&[second.check(1)]).await {
                break peeked[0].remaining;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let charged = tokio::time::timeout(Duration::from_secs(10), charged).await.expect("it answers again");
    assert!((8..=9).contains(&charged), "{charged}");
}

/// A slow second node answers after the caller has gone: then that is given back as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_heard_of_too_late_is_given_back_too() {
    let cluster = RedisCluster::builder().without_replicas().start().await;
    let store = store(&cluster);
    let first = Limit::new(Kind::SlidingLog, "10/day", &a_key_in(0, 0));
    let second = Limit::new(Kind::SlidingLog, "10/day", &a_key_in(1, 0));
    let both = [first.check(1), second.check(1)];
    store.take(&both).await.expect("it is answered");
    cluster.nodes[1].pause();
    let waited = tokio::time::timeout(Duration::from_millis(50), store.take(&both)).await;
    assert!(waited.is_err(), "the second node hangs");
    cluster.nodes[1].resume();
    let back = async {
        while (left(&store, &first).await, left(&store, &second).await) != (9, 9) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), back).await.expect("both are given back");
}

/// Folded into partitions, subjects meet: many of them are one call on one node.
#[tokio::test]
async fn partitions_bring_subjects_together() {
    let cluster = RedisCluster::builder().without_replicas().start().await;
    let mut config = config(&cluster.url());
    config.partitions = std::num::NonZeroU16::new(1);
    let prefix = config.key_prefix.clone();
    let store = RedisStore::new(config).expect("no TLS to go wrong");
    let limits: Vec<Limit> =
        (0..6).map(|n| Limit::new(Kind::TokenBucket, "10/h", &format!("user-{n}{{x}}"))).collect();
    let checks: Vec<_> = limits.iter().map(|limit| limit.check(1)).collect();
    store.take(&checks).await.expect("it is answered");
    let mut holders = 0;
    for node in &cluster.nodes {
        let keys = node.command(&["KEYS", &format!("{prefix}:1p:{{=0}}user-*")]).await;
        let keys: Vec<String> = keys.array().iter().map(Reply::text).collect();
        holders += usize::from(keys.len() == 6);
    }
    assert_eq!(holders, 1, "all six on one node");
    let names = store.keys_of(b"user-3{x}").await.expect("it is answered");
    let [name] = names.as_slice() else { panic!("one key: {names:?}") };
    let inspected = store.inspect(name).await.expect("it is answered").expect("it is there");
    assert_eq!((inspected.subject.as_deref(), inspected.rule.as_deref()), (Some("user-3{x}"), Some("login")));
}
