//! Claims of JSON Web Tokens (RFC 7519): only those of a token that was verified.
//!
//! The configuration pins one algorithm. A token cannot choose: its header is compared with what is pinned
//! and used for nothing else but to pick a key by its `kid`. Keys that a token brings along (`jwk`, `jku`,
//! `x5u`) are never looked at. Signatures are checked by `ring`, which TLS to Redis uses too; the ready-made
//! crates bring either a second cryptographic library or an RSA with an open advisory (RUSTSEC-2023-0071).
//!
//! Proved by: `jwt/tests.rs`, on tokens that another implementation made.

mod keys;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use tollgate_core::units::Micros;

use keys::Key;
pub use keys::{KeyError, Signing};

/// The longest token that is read.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// How far the clocks of issuer and verifier may be apart, unless set.
pub const LEEWAY: Duration = Duration::from_secs(30);

/// Verifies tokens. Built once; clones share it.
#[derive(Clone)]
pub struct Verifier {
    settings: Arc<Settings>,
}

#[derive(Clone)]
struct Settings {
    signing: Signing,
    keys: Vec<Key>,
    leeway: Micros,
    issuer: Option<String>,
    audience: Option<String>,
}

/// The claims of a verified token.
#[derive(Clone, PartialEq)]
pub struct Claims {
    claims: Map<String, Value>,
}

/// Why a token has no claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Longer than [`TOKEN_BYTES_MAX`].
    #[error("the token is longer than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    /// Not three parts of base64, or not JSON in them.
    #[error("the token is malformed")]
    Malformed,
    /// Signed with another algorithm than the one that is pinned, or with none.
    #[error("the token is signed with another algorithm")]
    OtherAlgorithm,
    /// The header names an extension that must be understood, and is not.
    #[error("the token needs an extension that is not known here")]
    Critical,
    /// No key, or no single one, is meant by the token's `kid`.
    #[error("the token names no key that is known here")]
    UnknownKey,
    /// The signature is not by the key.
    #[error("the token's signature does not fit")]
    BadSignature,
    /// `exp` is past.
    #[error("the token has expired")]
    Expired,
    /// `nbf` is still to come.
    #[error("the token is not yet valid")]
    NotYet,
    /// `iss` is another, or missing.
    #[error("the token is by another issuer")]
    OtherIssuer,
    /// `aud` does not name us.
    #[error("the token is for another audience")]
    OtherAudience,
}

impl Verifier {
    /// Tokens signed by the holder of this public key: `-----BEGIN PUBLIC KEY-----`.
    pub fn from_pem(signing: Signing, pem: &[u8]) -> Result<Verifier, KeyError> {
        Ok(Verifier::new(signing, vec![Key::from_pem(signing, pem)?]))
    }

    /// Tokens signed with this shared secret: the bytes as they are.
    pub fn from_secret(signing: Signing, secret: &[u8]) -> Result<Verifier, KeyError> {
        Ok(Verifier::new(signing, vec![Key::from_secret(signing, secret)?]))
    }

    /// Tokens signed by one of the keys of a JSON Web Key Set (RFC 7517). Keys of another kind or for
    /// another use are passed over; one of the right kind that cannot be read is an error.
    pub fn from_jwks(signing: Signing, json: &[u8]) -> Result<Verifier, KeyError> {
        Ok(Verifier::new(signing, keys::from_jwks(signing, json)?))
    }

    fn new(signing: Signing, keys: Vec<Key>) -> Verifier {
        let settings = Settings { signing, keys, leeway: LEEWAY.into(), issuer: None, audience: None };
        Verifier { settings: Arc::new(settings) }
    }

    /// How far the clocks of issuer and verifier may be apart ([`LEEWAY`]).
    #[must_use]
    pub fn leeway(mut self, leeway: Duration) -> Self {
        Arc::make_mut(&mut self.settings).leeway = leeway.into();
        self
    }

    /// Accepts only tokens whose `iss` is this.
    #[must_use]
    pub fn issuer(mut self, issuer: &str) -> Self {
        Arc::make_mut(&mut self.settings).issuer = Some(issuer.to_owned());
        self
    }

    /// Accepts only tokens whose `aud` is this, or has it among others.
    #[must_use]
    pub fn audience(mut self, audience: &str) -> Self {
        Arc::make_mut(&mut self.settings).audience = Some(audience.to_owned());
        self
    }

