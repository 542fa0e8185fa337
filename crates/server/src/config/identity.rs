//! The `identity` and `answer` sections: how callers are told apart, and how they are answered over HTTP.

use std::path::Path;
use std::time::Duration;

use tollgate::answer::{Fields, Older, Style};
use tollgate::core::address::{Cidr, Grouping};
use tollgate::identity::jwt::{KeyError, Signing, Verifier};
use tollgate::identity::{Forwarding, Identity, IdentityBuilder, TokenSource};

use super::section::{At, Section, clip};
use crate::facing::Facing;
use crate::file;
use crate::rls::Settings;

/// Whose forwarding header is believed unless the file says otherwise: whoever is on this machine.
const TRUSTED: [&str; 3] = ["127.0.0.0/8", "::1", "unix"];

/// What `forwarding` may be: headers as people spell them.
pub(super) const FORWARDING: [&str; 5] =
    ["x-forwarded-for", "X-Forwarded-For", "forwarded", "Forwarded", "none"];

/// The largest file of keys.
const KEYS_BYTES_MAX: u64 = 1 << 20;

/// Reads both sections.
pub(super) fn check(root: &mut Section<'_>) -> (Facing, Grouping) {
    let (identity, grouping) = identity(root.section("identity"));
    (Facing { identity, style: style(root.section("answer")), rls: Settings::default() }, grouping)
}

fn identity(mut section: Section<'_>) -> (Identity, Grouping) {
    let mut builder = Identity::builder();
    match section.texts("trusted_proxies") {
        None => {
            let usual = TRUSTED.iter().filter_map(|text| Cidr::parse(text).ok());
            builder = usual.fold(builder, IdentityBuilder::trust).trust_unix();
        }
        Some(texts) => {
            for text in texts {
                if text.value == "unix" {
                    builder = builder.trust_unix();
                } else if let Some(range) =
                    section.problems().keep(text.place, &text.path, Cidr::parse(&text.value))
                {
                    builder = builder.trust(range);
                }
            }
        }
    }
    let forwarding = |name: &str| FORWARDING.contains(&name).then(|| Forwarding::parse(name)).flatten();
    if let Some(forwarding) = section.word("forwarding", "x-forwarded-for, forwarded or none", forwarding) {
        builder = builder.forwarding(forwarding.value);
    }
    if let Some(texts) = section.texts("tokens") {
        let sources = texts.iter().filter_map(|text| source(text, &mut section)).collect();
        builder = builder.tokens(sources);
    }
    let usual = Grouping::default();
    let prefix = |at: Option<At<u64>>, otherwise: u8| {
        at.and_then(|at| u8::try_from(at.value).ok()).unwrap_or(otherwise)
    };
    let grouping = Grouping {
        v4: prefix(section.whole("ipv4_prefix", 8..=32), usual.v4),
        v6: prefix(section.whole("ipv6_prefix", 16..=128), usual.v6),
    };
    builder = jwt(section.section("jwt"), builder);
    section.close();
    (builder.build(), grouping)
}

/// `bearer`, or a header.
fn source(text: &At<String>, section: &mut Section<'_>) -> Option<TokenSource> {
    let source = TokenSource::parse(text.value.strip_prefix("header.").unwrap_or(&text.value));
    if source.is_none() {
        let what = format!("\"{}\" is no place for a token: use bearer, or header.NAME", clip(&text.value));
        section.problems().add(text.place, &text.path, what);
    }
    source
}

fn jwt(mut section: Section<'_>, mut builder: IdentityBuilder) -> IdentityBuilder {
    const ALGORITHMS: &str =
        "HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA";
    let signing = section.word("algorithm", ALGORITHMS, Signing::parse);
    let files = ["public_key_file", "jwks_file", "secret_file"];
    let given: Vec<(&str, At<String>)> =
        files.into_iter().filter_map(|name| section.text(name).map(|at| (name, at))).collect();
    let issuer = section.text("issuer");
    let audience = section.text("audience");
    let leeway = section.span("leeway", Duration::ZERO..=Duration::from_mins(10));
    if let Some(from) = section.text("from")
        && let Some(source) = source(&from, &mut section)
    {
        builder = builder.jwt_from(source);
    }
    if !section.is_absent() {
        if signing.is_none() && !section.was_there("algorithm") {
            section.missing("algorithm", "is missing: pin the one your issuer signs with, such as RS256");
        }
        if given.len() != 1 && !files.iter().any(|name| section.was_there(name) && given.is_empty()) {
            let what =
                "give one of public_key_file (PEM), jwks_file and secret_file: what tokens are verified with";
            let (place, path) = (section.place(), section.path());
            section.problems().add(place, &path, what);
        }
    }
    if let (Some(signing), [(kind, file)]) = (signing, given.as_slice()) {
        let verifier = verifier(signing.value, kind, &file.value);
        if let Some(mut verifier) = section.problems().keep(file.place, &file.path, verifier) {
            if let Some(issuer) = issuer {
                verifier = verifier.issuer(&issuer.value);
            }
            if let Some(audience) = audience {
                verifier = verifier.audience(&audience.value);
            }
            if let Some(leeway) = leeway {
                verifier = verifier.leeway(leeway.value);
            }
            builder = builder.jwt(verifier);
        }
    }
    section.close();
    builder
}

fn verifier(signing: Signing, kind: &str, path: &str) -> Result<Verifier, String> {
    let bytes = file::read(Path::new(path), KEYS_BYTES_MAX)
        .map_err(|error| format!("cannot read {}: {error}", clip(path)))?;
    let read: fn(Signing, &[u8]) -> Result<Verifier, KeyError> = match kind {
        "public_key_file" => Verifier::from_pem,
        "jwks_file" => Verifier::from_jwks,
        _ => Verifier::from_secret,
    };
    // An editor leaves a line end behind the secret that nobody means.
    let bytes = if kind == "secret_file" { bytes.trim_ascii_end() } else { &bytes };
    read(signing, bytes).map_err(|error| format!("{}: {error}", clip(path)))
}

fn style(mut section: Section<'_>) -> Style {
    let mut style = Style::default();
    if let Some(ietf) = section.truth("ratelimit") {
        style = style.fields(if ietf.value { Fields::Ietf } else { Fields::None });
    }
    let older = |name: &str| match name {
        "none" => Some(Older::None),
        "seconds" => Some(Older::Seconds),
        "unix_time" => Some(Older::UnixTime),
        _ => None,
    };
    if let Some(older) = section.word("x_ratelimit", "none, seconds or unix_time", older) {
        style = style.older(older.value);
    }
    if let Some(jitter) = section.span("retry_jitter", Duration::ZERO..=Duration::from_hours(1)) {
        style = style.jitter(jitter.value);
    }
    section.close();
    style
}
