//! `cargo xtask fuzz NAME`: a search for inputs that break a parser, on stable, by seed and for a time.

use anyhow::{Context, Result};

use crate::command;

/// Name, and the test that searches.
const TARGETS: &[(&str, &[&str])] = &[(
    "resp",
    &["test", "--locked", "-p", "tollgate-server", "--bin", "tollgate", "--", "resp::fuzz", "--nocapture"],
)];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which parser: resp.
    name: String,
    /// For how long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// From which seed; by chance if there is none. A failure prints its own.
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    search(&args.name, args.seconds, args.seed)
}

/// A minute of it, as a part of `cargo xtask test`.
pub(crate) fn minute_of_resp() -> Result<()> {
    search("resp", 60, None)
}

fn search(name: &str, seconds: u64, seed: Option<u64>) -> Result<()> {
    let (_, line) = TARGETS.iter().find(|(target, _)| *target == name).with_context(|| {
        let known: Vec<_> = TARGETS.iter().map(|(target, _)| *target).collect();
        format!("nothing to fuzz is named {name:?}; there are {}", known.join(", "))
    })?;
    let mut cargo = command::cargo(line)?;
    cargo.env("TOLLGATE_FUZZ_SECONDS", seconds.to_string());
    if let Some(seed) = seed {
        cargo.env("TOLLGATE_FUZZ_SEED", seed.to_string());
    }
    command::run(&mut cargo)
}
