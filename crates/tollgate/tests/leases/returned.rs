//! What becomes of tokens that nobody spent, and of leases that others revoke, on a real Redis.

use std::time::Duration;

use testkit::{RedisServer, unique_prefix};
use tollgate::core::policy::Lease;
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Ask, By, Cost, Engine, Kind, OnOutage, Policy, Rate, Rule, Source, Verdict, Want};

const WANT: Want<'static> = Want { by: By::Rule("api"), key: b"ann", cost: Cost::ONE, takes: &[] };

fn engine(server: &RedisServer, prefix: &str, kind: Kind, deadline: Duration) -> Engine<RedisStore> {
    let mut config = RedisConfig::new(RedisUrl::parse(&server.url()).expect("a url"));
    prefix.clone_into(&mut config.key_prefix);
    let limit =
        Algorithm::try_new(kind, Rate::parse("1000/h").expect("a rate"), None, 1000).expect("a limit");
    let rule = Rule::builder("api").limits(vec![limit]).lease(Lease::Auto).on_outage(OnOutage::Deny);
    Engine::builder(RedisStore::new(config).expect("a store"))
        .policy(Policy::try_new(1, vec![rule.build().expect("a rule")]).expect("a policy"))
        .deadline(deadline)
        .build()
}

const PATIENT: Duration = Duration::from_secs(10);

async fn calls(engine: &Engine<RedisStore>, count: u32) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for _ in 0..count {
        verdicts.push(engine.decide(&Ask { wants: &[WANT] }).await);
        tokio::task::yield_now().await;
    }
    verdicts
}

async fn left(engine: &Engine<RedisStore>) -> u32 {
    engine.peek(&Ask { wants: &[WANT] }).await.checks[0].decision.remaining
}

/// Asks until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let asked = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(30), asked).await;
    assert!(in_time.is_ok(), "waited in vain until {what}");
}

/// The kinds that count, to the token, what was taken: a bucket refills.
const COUNTED: [Kind; 3] = [Kind::SlidingLog, Kind::SlidingWindow, Kind::FixedWindow];

#[tokio::test]
async fn what_is_not_spent_goes_back_when_calls_stop() {
    let server = RedisServer::start().await;
    for kind in COUNTED {
        let engine = engine(&server, &unique_prefix(), kind, PATIENT);
        let verdicts = calls(&engine, 100).await;
        assert!(verdicts.iter().any(|one| one.source == Source::Lease), "{kind}");
        until("all but what was spent is back", async || left(&engine).await == 900).await;
        assert_eq!(engine.leases(), 0, "{kind}");
    }
}

#[tokio::test]
async fn what_is_not_spent_goes_back_at_the_end() {
    let server = RedisServer::start().await;
    for kind in COUNTED {
        let engine = engine(&server, &unique_prefix(), kind, PATIENT);
        calls(&engine, 100).await;
        engine.close().await;
        assert_eq!(left(&engine).await, 900, "{kind}");
    }
}

#[tokio::test]
async fn a_reset_here_ends_leases_at_once() {
    let server = RedisServer::start().await;
    for kind in COUNTED {
        let engine = engine(&server, &unique_prefix(), kind, PATIENT);
        calls(&engine, 100).await;
        assert_eq!(engine.leases(), 1, "{kind}: something is held");
        engine.forget(&Ask { wants: &[WANT] }).await.expect("forgotten");
        // What was held before was of what is forgotten: these are the first of a whole limit.
        calls(&engine, 10).await;
        engine.close().await;
        assert_eq!(left(&engine).await, 990, "{kind}");
    }
}

#[tokio::test]
async fn a_reset_elsewhere_ends_leases_within_a_second() {
    let server = RedisServer::start().await;
    for kind in COUNTED {
        let prefix = unique_prefix();
        let (here, there) =
            (engine(&server, &prefix, kind, PATIENT), engine(&server, &prefix, kind, PATIENT));
        calls(&there, 100).await;
        here.forget(&Ask { wants: &[WANT] }).await.expect("forgotten");
        let forgotten = tollgate::clock::instant();
        // Whoever goes on asking spends what it still holds, for a second, and then asks again.
        let mut on_old_lease = 0_u32;
        while forgotten.elapsed() < Duration::from_secs(1) {
            on_old_lease += u32::try_from(calls(&there, 1).await.len()).unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        calls(&there, 10).await;
        there.close().await;
        let spent = 1000 - left(&here).await;
        assert!((10..=10 + on_old_lease).contains(&spent), "{kind}: {spent}");
    }
}

#[tokio::test]
async fn leases_answer_first_while_redis_is_away() {
    let server = RedisServer::start().await;
    let engine = engine(&server, &unique_prefix(), Kind::FixedWindow, Duration::from_millis(50));
    // Whatever else the machine is busy with, this has been asked for often enough once it is leased.
    let mut verdicts = calls(&engine, 200).await;
    while verdicts.last().is_none_or(|last| last.source != Source::Lease) {
        verdicts = calls(&engine, 200).await;
    }
    server.pause();
    let verdicts = calls(&engine, 10).await;
    let first = verdicts.first().expect("ten");
    assert!(first.is_allowed() && first.source == Source::Lease, "{first:?}");
    // It is over when it is over.
    until("the rule's own answer", async || {
        calls(&engine, 10).await.iter().all(|one| one.source == Source::Fallback(OnOutage::Deny))
    })
    .await;
    server.resume();
    until("the store's answer", async || {
        calls(&engine, 1).await.iter().all(|one| one.source == Source::Store || one.source == Source::Lease)
    })
    .await;
}
