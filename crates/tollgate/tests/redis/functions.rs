//! Functions where Redis lets us, scripts where it does not: the same numbers, and nothing spent twice.

use testkit::{RedisServer, eventually, free_port};
use tollgate::Kind;
use tollgate::core::store::{ErrorClass, Store, StoreError};
use tollgate::store::redis::{Layout, RedisStore};

use crate::stand::{Limit, calls, config, flush_text, recovers, refusal, store, take, ten};

/// The libraries that Redis keeps.
async fn libraries(server: &RedisServer) -> Vec<String> {
    let list = server.command(&["FUNCTION", "LIST"]).await;
    let name = |library: &testkit::Reply| library.array()[1].text();
    let mut names: Vec<String> = list.array().iter().map(name).collect();
    names.sort();
    names
}

/// A store whose user lacks these commands.
async fn store_without(server: &RedisServer, commands: &[&str]) -> RedisStore {
    let mut words = vec!["ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all"];
    words.extend(commands);
    server.command(&words).await;
    store(&format!("redis://ann:pw@{}", server.address()))
}

fn class(error: &StoreError) -> ErrorClass {
    match error {
        StoreError::Answered { class, .. } => *class,
        _ => panic!("not answered: {error:?}"),
    }
}

/// Every verb of every kind, by whatever way the store goes: each take is spent once.
async fn works(store: &RedisStore) {
    for kind in Kind::ALL {
        let limit = Limit::new(kind, "10/h");
        let first = take(store, &limit).await;
        assert_eq!(first.remaining, 9, "{kind}");
        assert_eq!(take(store, &limit).await.remaining, 8, "{kind}");
        let peeked = store.peek(&[limit.check()]).await.expect("it may look");
        assert_eq!(peeked[0].remaining, 8, "{kind}");
        let refunded = store.refund(&[limit.refund(first.take)]).await.expect("it may give back");
        assert_eq!(refunded[0].remaining, 9, "{kind}");
    }
    assert_eq!(store.heartbeat().await.expect("it may show itself").instances, 1);
}

#[tokio::test]
async fn a_user_that_may_not_call_functions_is_served_by_scripts() {
    let server = RedisServer::start().await;
    // The library is there, and only this user may not call it.
    take(&store(&server.url()), &ten()).await;
    let store = store_without(&server, &["-fcall"]).await;
    works(&store).await;
    take(&store, &ten()).await;
    assert!(!store.stats().functions);
    // Another's that found nothing and that found it; then one for each connection that was dialled.
    assert_eq!(calls(&server, "fcall").await, 2 + 2);
}

#[tokio::test]
async fn a_user_that_may_not_load_functions_is_served_by_scripts() {
    let server = RedisServer::start().await;
    let store = store_without(&server, &["-function|load"]).await;
    works(&store).await;
    assert!(!store.stats().functions);
    assert_eq!(libraries(&server).await, [""; 0]);
}

#[tokio::test]
async fn a_server_without_functions_is_served_by_scripts() {
    for missing in ["FCALL", "FUNCTION"] {
        let server = RedisServer::builder().arg("rename-command", &format!("{missing} \"\"")).start().await;
        let store = store(&server.url());
        works(&store).await;
        assert!(!store.stats().functions, "{missing}");
    }
}

#[tokio::test]
async fn who_does_not_want_a_library_gets_none() {
    let server = RedisServer::start().await;
    let mut config = config(&server.url());
    config.functions = false;
    let store = RedisStore::new(config).unwrap();
    works(&store).await;
    assert!(!store.stats().functions);
    assert_eq!(libraries(&server).await, [""; 0]);
    assert_eq!((calls(&server, "fcall").await, calls(&server, "function|load").await), (0, 0));
}

/// Kept to scripts, without asking again at each check; and asked again when it was dialled anew.
#[tokio::test]
async fn functions_are_tried_again_with_the_next_connection() {
    let server = RedisServer::start().await;
    let store = store_without(&server, &["-fcall"]).await;
    for left in (0..10).rev() {
        assert_eq!(take(&store, &ten()).await.remaining, left);
    }
    assert_eq!(calls(&server, "fcall").await, 1, "the first was refused, and no other was sent");
    server.command(&["ACL", "SETUSER", "ann", "+fcall"]).await;
    take(&store, &ten()).await;
    assert!(!store.stats().functions);
    server.command(&["CLIENT", "KILL", "USER", "ann"]).await;
    recovers(&store).await;
    assert!(store.stats().functions);
    assert_eq!(libraries(&server).await.len(), 1);
}

