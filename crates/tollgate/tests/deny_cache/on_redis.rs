//! On a real Redis, between two instances: what a flood costs it, and when a refund is seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use testkit::{RedisServer, eventually, unique_prefix};
use tollgate::core::decision::Take;
use tollgate::core::store::Store;
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{
    Algorithm, Ask, By, Cost, Engine, InlineLimit, Kind, OnOutage, Policy, Rate, Rule, Source, Verdict, Want,
    clock,
};

/// The longest that an eased key may stay refused where nobody told of it.
const UNHEARD_MAX: Duration = Duration::from_secs(1);

/// As good as at once, even on a busy machine.
const AT_ONCE: Duration = Duration::from_millis(500);

fn limit(kind: Kind, rate: &str) -> InlineLimit {
    let rate = Rate::parse(rate).expect("a rate");
    InlineLimit::new(Algorithm::try_new(kind, rate, None, 1000).expect("a limit"), rate.period())
}

fn instance(url: &str, prefix: &str) -> Engine<RedisStore> {
    let mut config = RedisConfig::new(RedisUrl::parse(url).expect("a URL of a test's"));
    prefix.clone_into(&mut config.key_prefix);
    // A machine busy with other tests must not fail these.
    config.read_timeout = Duration::from_secs(10);
    let store = RedisStore::new(config).expect("no TLS to go wrong");
    Engine::builder(store).deadline(Duration::from_secs(5)).build()
}

/// Two instances on one Redis, both of which hear pushes.
async fn two(server: &RedisServer) -> [Engine<RedisStore>; 2] {
    let prefix = unique_prefix();
    let both = [instance(&server.url(), &prefix), instance(&server.url(), &prefix)];
    for one in &both {
        eventually("it listens", || one.store().stats().listening).await;
    }
    both
}

/// Two instances of a user that is allowed no channel.
async fn two_deaf(server: &RedisServer) -> [Engine<RedisStore>; 2] {
    server.command(&["ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all"]).await;
    let (url, prefix) = (format!("redis://deaf:secret@{}", server.address()), unique_prefix());
    [instance(&url, &prefix), instance(&url, &prefix)]
}

async fn decide(engine: &Engine<RedisStore>, limit: &InlineLimit) -> Verdict {
    engine.check("ann", limit).await
}

/// Drains the key and has these instances remember that; says what was taken last.
async fn drained(instances: &[Engine<RedisStore>], limit: &InlineLimit) -> Option<Take> {
    let mut last = None;
    for engine in instances {
        loop {
            let verdict = decide(engine, limit).await;
            if !verdict.is_allowed() {
                assert_eq!(verdict.source, Source::Store);
                break;
            }
            last = Some(verdict.checks[0].decision.take);
        }
        assert_eq!(decide(engine, limit).await.source, Source::DenyCache);
    }
    last
}

async fn refund(engine: &Engine<RedisStore>, limit: &InlineLimit, take: Option<Take>) {
    let take = take.expect("something passed");
    let want = Want { by: By::Inline(limit), key: b"ann", cost: Cost::ONE, takes: &[take] };
    let answer = engine.refund(&Ask { wants: &[want] }).await;
    assert!(matches!(answer, tollgate::core::verdict::RefundAnswer::Done(_)), "{answer:?}");
}

async fn forget(engine: &Engine<RedisStore>, limit: &InlineLimit) {
    let want = Want { by: By::Inline(limit), key: b"ann", cost: Cost::ONE, takes: &[] };
    engine.forget(&Ask { wants: &[want] }).await.expect("it is forgotten");
}

