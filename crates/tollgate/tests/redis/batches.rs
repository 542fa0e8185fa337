//! Takes that travel together: when, with whom, and what becomes of each when something goes wrong.
//!
//! A test's runtime has one thread, so what is asked `together` has been asked when the connection's task
//! wakes up: it goes out as one call.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use testkit::{ChaosProxy, RedisServer, eventually, together};
use tollgate::calendar::{CalendarUnit, ZonedCalendar};
use tollgate::core::check::Check;
use tollgate::core::decision::{Decision, Found, Outcome};
use tollgate::core::store::{ErrorClass, Store, StoreError};
use tollgate::store::redis::RedisStore;
use tollgate::{Algorithm, Kind, Rate};

use crate::stand::{LAYOUTS, Limit, calls, config, flush_text, recovers, store, ten};

/// A limit for each of so many subjects.
fn limits(kind: Kind, rate: &str, subjects: usize) -> Vec<Limit> {
    let rate = Rate::parse(rate).expect("a rate");
    let algorithm = Algorithm::try_new(kind, rate, None, 1000).expect("a limit");
    (0..subjects).map(|at| Limit::of(algorithm.clone(), &format!("s{at}"))).collect()
}

fn buckets(subjects: usize) -> Vec<Limit> {
    limits(Kind::TokenBucket, "10/h", subjects)
}

async fn take_each(store: &RedisStore, limits: &[Limit]) -> Vec<Result<Decision, StoreError>> {
    let checks: Vec<Check<'_>> = limits.iter().map(Limit::check).collect();
    let asks = checks.chunks(1).map(|check| store.take(check));
    together(asks).await.into_iter().map(|answer| answer.map(|decisions| decisions[0])).collect()
}

/// What is left of each, and all are answered.
async fn left(store: &RedisStore, limits: &[Limit]) -> Vec<u32> {
    let taken = take_each(store, limits).await;
    taken.into_iter().map(|answer| answer.expect("an answer").remaining).collect()
}

/// What is left of each, without taking any.
async fn peeked(store: &RedisStore, limits: &[Limit]) -> Vec<u32> {
    let mut left = Vec::new();
    for limit in limits {
        left.push(store.peek(&[limit.check()]).await.expect("it may look")[0].remaining);
    }
    left
}

/// How many calls went out with how many takes.
fn sizes(store: &RedisStore) -> (u64, u64) {
    let batches = store.stats().batches;
    (batches.calls.iter().sum(), batches.asks)
}

#[tokio::test]
async fn what_waits_goes_out_as_one_call_and_what_is_too_much_as_several() {
    let server = RedisServer::start().await;
    for (asks, expected) in [(1, 1), (2, 1), (128, 1), (129, 2), (300, 3)] {
        let store = store(&server.url());
        let limits = buckets(asks);
        assert_eq!(left(&store, &limits).await, vec![9; asks]);
        let before = calls(&server, "fcall").await;
        assert_eq!(left(&store, &limits).await, vec![8; asks]);
        assert_eq!(calls(&server, "fcall").await - before, expected, "{asks} asks");
        assert_eq!(sizes(&store), (2 * expected, 2 * asks as u64));
    }
}

#[tokio::test]
async fn the_most_can_be_set_and_batches_can_be_off() {
    let server = RedisServer::start().await;
    for (batch, batch_max, expected) in [(true, 10, 5), (true, 1, 50), (false, 128, 50)] {
        let mut config = config(&server.url());
        (config.batch, config.batch_max) = (batch, batch_max);
        let store = RedisStore::new(config).unwrap();
        let limits = buckets(50);
        assert_eq!(left(&store, &limits).await, [9; 50]);
        assert_eq!(sizes(&store), (expected, 50));
    }
}

