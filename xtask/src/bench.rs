//! `cargo xtask bench NAME`: which benchmark is which command.

use anyhow::{Context, Result};

use crate::{clients, command};

/// Name, what it measures, and the cargo commands that measure it; the last gets the caller's words, too.
const BENCHES: &[(&str, &str, &[&[&str]])] = &[
    (
        "core",
        "memory store beside governor, scripts beside the decision record, a check beside PING",
        &[&["run", "--release", "--locked", "-p", "bench", "--", "core"]],
    ),
    (
        "breaker",
        "a permit and its outcome beside failsafe, recloser and tower-resilience, a report beside nothing",
        &[&["run", "--release", "--locked", "-p", "bench", "--", "breaker"]],
    ),
    (
        "doors",
        "the server's CPU per check over gRPC and RESP beside Redis' per PING and SET",
        &[
            &["build", "--release", "--locked", "-p", "tollgate-server"],
            &["run", "--release", "--locked", "-p", "bench", "--", "doors"],
        ],
    ),
    (
        "http",
        "the server's CPU per check over HTTP beside Redis' per PING (needs wrk)",
        &[
            &["build", "--release", "--locked", "-p", "tollgate-server"],
            &["run", "--release", "--locked", "-p", "bench", "--", "http"],
        ],
    ),
    (
        "leases",
        "one hot key with leases and without: admitted per second, Redis' CPU, and how near to the limit",
        &[&["run", "--release", "--locked", "-p", "bench", "--", "leases"]],
    ),
    (
        "policy",
        "instructions per match with one rule and with ten thousand (needs valgrind)",
        &[&["run", "--release", "--locked", "-p", "bench", "--", "policy"]],
    ),
    (
        "redis",
        "every traffic on every store with every tier, bytes per key, peers on one Redis, what batches save",
        &[
            &["build", "--release", "--locked", "-p", "tollgate-server"],
            &["run", "--release", "--locked", "-p", "bench", "--", "redis"],
        ],
    ),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which benchmark; an unknown name lists them.
    name: String,
    /// Passed on to the benchmark.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (_, what, lines) = BENCHES.iter().find(|(name, ..)| *name == args.name).with_context(|| {
        let known = BENCHES.iter().map(|(name, what, _)| format!("  {name:<8} {what}"));
        format!("no bench is named {:?}; there are:\n{}", args.name, known.collect::<Vec<_>>().join("\n"))
    })?;
    println!("bench {}: {what}", args.name);
    let part = args.rest.iter().find(|word| !word.starts_with('-'));
    if args.name == "redis" && part.is_none_or(|part| part == "peers") {
        clients::install_peers();
    }
    let (last, first) = lines.split_last().context("a bench has a command")?;
    for line in first {
        command::run(&mut command::cargo(line)?)?;
    }
    command::run(command::cargo(last)?.args(&args.rest))
}
