//! A primary, two replicas and three Sentinels that watch over them: the smallest Redis that fails over.
//!
//! Servers and Sentinels trust each other by a user of their own, so a test may do to users and
//! passwords what it likes.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{task::JoinSet, time};

use super::{PEER_PASSWORD, PEER_USER, Program, RedisBuilder, RedisServer, Reply, Scheme};
use crate::{
    Certificates, ClockShim,
    eventually::{LOOK_EVERY, PATIENCE},
};

/// What the Sentinels call the primary.
const SERVICE: &str = "tollgate-test";

/// Sentinels that must agree that a primary is gone.
const QUORUM: u32 = 2;

/// A group that is to be started.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is started"]
pub struct SentinelBuilder {
    settings: Vec<(String, String)>,
    lines: Vec<String>,
    sentinel_lines: Vec<String>,
    down_after: Duration,
    certificates: Option<Arc<Certificates>>,
    clock: Option<Arc<ClockShim>>,
    program: Program,
    /// For the primary with one Sentinel, and for the rest.
    namespaces: Option<[(String, Ipv4Addr); 2]>,
}

/// A primary with two replicas and three Sentinels. All are killed on drop.
#[derive(Debug)]
pub struct SentinelGroup {
    /// The servers: the first was made the primary.
    pub servers: Vec<RedisServer>,
    /// The Sentinels.
    pub sentinels: Vec<RedisServer>,
}

impl Default for SentinelBuilder {
    fn default() -> SentinelBuilder {
        SentinelBuilder {
            settings: Vec::new(),
            lines: Vec::new(),
            sentinel_lines: Vec::new(),
            down_after: Duration::from_millis(500),
            certificates: None,
            clock: None,
            program: Program::wanted(),
            namespaces: None,
        }
    }
}

impl SentinelBuilder {
    /// Sets a directive of every server.
    pub fn arg(mut self, name: &str, value: &str) -> SentinelBuilder {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a user to every server.
    pub fn acl_line(mut self, line: &str) -> SentinelBuilder {
        self.lines.push(line.to_owned());
        self
    }

    /// Adds a line to the file of every Sentinel: a user, a password.
    pub fn sentinel_line(mut self, line: &str) -> SentinelBuilder {
        self.sentinel_lines.push(line.to_owned());
        self
    }

    /// How long a primary is silent before Sentinels take it for gone.
    pub fn down_after(mut self, down_after: Duration) -> SentinelBuilder {
        self.down_after = down_after;
        self
    }

    /// Runs that program, whatever the environment asks for.
    pub fn program(mut self, program: Program) -> SentinelBuilder {
        self.program = program;
        self
    }

    /// All of them speak TLS, and nothing else.
    pub fn tls(mut self, certificates: Arc<Certificates>) -> SentinelBuilder {
        self.certificates = Some(certificates);
        self
    }

    /// Puts all servers, but no Sentinel, on one clock of the test's.
    pub fn on_clock(mut self, clock: Arc<ClockShim>) -> SentinelBuilder {
        self.clock = Some(clock);
        self
    }

    /// Puts the primary and one Sentinel into the first namespace, and the rest into the second.
    pub fn in_namespaces(mut self, first: (&str, Ipv4Addr), second: (&str, Ipv4Addr)) -> SentinelBuilder {
        self.namespaces = Some([first, second].map(|(name, address)| (name.to_owned(), address)));
        self
    }

    /// Starts all six, and returns when the Sentinels know each other and the replicas.
    pub async fn start(self) -> SentinelGroup {
        let primary = self.server(0).start().await;
        let replica = |at| self.server(at).replica_of(primary.address());
        let replicas = together([replica(1), replica(2)]).await;
        for replica in &replicas {
            replica.replica_is_linked().await;
        }
        let watched = primary.address();
        let sentinels = together([0, 1, 2].map(|at| self.sentinel(at, watched))).await;
        let group = SentinelGroup { servers: std::iter::once(primary).chain(replicas).collect(), sentinels };
        group.is_complete().await;
        group
    }

    fn server(&self, at: usize) -> RedisBuilder {
        let mut builder = self.common(at).trusted_by_others();
        for (name, value) in &self.settings {
            builder = builder.arg(name, value);
        }
        for line in &self.lines {
            builder = builder.acl_line(line);
        }
        match &self.clock {
            Some(clock) => builder.on_clock(Arc::clone(clock)),
            None => builder,
        }
    }

    fn sentinel(&self, at: usize, primary: SocketAddr) -> RedisBuilder {
        let down_after = self.down_after.as_millis();
        let lines = [
            format!("sentinel monitor {SERVICE} {} {} {QUORUM}", primary.ip(), primary.port()),
            format!("sentinel auth-user {SERVICE} {PEER_USER}"),
            format!("sentinel auth-pass {SERVICE} {PEER_PASSWORD}"),
            format!("sentinel down-after-milliseconds {SERVICE} {down_after}"),
            format!("sentinel failover-timeout {SERVICE} 3000"),
            format!("sentinel parallel-syncs {SERVICE} 2"),
            format!("sentinel sentinel-user {PEER_USER}"),
            format!("sentinel sentinel-pass {PEER_PASSWORD}"),
        ];
        let builder = self.common(at).sentinel();
        lines.iter().chain(&self.sentinel_lines).fold(builder, |builder, line| builder.acl_line(line))
    }

    fn common(&self, at: usize) -> RedisBuilder {
        let mut builder = RedisServer::builder().program(self.program);
        if let Some(certificates) = &self.certificates {
            builder = builder.tls(certificates).arg("tls-replication", "yes");
        }
        match &self.namespaces {
            Some([(name, address), _]) if at == 0 => builder.in_namespace(name, *address),
            Some([_, (name, address)]) => builder.in_namespace(name, *address),
            None => builder,
        }
    }
}

impl SentinelGroup {
    /// Starts a group with nothing switched on.
    pub async fn start() -> SentinelGroup {
        SentinelGroup::builder().start().await
    }

