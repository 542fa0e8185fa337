//! What one instance admits by itself while Redis is away.

use std::time::Duration;

use testkit::{ChaosProxy, RedisServer, eventually, unique_prefix};
use tollgate::store::redis::RedisStore;
use tollgate::{Engine, OnOutage, Source};

use crate::excess::worst_excess;
use crate::stand::{Asked, CAPACITY, Heard, RATE, ask, builder};

/// Asks the rule that answers `local`, as fast as it can, for a while.
async fn ask_for(engine: &Engine<RedisStore>, span: Duration) -> Vec<Asked> {
    let until = tokio::time::Instant::now() + span;
    let mut asked = Vec::new();
    while tokio::time::Instant::now() < until {
        asked.push(ask(engine, OnOutage::Local).await);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    asked
}

/// The instants at which this instance admitted by itself.
fn admitted_locally(asked: &[Asked]) -> Vec<u64> {
    let local = asked.iter().filter(|asked| asked.source == Source::Fallback(OnOutage::Local));
    local.filter(|asked| asked.is_allowed).map(|asked| asked.decision.take.at.0).collect()
}

/// Holds what was admitted against a share of one in `instances`.
fn is_a_share(admitted: Vec<u64>, instances: u32) {
    let count = admitted.len();
    let excess = worst_excess(admitted, f64::from(RATE) / f64::from(instances));
    println!("1 of {instances} admitted {count}, {excess:.1} over r/n·T");
    assert!(excess <= f64::from(CAPACITY / instances), "{excess} over r/n·T");
    assert!(count >= (CAPACITY / instances) as usize, "{count} admitted: less than the share");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_four_configured_instances_admits_a_quarter() {
    let mut server = RedisServer::start().await;
    server.kill();
    let engine = builder(&server.url(), &unique_prefix()).instances(4).build();
    let asked = ask_for(&engine, Duration::from_secs(1)).await;
    is_a_share(admitted_locally(&asked), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_four_instances_that_saw_each_other_admits_a_quarter() {
    let server = RedisServer::start().await;
    let prefix = unique_prefix();
    let engines: Vec<_> = (0..4).map(|_| builder(&server.url(), &prefix).build()).collect();
    eventually("all see all", || engines.iter().all(|engine| engine.health().instances == 4)).await;
    server.pause();
    let asked = ask_for(&engines[0], Duration::from_secs(1)).await;
    server.resume();
    is_a_share(admitted_locally(&asked), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flapping_guard_refills_no_local_bucket() {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let heard = std::sync::Arc::new(Heard::default());
    let engine = builder(&proxy.url(), &unique_prefix())
        .instances(4)
        .observer(std::sync::Arc::clone(&heard) as std::sync::Arc<dyn tollgate::observe::Observer>)
        .build();
    let mut asked = Vec::new();
    for _ in 0..4 {
        proxy.cut();
        asked.extend(ask_for(&engine, Duration::from_millis(250)).await);
        assert!(engine.health().outage.is_some());
        proxy.pass();
        eventually("the guard closes", || engine.health().outage.is_none()).await;
        asked.extend(ask_for(&engine, Duration::from_millis(100)).await);
    }
    assert!(heard.changes().len() >= 7, "{:?}", heard.changes());
    is_a_share(admitted_locally(&asked), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_count_the_instances_that_are_alive() {
    let server = RedisServer::start().await;
    let prefix = unique_prefix();
    let mut engines: Vec<_> = (0..3).map(|_| builder(&server.url(), &prefix).build()).collect();
    eventually("all see all", || engines.iter().all(|engine| engine.health().instances == 3)).await;
    engines.pop();
    eventually("one is missed", || engines.iter().all(|engine| engine.health().instances == 2)).await;
}

/// An instance that came back first to an empty Redis once believed itself alone, and would have
/// admitted the whole limit if Redis had gone again then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_lost_its_state_makes_no_instance_believe_itself_alone() {
    let server = RedisServer::start().await;
    let prefix = unique_prefix();
    let engines: Vec<_> = (0..3).map(|_| builder(&server.url(), &prefix).build()).collect();
    eventually("all see all", || engines.iter().all(|engine| engine.health().instances == 3)).await;
    let until = tokio::time::Instant::now() + Duration::from_secs(3);
    server.command(&["FLUSHALL"]).await;
    while tokio::time::Instant::now() < until {
        for engine in &engines {
            assert_eq!(engine.health().instances, 3);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
