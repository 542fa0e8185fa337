//! A real reverse proxy in front of what is under test: nginx, HAProxy, Traefik or Caddy.
//!
//! What these programs make of a configuration is what users get, and none of it can be known without
//! running them. Each one has a directory, ports and a process of its own; none of them detaches or leaves
//! workers behind, so that killing the one process ends it all.

mod programs;

use std::{
    collections::HashSet,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use tempfile::TempDir;
use tokio::time;

pub use self::programs::FrontProgram;
use crate::{
    eventually::{LOOK_EVERY, PATIENCE},
    process::{Child, free_port},
};

/// How often a start is tried when someone else takes a port first.
const START_ATTEMPTS: u32 = 5;

/// A running proxy. Killed, and its directory removed, on drop.
#[derive(Debug)]
pub struct Front {
    // Order: fields drop as declared, and the program must be dead before its files go.
    child: Child,
    address: SocketAddr,
    _directory: TempDir,
}

/// What a configuration has to name: where the program is to listen, and where its files are.
#[derive(Debug)]
pub struct FrontPlaces<'a> {
    /// For clients.
    pub port: u16,
    /// For itself, if it needs one more.
    pub inner_port: u16,
    /// The directory into which its files are written.
    pub directory: &'a Path,
}

impl Front {
    /// Starts `program` with the files (name and text) that `configure` makes for its places, and returns
    /// when `is_ready` says of its address that it serves what it was configured for. Panics with its
    /// output when that does not come to be, and with the way to install it when it is missing.
    ///
    /// `tools` is where `cargo xtask test install` puts programs that Debian has not: `target/tools`.
    pub async fn start(
        program: FrontProgram,
        tools: &Path,
        configure: impl Fn(&FrontPlaces<'_>) -> Vec<(&'static str, String)>,
        is_ready: impl AsyncFn(SocketAddr) -> bool,
    ) -> Front {
        let executable = program.find(tools).unwrap_or_else(|missing| panic!("{missing}"));
        for _ in 0..START_ATTEMPTS {
            let directory = TempDir::with_prefix(format!("testkit-{}-", program.name()))
                .expect("the temporary directory is writable");
            let places =
                FrontPlaces { port: unused_port(), inner_port: unused_port(), directory: directory.path() };
            for (name, text) in configure(&places).into_iter().chain(program.files(directory.path())) {
                fs::write(directory.path().join(name), text).expect("a directory just made is writable");
            }
            let address = (Ipv4Addr::LOCALHOST, places.port).into();
            let child = Child::spawn(&mut program.command(&executable, directory.path()));
            if let Some(child) = serving(child, program, address, &is_ready).await {
                return Front { child, address, _directory: directory };
            }
        }
        panic!("{} found its ports taken {START_ATTEMPTS} times in a row", program.name());
    }

    /// Where clients come in.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything it has written so far.
    pub fn log(&self) -> String {
        self.child.output()
    }
}

/// The child once it is ready, or `None` if it ended because a port was taken.
async fn serving(
    mut child: Child,
    program: FrontProgram,
    address: SocketAddr,
    is_ready: &impl AsyncFn(SocketAddr) -> bool,
) -> Option<Child> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if child.try_wait().is_some() {
            child.finish_output().await;
            let log = child.output();
            let name = program.name();
            assert!(log.contains(programs::PORT_TAKEN), "{name} ended at once; it wrote:\n{log}");
            return None;
        }
        if is_ready(address).await {
            return Some(child);
        }
        let log = || child.output();
        assert!(Instant::now() < deadline, "{} is not ready; it wrote:\n{}", program.name(), log());
        time::sleep(LOOK_EVERY).await;
    }
}

/// A free port that this process never handed out before: two Caddys share one port if they are given it,
/// and would answer each other's clients.
fn unused_port() -> u16 {
    static HANDED_OUT: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

    let mut handed_out = HANDED_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    let handed_out = handed_out.get_or_insert_default();
    loop {
        let port = free_port();
        if handed_out.insert(port) {
            return port;
        }
    }
}
