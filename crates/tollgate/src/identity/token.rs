//! The secret a caller shows, and where it shows it.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName};

use super::text::lossy;

/// A place where a token may stand.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TokenSource {
    /// `Authorization: Bearer TOKEN`
    Bearer,
    /// The whole value of a header; of its first line, if there are several.
    Header(HeaderName),
}

impl TokenSource {
    /// `Authorization: Bearer`, then `x-api-key`, then `api_key`.
    pub fn usual() -> Vec<TokenSource> {
        vec![
            TokenSource::Bearer,
            TokenSource::Header(HeaderName::from_static("x-api-key")),
            TokenSource::Header(HeaderName::from_static("api_key")),
        ]
    }

    /// Reads `bearer`, or the name of a header.
    pub fn parse(text: &str) -> Option<TokenSource> {
        if text.eq_ignore_ascii_case("bearer") {
            return Some(TokenSource::Bearer);
        }
        HeaderName::from_bytes(text.as_bytes()).ok().map(TokenSource::Header)
    }

    /// The token there, if there is one.
    pub(super) fn find<'a>(&self, headers: &'a HeaderMap) -> Option<Cow<'a, str>> {
        match self {
            TokenSource::Bearer => {
                headers.get_all(AUTHORIZATION).iter().find_map(|line| match lossy(line.as_bytes()) {
                    Cow::Borrowed(line) => bearer(line).map(Cow::Borrowed),
                    Cow::Owned(line) => bearer(&line).map(|token| Cow::Owned(token.to_owned())),
                })
            }
            // Lines joined would make a new token of a good one and whatever is put beside it, while
            // the service goes on reading the first.
            TokenSource::Header(name) => {
                headers.get(name).map(|line| lossy(line.as_bytes())).filter(|token| !token.is_empty())
            }
        }
    }
}

fn bearer(line: &str) -> Option<&str> {
    let (scheme, token) = line.split_once([' ', '\t'])?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_bearer_token_is_found_however_its_scheme_is_written() {
        for (line, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer   abc ", Some("abc")),
            ("BEARER\tabc", Some("abc")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Basic abc", None),
            ("Bearerabc", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(line));
            assert_eq!(TokenSource::Bearer.find(&headers).as_deref(), token, "{line}");
        }
    }

    #[test]
    fn a_token_that_is_no_text_is_a_token_still() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_bytes(b"Bearer \xff\xfe").unwrap());
        assert_eq!(TokenSource::Bearer.find(&headers).as_deref(), Some("\u{fffd}\u{fffd}"));
    }

    #[test]
    fn a_second_line_makes_no_new_token() {
        let mut headers = HeaderMap::new();
        headers.append("x-api-key", HeaderValue::from_static("ann"));
        headers.append("x-api-key", HeaderValue::from_static("anything"));
        let source = TokenSource::parse("x-api-key").unwrap();
        assert_eq!(source.find(&headers).as_deref(), Some("ann"));
        headers.insert("x-api-key", HeaderValue::from_static(" "));
        assert_eq!(source.find(&headers), None);
    }

    #[test]
    fn sources_are_read_by_name() {
        assert_eq!(TokenSource::parse("Bearer"), Some(TokenSource::Bearer));
        let api_key = TokenSource::Header(HeaderName::from_static("api_key"));
        assert_eq!(TokenSource::parse("API_KEY"), Some(api_key));
        assert_eq!(TokenSource::parse("not a name"), None);
    }
}
