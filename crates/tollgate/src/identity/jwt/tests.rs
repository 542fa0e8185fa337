//! Tokens made by PyJWT (`tests/fixtures/jwt/make.py`), and the ways people forge them.

use std::collections::HashMap;

use super::*;

/// In 2033, between the dates of the tokens.
const NOW: Micros = Micros::from_secs(2_000_000_000);
const START: Micros = Micros::from_secs(1_800_000_000);
const END: Micros = Micros::from_secs(4_000_000_000);

const SECRET: &[u8] = include_bytes!("../../../tests/fixtures/jwt/secret");
const RSA: &[u8] = include_bytes!("../../../tests/fixtures/jwt/rsa.pem");
const RSA_SMALL: &[u8] = include_bytes!("../../../tests/fixtures/jwt/rsa-small.pem");
const P256: &[u8] = include_bytes!("../../../tests/fixtures/jwt/p256.pem");
const P384: &[u8] = include_bytes!("../../../tests/fixtures/jwt/p384.pem");
const ED25519: &[u8] = include_bytes!("../../../tests/fixtures/jwt/ed25519.pem");
const JWKS: &[u8] = include_bytes!("../../../tests/fixtures/jwt/jwks.json");

fn token(name: &str) -> String {
    let tokens: HashMap<String, String> =
        serde_json::from_str(include_str!("../../../tests/fixtures/jwt/tokens.json")).unwrap();
    tokens[name].clone()
}

fn verifier(signing: Signing) -> Verifier {
    match signing {
        Signing::Hs256 | Signing::Hs384 | Signing::Hs512 => Verifier::from_secret(signing, SECRET),
        Signing::Es256 => Verifier::from_pem(signing, P256),
        Signing::Es384 => Verifier::from_pem(signing, P384),
        Signing::EdDsa => Verifier::from_pem(signing, ED25519),
        _ => Verifier::from_pem(signing, RSA),
    }
    .unwrap()
}

fn error(verifier: &Verifier, name: &str) -> Option<TokenError> {
    verifier.verify(&token(name), NOW).err()
}

#[test]
fn every_algorithm_verifies_what_another_implementation_signed() {
    for signing in Signing::ALL {
        let claims = verifier(signing).verify(&token(signing.name()), NOW).unwrap();
        assert_eq!(claims.text("sub").as_deref(), Some("ann"), "{}", signing.name());
        assert_eq!(Signing::parse(signing.name()), Some(signing));
    }
}

#[test]
fn a_token_cannot_choose_its_algorithm() {
    for pinned in Signing::ALL {
        for other in Signing::ALL.into_iter().filter(|other| *other != pinned) {
            let found = error(&verifier(pinned), other.name());
            assert_eq!(found, Some(TokenError::OtherAlgorithm), "{} {}", pinned.name(), other.name());
        }
        for none in ["none", "None", "no alg"] {
            assert_eq!(error(&verifier(pinned), none), Some(TokenError::OtherAlgorithm), "{none}");
        }
    }
}

#[test]
fn the_public_key_is_no_secret() {
    assert_eq!(error(&verifier(Signing::Rs256), "public key as secret"), Some(TokenError::OtherAlgorithm));
    assert!(matches!(Verifier::from_secret(Signing::Hs256, RSA), Err(KeyError::OtherKind { .. })));
    assert!(matches!(Verifier::from_pem(Signing::Hs256, RSA), Err(KeyError::OtherKind { .. })));
    assert!(matches!(Verifier::from_secret(Signing::Rs256, SECRET), Err(KeyError::OtherKind { .. })));
}

#[test]
fn the_kid_picks_the_key() {
    let rs256 = Verifier::from_jwks(Signing::Rs256, JWKS).unwrap();
    assert_eq!(error(&rs256, "kid rsa-1"), None);
    assert_eq!(error(&rs256, "kid rsa-2"), None);
    assert_eq!(error(&rs256, "kid wrong"), Some(TokenError::BadSignature));
    assert_eq!(error(&rs256, "kid unknown"), Some(TokenError::UnknownKey));
    assert_eq!(error(&rs256, "kid of encryption"), Some(TokenError::UnknownKey));
    // Two keys, and the token says nothing.
    assert_eq!(error(&rs256, "RS256"), Some(TokenError::UnknownKey));
    // `rsa-2` says that it is for RS256: for PS256 one key is left, and is meant.
    assert_eq!(error(&Verifier::from_jwks(Signing::Ps256, JWKS).unwrap(), "PS256"), None);
    for (signing, name) in [
        (Signing::Hs256, "kid oct-1"),
        (Signing::Es256, "kid p256-1"),
        (Signing::Es384, "kid p384-1"),
        (Signing::EdDsa, "kid ed-1"),
    ] {
        assert_eq!(error(&Verifier::from_jwks(signing, JWKS).unwrap(), name), None, "{name}");
    }
    // A key file has no names: whatever the token calls it, it must have signed.
    assert_eq!(error(&verifier(Signing::Rs256), "kid unknown"), None);
    assert_eq!(error(&verifier(Signing::Rs256), "kid rsa-2"), Some(TokenError::BadSignature));
}

