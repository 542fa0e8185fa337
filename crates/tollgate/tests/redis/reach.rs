//! Every way to reach a Redis, and to be let in.

use testkit::{RedisServer, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate::Kind;
use tollgate::core::decision::Found;
use tollgate::core::store::{ErrorClass, Store, StoreError};
use tollgate::store::redis::RedisStore;

use crate::stand::{self, LAYOUTS, Limit, config, refusal, store, take, ten};

const SECRET: &str = "hunter2secret";

fn class(error: &StoreError) -> ErrorClass {
    match error {
        StoreError::Answered { class, .. } => *class,
        _ => panic!("not answered: {error:?}"),
    }
}

#[tokio::test]
async fn by_tcp_and_by_name() {
    let server = RedisServer::start().await;
    assert_eq!(take(&store(&server.url()), &ten()).await.remaining, 9);
    let by_name = format!("redis://localhost:{}", server.port());
    assert_eq!(take(&store(&by_name), &ten()).await.remaining, 9);
}

#[tokio::test]
async fn by_unix_socket() {
    let server = RedisServer::builder().unix_socket().start().await;
    assert!(server.url().starts_with("unix://"));
    assert_eq!(take(&store(&server.url()), &ten()).await.remaining, 9);
    let third = store(&format!("{}?db=3", server.url()));
    assert_eq!(take(&third, &ten()).await.remaining, 9);
    assert_eq!(stand::keys(&server, 3).await.unwrap().len(), 1);
}

#[tokio::test]
async fn with_the_default_users_password() {
    let server = RedisServer::builder().password(SECRET).start().await;
    assert_eq!(take(&store(&server.url()), &ten()).await.remaining, 9);
    let named = format!("redis://default:{SECRET}@{}", server.address());
    assert_eq!(take(&store(&named), &ten()).await.remaining, 9);
    let by_socket = format!("unix://{}?pass={SECRET}", server.unix_path().display());
    assert_eq!(take(&store(&by_socket), &ten()).await.remaining, 9);
}

#[tokio::test]
async fn as_an_acl_user_whose_password_holds_anything() {
    let server = RedisServer::start().await;
    server.command(&["ACL", "SETUSER", "ann", "on", ">p@ss:w/rd?#%", "~*", "+@all"]).await;
    let url = format!("redis://ann:p%40ss%3Aw%2Frd%3F%23%25@{}", server.address());
    assert_eq!(take(&store(&url), &ten()).await.remaining, 9);
    let by_socket = format!("unix://{}?user=ann&pass=p@ss:w/rd%3F%23%25", server.unix_path().display());
    assert_eq!(take(&store(&by_socket), &ten()).await.remaining, 9);
}

#[tokio::test]
async fn a_wrong_password_is_named_and_never_shown() {
    let server = RedisServer::builder().password("another").start().await;
    for url in [
        format!("redis://:{SECRET}@{}", server.address()),
        format!("redis://nobody:{SECRET}@{}", server.address()),
        format!("unix://{}?pass={SECRET}", server.unix_path().display()),
    ] {
        let store = store(&url);
        let error = refusal(&store).await;
        assert_eq!(class(&error), ErrorClass::NoAuthentication);
        assert!(error.to_string().contains("WRONGPASS"), "{error}");
        let shown = format!("{error} {error:?} {store:?} {:?}", store.stats());
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(store.stats().dial_errors > 0);
    }
    let error = refusal(&store(&format!("redis://{}", server.address()))).await;
    assert_eq!(class(&error), ErrorClass::NoAuthentication);
    assert!(error.to_string().contains("NOAUTH"), "{error}");
}

#[tokio::test]
async fn a_password_that_nobody_asked_for_is_named_and_never_shown() {
    let server = RedisServer::start().await;
    // The default user needs none, and AUTH with one says so.
    let error = refusal(&store(&format!("redis://:{SECRET}@{}", server.address()))).await;
    assert_eq!(class(&error), ErrorClass::NoAuthentication);
    assert!(!format!("{error:?}").contains(SECRET), "{error}");
}

/// Redis repeats the arguments of a command it does not know, and `AUTH` can be renamed. No Redis
/// of testkit's can be started so, for its administrator must come in.
#[tokio::test]
async fn a_server_without_auth_does_not_bring_the_password_into_the_log() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 512];
            let _ = stream.read(&mut asked).await;
            let answer = format!("-ERR unknown command 'AUTH', with args beginning with: '{SECRET}' \r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let error = refusal(&store(&format!("redis://:{SECRET}@{address}"))).await;
    assert!(error.to_string().contains("unknown command 'AUTH'"), "{error}");
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
}

#[tokio::test]
async fn keys_land_in_the_numbered_database() {
    let server = RedisServer::start().await;
    let third = store(&format!("{}/3", server.url()));
    take(&third, &ten()).await;
    third.heartbeat().await.unwrap();
    assert_eq!(stand::keys(&server, 3).await.unwrap().len(), 2, "a limit, and the instances");
    assert_eq!(stand::keys(&server, 0).await.unwrap(), [""; 0]);

    let error = refusal(&store(&format!("{}/99", server.url()))).await;
    assert!(error.to_string().contains("DB index is out of range"), "{error}");
}

