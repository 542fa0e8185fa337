//! One spelling of a path, so that a limit on `/login` also holds for `//login`, `/a/../login` and `/%6Cogin`.
//!
//! Servers behind us undo escapes, merge slashes and walk dots before they route. A limit that did not would
//! be side-stepped by any spelling the server takes for the same page.

use std::borrow::Cow;

use super::text::escaped;

/// The one spelling of a path.
///
/// Escapes are undone where they stand for visible text; an escaped `/` stays `%2F`, because it separates
/// nothing, and so do `%25`, `%3F` and `%23`, which undone would read as something else. Bytes that are no
/// visible text stay escaped. Then repeated slashes are merged and dot segments resolved. Letters keep
/// their case, and a slash at the end stays.
///
/// The result is its own spelling: normalising it again changes nothing.
pub fn normal_path(path: &str) -> Cow<'_, str> {
    if is_normal(path) {
        return Cow::Borrowed(path);
    }
    let decoded = decoded(path);
    if !decoded.starts_with('/') {
        // `*` of OPTIONS, and what no server routes: nothing to resolve.
        return decoded;
    }
    let mut out = String::with_capacity(decoded.len());
    let mut ends_in_slash = false;
    for segment in decoded.split('/').skip(1) {
        ends_in_slash = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => out.truncate(out.rfind('/').unwrap_or(0)),
            name => {
                out.push('/');
                out.push_str(name);
            }
        }
    }
    if ends_in_slash || out.is_empty() {
        out.push('/');
    }
    Cow::Owned(out)
}

/// Whether nothing would change: the common case, and one pass over the bytes.
fn is_normal(path: &str) -> bool {
    let is_plain = path.bytes().all(|byte| byte != b'%' && byte.is_ascii_graphic());
    is_plain && path.starts_with('/') && !path.contains("//") && !path.contains("/.")
}

fn decoded(path: &str) -> Cow<'_, str> {
    let mut out = String::with_capacity(path.len());
    // A character of several bytes may be written half escaped and half not.
    let mut bytes: Vec<(u8, Written)> = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, written) = match escaped(rest) {
            Some(byte) => (byte, Written::Escaped),
            None => (*first, Written::Plain),
        };
        rest = if written == Written::Escaped { rest.get(3..).unwrap_or_default() } else { after };
        bytes.push((byte, written));
    }
    let raw: Vec<u8> = bytes.iter().map(|(byte, _)| *byte).collect();
    let mut at = 0;
    for chunk in raw.utf8_chunks() {
        for character in chunk.valid().chars() {
            let written = bytes.get(at).map_or(Written::Plain, |(_, written)| *written);
            at += character.len_utf8();
            let keeps_escape = written == Written::Escaped && matches!(character, '/' | '%' | '?' | '#');
            // A `%` that begins no escape could begin one after its neighbours are decoded.
            if keeps_escape || character == '%' || !is_visible(character) {
                escape(character, &mut out);
            } else {
                out.push(character);
            }
        }
        at += chunk.invalid().len();
        chunk.invalid().iter().for_each(|byte| escape_byte(*byte, &mut out));
    }
    Cow::Owned(out)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Plain,
    Escaped,
}

fn is_visible(character: char) -> bool {
    !character.is_control() && !character.is_whitespace()
}

fn escape(character: char, out: &mut String) {
    let mut buffer = [0; 4];
    character.encode_utf8(&mut buffer).bytes().for_each(|byte| escape_byte(byte, out));
}

fn escape_byte(byte: u8, out: &mut String) {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0').to_ascii_uppercase();
    out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_one_page_are_one_path() {
        for (written, meant) in [
            ("/login", "/login"),
            ("//login", "/login"),
            ("/a//b///c", "/a/b/c"),
            ("/./login", "/login"),
            ("/a/../login", "/login"),
            ("/../../login", "/login"),
            ("/a/%2e%2e/login", "/login"),
            ("/a/.%2E/login", "/login"),
            ("/%6C%6fgin", "/login"),
            ("/login/", "/login/"),
            ("/login/.", "/login/"),
            ("/a/b/..", "/a/"),
            ("/..", "/"),
            ("/", "/"),
            ("//", "/"),
            ("/caf%C3%A9", "/caf\u{e9}"),
            ("/caf\u{e9}", "/caf\u{e9}"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2F..%2Fb", "/a%2F..%2Fb"),
            ("/a%252Fb", "/a%252Fb"),
            ("/a%3fb%23c", "/a%3Fb%23c"),
            ("/a%00b%20c%0a", "/a%00b%20c%0A"),
            ("/a%ffb", "/a%FFb"),
            ("/100%", "/100%25"),
            ("/%%36%31", "/%2561"),
            ("/.well-known/x", "/.well-known/x"),
            ("/...", "/..."),
            ("/Login", "/Login"),
            ("*", "*"),
        ] {
            assert_eq!(normal_path(written), meant, "{written}");
        }
    }

    #[test]
    fn a_plain_path_is_not_copied() {
        for path in ["/", "/users/7", "/a/b.html", "/a;b=c/@d"] {
            assert!(matches!(normal_path(path), Cow::Borrowed(_)), "{path}");
        }
    }

    proptest! {
        /// Else a second look at a path could find another rule.
        #[test]
        fn the_one_spelling_is_its_own(path in "(/|%2[eEfF5]|%[0-9a-fA-F]{2}|\\.|%|[a-z]|\\PC){0,24}") {
            let path = format!("/{path}");
            let once = normal_path(&path).into_owned();
            prop_assert_eq!(normal_path(&once), once.as_str());
            prop_assert!(once.starts_with('/'));
            let has_dots = once.split('/').any(|segment| segment == "." || segment == "..");
            prop_assert!(!once.contains("//") && !has_dots, "{}", once);
        }

        /// Whoever escapes more letters of a path asks for the same one.
        #[test]
        fn escaping_letters_changes_nothing(path in "(/[a-z.]{0,5}){1,5}", which in any::<u64>()) {
            let spelled: String = path
                .bytes()
                .enumerate()
                .map(|(at, byte)| match byte {
                    b'/' => "/".to_owned(),
                    byte if which >> (at % 64) & 1 == 1 => format!("%{byte:02x}"),
                    byte => char::from(byte).to_string(),
                })
                .collect();
            prop_assert_eq!(normal_path(&spelled), normal_path(&path));
        }
    }
}
