//! One request, as the policy asks about it.
//!
//! Nothing is read before it is asked for, except the path, which nearly every rule looks at. Values are
//! borrowed from the request wherever they stand there as they are meant.

use core::net::IpAddr;
use std::borrow::Cow;
use std::fmt;
#[cfg(feature = "jwt")]
use std::sync::OnceLock;

use http::header::{HOST, HeaderName};
use http::{HeaderMap, Method, Uri};
use tollgate_core::attributes::{Attribute, Attributes};

use super::path::normal_path;
use super::{Identity, Peer, text};

/// What is known about one HTTP request.
pub struct HttpAttributes<'a> {
    identity: &'a Identity,
    headers: &'a HeaderMap,
    method: Cow<'a, str>,
    path: Cow<'a, str>,
    query: Cow<'a, str>,
    /// As it was sent.
    host: Option<Cow<'a, str>>,
    address: Option<IpAddr>,
    #[cfg(feature = "jwt")]
    claims: OnceLock<Option<super::jwt::Claims>>,
}

/// The request that a proxy asks about, where it is not the one that carries the question (forward-auth).
///
/// What is absent stays absent: the request line of the question is the proxy's own and says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Original<'a> {
    /// `GET`
    pub method: Option<Cow<'a, str>>,
    /// `/users/7?page=2`, or with scheme and host before it.
    pub uri: Option<Cow<'a, str>>,
    /// `api.example.com`; where it is absent, the one within `uri`.
    pub host: Option<Cow<'a, str>>,
}

/// The headers in which a proxy names the request it asks about.
///
/// One header each, on purpose: a proxy overwrites the one it uses and passes on what a client sent in any
/// other, so that a second choice would be the client's to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginalNames {
    /// The method.
    pub method: HeaderName,
    /// Path and query, perhaps with scheme and host.
    pub uri: HeaderName,
    /// The host.
    pub host: HeaderName,
}

impl OriginalNames {
    /// `X-Forwarded-Method`, `-Uri`, `-Host`: Traefik and Caddy.
    pub fn forwarded() -> OriginalNames {
        OriginalNames {
            method: HeaderName::from_static("x-forwarded-method"),
            uri: HeaderName::from_static("x-forwarded-uri"),
            host: HeaderName::from_static("x-forwarded-host"),
        }
    }

    /// `X-Original-Method`, `-Uri`, `-Host`: the custom with nginx.
    pub fn original() -> OriginalNames {
        OriginalNames {
            method: HeaderName::from_static("x-original-method"),
            uri: HeaderName::from_static("x-original-uri"),
            host: HeaderName::from_static("x-original-host"),
        }
    }
}

/// The path and the query of a target as it was sent: `/login?x=1`, or with scheme and host before it. The
/// path in its one spelling.
pub fn path_and_query(target: &str) -> (Cow<'_, str>, Cow<'_, str>) {
    let Target { path, query, .. } = Target::split(target);
    (path, query)
}

/// A host in its one spelling: in small letters, without a port and without a dot at its end.
pub fn normal_host(host: &str) -> Option<Cow<'_, str>> {
    text::host(host)
}

/// The first parameter of that name in a query.
pub fn query_parameter<'q>(query: &'q str, name: &str) -> Option<Cow<'q, str>> {
    text::query_parameter(query, name)
}

impl<'a> Original<'a> {
    /// Reads it from the headers a proxy sends.
    pub fn read(names: &OriginalNames, headers: &'a HeaderMap) -> Original<'a> {
        // The last line: a proxy that adds instead of overwriting adds behind what the client sent.
        let find = |name: &HeaderName| {
            let line = headers.get_all(name).iter().next_back()?;
            Some(text::lossy(line.as_bytes())).filter(|value| !value.is_empty())
        };
        Original { method: find(&names.method), uri: find(&names.uri), host: find(&names.host) }
    }
}

impl Identity {
    /// What is known about the request that a proxy asks about. The client's address is found as always:
    /// in the forwarding header, if `peer` is trusted.
    pub fn of_original<'a>(
        &'a self,
        original: Original<'a>,
        headers: &'a HeaderMap,
        peer: Peer,
    ) -> HttpAttributes<'a> {
        let Original { method, uri, host } = original;
        let target = uri.map(Target::read).unwrap_or_default();
        HttpAttributes {
            identity: self,
            headers,
            method: method.unwrap_or_default(),
            path: target.path,
            query: target.query,
            host: host.or(target.host),
            address: self.address(peer, headers),
            #[cfg(feature = "jwt")]
            claims: OnceLock::new(),
        }
    }
}

