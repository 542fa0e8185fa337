//! Groups of servers: complete in time, and failing over as told.

#![expect(clippy::disallowed_methods, reason = "measures how long real servers take to start")]

use std::time::{Duration, Instant};

use testkit::{RedisClient, RedisCluster, SentinelGroup, slot_of};

/// What a test may wait for a group, on a machine that is busy with other tests. Alone it takes about 3 s.
const READY_WITHIN: Duration = Duration::from_secs(30);

#[tokio::test]
async fn sentinels_watch_and_promote() {
    let begun = Instant::now();
    let mut group = SentinelGroup::start().await;
    println!("Sentinel was ready after {:?}", begun.elapsed());
    assert!(begun.elapsed() < READY_WITHIN, "{:?}", begun.elapsed());
    assert_eq!(group.primary_by(2).await, 0);

    group.servers[0].command(&["SET", "kept", "1"]).await;
    group.servers[0].command(&["WAIT", "2", "1000"]).await;
    group.fail_over().await;
    let (second, _) = group.promoted(0).await;
    assert_ne!(second, 0);
    group.is_complete().await;
    assert_eq!(group.servers[second].command(&["GET", "kept"]).await.text(), "1");

    group.servers[second].kill();
    let (third, _) = group.promoted(second).await;
    assert_eq!(group.servers[third].command(&["GET", "kept"]).await.text(), "1");
    group.servers[second].restart().await;
    group.is_complete().await;
}

#[tokio::test]
async fn a_cluster_serves_moves_slots_and_fails_over() {
    let begun = Instant::now();
    let mut cluster = RedisCluster::start().await;
    println!("the cluster was ready after {:?}", begun.elapsed());
    assert!(begun.elapsed() < READY_WITHIN, "{:?}", begun.elapsed());
    let slot = slot_of("{ann}:x");
    let from = cluster.owner_by(1, slot).await.expect("every slot has an owner");
    cluster.nodes[from].command(&["SET", "{ann}:x", "1"]).await;

    let to = (from + 1) % 3;
    cluster.begin_moving(slot, from, to).await;
    let mut client = RedisClient::connect(cluster.nodes[from].address()).await.unwrap();
    assert_eq!(client.command(&["GET", "{ann}:x"]).await.unwrap().text(), "1");
    let error = client.command(&["GET", "{ann}:y"]).await.unwrap_err();
    assert_eq!(error.code(), Some("ASK"), "{error}");
    cluster.move_keys(slot, from, to).await;
    cluster.end_moving(slot, from, to).await;
    let error = client.command(&["GET", "{ann}:x"]).await.unwrap_err();
    assert_eq!(error.code(), Some("MOVED"), "{error}");
    assert_eq!(cluster.nodes[to].command(&["GET", "{ann}:x"]).await.text(), "1");

    let replica = cluster.fail_over(to).await;
    cluster.promoted(replica).await;
    assert_eq!(cluster.nodes[replica].command(&["GET", "{ann}:x"]).await.text(), "1");
    cluster.is_complete().await;
    let replica_of_another = cluster.replica_of(from).await;
    cluster.nodes[from].kill();
    cluster.promoted(replica_of_another).await;
}

/// Pairs from the specification of Redis Cluster, and what Redis says itself.
#[test]
fn a_slot_is_found_by_the_definition() {
    assert_eq!(slot_of("123456789"), 0x31c3);
    assert_eq!(slot_of("{user1000}.following"), slot_of("{user1000}.followers"));
    assert_eq!(slot_of("foo{}{bar}"), slot_of("foo{}{bar}"));
    assert_ne!(slot_of("foo{}{bar}"), slot_of("bar"));
    assert_eq!(slot_of("foo{bar}{zap}"), slot_of("bar"));
}
