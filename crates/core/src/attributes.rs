//! What is known about a call: the words in which a policy says whom it means.
//!
//! A door turns its protocol into [`Attributes`]; a policy asks for them by [`Attribute`] and never learns
//! where they came from. Nothing is collected in advance: a rule that looks at one header costs one look-up.

use core::net::IpAddr;
use std::borrow::Cow;
use std::fmt;

/// The longest name of an attribute.
pub const NAME_BYTES_MAX: usize = 128;

/// One thing that can be known about a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attribute {
    /// `method`: `GET`.
    Method,
    /// `path`: `/users/7`, decoded and without its query.
    Path,
    /// `host`: `api.example.com`, in small letters and without a port.
    Host,
    /// `address`: who is calling, seen through trusted proxies.
    Address,
    /// `token`: the secret the caller shows. Hashed before it becomes part of a key.
    Token,
    /// `header.x-tenant`; names in small letters.
    Header(Box<str>),
    /// `query.page`
    Query(Box<str>),
    /// `cookie.session`. Hashed before it becomes part of a key.
    Cookie(Box<str>),
    /// `claim.sub`: of a token that was verified; there are no others.
    Claim(Box<str>),
    /// `descriptor.remote_address`: an entry of Envoy's descriptors.
    Descriptor(Box<str>),
    /// `path.user`: a parameter of the rule's own path pattern.
    Parameter(Box<str>),
    /// Any other name: what the caller says about itself.
    Free(Box<str>),
}

/// What kind of thing a subject is, for verdicts: never the thing itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SubjectKind {
    /// A key the caller named.
    Key,
    /// Everyone together: a rule whose key has no attribute in it.
    Everyone,
    /// `method`
    Method,
    /// `path`, or a parameter of it.
    Path,
    /// `host`
    Host,
    /// `address`
    Address,
    /// `token`
    Token,
    /// A header.
    Header,
    /// A query parameter.
    Query,
    /// A cookie.
    Cookie,
    /// A verified claim.
    Claim,
    /// An entry of a descriptor.
    Descriptor,
    /// What the caller said about itself.
    Attribute,
}

/// Answers what is known about one call.
pub trait Attributes: fmt::Debug + Sync {
    /// The attribute as text: the first, where a call has several. `None` where it is absent; never an empty
    /// text.
    ///
    /// [`Attribute::Address`] is asked for by [`Attributes::address`] and [`Attribute::Parameter`] belongs
    /// to the rule; neither is asked for here.
    fn text(&self, attribute: &Attribute) -> Option<Cow<'_, str>>;

    /// Whether `is_meant` holds for any text the attribute has: every line of a header, every parameter of
    /// one name, every spelling of a path that an application may read. What is only compared looks at all
    /// of them, so that nobody slips past by saying something twice.
    fn any(&self, attribute: &Attribute, is_meant: &mut dyn FnMut(&str) -> bool) -> bool {
        self.text(attribute).is_some_and(|text| is_meant(&text))
    }

    /// Who is calling.
    fn address(&self) -> Option<IpAddr>;
}

/// Why a text names no attribute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttributeError {
    /// There is no such family of attributes.
    #[error(
        "\"{name}\" is no attribute: use method, path, host, address, token, header.NAME, query.NAME, cookie.NAME, claim.NAME, descriptor.NAME, path.PARAMETER, or a name of your own without a dot"
    )]
    Unknown {
        /// What was written, clipped.
        name: String,
    },
    /// The name after the dot is empty, too long, or not made of visible ASCII.
    #[error(
        "\"{name}\" has a bad name: use 1 to {NAME_BYTES_MAX} letters, digits and any of -_.:/$ after the first"
    )]
    BadName {
        /// What was written, clipped.
        name: String,
    },
}

impl Attribute {
    /// Reads `header.x-tenant`.
    pub fn parse(text: &str) -> Result<Attribute, AttributeError> {
        let clipped = || text.chars().take(64).collect::<String>();
        let is_good = |name: &str| {
            (1..=NAME_BYTES_MAX).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:/$".contains(&b))
        };
        let Some((family, name)) = text.split_once('.') else {
            return match text {
                "method" => Ok(Attribute::Method),
                "path" => Ok(Attribute::Path),
                "host" => Ok(Attribute::Host),
                // What most people call it.
                "address" | "ip" => Ok(Attribute::Address),
                "token" => Ok(Attribute::Token),
                name if is_good(name) => Ok(Attribute::Free(name.into())),
                _ => Err(AttributeError::BadName { name: clipped() }),
            };
        };
        let named = |make: fn(Box<str>) -> Attribute, name: &str| {
            if is_good(name) {
                Ok(make(name.into()))
            } else {
                Err(AttributeError::BadName { name: clipped() })
            }
        };
        match family {
            "header" => named(Attribute::Header, &name.to_ascii_lowercase()),
            "query" => named(Attribute::Query, name),
            "cookie" => named(Attribute::Cookie, name),
            "claim" => named(Attribute::Claim, name),
            "descriptor" => named(Attribute::Descriptor, name),
            "path" => named(Attribute::Parameter, name),
            _ => Err(AttributeError::Unknown { name: clipped() }),
        }
    }

