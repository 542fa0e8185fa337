//! What a check costs the server at each door, beside what a PING costs Redis: `bench doors`.
//!
//! Processor time of the server's process, user and system, by `/proc/PID/stat`; all of them by turns in one
//! run, so that what the machine does meanwhile it does to all. Peers take part where they are installed:
//! `throttlecrab-server` on the PATH, and envoyproxy/ratelimit as `cargo xtask test install` builds it. limitador's
//! server is in no registry.

pub(crate) mod grpc;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use testkit::{Child, RedisServer, eventually};

use crate::measure::{median, micros_each, output, serve};
use grpc::{Asked, Files};

const ROUNDS: usize = 9;

/// How often Redis is pinged in a round.
const PINGS: u64 = 150_000;

/// A server behind one door, and what it has cost.
struct Contestant {
    name: &'static str,
    child: Child,
    /// The Redis it keeps its state in, whose time is counted, too.
    store: Option<RedisServer>,
    address: String,
    asked: Asked,
    /// Microseconds per check, and those of a PING in the same round.
    rounds: Vec<(f64, f64)>,
    target: &'static str,
}

impl Contestant {
    fn cpu_time(&self) -> Duration {
        self.child.cpu_time() + self.store.as_ref().map_or(Duration::ZERO, RedisServer::cpu_time)
    }
}

/// Runs all of it.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(table())
}

async fn table() -> Result<()> {
    let redis = RedisServer::start().await;
    let files = Files::write()?;
    let mut contestants = Vec::new();
    for (name, arguments) in files.servers() {
        let (child, place) = serve("grpc", &arguments).await?;
        let address = place.split_once("://").map_or(place.as_str(), |(_, address)| address).to_owned();
        let (asked, rounds) = (Asked::Envoy, Vec::new());
        contestants.push(Contestant { name, child, store: None, address, asked, rounds, target: "≤ 0.75" });
    }
    contestants.extend(throttlecrab().await);
    contestants.extend(original(&files).await);
    // The first round warms up and is not counted.
    for round in 0..=ROUNDS {
        for contestant in &mut contestants {
            let before = contestant.cpu_time();
            let (address, asked) = (contestant.address.clone(), contestant.asked);
            // On a thread and a runtime of its own: whatever it costs is not the server's.
            let asking = std::thread::spawn(move || grpc::load(&address, asked));
            let requests = asking.join().expect("the load does not panic")?;
            let check = micros_each(contestant.cpu_time().saturating_sub(before), requests);
            let before = redis.cpu_time();
            ping(&redis, PINGS)?;
            let ping = micros_each(redis.cpu_time().saturating_sub(before), PINGS);
            if round > 0 {
                contestant.rounds.push((check, ping));
            }
        }
    }
    println!(
        "\n### gRPC, 8 connections × 32 streams: server CPU per check ({ROUNDS} rounds by turns, medians)\n"
    );
    println!(
        "| | µs per check | µs per Redis PING, pipeline 1 | × Redis PING | target |\n|---|---|---|---|---|"
    );
    for Contestant { name, rounds, target, .. } in &contestants {
        let check = median(rounds.iter().map(|round| round.0));
        let ping = median(rounds.iter().map(|round| round.1));
        let ratio = median(rounds.iter().map(|round| round.0 / round.1));
        println!("| {name} | {check:.2} | {ping:.2} | {ratio:.2} | {target} |");
    }
    Ok(())
}

/// Its own question, which is about as long as Envoy's.
async fn throttlecrab() -> Option<Contestant> {
    let port = testkit::free_port();
    let mut command = Command::new("throttlecrab-server");
    command.args(["--grpc", "--grpc-host", "127.0.0.1", "--log-level", "error", "--grpc-port"]);
    let Ok(child) = Child::try_spawn(command.arg(port.to_string())) else {
        println!(
            "throttlecrab-server is not on the PATH: `cargo install throttlecrab-server --locked` brings it"
        );
        return None;
    };
    let name = "throttlecrab `Throttle`, memory";
    Some(peer(name, child, None, port, Asked::Throttlecrab).await)
}

/// envoyproxy/ratelimit under the file that Tollgate is measured with.
async fn original(files: &Files) -> Option<Contestant> {
    let store = RedisServer::start().await;
    let port = testkit::free_port();
    let Ok(child) = Child::try_spawn(&mut ratelimit(files.root(), port, store.port())) else {
        println!("envoyproxy/ratelimit is not built: `cargo xtask test install` does it");
        return None;
    };
    let name = "envoyproxy/ratelimit and the Redis it keeps its state in";
    Some(peer(name, child, Some(store), port, Asked::EnvoyOfPeer).await)
}

/// Starts envoyproxy/ratelimit with the limits below `root`, if it is built.
pub(crate) fn ratelimit(root: &Path, port: u16, redis: u16) -> Command {
    let this = std::env::current_exe().unwrap_or_default();
    let target = this.parent().and_then(Path::parent).unwrap_or(Path::new(""));
    let mut command = Command::new(target.join("clients/ratelimit/ratelimit"));
    command.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", port.to_string());
    command.env("HOST", "127.0.0.1").env("PORT", testkit::free_port().to_string());
    command.env("DEBUG_HOST", "127.0.0.1").env("DEBUG_PORT", testkit::free_port().to_string());
    command.env("REDIS_SOCKET_TYPE", "tcp").env("REDIS_URL", format!("127.0.0.1:{redis}"));
    command.env("USE_STATSD", "false").env("LOG_LEVEL", "error").env("RUNTIME_ROOT", root);
    command.env("RUNTIME_SUBDIRECTORY", "ratelimit").env("RUNTIME_WATCH_ROOT", "false");
    command
}

async fn peer(
    name: &'static str,
    child: Child,
    store: Option<RedisServer>,
    port: u16,
    asked: Asked,
) -> Contestant {
    eventually("a peer listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
    let address = format!("127.0.0.1:{port}");
    Contestant { name, child, store, address, asked, rounds: Vec::new(), target: "" }
}

/// Pings Redis that often, one PING at a time on each of 50 connections.
fn ping(redis: &RedisServer, requests: u64) -> Result<()> {
    let (port, requests) = (redis.port().to_string(), requests.to_string());
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port, "-c", "50", "-P", "1", "-n", &requests, "-t", "ping_mbulk", "-q"]);
    output(&mut command).map(|_| ())
}
