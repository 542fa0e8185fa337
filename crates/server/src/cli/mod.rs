//! The command line: what can be asked of the binary, and what its exit code says.

mod breaker;
mod check;
mod inspect;
mod schema;
mod serve;

use clap::{Parser, Subcommand};

use crate::config::ConfigError;

const EXAMPLES: &str = "\
Examples:
  tollgate serve                                    in memory, with rules to try things out
  tollgate serve --redis redis://127.0.0.1:6379     one answer across all instances on that Redis
  tollgate serve --config tollgate.yaml             your own rules
  tollgate check tollgate.yaml                      is the file right, and do its tests pass?
  curl -s http://127.0.0.1:8080/v1/check -d '{\"rule\":\"login\",\"key\":\"user_123\"}'
  curl -s http://127.0.0.1:8080/v1/check -d '{\"key\":\"user_123\",\"limit\":\"100/s\",\"burst\":200}'
  curl -s http://127.0.0.1:9180/metrics
  tollgate inspect user_123 --redis redis://127.0.0.1:6379

Exit codes:
  0  ended when asked to
  1  could not start, or failed; tests in a file that is checked did not pass
  2  the flags or the configuration are wrong";

/// Exact rate limits across every instance that shares a Redis.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answers checks until it is asked to stop.
    Serve(Box<serve::Serve>),
    /// Checks a file of rules and settings, and runs the tests in it, without starting anything.
    Check(check::Check),
    /// Prints the JSON Schema of that file, for editors.
    Schema(schema::Schema),
    /// Shows what is remembered about a key, in words.
    Inspect(inspect::Inspect),
}

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// As asked.
    Ok,
    /// It could not start, or failed.
    Failed,
    /// Flags or configuration are wrong.
    Misused,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Ok => 0.into(),
            Exit::Failed => 1.into(),
            Exit::Misused => 2.into(),
        }
    }
}

/// Reads the command line and does what it says.
pub(crate) fn main() -> Result<(), anyhow::Error> {
    let Cli { command } = Cli::parse();
    match command {
        Command::Serve(serve) => serve.run(),
        Command::Check(check) => check.run(),
        Command::Schema(schema) => schema.run(),
        Command::Inspect(inspect) => inspect.run(),
    }
}

/// What an error means for the exit code.
pub(crate) fn exit_of(error: &anyhow::Error) -> Exit {
    if error.is::<ConfigError>() { Exit::Misused } else { Exit::Failed }
}
