//! Keys that tokens are verified by: from PEM, from a secret, from a JSON Web Key Set.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::{hmac, signature};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{SubjectPublicKeyInfoDer, alg_id};
use serde_json::{Map, Value};

/// How tokens are signed. Named as in RFC 7518.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the standard's")]
pub enum Signing {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

/// What a kind of signing needs of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// A secret of at least so many bytes (RFC 7518, 3.2).
    Hmac {
        bytes_min: usize,
    },
    Rsa,
    /// A curve with coordinates of so many bytes.
    Ec {
        curve: &'static str,
        bytes: usize,
    },
    Ed25519,
}

/// One key, and the name tokens call it by.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) id: Option<String>,
    material: Material,
}

#[derive(Clone)]
enum Material {
    Secret(hmac::Key),
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// A point of the curve, as `ring` reads it.
    Point(Vec<u8>),
}

/// Why a key will not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The algorithm needs another kind of key.
    #[error("{signing} needs {needed}")]
    OtherKind {
        /// The algorithm.
        signing: &'static str,
        /// What it needs.
        needed: &'static str,
    },
    /// The secret is shorter than the hash.
    #[error("{signing} needs a secret of at least {needed} bytes, and this one has {bytes}")]
    ShortSecret {
        /// The algorithm.
        signing: &'static str,
        /// Bytes it needs.
        needed: usize,
        /// Bytes there are.
        bytes: usize,
    },
    /// The RSA key is shorter than 2048 bits or longer than 8192.
    #[error("an RSA key must have 2048 to 8192 bits, and this one has {bits}")]
    BadSize {
        /// Bits it has.
        bits: usize,
    },
    /// There is no `-----BEGIN PUBLIC KEY-----` that can be read.
    #[error("no public key found: a PEM file has -----BEGIN PUBLIC KEY----- in it")]
    NoPem,
    /// The file is no key set.
    #[error("no JSON Web Key Set: it looks like {{\"keys\":[…]}}")]
    NoKeySet,
    /// One of the set's keys cannot be read.
    #[error("keys[{at}]: \"{field}\" is missing or wrong")]
    BadKey {
        /// Its place in the set.
        at: usize,
        /// The member to blame.
        field: &'static str,
    },
    /// Two keys of the set have one `kid`, or none.
    #[error("keys[{at}]: its \"kid\" must tell it from the others")]
    SameName {
        /// The place of the second.
        at: usize,
    },
    /// No key of the set is for this algorithm.
    #[error("the set has no key for {signing}")]
    NoneFits {
        /// The algorithm.
        signing: &'static str,
    },
}

impl Signing {
    /// All of them.
    pub const ALL: [Signing; 12] = [
        Signing::Hs256,
        Signing::Hs384,
        Signing::Hs512,
        Signing::Rs256,
        Signing::Rs384,
        Signing::Rs512,
        Signing::Ps256,
        Signing::Ps384,
        Signing::Ps512,
        Signing::Es256,
        Signing::Es384,
        Signing::EdDsa,
    ];

    /// Its name in tokens and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Signing::Hs256 => "HS256",
            Signing::Hs384 => "HS384",
            Signing::Hs512 => "HS512",
            Signing::Rs256 => "RS256",
            Signing::Rs384 => "RS384",
            Signing::Rs512 => "RS512",
            Signing::Ps256 => "PS256",
            Signing::Ps384 => "PS384",
            Signing::Ps512 => "PS512",
            Signing::Es256 => "ES256",
            Signing::Es384 => "ES384",
            Signing::EdDsa => "EdDSA",
        }
    }

    /// Reads the name, exactly as the standard writes it.
    pub fn parse(name: &str) -> Option<Signing> {
        Signing::ALL.into_iter().find(|signing| signing.name() == name)
    }

    /// Whether it needs a shared secret rather than a public key.
    pub const fn is_secret(self) -> bool {
        matches!(self.family(), Family::Hmac { .. })
    }

    const fn family(self) -> Family {
        match self {
            Signing::Hs256 => Family::Hmac { bytes_min: 32 },
            Signing::Hs384 => Family::Hmac { bytes_min: 48 },
            Signing::Hs512 => Family::Hmac { bytes_min: 64 },
            Signing::Rs256
            | Signing::Rs384
            | Signing::Rs512
            | Signing::Ps256
            | Signing::Ps384
            | Signing::Ps512 => Family::Rsa,
            Signing::Es256 => Family::Ec { curve: "P-256", bytes: 32 },
            Signing::Es384 => Family::Ec { curve: "P-384", bytes: 48 },
            Signing::EdDsa => Family::Ed25519,
        }
    }

    fn hmac(self) -> Option<hmac::Algorithm> {
        match self {
            Signing::Hs256 => Some(hmac::HMAC_SHA256),
            Signing::Hs384 => Some(hmac::HMAC_SHA384),
            Signing::Hs512 => Some(hmac::HMAC_SHA512),
            _ => None,
        }
    }

    fn rsa(self) -> Option<&'static signature::RsaParameters> {
        match self {
            Signing::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
            Signing::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
            Signing::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
            Signing::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
            Signing::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
            Signing::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
            _ => None,
        }
    }

    fn point(self) -> Option<&'static dyn signature::VerificationAlgorithm> {
        match self {
            Signing::Es256 => Some(&signature::ECDSA_P256_SHA256_FIXED),
            Signing::Es384 => Some(&signature::ECDSA_P384_SHA384_FIXED),
            Signing::EdDsa => Some(&signature::ED25519),
            _ => None,
        }
    }

    fn other_kind(self) -> KeyError {
        let needed = match self.family() {
            Family::Hmac { .. } => "a shared secret",
            Family::Rsa => "an RSA public key",
            Family::Ec { curve: "P-256", .. } => "an EC public key on P-256",
            Family::Ec { .. } => "an EC public key on P-384",
            Family::Ed25519 => "an Ed25519 public key",
        };
        KeyError::OtherKind { signing: self.name(), needed }
    }
}

