//! The bound holds, and nobody gains by reaching it.

use std::sync::atomic::Ordering;

use tollgate_core::algorithm::{Algorithm, Kind};
use tollgate_core::decision::Outcome;
use tollgate_core::key::Scope;
use tollgate_core::store::Store;
use tollgate_core::units::Micros;

use super::{START, algorithm, bucket, builder, check, passes, ready, scope, take};

#[test]
fn a_flood_of_new_keys_resets_no_drained_bucket() {
    let (builder, _hand) = builder();
    let store = builder.max_keys(5000).build();
    let limit = bucket("1/h", 2);
    let scope = scope(&limit);
    for drained in 0..100 {
        let subject = format!("drained {drained}");
        assert!(passes(&store, check(&scope, &subject, &limit)));
        assert!(passes(&store, check(&scope, &subject, &limit)));
    }
    let mut admitted = 0;
    for newcomer in 0..50_000 {
        admitted += u64::from(passes(&store, check(&scope, &format!("new {newcomer}"), &limit)));
        assert!(store.live_keys() <= 5000);
    }
    // 4900 had a place of their own, and the others shared one bucket of two.
    assert_eq!((admitted, store.live_keys()), (4902, 5000));
    assert_eq!(store.overflowed(), 45_100);
    for drained in 0..100 {
        assert!(!passes(&store, check(&scope, &format!("drained {drained}"), &limit)));
    }
}

#[test]
fn whole_limits_make_room_for_newcomers() {
    let (builder, hand) = builder();
    let store = builder.max_keys(2000).build();
    for (kind, wait) in
        [(Kind::TokenBucket, 1), (Kind::FixedWindow, 1), (Kind::SlidingWindow, 2), (Kind::SlidingLog, 1)]
    {
        let limit = algorithm(kind, "1/s", None);
        let scope = scope(&limit);
        for n in 0..2000 {
            assert!(passes(&store, check(&scope, &format!("{n}"), &limit)), "{kind} {n}");
        }
        assert!(passes(&store, check(&scope, "one more", &limit)));
        assert_eq!(store.live_keys(), 2000);
        hand.fetch_add(wait * 1_000_000, Ordering::AcqRel);
    }
    assert_eq!(store.overflowed(), 4);
}

#[test]
fn overflow_buckets_are_bounded_and_then_refuse() {
    let (builder, _hand) = builder();
    let store = builder.max_keys(1).build();
    let limit = bucket("1/h", 5);
    assert!(passes(&store, check(&scope(&limit), "resident", &limit)));
    for n in 0..super::super::OVERFLOW_KEYS {
        let scope = Scope::of_rule(&format!("rule {n}"), 0, Kind::TokenBucket);
        assert!(passes(&store, check(&scope, "newcomer", &limit)));
    }
    let scope = Scope::of_rule("one more", 0, Kind::TokenBucket);
    let refused = take(&store, check(&scope, "newcomer", &limit));
    assert_eq!(refused.outcome, Outcome::Denied { retry_after: Micros::SECOND });
}

#[test]
fn logs_are_bounded_by_bytes_and_never_admit_unrecorded() {
    let (builder, hand) = builder();
    let store = builder.log_bytes_max(20_000).build();
    let limit = algorithm(Kind::SlidingLog, "1000/s", None);
    let scope = scope(&limit);
    let mut admitted = 0;
    for tick in 0..2000 {
        admitted += u64::from(passes(&store, check(&scope, "greedy", &limit)));
        hand.store(START.0 + tick, Ordering::Release);
    }
    // 160 bytes for the entry, 16 for each of 1024 instants.
    assert_eq!(admitted, 1000);

    let mut admitted = 0;
    for tick in 0..2000 {
        admitted += u64::from(passes(&store, check(&scope, &format!("{}", tick % 50), &limit)));
    }
    // 3456 bytes are left: for fifteen logs of up to four instants, of which the one microsecond
    // needs a single run; the others share an overflow log.
    assert_eq!(store.live_keys(), 16);
    assert_eq!(admitted, 15 * 40 + 1000);

    hand.fetch_add(1_000_001, Ordering::AcqRel);
    assert!(passes(&store, check(&scope, "later", &limit)));
}

#[test]
fn every_key_may_have_a_limit_of_its_own() {
    let (builder, hand) = builder();
    let store = builder.max_keys(20_000).shards(1).build();
    for round in 0_u32..3 {
        let limits: Vec<Algorithm> = (0..20_000).map(|n| bucket("1/s", 1 + n + round * 7)).collect();
        let scope = scope(&limits[0]);
        for (n, limit) in limits.iter().enumerate() {
            assert_eq!(take(&store, check(&scope, &format!("{n}"), limit)).outcome, Outcome::Allowed);
        }
        hand.fetch_add(1_000_000, Ordering::AcqRel);
    }
    assert_eq!(store.overflowed(), 0);
}

#[test]
fn a_heartbeat_sweeps() {
    let (builder, hand) = builder();
    let store = builder.max_keys(1000).build();
    let limit = bucket("1/s", 1);
    let scope = scope(&limit);
    for n in 0..300 {
        assert!(passes(&store, check(&scope, &format!("{n}"), &limit)));
    }
    hand.fetch_add(1_000_000, Ordering::AcqRel);
    for _ in 0..10 {
        ready(store.heartbeat()).unwrap();
    }
    assert_eq!(store.live_keys(), 0);
}
