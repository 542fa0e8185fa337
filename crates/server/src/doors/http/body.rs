//! Reads a body, up to a bound.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::{Body as _, Incoming};

use crate::net::problem::Problem;

/// The longest body: 64 checks with the longest keys do not come near it.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// How much more is read and thrown away, so that whoever is still sending can hear our answer: a
/// connection closed with unread bytes is reset, and takes the answer with it.
const DISCARDED_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The whole body.
///
/// hot path: a body that came in one piece with its header is not copied.
pub(super) async fn read(mut body: Incoming) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > (BODY_BYTES_MAX + DISCARDED_BYTES_MAX) as u64 {
        return Err(too_long());
    }
    let mut whole = Bytes::new();
    let mut pieces = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|error| cut_short(&error))?.into_data() else { continue };
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

fn too_long() -> Problem {
    let title = "the body is too long; nothing was spent";
    let detail = format!("a body has at most {BODY_BYTES_MAX} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-long", title, detail)
}

fn cut_short(error: &hyper::Error) -> Problem {
    let title = "the body ended too early; nothing was spent";
    Problem::new(StatusCode::BAD_REQUEST, "cut-short", title, error.to_string())
}
