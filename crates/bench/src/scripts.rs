//! What a check costs Redis, and how long it takes, beside what we would be replacing.
//!
//! Redis' own `INFO commandstats` says how long each `FCALL` or `EVALSHA` took inside Redis. Each of our
//! ways to ask meets the record's script alone, on a Redis of their own: the keys of others would only
//! crowd the caches. They take turns, whoever begins changes from round to round, and the median of the
//! rounds counts. One call at a time is what a check is; many at a time is what a busy connection sees.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use testkit::{RedisClient, RedisServer, together};
use tollgate::store::redis::{Layout, RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Ask, By, Cost, Engine, InlineLimit, Kind, Rate, Want};
use tollgate_core::check::Check;
use tollgate_core::key::{Key, Scope};
use tollgate_core::store::Store;

const KEYS: u32 = 10_000;
const ROUNDS: usize = 9;
const CALLS: usize = 4_000;
/// Calls that are under way at one time.
const TOGETHER: [usize; 2] = [1, 32];
const LATENCY_CALLS: usize = 20_000;

/// The script as decision record 000 prints it.
pub(crate) const RECORD: &str = include_str!("record_000.lua");

/// Runs all of it.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        cost().await?;
        latency().await
    })
}

/// Our own way to ask.
struct Ours {
    layout: Layout,
    functions: bool,
    kind: Kind,
    checks: usize,
    rate: &'static str,
    /// How many costs take turns, from one up.
    costs: u32,
}

impl Ours {
    fn new(layout: Layout, kind: Kind, checks: usize, rate: &'static str) -> Ours {
        Ours { layout, functions: true, kind, checks, rate, costs: 1 }
    }
}

impl Ours {
    fn name(&self) -> String {
        let Ours { layout, functions, kind, checks, rate, costs } = self;
        let plural = if *checks == 1 { "check" } else { "checks" };
        let way = if *functions { "" } else { ", by script" };
        let costs = if *costs == 1 { "" } else { ", costs by turns" };
        format!("{kind}, {}, {checks} {plural}, {rate}{costs}{way}", layout.name())
    }
}

async fn cost() -> Result<()> {
    let bucket = || Ours::new(Layout::Packed, Kind::TokenBucket, 1, "1000/min");
    let mut all = vec![
        bucket(),
        Ours { costs: 2, ..bucket() },
        Ours { functions: false, ..bucket() },
        Ours::new(Layout::Packed, Kind::TokenBucket, 1, "1000/s"),
        Ours::new(Layout::Packed, Kind::TokenBucket, 1, "1/h"),
        Ours::new(Layout::Packed, Kind::TokenBucket, 3, "1000/min"),
        Ours::new(Layout::Hash, Kind::TokenBucket, 1, "1000/min"),
        Ours::new(Layout::Hash, Kind::TokenBucket, 3, "1000/min"),
    ];
    let windows = [Kind::SlidingWindow, Kind::FixedWindow, Kind::SlidingLog];
    all.extend(windows.map(|kind| Ours::new(Layout::Packed, kind, 1, "1000/min")));
    println!(
        "\n### Redis CPU per call (`INFO commandstats`, {KEYS} keys, {ROUNDS} rounds of {CALLS} calls by turns, median)\n"
    );
    println!(
        "| ask | one at a time: µs | the record's | ratio | {} at a time: µs | the record's | ratio |",
        TOGETHER[1]
    );
    println!("|---|---|---|---|---|---|---|");
    for ours in all {
        let mut row = format!("| {} |", ours.name());
        for together in TOGETHER {
            let (own, record) = duel(&ours, together).await?;
            let _ = write!(row, " {own:.2} | {record:.2} | {:.2} |", own / record); // to a String: cannot fail
        }
        println!("{row}");
    }
    Ok(())
}

/// What a call of ours took, and one of the record's script, on a Redis of their own.
async fn duel(ours: &Ours, together: usize) -> Result<(f64, f64)> {
    let server = RedisServer::start().await;
    let mut admin = server.admin().await;
    let sha = admin.command(&["SCRIPT", "LOAD", RECORD]).await?.text();
    let (mut own, mut record) = (Vec::new(), Vec::new());
    // The first round creates the keys, visits them again, and is not counted.
    for round in 0..=ROUNDS {
        let calls = if round == 0 { 2 * KEYS as usize } else { CALLS };
        let mut order = [true, false];
        order.rotate_left(round % 2);
        for is_ours in order {
            admin.command(&["CONFIG", "RESETSTAT"]).await?;
            let figures = if is_ours {
                our_calls(&server, ours, round, calls, together).await?;
                &mut own
            } else {
                record_calls(&mut admin, &sha, round, calls, together).await?;
                &mut record
            };
            if round > 0 {
                figures.push(micros_per_call(&mut admin).await?);
            }
        }
    }
    Ok((median(&mut own), median(&mut record)))
}

fn key_of(round: usize, call: usize) -> u32 {
    if round == 0 { u32::try_from(call).unwrap_or(0) % KEYS } else { fastrand::u32(..KEYS) }
}

