//! What a check costs the server at each door, beside what a PING costs Redis: `bench doors`.
//!
//! Processor time of the server's process, user and system, by `/proc/PID/stat`; both sides by turns in one
//! run, so that what the machine does meanwhile it does to both.

mod grpc;

use std::process::Command;

use anyhow::Result;
use testkit::{Child, RedisServer};

use crate::measure::{median, micros_each, output, serve};

const ROUNDS: usize = 9;

/// A server behind one door, and what it has cost.
struct Contestant {
    name: &'static str,
    child: Child,
    address: String,
    load: fn(&str) -> Result<u64>,
    /// Microseconds per check, and those of a PING in the same round.
    rounds: Vec<(f64, f64)>,
    target: f64,
}

/// Runs all of it.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(table())
}

async fn table() -> Result<()> {
    let redis = RedisServer::start().await;
    let files = grpc::Files::write()?;
    let mut contestants = Vec::new();
    for (name, arguments) in files.servers() {
        let (child, place) = serve("grpc", &arguments).await?;
        let address = place.split_once("://").map_or(place.as_str(), |(_, address)| address).to_owned();
        contestants.push(Contestant {
            name,
            child,
            address,
            load: grpc::load,
            rounds: Vec::new(),
            target: 0.75,
        });
    }
    // The first round warms up and is not counted.
    for round in 0..=ROUNDS {
        for contestant in &mut contestants {
            let before = contestant.child.cpu_time();
            let address = contestant.address.clone();
            let load = contestant.load;
            // On a thread and a runtime of its own: whatever it costs is not the server's.
            let requests =
                std::thread::spawn(move || load(&address)).join().expect("the load does not panic")?;
            let check = micros_each(contestant.child.cpu_time().saturating_sub(before), requests);
            let before = redis.cpu_time();
            ping(&redis, requests)?;
            let ping = micros_each(redis.cpu_time().saturating_sub(before), requests);
            if round > 0 {
                contestant.rounds.push((check, ping));
            }
        }
    }
    println!("\n### Server CPU per check by door (memory store, {ROUNDS} rounds by turns, medians)\n");
    println!(
        "| door | µs per check | µs per Redis PING, pipeline 1 | ratio | target |\n|---|---|---|---|---|"
    );
    for Contestant { name, rounds, target, .. } in &contestants {
        let check = median(rounds.iter().map(|round| round.0));
        let ping = median(rounds.iter().map(|round| round.1));
        let ratio = median(rounds.iter().map(|round| round.0 / round.1));
        println!("| {name} | {check:.2} | {ping:.2} | {ratio:.2} | ≤ {target} |");
    }
    Ok(())
}

/// Pings Redis that often, one PING at a time on each of 50 connections.
fn ping(redis: &RedisServer, requests: u64) -> Result<()> {
    let (port, requests) = (redis.port().to_string(), requests.to_string());
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port, "-c", "50", "-P", "1", "-n", &requests, "-t", "ping_mbulk", "-q"]);
    output(&mut command).map(|_| ())
}
