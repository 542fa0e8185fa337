//! The least that a server over TCP can cost: it reads, counts bytes, and writes as long an answer.
//!
//! It looks at nothing and decides nothing. What it takes is the machine's and the kernel's share of
//! a command; what a door takes beyond it is the door's own. A process of its own, so that its
//! processor time can be read.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::process::Command;

use anyhow::{Context as _, Result};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use testkit::Child;

const INPUT_BYTES: usize = 64 * 1024;
const EVENTS: usize = 128;

/// Starts one that takes every `length` bytes for a command.
pub(crate) fn start(port: u16, length: usize) -> Result<Child> {
    let this = std::env::current_exe().context("this program's own path")?;
    let mut command = Command::new(this);
    command.args(["bare-child", &port.to_string(), &length.to_string()]);
    Ok(Child::spawn(&mut command))
}

/// Serves until it is ended: `PORT LENGTH`.
pub(crate) fn child(words: &[&str]) -> Result<()> {
    let [port, length] = words else { anyhow::bail!("usage: bare-child PORT LENGTH") };
    let length: usize = length.parse()?;
    // As long as CL.THROTTLE's commonest answer.
    let answer = b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";
    let answers = answer.repeat(INPUT_BYTES.div_ceil(length));
    let listener = TcpListener::bind(("127.0.0.1", port.parse::<u16>()?))?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(u64::MAX), EventFlags::IN)?;
    let mut open: Vec<Option<(TcpStream, usize)>> = Vec::new();
    let mut input = vec![0; INPUT_BYTES];
    let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
    loop {
        let ready = epoll::wait(&epoll, &mut events, None)?;
        for event in &events[..ready] {
            let place = event.data.u64();
            if place == u64::MAX {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                epoll::add(&epoll, stream.as_fd(), EventData::new_u64(open.len() as u64), EventFlags::IN)?;
                open.push(Some((stream, 0)));
                continue;
            }
            let Some(slot) = usize::try_from(place).ok().and_then(|place| open.get_mut(place)) else {
                continue;
            };
            let Some((stream, rest)) = slot else { continue };
            let read = match stream.read(&mut input) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(_) => 0,
            };
            if read == 0 {
                *slot = None;
                continue;
            }
            if input.starts_with(b"*3") {
                // `redis-benchmark` begins by asking for two settings, and does without.
                stream.write_all(b"-ERR\r\n-ERR\r\n")?;
                continue;
            }
            *rest += read;
            let whole = *rest / length;
            *rest %= length;
            stream.write_all(&answers[..whole * answer.len()])?;
        }
    }
}
