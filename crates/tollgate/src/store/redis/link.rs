//! One multiplexed connection, kept alive by its own task.
//!
//! No client we know leaves a demoted, hung or blackholed Redis by itself, so this one does:
//!
//! - Every request takes its place in a queue of unanswered ones, and replies are matched to that
//!   queue in order. A caller that gave up leaves its place behind, so a late reply is swallowed
//!   there and can never answer somebody else.
//! - A request whose caller has gone before it was written is not written.
//! - Takes go out at once while none is in flight. Those that arrive meanwhile wait for its answer, but
//!   no longer than `batch_wait`, and then travel together (`batch.rs`).
//! - A connection is given up when its oldest request waits longer than `read_timeout`, when
//!   several callers in a row have given up, or when the server says that it is not a primary.
//! - What was unanswered then is lost, never sent again: it may have been spent.
//! - While the first dial after a loss is under way, requests wait for it (their deadline runs).
//!   Once a dial has failed they are refused at once, until one succeeds.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tollgate_core::store::{ErrorClass, StoreError};
use tollgate_core::units::Micros;

use super::RedisSetupError;
use super::anchor::Anchor;
use super::batch::{Batch, Sizes, Told, Waiting};
use super::call::Functions;
use super::classify::{answered, class_of, is_fatal};
use super::config::RedisConfig;
use super::dial::{Stream, dial};
use super::part::Part;
use super::scripts::Scripts;
use super::tls::Tls;
use super::wire::{Reply, take_reply};

/// Requests that may wait to be written, and as many again that may wait for their answer.
const QUEUE_MAX: usize = 4096;

/// Callers in a row that may give up before the connection is.
const LATE_MAX: u32 = 10;

/// The longest pause between two dials.
const BACKOFF_MAX: Duration = Duration::from_millis(250);

/// The first pause between two dials.
const BACKOFF_MIN: Duration = Duration::from_millis(10);

/// A connection that ends sooner than this counts as a failed dial, so that a server which
/// accepts and then refuses is not dialled without pause.
const LIFE_MIN: Duration = Duration::from_secs(1);

/// What the links of one store share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The settings.
    pub config: RedisConfig,
    /// TLS, prepared.
    pub tls: Arc<Tls>,
    /// One dial at a time in a process: a fleet that lost its Redis does not storm it.
    pub dialling: Semaphore,
    /// Our own reckoning of Redis' clock, where scripts may not read it.
    pub anchor: Anchor,
    /// Whether asks go out as calls of functions.
    pub functions: Functions,
    /// All the Lua.
    pub scripts: Scripts,
    /// How many asks went out together.
    pub sizes: Sizes,
    /// Dials that succeeded.
    pub dials: AtomicU64,
    /// Dials that failed.
    pub dial_errors: AtomicU64,
    /// Wakes links that pause between dials.
    pub nudge: Notify,
    /// Tells of every connection that has been opened.
    pub opened: Notify,
}

impl Shared {
    /// For the Redis that `config` names.
    pub(super) fn new(config: RedisConfig) -> Result<Shared, RedisSetupError> {
        let anchor = Anchor::default();
        if config.client_time {
            tracing::info!("scripts are given our own reckoning of Redis' time");
            anchor.start_using();
        }
        Ok(Shared {
            tls: Arc::new(Tls::new(&config)?),
            dialling: Semaphore::new(1),
            anchor,
            functions: Functions::new(config.functions),
            scripts: Scripts::new(config.layout),
            sizes: Sizes::default(),
            dials: AtomicU64::new(0),
            dial_errors: AtomicU64::new(0),
            nudge: Notify::new(),
            opened: Notify::new(),
            config,
        })
    }
}

/// A handle to one connection and its task.
#[derive(Debug, Clone)]
pub(super) struct Link {
    queue: mpsc::Sender<Request>,
    status: Arc<Status>,
}

