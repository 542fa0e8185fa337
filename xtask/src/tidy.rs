//! `cargo xtask tidy`: the rules of the house that neither the compiler nor clippy can hold.
//!
//! Each check is a pure function of the tree's text and holds its rules as data with the reason beside
//! them, so that a failure says why and not only what. All problems are reported at once.

mod leftovers;
mod rooms;
mod shape;
mod source;
mod tree;
mod twins;

use anyhow::{Result, bail};

use self::tree::Tree;

/// Name, and what it looks at.
type Check = (&'static str, fn(&Tree, &mut Report));

const CHECKS: &[Check] = &[
    ("budgets: a file fits in the head", shape::budgets),
    ("headings: a file begins by saying what it is for", shape::headings),
    ("rooms: a file knows its neighbours", rooms::rooms),
    ("siblings: two of a kind do not know each other", rooms::siblings),
    ("leftovers: nothing unfinished is left behind", leftovers::markers),
    ("words: nothing names the machine it was written on", leftovers::places),
    ("twins: each algorithm has its script and its model", twins::twins),
    ("coverage: each test binary is run by some part", twins::coverage),
];

/// What the checks found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    problems: Vec<String>,
    warnings: Vec<String>,
}

impl Report {
    /// Something that must be put right, and the way there.
    fn fail(&mut self, place: impl std::fmt::Display, what: impl std::fmt::Display) {
        self.problems.push(format!("{place}: {what}"));
    }

    /// Something to know about.
    fn warn(&mut self, place: impl std::fmt::Display, what: impl std::fmt::Display) {
        self.warnings.push(format!("{place}: {what}"));
    }
}

pub(crate) fn run() -> Result<()> {
    let tree = Tree::load()?;
    let mut found = 0;
    for (name, check) in CHECKS {
        let mut report = Report::default();
        check(&tree, &mut report);
        println!("  {name}: {}", if report.problems.is_empty() { "ok" } else { "FAILED" });
        report.warnings.iter().for_each(|warning| println!("    warning: {warning}"));
        report.problems.iter().for_each(|problem| println!("    {problem}"));
        found += report.problems.len();
    }
    match found {
        0 => Ok(()),
        1 => bail!("1 thing is untidy"),
        more => bail!("{more} things are untidy"),
    }
}

/// The test binaries of the crate in `crates/<folder>`.
pub(crate) fn test_binaries(folder: &str) -> Result<Vec<String>> {
    Ok(Tree::load()?.test_binaries(folder))
}

/// Runs one check on a tree made up of paths and texts.
#[cfg(test)]
fn problems(check: fn(&Tree, &mut Report), files: &[(&str, &str)]) -> Vec<String> {
    let mut report = Report::default();
    check(&Tree::of(files), &mut report);
    report.problems
}
