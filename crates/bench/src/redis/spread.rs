//! The same traffic over ever more connections: what a check costs Redis when less and less travels with it.
//!
//! A large fleet has a connection from every worker to every shard, and each of them carries little. Every connection here is an
//! engine of its own, as shipped, all on one thread; keys are unique.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;

use super::load::{Asked, closed_by};
use super::page::{Page, progress, short, spaced};
use super::place::{Kind, Place};
use super::tier::Tier;
use super::work::{Keys, Work};
use crate::measure::micros_each;

const WARM: Duration = Duration::from_millis(500);
const SPAN: Duration = Duration::from_millis(1500);

/// Connections, and asks under way on each.
const ROWS: &[(usize, usize)] = &[(1, 64), (8, 8), (64, 1), (256, 1)];

/// Prints the table; says what a check that travels alone costs Redis' process, and its bytes.
#[expect(clippy::cast_precision_loss, reason = "counts of asks are far below 2^52")]
pub(super) async fn run(page: &Page) -> Result<(f64, f64)> {
    let mut alone = (0.0, 0.0);
    let mut table = String::from(
        "| connections | asks under way on each | checks per s | engine CPU, µs | Redis CPU in calls, µs | of the process, µs | calls | bytes to and from Redis |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (connections, together) in ROWS.iter().copied() {
        progress(&format!("{connections} connections, {together} asks under way on each"));
        let mut place = Place::start(Kind::Single).await;
        let url = place.url();
        let mut all = Vec::new();
        for _ in 0..connections {
            let engine = Tier::Shipped.engine(url.as_deref(), Work::Unique)?;
            all.push(Asked::new(engine, Keys::unique(), Work::Unique).await);
        }
        closed_by(&all, together, WARM).await?;
        let began = place.begin().await?;
        let did = closed_by(&all, together, SPAN).await?;
        let usage = place.end(began).await?;
        let asked = did.asked as f64;
        alone = (micros_each(usage.process, did.asked), usage.bytes / asked);
        writeln!(
            table,
            "| {connections} | {together} | {} | {} | {} | {} | {} | {} |",
            spaced(asked / did.elapsed.as_secs_f64()),
            short(micros_each(did.cpu, did.asked)),
            short(usage.micros / asked),
            short(micros_each(usage.process, did.asked)),
            short(usage.calls / asked),
            short(usage.bytes / asked)
        )?;
    }
    page.put("spread", &table)?;
    Ok(alone)
}
