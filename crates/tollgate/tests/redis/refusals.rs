//! Every way a single Redis refuses to work, provoked for real: the class each comes out as, that
//! nothing is spent, and that the store works again when Redis does.
//!
//! Moving slots need a cluster of several; `classify.rs` has those by their words.

use testkit::{RedisServer, free_port};
use tollgate::core::store::{ErrorClass, Spent, Store, StoreError};
use tollgate::store::redis::RedisStore;
use tollgate::{Algorithm, Kind, Rate};

use crate::stand::{Limit, config, flush_text, recovers, refusal, store, take, ten};

fn class(error: &StoreError) -> ErrorClass {
    match error {
        StoreError::Answered { class, .. } => *class,
        _ => panic!("not answered: {error:?}"),
    }
}

/// Asks until the refusal is of this class: whatever comes first, nothing is spent.
async fn comes_to(store: &RedisStore, wanted: ErrorClass) {
    let deadline = tokio::time::Instant::now() + testkit::eventually::PATIENCE;
    loop {
        let answered = store.take(&[ten().check()]).await;
        match &answered {
            Err(StoreError::Answered { class, .. }) if *class == wanted => break,
            Err(error) => assert_eq!(error.spent(), Spent::Nothing, "{error}"),
            Ok(_) => {}
        }
        assert!(tokio::time::Instant::now() < deadline, "no {}, still {answered:?}", wanted.name());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn lost_functions_and_scripts_are_loaded_again_and_nothing_is_spent_twice() {
    let server = RedisServer::start().await;
    for functions in [true, false] {
        let mut config = config(&server.url());
        config.functions = functions;
        let store = RedisStore::new(config).unwrap();
        for kind in Kind::ALL {
            let limit = Limit::new(kind, "10/h");
            for left in (5..10).rev() {
                flush_text(&server).await;
                let taken = take(&store, &limit).await;
                assert_eq!(taken.remaining, left, "{kind}");
                flush_text(&server).await;
                assert_eq!(store.peek(&[limit.check()]).await.unwrap()[0].remaining, left, "{kind}");
                if left == 5 {
                    flush_text(&server).await;
                    let refunded = store.refund(&[limit.refund(taken.take)]).await.unwrap();
                    assert_eq!(refunded[0].remaining, 6, "{kind}");
                }
            }
        }
        flush_text(&server).await;
        store.heartbeat().await.unwrap();
    }
}

#[tokio::test]
async fn readonly_on_a_replica_and_it_still_answers_a_peek() {
    let server = RedisServer::start().await;
    let store = store(&server.url());
    take(&store, &ten()).await;
    server.command(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]).await;
    // Looking is no writing.
    let peeked = store.peek(&[ten().check()]).await.unwrap();
    assert_eq!(peeked[0].remaining, 9);
    assert_eq!(class(&refusal(&store).await), ErrorClass::ReadOnly);
    assert_eq!(class(&store.heartbeat().await.unwrap_err()), ErrorClass::ReadOnly);
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(recovers(&store).await.remaining, 8);
    assert!(store.stats().dials > 2, "a replica's connection is left");
}

#[tokio::test]
async fn masterdown_on_a_replica_that_will_not_serve_old_data() {
    let server = RedisServer::start().await;
    server.command(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    let live = store(&server.url());
    take(&live, &ten()).await;
    server.command(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]).await;
    let error = live.peek(&[ten().check()]).await.unwrap_err();
    assert_eq!((class(&error), error.spent()), (ErrorClass::MasterDown, Spent::Nothing));
    assert_eq!(class(&refusal(&store(&server.url())).await), ErrorClass::MasterDown, "to a dial as well");
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    recovers(&live).await;
}

#[tokio::test]
async fn oom_on_a_full_redis_and_it_still_answers_a_peek() {
    let server = RedisServer::start().await;
    let store = store(&server.url());
    for kind in Kind::ALL {
        let limit = Limit::new(kind, "10/h");
        take(&store, &limit).await;
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let error = store.take(&[limit.check()]).await.unwrap_err();
        assert_eq!((class(&error), error.spent()), (ErrorClass::OutOfMemory, Spent::Nothing), "{kind}");
        server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
        assert_eq!(store.peek(&[limit.check()]).await.unwrap()[0].remaining, 9, "{kind}: nothing spent");
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
        assert_eq!(store.peek(&[limit.check()]).await.unwrap()[0].remaining, 9, "{kind}");
        server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    }
    assert_eq!(store.stats().dials, 1, "a full Redis is no reason to leave its connection");
}

#[tokio::test]
async fn noperm_for_a_call_and_for_a_command_inside_its_script() {
    let server = RedisServer::start().await;
    server.command(&["ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all"]).await;
    let store = store(&format!("redis://ann:pw@{}", server.address()));
    take(&store, &ten()).await;
    for command in ["get", "setrange", "time"] {
        server.command(&["ACL", "SETUSER", "ann", &format!("-{command}")]).await;
        assert_eq!(class(&refusal(&store).await), ErrorClass::NoPermission, "{command}");
        server.command(&["ACL", "SETUSER", "ann", &format!("+{command}")]).await;
    }
    server.command(&["ACL", "SETUSER", "ann", "-fcall", "-evalsha"]).await;
    assert_eq!(class(&refusal(&store).await), ErrorClass::NoPermission, "either way to call");
    server.command(&["ACL", "SETUSER", "ann", "+fcall", "+evalsha"]).await;
    server.command(&["ACL", "SETUSER", "ann", "resetkeys", "~other:*"]).await;
    assert_eq!(class(&refusal(&store).await), ErrorClass::NoPermission, "another's key");
    server.command(&["ACL", "SETUSER", "ann", "allkeys"]).await;
    assert_eq!(recovers(&store).await.remaining, 8, "nothing was spent");
    assert!(store.stats().functions, "none of it was about functions");
}

#[tokio::test]
async fn noauth_after_the_password_was_changed() {
    let server = RedisServer::builder().acl_line("user ann on >pw ~* +@all").start().await;
    let store = store(&format!("redis://ann:pw@{}", server.address()));
    take(&store, &ten()).await;
    server.command(&["ACL", "SETUSER", "ann", "resetpass", ">new"]).await;
    server.command(&["CLIENT", "KILL", "USER", "ann"]).await;
    comes_to(&store, ErrorClass::NoAuthentication).await;
    server.command(&["ACL", "SETUSER", "ann", ">pw"]).await;
    recovers(&store).await;
}

#[tokio::test]
async fn busy_with_somebody_elses_script() {
    let server = RedisServer::builder().arg("busy-reply-threshold", "10").start().await;
    let store = store(&server.url());
    take(&store, &ten()).await;
    let mut other = server.admin().await;
    other.send(&["EVAL", "while true do end", "0"]).await.unwrap();
    comes_to(&store, ErrorClass::Busy).await;
    server.command(&["SCRIPT", "KILL"]).await;
    recovers(&store).await;
}

#[tokio::test]
async fn misconf_while_its_disk_fails() {
    let server = RedisServer::start().await;
    let store = store(&server.url());
    take(&store, &ten()).await;
    // A snapshot cannot replace a directory.
    std::fs::create_dir(server.directory().join("dump.rdb")).unwrap();
    server.command(&["CONFIG", "SET", "save", "3600 1"]).await;
    server.command(&["BGSAVE"]).await;
    comes_to(&store, ErrorClass::Misconfigured).await;
    server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]).await;
    recovers(&store).await;
}

