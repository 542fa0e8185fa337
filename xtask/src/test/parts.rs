//! Everything CI runs, as a table: to add, drop or reorder a part, edit here and nowhere else.
//!
//! Cheap parts come first, so that a run that fails does so early. Test binaries are named one by one
//! where a part is a layer of its own; `tidy` fails on a binary that no row covers, and a row that
//! names one that is not there fails when its turn comes, so that nothing drops out unseen.

use anyhow::Result;

use crate::{deny, fuzz, install, tidy};

/// One line of the table.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// The sentence a green part proves.
    pub(crate) why: &'static str,
    pub(crate) work: Work,
}

/// What a part does.
pub(crate) enum Work {
    /// Something this program does itself.
    Own(fn() -> Result<()>),
    /// Cargo, once per line, with these words.
    Cargo(&'static [&'static [&'static str]]),
    /// Test binaries of one crate: files of `crates/<folder>/tests`.
    Tests { package: &'static str, folder: &'static str, which: Which },
}

/// Which of a crate's test binaries.
pub(crate) enum Which {
    Only(&'static [&'static str]),
    /// All there are, and there must be one; but not these, which have a part of their own.
    AllBut(&'static [&'static str]),
}

use Which::{AllBut, Only};
use Work::{Cargo, Own, Tests};

pub(crate) const PARTS: &[Part] = &[
    Part { name: "install", why: "the machine has what the tests start", work: Own(install::run) },
    Part { name: "format", why: "the code is formatted", work: Cargo(&[&["fmt", "--all", "--check"]]) },
    Part { name: "tidy", why: "budgets, rooms, twins and words are kept", work: Own(tidy::run) },
    Part { name: "deny", why: "licences, duplicates and sources are as agreed", work: Own(deny::run) },
    Part {
        name: "clippy",
        why: "no lint speaks",
        work: Cargo(&[
            &["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"],
            // A feature must stand alone too.
            &["clippy", "-p", "tollgate", "--features", "http", "--locked", "--", "-D", "warnings"],
        ]),
    },
    Part {
        name: "docs",
        why: "the documentation builds and its links hold",
        work: Cargo(&[&["doc", "--workspace", "--all-features", "--no-deps", "--locked"]]),
    },
    Part {
        name: "unit",
        why: "each file does what it says, examples included",
        // testkit has a part of its own, so that no test is counted twice.
        work: Cargo(&[
            &["test", "--workspace", "--all-features", "--exclude", "testkit", "--lib", "--bins", "--locked"],
            &["test", "--workspace", "--all-features", "--doc", "--locked"],
        ]),
    },
    Part {
        name: "property",
        why: "the algorithms are the textbook's",
        work: Tests { package: "tollgate-core", folder: "core", which: AllBut(&[]) },
    },
    Part {
        name: "kit",
        why: "the tools of the tests can be trusted",
        work: Cargo(&[&["test", "-p", "testkit", "--lib", "--tests", "--locked"]]),
    },
    Part {
        name: "twin",
        why: "Lua and Rust compute the same integers",
        work: Tests { package: "tollgate", folder: "tollgate", which: Only(&["twins"]) },
    },
    Part {
        name: "contract",
        why: "every store behaves alike",
        work: Tests { package: "tollgate", folder: "tollgate", which: Only(&["contract"]) },
    },
    Part {
        name: "redis",
        why: "the Redis store keeps its promises on a real server",
        work: Tests { package: "tollgate", folder: "tollgate", which: Only(&["redis"]) },
    },
    Part {
        name: "engine",
        why: "one ask in, one verdict out, always",
        work: Tests { package: "tollgate", folder: "tollgate", which: Only(&["engine"]) },
    },
    Part {
        name: "breaker",
        why: "instances on one Redis break and recover together, and alone where they must",
        work: Tests { package: "tollgate", folder: "tollgate", which: Only(&["breaker", "breaker_fleet"]) },
    },
    Part {
        name: "deny_cache",
        why: "what is refused without a trip would have been refused with one",
        work: Tests { package: "tollgate", folder: "tollgate", which: Only(&["deny_cache"]) },
    },
    Part {
        name: "layer",
        why: "the tower layers hold a limit and break a circuit over axum, tonic, hyper and reqwest, by the code of the examples",
        work: Tests { package: "tollgate", folder: "tollgate", which: Only(&["middleware"]) },
    },
    Part {
        name: "fault",
        why: "with Redis away the rule's own answer comes, in time, and ends in time",
        work: Tests { package: "tollgate", folder: "tollgate", which: Only(&["faults"]) },
    },
    Part {
        name: "sentinel",
        why: "the primary is followed, whatever becomes of the old one",
        work: Tests { package: "tollgate", folder: "tollgate", which: Only(&["sentinel", "failover"]) },
    },
    Part {
        name: "cluster",
        why: "keys are where they belong, slots may move, and a sick shard is sick alone",
        work: Tests { package: "tollgate", folder: "tollgate", which: Only(&["cluster"]) },
    },
    Part {
        name: "fleet",
        why: "many processes on one Redis admit what one would",
        work: Tests { package: "tollgate", folder: "tollgate", which: Only(&["fleet"]) },
    },
    Part {
        name: "lease",
        why: "tokens taken ahead keep to their bound, and come back",
        work: Tests { package: "tollgate", folder: "tollgate", which: Only(&["leases"]) },
    },
    Part {
        name: "matrix",
        why: "every algorithm on every topology through every tier, and a process killed in each",
        work: Tests { package: "tollgate", folder: "tollgate", which: Only(&["matrix"]) },
    },
    Part {
        name: "door",
        why: "bytes in and bytes out are the documented ones",
        work: Tests { package: "tollgate-server", folder: "server", which: AllBut(&["resp_clients"]) },
    },
    Part {
        name: "client",
        why: "real Redis clients of four languages are throttled by the RESP door",
        work: Tests { package: "tollgate-server", folder: "server", which: Only(&["resp_clients"]) },
    },
    Part { name: "fuzz", why: "a minute of any input breaks no parser", work: Own(fuzz::minute_of_resp) },
];

/// Crates whose every test target a `Cargo` row above runs, so that `tidy` counts them as covered.
pub(crate) const RUN_WHOLE: &[&str] = &["testkit"];

/// Whether some part runs the binary `crates/<folder>/tests/<test>`.
pub(crate) fn covers(folder: &str, test: &str) -> bool {
    RUN_WHOLE.contains(&folder)
        || PARTS.iter().any(|part| match &part.work {
            Own(_) | Cargo(_) => false,
            Tests { folder: of, which: Only(tests), .. } => *of == folder && tests.contains(&test),
            Tests { folder: of, which: AllBut(others), .. } => *of == folder && !others.contains(&test),
        })
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_binary_is_covered_by_its_name_or_by_its_crate() {
        assert!(covers("tollgate", "twins"));
        assert!(covers("tollgate", "fleet"));
        assert!(covers("server", "anything"));
        assert!(covers("testkit", "anything"));
    }

    #[test]
    fn a_binary_of_a_named_crate_is_not_covered_by_being_there() {
        assert!(!covers("tollgate", "forgotten"));
        assert!(!covers("bench", "forgotten"));
    }
}
