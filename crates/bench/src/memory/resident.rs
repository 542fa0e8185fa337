//! Bytes of memory per live key, as the kernel counts them.

use anyhow::{Context, Result, bail};

use super::again;
use super::subject::{Governor, Limiter, Load, Tollgate};

const PAGE: u64 = 4096;

/// Prints the table of sizes.
pub(crate) fn table() -> Result<()> {
    println!("| bytes per live key, by resident set | tollgate | governor |");
    println!("|---|---|---|");
    for keys in ["1000000", "10000000"] {
        let [ours, theirs] = ["tollgate", "governor"].map(|limiter| -> Result<String> {
            let output = again(&[], &["resident", limiter, keys])?.output()?;
            Ok(String::from_utf8(output.stdout)?.trim().to_owned())
        });
        println!("| {keys} live keys, of as many at most | {} | {} |", ours?, theirs?);
    }
    println!();
    Ok(())
}

/// Fills one limiter and prints what that cost.
pub(crate) fn child(limiter: &str, keys: u32) -> Result<()> {
    let before = resident()?;
    match limiter {
        "tollgate" => {
            let ours = Tollgate::new(Load::Refused, u64::from(keys));
            fill(&ours, keys);
            if ours.overflowed() > 0 {
                bail!("{} keys found no place", ours.overflowed());
            }
            report(before, keys)
        }
        "governor" => {
            let theirs = Governor::new(Load::Refused);
            fill(&theirs, keys);
            report(before, keys)
        }
        _ => bail!("no such limiter: {limiter}"),
    }
}

fn fill(limiter: &impl Limiter, keys: u32) {
    for n in 0..keys {
        limiter.passes(&format!("user_{n:08}"));
    }
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is printed")]
fn report(before: u64, keys: u32) -> Result<()> {
    println!("{:.1}", (resident()? - before) as f64 / f64::from(keys));
    Ok(())
}

/// The resident set of this process, in bytes.
fn resident() -> Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = pages.split(' ').nth(1).context("statm has no second field")?.parse()?;
    Ok(pages * PAGE)
}
