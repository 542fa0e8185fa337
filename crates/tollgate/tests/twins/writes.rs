//! What must leave no trace leaves none: refusals, peeks, and asks that another check refuses.

use testkit::{RedisServer, Reply};
use tollgate::Kind;
use tollgate::core::decision::Outcome;
use tollgate::core::store::{ErrorClass, Store, StoreError};

use crate::world::{self, NOON, Named, WAYS};

/// Every command a script may write with.
const WRITES: [&str; 11] = [
    "set",
    "setrange",
    "hset",
    "zadd",
    "del",
    "pexpire",
    "zrem",
    "zremrangebyscore",
    "zremrangebyrank",
    "psetex",
    "expire",
];

async fn writes(server: &RedisServer) -> u64 {
    let mut writes = 0;
    for command in WRITES {
        writes += world::calls(server, command).await;
    }
    writes
}

/// Each key with its value, byte for byte, and its TTL.
async fn everything(server: &RedisServer) -> Vec<(String, Reply, Reply)> {
    let mut all = Vec::new();
    for key in world::keys(server).await {
        let (value, ttl) = (server.command(&["DUMP", &key]).await, server.command(&["PTTL", &key]).await);
        all.push((key, value, ttl));
    }
    all
}

#[tokio::test]
async fn refusals_and_peeks_write_nothing() {
    let server = world::frozen_redis().await;
    for way in WAYS {
        let store = world::store(&server, way);
        for kind in Kind::ALL {
            let (spent, fresh) = (Named::new("spent", kind, "3/h"), Named::new("fresh", kind, "3/h"));
            store.take(&[spent.check(2)]).await.unwrap();
            let before = everything(&server).await;
            world::freeze(&server, NOON + 5);
            world::reset_calls(&server).await;

            let denied = store.take(&[spent.check(2)]).await.unwrap();
            assert!(matches!(denied[0].outcome, Outcome::Denied { .. }));
            assert_eq!(store.take(&[spent.check(4)]).await.unwrap()[0].outcome, Outcome::Never);
            let both = store.take(&[fresh.check(1), spent.check(2)]).await.unwrap();
            assert_eq!(both[0].outcome, Outcome::Allowed);
            let both = store.take(&[spent.check(2), fresh.check(1)]).await.unwrap();
            assert_eq!(both[1].outcome, Outcome::Allowed);
            store.peek(&[spent.check(1), fresh.check(1)]).await.unwrap();
            store.peek(&[fresh.check(4)]).await.unwrap();

            assert_eq!(writes(&server).await, 0, "{} {kind}", way.name());
            world::freeze(&server, NOON);
            assert_eq!(everything(&server).await, before, "{} {kind}", way.name());

            store.take(&[spent.check(1)]).await.unwrap();
            assert_ne!(writes(&server).await, 0, "the statistics do count");
            server.command(&["FLUSHALL"]).await;
        }
    }
}

/// The one write a refusal may make: after a step back of more than a second, entries of the time
/// that never was are dropped from a log, and a bucket is re-anchored. Once.
#[tokio::test]
async fn a_refusal_after_a_clock_step_mends_once() {
    let server = world::frozen_redis().await;
    for way in WAYS {
        for kind in [Kind::SlidingLog, Kind::TokenBucket] {
            let store = world::store(&server, way);
            let limit = Named::new("me", kind, "3/h");
            store.take(&[limit.check(2)]).await.unwrap();
            world::freeze(&server, NOON + 10_000_000);
            store.take(&[limit.check(1)]).await.unwrap();
            world::freeze(&server, NOON + 1);
            for mended in [true, false] {
                world::reset_calls(&server).await;
                let refused = store.take(&[limit.check(3)]).await.unwrap();
                assert!(matches!(refused[0].outcome, Outcome::Denied { .. }), "{kind} {refused:?}");
                assert_eq!(writes(&server).await > 0, mended, "{} {kind}", way.name());
            }
            world::freeze(&server, NOON);
            server.command(&["FLUSHALL"]).await;
        }
    }
}

#[tokio::test]
async fn a_peek_is_answered_when_redis_is_out_of_memory() {
    let server = world::frozen_redis().await;
    for way in WAYS {
        let store = world::store(&server, way);
        let limits = Kind::ALL.map(|kind| Named::new("me", kind, "3/h"));
        for limit in &limits {
            store.take(&[limit.check(1)]).await.unwrap();
        }
        server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1"]).await;
        for limit in &limits {
            assert_eq!(store.peek(&[limit.check(1)]).await.unwrap()[0].remaining, 2);
            let error = store.take(&[limit.check(1)]).await.unwrap_err();
            assert!(
                matches!(error, StoreError::Answered { class: ErrorClass::OutOfMemory, .. }),
                "{error:?}"
            );
        }
        let all: Vec<_> = limits.iter().map(|limit| limit.check(1)).collect();
        assert!(store.peek(&all).await.unwrap().iter().all(|decision| decision.remaining == 2));
        server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    }
}