/// Asks an instance until it lets an eased key pass. How long after the easing the last ask began that was refused: an ask says
/// nothing about what happens while it is under way, however long a busy machine makes that.
async fn last_refused(engine: &Engine<RedisStore>, limit: &InlineLimit) -> Duration {
    let eased = clock::instant();
    let mut last = Duration::ZERO;
    loop {
        let began = eased.elapsed();
        let verdict = decide(engine, limit).await;
        if verdict.is_allowed() {
            return last;
        }
        assert_eq!(verdict.source, Source::DenyCache, "Redis would let it pass");
        last = began;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// What the original hides until its window ends (envoyproxy/ratelimit).
#[tokio::test]
async fn a_refund_is_seen_by_all_at_once() {
    let server = RedisServer::start().await;
    let both = two(&server).await;
    for kind in [Kind::FixedWindow, Kind::TokenBucket, Kind::SlidingLog, Kind::SlidingWindow] {
        let limit = limit(kind, "3/h");
        let mut seen = [Vec::new(), Vec::new()];
        // The best of three: a machine that stands still for a moment is not what this is about.
        for round in 0..3 {
            let (one, other) = (&both[round % 2], &both[1 - round % 2]);
            let take = drained(&both, &limit).await;
            refund(one, &limit, take).await;
            seen[0].push(last_refused(other, &limit).await);
            forget(one, &limit).await;
            seen[1].push(last_refused(other, &limit).await);
            forget(one, &limit).await;
            let forgotten = |one: &Engine<RedisStore>| one.deny_cache().expect("it is on").entries() == 0;
            eventually("it is heard", || both.iter().all(forgotten)).await;
        }
        for seen in seen {
            assert!(seen.iter().min() < Some(&AT_ONCE), "{kind}: seen after {seen:?}");
        }
    }
}

#[tokio::test]
async fn the_instance_that_refunds_sees_it_at_once_whatever_becomes_of_the_push() {
    let server = RedisServer::start().await;
    let both = two_deaf(&server).await;
    let limit = limit(Kind::FixedWindow, "3/h");
    let take = drained(&both, &limit).await;
    refund(&both[0], &limit, take).await;
    assert!(decide(&both[0], &limit).await.is_allowed());
    drained(&both[..1], &limit).await;
    forget(&both[0], &limit).await;
    assert!(decide(&both[0], &limit).await.is_allowed());
}

#[tokio::test]
async fn a_refund_whose_push_is_lost_is_seen_within_a_second() {
    let server = RedisServer::start().await;
    let both = two_deaf(&server).await;
    let mut hidden = 0;
    for kind in [Kind::FixedWindow, Kind::TokenBucket, Kind::SlidingLog, Kind::SlidingWindow] {
        let limit = limit(kind, "3/h");
        let take = drained(&both, &limit).await;
        refund(&both[0], &limit, take).await;
        let seen = last_refused(&both[1], &limit).await;
        assert!(seen < UNHEARD_MAX, "{kind}: refused after {seen:?}");

        drained(&both, &limit).await;
        forget(&both[0], &limit).await;
        let seen = last_refused(&both[1], &limit).await;
        assert!(seen < UNHEARD_MAX, "{kind}: reset, and refused after {seen:?}");
        hidden += u32::from(!seen.is_zero());
    }
    assert!(hidden > 0, "nobody told it, and it knew");
}

/// The connection that hears pushes is gone when the refund comes, and what was missed is not believed any longer.
#[tokio::test]
async fn a_refund_is_seen_when_a_killed_connection_hears_again() {
    let server = RedisServer::start().await;
    let both = two(&server).await;
    let limit = limit(Kind::FixedWindow, "3/h");
    let take = drained(&both, &limit).await;
    let mut admin = server.admin().await;
    admin.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.expect("an administrator may");
    refund(&both[0], &limit, take).await;
    let seen = last_refused(&both[1], &limit).await;
    assert!(seen < UNHEARD_MAX, "refused after {seen:?}");
}

#[tokio::test]
async fn a_raised_limit_holds_at_once_where_it_was_raised() {
    let server = RedisServer::start().await;
    let both = two(&server).await;
    let rules = |rate: &str| {
        let rate = Rate::parse(rate).expect("a rate");
        let limit = Algorithm::try_new(Kind::FixedWindow, rate, None, 0).expect("a limit");
        Policy::try_new(1, vec![Rule::try_new("api", vec![limit], Some(OnOutage::Deny)).expect("a rule")])
            .expect("a policy")
    };
    let ask = async |engine: &Engine<RedisStore>| {
        let want = Want { by: By::Rule("api"), key: b"ann", cost: Cost::ONE, takes: &[] };
        engine.decide(&Ask { wants: &[want] }).await
    };
    for engine in &both {
        engine.swap_policy(&rules("3/h"));
        while ask(engine).await.is_allowed() {}
        assert_eq!(ask(engine).await.source, Source::DenyCache);
    }
    both[0].swap_policy(&rules("4/h"));
    assert!(ask(&both[0]).await.is_allowed());
    assert!(!ask(&both[1]).await.is_allowed(), "it has not been told of the new limit");
    both[1].swap_policy(&rules("5/h"));
    assert!(ask(&both[1]).await.is_allowed());
}

/// Calls of functions and scripts since the statistics were reset; heartbeats are among them.
async fn calls(server: &RedisServer) -> u64 {
    let info = server.command(&["INFO", "commandstats"]).await.text();
    let of = |command: &str| {
        let start = format!("cmdstat_{command}:calls=");
        let line = info.lines().find_map(|line| line.strip_prefix(&start))?;
        line.split(',').next()?.parse::<u64>().ok()
    };
    of("fcall").unwrap_or(0) + of("evalsha").unwrap_or(0)
}

/// Sixty-four at a time, for two seconds, on one drained key: one call a second, beside the heartbeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_on_a_drained_key_costs_redis_one_call_a_second() {
    const SECONDS: u64 = 2;
    for kind in Kind::ALL {
        // One each: what an instance has yet to say as it goes is no call of the next one's.
        let server = RedisServer::start().await;
        let engine = instance(&server.url(), &unique_prefix());
        let limit = Arc::new(limit(kind, "3/h"));
        while decide(&engine, &limit).await.is_allowed() {}
        server.command(&["CONFIG", "RESETSTAT"]).await;
        let started = clock::instant();
        let (asked, until) = (Arc::new(AtomicU64::new(0)), started + Duration::from_secs(SECONDS));
        let flood = (0..64).map(|_| {
            let (engine, limit, asked) = (engine.clone(), Arc::clone(&limit), Arc::clone(&asked));
            tokio::spawn(async move {
                while clock::instant() < until {
                    for _ in 0..64 {
                        assert!(!decide(&engine, &limit).await.is_allowed());
                    }
                    asked.fetch_add(64, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            })
        });
        for one in flood.collect::<Vec<_>>() {
            one.await.expect("joins");
        }
        let beats = calls_of_heartbeats(&server, &engine).await;
        let (calls, asked) = (calls(&server).await - beats, asked.load(Ordering::Relaxed));
        let seconds = started.elapsed().as_secs();
        println!("{kind}: {asked} checks in {seconds} s, {calls} calls");
        assert!(asked > 10_000, "{kind}: no flood: {asked}");
        assert!(calls <= seconds + 1, "{kind}: {calls} calls for {asked} checks in {seconds} s");
        drop(engine);
    }
}

/// Heartbeats are calls as well, and each writes the instance into one sorted set.
async fn calls_of_heartbeats(server: &RedisServer, engine: &Engine<RedisStore>) -> u64 {
    engine.store().heartbeat().await.expect("it answers");
    let info = server.command(&["INFO", "commandstats"]).await.text();
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_zadd:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Real clocks on both ends: what Redis would let pass a moment before is not refused from memory.
#[tokio::test]
async fn what_redis_would_allow_is_not_refused_from_memory() {
    let server = RedisServer::start().await;
    let engine = instance(&server.url(), &unique_prefix());
    let mut from_memory = 0;
    for kind in Kind::ALL {
        let limit = limit(kind, "20/s");
        let until = clock::instant() + Duration::from_secs(2);
        while clock::instant() < until {
            let want = Want { by: By::Inline(&limit), key: b"ann", cost: Cost::ONE, takes: &[] };
            let ask = Ask { wants: &[want] };
            let before = engine.peek(&ask).await;
            let verdict = engine.decide(&ask).await;
            if verdict.source == Source::DenyCache {
                from_memory += 1;
                assert!(!before.is_allowed(), "{kind}: {before:?} {verdict:?}");
            }
        }
    }
    assert!(from_memory > 100, "{from_memory}");
}

#[tokio::test]
async fn whoever_waits_passes_when_there_is_something_to_be_had() {
    let server = RedisServer::start().await;
    let engine = instance(&server.url(), &unique_prefix());
    let limit = limit(Kind::TokenBucket, "10/s");
    while decide(&engine, &limit).await.is_allowed() {}
    let want = Want { by: By::Inline(&limit), key: b"ann", cost: Cost::ONE, takes: &[] };
    for _ in 0..5 {
        let started = clock::instant();
        let verdict = engine.wait(&Ask { wants: &[want] }, Duration::from_secs(5)).await;
        assert!(
            verdict.is_allowed() && started.elapsed() < Duration::from_millis(500),
            "{:?}",
            started.elapsed()
        );
    }
}
