//! How a call over HTTP or gRPC ended, by its status.

use std::time::Duration;

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, Response, StatusCode};
use jiff::fmt::rfc2822::DateTimeParser;

use super::ending::{Classify, Ending};
use crate::answer::{GRPC_PUSHBACK, GRPC_STATUS, grpc_type};

/// gRPC's codes are 0 to 16.
const CODES: usize = 17;
const OK: usize = 0;
const CANCELLED: usize = 1;
const UNKNOWN: usize = 2;
const DEADLINE_EXCEEDED: usize = 4;
const RESOURCE_EXHAUSTED: usize = 8;
const INTERNAL: usize = 13;
const UNAVAILABLE: usize = 14;
const DATA_LOSS: usize = 15;

/// What a status counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// The other side is well, whatever it thinks of the request.
    Success,
    /// It is not.
    Failure,
    /// That cannot be told from it.
    Ignored,
}

/// Errors fail. Of answers over HTTP, 5xx and 429; over gRPC, `UNKNOWN`, `DEADLINE_EXCEEDED`,
/// `RESOURCE_EXHAUSTED`, `INTERNAL`, `UNAVAILABLE` and `DATA_LOSS`, while `CANCELLED` says nothing.
///
/// A 429 or a 503 with `Retry-After`, and a failed gRPC call with `grpc-retry-pushback-ms`, say when to come
/// again; a breaker with a `hint_max` obeys.
///
/// gRPC is known by the content type of the answer. Its status stands in the headers where there is no body, else
/// in the trailers, which are read only by a layer that [waits](super::BreakerLayer::until_end) for them.
#[derive(Debug, Clone)]
pub struct ByStatus {
    /// The few that are not as usual.
    statuses: Vec<(StatusCode, Counted)>,
    codes: [Counted; CODES],
}

impl Default for ByStatus {
    fn default() -> ByStatus {
        let mut codes = [Counted::Success; CODES];
        for code in [UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE, DATA_LOSS] {
            codes[code] = Counted::Failure;
        }
        codes[CANCELLED] = Counted::Ignored;
        ByStatus { statuses: Vec::new(), codes }
    }
}

impl ByStatus {
    /// Counts an HTTP status as something else than usual.
    #[must_use]
    pub fn status(mut self, status: StatusCode, counted: Counted) -> ByStatus {
        self.statuses.retain(|(other, _)| *other != status);
        self.statuses.push((status, counted));
        self
    }

    /// Counts a gRPC code (0 to 16) as something else than usual. There are no others: those are `UNKNOWN`.
    #[must_use]
    pub fn code(mut self, code: u8, counted: Counted) -> ByStatus {
        if let Some(known) = self.codes.get_mut(usize::from(code)) {
            *known = counted;
        }
        self
    }

    /// How a call ended that was answered so. For answers that are not `http::Response`s: reqwest's.
    pub fn judge(&self, status: StatusCode, headers: &HeaderMap) -> Ending {
        if status == StatusCode::OK
            && let Some(kind) = grpc_type(headers)
        {
            return match code(headers) {
                Some(code) => self.judge_code(code, headers),
                None if kind == "application/grpc" => Ending::Pending,
                // gRPC for browsers has its trailers in the body, where nobody looks.
                None => Ending::Success,
            };
        }
        let usual = || {
            let is_failure = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
            if is_failure { Counted::Failure } else { Counted::Success }
        };
        let set = self.statuses.iter().find(|(other, _)| *other == status);
        let may_hint = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let hint = || retry_after(headers).filter(|_| may_hint);
        ending(set.map_or_else(usual, |(_, counted)| *counted), hint)
    }

    fn judge_code(&self, code: usize, headers: &HeaderMap) -> Ending {
        let hint = || pushback(headers).or_else(|| retry_after(headers));
        ending(self.codes.get(code).copied().unwrap_or(self.codes[UNKNOWN]), hint)
    }
}

impl<R, E> Classify<Response<R>, E> for ByStatus {
    fn classify(&self, came: Result<&Response<R>, &E>) -> Ending {
        came.map_or(Ending::FAILURE, |response| self.judge(response.status(), response.headers()))
    }

    fn classify_trailers(&self, trailers: &HeaderMap) -> Ending {
        // gRPC without a status is broken off.
        self.judge_code(code(trailers).unwrap_or(UNKNOWN), trailers)
    }
}

fn ending(counted: Counted, hint: impl FnOnce() -> Option<Duration>) -> Ending {
    match counted {
        Counted::Success => Ending::Success,
        Counted::Failure => Ending::Failure { retry_after: hint() },
        Counted::Ignored => Ending::Ignored,
    }
}

/// gRPC's status, if there is one; `UNKNOWN` for one that makes no sense.
fn code(headers: &HeaderMap) -> Option<usize> {
    let status = headers.get(GRPC_STATUS)?;
    if status == "0" {
        return Some(OK);
    }
    Some(status.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(UNKNOWN))
}

fn pushback(headers: &HeaderMap) -> Option<Duration> {
    // Below zero it says "not at all", and not for how long.
    text(headers, &GRPC_PUSHBACK)?.parse().ok().map(Duration::from_millis)
}

/// What `Retry-After` says: seconds, or a date. A date is taken for as long after the answer's own `Date`: what
/// this host's clock says is nobody's business.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let said = text(headers, &RETRY_AFTER)?;
    if let Ok(seconds) = said.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let parser = DateTimeParser::new();
    let until = parser.parse_timestamp(said).ok()?;
    let now = parser.parse_timestamp(text(headers, &DATE)?).ok()?;
    Duration::try_from(until.duration_since(now)).ok()
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    Some(headers.get(name)?.to_str().ok()?.trim())
}

#[cfg(test)]
mod tests;
