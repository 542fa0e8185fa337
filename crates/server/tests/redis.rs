//! The built binary on a real Redis: shared limits, an outage and its end, and what `inspect` shows.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use common::{PATIENCE, Server, config, tollgate};
use serde_json::{Value, json};
use testkit::{Child, RedisCluster, RedisServer, SentinelGroup};

const RULES: &str = "
rules:
  - { name: open, limit: 100/h, on_outage: allow }
  - { name: shut, limit: 100/h, on_outage: deny }
  - { name: own, limit: 100/h, on_outage: local }
  - { name: month, limit: 3/month, algorithm: fixed_window, time_zone: Europe/Berlin, on_outage: deny }
  - { name: log, limit: 2/min, algorithm: sliding_log, on_outage: deny }
";

async fn serving(redis: &RedisServer, more: &[&str]) -> (Server, tempfile::NamedTempFile) {
    let file = config(RULES);
    let url = redis.url();
    let mut arguments = vec!["--config", file.path().to_str().unwrap(), "--redis", &url];
    arguments.extend(more);
    (Server::start_with(&arguments).await, file)
}

/// Asks until the answer comes from `source`, and gives that answer.
async fn until_from(server: &Server, body: &str, source: &str) -> Value {
    let asking = async {
        loop {
            let answer = server.check(body).await;
            if answer["source"] == source {
                return answer;
            }
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("the source changes")
}

#[tokio::test]
async fn two_servers_share_one_limit() {
    let redis = RedisServer::start().await;
    let ((one, _kept), (two, _too)) = (serving(&redis, &[]).await, serving(&redis, &[]).await);
    for (server, left) in [(&one, 1), (&two, 0)] {
        let answer = server.check(r#"{"rule":"log","key":"ann"}"#).await;
        assert_eq!((&answer["allowed"], &answer["remaining"]), (&json!(true), &json!(left)), "{answer}");
        assert_eq!(answer["source"], "store");
    }
    for server in [&one, &two] {
        let answer = server.check(r#"{"rule":"log","key":"ann"}"#).await;
        assert_eq!((&answer["allowed"], &answer["rule"]), (&json!(false), &json!("log")), "{answer}");
        assert!(answer["retry_after_ms"].as_u64().is_some_and(|wait| wait <= 60_000), "{answer}");
    }
}

/// Over every door's own words for it, and in the metrics.
#[tokio::test]
async fn what_redis_refused_is_refused_without_asking_again() {
    let redis = RedisServer::start().await;
    let (server, _kept) = serving(&redis, &[]).await;
    let body = r#"{"rule":"month","key":"ann","cost":3}"#;
    assert_eq!(server.check(body).await["allowed"], true);
    let refused = server.check(body).await;
    assert_eq!((&refused["allowed"], &refused["source"]), (&json!(false), &json!("store")), "{refused}");
    let again = server.check(body).await;
    assert_eq!((&again["allowed"], &again["source"]), (&json!(false), &json!("deny-cache")), "{again}");
    for field in ["limit", "remaining", "rule"] {
        assert_eq!(again[field], refused[field], "{field}");
    }
    assert!(
        again["retry_after_ms"].as_u64() <= refused["retry_after_ms"].as_u64(),
        "{again} after {refused}"
    );
    assert_eq!(server.metric("tollgate_deny_cache_entries").await, Some(1.0));
    assert_eq!(server.metric("tollgate_deny_cache_max_entries").await, Some(65_536.0));

    let file = config(&format!("{RULES}deny_cache: {{ enabled: false }}\n"));
    let url = redis.url();
    let off = Server::start_with(&["--config", file.path().to_str().unwrap(), "--redis", &url]).await;
    for _ in 0..2 {
        assert_eq!(off.check(body).await["source"], "store");
    }
    assert_eq!(off.metric("tollgate_deny_cache_entries").await, None);
}

#[tokio::test]
async fn a_hot_key_is_leased_and_what_is_left_comes_back_at_the_end() {
    let redis = RedisServer::start().await;
    let file = config("rules: [{ name: hot, limit: 1000/h, algorithm: fixed_window, lease: auto }]");
    let url = redis.url();
    let arguments = ["--config", file.path().to_str().unwrap(), "--redis", &url];
    let (mut server, other) = (Server::start_with(&arguments).await, Server::start_with(&arguments).await);
    let body = r#"{"rule":"hot","key":"ann"}"#;
    let (mut calls, mut leased) = (0, 0);
    // However slow the machine: until a good many were decided without Redis.
    while leased < 50 {
        let answer = server.check(body).await;
        assert_eq!(answer["allowed"], true, "{answer}");
        calls += 1;
        leased += u64::from(answer["source"] == "lease");
    }
    let metrics = server.admin("/metrics", "").await.text();
    let counted = format!(
        r#"tollgate_verdicts_total{{rule="hot",outcome="allowed",source="lease",on_outage="none"}} {leased}"#
    );
    assert!(metrics.contains(&counted), "{metrics}");
    assert!(metrics.contains(r#"tollgate_lease_tokens_total{change="taken"}"#), "{metrics}");

    server.child.terminate();
    let ended = tokio::time::timeout(PATIENCE, server.child.wait()).await.expect("it ends");
    assert_eq!(ended.code(), Some(0));
    assert_eq!(other.peek(body).await["remaining"], 1000 - calls, "only what was spent is gone");
}

#[tokio::test]
async fn a_take_on_one_server_is_refunded_on_another() {
    let redis = RedisServer::start().await;
    let ((one, _kept), (two, _too)) = (serving(&redis, &[]).await, serving(&redis, &[]).await);
    let taken = one.check(r#"{"rule":"log","key":"bob","cost":2}"#).await;
    assert_eq!(two.peek(r#"{"rule":"log","key":"bob"}"#).await["allowed"], false);
    let refund = json!({ "rule": "log", "key": "bob", "cost": 2, "take": taken["take"] }).to_string();
    assert_eq!(two.json("/v1/refund", &refund).await["refunded"], "all");
    assert_eq!(two.json("/v1/refund", &refund).await["refunded"], "nothing", "a take is undone once");
    assert_eq!(one.peek(r#"{"rule":"log","key":"bob"}"#).await["remaining"], 2);
}

#[tokio::test]
async fn with_redis_away_each_rule_answers_as_it_says_and_comes_back_by_itself() {
    let redis = RedisServer::start().await;
    let (server, _file) = serving(&redis, &[]).await;
    assert_eq!(server.check(r#"{"rule":"open","key":"ann"}"#).await["source"], "store");

    redis.pause();
    let open = until_from(&server, r#"{"rule":"open","key":"ann"}"#, "fallback").await;
    assert_eq!((&open["allowed"], &open["on_outage"]), (&json!(true), &json!("allow")), "{open}");
    assert_eq!((&open["limit"], &open["remaining"]), (&json!(100), &json!(100)), "{open}");
    let shut = server.check(r#"{"rule":"shut","key":"ann"}"#).await;
    assert_eq!((&shut["allowed"], &shut["on_outage"]), (&json!(false), &json!("deny")), "{shut}");
    let own = server.check(r#"{"rule":"own","key":"ann"}"#).await;
    assert_eq!((&own["allowed"], &own["on_outage"]), (&json!(true), &json!("local")), "{own}");
    let refund = server.post("/v1/refund", r#"{"rule":"open","key":"ann","take":"1.0"}"#).await;
    assert_eq!((refund.status, refund.header("content-type")), (503, Some("application/problem+json")));

    // The guard opens after a few more, and then the outage is shown everywhere.
    let mut health = server.admin("/health", "").await.json();
    while health["status"] != "degraded" {
        server.check(r#"{"rule":"open","key":"ann"}"#).await;
        health = server.admin("/health", "").await.json();
    }
    assert_eq!(server.metric("tollgate_redis_fallback_active").await, Some(1.0));
    assert_eq!(server.admin("/ready", "").await.status, 200, "it still answers");

    redis.resume();
    until_from(&server, r#"{"rule":"shut","key":"ann"}"#, "store").await;
    assert_eq!(server.metric("tollgate_redis_fallback_active").await, Some(0.0));
    assert_eq!(server.admin("/health", "").await.json()["status"], "ok");
    for said in ["set aside after repeated failures", "answers again"] {
        let times = server.child.output().matches(said).count();
        assert_eq!(times, 1, "{said}: {}", server.child.output());
    }
}

#[tokio::test]
async fn functions_can_be_switched_off_and_a_metric_says_which_it_is() {
    for (setting, shown, libraries) in [("", 1.0, 1), ("redis: { functions: false }\n", 0.0, 0)] {
        let redis = RedisServer::start().await;
        let file = config(&format!("{RULES}{setting}"));
        let url = redis.url();
        let server = Server::start_with(&["--config", file.path().to_str().unwrap(), "--redis", &url]).await;
        let answer = server.check(r#"{"rule":"own","key":"ann"}"#).await;
        assert_eq!((&answer["source"], &answer["remaining"]), (&json!("store"), &json!(99)), "{answer}");
        assert_eq!(server.metric("tollgate_redis_functions").await, Some(shown), "{setting}");
        assert_eq!(redis.command(&["FUNCTION", "LIST"]).await.array().len(), libraries, "{setting}");
    }
}

#[tokio::test]
async fn a_metric_says_how_many_takes_travelled_together() {
    let redis = RedisServer::start().await;
    let (server, _file) = serving(&redis, &[]).await;
    for _ in 0..3 {
        server.check(r#"{"rule":"own","key":"ann"}"#).await;
    }
    // Each had been answered before the next was asked, so each went alone.
    for (series, value) in [
        (r#"tollgate_redis_batch_size_bucket{le="1.0"}"#, 3.0),
        (r#"tollgate_redis_batch_size_bucket{le="128.0"}"#, 3.0),
        ("tollgate_redis_batch_size_count", 3.0),
        ("tollgate_redis_batch_size_sum", 3.0),
    ] {
        assert_eq!(server.metric(series).await, Some(value), "{series}");
    }
}

#[tokio::test]
async fn inspect_shows_any_bucket_in_words_and_in_json() {
    let redis = RedisServer::start().await;
    for layout in ["packed", "hash"] {
        let file = config(&format!("{RULES}redis: {{ layout: {layout} }}\n"));
        let url = redis.url();
        let server = Server::start_with(&["--config", file.path().to_str().unwrap(), "--redis", &url]).await;
        let key = format!("{layout} user:{{1}}");
        for rule in ["own", "month", "log"] {
            server.check(&json!({ "rule": rule, "key": key }).to_string()).await;
        }
        server
            .check(&json!({ "key": key, "limit": "10/s", "algorithm": "sliding_window" }).to_string())
            .await;

        let (code, words) = inspect(&[&key, "--redis", &url, "--raw"]).await;
        assert_eq!(code, 0, "{words}");
        for said in [
            "rule         own (limit 0)",
            "rule         month (limit 0)",
            "inline       per 1s",
            &format!("token_bucket, {layout} layout"),
            "limit        100 tokens, one every 36.0s",
            "tokens       99.",
            "full         in 35.",
            "entries      1",
            "expires      in",
            "raw          ",
        ] {
            assert!(words.contains(said), "{said:?} is not in\n{words}");
        }
        let (_, lines) = inspect(&[&key, "--redis", &url, "--json"]).await;
        let found: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(found.len(), 4, "{lines}");
        let bucket = found.iter().find(|one| one["algorithm"] == "token_bucket").unwrap();
        assert_eq!((&bucket["subject"], &bucket["state"]["capacity"]), (&json!(key), &json!(100)));
        let (code, one) = inspect(&[bucket["key"].as_str().unwrap(), "--redis", &url]).await;
        assert!(code == 0 && one.contains("token_bucket") && !one.contains("sliding_log"), "{one}");
    }
    let (code, said) = inspect(&["nobody", "--redis", &redis.url()]).await;
    assert!(code == 1 && said.contains("nothing is remembered about \"nobody\""), "{said}");
}

/// Whatever Redis is made of, limits are shared through it and can be looked into.
#[tokio::test]
async fn a_server_runs_on_sentinels_and_on_a_cluster() {
    let (group, cluster) = tokio::join!(SentinelGroup::start(), RedisCluster::start());
    for (url, partitions) in [(group.url(), ""), (cluster.url(), ""), (cluster.url(), "partitions: 8")] {
        let file = config(&format!("{RULES}redis: {{ {partitions} }}\n"));
        let arguments = ["--config", file.path().to_str().unwrap(), "--redis", &url];
        let (one, other) = (Server::start_with(&arguments).await, Server::start_with(&arguments).await);
        let mut left = Vec::new();
        for (server, user) in [(&one, "ann"), (&other, "ann"), (&one, "bob"), (&other, "cid")] {
            let answer = server.check(&json!({ "rule": "own", "key": user }).to_string()).await;
            assert_eq!(answer["source"], "store", "{url}: {answer}");
            left.push(answer["remaining"].as_u64().unwrap());
        }
        assert_eq!(left, [99, 98, 99, 99], "{url}");
        for user in ["ann", "bob", "cid"] {
            let (code, words) = inspect(&[user, "--config", arguments[1], "--redis", &url]).await;
            assert!(code == 0 && words.contains("rule         own (limit 0)"), "{url}: {words}");
            let answer = one.check(&json!({ "rule": "own", "key": user, "cost": 50 }).to_string()).await;
            assert_eq!(answer["allowed"], true, "{url}: {answer}");
        }
        // For the next one.
        for server in group.servers.iter().take(1).chain(cluster.nodes.iter().take(3)) {
            server.command(&["FLUSHALL"]).await;
        }
    }
}

#[tokio::test]
async fn a_cluster_has_no_numbered_databases() {
    let file = config(&format!("{RULES}redis: {{ url: 'redis-cluster://h', database: 2, partitions: 0 }}\n"));
    let mut child = Child::spawn(tollgate(&["check"]).args([file.path().to_str().unwrap()]));
    tokio::time::timeout(PATIENCE, child.wait()).await.expect("it checks and ends");
    let said = child.output();
    assert!(said.contains("redis.database: is 2, while a cluster has database 0 alone"), "{said}");
    assert!(said.contains("redis.partitions"), "{said}");
}

async fn inspect(arguments: &[&str]) -> (i32, String) {
    let mut child = Child::spawn(tollgate(&["inspect"]).args(arguments));
    let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("it looks and ends");
    (status.code().unwrap(), child.output())
}
