//! Small texts, written into a buffer of the thread's own and handed out as slices of it.

use std::cell::RefCell;

use bytes::{BufMut as _, Bytes, BytesMut};

/// The buffer a thread writes into before it takes a new one.
const BUFFER_BYTES: usize = 8 * 1024;

/// What is left of a buffer below which a new one is taken.
const ROOM_BYTES: usize = 512;

thread_local! {
    static BUFFER: RefCell<BytesMut> = RefCell::default();
}

/// What `write` writes. It must not call this again.
pub(super) fn written(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.capacity() < ROOM_BYTES {
            *buffer = BytesMut::with_capacity(BUFFER_BYTES);
        }
        write(buffer);
        buffer.split().freeze()
    })
}

pub(super) fn number(out: &mut BytesMut, number: u64) {
    out.put_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// A text as JSON, with its quotes.
pub(super) fn quoted(out: &mut BytesMut, text: &str) {
    out.put_u8(b'"');
    for character in text.chars() {
        match character {
            '"' => out.put_slice(b"\\\""),
            '\\' => out.put_slice(b"\\\\"),
            // No text of ours has one; nothing is lost with it.
            control if control.is_control() => out.put_u8(b' '),
            plain => out.put_slice(plain.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.put_u8(b'"');
}
