//! What this door writes: a message and a status behind it, or a status alone.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};

/// The kind of body that gRPC is.
pub(super) const KIND: &str = "application/grpc";

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const ACCEPTED_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// The statuses we give, with gRPC's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Ok = 0,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// Why a call failed, and what was spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) code: Code,
    pub(super) why: Cow<'static, str>,
}

impl Failed {
    pub(super) fn new(code: Code, why: impl Into<Cow<'static, str>>) -> Failed {
        Failed { code, why: why.into() }
    }
}

/// What an answer carries.
#[derive(Debug)]
pub(crate) enum GrpcBody {
    /// Nothing: the status stands among the headers.
    Empty,
    /// A message, and then the status.
    Message(Option<Bytes>),
    /// The status that follows a message.
    Status,
    /// What one of tonic's services says, as long as it says something.
    Streamed(tonic::body::Body),
}

impl Body for GrpcBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        match &mut *self {
            GrpcBody::Empty => Poll::Ready(None),
            GrpcBody::Message(message) => {
                let message = message.take().unwrap_or_default();
                *self = GrpcBody::Status;
                Poll::Ready(Some(Ok(Frame::data(message))))
            }
            GrpcBody::Status => {
                *self = GrpcBody::Empty;
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(STATUS, HeaderValue::from_static("0"));
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            GrpcBody::Streamed(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            GrpcBody::Empty => true,
            GrpcBody::Message(_) | GrpcBody::Status => false,
            GrpcBody::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            GrpcBody::Empty | GrpcBody::Status => SizeHint::with_exact(0),
            GrpcBody::Message(message) => SizeHint::with_exact(message.as_ref().map_or(0, Bytes::len) as u64),
            GrpcBody::Streamed(body) => body.size_hint(),
        }
    }
}

/// A message with its frame, and the status OK.
pub(super) fn message(framed: Bytes) -> Response<GrpcBody> {
    let mut answer = Response::new(GrpcBody::Message(Some(framed)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(KIND));
    answer
}

/// A status alone.
pub(super) fn failed(failed: &Failed) -> Response<GrpcBody> {
    let mut answer = Response::new(GrpcBody::Empty);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(KIND));
    headers.insert(STATUS, HeaderValue::from(failed.code as u16));
    if let Ok(why) = HeaderValue::from_str(&escaped(&failed.why)) {
        headers.insert(MESSAGE, why);
    }
    if failed.code == Code::Unimplemented {
        headers.insert(ACCEPTED_ENCODING, HeaderValue::from_static("identity"));
    }
    answer
}

/// What is no gRPC at all is told so in plain HTTP.
pub(super) fn no_grpc(status: StatusCode) -> Response<GrpcBody> {
    let mut answer = Response::new(GrpcBody::Empty);
    *answer.status_mut() = status;
    answer
}

/// As gRPC writes a message into a header: what is not plain ASCII as `%XX`.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (0x20..0x7f).contains(&byte) && byte != b'%' {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}"); // to a String: cannot fail
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_in_a_header_is_plain_ascii() {
        assert_eq!(escaped("domain: 100% \u{fc}\n"), "domain: 100%25 %C3%BC%0A");
    }
}
