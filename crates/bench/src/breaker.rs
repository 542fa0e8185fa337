//! What a breaker costs each call, beside those of others, and what a report costs Redis.
//!
//! The others know of one process alone; ours tells the fleet meanwhile, in the background and on a Redis of
//! its own. All take turns in short rounds, and the median of the rounds counts. One thread is measured by
//! its own processor time.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anyhow::{Context as _, Result};
use failsafe::CircuitBreaker as _;
use recloser::Recloser;
use rustix::time::{ClockId, clock_gettime};
use testkit::RedisServer;
use tollgate::breaker::{Breakers, Decree, Handle};
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate_core::breaker::{Breaker, Counts, Event, Fleet, Health, Mode, Permille, Report, Settings};
use tower::{Service, service_fn};
use tower_resilience_circuitbreaker::CircuitBreakerLayer;

use crate::measure::median;

const ROUNDS: usize = 301;
const CALLS: u32 = 10_000;
const REPORTS: u64 = 20_000;

/// Runs all of it.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server = runtime.block_on(RedisServer::start());
    let store = {
        let mut config = RedisConfig::new(RedisUrl::parse(&server.url())?);
        config.read_timeout = Duration::from_secs(20);
        Arc::new(RedisStore::new(config)?)
    };
    let behaviour = || Breaker::try_new(Settings::default()).ok().context("the defaults are fine");
    let timed = Breaker::try_new(Settings { slow_ratio: Some(Permille(500)), ..Settings::default() })
        .ok()
        .context("settings that can be")?;
    let _entered = runtime.enter();
    let breakers = Breakers::start(Arc::clone(&store), behaviour()?);
    let timing = Breakers::start(Arc::clone(&store), timed);
    let (closed, open) = (breakers.handle(b"closed")?, breakers.handle(b"open")?);
    let slow = timing.handle(b"slow")?;
    runtime.block_on(async {
        let decree = Decree {
            mode: Mode::ForcedOpen,
            keep_for: Duration::from_hours(1),
            reason: String::new(),
            who: String::new(),
        };
        breakers.overrule(b"open", decree).await?;
        for handle in [&closed, &open, &slow] {
            let _ = handle.permit().await.map(tollgate::breaker::Permit::success);
        }
        anyhow::Ok(())
    })?;
    times(&closed, &open, &slow);
    runtime.block_on(reports(&server, &store, &behaviour()?))
}

type Ours = Handle<RedisStore>;

/// Whose breaker, and one call through it.
type Subject<'a> = (&'a str, Box<dyn FnMut() + 'a>);

fn times(closed: &Ours, open: &Ours, slow: &Ours) {
    let failsafe = failsafe::Config::new().build();
    let recloser = Recloser::custom().build();
    let layer = CircuitBreakerLayer::builder().name("bench").build().expect("the defaults are fine");
    let mut tower = layer.layer_fn(service_fn(|()| std::future::ready(Ok::<(), ()>(()))));
    let mut subjects: Vec<Subject<'_>> = vec![
        (
            "tollgate, Closed: permit and success",
            Box::new(|| ready(closed.permit()).expect("closed").success()),
        ),
        (
            "tollgate, Closed, slow calls noticed",
            Box::new(|| ready(slow.permit()).expect("closed").success()),
        ),
        ("tollgate, Open: refused", Box::new(|| assert!(ready(open.permit()).is_err(), "open"))),
        ("failsafe 1.3, closed", Box::new(|| failsafe.call(|| Ok::<(), ()>(())).expect("closed"))),
        ("recloser 1.4, closed", Box::new(|| drop(black_box(recloser.call(|| Ok::<(), ()>(())))))),
        (
            "tower-resilience 0.14, closed, a whole service",
            Box::new(move || {
                let mut context = Context::from_waker(Waker::noop());
                let _ = <_ as Service<()>>::poll_ready(&mut tower, &mut context);
                assert!(ready(tower.call(())).is_ok(), "closed");
            }),
        ),
    ];
    let mut figures: Vec<Vec<f64>> = vec![Vec::new(); subjects.len()];
    for _ in 0..ROUNDS {
        for ((_, subject), figures) in subjects.iter_mut().zip(&mut figures) {
            let began = processor_time();
            for _ in 0..CALLS {
                subject();
            }
            figures.push(processor_time().saturating_sub(began).as_secs_f64() * 1e9 / f64::from(CALLS));
        }
    }
    println!(
        "| ns per call, one thread, median of {ROUNDS} rounds of {CALLS} calls by turns | ns |\n|---|---|"
    );
    for ((name, _), figures) in subjects.iter().zip(figures) {
        println!("| {name} | {:.0} |", median(figures.into_iter()));
    }
    println!();
}

/// What is ready at the first poll, as all of these are.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("it waits for somebody"),
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What one report costs Redis while all is well, by its own account.
async fn reports(server: &RedisServer, store: &RedisStore, breaker: &Breaker) -> Result<()> {
    println!(
        "| Redis CPU per event (`INFO commandstats`, {REPORTS} calls of 20 instances) | µs |\n|---|---|"
    );
    for name in ["report, 100 calls, all well", "look"] {
        let epoch = store.step(b"reports", breaker, &Event::Look, Permille(0)).await?.view.epoch;
        server.command(&["CONFIG", "RESETSTAT"]).await;
        for at in 0..REPORTS {
            let (counts, health) = (Counts { ok: 99, failed: 1, slow: 0 }, Health::Well);
            let report = Report { reporter: at % 20, epoch, counts, health, hint: None };
            let event = if name == "look" { Event::Look } else { Event::Report(report) };
            store.step(b"reports", breaker, &event, Permille(0)).await?;
        }
        let info = server.command(&["INFO", "commandstats"]).await.text();
        let line = info.lines().find(|line| line.starts_with("cmdstat_fcall:")).context("it was called")?;
        let each =
            line.split(',').find_map(|part| part.strip_prefix("usec_per_call=")).context("a figure")?;
        println!("| {name} | {each} |");
    }
    println!();
    Ok(())
}