async fn record_calls(
    client: &mut RedisClient,
    sha: &str,
    round: usize,
    calls: usize,
    at_a_time: usize,
) -> Result<()> {
    let mut sent = 0;
    while sent < calls {
        let batch = at_a_time.min(calls - sent);
        for call in 0..batch {
            let key = format!("bucket:user:{}", key_of(round, sent + call));
            let now = tollgate::clock::wall().0 / 1000;
            client.send(&["EVALSHA", sha, "1", &key, "1", "1000", "17", &now.to_string()]).await?;
        }
        for _ in 0..batch {
            client.receive().await?;
        }
        sent += batch;
    }
    Ok(())
}

async fn our_calls(
    server: &RedisServer,
    ours: &Ours,
    round: usize,
    calls: usize,
    at_a_time: usize,
) -> Result<()> {
    let Ours { layout, functions, kind, checks, rate, costs } = *ours;
    let mut config = RedisConfig::new(RedisUrl::parse(&server.url())?);
    config.batch = false; // a call for each ask; what travels together has a benchmark of its own
    config.layout = layout;
    config.functions = functions;
    config.read_timeout = Duration::from_secs(5); // a busy machine is no outage
    let store = RedisStore::new(config)?;
    let algorithm = Algorithm::try_new(kind, Rate::parse(rate)?, None, 10_000)?;
    let scopes: Vec<Scope> = (0..checks).map(|limit| Scope::of_rule("api", limit, kind)).collect();
    let call = |call: usize| {
        let (store, algorithm, scopes) = (&store, &algorithm, &scopes);
        async move {
            let subject = format!("user:{}", key_of(round, call));
            let cost = Cost::new(1 + u32::try_from(call).unwrap_or(0) % costs).unwrap_or(Cost::ONE);
            let checks: Vec<Check<'_>> = scopes
                .iter()
                .map(|scope| Check { key: Key { scope, subject: subject.as_bytes() }, algorithm, cost })
                .collect();
            store.take(&checks).await
        }
    };
    let mut sent = 0;
    while sent < calls {
        let batch = at_a_time.min(calls - sent);
        let asks: Vec<_> = (sent..sent + batch).map(call).collect();
        for answer in together(asks).await {
            answer.context("a take failed")?;
        }
        sent += batch;
    }
    Ok(())
}

/// How long a call took in Redis, by whichever way it was called.
async fn micros_per_call(admin: &mut RedisClient) -> Result<f64> {
    let (calls, micros) = in_scripts(admin).await?;
    Ok(micros / calls)
}

/// Calls of scripts and functions since the statistics were reset, and the microseconds they took in Redis.
pub(crate) async fn in_scripts(admin: &mut RedisClient) -> Result<(f64, f64)> {
    let info = admin.command(&["INFO", "commandstats"]).await?.text();
    let (mut calls, mut micros) = (0.0, 0.0);
    for command in ["cmdstat_fcall:", "cmdstat_evalsha:"] {
        let Some(line) = info.lines().find_map(|line| line.strip_prefix(command)) else { continue };
        let field = |name: &str| -> Result<f64> {
            let text = line.split(',').find_map(|part| part.strip_prefix(name)).context("no such field")?;
            Ok(text.parse()?)
        };
        calls += field("calls=")?;
        micros += field("usec=")?;
    }
    anyhow::ensure!(calls > 0.0, "no call was counted");
    Ok((calls, micros))
}

/// How long a check takes beside a PING on the same connection, by turns.
async fn latency() -> Result<()> {
    let server = RedisServer::start().await;
    let store = RedisStore::new(RedisConfig::new(RedisUrl::parse(&server.url())?))?;
    let engine = Engine::builder(store).deadline(Duration::from_secs(1)).build();
    let rate = Rate::parse("1000/min")?;
    let limit = InlineLimit::new(Algorithm::try_new(Kind::TokenBucket, rate, None, 0)?, rate.period());
    let (mut pings, mut checks) = (Vec::new(), Vec::new());
    for call in 0..LATENCY_CALLS + 1000 {
        let began = tollgate::clock::instant();
        engine.store().ping().await?;
        let ping = began.elapsed();

        let subject = format!("user:{}", fastrand::u32(..KEYS));
        let began: Instant = tollgate::clock::instant();
        let want = Want { by: By::Inline(&limit), key: subject.as_bytes(), cost: Cost::ONE, takes: &[] };
        engine.decide(&Ask { wants: &[want] }).await;
        let check = began.elapsed();
        if call >= 1000 {
            pings.push(ping);
            checks.push(check);
        }
    }
    pings.sort_unstable();
    checks.sort_unstable();
    let at = |sorted: &[Duration], permille: usize| {
        sorted[(sorted.len() - 1) * permille / 1000].as_secs_f64() * 1e6
    };
    println!("\n### End to end, one ask at a time ({LATENCY_CALLS} each, by turns, on one connection)\n");
    println!("| | PING µs | check µs | ratio |\n|---|---|---|---|");
    for (name, permille) in [("p50", 500), ("p99", 990), ("p99.9", 999)] {
        let (ping, check) = (at(&pings, permille), at(&checks, permille));
        println!("| {name} | {ping:.0} | {check:.0} | {:.2} |", check / ping);
    }
    let below = |limit: Duration| checks.iter().filter(|took| **took < limit).count();
    println!(
        "\nOf {} checks {} took less than 1 ms and {} less than 5 ms.",
        checks.len(),
        below(Duration::from_millis(1)),
        below(Duration::from_millis(5))
    );
    Ok(())
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}
