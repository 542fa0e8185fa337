//! Keys: short, apart, and with the hash tag in one piece.

use std::collections::HashMap;

use tollgate::Kind;
use tollgate::core::store::Store;
use tollgate::store::redis::Layout;

use crate::world::{self, Named, WAYS};

#[tokio::test]
async fn no_two_subjects_share_a_key_and_none_breaks_out_of_its_tag() {
    let server = world::frozen_redis().await;
    for way in WAYS {
        let config = world::config(&server, way);
        let head = format!("{}:1{}:{{", config.key_prefix, &way.layout.name()[..1]);
        let store = tollgate::store::redis::RedisStore::new(config).unwrap();
        let long = "x".repeat(129);
        let longer = "x".repeat(1_024);
        let mut subjects: Vec<Vec<u8>> = vec![
            b"".to_vec(),
            b"%".to_vec(),
            b"a".to_vec(),
            b"A".to_vec(),
            b"a:b".to_vec(),
            b"}".to_vec(),
            b"{".to_vec(),
            b"a}b{c".to_vec(),
            b"a%3Ab".to_vec(),
            b"\0\r\n".to_vec(),
            vec![0xff; 40],
            vec![0xff; 100], // 300 bytes once encoded
            "x".repeat(128).into_bytes(),
            long.clone().into_bytes(),
            longer.into_bytes(),
        ];
        subjects.extend((0..50).map(|at| format!("{long}{at}").into_bytes()));

        let mut seen: HashMap<String, Vec<u8>> = HashMap::new();
        for subject in subjects {
            let limit = Named { subject: subject.clone(), ..Named::new("", Kind::TokenBucket, "1/h") };
            assert_eq!(store.take(&[limit.check(1)]).await.unwrap()[0].remaining, 0, "{subject:?} is new");
            let new = world::keys(&server).await.into_iter().find(|key| !seen.contains_key(key));
            let key = new.unwrap_or_else(|| panic!("{subject:?} shares a key"));
            assert!(key.len() < 240, "{key}");
            let tag = key.strip_prefix(&head).and_then(|rest| rest.strip_suffix("}:rule:0:tb"));
            let tag = tag.unwrap_or_else(|| panic!("{key} is not prefix:generation:{{subject}}:scope"));
            assert!(!tag.is_empty() && !tag.contains(['{', '}']), "{key}");
            seen.insert(key, subject);
        }
        server.command(&["FLUSHALL"]).await;
    }
}

#[tokio::test]
async fn layouts_kinds_and_limits_of_one_rule_never_share_a_key() {
    let server = world::frozen_redis().await;
    let mut config = world::config(&server, WAYS[0]);
    for layout in [Layout::Packed, Layout::Hash] {
        config.layout = layout;
        let store = tollgate::store::redis::RedisStore::new(config.clone()).unwrap();
        for kind in Kind::ALL {
            for at in 0..2 {
                let scope = tollgate::core::key::Scope::of_rule("rule", at, kind);
                let limit = Named { scope, ..Named::new("me", kind, "1/h") };
                assert_eq!(store.take(&[limit.check(1)]).await.unwrap()[0].remaining, 0);
            }
        }
    }
    assert_eq!(world::keys(&server).await.len(), 16);
}