/// One that is large travels alone, and so do the checks that do not fit beside others.
#[tokio::test]
async fn an_ask_that_fills_a_batch_travels_alone() {
    let server = RedisServer::start().await;
    let store = store(&server.url());
    let limits = buckets(200);
    let checks: Vec<Check<'_>> = limits.iter().map(Limit::check).collect();
    let asks = [&checks[..1], &checks[..200], &checks[..2], &checks[..126], &checks[..1]];
    let answers = together(asks.map(|ask| store.take(ask))).await;
    let lengths: Vec<usize> = answers.iter().map(|answer| answer.as_ref().unwrap().len()).collect();
    assert_eq!(lengths, [1, 200, 2, 126, 1]);
    assert_eq!(sizes(&store), (4, 5), "the first; the large; two and no more beside them; and the last two");
    assert_eq!(peeked(&store, &limits[..3]).await, [5, 7, 8]);
}

/// Polls once.
async fn once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// A store behind a proxy, with everything loaded and ten of each bucket but one.
async fn behind_a_proxy(wait: Duration, limits: &[Limit]) -> (RedisServer, ChaosProxy, RedisStore) {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let mut config = config(&proxy.url());
    config.batch_wait = wait;
    let store = RedisStore::new(config).expect("no TLS to go wrong");
    assert_eq!(left(&store, limits).await, vec![9; limits.len()]);
    assert_eq!(left(&store, &limits[..1]).await, [8]);
    (server, proxy, store)
}

/// Lets whatever of this thread is ready run.
async fn settled() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

const FOREVER: Duration = Duration::from_hours(1);

#[tokio::test]
async fn what_arrives_while_a_call_is_in_flight_waits_for_its_answer() {
    let limits = buckets(40);
    let (server, proxy, store) = behind_a_proxy(FOREVER, &limits).await;
    let before = calls(&server, "fcall").await;
    proxy.hold_replies();
    let mut first = pin!(take_each(&store, &limits[..1]));
    let mut second = pin!(take_each(&store, &limits[1..20]));
    let mut third = pin!(take_each(&store, &limits[20..]));
    assert!(once(first.as_mut()).await.is_pending());
    settled().await;
    // In flight: Redis has it, and its reply is held back.
    while calls(&server, "fcall").await == before {
        settled().await;
    }
    let sent = proxy.bytes_up();
    for later in [&mut second, &mut third] {
        assert!(once(later.as_mut()).await.is_pending());
        settled().await;
    }
    // A peek does not wait with them.
    let check = [limits[1].check()];
    let mut peek = pin!(store.peek(&check));
    assert!(once(peek.as_mut()).await.is_pending());
    eventually("the peek is sent", || proxy.bytes_up() > sent).await;
    assert_eq!(calls(&server, "fcall").await - before, 2, "the first and the peek");

    proxy.release_replies();
    for (taken, expected) in [(first.await, 7), (second.await, 8), (third.await, 8)] {
        assert!(taken.into_iter().all(|answer| answer.unwrap().remaining == expected));
    }
    assert_eq!(peek.await.unwrap()[0].remaining, 9);
    assert_eq!(calls(&server, "fcall").await - before, 3, "those that waited went together");
}

#[tokio::test]
async fn what_waits_does_not_wait_for_an_answer_that_is_slow() {
    let limits = buckets(10);
    let (server, proxy, store) = behind_a_proxy(Duration::from_millis(1), &limits).await;
    let before = calls(&server, "fcall").await;
    proxy.hold_replies();
    let mut first = pin!(take_each(&store, &limits[..1]));
    let mut second = pin!(take_each(&store, &limits[1..]));
    assert!(once(first.as_mut()).await.is_pending());
    settled().await;
    assert!(once(second.as_mut()).await.is_pending());
    while calls(&server, "fcall").await < before + 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    proxy.release_replies();
    assert_eq!((first.await.len(), second.await.len()), (1, 9));
    assert_eq!(calls(&server, "fcall").await, before + 2);
}

