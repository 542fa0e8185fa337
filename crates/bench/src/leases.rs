//! What leases are worth on one hot key, and how near to the limit they keep.
//!
//! Eight engines with a connection each, on two threads, ask one Redis for one key. With the limit above
//! demand each keeps 32 asks under way and asks as fast as it is answered, with leases and without by turns.
//! At ten times the limit asks are paced, and what was admitted stands beside what the limit allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use testkit::{RedisServer, unique_prefix};
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Ask, By, Cost, Engine, Kind, MemoryStore, Policy, Rate, Rule, Want, clock};
use tollgate_core::policy::Lease;
use tollgate_core::store::Store;

use crate::measure::{median, micros_each};

const THREADS: usize = 2;
const INSTANCES: usize = 8;
/// Asks that an instance has under way.
const TOGETHER: usize = 32;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
const DRAINED: Duration = Duration::from_secs(20);
/// Whatever an ask waits for, others get their turn after so many.
const TURN: u64 = 32;
/// Checks of one round that are decided here.
const HERE: u64 = 1_000_000;

/// Runs all of it.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        here().await?;
        above_demand().await?;
        drained().await
    })
}

/// What some asks came to.
#[derive(Debug, Clone, Copy)]
struct Figures {
    /// Per second.
    admitted: f64,
    /// Of Redis, per ask.
    cpu_micros: f64,
    /// Of the instances, per ask: what else the machine is busy with does not change it.
    own_micros: f64,
    /// To Redis, per second and instance.
    calls: f64,
}

