//! `cargo xtask campaign [NAME] [--seed N] [--rounds N]`: the long searches, and the page each one leaves behind.
//!
//! A campaign is an ignored test that reads its seed from `TOLLGATE_SEED` and runs for as long as it is
//! worth. Its page says what was run, on which commit, with which seed and for how long, so that anybody
//! can run the same again. The page holds the last run; git holds the ones before.

use std::fmt::Write as _;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result, bail};

use crate::command;

/// An ignored test binary that searches.
struct Campaign {
    name: &'static str,
    /// What it searches for, and hopes not to find.
    what: &'static str,
    package: &'static str,
    test: &'static str,
    /// How often it repeats everything unless told otherwise, if that is a question.
    rounds: Option<u32>,
}

const CAMPAIGNS: &[Campaign] = &[
    Campaign {
        name: "model",
        what: "a history on which an algorithm and its textbook model differ",
        package: "tollgate-core",
        test: "algorithms",
        rounds: None,
    },
    Campaign {
        name: "twin",
        what: "a history on which Rust and Lua differ",
        package: "tollgate",
        test: "twins",
        rounds: None,
    },
    Campaign {
        name: "faults",
        what: "a fault after which a promise does not hold",
        package: "tollgate",
        test: "faults",
        rounds: None,
    },
    Campaign {
        name: "breaker",
        what: "a fleet of processes whose breaker breaks a promise",
        package: "tollgate",
        test: "breaker_fleet",
        rounds: None,
    },
    Campaign {
        name: "failover",
        what: "a failover that admits too much, or that clients do not follow",
        package: "tollgate",
        test: "failover",
        rounds: Some(20),
    },
];

/// Lines of cargo's that say how the program was built, not what it found.
const BUILD_NOISE: &[&str] =
    &["Blocking", "Compiling", "Downloaded", "Downloading", "Finished", "Locking", "Updating"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which campaign; all of them if none is named.
    name: Option<String>,
    /// Repeats the run that had this seed; a new one is drawn if none is given.
    #[arg(long)]
    seed: Option<u64>,
    /// How often a campaign that counts in rounds repeats everything.
    #[arg(long)]
    rounds: Option<u32>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |campaign: &&Campaign| args.name.as_deref().is_none_or(|name| name == campaign.name);
    let chosen: Vec<&Campaign> = CAMPAIGNS.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let known = CAMPAIGNS.iter().map(|Campaign { name, what, .. }| format!("  {name:<8} {what}"));
        bail!("no campaign has that name; there are:\n{}", known.collect::<Vec<_>>().join("\n"));
    }
    if args.rounds == Some(0)
        || args.rounds.is_some() && chosen.iter().all(|campaign| campaign.rounds.is_none())
    {
        bail!("--rounds is 1 or more, and for a campaign that counts in rounds");
    }
    let seed = args.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    chosen.into_iter().try_for_each(|campaign| search(campaign, seed, args.rounds))
}

fn search(campaign: &Campaign, seed: u64, rounds: Option<u32>) -> Result<()> {
    let Campaign { name, what, package, test, rounds: usual } = *campaign;
    let rounds = usual.map(|usual| rounds.unwrap_or(usual));
    println!("campaign {name}, seed {seed}: looking for {what}");
    // Asked before the run: a campaign lasts hours, and the tree may move on meanwhile.
    let (date, commit) = (date(), commit());
    let mut cargo = command::cargo(&["test", "--release", "--locked", "-p", package, "--test", test])?;
    cargo.args(["--", "--ignored", "--nocapture"]).env("TOLLGATE_SEED", seed.to_string());
    if let Some(rounds) = rounds {
        cargo.env("TOLLGATE_ROUNDS", rounds.to_string());
    }
    let (done, took) = command::timed(|| tee(&mut cargo));
    let (succeeded, output) = done?;

    // A run that tested nothing, or was not even built, must not replace the page of one that did.
    if tests_run(&output) == 0 {
        bail!("campaign {name}: no test ran");
    }
    let result = if succeeded { "nothing found" } else { "FAILED" };
    let command = command::show(&cargo);
    let page = page(&Run { name, what, result, date, commit, seed, rounds, took, command, output });
    let folder = command::root()?.join("docs").join("campaigns");
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{name}.md"));
    fs::write(&file, page).with_context(|| format!("could not write {}", file.display()))?;
    println!("campaign {name}: {result}; written to docs/campaigns/{name}.md");
    if succeeded { Ok(()) } else { bail!("campaign {name}, seed {seed}: {result}") }
}