#[tokio::test]
async fn a_caller_that_gave_up_before_its_ask_was_sent_is_left_out() {
    let limits = buckets(12);
    let (_server, proxy, store) = behind_a_proxy(FOREVER, &limits).await;
    proxy.hold_replies();
    let mut first = pin!(take_each(&store, &limits[..1]));
    assert!(once(first.as_mut()).await.is_pending());
    settled().await;
    let mut stays = pin!(take_each(&store, &limits[1..4]));
    assert!(once(stays.as_mut()).await.is_pending());
    {
        let mut goes = pin!(take_each(&store, &limits[4..]));
        assert!(once(goes.as_mut()).await.is_pending());
        settled().await;
    }
    proxy.release_replies();
    assert_eq!(first.await.len(), 1);
    assert!(stays.await.into_iter().all(|answer| answer.unwrap().remaining == 8));
    assert_eq!(peeked(&store, &limits).await, [7, 8, 8, 8, 9, 9, 9, 9, 9, 9, 9, 9]);
}

/// Nobody knows what became of those that were written; of those that were not, it is known.
#[tokio::test]
async fn a_batch_whose_reply_is_lost_is_unknown_to_everyone_in_it_and_never_sent_again() {
    let limits = buckets(30);
    let (server, proxy, store) = behind_a_proxy(FOREVER, &limits).await;
    for _ in 0..3 {
        recovers(&store).await;
        proxy.hold_replies();
        let before = calls(&server, "fcall").await;
        let mut lost = pin!(take_each(&store, &limits[10..20]));
        assert!(once(lost.as_mut()).await.is_pending());
        while calls(&server, "fcall").await == before {
            settled().await;
        }
        let mut waits = pin!(take_each(&store, &limits[20..]));
        assert!(once(waits.as_mut()).await.is_pending());
        settled().await;
        proxy.cut_existing();
        for answer in lost.await {
            assert!(matches!(answer, Err(StoreError::Lost { .. })), "{answer:?}");
        }
        // The connection was young, so its end counts as a failed dial.
        for answer in waits.await {
            assert!(matches!(answer, Err(StoreError::Unreachable { .. })), "{answer:?}");
        }
    }
    recovers(&store).await;
    assert_eq!(peeked(&store, &limits[10..20]).await, [6; 10], "each was spent once a round");
    assert_eq!(peeked(&store, &limits[20..]).await, [9; 10], "none was spent");
}

#[tokio::test]
async fn lost_functions_and_scripts_are_loaded_again_with_the_whole_batch() {
    let server = RedisServer::start().await;
    for layout in LAYOUTS {
        for functions in [true, false] {
            let mut config = config(&server.url());
            (config.layout, config.functions) = (layout, functions);
            let store = RedisStore::new(config).unwrap();
            let limits: Vec<Limit> = Kind::ALL.into_iter().flat_map(|kind| limits(kind, "10/h", 8)).collect();
            for expected in (5..10).rev() {
                flush_text(&server).await;
                assert_eq!(left(&store, &limits).await, vec![expected; limits.len()]);
            }
            let command = if functions { "fcall" } else { "evalsha" };
            let (calls, load) =
                (calls(&server, command).await, if functions { "function|load" } else { "script|load" });
            assert_eq!(calls, 10, "each once in vain");
            assert_eq!(crate::stand::calls(&server, load).await, 5);
            server.command(&["CONFIG", "RESETSTAT"]).await;
        }
    }
}

/// Somebody forgets them all the time: every ask is answered, and spent once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_of_flushes_starves_no_batch() {
    let server = RedisServer::start().await;
    let mut config = config(&server.url());
    config.pool_size = 2;
    let store = Arc::new(RedisStore::new(config).unwrap());
    let is_over = Arc::new(AtomicBool::new(false));
    let asking: Vec<_> = (0..32)
        .map(|asker| {
            let (store, is_over) = (Arc::clone(&store), Arc::clone(&is_over));
            tokio::spawn(async move {
                let limit = &limits(Kind::ALL[asker % 4], "1000/d", 32)[asker];
                let mut taken = 0;
                while !is_over.load(Ordering::Relaxed) && taken < 900 {
                    let decision = store.take(&[limit.check()]).await.expect("an answer")[0];
                    taken += 1;
                    assert_eq!(decision.limit - decision.remaining, taken, "spent once");
                }
                taken
            })
        })
        .collect();
    for _ in 0..300 {
        flush_text(&server).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut taken = 0;
    for asker in asking {
        taken += asker.await.unwrap();
    }
    let (calls, asks) = sizes(&store);
    assert_eq!(asks, u64::from(taken));
    assert!(calls < asks, "some travelled together: {calls} calls for {asks}");
}

