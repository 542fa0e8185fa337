//! State in Redis: one call of a function or a script per ask, on Redis' own clock.
//!
//! This room knows Redis; it knows no ask, no rule and no patience. It neither retries nor waits
//! out a deadline: only an answer that proves nothing ran (a function or a script that is not there,
//! windows that were stale) is followed by another call.

mod anchor;
mod batch;
mod board;
mod breaker;
mod call;
mod classify;
mod config;
mod dial;
mod inspect;
mod line;
mod link;
mod node;
mod part;
mod plan;
mod push;
mod reply;
mod request;
mod scripts;
mod sentinel;
mod survey;
mod tls;
mod url;
mod wire;

pub use batch::BatchSizes;
pub use config::{BATCH_MAX, Layout, RedisConfig};
pub use inspect::{Content, Inspected};
pub use url::{Endpoint, RedisUrl, Secret, Seed, SentinelSeeds, UrlError};

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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
use classify::answered;
use dial::time_of;
use link::{Link, Shared};
use node::{Node, Place, Server, Spot};
use part::has_calendar;
use push::Hearing;
use reply::Answer;
use request::Naming;
use scripts::{Called, Verb};
use sentinel::Sentinels;
use survey::survey;
use wire::Reply;

/// How long an instance counts as alive after it was last heard.
const ALIVE_FOR: Micros = Micros::from_secs(5);

/// Keeps state in Redis or Valkey.
#[derive(Debug)]
pub struct RedisStore {
    id: usize,
    shared: Arc<Shared>,
    naming: Naming,
    node: Arc<Node>,
    /// How many threads have been given a number, by which they keep to a connection.
    threads: AtomicUsize,
    instance: String,
    malformed: AtomicU64,
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
    /// How many takes travelled together, call by call.
    pub batches: BatchSizes,
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

thread_local! {
    /// Which number this thread has in which store.
    static MY_NUMBERS: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
}

impl RedisStore {
    /// A store for the Redis that `config` names. Nothing is dialled yet.
    pub fn new(config: RedisConfig) -> Result<RedisStore, RedisSetupError> {
        static STORES: AtomicUsize = AtomicUsize::new(0);
        let ttl_ms_min = u64::try_from(config.default_ttl.as_millis()).unwrap_or(u64::MAX);
        if config.client_time {
            tracing::info!("scripts are given our own reckoning of Redis' time");
        }
        let naming = Naming::new(&config.key_prefix, config.layout, ttl_ms_min);
        let shared = Arc::new(Shared::new(config)?);
        let place = match &shared.config.url.endpoint {
            Endpoint::Sentinel(seeds) => Place::Primary(Arc::new(Sentinels::new(seeds))),
            endpoint => Place::Fixed(endpoint.clone()),
        };
        let server = Server::new(place, shared.config.client_time, None);
        Ok(RedisStore {
            id: STORES.fetch_add(1, Ordering::Relaxed),
            hearing: Hearing::on(naming.channel(shared.config.url.database)),
            naming,
            node: Arc::new(Node::new(&shared, server)),
            threads: AtomicUsize::new(0),
            instance: format!("{:016x}", fastrand::u64(..)),
            malformed: AtomicU64::new(0),
            shared,
        })
    }

