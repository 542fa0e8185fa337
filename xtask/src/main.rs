//! The workshop's front door: `cargo xtask test | tidy | codegen | campaign | fuzz | bench`.
//!
//! One program instead of a folder of shell scripts, so that what CI runs, what the README says and
//! what a newcomer types are the same words, checked by the same compiler. What is run is data
//! (`test/parts.rs`, `campaign.rs`, `bench.rs`, `tidy/*`); the rest only carries it out.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool speaks by printing")]

mod bench;
mod campaign;
mod clients;
mod codegen;
mod command;
mod deny;
mod fuzz;
mod install;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The workshop of Tollgate.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Installs what is missing, then runs everything CI runs (or only the parts named).
    Test(test::Args),
    /// Checks budgets, rooms, twins, leftovers and words.
    Tidy,
    /// Makes Rust of the protocols in crates/server/proto.
    Codegen,
    /// Runs a long search and writes what it found to docs/campaigns.
    Campaign(campaign::Args),
    /// Searches for inputs that break a parser.
    Fuzz(fuzz::Args),
    /// Runs one benchmark.
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Tidy => tidy::run(),
        Task::Codegen => codegen::run(),
        Task::Campaign(args) => campaign::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Bench(args) => bench::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
