//! Instructions and allocations per check, counted by valgrind: the numbers that no neighbour disturbs.

use std::hint::black_box;

use anyhow::{Context, Result, bail};

use super::again;
use super::decide::Decider;
use super::denied::Denied;
use super::subject::{Governor, Limiter, Load, Tollgate, order};

const CHECKS: [u64; 2] = [100_000, 300_000];

/// Prints the table of instruction counts.
pub(crate) fn table() -> Result<()> {
    println!("| instructions per check, less those of spelling and drawing its key | tollgate | governor |");
    println!("|---|---|---|");
    // A table's cost depends on how full it is, not on how large: like is compared with like, and the
    // nearly empty one is shown beside.
    let mut ours = Vec::new();
    for (limiter, keys, of) in
        [("full", "1000", "1 k"), ("tollgate", "1000", "1 M"), ("full", "10000000", "10 M")]
    {
        let [own, theirs, nobody] =
            [limiter, "governor", "nobody"].map(|limiter| instructions_per_ask(limiter, keys));
        let nobody = nobody?;
        let own = own? - nobody;
        println!("| {keys} live keys, of {of} at most | {own:.0} | {:.0} |", theirs? - nobody);
        ours.push(own);
    }
    println!("| full at 10 M over full at 1 k | {:.3} | |\n", ours[2] / ours[0]);
    Ok(())
}

/// Instructions of one ask, as callgrind counts them.
pub(crate) fn instructions_per_ask(limiter: &str, keys: &str) -> Result<f64> {
    per_ask(&["--tool=callgrind", "--callgrind-out-file=/dev/null"], "Collected :", limiter, keys)
}

/// Calls to the allocator of one ask, as memcheck counts them.
pub(crate) fn allocations_per_ask(limiter: &str, keys: &str) -> Result<f64> {
    per_ask(&["--tool=memcheck"], "total heap usage:", limiter, keys)
}

/// What many asks cost more than few do.
#[expect(clippy::cast_precision_loss, reason = "one decimal is printed")]
fn per_ask(tool: &[&str], before: &str, limiter: &str, keys: &str) -> Result<f64> {
    let [few, many] = CHECKS.map(|checks| count(tool, before, &[limiter, keys, &checks.to_string()]));
    Ok((many? - few?) as f64 / (CHECKS[1] - CHECKS[0]) as f64)
}

/// The count that valgrind prints after `before`, of one run, filling included.
fn count(tool: &[&str], before: &str, run: &[&str]) -> Result<u64> {
    let output = again(&[&["valgrind"], tool].concat(), &[&["instructions"], run].concat())?
        .output()
        .context("valgrind must be installed")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("valgrind failed: {said}");
    }
    let counted =
        said.lines().find_map(|line| line.split(before).nth(1)).context("valgrind said no count")?;
    let number = counted.split_whitespace().next().context("a count is a number")?;
    Ok(number.replace(',', "").parse()?)
}

/// Fills a limiter with keys and asks it that often. The same keys are spelled and drawn for both,
/// which costs both the same.
pub(crate) fn child(limiter: &str, keys: u32, checks: usize) -> Result<()> {
    match limiter {
        "full" => ask(&Tollgate::new(Load::Allowed, u64::from(keys)), keys, checks),
        "tollgate" => ask(&Tollgate::new(Load::Allowed, 1_000_000.max(u64::from(keys))), keys, checks),
        "governor" => ask(&Governor::new(Load::Allowed), keys, checks),
        "engine" => ask(&Decider::new(), keys, checks),
        "denied" => ask(&Denied::new(), keys, checks),
        "nobody" => ask(&Nobody, keys, checks),
        _ => bail!("no such limiter: {limiter}"),
    }
    Ok(())
}

/// Lets everybody pass: what asking costs by itself.
struct Nobody;

impl Limiter for Nobody {
    fn passes(&self, key: &String) -> bool {
        black_box(key);
        true
    }
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
