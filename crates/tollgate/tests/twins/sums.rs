//! Sums that do not fit a double, one by one: what the histories meet by chance is met here by name.

use tollgate::core::decision::{Outcome, Verb};
use tollgate::core::store::Store;
use tollgate::{Algorithm, Kind, Micros, Rate};

use crate::reference::Reference;
use crate::world::{self, NOON, Named, WAYS};

/// Plays `(gap in us, cost)` through both twins under one limit.
async fn play(algorithm: Algorithm, visits: &[(u64, u32)]) {
    let server = world::frozen_redis().await;
    for way in WAYS {
        let store = world::store(&server, way);
        let kind = algorithm.kind();
        let limit = Named { algorithm: algorithm.clone(), ..Named::new("me", kind, "1/s") };
        let mut reference = Reference::new(way.layout);
        let mut now = NOON;
        for (gap, cost) in visits {
            now += gap;
            world::freeze(&server, now);
            let check = limit.check(*cost);
            let expected = reference.visit(&[check], Micros(now), Verb::Take);
            let answered = store.take(&[check]).await.expect("the store answers");
            assert_eq!(answered.to_vec(), expected, "{limit:?} at {now}, cost {cost}");
        }
    }
}

fn limit(kind: Kind, count: u32, span_us: u64) -> Algorithm {
    let rate = Rate::try_new(count, Micros(span_us)).expect("a rate");
    Algorithm::try_new(kind, rate, None, 10_000).expect("a limit")
}

#[tokio::test]
async fn a_share_of_a_large_window_is_exact() {
    let year = 366 * 86_400_000_000;
    let most = u32::MAX;
    play(
        limit(Kind::SlidingWindow, most, year),
        &[
            (0, most),
            (1, 1),
            (year - 1, 1),
            (1, 1),
            (7, 3),
            (year / 3, 1 << 31),
            (year / 7, 1 << 30),
            (99, most),
        ],
    )
    .await;
    let odd = 31_556_952_000_001;
    play(
        limit(Kind::SlidingWindow, most - 1, odd),
        &[(0, 3_333_333_333), (odd, 1), (1, 1), (odd / 2, 1 << 30)],
    )
    .await;
}

#[tokio::test]
async fn a_bucket_at_the_edge_of_the_exact_is_exact() {
    // A year per token, and as many tokens as fit into 2^51 units.
    let rate = Rate::try_new(1, Micros(31_622_400_000_000)).unwrap();
    let most = (1_u64 << 51) / 31_622_400_000_000;
    let burst = u32::try_from(most).unwrap();
    let bucket = Algorithm::try_new(Kind::TokenBucket, rate, Some(burst), 1).unwrap();
    play(bucket, &[(0, burst), (0, 1), (1, 1), (31_622_399_999_998, 1), (1, 1), (0, 1)]).await;
    // Four thousand million tokens per 999983 microseconds.
    let rate = Rate::try_new(u32::MAX, Micros(999_983)).unwrap();
    let bucket = Algorithm::try_new(Kind::TokenBucket, rate, Some(1_000_003), 1).unwrap();
    play(bucket, &[(0, 1_000_003), (0, 1), (1, 4_295), (0, 1), (231, 1_000_000), (0, 1_000_003)]).await;
}

#[tokio::test]
async fn a_changed_limit_carries_large_buckets_over_exactly() {
    let server = world::frozen_redis().await;
    for way in WAYS {
        let store = world::store(&server, way);
        let of = |count, span, burst| {
            let rate = Rate::try_new(count, Micros(span)).unwrap();
            let algorithm = Algorithm::try_new(Kind::TokenBucket, rate, Some(burst), 1).unwrap();
            Named { algorithm, ..Named::new("me", Kind::TokenBucket, "1/s") }
        };
        let limits = [
            of(1, 500_001, 4_294_967_291),
            of(7, 500_000, 4_294_967_295),
            of(1_000_003, 999_983, 1_999_999_973),
            of(1, 1, 3),
            of(1, 524_000, 4_294_967_295),
        ];
        let mut reference = Reference::new(way.layout);
        for (at, limit) in limits.iter().cycle().take(20).enumerate() {
            let now = NOON + 1_234_567 * at as u64;
            world::freeze(&server, now);
            for cost in [1, limit.algorithm.limit() / 3, limit.algorithm.limit()] {
                let expected = reference.visit(&[limit.check(cost)], Micros(now), Verb::Take);
                assert_eq!(store.take(&[limit.check(cost)]).await.unwrap().to_vec(), expected, "{limit:?}");
            }
        }
    }
}

/// An entry that fails to be told apart from another of its microsecond is not counted.
#[tokio::test]
async fn entries_of_one_microsecond_are_all_counted() {
    let server = world::frozen_redis().await;
    for way in WAYS {
        let store = world::store(&server, way);
        let log = Named::new("me", Kind::SlidingLog, "2500/h");
        for left in [2_499, 2_498] {
            assert_eq!(store.take(&[log.check(1)]).await.unwrap()[0].remaining, left);
        }
        // More than one ZADD takes.
        assert_eq!(store.take(&[log.check(2_100)]).await.unwrap()[0].remaining, 398);
        assert_eq!(store.take(&[log.check(398)]).await.unwrap()[0].remaining, 0);
        let refused = store.take(&[log.check(1)]).await.unwrap()[0].outcome;
        assert_eq!(refused, Outcome::Denied { retry_after: Micros(3_600_000_000) });
    }
}
