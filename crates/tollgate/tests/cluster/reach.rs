//! Users, passwords and TLS on a cluster; looking into it; and what is said where nobody can be reached.

use std::sync::Arc;
use std::time::Duration;

use testkit::{Certificates, Program, RedisCluster, RedisServer, free_port};
use tollgate::core::board::Notice;
use tollgate::core::store::{Store, StoreError};
use tollgate::store::redis::RedisStore;

use crate::following::a_key_in_each;
use crate::stand::{config, engine, is_served};

const DOCUMENT: &str = include_str!("../../../../docs/redis.md");

#[tokio::test]
async fn the_documented_user_is_enough_and_nothing_is_denied() {
    the_documented_user_is_enough(Program::Redis).await;
}

#[tokio::test]
async fn the_documented_user_is_enough_on_valkey() {
    the_documented_user_is_enough(Program::Valkey).await;
}

async fn the_documented_user_is_enough(program: Program) {
    let more = "+asking +cluster|slots +cluster|info";
    assert!(DOCUMENT.contains(&format!("`{more}` on a cluster")), "docs/redis.md has these as well");
    let start = "ACL SETUSER tollgate ";
    let line =
        DOCUMENT.lines().find_map(|line| line.strip_prefix(start)).expect("docs/redis.md has the line");
    let line = format!("user tollgate {line} {more}");
    let cluster = RedisCluster::builder().program(program).without_replicas().acl_line(&line).start().await;
    for node in &cluster.nodes {
        node.command(&["CONFIG", "RESETSTAT"]).await;
    }
    let mut config = config(&cluster.url_as("tollgate:PASSWORD@"));
    "tg".clone_into(&mut config.key_prefix);
    let engine = engine(config);
    is_served(&engine, &a_key_in_each()).await;
    let store = engine.store();
    for shard in 0..store.shards() {
        store.heartbeat_of(tollgate::core::store::Shard(shard)).await.expect("a heartbeat");
    }
    let notice = Notice { text: b"text", keep_for: Duration::from_secs(10) };
    store.post(b"name", Some(notice)).await.expect("a post");
    let board = store.board(0).await.expect("a board").expect("it is new");
    assert_eq!(board.notices.len(), 1);
    // A slot on its way, so that it has to be asked for.
    let key = a_key_in_each()[0].clone();
    cluster.begin_moving(testkit::slot_of(&key), 0, 1).await;
    cluster.move_keys(testkit::slot_of(&key), 0, 1).await;
    is_served(&engine, &[key]).await;
    for node in &cluster.nodes {
        let log = node.command(&["ACL", "LOG"]).await;
        assert!(log.array().is_empty(), "{log:?}");
    }
    // And each of them was really called: nobody but the store asks for these, once a cluster has been started.
    let mut called = String::new();
    for node in &cluster.nodes {
        called += &node.command(&["INFO", "commandstats"]).await.text();
    }
    for grant in more.split(' ').map(|grant| grant.trim_start_matches('+')) {
        assert!(called.contains(&format!("cmdstat_{grant}:")), "{grant} is not called");
    }
}

#[tokio::test]
async fn a_cluster_speaks_tls() {
    let certificates = Arc::new(Certificates::new());
    let cluster = RedisCluster::builder().tls(Arc::clone(&certificates)).start().await;
    let mut config = config(&cluster.url());
    config.tls_ca = Some(certificates.authority.path.clone());
    let engine = engine(config);
    is_served(&engine, &a_key_in_each()).await;
    let replica = cluster.fail_over(0).await;
    cluster.promoted(replica).await;
    is_served(&engine, &a_key_in_each()).await;
}

/// What a check is told where there is no cluster.
async fn refusal(url: &str) -> String {
    let store = RedisStore::new(config(url)).expect("no TLS to go wrong");
    let error = store.ping().await.expect_err("there is no cluster");
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    error.to_string()
}

#[tokio::test]
async fn what_is_no_cluster_says_so() {
    let said = refusal(&format!("redis-cluster://127.0.0.1:{}", free_port())).await;
    assert!(said.contains("no node tells of the cluster") && said.contains("refused"), "{said}");
    let single = RedisServer::start().await;
    let said = refusal(&format!("redis-cluster://{}", single.address())).await;
    assert!(said.contains("cluster support disabled"), "{said}");
}

/// One seed that answers is enough, wherever it stands among them.
#[tokio::test]
async fn one_seed_is_enough() {
    let cluster = RedisCluster::builder().without_replicas().start().await;
    let url = format!(
        "redis-cluster://127.0.0.1:{},{},127.0.0.1:{}",
        free_port(),
        cluster.nodes[1].address(),
        free_port()
    );
    is_served(&engine(config(&url)), &a_key_in_each()).await;
}

/// Keys are found by their subject on whichever node they are.
#[tokio::test]
async fn keys_are_looked_into_on_any_node() {
    let cluster = RedisCluster::builder().without_replicas().start().await;
    let engine = engine(config(&cluster.url()));
    let keys = a_key_in_each();
    is_served(&engine, &keys).await;
    for key in &keys {
        let names = engine.store().keys_of(key.as_bytes()).await.expect("it is answered");
        let [name] = names.as_slice() else { panic!("one key: {names:?}") };
        let inspected = engine.store().inspect(name).await.expect("it is answered").expect("it is there");
        assert_eq!(inspected.subject.as_deref(), Some(key.as_str()));
    }
    let mut stats = engine.store().stats();
    let deadline = tollgate::clock::instant() + Duration::from_secs(10);
    while stats.keys.is_none() {
        assert!(tollgate::clock::instant() < deadline, "{stats:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        stats = engine.store().stats();
    }
    assert!(stats.keys >= Some(3) && stats.used_memory > Some(1_000_000), "of all nodes: {stats:?}");
}
