//! Refusals: 429 with a problem document, or `RESOURCE_EXHAUSTED` for those who speak gRPC.
//!
//! Neither says whose limit it was: a key may be a secret, and the caller knows who it is.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use tollgate_core::ask::AskProblem;
use tollgate_core::decision::Outcome;
use tollgate_core::policy::Rule;
use tollgate_core::units::Micros;
use tollgate_core::verdict::{Answer, Source, Verdict};

use super::Style;
use super::write::{number, quoted, written};

/// The type of a problem document (RFC 9457).
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// How long a client that retries by itself must wait; -1 asks it not to (gRPC proposal A6).
pub(crate) const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const PERMISSION_DENIED: HeaderValue = HeaderValue::from_static("7");
const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");
const INTERNAL: HeaderValue = HeaderValue::from_static("13");

/// Whether a request speaks gRPC, so that a refusal must too.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    grpc_type(headers).is_some()
}

/// The type to answer with: the plain one, or the one browsers need.
pub(crate) fn grpc_type(headers: &HeaderMap) -> Option<HeaderValue> {
    let sent = headers.get(CONTENT_TYPE)?.as_bytes();
    let is_kind = |kind: &str| {
        let (head, rest) = sent.split_at_checked(kind.len()).unwrap_or_default();
        head.eq_ignore_ascii_case(kind.as_bytes()) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
    };
    let kinds = ["application/grpc", "application/grpc-web", "application/grpc-web-text"];
    kinds.into_iter().find(|kind| is_kind(kind)).map(HeaderValue::from_static)
}

impl Style {
    /// The answer to a call that may not pass, in the words of its own protocol.
    pub fn refuse(&self, verdict: &Verdict, request: &HeaderMap) -> Response<Bytes> {
        match grpc_type(request) {
            Some(kind) => self.refuse_grpc(verdict, kind),
            None => self.refuse_http(verdict),
        }
    }

    /// 429 with a problem document; 403 for those on a deny list, whom no waiting helps; 500 for an ask that
    /// makes no sense, which is a mistake on this side.
    pub fn refuse_http(&self, verdict: &Verdict) -> Response<Bytes> {
        let wait = self.wait(verdict);
        let (status, body) = match &verdict.answer {
            Answer::Invalid(problem) => (StatusCode::INTERNAL_SERVER_ERROR, invalid(problem)),
            _ if verdict.source == Source::DenyList => (StatusCode::FORBIDDEN, refused(verdict, wait)),
            Answer::Allowed | Answer::Refused => (StatusCode::TOO_MANY_REQUESTS, refused(verdict, wait)),
        };
        let mut answer = http(status, body, wait);
        self.write(verdict, answer.headers_mut());
        answer
    }

    /// 200 and no body: in gRPC the status is a header, and it is 8; 7 for those on a deny list.
    fn refuse_grpc(&self, verdict: &Verdict, kind: HeaderValue) -> Response<Bytes> {
        if let Answer::Invalid(_) = verdict.answer {
            return grpc(kind, INTERNAL, Bytes::from_static(b"the limits could not be asked"));
        }
        let wait = self.wait(verdict);
        let is_listed = verdict.source == Source::DenyList;
        let status = if is_listed { PERMISSION_DENIED } else { RESOURCE_EXHAUSTED };
        let mut answer = grpc(kind, status, written(|out| said(out, verdict, wait)));
        push_back(answer.headers_mut(), wait);
        self.write(verdict, answer.headers_mut());
        answer
    }
}

/// A refusal over HTTP, and when to come again.
pub(super) fn http(status: StatusCode, body: Bytes, wait: Option<Micros>) -> Response<Bytes> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
    Style::write_retry_after(answer.headers_mut(), wait);
    answer
}

/// A refusal in gRPC. The message is of names of rules, words and digits: nothing that gRPC would have escaped.
pub(super) fn grpc(kind: HeaderValue, status: HeaderValue, message: Bytes) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::new());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(GRPC_STATUS, status);
    if let Ok(message) = HeaderValue::from_maybe_shared(message) {
        headers.insert(GRPC_MESSAGE, message);
    }
    answer
}

