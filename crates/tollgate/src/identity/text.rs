//! Texts of a request that can be written in many ways: query parameters, cookies, hosts, header values.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::COOKIE;

/// The value of one hexadecimal digit.
fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// The byte that `%41` at the beginning of these bytes stands for.
pub(super) fn escaped(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [b'%', high, low, ..] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

/// A value of a form: `%41` and `+` undone. What is no escape stands for itself, and bytes that make no
/// text become U+FFFD, so that a caller cannot go unseen by sending them.
fn form_decoded(value: &str) -> Cow<'_, str> {
    if !value.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(value);
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, next) = match (escaped(rest), *first) {
            (Some(byte), _) => (byte, rest.get(3..).unwrap_or_default()),
            (None, b'+') => (b' ', after),
            (None, byte) => (byte, after),
        };
        bytes.push(byte);
        rest = next;
    }
    Cow::Owned(match String::from_utf8_lossy(&bytes) {
        Cow::Borrowed(_) => String::from_utf8(bytes).unwrap_or_default(),
        Cow::Owned(lossy) => lossy,
    })
}

/// The first parameter of that name. Names are compared as the application will see them: decoded.
pub(super) fn query_parameter<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .find(|(key, _)| form_decoded(key) == name)
        .map(|(_, value)| form_decoded(value))
        .filter(|value| !value.is_empty())
}

/// The first cookie of that name, its quotes taken off.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    // HTTP/2 may send each cookie as a line of its own.
    headers.get_all(COOKIE).iter().find_map(|line| match lossy(line.as_bytes()) {
        Cow::Borrowed(line) => cookie_of(line, name).map(Cow::Borrowed),
        Cow::Owned(line) => cookie_of(&line, name).map(|value| Cow::Owned(value.to_owned())),
    })
}

fn cookie_of<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let pairs = line.split(';').filter_map(|pair| pair.split_once('='));
    let value = pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name)?.1;
    let inside = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    Some(inside.unwrap_or(value)).filter(|value| !value.is_empty())
}

/// A header's first line. Lines joined would make another value of a good one and whatever a client puts
/// beside it.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    Some(lossy(headers.get(name)?.as_bytes())).filter(|value| !value.is_empty())
}

/// Whether any line of a header is meant, or all of them as RFC 9110 joins them.
pub(super) fn any_header(headers: &HeaderMap, name: &str, is_meant: &mut dyn FnMut(&str) -> bool) -> bool {
    let lines: Vec<_> = headers.get_all(name).iter().map(|line| lossy(line.as_bytes())).collect();
    lines.iter().any(|line| !line.is_empty() && is_meant(line))
        || (lines.len() > 1 && is_meant(&lines.join(", ")))
}

/// Whether any parameter of that name is meant.
pub(super) fn any_query_parameter(query: &str, name: &str, is_meant: &mut dyn FnMut(&str) -> bool) -> bool {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut values = pairs.filter(|(key, _)| form_decoded(key) == name).map(|(_, value)| form_decoded(value));
    values.any(|value| !value.is_empty() && is_meant(&value))
}

/// Whether any cookie of that name is meant.
pub(super) fn any_cookie(headers: &HeaderMap, name: &str, is_meant: &mut dyn FnMut(&str) -> bool) -> bool {
    headers.get_all(COOKIE).iter().any(|line| {
        let line = lossy(line.as_bytes());
        line.split(';').any(|pair| cookie_of(pair, name).is_some_and(&mut *is_meant))
    })
}

/// A host in small letters, without its port and without the dot that may end it.
pub(super) fn host(text: &str) -> Option<Cow<'_, str>> {
    let text = text.trim();
    let name = match text.rsplit_once(':') {
        // Not within brackets: `[::1]` has colons and no port.
        Some((name, port)) if !port.contains(']') => name,
        _ => text,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        None
    } else if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Some(Cow::Owned(name.to_ascii_lowercase()))
    } else {
        Some(Cow::Borrowed(name))
    }
}

/// A header's bytes as text, trimmed. Bytes that are no text become U+FFFD: were the header absent instead,
/// one odd byte would lift every limit that is counted by it.
pub(super) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes.trim_ascii())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_first_parameter_of_a_name_counts() {
        let of = |query: &'static str, name: &str| query_parameter(query, name).map(Cow::into_owned);
        assert_eq!(of("a=1&b=2&a=3", "a").as_deref(), Some("1"));
        assert_eq!(of("a=1&b=2", "c"), None);
        assert_eq!(of("a=&b", "a"), None);
        assert_eq!(of("a=&b", "b"), None);
        assert_eq!(of("q=a+b%2Bc%20d", "q").as_deref(), Some("a b+c d"));
        // However the name is written, it is the same parameter.
        assert_eq!(of("%61%70i=7", "api").as_deref(), Some("7"));
        assert_eq!(of("q=%zz%4", "q").as_deref(), Some("%zz%4"));
        assert_eq!(of("q=%ff", "q").as_deref(), Some("\u{fffd}"));
        assert!(matches!(query_parameter("a=plain", "a"), Some(Cow::Borrowed("plain"))));
    }

    #[test]
    fn the_first_cookie_of_a_name_counts() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=1; session=\"x y\"; a=2; empty="));
        headers.append(COOKIE, HeaderValue::from_static("session=other;late=z"));
        let of = |name: &str| cookie(&headers, name).map(Cow::into_owned);
        assert_eq!(of("a").as_deref(), Some("1"));
        assert_eq!(of("session").as_deref(), Some("x y"));
        assert_eq!(of("late").as_deref(), Some("z"));
        assert_eq!(of("empty"), None);
        assert_eq!(of("A"), None);
    }

    #[test]
    fn lines_of_one_header_are_one_value() {
        let mut headers = HeaderMap::new();
        headers.append("x-tenant", HeaderValue::from_static("a"));
        assert!(matches!(header(&headers, "x-tenant"), Some(Cow::Borrowed("a"))));
        headers.append("x-tenant", HeaderValue::from_static(" b "));
        assert_eq!(header(&headers, "x-tenant").as_deref(), Some("a"));
        for (value, is_there) in [("a", true), ("b", true), ("a, b", true), ("c", false), ("", false)] {
            assert_eq!(any_header(&headers, "x-tenant", &mut |line| line == value), is_there, "{value}");
        }
        headers.insert("x-empty", HeaderValue::from_static("  "));
        assert_eq!(header(&headers, "x-empty"), None);
        assert_eq!(header(&headers, "no such/name"), None);
    }

    #[test]
    fn bytes_that_are_no_text_do_not_hide_a_header() {
        let mut headers = HeaderMap::new();
        headers.insert("x-tenant", HeaderValue::from_bytes(b"a\xffb").unwrap());
        assert_eq!(header(&headers, "x-tenant").as_deref(), Some("a\u{fffd}b"));
    }

    #[test]
    fn hosts_are_small_and_without_a_port() {
        for (written, meant) in [
            ("API.Example.com:8080", "api.example.com"),
            ("api.example.com.", "api.example.com"),
            ("api.example.com.:80", "api.example.com"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("[::1]", "[::1]"),
            ("plain", "plain"),
        ] {
            assert_eq!(host(written).as_deref(), Some(meant), "{written}");
        }
        assert_eq!(host(""), None);
        assert_eq!(host(":80"), None);
        assert_eq!(host("."), None);
    }
}
