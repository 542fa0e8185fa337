//! Key templates: what is counted together. `{token|address}` is the token if there is one, else the
//! address.
//!
//! Two calls that differ in any value never share a key: values are written so that nothing in them
//! reads like what stands around them, and where several attributes can fill one place the key says
//! which did. Secrets and long values are hashed.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::pattern::PathPattern;
use crate::address::Grouping;
use crate::attributes::{Attribute, AttributeError, Attributes, SubjectKind};
use crate::key::{SUBJECT_BYTES_MAX, encode};

/// A value longer than this is hashed.
const VALUE_BYTES_PLAIN: usize = 128;

/// The most parts of a template.
const PARTS_MAX: usize = 32;

/// What is counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    written: Box<str>,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    /// The first of these that is there.
    First(Vec<Attribute>),
}

/// Why a text is no key template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// Nothing was written.
    #[error(
        "is empty: write an attribute in braces, such as \"{{address}}\", or a word for a limit that all share"
    )]
    Empty,
    /// A brace without its other half.
    #[error("has a brace without its other half: attributes are written {{address}} or {{token|address}}")]
    Unbalanced,
    /// What stands in braces is no attribute.
    #[error(transparent)]
    Attribute(#[from] AttributeError),
    /// Two values with nothing between them that tells where one ends.
    #[error(
        "two attributes stand side by side: put a ':' or a '/' between them, so that no two pairs read alike"
    )]
    Adjacent,
    /// Far more than anybody means.
    #[error("has more than {PARTS_MAX} parts")]
    TooLong,
}

/// What a template is filled from.
#[derive(Clone, Copy)]
pub(super) struct Filling<'a> {
    pub(super) attributes: &'a dyn Attributes,
    /// The rule's own path patterns, for their parameters.
    pub(super) paths: &'a [PathPattern],
    pub(super) grouping: Grouping,
}

impl KeyTemplate {
    /// Reads a template.
    pub fn parse(written: &str) -> Result<KeyTemplate, TemplateError> {
        if written.is_empty() {
            return Err(TemplateError::Empty);
        }
        let mut parts: Vec<Part> = Vec::new();
        let mut rest = written;
        while !rest.is_empty() {
            if parts.len() >= PARTS_MAX {
                return Err(TemplateError::TooLong);
            }
            if let Some(inner) = rest.strip_prefix('{') {
                let (names, after) = inner.split_once('}').ok_or(TemplateError::Unbalanced)?;
                let choice: Vec<Attribute> =
                    names.split('|').map(|name| Attribute::parse(name.trim())).collect::<Result<_, _>>()?;
                let is_apart = match parts.last() {
                    None => true,
                    // What values never contain, because it is escaped in them.
                    Some(Part::Text(text)) => {
                        !parts.iter().any(|part| matches!(part, Part::First(_)))
                            || text.contains([':', '/', '|', ' ', '='])
                    }
                    Some(Part::First(_)) => false,
                };
                if !is_apart {
                    return Err(TemplateError::Adjacent);
                }
                parts.push(Part::First(choice));
                rest = after;
            } else {
                let end = rest.find('{').unwrap_or(rest.len());
                let (text, after) = rest.split_at(end);
                if text.contains('}') {
                    return Err(TemplateError::Unbalanced);
                }
                parts.push(Part::Text(text.into()));
                rest = after;
            }
        }
        Ok(KeyTemplate { written: written.into(), parts })
    }

    /// Every attribute it may look at.
    pub fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.parts.iter().flat_map(|part| match part {
            Part::Text(_) => [].iter(),
            Part::First(choice) => choice.iter(),
        })
    }

    /// Writes the subject, and says what kind it is. `None` if something in it is absent.
    pub(super) fn fill(&self, filling: Filling<'_>) -> Option<(String, SubjectKind)> {
        let mut out = String::with_capacity(48);
        // A template of one attribute writes it as it is: the key a caller would name.
        let is_plain = matches!(self.parts.as_slice(), [Part::First(choice)] if choice.len() == 1);
        let mut kind = SubjectKind::Everyone;
        for part in &self.parts {
            let choice = match part {
                Part::Text(text) => {
                    out.push_str(text);
                    continue;
                }
                Part::First(choice) => choice,
            };
            let before = out.len();
            let chosen = choice.iter().find(|attribute| {
                out.truncate(before);
                if choice.len() > 1 {
                    let _ = write!(out, "{attribute}/"); // writing to a String cannot fail
                }
                write_value(attribute, filling, is_plain, &mut out)
            })?;
            if kind == SubjectKind::Everyone {
                kind = chosen.kind();
            }
        }
        if out.len() > SUBJECT_BYTES_MAX {
            let whole = std::mem::take(&mut out);
            write_hash(whole.as_bytes(), &mut out);
        }
        Some((out, kind))
    }
}