#[tokio::test]
async fn noreplicas_behind_the_fence() {
    let server = RedisServer::start().await;
    let store = store(&server.url());
    take(&store, &ten()).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    assert_eq!(class(&refusal(&store).await), ErrorClass::NoReplicas);
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    assert_eq!(recovers(&store).await.remaining, 8);
}

#[tokio::test]
async fn loading_while_it_reads_its_data() {
    let server = RedisServer::builder()
        .debug_command()
        .arg("key-load-delay", "500")
        .arg("loading-process-events-interval-bytes", "1024")
        .start()
        .await;
    let live = store(&server.url());
    take(&live, &ten()).await;
    server.command(&["DEBUG", "POPULATE", "2000", "padding", "100"]).await;
    let met = async {
        comes_to(&live, ErrorClass::Loading).await;
        comes_to(&store(&server.url()), ErrorClass::Loading).await;
    };
    tokio::join!(server.command(&["DEBUG", "RELOAD"]), met);
    recovers(&live).await;
}

#[tokio::test]
async fn no_room_for_another_client() {
    let server = RedisServer::start().await;
    let mut admin = server.admin().await;
    admin.command(&["CONFIG", "SET", "maxclients", "1"]).await.unwrap();
    let store = store(&server.url());
    comes_to(&store, ErrorClass::TooManyClients).await;
    admin.command(&["CONFIG", "SET", "maxclients", "100"]).await.unwrap();
    recovers(&store).await;
}

#[tokio::test]
async fn clusterdown_and_crossslot_from_a_cluster_of_one() {
    let server = RedisServer::builder().arg("cluster-enabled", "yes").start().await;
    let store = store(&server.url());
    assert_eq!(class(&refusal(&store).await), ErrorClass::ClusterDown);
    server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    recovers(&store).await;

    let bucket = || {
        let rate = Rate::parse("10/h").expect("a rate");
        Algorithm::try_new(Kind::TokenBucket, rate, None, 1000).expect("a limit")
    };
    let (ann, bob) = (Limit::of(bucket(), "ann"), Limit::of(bucket(), "bob"));
    let error = store.take(&[ann.check(), bob.check()]).await.unwrap_err();
    assert_eq!((class(&error), error.spent()), (ErrorClass::CrossSlot, Spent::Nothing));
    // Limits of one subject share a slot, whatever their kinds.
    let limits = Kind::ALL.map(|kind| Limit::new(kind, "10/h"));
    let checks: Vec<_> = limits.iter().map(Limit::check).collect();
    store.take(&checks).await.unwrap();
}
