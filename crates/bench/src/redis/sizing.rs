//! How many shards and cores a fleet needs, reckoned from the figures of the same run: the tables of docs/sizing.md.
//!
//! The formulas are in that page, so that a reader can put in figures of their own.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::matrix::Figure;
use super::page::{Page, SIZING, short, spaced};
use super::place::Kind;
use super::tier::Tier;
use super::work::{DRAINED_KEYS, Work};

/// How busy a core may be before a fleet is too small: the rest is for bursts, and for what a failover leaves to others.
const BUSY: f64 = 0.6;

/// Cores of an instance.
const CORES: f64 = 8.0;

/// Checks per second.
const RATES: [f64; 3] = [1e5, 1e6, 1e8];

/// What was measured.
#[derive(Debug)]
pub(super) struct Figures {
    pub rows: Vec<Figure>,
    /// A check that travels alone: microseconds of Redis' process, bytes.
    pub alone: (f64, f64),
    /// Of a packed bucket.
    pub key_bytes: f64,
    /// Server CPU of a check over RESP on one hot key in memory, microseconds.
    pub door: f64,
}

impl Figures {
    fn row(&self, work: Work, kind: Kind, tier: Tier) -> Result<&Figure> {
        let is_it = |row: &&Figure| (row.work, row.kind, row.tier) == (work, kind, tier);
        self.rows.iter().find(is_it).context("a row of the matrix is missing")
    }
}

/// One kind of traffic with one tier.
struct Case {
    name: &'static str,
    work: Work,
    tier: Tier,
    /// The tier that says how many checks call Redis when no batch hides it.
    calling: Tier,
}

const CASES: [Case; 6] = [
    Case { name: "unique keys, as shipped", work: Work::Unique, tier: Tier::Shipped, calling: Tier::None },
    Case { name: "Zipf, as shipped", work: Work::Zipf, tier: Tier::Shipped, calling: Tier::DenyCache },
    Case { name: "Zipf, `lease: auto`", work: Work::Zipf, tier: Tier::All, calling: Tier::Lease },
    Case { name: "one hot key, as shipped", work: Work::Hot, tier: Tier::Shipped, calling: Tier::DenyCache },
    Case { name: "one hot key, `lease: auto`", work: Work::Hot, tier: Tier::All, calling: Tier::Lease },
    Case {
        name: "a flood on 1000 drained keys, as shipped",
        work: Work::Drained,
        tier: Tier::Shipped,
        calling: Tier::DenyCache,
    },
];

/// Prints the tables.
pub(super) fn run(page: &Page, figures: &Figures) -> Result<()> {
    page.put_on(SIZING, "inputs", &inputs(figures)?)?;
    page.put_on(SIZING, "example", &example(figures)?)?;
    page.put_on(SIZING, "fleet", &fleet(figures)?)?;
    page.put_on(SIZING, "memory", &memory(figures)?)
}

fn inputs(figures: &Figures) -> Result<String> {
    let mut table = String::from("| | figure | |\n|---|---|---|\n");
    let mut line = |sign: &str, figure: String, what: &str| writeln!(table, "| {sign} | {figure} | {what} |");
    line("a", short(figures.alone.0) + " µs", "Redis' process, a check that travels alone")?;
    line("", short(figures.alone.1) + " bytes", "to and from Redis, the same check")?;
    for Case { name, work, tier, .. } in &CASES {
        let row = figures.row(*work, Kind::Single, *tier)?;
        line(
            "t",
            short(row.process) + " µs",
            &format!("Redis' process, {name}, 64 under way on one connection"),
        )?;
        line("e", short(row.micros) + " µs", &format!("the engine, {name}"))?;
    }
    for Case { name, work, calling, .. } in &CASES {
        if is_shared(*work) {
            let share = figures.row(*work, Kind::Single, *calling)?.calls.min(1.0);
            line("s", short(share), &format!("of the checks reach Redis, {name}"))?;
        }
    }
    line("d", short(door(figures)?) + " µs", "the RESP door, 8 commands in a pipeline")?;
    line("", format!("{:.0} bytes", figures.key_bytes), "a `token_bucket`, packed, in Redis")?;
    Ok(table)
}