/// Appends an attribute's value, or says that there is none.
fn write_value(attribute: &Attribute, filling: Filling<'_>, is_plain: bool, out: &mut String) -> bool {
    let value: Cow<'_, str> = match attribute {
        Attribute::Address => {
            let Some(address) = filling.attributes.address() else { return false };
            filling.grouping.write(address, out);
            return true;
        }
        Attribute::Parameter(name) => {
            let mut found = None;
            filling.attributes.any(&Attribute::Path, &mut |path| {
                let value = filling.paths.iter().find_map(|pattern| pattern.parameter(path, name));
                found = value.map(str::to_owned);
                found.is_some()
            });
            let Some(value) = found else { return false };
            Cow::Owned(value)
        }
        other => match filling.attributes.text(other) {
            Some(value) => value,
            None => return false,
        },
    };
    if attribute.is_secret() || value.len() > VALUE_BYTES_PLAIN {
        write_hash(value.as_bytes(), out);
    } else if is_plain && !value.starts_with(['~', '%']) {
        out.push_str(&value);
    } else {
        // So that no plain value reads like a hash, nor like one that was escaped for that reason.
        // Unlike in a whole key, a slash stands between parts here.
        let mut first = true;
        for piece in value.split('/') {
            if !first {
                out.push_str("%2F");
            }
            first = false;
            if !piece.is_empty() {
                encode(piece.as_bytes(), out);
            }
        }
    }
    true
}

/// What stands for a secret: `~` and half of its SHA-256. Nothing else begins with `~`.
pub fn write_hash(secret: &[u8], out: &mut String) {
    out.push('~');
    for byte in Sha256::digest(secret).iter().take(16) {
        let _ = write!(out, "{byte:02x}"); // writing to a String cannot fail
    }
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Known;
    use std::collections::HashMap;

    fn known(pairs: &[(&str, &str)]) -> Known {
        pairs.iter().fold(Known::default(), |known, (name, text)| {
            known.with(Attribute::parse(name).unwrap(), text).unwrap()
        })
    }

    fn fill(template: &str, pairs: &[(&str, &str)]) -> Option<(String, &'static str)> {
        let paths = [PathPattern::parse("/users/{user}/**").unwrap()];
        let attributes = known(pairs);
        let filling = Filling { attributes: &attributes, paths: &paths, grouping: Grouping::default() };
        let (subject, kind) = KeyTemplate::parse(template).unwrap().fill(filling)?;
        Some((subject, kind.name()))
    }

    #[test]
    fn the_first_that_is_there_is_taken_and_named() {
        let by_token = fill("{token|address}", &[("token", "s3cret"), ("address", "203.0.113.9")]).unwrap();
        assert!(by_token.0.starts_with("token/~") && by_token.0.len() == 39, "{by_token:?}");
        assert!(!by_token.0.contains("s3cret"));
        assert_eq!(by_token.1, "token");
        let by_address = fill("{token|address}", &[("address", "2001:db8::7")]).unwrap();
        assert_eq!(by_address, ("address/2001:db8::/64".to_owned(), "address"));
        assert_eq!(fill("{token|address}", &[("host", "a")]), None);
    }

    #[test]
    fn one_attribute_is_the_key_a_caller_would_name() {
        assert_eq!(fill("{claim.sub}", &[("claim.sub", "a/b c")]).unwrap().0, "a/b c");
        assert_eq!(fill("{path.user}", &[("path", "/users/7/x")]).unwrap(), ("7".to_owned(), "path"));
        assert_eq!(fill("everyone", &[]).unwrap(), ("everyone".to_owned(), "everyone"));
    }

    #[test]
    fn long_values_are_hashed() {
        let long = "x".repeat(4096);
        let (subject, _) = fill("{header.x-tenant}", &[("header.x-tenant", &long)]).unwrap();
        assert_eq!(subject.len(), 33);
        // Many values that are short enough by themselves are not when put together.
        let template = ["{header.x-tenant}"; 8].join(":");
        let (subject, _) = fill(&template, &[("header.x-tenant", &" ".repeat(128))]).unwrap();
        assert_eq!(subject.len(), 33);
    }

    #[test]
    fn no_two_calls_share_a_key() {
        let values = [
            "a",
            "b",
            "a/b",
            "a:b",
            "a%2Fb",
            "~a",
            "%",
            "%7Ea",
            "address/1.2.3.4",
            "1.2.3.4",
            "a|b",
            "tier/a",
        ];
        for template in ["{tier}", "{tier}:{host}", "{tier|host}", "{tier|host}/{path}", "x:{tier} {host}"] {
            let mut seen: HashMap<String, Vec<(&str, &str)>> = HashMap::new();
            for tier in values {
                for host in values {
                    for pairs in [vec![("tier", tier), ("host", host)], vec![("host", host)]] {
                        let mut all = pairs.clone();
                        all.push(("path", "/p"));
                        let Some((subject, _)) = fill(template, &all) else { continue };
                        // What the template does not look at may differ.
                        let mut looked = pairs;
                        if template == "{tier}" || (template.starts_with("{tier|") && looked.len() == 2) {
                            looked.truncate(1);
                        }
                        let other = seen.insert(subject.clone(), looked.clone());
                        assert!(
                            other.as_ref().is_none_or(|other| *other == looked),
                            "{subject} {other:?} {looked:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for text in ["", "{", "}", "{address", "a}b", "{a b}", "{x.y}", "{tier}{host}", "{tier}a{host}", "{}"]
        {
            assert!(KeyTemplate::parse(text).is_err(), "{text}");
        }
    }
}
