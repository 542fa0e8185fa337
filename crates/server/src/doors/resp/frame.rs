//! Bytes to words: one command at a time, an array of bulk strings or an inline line.
//!
//! A server reads only these two, so there is no tree of values here and nothing that recurses. Where a
//! command is cut off, the reader stops and goes on from there with the next bytes; what a client
//! announces (`*1000000`, `$2147483647`) is compared with a bound and never reserved. Words are places in
//! the reader's input, not copies of it.
//!
//! Spec: the Redis serialization protocol, "Sending commands" and "Inline commands".
//! Proved by: frame/tests.rs, fuzz.rs

use std::fmt;

/// The longest line that announces a count or a length: a sign, digits, and the line's end.
const HEADER_BYTES_MAX: usize = 24;

/// What a client may send, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Words of one command.
    pub(super) words: usize,
    /// Bytes of one word.
    pub(super) word_bytes: usize,
    /// Bytes of one command, all told.
    pub(super) frame_bytes: usize,
}

impl Limits {
    /// For whoever may do everything here.
    pub(super) const TRUSTED: Limits = Limits { words: 64, word_bytes: 64 * 1024, frame_bytes: 128 * 1024 };
    /// For strangers: a named rule, a key and a few attributes fit.
    pub(super) const STRANGER: Limits = Limits { words: 32, word_bytes: 4 * 1024, frame_bytes: 16 * 1024 };
}

/// Where a word stands in its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

/// The words of one command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'b, 's> {
    frame: &'b [u8],
    spans: &'s [Span],
}

impl<'b> Words<'b, '_> {
    /// How many, the command's name included.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// The word at a place.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&'b [u8]> {
        let Span { start, end } = *self.spans.get(at)?;
        self.frame.get(start as usize..end as usize)
    }

    /// The bytes before the word at a place, and those from its end on.
    pub(super) fn around(&self, at: usize) -> Option<(&'b [u8], &'b [u8])> {
        let Span { start, end } = *self.spans.get(at)?;
        Some((self.frame.get(..start as usize)?, self.frame.get(end as usize..)?))
    }

    /// The words from a place on.
    pub(super) fn from(&self, at: usize) -> impl Iterator<Item = &'b [u8]> {
        (at..self.len()).filter_map(|at| self.get(at))
    }
}

/// What came of looking at the bytes there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parsed {
    /// The command goes on beyond them.
    Incomplete,
    /// A whole command, in the first `length` bytes. It may have no words: then there is nothing to do.
    Whole { length: usize },
}

/// Why a client cannot be understood any further. Its connection is over: nobody knows where the next
/// command would begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameError {
    /// `*` without a number that can be one.
    BadCount,
    /// More words than a command may have.
    TooManyWords,
    /// An array of something else than bulk strings.
    NotABulk(u8),
    /// `$` without a number that can be a length, or a longer one than a word may have.
    BadLength,
    /// A line of a length or a count that does not end.
    LongHeader,
    /// A bulk string that is longer than it said.
    NoLineEnd,
    /// A command that is too long as a whole.
    TooLong,
    /// An inline line that does not end.
    LongLine,
    /// A quote that is opened and not closed.
    OpenQuote,
}

impl fmt::Display for FrameError {
    /// In Redis' words where it has some.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            FrameError::BadCount | FrameError::TooManyWords => "invalid multibulk length",
            FrameError::NotABulk(found) => {
                let found = if found.is_ascii_graphic() { char::from(*found) } else { '?' };
                return write!(f, "Protocol error: expected '$', got '{found}'");
            }
            FrameError::BadLength => "invalid bulk length",
            FrameError::LongHeader => "too big mbulk count string",
            FrameError::NoLineEnd => "expected the end of a line after a bulk string",
            FrameError::TooLong => "too big command",
            FrameError::LongLine => "too big inline request",
            FrameError::OpenQuote => "unbalanced quotes in request",
        };
        write!(f, "Protocol error: {what}")
    }
}