impl Key {
    pub(super) fn from_secret(signing: Signing, secret: &[u8]) -> Result<Key, KeyError> {
        let (Family::Hmac { bytes_min }, Some(algorithm)) = (signing.family(), signing.hmac()) else {
            return Err(signing.other_kind());
        };
        // A public key is known to everybody: taken for a secret it would let anybody sign.
        if secret.trim_ascii_start().starts_with(b"-----BEGIN") {
            return Err(signing.other_kind());
        }
        if secret.len() < bytes_min {
            let (needed, bytes) = (bytes_min, secret.len());
            return Err(KeyError::ShortSecret { signing: signing.name(), needed, bytes });
        }
        Ok(Key { id: None, material: Material::Secret(hmac::Key::new(algorithm, secret)) })
    }

    pub(super) fn from_pem(signing: Signing, pem: &[u8]) -> Result<Key, KeyError> {
        let expected = match signing.family() {
            Family::Hmac { .. } => return Err(signing.other_kind()),
            Family::Rsa => alg_id::RSA_ENCRYPTION,
            Family::Ec { curve: "P-256", .. } => alg_id::ECDSA_P256,
            Family::Ec { .. } => alg_id::ECDSA_P384,
            Family::Ed25519 => alg_id::ED25519,
        };
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).map_err(|_| KeyError::NoPem)?;
        let (algorithm, bits) = public_key(&der).ok_or(KeyError::NoPem)?;
        if algorithm != expected.as_ref() {
            return Err(signing.other_kind());
        }
        let material = match signing.family() {
            Family::Rsa => {
                let (modulus, exponent) = rsa_numbers(bits).ok_or(KeyError::NoPem)?;
                rsa(modulus, exponent)?
            }
            Family::Ec { bytes, .. } => point(bits, 1 + 2 * bytes).ok_or(KeyError::NoPem)?,
            _ => point(bits, 32).ok_or(KeyError::NoPem)?,
        };
        Ok(Key { id: None, material })
    }

    /// Whether this key signed the message.
    pub(super) fn signed(&self, signing: Signing, message: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.material {
            Material::Secret(key) => hmac::verify(key, message, signature).ok(),
            Material::Rsa { modulus, exponent } => signing.rsa().and_then(|parameters| {
                let key = signature::RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(parameters, message, signature).ok()
            }),
            Material::Point(point) => signing.point().and_then(|algorithm| {
                signature::UnparsedPublicKey::new(algorithm, point).verify(message, signature).ok()
            }),
        };
        verified.is_some()
    }
}

/// The keys of a set that are for this algorithm.
pub(super) fn from_jwks(signing: Signing, json: &[u8]) -> Result<Vec<Key>, KeyError> {
    let set: Value = serde_json::from_slice(json).map_err(|_| KeyError::NoKeySet)?;
    let set = set.get("keys").and_then(Value::as_array).ok_or(KeyError::NoKeySet)?;
    let mut keys: Vec<Key> = Vec::new();
    for (at, jwk) in set.iter().enumerate() {
        let jwk = jwk.as_object().ok_or(KeyError::NoKeySet)?;
        if !is_meant(signing, jwk) {
            continue;
        }
        let key = from_jwk(signing, at, jwk)?;
        let is_taken = keys.iter().any(|other| other.id == key.id || other.id.is_none());
        if is_taken || !keys.is_empty() && key.id.is_none() {
            return Err(KeyError::SameName { at });
        }
        keys.push(key);
    }
    if keys.is_empty() { Err(KeyError::NoneFits { signing: signing.name() }) } else { Ok(keys) }
}

