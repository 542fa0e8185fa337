//! What a call costs Redis: nothing, while Closed and while Open.

use std::sync::Arc;
use std::time::Duration;

use testkit::{RedisServer, unique_prefix};
use tollgate::Micros;
use tollgate::breaker::{Breakers, Decree, Handle};
use tollgate::clock;
use tollgate::core::breaker::{
    Answer, Breaker, Counts, Event, Fleet as _, Health, Mode, Permille, Report, Settings, Window,
};
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};

use crate::scene::until;

/// Leaves asked for in each state.
const PERMITS: u32 = 100_000;

fn store(server: &RedisServer, prefix: &str) -> RedisStore {
    let mut config = RedisConfig::new(RedisUrl::parse(&server.url()).expect("a URL of testkit's"));
    prefix.clone_into(&mut config.key_prefix);
    RedisStore::new(config).expect("no TLS to go wrong")
}

fn instance(server: &RedisServer, prefix: &str) -> Breakers<RedisStore> {
    let breaker = Breaker::try_new(Settings::default()).expect("the default");
    Breakers::start(Arc::new(store(server, prefix)), breaker)
}

/// Calls of each command, and what they took, in microseconds.
async fn commands(server: &RedisServer) -> Vec<(String, u64, u64)> {
    let info = server.command(&["INFO", "commandstats"]).await.text();
    let of = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let number = |field: &str| {
            let value = rest.split(',').find_map(|part| part.strip_prefix(field)?.strip_prefix('='))?;
            value.parse::<u64>().ok()
        };
        Some((name.to_owned(), number("calls")?, number("usec")?))
    };
    info.lines().filter_map(of).collect()
}

