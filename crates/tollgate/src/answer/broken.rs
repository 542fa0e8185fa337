//! What is answered for a service whose breaker does not let calls through: 503 with a problem document, or
//! `UNAVAILABLE` for those who speak gRPC.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::HeaderValue;
use http::{HeaderMap, Response, StatusCode};
use tollgate_core::units::Micros;

use super::refusal::{begin_problem, grpc, grpc_type, http, push_back, put_retry_after};
use super::write::{number, written};

const DEADLINE_EXCEEDED: HeaderValue = HeaderValue::from_static("4");
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");

/// Why the service did not answer itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The breaker refuses. The call was not made.
    Refused {
        /// When to come again.
        retry_after: Micros,
    },
    /// The call was a probe, and was ended with its lease.
    LeaseEnded,
}

impl Broken {
    /// The answer, in the words of the request's own protocol.
    pub fn answer(self, request: &HeaderMap) -> Response<Bytes> {
        self.answer_as(grpc_type(request))
    }

    /// The same where the request is gone, and only the type that it spoke gRPC by is left.
    pub(crate) fn answer_as(self, grpc_kind: Option<HeaderValue>) -> Response<Bytes> {
        let (wait, status, code) = match self {
            Broken::Refused { retry_after } => {
                (Some(retry_after), StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE)
            }
            Broken::LeaseEnded => (None, StatusCode::GATEWAY_TIMEOUT, DEADLINE_EXCEEDED),
        };
        let Some(kind) = grpc_kind else { return http(status, self.problem(status, wait), wait) };
        let mut answer = grpc(kind, code, written(|out| self.say(out)));
        if wait.is_some() {
            push_back(answer.headers_mut(), wait);
        }
        answer
    }

    fn problem(self, status: StatusCode, wait: Option<Micros>) -> Bytes {
        let (kind, title) = match self {
            Broken::Refused { .. } => ("breaker-open", "the service is not well"),
            Broken::LeaseEnded => ("probe-ended", "the service did not answer in time"),
        };
        written(|out| {
            begin_problem(out, kind, title, status.as_u16());
            self.say(out);
            out.put_u8(b'"');
            put_retry_after(out, wait);
            out.put_slice(b"}\n");
        })
    }

    /// What happened, for people.
    fn say(self, out: &mut BytesMut) {
        match self {
            Broken::Refused { retry_after } => {
                out.put_slice(b"its breaker refuses this call: try again in ");
                number(out, retry_after.as_millis_ceil());
                out.put_slice(b" ms");
            }
            Broken::LeaseEnded => out.put_slice(b"the call was a probe, and took longer than its lease"),
        }
    }
}
