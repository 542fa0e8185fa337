//! Just enough of Rust's grammar to tell code from comments and strings, and to read its paths.
//!
//! A parser crate would do more than we need and take longer to build than the checks take to run; a
//! plain text search would stumble over prose ("as Redis does") and miss `use std::{fs, net}`.

/// A path as the code names it, with `use` trees unfolded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) line: usize,
    pub(crate) segments: Vec<String>,
    /// It stands in a `use`, where even a single word names a crate or module.
    pub(crate) imported: bool,
}

/// The code alone: comments become spaces, every character of a string a `"`, lines stay where they are.
pub(crate) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let (end, hidden) = next_piece(&chars, at);
        for &c in &chars[at..end] {
            code.push(if c.is_whitespace() { c } else { hidden.unwrap_or(c) });
        }
        at = end;
    }
    code
}

/// What ships: the code before the test module, which the house keeps at the end of a file.
pub(crate) fn product(code: &str) -> &str {
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let start = from + found;
        from = start + "#[cfg(test)]".len();
        if code[from..].trim_start().starts_with("mod ") {
            return &code[..start];
        }
    }
    code
}

/// Every path that the code (without comments and strings) names.
pub(crate) fn paths(code: &str) -> Vec<Named> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let (line, token) = &tokens[at];
        // `use<'a>` is a bound, not an import.
        if *token == "use" && tokens.get(at + 1).is_some_and(|(_, next)| *next != "<") {
            at = use_tree(&tokens, at + 1, &[], &mut found);
        } else if is_word(token) {
            let mut segments = vec![(*token).to_owned()];
            while let [(_, "::"), (_, next), ..] = &tokens[at + 1..]
                && is_word(next)
            {
                segments.push((*next).to_owned());
                at += 2;
            }
            found.push(Named { line: *line, segments, imported: false });
            at += 1;
        } else {
            at += 1;
        }
    }
    found
}

/// Where the piece that starts here ends, and the character that hides it if it is not code.
fn next_piece(chars: &[char], at: usize) -> (usize, Option<char>) {
    let rest = &chars[at..];
    let (end, hidden) = match rest {
        ['/', '/', ..] => (at + until(rest, |c| c == '\n'), Some(' ')),
        ['/', '*', ..] => (at + block_comment(rest), Some(' ')),
        ['"', ..] => (at + string(rest), Some('"')),
        ['\'', '\\', _, tail @ ..] => (at + 4 + until(tail, |c| c == '\''), Some('"')),
        ['\'', _, '\'', ..] => (at + 3, Some('"')),
        [c, ..] if is_word_char(*c) => {
            let word = until(rest, |c| !is_word_char(c));
            let hashes = until(&rest[word..], |c| c != '#');
            let raw = matches!(rest[..word], ['r'] | ['b' | 'c', 'r']);
            if raw && rest.get(word + hashes) == Some(&'"') {
                let body = word + hashes + 1;
                (at + body + raw_string(&rest[body..], hashes), Some('"'))
            } else {
                (at + word, None)
            }
        }
        _ => (at + 1, None),
    };
    // An unfinished literal promises more than there is.
    (end.min(chars.len()), hidden)
}

fn until(chars: &[char], stop: impl Fn(char) -> bool) -> usize {
    chars.iter().position(|&c| stop(c)).unwrap_or(chars.len())
}

fn block_comment(chars: &[char]) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while at < chars.len() {
        match &chars[at..] {
            ['/', '*', ..] => (at, depth) = (at + 2, depth + 1),
            ['*', '/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(chars: &[char]) -> usize {
    let mut at = 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn raw_string(body: &[char], hashes: usize) -> usize {
    let ends = |at: &usize| {
        body[*at] == '"' && body.len() > at + hashes && body[at + 1..=at + hashes].iter().all(|&c| c == '#')
    };
    (0..body.len()).find(ends).map_or(body.len(), |at| at + 1 + hashes)
}

fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut tokens = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if is_word_char(first) {
                rest.find(|c| !is_word_char(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            tokens.push((index + 1, &rest[..length]));
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// Unfolds one branch of a `use`, up to the token that ends it; returns the index after it.
fn use_tree(tokens: &[(usize, &str)], mut at: usize, prefix: &[String], found: &mut Vec<Named>) -> usize {
    let mut segments = prefix.to_vec();
    let mut line = 0;
    while let Some((on, token)) = tokens.get(at) {
        at += 1;
        line = *on;
        match *token {
            "{" => {
                while tokens.get(at).is_some_and(|(_, token)| *token != "}") {
                    at = use_tree(tokens, at, &segments, found);
                    at += usize::from(tokens.get(at).is_some_and(|(_, token)| *token == ","));
                }
                return at + 1;
            }
            "," | "}" => {
                at -= 1;
                break;
            }
            ";" => break,
            "as" => at += 1,
            "self" if !segments.is_empty() => {}
            word if is_word(word) || word == "*" => segments.push(word.to_owned()),
            _ => {}
        }
    }
    if segments.len() > prefix.len() || !prefix.is_empty() {
        found.push(Named { line, segments, imported: true });
    }
    at
}

fn is_word(token: &str) -> bool {
    token.chars().next().is_some_and(|c| is_word_char(c) && !c.is_numeric())
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests;
