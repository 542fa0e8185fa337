//! Every way a primary can be replaced: each is followed within two seconds of the promotion.

use std::time::Duration;

use testkit::SentinelGroup;
use tollgate::core::store::{ErrorClass, StoreError};
use tollgate::store::redis::RedisStore;

use crate::promotion::is_followed;
use crate::stand::{BACK_WITHIN, Load, config, is_served, is_without_redis, limit};

const KEYS: [&str; 2] = ["ann", "bob"];

async fn load(group: &SentinelGroup) -> Load {
    load_as("", group).await
}

async fn load_as(credentials: &str, group: &SentinelGroup) -> Load {
    let load = Load::start(config(&group.url_as(credentials)), KEYS.map(str::to_owned).into()).await;
    load.run_for(Duration::from_millis(300)).await;
    load
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_is_replaced() {
    let mut group = SentinelGroup::start().await;
    let load = load(&group).await;
    group.servers[0].kill();
    let (_, promoted) = group.promoted(0).await;
    is_followed(load, KEYS.len(), promoted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_hangs_is_replaced() {
    let group = SentinelGroup::start().await;
    let load = load(&group).await;
    group.servers[0].pause();
    let (_, promoted) = group.promoted(0).await;
    is_followed(load, KEYS.len(), promoted).await;
    group.servers[0].resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_hand_is_followed() {
    let group = SentinelGroup::start().await;
    let load = load(&group).await;
    group.fail_over().await;
    let (_, promoted) = group.promoted(0).await;
    is_followed(load, KEYS.len(), promoted).await;
}

/// The old primary answers, writes, and knows of nothing; only Sentinels say that it is none any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_was_cut_off_is_left_though_it_answers() {
    // Peers that may not come in as themselves must not come in as the default user either.
    let users = ["user default off", "user app on >PASSWORD ~* &* +@all"];
    let group = users.iter().fold(SentinelGroup::builder(), |group, user| group.acl_line(user)).start().await;
    let load = load_as("app:PASSWORD@", &group).await;
    group.servers[0].cut_off().await;
    let (new, promoted) = group.promoted(0).await;
    // Nothing fails on the way, so nothing but the Sentinels' word makes the store move.
    load.run_for(BACK_WITHIN).await;
    let calls = |at: usize| calls(&group, at);
    let (old_before, new_before) = (calls(0).await, calls(new).await);
    load.run_for(Duration::from_millis(500)).await;
    assert_eq!(calls(0).await, old_before, "the old primary is still asked");
    assert!(calls(new).await > new_before, "the new primary is not asked");
    let role = group.servers[0].command(&["ROLE"]).await.array()[0].text();
    assert_eq!(role, "master", "it never learnt of it");
    is_followed(load, KEYS.len(), promoted).await;
}

/// How often a server was asked to call a function of ours.
async fn calls(group: &SentinelGroup, at: usize) -> u64 {
    let info = group.servers[at].command(&["INFO", "commandstats"]).await.text();
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_fcall:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Sentinels that still name a server which has become a replica: it is dialled, and found wanting.
#[tokio::test]
async fn a_replica_is_never_taken_for_a_primary() {
    let group = SentinelGroup::builder().down_after(Duration::from_mins(1)).start().await;
    let (old, new) = (&group.servers[0], &group.servers[1]);
    new.command(&["REPLICAOF", "NO", "ONE"]).await;
    old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]).await;
    let store = RedisStore::new(config(&group.url())).expect("no TLS to go wrong");
    let error = store.ping().await.expect_err("it is a replica");
    assert!(
        matches!(error, StoreError::Answered { class: ErrorClass::ReadOnly, .. }),
        "a replica is known by its role: {error}"
    );
}

#[tokio::test]
async fn a_primary_is_found_again_after_all_sentinels_were_gone() {
    let mut group = SentinelGroup::start().await;
    let engine = crate::stand::engine(config(&group.url()));
    let keys = KEYS.map(str::to_owned);
    is_served(&engine, &keys).await;
    for sentinel in &mut group.sentinels {
        sentinel.kill();
    }
    // Sentinels are not asked before a check is: without them the primary is the one it was.
    for _ in 0..20 {
        assert!(!is_without_redis(crate::stand::ask(&engine, &limit(), "ann").await.source));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for sentinel in &mut group.sentinels {
        sentinel.restart().await;
    }
    group.is_complete().await;
    group.fail_over().await;
    let (new, _) = group.promoted(0).await;
    group.is_complete().await;
    is_served(&engine, &keys).await;
    assert_eq!(group.primary_by(0).await, new);
}
