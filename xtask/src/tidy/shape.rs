//! The shape of a file: how long it may be, and how it begins.

use super::Report;
use super::source::{code_only, product};
use super::tree::Tree;

/// Lines of code a file should keep to. Blank lines, comments and the tests at the end are free.
const BUDGET: usize = 250;
/// Lines of code a file must not pass: nobody holds more in the head.
const CEILING: usize = 600;

pub(crate) fn budgets(tree: &Tree, report: &mut Report) {
    let rust = tree.rust().map(|file| (&file.path, rust_lines(&file.text)));
    let lua = tree.lua().map(|file| (&file.path, lua_lines(&file.text)));
    for (path, lines) in rust.chain(lua) {
        if lines > CEILING {
            report.fail(path, format!("{lines} lines of code; split it, the ceiling is {CEILING}"));
        } else if lines > BUDGET {
            report.warn(path, format!("{lines} lines of code; the budget is {BUDGET}"));
        }
    }
}

pub(crate) fn headings(tree: &Tree, report: &mut Report) {
    for file in tree.rust().filter(|file| !file.text.starts_with("//!")) {
        report.fail(&file.path, "begin with `//!`: what this file is for, and why it is so");
    }
    for file in tree.lua() {
        let mut lines = file.text.lines().peekable();
        lines.next_if(|line| line.starts_with("#!lua"));
        if !lines.next().is_some_and(|line| line.starts_with("--")) {
            report.fail(&file.path, "begin with `--` (after `#!lua`): what this script is for");
        }
    }
}

fn rust_lines(text: &str) -> usize {
    product(&code_only(text)).lines().filter(|line| !line.trim().is_empty()).count()
}

fn lua_lines(text: &str) -> usize {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--")).count()
}

#[cfg(test)]
mod tests {
    use super::{BUDGET, CEILING, budgets, headings, lua_lines, rust_lines};
    use crate::tidy::tree::Tree;
    use crate::tidy::{Report, problems};

    #[test]
    fn only_code_that_ships_counts() {
        let text =
            "//! Doc.\n\n// why\nfn f() {}\n/* a\n b */\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        assert_eq!(rust_lines(text), 1);
        assert_eq!(lua_lines("#!lua\n-- why\n\nlocal a = 1 -- b\nreturn a\n"), 3);
    }

    #[test]
    fn a_long_file_is_warned_about_and_a_longer_one_fails() {
        let text = |lines: usize| "f();\n".repeat(lines);
        let (budget, long, longer) = (text(BUDGET), text(CEILING), text(CEILING + 1));
        let files = [("a.rs", budget.as_str()), ("b.lua", long.as_str()), ("c.rs", longer.as_str())];
        let mut report = Report::default();
        budgets(&Tree::of(&files), &mut report);
        assert_eq!(report.warnings, ["b.lua: 600 lines of code; the budget is 250"]);
        assert_eq!(report.problems, ["c.rs: 601 lines of code; split it, the ceiling is 600"]);
    }

    #[test]
    fn a_file_begins_by_saying_what_it_is_for() {
        let good = [("a.rs", "//! A.\n"), ("a.lua", "#!lua flags=no-writes\n-- A.\n"), ("b.lua", "-- B.\n")];
        assert!(problems(headings, &good).is_empty());
        let bad = [("a.rs", "use x;\n"), ("b.rs", ""), ("a.lua", "#!lua\nreturn 1\n"), ("b.lua", "#!lua\n")];
        assert_eq!(problems(headings, &bad).len(), 4);
    }
}
