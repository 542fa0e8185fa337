//! What travelling together saves Redis, and what it costs a check that travels alone.
//!
//! So many asks are under way at any time, each followed by the next as soon as it is answered, and
//! batches form as they do in a busy server. The script of decision record 000 is called as often, once for each
//! ask: by a pool as large as the record's, one call at a time on each of its connections; and as many at a time as there
//! are asks on one connection, which is more than the record does for it. Every contestant has a Redis of its own, they take turns, whoever begins
//! changes from round to round, and the median of the rounds counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use testkit::{RedisClient, RedisServer};
use tollgate::clock;
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Cost, Kind, Rate};
use tollgate_core::check::Check;
use tollgate_core::key::{Key, Scope};
use tollgate_core::store::Store;

use crate::measure::median;
use crate::scripts::{RECORD, in_scripts};

const TOGETHER: usize = 64;
/// `spring.redis.lettuce.pool.max-active` in decision record 000.
const POOL: usize = 20;
/// Enough to last for a minute with the larger number of keys: that long is the period in which each bucket's TTL is
/// renewed once, and a shorter run would meet that in most of its rounds or in none.
const ROUNDS: usize = 61;
const CHECKS: u32 = 25_600;
const LATENCY_CHECKS: usize = 5_000;

/// Runs all of it.
pub(super) async fn run() -> Result<()> {
    cost().await?;
    idle().await
}