/// Nothing was learned about functions from a user that may do nothing at all.
#[tokio::test]
async fn a_user_that_may_call_neither_is_refused_and_then_gets_functions() {
    let server = RedisServer::start().await;
    let store = store_without(&server, &["-fcall", "-evalsha"]).await;
    assert_eq!(class(&refusal(&store).await), ErrorClass::NoPermission);
    assert!(store.stats().functions);
    server.command(&["ACL", "SETUSER", "ann", "+fcall", "+evalsha"]).await;
    assert_eq!(take(&store, &ten()).await.remaining, 9);
    assert_eq!(calls(&server, "evalsha").await, 1, "the one that was refused");
}

/// Each text has a library of its own, so that nobody replaces or calls what is another's.
#[tokio::test]
async fn layouts_and_releases_keep_their_libraries_apart() {
    let server = RedisServer::start().await;
    let other = "#!lua name=tollgate_000000000000\n\
                 redis.register_function('tollgate_000000000000_fast', function() return 'another' end)";
    server.command(&["FUNCTION", "LOAD", other]).await;
    let stores = [Layout::Packed, Layout::Hash].map(|layout| {
        let mut config = config(&server.url());
        config.layout = layout;
        RedisStore::new(config).unwrap()
    });
    for store in &stores {
        works(store).await;
    }
    for left in [7, 6] {
        for store in &stores {
            take(store, &ten()).await;
            let peeked = store.peek(&[ten().check()]).await.unwrap();
            assert_eq!(peeked[0].remaining, left + 1);
        }
    }
    assert_eq!(calls(&server, "function|load").await, 3, "each was loaded once");
    let names = libraries(&server).await;
    assert_eq!(names.len(), 3, "{names:?}");
    for name in &names {
        let digest = name.strip_prefix("tollgate_").expect("it says whose it is");
        assert!(digest.len() == 12 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    }
    let another = server.command(&["FCALL", "tollgate_000000000000_fast", "0"]).await.text();
    assert_eq!(another, "another");
}

#[tokio::test]
async fn a_library_survives_a_restart_and_a_flush_of_the_data() {
    let mut server = RedisServer::builder().aof().start().await;
    let store = store(&server.url());
    assert_eq!(take(&store, &ten()).await.remaining, 9);
    server.kill();
    server.restart().await;
    recovers(&store).await;
    server.command(&["FLUSHALL"]).await;
    assert_eq!(take(&store, &ten()).await.remaining, 9);
    assert_eq!(calls(&server, "function|load").await, 0, "since the restart");
}

/// The first call of a library sets it up, whichever that is. A heartbeat loads it and needs none of it.
#[tokio::test]
async fn any_function_may_be_the_first_to_be_called() {
    let server = RedisServer::start().await;
    let store = store(&server.url());
    let limits = Kind::ALL.map(|kind| Limit::new(kind, "10/h"));
    let checks: Vec<_> = limits.iter().map(Limit::check).collect();
    let taken = store.take(&checks).await.unwrap();
    let lost_but_for_a_heartbeat = async || {
        flush_text(&server).await;
        store.heartbeat().await.unwrap();
    };
    lost_but_for_a_heartbeat().await;
    assert_eq!(store.peek(&checks).await.unwrap()[0].remaining, 9);
    lost_but_for_a_heartbeat().await;
    assert_eq!(store.take(&checks).await.unwrap()[0].remaining, 8);
    lost_but_for_a_heartbeat().await;
    assert_eq!(store.refund(&[limits[3].refund(taken[3].take)]).await.unwrap()[0].remaining, 9);
    lost_but_for_a_heartbeat().await;
    assert_eq!(take(&store, &ten()).await.remaining, 7);
    assert_eq!(calls(&server, "evalsha").await, 0);
}

/// To load a library is to write. Where nothing may be written, a peek is answered all the same, and
/// a take is told the reason and not that a function is missing.
#[tokio::test]
async fn without_its_library_a_full_redis_and_a_replica_answer_a_peek_and_say_why_they_refuse() {
    let server = RedisServer::start().await;
    let store = store(&server.url());
    take(&store, &ten()).await;

    flush_text(&server).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(store.peek(&[ten().check()]).await.unwrap()[0].remaining, 9);
    assert_eq!(class(&refusal(&store).await), ErrorClass::OutOfMemory);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert!(store.stats().functions);

    flush_text(&server).await;
    server.command(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]).await;
    assert_eq!(store.peek(&[ten().check()]).await.unwrap()[0].remaining, 9);
    assert_eq!(store.stats().dials, 1, "looking is no reason to leave a replica");
    assert_eq!(class(&refusal(&store).await), ErrorClass::ReadOnly);
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(recovers(&store).await.remaining, 8, "nothing was spent in between");
    eventually("it is loaded again", || store.stats().functions).await;
    assert_eq!(libraries(&server).await.len(), 1);
}
