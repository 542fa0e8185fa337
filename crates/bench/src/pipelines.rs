//! A client that is never the slower side: pipelines of one command over many connections.
//!
//! What a server costs per command depends on how busy it is kept: one that sleeps between two pipelines
//! pays for every waking. `redis-benchmark` takes a microsecond for a command and its answer, which is more than the
//! quicker servers take; a comparison under it is one of a busy server with an idle one. This one writes
//! a pipeline that is ready but for its keys and reads no more of an answer than where it ends.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// Stands for a number below the count of keys, drawn anew for each command.
const DRAWN: &str = "__rand_int__";
const READ_BYTES: usize = 16 * 1024;
/// A server that takes longer than this for one pipeline is not measured but broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// What to ask, and how.
pub(crate) struct Load<'a> {
    pub(crate) port: u16,
    pub(crate) connections: usize,
    pub(crate) pipeline: usize,
    pub(crate) commands: u64,
    pub(crate) keys: u64,
    pub(crate) words: &'a [&'a str],
}

impl Load<'_> {
    /// Asks all of it.
    pub(crate) fn run(&self) -> Result<()> {
        let mut request = Request::new(self);
        let mut open = Vec::new();
        for _ in 0..self.connections {
            open.push(Connection::open(self.port)?);
        }
        let pipelines = self.commands / self.pipeline as u64;
        ensure!(pipelines >= self.connections as u64, "too few commands for so many connections");
        let (mut sent, mut answered) = (0, 0);
        for connection in &mut open {
            connection.stream.write_all(request.drawn())?;
            sent += 1;
        }
        // In the order in which they were asked: whoever waits for the first finds the others answered.
        while answered < pipelines {
            for connection in &mut open {
                if answered == pipelines {
                    break;
                }
                connection.read_answers(self.pipeline)?;
                answered += 1;
                if sent < pipelines {
                    connection.stream.write_all(request.drawn())?;
                    sent += 1;
                }
            }
        }
        Ok(())
    }
}

/// A pipeline as it is written.
struct Request {
    bytes: Vec<u8>,
    /// Where the digits of each key stand.
    digits: Vec<usize>,
    keys: u64,
}

impl Request {
    fn new(load: &Load<'_>) -> Request {
        let (mut bytes, mut digits) = (Vec::new(), Vec::new());
        for _ in 0..load.pipeline {
            bytes.extend_from_slice(format!("*{}\r\n", load.words.len()).as_bytes());
            for word in load.words {
                bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                digits.extend(word.find(DRAWN).map(|place| bytes.len() + place));
                bytes.extend_from_slice(word.as_bytes());
                bytes.extend_from_slice(b"\r\n");
            }
        }
        Request { bytes, digits, keys: load.keys }
    }

    /// The same with other keys.
    fn drawn(&mut self) -> &[u8] {
        for place in &self.digits {
            let mut number = fastrand::u64(0..self.keys);
            for digit in self.bytes[*place..*place + DRAWN.len()].iter_mut().rev() {
                *digit = b"0123456789"[(number % 10) as usize];
                number /= 10;
            }
        }
        &self.bytes
    }
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    /// How much of it was read.
    filled: usize,
}

impl Connection {
    fn open(port: u16) -> Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Connection { stream, input: vec![0; READ_BYTES], filled: 0 })
    }

    fn read_answers(&mut self, count: usize) -> Result<()> {
        let (mut whole, mut done) = (0, 0);
        while whole < count {
            if let Some(length) = answer_length(&self.input[done..self.filled])? {
                done += length;
                whole += 1;
                continue;
            }
            ensure!(self.filled < self.input.len(), "answers of more than {READ_BYTES} bytes");
            let read = self.stream.read(&mut self.input[self.filled..]).context("no answer")?;
            ensure!(read > 0, "the server closed a connection");
            self.filled += read;
        }
        ensure!(done == self.filled, "more answers than commands");
        self.filled = 0;
        Ok(())
    }
}

/// How many bytes the first answer of `bytes` has, if it is whole.
fn answer_length(bytes: &[u8]) -> Result<Option<usize>> {
    let (mut at, mut values) = (0, 1);
    while values > 0 {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(line) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let text = &rest[..=line];
        at += line + 1;
        values -= 1;
        match text {
            [b':' | b'+' | b'_' | b'#', ..] => {}
            [b'*', ..] => values += number(text)?.unwrap_or(0),
            [b'%', ..] => values += 2 * number(text)?.unwrap_or(0),
            [b'$', ..] => at += number(text)?.map_or(0, |length| length + 2),
            _ => bail!("answered {:?}", String::from_utf8_lossy(text)),
        }
    }
    Ok((at <= bytes.len()).then_some(at))
}

/// The number behind a line's first byte; -1 is none.
fn number(line: &[u8]) -> Result<Option<usize>> {
    let text = str::from_utf8(&line[1..])?.trim_end();
    if text == "-1" { Ok(None) } else { Ok(Some(text.parse()?)) }
}

#[cfg(test)]
mod tests {
    use super::answer_length;

    #[test]
    fn an_answer_ends_where_it_ends() -> anyhow::Result<()> {
        let whole: [&[u8]; 6] = [
            b"+OK\r\n",
            b":-1\r\n",
            b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n",
            b"*2\r\n$7\r\nallowed\r\n*0\r\n",
            b"%1\r\n$4\r\n\r\n\r\n\r\n$-1\r\n",
            b"*-1\r\n",
        ];
        for answer in whole {
            let followed = [answer, b"+OK\r\n"].concat();
            assert_eq!(answer_length(&followed)?, Some(answer.len()));
            for cut in 0..answer.len() {
                assert_eq!(answer_length(&answer[..cut])?, None);
            }
        }
        Ok(())
    }

    #[test]
    fn an_error_is_one() {
        assert!(answer_length(b"-ERR no\r\n").is_err());
    }
}
