//! `tollgate check`.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;

use crate::config::policy::print;
use crate::config::{Config, Overrides, breakers, environment};

const AFTER_HELP: &str = "\
Every problem is reported at once, each with file, line, column, field and what is allowed. The file's own
`tests` run in memory, each by itself, at a time of their own; nothing is dialled and nothing listens:

  tests:
    - name: a sixth login within a minute is refused
      ask: { method: POST, path: /login, address: 203.0.113.9 }
      times: 6                # so often in a row; what is said below is said of the last
      after: 0s               # how much time passes between them
      rules: [login]          # the rules that must apply, and no others
      verdict: refused        # or allowed
      retry_after: 1min       # also: remaining, subject (address, token, ...), would_refuse";

/// Checks a file of rules and settings, and runs the tests in it, without starting anything.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Check {
    /// The file; without one, the built-in default is checked.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// A directory of envoyproxy/ratelimit's YAML, to be checked as `serve --envoy-config` would, its environment
    /// included.
    #[arg(long, value_name = "DIR")]
    envoy_config: Option<PathBuf>,

    /// Print the effective policy: defaults spelled out, as a file that says the same.
    #[arg(long)]
    print: bool,
}

impl Check {
    /// Checks, prints and tests.
    pub(super) fn run(self) -> Result<(), anyhow::Error> {
        let name = self.file.as_ref().map_or("built-in".to_owned(), |file| file.display().to_string());
        let overrides = Overrides {
            file: self.file,
            environment: self.envoy_config.as_ref().map(|_| environment::of_process()).unwrap_or_default(),
            envoy_config: self.envoy_config,
            ..Overrides::default()
        };
        let (config, _) = Config::load(overrides)?;
        let policy = config.policy.build(1, &config.facing)?;
        let mut out = io::stdout().lock();
        if self.print {
            out.write_all(print(&policy, config.outage.on_outage).as_bytes())?;
            out.write_all(breakers::print(&config.breakers).as_bytes())?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let trials = &config.policy.trials;
        let mut failed = Vec::new();
        for trial in trials {
            if let Err(wrong) = runtime.block_on(trial.run(&policy)) {
                failed.extend(wrong.into_iter().map(|wrong| (trial.place, trial.name.clone(), wrong)));
            }
        }
        // What is printed can be piped into a file; what is said about it goes beside.
        let mut beside = io::stderr().lock();
        for warning in &config.warnings {
            writeln!(beside, "{warning}")?;
        }
        if failed.is_empty() {
            let rules = counted(policy.rules().len(), "rule");
            // Most files have none, and are told of none.
            let breakers = match config.breakers.kinds().len() {
                0 => String::new(),
                kinds => format!(", {}", counted(kinds, "breaker")),
            };
            let tests = counted(trials.len(), "test");
            let envoy = config.facing.rls.dialect.as_ref().map_or_else(String::new, |dialect| {
                let limits = counted(dialect.limits().len(), "limit");
                format!("{limits} of {}, ", counted(dialect.domains(), "domain"))
            });
            if self.print {
                writeln!(beside, "{name}: {envoy}{rules}{breakers}, {tests} passed")?;
            } else {
                writeln!(out, "{name}: {envoy}{rules}{breakers}, {tests} passed")?;
            }
            return Ok(());
        }
        for (place, trial, wrong) in &failed {
            writeln!(beside, "{}: \"{trial}\": {wrong}", place.in_file(&name))?;
        }
        Err(TestsFailed { failed: failed.len(), of: trials.len() }.into())
    }
}

/// The file is right, and its rules do not do what it says they do.
#[derive(Debug, thiserror::Error)]
#[error("{failed} of what {of} tests say did not come true")]
struct TestsFailed {
    failed: usize,
    of: usize,
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