/// One row of the fleet, step by step.
fn example(figures: &Figures) -> Result<String> {
    const RATE: f64 = 1e6;
    let Figure { calls, .. } = figures.row(Work::Zipf, Kind::Single, Tier::DenyCache)?;
    let Figure { micros, process, .. } = figures.row(Work::Zipf, Kind::Single, Tier::Shipped)?;
    let (share, alone, door) = (calls.min(1.0), figures.alone.0, door(figures)?);
    let (redis, engine) = (RATE * share * alone / 1e6, RATE * (micros + door) / 1e6);
    let together = RATE * process / 1e6;
    Ok(format!(
        "An example: Zipf, as shipped, a million checks a second. 1 000 000 × {} = {} calls reach Redis. If each travels alone they \
         take {} µs each, {} s of processor time in every second; divided by {BUSY}, {} cores, and each is a shard. If they all \
         travel together a check takes {} µs, whether it calls or not: {} s, {} shards. The instances take {} + {} µs for each check: \
         {} s, {} cores.",
        short(share),
        spaced(RATE * share),
        short(alone),
        short(redis),
        spaced((redis / BUSY).ceil()),
        short(*process),
        short(together),
        spaced((together / BUSY).ceil()),
        short(*micros),
        short(door),
        short(engine),
        spaced((engine / BUSY).ceil())
    ))
}

/// Whether it is spread over all shards.
fn is_shared(work: Work) -> bool {
    matches!(work, Work::Unique | Work::Zipf)
}

/// What the door itself takes.
fn door(figures: &Figures) -> Result<f64> {
    Ok((figures.door - figures.row(Work::Hot, Kind::Memory, Tier::None)?.micros).max(0.0))
}

fn fleet(figures: &Figures) -> Result<String> {
    let mut table = String::from(
        "| traffic | checks per s | cores for instances | instances of 8 | calls of Redis per s | shards, travelling together | alone | Gbit/s to and from Redis | connections per shard |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for Case { name, work, tier, calling } in &CASES {
        let row = figures.row(*work, Kind::Single, *tier)?;
        let calling = figures.row(*work, Kind::Single, *calling)?;
        for rate in RATES {
            let cores = (rate * (row.micros + door(figures)?) / 1e6 / BUSY).ceil();
            let instances = (cores / CORES).ceil();
            // What a tier lets through: a share of the checks, or so many a second of each instance.
            let share = calling.calls.min(1.0);
            let calls = match work {
                Work::Unique | Work::Zipf => rate * share,
                Work::Hot if *tier == Tier::Shipped => rate,
                Work::Hot => calling.calls * calling.per_second * instances,
                // As the deny cache promises.
                Work::Drained => f64::from(DRAINED_KEYS) * instances,
            };
            let shards = |micros: f64| (calls * micros / 1e6 / BUSY).ceil().max(1.0);
            let alone = shards(figures.alone.0);
            let (together, alone) = match work {
                Work::Unique | Work::Zipf => (spaced(shards(row.process / share)), spaced(alone)),
                Work::Hot if *tier == Tier::Shipped => (one(shards(row.process)), one(alone)),
                Work::Hot => (one(alone), one(alone)),
                Work::Drained => (spaced(alone), spaced(alone)),
            };
            writeln!(
                table,
                "| {name} | {} | {} | {} | {} | {together} | {alone} | {} | {} |",
                spaced(rate),
                spaced(cores),
                spaced(instances),
                spaced(calls),
                short(calls * figures.alone.1 * 8.0 / 1e9),
                spaced(cores)
            )?;
        }
    }
    Ok(table)
}

/// One key is in one shard, however many there are.
fn one(shards: f64) -> String {
    if shards > 1.0 {
        format!("not to be had: {} cores in one shard", spaced(shards))
    } else {
        "1".to_owned()
    }
}

fn memory(figures: &Figures) -> Result<String> {
    let mut table = String::from("| live keys | GB in Redis | with a replica each |\n|---|---|---|\n");
    for keys in [1e6, 1e7, 1e8, 1e9] {
        let bytes = keys * figures.key_bytes / 1e9;
        writeln!(table, "| {} | {} | {} |", spaced(keys), short(bytes), short(2.0 * bytes))?;
    }
    Ok(table)
}