#[tokio::test]
async fn a_redis_that_is_not_there_is_unreachable() {
    let mut server = RedisServer::start().await;
    server.kill();
    for url in [server.url(), format!("unix://{}", server.unix_path().display())] {
        let error = refusal(&store(&url)).await;
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    }
    let error = refusal(&store("redis://no-such-host.invalid:6379")).await;
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn stores_of_different_prefixes_do_not_see_each_other() {
    let server = RedisServer::start().await;
    let (one, other) = (store(&server.url()), store(&server.url()));
    for kind in Kind::ALL {
        let limit = Limit::new(kind, "10/h");
        assert_eq!(take(&one, &limit).await.remaining, 9, "{kind}");
        assert_eq!(take(&other, &limit).await.found, Found::Nothing, "{kind}");
    }
    one.forget(&[Limit::new(Kind::TokenBucket, "10/h").key()]).await.unwrap();
    assert_eq!(take(&other, &ten()).await.remaining, 8, "forgotten by the one alone");
    assert_eq!(one.heartbeat().await.unwrap().instances, 1);
    assert_eq!(other.heartbeat().await.unwrap().instances, 1);
}

#[tokio::test]
async fn forgetting_deletes_what_is_named_and_nothing_else() {
    let server = RedisServer::start().await;
    for layout in LAYOUTS {
        let mut config = config(&server.url());
        config.layout = layout;
        let store = RedisStore::new(config).unwrap();
        let limits = Kind::ALL.map(|kind| Limit::new(kind, "10/h"));
        for limit in &limits {
            take(&store, limit).await;
        }
        store.forget(&[limits[0].key(), limits[1].key()]).await.unwrap();
        for (limit, found) in limits.iter().zip([Found::Nothing, Found::Nothing, Found::State, Found::State])
        {
            assert_eq!(take(&store, limit).await.found, found, "{limit:?}");
        }
        // What is not there is forgotten already.
        store.forget(&[Limit::new(Kind::TokenBucket, "1/s").key(), limits[0].key()]).await.unwrap();
        store.forget(&[limits[0].key()]).await.unwrap();
    }
}

#[tokio::test]
async fn a_store_says_how_it_and_its_redis_are() {
    let server = RedisServer::builder().arg("maxmemory", "100mb").start().await;
    let store = store(&server.url());
    let stats = store.stats();
    assert_eq!((stats.connections_open, stats.dials, stats.used_memory), (0, 0, None), "nothing dialled");

    take(&store, &ten()).await;
    let stats = store.stats();
    assert_eq!((stats.connections_open, stats.connections_busy, stats.dials), (1, 0, 1));
    store.heartbeat().await.unwrap();
    assert_eq!(store.stats().connections_open, 2, "heartbeats have their own");
    eventually("Redis was asked about itself", || store.stats().keys.is_some()).await;
    let stats = store.stats();
    assert_eq!((stats.max_memory, stats.keys), (Some(100 << 20), Some(2)));
    assert!(stats.used_memory.is_some_and(|bytes| bytes > 100_000), "{stats:?}");
    assert_eq!((stats.malformed, stats.dial_errors, stats.client_time), (0, 0, false));
    assert!(stats.functions);

    server.pause();
    let (limit, checks);
    limit = ten();
    checks = [limit.check()];
    let resumed = async {
        eventually("the request is under way", || store.stats().connections_busy == 1).await;
        server.resume();
    };
    let (taken, ()) = tokio::join!(store.take(&checks), resumed);
    assert_eq!(taken.unwrap()[0].remaining, 8);
    assert_eq!(store.stats().connections_busy, 0);
}

#[tokio::test]
async fn without_a_maximum_there_is_none_to_tell() {
    let server = RedisServer::start().await;
    let store = store(&server.url());
    store.heartbeat().await.unwrap();
    eventually("Redis was asked about itself", || store.stats().keys.is_some()).await;
    assert_eq!(store.stats().max_memory, None);
}

#[tokio::test]
async fn a_reckoned_time_decides_as_redis_own_does() {
    let server = RedisServer::start().await;
    for kind in Kind::ALL {
        let mut config = config(&server.url());
        config.client_time = true;
        let store = RedisStore::new(config).unwrap();
        let limit = Limit::new(kind, "3/h");
        for left in [2, 1, 0] {
            assert_eq!(take(&store, &limit).await.remaining, left, "{kind}");
        }
        let refused = take(&store, &limit).await;
        let redis_us = server.command(&["TIME"]).await.time_us();
        let apart_us = redis_us.abs_diff(i64::try_from(refused.take.at.0).unwrap());
        assert!(apart_us < 5_000_000, "{kind}: {apart_us} µs from Redis' clock");
        assert!(store.stats().client_time);
    }
}
