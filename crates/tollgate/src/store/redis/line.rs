//! The requests of one connection: written and unanswered, or waiting to be written.
//!
//! No socket is in here: what is to be written is appended to `output`, what was read is handed in.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_core::store::{ErrorClass, StoreError};
use tollgate_core::units::Micros;

use super::anchor::Anchor;
use super::batch::{Batch, Waiting};
use super::classify::{answered, class_of, is_fatal};
use super::link::{QUEUE_MAX, Request, Shared};
use super::wire::{Reply, take_reply};

/// Callers in a row that may give up before the connection is.
const LATE_MAX: u32 = 10;

/// A request that was written.
struct Unanswered {
    replies: u8,
    /// The first failure among its replies but the last.
    failed: Option<Reply>,
    since: Instant,
    whom: Whom,
}

/// Who waits for a reply.
enum Whom {
    Caller(oneshot::Sender<Result<Reply, StoreError>>),
    Asks(Box<Batch>),
}

/// A connection's requests, written and not.
pub(super) struct Line<'a> {
    shared: &'a Shared,
    /// Our own reckoning of the server's clock, where scripts may not read it.
    anchor: &'a Anchor,
    unanswered: VecDeque<Unanswered>,
    /// Takes that are not written yet. They outlive the connection: nothing of them was sent.
    waiting: &'a mut VecDeque<Waiting>,
    /// Calls with takes among the unanswered ones.
    takes_under_way: usize,
    /// Until when takes are kept waiting for them.
    pub held_until: Option<Instant>,
    /// What is to be written.
    pub output: Vec<u8>,
    /// Callers in a row that had given up.
    late: u32,
    /// Why the connection is to be left once all is answered.
    pub fatal: Option<StoreError>,
}

