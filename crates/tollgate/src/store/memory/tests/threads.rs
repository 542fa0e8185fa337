//! Many threads admit what one would.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tollgate_core::algorithm::Kind;
use tollgate_core::decision::Outcome;
use tollgate_core::store::Store;
use tollgate_core::units::{Cost, Micros};

use super::super::MemoryStore;
use super::{START, algorithm, bucket, builder, check, passes, ready, scope};
use crate::clock::Clock;

const THREADS: u64 = 8;

#[test]
fn threads_together_admit_capacity_and_rate_exactly() {
    const ROUNDS: u64 = 3000;
    for keys in [1, 1000] {
        let (builder, hand) = builder();
        let store = builder.build();
        let limit = bucket("1000/s", 50); // one a millisecond
        let scope = scope(&limit);
        let subjects: Vec<_> = (0..keys).map(|n| format!("{n}")).collect();
        let admitted: Vec<_> = (0..keys).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|threads| {
            for thread in 0..THREADS {
                let (store, scope, limit) = (&store, &scope, &limit);
                let (subjects, admitted, hand) = (&subjects, &admitted, &hand);
                threads.spawn(move || {
                    for round in 0..ROUNDS {
                        for at in 0..subjects.len().min(20) {
                            let at = (at * 50 + usize::try_from(round).unwrap()) % subjects.len();
                            if passes(store, check(scope, &subjects[at], limit)) {
                                admitted[at].fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        // The first thread moves the hand; the others find it somewhere.
                        if thread == 0 && round % 100 == 0 {
                            hand.fetch_add(1000, Ordering::AcqRel);
                        }
                    }
                });
            }
        });
        let elapsed_ms = (hand.load(Ordering::Acquire) - START.0) / 1000;
        for (at, admitted) in admitted.iter().enumerate() {
            // What is left is spent by this thread alone, so that the sum must be exact.
            let mut total = admitted.load(Ordering::Relaxed);
            assert!(total <= 50 + elapsed_ms, "{keys} keys: {total} in {elapsed_ms} ms");
            while passes(&store, check(&scope, &subjects[at], &limit)) {
                total += 1;
            }
            // Never full after the first spend, so not one token may be missing either.
            if keys == 1 {
                assert_eq!(total, 50 + elapsed_ms);
            }
            assert!(total <= 50 + elapsed_ms);
        }
    }
}

/// Pairs cross each other's shards in both orders; each pair is spent whole or not at all.
#[test]
fn asks_of_several_checks_are_spent_whole_by_all_threads() {
    let (builder, _hand) = builder();
    let store = builder.build();
    let limits = [bucket("1/h", 300), bucket("1/h", 200)];
    let (fixed, log) =
        (algorithm(Kind::FixedWindow, "250/h", None), algorithm(Kind::SlidingLog, "220/h", None));
    let scopes = [scope(&limits[0]), scope(&fixed), scope(&log)];
    let all = [
        check(&scopes[0], "a", &limits[0]),
        check(&scopes[0], "b", &limits[1]),
        check(&scopes[1], "c", &fixed),
        check(&scopes[2], "d", &log),
    ];
    let admitted = AtomicU64::new(0);
    thread::scope(|threads| {
        for thread in 0..8 {
            let (store, admitted) = (&store, &admitted);
            threads.spawn(move || {
                let mut asked = all;
                asked.rotate_left(thread % 4);
                for _ in 0..100 {
                    let decisions = ready(store.take(&asked)).unwrap();
                    if decisions.iter().all(|d| d.outcome == Outcome::Allowed) {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(admitted.load(Ordering::Relaxed), 200);
    let left: Vec<_> = ready(store.peek(&all)).unwrap().iter().map(|d| d.remaining).collect();
    assert_eq!(left, [100, 0, 50, 20]);
}

#[test]
fn a_flood_from_all_threads_stays_within_the_bound() {
    let (builder, _hand) = builder();
    let store = builder.max_keys(3000).build();
    let limit = bucket("1/h", 1);
    let scope = scope(&limit);
    let admitted = AtomicU64::new(0);
    thread::scope(|threads| {
        for thread in 0..THREADS {
            let (store, scope, limit, admitted) = (&store, &scope, &limit, &admitted);
            threads.spawn(move || {
                for n in 0..5000 {
                    let is_allowed = passes(store, check(scope, &format!("{thread} {n}"), limit));
                    admitted.fetch_add(u64::from(is_allowed), Ordering::Relaxed);
                    assert!(store.live_keys() <= 3000 + THREADS, "each thread may be asking for a place");
                }
            });
        }
    });
    assert_eq!(store.live_keys(), 3000);
    assert_eq!(admitted.load(Ordering::Relaxed), 3001);
}

/// A thread reads the clock, is stopped for two seconds, and only then gets the lock.
#[test]
fn a_thread_that_was_stopped_is_no_clock_that_stepped_back() {
    let limit = bucket("1/s", 10);
    let scope = scope(&limit);
    let (clock, hand) = Clock::manual(START);
    let store = MemoryStore::builder().clock(clock).build();
    let mut all = check(&scope, "a", &limit);
    all.cost = Cost::new(10).unwrap();
    let stopped = store.visitor(&all);

    hand.fetch_add(2_000_000, Ordering::AcqRel);
    assert!(passes(&store, all));
    let decision = store.shard(stopped.hash).lock().take(&stopped, &store.room).unwrap().0;

    // By its own old time it would have set the bucket back, and poured the two seconds in again.
    assert_eq!(decision.outcome, Outcome::Denied { retry_after: Micros::from_secs(10) });
    assert!(!passes(&store, check(&scope, "a", &limit)));
}
