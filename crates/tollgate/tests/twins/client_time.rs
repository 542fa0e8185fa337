//! Where scripts may not read Redis' clock, calls bring our own reckoning of it along.

use std::time::Duration;

use tollgate::Kind;
use tollgate::core::store::Store;
use tollgate::store::redis::RedisStore;

use crate::world::{self, NOON, Named, WAYS};

#[tokio::test]
async fn client_time_starts_at_redis_time_and_runs_on_ours() {
    let server = world::frozen_redis().await;
    for way in WAYS {
        world::freeze(&server, NOON);
        world::reset_calls(&server).await;
        let mut config = world::config(&server, way);
        config.client_time = true;
        let store = RedisStore::new(config).unwrap();
        assert!(store.stats().client_time);
        let limits = Kind::ALL.map(|kind| Named::new("me", kind, "1000/h"));
        let checks: Vec<_> = limits.iter().map(|limit| limit.check(1)).collect();

        let began = tollgate::clock::instant();
        let mut latest = NOON;
        for left in (950..1_000).rev() {
            // The very first ask is answered too: it waits for the dial that samples the time.
            let taken = store.take(&checks).await.unwrap();
            let now = taken[0].take.at.0;
            assert!(taken.iter().all(|decision| decision.take.at.0 == now), "one instant per ask");
            assert!(now >= latest, "{now} is before {latest}");
            assert!(now <= NOON + elapsed_us(began), "{now} is ahead of Redis' time and ours since");
            assert!(taken.iter().all(|decision| decision.remaining >= left), "{taken:?}");
            latest = now;
            // Redis' own clock stands still, and even when it jumps nobody looks at it.
            world::freeze(&server, NOON + 1);
        }
        let read = world::calls(&server, "time").await;
        assert!(read <= 2, "read by the dial and the first to wait for it, never by a script: {read}");
        assert_eq!(store.heartbeat().await.unwrap().instances, 1);
        server.command(&["FLUSHALL"]).await;
    }
}

/// A connection that is dialled again samples anew, and a sample that reads earlier is not believed.
#[tokio::test]
async fn client_time_never_goes_back() {
    let server = world::frozen_redis().await;
    let mut config = world::config(&server, WAYS[0]);
    config.client_time = true;
    let store = RedisStore::new(config).unwrap();
    let limit = Named::new("me", Kind::FixedWindow, "1000/h");
    let mut latest = store.take(&[limit.check(1)]).await.unwrap()[0].take.at;
    for now in [NOON - 3_600_000_000, NOON + 7_200_000_000, NOON] {
        world::freeze(&server, now);
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
        let taken = loop {
            match store.take(&[limit.check(1)]).await {
                Ok(taken) => break taken[0].take.at,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        assert!(taken >= latest, "{taken} is before {latest}");
        latest = taken;
    }
    assert!(latest.0 >= NOON + 7_200_000_000, "a later sample is believed: {latest}");
}

fn elapsed_us(since: std::time::Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).expect("a test does not run for ever")
}