impl<'a> Line<'a> {
    /// A connection that was just opened.
    pub(super) fn new(
        shared: &'a Shared,
        anchor: &'a Anchor,
        waiting: &'a mut VecDeque<Waiting>,
    ) -> Line<'a> {
        Line {
            shared,
            anchor,
            unanswered: VecDeque::new(),
            waiting,
            takes_under_way: 0,
            held_until: None,
            output: Vec::with_capacity(16 * 1024),
            late: 0,
            fatal: None,
        }
    }

    /// Whether another request may be taken.
    pub(super) fn has_room(&self) -> bool {
        self.fatal.is_none() && self.unanswered.len() < QUEUE_MAX && self.waiting.len() < QUEUE_MAX
    }

    /// Takes a request into the next write, unless its caller has gone or it is to wait.
    pub(super) fn accept(&mut self, request: Request) {
        match request {
            Request::Take(ask) => {
                self.waiting.push_back(ask);
                if self.takes_under_way > 0 && self.shared.config.batch {
                    let wait = self.shared.config.batch_wait;
                    self.held_until.get_or_insert_with(|| Instant::now() + wait);
                }
            }
            Request::Call { bytes, replies, done } => {
                if !done.is_closed() {
                    self.output.extend_from_slice(&bytes);
                    self.written(replies, Whom::Caller(done));
                }
            }
        }
    }

    /// Takes those who wait into the next write, unless they are to wait for others in flight. All of them:
    /// what is too much for one call goes out as several, so that nobody waits longer than one round trip.
    pub(super) fn send_takes(&mut self) {
        let config = &self.shared.config;
        if self.fatal.is_some() || self.takes_under_way > 0 && self.held_until.is_some() {
            return;
        }
        self.held_until = None;
        let checks_max = if config.batch { config.batch_max } else { 1 };
        while let Some(batch) = Batch::form(self.waiting, checks_max, &self.shared.functions) {
            self.shared.sizes.count(batch.len());
            self.write(Box::new(batch));
        }
    }

    fn write(&mut self, mut batch: Box<Batch>) {
        let anchor = self.anchor;
        // Unless time is of our own reckoning, Redis reads its clock. Whoever asks sees to it that the
        // reckoning has begun.
        let now = if anchor.is_used() { anchor.now().unwrap_or(Micros::ZERO) } else { Micros::ZERO };
        if let Some(replies) = batch.write(&self.shared.scripts, now, &mut self.output) {
            self.takes_under_way += 1;
            self.written(replies, Whom::Asks(batch));
        }
    }

    fn written(&mut self, replies: u8, whom: Whom) {
        self.unanswered.push_back(Unanswered { replies, failed: None, since: Instant::now(), whom });
    }

    /// Hands replies to those who wait, in order.
    pub(super) fn deliver(&mut self, input: &mut BytesMut) -> Result<(), String> {
        while let Some(reply) = take_reply(input).map_err(|error| error.to_string())? {
            let Some(request) = self.unanswered.front_mut() else {
                return Err("a reply that nobody asked for".to_owned());
            };
            if let Reply::Error(message) = &reply
                && is_fatal(class_of(message))
            {
                self.fatal = Some(answered(message));
            }
            request.replies -= 1;
            if request.replies > 0 {
                if matches!(reply, Reply::Error(_)) {
                    request.failed.get_or_insert(reply);
                }
            } else if let Some(mut request) = self.unanswered.pop_front() {
                let is_lost = matches!(&reply, Reply::Error(why) if class_of(why) == ErrorClass::NoScript);
                // What could not be loaded is not there to be called: the load says why.
                let reply = request.failed.take_if(|_| is_lost).unwrap_or(reply);
                self.tell(request.whom, reply);
            }
        }
        if self.late >= LATE_MAX && self.fatal.is_none() {
            let why = format!("{} answers in a row came too late", self.late);
            self.fatal = Some(StoreError::Unreachable { why: why.into() });
        }
        Ok(())
    }

    fn tell(&mut self, whom: Whom, reply: Reply) {
        match whom {
            Whom::Caller(done) => {
                let is_late = done.send(Ok(reply)).is_err();
                self.late = if is_late { self.late + 1 } else { 0 };
            }
            Whom::Asks(mut batch) => {
                self.takes_under_way -= 1;
                let Shared { scripts, functions, .. } = self.shared;
                if batch.is_to_go_again(&reply, scripts, functions) {
                    self.write(batch);
                } else {
                    batch.answer(reply, &mut self.late);
                }
            }
        }
    }

    /// How many requests have no answer yet.
    pub(super) fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// How long the oldest of them has waited.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.unanswered.front().map(|request| request.since.elapsed())
    }

    /// What was written may have run, and is never sent again.
    pub(super) fn lose(self, why: &str) {
        let error = StoreError::Lost { why: why.to_owned().into() };
        for request in self.unanswered {
            match request.whom {
                Whom::Caller(done) => drop(done.send(Err(error.clone()))),
                Whom::Asks(batch) => batch.lose(&error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::RedisConfig;
    use super::super::url::RedisUrl;
    use super::*;

    /// What the caller of a load and a call is told, of these two replies.
    fn told(replies: &str) -> Reply {
        let (done, mut answer) = oneshot::channel();
        let shared = Shared::new(RedisConfig::new(RedisUrl::parse("redis://localhost").expect("a URL")));
        let shared = shared.expect("no TLS to go wrong");
        let mut waiting = VecDeque::new();
        let anchor = Anchor::default();
        let mut line = Line::new(&shared, &anchor, &mut waiting);
        line.written(2, Whom::Caller(done));
        line.deliver(&mut BytesMut::from(replies)).expect("RESP");
        assert!(line.fatal.is_none() && line.unanswered.is_empty());
        answer.try_recv().expect("it was told").expect("an answer")
    }

    #[test]
    fn a_failed_load_is_told_only_where_it_left_nothing_to_call() {
        let error = |text: &str| Reply::Error(text.to_owned());
        for (replies, expected) in [
            ("+OK\r\n:7\r\n", Reply::Integer(7)),
            ("+OK\r\n-ERR Function not found\r\n", error("ERR Function not found")),
            ("-OOM full\r\n-ERR Function not found\r\n", error("OOM full")),
            ("-NOPERM load\r\n-NOSCRIPT none\r\n", error("NOPERM load")),
            // Somebody else has loaded it in between, so it ran: that must not look as if it had not.
            ("-NOPERM load\r\n:7\r\n", Reply::Integer(7)),
            ("-NOPERM load\r\n-ERR user_function:1: no\r\n", error("ERR user_function:1: no")),
        ] {
            assert_eq!(told(replies), expected, "{replies:?}");
        }
    }
}
