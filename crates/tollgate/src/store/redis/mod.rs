//! State in Redis: one call of a function or a script per ask, on Redis' own clock.
//!
//! This room knows Redis; it knows no ask, no rule and no patience. It neither retries nor waits
//! out a deadline: only an answer that proves nothing ran (a function or a script that is not there,
//! windows that were stale) is followed by another call.

mod anchor;
mod board;
mod call;
mod classify;
mod config;
mod dial;
mod inspect;
mod link;
mod push;
mod reply;
mod request;
mod scripts;
mod tls;
mod wire;

pub use config::{Endpoint, Layout, RedisConfig, RedisUrl, Secret, UrlError};
pub use inspect::{Content, Inspected};

use std::cell::RefCell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tollgate_core::algorithm::Algorithm;
use tollgate_core::board::{Board, Notice, Post};
use tollgate_core::check::{Check, Refund};
use tollgate_core::decision::{Decision, Found, Refunded};
use tollgate_core::few::Few;
use tollgate_core::key::Key;
use tollgate_core::push::{Listener, Push};
use tollgate_core::store::{Heartbeat, Reach, Store, StoreError};
use tollgate_core::units::Micros;

use crate::clock;
use anchor::Anchor;
use call::Functions;
use classify::answered;
use dial::time_of;
use link::{Link, Shared};
use push::Hearing;
use reply::Answer;
use request::{Naming, has_calendar};
use scripts::{Called, Scripts, Verb};
use tls::Tls;
use wire::Reply;

/// How long an instance counts as alive after it was last heard.
const ALIVE_FOR: Micros = Micros::from_secs(5);

/// How long the connections of checks may take to follow the one of heartbeats back. Bounded,
/// because one of them may belong to a runtime that nobody drives.
const FOLLOW_MAX: Duration = Duration::from_secs(1);

/// The pause before a connection that refused to ask is asked to again.
const FOLLOW_PAUSE: Duration = Duration::from_millis(5);

/// Keeps state in one Redis or Valkey.
#[derive(Debug)]
pub struct RedisStore {
    id: usize,
    shared: Arc<Shared>,
    scripts: Scripts,
    naming: Naming,
    /// One connection per thread that asks, up to `pool_size`.
    slots: Vec<Slot>,
    slots_given: AtomicUsize,
    /// Heartbeats have their own connection, so that a probe does not queue behind checks.
    control: Slot,
    /// Since when heartbeats have been answered, one after the other.
    answering_since: Mutex<Option<Instant>>,
    instance: String,
    malformed: AtomicU64,
    survey: Arc<Mutex<Survey>>,
    hearing: Arc<Hearing>,
}

/// What a Redis store can say about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisStats {
    /// Connections that are open.
    pub connections_open: u64,
    /// Of those, the ones with a request under way.
    pub connections_busy: u64,
    /// Dials that succeeded, since start.
    pub dials: u64,
    /// Dials that failed, since start.
    pub dial_errors: u64,
    /// Values that were not ours, since start.
    pub malformed: u64,
    /// Redis' `used_memory`, where we may ask.
    pub used_memory: Option<u64>,
    /// Redis' `maxmemory`, where we may ask and there is one.
    pub max_memory: Option<u64>,
    /// Keys in the database, where we may ask.
    pub keys: Option<u64>,
    /// Whether time comes from our own reckoning because scripts may not read Redis' clock.
    pub client_time: bool,
    /// Whether asks go out as calls of functions, rather than as scripts.
    pub functions: bool,
    /// Whether pushes are heard.
    pub listening: bool,
    /// Pushes heard, since start.
    pub pushes: u64,
    /// Pushes passed over because they were of another form, since start.
    pub pushes_malformed: u64,
}

