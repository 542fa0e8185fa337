//! `/v1/breakers`: leave to make a call, how it ended, and how breakers stand.

use std::borrow::Cow;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::{Value as Json, json};

use super::raw::{RawAttributes, Value};
use super::{HttpDoor, as_json, check_kind, check_origin};
use crate::breakers::{
    Acquired, BreakerError, Granted, LIST, Override, Report, Reported, Seen, list_limit, report_within_ms,
    retry_after_ms,
};
use crate::net::peer::Peer;
use crate::net::problem::Problem;
use crate::net::{Answer, body, percent};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path<'a> {
    Acquire,
    Report,
    List,
    /// One breaker, as its id stands in the path.
    State(&'a str),
    Override(&'a str),
}

impl<'a> Path<'a> {
    /// What follows `/v1/breakers`.
    pub(super) fn read(rest: &'a str) -> Option<Path<'a>> {
        match rest {
            "" => return Some(Path::List),
            "/acquire" => return Some(Path::Acquire),
            "/report" => return Some(Path::Report),
            _ => {}
        }
        let rest = rest.strip_prefix('/')?;
        match rest.split_once('/') {
            None => Some(Path::State(rest)),
            Some((id, "override")) => Some(Path::Override(id)),
            Some(_) => None,
        }
    }

    const fn methods(self) -> &'static str {
        match self {
            Path::Acquire | Path::Report => "POST",
            Path::List | Path::State(_) => "GET, HEAD",
            Path::Override(_) => "PUT, DELETE",
        }
    }
}

/// Answers one of them.
///
/// hot path: acquire and report; no round trip while Closed or Open.
pub(super) async fn answer(
    door: &HttpDoor,
    request: Request<Incoming>,
    peer: &Peer,
) -> Result<Answer, Problem> {
    let (head, body) = request.into_parts();
    let rest = head.uri.path().strip_prefix("/v1/breakers").unwrap_or_default();
    let path = Path::read(rest).ok_or_else(|| Problem::not_found(super::ROUTES))?;
    if !path.methods().split(", ").any(|method| method == head.method.as_str()) {
        return Err(Problem::method(path.methods()));
    }
    let whole = async |body: Incoming| -> Result<Bytes, Problem> {
        check_origin(&head.headers)?;
        check_kind(&head.headers)?;
        body::read(body, door.patience).await.map_err(|error| error.problem())
    };
    let answered = match path {
        Path::Acquire => acquire(door, &whole(body).await?).await?,
        Path::Report => report(door, &whole(body).await?).await?,
        Path::List => list(door, head.uri.query())?,
        Path::State(id) => seen(&door.breakers.state(&named(id)?).await.map_err(problem)?),
        Path::Override(id) => {
            let id = named(id)?;
            if head.method == Method::DELETE {
                check_origin(&head.headers)?;
                door.pass("an override", &head.headers, peer)?;
                lift(door, &id).await?
            } else {
                let body = whole(body).await?;
                let decided = decided(&body)?;
                door.pass("an override", &head.headers, peer)?;
                overrule(door, &id, decided).await?
            }
        }
    };
    Ok(as_json(Bytes::from(answered.to_string())))
}

async fn acquire(door: &HttpDoor, body: &[u8]) -> Result<Json, Problem> {
    let mut fields = Fields::read(body, &["id"])?;
    let id = fields.needed("id", "say which breaker")?;
    Ok(match door.breakers.acquire(&id).await.map_err(problem)? {
        Acquired::Granted(Granted { token, is_probe, report_within, state }) => json!({
            "allowed": true,
            "state": state.name(),
            "token": token.to_string(),
            "probe": is_probe,
            "report_within_ms": report_within_ms(report_within),
        }),
        Acquired::Refused { retry_after, state } => json!({
            "allowed": false,
            "state": state.name(),
            "retry_after_ms": retry_after_ms(retry_after),
        }),
    })
}

async fn report(door: &HttpDoor, body: &[u8]) -> Result<Json, Problem> {
    let mut fields = Fields::read(body, &["id", "token", "outcome", "elapsed_ms", "retry_after_ms"])?;
    let id = fields.needed("id", "say which breaker")?;
    let token = fields.text("token")?;
    let outcome = fields.needed("outcome", "say success, failure, slow or ignore")?;
    let (elapsed, retry_after) = (fields.whole("elapsed_ms"), fields.whole("retry_after_ms"));
    let report = Report::read(&id, token.as_deref(), &outcome, elapsed, retry_after).map_err(problem)?;
    Ok(match door.breakers.report(report).await.map_err(problem)? {
        Reported::Counted => json!({ "counted": true }),
        Reported::Late(why) => json!({ "counted": false, "why": why.name() }),
    })
}

fn list(door: &HttpDoor, query: Option<&str>) -> Result<Json, Problem> {
    let (mut after, mut limit) = (None, LIST);
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "after" => after = Some(unescaped("after", percent::of_query(value))?),
            "limit" => {
                limit = list_limit(value.parse().unwrap_or(u64::MAX)).map_err(problem)?;
            }
            _ => {
                let name: String = name.chars().take(64).collect();
                return Err(Problem::unchanged(name, "unknown parameter: use after and limit"));
            }
        }
    }
    let listed = door.breakers.list(after.as_deref(), limit);
    let breakers: Vec<Json> = listed.breakers.iter().map(seen).collect();
    Ok(json!({ "breakers": breakers, "more": listed.has_more }))
}