impl<'a> HttpAttributes<'a> {
    pub(super) fn new(
        identity: &'a Identity,
        method: &'a Method,
        uri: &'a Uri,
        headers: &'a HeaderMap,
        address: Option<IpAddr>,
    ) -> HttpAttributes<'a> {
        // A target that names its host wins over the Host header (RFC 9112, 3.2.2; RFC 9113, 8.3.1).
        let host = match uri.host() {
            Some(host) => Some(Cow::Borrowed(host)),
            None => headers.get(HOST).map(|host| text::lossy(host.as_bytes())),
        };
        HttpAttributes {
            identity,
            headers,
            method: Cow::Borrowed(method.as_str()),
            path: normal_path(uri.path()),
            query: Cow::Borrowed(uri.query().unwrap_or_default()),
            host,
            address,
            #[cfg(feature = "jwt")]
            claims: OnceLock::new(),
        }
    }

    /// The secret the caller shows: the first of the configured sources that has one.
    pub fn token(&self) -> Option<Cow<'_, str>> {
        self.identity.token(self.headers)
    }

    #[cfg(feature = "jwt")]
    fn claim(&self, name: &str) -> Option<Cow<'_, str>> {
        self.claims.get_or_init(|| self.identity.claims(self.headers)).as_ref()?.text(name)
    }

    #[cfg(not(feature = "jwt"))]
    #[expect(clippy::unused_self, reason = "the same call with and without the feature")]
    fn claim(&self, _name: &str) -> Option<Cow<'_, str>> {
        None
    }
}

impl Attributes for HttpAttributes<'_> {
    fn text(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let present = |text: &'_ str| !text.is_empty();
        match attribute {
            Attribute::Method => Some(Cow::Borrowed(&*self.method)).filter(|text| present(text)),
            Attribute::Path => Some(Cow::Borrowed(&*self.path)).filter(|text| present(text)),
            Attribute::Host => text::host(self.host.as_deref()?),
            Attribute::Token => self.token(),
            Attribute::Header(name) => text::header(self.headers, name),
            Attribute::Query(name) => text::query_parameter(&self.query, name),
            Attribute::Cookie(name) => text::cookie(self.headers, name),
            Attribute::Claim(name) => self.claim(name),
            // Not of HTTP, or the rule's own, or asked for elsewhere.
            Attribute::Address | Attribute::Descriptor(_) | Attribute::Parameter(_) | Attribute::Free(_) => {
                None
            }
        }
    }

    fn any(&self, attribute: &Attribute, is_meant: &mut dyn FnMut(&str) -> bool) -> bool {
        match attribute {
            Attribute::Path if !self.path.is_empty() => any_spelling(&self.path, is_meant),
            Attribute::Header(name) => text::any_header(self.headers, name, is_meant),
            Attribute::Query(name) => text::any_query_parameter(&self.query, name, is_meant),
            Attribute::Cookie(name) => text::any_cookie(self.headers, name, is_meant),
            _ => self.text(attribute).is_some_and(|text| is_meant(&text)),
        }
    }

    fn address(&self) -> Option<IpAddr> {
        self.address
    }
}

/// Whether a path is meant in its one spelling, or in the one that those read who undo an escaped slash.
pub fn any_spelling(path: &str, is_meant: &mut dyn FnMut(&str) -> bool) -> bool {
    is_meant(path) || (path.contains("%2F") && is_meant(&normal_path(&path.replace("%2F", "/"))))
}

/// Headers and query stay out: they hold secrets.
impl fmt::Debug for HttpAttributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpAttributes")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// The parts of a request's target.
#[derive(Default)]
struct Target<'a> {
    host: Option<Cow<'a, str>>,
    path: Cow<'a, str>,
    query: Cow<'a, str>,
}

impl<'a> Target<'a> {
    fn read(uri: Cow<'a, str>) -> Target<'a> {
        match uri {
            Cow::Borrowed(uri) => Target::split(uri),
            Cow::Owned(uri) => Target::split(&uri).into_owned(),
        }
    }

    /// By hand: what a proxy passes on may be no valid URI, and must be counted all the same.
    fn split(uri: &str) -> Target<'_> {
        let (uri, _) = uri.split_once('#').unwrap_or((uri, ""));
        let (before, query) = uri.split_once('?').unwrap_or((uri, ""));
        let (host, path) = match before.split_once("://") {
            Some((scheme, after)) if !scheme.contains('/') => {
                let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
                let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
                (Some(Cow::Borrowed(host)), if path.is_empty() { "/" } else { path })
            }
            _ => (None, before),
        };
        Target { host, path: normal_path(path), query: Cow::Borrowed(query) }
    }

