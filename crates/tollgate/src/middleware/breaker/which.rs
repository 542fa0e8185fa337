//! Which breaker a call is made under.

use std::borrow::Cow;
use std::sync::Once;

use http::Request;
use http::header::HOST;
use http::uri::{Authority, Scheme};
use tollgate_core::breaker::Fleet;

use crate::breaker::{Breakers, Handle};

/// What calls are made under that do not say whom they are to.
const NO_HOST: &str = "-";

/// Finds the breaker of a request. `None` makes the call without one.
pub trait Which<Q, F: Fleet>: Send + Sync + 'static {
    /// It.
    fn which(&self, breakers: &Breakers<F>, request: &Q) -> Option<Handle<F>>;
}

/// One breaker for all.
#[derive(Debug)]
pub struct Named<F: Fleet>(pub(super) Handle<F>);

/// A breaker for each host and port.
#[derive(Debug, Default)]
pub struct ByHost(Rest);

/// A breaker for each name that a closure gives.
#[derive(Debug)]
pub struct By<N> {
    name: N,
    rest: Rest,
}

/// What cannot have a breaker is let through without, and the log says so once: a call must not fail for want of
/// one.
#[derive(Debug)]
struct Rest(Once);

impl<N> By<N> {
    pub(super) fn new(name: N) -> By<N> {
        By { name, rest: Rest::default() }
    }
}

impl Default for Rest {
    fn default() -> Rest {
        Rest(Once::new())
    }
}

impl Rest {
    fn handle<F: Fleet>(&self, breakers: &Breakers<F>, id: &str) -> Option<Handle<F>> {
        match breakers.handle(id.as_bytes()) {
            Ok(handle) => Some(handle),
            Err(problem) => {
                self.0.call_once(|| tracing::warn!(%problem, "calls are made without a breaker"));
                None
            }
        }
    }
}

impl<Q, F: Fleet> Which<Q, F> for Named<F> {
    fn which(&self, _: &Breakers<F>, _: &Q) -> Option<Handle<F>> {
        Some(self.0.clone())
    }
}

impl<B, F: Fleet> Which<Request<B>, F> for ByHost {
    fn which(&self, breakers: &Breakers<F>, request: &Request<B>) -> Option<Handle<F>> {
        self.0.handle(breakers, &host(request))
    }
}

impl<Q, F, N> Which<Q, F> for By<N>
where
    F: Fleet,
    N: for<'a> Fn(&'a Q) -> Option<Cow<'a, str>> + Send + Sync + 'static,
{
    fn which(&self, breakers: &Breakers<F>, request: &Q) -> Option<Handle<F>> {
        self.rest.handle(breakers, &(self.name)(request)?)
    }
}

/// Host and port in one spelling: small letters, and no port where it is the scheme's own.
fn host<B>(request: &Request<B>) -> Cow<'_, str> {
    let uri = request.uri();
    let header = || request.headers().get(HOST)?.to_str().ok()?.parse::<Authority>().ok();
    let (host, port) = match uri.authority() {
        Some(authority) => (Cow::Borrowed(authority.host()), authority.port_u16()),
        None => match header() {
            Some(authority) => (Cow::Owned(authority.host().to_owned()), authority.port_u16()),
            None => return Cow::Borrowed(NO_HOST),
        },
    };
    let usual = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => 443,
        _ => 80,
    };
    let is_spelled = !host.bytes().any(|byte| byte.is_ascii_uppercase());
    match port.filter(|port| *port != usual) {
        None if is_spelled => host,
        None => Cow::Owned(host.to_ascii_lowercase()),
        Some(port) => Cow::Owned(format!("{}:{port}", host.to_ascii_lowercase())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_spelling() {
        let host_of = |uri: &str, header: &str| {
            let request = Request::builder().uri(uri).header(HOST, header).body(()).unwrap();
            host(&request).into_owned()
        };
        for (uri, header, expected) in [
            ("http://api.example.com/x", "other", "api.example.com"),
            ("http://API.Example.com:80/", "other", "api.example.com"),
            ("https://user:secret@api.example.com:443/", "other", "api.example.com"),
            ("https://api.example.com:80/", "other", "api.example.com:80"),
            ("http://[2001:DB8::1]:8080/", "other", "[2001:db8::1]:8080"),
            ("/x", "API.example.com:8080", "api.example.com:8080"),
            ("/x", "", "-"),
        ] {
            assert_eq!(host_of(uri, header), expected, "{uri} {header}");
        }
    }
}