    /// Dials this thread's connection, so that the first check does not have to, unless
    /// `min_idle_conns` have been dialled already.
    pub fn warm(&self) {
        if self.threads.load(Ordering::Relaxed) < self.shared.config.min_idle_conns {
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
        let links = || self.node.links();
        let survey = self.node.survey.lock();
        RedisStats {
            connections_open: links().filter(Link::is_open).count() as u64,
            connections_busy: links().filter(Link::is_busy).count() as u64,
            dials: self.shared.dials.load(Ordering::Relaxed),
            dial_errors: self.shared.dial_errors.load(Ordering::Relaxed),
            malformed: self.malformed.load(Ordering::Relaxed),
            used_memory: survey.used_memory,
            max_memory: survey.max_memory,
            keys: survey.keys,
            client_time: self.shared.config.client_time,
            functions: self.shared.functions.are_used(),
            batches: self.shared.sizes.counted(),
            listening: self.hearing.is_listening(),
            pushes: self.hearing.heard(),
            pushes_malformed: self.hearing.malformed(),
        }
    }

    /// The connection this thread keeps to.
    fn link(&self) -> Link {
        self.node.link(self.number())
    }

    /// The number of this thread, for as long as it lives.
    fn number(&self) -> usize {
        MY_NUMBERS.with_borrow_mut(|mine| {
            if let Some((_, number)) = mine.iter().find(|(store, _)| *store == self.id) {
                return *number;
            }
            let number = self.threads.fetch_add(1, Ordering::Relaxed);
            mine.push((self.id, number));
            number
        })
    }

    /// Where this thread asks.
    fn spot(&self) -> Spot {
        Spot { link: self.link(), node: Arc::clone(&self.node) }
    }

    /// Where heartbeats and the board are asked for, so that they do not queue behind checks.
    fn control(&self) -> Spot {
        Spot { link: self.node.control(), node: Arc::clone(&self.node) }
    }

    /// The time a script is given: zero, and it reads Redis' clock; or our own reckoning of it.
    async fn now(&self, spot: &Spot) -> Result<Micros, StoreError> {
        let anchor = &spot.node.server.anchor;
        if !anchor.is_used() {
            return Ok(Micros::ZERO);
        }
        if anchor.now().is_none() {
            // Not dialled yet: as any other first request, this one waits for the dial.
            let mut bytes = Vec::new();
            wire::command(&mut bytes, [&b"TIME"[..]].into_iter());
            match spot.link.call(bytes, 1).await? {
                Reply::Array(parts) => time_of(&parts).into_iter().for_each(|time| anchor.set(time)),
                Reply::Error(message) => return Err(answered(&message)),
                _ => {}
            }
        }
        anchor.now().ok_or(StoreError::Unreachable { why: "Redis' time is not known yet".into() })
    }

    async fn take_all(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        let spot = self.spot();
        if let [check] = checks
            && let Algorithm::TokenBucket(bucket) = check.algorithm
            && self.shared.config.layout == Layout::Packed
            && check.cost.get() <= bucket.capacity()
            && !self.shared.config.client_time
        {
            let told = spot.link.take(self.naming.bucket_part(check, bucket)).await?;
            return match self.counted(reply::told(told, checks)?) {
                Answer::Done(decisions) => Ok(decisions),
                // A bucket has no calendar to be stale. Were it said to be, asking again might spend again.
                Answer::Stale { .. } => Err(reply::bad("a bucket that is stale")),
            };
        }
        let mut around = around(checks);
        for _ in 0..2 {
            if self.shared.config.client_time {
                // Its time is read when it is sent; that there is one is seen to here.
                self.now(&spot).await?;
            }
            let told = spot.link.take(self.naming.part(checks, around)).await?;
            match self.counted(reply::told(told, checks)?) {
                Answer::Done(decisions) => return Ok(decisions),
                Answer::Stale { now } => around = now,
            }
        }
        Err(reply::bad("windows that stay stale"))
    }

    async fn look(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        let spot = self.spot();
        let mut around = around(checks);
        for _ in 0..2 {
            let now = self.now(&spot).await?;
            let part = self.naming.part(checks, around);
            let request = |called: Called<'_>| {
                let mut out = Vec::with_capacity(64 + part.bytes());
                part.write(called, now, &mut out);
                out
            };
            let entry = part.entry(&self.shared.scripts, Verb::Peek);
            let reply = self.call(&spot, entry, request).await?;
            match self.counted(reply::decisions(reply, checks)?) {
                Answer::Done(decisions) => return Ok(decisions),
                Answer::Stale { now } => around = now,
            }
        }
        Err(reply::bad("windows that stay stale"))
    }

    /// Counts what was not ours.
    fn counted(&self, answer: Answer<Few<Decision>>) -> Answer<Few<Decision>> {
        if let Answer::Done(decisions) = &answer {
            let malformed = decisions.iter().filter(|decision| decision.found == Found::Malformed).count();
            if malformed > 0 {
                self.malformed.fetch_add(malformed as u64, Ordering::Relaxed);
                tracing::warn!(
                    malformed,
                    "values of a wrong type or shape under our keys were taken for absent"
                );
            }
        }
        answer
    }
}

/// Where calendar windows are looked up first: about now, if there are any.
fn around(checks: &[Check<'_>]) -> Micros {
    if has_calendar(checks.iter().map(|check| check.algorithm)) { clock::wall() } else { Micros::ZERO }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.hearing.end();
    }
}

impl Store for RedisStore {
    async fn take(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        self.take_all(checks).await
    }

    async fn peek(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        self.look(checks).await
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<Few<Refunded>, StoreError> {
        let spot = self.spot();
        let mut around = clock::wall();
        let mut refunded: Vec<Option<Refunded>> = vec![None; refunds.len()];
        for _ in 0..2 {
            let open: Vec<usize> = (0..refunds.len()).filter(|&at| refunded[at].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let asked: Vec<Refund<'_>> = open.iter().map(|&at| refunds[at]).collect();
            let entry = self
                .shared
                .scripts
                .pick(Verb::Refund, asked.iter().map(|refund| refund.check.algorithm.kind()));
            let now = self.now(&spot).await?;
            let request = |called: Called<'_>| self.naming.refunds(called, &asked, now, around);
            let (now, answers) = reply::refunds(self.call(&spot, entry, request).await?, &asked)?;
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
        let spot = self.control();
        let since = spot.node.beats();
        let now = self.now(&spot).await?;
        let request = |called: Called<'_>| self.naming.heartbeat(called, &self.instance, ALIVE_FOR, now);
        let answer = reply::integers(self.call(&spot, self.shared.scripts.heartbeat(), request).await?, 2)?;
        survey(&spot.link, &spot.node.survey);
        spot.node.answered(since).await;
        Ok(Heartbeat { instances: u32::try_from(answer[1]).unwrap_or(u32::MAX) })
    }
}
