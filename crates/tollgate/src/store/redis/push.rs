//! Pushes by Redis' `PUBLISH` and `SUBSCRIBE`.
//!
//! Listening takes a connection of its own, which nothing else may be asked on. It is dialled when somebody
//! listens, greeted every second and left when it does not greet back; while it is away pushes are missed, and
//! whoever listens is told so when it is back. On a cluster any node would do: a `PUBLISH` reaches them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tollgate_core::push::{Heard, Listener, Push};
use tollgate_core::store::{ErrorClass, StoreError};

use super::RedisStore;
use super::classify::{answered, class_of};
use super::dial::Stream;
use super::link::{Shared, backoff};
use super::node::Server;
use super::reply::bad;
use super::topology::Topology;
use super::url::Endpoint;
use super::wire::{self, Reply, take_reply};
use crate::store::ears::Ears;

/// How often a silent connection is greeted.
const GREET_EVERY: Duration = Duration::from_secs(1);

/// The pause before a Redis that forbids us to listen is asked again.
const FORBIDDEN_PAUSE: Duration = Duration::from_mins(1);

/// A connection that ends sooner than this counts as a failed dial.
const LIFE_MIN: Duration = Duration::from_secs(1);

/// What a store hears.
#[derive(Debug)]
pub(super) struct Hearing {
    ears: Ears,
    channel: String,
    is_listening: AtomicBool,
    heard: AtomicU64,
    malformed: AtomicU64,
    /// The task that listens, as long as the runtime it was started on lives.
    task: Mutex<Option<AbortHandle>>,
}

impl Hearing {
    /// Nobody listens yet.
    pub(super) fn on(channel: String) -> Arc<Hearing> {
        Arc::new(Hearing {
            ears: Ears::default(),
            channel,
            is_listening: AtomicBool::new(false),
            heard: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            task: Mutex::new(None),
        })
    }

    /// Whether pushes are heard.
    pub(super) fn is_listening(&self) -> bool {
        self.is_listening.load(Ordering::Relaxed)
    }

    /// Pushes that were heard and understood.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Pushes that were not understood, and passed over.
    pub(super) fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    /// Ends the task that listens.
    pub(super) fn end(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }

    fn hear(&self, bytes: &[u8]) {
        if let Some(push) = Push::read(bytes) {
            self.heard.fetch_add(1, Ordering::Relaxed);
            self.ears.tell(Heard::Push(push));
        } else {
            self.malformed.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(bytes = bytes.len(), "a push of another form was passed over");
        }
    }
}

impl RedisStore {
    pub(super) async fn call_out(&self, push: Push<'_>) -> Result<(), StoreError> {
        let bytes = push.to_bytes().ok_or_else(|| bad("a push of ours that is too long"))?;
        let mut request = Vec::with_capacity(bytes.len() + 96);
        let words = [&b"PUBLISH"[..], self.hearing.channel.as_bytes(), &bytes];
        wire::command(&mut request, words.into_iter());
        match self.any_spot().await?.link.call(request, 1).await? {
            Reply::Integer(_) => Ok(()),
            Reply::Error(message) => Err(answered(&message)),
            _ => Err(bad("not an integer")),
        }
    }

    /// The channel that pushes go by.
    pub(super) fn channel(&self) -> &str {
        &self.hearing.channel
    }

    pub(super) fn add_listener(&self, listener: &Arc<dyn Listener>) {
        self.hearing.ears.add(listener);
    }

    /// Starts to listen on the current runtime, if somebody wants to and no task does yet.
    pub(super) fn keep_listening(&self) {
        if self.hearing.ears.is_empty() {
            return;
        }
        let mut task = self.hearing.task.lock();
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            let listening = keep(Arc::clone(&self.shared), self.topology.clone(), Arc::clone(&self.hearing));
            *task = Some(tokio::spawn(listening).abort_handle());
        }
    }
}

