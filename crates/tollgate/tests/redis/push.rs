//! Pushes on a real server: who hears them, and what becomes of those that were lost or are none of ours.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use testkit::{ChaosProxy, RedisServer, eventually, unique_prefix};
use tollgate::core::push::{Heard, Listener, Push, Topic};
use tollgate::core::store::{ErrorClass, Store, StoreError};
use tollgate::store::redis::RedisStore;

use crate::stand::{config, take, ten};

/// Hears, and remembers.
#[derive(Debug, Default)]
struct Ear {
    pushes: Mutex<Vec<String>>,
    gaps: AtomicU64,
}

impl Ear {
    fn pushes(&self) -> Vec<String> {
        self.pushes.lock().expect("nobody panics while holding it").clone()
    }

    fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::SeqCst)
    }
}

impl Listener for Ear {
    fn heard(&self, heard: Heard<'_>) {
        match heard {
            Heard::Push(push) => {
                let text = String::from_utf8_lossy(push.text).into_owned();
                self.pushes.lock().expect("nobody panics while holding it").push(text);
            }
            Heard::Gap => {
                self.gaps.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

/// A store and someone who listens to it.
async fn listening(url: &str, prefix: &str) -> (RedisStore, Arc<Ear>) {
    let mut config = config(url);
    prefix.clone_into(&mut config.key_prefix);
    let store = RedisStore::new(config).expect("no TLS to go wrong");
    let ear = Arc::new(Ear::default());
    store.listen(Arc::<Ear>::clone(&ear));
    store.heartbeat().await.expect("it answers");
    eventually("it listens", || ear.gaps() == 1).await;
    (store, ear)
}

async fn call_out(store: &RedisStore, text: &str) {
    store.publish(Push { topic: Topic::Eased, text: text.as_bytes() }).await.expect("it answers");
}

#[tokio::test]
async fn all_of_a_prefix_and_a_database_hear_and_no_others() {
    let server = RedisServer::start().await;
    let (ours, others) = (unique_prefix(), unique_prefix());
    let third_database = format!("{}/3", server.url());
    let (one, one_hears) = listening(&server.url(), &ours).await;
    let (_two, two_hears) = listening(&server.url(), &ours).await;
    let (stranger, stranger_hears) = listening(&server.url(), &others).await;
    let (third, third_hears) = listening(&third_database, &ours).await;
    call_out(&stranger, "stranger").await;
    call_out(&third, "third").await;
    call_out(&one, "one").await;
    for (ear, heard) in
        [(one_hears, "one"), (two_hears, "one"), (stranger_hears, "stranger"), (third_hears, "third")]
    {
        eventually("it is heard", || !ear.pushes().is_empty()).await;
        assert_eq!(ear.pushes(), [heard]);
    }
}

#[tokio::test]
async fn a_store_that_nobody_listens_to_has_no_connection_for_it() {
    let server = RedisServer::start().await;
    let store = crate::stand::store(&server.url());
    store.heartbeat().await.expect("it answers");
    let clients = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).await.text();
    assert_eq!((clients.trim(), store.stats().listening), ("", false));
}

#[tokio::test]
async fn a_connection_that_was_killed_is_dialled_again_and_the_gap_is_told() {
    let server = RedisServer::start().await;
    let (store, ear) = listening(&server.url(), &unique_prefix()).await;
    for gaps in 2..4 {
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        eventually("it listens again", || ear.gaps() == gaps).await;
        call_out(&store, &gaps.to_string()).await;
        eventually("it is heard", || ear.pushes().last() == Some(&gaps.to_string())).await;
    }
}

/// The server says nothing at all: no push, no answer to a greeting, no end of the connection.
#[tokio::test]
async fn a_connection_that_hangs_is_left() {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let mut config = config(&format!("redis://{}", proxy.address()));
    config.read_timeout = std::time::Duration::from_millis(250);
    let store = RedisStore::new(config).expect("no TLS to go wrong");
    let ear = Arc::new(Ear::default());
    store.listen(Arc::<Ear>::clone(&ear));
    store.heartbeat().await.expect("it answers");
    eventually("it listens", || ear.gaps() == 1).await;
    proxy.blackhole();
    eventually("it notices", || !store.stats().listening).await;
    proxy.pass();
    eventually("it listens again", || ear.gaps() == 2).await;
}

#[tokio::test]
async fn what_is_none_of_ours_is_counted_and_passed_over() {
    let server = RedisServer::start().await;
    let prefix = unique_prefix();
    let (store, ear) = listening(&server.url(), &prefix).await;
    let channel = format!("{prefix}:1p:push");
    let long = "x".repeat(5000);
    for garbage in ["", "x", "\u{1}", "\u{1}z", "\u{2}e", &long] {
        server.command(&["PUBLISH", &channel, garbage]).await;
    }
    call_out(&store, "ours").await;
    eventually("it is heard", || ear.pushes() == ["ours"]).await;
    let stats = store.stats();
    assert_eq!((stats.pushes, stats.pushes_malformed), (1, 6));
}

#[tokio::test]
async fn where_the_channel_is_forbidden_all_else_goes_on() {
    let server = RedisServer::start().await;
    server.command(&["ACL", "SETUSER", "ann", "on", ">secret", "~*", "resetchannels", "+@all"]).await;
    let mut config = config(&format!("redis://ann:secret@{}", server.address()));
    config.pool_size = 1;
    let store = RedisStore::new(config).expect("no TLS to go wrong");
    store.listen(Arc::new(Ear::default()));
    store.heartbeat().await.expect("it answers");
    let error = store.publish(Push { topic: Topic::Eased, text: b"" }).await.unwrap_err();
    assert!(matches!(error, StoreError::Answered { class: ErrorClass::NoPermission, .. }), "{error}");
    assert_eq!(take(&store, &ten()).await.remaining, 9);
    assert!(!store.stats().listening);
}

/// A store that is gone listens no more.
#[tokio::test]
async fn listening_ends_with_its_store() {
    let server = RedisServer::start().await;
    let (store, _) = listening(&server.url(), &unique_prefix()).await;
    drop(store);
    for _ in 0..1000 {
        if server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).await.text().trim().is_empty() {
            return;
        }
    }
    panic!("it still listens");
}