    /// The claims of a token that is good at `now`.
    pub fn verify(&self, token: &str, now: Micros) -> Result<Claims, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, payload) = message.split_once('.').ok_or(TokenError::Malformed)?;
        let key = self.key_for(&object(header)?)?;
        if !key.signed(self.settings.signing, message.as_bytes(), &decoded(signature)?) {
            return Err(TokenError::BadSignature);
        }
        // Order: what nobody signed is not even parsed.
        let claims = object(payload)?;
        self.accept(&claims, now)?;
        Ok(Claims { claims })
    }

    fn key_for(&self, header: &Map<String, Value>) -> Result<&Key, TokenError> {
        let Settings { signing, keys, .. } = &*self.settings;
        if header.get("alg").and_then(Value::as_str) != Some(signing.name()) {
            return Err(TokenError::OtherAlgorithm);
        }
        if header.contains_key("crit") {
            return Err(TokenError::Critical);
        }
        let kid = match header.get("kid") {
            None => None,
            Some(kid) => Some(kid.as_str().ok_or(TokenError::Malformed)?),
        };
        let found = match (kid, keys.as_slice()) {
            // A key without a name is the only one there is: a file or a secret.
            (_, [only]) if only.id.is_none() => Some(only),
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(kid), keys) => keys.iter().find(|key| key.id.as_deref() == Some(kid)),
        };
        found.ok_or(TokenError::UnknownKey)
    }

    fn accept(&self, claims: &Map<String, Value>, now: Micros) -> Result<(), TokenError> {
        let Settings { leeway, issuer, audience, .. } = &*self.settings;
        if instant(claims, "exp")?.is_some_and(|end| now >= end + *leeway) {
            return Err(TokenError::Expired);
        }
        if instant(claims, "nbf")?.is_some_and(|start| now + *leeway < start) {
            return Err(TokenError::NotYet);
        }
        if issuer.is_some() && claims.get("iss").and_then(Value::as_str) != issuer.as_deref() {
            return Err(TokenError::OtherIssuer);
        }
        let Some(audience) = audience else { return Ok(()) };
        let is_meant = match claims.get("aud") {
            Some(Value::String(one)) => one == audience,
            Some(Value::Array(several)) => several.iter().any(|one| one.as_str() == Some(audience)),
            _ => false,
        };
        if is_meant { Ok(()) } else { Err(TokenError::OtherAudience) }
    }
}

/// A part of a token as JSON. Of a name that is there twice the last counts (RFC 7515, 4; RFC 7519, 4).
fn object(part: &str) -> Result<Map<String, Value>, TokenError> {
    serde_json::from_slice(&decoded(part)?).map_err(|_| TokenError::Malformed)
}

fn decoded(part: &str) -> Result<Vec<u8>, TokenError> {
    BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)
}

/// A date: seconds since 1970, perhaps with a fraction. One that is no date spoils the token.
fn instant(claims: &Map<String, Value>, name: &str) -> Result<Option<Micros>, TokenError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let whole = value.as_u64().map(Micros::from_secs);
    let fraction = || Duration::try_from_secs_f64(value.as_f64()?).ok().map(Micros::from);
    whole.or_else(fraction).map(Some).ok_or(TokenError::Malformed)
}

impl Claims {
    /// A claim as text: a text, a number, or `true` and `false`. `org.id` is the claim of that name, or the
    /// `id` within `org`. Lists, objects, null and the empty text are no attributes.
    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        match find(&self.claims, name)? {
            Value::String(text) if !text.is_empty() => Some(Cow::Borrowed(text)),
            Value::Number(number) => Some(Cow::Owned(number.to_string())),
            Value::Bool(true) => Some(Cow::Borrowed("true")),
            Value::Bool(false) => Some(Cow::Borrowed("false")),
            Value::String(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// The whole name first: `https://example.com/plan` has dots and leads nowhere.
fn find<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    claims.get(name).or_else(|| {
        name.match_indices('.').find_map(|(at, _)| {
            let (outer, inner) = name.split_at(at);
            find(claims.get(outer)?.as_object()?, inner.get(1..)?)
        })
    })
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { signing, keys, leeway, issuer, audience } = &*self.settings;
        f.debug_struct("Verifier")
            .field("signing", signing)
            .field("keys", &keys.len())
            .field("leeway", leeway)
            .field("issuer", issuer)
            .field("audience", audience)
            .finish()
    }
}

/// Names only: what is claimed may be private.
impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.claims.keys()).finish()
    }
}

#[cfg(test)]
mod tests;
