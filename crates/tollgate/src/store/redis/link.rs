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
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tollgate_core::store::StoreError;

use super::RedisSetupError;
use super::anchor::Anchor;
use super::batch::{Sizes, Told, Waiting};
use super::call::Functions;
use super::config::RedisConfig;
use super::dial::Stream;
use super::line::Line;
use super::node::Server;
use super::part::Part;
use super::scripts::Scripts;
use super::tls::Tls;
use super::wire::Reply;

/// Requests that may wait to be written, and as many again that may wait for their answer.
pub(super) const QUEUE_MAX: usize = 4096;

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
    /// All the Lua.
    pub scripts: Scripts,
    /// How many asks went out together.
    pub sizes: Sizes,
    /// Dials that succeeded.
    pub dials: AtomicU64,
    /// Dials that failed.
    pub dial_errors: AtomicU64,
}

impl Shared {
    /// For the Redis that `config` names.
    pub(super) fn new(config: RedisConfig) -> Result<Shared, RedisSetupError> {
        Ok(Shared {
            tls: Arc::new(Tls::new(&config)?),
            functions: Functions::new(config.functions),
            scripts: Scripts::new(config.layout),
            sizes: Sizes::default(),
            dials: AtomicU64::new(0),
            dial_errors: AtomicU64::new(0),
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
pub(super) enum Request {
    /// Bytes to write, and whom to tell: the last of their replies, or why that one failed.
    Call { bytes: Vec<u8>, replies: u8, done: oneshot::Sender<Result<Reply, StoreError>> },
    /// An ask, which may travel with others.
    Take(Waiting),
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
        let (done, answer) = oneshot::channel();
        self.queue(Request::Call { bytes, replies, done })?;
        answer.await.unwrap_or_else(|_| Err(given_up()))
    }

    /// Asks, alone or with others that wait, and waits for the answer.
    ///
    /// hot path: no lock, no clock; the ask is written once, by the connection's own task.
    pub(super) async fn take(&self, part: Part) -> Result<Told, StoreError> {
        let (done, answer) = oneshot::channel();
        self.queue(Request::Take(Waiting { part, done }))?;
        answer.await.unwrap_or_else(|_| Err(given_up()))
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

fn given_up() -> StoreError {
    StoreError::Lost { why: "it was given up".into() }
}

/// Dials, serves, and dials again, until every handle is gone.
async fn keep(
    shared: Arc<Shared>,
    server: Arc<Server>,
    mut requests: mpsc::Receiver<Request>,
    status: Arc<Status>,
) {
    let mut failures: u32 = 0;
    let mut waiting = VecDeque::new();
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
                    end = serve(stream, &shared, &server.anchor, &mut requests, &mut waiting, &status) => end,
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
        refuse_waiting(&mut requests, &mut waiting, &error);
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
    anchor: &Anchor,
    requests: &mut mpsc::Receiver<Request>,
    waiting: &mut VecDeque<Waiting>,
    status: &Status,
) -> End {
    let mut input = BytesMut::with_capacity(16 * 1024);
    let mut line = Line::new(shared, anchor, waiting);
    let (mut hold, mut hold_set) = (pin!(sleep(shared.config.batch_wait)), None);
    let mut watch = interval((shared.config.read_timeout / 4).max(Duration::from_millis(5)));
    watch.set_missed_tick_behavior(MissedTickBehavior::Delay);

    let end = loop {
        line.send_takes();
        status.unanswered.store(line.unanswered() as u64, Ordering::Relaxed);
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
        if line.unanswered() == 0
            && let Some(error) = line.fatal.take()
        {
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
                if line.oldest().is_some_and(|waited| waited > shared.config.read_timeout) {
                    break End::Lost("no answer".to_owned());
                }
            }
        }
    };
    if let End::Lost(why) = &end {
        line.lose(why);
    }
    end
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
