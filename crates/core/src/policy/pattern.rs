//! Patterns for texts and for paths. Written by the policy's author, read against what callers choose,
//! so matching takes time in proportion to the text and never recurses on it.

use std::fmt;

/// The longest pattern.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// The most segments of a path pattern, and of a path that is looked at segment by segment.
pub(super) const SEGMENTS_MAX: usize = 64;

/// A text, or a text with `*` in it, each of which stands for any number of characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TextPattern {
    /// That very text.
    Exact(Box<str>),
    /// What stands between the stars; the first and the last may be empty.
    Glob(Vec<Box<str>>),
}

impl TextPattern {
    /// Reads a pattern. Every text is one.
    pub fn new(text: &str) -> TextPattern {
        if text.contains('*') {
            TextPattern::Glob(text.split('*').map(Box::from).collect())
        } else {
            TextPattern::Exact(text.into())
        }
    }

    /// Whether a text is meant.
    pub fn matches(&self, text: &str) -> bool {
        let parts = match self {
            TextPattern::Exact(exact) => return **exact == *text,
            TextPattern::Glob(parts) => parts.as_slice(),
        };
        let [first, middle @ .., last] = parts else { return false };
        let Some(rest) = text.strip_prefix(&**first) else { return false };
        let Some(mut rest) = rest.strip_suffix(&**last) else { return false };
        // The first place a part fits leaves the most for the others.
        for part in middle {
            let Some((_, after)) = rest.split_once(&**part) else { return false };
            rest = after;
        }
        true
    }
}

impl fmt::Display for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextPattern::Exact(text) => f.write_str(text),
            TextPattern::Glob(parts) => f.write_str(&parts.join("*")),
        }
    }
}

/// A path: `/login`, `/users/{user}/files`, `/static/*.png`, `/api/**`.
///
/// Segments are told apart by `/`; a `/` at the end makes no difference. `*` is any one segment or a
/// part of one, `{name}` is one segment with a name, `**` is any number of segments, none included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    written: Box<str>,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Text(TextPattern),
    Parameter(Box<str>),
    Rest,
}

/// Why a text is no path pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// It does not begin with a slash.
    #[error("a path begins with /: write \"/{written}\"")]
    NoSlash {
        /// What was written, clipped.
        written: String,
    },
    /// A segment is neither a text nor a parameter.
    #[error(
        "\"{segment}\" is no segment: a parameter fills a whole one, such as /users/{{user}}, and has letters, digits or _"
    )]
    BadSegment {
        /// The segment, clipped.
        segment: String,
    },
    /// Two parameters have one name.
    #[error("the parameter {{{name}}} stands there twice")]
    Repeated {
        /// The name.
        name: String,
    },
    /// More than one `**`.
    #[error("** may stand in a path once")]
    TwoRests,
    /// Too long to be meant.
    #[error("a path pattern has at most {SEGMENTS_MAX} segments and {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// A query or a fragment.
    #[error("a path has no ? and no #: look at a query with query.NAME")]
    Query,
}

impl PathPattern {
    /// Reads a pattern.
    pub fn parse(written: &str) -> Result<PathPattern, PathError> {
        let clip = |text: &str| text.chars().take(64).collect::<String>();
        let Some(inner) = written.strip_prefix('/') else {
            return Err(PathError::NoSlash { written: clip(written) });
        };
        if written.len() > PATTERN_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        if written.contains(['?', '#']) {
            return Err(PathError::Query);
        }
        let mut segments = Vec::new();
        for segment in inner.strip_suffix('/').unwrap_or(inner).split('/').filter(|_| !inner.is_empty()) {
            let bad = || PathError::BadSegment { segment: clip(segment) };
            let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            let segment = match (segment, name) {
                ("", _) => return Err(bad()),
                ("**", _) if segments.contains(&Segment::Rest) => return Err(PathError::TwoRests),
                ("**", _) => Segment::Rest,
                (_, Some(name)) => {
                    let is_good = !name.is_empty()
                        && name.len() <= 64
                        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                    if !is_good {
                        return Err(bad());
                    }
                    if segments.contains(&Segment::Parameter(name.into())) {
                        return Err(PathError::Repeated { name: name.to_owned() });
                    }
                    Segment::Parameter(name.into())
                }
                (text, None) if text.contains(['{', '}']) || text.contains("**") => return Err(bad()),
                (text, None) => Segment::Text(TextPattern::new(text)),
            };
            segments.push(segment);
            if segments.len() > SEGMENTS_MAX {
                return Err(PathError::TooLong);
            }
        }
        Ok(PathPattern { written: written.into(), segments })
    }

    /// Whether a path is meant.
    pub fn matches(&self, path: &str) -> bool {
        self.walk(path, |_, _| ())
    }

