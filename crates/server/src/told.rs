//! What a caller says about a call, as the policy asks for it.
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

/// What a caller says about a call.
#[derive(Debug)]
pub(crate) struct Told {
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

impl Told {
    /// Nothing yet; tokens are found and verified so.
    pub(crate) fn new(identity: &Identity) -> Told {
        Told { known: Known::default(), headers: HeaderMap::new(), identity: identity.clone() }
    }

    /// Adds what is said under that name, or says what is wrong with it.
    pub(crate) fn add(&mut self, name: &str, text: Cow<'_, str>) -> Result<(), String> {
        let attribute = Attribute::parse(name).map_err(|error| error.to_string())?;
        let text: Cow<'_, str> = match &attribute {
            Attribute::Claim(_) => {
                let what = "is no attribute a caller can name: send the token as header.authorization, and its \
                            claims count once it is verified; or say it under a name of your own";
                return Err(what.to_owned());
            }
            Attribute::Parameter(_) => return Err("comes from the path: send the path".to_owned()),
            Attribute::Method => text.to_ascii_uppercase().into(),
            Attribute::Host => text.to_ascii_lowercase().into(),
            Attribute::Path => normal_path(&text).into_owned().into(),
            Attribute::Header(name) => {
                // What no header can be says nothing in one, and is still compared as it is.
                if let (Ok(name), Ok(value)) =
                    (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&text))
                {
                    self.headers.append(name, value);
                }
                text
            }
            _ => text,
        };
        let known = std::mem::take(&mut self.known);
        let is_no_address = || "is no address: write 203.0.113.9 or 2001:db8::1".to_owned();
        self.known = known.with(attribute, &text).ok_or_else(is_no_address)?;
        Ok(())
    }
}
