//! Where a call goes: to the one server there is, or to the node that serves its slot.
//!
//! All keys of a call share a slot; whoever asks for several sees to that ([`super::spanning`]). An answer
//! that sends us elsewhere proves that nothing ran, so it is followed, at most twice: a map that is old may lead
//! to a node from which the slot is just moving away.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::few::Few;
use tollgate_core::key::Key;
use tollgate_core::store::{Shard, StoreError};

use super::RedisStore;
use super::classify::answered;
use super::cluster::Cluster;
use super::cluster::map::Redirect;
use super::link::{Link, Shared};
use super::node::{Node, Place, Server};
use super::sentinel::Sentinels;
use super::url::{Endpoint, Seed};
use super::wire::{self, Reply};

/// How often one call is sent on.
const HOPS_MAX: u8 = 2;

/// The pause before keys that were on both sides of a move are asked for again.
const TRY_AGAIN_PAUSE: Duration = Duration::from_millis(1);

/// The servers of a store.
#[derive(Debug, Clone)]
pub(super) enum Topology {
    /// One, wherever it is.
    One(Arc<Node>),
    /// Those of a cluster.
    Cluster(Arc<Cluster>),
}

/// Whose connection to a server.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lane {
    /// That of threads with this number.
    Thread(usize),
    /// That of heartbeats and the board, so that they do not queue behind checks.
    Control,
}

/// A connection to call on, and the node it leads to.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    /// The server.
    pub node: Arc<Node>,
    /// The connection.
    pub link: Link,
    lane: Lane,
    /// The slot that is asked for, on a cluster: only asks of one slot travel together.
    pub slot: Option<u16>,
    /// Whether the slot is still on its way there, so that it has to be asked for by `ASKING`.
    pub asking: bool,
    hops: u8,
}

impl Spot {
    /// A node, on one's own connection.
    pub(super) fn new(node: Arc<Node>, lane: Lane) -> Spot {
        let link = match lane {
            Lane::Thread(number) => node.link(number),
            Lane::Control => node.control(),
        };
        Spot { node, link, lane, slot: None, asking: false, hops: 0 }
    }

    /// Sends one command, and waits for its reply.
    async fn send(&self, bytes: &[u8]) -> Result<Reply, StoreError> {
        let mut out = Vec::with_capacity(bytes.len() + 16);
        let replies = self.ask_first(&mut out);
        out.extend_from_slice(bytes);
        self.link.call(out, replies).await
    }

    /// Says that the slot is on its way, if it is. How many replies there will be, with that of one command.
    pub(super) fn ask_first(&self, out: &mut Vec<u8>) -> u8 {
        if self.asking {
            wire::command(out, [&b"ASKING"[..]].into_iter());
        }
        1 + u8::from(self.asking)
    }
}

impl Topology {
    /// Every node that serves.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        match self {
            Topology::One(node) => vec![Arc::clone(node)],
            Topology::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// A server for what any of them can do.
    pub(super) async fn any(&self) -> Result<Arc<Node>, StoreError> {
        match self {
            Topology::One(node) => Ok(Arc::clone(node)),
            Topology::Cluster(cluster) => {
                cluster.map().await?;
                let mut nodes = cluster.nodes();
                // Always the same while it answers, so that what is called out comes in order; but not the
                // same for every instance.
                let turn = cluster.turn() % nodes.len().max(1);
                nodes.rotate_left(turn);
                nodes.sort_by_key(|node| !node.is_answering());
                nodes
                    .into_iter()
                    .next()
                    .ok_or(StoreError::Unreachable { why: "the cluster has no node".into() })
            }
        }
    }
}

impl RedisStore {
    /// Where a key is asked for, by this thread.
    pub(super) async fn spot(&self, key: Key<'_>) -> Result<Spot, StoreError> {
        self.spot_in(Lane::Thread(self.number()), || self.naming.slot(key)).await
    }

