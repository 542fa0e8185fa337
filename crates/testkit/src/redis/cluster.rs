//! Three primaries and three replicas that share 16,384 slots: the smallest cluster that fails over.

use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time;

use super::{
    ADMIN_PASSWORD, ADMIN_USER, Program, RedisBuilder, RedisServer, Reply, Scheme, sentinel::together,
};
use crate::{Certificates, ClockShim, certificates::Identity, eventually::PATIENCE};

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// Primaries, and replicas if there are any.
const PRIMARIES: usize = 3;

/// Nodes that have not met by then are introduced again.
const MEET_AGAIN_AFTER: Duration = Duration::from_secs(3);

/// A cluster that is to be started.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is started"]
pub struct ClusterBuilder {
    lines: Vec<String>,
    node_timeout: Duration,
    has_replicas: bool,
    certificates: Option<Arc<Certificates>>,
    clock: Option<Arc<ClockShim>>,
    program: Program,
}

/// A cluster. All its nodes are killed on drop.
#[derive(Debug)]
pub struct RedisCluster {
    /// The nodes: three that were made primaries of a third of the slots each, then their replicas.
    pub nodes: Vec<RedisServer>,
    ids: Vec<String>,
}

impl Default for ClusterBuilder {
    fn default() -> ClusterBuilder {
        ClusterBuilder {
            lines: Vec::new(),
            node_timeout: Duration::from_secs(1),
            has_replicas: true,
            certificates: None,
            clock: None,
            program: Program::wanted(),
        }
    }
}

impl ClusterBuilder {
    /// Sets a directive of every node.
    pub fn arg(mut self, name: &str, value: &str) -> ClusterBuilder {
        self.lines.push(format!("{name} {value}"));
        self
    }

    /// Adds a user to every node.
    pub fn acl_line(mut self, line: &str) -> ClusterBuilder {
        self.lines.push(line.to_owned());
        self
    }

    /// How long a node is silent before the others take it for gone.
    pub fn node_timeout(mut self, timeout: Duration) -> ClusterBuilder {
        self.node_timeout = timeout;
        self
    }

    /// Primaries alone.
    pub fn without_replicas(mut self) -> ClusterBuilder {
        self.has_replicas = false;
        self
    }

    /// Runs that program, whatever the environment asks for.
    pub fn program(mut self, program: Program) -> ClusterBuilder {
        self.program = program;
        self
    }

    /// All of them speak TLS, and nothing else.
    pub fn tls(mut self, certificates: Arc<Certificates>) -> ClusterBuilder {
        self.certificates = Some(certificates);
        self
    }

    /// Puts all nodes on one clock. A step takes every node for silent as long: ask for a
    /// [`ClusterBuilder::node_timeout`] above it.
    pub fn on_clock(mut self, clock: Arc<ClockShim>) -> ClusterBuilder {
        self.clock = Some(clock);
        self
    }

    /// Starts all nodes, and returns when each of them serves its part.
    pub async fn start(self) -> RedisCluster {
        let count = if self.has_replicas { 2 * PRIMARIES } else { PRIMARIES };
        let nodes = together((0..count).map(|_| self.node())).await;
        let mut ids = Vec::new();
        for node in &nodes {
            ids.push(node.command(&["CLUSTER", "MYID"]).await.text());
        }
        let cluster = RedisCluster { nodes, ids };
        cluster.join().await;
        cluster
    }

    fn node(&self) -> RedisBuilder {
        let timeout = self.node_timeout.as_millis().to_string();
        let mut builder = RedisServer::builder().program(self.program).trusted_by_others();
        if let Some(certificates) = &self.certificates {
            // Nodes ask each other for a certificate, whatever they ask of clients.
            let Identity { certificate, key } = &certificates.client;
            builder = builder
                .tls(certificates)
                .arg("tls-replication", "yes")
                .arg("tls-cluster", "yes")
                .arg("tls-client-cert-file", &certificate.path.display().to_string())
                .arg("tls-client-key-file", &key.path.display().to_string());
        }
        if let Some(clock) = &self.clock {
            builder = builder.on_clock(Arc::clone(clock));
        }
        builder = builder
            .arg("cluster-enabled", "yes")
            .arg("cluster-node-timeout", &timeout)
            .arg("cluster-replica-validity-factor", "0")
            .arg("cluster-require-full-coverage", "no");
        self.lines.iter().fold(builder, |builder, line| builder.acl_line(line))
    }
}

impl RedisCluster {
    /// Starts a cluster with nothing switched on.
    pub async fn start() -> RedisCluster {
        RedisCluster::builder().start().await
    }

    /// Describes a cluster that is to be started. A shard that is gone takes nothing else with it
    /// (`cluster-require-full-coverage no`).
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// The URL for clients, naming the first three nodes, with `credentials` such as `user:password@`.
    pub fn url_as(&self, credentials: &str) -> String {
        let scheme = if self.nodes[0].scheme == Scheme::Tls { "rediss-cluster" } else { "redis-cluster" };
        let seeds: Vec<String> =
            self.nodes.iter().take(PRIMARIES).map(|node| node.address().to_string()).collect();
        format!("{scheme}://{credentials}{}", seeds.join(","))
    }

    /// The URL for clients without credentials.
    pub fn url(&self) -> String {
        self.url_as("")
    }

    /// The node that the node `by` takes for the owner of a slot.
    pub async fn owner_by(&self, by: usize, slot: u16) -> Option<usize> {
        let ranges = self.nodes[by].command(&["CLUSTER", "SLOTS"]).await;
        ranges.array().iter().find_map(|range| {
            let [first, last, primary, ..] = range.array() else { return None };
            if !(first.integer()..=last.integer()).contains(&i64::from(slot)) {
                return None;
            }
            let id = primary.array().get(2)?.text();
            self.ids.iter().position(|known| *known == id)
        })
    }

