//! Every fault several times, with the strict bounds, as the table of `docs/failure.md`.

use std::collections::BTreeSet;
use std::time::Duration;

use testkit::RedisServer;
use tollgate::OnOutage;

use crate::catalogue::Fault;
use crate::clocks::{IDEAL, admitted_after, tremble};
use crate::report::{LATE_MAX_STRICT, Report};
use crate::stand::{CAPACITY, DEADLINE};

/// How often each fault is caused.
const RUNS: usize = 3;

fn ms(span: Duration) -> String {
    format!("{:.1} ms", span.as_secs_f64() * 1000.0)
}

/// The worst of several runs of one fault, as a row.
fn row(runs: &[Report]) -> String {
    let worst_excess = runs.iter().map(Report::excess_max).fold(0.0, f64::max);
    let most = |rule| runs.iter().map(|report| report.fallback_admitted(rule)).max().unwrap_or_default();
    let longest = runs.iter().map(Report::longest).max().unwrap_or_default();
    let stall = runs.iter().map(|report| report.stall).max().unwrap_or_default();
    let back = runs.iter().map(Report::back).max().unwrap_or_default();
    let openings = runs.iter().map(|report| report.changes.len().div_ceil(2)).max().unwrap_or_default();
    let errors: BTreeSet<&str> =
        runs.iter().flat_map(|report| report.errors.keys().map(String::as_str)).collect();
    let errors = errors.into_iter().collect::<Vec<_>>().join(", ");
    format!(
        "| {} | r·T + {worst_excess:.0} | r·T + {} | {} | allow {}, local {} | {} (machine {}) | {} | guard opened {openings}×; {} |",
        runs[0].fault,
        CAPACITY * (1 + runs[0].losses),
        runs[0].losses,
        most(OnOutage::Allow),
        most(OnOutage::Local),
        ms(longest),
        ms(stall),
        ms(back),
        if errors.is_empty() { "no error" } else { &errors },
    )
}

/// P5, strictly: no check waits longer than the deadline and 5 ms, beyond what the machine itself
/// overslept in the same run.
fn is_late(report: &Report) -> bool {
    report.longest() > DEADLINE + LATE_MAX_STRICT + report.stall
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: several minutes"]
async fn campaign() {
    let (mut rows, mut late) = (Vec::new(), Vec::new());
    for fault in Fault::ALL {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let report = fault.run().await;
            report.keeps_promises();
            late.extend(is_late(&report).then(|| format!("{}: {:?}", report.fault, report.longest())));
            runs.push(report);
        }
        rows.push(row(&runs));
    }
    let mut clocks = Vec::new();
    let steps = [("stepped back 10 s", -10_000_000), ("stepped ahead 1 h", 3_600_000_000)];
    for (step, offset_us) in steps {
        let admitted =
            admitted_after(async |server: &RedisServer| server.clock().set_offset_us(offset_us)).await;
        clocks.push(format!("| clock {step} | {admitted:?} | {IDEAL} |"));
    }
    let admitted = admitted_after(tremble).await;
    clocks.push(format!("| clock ±0.5 s at 10 Hz | {admitted:?} | {IDEAL} |"));

    println!("\n| fault | admitted | bound | L | F | longest check | back to Redis after | notes |");
    println!("|---|---|---|---|---|---|---|---|");
    println!("{}", rows.join("\n"));
    println!("\n| clock | admitted in 3 s, per rule | r·T |\n|---|---|---|");
    println!("{}", clocks.join("\n"));
    assert!(late.is_empty(), "checks that took too long: {late:?}");
}