/// Where in a command the reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At its first byte.
    Start,
    /// At the number of words.
    Count,
    /// At the length of the next of so many words.
    Length { left: usize },
    /// At the bytes of that word.
    Word { left: usize, length: usize },
    /// In an inline line, of which so much is known to have no end.
    Line,
}

/// Reads commands, one after the other.
#[derive(Debug)]
pub(super) struct Reader {
    state: State,
    /// How much of the command has been understood.
    at: usize,
    spans: Vec<Span>,
}

impl Reader {
    /// At the beginning of a command.
    pub(super) fn new() -> Reader {
        Reader { state: State::Start, at: 0, spans: Vec::new() }
    }

    /// Reads on in `bytes`, which begin where the command does and are those of the last call with more
    /// behind them. An inline line is unquoted in its place.
    ///
    /// hot path: each byte of a command is looked at once; no allocation once `spans` has grown.
    pub(super) fn read(&mut self, bytes: &mut [u8], limits: &Limits) -> Result<Parsed, FrameError> {
        loop {
            match self.state {
                State::Start => {
                    let Some(first) = bytes.first() else { return Ok(Parsed::Incomplete) };
                    self.spans.clear();
                    (self.state, self.at) = if *first == b'*' { (State::Count, 1) } else { (State::Line, 0) };
                }
                State::Count => {
                    let number = number(bytes, self.at, FrameError::BadCount)?;
                    let Some((count, end)) = number else { return Ok(Parsed::Incomplete) };
                    self.at = end;
                    match usize::try_from(count) {
                        // `*0` and `*-1` ask for nothing.
                        Err(_) | Ok(0) => return Ok(self.whole(end)),
                        Ok(count) if count > limits.words => return Err(FrameError::TooManyWords),
                        Ok(left) => self.state = State::Length { left },
                    }
                }
                State::Length { left } => match bytes.get(self.at) {
                    None => return Ok(Parsed::Incomplete),
                    Some(b'$') => {
                        let number = number(bytes, self.at + 1, FrameError::BadLength)?;
                        let Some((length, end)) = number else { return Ok(Parsed::Incomplete) };
                        let length = usize::try_from(length).map_err(|_| FrameError::BadLength)?;
                        if length > limits.word_bytes {
                            return Err(FrameError::BadLength);
                        }
                        if end + length + 2 > limits.frame_bytes {
                            return Err(FrameError::TooLong);
                        }
                        (self.state, self.at) = (State::Word { left, length }, end);
                    }
                    Some(other) => return Err(FrameError::NotABulk(*other)),
                },
                State::Word { left, length } => {
                    let (start, end) = (self.at, self.at + length);
                    match bytes.get(end..end + 2) {
                        None => return Ok(Parsed::Incomplete),
                        Some(b"\r\n") => {}
                        Some(_) => return Err(FrameError::NoLineEnd),
                    }
                    self.push(start, end);
                    self.at = end + 2;
                    if left == 1 {
                        return Ok(self.whole(end + 2));
                    }
                    self.state = State::Length { left: left - 1 };
                }
                State::Line => return self.line(bytes, limits),
            }
        }
    }

    /// The words of the whole command in `frame`, after [`Parsed::Whole`].
    pub(super) fn words<'b>(&self, frame: &'b [u8]) -> Words<'b, '_> {
        Words { frame, spans: &self.spans }
    }

    /// Whether a command has begun and not ended.
    pub(super) fn is_inside(&self) -> bool {
        self.state != State::Start
    }

    /// For how many words there is room.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.spans.capacity()
    }

    fn whole(&mut self, length: usize) -> Parsed {
        self.state = State::Start;
        Parsed::Whole { length }
    }

    fn push(&mut self, start: usize, end: usize) {
        // Frames are far shorter than four gigabytes.
        let place = |at| u32::try_from(at).unwrap_or(u32::MAX);
        self.spans.push(Span { start: place(start), end: place(end) });
    }

    fn line(&mut self, bytes: &mut [u8], limits: &Limits) -> Result<Parsed, FrameError> {
        let new = bytes.get(self.at..).unwrap_or_default();
        let Some(end) = new.iter().position(|&byte| byte == b'\n').map(|found| self.at + found) else {
            self.at = bytes.len();
            if self.at >= limits.frame_bytes {
                return Err(FrameError::LongLine);
            }
            return Ok(Parsed::Incomplete);
        };
        if end >= limits.frame_bytes {
            return Err(FrameError::LongLine);
        }
        let text = if bytes[..end].ends_with(b"\r") { end - 1 } else { end };
        let mut at = 0;
        while let Some((start, length, next)) = unquoted(&mut bytes[..text], at)? {
            if self.spans.len() == limits.words {
                return Err(FrameError::TooManyWords);
            }
            if length > limits.word_bytes {
                return Err(FrameError::BadLength);
            }
            self.push(start, start + length);
            at = next;
        }
        Ok(self.whole(end + 1))
    }
}

