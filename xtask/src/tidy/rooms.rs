//! Who may know whom: the room table of the house style, as data.
//!
//! Cargo already keeps the crates apart; this keeps the folders apart. A row that stands in the way is a
//! design change and deserves a line in the pull request. Tests at the end of a file may look next door.

use std::collections::BTreeSet;

use super::Report;
use super::source::{Named, code_only, paths, product};
use super::tree::{File, Tree};

/// What the code in a place must never mention, and why.
struct Room {
    /// A folder, or a module by its path without `.rs`.
    place: &'static str,
    /// `crate::x`: that module and all below it, however it is reached. One small word: the crate of that
    /// name. Anything else: those words in a row, anywhere in a path.
    never: &'static [&'static str],
    why: &'static str,
}

const ROOMS: &[Room] = &[
    Room {
        place: "crates/core",
        never: &["tokio", "redis", "http", "hyper", "std::fs", "std::net"],
        why: "deciding is pure: no runtime, no wire, no files",
    },
    Room {
        place: "crates/core",
        never: &["time::Instant", "SystemTime"],
        why: "time lives where the state lives; the core is told the time",
    },
    Room {
        place: "crates/core/src/algorithm",
        never: &["crate::key", "crate::policy", "crate::store", "crate::ask", "crate::check"],
        why: "an algorithm is arithmetic: it knows neither keys nor rules nor stores",
    },
    Room {
        place: "crates/core/src/policy",
        never: &["crate::store"],
        why: "a policy says what to check, not where it is remembered",
    },
    Room {
        place: "crates/tollgate",
        never: &["hyper", "serde", "clap"],
        why: "doors, configuration and the command line belong to the server",
    },
    Room {
        place: "crates/tollgate/src/store",
        never: &["Ask", "Policy", "Verdict"],
        why: "a store remembers checks; what was asked and what is answered is the engine's",
    },
    Room {
        place: "crates/tollgate/src/engine",
        never: &["crate::store::redis"],
        why: "the engine knows the Store trait, and of the stores only the memory that `local` decides from",
    },
    Room {
        place: "crates/core/src/breaker",
        never: &["crate::algorithm", "crate::policy", "crate::key", "crate::check", "crate::ask"],
        why: "a breaker knows neither limits nor rules",
    },
    Room {
        place: "crates/tollgate/src/breaker",
        never: &["crate::store", "crate::engine"],
        why: "an instance's breakers know the fleet by its seam alone",
    },
    Room {
        place: "crates/tollgate/src/identity",
        never: &["crate::engine", "crate::store", "crate::answer", "crate::middleware"],
        why: "who is asking is found out before anything is asked",
    },
    Room {
        place: "crates/tollgate/src/answer",
        never: &["crate::engine", "crate::store", "crate::identity", "crate::middleware"],
        why: "an answer is made of a verdict and nothing else",
    },
    Room {
        place: "crates/tollgate/src/middleware",
        never: &["crate::store"],
        why: "the tower layers speak to the engine alone",
    },
    Room {
        place: "crates/server/src/doors",
        never: &["tollgate::store", "tollgate_core::store", "crate::config"],
        why: "a door is two translations and one call; it holds no rule, no key, no counter",
    },
    Room {
        place: "crates/server/src/gateway",
        never: &["crate::doors"],
        why: "the gateway asks the engine itself",
    },
    Room {
        place: "crates/server/src/dispatch",
        never: &["crate::doors"],
        why: "dispatch asks the engine itself",
    },
];

/// Folders whose modules are two of a kind and must not know each other: (folder, not one of them, why).
const SIBLINGS: &[(&str, &[&str], &str)] = &[
    (
        "crates/core/src/algorithm",
        &["mod", "share", "tests"],
        "an algorithm can be read, changed and dropped alone",
    ),
    ("crates/server/src/doors", &["mod", "tests"], "a protocol can be read, changed and dropped alone"),
];

pub(crate) fn rooms(tree: &Tree, report: &mut Report) {
    for file in tree.rust() {
        let rows: Vec<&Room> = ROOMS.iter().filter(|room| is_in(&file.path, room.place)).collect();
        if rows.is_empty() {
            continue;
        }
        for path in mentions(file) {
            for room in &rows {
                if let Some(never) = room.never.iter().find(|never| is_mention(&path, never)) {
                    let place = format!("{}:{}", file.path, path.line);
                    report.fail(place, format!("mentions `{never}`: {}", room.why));
                }
            }
        }
    }
}

pub(crate) fn siblings(tree: &Tree, report: &mut Report) {
    for (folder, others, why) in SIBLINGS {
        let mut kin: BTreeSet<&str> = tree.folders(folder);
        kin.extend(tree.stems(folder, ".rs"));
        kin.retain(|name| !others.contains(name));
        let home = module_of(&format!("{folder}/mod.rs")).expect("siblings live in a crate's src");
        for file in tree.rust().filter(|file| is_in(&file.path, folder)) {
            let inside = &file.path[folder.len() + 1..];
            let own = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs");
            if !kin.contains(own) {
                continue;
            }
            for path in mentions(file) {
                let Some([next, ..]) = path.segments.strip_prefix(home.as_slice()) else { continue };
                let is_kin = |name: &&&str| **name != own && (next == **name || *next == camel_case(name));
                if let Some(sibling) = kin.iter().find(is_kin) {
                    let place = format!("{}:{}", file.path, path.line);
                    report.fail(place, format!("mentions its sibling `{sibling}`: {why}"));
                }
            }
        }
    }
}

/// Every path the file's own code names, `self` and `super` followed to where they lead.
fn mentions(file: &File) -> Vec<Named> {
    let code = code_only(&file.text);
    let mut found = paths(product(&code));
    if let Some(module) = module_of(&file.path) {
        for path in &mut found {
            path.segments = absolute(&module, &path.segments);
        }
    }
    found
}

fn is_in(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
}

fn is_mention(path: &Named, never: &str) -> bool {
    let words: Vec<&str> = never.split("::").collect();
    let segments: Vec<&str> = path.segments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["crate", ..] => segments.starts_with(&words),
        [name] if name.starts_with(char::is_lowercase) => {
            segments[0] == *name && (segments.len() > 1 || path.imported)
        }
        _ => segments.windows(words.len()).any(|window| window == words),
    }
}

/// `crates/server/src/doors/http/decode.rs` is `crate::doors::http::decode`; a test binary is no module.
fn module_of(path: &str) -> Option<Vec<String>> {
    let (_, inside) = path.split_once("/src/")?;
    let mut module = vec!["crate".to_owned()];
    module.extend(inside.trim_end_matches(".rs").split('/').map(str::to_owned));
    if module.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        module.pop();
    }
    Some(module)
}

fn absolute(module: &[String], segments: &[String]) -> Vec<String> {
    let ups = segments.iter().take_while(|segment| *segment == "super").count();
    let is_relative = ups > 0 || segments[0] == "self" && segments.len() > 1;
    if !is_relative {
        return segments.to_vec();
    }
    // `self::super::x` does not occur in this house; `self` counts as no step at all.
    let base = &module[..module.len().saturating_sub(ups).max(1)];
    [base, &segments[ups.max(1)..]].concat()
}

fn camel_case(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| first.to_uppercase().chain(letters).collect::<String>())
            .unwrap_or_default()
    };
    name.split('_').map(capital).collect()
}

#[cfg(test)]
mod tests;