#[derive(Debug, Default)]
struct Status {
    is_open: AtomicBool,
    /// Why the last dial failed, while dials fail.
    down: Mutex<Option<StoreError>>,
    is_down: AtomicBool,
    unanswered: AtomicU64,
}

/// What is asked of a connection.
#[derive(Debug)]
enum Request {
    /// Bytes to write, and whom to tell: the last of their replies, or why that one failed.
    Call { bytes: Vec<u8>, replies: u8, done: oneshot::Sender<Result<Reply, StoreError>> },
    /// An ask, which may travel with others.
    Take(Waiting),
}

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
struct Line<'a> {
    shared: &'a Shared,
    unanswered: VecDeque<Unanswered>,
    /// Takes that are not written yet. They outlive the connection: nothing of them was sent.
    waiting: &'a mut VecDeque<Waiting>,
    /// Calls with takes among the unanswered ones.
    takes_under_way: usize,
    /// Until when takes are kept waiting for them.
    held_until: Option<Instant>,
    /// What is to be written.
    output: Vec<u8>,
    /// Callers in a row that had given up.
    late: u32,
    /// Why the connection is to be left once all is answered.
    fatal: Option<StoreError>,
}

impl Link {
    /// Starts a link on the current runtime.
    pub(super) fn spawn(shared: Arc<Shared>) -> Link {
        let (queue, requests) = mpsc::channel(QUEUE_MAX);
        let status = Arc::new(Status::default());
        tokio::spawn(keep(shared, requests, Arc::clone(&status)));
        Link { queue, status }
    }

    /// Whether its task has ended, as it does with the runtime it was started on.
    pub(super) fn is_dead(&self) -> bool {
        self.queue.is_closed()
    }

    /// Whether there is a connection.
    pub(super) fn is_open(&self) -> bool {
        self.status.is_open.load(Ordering::Relaxed)
    }

    /// Whether there is a connection with requests under way.
    pub(super) fn is_busy(&self) -> bool {
        self.is_open() && self.status.unanswered.load(Ordering::Relaxed) > 0
    }

    /// Sends `bytes`, a pipeline of `replies` commands, and waits for the last one's reply; where that
    /// is a lost script or function, for what an earlier one says about it.
    pub(super) async fn call(&self, bytes: Vec<u8>, replies: u8) -> Result<Reply, StoreError> {
        let (done, answer) = oneshot::channel();
        self.queue(Request::Call { bytes, replies, done })?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Asks, alone or with others that wait, and waits for the answer.
    ///
    /// hot path: no lock, no clock; the ask is written once, by the connection's own task.
    pub(super) async fn take(&self, part: Part) -> Result<Told, StoreError> {
        let (done, answer) = oneshot::channel();
        self.queue(Request::Take(Waiting { part, done }))?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    fn queue(&self, request: Request) -> Result<(), StoreError> {
        if self.status.is_down.load(Ordering::Acquire)
            && let Some(error) = self.status.down.lock().clone()
        {
            return Err(error);
        }
        self.queue.try_send(request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                StoreError::Unreachable { why: "too many requests wait already".into() }
            }
            mpsc::error::TrySendError::Closed(_) => {
                StoreError::Unreachable { why: "its runtime has ended".into() }
            }
        })
    }
}

fn ended() -> StoreError {
    StoreError::Lost { why: "its task has ended".into() }
}