/// What a check takes of the engine's time while tokens are held here, beside one that memory decides.
async fn here() -> Result<()> {
    println!("\n### A check that is decided here, one thread (median of {ROUNDS} rounds)\n");
    println!("| | ns |\n|---|---|");
    for (name, lease) in [("decided by the store in memory", None), ("on a lease", Some(Lease::Auto))] {
        let limit = Algorithm::try_new(Kind::TokenBucket, Rate::parse("400000000/s")?, None, 0)?;
        let rule = Rule::builder("api").limits(vec![limit]);
        let rule = if let Some(lease) = lease { rule.lease(lease) } else { rule };
        let policy = Policy::try_new(1, vec![rule.build()?])?;
        let engine = Engine::builder(MemoryStore::new()).policy(policy).build();
        let mut rounds = Vec::new();
        for _ in 0..=ROUNDS {
            let started = clock::instant();
            for turn in 0..HERE {
                ask(&engine).await;
                if turn % 1024 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            rounds.push(micros_each(started.elapsed(), HERE) * 1000.0);
        }
        println!("| {name} | {:.0} |", median(rounds.into_iter().skip(1)));
    }
    Ok(())
}

async fn above_demand() -> Result<()> {
    println!(
        "\n### One hot key, the limit above demand ({INSTANCES} instances, {TOGETHER} asks under way in each, {ROUNDS} rounds of {} s by turns, median)\n",
        ROUND.as_secs()
    );
    println!(
        "| limit | lease | admitted per s | × without | Redis CPU per check, µs | the instances', µs | calls per s and instance |"
    );
    println!("|---|---|---|---|---|---|---|");
    let within = Lease::Within { max: 50, time: tollgate::Micros::from_millis(100) };
    for (kind, rate, leases) in [
        (Kind::TokenBucket, "400000000/s", &[Some(Lease::Auto), Some(within)][..]),
        (Kind::SlidingWindow, "4000000000/min", &[Some(Lease::Auto)]),
        (Kind::FixedWindow, "4000000000/min", &[Some(Lease::Auto)]),
    ] {
        let ways: Vec<Option<Lease>> = [None].into_iter().chain(leases.iter().copied()).collect();
        let mut rounds: Vec<Vec<Figures>> = vec![Vec::new(); ways.len()];
        for round in 0..ROUNDS {
            for turn in 0..ways.len() {
                let at = (turn + round) % ways.len();
                rounds[at].push(hot(kind, rate, ways[at]).await?);
            }
        }
        let middle = |rounds: &[Figures]| Figures {
            admitted: median(rounds.iter().map(|one| one.admitted)),
            cpu_micros: median(rounds.iter().map(|one| one.cpu_micros)),
            own_micros: median(rounds.iter().map(|one| one.own_micros)),
            calls: median(rounds.iter().map(|one| one.calls)),
        };
        let without = middle(&rounds[0]);
        for (way, rounds) in ways.iter().zip(&rounds) {
            let Figures { admitted, cpu_micros, own_micros, calls } = middle(rounds);
            let times = admitted / without.admitted;
            let way = match way {
                None => "none".to_owned(),
                Some(Lease::Auto) => "auto".to_owned(),
                Some(Lease::Within { max, time }) => format!("max {max} for {time}"),
            };
            println!(
                "| {kind} | {way} | {admitted:.0} | {times:.1} | {cpu_micros:.4} | {own_micros:.3} | {calls:.0} |"
            );
        }
    }
    Ok(())
}

async fn drained() -> Result<()> {
    println!(
        "\n### One hot key, ten times the demand ({INSTANCES} instances, paced, {} s)\n",
        DRAINED.as_secs()
    );
    println!("| limit | admitted | of what the limit allows, % | calls to Redis per s and instance |");
    println!("|---|---|---|---|");
    for (kind, rate, per_second) in [
        (Kind::TokenBucket, "10000/s", 10_000),
        (Kind::SlidingWindow, "10000/s", 10_000),
        (Kind::FixedWindow, "10000/s", 10_000),
        (Kind::SlidingLog, "10000/10s", 1_000),
    ] {
        let server = RedisServer::start().await;
        let fleet = Fleet::new(&server, kind, rate, Some(Lease::Auto))?;
        // Full windows only, after a first one that every limit may admit at once.
        let lead = if kind == Kind::SlidingLog { Duration::from_secs(20) } else { Duration::from_secs(2) };
        let (admitted, calls) = fleet.paced(10 * per_second, lead, DRAINED, &server).await?;
        let allowed = per_second * DRAINED.as_secs();
        let calls = calls / DRAINED.as_secs() / INSTANCES as u64;
        println!("| {kind} {rate} | {admitted} | {} | {calls} |", percent(admitted, allowed));
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts of asks are far below 2^52")]
fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}", part as f64 * 100.0 / whole as f64)
}

/// As many as can be had.
#[expect(clippy::cast_precision_loss, reason = "counts of asks are far below 2^52")]
async fn hot(kind: Kind, rate: &'static str, lease: Option<Lease>) -> Result<Figures> {
    let server = RedisServer::start().await;
    let fleet = Fleet::new(&server, kind, rate, lease)?;
    let threads = fleet.start(None);
    // Estimates settle first.
    tokio::time::sleep(ROUND / 2).await;
    let before = (fleet.admitted(), server.cpu_time(), calls(&server).await?, clock::instant(), cpu_time());
    tokio::time::sleep(ROUND).await;
    let (admitted, cpu, made) = (
        fleet.admitted() - before.0,
        server.cpu_time().saturating_sub(before.1),
        calls(&server).await? - before.2,
    );
    let (elapsed, own) = (before.3.elapsed().as_secs_f64(), cpu_time().saturating_sub(before.4));
    fleet.stop(threads)?;
    Ok(Figures {
        admitted: admitted as f64 / elapsed,
        cpu_micros: micros_each(cpu, admitted),
        own_micros: micros_each(own, admitted),
        calls: made as f64 / elapsed / INSTANCES as f64,
    })
}

/// What this process has used of the processor.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Calls of our scripts.
async fn calls(server: &RedisServer) -> Result<u64> {
    let info = server.admin().await.command(&["INFO", "commandstats"]).await?.text();
    let mut calls = 0;
    for command in ["cmdstat_fcall:", "cmdstat_evalsha:"] {
        let Some(line) = info.lines().find_map(|line| line.strip_prefix(command)) else { continue };
        let count = line.split(',').find_map(|part| part.strip_prefix("calls=")).context("no calls")?;
        calls += count.parse::<u64>()?;
    }
    Ok(calls)
}

/// Eight instances, and what they count.
struct Fleet {
    url: String,
    prefix: String,
    rule: Rule,
    counted: Arc<Counted>,
}

#[derive(Default)]
struct Counted {
    admitted: [AtomicU64; INSTANCES],
    is_over: AtomicBool,
}

type Threads = Vec<std::thread::JoinHandle<Result<()>>>;

impl Fleet {
    fn new(server: &RedisServer, kind: Kind, rate: &str, lease: Option<Lease>) -> Result<Fleet> {
        let limit = Algorithm::try_new(kind, Rate::parse(rate)?, None, 10_000)?;
        let rule = Rule::builder("api").limits(vec![limit]);
        let rule = match lease {
            Some(lease) => rule.lease(lease),
            None => rule,
        };
        let (url, prefix) = (server.url(), unique_prefix());
        Ok(Fleet { url, prefix, rule: rule.build()?, counted: Arc::default() })
    }

    fn admitted(&self) -> u64 {
        self.counted.admitted.iter().map(|one| one.load(Ordering::Relaxed)).sum()
    }

    /// Asks as fast as is answered, or so often a second all together.
    fn start(&self, per_second: Option<u64>) -> Threads {
        let thread = |at: usize| {
            let (url, prefix, rule) = (self.url.clone(), self.prefix.clone(), self.rule.clone());
            let counted = Arc::clone(&self.counted);
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async {
                    let mut tasks = Vec::new();
                    for instance in (at..INSTANCES).step_by(THREADS) {
                        let engine = engine(&url, &prefix, &rule)?;
                        let asking = if per_second.is_some() { 1 } else { TOGETHER };
                        for _ in 0..asking {
                            let (engine, counted) = (engine.clone(), Arc::clone(&counted));
                            tasks.push(tokio::spawn(async move {
                                match per_second {
                                    None => at_once(&engine, &counted, instance).await,
                                    Some(rate) => {
                                        paced(&engine, &counted, instance, rate / INSTANCES as u64).await;
                                    }
                                }
                            }));
                        }
                    }
                    for task in tasks {
                        task.await?;
                    }
                    Ok(())
                })
            })
        };
        (0..THREADS).map(thread).collect()
    }

    fn stop(&self, threads: Threads) -> Result<()> {
        self.counted.is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a thread of the fleet fell"))??;
        }
        Ok(())
    }

    /// So many asks a second; what was admitted in `span`, `lead` after the start, and what Redis was called.
    async fn paced(
        &self,
        per_second: u64,
        lead: Duration,
        span: Duration,
        server: &RedisServer,
    ) -> Result<(u64, u64)> {
        let threads = self.start(Some(per_second));
        tokio::time::sleep(lead).await;
        let (admitted, made) = (self.admitted(), calls(server).await?);
        tokio::time::sleep(span).await;
        let answer = (self.admitted() - admitted, calls(server).await? - made);
        self.stop(threads)?;
        Ok(answer)
    }
}

