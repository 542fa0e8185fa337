//! What a caller says about a call, read into what the policy asks for.
//!
//! A service that asks about its own callers passes on what it got: a path is brought into the one form
//! that rules are compared with, and a token is looked for in the headers, and verified, just as if the
//! call had come to our own door. Shared by the doors that are told attributes by name.

use core::net::IpAddr;
use std::borrow::Cow;
use std::sync::OnceLock;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use tollgate::core::attributes::{Attribute, Attributes, Known};
use tollgate::identity::jwt::Claims;
use tollgate::identity::{Identity, any_spelling, normal_host, path_and_query, query_parameter};

/// What a caller says about a call.
#[derive(Debug)]
pub(crate) struct Told {
    known: Known,
    /// The headers among it, for what stands in them.
    headers: HeaderMap,
    /// What came behind the path.
    query: String,
    identity: Identity,
    /// Of the token among the headers: verified once, however often it is asked for.
    claims: OnceLock<Option<Claims>>,
    /// What was told so far.
    named: Vec<Attribute>,
}

impl Told {
    /// Nothing yet.
    pub(crate) fn new(identity: &Identity) -> Told {
        Told {
            known: Known::default(),
            headers: HeaderMap::new(),
            query: String::new(),
            identity: identity.clone(),
            claims: OnceLock::new(),
            named: Vec::new(),
        }
    }

    /// Adds what is said under that name, or says what is wrong with it.
    pub(crate) fn add(&mut self, name: &str, text: Cow<'_, str>) -> Result<(), String> {
        let attribute = Attribute::parse(name).map_err(|error| error.to_string())?;
        let told = std::mem::replace(self, Told::new(&self.identity));
        *self = told.with(attribute, text)?;
        Ok(())
    }

    /// Notes that something was named and nothing said of it.
    pub(crate) fn mention(&mut self, name: &str) -> Result<(), String> {
        let attribute = Attribute::parse(name).map_err(|error| error.to_string())?;
        if self.named.contains(&attribute) {
            return Err("is named twice: a call has one of each".to_owned());
        }
        self.named.push(attribute);
        Ok(())
    }

    /// One attribute more, or what is wrong with it.
    pub(crate) fn with(mut self, attribute: Attribute, text: Cow<'_, str>) -> Result<Told, &'static str> {
        if self.named.contains(&attribute) {
            return Err("is named twice: a call has one of each");
        }
        self.named.push(attribute.clone());
        let text: Cow<'_, str> = match &attribute {
            Attribute::Claim(_) => {
                return Err(
                    "is no attribute a caller can name: send the token as header.authorization, and its \
                            claims count once it is verified; or say it under a name of your own",
                );
            }
            Attribute::Parameter(_) => return Err("comes from the path: send the path"),
            Attribute::Method => text.to_ascii_uppercase().into(),
            Attribute::Host => normal_host(&text).unwrap_or_default().into_owned().into(),
            Attribute::Path => {
                let (path, query) = path_and_query(&text);
                if !path.starts_with('/') {
                    return Err("is no path: write it as it was sent, such as /login");
                }
                self.query = query.into_owned();
                path.into_owned().into()
            }
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
        self.known =
            self.known.with(attribute, &text).ok_or("is no address: write 203.0.113.9 or 2001:db8::1")?;
        Ok(self)
    }
}

impl Attributes for Told {
    fn text(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        if let Some(text) = self.known.text(attribute) {
            return Some(text);
        }
        match attribute {
            Attribute::Token => self.identity.token(&self.headers),
            Attribute::Claim(name) if !self.headers.is_empty() => {
                self.claims.get_or_init(|| self.identity.claims(&self.headers)).as_ref()?.text(name)
            }
            Attribute::Query(name) => query_parameter(&self.query, name),
            _ => None,
        }
    }

    fn any(&self, attribute: &Attribute, is_meant: &mut dyn FnMut(&str) -> bool) -> bool {
        match (attribute, self.text(attribute)) {
            (Attribute::Path, Some(path)) => any_spelling(&path, is_meant),
            (_, text) => text.is_some_and(|text| is_meant(&text)),
        }
    }

    fn address(&self) -> Option<IpAddr> {
        self.known.address()
    }
}
