//! RESP as a client speaks it: commands out, replies in, nothing else.
//!
//! Our own, and small, because the connection must be ours: a reply that comes too late has to be
//! swallowed in its place, a request whose caller has gone must not be sent, and a script must be
//! loaded and run in one write. RESP2 is all that needs; what we ask for are integers.

use bytes::{Buf, BytesMut};

/// The longest bulk reply we accept: our own are a few bytes, `INFO` a few thousand.
const BULK_BYTES_MAX: usize = 1 << 20;

/// The longest array we accept.
const ARRAY_MAX: usize = 1 << 14;

/// How deep arrays may nest.
const DEPTH_MAX: usize = 4;

/// One reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// `+OK`
    Simple(String),
    /// `-ERR …`
    Error(String),
    /// `:1`
    Integer(i64),
    /// `$3\r\nabc`
    Bulk(Vec<u8>),
    /// `$-1` or `*-1`
    Nil,
    /// `*2 …`
    Array(Vec<Reply>),
}

/// What is not RESP. The connection cannot be used any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a Redis reply: {what}")]
pub(super) struct NotResp {
    what: &'static str,
}

/// Appends one command.
pub(super) fn command<'a>(out: &mut Vec<u8>, arguments: impl ExactSizeIterator<Item = &'a [u8]>) {
    header(out, b'*', arguments.len());
    for argument in arguments {
        bulk(out, argument);
    }
}

/// Appends `*n` or `$n`.
pub(super) fn header(out: &mut Vec<u8>, kind: u8, n: usize) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends one bulk string.
pub(super) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Takes one whole reply off the front of `buffer`; `None` until it has all arrived.
pub(super) fn take_reply(buffer: &mut BytesMut) -> Result<Option<Reply>, NotResp> {
    let mut cursor = Cursor { bytes: buffer, at: 0 };
    match cursor.reply(0) {
        Ok(reply) => {
            let used = cursor.at;
            buffer.advance(used);
            Ok(Some(reply))
        }
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Bad(what)) => Err(NotResp { what }),
    }
}

enum Stop {
    Incomplete,
    Bad(&'static str),
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn reply(&mut self, depth: usize) -> Result<Reply, Stop> {
        let line = self.line()?;
        let (&kind, rest) = line.split_first().ok_or(Stop::Bad("an empty line"))?;
        match kind {
            b'+' => Ok(Reply::Simple(String::from_utf8_lossy(rest).into_owned())),
            b'-' => Ok(Reply::Error(String::from_utf8_lossy(rest).into_owned())),
            b':' => Ok(Reply::Integer(integer(rest)?)),
            b'$' => match integer(rest)? {
                -1 => Ok(Reply::Nil),
                length => {
                    let length = usize::try_from(length).map_err(|_| Stop::Bad("a negative length"))?;
                    if length > BULK_BYTES_MAX {
                        return Err(Stop::Bad("a bulk string that is too long"));
                    }
                    self.bulk(length)
                }
            },
            b'*' => match integer(rest)? {
                -1 => Ok(Reply::Nil),
                length => {
                    let length = usize::try_from(length).map_err(|_| Stop::Bad("a negative length"))?;
                    if length > ARRAY_MAX || depth >= DEPTH_MAX {
                        return Err(Stop::Bad("an array that is too long or too deep"));
                    }
                    // Nothing is reserved from the announced length alone.
                    let mut items = Vec::with_capacity(length.min(64));
                    for _ in 0..length {
                        items.push(self.reply(depth + 1)?);
                    }
                    Ok(Reply::Array(items))
                }
            },
            _ => Err(Stop::Bad("an unknown kind of reply")),
        }
    }

    fn line(&mut self) -> Result<&[u8], Stop> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\r') else {
            return Err(if rest.len() > BULK_BYTES_MAX {
                Stop::Bad("an endless line")
            } else {
                Stop::Incomplete
            });
        };
        match rest.get(end + 1) {
            None => Err(Stop::Incomplete),
            Some(b'\n') => {
                let start = self.at;
                self.at += end + 2;
                Ok(&self.bytes[start..start + end])
            }
            Some(_) => Err(Stop::Bad("a line without its end")),
        }
    }

    fn bulk(&mut self, length: usize) -> Result<Reply, Stop> {
        let Some(rest) = self.bytes.get(self.at..self.at + length + 2) else { return Err(Stop::Incomplete) };
        if !rest.ends_with(b"\r\n") {
            return Err(Stop::Bad("a bulk string without its end"));
        }
        self.at += length + 2;
        Ok(Reply::Bulk(rest[..length].to_vec()))
    }
}

fn integer(digits: &[u8]) -> Result<i64, Stop> {
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or(Stop::Bad("not an integer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_taken_whole_however_it_is_cut() {
        let bytes = b"*3\r\n:1\r\n$3\r\na\r\n\r\n*2\r\n$-1\r\n-ERR no\r\n+OK\r\n";
        let expected = Reply::Array(vec![
            Reply::Integer(1),
            Reply::Bulk(b"a\r\n".to_vec()),
            Reply::Array(vec![Reply::Nil, Reply::Error("ERR no".into())]),
        ]);
        for cut in 0..bytes.len() - 5 {
            let mut buffer = BytesMut::from(&bytes[..cut]);
            assert_eq!(take_reply(&mut buffer), Ok(None), "cut at {cut}");
            buffer.extend_from_slice(&bytes[cut..]);
            assert_eq!(take_reply(&mut buffer), Ok(Some(expected.clone())));
            assert_eq!(take_reply(&mut buffer), Ok(Some(Reply::Simple("OK".into()))));
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn what_is_not_resp_is_refused() {
        for bytes in [
            &b"HTTP/1.1 200\r\n"[..],
            b":x\r\n",
            b"$-5\r\n",
            b"$99999999999\r\n",
            b"*9999999\r\n",
            b"$1\r\nabcd",
        ] {
            assert!(take_reply(&mut BytesMut::from(bytes)).is_err(), "{bytes:?}");
        }
        let deep = b"*1\r\n".repeat(10);
        assert!(take_reply(&mut BytesMut::from(&deep[..])).is_err());
    }
}