/// When to come again, for clients of gRPC that retry by themselves and for all others.
pub(super) fn push_back(headers: &mut HeaderMap, wait: Option<Micros>) {
    let pushback = wait.map_or(HeaderValue::from_static("-1"), |wait| wait.as_millis_ceil().into());
    headers.insert(GRPC_PUSHBACK, pushback);
    Style::write_retry_after(headers, wait);
}

/// How a problem document begins; its detail comes next.
pub(super) fn begin_problem(out: &mut BytesMut, kind: &str, title: &str, status: u16) {
    out.put_slice(b"{\"type\":\"urn:tollgate:problem:");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"title\":\"");
    out.put_slice(title.as_bytes());
    out.put_slice(b"\",\"status\":");
    number(out, status.into());
    out.put_slice(b",\"detail\":\"");
}

/// The last of a problem document: in how many milliseconds to come again, if ever.
pub(super) fn put_retry_after(out: &mut BytesMut, wait: Option<Micros>) {
    out.put_slice(b",\"retry_after_ms\":");
    match wait {
        Some(wait) => number(out, wait.as_millis_ceil()),
        None => out.put_slice(b"null"),
    }
}

/// The document of a refusal.
fn refused(verdict: &Verdict, wait: Option<Micros>) -> Bytes {
    let (kind, title, status) = match wait {
        _ if verdict.source == Source::DenyList => ("denied", "this call is not wanted", 403),
        Some(_) => ("rate-limited", "too many calls", 429),
        None => ("never", "no waiting helps", 429),
    };
    written(|out| {
        begin_problem(out, kind, title, status);
        said(out, verdict, wait);
        out.put_slice(b"\",\"rule\":");
        match verdict.rule() {
            Some(rule) => quoted(out, rule.name()),
            None => out.put_slice(b"null"),
        }
        if let Some(binding) = verdict.binding().filter(|_| verdict.source != Source::DenyList) {
            out.put_slice(b",\"limit\":");
            number(out, binding.decision.limit.into());
            out.put_slice(b",\"remaining\":");
            number(out, binding.decision.remaining.into());
            out.put_slice(b",\"reset_after_ms\":");
            number(out, binding.decision.reset_after.as_millis_ceil());
        }
        put_retry_after(out, wait);
        out.put_slice(b",\"source\":\"");
        out.put_slice(verdict.source.name().as_bytes());
        if let Source::Fallback(choice) = verdict.source {
            out.put_slice(b"\",\"on_outage\":\"");
            out.put_slice(choice.name().as_bytes());
        }
        out.put_slice(b"\"}\n");
    })
}

/// What happened, for people. Needs no escape anywhere: names of rules have no odd letters.
fn said(out: &mut BytesMut, verdict: &Verdict, wait: Option<Micros>) {
    match verdict.rule().map(Rule::name) {
        Some(rule) => {
            out.put_slice(b"rule ");
            out.put_slice(rule.as_bytes());
            out.put_slice(b" refuses this call: ");
        }
        None => out.put_slice(b"this call is refused: "),
    }
    let is_never = verdict.source != Source::DenyList
        && verdict.binding().is_some_and(|binding| binding.decision.outcome == Outcome::Never);
    match wait {
        Some(wait) => {
            out.put_slice(b"try again in ");
            number(out, wait.as_millis_ceil());
            out.put_slice(b" ms");
        }
        None if is_never => out.put_slice(b"it costs more than the limit ever lets through"),
        None => out.put_slice(b"the policy denies it"),
    }
}

/// The document of an ask that makes no sense.
fn invalid(problem: &AskProblem) -> Bytes {
    let detail = problem.to_string();
    written(|out| {
        out.put_slice(
            b"{\"type\":\"urn:tollgate:problem:bad-ask\",\"title\":\"the limits could not be asked; ",
        );
        out.put_slice(b"nothing was spent\",\"status\":500,\"detail\":");
        quoted(out, &detail);
        out.put_slice(b",\"field\":");
        quoted(out, problem.place().1);
        out.put_slice(b"}\n");
    })
}
