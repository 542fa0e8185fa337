//! The built server, as shipped but for one worker, over RESP: every kind of traffic on every store.
//!
//! The server has the first core, Redis and the client the second. The client waits in `poll` and takes no time from Redis
//! while it has nothing to do; what it takes besides does not count, but lowers how many checks there are.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::client::{Client, Did, Pace};
use super::page::{Page, progress, short, spaced};
use super::place::{Kind, Place, pin};
use super::work::{self, Keys, Work};
use crate::measure::{micros_each, serve};

const WARM: Duration = Duration::from_millis(300);
const SPAN: Duration = Duration::from_secs(1);

/// Prints the table, of rows whose names contain every word; says what a check of one hot key in memory costs
/// the server, which is little but the door's part.
pub(super) async fn run(page: &Page, words: &[&str]) -> Result<Option<f64>> {
    let mut hot = None;
    let draws = work::zipf();
    let mut table = String::from(
        "| traffic | store | checks per s | server CPU, µs | Redis CPU in calls, µs | of the process, µs | calls | p50, µs | p99 | p99.9 | admitted ÷ allowed |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for work in Work::ALL {
        for kind in Kind::ALL {
            let name = format!("{} {}", work.name(), kind.name());
            if words.iter().all(|word| name.contains(word)) {
                progress(&format!("the server: {}, {}", work.title(), kind.name()));
                let (line, micros) = row(work, kind, &draws).await?;
                writeln!(table, "{line}")?;
                if (work, kind) == (Work::Hot, Kind::Memory) {
                    hot = Some(micros);
                }
            }
        }
    }
    page.put("server", &table)?;
    Ok(hot)
}

#[expect(clippy::cast_precision_loss, reason = "counts of asks are far below 2^52")]
async fn row(work: Work, kind: Kind, draws: &Arc<[u32]>) -> Result<(String, f64)> {
    let mut place = Place::start(kind).await;
    let url = place.url();
    let mut words = vec!["--workers", "1"];
    words.extend(url.iter().flat_map(|url| ["--redis", url.as_str()]));
    let (server, at) = serve("resp", &words).await?;
    let port = at.rsplit(':').next().and_then(|port| port.parse().ok()).context("no port")?;
    let (client, _) = on_second_core(Client::new(port, work, Keys::new(work, draws))?, Pace::Closed, WARM)?;
    let (began, before) = (place.begin().await?, server.cpu_time());
    let (client, did) = on_second_core(client, Pace::Closed, SPAN)?;
    let cpu = server.cpu_time().saturating_sub(before);
    let usage = place.end(began).await?;
    let rate = did.asked as f64 / did.elapsed.as_secs_f64();
    let (client, Did { mut took, .. }) = on_second_core(client, Pace::PerSecond(rate / 2.0), SPAN)?;
    took.sort_unstable();
    let at = |permille: usize| short(f64::from(took[(took.len() - 1) * permille / 1000]) / 1000.0);
    let asked = did.asked as f64;
    let redis = match kind {
        Kind::Memory => "| |".to_owned(),
        Kind::Single | Kind::Cluster => {
            let process = short(micros_each(usage.process, did.asked));
            format!("{} | {process} | {}", short(usage.micros / asked), short(usage.calls / asked))
        }
    };
    let micros = micros_each(cpu, did.asked);
    let line = format!(
        "| {} | {} | {} | {} | {redis} | {} | {} | {} | {:.3} |",
        work.name(),
        kind.name(),
        spaced(rate),
        short(micros),
        at(500),
        at(990),
        at(999),
        client.admitted_of_allowed()
    );
    Ok((line, micros))
}

/// On a thread of its own, so that this one stays where it is.
fn on_second_core(mut client: Client, pace: Pace, span: Duration) -> Result<(Client, Did)> {
    let thread = std::thread::spawn(move || {
        pin(1);
        let did = client.run(pace, span)?;
        Ok((client, did))
    });
    thread.join().map_err(|_| anyhow::anyhow!("the client fell"))?
}