/// What is wrong with one key is nothing to the others, be it alone in its ask or asked again and again.
#[tokio::test]
async fn a_value_that_is_not_ours_counts_as_absent_for_its_check_alone() {
    let server = RedisServer::start().await;
    for layout in LAYOUTS {
        for functions in [true, false] {
            let mut config = config(&server.url());
            (config.layout, config.functions) = (layout, functions);
            let store = RedisStore::new(config).unwrap();
            let limits: Vec<Limit> = Kind::ALL.into_iter().flat_map(|kind| limits(kind, "10/h", 6)).collect();
            assert_eq!(left(&store, &limits).await, [9; 24]);
            let mut names = crate::stand::keys(&server, 0).await.unwrap();
            names.sort();
            for (at, name) in names.iter().enumerate().filter(|(at, _)| at % 2 == 0) {
                server.command(&["DEL", name]).await;
                match at % 3 {
                    0 => server.command(&["RPUSH", name, "x"]).await,
                    1 => server.command(&["SET", name, "not ours"]).await,
                    _ => server.command(&["SET", name, &"x".repeat(if at % 4 == 0 { 29 } else { 33 })]).await,
                };
            }
            // The first two of each kind are asked twice over.
            let checks: Vec<Check<'_>> = limits.iter().map(Limit::check).collect();
            let twice = checks.iter().enumerate().filter(|(at, _)| at % 6 < 2).map(|(_, check)| check);
            let asks: Vec<&Check<'_>> = checks.iter().chain(twice).collect();
            let answers = together(asks.iter().map(|check| store.take(std::slice::from_ref(*check)))).await;
            let malformed =
                answers.iter().filter(|answer| answer.as_ref().unwrap()[0].found == Found::Malformed);
            assert_eq!(malformed.count(), 12);
            assert_eq!(store.stats().malformed, 12);
            let mut counts = [0; 10];
            for answer in &answers {
                counts[answer.as_ref().unwrap()[0].remaining as usize] += 1;
            }
            // Half begin anew and half go on; eight are asked once more.
            assert_eq!((counts[9], counts[7]), (12, 4), "{counts:?}");
            assert_eq!(counts[8], 12 + 4);
            server.command(&["FLUSHALL"]).await;
        }
    }
}

/// A user that may not do what one ask needs: that one is told so, and the others are answered.
#[tokio::test]
async fn an_error_is_the_answer_to_its_ask_alone() {
    let server = RedisServer::start().await;
    server.command(&["ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all", "-zadd"]).await;
    for functions in [true, false] {
        let mut config = config(&format!("redis://ann:pw@{}", server.address()));
        config.functions = functions;
        let store = RedisStore::new(config).unwrap();
        let (buckets, logs) = (buckets(20), limits(Kind::SlidingLog, "10/h", 20));
        let windows = limits(Kind::FixedWindow, "10/h", 20);
        let mut asks: Vec<Vec<Check<'_>>> = Vec::new();
        for ((bucket, log), window) in buckets.iter().zip(&logs).zip(&windows) {
            asks.extend([vec![bucket.check()], vec![log.check()], vec![window.check()]]);
            asks.extend([vec![bucket.check(), window.check()]]);
        }
        let answers = together(asks.iter().map(|ask| store.take(ask))).await;
        for (at, answer) in answers.into_iter().enumerate() {
            match (at % 4, answer) {
                (1, Err(StoreError::Answered { class, .. })) => assert_eq!(class, ErrorClass::NoPermission),
                (0 | 2, Ok(decisions)) => assert_eq!(decisions[0].remaining, 9),
                (3, Ok(decisions)) => assert_eq!([decisions[0].remaining, decisions[1].remaining], [8, 8]),
                (_, answer) => panic!("ask {at}: {answer:?}"),
            }
        }
        assert_eq!(sizes(&store), (1, 80));
    }
}

