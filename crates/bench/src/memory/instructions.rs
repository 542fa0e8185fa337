//! Instructions per check, counted by callgrind: the number that no neighbour disturbs.

use std::hint::black_box;

use anyhow::{Context, Result, bail};

use super::again;
use super::subject::{Limiter, Load, Tollgate, order};

const CHECKS: [u64; 2] = [100_000, 300_000];

/// Prints the table of instruction counts.
#[expect(clippy::cast_precision_loss, reason = "one decimal is printed")]
pub(crate) fn table() -> Result<()> {
    println!("| instructions per check | tollgate |");
    println!("|---|---|");
    let mut per_check = Vec::new();
    for keys in ["1000", "10000000"] {
        let [few, many] = CHECKS.map(|checks| count(keys, &checks.to_string()));
        let each = (many? - few?) as f64 / (CHECKS[1] - CHECKS[0]) as f64;
        println!("| {keys} live keys | {each:.1} |");
        per_check.push(each);
    }
    println!("| ratio | {:.3} |\n", per_check[1] / per_check[0]);
    Ok(())
}

/// All instructions of one run, filling included.
fn count(keys: &str, checks: &str) -> Result<u64> {
    let below = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let output =
        again(&below, &["instructions", keys, checks])?.output().context("valgrind must be installed")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("callgrind failed: {said}");
    }
    let collected = said.lines().find_map(|line| line.split("Collected :").nth(1));
    Ok(collected.context("callgrind said no count")?.trim().parse()?)
}

/// Fills a store with keys and asks it that often.
pub(crate) fn child(keys: u32, checks: usize) {
    let ours = Tollgate::new(Load::Allowed, 1_000_000.max(u64::from(keys)));
    let mut key = String::from("user_00000000");
    for n in 0..keys {
        spell(&mut key, n);
        ours.passes(&key);
    }
    let mut passed = 0_u64;
    for n in order(keys, checks) {
        spell(&mut key, n);
        passed += u64::from(ours.passes(&key));
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
