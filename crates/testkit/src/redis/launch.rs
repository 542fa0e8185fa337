//! From a description to a Redis that answers.
//!
//! Settings go into a file and not onto the command line, so that ACL lines can be written as Redis
//! documents them and a failed test can show what was started.

use std::{
    fmt::Write as _, fs, io::ErrorKind, net::SocketAddr, path::PathBuf, process::Command, time::Instant,
};

use tempfile::TempDir;
use tokio::time;

use super::{ADMIN_PASSWORD, ADMIN_USER, RedisClient, RedisServer, ReplyError, Scheme};
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
    clock: Option<ClockShim>,
}

impl Default for RedisBuilder {
    fn default() -> RedisBuilder {
        let settings = Vec::new();
        RedisBuilder { settings, scheme: Scheme::Tcp, password: None, clock: None }
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
    pub fn clock_shim(mut self) -> RedisBuilder {
        self.clock = Some(ClockShim::new());
        self
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
        let RedisBuilder { settings, scheme, password, clock } = self;
        let directory = TempDir::with_prefix("testkit-redis-").expect("the temporary directory is writable");

        for _ in 0..START_ATTEMPTS {
            let port = free_low_port();
            let text = configuration(&directory, port, scheme, &settings);
            fs::write(configuration_path(&directory), text).expect("a directory just made is writable");
            if let Launch::Answers(child) = launch(&directory, clock.as_ref()).await {
                return RedisServer { child, port, scheme, password, clock, directory };
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
pub(super) async fn relaunch(directory: &TempDir, clock: Option<&ClockShim>) -> Child {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match launch(directory, clock).await {
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
    let mut client = RedisClient::connect_unix(&unix_path(directory)).await?;
    client.command(&["AUTH", ADMIN_USER, ADMIN_PASSWORD]).await?;
    Ok(client)
}

pub(super) fn unix_path(directory: &TempDir) -> PathBuf {
    directory.path().join("redis.sock")
}

async fn launch(directory: &TempDir, clock: Option<&ClockShim>) -> Launch {
    let mut command = Command::new("redis-server");
    command.arg(configuration_path(directory)).envs(clock.into_iter().flat_map(ClockShim::environment));
    let mut child = Child::try_spawn(&mut command).unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => {
            panic!("these tests need a real Redis; install it with: apt-get install redis-server")
        }
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

fn configuration(directory: &TempDir, port: u16, scheme: Scheme, settings: &[String]) -> String {
    let (tcp_port, tls_port) = match scheme {
        Scheme::Tcp | Scheme::Unix => (port, 0),
        Scheme::Tls => (0, port),
    };
    let mut text = format!(
        "bind 127.0.0.1\n\
         port {tcp_port}\n\
         tls-port {tls_port}\n\
         unixsocket {socket}\n\
         dir {directory}\n\
         save \"\"\n\
         repl-diskless-sync-delay 0\n\
         user {ADMIN_USER} on >{ADMIN_PASSWORD} ~* &* +@all\n",
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