/// Dials, serves, and dials again, until every handle is gone.
async fn keep(shared: Arc<Shared>, mut requests: mpsc::Receiver<Request>, status: Arc<Status>) {
    let mut failures: u32 = 0;
    let mut waiting = VecDeque::new();
    loop {
        let dialled = {
            let _turn = shared.dialling.acquire().await;
            let config = &shared.config;
            let wants_time = shared.anchor.is_used();
            timeout(config.dial_timeout, dial(&config.url, &shared.tls, wants_time)).await
        };
        let error = match dialled {
            Ok(Ok((stream, greeting))) => {
                shared.dials.fetch_add(1, Ordering::Relaxed);
                shared.functions.try_again();
                if let Some(time) = greeting.time {
                    shared.anchor.set(time);
                }
                let born = Instant::now();
                status.up();
                shared.opened.notify_waiters();
                let end = serve(stream, &shared, &mut requests, &mut waiting, &status).await;
                status.is_open.store(false, Ordering::Relaxed);
                let error = match end {
                    End::Unwanted => return,
                    End::Lost(why) => StoreError::Unreachable { why: why.into() },
                    End::Left(error) => error,
                };
                tracing::debug!(%error, "connection to Redis ended");
                if born.elapsed() >= LIFE_MIN {
                    failures = 0;
                    continue;
                }
                error
            }
            Ok(Err(error)) => error,
            Err(_) => {
                let waited_ms = shared.config.dial_timeout.as_millis();
                StoreError::Unreachable { why: format!("no answer to the dial within {waited_ms}ms").into() }
            }
        };
        shared.dial_errors.fetch_add(1, Ordering::Relaxed);
        failures = failures.saturating_add(1);
        status.down(&error);
        refuse_waiting(&mut requests, &mut waiting, &error);
        if requests.is_closed() && requests.is_empty() {
            return;
        }
        let pause = backoff(failures, shared.config.max_retries);
        tokio::select! {
            () = sleep(pause) => {}
            () = shared.nudge.notified() => {}
        }
    }
}

/// Full jitter, growing from the first failure past `max_retries` quick ones.
pub(super) fn backoff(failures: u32, max_retries: u32) -> Duration {
    let growth = failures.saturating_sub(max_retries).min(10);
    let most = BACKOFF_MIN.saturating_mul(1 << growth).min(BACKOFF_MAX);
    most.mul_f64(0.25 + 0.75 * fastrand::f64())
}

/// Nothing was sent, so nothing was spent.
fn refuse_waiting(
    requests: &mut mpsc::Receiver<Request>,
    waiting: &mut VecDeque<Waiting>,
    error: &StoreError,
) {
    for ask in waiting.drain(..) {
        let _ = ask.done.send(Err(error.clone()));
    }
    while let Ok(request) = requests.try_recv() {
        match request {
            Request::Call { done, .. } => drop(done.send(Err(error.clone()))),
            Request::Take(ask) => drop(ask.done.send(Err(error.clone()))),
        }
    }
}

/// How serving a connection ended.
enum End {
    /// The connection broke, with what was unanswered on it.
    Lost(String),
    /// Everything is answered, and an answer says that the connection is of no more use.
    Left(StoreError),
    /// Nobody has a handle any more.
    Unwanted,
}

/// Writes requests and reads replies until the connection is of no more use.
async fn serve(
    mut stream: Stream,
    shared: &Shared,
    requests: &mut mpsc::Receiver<Request>,
    waiting: &mut VecDeque<Waiting>,
    status: &Status,
) -> End {
    let mut input = BytesMut::with_capacity(16 * 1024);
    let mut line = Line::new(shared, waiting);
    let (mut hold, mut hold_set) = (pin!(sleep(shared.config.batch_wait)), None);
    let mut watch = interval((shared.config.read_timeout / 4).max(Duration::from_millis(5)));
    watch.set_missed_tick_behavior(MissedTickBehavior::Delay);

    let end = loop {
        line.send_takes();
        status.unanswered.store(line.unanswered.len() as u64, Ordering::Relaxed);
        if !line.output.is_empty() {
            let written = timeout(shared.config.write_timeout, async {
                stream.write_all(&line.output).await?;
                stream.flush().await
            });
            match written.await {
                Ok(Ok(())) => line.output.clear(),
                Ok(Err(error)) => break End::Lost(error.to_string()),
                Err(_) => break End::Lost("a write was stuck".to_owned()),
            }
        }
        if let Some(error) = line.fatal.take_if(|_| line.unanswered.is_empty()) {
            break End::Left(error);
        }
        if let Some(until) = line.held_until.filter(|_| line.held_until != hold_set) {
            hold.as_mut().reset(until);
            hold_set = line.held_until;
        }
        tokio::select! {
            biased;
            read = stream.read_buf(&mut input) => {
                match read {
                    Ok(0) => break End::Lost("closed by the server".to_owned()),
                    Ok(_) => {}
                    Err(error) => break End::Lost(error.to_string()),
                }
                if let Err(why) = line.deliver(&mut input) {
                    break End::Lost(why);
                }
            }
            request = requests.recv(), if line.has_room() => {
                let Some(request) = request else { break End::Unwanted };
                line.accept(request);
                while line.has_room() && let Ok(request) = requests.try_recv() {
                    line.accept(request);
                }
            }
            () = hold.as_mut(), if line.held_until.is_some() => line.held_until = None,
            _ = watch.tick() => {
                let oldest = line.unanswered.front().map(|request| request.since.elapsed());
                if oldest.is_some_and(|waited| waited > shared.config.read_timeout) {
                    break End::Lost("no answer".to_owned());
                }
            }
        }
    };
    if let End::Lost(why) = &end {
        line.lose(why);
    }
    status.unanswered.store(0, Ordering::Relaxed);
    end
}