/// Dials, listens, and dials again.
async fn keep(shared: Arc<Shared>, topology: Topology, hearing: Arc<Hearing>) {
    let (mut failures, mut is_forbidden) = (0_u32, false);
    loop {
        let born = Instant::now();
        let error = match topology.any().await {
            Ok(node) => listen_to(&node.server, &shared, &hearing).await,
            Err(error) => error,
        };
        hearing.is_listening.store(false, Ordering::Relaxed);
        tracing::debug!(%error, "not listening for pushes");
        if matches!(&error, StoreError::Answered { class: ErrorClass::NoPermission, .. }) {
            if !is_forbidden {
                tracing::warn!(%error, "Redis lets us hear no pushes: what they would have ended ends by itself, later");
            }
            is_forbidden = true;
            sleep(FORBIDDEN_PAUSE).await;
            continue;
        }
        failures = if born.elapsed() >= LIFE_MIN { 1 } else { failures.saturating_add(1) };
        sleep(backoff(failures, shared.config.max_retries)).await;
    }
}

async fn listen_to(server: &Server, shared: &Shared, hearing: &Hearing) -> StoreError {
    match connected(shared, server).await {
        Ok((stream, endpoint)) => tokio::select! {
            error = listen(stream, shared, hearing) => error,
            () = server.moved(&endpoint) => lost("another server was made the primary"),
        },
        Err(error) => error,
    }
}

async fn connected(shared: &Shared, server: &Server) -> Result<(Stream, Endpoint), StoreError> {
    let _turn = server.dialling.acquire().await;
    match timeout(shared.config.dial_timeout, server.dial(shared)).await {
        Ok(dialled) => dialled.map(|(stream, _, endpoint)| (stream, endpoint)),
        Err(_) => Err(lost("no answer to the dial")),
    }
}

fn lost(why: &'static str) -> StoreError {
    StoreError::Unreachable { why: why.into() }
}

/// Listens until the connection is of no more use, and says why that was.
async fn listen(mut stream: Stream, shared: &Shared, hearing: &Hearing) -> StoreError {
    let mut input = BytesMut::with_capacity(4096);
    let mut output = Vec::new();
    wire::command(&mut output, [&b"SUBSCRIBE"[..], hearing.channel.as_bytes()].into_iter());
    let mut greeting = interval(GREET_EVERY);
    greeting.set_missed_tick_behavior(MissedTickBehavior::Delay);
    greeting.tick().await;
    let mut heard_at = Instant::now();
    let mut asked_at = Some(heard_at);
    loop {
        if !output.is_empty() {
            let written = timeout(shared.config.write_timeout, async {
                stream.write_all(&output).await?;
                stream.flush().await
            });
            if !matches!(written.await, Ok(Ok(()))) {
                return lost("a write failed or was stuck");
            }
            output.clear();
        }
        let silent_until = asked_at.map(|asked_at| asked_at + shared.config.read_timeout);
        tokio::select! {
            read = stream.read_buf(&mut input) => match read {
                Ok(0) => return lost("closed by the server"),
                Ok(_) => {
                    heard_at = Instant::now();
                    asked_at = None;
                    loop {
                        match take_reply(&mut input) {
                            Ok(None) => break,
                            Ok(Some(reply)) => {
                                if let Err(error) = take_in(reply, hearing) {
                                    return error;
                                }
                            }
                            Err(_) => return lost("what came is no reply"),
                        }
                    }
                }
                Err(error) => return StoreError::Unreachable { why: error.to_string().into() },
            },
            () = until(silent_until) => return lost("no answer"),
            _ = greeting.tick() => {
                if heard_at.elapsed() >= GREET_EVERY / 2 && asked_at.is_none() {
                    wire::command(&mut output, [&b"PING"[..]].into_iter());
                    asked_at = Some(Instant::now());
                }
            }
        }
    }
}

/// Waits for a moment, or for ever.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// One thing that came by: a push, that we listen from now on, an answer to a greeting, or an error.
fn take_in(reply: Reply, hearing: &Hearing) -> Result<(), StoreError> {
    match reply {
        Reply::Array(parts) => match parts.as_slice() {
            [Reply::Bulk(kind), Reply::Bulk(_), Reply::Bulk(bytes)] if kind == b"message" => {
                hearing.hear(bytes);
                Ok(())
            }
            [Reply::Bulk(kind), Reply::Bulk(_), Reply::Integer(_)] if kind == b"subscribe" => {
                hearing.is_listening.store(true, Ordering::Relaxed);
                hearing.ears.tell(Heard::Gap);
                Ok(())
            }
            _ => Ok(()),
        },
        // A user that may not PING is answered too.
        Reply::Error(message) if class_of(&message) == ErrorClass::NoPermission && hearing.is_listening() => {
            Ok(())
        }
        Reply::Error(message) => Err(answered(&message)),
        _ => Ok(()),
    }
}
