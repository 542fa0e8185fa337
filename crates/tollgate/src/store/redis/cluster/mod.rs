//! A cluster: its nodes, and a map of who serves what that is kept fresh.
//!
//! The map is looked at again about once a second, and soon after anything that puts it in doubt: an
//! answer that sends us elsewhere, a lost connection, a cluster that says it is down. Several nodes are
//! asked each time and the newest epoch is believed, so one that was cut off does not lead us back.
//!
//! A node is a shard, which fails by itself: its connections, its turn to dial and its breaker
//! are its own. Shard 0 is the cluster as a whole: the map, and slots that nobody serves.

pub(super) mod map;
pub(super) mod slots;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tollgate_core::store::{ErrorClass, Shard, StoreError};

use super::dial::{Wants, dial, exchange};
use super::link::{Link, Shared};
use super::node::{Node, Place, Server};
use super::url::Seed;
use super::wire;
use crate::clock;
use map::{Map, View};

/// How often the map is looked at while all is well.
const EVERY: Duration = Duration::from_secs(1);

/// How often while it is in doubt.
const EVERY_IN_DOUBT: Duration = Duration::from_millis(100);

/// How long a node may take to tell of the cluster.
const PATIENCE: Duration = Duration::from_millis(400);

/// Nodes that are asked at a time.
const ASKED: usize = 3;

/// Nodes that are remembered at most.
const NODES_MAX: usize = 1000;

/// How long a node that serves no slot is remembered: a slot may be on its way to it.
const FORGET_AFTER: Duration = Duration::from_secs(30);

/// How long an older epoch is not believed after a newer one was heard of.
const OLDER_AFTER: Duration = Duration::from_secs(5);

/// The nodes of a cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
    seeds: Vec<Seed>,
    is_tls: bool,
    map: ArcSwapOption<Map>,
    /// Tells of every look at the map: why it brought nothing, or that it did.
    looked: watch::Sender<Option<Result<(), StoreError>>>,
    /// By shard, less the one that is the whole cluster.
    known: Mutex<Vec<Option<Known>>>,
    doubted: Arc<Notify>,
    adopted: Mutex<Instant>,
    watching: Mutex<Option<AbortHandle>>,
    /// Which node is preferred where any will do.
    turn: usize,
}

/// A node that was heard of.
#[derive(Debug)]
struct Known {
    seed: Seed,
    node: Arc<Node>,
    heard_of: Instant,
}

impl Cluster {
    /// A cluster of which only some addresses are known.
    pub(super) fn new(shared: &Arc<Shared>, seeds: &[Seed], is_tls: bool) -> Cluster {
        Cluster {
            shared: Arc::clone(shared),
            seeds: seeds.to_vec(),
            is_tls,
            map: ArcSwapOption::empty(),
            looked: watch::Sender::new(None),
            known: Mutex::default(),
            doubted: Arc::default(),
            adopted: Mutex::new(clock::instant()),
            watching: Mutex::default(),
            turn: fastrand::usize(..),
        }
    }

    /// Which node is preferred where any will do, counted from the first.
    pub(super) fn turn(&self) -> usize {
        self.turn
    }

    /// The map; waits for the first.
    pub(super) async fn map(self: &Arc<Self>) -> Result<Arc<Map>, StoreError> {
        if let Some(map) = self.map.load_full() {
            return Ok(map);
        }
        self.watch();
        let mut looked = self.looked.subscribe();
        let said = looked.wait_for(Option::is_some).await.map(|said| said.clone());
        match (self.map.load_full(), said) {
            (Some(map), _) => Ok(map),
            (None, Ok(Some(Err(error)))) => Err(error),
            _ => Err(StoreError::Unreachable { why: "the cluster is not known yet".into() }),
        }
    }

