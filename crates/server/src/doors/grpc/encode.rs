//! `RateLimitResponse` and our own messages to bytes, with the five bytes that gRPC puts before a message.
//!
//! hot path: an answer goes into a buffer of the thread's own and leaves as a slice of it; no allocation
//! while the buffer lasts.

use std::cell::RefCell;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::wire;
use crate::rls::{Metadata, Response, Status, Value};

/// The buffer a thread writes into before it takes a new one.
const BUFFER_BYTES: usize = 16 * 1024;

/// What is left of a buffer below which a new one is taken.
const ANSWER_BYTES: usize = 1024;

thread_local! {
    static BUFFER: RefCell<BytesMut> = RefCell::default();
}

/// A message as it is sent: not compressed, then its length, then itself.
fn framed(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.capacity() < ANSWER_BYTES {
            *buffer = BytesMut::with_capacity(BUFFER_BYTES);
        }
        buffer.put_bytes(0, 5);
        write(buffer);
        // No answer comes near 4 GiB: requests are short, and so is what a policy says.
        let length = u32::try_from(buffer.len() - 5).unwrap_or(u32::MAX);
        buffer[1..5].copy_from_slice(&length.to_be_bytes());
        buffer.split().freeze()
    })
}

/// A message of our own services as it is sent.
pub(super) fn written(message: &impl prost::Message) -> Bytes {
    framed(|out| {
        // A buffer that grows as it is written to cannot be too short.
        let _ = message.encode(out);
    })
}

/// An answer.
pub(super) fn response(response: &Response) -> Bytes {
    let Response { code, statuses, headers, metadata } = response;
    framed(|out| {
        wire::number(out, 1, *code as u64);
        for one in statuses {
            wire::message(out, 2, |out| status(out, one));
        }
        for (name, value) in headers {
            wire::message(out, 3, |out| {
                wire::text(out, 1, name);
                wire::text(out, 2, value);
            });
        }
        if let Some(metadata) = metadata {
            wire::message(out, 6, |out| fields(out, metadata));
        }
    })
}

fn status(out: &mut BytesMut, status: &Status) {
    let Status { code, limit, remaining, reset_after_secs } = status;
    wire::number(out, 1, *code as u64);
    if let Some(limit) = limit {
        wire::message(out, 2, |out| {
            wire::number(out, 1, u64::from(limit.requests_per_unit));
            wire::number(out, 2, limit.unit.map_or(0, |unit| unit as u64));
            wire::text(out, 3, limit.name.as_deref().unwrap_or_default());
        });
    }
    wire::number(out, 3, u64::from(*remaining));
    if let Some(secs) = reset_after_secs {
        wire::message(out, 4, |out| wire::number(out, 1, *secs));
    }
}

/// `google.protobuf.Struct`.
fn fields(out: &mut BytesMut, metadata: &Metadata) {
    for (name, inner) in metadata {
        wire::message(out, 1, |out| {
            wire::text(out, 1, name);
            wire::message(out, 2, |out| value(out, inner));
        });
    }
}

/// `google.protobuf.Value`, whose fields are written even if they are zero: one of them says what it is.
fn value(out: &mut BytesMut, value_of: &Value) {
    match value_of {
        Value::Null => {
            wire::varint(out, 1 << 3);
            wire::varint(out, 0);
        }
        #[expect(clippy::cast_precision_loss, reason = "the message has no other number")]
        Value::Number(number) => wire::double(out, 2, *number as f64),
        Value::Text(text) => wire::message(out, 3, |out| out.put_slice(text.as_bytes())),
        Value::Bool(truth) => {
            wire::varint(out, 4 << 3);
            wire::varint(out, u64::from(*truth));
        }
        Value::Map(map) => wire::message(out, 5, |out| fields(out, map)),
        Value::List(list) => wire::message(out, 6, |out| {
            for item in list {
                wire::message(out, 1, |out| value(out, item));
            }
        }),
    }
}