    /// The value of a parameter in a path that matches.
    pub fn parameter<'p>(&self, path: &'p str, name: &str) -> Option<&'p str> {
        let mut found = None;
        let matches = self.walk(path, |parameter, value| {
            if parameter == name {
                found = Some(value);
            }
        });
        found.filter(|_| matches)
    }

    /// Whether a parameter of that name stands in it.
    pub fn has_parameter(&self, name: &str) -> bool {
        self.segments.iter().any(|segment| matches!(segment, Segment::Parameter(own) if **own == *name))
    }

    fn walk<'p>(&self, path: &'p str, mut met: impl FnMut(&str, &'p str)) -> bool {
        let Some(path) = path.strip_prefix('/') else { return false };
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut walker = path.split('/').filter(|_| !path.is_empty());
        let rest_at = self.segments.iter().position(|segment| *segment == Segment::Rest);
        let (head, tail) = match rest_at {
            None => (self.segments.as_slice(), &[][..]),
            Some(at) => self.segments.split_at(at),
        };
        let mut meets = |segment: &Segment, text: &'p str| match segment {
            Segment::Text(pattern) => pattern.matches(text),
            Segment::Parameter(name) => {
                met(name, text);
                !text.is_empty()
            }
            Segment::Rest => false,
        };
        for segment in head {
            if !walker.next().is_some_and(|text| meets(segment, text)) {
                return false;
            }
        }
        // What follows `**` is read from the end.
        for segment in tail.iter().skip(1).rev() {
            if !walker.next_back().is_some_and(|text| meets(segment, text)) {
                return false;
            }
        }
        rest_at.is_some() || walker.next().is_none()
    }

    /// The segments it begins with that are plain texts, as one path (`/api/v1`, or empty), and whether
    /// that is all of it.
    pub(super) fn literal(&self) -> (String, bool) {
        let mut path = String::new();
        for segment in &self.segments {
            let Segment::Text(TextPattern::Exact(text)) = segment else { return (path, false) };
            path.push('/');
            path.push_str(text);
        }
        (path, true)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_matched_by_what_stands_between_the_stars() {
        for (pattern, yes, no) in [
            ("acme", &["acme"][..], &["acmes", "", "Acme"][..]),
            ("*", &["", "x", "a*b"], &[]),
            ("acme-*", &["acme-", "acme-1"], &["acme", "xacme-1"]),
            ("*.example.com", &["a.example.com", "a.b.example.com"], &["example.com", "a.example.comx"]),
            ("a*b*c", &["abc", "aXbYc", "abbc", "abcbc"], &["ab", "ac", "acb", "abcx"]),
            ("ab*ba", &["abba", "abxba"], &["aba", "ab"]),
            ("a**b", &["ab", "axb"], &["a"]),
        ] {
            let pattern = TextPattern::new(pattern);
            assert!(yes.iter().all(|text| pattern.matches(text)), "{pattern}");
            assert!(no.iter().all(|text| !pattern.matches(text)), "{pattern}");
        }
    }

    #[test]
    fn paths_are_matched_segment_by_segment() {
        for (pattern, yes, no) in [
            ("/", &["/"][..], &["/a", "", "a"][..]),
            ("/login", &["/login", "/login/"], &["/login/x", "/", "/logins", "login"]),
            ("/users/{user}", &["/users/7", "/users/7/"], &["/users", "/users/7/x", "/users//"]),
            ("/a/*/c", &["/a/b/c"], &["/a/c", "/a/b/b/c"]),
            ("/static/*.png", &["/static/a.png", "/static/.png"], &["/static/a.jpg", "/static/a/b.png"]),
            ("/api/**", &["/api", "/api/", "/api/a", "/api/a/b"], &["/apis", "/"]),
            ("/**", &["/", "/a", "/a/b"], &["a"]),
            ("/a/**/z", &["/a/z", "/a/b/z", "/a/b/c/z"], &["/a", "/z", "/a/z/b"]),
            ("/a/**/{id}/edit", &["/a/7/edit", "/a/b/7/edit"], &["/a/edit"]),
        ] {
            let pattern = PathPattern::parse(pattern).unwrap();
            for path in yes {
                assert!(pattern.matches(path), "{pattern} {path}");
            }
            for path in no {
                assert!(!pattern.matches(path), "{pattern} {path}");
            }
        }
    }

    #[test]
    fn parameters_have_values_where_the_whole_path_matches() {
        let pattern = PathPattern::parse("/users/{user}/files/**/{file}").unwrap();
        assert_eq!(pattern.parameter("/users/7/files/a/b/c", "user"), Some("7"));
        assert_eq!(pattern.parameter("/users/7/files/a/b/c", "file"), Some("c"));
        assert_eq!(pattern.parameter("/users/7/files/a", "other"), None);
        assert_eq!(pattern.parameter("/users/7/file/a", "user"), None);
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in [
            "", "a", "/a//b", "/{}", "/{a b}", "/x{a}", "/{a}/{a}", "/**/**", "/a**", "/a?b", "/a#b", "/{a",
            "//",
        ] {
            assert!(PathPattern::parse(text).is_err(), "{text}");
        }
        assert_eq!(PathPattern::parse(&"/a".repeat(SEGMENTS_MAX + 1)), Err(PathError::TooLong));
    }
}
