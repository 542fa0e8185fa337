//! Protocol buffers, as far as a check needs them: fields read in place, and messages written once.
//!
//! `prost` would copy every key and value into a `String` of its own before the first is looked at; here
//! they are slices of the body. Everything else on this door is read and written by `prost`.

use bytes::{BufMut as _, BytesMut};

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a message: {0}")]
pub(super) struct Malformed(pub(super) &'static str);

/// The value of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// A number of fixed length: nothing of ours has one.
    Fixed,
}

/// Reads a message field by field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Of these bytes.
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The next field, by its number, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 || number >= 1 << 29 {
            return Err(Malformed("a field has no such number"));
        }
        let field = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => self.bytes(8).map(|_| Field::Fixed)?,
            2 => {
                let length =
                    usize::try_from(self.varint()?).map_err(|_| Malformed("a length is too long"))?;
                Field::Bytes(self.bytes(length)?)
            }
            5 => self.bytes(4).map(|_| Field::Fixed)?,
            _ => return Err(Malformed("a field is of no known kind")),
        };
        Ok(Some((number, field)))
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Malformed("it ends in a field"))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (at, &byte) in self.rest.iter().take(10).enumerate() {
            if at == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(Malformed("it ends in a number"))
    }
}

impl<'a> Field<'a> {
    /// A number; fields of another kind are not what they are said to be.
    pub(super) fn number(self) -> Result<u64, Malformed> {
        match self {
            Field::Varint(number) => Ok(number),
            _ => Err(Malformed("a field should be a number")),
        }
    }

    /// A text.
    pub(super) fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.message()?).map_err(|_| Malformed("a text is not UTF-8"))
    }

    /// A message inside the message.
    pub(super) fn message(self) -> Result<&'a [u8], Malformed> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed("a field should be a text or a message")),
        }
    }
}

/// Writes a number field; zero is the same as none.
pub(super) fn number(out: &mut BytesMut, field: u64, number: u64) {
    if number != 0 {
        varint(out, field << 3);
        varint(out, number);
    }
}

/// Writes a text field; an empty one is the same as none.
pub(super) fn text(out: &mut BytesMut, field: u64, text: &str) {
    if !text.is_empty() {
        varint(out, field << 3 | 2);
        varint(out, text.len() as u64);
        out.put_slice(text.as_bytes());
    }
}

/// Writes a number with a fraction, zero included.
pub(super) fn double(out: &mut BytesMut, field: u64, number: f64) {
    varint(out, field << 3 | 1);
    out.put_f64_le(number);
}

/// Writes a message field, empty or not.
pub(super) fn message(out: &mut BytesMut, field: u64, write: impl FnOnce(&mut BytesMut)) {
    varint(out, field << 3 | 2);
    // Nearly every message is shorter than 128 bytes, and its length then one byte.
    let at = out.len();
    out.put_u8(0);
    write(out);
    let length = out.len() - at - 1;
    if let Ok(short) = u8::try_from(length)
        && short < 0x80
    {
        out[at] = short;
        return;
    }
    let inner = out.split_off(at + 1);
    out.truncate(at);
    varint(out, length as u64);
    out.unsplit(inner);
}

pub(super) fn varint(out: &mut BytesMut, mut number: u64) {
    loop {
        let low = u8::try_from(number & 0x7f).unwrap_or(0x7f);
        number >>= 7;
        if number == 0 {
            out.put_u8(low);
            return;
        }
        out.put_u8(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_they_are_written() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = BytesMut::new();
            varint(&mut out, value);
            assert_eq!(Reader::new(&out).varint(), Ok(value));
        }
        for broken in [&[0x80][..], &[0xff; 10], &[0xff; 11], &[]] {
            assert!(Reader::new(broken).varint().is_err(), "{broken:?}");
        }
    }

    #[test]
    fn long_messages_have_their_whole_length() {
        for length in [0, 1, 127, 128, 300, 20_000] {
            let mut out = BytesMut::new();
            message(&mut out, 2, |out| out.put_bytes(b'x', length));
            number(&mut out, 3, 7);
            let mut reader = Reader::new(&out);
            let (field, inner) = reader.next().unwrap().unwrap();
            assert_eq!((field, inner.message().unwrap().len()), (2, length));
            assert_eq!(reader.next(), Ok(Some((3, Field::Varint(7)))));
            assert_eq!(reader.next(), Ok(None));
        }
    }
}
