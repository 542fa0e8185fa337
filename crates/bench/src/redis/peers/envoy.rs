//! Envoy's question over gRPC, on servers that share a Redis: envoyproxy/ratelimit, and Tollgate with the same file.
//!
//! The servers are on the first core; the client is on the second, beside Redis, and costs neither anything that is
//! counted.

use std::cell::Cell;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use testkit::{Child, eventually, free_port};
use tollgate::clock;

use super::program::Peer;
use super::{Figures, INSTANCES, TOGETHER, Task};
use crate::doors::grpc::{Asked, ask, connect, question};
use crate::doors::ratelimit;
use crate::measure::serve;
use crate::redis::place::{Kind, Place, pin};

const SERVERS: usize = 2;
const FOLDER: &str = "ratelimit/config";
const LIMITS: &str = "domain: bench
descriptors:
  - {key: many, rate_limit: {unit: minute, requests_per_unit: 1000}}
  - {key: flood, rate_limit: {unit: second, requests_per_unit: 200}}
";

/// One task, on servers of its own.
pub(super) async fn measure(peer: Peer, task: Task) -> Result<Figures> {
    let files = TempDir::new()?;
    std::fs::create_dir_all(files.path().join(FOLDER))?;
    std::fs::write(files.path().join(FOLDER).join("bench.yaml"), LIMITS)?;
    let mut place = Place::start(Kind::Single).await;
    let (mut servers, mut addresses): (Vec<Child>, Vec<String>) = (Vec::new(), Vec::new());
    for _ in 0..SERVERS {
        if peer == Peer::EnvoyRatelimit {
            let port = free_port();
            let mut command: Command = ratelimit(files.path(), port, place.port());
            servers.push(Child::try_spawn(&mut command)?);
            eventually("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
            addresses.push(format!("127.0.0.1:{port}"));
        } else {
            let limits = files.path().join(FOLDER);
            let url = place.url().context("no Redis")?;
            let limits = limits.to_str().context("no such folder")?;
            let words = ["--workers", "1", "--envoy-config", limits, "--redis", &url];
            let (child, at) = serve("grpc", &words).await?;
            servers.push(child);
            addresses.push(at.split_once("://").map_or(at.as_str(), |(_, address)| address).to_owned());
        }
    }
    let used = |servers: &[Child]| -> Duration { servers.iter().map(Child::cpu_time).sum() };
    let asking = std::thread::spawn(move || load(&addresses, task));
    tokio::time::sleep(task.lead).await;
    let (began, before) = (place.begin().await?, used(&servers));
    tokio::time::sleep(task.span).await;
    let (usage, cpu) = (place.end(began).await?, used(&servers).saturating_sub(before));
    let key_bytes = if task.keys > 1 { Some(place.key_bytes().await?) } else { None };
    let (asked, admitted) = asking.join().map_err(|_| anyhow::anyhow!("the client fell"))??;
    Ok(Figures { asked, admitted, cpu, usage: Some(usage), key_bytes })
}

/// A connection for each instance, by turns to each server, with so many streams.
fn load(addresses: &[String], task: Task) -> Result<(u64, u64)> {
    pin(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let from = clock::instant() + task.lead;
        let until = from + task.span;
        let counts = Rc::new((Cell::new(0_u64), Cell::new(0_u64)));
        let mut streams = Vec::new();
        for address in addresses.iter().cycle().take(INSTANCES) {
            let connection = connect(address).await?;
            for _ in 0..TOGETHER {
                let (mut send, counts) = (connection.clone(), Rc::clone(&counts));
                streams.push(tokio::task::spawn_local(async move {
                    loop {
                        let user = format!("user:{}", fastrand::u32(..task.keys));
                        let message = question(if task.keys == 1 { "flood" } else { "many" }, &user);
                        let is_allowed;
                        (send, is_allowed) = ask(send, Asked::Envoy, message).await?;
                        let now = clock::instant();
                        if now >= until {
                            return anyhow::Ok(());
                        }
                        if now >= from {
                            counts.0.set(counts.0.get() + 1);
                            counts.1.set(counts.1.get() + u64::from(is_allowed));
                        }
                    }
                }));
            }
        }
        for stream in streams {
            stream.await??;
        }
        Ok((counts.0.get(), counts.1.get()))
    })
}
