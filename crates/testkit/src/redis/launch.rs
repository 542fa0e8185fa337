//! From a description to a Redis that answers.
//!
//! Settings go into a file and not onto the command line, so that ACL lines can be written as Redis
//! documents them and a failed test can show what was started.

use std::{
    fmt::Write as _,
    fs,
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Instant,
};

use tempfile::TempDir;
use tokio::time;

use super::{
    ADMIN_PASSWORD, ADMIN_USER, PEER_PASSWORD, PEER_USER, Program, RedisClient, RedisServer, ReplyError,
    Scheme,
};
use crate::{
    Certificates, ClockShim,
    eventually::{LOOK_EVERY, PATIENCE},
    process::{Child, free_port},
};

/// How often a start is tried when someone else takes the port first.
const START_ATTEMPTS: u32 = 5;

/// A cluster node also listens on its port plus 10 000, so higher ports are no use to it.
const PORT_MAX: u16 = 55_535;

/// A server that is to be started. Everything is off until it is asked for.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is started"]
pub struct RedisBuilder {
    settings: Vec<String>,
    scheme: Scheme,
    password: Option<String>,
    clock: Option<Arc<ClockShim>>,
    place: Place,
}

/// Which program runs, as what, and where on the network.
#[derive(Debug, Clone)]
pub(super) struct Place {
    program: Program,
    is_sentinel: bool,
    namespace: Option<String>,
    pub(super) address: Ipv4Addr,
}

impl Default for RedisBuilder {
    fn default() -> RedisBuilder {
        let settings = Vec::new();
        let program = Program::wanted();
        let place = Place { program, is_sentinel: false, namespace: None, address: Ipv4Addr::LOCALHOST };
        RedisBuilder { settings, scheme: Scheme::Tcp, password: None, clock: None, place }
    }
}

impl RedisBuilder {
    /// Writes every change to disk before it is answered, so that a restart loses nothing. Add
    /// `.arg("appendfsync", "everysec")` for what most people run.
    pub fn aof(self) -> RedisBuilder {
        self.arg("appendonly", "yes").arg("appendfsync", "always")
    }

    /// Sets any directive of `redis.conf`. The value is written as it is: quote what needs quotes. Of
    /// two values for one directive the later one counts.
    pub fn arg(self, name: &str, value: &str) -> RedisBuilder {
        self.line(format!("{name} {value}"))
    }

    /// Demands a password of the default user.
    pub fn password(mut self, password: &str) -> RedisBuilder {
        self.password = Some(password.to_owned());
        self.arg("requirepass", password)
    }

    /// Adds a user, as `redis.conf` has it: `user rl on >password ~tg:* -@all +evalsha`.
    pub fn acl_line(self, line: &str) -> RedisBuilder {
        self.line(line.to_owned())
    }

    /// Makes [`RedisServer::url`] point to the Unix socket. The TCP port stays open.
    pub fn unix_socket(mut self) -> RedisBuilder {
        self.scheme = Scheme::Unix;
        self
    }

    /// Speaks only TLS on its port, and asks no certificate of the client.
    pub fn tls(self, certificates: &Certificates) -> RedisBuilder {
        self.tls_asking(certificates, "no")
    }

    /// Speaks only TLS on its port, and only with clients that show a certificate of the authority.
    pub fn mutual_tls(self, certificates: &Certificates) -> RedisBuilder {
        self.tls_asking(certificates, "yes")
    }

    /// Puts the server on a clock that the test controls: see [`RedisServer::clock`].
    pub fn clock_shim(self) -> RedisBuilder {
        self.on_clock(Arc::new(ClockShim::new()))
    }

    /// Puts the server on a clock that it shares with others.
    pub fn on_clock(mut self, clock: Arc<ClockShim>) -> RedisBuilder {
        self.clock = Some(clock);
        self
    }

    /// Runs that program, whatever the environment asks for.
    pub fn program(mut self, program: Program) -> RedisBuilder {
        self.place.program = program;
        self
    }

    /// Runs in a network namespace, at an address of it.
    pub fn in_namespace(mut self, name: &str, address: Ipv4Addr) -> RedisBuilder {
        self.place.namespace = Some(name.to_owned());
        self.place.address = address;
        self
    }

    /// Starts a Sentinel in place of a server. What it watches is for its settings to say.
    pub(crate) fn sentinel(mut self) -> RedisBuilder {
        self.place.is_sentinel = true;
        self
    }

    /// Lets it into others of its kind, whatever is done to their default user.
    pub(crate) fn trusted_by_others(self) -> RedisBuilder {
        self.arg("masteruser", PEER_USER).arg("masterauth", PEER_PASSWORD)
    }

    /// Allows the `DEBUG` command (`DEBUG SLEEP 1`, `DEBUG JMAP`), which Redis 7 refuses by default.
    pub fn debug_command(self) -> RedisBuilder {
        self.arg("enable-debug-command", "yes")
    }

    /// Follows a primary. Starting does not wait for it: see [`RedisServer::replica_is_linked`].
    pub fn replica_of(self, primary: SocketAddr) -> RedisBuilder {
        self.arg("replicaof", &format!("{} {}", primary.ip(), primary.port()))
    }

