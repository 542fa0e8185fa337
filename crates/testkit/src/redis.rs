//! A real `redis-server` of a test's own.
//!
//! Each server has a directory, a loopback port and an administrator of its own. The administrator
//! is an ACL user that comes in by a Unix socket: so a test can look into a server that speaks only
//! TLS, demands a password, or has just shut out the very user under test.

mod client;
mod cluster;
mod launch;
mod program;
mod reply;
mod sentinel;

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::time;

pub use self::{
    client::RedisClient,
    cluster::{ClusterBuilder, RedisCluster, slot_of},
    launch::RedisBuilder,
    program::Program,
    reply::{Reply, ReplyError},
    sentinel::{SentinelBuilder, SentinelGroup},
};
use crate::{ClockShim, eventually::PATIENCE, process::Child};

/// A running Redis. Killed, and its directory removed, on drop.
#[derive(Debug)]
pub struct RedisServer {
    // Order: fields drop as declared, and the server must be dead before its files go.
    child: Child,
    port: u16,
    scheme: Scheme,
    password: Option<String>,
    clock: Option<Arc<ClockShim>>,
    place: launch::Place,
    directory: TempDir,
}

/// The way in for the administrator of a server, whatever becomes of that.
#[derive(Debug, Clone)]
pub struct AdminDoor {
    socket: PathBuf,
}

impl AdminDoor {
    /// Opens a connection that may do everything, if the server is there.
    pub async fn open(&self) -> Result<RedisClient, ReplyError> {
        launch::admin_by(&self.socket).await
    }
}

/// How [`RedisServer::url`] tells a client to come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Tcp,
    Tls,
    Unix,
}

/// The user behind [`RedisServer::admin`]. Not `default`, which tests reconfigure.
const ADMIN_USER: &str = "testkit-admin";
const ADMIN_PASSWORD: &str = "testkit-admin-password";

/// The user that replicas, Sentinels and other nodes come in by, so that a test can shut out them alone.
const PEER_USER: &str = "testkit-peer";
const PEER_PASSWORD: &str = "testkit-peer-password";

impl RedisServer {
    /// Starts a server with nothing switched on: no password, no persistence, plain TCP.
    pub async fn start() -> RedisServer {
        RedisServer::builder().start().await
    }

    /// Describes a server that is to be started.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    /// Where it listens for TCP, or for TLS if it was started with that.
    pub fn address(&self) -> SocketAddr {
        (self.place.address, self.port).into()
    }

    /// The port of [`RedisServer::address`]. It stays the same over a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL for clients: `redis://127.0.0.1:1234`, `redis://:password@127.0.0.1:1234`,
    /// `rediss://127.0.0.1:1234` or `unix:///tmp/x/redis.sock?pass=password`.
    ///
    /// The password is not escaped: choose one of letters and digits.
    pub fn url(&self) -> String {
        let password = self.password.as_deref();
        let credentials = password.map(|password| format!(":{password}@")).unwrap_or_default();
        match self.scheme {
            Scheme::Tcp => format!("redis://{credentials}{}", self.address()),
            Scheme::Tls => format!("rediss://{credentials}{}", self.address()),
            Scheme::Unix => {
                let query = password.map(|password| format!("?pass={password}")).unwrap_or_default();
                format!("unix://{}{query}", self.unix_path().display())
            }
        }
    }

    /// The Unix socket, on which every server listens.
    pub fn unix_path(&self) -> PathBuf {
        launch::unix_path(&self.directory)
    }

    /// The directory with its configuration and, if it persists, its data.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The process id; it changes with a restart.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Everything the current process has logged.
    pub fn log(&self) -> String {
        self.child.output()
    }

    /// The processor time used by the current process, in steps of 10 ms.
    pub fn cpu_time(&self) -> Duration {
        self.child.cpu_time()
    }

    /// Its wall clock. Panics unless started with [`RedisBuilder::clock_shim`].
    pub fn clock(&self) -> &ClockShim {
        self.clock.as_deref().expect("this server runs on the real clock: start it with .clock_shim()")
    }

    /// Freezes the process: connections stay open and nothing answers. Returns when it has stopped.
    pub fn pause(&self) {
        self.child.pause();
    }

    /// Lets a paused process go on. It then executes whatever was sent to it meanwhile.
    pub fn resume(&self) {
        self.child.resume();
    }

    /// Kills the process as a power failure would, except that the page cache survives.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Starts the server again on the same port and directory, after killing it if it still runs. It
    /// comes back with its data if it was started with [`RedisBuilder::aof`], and empty otherwise.
    pub async fn restart(&mut self) {
        self.child.kill();
        self.child = launch::relaunch(&self.directory, &self.place, self.clock.as_deref()).await;
    }

    /// Opens a connection that may do everything, whatever is done to users and passwords.
    pub async fn admin(&self) -> RedisClient {
        let client = time::timeout(PATIENCE, launch::admin(&self.directory)).await;
        match client {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => self.fail(&format!("refused its administrator: {error}")),
            Err(_) => self.fail("did not answer its administrator: is it paused?"),
        }
    }

    /// The way in for its administrator, for a task that outlives a borrow of the server.
    pub fn admin_door(&self) -> AdminDoor {
        AdminDoor { socket: self.unix_path() }
    }

    /// Sends one command on a new administrator's connection. Panics when Redis answers an error; use
    /// [`RedisServer::admin`] to see errors, or to keep the state of a connection.
    pub async fn command<A: AsRef<[u8]> + Sync>(&self, arguments: &[A]) -> Reply {
        let mut client = self.admin().await;
        match time::timeout(PATIENCE, client.command(arguments)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => self.fail(&format!("{}: {error}", in_words(arguments))),
            Err(_) => self.fail(&format!("{}: no answer", in_words(arguments))),
        }
    }

    /// Waits until this replica is connected to its primary and has its data.
    pub async fn replica_is_linked(&self) {
        let deadline = Instant::now() + PATIENCE;
        let is_linked = |reply: Reply| reply.text().contains("master_link_status:up");
        while !is_linked(self.command(&["INFO", "replication"]).await) {
            if Instant::now() > deadline {
                self.fail("did not reach its primary");
            }
            time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Cuts it off from its replicas and from the Sentinels, and from nobody else: clients come in as before.
    /// The default user must be off, or its peers come in as that.
    pub async fn cut_off(&self) {
        self.command(&["ACL", "SETUSER", PEER_USER, "off"]).await;
        self.command(&["CLIENT", "KILL", "USER", PEER_USER]).await;
    }

    /// Lets them in again.
    pub async fn join_again(&self) {
        self.command(&["ACL", "SETUSER", PEER_USER, "on"]).await;
    }

    fn fail(&self, problem: &str) -> ! {
        panic!("redis-server on port {} {problem}; its log:\n{}", self.port, self.log());
    }
}

impl fmt::Display for RedisServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.url())
    }
}

fn in_words<A: AsRef<[u8]>>(arguments: &[A]) -> String {
    let words: Vec<_> = arguments.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect();
    words.join(" ")
}
