//! `cargo xtask bench NAME`: which benchmark is which command.

use anyhow::{Context, Result};

use crate::command;

/// Name, what it measures, and the cargo command that measures it.
const BENCHES: &[(&str, &str, &[&str])] = &[(
    "core",
    "memory store beside governor, scripts beside the decision record, a check beside PING",
    &["run", "--release", "--locked", "-p", "bench", "--", "core"],
)];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which benchmark; an unknown name lists them.
    name: String,
    /// Passed on to the benchmark.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (_, what, line) = BENCHES.iter().find(|(name, ..)| *name == args.name).with_context(|| {
        let known = BENCHES.iter().map(|(name, what, _)| format!("  {name:<8} {what}"));
        format!("no bench is named {:?}; there are:\n{}", args.name, known.collect::<Vec<_>>().join("\n"))
    })?;
    println!("bench {}: {what}", args.name);
    command::run(command::cargo(line)?.args(&args.rest))
}