    /// Describes a group that is to be started.
    pub fn builder() -> SentinelBuilder {
        SentinelBuilder::default()
    }

    /// What the Sentinels call the primary.
    pub fn service(&self) -> &'static str {
        SERVICE
    }

    /// The URL for clients: `redis-sentinel://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/tollgate-test`, with
    /// `credentials` such as `user:password@`.
    pub fn url_as(&self, credentials: &str) -> String {
        let scheme =
            if self.sentinels[0].scheme == Scheme::Tls { "rediss-sentinel" } else { "redis-sentinel" };
        let seeds: Vec<String> =
            self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        format!("{scheme}://{credentials}{}/{SERVICE}", seeds.join(","))
    }

    /// The URL for clients without credentials.
    pub fn url(&self) -> String {
        self.url_as("")
    }

    /// Where the Sentinel `at` says that the primary is.
    pub async fn told_by(&self, at: usize) -> SocketAddr {
        let reply = self.sentinels[at].command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).await;
        let [host, port] = reply.array() else { panic!("no address: {reply:?}") };
        format!("{}:{}", host.text(), port.text()).parse().expect("an address")
    }

    /// Which server the Sentinel `at` takes for the primary.
    pub async fn primary_by(&self, at: usize) -> usize {
        let told = self.told_by(at).await;
        self.servers.iter().position(|server| server.address() == told).expect("it is one of ours")
    }

    /// Asks for a failover, and returns when the Sentinels have begun one.
    pub async fn fail_over(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut admin = self.sentinels[0].admin().await;
            match admin.command(&["SENTINEL", "FAILOVER", SERVICE]).await {
                Ok(_) => return,
                // No replica is fit for it yet, or the last failover is too young.
                Err(error) => assert!(Instant::now() < deadline, "no failover: {error}"),
            }
            time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until another server than `old` says that it is a primary, and says which and when.
    pub async fn promoted(&self, old: usize) -> (usize, Instant) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for (at, server) in self.servers.iter().enumerate().filter(|(at, _)| *at != old) {
                if role(server).await == "master" {
                    return (at, Instant::now());
                }
            }
            assert!(Instant::now() < deadline, "nobody was promoted");
            time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until all is well: every Sentinel knows the others and two replicas, all agree on who is primary,
    /// and the other two servers are linked to it.
    pub async fn is_complete(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.agrees().await {
            let log = || self.sentinels.iter().map(RedisServer::log).collect::<Vec<_>>().join("\n");
            assert!(Instant::now() < deadline, "the Sentinels do not agree; their logs:\n{}", log());
            time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn agrees(&self) -> bool {
        let mut primaries = Vec::new();
        for (at, sentinel) in self.sentinels.iter().enumerate() {
            let about = sentinel.command(&["SENTINEL", "MASTER", SERVICE]).await;
            let field = |name: &str| field(&about, name);
            if field("num-slaves") != "2" || field("num-other-sentinels") != "2" || field("flags") != "master"
            {
                return false;
            }
            primaries.push(self.told_by(at).await);
        }
        // Asked of the servers themselves: a Sentinel's own view of its replicas is up to ten seconds old.
        for server in &self.servers {
            let replication = server.command(&["INFO", "replication"]).await.text();
            let is_told = server.address() == primaries[0];
            let expected = if is_told { "role:master" } else { "master_link_status:up" };
            if !replication.contains(expected) {
                return false;
            }
        }
        primaries.iter().all(|told| *told == primaries[0])
    }
}

/// What a server says that it is; nothing if it does not answer.
async fn role(server: &RedisServer) -> String {
    let ask = async {
        let mut admin = super::launch::admin(&server.directory).await.ok()?;
        admin.command(&["ROLE"]).await.ok()?.array().first().map(Reply::text)
    };
    time::timeout(Duration::from_millis(200), ask).await.ok().flatten().unwrap_or_default()
}

/// A field of a flat list of names and values.
fn field(list: &Reply, name: &str) -> String {
    let words: Vec<String> = list.array().iter().map(Reply::text).collect();
    words.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone()).unwrap_or_default()
}

/// Starts servers side by side; in the order given.
pub(super) async fn together(builders: impl IntoIterator<Item = RedisBuilder>) -> Vec<RedisServer> {
    let mut starting = JoinSet::new();
    for (at, builder) in builders.into_iter().enumerate() {
        starting.spawn(async move { (at, builder.start().await) });
    }
    let mut started = starting.join_all().await;
    started.sort_by_key(|(at, _)| *at);
    started.into_iter().map(|(_, server)| server).collect()
}