    fn into_owned<'b>(self) -> Target<'b> {
        Target {
            host: self.host.map(|host| Cow::Owned(host.into_owned())),
            path: Cow::Owned(self.path.into_owned()),
            query: Cow::Owned(self.query.into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};
    use tollgate_core::address::Cidr;

    use super::super::TokenSource;
    use super::*;

    fn known(attributes: &HttpAttributes<'_>, name: &str) -> Option<String> {
        attributes.text(&Attribute::parse(name).unwrap()).map(Cow::into_owned)
    }

    const PEER: Peer = Peer::Address(IpAddr::V4(core::net::Ipv4Addr::new(203, 0, 113, 9)));

    #[test]
    fn a_request_is_known_by_its_parts() {
        let request = Request::builder()
            .method("POST")
            .uri("/a/..//users/%37?page=2&page=3")
            .header("host", "API.example.com:8080")
            .header("x-tenant", "t1")
            .header("cookie", "session=s1")
            .header("x-api-key", "k1")
            .body(())
            .unwrap();
        let identity = Identity::default();
        let attributes = identity.of(&request, PEER);
        for (name, value) in [
            ("method", Some("POST")),
            ("path", Some("/users/7")),
            ("host", Some("api.example.com")),
            ("token", Some("k1")),
            ("header.x-tenant", Some("t1")),
            ("header.absent", None),
            ("query.page", Some("2")),
            ("cookie.session", Some("s1")),
            ("claim.sub", None),
            ("descriptor.x", None),
            ("tier", None),
        ] {
            assert_eq!(known(&attributes, name).as_deref(), value, "{name}");
        }
        assert_eq!(attributes.address(), Some("203.0.113.9".parse().unwrap()));
    }

    #[test]
    fn the_first_source_that_has_a_token_counts() {
        let mut request = Request::new(());
        let identity = Identity::default();
        assert_eq!(known(&identity.of(&request, PEER), "token"), None);
        request.headers_mut().insert("api_key", HeaderValue::from_static("c"));
        assert_eq!(known(&identity.of(&request, PEER), "token").as_deref(), Some("c"));
        request.headers_mut().insert("x-api-key", HeaderValue::from_static("b"));
        assert_eq!(known(&identity.of(&request, PEER), "token").as_deref(), Some("b"));
        request.headers_mut().insert("authorization", HeaderValue::from_static("Basic x"));
        assert_eq!(known(&identity.of(&request, PEER), "token").as_deref(), Some("b"));
        request.headers_mut().append("authorization", HeaderValue::from_static("Bearer a"));
        assert_eq!(known(&identity.of(&request, PEER), "token").as_deref(), Some("a"));

        let only_key = vec![TokenSource::parse("api_key").unwrap()];
        let identity = Identity::builder().tokens(only_key).build();
        assert_eq!(known(&identity.of(&request, PEER), "token").as_deref(), Some("c"));
    }

    #[test]
    fn the_target_names_the_host_before_the_header_does() {
        let request = Request::builder().uri("http://A.example:81/x").header("host", "b.example");
        let request = request.body(()).unwrap();
        let identity = Identity::default();
        assert_eq!(known(&identity.of(&request, PEER), "host").as_deref(), Some("a.example"));
    }

    #[test]
    fn a_proxy_asks_about_the_request_it_names() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-forwarded-method", "DELETE"),
            ("x-forwarded-uri", "/a//b?key=v"),
            ("x-forwarded-host", "Shop.example"),
            ("x-forwarded-for", "198.51.100.7"),
            ("x-original-uri", "/elsewhere"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let identity = Identity::builder().trust(Cidr::parse("203.0.113.0/24").unwrap()).build();
        let original = Original::read(&OriginalNames::forwarded(), &headers);
        let attributes = identity.of_original(original, &headers, PEER);
        for (name, value) in
            [("method", "DELETE"), ("path", "/a/b"), ("host", "shop.example"), ("query.key", "v")]
        {
            assert_eq!(known(&attributes, name).as_deref(), Some(value), "{name}");
        }
        assert_eq!(attributes.address(), Some("198.51.100.7".parse().unwrap()));

        let original = Original::read(&OriginalNames::original(), &headers);
        let attributes = identity.of_original(original, &headers, PEER);
        assert_eq!(known(&attributes, "path").as_deref(), Some("/elsewhere"));
        assert_eq!(known(&attributes, "method"), None);
        assert_eq!(known(&attributes, "host"), None);
    }

    #[test]
    fn a_whole_url_gives_its_host_too() {
        let mut headers = HeaderMap::new();
        let url = HeaderValue::from_bytes(b"https://me@Shop.example:444/a\xff/../b?x=1#f").unwrap();
        headers.append("x-original-uri", HeaderValue::from_static("/from-the-client"));
        headers.append("x-original-uri", url);
        let identity = Identity::default();
        let original = Original::read(&OriginalNames::original(), &headers);
        let attributes = identity.of_original(original, &headers, PEER);
        assert_eq!(known(&attributes, "host").as_deref(), Some("shop.example"));
        assert_eq!(known(&attributes, "path").as_deref(), Some("/b"));
        assert_eq!(known(&attributes, "query.x").as_deref(), Some("1"));
    }

    #[test]
    fn secrets_do_not_reach_a_log() {
        let request = Request::builder().uri("/x?key=hidden").header("authorization", "Bearer hidden");
        let request = request.body(()).unwrap();
        let identity = Identity::default();
        assert!(!format!("{:?}", identity.of(&request, PEER)).contains("hidden"));
    }
}
