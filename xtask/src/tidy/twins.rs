//! Things that come in pairs: an algorithm and its script and its model, a test and the part that runs it.

use std::collections::BTreeSet;

use super::Report;
use super::tree::Tree;
use crate::test::parts;

const ALGORITHMS: &str = "crates/core/src/algorithm";
const SCRIPTS: &str = "crates/tollgate/scripts";
const MODELS: &str = "crates/core/tests/models";

/// Files among the algorithms and the scripts that are neither, and what they are instead.
const NOT_ALGORITHMS: &[(&str, &str)] = &[
    ("mod", "the enum and the match that dispatches"),
    ("share", "divides any limit among instances: a second match on the enum"),
    ("tests", "tests of the enum"),
    ("take", "the driver: looks at all, then spends all"),
    ("several", "the end of that driver: several checks, all or none"),
    ("batch", "the driver of many asks"),
    ("refund", "the driver that gives back"),
    ("breaker", "the twin of core/src/breaker"),
    ("dispatch", "picks the twin, for asks of several kinds"),
    ("heartbeat", "shows an instance alive"),
    ("library", "registers everything as functions"),
    ("post", "puts a notice on the board"),
    ("layout_packed", "loads and saves state as one string"),
    ("layout_hash", "loads and saves state as a hash"),
    ("numbers", "arithmetic that does not fit into a double"),
    ("token_bucket_fast", "the usual case of token_bucket.lua, before anything is set up"),
    ("fast_script", "what token_bucket_fast.lua starts from in a script"),
    ("fast_library", "what token_bucket_fast.lua starts from in the library"),
];

pub(crate) fn twins(tree: &Tree, report: &mut Report) {
    let rust = algorithms(tree.stems(ALGORITHMS, ".rs"));
    let lua = algorithms(tree.stems(SCRIPTS, ".lua"));
    let models = tree.stems(MODELS, ".rs");
    for name in rust.difference(&lua) {
        report.fail(format!("{ALGORITHMS}/{name}.rs"), format!("has no twin; write {SCRIPTS}/{name}.lua"));
    }
    for name in lua.difference(&rust) {
        let way = "write it, or name the script in NOT_ALGORITHMS (xtask/src/tidy/twins.rs)";
        report.fail(format!("{SCRIPTS}/{name}.lua"), format!("has no twin {ALGORITHMS}/{name}.rs; {way}"));
    }
    for name in rust.difference(&models) {
        report.fail(format!("{ALGORITHMS}/{name}.rs"), format!("has no model; write {MODELS}/{name}.rs"));
    }
}

pub(crate) fn coverage(tree: &Tree, report: &mut Report) {
    for folder in tree.folders("crates") {
        for test in tree.test_binaries(folder).iter().filter(|test| !parts::covers(folder, test)) {
            let what = "no part of `cargo xtask test` runs it; add a row to xtask/src/test/parts.rs";
            report.fail(format!("crates/{folder}/tests/{test}"), what);
        }
    }
}

fn algorithms(mut names: BTreeSet<&str>) -> BTreeSet<&str> {
    names.retain(|name| NOT_ALGORITHMS.iter().all(|(other, _)| other != name));
    names
}

#[cfg(test)]
mod tests {
    use super::{coverage, twins};
    use crate::tidy::problems;

    const RUST: (&str, &str) = ("crates/core/src/algorithm/token_bucket.rs", "");
    const LUA: (&str, &str) = ("crates/tollgate/scripts/token_bucket.lua", "");
    const MODEL: (&str, &str) = ("crates/core/tests/models/token_bucket.rs", "");

    #[test]
    fn an_algorithm_is_whole_with_script_and_model() {
        let driver = ("crates/tollgate/scripts/take.lua", "");
        let dispatch = ("crates/core/src/algorithm/mod.rs", "");
        assert!(problems(twins, &[RUST, LUA, MODEL, driver, dispatch]).is_empty());
        assert!(problems(twins, &[]).is_empty());
    }

    #[test]
    fn whatever_is_missing_is_named() {
        assert!(
            problems(twins, &[RUST, MODEL])[0].contains("write crates/tollgate/scripts/token_bucket.lua")
        );
        assert!(problems(twins, &[RUST, LUA])[0].contains("write crates/core/tests/models/token_bucket.rs"));
        assert!(problems(twins, &[LUA])[0].contains("no twin crates/core/src/algorithm/token_bucket.rs"));
    }

    #[test]
    fn a_test_that_nothing_runs_is_found() {
        let files = [("crates/tollgate/tests/twins.rs", ""), ("crates/tollgate/tests/lost.rs", "")];
        let found = problems(coverage, &files);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/tollgate/tests/lost: "), "{found:?}");
    }
}
