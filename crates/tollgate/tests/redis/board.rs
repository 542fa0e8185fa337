//! The notice board on a real server: shared, lost, half lost, and gone by itself.

use std::collections::BTreeSet;
use std::time::Duration;

use testkit::{RedisServer, Reply, unique_prefix};
use tollgate::core::board::{Board, Notice, Post};
use tollgate::core::store::Store;
use tollgate::store::redis::RedisStore;

use crate::stand::config;

const HOUR: Duration = Duration::from_hours(1);

/// A store of a prefix that others may share.
fn on(server: &RedisServer, prefix: &str) -> RedisStore {
    let mut config = config(&server.url());
    prefix.clone_into(&mut config.key_prefix);
    RedisStore::new(config).expect("no TLS to go wrong")
}

async fn post(store: &RedisStore, name: &str, keep_for: Duration) {
    let notice = Notice { text: b"text", keep_for };
    assert_eq!(store.post(name.as_bytes(), Some(notice)).await, Ok(Post::Done));
}

/// The board that a store has not seen yet.
async fn board(store: &RedisStore, seen: u64) -> Option<(u64, BTreeSet<String>)> {
    let Board { version, notices } = store.board(seen).await.expect("it answers")?;
    Some((version, notices.into_iter().map(|one| String::from_utf8(one.name).expect("a name")).collect()))
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[tokio::test]
async fn what_one_store_posts_another_reads_and_a_third_prefix_does_not() {
    let server = RedisServer::start().await;
    let (ours, others) = (unique_prefix(), unique_prefix());
    let (one, two, stranger) = (on(&server, &ours), on(&server, &ours), on(&server, &others));
    assert_eq!(board(&two, 0).await, None, "nothing was ever posted");
    post(&one, "a", HOUR).await;
    let (version, up) = board(&two, 0).await.expect("it changed");
    assert_eq!(up, names(&["a"]));
    assert_eq!(board(&two, version).await, None);
    assert_eq!(board(&stranger, 0).await, None);
}

#[tokio::test]
async fn a_board_that_was_lost_is_another_one_however_often_it_is_written_again() {
    let server = RedisServer::start().await;
    let store = on(&server, &unique_prefix());
    post(&store, "a", HOUR).await;
    post(&store, "b", HOUR).await;
    let (seen, _) = board(&store, 0).await.expect("it changed");
    server.command(&["FLUSHALL"]).await;
    let (lost, up) = board(&store, seen).await.expect("it is another one");
    assert_eq!((lost, up), (0, names(&[])));
    assert_eq!(board(&store, lost).await, None, "and stays so");
    // As many changes as before: a counter that began anew would say that nothing has happened.
    post(&store, "a", HOUR).await;
    post(&store, "c", HOUR).await;
    let (again, up) = board(&store, seen).await.expect("it changed");
    assert!(again > seen, "{again} after {seen}");
    assert_eq!(up, names(&["a", "c"]));
}

#[tokio::test]
async fn half_a_board_is_mended_by_the_next_post() {
    let server = RedisServer::start().await;
    let prefix = unique_prefix();
    let store = on(&server, &prefix);
    let (notices, head) = (format!("{prefix}:1p:{{board}}"), format!("{prefix}:1p:{{board}}=head"));
    post(&store, "a", HOUR).await;
    let (seen, _) = board(&store, 0).await.expect("it changed");
    server.command(&["DEL", &head]).await;
    assert_eq!(board(&store, seen).await, Some((0, names(&["a"]))));
    post(&store, "b", HOUR).await;
    let (seen, up) = board(&store, seen).await.expect("it changed");
    assert_eq!(up, names(&["a", "b"]));
    server.command(&["DEL", &notices]).await;
    post(&store, "c", HOUR).await;
    assert_eq!(board(&store, seen).await.expect("it changed").1, names(&["c"]));
}

#[tokio::test]
async fn a_board_ends_with_its_last_notice() {
    let server = RedisServer::start().await;
    let store = on(&server, &unique_prefix());
    post(&store, "a", HOUR).await;
    post(&store, "b", Duration::from_millis(1)).await;
    for key in crate::stand::keys(&server, 0).await.expect("an administrator may") {
        let Reply::Integer(ttl) = server.command(&["PTTL", &key]).await else { panic!("{key}: no number") };
        // An hour, and a minute for clocks that are not sure of it.
        assert!((3_600_000..=3_660_000).contains(&ttl), "{key}: {ttl} ms");
    }
}

#[tokio::test]
async fn what_is_not_ours_on_the_board_spoils_nothing_else() {
    let server = RedisServer::start().await;
    let prefix = unique_prefix();
    let store = on(&server, &prefix);
    post(&store, "a", HOUR).await;
    let keys = server.command(&["KEYS", &format!("{prefix}:*")]).await;
    let Reply::Array(keys) = keys else { panic!("{keys:?}") };
    let keys: Vec<String> = keys.into_iter().map(|key| key.text()).collect();
    let head = keys.iter().find(|key| key.ends_with("head")).expect("a head");
    let notices = keys.iter().find(|key| !key.ends_with("head") && key.contains("board")).expect("notices");
    for garbage in ["", "xx", "a text that is long enough and still none of ours"] {
        server.command(&["HSET", notices, "junk", garbage]).await;
        let (_, up) = board(&store, 0).await.expect("it is read");
        assert_eq!(up, names(&["a"]), "{garbage}");
    }
    // A head that is no number, an endless one, and none of ours: read all the same, and mended by a post.
    let nan = String::from_utf8_lossy(&[0x7f; 24]).into_owned();
    for garbage in [nan.as_str(), "x"] {
        server.command(&["SET", head, garbage]).await;
        let (_, up) = board(&store, 1).await.expect("it is read");
        assert!(up.contains("a"), "{up:?}");
        post(&store, "b", HOUR).await;
        let (version, up) = board(&store, 0).await.expect("it is read");
        assert_eq!((up, board(&store, version).await), (names(&["a", "b"]), None));
    }
}
