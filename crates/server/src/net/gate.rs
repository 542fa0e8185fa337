//! A bearer token in front of what must not be open to everyone.

use std::hint::black_box;

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use tollgate::store::redis::Secret;

/// What it takes to pass.
#[derive(Debug, Clone)]
pub(crate) enum Gate {
    /// Everybody may.
    Open,
    /// Whoever brings this token.
    Token(Secret),
    /// Nobody may: it would take a token, and none was configured.
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
    pub(crate) fn new(token: Option<Secret>, address: std::net::SocketAddr) -> Gate {
        match token {
            Some(token) => Gate::Token(token),
            None if address.ip().is_loopback() => Gate::Open,
            None => Gate::Shut,
        }
    }

    /// Whether these headers pass.
    pub(crate) fn pass(&self, headers: &HeaderMap) -> Result<(), Barred> {
        match self {
            Gate::Open => Ok(()),
            Gate::Shut => Err(Barred::Shut),
            Gate::Token(token) => {
                let given = headers.get(AUTHORIZATION).map(hyper::header::HeaderValue::as_bytes);
                let given = given.and_then(bearer).ok_or(Barred::NoToken)?;
                if is_same(given, token.reveal().as_bytes()) { Ok(()) } else { Err(Barred::NoToken) }
            }
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

    #[test]
    fn only_the_very_token_passes() {
        let gate = Gate::Token(Secret::new("s3cret-s3cret-s3cret"));
        assert_eq!(gate.pass(&headers("Bearer s3cret-s3cret-s3cret")), Ok(()));
        assert_eq!(gate.pass(&headers("bearer   s3cret-s3cret-s3cret ")), Ok(()));
        for wrong in [
            "Bearer s3cret-s3cret-s3creT",
            "Bearer s3cret-s3cret-s3cre",
            "Bearer s3cret-s3cret-s3crets3cret-s3cret-s3cret",
            "Bearer ",
            "Basic s3cret-s3cret-s3cret",
            "",
        ] {
            assert_eq!(gate.pass(&headers(wrong)), Err(Barred::NoToken), "{wrong}");
        }
        assert_eq!(gate.pass(&HeaderMap::new()), Err(Barred::NoToken));
    }

    #[test]
    fn without_a_token_only_loopback_is_open() {
        let at = |address: &str| Gate::new(None, address.parse().unwrap()).pass(&HeaderMap::new());
        assert_eq!(at("127.0.0.1:1"), Ok(()));
        assert_eq!(at("[::1]:1"), Ok(()));
        assert_eq!(at("0.0.0.0:1"), Err(Barred::Shut));
        assert_eq!(at("192.0.2.1:1"), Err(Barred::Shut));
    }
}
