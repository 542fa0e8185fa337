//! What a key takes in Redis: `used_memory` before and after so many, its entry in the table of expiries included.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use testkit::together;
use tollgate::store::redis::{Layout, RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Ask, By, Cost, Engine, Kind as Limit, Policy, Rate, Rule, Want};

use super::page::{Page, progress};
use super::place::{Kind, Place};
use super::work::spell;

/// As many as fill Redis' table of keys to three quarters.
const KEYS: u64 = 24_576;
const TOGETHER: u64 = 64;

/// Prints the table; says what a packed bucket takes.
pub(super) async fn run(page: &Page) -> Result<f64> {
    let mut first = None;
    let mut table = String::from("| algorithm | layout | bytes per key |\n|---|---|---|\n");
    for (limit, layout, entries) in [
        (Limit::TokenBucket, Layout::Packed, 1),
        (Limit::TokenBucket, Layout::Hash, 1),
        (Limit::SlidingWindow, Layout::Packed, 1),
        (Limit::FixedWindow, Layout::Packed, 1),
        (Limit::SlidingLog, Layout::Packed, 1),
        (Limit::SlidingLog, Layout::Packed, 100),
    ] {
        progress(&format!("bytes per key: {limit}, {}, {entries} spent", layout.name()));
        let bytes = one(limit, layout, entries).await?;
        first = first.or(Some(bytes));
        let spent =
            if limit == Limit::SlidingLog { format!(", {entries} in the log") } else { String::new() };
        writeln!(table, "| {limit}{spent} | {} | {bytes:.0} |", layout.name())?;
    }
    page.put("bytes", &table)?;
    first.context("there are rows")
}

async fn one(limit: Limit, layout: Layout, entries: u32) -> Result<f64> {
    let mut place = Place::start(Kind::Single).await;
    let mut config = RedisConfig::new(RedisUrl::parse(&place.url().unwrap_or_default())?);
    config.layout = layout;
    config.read_timeout = Duration::from_secs(5); // a busy machine is no outage
    let limit = Algorithm::try_new(limit, Rate::parse("1000/h")?, None, 10_000)?;
    let rule = Rule::builder("api").limits(vec![limit]).build()?;
    let engine = Engine::builder(RedisStore::new(config)?)
        .policy(Policy::try_new(1, vec![rule])?)
        .deadline(Duration::from_secs(5))
        .build();
    let ask = |key: u64| {
        let engine = &engine;
        async move {
            let mut text = [0; 25];
            let key = spell(key, &mut text);
            let cost = Cost::new(entries).unwrap_or(Cost::ONE);
            let want = Want { by: By::Rule("api"), key, cost, takes: &[] };
            engine.decide(&Ask { wants: &[want] }).await.is_allowed()
        }
    };
    // What a connection and the scripts take is there before.
    ask(u64::MAX).await;
    let before = place.memory().await?;
    for first in (0..KEYS).step_by(usize::try_from(TOGETHER)?) {
        let answers = together((first..KEYS.min(first + TOGETHER)).map(ask)).await;
        ensure!(answers.into_iter().all(|is_allowed| is_allowed), "a key that was never seen is refused");
    }
    let after = place.memory().await?;
    Ok((after.0 - before.0) / (after.1 - before.1))
}