/// Why a Redis store could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisSetupError {
    /// A TLS file could not be used.
    #[error("{path}: {why}")]
    Tls {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A place for a connection, filled by the first thread that needs it.
type Slot = Mutex<Option<Link>>;

#[derive(Debug, Default)]
struct Survey {
    used_memory: Option<u64>,
    max_memory: Option<u64>,
    keys: Option<u64>,
    asked: Option<Instant>,
}

thread_local! {
    /// Which slot of which store this thread keeps to.
    static MY_SLOTS: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
}

impl RedisStore {
    /// A store for the Redis that `config` names. Nothing is dialled yet.
    pub fn new(config: RedisConfig) -> Result<RedisStore, RedisSetupError> {
        static STORES: AtomicUsize = AtomicUsize::new(0);
        let tls = Arc::new(Tls::new(&config)?);
        let ttl_ms_min = u64::try_from(config.default_ttl.as_millis()).unwrap_or(u64::MAX);
        let anchor = Anchor::default();
        if config.client_time {
            tracing::info!("scripts are given our own reckoning of Redis' time");
            anchor.start_using();
        }
        let naming = Naming::new(&config.key_prefix, config.layout, ttl_ms_min);
        Ok(RedisStore {
            id: STORES.fetch_add(1, Ordering::Relaxed),
            scripts: Scripts::new(config.layout),
            hearing: Hearing::on(naming.channel(config.url.database)),
            naming,
            slots: (0..config.pool_size.max(1)).map(|_| Slot::default()).collect(),
            slots_given: AtomicUsize::new(0),
            control: Slot::default(),
            answering_since: Mutex::default(),
            instance: format!("{:016x}", fastrand::u64(..)),
            malformed: AtomicU64::new(0),
            survey: Arc::default(),
            shared: Arc::new(Shared {
                functions: Functions::new(config.functions),
                config,
                tls,
                dialling: Semaphore::new(1),
                anchor,
                dials: AtomicU64::new(0),
                dial_errors: AtomicU64::new(0),
                nudge: Notify::new(),
                opened: Notify::new(),
            }),
        })
    }

    /// Dials this thread's connection, so that the first check does not have to, unless
    /// `min_idle_conns` have been dialled already.
    pub fn warm(&self) {
        if self.slots_given.load(Ordering::Relaxed) < self.shared.config.min_idle_conns {
            drop(self.link());
        }
    }

    /// Asks for a sign of life on this thread's connection: what a round trip costs at the least.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        wire::command(&mut bytes, [&b"PING"[..]].into_iter());
        match self.link().call(bytes, 1).await? {
            Reply::Error(message) => Err(answered(&message)),
            _ => Ok(()),
        }
    }

    /// What the store can say about itself.
    pub fn stats(&self) -> RedisStats {
        let links = || self.slots.iter().chain([&self.control]).filter_map(|slot| slot.lock().clone());
        let survey = self.survey.lock();
        RedisStats {
            connections_open: links().filter(Link::is_open).count() as u64,
            connections_busy: links().filter(Link::is_busy).count() as u64,
            dials: self.shared.dials.load(Ordering::Relaxed),
            dial_errors: self.shared.dial_errors.load(Ordering::Relaxed),
            malformed: self.malformed.load(Ordering::Relaxed),
            used_memory: survey.used_memory,
            max_memory: survey.max_memory,
            keys: survey.keys,
            client_time: self.shared.anchor.is_used(),
            functions: self.shared.functions.are_used(),
            listening: self.hearing.is_listening(),
            pushes: self.hearing.heard(),
            pushes_malformed: self.hearing.malformed(),
        }
    }

    /// The connection this thread keeps to.
    fn link(&self) -> Link {
        let slot = MY_SLOTS.with_borrow_mut(|mine| {
            if let Some((_, slot)) = mine.iter().find(|(store, _)| *store == self.id) {
                return *slot;
            }
            let slot = self.slots_given.fetch_add(1, Ordering::Relaxed) % self.slots.len();
            mine.push((self.id, slot));
            slot
        });
        self.fill(&self.slots[slot])
    }

    fn fill(&self, slot: &Slot) -> Link {
        let mut slot = slot.lock();
        match &*slot {
            Some(link) if !link.is_dead() => link.clone(),
            _ => slot.insert(Link::spawn(Arc::clone(&self.shared))).clone(),
        }
    }

    /// The time a script is given: zero, and it reads Redis' clock; or our own reckoning of it.
    async fn now(&self, link: &Link) -> Result<Micros, StoreError> {
        let anchor = &self.shared.anchor;
        if !anchor.is_used() {
            return Ok(Micros::ZERO);
        }
        if anchor.now().is_none() {
            // Not dialled yet: as any other first request, this one waits for the dial.
            let mut bytes = Vec::new();
            wire::command(&mut bytes, [&b"TIME"[..]].into_iter());
            match link.call(bytes, 1).await? {
                Reply::Array(parts) => time_of(&parts).into_iter().for_each(|time| anchor.set(time)),
                Reply::Error(message) => return Err(answered(&message)),
                _ => {}
            }
        }
        anchor.now().ok_or(StoreError::Unreachable { why: "Redis' time is not known yet".into() })
    }

    async fn visit(&self, verb: Verb, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        let link = self.link();
        if let (Verb::Take, [check], Some(entry)) = (verb, checks, self.scripts.fast())
            && let Algorithm::TokenBucket(bucket) = check.algorithm
            && check.cost.get() <= bucket.capacity()
            && !self.shared.anchor.is_used()
        {
            let request = |called: Called<'_>| self.naming.fast(called, check, bucket);
            // A bucket has no calendar to be stale. Were it said to be, asking again might spend again.
            return match reply::decisions(self.call(&link, entry, request).await?, checks)? {
                Answer::Done(decisions) => {
                    self.count_malformed(&decisions);
                    Ok(decisions)
                }
                Answer::Stale { .. } => Err(reply::bad("a bucket that is stale")),
            };
        }
        let entry = self.scripts.pick(verb, checks.iter().map(|check| check.algorithm.kind()));
        let mut around = Micros::ZERO;
        if has_calendar(checks.iter().map(|check| check.algorithm)) {
            around = clock::wall();
        }
        for attempt in 0.. {
            let now = self.now(&link).await?;
            let request = |called: Called<'_>| self.naming.visits(called, checks, now, around);
            match reply::decisions(self.call(&link, entry, request).await?, checks)? {
                Answer::Done(decisions) => {
                    self.count_malformed(&decisions);
                    return Ok(decisions);
                }
                Answer::Stale { now } if attempt == 0 => around = now,
                Answer::Stale { .. } => break,
            }
        }
        Err(reply::bad("windows that stay stale"))
    }

    /// Waits until every connection of checks answers as well. Otherwise a store that has just
    /// called itself well would send the next checks to a dead connection, and be set aside again.
    async fn others_follow(&self) {
        let links = self.slots.iter().filter_map(|slot| slot.lock().clone());
        let mut following: JoinSet<()> =
            links.filter(|link| !link.is_dead()).map(|link| follow(link, Arc::clone(&self.shared))).collect();
        while following.join_next().await.is_some() {}
    }

    fn count_malformed(&self, decisions: &[Decision]) {
        let malformed = decisions.iter().filter(|decision| decision.found == Found::Malformed).count();
        if malformed > 0 {
            self.malformed.fetch_add(malformed as u64, Ordering::Relaxed);
            tracing::warn!(malformed, "values of a wrong type or shape under our keys were taken for absent");
        }
    }

    /// Asks Redis about its memory and its keys, now and then, where the user may.
    ///
    /// On the side: whether Redis is well must not wait for what it says about itself, and a
    /// deadline that holds one trip need not hold two.
    fn survey(&self, link: &Link) {
        const EVERY: Duration = Duration::from_secs(5);
        let mut survey = self.survey.lock();
        if survey.asked.is_some_and(|asked| asked.elapsed() < EVERY) {
            return;
        }
        survey.asked = Some(clock::instant());
        tokio::spawn(ask_survey(link.clone(), Arc::clone(&self.survey)));
    }
}