/// The number that begins at `at`, and where its line ends; `None` if that is not there yet.
#[inline]
fn number(bytes: &[u8], at: usize, fault: FrameError) -> Result<Option<(i64, usize)>, FrameError> {
    let is_negative = bytes.get(at) == Some(&b'-');
    let first = at + usize::from(is_negative);
    let mut value: i64 = 0;
    for (place, &byte) in bytes.iter().enumerate().skip(first) {
        match byte {
            b'0'..=b'9' if place - first < 10 => value = value * 10 + i64::from(byte - b'0'),
            b'\r' if place > first => {
                return match bytes.get(place + 1) {
                    None => Ok(None),
                    Some(b'\n') => Ok(Some((if is_negative { -value } else { value }, place + 2))),
                    Some(_) => Err(fault),
                };
            }
            _ if place - at > HEADER_BYTES_MAX => return Err(FrameError::LongHeader),
            _ => return Err(fault),
        }
    }
    Ok(None)
}

/// The next word of an inline line from `at` on, its quotes taken off in its place: where it stands, how
/// long it is, and where to go on.
fn unquoted(line: &mut [u8], at: usize) -> Result<Option<(usize, usize, usize)>, FrameError> {
    let Some(start) = (at..line.len()).find(|&at| !line[at].is_ascii_whitespace()) else { return Ok(None) };
    // Written behind what is read: what is taken off only makes it shorter.
    let (mut read, mut write) = (start, start);
    let mut quote = None;
    while let Some(&byte) = line.get(read) {
        let (put, taken) = match (quote, byte) {
            (None, b'"' | b'\'') => {
                quote = Some(byte);
                (None, 1)
            }
            (None, byte) if byte.is_ascii_whitespace() => break,
            (Some(open), byte) if byte == open => {
                // A closing quote ends its word.
                if line.get(read + 1).is_some_and(|next| !next.is_ascii_whitespace()) {
                    return Err(FrameError::OpenQuote);
                }
                quote = None;
                (None, 1)
            }
            (Some(b'"'), b'\\') => escaped(&line[read..]),
            (Some(b'\''), b'\\') if line.get(read + 1) == Some(&b'\'') => (Some(b'\''), 2),
            (_, byte) => (Some(byte), 1),
        };
        if let Some(byte) = put {
            line[write] = byte;
            write += 1;
        }
        read += taken;
    }
    match quote {
        Some(_) => Err(FrameError::OpenQuote),
        None => Ok(Some((start, write - start, read))),
    }
}

/// What stands for an escape within double quotes, and how long it is.
fn escaped(text: &[u8]) -> (Option<u8>, usize) {
    match *text {
        [_, b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0);
            (u8::try_from(digit(high) * 16 + digit(low)).ok(), 4)
        }
        [_, b'n', ..] => (Some(b'\n'), 2),
        [_, b'r', ..] => (Some(b'\r'), 2),
        [_, b't', ..] => (Some(b'\t'), 2),
        [_, b'b', ..] => (Some(8), 2),
        [_, b'a', ..] => (Some(7), 2),
        [_, other, ..] => (Some(other), 2),
        _ => (Some(b'\\'), 1),
    }
}

#[cfg(test)]
mod tests;