    /// The node that serves a slot.
    pub(super) async fn node(self: &Arc<Self>, slot: u16) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = self.map().await?.node(slot) {
            return Ok(Arc::clone(node));
        }
        self.doubt();
        let message = format!("no node serves slot {slot}");
        Err(StoreError::Answered { class: ErrorClass::ClusterDown, message })
    }

    /// The shard that a slot belongs to, as far as is known.
    pub(super) fn shard(&self, slot: u16) -> Shard {
        let map = self.map.load();
        map.as_ref().and_then(|map| map.node(slot)).map_or(Shard::WHOLE, |node| node.shard)
    }

    /// How many shards there are, the whole included.
    pub(super) fn shards(&self) -> u16 {
        u16::try_from(self.known.lock().len() + 1).unwrap_or(u16::MAX)
    }

    /// The nodes that serve a slot.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        let map = self.map.load();
        map.iter().flat_map(|map| &map.nodes).map(|(node, _)| Arc::clone(node)).collect()
    }

    /// The node that is a shard, with the first slot it serves. `None` where there is none, or it serves none.
    pub(super) fn of_shard(&self, shard: Shard) -> Option<(Arc<Node>, u16)> {
        let map = self.map.load();
        map.as_ref()?.nodes.iter().find(|(node, _)| node.shard == shard).cloned()
    }

    /// How the cluster is as a whole: whether there is a map, and every slot is on it.
    pub(super) async fn is_whole(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.map().await?.is_whole() {
            return Ok(());
        }
        self.doubt();
        let message = "some slots are served by no node".to_owned();
        Err(StoreError::Answered { class: ErrorClass::ClusterDown, message })
    }

    /// The map may be wrong: it is looked at again soon.
    pub(super) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// The node at an address, whether on the map or not.
    pub(super) fn at(&self, seed: &Seed) -> Result<Arc<Node>, StoreError> {
        let mut known = self.known.lock();
        let now = clock::instant();
        if let Some(known) = known.iter_mut().flatten().find(|known| known.seed == *seed) {
            known.heard_of = now;
            return Ok(Arc::clone(&known.node));
        }
        let place = known.iter().position(Option::is_none).unwrap_or(known.len());
        if place >= NODES_MAX {
            return Err(StoreError::Unreachable { why: "the cluster has more than 1000 nodes".into() });
        }
        let shard = Shard(u16::try_from(place + 1).unwrap_or(u16::MAX));
        let endpoint = seed.endpoint(self.is_tls);
        let doubted = Some(Arc::clone(&self.doubted));
        let server = Server::new(Place::Fixed(endpoint), self.shared.config.client_time, doubted);
        let node = Arc::new(Node::new(&self.shared, server, shard));
        tracing::info!(shard = shard.0, host = seed.host, port = seed.port, "a node of the cluster");
        let new = Known { seed: seed.clone(), node: Arc::clone(&node), heard_of: now };
        if place == known.len() {
            known.push(Some(new));
        } else {
            known[place] = Some(new);
        }
        Ok(node)
    }

    /// Starts to look at the map, on the current runtime, unless that is being done.
    pub(super) fn watch(self: &Arc<Self>) {
        let mut watching = self.watching.lock();
        if watching.as_ref().is_none_or(AbortHandle::is_finished) {
            // Weakly: whoever watches must not keep alive what it watches for.
            *watching = Some(tokio::spawn(keep_looking(Arc::downgrade(self))).abort_handle());
        }
    }

    /// Looks at the map once.
    async fn look(self: &Arc<Self>) {
        let mut views = self.ask_nodes().await;
        let mut error = None;
        if views.is_empty() {
            match self.ask_seeds().await {
                Ok(view) => views.push(view),
                Err(why) => error = Some(why),
            }
        }
        // One that takes the cluster for well before one that does not, and then the newest.
        let Some(view) = views.into_iter().max_by_key(|view| (view.is_well, view.epoch)) else {
            let error = error.unwrap_or(StoreError::Unreachable { why: "no node answers".into() });
            self.looked.send_replace(Some(Err(error)));
            return;
        };
        self.adopt(&view);
        self.looked.send_replace(Some(Ok(())));
    }

    fn adopt(&self, view: &View) {
        let mut adopted = self.adopted.lock();
        let newest = self.map.load().as_ref().map_or(0, |map| map.epoch);
        if view.epoch < newest && adopted.elapsed() < OLDER_AFTER {
            return;
        }
        *adopted = clock::instant();
        self.map.store(Some(Arc::new(Map::new(view, |seed| self.at(seed).ok()))));
        for known in self.known.lock().iter_mut() {
            if known.as_ref().is_some_and(|known| known.heard_of.elapsed() > FORGET_AFTER) {
                *known = None;
            }
        }
    }

    /// Asks a few of the nodes on the map.
    async fn ask_nodes(self: &Arc<Self>) -> Vec<View> {
        let mut nodes: Vec<_> = {
            let known = self.known.lock();
            known.iter().flatten().map(|known| (known.seed.clone(), Arc::clone(&known.node))).collect()
        };
        fastrand::shuffle(&mut nodes);
        // Those that answer first: of a large cluster with a few sick nodes, three well ones are wanted.
        nodes.sort_by_key(|(_, node)| !node.is_answering());
        let mut asking: JoinSet<Option<View>> = nodes
            .into_iter()
            .take(ASKED)
            .map(
                |(seed, node)| async move { timeout(PATIENCE, ask(&node.control(), &seed)).await.ok()?.ok() },
            )
            .collect();
        let mut views = Vec::new();
        while let Some(asked) = asking.join_next().await {
            views.extend(asked.ok().flatten());
        }
        views
    }

    /// Asks one seed after the other, until one answers.
    async fn ask_seeds(&self) -> Result<View, StoreError> {
        let mut seeds = self.seeds.clone();
        fastrand::shuffle(&mut seeds);
        let mut said = Vec::new();
        for seed in &seeds {
            let asked = timeout(PATIENCE, self.ask_seed(seed)).await;
            match asked.unwrap_or_else(|_| Err("no answer".to_owned())) {
                Ok(view) => return Ok(view),
                Err(why) => said.push(format!("{}:{}: {why}", seed.host, seed.port)),
            }
        }
        let why = format!("no node tells of the cluster ({})", said.join("; "));
        Err(StoreError::Unreachable { why: why.into() })
    }

    async fn ask_seed(&self, seed: &Seed) -> Result<View, String> {
        let url = self.shared.config.url.at(seed.endpoint(self.is_tls));
        let dialled = dial(&url, &self.shared.tls, Wants::default()).await;
        let (mut stream, _) = dialled.map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        for question in ["SLOTS", "INFO"] {
            wire::command(&mut bytes, ["CLUSTER", question].into_iter().map(str::as_bytes));
        }
        let replies = exchange(&mut stream, &bytes, 2).await.map_err(|error| error.to_string())?;
        let [slots, info] = replies.as_slice() else { return Err("no two answers".to_owned()) };
        View::read(slots, info, seed)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(task) = self.watching.get_mut().take() {
            task.abort();
        }
    }
}

async fn ask(link: &Link, seed: &Seed) -> Result<View, String> {
    let call = |question: &str| {
        let mut bytes = Vec::new();
        wire::command(&mut bytes, ["CLUSTER", question].into_iter().map(str::as_bytes));
        link.call(bytes, 1)
    };
    let (slots, info) = tokio::join!(call("SLOTS"), call("INFO"));
    let (slots, info) = (slots.map_err(|error| error.to_string())?, info.map_err(|error| error.to_string())?);
    View::read(&slots, &info, seed)
}

/// Looks at the map for as long as somebody wants to know.
async fn keep_looking(cluster: Weak<Cluster>) {
    loop {
        let Some(cluster) = cluster.upgrade() else { return };
        cluster.look().await;
        let every = if cluster.map.load().is_none() { EVERY_IN_DOUBT } else { EVERY };
        let pause = every.mul_f64(0.75 + fastrand::f64() / 2.0);
        // Never without a pause: many calls may doubt at once, and again.
        sleep(EVERY_IN_DOUBT.min(pause)).await;
        tokio::select! {
            () = sleep(pause.saturating_sub(EVERY_IN_DOUBT)) => {}
            () = cluster.doubted.notified() => {}
        }
    }
}
