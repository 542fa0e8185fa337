//! `cargo xtask test`: the parts of `parts.rs` one after the other, each timed, with a table at the end.
//!
//! Output is passed through untouched: CI counts the summary lines that cargo's tests print.

pub(crate) mod parts;

use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::parts::{PARTS, Part, Which, Work};
use crate::{command, tidy};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Parts to run; all of them if none is named.
    names: Vec<String>,
    /// Shows the parts and what each one proves.
    #[arg(long)]
    list: bool,
    /// Runs every part, whatever the ones before it said.
    #[arg(long)]
    keep_going: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let parts = selected(&args.names)?;
    if args.list {
        for part in parts {
            println!("{:<9} {}", part.name, part.why);
        }
        return Ok(());
    }

    let count = parts.len();
    let mut rows: Vec<(&str, &str, Duration)> = Vec::new();
    let mut failures = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        if !failures.is_empty() && !args.keep_going {
            rows.push((part.name, "not run", Duration::ZERO));
            continue;
        }
        println!("\n[{}/{count}] {} ({})", at + 1, part.name, part.why);
        let (done, took) = command::timed(|| carry_out(&part.work));
        let result = if done.is_ok() { "ok" } else { "FAILED" };
        println!("[{}/{count}] {} {result} in {}", at + 1, part.name, seconds(took));
        rows.push((part.name, result, took));
        if let Err(error) = done {
            println!("{}: {error:#}", part.name);
            failures.push(part.name);
        }
    }

    println!("\n{}", table(&rows));
    if failures.is_empty() {
        return Ok(());
    }
    bail!("failed: {0}; run again with `cargo xtask test {1}`", failures.join(", "), failures.join(" "));
}

fn selected(names: &[String]) -> Result<Vec<&'static Part>> {
    if names.is_empty() {
        return Ok(PARTS.iter().collect());
    }
    let find = |name: &String| {
        let known = || PARTS.iter().map(|part| part.name).collect::<Vec<_>>().join(", ");
        let part = PARTS.iter().find(|part| part.name == *name);
        part.with_context(|| format!("no part is named {name:?}; there are {}", known()))
    };
    names.iter().map(find).collect()
}

fn carry_out(work: &Work) -> Result<()> {
    match work {
        Work::Own(task) => task(),
        Work::Cargo(lines) => lines.iter().try_for_each(|line| cargo(line)),
        Work::Tests { package, folder, which } => {
            let tests = binaries(folder, which)?;
            let mut line = vec!["test", "--locked", "--all-features", "-p", package];
            line.extend(tests.iter().flat_map(|test| ["--test", test]));
            cargo(&line)
        }
    }
}

fn cargo(line: &[&str]) -> Result<()> {
    let mut cargo = command::cargo(line)?;
    println!("{}", command::show(&cargo));
    // Only rustdoc reads it; a broken link is otherwise a warning that nobody sees.
    cargo.env("RUSTDOCFLAGS", "-D warnings");
    command::run(&mut cargo)
}

/// The test binaries meant, each of which exists.
fn binaries(folder: &str, which: &Which) -> Result<Vec<String>> {
    let there = tidy::test_binaries(folder)?;
    match which {
        Which::Only(named) => {
            if let Some(gone) = named.iter().find(|name| !there.iter().any(|test| test == *name)) {
                bail!("crates/{folder}/tests/{gone}.rs does not exist; write it, or edit test/parts.rs");
            }
            Ok(named.iter().map(ToString::to_string).collect())
        }
        Which::AllBut(others) => {
            let rest: Vec<_> = there.into_iter().filter(|test| !others.contains(&test.as_str())).collect();
            if rest.is_empty() {
                bail!("crates/{folder}/tests has no test for this part; write one, or edit test/parts.rs");
            }
            Ok(rest)
        }
    }
}

fn table(rows: &[(&str, &str, Duration)]) -> String {
    let total: Duration = rows.iter().map(|(.., took)| *took).sum();
    let mut lines = vec![format!("{:<10} {:<8} {:>9}", "part", "result", "time")];
    lines.extend(rows.iter().map(|(name, result, took)| {
        let time = if *result == "not run" { "-".to_owned() } else { seconds(*took) };
        format!("{name:<10} {result:<8} {time:>9}")
    }));
    lines.push(format!("{:<10} {:<8} {:>9}", "total", "", seconds(total)));
    lines.join("\n")
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{selected, table};

    #[test]
    fn an_unknown_part_is_answered_with_the_known_ones() {
        let error = selected(&["nope".to_owned()]).err().expect("there is no such part").to_string();
        assert!(error.contains("\"nope\"") && error.contains("install, format"), "{error}");
    }

    #[test]
    fn the_closing_table_says_what_did_not_run() {
        let rows = [("format", "ok", Duration::from_millis(1_250)), ("unit", "not run", Duration::ZERO)];
        let expected = "\
part       result        time
format     ok           1.2 s
unit       not run          -
total                   1.2 s";
        assert_eq!(table(&rows), expected);
    }
}
