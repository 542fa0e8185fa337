//! Words that must not stay behind: unfinished work in code, and the machine it was written on.

use super::Report;
use super::source::code_only;
use super::tree::Tree;

/// Macros that mark unfinished work, and what to do instead.
const MACROS: &[(&str, &str)] = &[
    ("todo!", "finish it, or open an issue"),
    ("unimplemented!", "finish it, or open an issue"),
    ("dbg!", "remove it"),
];

// Spelled in halves, because these files are checked too.
const FIX_ME: &str = concat!("FIX", "ME");
const TO_DO: &str = concat!("TO", "DO");

/// Folders that exist on the machine of whoever wrote the line, and on no other.
const PLACES: &[&str] = &[concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/")];

pub(crate) fn markers(tree: &Tree, report: &mut Report) {
    for file in tree.rust() {
        for (at, line) in code_only(&file.text).lines().enumerate() {
            let place = format!("{}:{}", file.path, at + 1);
            for (marker, way) in MACROS {
                if stands_alone(line, marker) {
                    report.fail(&place, format!("`{marker}`: {way}"));
                }
            }
            if line.contains("#[ignore]") {
                report.fail(&place, "`#[ignore]` without a reason: write `#[ignore = \"why\"]`");
            }
        }
    }
    for file in tree.rust().chain(tree.lua()) {
        for (at, line) in file.text.lines().enumerate() {
            let place = format!("{}:{}", file.path, at + 1);
            if line.contains(FIX_ME) {
                report.fail(&place, format!("`{FIX_ME}` does not merge: fix it, or open an issue"));
            }
            if line.split(TO_DO).skip(1).any(|after| !after.starts_with("(#")) {
                report.fail(&place, format!("`{TO_DO}` needs an issue: write `{TO_DO}(#123)`"));
            }
        }
    }
}

pub(crate) fn places(tree: &Tree, report: &mut Report) {
    for file in tree.files() {
        for (at, line) in file.text.lines().enumerate() {
            if let Some(place) = PLACES.iter().find(|place| stands_alone(line, place)) {
                let what =
                    format!("names `{place}`, a folder of one machine; say it relative to the project");
                report.fail(format!("{}:{}", file.path, at + 1), what);
            }
        }
    }
}

/// Whether the word occurs where no longer word or path runs into it (`example.com/…`, `my_dbg!`).
fn stands_alone(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.}".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::{FIX_ME, PLACES, TO_DO, markers, places};
    use crate::tidy::problems;

    fn marked(line: &str) -> usize {
        problems(markers, &[("a.rs", line)]).len()
    }

    #[test]
    fn unfinished_work_is_found_in_code() {
        assert_eq!(marked("fn f() { todo!() }"), 1);
        assert_eq!(marked("let x = dbg!(y);"), 1);
        assert_eq!(marked("    #[ignore]"), 1);
    }

    #[test]
    fn prose_and_reasons_are_not_unfinished_work() {
        assert_eq!(marked("// `todo!` and dbg! do not merge"), 0);
        assert_eq!(marked("let s = \"todo!\";"), 0);
        assert_eq!(marked("#[ignore = \"a campaign\"]"), 0);
        assert_eq!(marked("my_dbg!(x)"), 0);
    }

    #[test]
    fn markers_are_found_in_comments_too() {
        assert_eq!(marked(&format!("// {FIX_ME}: later")), 1);
        assert_eq!(marked(&format!("// {TO_DO}: later")), 1);
        assert_eq!(marked(&format!("// {TO_DO}(#12): later")), 0);
        assert_eq!(problems(markers, &[("a.lua", &format!("-- {FIX_ME}"))]).len(), 1);
        assert_eq!(problems(markers, &[("STYLE.md", &format!("`{FIX_ME}` does not merge"))]).len(), 0);
    }

    #[test]
    fn a_folder_of_one_machine_is_named_nowhere() {
        for place in PLACES {
            let found = problems(places, &[("docs/a.md", &format!("line\nsee {place}main/x"))]);
            assert_eq!(found.len(), 1);
            assert!(found[0].starts_with("docs/a.md:2: "), "{found:?}");
            assert!(problems(places, &[("docs/a.md", &format!("https://example.com{place}x"))]).is_empty());
        }
    }
}