/// Calls of functions: all that a breaker ever asks.
async fn asked(server: &RedisServer) -> u64 {
    commands(server).await.iter().find(|(name, ..)| name == "fcall").map_or(0, |(_, calls, _)| *calls)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_calls_while_closed_and_while_open_ask_redis_nothing() {
    let (server, prefix) = (RedisServer::start().await, unique_prefix());
    let instance = instance(&server, &prefix);
    let payments = instance.handle(b"payments").expect("there is room");
    until("the fleet is heard of", async || payments.permit().await.is_ok() && payments.is_shared()).await;
    // The beginning of an epoch is told of ten times a second.
    calls(&payments, 0, Duration::from_millis(1600)).await;
    for (state, mode) in [("Closed", None), ("Open", Some(Mode::ForcedOpen))] {
        if let Some(mode) = mode {
            let keep_for = Duration::from_mins(10);
            let decree = Decree { mode, keep_for, reason: "a drill".into(), who: "ann".into() };
            instance.overrule(b"payments", decree).await.expect("it answers");
        }
        let (began, before) = (clock::instant(), asked(&server).await);
        let made = calls(&payments, PERMITS, Duration::from_secs(2)).await;
        let (took, asked) = (began.elapsed(), asked(&server).await - before);
        println!("cost: {made} permits while {state} in {took:.2?}: {asked} calls of Redis");
        // A report or a look each second; one that was under way, and one that came due.
        let most = 2 + took.as_secs();
        assert!((1..=most).contains(&asked), "{asked} calls of Redis in {took:?}");
    }
}

/// So many calls at least, for so long at least, all of which go well; how many.
async fn calls(payments: &Handle<RedisStore>, least: u32, span: Duration) -> u32 {
    let (began, mut made) = (clock::instant(), 0);
    while made < least || began.elapsed() < span {
        for _ in 0..1000 {
            if let Ok(permit) = payments.permit().await {
                permit.success();
            }
        }
        made += 1000;
        tokio::task::yield_now().await;
    }
    made
}

/// What a report costs Redis: fifty reporters with calls of a hundred breakers, in turn.
pub(crate) async fn reporting(health: Health) {
    let (server, prefix) = (RedisServer::start().await, unique_prefix());
    let store = Arc::new(store(&server, &prefix));
    // A run of failures is the one rule, and nobody has one: what is troubled stays troubled.
    let window = Window::Time(Micros::SECOND);
    let settings =
        Settings { failure_ratio: None, slow_ratio: Some(Permille(1000)), window, ..Settings::default() };
    let breaker = Breaker::try_new(settings).expect("settings of a test's");
    let mut epochs = Vec::new();
    for id in 0..100_u32 {
        let step = store.step(&id.to_be_bytes(), &breaker, &Event::Look, Permille(0)).await;
        epochs.push(step.expect("it answers").view.epoch);
    }
    let counts = match health {
        Health::Well => Counts { ok: 20, failed: 0, slow: 0 },
        Health::Troubled | Health::Failing => Counts { ok: 10, failed: 5, slow: 5 },
    };
    let (before, cpu) = (spent(&server).await, server.cpu_time());
    for _ in 0..8 {
        for reporter in 0..50 {
            let reports =
                (0..100_u32).zip(&epochs).map(|(id, epoch)| {
                    let report = Report { reporter, epoch: *epoch, counts, health, hint: None };
                    let (store, breaker) = (Arc::clone(&store), breaker.clone());
                    async move {
                        store.step(&id.to_be_bytes(), &breaker, &Event::Report(report), Permille(0)).await
                    }
                });
            for step in testkit::together(reports).await {
                assert_eq!(step.expect("it answers").answer, Answer::Done);
            }
        }
    }
    let ((calls, usec), cpu) = (spent(&server).await, server.cpu_time().saturating_sub(cpu));
    let (calls, usec) = (float(calls - before.0), float(usec - before.1));
    println!(
        "cost: reports, {health:?}: {calls} of them, {:.1} us each in scripts, {:.1} us of processor in all",
        usec / calls,
        cpu.as_secs_f64() * 1e6 / calls
    );
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn float(number: u64) -> f64 {
    number as f64
}

async fn spent(server: &RedisServer) -> (u64, u64) {
    let commands = commands(server).await;
    commands.iter().find(|(name, ..)| name == "fcall").map_or((0, 0), |(_, calls, usec)| (*calls, *usec))
}

/// What a fleet of fifty with a hundred breakers each costs Redis, each called twenty times a second.
pub(crate) async fn fleet() {
    const INSTANCES: usize = 50;
    const BREAKERS: u32 = 100;
    let (server, prefix) = (RedisServer::start().await, unique_prefix());
    let instances: Vec<_> = (0..INSTANCES).map(|_| instance(&server, &prefix)).collect();
    let handles: Vec<_> = instances
        .iter()
        .flat_map(|instance| {
            (0..BREAKERS).map(|id| instance.handle(&id.to_be_bytes()).expect("there is room"))
        })
        .collect();
    let (mut began, mut before, mut calls) = (clock::instant(), (0, 0, Duration::ZERO), 0_u64);
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    for tick in 0..300 {
        ticks.tick().await;
        // Five seconds to begin with, and ten to measure.
        if tick == 100 {
            let (reports, usec) = spent(&server).await;
            (began, before, calls) = (clock::instant(), (reports, usec, server.cpu_time()), 0);
        }
        for handle in &handles {
            if let Ok(permit) = handle.permit().await {
                permit.success();
                calls += 1;
            }
        }
    }
    let (took, (reports, usec)) = (began.elapsed().as_secs_f64(), spent(&server).await);
    let (reports, usec) = (reports - before.0, usec - before.1);
    println!(
        "cost: {INSTANCES} instances with {BREAKERS} breakers each, {:.0} calls a second: {:.0} reports a second, {:.1} us \
         each in scripts; Redis used {:.1} ms of processor a second",
        float(calls) / took,
        float(reports) / took,
        float(usec) / float(reports),
        server.cpu_time().saturating_sub(before.2).as_secs_f64() * 1000.0 / took
    );
}
