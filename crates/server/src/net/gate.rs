//! A bearer token or a client's certificate in front of what must not be open to everyone.

use std::hint::black_box;

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use tollgate::store::redis::Secret;

use super::bind::Endpoint;
use super::peer::Peer;

/// What it takes to pass. A certificate that our authority vouches for always does.
#[derive(Debug, Clone)]
pub(crate) enum Gate {
    /// Everybody on this machine may.
    Open,
    /// Whoever brings this token.
    Token(Secret),
    /// Nobody else may: it would take a token, and none was configured.
    Shut,
}

/// Why somebody did not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barred {
    /// No token, or a wrong one.
    NoToken,
    /// No token would do.
    Shut,
}

impl Gate {
    /// The gate of a door: a configured token is always asked for; without one, only loopback is open.
    pub(crate) fn new(token: Option<Secret>, endpoint: &Endpoint) -> Gate {
        match token {
            Some(token) => Gate::Token(token),
            None if endpoint.is_local() => Gate::Open,
            None => Gate::Shut,
        }
    }

    /// Whether a request with these headers passes.
    pub(crate) fn pass(&self, headers: &HeaderMap, peer: &Peer) -> Result<(), Barred> {
        let given = || headers.get(AUTHORIZATION).map(hyper::header::HeaderValue::as_bytes).and_then(bearer);
        if self.is_open_to(peer) || given().is_some_and(|given| self.accepts(given)) {
            return Ok(());
        }
        Err(self.why_barred())
    }

    /// Whether that peer passes without a word.
    pub(crate) fn is_open_to(&self, peer: &Peer) -> bool {
        // A proxy on this machine may speak for somebody who is not.
        peer.client_certificate || (matches!(self, Gate::Open) && peer.is_local)
    }

    /// Whether this is the token.
    pub(crate) fn accepts(&self, given: &[u8]) -> bool {
        match self {
            Gate::Open | Gate::Shut => false,
            Gate::Token(token) => is_same(given, token.reveal().as_bytes()),
        }
    }

    /// Why somebody does not pass to whom it is not open.
    pub(crate) fn why_barred(&self) -> Barred {
        match self {
            Gate::Open | Gate::Shut => Barred::Shut,
            Gate::Token(_) => Barred::NoToken,
        }
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Compares in a time that depends on the given text alone, so that a wrong token does not tell how
/// much of it was right.
fn is_same(given: &[u8], secret: &[u8]) -> bool {
    let mut differs = usize::from(given.len() != secret.len());
    for (at, byte) in given.iter().enumerate() {
        let expected = secret.get(at % secret.len().max(1)).copied().unwrap_or(0);
        differs |= usize::from(black_box(byte ^ expected));
    }
    differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, hyper::header::HeaderValue::from_static(value))])
    }

    fn stranger() -> Peer {
        Peer::at("192.0.2.9:9".parse().unwrap())
    }

    #[test]
    fn only_the_very_token_passes() {
        let gate = Gate::Token(Secret::new("s3cret-s3cret-s3cret"));
        let pass = |headers: &HeaderMap| gate.pass(headers, &Peer::on_unix_socket());
        assert_eq!(pass(&headers("Bearer s3cret-s3cret-s3cret")), Ok(()));
        assert_eq!(pass(&headers("bearer   s3cret-s3cret-s3cret ")), Ok(()));
        for wrong in [
            "Bearer s3cret-s3cret-s3creT",
            "Bearer s3cret-s3cret-s3cre",
            "Bearer s3cret-s3cret-s3crets3cret-s3cret-s3cret",
            "Bearer ",
            "Basic s3cret-s3cret-s3cret",
            "",
        ] {
            assert_eq!(pass(&headers(wrong)), Err(Barred::NoToken), "{wrong}");
        }
        assert_eq!(pass(&HeaderMap::new()), Err(Barred::NoToken));
    }

    #[test]
    fn without_a_token_only_this_machine_is_open() {
        let local = Peer::on_unix_socket();
        let at = |endpoint, peer: &Peer| Gate::new(None, &endpoint).pass(&HeaderMap::new(), peer);
        let tcp = |address: &str| Endpoint::Tcp(address.parse().unwrap());
        assert_eq!(at(tcp("127.0.0.1:1"), &local), Ok(()));
        assert_eq!(at(tcp("[::1]:1"), &local), Ok(()));
        assert_eq!(at(Endpoint::Unix("/run/t.sock".into()), &local), Ok(()));
        assert_eq!(at(tcp("0.0.0.0:1"), &local), Err(Barred::Shut));
        assert_eq!(at(tcp("192.0.2.1:1"), &local), Err(Barred::Shut));
        // Whom a proxy on this machine speaks for is not on this machine.
        assert_eq!(at(tcp("127.0.0.1:1"), &stranger()), Err(Barred::Shut));
        assert_eq!(at(Endpoint::Unix("/run/t.sock".into()), &local.for_somebody()), Err(Barred::Shut));
    }

    #[test]
    fn a_certificate_passes_wherever_a_token_would() {
        let known = Peer { client_certificate: true, ..stranger() };
        for gate in [Gate::Open, Gate::Shut, Gate::Token(Secret::new("s3cret-s3cret-s3cret"))] {
            assert_eq!(gate.pass(&HeaderMap::new(), &known), Ok(()), "{gate:?}");
        }
    }
}