    /// What kind of subject it makes.
    pub fn kind(&self) -> SubjectKind {
        match self {
            Attribute::Method => SubjectKind::Method,
            Attribute::Path | Attribute::Parameter(_) => SubjectKind::Path,
            Attribute::Host => SubjectKind::Host,
            Attribute::Address => SubjectKind::Address,
            Attribute::Token => SubjectKind::Token,
            Attribute::Header(_) => SubjectKind::Header,
            Attribute::Query(_) => SubjectKind::Query,
            Attribute::Cookie(_) => SubjectKind::Cookie,
            Attribute::Claim(_) => SubjectKind::Claim,
            Attribute::Descriptor(_) => SubjectKind::Descriptor,
            Attribute::Free(_) => SubjectKind::Attribute,
        }
    }

    /// Whether it must be hashed before it becomes part of a key: by its name, rather once too often.
    pub fn is_secret(&self) -> bool {
        const WORDS: [&str; 12] = [
            "auth",
            "cookie",
            "credential",
            "jwt",
            "key",
            "passw",
            "pwd",
            "secret",
            "session",
            "sid",
            "sig",
            "token",
        ];
        match self {
            Attribute::Token | Attribute::Cookie(_) => true,
            Attribute::Header(name)
            | Attribute::Query(name)
            | Attribute::Descriptor(name)
            | Attribute::Parameter(name)
            | Attribute::Free(name) => {
                let name = name.to_ascii_lowercase();
                WORDS.iter().any(|word| name.contains(word))
            }
            _ => false,
        }
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (family, name) = match self {
            Attribute::Method => return f.write_str("method"),
            Attribute::Path => return f.write_str("path"),
            Attribute::Host => return f.write_str("host"),
            Attribute::Address => return f.write_str("address"),
            Attribute::Token => return f.write_str("token"),
            Attribute::Free(name) => return f.write_str(name),
            Attribute::Header(name) => ("header", name),
            Attribute::Query(name) => ("query", name),
            Attribute::Cookie(name) => ("cookie", name),
            Attribute::Claim(name) => ("claim", name),
            Attribute::Descriptor(name) => ("descriptor", name),
            Attribute::Parameter(name) => ("path", name),
        };
        write!(f, "{family}.{name}")
    }
}

impl SubjectKind {
    /// Its name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            SubjectKind::Key => "key",
            SubjectKind::Everyone => "everyone",
            SubjectKind::Method => "method",
            SubjectKind::Path => "path",
            SubjectKind::Host => "host",
            SubjectKind::Address => "address",
            SubjectKind::Token => "token",
            SubjectKind::Header => "header",
            SubjectKind::Query => "query",
            SubjectKind::Cookie => "cookie",
            SubjectKind::Claim => "claim",
            SubjectKind::Descriptor => "descriptor",
            SubjectKind::Attribute => "attribute",
        }
    }
}

/// A call about which a list of texts is known: for callers that name their attributes, and for tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    address: Option<IpAddr>,
    texts: Vec<(Attribute, String)>,
}

impl Known {
    /// Adds an attribute; an empty text is an absent one, and the last of two alike counts.
    ///
    /// An address must be one: `None` is answered if it is not.
    #[must_use]
    pub fn with(mut self, attribute: Attribute, text: &str) -> Option<Known> {
        if attribute == Attribute::Address {
            self.address = Some(crate::address::fold(text.parse().ok()?));
            return Some(self);
        }
        self.texts.retain(|(known, _)| *known != attribute);
        if !text.is_empty() {
            self.texts.push((attribute, text.to_owned()));
        }
        Some(self)
    }
}

impl Attributes for Known {
    fn text(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let found = self.texts.iter().find(|(known, _)| known == attribute);
        found.map(|(_, text)| Cow::Borrowed(text.as_str()))
    }

    fn address(&self) -> Option<IpAddr> {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_shown_alike() {
        for name in [
            "method",
            "path",
            "host",
            "address",
            "token",
            "header.x-tenant",
            "query.page",
            "cookie.session",
            "claim.sub",
            "descriptor.remote_address",
            "path.user",
            "tier",
            "claim.https://example.com/plan",
        ] {
            assert_eq!(Attribute::parse(name).unwrap().to_string(), name);
        }
        assert_eq!(Attribute::parse("ip"), Ok(Attribute::Address));
        assert_eq!(Attribute::parse("header.X-Tenant"), Ok(Attribute::Header("x-tenant".into())));
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for name in ["", "headers.x", "header.", "header.a b", "tier one", "x.y", "query.\u{e9}"] {
            assert!(Attribute::parse(name).is_err(), "{name}");
        }
        assert!(Attribute::parse(&format!("header.{}", "x".repeat(NAME_BYTES_MAX + 1))).is_err());
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in [
            "token",
            "cookie.any",
            "header.authorization",
            "header.x-api-key",
            "query.access_token",
            "header.x-auth",
            "header.x-password",
            "query.sig",
            "query.Auth",
            "api_key",
            "descriptor.authorization",
            "path.token",
        ] {
            assert!(Attribute::parse(name).unwrap().is_secret(), "{name}");
        }
        for name in ["header.x-tenant", "address", "claim.sub", "query.page"] {
            assert!(!Attribute::parse(name).unwrap().is_secret(), "{name}");
        }
    }
}
