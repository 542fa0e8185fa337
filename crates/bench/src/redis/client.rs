//! A client of `CL.THROTTLE` that asks as fast as it is answered, or at a rate whatever it is answered.
//!
//! One thread, a few connections, `poll`. Asks that have fallen due are written at once; the time of one begins when it
//! fell due.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tollgate::clock;

use super::work::{Keys, Work, spell};

const CONNECTIONS: usize = 8;
/// Asks under way on each in the closed loop.
const TOGETHER: usize = 8;
/// Lines of an answer: how many numbers follow, and five of them.
const LINES: usize = 6;
/// Asks of the open loop that may be unanswered.
const UNANSWERED_MAX: usize = 1_000_000;

/// How asks follow each other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pace {
    Closed,
    PerSecond(f64),
}

/// What a run came to.
#[derive(Debug)]
pub(super) struct Did {
    pub asked: u64,
    pub elapsed: Duration,
    /// Nanoseconds from when each fell due.
    pub took: Vec<u32>,
}

/// A connection, and when its unanswered asks fell due.
#[derive(Debug)]
struct Line {
    stream: TcpStream,
    due: VecDeque<Duration>,
    out: Vec<u8>,
    /// Of the answer that is being read: its lines so far, and whether the next byte begins one.
    lines: usize,
    is_first_byte: bool,
}

/// Connections to a server.
#[derive(Debug)]
pub(super) struct Client {
    lines: Vec<Line>,
    keys: Keys,
    /// What follows the key.
    limit: &'static str,
    admitted: u64,
    began: Instant,
}

impl Client {
    /// Connects, and drains what is to be drained.
    pub(super) fn new(port: u16, work: Work, keys: Keys) -> Result<Client> {
        let mut lines = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let (due, out) = (VecDeque::new(), Vec::new());
            lines.push(Line { stream, due, out, lines: 0, is_first_byte: true });
        }
        let limit = match work {
            Work::Unique | Work::Zipf => "$3\r\n999\r\n$4\r\n1000\r\n$2\r\n60\r\n",
            Work::Hot => "$8\r\n99999999\r\n$9\r\n100000000\r\n$1\r\n1\r\n",
            Work::Drained => "$1\r\n0\r\n$1\r\n1\r\n$5\r\n86400\r\n",
        };
        Ok(Client { lines, keys, limit, admitted: 0, began: clock::instant() })
    }

    /// Admitted, of what the limits allow.
    #[expect(clippy::cast_precision_loss, reason = "counts of asks are far below 2^52")]
    pub(super) fn admitted_of_allowed(&self) -> f64 {
        self.admitted as f64 / self.keys.allowed(self.began.elapsed())
    }

    /// Asks for so long, and waits for the last answer.
    pub(super) fn run(&mut self, pace: Pace, span: Duration) -> Result<Did> {
        let (before, started) = (self.keys.asked(), clock::instant());
        let (mut took, mut due, mut turn) = (Vec::new(), Duration::ZERO, 0);
        loop {
            let now = started.elapsed();
            if now < span {
                match pace {
                    Pace::Closed => {
                        for at in 0..self.lines.len() {
                            while self.lines[at].due.len() < TOGETHER {
                                self.ask(at, now);
                            }
                        }
                    }
                    Pace::PerSecond(rate) => {
                        while due <= now {
                            self.ask(turn % CONNECTIONS, due);
                            turn += 1;
                            due += Duration::from_secs_f64(-(1.0 - fastrand::f64()).ln() / rate);
                        }
                    }
                }
            }
            let unanswered: usize = self.lines.iter().map(|line| line.due.len()).sum();
            ensure!(unanswered < UNANSWERED_MAX, "{unanswered} asks wait: that is too much");
            if now >= span && unanswered == 0 {
                break;
            }
            let wait = match pace {
                Pace::PerSecond(_) if now < span => due.saturating_sub(now),
                _ => Duration::from_secs(1),
            };
            self.exchange(wait)?;
            for line in &mut self.lines {
                self.admitted += line.read(started, &mut took)?;
            }
        }
        Ok(Did { asked: self.keys.asked() - before, elapsed: started.elapsed(), took })
    }

    fn ask(&mut self, at: usize, due: Duration) {
        let mut text = [0; 25];
        let key = spell(self.keys.next(), &mut text);
        let line = &mut self.lines[at];
        let _ = write!(line.out, "*5\r\n$11\r\nCL.THROTTLE\r\n${}\r\n", key.len()); // to a Vec: cannot fail
        line.out.extend_from_slice(key);
        line.out.extend_from_slice(b"\r\n");
        line.out.extend_from_slice(self.limit.as_bytes());
        line.due.push_back(due);
    }

    /// Writes what there is to write, and waits until something can be read.
    fn exchange(&mut self, at_most: Duration) -> Result<()> {
        for line in &mut self.lines {
            match line.stream.write(&line.out) {
                Ok(written) => drop(line.out.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut waiting: Vec<PollFd<'_>> =
            self.lines.iter().map(|line| PollFd::new(&line.stream, PollFlags::IN)).collect();
        poll(&mut waiting, Some(&Timespec::try_from(at_most)?))?;
        Ok(())
    }
}

impl Line {
    /// Reads what is there; says how many were admitted.
    fn read(&mut self, started: Instant, took: &mut Vec<u32>) -> Result<u64> {
        let mut bytes = [0; 16 * 1024];
        let mut admitted = 0;
        if self.due.is_empty() {
            return Ok(0);
        }
        let count = match self.stream.read(&mut bytes) {
            Ok(0) => anyhow::bail!("the server has gone"),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let now = started.elapsed();
        for (at, byte) in bytes[..count].iter().enumerate() {
            if self.is_first_byte {
                ensure!(*byte != b'-', "refused: {}", String::from_utf8_lossy(&bytes[at..count]));
            }
            // The first number says whether it was refused; it is a single digit.
            admitted += u64::from(self.lines == 1 && *byte == b'0');
            self.is_first_byte = *byte == b'\n';
            self.lines += usize::from(*byte == b'\n');
            if self.lines == LINES {
                self.lines = 0;
                let due = self.due.pop_front().unwrap_or(now);
                took.push(u32::try_from(now.saturating_sub(due).as_nanos()).unwrap_or(u32::MAX));
            }
        }
        Ok(admitted)
    }
}
