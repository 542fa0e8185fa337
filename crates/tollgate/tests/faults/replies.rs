//! A reply belongs to its request, and a request is sent once, whatever happens in between.
//!
//! Spends are counted in Redis itself, by windows of a day whose limits lie 100 000 apart: a reply
//! to somebody else's request would show a remainder that cannot be.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use testkit::{ChaosProxy, RedisServer, together, unique_prefix};
use tollgate::core::check::Check;
use tollgate::core::decision::Decision;
use tollgate::core::key::Key;
use tollgate::core::store::{Store, StoreError};
use tollgate::observe::Observer;
use tollgate::store::redis::RedisStore;
use tollgate::{Algorithm, Cost, Engine, InlineLimit, Kind, OnOutage, Rate, Source};

use crate::stand::{CAPACITY, DEADLINE, Heard, RULES, ask, builder, is_unknown, store};

/// How many ask at once, each with a key and a limit of its own.
const ASKERS: u32 = 16;

/// How far apart their limits are: more than any of them asks.
const APART: u32 = 100_000;

fn limit_of(asker: u32) -> InlineLimit {
    let rate = Rate::parse(&format!("{}/d", APART * (asker + 1))).unwrap();
    InlineLimit::new(Algorithm::try_new(Kind::FixedWindow, rate, None, 1).unwrap(), rate.period())
}

fn check_of<'a>(limit: &'a InlineLimit, subject: &'a str) -> Check<'a> {
    let key = Key { scope: limit.scope(), subject: subject.as_bytes() };
    Check { key, algorithm: limit.algorithm(), cost: Cost::ONE }
}

async fn take(store: &RedisStore, limit: &InlineLimit, subject: &str) -> Result<Decision, StoreError> {
    store.take(&[check_of(limit, subject)]).await.map(|decisions| decisions[0])
}

/// What Redis has on record as spent.
async fn spent(store: &RedisStore, limit: &InlineLimit, subject: &str) -> u32 {
    let peeked = store.peek(&[check_of(limit, subject)]).await.unwrap();
    peeked[0].limit - peeked[0].remaining
}

/// What one asker knows.
#[derive(Debug, Default)]
struct Tally {
    asked: u32,
    allowed: u32,
    dropped: u32,
}

