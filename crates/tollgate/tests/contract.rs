//! Every store keeps the contract of `Store`: the one suite of `testkit::contract`, on each of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use testkit::{ClockShim, RedisCluster, RedisServer, SentinelGroup, TestTime, store_contract};
use tollgate::Micros;
use tollgate::clock::Clock;
use tollgate::store::AnyStore;
use tollgate::store::memory::MemoryStore;
use tollgate::store::redis::{Layout, RedisConfig, RedisStore, RedisUrl};

/// Half past an hour, so that no window ends while a case runs.
const START_US: u64 = 1_800_001_800_000_000;

/// The hand of a clock that is moved by hand.
struct Hand(Arc<AtomicU64>);

impl TestTime for Hand {
    fn forward(&self, by: Duration) {
        self.0.fetch_add(micros(by), Ordering::SeqCst);
    }

    fn back(&self, by: Duration) {
        self.0.fetch_sub(micros(by), Ordering::SeqCst);
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).expect("not for ever")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_keeps_the_contract() {
    let (clock, hand) = Clock::manual(Micros(START_US));
    store_contract(&Arc::new(MemoryStore::builder().clock(clock).build()), &Hand(hand)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_chosen_store_keeps_the_contract() {
    let (clock, hand) = Clock::manual(Micros(START_US));
    store_contract(&Arc::new(AnyStore::Memory(MemoryStore::builder().clock(clock).build())), &Hand(hand))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_keeps_the_contract_packed_by_function() {
    redis_keeps_the_contract(Layout::Packed, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_keeps_the_contract_packed_by_script() {
    redis_keeps_the_contract(Layout::Packed, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_keeps_the_contract_hash_by_function() {
    redis_keeps_the_contract(Layout::Hash, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_keeps_the_contract_hash_by_script() {
    redis_keeps_the_contract(Layout::Hash, false).await;
}

/// Every take as a call of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_keeps_the_contract_one_by_one() {
    let server = RedisServer::builder().clock_shim().start().await;
    freeze(server.clock());
    let config = RedisConfig { batch: false, ..config(&server.url(), Layout::Packed, true) };
    let store = keeps_the_contract(config, server.clock()).await;
    let batches = store.stats().batches;
    assert!(batches.asks > 0 && batches.calls[0] == batches.asks, "{batches:?}");
}

async fn redis_keeps_the_contract(layout: Layout, functions: bool) {
    let server = RedisServer::builder().clock_shim().start().await;
    freeze(server.clock());
    keeps_the_contract(config(&server.url(), layout, functions), server.clock()).await;
}

/// A primary that replicates to two others and is watched: nothing else about it is different. Its clock leaps by
/// hours, which nobody may take for silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_behind_sentinels_keeps_the_contract() {
    let clock = Arc::new(ClockShim::new());
    let group = SentinelGroup::builder()
        .on_clock(Arc::clone(&clock))
        .arg("repl-timeout", "1000000")
        .down_after(Duration::from_hours(1))
        .start()
        .await;
    freeze(&clock);
    keeps_the_contract(config(&group.url(), Layout::Packed, true), &clock).await;
}

/// Every node on the same clock, whose leaps nobody takes for silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cluster_keeps_the_contract_packed() {
    a_cluster_keeps_the_contract(Layout::Packed, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cluster_keeps_the_contract_hash_by_script() {
    a_cluster_keeps_the_contract(Layout::Hash, false).await;
}

async fn a_cluster_keeps_the_contract(layout: Layout, functions: bool) {
    let clock = Arc::new(ClockShim::new());
    let cluster = RedisCluster::builder()
        .without_replicas()
        .on_clock(Arc::clone(&clock))
        .node_timeout(Duration::from_hours(200))
        .start()
        .await;
    freeze(&clock);
    keeps_the_contract(config(&cluster.url(), layout, functions), &clock).await;
}

fn freeze(clock: &ClockShim) {
    clock.freeze_at_us(i64::try_from(START_US).expect("a time of this millennium"));
}

fn config(url: &str, layout: Layout, functions: bool) -> RedisConfig {
    let mut config = RedisConfig::new(RedisUrl::parse(url).expect("a URL of testkit's"));
    config.layout = layout;
    config.functions = functions;
    config.pool_size = 4;
    config.key_prefix = testkit::unique_prefix();
    // A machine busy with other tests must not fail this one.
    config.read_timeout = Duration::from_secs(20);
    config.write_timeout = Duration::from_secs(20);
    config.dial_timeout = Duration::from_secs(20);
    config
}

async fn keeps_the_contract(config: RedisConfig, clock: &ClockShim) -> Arc<RedisStore> {
    let store = Arc::new(RedisStore::new(config).expect("no TLS to go wrong"));
    store_contract(&store, clock).await;
    store
}
