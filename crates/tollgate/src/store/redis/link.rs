//! One multiplexed connection, kept alive by its own task.
//!
//! No client we know leaves a demoted, hung or blackholed Redis by itself, so this one does:
//!
//! - Every request takes its place in a queue of unanswered ones, and replies are matched to that
//!   queue in order. A caller that gave up leaves its place behind, so a late reply is swallowed
//!   there and can never answer somebody else.
//! - A request whose caller has gone before it was written is not written.
//! - A connection is given up when its oldest request waits longer than `read_timeout`, when
//!   several callers in a row have given up, or when the server says that it is not a primary.
//! - What was unanswered then is lost, never sent again: it may have been spent.
//! - While the first dial after a loss is under way, requests wait for it (their deadline runs).
//!   Once a dial has failed they are refused at once, until one succeeds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tollgate_core::store::{ErrorClass, StoreError};

use super::call::Functions;
use super::classify::{answered, class_of, is_fatal};
use super::config::RedisConfig;
use super::dial::Stream;
use super::node::Server;
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
    /// Whether asks go out as calls of functions.
    pub functions: Functions,
    /// Dials that succeeded.
    pub dials: AtomicU64,
    /// Dials that failed.
    pub dial_errors: AtomicU64,
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

/// Bytes to write, and whom to tell: the last of its replies, or why that one failed.
#[derive(Debug)]
struct Request {
    bytes: Vec<u8>,
    replies: u8,
    done: oneshot::Sender<Result<Reply, StoreError>>,
}

/// A request that was written.
struct Unanswered {
    replies: u8,
    /// The first failure among its replies but the last.
    failed: Option<Reply>,
    since: Instant,
    done: oneshot::Sender<Result<Reply, StoreError>>,
}

impl Link {
    /// Starts a link to a server on the current runtime.
    pub(super) fn spawn(shared: Arc<Shared>, server: Arc<Server>) -> Link {
        let (queue, requests) = mpsc::channel(QUEUE_MAX);
        let status = Arc::new(Status::default());
        tokio::spawn(keep(shared, server, requests, Arc::clone(&status)));
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
        if self.status.is_down.load(Ordering::Acquire)
            && let Some(error) = self.status.down.lock().clone()
        {
            return Err(error);
        }
        let (done, answer) = oneshot::channel();
        self.queue.try_send(Request { bytes, replies, done }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                StoreError::Unreachable { why: "too many requests wait already".into() }
            }
            mpsc::error::TrySendError::Closed(_) => {
                StoreError::Unreachable { why: "its runtime has ended".into() }
            }
        })?;
        answer.await.unwrap_or_else(|_| Err(StoreError::Lost { why: "it was given up".into() }))
    }
}

