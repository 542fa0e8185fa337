//! Measures what the documentation states: `cargo run --release -p bench -- core`.
//!
//! One module per part; each prints a table in Markdown.
#![expect(clippy::print_stdout, reason = "printing is what a benchmark does")]

mod bare;
mod breaker;
mod doors;
mod flood;
mod http;
mod leases;
mod measure;
mod memory;
mod pipelines;
mod policy;
mod redis;
mod resp;
mod scripts;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["core", "redis"] => scripts::run(),
        ["core", "flood"] => flood::run(),
        ["core"] => memory::run(&[]).and_then(|()| scripts::run()).and_then(|()| flood::run()),
        ["core", parts @ ..] => memory::run(parts),
        ["breaker"] => breaker::run(),
        ["doors"] => doors::run().and_then(|()| resp::run()),
        ["doors", "grpc"] => doors::run(),
        ["doors", "resp"] => resp::run(),
        ["http"] => http::run(),
        ["leases"] => leases::run(),
        ["redis", words @ ..] => redis::run(words),
        ["redis-peer", words @ ..] => redis::peer(words),
        ["policy"] => policy::run(),
        ["bare-child", words @ ..] => bare::child(words),
        ["policy-child", words @ ..] => policy::child(words),
        ["memory-child", part @ ..] => memory::child(part),
        _ => bail!(
            "usage: bench core [redis|flood|time|quick|decide|denied|bytes|instructions]... | bench breaker | bench doors [grpc|resp] | bench http | bench leases | bench policy | bench redis [--write] [matrix|spread|bytes|server|peers|batches] [WORD]..."
        ),
    }
}