#[test]
fn a_key_that_a_token_brings_along_is_not_looked_at() {
    assert_eq!(error(&verifier(Signing::Rs256), "own key"), Some(TokenError::BadSignature));
    assert_eq!(error(&verifier(Signing::Rs256), "other key"), Some(TokenError::BadSignature));
}

#[test]
fn every_byte_of_a_token_is_signed() {
    for name in ["HS256", "RS256", "PS256", "ES256", "EdDSA"] {
        let verifier = verifier(Signing::parse(name).unwrap());
        let token = token(name);
        let signature = token.rfind('.').unwrap();
        for length in [signature, signature + 1, signature + 8, token.len() - 4, token.len() - 1] {
            let found = verifier.verify(&token[..length], NOW);
            assert!(found.is_err(), "{name} cut at {length} of {}", token.len());
        }
        for at in (0..token.len()).step_by(7) {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(verifier.verify(&changed, NOW).is_err(), "{name} changed at {at}");
        }
        assert!(verifier.verify(&format!("{token}="), NOW).is_err(), "{name} padded");
        assert!(verifier.verify(&format!("{token}.e30"), NOW).is_err(), "{name} with a fourth part");
    }
}

#[test]
fn garbage_has_no_claims() {
    let hs256 = verifier(Signing::Hs256);
    for (name, expected) in [
        ("crit", TokenError::Critical),
        ("header no JSON", TokenError::Malformed),
        ("header no object", TokenError::Malformed),
        ("kid no text", TokenError::Malformed),
        ("claims no JSON", TokenError::Malformed),
        ("claims no object", TokenError::Malformed),
        ("claims deep", TokenError::Malformed),
        ("exp no number", TokenError::Malformed),
        ("exp null", TokenError::Malformed),
        ("exp huge", TokenError::Malformed),
        ("exp negative", TokenError::Malformed),
        ("huge", TokenError::TooLong),
    ] {
        assert_eq!(error(&hs256, name), Some(expected), "{name}");
    }
    for token in ["", ".", "..", "...", "a.b.c", "e30.e30.e30", "\u{e9}.\u{e9}.\u{e9}"] {
        assert!(hs256.verify(token, NOW).is_err(), "{token}");
    }
}

#[test]
fn of_a_name_that_is_there_twice_the_last_counts() {
    let hs256 = verifier(Signing::Hs256);
    assert_eq!(error(&hs256, "header twice"), Some(TokenError::OtherAlgorithm));
    assert_eq!(error(&hs256, "header twice, last good"), None);
    let claims = hs256.verify(&token("claim twice"), NOW).unwrap();
    assert_eq!(claims.text("plan").as_deref(), Some("free"));
}

#[test]
fn a_token_is_good_between_its_dates() {
    let exact = verifier(Signing::Rs256).leeway(Duration::ZERO);
    let at = |verifier: &Verifier, now| verifier.verify(&token("RS256"), now).err();
    assert_eq!(at(&exact, START - Micros(1)), Some(TokenError::NotYet));
    assert_eq!(at(&exact, START), None);
    assert_eq!(at(&exact, END - Micros(1)), None);
    assert_eq!(at(&exact, END), Some(TokenError::Expired));

    let usual = verifier(Signing::Rs256);
    let leeway = Micros::from(LEEWAY);
    assert_eq!(at(&usual, START - leeway - Micros(1)), Some(TokenError::NotYet));
    assert_eq!(at(&usual, START - leeway), None);
    assert_eq!(at(&usual, END + leeway - Micros(1)), None);
    assert_eq!(at(&usual, END + leeway), Some(TokenError::Expired));

    let at = |now| exact.verify(&token("fractions"), now).err();
    assert_eq!(at(START - Micros::from_millis(501)), Some(TokenError::NotYet));
    assert_eq!(at(START - Micros::from_millis(500)), None);
    assert_eq!(at(END + Micros::from_millis(499)), None);
    assert_eq!(at(END + Micros::from_millis(500)), Some(TokenError::Expired));

    assert_eq!(exact.verify(&token("no dates"), Micros::ZERO).err(), None);
}

