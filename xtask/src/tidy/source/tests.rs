//! What the little reader of Rust makes of comments, strings and paths.

use super::{code_only, paths, product};

fn named(code: &str) -> Vec<String> {
    paths(code).into_iter().map(|path| path.segments.join("::")).collect()
}

#[test]
fn comments_and_strings_are_not_code() {
    let text = "let a = \"tokio // not\"; // redis\n/* one /* two */ still */ b(r#\"say \"hi\"\"#);\n";
    let code = code_only(text);
    assert_eq!(named(&code), ["let", "a", "b"]);
    assert_eq!(code.lines().count(), 2);
}

#[test]
fn lines_inside_a_string_still_count_as_lines_of_code() {
    let code = code_only("let script = \"\nlocal now\n\";\n");
    assert!(code.lines().all(|line| !line.trim().is_empty()), "{code}");
}

#[test]
fn a_lifetime_is_not_the_start_of_a_character() {
    let code = code_only("fn f<'a>(x: &'a str, quote: char) { g('\"', '\\'', '\\u{1F600}', b'x', \"s\") }");
    assert!(named(&code).contains(&"str".to_owned()), "{code}");
    assert!(!named(&code).contains(&"s".to_owned()), "{code}");
}

#[test]
fn an_unfinished_literal_ends_with_the_text() {
    for text in ["\"abc", "'\\", "'\\n", "/* x", "r#\"x\"", "\"abc\\"] {
        assert_eq!(code_only(text).chars().count(), text.chars().count());
    }
}

#[test]
fn a_use_tree_unfolds() {
    let found = named("use std::{fs, io::{self, Read as R}, net::*};\nuse super::x;\n");
    assert_eq!(found, ["std::fs", "std::io", "std::io::Read", "std::net::*", "super::x"]);
}

#[test]
fn a_use_tree_over_several_lines_keeps_them() {
    let found = paths("use std::{\n    fs,\n    net,\n};\nfn f() {}\n");
    assert_eq!((found[0].line, found[1].line), (2, 3));
    assert_eq!(found[2].segments, ["fn"]);
}

#[test]
fn a_capture_bound_is_not_an_import() {
    let found = paths("fn f<'a>() -> impl Fn() + use<'a> { tokio::spawn::<T>(x) }");
    assert!(found.iter().all(|path| !path.imported));
    assert!(found.iter().any(|path| path.segments == ["tokio", "spawn"]));
}

#[test]
fn the_product_ends_where_the_tests_begin() {
    let code = "#[cfg(test)]\nuse x::y;\nfn f() {}\n#[cfg(test)]\nmod tests { use z::w; }\n";
    assert_eq!(product(code), "#[cfg(test)]\nuse x::y;\nfn f() {}\n");
}
