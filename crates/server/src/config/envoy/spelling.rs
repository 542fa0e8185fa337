//! What the original's YAML library takes otherwise than ours: a value that looks like a number or a truth is
//! the text that was written (`0x10`, `+49`, `007`, `TRUE`), and `yes`, `no`, `on` and `off` are truths.

use super::super::problems::Place;
use super::super::tree::{Node, Tree};

/// Fields that are text, whatever it looks like.
const TEXTS: [&str; 4] = ["domain", "key", "value", "name"];

/// Fields that are true or false.
const TRUTHS: [&str; 6] =
    ["unlimited", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold"];

/// Puts into a tree what was meant by the file it was read from.
pub(super) fn respell(tree: &mut Tree, file: &str) {
    match &mut tree.node {
        Node::List(list) => list.iter_mut().for_each(|item| respell(item, file)),
        Node::Map(fields) => {
            for (field, inner) in fields {
                match field.name.as_str() {
                    // Free values mean nothing to us, and stay what they are.
                    "metadata" => {}
                    name if TEXTS.contains(&name) => as_text(inner, file),
                    name if TRUTHS.contains(&name) => as_truth(inner),
                    _ => respell(inner, file),
                }
            }
        }
        _ => {}
    }
}

fn as_text(tree: &mut Tree, file: &str) {
    if !matches!(tree.node, Node::Whole(_) | Node::OtherNumber | Node::Bool(_)) {
        return;
    }
    let Some(word) = word_at(file, tree.place) else { return };
    // What stands for a value that is written elsewhere (`*name`) is not its spelling; and a number with a
    // fraction is refused, there as here.
    if is_whole(&word) || ["true", "false"].iter().any(|truth| word.eq_ignore_ascii_case(truth)) {
        tree.node = Node::Text(word);
    }
}

fn as_truth(tree: &mut Tree) {
    let Node::Text(text) = &tree.node else { return };
    match text.as_str() {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => tree.node = Node::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => tree.node = Node::Bool(false),
        _ => {}
    }
}

/// The plain word that begins at a place.
fn word_at(file: &str, place: Place) -> Option<String> {
    let Place::File { line, column } = place else { return None };
    let line = file.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    let from = usize::try_from(column).ok()?.checked_sub(1)?;
    let word =
        line.chars().skip(from).take_while(|letter| !letter.is_whitespace() && !",]}".contains(*letter));
    Some(word.collect())
}

/// Whether a word is a whole number in any of YAML 1.1's spellings.
fn is_whole(word: &str) -> bool {
    let digits = word.strip_prefix(['+', '-']).unwrap_or(word);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'o' | b'O', ..] => (&digits[2..], 8),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        _ => (digits, 10),
    };
    digits.starts_with(|first: char| first.is_digit(radix))
        && digits.chars().all(|digit| digit.is_digit(radix) || digit == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Problems;

    /// What a field is after a file was read: its text, or its kind.
    fn read(file: &str) -> String {
        let mut problems = Problems::default();
        let mut tree = Tree::parse(file, &mut problems).unwrap();
        respell(&mut tree, file);
        format!("{tree:?}")
    }

    /// Each of these was given to the original, and shown by it.
    #[test]
    fn a_value_is_the_text_that_was_written() {
        for word in [
            "15",
            "0x10",
            "010",
            "0o10",
            "0b11",
            "-5",
            "+5",
            "1_000",
            "true",
            "TRUE",
            "True",
            "yes",
            "on",
            "0",
            "-0",
            "00",
            "2020-01-01",
            "12:30",
            "10.0.0.1",
            "99999999999999999999",
            "y",
            "off",
        ] {
            for file in [
                format!("value: {word}\n"),
                format!(
                    "# \u{fc}\nlist: [{{key: \u{fc}\u{fc}, value: {word}}}, {{key: a, value: {word} }}] # x"
                ),
                format!("list:\n- key: a\n  value:    {word}   # that is it\n"),
            ] {
                let read = read(&file);
                assert!(read.contains(&format!("Text(\"{word}\")")), "{file}: {read}");
                assert!(!read.contains("Whole") && !read.contains("Number"), "{file}: {read}");
            }
        }
        assert!(read("value: 1.5").contains("OtherNumber"), "a fraction is refused");
        assert!(read("value: 1e3").contains("OtherNumber"), "and so is what has one");
        assert!(read("value: ~").contains("Null"));
        assert!(
            read("a: &a 16\nvalue: *a").contains("node: Whole(16)"),
            "an alias has no spelling of its own"
        );
        assert!(read("metadata: {value: 0x10}").contains("Whole(16)"), "what is free stays what it is");
    }

    #[test]
    fn truths_are_those_of_yaml_1_1() {
        for (word, expected) in
            [("yes", true), ("On", true), ("y", true), ("NO", false), ("off", false), ("true", true)]
        {
            assert!(read(&format!("shadow_mode: {word}")).contains(&format!("Bool({expected})")), "{word}");
        }
        for word in ["\"true\"", "1", "yess"] {
            assert!(!read(&format!("shadow_mode: {word}")).contains("Bool"), "{word}");
        }
    }
}