#[test]
fn issuer_and_audience_are_compared_where_they_are_set() {
    let issuer = |text: &str| verifier(Signing::Rs256).issuer(text);
    assert_eq!(error(&issuer("https://issuer.example"), "RS256"), None);
    assert_eq!(error(&issuer("https://issuer.example/"), "RS256"), Some(TokenError::OtherIssuer));
    assert_eq!(error(&issuer("https://issuer.example"), "no dates"), Some(TokenError::OtherIssuer));

    let audience = |text: &str| verifier(Signing::Rs256).audience(text);
    assert_eq!(error(&audience("api"), "RS256"), None);
    assert_eq!(error(&audience("api"), "one audience"), None);
    assert_eq!(error(&audience("ap"), "RS256"), Some(TokenError::OtherAudience));
    assert_eq!(error(&audience("ap"), "one audience"), Some(TokenError::OtherAudience));
    assert_eq!(error(&audience("api"), "no dates"), Some(TokenError::OtherAudience));
}

#[test]
fn claims_are_texts() {
    let claims = verifier(Signing::Rs256).verify(&token("RS256"), NOW).unwrap();
    for (name, text) in [
        ("plan", Some("premium")),
        ("org.id", Some("42")),
        ("org.tier.name", Some("gold")),
        ("https://example.com/plan", Some("free")),
        ("admin", Some("true")),
        ("ratio", Some("0.5")),
        ("exp", Some("4000000000")),
        ("org", None),
        ("org.", None),
        (".org", None),
        ("org.id.x", None),
        ("roles", None),
        ("roles.0", None),
        ("nothing", None),
        ("empty", None),
        ("absent", None),
    ] {
        assert_eq!(claims.text(name).as_deref(), text, "{name}");
    }
    assert!(!format!("{claims:?}").contains("premium"));
}

#[test]
fn a_bad_key_is_refused_when_it_is_read() {
    let pem = |signing, pem: &[u8]| Verifier::from_pem(signing, pem).err();
    assert!(matches!(pem(Signing::Rs256, P256), Some(KeyError::OtherKind { .. })));
    assert!(matches!(pem(Signing::Es256, P384), Some(KeyError::OtherKind { .. })));
    assert!(matches!(pem(Signing::Es384, P256), Some(KeyError::OtherKind { .. })));
    assert!(matches!(pem(Signing::EdDsa, RSA), Some(KeyError::OtherKind { .. })));
    assert_eq!(pem(Signing::Rs256, RSA_SMALL), Some(KeyError::BadSize { bits: 1024 }));
    assert_eq!(pem(Signing::Rs256, b""), Some(KeyError::NoPem));
    assert_eq!(pem(Signing::Rs256, SECRET), Some(KeyError::NoPem));

    let short = Verifier::from_secret(Signing::Hs256, &SECRET[..31]).err();
    assert_eq!(short, Some(KeyError::ShortSecret { signing: "HS256", needed: 32, bytes: 31 }));

    let jwks = |signing, json: &str| Verifier::from_jwks(signing, json.as_bytes()).err();
    let bad = |at, field| Some(KeyError::BadKey { at, field });
    assert_eq!(jwks(Signing::Rs256, "{}"), Some(KeyError::NoKeySet));
    assert_eq!(jwks(Signing::Rs256, "{\"keys\":["), Some(KeyError::NoKeySet));
    assert_eq!(jwks(Signing::Rs256, "{\"keys\":[]}"), Some(KeyError::NoneFits { signing: "RS256" }));
    assert_eq!(jwks(Signing::Rs256, r#"{"keys":[{"kty":"oct"},{"kty":"RSA","e":"AQAB"}]}"#), bad(1, "n"));
    let short = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}]}"#;
    assert_eq!(jwks(Signing::Es256, short), bad(0, "x"));
    let twice = r#"{"keys":[
        {"kty":"OKP","crv":"Ed25519","kid":"a","x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
        {"kty":"OKP","crv":"Ed25519","kid":"a","x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}"#;
    assert_eq!(jwks(Signing::EdDsa, twice), Some(KeyError::SameName { at: 1 }));
    assert_eq!(
        jwks(Signing::EdDsa, &twice.replace("\"kid\":\"a\",", "")),
        Some(KeyError::SameName { at: 1 })
    );
}

#[test]
fn claims_are_attributes_of_a_request() {
    use tollgate_core::attributes::{Attribute, Attributes as _};

    use super::super::{Identity, Peer};

    let identity = Identity::builder().jwt(verifier(Signing::Rs256)).build();
    let sub = Attribute::parse("claim.sub").unwrap();
    let claimed = |token: &str| {
        let request = http::Request::builder().header("authorization", format!("Bearer {token}"));
        let request = request.body(()).unwrap();
        identity.of(&request, Peer::Unix).text(&sub).map(Cow::into_owned)
    };
    assert_eq!(claimed(&token("no dates")).as_deref(), Some("ann"));
    assert_eq!(claimed(&token("other key")), None);
    assert_eq!(claimed(&token("none")), None);
    assert_eq!(claimed("opaque"), None);
    assert_eq!(Identity::default().of(&http::Request::new(()), Peer::Unix).text(&sub), None);
}