impl<'a> Line<'a> {
    fn new(shared: &'a Shared, waiting: &'a mut VecDeque<Waiting>) -> Line<'a> {
        Line {
            shared,
            unanswered: VecDeque::new(),
            waiting,
            takes_under_way: 0,
            held_until: None,
            output: Vec::with_capacity(16 * 1024),
            late: 0,
            fatal: None,
        }
    }

    fn has_room(&self) -> bool {
        self.fatal.is_none() && self.unanswered.len() < QUEUE_MAX && self.waiting.len() < QUEUE_MAX
    }

    /// Takes a request into the next write, unless its caller has gone or it is to wait.
    fn accept(&mut self, request: Request) {
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
    fn send_takes(&mut self) {
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
        let Shared { anchor, scripts, .. } = self.shared;
        // Unless time is of our own reckoning, Redis reads its clock. Whoever asks sees to it that the
        // reckoning has begun.
        let now = if anchor.is_used() { anchor.now().unwrap_or(Micros::ZERO) } else { Micros::ZERO };
        if let Some(replies) = batch.write(scripts, now, &mut self.output) {
            self.takes_under_way += 1;
            self.written(replies, Whom::Asks(batch));
        }
    }

    fn written(&mut self, replies: u8, whom: Whom) {
        self.unanswered.push_back(Unanswered { replies, failed: None, since: Instant::now(), whom });
    }

    /// Hands replies to those who wait, in order.
    fn deliver(&mut self, input: &mut BytesMut) -> Result<(), String> {
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

    /// What was written may have run, and is never sent again.
    fn lose(self, why: &str) {
        let error = StoreError::Lost { why: why.to_owned().into() };
        for request in self.unanswered {
            match request.whom {
                Whom::Caller(done) => drop(done.send(Err(error.clone()))),
                Whom::Asks(batch) => batch.lose(&error),
            }
        }
    }
}

impl Status {
    fn up(&self) {
        *self.down.lock() = None;
        self.is_down.store(false, Ordering::Release);
        self.is_open.store(true, Ordering::Relaxed);
    }

    fn down(&self, error: &StoreError) {
        *self.down.lock() = Some(error.clone());
        self.is_down.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::RedisUrl;
    use super::*;

    /// What the caller of a load and a call is told, of these two replies.
    fn told(replies: &str) -> Reply {
        let (done, mut answer) = oneshot::channel();
        let shared = Shared::new(RedisConfig::new(RedisUrl::parse("redis://localhost").expect("a URL")));
        let shared = shared.expect("no TLS to go wrong");
        let mut waiting = VecDeque::new();
        let mut line = Line::new(&shared, &mut waiting);
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
