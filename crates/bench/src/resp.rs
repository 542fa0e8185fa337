//! What a check costs the server over RESP, beside what Redis' own commands cost Redis.
//!
//! Processor time of each server's process, user and system, by `/proc/PID/stat`: asked over 50
//! connections, by turns, by a client that keeps every one of them busy, and once more by `redis-benchmark`. `throttlecrab-server` takes part where it is on the
//! PATH, and redis-cell where `libredis_cell.so` lies in a directory of it. A ratio is the median of the
//! rounds' ratios to the Redis row of its table.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use testkit::{Child, RedisServer, free_port};
use tollgate::clock;

use crate::bare;
use crate::measure::{median, micros_each, output, serve};
use crate::pipelines::Load;

const ROUNDS: usize = 5;
const CONNECTIONS: usize = 50;
const KEYS: u64 = 100_000;

/// Who answers.
enum Server {
    Redis(RedisServer),
    Other { child: Child, port: u16 },
}

impl Server {
    fn port(&self) -> u16 {
        match self {
            Server::Redis(redis) => redis.port(),
            Server::Other { port, .. } => *port,
        }
    }

    fn cpu_time(&self) -> Duration {
        match self {
            Server::Redis(redis) => redis.cpu_time(),
            Server::Other { child, .. } => child.cpu_time(),
        }
    }
}

/// Who asks.
#[derive(Clone, Copy)]
enum Client {
    /// One that is quicker than any of the servers.
    Quick,
    /// `redis-benchmark`, which is not.
    Benchmark,
}

/// What is common to a table.
struct Asking {
    client: Client,
    pipeline: usize,
    commands: u64,
}

/// One row: a command put to a server.
struct Row {
    name: String,
    /// Which server, by its place.
    server: usize,
    words: &'static [&'static str],
    target: &'static str,
    /// Microseconds of the server's per command.
    rounds: Vec<f64>,
    /// Commands in a second.
    pace: Vec<f64>,
}

/// Runs all of it.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tables())
}

async fn tables() -> Result<()> {
    const THROTTLE: &[&str] = &["CL.THROTTLE", "key:__rand_int__", "15", "30", "60"];
    const CRAB: &[&str] = &["THROTTLE", "key:__rand_int__", "15", "30", "60"];
    const CHECK: &[&str] = &["TG.CHECK", "api", "key:__rand_int__"];
    const PING: &[&str] = &["PING"];
    const SET: &[&str] = &["SET", "key:__rand_int__", "xxx"];
    const SET_EX: &[&str] = &["SET", "key:__rand_int__", "xxx", "EX", "60"];

    let mut servers = vec![Server::Redis(RedisServer::start().await)];
    for workers in ["1", "2"] {
        let (child, place) = serve("resp", &["--workers", workers]).await?;
        let port = place.rsplit(':').next().and_then(|port| port.parse().ok()).context("no port")?;
        servers.push(Server::Other { child, port });
    }
    // As `redis-benchmark` writes it: the words of THROTTLE, with a key of 16 bytes.
    let length: usize = "*5\r\n".len()
        + [11, 16, 2, 2, 2].map(|word: usize| word + if word > 9 { 7 } else { 6 }).iter().sum::<usize>();
    let port = free_port();
    let bare = joined(&mut servers, Server::Other { child: bare::start(port, length)?, port });
    let crab = throttlecrab().map(|server| joined(&mut servers, server));
    let mut cell = None;
    if let Some(module) = module() {
        cell = Some(joined(&mut servers, redis_cell(&module).await));
    }

    let row = |name: &str, server, words, target| Row {
        name: name.to_owned(),
        server,
        words,
        target,
        rounds: Vec::new(),
        pace: Vec::new(),
    };
    let mut piped = vec![
        row("Redis SET", 0, SET, ""),
        row("Redis SET with EX", 0, SET_EX, ""),
        row("Redis PING", 0, PING, ""),
        row("a bare loop that decides nothing", bare, THROTTLE, ""),
        row("Tollgate CL.THROTTLE, 1 worker", 1, THROTTLE, "≤ 0.5"),
        row("Tollgate CL.THROTTLE, 2 workers", 2, THROTTLE, "≤ 0.5"),
        row("Tollgate TG.CHECK, 1 worker", 1, CHECK, ""),
        row("Tollgate PING, 1 worker", 1, PING, ""),
    ];
    let mut benchmarked = vec![
        row("Redis SET", 0, SET, ""),
        row("Redis PING", 0, PING, ""),
        row("a bare loop that decides nothing", bare, THROTTLE, ""),
        row("Tollgate CL.THROTTLE, 1 worker", 1, THROTTLE, ""),
        row("Tollgate CL.THROTTLE, 2 workers", 2, THROTTLE, ""),
    ];
    let mut single = vec![
        row("Redis PING", 0, PING, ""),
        row("a bare loop that decides nothing", bare, THROTTLE, ""),
        row("Tollgate CL.THROTTLE, 1 worker", 1, THROTTLE, "≤ 1.2"),
        row("Tollgate CL.THROTTLE, 2 workers", 2, THROTTLE, ""),
    ];
    let missing = [
        "throttlecrab-server is not on the PATH: `cargo install throttlecrab-server --locked` brings it",
        "libredis_cell.so is not on the PATH: `cargo build --release` in the crate `redis-cell` makes it",
    ];
    let peers =
        [("throttlecrab THROTTLE", crab, CRAB), ("Redis with redis-cell CL.THROTTLE", cell, THROTTLE)];
    for ((name, server, words), missing) in peers.into_iter().zip(missing) {
        if let Some(server) = server {
            piped.push(row(name, server, words, ""));
            single.push(row(name, server, words, ""));
        } else {
            println!("{missing}");
        }
    }
    let by_sixteen = Asking { client: Client::Quick, pipeline: 16, commands: 400_000 };
    table("RESP, pipeline 16", &by_sixteen, &mut piped, &servers)?;
    let by_benchmark = Asking { client: Client::Benchmark, ..by_sixteen };
    table("RESP, pipeline 16, by redis-benchmark", &by_benchmark, &mut benchmarked, &servers)?;
    let by_one = Asking { client: Client::Quick, pipeline: 1, commands: 100_000 };
    table("RESP, pipeline 1", &by_one, &mut single, &servers)
}