async fn overrule(door: &HttpDoor, id: &str, decided: Override) -> Result<Json, Problem> {
    let mode = decided.mode;
    let overruled = door.breakers.overrule(id, decided).await.map_err(problem)?;
    tracing::info!(breaker = overruled.name, mode = mode.name(), "http: a breaker was overridden");
    Ok(seen(&overruled))
}

async fn lift(door: &HttpDoor, id: &str) -> Result<Json, Problem> {
    let lifted = door.breakers.lift(id).await.map_err(problem)?;
    tracing::info!(breaker = lifted.name, "http: an override of a breaker was lifted");
    Ok(seen(&lifted))
}

fn decided(body: &[u8]) -> Result<Override, Problem> {
    let mut fields = Fields::read(body, &["mode", "ttl_ms", "reason", "who"])?;
    let mode = fields.needed("mode", "say forced_open, forced_closed or metrics_only")?;
    let ttl = fields.whole("ttl_ms");
    let ttl = ttl.ok_or_else(|| Problem::unchanged("ttl_ms", "is missing: say how long it stays"))?;
    let (reason, who) = (fields.text("reason")?, fields.text("who")?);
    Override::read(&mode, ttl, &reason.unwrap_or_default(), &who.unwrap_or_default()).map_err(problem)
}

/// How one stands.
fn seen(one: &Seen) -> Json {
    let Seen { id, name, status } = one;
    let overridden = status
        .overridden
        .map(|(mode, left)| json!({ "mode": mode.name(), "left_ms": left.as_millis_ceil() }));
    json!({
        "id": id,
        "breaker": name,
        "state": status.stance.state().name(),
        "ramping": one.is_ramping(),
        "retry_after_ms": one.retry_after_ms(),
        "override": overridden,
        "shared": status.is_shared,
    })
}

/// The id that stands in a path.
fn named(segment: &str) -> Result<String, Problem> {
    unescaped("id", percent::of_path(segment))
}

fn unescaped(field: &'static str, bytes: Option<Vec<u8>>) -> Result<String, Problem> {
    let bytes = bytes.ok_or_else(|| Problem::unchanged(field, "has a % without two hex digits"))?;
    String::from_utf8(bytes).map_err(|_| Problem::unchanged(field, "is not UTF-8"))
}

fn problem(error: BreakerError) -> Problem {
    match error {
        BreakerError::Field { field, what } => Problem::unchanged(field, what),
        BreakerError::TooMany(why) => {
            let title = "there is no room for another breaker; nothing was changed";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "full", title, why.to_string())
        }
        BreakerError::Store(error) => {
            let title = "the store does not answer; the change may or may not have been made";
            let detail = format!("{error}; to ask for it again does no harm");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store-away", title, detail)
        }
    }
}

/// The fields of a body that have not been read yet.
struct Fields<'a>(Vec<(Cow<'a, str>, Value<'a>)>);

impl<'a> Fields<'a> {
    fn read(body: &'a [u8], known: &[&str]) -> Result<Fields<'a>, Problem> {
        let bad = |kind, title, detail: String| Problem::new(StatusCode::BAD_REQUEST, kind, title, detail);
        let fields = serde_json::from_slice(body).map_err(|error| {
            bad("not-json", "the body is not JSON; nothing was changed", error.to_string())
        })?;
        let fields = match fields {
            RawAttributes::Map(fields) => fields,
            RawAttributes::Absent | RawAttributes::TooMany(_) | RawAttributes::Other(_) => {
                let title = "the body is not an object; nothing was changed";
                return Err(bad(
                    "bad-body",
                    title,
                    format!("the body must be an object with {}", known.join(", ")),
                ));
            }
        };
        for (at, (name, _)) in fields.iter().enumerate() {
            let shown = || name.chars().take(64).collect::<String>();
            if !known.contains(&&**name) {
                return Err(Problem::unchanged(shown(), format!("unknown field: use {}", known.join(", "))));
            }
            if fields.iter().skip(at + 1).any(|(other, _)| other == name) {
                return Err(Problem::unchanged(shown(), "is written twice: say it once"));
            }
        }
        Ok(Fields(fields))
    }

    fn take(&mut self, name: &str) -> Value<'a> {
        let at = self.0.iter().position(|(field, _)| field == name);
        at.map_or(Value::Absent, |at| self.0.swap_remove(at).1)
    }

    fn text(&mut self, name: &'static str) -> Result<Option<Cow<'a, str>>, Problem> {
        match self.take(name) {
            Value::Absent => Ok(None),
            Value::Text(text) if text.chars().any(char::is_control) => {
                Err(Problem::unchanged(name, "has control characters in it"))
            }
            Value::Text(text) => Ok(Some(text)),
            Value::Whole(_) => Err(Problem::unchanged(name, "must be text; found a number")),
            Value::Other(found) => Err(Problem::unchanged(name, format!("must be text; found {found}"))),
        }
    }

    fn needed(&mut self, name: &'static str, hint: &str) -> Result<Cow<'a, str>, Problem> {
        match self.text(name)? {
            None => Err(Problem::unchanged(name, format!("is missing: {hint}"))),
            Some(text) if text.is_empty() => Err(Problem::unchanged(name, format!("is empty: {hint}"))),
            Some(text) => Ok(text),
        }
    }

    /// A whole number; what is none lies beyond every bound.
    fn whole(&mut self, name: &str) -> Option<u64> {
        match self.take(name) {
            Value::Absent => None,
            Value::Whole(number) => Some(number),
            Value::Text(_) | Value::Other(_) => Some(u64::MAX),
        }
    }
}
