//! `/v1/forward-auth`: a proxy asks whether a request may pass, before it passes it on.
//!
//! Traefik's ForwardAuth, Caddy's `forward_auth`, nginx' `auth_request` and HAProxy (by a few lines of Lua)
//! all send the headers of the request they ask about, and name its method, target and host in
//! `X-Forwarded-Method`, `-Uri` and `-Host`. The answer is a status: 200, or 429 with what is to be told to
//! the client. nginx knows only 401 and 403, so `?refusal=403` asks for that.

use std::sync::Arc;

use http_body_util::Full;
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use tollgate::core::attributes::Attributes as _;
use tollgate::identity::{Original, OriginalNames, Peer as Caller};
use tollgate::{Answer as Verdicted, Ask, By, Cost, Source, Want};

use super::HttpDoor;
use crate::facing::Facing;
use crate::net::Answer;
use crate::net::peer::Peer;
use crate::net::problem::Problem;

/// The statuses a refusal can be asked to have.
const REFUSALS: [StatusCode; 3] =
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];

/// Answers one question of a proxy. Every rule that applies to the request is charged, or none.
pub(super) async fn answer(door: &HttpDoor, head: &Parts, peer: &Peer) -> Result<Answer, Problem> {
    let refusal = refusal(head.uri.query())?;
    let original = Original::read(&OriginalNames::forwarded(), &head.headers);
    for (header, is_there) in
        [("X-Forwarded-Uri", original.uri.is_some()), ("X-Forwarded-Method", original.method.is_some())]
    {
        // Without it no rule with a path would apply, and nobody would notice.
        if !is_there {
            let detail =
                "is missing: the proxy must say which request it asks about (see docs/forward-auth.md)";
            return Err(Problem::field(header, detail));
        }
    }
    let policy = door.engine.policy();
    let facing = Facing::of(&policy).ok_or_else(Problem::unfinished)?;
    let caller = peer.address.map_or(Caller::Unix, Caller::Address);
    let attributes = facing.identity.of_original(original, &head.headers, caller);
    if attributes.address().is_none() {
        // Over a unix socket nobody has an address, and a rule that counts by it would count nobody.
        let detail = "is missing: over a unix socket the proxy must say who is calling";
        return Err(Problem::field("X-Forwarded-For", detail));
    }
    let want = Want { by: By::Attributes(&attributes), key: b"", cost: Cost::ONE, takes: &[] };
    let verdict = door.engine.decide_under(Arc::clone(&policy), &Ask { wants: &[want] }).await;
    if verdict.answer == Verdicted::Allowed {
        let mut answer = Response::new(Full::default());
        facing.style.write(&verdict, answer.headers_mut());
        answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        return Ok(answer);
    }
    let mut answer = facing.style.refuse_http(&verdict).map(Full::new);
    // Whoever is on a deny list stays forbidden: no limit refused them.
    if verdict.answer == Verdicted::Refused
        && verdict.source != Source::DenyList
        && let Some(refusal) = refusal
    {
        *answer.status_mut() = refusal;
    }
    Ok(answer)
}

/// The status that was asked for, if one was.
fn refusal(query: Option<&str>) -> Result<Option<StatusCode>, Problem> {
    let mut refusal = None;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name != "refusal" {
            return Err(Problem::field(
                name.chars().take(64).collect::<String>(),
                "unknown parameter: use refusal, and let the proxy keep its client's query to itself",
            ));
        }
        refusal = REFUSALS.into_iter().find(|status| status.as_str() == value);
        if refusal.is_none() {
            return Err(Problem::field("refusal", "must be 401, 403 or 429"));
        }
    }
    Ok(refusal)
}