async fn cost() -> Result<()> {
    println!(
        "\n### Redis CPU per check (`INFO commandstats`, {TOGETHER} asks under way, one Redis each, {ROUNDS} rounds of {CHECKS} checks by turns, median)\n"
    );
    println!(
        "| keys | ask | µs | × the record's | × the record's on one connection | asks in a call |\n|---|---|---|---|---|---|"
    );
    for keys in [100_000, 10_000] {
        let mut all = Vec::new();
        for way in [Way::Pooled, Way::Pipelined, Way::Batched, Way::OneByOne] {
            let mut contestant = Contestant::new(way).await?;
            // Keys are created and visited again before anything is counted.
            contestant.ask(2 * keys, Keys::InTurn(keys)).await?;
            all.push(contestant);
        }
        for round in 0..ROUNDS {
            for turn in 0..all.len() {
                let at = (round + turn) % all.len();
                all[at].round(keys).await?;
            }
        }
        let records = [all[0].micros.clone(), all[1].micros.clone()];
        for Contestant { way, micros, sizes, .. } in all {
            let [pooled, pipelined] = records
                .each_ref()
                .map(|record| median(micros.iter().zip(record).map(|(own, record)| own / record)));
            let (micros, size) = (median(micros.into_iter()), median(sizes.into_iter()));
            println!("| {keys} | {} | {micros:.2} | {pooled:.3} | {pipelined:.3} | {size:.1} |", way.name());
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Way {
    /// The script of decision record 000, by a pool as large as the record's.
    Pooled,
    /// The same, as many at a time as there are asks, on one connection as ours.
    Pipelined,
    /// Our store as it is.
    Batched,
    /// Our store, every take a call of its own.
    OneByOne,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Pooled => "the record's script, by its pool of 20 connections",
            Way::Pipelined => "the same, 64 at a time on one connection",
            Way::Batched => "token_bucket, packed, in batches",
            Way::OneByOne => "the same, `batch: false`",
        }
    }
}

/// Which keys are asked for.
#[derive(Debug, Clone, Copy)]
enum Keys {
    /// One after the other, of so many.
    InTurn(u32),
    /// Any, of so many.
    Random(u32),
}

impl Keys {
    fn pick(self, turn: u32) -> u32 {
        match self {
            Keys::InTurn(keys) => turn % keys,
            Keys::Random(keys) => fastrand::u32(..keys),
        }
    }
}

/// One way to ask, on a Redis of its own.
struct Contestant {
    way: Way,
    // Runs as long as it is held.
    _server: RedisServer,
    clients: Vec<RedisClient>,
    store: Arc<RedisStore>,
    /// The record's script.
    sha: String,
    /// Per check, round by round.
    micros: Vec<f64>,
    /// Asks in a call, round by round.
    sizes: Vec<f64>,
}

impl Contestant {
    async fn new(way: Way) -> Result<Contestant> {
        let server = RedisServer::start().await;
        let mut clients = vec![server.admin().await];
        while matches!(way, Way::Pooled) && clients.len() < POOL {
            clients.push(server.admin().await);
        }
        let sha = clients[0].command(&["SCRIPT", "LOAD", RECORD]).await?.text();
        let store = Arc::new(store(&server, matches!(way, Way::Batched))?);
        Ok(Contestant { way, _server: server, clients, store, sha, micros: Vec::new(), sizes: Vec::new() })
    }

    /// Asks for random keys, and keeps the figures.
    async fn round(&mut self, keys: u32) -> Result<()> {
        self.clients[0].command(&["CONFIG", "RESETSTAT"]).await?;
        self.ask(CHECKS, Keys::Random(keys)).await?;
        let (calls, micros) = in_scripts(&mut self.clients[0]).await?;
        self.micros.push(micros / f64::from(CHECKS));
        self.sizes.push(f64::from(CHECKS) / calls);
        Ok(())
    }

    async fn ask(&mut self, checks: u32, keys: Keys) -> Result<()> {
        match self.way {
            Way::Pooled | Way::Pipelined => by_record(&mut self.clients, &self.sha, checks, keys).await,
            Way::Batched | Way::OneByOne => through_store(&self.store, checks, keys).await,
        }
    }
}

fn store(server: &RedisServer, batch: bool) -> Result<RedisStore> {
    let mut config = RedisConfig::new(RedisUrl::parse(&server.url())?);
    config.batch = batch;
    config.read_timeout = Duration::from_secs(5); // a busy machine is no outage
    Ok(RedisStore::new(config)?)
}

async fn take(store: &RedisStore, key: u32) -> Result<()> {
    let algorithm = Algorithm::try_new(Kind::TokenBucket, Rate::parse("1000/min")?, None, 10_000)?;
    let scope = Scope::of_rule("api", 0, Kind::TokenBucket);
    let subject = format!("user:{key}");
    let key = Key { scope: &scope, subject: subject.as_bytes() };
    let check = Check { key, algorithm: &algorithm, cost: Cost::ONE };
    store.take(&[check]).await.context("a take failed")?;
    Ok(())
}

async fn through_store(store: &Arc<RedisStore>, checks: u32, keys: Keys) -> Result<()> {
    let asked = Arc::new(AtomicU32::new(0));
    let ask = |_| {
        let (store, asked) = (Arc::clone(store), Arc::clone(&asked));
        tokio::spawn(async move {
            loop {
                let turn = asked.fetch_add(1, Ordering::Relaxed);
                if turn >= checks {
                    return anyhow::Ok(());
                }
                take(&store, keys.pick(turn)).await?;
            }
        })
    };
    let tasks: Vec<_> = (0..TOGETHER).map(ask).collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// One at a time on each of these connections; on one alone, as many as there are asks.
async fn by_record(clients: &mut [RedisClient], sha: &str, checks: u32, keys: Keys) -> Result<()> {
    let turns: Vec<u32> = (0..checks).collect();
    let at_a_time = if clients.len() > 1 { clients.len() } else { TOGETHER };
    for turns in turns.chunks(at_a_time) {
        for (at, turn) in turns.iter().enumerate() {
            let key = format!("bucket:user:{}", keys.pick(*turn));
            let now = clock::wall().0 / 1000;
            let client = &mut clients[at % clients.len()];
            client.send(&["EVALSHA", sha, "1", &key, "1", "1000", "17", &now.to_string()]).await?;
        }
        for at in 0..turns.len() {
            clients[at % clients.len()].receive().await?;
        }
    }
    Ok(())
}

/// What a check takes that finds nothing in flight, beside a PING.
async fn idle() -> Result<()> {
    let server = RedisServer::start().await;
    let (batched, alone) = (store(&server, true)?, store(&server, false)?);
    let mut took = [const { Vec::new() }; 3];
    for turn in 0..LATENCY_CHECKS + 500 {
        for offset in 0..took.len() {
            let who = (turn + offset) % took.len();
            let began = clock::instant();
            match who {
                0 => batched.ping().await?,
                1 => take(&batched, fastrand::u32(..10_000)).await?,
                _ => take(&alone, fastrand::u32(..10_000)).await?,
            }
            if turn >= 500 {
                took[who].push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    let [ping, batched, alone] = took.map(|took| median(took.into_iter()));
    println!("\n### One ask at a time ({LATENCY_CHECKS} each, by turns), p50\n");
    println!("| PING µs | in batches | ratio | `batch: false` | ratio |\n|---|---|---|---|---|");
    println!("| {ping:.0} | {batched:.0} | {:.2} | {alone:.0} | {:.2} |", batched / ping, alone / ping);
    Ok(())
}
