//! Every kind of traffic on every store with every tier, on the engine as a library.
//!
//! Every tier has servers of its own, emptied before each kind of traffic. The tiers of one traffic and store take
//! turns: a closed loop for what there is to spend, then an open one at half the rate that was found. Whoever begins
//! changes from round to round.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::load::{self, Asked, Did, TOGETHER};
use super::page::{Page, progress, short, spaced};
use super::place::{Kind, Place, Usage};
use super::tier::Tier;
use super::work::{self, Keys, Work};
use crate::measure::micros_each;

const ROUNDS: usize = 3;
const CLOSED: Duration = Duration::from_millis(500);
const OPEN: Duration = Duration::from_millis(700);
const WARM: Duration = Duration::from_millis(200);

/// Rates that are within this generator's own means.
const OPEN_RATE_MAX: f64 = 500_000.0;

/// A tier and its store.
struct Contestant {
    tier: Tier,
    place: Place,
}

/// What a check came to in one row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figure {
    pub work: Work,
    pub kind: Kind,
    pub tier: Tier,
    pub per_second: f64,
    /// Of the engine.
    pub micros: f64,
    /// Inside Redis' calls.
    pub in_calls: f64,
    /// Of Redis' process.
    pub process: f64,
    /// To Redis.
    pub calls: f64,
    /// To and from Redis.
    pub bytes: f64,
}

/// What a tier came to with one kind of traffic.
struct Row {
    asked: Arc<Asked>,
    rounds: Vec<(Did, Usage)>,
    took: Vec<u32>,
}

/// One table for each traffic; only rows whose names contain every word.
pub(super) async fn run(page: &Page, words: &[&str]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let draws = work::zipf();
    let own = load::generator(&Keys::new(Work::Zipf, &draws)) * 1000.0;
    page.put("about", &about(own))?;
    let wanted = |work: Work, kind: Kind, tier: Tier| {
        let name = format!("{} {} {}", work.name(), kind.name(), tier.name());
        words.iter().all(|word| name.contains(word))
    };
    let mut groups = Vec::new();
    for kind in Kind::ALL {
        let mut group = Vec::new();
        for tier in Tier::ALL.into_iter().filter(|tier| tier.is_on(kind)) {
            if Work::ALL.into_iter().any(|work| wanted(work, kind, tier)) {
                progress(&format!("starting: {}, {}", kind.name(), tier.name()));
                group.push(Contestant { tier, place: Place::start(kind).await });
            }
        }
        groups.push((kind, group));
    }
    for work in Work::ALL {
        let mut table = String::new();
        for (kind, group) in &mut groups {
            let mut group: Vec<&mut Contestant> =
                group.iter_mut().filter(|one| wanted(work, *kind, one.tier)).collect();
            if !group.is_empty() {
                progress(&format!("{}: {}", work.title(), kind.name()));
                figures.extend(measure(&mut table, work, *kind, &mut group, &draws).await?);
            }
        }
        if !table.is_empty() {
            page.put(work.name(), &(heading(work)? + &table))?;
        }
    }
    Ok(figures)
}

fn heading(work: Work) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "**{}**\n", work.title())?;
    writeln!(
        text,
        "| store | tier | checks per s | engine CPU, µs | Redis CPU in calls, µs | of the process, µs | calls | bytes to and from Redis | p50, µs | p99 | p99.9 | admitted ÷ allowed |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|---|---|---|---|")?;
    Ok(text)
}

async fn measure(
    table: &mut String,
    work: Work,
    kind: Kind,
    group: &mut [&mut Contestant],
    draws: &Arc<[u32]>,
) -> Result<Vec<Figure>> {
    let mut rows = Vec::new();
    for Contestant { tier, place } in group.iter_mut().map(|one| &mut **one) {
        place.empty().await?;
        let engine = tier.engine(place.url().as_deref(), work)?;
        let asked = Asked::new(engine, Keys::new(work, draws), work).await;
        load::closed(&asked, WARM).await?;
        rows.push(Row { asked, rounds: Vec::new(), took: Vec::new() });
    }
    for round in 0..ROUNDS {
        for turn in 0..rows.len() {
            let at = (round + turn) % rows.len();
            rows[at].round(&mut group[at].place).await?;
        }
    }
    let mut figures = Vec::new();
    for (row, Contestant { tier, .. }) in rows.into_iter().zip(group.iter().map(|one| &**one)) {
        let figure = row.figure(work, kind, *tier);
        table.push_str(&row.line(&figure));
        figures.push(figure);
        row.asked.close().await;
    }
    if kind == Kind::Memory {
        table.push_str("| memory | batch, deny cache, lease | no trip to save | | | | | | | | | |\n");
    }
    Ok(figures)
}

impl Row {
    async fn round(&mut self, store: &mut Place) -> Result<()> {
        let began = store.begin().await?;
        let did = load::closed(&self.asked, CLOSED).await?;
        let usage = store.end(began).await?;
        self.rounds.push((did, usage));
        let rate = count(did.asked) / did.elapsed.as_secs_f64();
        self.took.extend(load::open(&self.asked, (rate / 2.0).min(OPEN_RATE_MAX), OPEN).await?);
        Ok(())
    }

    fn figure(&self, work: Work, kind: Kind, tier: Tier) -> Figure {
        let asked: u64 = self.rounds.iter().map(|(did, _)| did.asked).sum();
        let elapsed: Duration = self.rounds.iter().map(|(did, _)| did.elapsed).sum();
        let cpu: Duration = self.rounds.iter().map(|(did, _)| did.cpu).sum();
        let usage = self.rounds.iter().fold(Usage::default(), |sum, (_, usage)| sum.and(*usage));
        Figure {
            work,
            kind,
            tier,
            per_second: count(asked) / elapsed.as_secs_f64(),
            micros: micros_each(cpu, asked),
            in_calls: usage.micros / count(asked),
            process: micros_each(usage.process, asked),
            calls: usage.calls / count(asked),
            bytes: usage.bytes / count(asked),
        }
    }

    fn line(&self, figure: &Figure) -> String {
        let Figure { kind, tier, per_second, micros, in_calls, process, calls, bytes, .. } = *figure;
        let redis = match kind {
            Kind::Memory => "| | | ".to_owned(),
            Kind::Single | Kind::Cluster => {
                format!("{} | {} | {} | {}", short(in_calls), short(process), short(calls), short(bytes))
            }
        };
        let mut took = self.took.clone();
        took.sort_unstable();
        let at = |permille: usize| short(f64::from(took[(took.len() - 1) * permille / 1000]) / 1000.0);
        let ratio = self.asked.admitted_of_allowed();
        let (rate, own) = (spaced(per_second), short(micros));
        let (kind, tier) = (kind.name(), tier.name());
        let (p50, p99, p999) = (at(500), at(990), at(999));
        format!("| {kind} | {tier} | {rate} | {own} | {redis} | {p50} | {p99} | {p999} | {ratio} |\n")
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of asks are far below 2^52")]
fn count(asks: u64) -> f64 {
    asks as f64
}

/// What the tables are of.
fn about(generator: f64) -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!(
        "The engine as a library on one thread and one core, Redis on the other; {TOGETHER} asks under way; {ROUNDS} rounds of \
         {} ms by turns, each followed by {} ms at half the rate that was found (at most {} a second) for the percentiles. \
         Of the engine's CPU the generator takes {generator:.0} ns. Load of the machine when it began: {load}.",
        CLOSED.as_millis(),
        OPEN.as_millis(),
        spaced(OPEN_RATE_MAX)
    )
}