fn throttlecrab() -> Option<Server> {
    let port = free_port();
    let mut command = Command::new("throttlecrab-server");
    command.args([
        "--redis",
        "--redis-host",
        "127.0.0.1",
        "--redis-port",
        &port.to_string(),
        "--log-level",
        "error",
    ]);
    let child = Child::try_spawn(&mut command).ok()?;
    Some(Server::Other { child, port })
}

/// The place of one more server.
fn joined(servers: &mut Vec<Server>, server: Server) -> usize {
    servers.push(server);
    servers.len() - 1
}

/// Redis with the module.
async fn redis_cell(module: &Path) -> Server {
    Server::Redis(RedisServer::builder().arg("loadmodule", &module.to_string_lossy()).start().await)
}

/// redis-cell, where programs are looked for.
pub(crate) fn module() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join("libredis_cell.so"))
        .find(|module| module.exists())
}

fn table(title: &str, asking: &Asking, rows: &mut [Row], servers: &[Server]) -> Result<()> {
    // The first round warms up and is not counted.
    for round in 0..=ROUNDS {
        for row in &mut *rows {
            let server = &servers[row.server];
            let before = server.cpu_time();
            let begun = clock::instant();
            asking.ask(server.port(), row.words).with_context(|| row.name.clone())?;
            let took = begun.elapsed();
            if round > 0 {
                row.rounds.push(micros_each(server.cpu_time().saturating_sub(before), asking.commands));
                row.pace.push(1e6 / micros_each(took, asking.commands));
            }
        }
    }
    println!(
        "\n### {title}: server CPU per command ({CONNECTIONS} connections, {KEYS} keys, {ROUNDS} rounds by turns, medians)\n"
    );
    let Some((first, _)) = rows.split_first() else { return Ok(()) };
    println!("| | commands a second | µs per command | × {} | target |\n|---|---|---|---|---|", first.name);
    for row in &*rows {
        let micros = median(row.rounds.iter().copied());
        let ratio = median(row.rounds.iter().zip(&first.rounds).map(|(mine, theirs)| mine / theirs));
        let pace = median(row.pace.iter().copied());
        println!("| {} | {pace:.0} | {micros:.2} | {ratio:.2} | {} |", row.name, row.target);
    }
    Ok(())
}

impl Asking {
    /// Asks all of it.
    fn ask(&self, port: u16, words: &[&str]) -> Result<()> {
        let Asking { client, pipeline, commands } = *self;
        match client {
            Client::Quick => {
                let (connections, keys) = (CONNECTIONS, KEYS);
                Load { port, connections, pipeline, commands, keys, words }.run()
            }
            Client::Benchmark => {
                let mut command = Command::new("redis-benchmark");
                let figures = [
                    ("-p", u64::from(port)),
                    ("-c", CONNECTIONS as u64),
                    ("-P", pipeline as u64),
                    ("-n", commands),
                    ("-r", KEYS),
                ];
                for (name, figure) in figures {
                    command.arg(name).arg(figure.to_string());
                }
                output(command.arg("-q").args(words)).map(|_| ())
            }
        }
    }
}
