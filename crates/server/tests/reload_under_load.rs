//! A hundred reloads, a third of them broken, while clients ask as fast as they can: no ask sees half of
//! one policy and half of another, and none fails.
//!
//! Two rules of version n both have the limit BASE + n, so an ask that was decided under two policies shows
//! two limits, or limits of another version than the one its verdict names.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Client, PATIENCE, Server};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

const BASE: u64 = 1_000_000;
const RELOADS: u64 = 100;
/// At ten thousand asks a second, twenty reloads a second.
const ASKS_PER_RELOAD: u64 = 500;
const CONNECTIONS: usize = 8;
/// Asks in one write.
const PIPELINED: u64 = 16;

fn rules(n: u64) -> String {
    let limit = BASE + n;
    format!(
        "rules:\n  - {{ name: first, limit: {limit}/s }}\n  - {{ name: second, limit: {limit}/h, algorithm: fixed_window }}\n"
    )
}

/// What the clients saw.
#[derive(Debug, Default)]
struct Seen {
    asks: AtomicU64,
    is_over: AtomicBool,
}

/// Asks until it is over; every version that was seen, with its limit.
async fn ask(server: std::net::SocketAddr, client_at: usize, seen: Arc<Seen>) -> HashMap<u64, u64> {
    let body = format!(
        r#"{{"checks":[{{"rule":"first","key":"user-{client_at}"}},{{"rule":"second","key":"user-{client_at}"}}]}}"#
    );
    let request =
        format!("POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let several = request.repeat(usize::try_from(PIPELINED).unwrap());
    let mut client = Client::connect(server).await;
    let mut versions = HashMap::new();
    while !seen.is_over.load(Ordering::Relaxed) {
        client.raw(several.as_bytes()).await;
        for _ in 0..PIPELINED {
            let answer = client.answer().await.expect("no connection ends by a reload");
            assert_eq!(answer.status, 200, "{}", answer.text());
            let verdict = answer.json();
            assert_eq!(
                (&verdict["allowed"], &verdict["source"]),
                (&true.into(), &"store".into()),
                "{verdict}"
            );
            let number = |value: &Value| value.as_u64().unwrap();
            let [first, second] = [0, 1].map(|at| number(&verdict["checks"][at]["limit"]));
            assert_eq!(first, second, "a mixed policy: {verdict}");
            let version = number(&verdict["policy_version"]);
            let limit = *versions.entry(version).or_insert(first);
            assert_eq!(limit, first, "one version, two policies: {verdict}");
        }
        seen.asks.fetch_add(PIPELINED, Ordering::Relaxed);
    }
    versions
}

/// Puts one text after the other in force, or fails to; what each version must have as its limit.
async fn reload(server: &Server, file: &Path, seen: &Seen) -> HashMap<u64, u64> {
    let beside = file.with_extension("new");
    let mut client = Client::connect(server.admin).await;
    let mut versions = HashMap::from([(1, BASE)]);
    for n in 1..=RELOADS {
        let due = seen.asks.load(Ordering::Relaxed) + ASKS_PER_RELOAD;
        while seen.asks.load(Ordering::Relaxed) < due {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let is_broken = n % 3 == 0;
        let text = if is_broken { rules(n) + "  - { name: third, limit: never }\n" } else { rules(n) };
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, file).unwrap();
        let answer = client.send("POST", "/v1/reload", "", b"").await;
        assert_eq!(answer.status, if is_broken { 422 } else { 200 }, "{}", answer.text());
        if !is_broken {
            // Had the watch been quicker, it would be "unchanged", and the version the same.
            let version = answer.json()["version"].as_u64().unwrap();
            assert_eq!(versions.insert(version, BASE + n), None, "a version is never given twice");
        }
    }
    versions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_ask_sees_two_policies_and_none_fails() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.yaml");
    fs::write(&file, rules(0)).unwrap();
    let server = Server::start_with(&["--config", file.to_str().unwrap(), "--workers", "2"]).await;
    let seen = Arc::new(Seen::default());
    let mut clients = JoinSet::new();
    for at in 0..CONNECTIONS {
        clients.spawn(ask(server.http, at, Arc::clone(&seen)));
    }
    let started = Instant::now();
    let made = tokio::time::timeout(PATIENCE * 4, async {
        tokio::select! {
            made = reload(&server, &file, &seen) => made,
            ended = clients.join_next() => panic!("a client ended early: {ended:?}"),
        }
    });
    let made = made.await.expect("a hundred reloads are done");
    seen.is_over.store(true, Ordering::Relaxed);
    let (asks, took) = (seen.asks.load(Ordering::Relaxed), started.elapsed());
    let mut versions = HashMap::new();
    for of_one in clients.join_all().await {
        for (version, limit) in of_one {
            assert_eq!(made.get(&version), Some(&limit), "version {version}");
            versions.insert(version, limit);
        }
    }
    // Of 67 good texts nearly each was in force long enough to be seen; how many is the machine's business.
    assert!(versions.len() > 10, "only {} versions were seen", versions.len());
    assert_eq!(made.len(), 68);
    let policy = server.admin("/v1/policy", "").await.json();
    assert_eq!(policy["version"], 68, "{policy}");
    assert_eq!(server.metric(r#"tollgate_policy_reloads_total{result="reloaded"}"#).await, Some(67.0));
    let per_second = asks * 1000 / u64::try_from(took.as_millis()).unwrap().max(1);
    println!("{asks} asks, {per_second} a second, under {} versions in {took:?}", versions.len());
}
