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
mod cluster;
mod config;
mod dial;
mod inspect;
mod inspect_breaker;
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
mod spanning;
mod survey;
mod tls;
mod topology;
mod url;
mod wire;

pub use batch::BatchSizes;
pub use config::{BATCH_MAX, Layout, RedisConfig};
pub use inspect::{Content, Inspected};
pub use inspect_breaker::InspectedBreaker;
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
use tollgate_core::store::{Heartbeat, Reach, Shard, Store, StoreError};
use tollgate_core::units::Micros;

use crate::clock;
use batch::Told;
use classify::answered;
use dial::time_of;
use link::{Link, Shared};
use node::Node;
use part::{Part, has_calendar};
use push::Hearing;
use reply::Answer;
use request::Naming;
use scripts::{Called, Verb};
use survey::{Survey, survey};
use topology::{Lane, Spot, Topology, topology};
use wire::Reply;

/// How long an instance counts as alive after it was last heard.
const ALIVE_FOR: Micros = Micros::from_secs(5);

/// Under which tag instances show themselves alive, where there is one server.
const INSTANCES: &str = "instances";

/// Keeps state in Redis or Valkey. Cheap to clone: clones share connections.
#[derive(Debug, Clone)]
pub struct RedisStore {
    id: usize,
    shared: Arc<Shared>,
    naming: Arc<Naming>,
    topology: Topology,
    /// How many threads have been given a number, by which they keep to a connection.
    threads: Arc<AtomicUsize>,
    instance: Arc<str>,
    malformed: Arc<AtomicU64>,
    hearing: Arc<Hearing>,
    /// Ends the hearing with the last clone.
    _hearing_ends: Arc<HearingEnds>,
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
        if config.client_time {
            tracing::info!("scripts are given our own reckoning of Redis' time");
        }
        let naming = Naming::new(&config);
        let hearing = Hearing::on(naming.channel(config.url.database));
        let shared = Arc::new(Shared::new(config)?);
        Ok(RedisStore {
            id: STORES.fetch_add(1, Ordering::Relaxed),
            naming: Arc::new(naming),
            topology: topology(&shared),
            threads: Arc::default(),
            instance: format!("{:016x}", fastrand::u64(..)).into(),
            malformed: Arc::default(),
            _hearing_ends: Arc::new(HearingEnds(Arc::clone(&hearing))),
            hearing,
            shared,
        })
    }

    /// Dials this thread's connections, so that the first check does not have to, unless those of
    /// `min_idle_conns` threads have been dialled already.
    pub fn warm(&self) {
        if self.threads.load(Ordering::Relaxed) >= self.shared.config.min_idle_conns {
            return;
        }
        let number = self.number();
        match &self.topology {
            Topology::One(node) => drop(node.link(number)),
            Topology::Cluster(cluster) => {
                let cluster = Arc::clone(cluster);
                tokio::spawn(async move {
                    if cluster.map().await.is_ok() {
                        cluster.nodes().iter().for_each(|node| drop(node.link(number)));
                    }
                });
            }
        }
    }

    /// Asks for a sign of life on this thread's connection: what a round trip costs at the least.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        wire::command(&mut bytes, [&b"PING"[..]].into_iter());
        match self.any_spot().await?.link.call(bytes, 1).await? {
            Reply::Error(message) => Err(answered(&message)),
            _ => Ok(()),
        }
    }

    /// What the store can say about itself.
    pub fn stats(&self) -> RedisStats {
        let nodes = self.topology.nodes();
        let count =
            |is: fn(&Link) -> bool| nodes.iter().flat_map(|node| node.links()).filter(is).count() as u64;
        // Of several, what is known of all of them.
        let total = |of: fn(&Survey) -> Option<u64>| -> Option<u64> {
            nodes
                .iter()
                .map(|node| of(&node.survey.lock()))
                .sum::<Option<u64>>()
                .filter(|_| !nodes.is_empty())
        };
        RedisStats {
            connections_open: count(Link::is_open),
            connections_busy: count(Link::is_busy),
            dials: self.shared.dials.load(Ordering::Relaxed),
            dial_errors: self.shared.dial_errors.load(Ordering::Relaxed),
            malformed: self.malformed.load(Ordering::Relaxed),
            used_memory: total(|survey| survey.used_memory),
            max_memory: total(|survey| survey.max_memory),
            keys: total(|survey| survey.keys),
            client_time: self.shared.config.client_time,
            functions: self.shared.functions.are_used(),
            batches: self.shared.sizes.counted(),
            listening: self.hearing.is_listening(),
            pushes: self.hearing.heard(),
            pushes_malformed: self.hearing.malformed(),
        }
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

    /// A take in one slot.
    async fn take_all(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        let Some(first) = checks.first() else { return Ok(Few::Many(Vec::new())) };
        let mut spot = self.spot(first.key).await?;
        if let [check] = checks
            && let Algorithm::TokenBucket(bucket) = check.algorithm
            && self.shared.config.layout == Layout::Packed
            && check.cost.get() <= bucket.capacity()
            && !self.shared.config.client_time
        {
            let told = self.tell(&mut spot, || self.naming.bucket_part(check, bucket)).await?;
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
            let told = self.tell(&mut spot, || self.naming.part(checks, around)).await?;
            match self.counted(reply::told(told, checks)?) {
                Answer::Done(decisions) => return Ok(decisions),
                Answer::Stale { now } => around = now,
            }
        }
        Err(reply::bad("windows that stay stale"))
    }

    /// One ask, with others that wait; alone, where it is sent on to a slot that is still on its way.
    async fn tell(&self, spot: &mut Spot, part: impl Fn() -> Part + Send + Sync) -> Result<Told, StoreError> {
        let mut asked = part();
        asked.slot = spot.slot;
        let mut told = spot.link.take(asked).await?;
        while let Told::Reply(Reply::Error(message)) = &told {
            if !self.is_sent_on(spot, message).await {
                break;
            }
            let (part, now) = (part(), self.now(spot).await?);
            let request = |called: Called<'_>| {
                let mut out = Vec::with_capacity(64 + part.bytes());
                part.write(called, now, &mut out);
                out
            };
            let entry = part.entry(&self.shared.scripts, Verb::Take);
            told = Told::Reply(self.call(spot, entry, request).await?);
        }
        Ok(told)
    }

    /// A look in one slot.
    async fn look(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        let Some(first) = checks.first() else { return Ok(Few::Many(Vec::new())) };
        let mut spot = self.spot(first.key).await?;
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
            let reply = self.call(&mut spot, entry, request).await?;
            match self.counted(reply::decisions(reply, checks)?) {
                Answer::Done(decisions) => return Ok(decisions),
                Answer::Stale { now } => around = now,
            }
        }
        Err(reply::bad("windows that stay stale"))
    }

    /// Refunds of one slot.
    async fn give_back(&self, refunds: &[Refund<'_>]) -> Result<Few<Refunded>, StoreError> {
        let Some(first) = refunds.first() else { return Ok(Few::Many(Vec::new())) };
        let mut spot = self.spot(first.check.key).await?;
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
            let (now, answers) = reply::refunds(self.call(&mut spot, entry, request).await?, &asked)?;
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

    /// Keys of one slot.
    async fn delete(&self, keys: &[Key<'_>]) -> Result<(), StoreError> {
        let Some(first) = keys.first() else { return Ok(()) };
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
        match self.plain(&mut self.spot(*first).await?, &words).await? {
            Reply::Integer(_) => Ok(()),
            _ => Err(reply::bad("not an integer")),
        }
    }

    /// Shows this instance alive on one node, under a tag of a slot that it serves.
    async fn beat(&self, node: Arc<Node>, tag: &str) -> Result<Heartbeat, StoreError> {
        let mut spot = Spot::new(node, Lane::Control);
        let node = Arc::clone(&spot.node);
        let since = node.beats();
        let now = self.now(&spot).await?;
        let request = |called: Called<'_>| self.naming.heartbeat(called, tag, &self.instance, ALIVE_FOR, now);
        let answer =
            reply::integers(self.call(&mut spot, self.shared.scripts.heartbeat(), request).await?, 2)?;
        survey(&node.control(), &node.survey);
        node.answered(since).await;
        Ok(Heartbeat { instances: u32::try_from(answer[1]).unwrap_or(u32::MAX) })
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

/// Ends a hearing when it is dropped.
#[derive(Debug)]
struct HearingEnds(Arc<Hearing>);

impl Drop for HearingEnds {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Store for RedisStore {
    async fn take(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        match self.slots_of(checks.iter().map(|check| check.key)) {
            None => self.take_all(checks).await,
            Some(slots) => Box::pin(self.take_across(checks, &slots)).await,
        }
    }

    async fn peek(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        match self.slots_of(checks.iter().map(|check| check.key)) {
            None => self.look(checks).await,
            Some(slots) => Box::pin(self.peek_across(checks, &slots)).await,
        }
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<Few<Refunded>, StoreError> {
        match self.slots_of(refunds.iter().map(|refund| refund.check.key)) {
            None => self.give_back(refunds).await,
            Some(slots) => Box::pin(self.give_back_across(refunds, &slots)).await,
        }
    }

    async fn forget(&self, keys: &[Key<'_>]) -> Result<(), StoreError> {
        match self.slots_of(keys.iter().copied()) {
            None => self.delete(keys).await,
            Some(slots) => Box::pin(self.delete_across(keys, &slots)).await,
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

    fn shards(&self) -> u16 {
        match &self.topology {
            Topology::One(_) => 1,
            Topology::Cluster(cluster) => cluster.shards(),
        }
    }

    fn shards_of<'a>(&self, keys: impl Iterator<Item = Key<'a>>) -> Few<Shard> {
        self.shards_of_keys(keys)
    }

    async fn heartbeat(&self) -> Result<Heartbeat, StoreError> {
        self.keep_listening();
        match &self.topology {
            Topology::One(node) => self.beat(Arc::clone(node), INSTANCES).await,
            Topology::Cluster(cluster) => {
                cluster.watch();
                cluster.is_whole().await.map(|()| Heartbeat { instances: 0 })
            }
        }
    }

    async fn heartbeat_of(&self, shard: Shard) -> Result<Heartbeat, StoreError> {
        match &self.topology {
            Topology::Cluster(cluster) if shard != Shard::WHOLE => match cluster.of_shard(shard) {
                Some((node, slot)) => {
                    let tag = node.tag(slot);
                    self.beat(node, &tag).await
                }
                // A node that serves nothing has nothing to be ill of.
                None => Ok(Heartbeat { instances: 0 }),
            },
            _ => self.heartbeat().await,
        }
    }
}