/// Everything a page says.
struct Run<'a> {
    name: &'a str,
    what: &'a str,
    result: &'a str,
    date: String,
    commit: String,
    seed: u64,
    rounds: Option<u32>,
    took: Duration,
    command: String,
    output: Vec<String>,
}

fn page(run: &Run) -> String {
    let mut page = format!(
        "# Campaign `{}`\n\nLooks for {}. Written by `cargo xtask campaign`.\n\n",
        run.name, run.what
    );
    let rounds = run.rounds.map(|rounds| format!(" --rounds {rounds}")).unwrap_or_default();
    let again = format!("`cargo xtask campaign {} --seed {}{rounds}`", run.name, run.seed);
    let rows = [
        ("result", run.result.to_owned()),
        ("date", run.date.clone()),
        ("commit", run.commit.clone()),
        ("seed", run.seed.to_string()),
        ("duration", format!("{:.1} s", run.took.as_secs_f64())),
        ("machine", machine()),
        ("command", format!("`{}`", run.command)),
        ("again", again),
    ];
    page.push_str("| | |\n|---|---|\n");
    for (name, value) in rows {
        let _ = writeln!(page, "| {name} | {value} |");
    }
    let _ = write!(page, "\n```text\n{}\n```\n", run.output.join("\n").trim());
    page
}

/// Runs to the end, showing every line as it comes and keeping those worth keeping.
fn tee(command: &mut Command) -> Result<(bool, Vec<String>)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let places = private_places();
    let kept = Mutex::new(Vec::new());
    let listen = |from: Box<dyn Read + Send>| {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            println!("{line}");
            if !BUILD_NOISE.iter().any(|noise| line.trim_start().starts_with(noise)) {
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(scrubbed(&line, &places));
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| listen(Box::new(stdout)));
        scope.spawn(|| listen(Box::new(stderr)));
    });
    let succeeded = child.wait()?.success();
    Ok((succeeded, kept.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// Folders of this machine, and what a page says instead: pages are committed.
fn private_places() -> Vec<(String, &'static str)> {
    let folder = |name: &str| env::var_os(name).map(|folder| folder.to_string_lossy().into_owned());
    let root = command::root().ok().map(|root| root.display().to_string());
    let places = [(folder("CARGO_TARGET_DIR"), "target"), (root, "."), (folder("HOME"), "~")];
    places.into_iter().filter_map(|(place, name)| Some((place?, name))).collect()
}

fn scrubbed(line: &str, places: &[(String, &str)]) -> String {
    places.iter().fold(line.to_owned(), |line, (place, name)| line.replace(place, name))
}

/// How many tests the summaries count, passed or failed. A campaign that ran none proves nothing.
fn tests_run(output: &[String]) -> u64 {
    let summaries = output.iter().filter_map(|line| line.strip_prefix("test result: "));
    let counts = summaries.flat_map(|summary| summary.split([';', '.'])).filter_map(|part| {
        let (count, word) = part.trim().split_once(' ')?;
        (word == "passed" || word == "failed").then(|| count.parse::<u64>().ok())?
    });
    counts.sum()
}

fn date() -> String {
    command::answer("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_else(|| "unknown".to_owned())
}

fn commit() -> String {
    let Some(commit) = command::answer("git", &["rev-parse", "--short=12", "HEAD"]) else {
        return "none".to_owned();
    };
    match command::answer("git", &["status", "--porcelain"]).as_deref() {
        Some("") => commit,
        _ => format!("{commit} and changes not committed"),
    }
}

fn machine() -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let rust = command::answer("rustc", &["--version"]).unwrap_or_else(|| "rustc unknown".to_owned());
    format!("{cores} cores, {}, {rust}", env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::{scrubbed, tests_run};

    #[test]
    fn tests_are_counted_over_all_summaries() {
        let output = [
            "running 3 tests",
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.25s",
        ];
        assert_eq!(tests_run(&output.map(str::to_owned)), 5);
    }

    #[test]
    fn a_run_that_filtered_everything_out_counts_none() {
        let output =
            ["test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.00s"];
        assert_eq!(tests_run(&output.map(str::to_owned)), 0);
    }

    #[test]
    fn a_page_names_no_folder_of_the_machine() {
        let places = [("/somebody/tollgate".to_owned(), "."), ("/somebody".to_owned(), "~")];
        let line = "panicked at /somebody/tollgate/crates/core/src/key.rs, /somebody/.cargo/x.rs";
        assert_eq!(scrubbed(line, &places), "panicked at ./crates/core/src/key.rs, ~/.cargo/x.rs");
    }
}
