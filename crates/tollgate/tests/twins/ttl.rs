//! Every key goes away by itself, and none before its limit is whole.

use std::time::Duration;

use tollgate::core::store::Store;
use tollgate::store::redis::RedisStore;
use tollgate::{Algorithm, Kind, Rate};

use crate::limits::Limits;
use crate::world::{self, NOON, Named, WAYS};

/// What PTTL says is left of a key, in milliseconds.
async fn ttl_ms(server: &testkit::RedisServer, key: &str) -> u64 {
    let left = server.command(&["PTTL", key]).await.integer();
    u64::try_from(left).unwrap_or_else(|_| panic!("{key} has no TTL: {left}"))
}

#[tokio::test]
async fn every_key_outlives_its_time_to_whole_and_no_key_stays() {
    let server = world::frozen_redis().await;
    let limits = Limits::new();
    let mut rng = fastrand::Rng::with_seed(7);
    for way in WAYS {
        let store = world::store(&server, way);
        for kind in Kind::ALL {
            for _ in 0..40 {
                let limit = Named { algorithm: limits.draw(&mut rng, kind), ..Named::new("me", kind, "1/s") };
                let taken = store.take(&[limit.check(1)]).await.unwrap();
                let key = world::only_key(&server).await;
                let ttl_us = ttl_ms(&server, &key).await * 1_000;
                let whole = limit.algorithm.time_to_whole().0.max(taken[0].reset_after.0);
                // A second more, so that a tolerated step of the clock cannot expire it early.
                assert!(ttl_us >= whole + 1_000_000, "{limit:?}: {ttl_us} us");
                assert!(ttl_us <= 2 * whole + 61_001_000, "{limit:?}: {ttl_us} us");
                server.command(&["DEL", &key]).await;
            }
        }
    }
}

#[tokio::test]
async fn default_ttl_lengthens_and_never_shortens() {
    let server = world::frozen_redis().await;
    for way in WAYS {
        let mut config = world::config(&server, way);
        config.default_ttl = Duration::from_hours(1);
        let store = RedisStore::new(config).unwrap();
        for kind in Kind::ALL {
            for (rate, least_ms) in [("5/s", 3_600_000), ("5/2h", 7_200_000)] {
                let limit = Named::new("me", kind, rate);
                store.take(&[limit.check(1)]).await.unwrap();
                let key = world::only_key(&server).await;
                let ttl = ttl_ms(&server, &key).await;
                assert!(ttl >= least_ms, "{kind} {rate}: {ttl} ms");
                assert!(rate == "5/2h" || ttl == least_ms, "{kind} {rate}: {ttl} ms");
                server.command(&["DEL", &key]).await;
            }
        }
    }
}

/// Whatever writes sets a TTL: a spend, a refund, a spend over a key that has lost its TTL, and a
/// refusal that carries a state over to a changed limit.
#[tokio::test]
async fn every_write_sets_a_ttl() {
    let server = world::frozen_redis().await;
    for way in WAYS {
        let store = world::store(&server, way);
        for kind in Kind::ALL {
            world::freeze(&server, NOON);
            let limit = Named::new("me", kind, "5/min");
            let taken = store.take(&[limit.check(2)]).await.unwrap();
            let key = world::only_key(&server).await;
            let full = ttl_ms(&server, &key).await;

            // In the next period: a bucket's TTL is renewed once in the time it takes to fill.
            world::freeze(&server, NOON + 60_000_000);
            server.command(&["PERSIST", &key]).await;
            store.take(&[limit.check(1)]).await.unwrap();
            assert_eq!(ttl_ms(&server, &key).await, full, "{kind} after a spend");

            let refund = tollgate::core::check::Refund { check: limit.check(1), take: taken[0].take };
            store.refund(&[refund]).await.unwrap();
            assert_eq!(ttl_ms(&server, &key).await, full, "{kind} after a refund");

            if kind == Kind::TokenBucket {
                server.command(&["PERSIST", &key]).await;
                let rate = Rate::parse("1/h").unwrap();
                let smaller = Algorithm::try_new(kind, rate, None, 1).unwrap();
                let smaller = Named { algorithm: smaller, ..Named::new("me", kind, "5/min") };
                store.take(&[smaller.check(2)]).await.unwrap();
                assert_eq!(ttl_ms(&server, &key).await, 7_201_000, "after a limit was changed");
            }
            server.command(&["DEL", &key]).await;
        }
    }
}

/// A spend during a tolerated step back is written at the later time and expires by the earlier. A
/// TTL that is then kept must still outlast the refill.
#[tokio::test]
async fn a_kept_ttl_has_room_for_a_step_of_the_clock() {
    let server = world::frozen_redis().await;
    for way in WAYS {
        let store = world::store(&server, way);
        let bucket = Named::new("me", Kind::TokenBucket, "5/min");
        let minute = NOON - NOON % 60_000_000;
        for (now, cost) in [(minute, 1), (minute - 1_000_000, 1), (minute + 59_999_999, 5)] {
            world::freeze(&server, now);
            let taken = store.take(&[bucket.check(cost)]).await.unwrap();
            let ttl_us = ttl_ms(&server, &world::only_key(&server).await).await * 1_000;
            let whole = taken[0].reset_after.0;
            assert!(ttl_us >= whole, "{} at {now}: {ttl_us} us, whole in {whole}", way.name());
        }
        server.command(&["FLUSHALL"]).await;
    }
}