/// Returns when a link answers. It may be between dials, or hold on to a server that does not.
async fn follow(link: Link, shared: Arc<Shared>) {
    loop {
        let mut opened = pin!(shared.opened.notified());
        opened.as_mut().enable();
        if !link.is_open() {
            // If it pauses between dials: the server it waits for is there.
            shared.nudge.notify_waiters();
            opened.await;
            continue;
        }
        let mut bytes = Vec::new();
        wire::command(&mut bytes, [&b"PING"[..]].into_iter());
        // A user that may not PING is answered too.
        if link.call(bytes, 1).await.is_ok() {
            return;
        }
        tokio::time::sleep(FOLLOW_PAUSE).await;
    }
}

async fn ask_survey(link: Link, survey: Arc<Mutex<Survey>>) {
    let mut bytes = Vec::new();
    wire::command(&mut bytes, [&b"INFO"[..], b"memory"].into_iter());
    let info = link.call(bytes, 1).await;
    let mut bytes = Vec::new();
    wire::command(&mut bytes, [&b"DBSIZE"[..]].into_iter());
    let keys = link.call(bytes, 1).await;

    let mut survey = survey.lock();
    if let Ok(Reply::Bulk(info)) = info {
        let info = String::from_utf8_lossy(&info);
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        survey.used_memory = field("used_memory:");
        survey.max_memory = field("maxmemory:").filter(|&bytes| bytes > 0);
    }
    if let Ok(Reply::Integer(count)) = keys {
        survey.keys = u64::try_from(count).ok();
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.hearing.end();
    }
}