/// Where writing is denied altogether, each ask is told why, and the guard will answer by its rule.
#[tokio::test]
async fn a_refusal_of_the_whole_call_is_the_answer_to_every_ask() {
    let server = RedisServer::start().await;
    let store = store(&server.url());
    let limits = buckets(20);
    assert_eq!(left(&store, &limits).await, [9; 20]);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for answer in take_each(&store, &limits).await {
        assert!(
            matches!(answer, Err(StoreError::Answered { class: ErrorClass::OutOfMemory, .. })),
            "{answer:?}"
        );
    }
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(left(&store, &limits).await, [8; 20]);
}

/// One key, asked again and again: read once and written once, and the last ones are refused.
#[tokio::test]
async fn a_hot_bucket_is_read_and_written_once_for_all_its_asks() {
    let server = RedisServer::start().await;
    let store = store(&server.url());
    let hot = ten();
    for (before, expected) in [(10, [9, 8, 7, 6]), (6, [5, 4, 3, 2]), (2, [1, 0, 0, 0])] {
        server.command(&["CONFIG", "RESETSTAT"]).await;
        let asks = [hot.check(); 4];
        let answers = together(asks.chunks(1).map(|ask| store.take(ask))).await;
        let answers: Vec<Decision> = answers.into_iter().map(|answer| answer.unwrap()[0]).collect();
        assert_eq!(answers.iter().map(|one| one.remaining).collect::<Vec<_>>(), expected);
        let allowed = answers.iter().filter(|one| one.outcome == Outcome::Allowed).count();
        assert_eq!(allowed, before.min(4));
        let writes = calls(&server, "psetex").await + calls(&server, "setrange").await;
        assert_eq!((calls(&server, "get").await, writes), (1, 1));
    }
    let left = together((0..4).map(|_| left(&store, std::slice::from_ref(&hot)))).await;
    assert_eq!(left.concat(), [0; 4]);
}

/// Redis' clock is years from ours, so the windows of a day that are sent first are not those it is in.
#[tokio::test]
async fn only_the_ask_whose_windows_are_stale_is_asked_again() {
    let server = RedisServer::builder().clock_shim().start().await;
    server.clock().freeze_at_us(1_000_000_000_000_000);
    let mut config = config(&server.url());
    config.functions = true;
    let store = RedisStore::new(config).unwrap();
    let day = ZonedCalendar::try_new(CalendarUnit::Day, "Europe/Berlin").unwrap();
    let day = Algorithm::by_calendar(10, Arc::new(day)).unwrap();
    let mut limits = buckets(10);
    limits.extend([Limit::of(day.clone(), "ann"), Limit::of(day, "bob")]);
    assert_eq!(left(&store, &limits).await, [9; 12]);
    assert_eq!(left(&store, &limits).await, [8; 12]);
    assert_eq!(sizes(&store), (4, 28), "ten and two, then those two, twice");
}

/// A user of before batches, who may not MGET: dearer, and otherwise the same.
#[tokio::test]
async fn without_mget_keys_are_got_one_by_one() {
    let server = RedisServer::start().await;
    server.command(&["ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all", "-mget"]).await;
    let store = store(&format!("redis://ann:pw@{}", server.address()));
    let limits = buckets(30);
    for expected in [9, 8, 7] {
        assert_eq!(left(&store, &limits).await, [expected; 30]);
    }
    assert_eq!(sizes(&store), (3, 90));
}
