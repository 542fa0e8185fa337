//! A flood on drained keys: how many checks a second, and what they cost Redis, with the deny cache and without.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use testkit::RedisServer;
use tollgate::deny_cache::DenyCache;
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Engine, InlineLimit, Kind, Rate, clock};

const LASTS: Duration = Duration::from_secs(5);
const TASKS: u64 = 64;

/// Prints the table.
pub(crate) fn run() -> Result<()> {
    println!(
        "\n### A flood on drained keys (1/h each), {TASKS} asks at a time on one thread, {} s\n",
        LASTS.as_secs()
    );
    println!(
        "| keys | deny cache | checks per second | calls of Redis per second and key | Redis CPU per check, µs |"
    );
    println!("|---|---|---|---|---|");
    for keys in [1, 100, 10_000] {
        for is_on in [false, true] {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(flood(keys, is_on))?;
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
async fn flood(keys: u64, is_on: bool) -> Result<()> {
    let server = RedisServer::start().await;
    let mut config = RedisConfig::new(RedisUrl::parse(&server.url())?);
    config.read_timeout = Duration::from_secs(5); // a busy machine is no outage
    let engine = Engine::builder(RedisStore::new(config)?)
        .deadline(Duration::from_secs(1))
        .deny_cache(is_on.then(DenyCache::builder))
        .build();
    let rate = Rate::parse("1/h")?;
    let limit = InlineLimit::new(Algorithm::try_new(Kind::TokenBucket, rate, None, 0)?, rate.period());
    let limit = Arc::new(limit);
    let names: Arc<Vec<String>> = Arc::new((0..keys).map(|key| format!("user:{key}")).collect());
    // The first takes what there is, the second is refused.
    for name in names.iter().chain(names.iter()) {
        engine.check(name, &limit).await;
    }
    server.command(&["CONFIG", "RESETSTAT"]).await;
    let (asked, started) = (Arc::new(AtomicU64::new(0)), clock::instant());
    let flooding = (0..TASKS).map(|_| {
        let (engine, limit, names, asked) =
            (engine.clone(), Arc::clone(&limit), Arc::clone(&names), Arc::clone(&asked));
        tokio::spawn(async move {
            while started.elapsed() < LASTS {
                for _ in 0..32 {
                    engine.check(&names[fastrand::usize(..names.len())], &limit).await;
                }
                asked.fetch_add(32, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        })
    });
    for one in flooding.collect::<Vec<_>>() {
        one.await.context("a task failed")?;
    }
    let seconds = started.elapsed().as_secs_f64();
    let info = server.command(&["INFO", "commandstats"]).await.text();
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_fcall:")).unwrap_or_default();
    let field = |name: &str| line.split(',').find_map(|part| part.strip_prefix(name)?.parse::<f64>().ok());
    // About one of them a second is a heartbeat.
    let (calls, micros) = (field("calls=").unwrap_or(0.0) - seconds, field("usec=").unwrap_or(0.0));
    let asked = asked.load(Ordering::Relaxed) as f64;
    println!(
        "| {keys} | {} | {:.0} | {:.2} | {:.3} |",
        if is_on { "on" } else { "off" },
        asked / seconds,
        calls.max(0.0) / seconds / keys as f64,
        micros / asked
    );
    Ok(())
}