    /// Where a slot is asked for.
    pub(super) async fn spot_in(
        &self,
        lane: Lane,
        slot: impl FnOnce() -> u16 + Send,
    ) -> Result<Spot, StoreError> {
        match &self.topology {
            Topology::One(node) => Ok(Spot::new(Arc::clone(node), lane)),
            Topology::Cluster(cluster) => {
                let slot = slot();
                Ok(Spot { slot: Some(slot), ..Spot::new(cluster.node(slot).await?, lane) })
            }
        }
    }

    /// Where anything is asked that any server knows.
    pub(super) async fn any_spot(&self) -> Result<Spot, StoreError> {
        Ok(Spot::new(self.topology.any().await?, Lane::Thread(self.number())))
    }

    /// Sends a plain command to where its slot is, however it moves. An error reply is an error.
    pub(super) async fn plain(&self, spot: &mut Spot, words: &[&[u8]]) -> Result<Reply, StoreError> {
        let mut bytes = Vec::new();
        wire::command(&mut bytes, words.iter().copied());
        loop {
            match spot.send(&bytes).await? {
                Reply::Error(message) if self.is_sent_on(spot, &message).await => {}
                Reply::Error(message) => return Err(answered(&message)),
                reply => return Ok(reply),
            }
        }
    }

    /// Whether an error reply says to ask again, where `spot` leads from now on.
    pub(super) async fn is_sent_on(&self, spot: &mut Spot, message: &str) -> bool {
        let Topology::Cluster(cluster) = &self.topology else { return false };
        if message.starts_with("CLUSTERDOWN") {
            cluster.doubt();
        }
        let Some(redirect) = Redirect::read(message, &spot.node.seed()) else { return false };
        if spot.hops >= HOPS_MAX {
            return false;
        }
        let (to, asking) = match redirect {
            Redirect::Moved(to) => {
                cluster.doubt();
                (to, false)
            }
            Redirect::Moving(to) => (to, true),
            Redirect::TryAgain => {
                tokio::time::sleep(TRY_AGAIN_PAUSE).await;
                spot.hops += 1;
                return true;
            }
        };
        let Ok(node) = cluster.at(&to) else { return false };
        *spot = Spot { asking, slot: spot.slot, hops: spot.hops + 1, ..Spot::new(node, spot.lane) };
        true
    }

    /// The shards that keys belong to, each once.
    pub(super) fn shards_of_keys<'a>(&self, keys: impl Iterator<Item = Key<'a>>) -> Few<Shard> {
        let Topology::Cluster(cluster) = &self.topology else { return Few::One(Shard::WHOLE) };
        let mut shards: Vec<Shard> = Vec::new();
        for key in keys {
            let shard = cluster.shard(self.naming.slot(key));
            if !shards.contains(&shard) {
                shards.push(shard);
            }
        }
        shards.into_iter().collect()
    }
}

impl Node {
    /// Where it was heard of, for answers that leave out the host.
    fn seed(&self) -> Seed {
        match &self.server.place {
            Place::Fixed(Endpoint::Tcp { host, port } | Endpoint::Tls { host, port }) => {
                Seed { host: host.clone(), port: *port }
            }
            _ => Seed { host: String::new(), port: 0 },
        }
    }
}

/// The servers that a URL leads to.
pub(super) fn topology(shared: &Arc<Shared>) -> Topology {
    let place = match &shared.config.url.endpoint {
        Endpoint::Cluster { seeds, is_tls } => {
            return Topology::Cluster(Arc::new(Cluster::new(shared, seeds, *is_tls)));
        }
        Endpoint::Sentinel(seeds) => Place::Primary(Arc::new(Sentinels::new(seeds))),
        endpoint => Place::Fixed(endpoint.clone()),
    };
    let server = Server::new(place, shared.config.client_time, None);
    Topology::One(Arc::new(Node::new(shared, server, Shard::WHOLE)))
}
