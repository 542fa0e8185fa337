//! What a caller says about a call, read into what the policy asks for.
//!
//! A service that asks about its own callers passes on what it got: a path is brought into the one form
//! that rules are compared with, and a token is looked for in the headers, and verified, just as if the
//! call had come to our own door.

use core::net::IpAddr;
use std::borrow::Cow;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Uri};
use tollgate::core::attributes::{Attribute, Attributes, Known};
use tollgate::identity::{Identity, Peer, normal_path};

use super::raw::{ATTRIBUTES_MAX, RawAttributes, Value};
use crate::net::problem::Problem;

/// What a caller says about a call.
#[derive(Debug)]
pub(super) struct Told {
    known: Known,
    /// The headers among it, for what stands in them.
    headers: HeaderMap,
    identity: Identity,
}

impl Attributes for Told {
    fn text(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        if let Some(text) = self.known.text(attribute) {
            return Some(text);
        }
        if !matches!(attribute, Attribute::Token | Attribute::Claim(_)) || self.headers.is_empty() {
            return None;
        }
        let (method, uri) = (Method::GET, Uri::default());
        let seen = self.identity.of_parts(&method, &uri, &self.headers, Peer::Unix);
        seen.text(attribute).map(|text| Cow::Owned(text.into_owned()))
    }

    fn address(&self) -> Option<IpAddr> {
        self.known.address()
    }
}

/// The attributes as named, or `None` if there are none.
pub(super) fn read(
    raw: RawAttributes<'_>,
    path: &str,
    identity: &Identity,
) -> Result<Option<Box<Told>>, Problem> {
    let pairs = match raw {
        RawAttributes::Absent => return Ok(None),
        RawAttributes::Map(pairs) => pairs,
        RawAttributes::TooMany(count) => {
            return Err(Problem::field(path, format!("has {count} of them: at most {ATTRIBUTES_MAX}")));
        }
        RawAttributes::Other(found) => {
            return Err(Problem::field(path, format!("must be an object of names and texts; found {found}")));
        }
    };
    let mut told = Told { known: Known::default(), headers: HeaderMap::new(), identity: identity.clone() };
    for (name, value) in pairs {
        let place = || format!("{path}.{}", name.chars().take(64).collect::<String>());
        let attribute =
            Attribute::parse(&name).map_err(|error| Problem::field(place(), error.to_string()))?;
        let text: Cow<'_, str> = match value {
            Value::Absent => continue,
            Value::Text(text) => text,
            Value::Whole(number) => number.to_string().into(),
            Value::Other(found) => {
                return Err(Problem::field(place(), format!("must be text; found {found}")));
            }
        };
        let text: Cow<'_, str> = match &attribute {
            Attribute::Claim(_) => {
                let what = "is no attribute a caller can name: send the token as header.authorization, and its \
                            claims count once it is verified; or say it under a name of your own";
                return Err(Problem::field(place(), what));
            }
            Attribute::Parameter(_) => {
                return Err(Problem::field(place(), "comes from the path: send the path"));
            }
            Attribute::Method => text.to_ascii_uppercase().into(),
            Attribute::Host => text.to_ascii_lowercase().into(),
            Attribute::Path => normal_path(&text).into_owned().into(),
            Attribute::Header(name) => {
                // What no header can be says nothing in one, and is still compared as it is.
                if let (Ok(name), Ok(value)) =
                    (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&text))
                {
                    told.headers.append(name, value);
                }
                text
            }
            _ => text,
        };
        told.known = told
            .known
            .with(attribute, &text)
            .ok_or_else(|| Problem::field(place(), "is no address: write 203.0.113.9 or 2001:db8::1"))?;
    }
    Ok(Some(Box::new(told)))
}
