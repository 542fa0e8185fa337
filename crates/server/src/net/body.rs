//! Reads a body, up to a bound on its length and on the time it takes.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::StatusCode;
use hyper::body::{Body as _, Frame, Incoming};
use tokio::time::Sleep;

use super::problem::Problem;

/// The longest body: 64 checks with the longest keys do not come near it.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

/// How much more is read and thrown away, so that whoever is still sending can hear our answer: a
/// connection closed with unread bytes is reset, and takes the answer with it.
const DISCARDED_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Why there is no body. Nothing was spent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// It did not come in time.
    #[error("the body took too long: send it at once")]
    TooSlow,
    /// It is longer than any question.
    #[error("the body is too long: it has at most {BODY_BYTES_MAX} bytes")]
    TooLong,
    /// It ended before its end.
    #[error("the body ended too early: {why}")]
    CutShort {
        /// What the connection said.
        why: String,
    },
}

/// The whole body, if it comes within `patience`.
///
/// hot path: a body that came in one piece with its header is not copied, and no timer is made for it.
pub(crate) async fn read(mut body: Incoming, patience: Duration) -> Result<Bytes, BodyError> {
    if body.size_hint().lower() > (BODY_BYTES_MAX + DISCARDED_BYTES_MAX) as u64 {
        return Err(BodyError::TooLong);
    }
    let mut whole = Bytes::new();
    let mut pieces = BytesMut::new();
    let mut length = 0;
    let mut late = None;
    while let Some(frame) = next(&mut body, patience, &mut late).await? {
        let Ok(piece) = frame.into_data() else { continue };
        length += piece.len();
        if length > BODY_BYTES_MAX + DISCARDED_BYTES_MAX {
            return Err(BodyError::TooLong);
        }
        if length > BODY_BYTES_MAX {
            pieces.clear();
        } else if whole.is_empty() && pieces.is_empty() {
            whole = piece;
        } else {
            pieces.extend_from_slice(&whole);
            whole = Bytes::new();
            pieces.extend_from_slice(&piece);
        }
        if body.is_end_stream() {
            break;
        }
    }
    if length > BODY_BYTES_MAX {
        return Err(BodyError::TooLong);
    }
    Ok(if pieces.is_empty() { whole } else { pieces.freeze() })
}

/// The next frame. The timer is made when a body has to be waited for, and then serves all of it.
async fn next(
    body: &mut Incoming,
    patience: Duration,
    late: &mut Option<Pin<Box<Sleep>>>,
) -> Result<Option<Frame<Bytes>>, BodyError> {
    poll_fn(|context| {
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) {
            return Poll::Ready(
                frame.transpose().map_err(|error| BodyError::CutShort { why: error.to_string() }),
            );
        }
        let late = late.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        late.as_mut().poll(context).map(|()| Err(BodyError::TooSlow))
    })
    .await
}

impl BodyError {
    /// As an HTTP door says it.
    pub(crate) fn problem(&self) -> Problem {
        match self {
            BodyError::TooSlow => {
                let title = "the body took too long; nothing was spent";
                Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", title, "send the whole body at once")
            }
            BodyError::TooLong => {
                let title = "the body is too long; nothing was spent";
                let detail = format!("a body has at most {BODY_BYTES_MAX} bytes");
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-long", title, detail)
            }
            BodyError::CutShort { why } => {
                let title = "the body ended too early; nothing was spent";
                Problem::new(StatusCode::BAD_REQUEST, "cut-short", title, why.clone())
            }
        }
    }
}
