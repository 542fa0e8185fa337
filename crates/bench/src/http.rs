//! What a check costs the server over HTTP, beside what a PING costs Redis.
//!
//! Processor time of the server's process, user and system, by `/proc/PID/stat`. Both sides answer
//! the same number of requests on 64 connections that stay open, one request at a time on each, asked by
//! the program their own communities use for that (`wrk`, `redis-benchmark`), by turns.

use std::io::Write as _;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use testkit::{Certificates, Child, RedisServer};

use crate::measure::{median, micros_each, output, serve};

const CONNECTIONS: &str = "64";
const ROUNDS: usize = 9;
/// How long the server is asked per round: more than a second of its time, of which we read hundredths.
const ROUND: &str = "3s";

/// Keys drawn from 10 000, requests written out beforehand: what is measured is not Lua.
const SCRIPT: &str = r#"
local requests, at = {}, 0
function init()
  for key = 1, 10000 do
    local body = '{"rule":"api","key":"user:' .. key .. '"}'
    requests[key] = wrk.format("POST", "/v1/check", { ["content-type"] = "application/json" }, body)
  end
end
function request()
  at = at + 1
  return requests[at * 7919 % 10000 + 1]
end
"#;

/// A server, and what it has cost.
struct Contestant {
    name: &'static str,
    child: Child,
    url: String,
    /// Microseconds per check, and those of a PING in the same round.
    rounds: Vec<(f64, f64)>,
    per_second: Vec<f64>,
}

/// Runs all of it.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(table())
}

async fn table() -> Result<()> {
    let mut script = tempfile::NamedTempFile::new()?;
    script.write_all(SCRIPT.as_bytes())?;
    let script = script.path().to_str().context("a temporary path is text")?;
    let certificates = Certificates::new();
    let mut tls = tempfile::NamedTempFile::new()?;
    let (cert, key) = (&certificates.server.certificate.path, &certificates.server.key.path);
    write!(
        tls,
        "rules: [{{name: api, limit: 100/s, burst: 200}}]\ntls: {{http: {{cert: {}, key: {}}}}}\n",
        cert.display(),
        key.display()
    )?;
    let tls = tls.path().to_str().context("a temporary path is text")?;

    let redis = RedisServer::start().await;
    let mut contestants = [
        start("1 worker", &["--workers", "1"]).await?,
        start("a worker per core", &[]).await?,
        start("1 worker, TLS 1.3", &["--workers", "1", "--config", tls]).await?,
    ];
    // The first round warms up and is not counted.
    for round in 0..=ROUNDS {
        for contestant in &mut contestants {
            let before = contestant.child.cpu_time();
            let (requests, per_second) = wrk(script, &contestant.url)?;
            let check = micros_each(contestant.child.cpu_time().saturating_sub(before), requests);
            let before = redis.cpu_time();
            ping(&redis, requests)?;
            let ping = micros_each(redis.cpu_time().saturating_sub(before), requests);
            if round > 0 {
                contestant.rounds.push((check, ping));
                contestant.per_second.push(per_second);
            }
        }
    }
    println!(
        "\n### Server CPU per check over HTTP ({CONNECTIONS} connections, memory store, {ROUNDS} rounds of {ROUND} by turns, medians)\n"
    );
    println!(
        "| `POST /v1/check`, HTTP/1.1 | µs per check | µs per Redis PING | ratio | checks/s |\n|---|---|---|---|---|"
    );
    for Contestant { name, rounds, per_second, .. } in &mut contestants {
        let check = median(rounds.iter().map(|round| round.0));
        let ping = median(rounds.iter().map(|round| round.1));
        let ratio = median(rounds.iter().map(|round| round.0 / round.1));
        let per_second = median(per_second.iter().copied());
        println!("| {name} | {check:.2} | {ping:.2} | {ratio:.2} | {per_second:.0} |");
    }
    Ok(())
}

async fn start(name: &'static str, arguments: &[&str]) -> Result<Contestant> {
    let (child, url) = serve("http", arguments).await?;
    Ok(Contestant { name, child, url, rounds: Vec::new(), per_second: Vec::new() })
}

/// Asks for one round; says how many were answered, and how many in a second.
fn wrk(script: &str, url: &str) -> Result<(u64, f64)> {
    let said = output(Command::new("wrk").args(["-t1", "-c", CONNECTIONS, "-d", ROUND, "-s", script, url]))?;
    for trouble in ["Non-2xx", "Socket errors"] {
        ensure!(!said.contains(trouble), "not every request was answered:\n{said}");
    }
    let number = |line: &str| line.split_whitespace().find_map(|word| word.parse::<f64>().ok());
    let requests = said
        .lines()
        .find(|line| line.contains("requests in"))
        .and_then(|line| line.split_whitespace().next().and_then(|word| word.parse().ok()));
    let per_second = said.lines().find(|line| line.starts_with("Requests/sec")).and_then(number);
    Ok((requests.context("wrk counted nothing")?, per_second.context("wrk timed nothing")?))
}

/// Pings Redis that often, one PING at a time on each connection.
fn ping(redis: &RedisServer, requests: u64) -> Result<()> {
    let (port, requests) = (redis.port().to_string(), requests.to_string());
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port, "-c", CONNECTIONS, "-P", "1", "-n", &requests, "-t", "ping_mbulk", "-q"]);
    output(&mut command).map(|_| ())
}