/// Whether a key is of the kind the algorithm needs, and for verifying with it.
fn is_meant(signing: Signing, jwk: &Map<String, Value>) -> bool {
    let member = |name: &str| jwk.get(name).and_then(Value::as_str);
    let (kind, curve) = match signing.family() {
        Family::Hmac { .. } => ("oct", None),
        Family::Rsa => ("RSA", None),
        Family::Ec { curve, .. } => ("EC", Some(curve)),
        Family::Ed25519 => ("OKP", Some("Ed25519")),
    };
    let operations = jwk.get("key_ops").and_then(Value::as_array);
    member("kty") == Some(kind)
        && curve.is_none_or(|curve| member("crv") == Some(curve))
        && member("use").is_none_or(|purpose| purpose == "sig")
        && member("alg").is_none_or(|algorithm| algorithm == signing.name())
        && operations.is_none_or(|list| list.iter().any(|operation| operation == "verify"))
}

fn from_jwk(signing: Signing, at: usize, jwk: &Map<String, Value>) -> Result<Key, KeyError> {
    let bytes = |field: &'static str| {
        let text = jwk.get(field).and_then(Value::as_str);
        let bytes = text.and_then(|text| BASE64_URL_SAFE_NO_PAD.decode(text).ok());
        bytes.ok_or(KeyError::BadKey { at, field })
    };
    let material = match signing.family() {
        Family::Hmac { .. } => Key::from_secret(signing, &bytes("k")?)?.material,
        Family::Rsa => rsa(&bytes("n")?, &bytes("e")?)?,
        Family::Ec { bytes: width, .. } => {
            let (x, y) = (bytes("x")?, bytes("y")?);
            if x.len() != width {
                return Err(KeyError::BadKey { at, field: "x" });
            }
            point(&[&[4], &*x, &*y].concat(), 1 + 2 * width).ok_or(KeyError::BadKey { at, field: "y" })?
        }
        Family::Ed25519 => point(&bytes("x")?, 32).ok_or(KeyError::BadKey { at, field: "x" })?,
    };
    let id = match jwk.get("kid") {
        None => None,
        Some(id) => Some(id.as_str().ok_or(KeyError::BadKey { at, field: "kid" })?.to_owned()),
    };
    Ok(Key { id, material })
}

fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<Material, KeyError> {
    let number = |bytes: &[u8]| bytes.iter().copied().skip_while(|&byte| byte == 0).collect::<Vec<_>>();
    let (modulus, exponent) = (number(modulus), number(exponent));
    let bits = modulus.first().map_or(0, |first| modulus.len() * 8 - first.leading_zeros() as usize);
    if (2048..=8192).contains(&bits) {
        Ok(Material::Rsa { modulus, exponent })
    } else {
        Err(KeyError::BadSize { bits })
    }
}

fn point(bytes: &[u8], length: usize) -> Option<Material> {
    (bytes.len() == length).then(|| Material::Point(bytes.to_vec()))
}

/// SubjectPublicKeyInfo (RFC 5280, 4.1): the algorithm, and the bits of the key.
fn public_key(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (outer, after) = element(0x30, der)?;
    let (algorithm, rest) = element(0x30, outer)?;
    let (bits, end) = element(0x03, rest)?;
    let (unused, bits) = bits.split_first()?;
    (after.is_empty() && end.is_empty() && *unused == 0).then_some((algorithm, bits))
}

/// RSAPublicKey (RFC 8017, A.1.1): modulus and exponent.
fn rsa_numbers(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (outer, after) = element(0x30, der)?;
    let (modulus, rest) = element(0x02, outer)?;
    let (exponent, end) = element(0x02, rest)?;
    (after.is_empty() && end.is_empty()).then_some((modulus, exponent))
}

/// One element of DER with that tag: its content, and what comes after it.
fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => rest.split_first().map(|(&length, rest)| (usize::from(length), rest))?,
        0x82 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        // No key is longer than that.
        _ => return None,
    };
    if found == tag { rest.split_at_checked(length) } else { None }
}
