//! Instructions per check, counted by callgrind: the number that no neighbour disturbs.

use std::hint::black_box;

use anyhow::{Context, Result, bail};

use super::again;
use super::subject::{Governor, Limiter, Load, Tollgate, order};

const CHECKS: [u64; 2] = [100_000, 300_000];

/// Prints the table of instruction counts.
#[expect(clippy::cast_precision_loss, reason = "one decimal is printed")]
pub(crate) fn table() -> Result<()> {
    println!("| instructions per check | tollgate | governor |");
    println!("|---|---|---|");
    let mut ours = Vec::new();
    for keys in ["1000", "10000000"] {
        let [own, theirs] = ["tollgate", "governor"].map(|limiter| -> Result<f64> {
            let [few, many] = CHECKS.map(|checks| count(limiter, keys, &checks.to_string()));
            Ok((many? - few?) as f64 / (CHECKS[1] - CHECKS[0]) as f64)
        });
        let own = own?;
        println!("| {keys} live keys | {own:.0} | {:.0} |", theirs?);
        ours.push(own);
    }
    println!("| ratio | {:.3} | |\n", ours[1] / ours[0]);
    Ok(())
}

/// All instructions of one run, filling included.
fn count(limiter: &str, keys: &str, checks: &str) -> Result<u64> {
    let below = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let output = again(&below, &["instructions", limiter, keys, checks])?
        .output()
        .context("valgrind must be installed")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("callgrind failed: {said}");
    }
    let collected = said.lines().find_map(|line| line.split("Collected :").nth(1));
    Ok(collected.context("callgrind said no count")?.trim().parse()?)
}

/// Fills a limiter with keys and asks it that often. The same keys are spelled and drawn for both,
/// which costs both the same.
pub(crate) fn child(limiter: &str, keys: u32, checks: usize) -> Result<()> {
    match limiter {
        "tollgate" => ask(&Tollgate::new(Load::Allowed, 1_000_000.max(u64::from(keys))), keys, checks),
        "governor" => ask(&Governor::new(Load::Allowed), keys, checks),
        _ => bail!("no such limiter: {limiter}"),
    }
    Ok(())
}

fn ask(limiter: &impl Limiter, keys: u32, checks: usize) {
    let mut key = String::from("user_00000000");
    for n in 0..keys {
        spell(&mut key, n);
        limiter.passes(&key);
    }
    let mut passed = 0_u64;
    for n in order(keys, checks) {
        spell(&mut key, n);
        passed += u64::from(limiter.passes(&key));
    }
    black_box(passed);
}

/// Writes the number over the last eight digits: `format!` would cost more than a check.
fn spell(key: &mut String, number: u32) {
    key.clear();
    key.push_str("user_");
    let mut divisor = 10_000_000;
    for _ in 0..8 {
        key.push(char::from(b'0' + u8::try_from(number / divisor % 10).expect("a digit")));
        divisor /= 10;
    }
}
