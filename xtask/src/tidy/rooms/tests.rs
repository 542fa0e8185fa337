//! The room table on small files: what it finds, and what it lets pass.

use super::{rooms, siblings};
use crate::tidy::problems;

fn in_room(path: &str, code: &str) -> usize {
    problems(rooms, &[(path, code)]).len()
}

#[test]
fn the_core_is_pure() {
    let key = "crates/core/src/key.rs";
    assert_eq!(in_room(key, "use std::{fs, fmt};"), 1);
    assert_eq!(in_room(key, "use tokio::time;"), 1);
    assert_eq!(in_room(key, "fn f() { tokio::spawn(g()) }"), 1);
    assert_eq!(in_room(key, "use std::time::{Duration, SystemTime};"), 1);
    assert_eq!(in_room(key, "use std::time;\nfn f(at: time::Instant) {}"), 1);
    assert_eq!(in_room("crates/core/tests/algorithms.rs", "use std::net::TcpStream;"), 1);
}

#[test]
fn prose_and_names_of_our_own_are_no_mention() {
    let key = "crates/core/src/key.rs";
    assert_eq!(in_room(key, "// As tokio::time and std::fs do.\nlet redis = \"std::net\";"), 0);
    assert_eq!(in_room(key, "use std::time::Duration;"), 0);
    assert_eq!(in_room("crates/corelet/src/lib.rs", "use tokio::time;"), 0);
}

#[test]
fn the_reason_comes_with_the_place() {
    let found = problems(rooms, &[("crates/tollgate/src/store/memory.rs", "\nfn f(ask: &Ask) {}")]);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("crates/tollgate/src/store/memory.rs:2: mentions `Ask`: a store"),
        "{found:?}"
    );
}

#[test]
fn a_module_is_known_however_it_is_reached() {
    let path = "crates/core/src/algorithm/token_bucket.rs";
    assert_eq!(in_room(path, "use crate::key::Key;"), 1);
    assert_eq!(in_room(path, "use super::super::key::Key;"), 1);
    assert_eq!(in_room(path, "use crate::{decision::Decision, units::Micros};"), 0);
}

#[test]
fn the_engine_does_not_know_redis_as_file_or_folder() {
    for path in ["crates/tollgate/src/engine.rs", "crates/tollgate/src/engine/batch.rs"] {
        assert_eq!(in_room(path, "use crate::store::redis::RedisStore;"), 1);
        assert_eq!(in_room(path, "use crate::store::Store;"), 0);
    }
}

#[test]
fn tests_at_the_end_of_a_file_may_look_next_door() {
    let code = "fn f() {}\n#[cfg(test)]\nmod tests {\n    use tollgate_core::Policy;\n}\n";
    assert_eq!(in_room("crates/tollgate/src/store/memory.rs", code), 0);
}

#[test]
fn doors_do_not_know_each_other() {
    let found = |code| {
        let files = [
            ("crates/server/src/doors/mod.rs", "mod http;\nmod resp;\nuse self::resp::run;"),
            ("crates/server/src/doors/http/decode.rs", code),
            ("crates/server/src/doors/resp.rs", ""),
        ];
        problems(siblings, &files).len()
    };
    assert_eq!(found("use crate::doors::resp::Frame;"), 1);
    assert_eq!(found("use super::super::resp::Frame;"), 1);
    assert_eq!(found("use super::resp;"), 0, "its own module of that name");
    assert_eq!(found("use crate::doors::Door;"), 0);
}

#[test]
fn algorithms_do_not_know_each_other_by_type_either() {
    let found = |code| {
        let files = [
            ("crates/core/src/algorithm/mod.rs", "pub use self::token_bucket::TokenBucket;"),
            ("crates/core/src/algorithm/token_bucket.rs", "use super::Step;"),
            ("crates/core/src/algorithm/fixed_window.rs", code),
        ];
        problems(siblings, &files).len()
    };
    assert_eq!(found("use super::TokenBucket;"), 1);
    assert_eq!(found("use super::token_bucket::decide;"), 1);
    assert_eq!(found("use super::Step;\nfn f(w: &FixedWindow) {}"), 0);
}