impl Store for RedisStore {
    async fn take(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        self.visit(Verb::Take, checks).await
    }

    async fn peek(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        self.visit(Verb::Peek, checks).await
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<Few<Refunded>, StoreError> {
        let link = self.link();
        let mut around = clock::wall();
        let mut refunded: Vec<Option<Refunded>> = vec![None; refunds.len()];
        for _ in 0..2 {
            let open: Vec<usize> = (0..refunds.len()).filter(|&at| refunded[at].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let asked: Vec<Refund<'_>> = open.iter().map(|&at| refunds[at]).collect();
            let entry =
                self.scripts.pick(Verb::Refund, asked.iter().map(|refund| refund.check.algorithm.kind()));
            let now = self.now(&link).await?;
            let request = |called: Called<'_>| self.naming.refunds(called, &asked, now, around);
            let (now, answers) = reply::refunds(self.call(&link, entry, request).await?, &asked)?;
            around = now;
            for (at, answer) in open.into_iter().zip(answers) {
                refunded[at] = answer;
            }
        }
        refunded
            .into_iter()
            .map(|answer| answer.ok_or_else(|| reply::bad("windows that stay stale")))
            .collect()
    }

    async fn forget(&self, keys: &[Key<'_>]) -> Result<(), StoreError> {
        let names: Vec<String> = keys
            .iter()
            .map(|key| {
                let mut name = String::new();
                self.naming.write_key(key, &mut name);
                name
            })
            .collect();
        let words: Vec<&[u8]> =
            std::iter::once(&b"DEL"[..]).chain(names.iter().map(String::as_bytes)).collect();
        let mut bytes = Vec::new();
        wire::command(&mut bytes, words.into_iter());
        match self.link().call(bytes, 1).await? {
            Reply::Integer(_) => Ok(()),
            Reply::Error(message) => Err(answered(&message)),
            _ => Err(reply::bad("not an integer")),
        }
    }

    async fn post(&self, name: &[u8], notice: Option<Notice<'_>>) -> Result<Post, StoreError> {
        self.post_notice(name, notice).await
    }

    async fn board(&self, seen: u64) -> Result<Option<Board>, StoreError> {
        self.board_since(seen).await
    }

    async fn publish(&self, push: Push<'_>) -> Result<(), StoreError> {
        self.call_out(push).await
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.add_listener(&listener);
    }

    fn reach(&self) -> Reach {
        Reach::Fleet
    }

    async fn heartbeat(&self) -> Result<Heartbeat, StoreError> {
        self.keep_listening();
        let link = self.fill(&self.control);
        let now = self.now(&link).await?;
        let request = |called: Called<'_>| self.naming.heartbeat(called, &self.instance, ALIVE_FOR, now);
        // Forgotten unless this one is answered too, also if the caller gives it up.
        let since = self.answering_since.lock().take();
        let answer = reply::integers(self.call(&link, self.scripts.heartbeat(), request).await?, 2)?;
        let since = since.unwrap_or_else(clock::instant);
        *self.answering_since.lock() = Some(since);
        self.survey(&link);
        if since.elapsed() < FOLLOW_MAX {
            self.others_follow().await;
        }
        Ok(Heartbeat { instances: u32::try_from(answer[1]).unwrap_or(u32::MAX) })
    }
}