fn engine(url: &str, prefix: &str, rule: &Rule) -> Result<Engine<RedisStore>> {
    let mut config = RedisConfig::new(RedisUrl::parse(url)?);
    prefix.clone_into(&mut config.key_prefix);
    config.read_timeout = Duration::from_secs(5); // a busy machine is no outage
    Ok(Engine::builder(RedisStore::new(config)?)
        .policy(Policy::try_new(1, vec![rule.clone()])?)
        .deadline(Duration::from_secs(5))
        .build())
}

async fn ask<S: Store>(engine: &Engine<S>) -> bool {
    let want = Want { by: By::Rule("api"), key: b"everybody", cost: Cost::ONE, takes: &[] };
    engine.decide(&Ask { wants: &[want] }).await.is_allowed()
}

async fn at_once(engine: &Engine<RedisStore>, counted: &Counted, instance: usize) {
    while !counted.is_over.load(Ordering::Relaxed) {
        let mut admitted = 0;
        for _ in 0..TURN {
            admitted += u64::from(ask(engine).await);
        }
        counted.admitted[instance].fetch_add(admitted, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
}

async fn paced(engine: &Engine<RedisStore>, counted: &Counted, instance: usize, per_second: u64) {
    let (started, mut made) = (clock::instant(), 0);
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    while !counted.is_over.load(Ordering::Relaxed) {
        tick.tick().await;
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(0);
        let due = micros * per_second / 1_000_000;
        for _ in made..due {
            let is_allowed = ask(engine).await;
            counted.admitted[instance].fetch_add(u64::from(is_allowed), Ordering::Relaxed);
        }
        made = due;
    }
}
