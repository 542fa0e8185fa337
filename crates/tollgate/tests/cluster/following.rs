//! Every way a primary of a shard can be replaced, and what the other shards notice of it: nothing.

use std::time::Duration;

use testkit::{RedisCluster, slot_of};
use tollgate::core::store::{ErrorClass, StoreError};
use tollgate::{Source, clock};

use crate::promotion::{is_followed, is_within_bounds};
use crate::stand::{
    Asked, BACK_WITHIN, Load, ask, back_after, config, engine, is_served, is_without_redis, limit,
};

/// One key in each shard.
pub(crate) fn a_key_in_each() -> [String; 3] {
    [0, 1, 2].map(|shard| a_key_in(shard, 0))
}

/// The `nth` key of a shard, while slots are as they were at the start.
pub(crate) fn a_key_in(shard: u16, nth: usize) -> String {
    let names = (0..).map(|number| format!("user-{number}"));
    let mut those = names.filter(|name| shard_of(slot_of(name)) == shard);
    those.nth(nth).expect("there is no end of names")
}

fn shard_of(slot: u16) -> u16 {
    u16::from(slot >= 16_384 / 3) + u16::from(slot >= 16_384 * 2 / 3)
}

async fn load(cluster: &RedisCluster) -> Load {
    let load = Load::start(config(&cluster.url()), a_key_in_each().into()).await;
    load.run_for(Duration::from_millis(300)).await;
    load
}

/// The first shard is the sick one. On a busy machine the others may miss a deadline now and then, as they
/// would if nobody were sick.
fn others_notice_nothing(asked: &[Asked]) {
    let others: Vec<_> = asked.iter().filter(|asked| asked.key != 0).collect();
    let missed = others.iter().filter(|asked| is_without_redis(asked.source)).count();
    assert!(missed * 100 <= others.len(), "{missed} of {} asks of healthy shards", others.len());
    let sick = asked.iter().filter(|asked| asked.key == 0);
    let sick_missed = sick.filter(|asked| is_without_redis(asked.source)).count();
    assert!(sick_missed > 10 * missed, "{sick_missed} of the sick shard, {missed} of the others");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_is_replaced_and_no_other_shard_notices() {
    let mut cluster = RedisCluster::start().await;
    let load = load(&cluster).await;
    let replica = cluster.replica_of(0).await;
    cluster.nodes[0].kill();
    let promoted = cluster.promoted(replica).await;
    others_notice_nothing(&is_followed(load, 3, promoted).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_hangs_is_replaced_and_no_other_shard_notices() {
    let cluster = RedisCluster::start().await;
    let load = load(&cluster).await;
    let replica = cluster.replica_of(0).await;
    cluster.nodes[0].pause();
    let promoted = cluster.promoted(replica).await;
    others_notice_nothing(&is_followed(load, 3, promoted).await);
    cluster.nodes[0].resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_hand_is_followed() {
    let cluster = RedisCluster::start().await;
    let load = load(&cluster).await;
    let replica = cluster.fail_over(0).await;
    let promoted = cluster.promoted(replica).await;
    load.settles(BACK_WITHIN + Duration::from_secs(8)).await;
    let asked = load.stop().await;
    let back = back_after(&asked, promoted);
    assert!(back <= BACK_WITHIN, "back {back:?} after the promotion");
    is_within_bounds(&asked, 3, 1);
}

/// Without a replica, a shard that hangs stays away. It is set aside; the others answer as fast as before; and
/// it is found again when it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sick_shard_is_set_aside_alone_and_found_again() {
    let cluster = RedisCluster::builder().without_replicas().start().await;
    let load = load(&cluster).await;
    cluster.nodes[0].pause();
    load.run_for(Duration::from_secs(2)).await;
    let health = load.engine.health();
    assert!(health.outage.is_some(), "{health:?}");
    let limit = limit();
    let mut quick = 0;
    for _ in 0..50 {
        let begun = clock::instant();
        let verdict = ask(&load.engine, &limit, &a_key_in(0, 0)).await;
        assert!(matches!(verdict.source, Source::Fallback(_)));
        quick += usize::from(begun.elapsed() < Duration::from_millis(5));
    }
    assert!(quick > 40, "a shard that is set aside costs nothing: {quick} of 50 were quick");
    cluster.nodes[0].resume();
    let resumed = clock::instant();
    load.settles(Duration::from_secs(10)).await;
    let asked = load.stop().await;
    let back = back_after(&asked, resumed);
    assert!(back <= BACK_WITHIN, "back {back:?} after it went on");
    others_notice_nothing(&asked);
    is_within_bounds(&asked, 3, 0);
}

/// A cluster that wants to be whole refuses everything when a shard is gone: that is an outage, and its end is
/// found too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_is_an_outage() {
    let mut cluster =
        RedisCluster::builder().without_replicas().arg("cluster-require-full-coverage", "yes").start().await;
    let engine = engine(config(&cluster.url()));
    let keys = a_key_in_each();
    is_served(&engine, &keys).await;
    cluster.nodes[0].kill();
    let limit = limit();
    let deadline = clock::instant() + Duration::from_secs(20);
    while !is_without_redis(ask(&engine, &limit, &keys[1]).await.source) {
        assert!(clock::instant() < deadline, "it is down, and answers");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let outage = loop {
        if let Some(outage) = engine.health().outage
            && matches!(outage.error, StoreError::Answered { class: ErrorClass::ClusterDown, .. })
        {
            break outage;
        }
        assert!(clock::instant() < deadline, "not taken for an outage: {:?}", engine.health());
        ask(&engine, &limit, &keys[1]).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(outage.error.to_string().contains("clusterdown"), "{}", outage.error);
    cluster.nodes[0].restart().await;
    is_served(&engine, &keys).await;
}
