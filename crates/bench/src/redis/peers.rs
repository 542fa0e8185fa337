//! The same work through what a user would pick instead: eight instances on one Redis, each with eight asks under way.
//!
//! An instance is a process. It is started as `PROGRAM NAME PORT KEYS LIMIT PERIOD_S TOGETHER LEAD_MS SPAN_MS SIGNAL`,
//! says `ready`, waits until the file SIGNAL is there, asks for random ones of so many keys as fast as it is answered, and
//! says `done ASKED ADMITTED` of the span after the lead. What it costs is read from `/proc` while it does. Redis has the second
//! core for itself, all instances share the first.

mod child;
mod envoy;
mod program;

pub(crate) use child::run as child;

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use testkit::{Child, eventually};

use super::page::{Page, progress, short, spaced};
use super::place::{Place, Usage, pin};
use crate::measure::micros_each;
use program::Peer;

pub(super) const INSTANCES: usize = 8;
pub(super) const TOGETHER: u32 = 8;
const PATIENCE: Duration = Duration::from_mins(1);

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub keys: u32,
    pub limit: u32,
    pub period_secs: u32,
    /// Before anything is counted.
    pub lead: Duration,
    pub span: Duration,
}

/// Many keys, hardly ever refused.
const MANY: Task = Task {
    keys: 100_000,
    limit: 1000,
    period_secs: 60,
    lead: Duration::from_secs(1),
    span: Duration::from_secs(2),
};

/// One key that everybody asks for far more often than it allows. The lead takes what was saved up.
const FLOOD: Task =
    Task { keys: 1, limit: 200, period_secs: 1, lead: Duration::from_secs(2), span: Duration::from_secs(3) };

/// What a task came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    pub asked: u64,
    pub admitted: u64,
    /// Of all instances.
    pub cpu: Duration,
    /// Of the store, where that is Redis.
    pub usage: Option<Usage>,
    /// Of a key, by `MEMORY USAGE`.
    pub key_bytes: Option<f64>,
}

/// Prints the table; of the peers whose names contain every word.
pub(super) async fn run(page: &Page, words: &[&str]) -> Result<()> {
    let mut table = String::from(
        "| | checks per s | CPU of the instances, µs | Redis CPU in calls, µs | of the process, µs | calls | bytes of a key, `MEMORY USAGE` | flood: checks per s | Redis CPU per s, ms | admitted ÷ allowed |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for peer in Peer::ALL {
        if !words.iter().all(|word| peer.name().contains(word)) {
            continue;
        }
        progress(peer.name());
        if let Some(missing) = peer.missing() {
            writeln!(table, "| {} | not here: {missing} | | | | | | | | |", peer.name())?;
            continue;
        }
        let many = measure(*peer, MANY).await?;
        let flood = measure(*peer, FLOOD).await?;
        writeln!(table, "{}", line(peer.name(), &many, &flood))?;
    }
    page.put("peers", &table)
}

#[expect(clippy::cast_precision_loss, reason = "counts of asks are far below 2^52")]
fn line(name: &str, many: &Figures, flood: &Figures) -> String {
    let asked = many.asked as f64;
    let own = short(micros_each(many.cpu, many.asked));
    let redis = match many.usage {
        Some(usage) => {
            let process = short(micros_each(usage.process, many.asked));
            let bytes = many.key_bytes.map_or(String::new(), |bytes| format!("{bytes:.0}"));
            format!("{} | {process} | {} | {bytes}", short(usage.micros / asked), short(usage.calls / asked))
        }
        None => "| | |".to_owned(),
    };
    let allowed = f64::from(FLOOD.limit) / f64::from(FLOOD.period_secs) * FLOOD.span.as_secs_f64();
    format!(
        "| {name} | {} | {own} | {redis} | {} | {} | {:.3} |",
        spaced(asked / MANY.span.as_secs_f64()),
        spaced(flood.asked as f64 / FLOOD.span.as_secs_f64()),
        flood.usage.map_or(String::new(), |usage| {
            short(usage.process.as_secs_f64() * 1e3 / FLOOD.span.as_secs_f64())
        }),
        flood.admitted as f64 / allowed,
    )
}

async fn measure(peer: Peer, task: Task) -> Result<Figures> {
    match peer {
        Peer::EnvoyRatelimit | Peer::Doors => envoy::measure(peer, task).await,
        Peer::Throttlecrab => {
            pin(1);
            let (server, port) = program::throttlecrab()?;
            pin(0);
            eventually("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
            let (before, instances) = begin(peer, task, port).await?;
            let cpu = server.cpu_time();
            tokio::time::sleep(task.span).await;
            let cpu = server.cpu_time().saturating_sub(cpu) + spent(&before, &instances);
            let (asked, admitted) = end(&instances).await?;
            Ok(Figures { asked, admitted, cpu, usage: None, key_bytes: None })
        }
        _ => {
            pin(1);
            let server = program::redis(peer).await?;
            pin(0);
            let mut place = Place::of(server).await;
            let (before, instances) = begin(peer, task, place.port()).await?;
            let began = place.begin().await?;
            tokio::time::sleep(task.span).await;
            let usage = Some(place.end(began).await?);
            let cpu = spent(&before, &instances);
            let key_bytes = if task.keys > 1 { Some(place.key_bytes().await?) } else { None };
            let (asked, admitted) = end(&instances).await?;
            Ok(Figures { asked, admitted, cpu, usage, key_bytes })
        }
    }
}

/// All instances at work, the lead behind them; and what each has used until then.
async fn begin(peer: Peer, task: Task, port: u16) -> Result<(Vec<Duration>, Vec<Child>)> {
    let folder = tempfile::TempDir::new()?;
    let signal = folder.path().join("go");
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        let mut command = peer.command()?;
        command.arg(port.to_string());
        command.args([task.keys, task.limit, task.period_secs, TOGETHER].map(|number| number.to_string()));
        command.args([task.lead, task.span].map(|time| time.as_millis().to_string())).arg(&signal);
        let child = Child::try_spawn(&mut command).with_context(|| format!("cannot start {command:?}"))?;
        instances.push(child);
    }
    for instance in &instances {
        instance.wait_for_line(|line| line == "ready", PATIENCE).await;
    }
    std::fs::write(&signal, "")?;
    tokio::time::sleep(task.lead).await;
    Ok((instances.iter().map(Child::cpu_time).collect(), instances))
}

fn spent(before: &[Duration], instances: &[Child]) -> Duration {
    before.iter().zip(instances).map(|(before, child)| child.cpu_time().saturating_sub(*before)).sum()
}

/// What they say they did.
async fn end(instances: &[Child]) -> Result<(u64, u64)> {
    let (mut asked, mut admitted) = (0, 0);
    for instance in instances {
        let line = instance.wait_for_line(|line| line.starts_with("done "), PATIENCE).await;
        let mut numbers = line.split(' ').skip(1).map(str::parse::<u64>);
        asked += numbers.next().context("no count of asks")??;
        admitted += numbers.next().context("no count of what was admitted")??;
    }
    Ok((asked, admitted))
}