    /// Starts the server, and returns when it answers. Panics with its log when it does not.
    pub async fn start(self) -> RedisServer {
        let RedisBuilder { settings, scheme, password, clock, place } = self;
        let directory = TempDir::with_prefix("testkit-redis-").expect("the temporary directory is writable");

        for _ in 0..START_ATTEMPTS {
            let port = free_low_port();
            let text = configuration(&directory, &place, port, scheme, &settings);
            fs::write(configuration_path(&directory), text).expect("a directory just made is writable");
            if let Launch::Answers(child) = launch(&directory, &place, clock.as_deref()).await {
                return RedisServer { child, port, scheme, password, clock, place, directory };
            }
        }
        panic!("redis-server found its port taken {START_ATTEMPTS} times in a row");
    }

    fn line(mut self, line: String) -> RedisBuilder {
        self.settings.push(line);
        self
    }

    fn tls_asking(mut self, certificates: &Certificates, client_certificate: &str) -> RedisBuilder {
        let Certificates { authority, server, .. } = certificates;
        self.scheme = Scheme::Tls;
        self.arg("tls-cert-file", &server.certificate.path.display().to_string())
            .arg("tls-key-file", &server.key.path.display().to_string())
            .arg("tls-ca-cert-file", &authority.path.display().to_string())
            .arg("tls-auth-clients", client_certificate)
    }
}

/// How a start went, short of a panic.
enum Launch {
    Answers(Child),
    PortTaken,
}

/// Starts the server of `directory` again. Its port is given, so a stranger on it is waited out.
pub(super) async fn relaunch(directory: &TempDir, place: &Place, clock: Option<&ClockShim>) -> Child {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match launch(directory, place, clock).await {
            Launch::Answers(child) => return child,
            Launch::PortTaken => {
                assert!(
                    Instant::now() < deadline,
                    "another process keeps the port of the stopped redis-server"
                );
                time::sleep(LOOK_EVERY).await;
            }
        }
    }
}

/// Connects to the server of `directory` as its administrator.
pub(super) async fn admin(directory: &TempDir) -> Result<RedisClient, ReplyError> {
    admin_by(&unix_path(directory)).await
}

/// Connects to a server as its administrator, by its Unix socket.
pub(super) async fn admin_by(socket: &Path) -> Result<RedisClient, ReplyError> {
    let mut client = RedisClient::connect_unix(socket).await?;
    client.command(&["AUTH", ADMIN_USER, ADMIN_PASSWORD]).await?;
    Ok(client)
}

pub(super) fn unix_path(directory: &TempDir) -> PathBuf {
    directory.path().join("redis.sock")
}

async fn launch(directory: &TempDir, place: &Place, clock: Option<&ClockShim>) -> Launch {
    let mut command = match &place.namespace {
        None => Command::new(place.program.path()),
        // It becomes the server: what is signalled by its id is the server itself.
        Some(namespace) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", namespace]).arg(place.program.path());
            command
        }
    };
    command.arg(configuration_path(directory)).envs(clock.into_iter().flat_map(ClockShim::environment));
    command.args(place.is_sentinel.then_some("--sentinel"));
    let mut child = Child::try_spawn(&mut command).unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!("{}", place.program.missing()),
        _ => panic!("cannot start redis-server: {error}"),
    });

    let deadline = Instant::now() + PATIENCE;
    while !answers(directory).await {
        if child.try_wait().is_some() {
            child.finish_output().await;
            let log = child.output();
            assert!(log.contains("Failed listening on port"), "redis-server ended at once; its log:\n{log}");
            return Launch::PortTaken;
        }
        let log = || child.output();
        assert!(Instant::now() < deadline, "redis-server does not answer; its log:\n{}", log());
        time::sleep(LOOK_EVERY).await;
    }
    Launch::Answers(child)
}

/// Whether the server is up and has loaded its data: while it loads, it answers PING with an error.
async fn answers(directory: &TempDir) -> bool {
    let ping = async { admin(directory).await?.command(&["PING"]).await };
    matches!(time::timeout(PATIENCE, ping).await, Ok(Ok(_)))
}

fn configuration(
    directory: &TempDir,
    place: &Place,
    port: u16,
    scheme: Scheme,
    settings: &[String],
) -> String {
    let (tcp_port, tls_port) = match scheme {
        Scheme::Tcp | Scheme::Unix => (port, 0),
        Scheme::Tls => (0, port),
    };
    let mut text = format!(
        "bind {address}\n\
         port {tcp_port}\n\
         tls-port {tls_port}\n\
         unixsocket {socket}\n\
         dir {directory}\n\
         save \"\"\n\
         repl-diskless-sync-delay 0\n\
         user {ADMIN_USER} on >{ADMIN_PASSWORD} ~* &* +@all\n\
         user {PEER_USER} on >{PEER_PASSWORD} ~* &* +@all\n",
        address = place.address,
        socket = unix_path(directory).display(),
        directory = directory.path().display(),
    );
    for setting in settings {
        writeln!(text, "{setting}").expect("writing to a string cannot fail");
    }
    text
}

fn configuration_path(directory: &TempDir) -> PathBuf {
    directory.path().join("redis.conf")
}

fn free_low_port() -> u16 {
    loop {
        let port = free_port();
        if port <= PORT_MAX {
            return port;
        }
    }
}
