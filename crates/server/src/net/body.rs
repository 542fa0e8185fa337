//! Reads a body, up to a bound on its length and on the time it takes.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::StatusCode;
use hyper::body::{Body as _, Frame, Incoming};
use tokio::time::Sleep;

use crate::net::problem::Problem;

/// The longest body: 64 checks with the longest keys do not come near it.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// How much more is read and thrown away, so that whoever is still sending can hear our answer: a
/// connection closed with unread bytes is reset, and takes the answer with it.
const DISCARDED_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The whole body, if it comes within `patience`.
///
/// hot path: a body that came in one piece with its header is not copied, and no timer is made for it.
pub(super) async fn read(mut body: Incoming, patience: Duration) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > (BODY_BYTES_MAX + DISCARDED_BYTES_MAX) as u64 {
        return Err(too_long());
    }
    let mut whole = Bytes::new();
    let mut pieces = BytesMut::new();
    let mut length = 0;
    let mut late = None;
    while let Some(frame) = next(&mut body, patience, &mut late).await? {
        let Ok(piece) = frame.into_data() else { continue };
        length += piece.len();
        if length > BODY_BYTES_MAX + DISCARDED_BYTES_MAX {
            return Err(too_long());
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
        return Err(too_long());
    }
    Ok(if pieces.is_empty() { whole } else { pieces.freeze() })
}

/// The next frame. The timer is made when a body has to be waited for, and then serves all of it.
async fn next(
    body: &mut Incoming,
    patience: Duration,
    late: &mut Option<Pin<Box<Sleep>>>,
) -> Result<Option<Frame<Bytes>>, Problem> {
    poll_fn(|context| {
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) {
            return Poll::Ready(frame.transpose().map_err(|error| cut_short(&error)));
        }
        let late = late.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        late.as_mut().poll(context).map(|()| Err(too_slow()))
    })
    .await
}

fn too_slow() -> Problem {
    let title = "the body took too long; nothing was spent";
    Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", title, "send the whole body at once")
}

fn too_long() -> Problem {
    let title = "the body is too long; nothing was spent";
    let detail = format!("a body has at most {BODY_BYTES_MAX} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-long", title, detail)
}

fn cut_short(error: &hyper::Error) -> Problem {
    let title = "the body ended too early; nothing was spent";
    Problem::new(StatusCode::BAD_REQUEST, "cut-short", title, error.to_string())
}