/// Dials, serves, and dials again, until every handle is gone.
async fn keep(
    shared: Arc<Shared>,
    server: Arc<Server>,
    mut requests: mpsc::Receiver<Request>,
    status: Arc<Status>,
) {
    let mut failures: u32 = 0;
    loop {
        let dialled = {
            let _turn = server.dialling.acquire().await;
            timeout(shared.config.dial_timeout, server.dial(&shared)).await
        };
        let error = match dialled {
            Ok(Ok((stream, greeting, endpoint))) => {
                shared.dials.fetch_add(1, Ordering::Relaxed);
                shared.functions.try_again();
                if let Some(time) = greeting.time {
                    server.anchor.set(time);
                }
                let born = Instant::now();
                status.up();
                server.opened.notify_waiters();
                let end = tokio::select! {
                    end = serve(stream, &shared, &mut requests, &status) => end,
                    // What is unanswered is lost: an answer of a server that is no longer the one may never come.
                    () = server.moved(&endpoint) => End::Lost("another server was made the primary".to_owned()),
                };
                status.is_open.store(false, Ordering::Relaxed);
                status.unanswered.store(0, Ordering::Relaxed);
                let error = match end {
                    End::Unwanted => return,
                    End::Lost(why) => StoreError::Unreachable { why: why.into() },
                    End::Left(error) => error,
                };
                tracing::debug!(%error, "connection to Redis ended");
                server.doubt();
                if born.elapsed() >= LIFE_MIN {
                    failures = 0;
                    continue;
                }
                error
            }
            Ok(Err(error)) => error,
            Err(_) => server.lost_sight().unwrap_or_else(|| {
                let waited_ms = shared.config.dial_timeout.as_millis();
                StoreError::Unreachable { why: format!("no answer to the dial within {waited_ms}ms").into() }
            }),
        };
        server.doubt();
        shared.dial_errors.fetch_add(1, Ordering::Relaxed);
        failures = failures.saturating_add(1);
        status.down(&error);
        refuse_waiting(&mut requests, &error);
        if requests.is_closed() && requests.is_empty() {
            return;
        }
        let pause = backoff(failures, shared.config.max_retries);
        tokio::select! {
            () = sleep(pause) => {}
            () = server.nudge.notified() => {}
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
fn refuse_waiting(requests: &mut mpsc::Receiver<Request>, error: &StoreError) {
    while let Ok(request) = requests.try_recv() {
        let _ = request.done.send(Err(error.clone()));
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
    status: &Status,
) -> End {
    let mut unanswered: VecDeque<Unanswered> = VecDeque::new();
    let mut input = BytesMut::with_capacity(16 * 1024);
    let mut output = Vec::with_capacity(16 * 1024);
    let mut late: u32 = 0;
    let mut fatal: Option<StoreError> = None;
    let mut watch = interval((shared.config.read_timeout / 4).max(Duration::from_millis(5)));
    watch.set_missed_tick_behavior(MissedTickBehavior::Delay);

    let end = loop {
        if let Some(error) = fatal.take_if(|_| unanswered.is_empty()) {
            break End::Left(error);
        }
        tokio::select! {
            biased;
            read = stream.read_buf(&mut input) => {
                match read {
                    Ok(0) => break End::Lost("closed by the server".to_owned()),
                    Ok(_) => {}
                    Err(error) => break End::Lost(error.to_string()),
                }
                match deliver(&mut input, &mut unanswered, &mut late) {
                    Ok(None) => {}
                    Ok(Some(error)) => fatal = Some(error),
                    Err(why) => break End::Lost(why),
                }
                status.unanswered.store(unanswered.len() as u64, Ordering::Relaxed);
                if late >= LATE_MAX && fatal.is_none() {
                    let why = format!("{late} answers in a row came too late");
                    fatal = Some(StoreError::Unreachable { why: why.into() });
                }
            }
            request = requests.recv(), if fatal.is_none() && unanswered.len() < QUEUE_MAX => {
                let Some(request) = request else { break End::Unwanted };
                output.clear();
                enqueue(request, &mut output, &mut unanswered);
                while let Ok(request) = requests.try_recv() {
                    enqueue(request, &mut output, &mut unanswered);
                    if unanswered.len() >= QUEUE_MAX {
                        break;
                    }
                }
                status.unanswered.store(unanswered.len() as u64, Ordering::Relaxed);
                let written = timeout(shared.config.write_timeout, async {
                    stream.write_all(&output).await?;
                    stream.flush().await
                });
                match written.await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => break End::Lost(error.to_string()),
                    Err(_) => break End::Lost("a write was stuck".to_owned()),
                }
            }
            _ = watch.tick() => {
                let oldest = unanswered.front().map(|request| request.since.elapsed());
                if oldest.is_some_and(|waited| waited > shared.config.read_timeout) {
                    break End::Lost("no answer".to_owned());
                }
            }
        }
    };
    if let End::Lost(why) = &end {
        for request in unanswered {
            let _ = request.done.send(Err(StoreError::Lost { why: why.clone().into() }));
        }
    }
    end
}

/// Takes a request into the next write, unless its caller has gone.
fn enqueue(request: Request, output: &mut Vec<u8>, unanswered: &mut VecDeque<Unanswered>) {
    let Request { bytes, replies, done } = request;
    if !done.is_closed() {
        output.extend_from_slice(&bytes);
        unanswered.push_back(Unanswered { replies, failed: None, since: Instant::now(), done });
    }
}

/// Hands replies to those who wait, in order. Says why if one of them is the connection's last.
fn deliver(
    input: &mut BytesMut,
    unanswered: &mut VecDeque<Unanswered>,
    late: &mut u32,
) -> Result<Option<StoreError>, String> {
    let mut fatal = None;
    while let Some(reply) = take_reply(input).map_err(|error| error.to_string())? {
        let Some(request) = unanswered.front_mut() else {
            return Err("a reply that nobody asked for".to_owned());
        };
        if let Reply::Error(message) = &reply
            && is_fatal(class_of(message))
        {
            fatal = Some(answered(message));
        }
        request.replies -= 1;
        if request.replies > 0 {
            if matches!(reply, Reply::Error(_)) {
                request.failed.get_or_insert(reply);
            }
        } else if let Some(mut request) = unanswered.pop_front() {
            let is_lost = matches!(&reply, Reply::Error(why) if class_of(why) == ErrorClass::NoScript);
            // What could not be loaded is not there to be called: the load says why.
            let reply = request.failed.take_if(|_| is_lost).unwrap_or(reply);
            let is_late = request.done.send(Ok(reply)).is_err();
            *late = if is_late { *late + 1 } else { 0 };
        }
    }
    Ok(fatal)
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
    use super::*;

    /// What the caller of a load and a call is told, of these two replies.
    fn told(replies: &str) -> Reply {
        let (done, mut answer) = oneshot::channel();
        let mut unanswered =
            VecDeque::from([Unanswered { replies: 2, failed: None, since: Instant::now(), done }]);
        let fatal = deliver(&mut BytesMut::from(replies), &mut unanswered, &mut 0).expect("RESP");
        assert!(fatal.is_none() && unanswered.is_empty());
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