    /// Makes the replica of a primary take its place, with the primary's consent. Returns the replica.
    pub async fn fail_over(&self, primary: usize) -> usize {
        let replica = self.replica_of(primary).await;
        self.nodes[replica].command(&["CLUSTER", "FAILOVER"]).await;
        replica
    }

    /// The node that replicates `primary`.
    pub async fn replica_of(&self, primary: usize) -> usize {
        for (at, node) in self.nodes.iter().enumerate().filter(|(at, _)| *at != primary) {
            let about = node.command(&["CLUSTER", "NODES"]).await.text();
            let myself = about.lines().find(|line| line.contains("myself")).unwrap_or_default();
            if myself.split(' ').nth(3) == Some(&self.ids[primary]) {
                return at;
            }
        }
        panic!("nobody replicates node {primary}");
    }

    /// Waits until `node` says that it is a primary with slots, and says when it did.
    pub async fn promoted(&self, node: usize) -> Instant {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let about = self.nodes[node].command(&["CLUSTER", "NODES"]).await.text();
            let myself = about.lines().find(|line| line.contains("myself")).unwrap_or_default();
            if myself.contains("master") && myself.split(' ').nth(8).is_some() {
                return Instant::now();
            }
            assert!(Instant::now() < deadline, "node {node} was not promoted");
            time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Begins to move a slot. Keys that are not there are asked for at `to` from now on.
    pub async fn begin_moving(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        self.nodes[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]).await;
        self.nodes[from].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]).await;
    }

    /// Moves the keys of a slot, as many as there are now.
    pub async fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let target = self.nodes[to].address();
        let (host, port) = (target.ip().to_string(), target.port().to_string());
        loop {
            let keys =
                self.nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]).await;
            let keys: Vec<String> = keys.array().iter().map(Reply::text).collect();
            if keys.is_empty() {
                return;
            }
            let mut words =
                vec!["MIGRATE", &host, &port, "", "0", "5000", "AUTH2", ADMIN_USER, ADMIN_PASSWORD, "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            self.nodes[from].command(&words).await;
        }
    }

    /// Ends the move of a slot: `to` owns it.
    pub async fn end_moving(&self, slot: u16, from: usize, to: usize) {
        // Order: as the manual has it, the new owner first, so that nobody is without one.
        let mut others: Vec<usize> = (0..PRIMARIES).filter(|at| *at != from && *at != to).collect();
        others.splice(0..0, [to, from]);
        for at in others {
            let words = ["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &self.ids[to]];
            self.nodes[at].command(&words).await;
        }
    }

    /// Makes one cluster of nodes that know nothing of each other.
    async fn join(&self) {
        let slots = |at: usize| u16::try_from(usize::from(SLOTS) * at / PRIMARIES).expect("at most 16384");
        for (at, node) in self.nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]).await;
            if at < PRIMARIES {
                let (first, last) = (slots(at).to_string(), (slots(at + 1) - 1).to_string());
                node.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await;
            }
        }
        self.meet().await;
        for at in PRIMARIES..self.nodes.len() {
            self.nodes[at].command(&["CLUSTER", "REPLICATE", &self.ids[at - PRIMARIES]]).await;
        }
        self.is_complete().await;
    }

    /// Waits until every node serves, every replica is linked, and all agree.
    pub async fn is_complete(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.is_well().await {
            assert!(Instant::now() < deadline, "the cluster is not well:\n{}", self.about().await);
            time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn is_well(&self) -> bool {
        let replicas = self.nodes.len() - PRIMARIES;
        for node in &self.nodes {
            let info = node.command(&["CLUSTER", "INFO"]).await.text();
            let about = node.command(&["CLUSTER", "NODES"]).await.text();
            let count = |what: &str| about.lines().filter(|line| line.contains(what)).count();
            let is_well = info.contains("cluster_state:ok")
                && info.contains("cluster_slots_ok:16384")
                && about.lines().count() == self.nodes.len()
                && count("slave") == replicas
                && count("fail") == 0
                && count(" connected") == self.nodes.len();
            let replication = node.command(&["INFO", "replication"]).await.text();
            if !is_well || replication.contains("master_link_status:down") {
                return false;
            }
        }
        true
    }

    /// Makes every node know all. A handshake is given up after the node timeout, which a busy machine may
    /// oversleep, so those that know too few are introduced again.
    async fn meet(&self) {
        let first = self.nodes[0].address();
        let words = ["CLUSTER", "MEET", &first.ip().to_string(), &first.port().to_string()];
        let deadline = Instant::now() + PATIENCE;
        let mut met = None;
        while !self.all_know_all().await {
            assert!(Instant::now() < deadline, "no node knows all:\n{}", self.about().await);
            if met.is_none_or(|met: Instant| met.elapsed() > MEET_AGAIN_AFTER) {
                for node in &self.nodes[1..] {
                    node.command(&words).await;
                }
                met = Some(Instant::now());
            }
            time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn all_know_all(&self) -> bool {
        for node in &self.nodes {
            let about = node.command(&["CLUSTER", "NODES"]).await.text();
            if about.lines().filter(|line| !line.contains("handshake")).count() != self.nodes.len() {
                return false;
            }
        }
        true
    }

    async fn about(&self) -> String {
        let mut about = String::new();
        for node in &self.nodes {
            let nodes = node.command(&["CLUSTER", "NODES"]).await.text();
            writeln!(about, "{}:\n{nodes}", node.address()).expect("writing to a string cannot fail");
        }
        about
    }
}

/// The slot of a key, by the definition: CRC16 (XMODEM), bit by bit, of its hash tag.
pub fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.bytes().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
        })
    });
    crc % SLOTS
}