/// Asks for a while, gives up on some answers, and holds every answer against what can be true.
async fn ask_impatiently(engine: Engine<RedisStore>, asker: u32, until: tokio::time::Instant) -> Tally {
    let (limit, subject) = (limit_of(asker), format!("asker-{asker}"));
    let whole = limit.algorithm().limit();
    let mut tally = Tally::default();
    let mut last = whole;
    while tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(1)).await;
        tally.asked += 1;
        // Now and then a caller goes away in the middle of its ask.
        let patience = if fastrand::u8(..4) == 0 { fastrand::u64(..20_000) } else { 10_000_000 };
        let answer = tokio::time::timeout(Duration::from_micros(patience), engine.check(&subject, &limit));
        let Ok(verdict) = answer.await else {
            tally.dropped += 1;
            continue;
        };
        if verdict.source != Source::Store {
            continue;
        }
        let remaining = verdict.checks[0].decision.remaining;
        tally.allowed += 1;
        let possible = whole - tally.asked..=whole - tally.allowed;
        assert!(possible.contains(&remaining), "{subject}: {remaining} left, possible {possible:?}");
        assert!(remaining < last, "{subject}: {remaining} left after {last}");
        last = remaining;
    }
    tally
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_reply_answers_nobody_else_and_nothing_is_spent_twice() {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let prefix = unique_prefix();
    let heard = Arc::new(Heard::default());
    let engine = Engine::builder(store(&proxy.url(), &prefix))
        .deadline(DEADLINE)
        // Never set aside: the faults are to meet requests.
        .failures_to_open(u32::MAX)
        .observer(Arc::clone(&heard) as Arc<dyn Observer>)
        .build();

    let until = tokio::time::Instant::now() + Duration::from_secs(3);
    let askers: Vec<_> =
        (0..ASKERS).map(|asker| tokio::spawn(ask_impatiently(engine.clone(), asker, until))).collect();
    while tokio::time::Instant::now() < until {
        match fastrand::u8(..16) {
            0..2 => proxy.hold_replies(),
            2 => proxy.cut_existing(),
            3..9 => proxy.delay_replies(Duration::from_millis(fastrand::u64(20..40))),
            _ => proxy.pass(),
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(10..80))).await;
    }
    proxy.pass();

    let direct = store(&server.url(), &prefix);
    let (mut spent_in_all, mut allowed_in_all, mut dropped_in_all) = (0, 0, 0);
    for (asker, task) in (0..).zip(askers) {
        let tally = task.await.unwrap();
        let spent = spent(&direct, &limit_of(asker), &format!("asker-{asker}")).await;
        assert!((tally.allowed..=tally.asked).contains(&spent), "asker {asker}: {spent} spent, {tally:?}");
        spent_in_all += u64::from(spent);
        allowed_in_all += u64::from(tally.allowed);
        dropped_in_all += u64::from(tally.dropped);
    }
    let unknown = heard.unknown.load(Ordering::SeqCst);
    println!("{spent_in_all} spent, {allowed_in_all} allowed, {unknown} unknown, {dropped_in_all} dropped");
    println!("errors {:?}", heard.errors());
    assert!(unknown > 30 && dropped_in_all > 10, "too few faults met a request");
    assert!(allowed_in_all > 200, "too few answers came through");
    assert!(spent_in_all <= allowed_in_all + unknown + dropped_in_all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_reply_was_lost_is_never_sent_again() {
    const ROUNDS: u32 = 20;
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let store = store(&proxy.url(), &unique_prefix());
    let limit = limit_of(0);
    for _ in 0..ROUNDS {
        // Connected and loaded, so that the next request is the take and nothing else.
        testkit::eventually("the link is up", || {
            store.stats().connections_open > 0 || {
                store.warm();
                false
            }
        })
        .await;
        while take(&store, &limit, "warm").await.is_err() {}
        proxy.cut_after_request_bytes(1);
        let lost = take(&store, &limit, "me").await;
        assert!(matches!(lost, Err(StoreError::Lost { .. })), "{lost:?}");
        assert!(is_unknown(&lost));
    }
    while take(&store, &limit, "warm").await.is_err() {}
    // Each was executed, once.
    assert_eq!(spent(&store, &limit, "me").await, ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_outlived_its_caller_is_not_sent_after_all() {
    let server = RedisServer::start().await;
    let (prefix, limit) = (unique_prefix(), limit_of(0));
    // The script is there, so whatever is sent is executed.
    take(&store(&server.url(), &prefix), &limit, "somebody else").await.unwrap();
    let store = store(&server.url(), &prefix);
    // Accepts and does not greet: asks wait for the dial, and their callers leave.
    server.pause();
    for _ in 0..10 {
        let left = tokio::time::timeout(DEADLINE, take(&store, &limit, "me")).await;
        assert!(left.is_err(), "it was to wait: {left:?}");
    }
    server.resume();
    let mut answered = 0;
    while answered < 5 {
        answered += u32::from(take(&store, &limit, "me").await.is_ok());
    }
    assert_eq!(spent(&store, &limit, "me").await, 5);
}

/// What travels together fails together, and is answered one by one: by the rule of each ask.
#[tokio::test]
async fn a_batch_that_times_out_answers_each_ask_by_its_own_rule() {
    const ASKS: usize = 10;
    let server = RedisServer::start().await;
    let engine = builder(&server.url(), &unique_prefix()).failures_to_open(u32::MAX).build();
    let each = || (0..ASKS).flat_map(|_| RULES).map(|rule| ask(&engine, rule));
    assert!(together(each()).await.iter().all(|asked| asked.source == Source::Store));
    let calls = || engine.store().stats().batches.calls.iter().sum::<u64>();
    let before = calls();
    server.pause();
    for asked in together(each()).await {
        assert_eq!(asked.source, Source::Fallback(asked.rule));
        assert!(asked.took >= DEADLINE, "it waited for its deadline: {:?}", asked.took);
        match asked.rule {
            OnOutage::Allow => assert!(asked.is_allowed),
            OnOutage::Deny => assert!(!asked.is_allowed),
            OnOutage::Local => {}
        }
    }
    assert_eq!(calls() - before, 1, "all of them were one call");
    server.resume();
    // It was executed all the same, and was never sent again: two rounds are spent, and refilled since.
    let left = loop {
        let asked = ask(&engine, OnOutage::Deny).await;
        if asked.source == Source::Store {
            break asked.decision.remaining;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert!(u64::from(left) >= u64::from(CAPACITY) - 2 * ASKS as u64 - 1, "{left} left");
}
