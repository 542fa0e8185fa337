//! The memory store beside `governor`'s keyed limiter, in one run, in alternating rounds.
//!
//! The same keys in the same random order, the same limits. Times are medians over rounds; memory
//! is measured in a fresh process each, and instructions and allocations are counted by valgrind as
//! the difference of two runs that differ only in the number of checks.

mod decide;
mod denied;
mod instructions;
mod resident;
mod subject;
mod time;

use anyhow::{Context, Result, bail};

/// Measures the named parts, or all.
pub(crate) fn run(parts: &[&str]) -> Result<()> {
    let parts = if parts.is_empty() { &["time", "decide", "denied", "bytes", "instructions"] } else { parts };
    for part in parts {
        match *part {
            "time" => time::table(1001),
            "quick" => time::table(301),
            "decide" => decide::table(1001)?,
            "denied" => denied::table(1001)?,
            "bytes" => resident::table()?,
            "instructions" => instructions::table()?,
            _ => bail!("no such part: {part} (use time, quick, decide, denied, bytes or instructions)"),
        }
    }
    Ok(())
}

/// What this program does when it starts itself.
pub(crate) fn child(part: &[&str]) -> Result<()> {
    match part {
        ["resident", limiter, keys] => resident::child(limiter, keys.parse()?),
        ["instructions", limiter, keys, checks] => {
            instructions::child(limiter, keys.parse()?, checks.parse()?)
        }
        _ => bail!("no such part: {part:?}"),
    }
}

/// Starts this program again as a child, perhaps below another.
fn again(below: &[&str], part: &[&str]) -> Result<std::process::Command> {
    let this = std::env::current_exe().context("this program's own path")?;
    let mut command = match below {
        [] => std::process::Command::new(this),
        [tool, arguments @ ..] => {
            let mut command = std::process::Command::new(tool);
            command.args(arguments).arg(this);
            command
        }
    };
    command.arg("memory-child").args(part);
    Ok(command)
}
