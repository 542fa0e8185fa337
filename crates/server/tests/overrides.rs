//! Keys looked up, reset and overridden at the admin door, and a fleet that obeys within a second.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use std::time::Duration;

use common::{Answer, Client, PATIENCE, Server, config};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use testkit::RedisServer;
use tokio::time::Instant;

const RULES: &str = "
rules:
  - { name: api, limit: 5/h, on_outage: local }
  - { name: shut, limit: 5/h, on_outage: deny }
  - { name: log, limit: 3/h, algorithm: sliding_log }
";

/// What the fleet promises.
const WITHIN: Duration = Duration::from_secs(1);

async fn send(server: &Server, method: &str, path: &str, body: &Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    Client::connect(server.admin).await.send(method, path, "", body.as_bytes()).await
}

/// Makes an override, and gives it as it was answered.
async fn put(server: &Server, mut body: Value) -> Value {
    body["reason"] = json!("a test");
    let answer = send(server, "PUT", "/v1/overrides", &body).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    answer.json()
}

async fn remove(server: &Server, rule: &str, key: &str) -> Value {
    let path = format!("/v1/overrides?rule={rule}&key={key}");
    let answer = send(server, "DELETE", &path, &Value::Null).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn look_up(server: &Server, rule: &str, key: &str) -> Value {
    let answer = server.admin(&format!("/v1/keys?rule={rule}&key={key}"), "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn check(server: &Server, rule: &str, key: &str) -> Value {
    server.check(&json!({ "rule": rule, "key": key }).to_string()).await
}

async fn peek(server: &Server, rule: &str, key: &str) -> Value {
    server.peek(&json!({ "rule": rule, "key": key }).to_string()).await
}

/// Peeks until it is as it should be, and says how long that took.
async fn until(server: &Server, rule: &str, key: &str, is_so: impl Fn(&Value) -> bool) -> Duration {
    let started = Instant::now();
    let asking = async {
        while !is_so(&peek(server, rule, key).await) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("it comes to be so");
    started.elapsed()
}

fn is_blocked(answer: &Value) -> bool {
    answer["allowed"] == false && answer["source"] == "deny-list"
}

async fn on(redis: &RedisServer) -> (Server, NamedTempFile) {
    let file = config(RULES);
    let url = redis.url();
    let server = Server::start_with(&["--config", file.path().to_str().unwrap(), "--redis", &url]).await;
    (server, file)
}

async fn in_memory() -> (Server, NamedTempFile) {
    let file = config(RULES);
    (Server::start_with(&["--config", file.path().to_str().unwrap()]).await, file)
}

#[tokio::test]
async fn a_key_is_looked_up_without_spending_and_reset() {
    let (server, _file) = in_memory().await;
    check(&server, "log", "ann%20b").await;
    check(&server, "log", "ann b").await;
    for _ in 0..3 {
        let found = look_up(&server, "log", "ann+b").await;
        assert_eq!(
            (&found["key"], &found["allowed"], &found["source"]),
            (&json!("ann b"), &json!(true), &json!("store"))
        );
        let limit = &found["limits"][0];
        assert_eq!(
            (&limit["limit"], &limit["at_once"], &limit["remaining"]),
            (&json!("3/h"), &json!(3), &json!(2))
        );
        assert!(limit["reset_after_ms"].as_u64().is_some_and(|wait| wait > 3_500_000), "{found}");
        assert!(found["override"].is_null() && limit["retry_after_ms"].is_null(), "{found}");
    }
    check(&server, "log", "ann b").await;
    check(&server, "log", "ann b").await;
    let empty = look_up(&server, "log", "ann%20b").await;
    assert_eq!(empty["allowed"], false);
    assert!(empty["limits"][0]["retry_after_ms"].as_u64().is_some(), "{empty}");
    let answer = send(&server, "DELETE", "/v1/keys?rule=log&key=ann%20b", &Value::Null).await;
    assert_eq!((answer.status, &answer.json()["reset"]), (200, &json!(true)));
    assert_eq!(look_up(&server, "log", "ann%20b").await["limits"][0]["remaining"], 3);
    assert_eq!(look_up(&server, "log", "ann%2520b").await["limits"][0]["remaining"], 2, "another key");
    server.child.wait_for_line(|line| line.contains("a key was reset"), PATIENCE).await;
    assert!(!server.child.output().contains("ann"), "{}", server.child.output());
}

#[tokio::test]
async fn an_override_holds_at_once_where_it_was_made_and_is_listed() {
    let (server, _file) = in_memory().await;
    assert_eq!(check(&server, "api", "ann").await["remaining"], 4);
    let made = put(
        &server,
        json!({ "rule": "api", "key": "ann", "limit": "50/h", "burst": 100, "ttl": "2h", "by": "bob" }),
    )
    .await;
    assert_eq!(
        (&made["rule"], &made["by"], &made["reason"]),
        (&json!("api"), &json!("bob"), &json!("a test"))
    );
    assert_eq!(made["limits"], json!([{ "limit": "50/h", "burst": 100 }]));
    let answer = check(&server, "api", "ann").await;
    // Four fifths of it were left, and are.
    assert_eq!((&answer["limit"], &answer["remaining"]), (&json!(100), &json!(79)), "{answer}");
    assert_eq!(check(&server, "api", "bob").await["limit"], 5, "nobody else's");
    let found = look_up(&server, "api", "ann").await;
    assert_eq!(
        (&found["override"]["by"], &found["limits"][0]["limit"]),
        (&json!("bob"), &json!("50/h")),
        "{found}"
    );

    put(&server, json!({ "rule": "api", "key": "eve", "blocked": true })).await;
    put(&server, json!({ "rule": "log", "key": "vip", "unlimited": true })).await;
    let refused = check(&server, "api", "eve").await;
    assert!(
        is_blocked(&refused) && refused["never"] == true && refused["retry_after_ms"].is_null(),
        "{refused}"
    );
    for _ in 0..5 {
        let passed = check(&server, "log", "vip").await;
        assert_eq!((&passed["allowed"], &passed["source"]), (&json!(true), &json!("unlimited")));
    }
    let all = server.admin("/v1/overrides", "").await.json();
    let listed: Vec<_> =
        all["overrides"].as_array().unwrap().iter().map(|one| (&one["rule"], &one["key"])).collect();
    assert_eq!(
        listed,
        [(&json!("api"), &json!("ann")), (&json!("api"), &json!("eve")), (&json!("log"), &json!("vip"))]
    );
    assert_eq!(all["overrides"][1]["blocked"], true);
    assert!((7_190..=7_200).contains(&all["overrides"][0]["seconds_left"].as_u64().unwrap()), "{all}");
    assert!(
        (3_590..=3_600).contains(&all["overrides"][1]["seconds_left"].as_u64().unwrap()),
        "an hour unless set"
    );
    assert_eq!(server.metric("tollgate_overrides").await, Some(3.0));
    assert_eq!(server.admin("/health", "").await.json()["overrides"], 3);

    assert_eq!(remove(&server, "api", "ann").await["removed"], true);
    assert_eq!(remove(&server, "api", "ann").await["removed"], false);
    assert_eq!(check(&server, "api", "ann").await["limit"], 5);
    for said in ["an override was made", "a test", "by=\"bob\"", "an override was removed"] {
        server.child.wait_for_line(|line| line.contains(said), PATIENCE).await;
    }
    let logged = server.child.output();
    assert!(!logged.contains("ann") && !logged.contains("eve"), "{logged}");
}

#[tokio::test]
async fn what_is_not_understood_names_its_field_and_changes_nothing() {
    let file =
        config("rules: [{ name: api, limit: 5/h }, { name: log, limit: 3/h, algorithm: sliding_log }]");
    let server = Server::start_with(&["--config", file.path().to_str().unwrap()]).await;
    let good = json!({ "rule": "api", "key": "ann", "limit": "9/h", "reason": "r" });
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    for (field, body) in [
        ("rule", with("rule", json!("nobody"))),
        ("rule", with("rule", json!(7))),
        ("key", with("key", json!(""))),
        ("key", with("key", json!("a\u{7}"))),
        ("key", with("key", json!("k".repeat(1025)))),
        ("limit", with("limit", json!("9"))),
        ("limit", with("limit", json!(9))),
        ("burst", with("burst", json!(0))),
        ("burst", with("burst", json!("9"))),
        ("limits", with("limits", json!(["9/h"]))),
        ("blocked", with("blocked", json!(true))),
        ("ttl", with("ttl", json!("5"))),
        ("ttl", with("ttl", json!("31d"))),
        ("ttl", with("ttl", json!("999ms"))),
        ("reason", with("reason", json!(" "))),
        ("reason", with("reason", json!("r".repeat(257)))),
        ("by", with("by", json!(["ann"]))),
        ("colour", with("colour", json!("blue"))),
        ("limit", json!({ "rule": "api", "key": "ann", "reason": "r" })),
        ("blocked", json!({ "rule": "api", "key": "ann", "reason": "r", "blocked": false })),
        ("unlimited", json!({ "rule": "api", "key": "ann", "reason": "r", "unlimited": "yes" })),
        ("burst", json!({ "rule": "api", "key": "ann", "reason": "r", "unlimited": true, "burst": 5 })),
        ("burst", json!({ "rule": "log", "key": "ann", "reason": "r", "limit": "9/h", "burst": 5 })),
        ("limits", json!({ "rule": "api", "key": "ann", "reason": "r", "limits": ["9/h", "9/s"] })),
        ("limits", json!({ "rule": "api", "key": "ann", "reason": "r", "limits": "9/h" })),
        ("limits[0]", json!({ "rule": "api", "key": "ann", "reason": "r", "limits": ["9"] })),
        (
            "limits[0].limit",
            json!({ "rule": "api", "key": "ann", "reason": "r", "limits": [{ "limit": "x" }] }),
        ),
        (
            "limits[0].x",
            json!({ "rule": "api", "key": "ann", "reason": "r", "limits": [{ "limit": "9/h", "x": 1 }] }),
        ),
    ] {
        let answer = send(&server, "PUT", "/v1/overrides", &body).await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (400, Some("application/problem+json")),
            "{body}"
        );
        let problem = answer.json();
        assert_eq!(problem["field"], field, "{body}: {problem}");
        assert!(problem["title"].as_str().unwrap().ends_with("nothing was changed"), "{problem}");
    }
    for (status, method, path, body) in [
        (400, "PUT", "/v1/overrides", "{"),
        (400, "PUT", "/v1/overrides", "[]"),
        (400, "DELETE", "/v1/overrides?rule=api", ""),
        (400, "GET", "/v1/keys?rule=nobody&key=k", ""),
        (400, "DELETE", "/v1/keys?rule=nobody&key=k", ""),
        (400, "GET", "/v1/keys?rule=api&key=%zz", ""),
        (405, "POST", "/v1/overrides", ""),
        (405, "PUT", "/v1/keys?rule=api&key=k", ""),
    ] {
        let answer = Client::connect(server.admin).await.send(method, path, "", body.as_bytes()).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
    }
    let long = vec![b' '; 33 * 1024];
    let answer = Client::connect(server.admin).await.send("PUT", "/v1/overrides", "", &long).await;
    assert_eq!(answer.status, 400);
    assert_eq!(server.admin("/v1/overrides", "").await.json()["overrides"], json!([]));
    assert_eq!(check(&server, "api", "ann").await["limit"], 5);
}

#[tokio::test]
async fn what_changes_on_one_instance_holds_on_all_within_a_second() {
    let redis = RedisServer::start().await;
    let ((one, _kept), (two, _too)) = (on(&redis).await, on(&redis).await);
    let mut slowest = Duration::ZERO;
    for round in 0..5 {
        let key = format!("eve-{round}");
        put(&one, json!({ "rule": "api", "key": key, "blocked": true })).await;
        assert!(is_blocked(&peek(&one, "api", &key).await), "at once where it was made");
        slowest = slowest.max(until(&two, "api", &key, is_blocked).await);
        put(&two, json!({ "rule": "api", "key": key, "limit": "7/h" })).await;
        slowest = slowest.max(until(&one, "api", &key, |answer| answer["limit"] == 7).await);
        remove(&two, "api", &key).await;
        slowest = slowest.max(until(&one, "api", &key, |answer| answer["limit"] == 5).await);
    }
    assert!(slowest < WITHIN, "{slowest:?}");

    // By itself, at its end, on both.
    put(&one, json!({ "rule": "api", "key": "mallory", "blocked": true, "ttl": "2s" })).await;
    until(&two, "api", "mallory", is_blocked).await;
    let made = Instant::now();
    until(&two, "api", "mallory", |answer| !is_blocked(answer)).await;
    assert!(made.elapsed() < Duration::from_secs(3), "{:?}", made.elapsed());
    until(&one, "api", "mallory", |answer| !is_blocked(answer)).await;
    assert_eq!(one.admin("/v1/overrides", "").await.json()["overrides"], json!([]));

    // A reset is the store's, and so everybody's at once.
    for server in [&one, &two] {
        check(server, "log", "ann").await;
    }
    assert_eq!(send(&two, "DELETE", "/v1/keys?rule=log&key=ann", &Value::Null).await.status, 200);
    assert_eq!(peek(&one, "log", "ann").await["remaining"], 3);

    // Who comes later obeys from the first ask on.
    put(&one, json!({ "rule": "api", "key": "trudy", "blocked": true })).await;
    let (three, _file) = on(&redis).await;
    assert!(is_blocked(&check(&three, "api", "trudy").await));
}

#[tokio::test]
async fn without_redis_known_overrides_hold_on_and_no_new_ones_are_made() {
    let redis = RedisServer::start().await;
    let (server, _file) = on(&redis).await;
    put(&server, json!({ "rule": "api", "key": "eve", "blocked": true })).await;
    put(&server, json!({ "rule": "shut", "key": "vip", "unlimited": true })).await;
    put(&server, json!({ "rule": "api", "key": "soon", "blocked": true, "ttl": "3s" })).await;
    redis.pause();
    let health = async {
        loop {
            let health = server.admin("/health", "").await.json();
            if health["reasons"].to_string().contains("board of overrides") {
                return health;
            }
        }
    };
    let health = tokio::time::timeout(PATIENCE, health).await.expect("health says so");
    assert_eq!(health["status"], "degraded");
    let told = async { while server.metric("tollgate_overrides_board_unreachable").await != Some(1.0) {} };
    tokio::time::timeout(PATIENCE, told).await.expect("the metrics say so too");
    let warned =
        |line: &str| line.contains("WARN") && line.contains("the board of overrides is out of reach");
    server.child.wait_for_line(warned, PATIENCE).await;
    assert!(is_blocked(&check(&server, "api", "eve").await));
    assert_eq!(check(&server, "shut", "vip").await["source"], "unlimited");
    assert_eq!(check(&server, "shut", "ann").await["on_outage"], "deny");
    let refused = send(
        &server,
        "PUT",
        "/v1/overrides",
        &json!({ "rule": "api", "key": "x", "blocked": true, "reason": "r" }),
    )
    .await;
    assert_eq!(
        (refused.status, refused.json()["type"].as_str()),
        (503, Some("urn:tollgate:problem:store-away"))
    );
    assert_eq!(send(&server, "DELETE", "/v1/keys?rule=api&key=x", &Value::Null).await.status, 503);
    until(&server, "api", "soon", |answer| !is_blocked(answer)).await;
    assert!(is_blocked(&check(&server, "api", "eve").await), "the others have not ended");

    redis.resume();
    until(&server, "api", "ann", |answer| answer["source"] == "store").await;
    assert!(is_blocked(&check(&server, "api", "eve").await));
    let well = async { while server.admin("/health", "").await.json()["status"] != "ok" {} };
    tokio::time::timeout(PATIENCE, well).await.expect("health says so");
    let warned =
        |line: &str| line.contains("WARN") && line.contains("the board of overrides is within reach");
    server.child.wait_for_line(warned, PATIENCE).await;
    let logged = server.child.output();
    assert_eq!(logged.matches("the board of overrides is").count(), 2, "once each: {logged}");
}

#[tokio::test]
async fn a_board_that_cannot_be_read_at_start_is_warned_of() {
    let redis = RedisServer::start().await;
    redis.pause();
    let (server, _file) = on(&redis).await;
    let warned = |line: &str| line.contains("WARN") && line.contains("the board of overrides cannot be read");
    server.child.wait_for_line(warned, PATIENCE).await;
    redis.resume();
    let well = |line: &str| line.contains("the board of overrides is within reach again");
    server.child.wait_for_line(well, PATIENCE).await;
}

/// A Redis that loses its data loses the board, and overrides with it: they have to be made again.
#[tokio::test]
async fn a_lost_board_ends_every_override() {
    let redis = RedisServer::start().await;
    let (server, _file) = on(&redis).await;
    put(&server, json!({ "rule": "api", "key": "eve", "blocked": true })).await;
    redis.command(&["FLUSHALL"]).await;
    let took = until(&server, "api", "eve", |answer| !is_blocked(answer)).await;
    assert!(took < WITHIN, "{took:?}");
    assert_eq!(server.admin("/v1/overrides", "").await.json()["overrides"], json!([]));
    put(&server, json!({ "rule": "api", "key": "eve", "blocked": true })).await;
    assert!(is_blocked(&check(&server, "api", "eve").await));
}

#[tokio::test]
async fn an_override_outlives_a_reload_and_waits_where_its_rule_is_gone() {
    let (server, file) = in_memory().await;
    put(&server, json!({ "rule": "api", "key": "ann", "limit": "50/h" })).await;
    put(&server, json!({ "rule": "log", "key": "eve", "blocked": true })).await;
    let reload = async |text: &str| {
        std::fs::write(file.path(), text).unwrap();
        assert_eq!(send(&server, "POST", "/v1/reload", &Value::Null).await.status, 200);
    };
    // Of another algorithm, for which the override is built anew.
    reload("rules: [{ name: api, limit: 6/h, algorithm: sliding_window }]").await;
    assert_eq!(check(&server, "api", "ann").await["limit"], 50);
    assert_eq!(check(&server, "api", "bob").await["limit"], 6);
    let all = server.admin("/v1/overrides", "").await.json();
    assert!(all["overrides"][0].get("idle").is_none(), "{all}");
    assert!(all["overrides"][1]["idle"].as_str().unwrap().contains("no such rule"), "{all}");
    reload(RULES).await;
    assert!(is_blocked(&check(&server, "log", "eve").await));
    assert_eq!(check(&server, "api", "ann").await["limit"], 50);
    // A limit that the rule's new algorithm cannot keep (a burst, in a log): the rule's own holds.
    put(&server, json!({ "rule": "api", "key": "ann", "limit": "50/h", "burst": 60 })).await;
    reload("rules: [{ name: api, limit: 6/h, algorithm: sliding_log }]").await;
    assert_eq!(check(&server, "api", "ann").await["limit"], 6);
    let all = server.admin("/v1/overrides", "").await.json();
    assert!(all["overrides"][0]["idle"].is_string(), "{all}");
}

#[tokio::test]
async fn off_loopback_nothing_is_changed_without_the_token() {
    let token = "fedcba9876543210";
    let server = Server::start_with(&["--admin", "0.0.0.0:0", "--admin-token", token]).await;
    let body = json!({ "rule": "email", "key": "ann", "blocked": true, "reason": "r" }).to_string();
    for (method, path, body) in [
        ("GET", "/v1/policy", ""),
        ("GET", "/v1/keys?rule=email&key=ann", ""),
        ("DELETE", "/v1/keys?rule=email&key=ann", ""),
        ("GET", "/v1/overrides", ""),
        ("PUT", "/v1/overrides", body.as_str()),
        ("DELETE", "/v1/overrides?rule=email&key=ann", ""),
    ] {
        let mut client = Client::connect(server.admin).await;
        for headers in ["", "authorization: Bearer wrong\r\n"] {
            let answer = client.send(method, path, headers, body.as_bytes()).await;
            assert_eq!(answer.status, 401, "{method} {path} {headers}");
        }
        let right = format!("authorization: Bearer {token}\r\n");
        let answer = Client::connect(server.admin).await.send(method, path, &right, body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
    }
    assert!(!server.child.output().contains(token));
}

/// What the documentation shows works as it stands, with the built-in policy.
#[tokio::test]
async fn what_is_documented_works_with_the_built_in_policy() {
    let server = Server::start().await;
    let page = include_str!("../../../docs/admin.md");
    let overrides: Vec<Value> = page
        .lines()
        .skip_while(|line| !line.starts_with("PUT /v1/overrides "))
        .take_while(|line| *line != "```")
        .map(|line| serde_json::from_str(line.trim_start_matches("PUT /v1/overrides")).unwrap())
        .collect();
    assert_eq!(overrides.len(), 4);
    for body in &overrides {
        let answer = send(&server, "PUT", "/v1/overrides", body).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    }
    let lookups: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("GET /v1/keys?").filter(|query| !query.contains("=R&")))
        .collect();
    assert_eq!(lookups.len(), 1);
    for query in lookups {
        let answer = server.admin(&format!("/v1/keys?{query}"), "").await;
        assert_eq!((answer.status, &answer.json()["limits"][0]["at_once"]), (200, &json!(1000)), "{query}");
    }
    // It holds for the calls it is about.
    let call = |address: &str| json!({ "attributes": { "path": "/", "address": address } }).to_string();
    assert_eq!(server.check(&call("203.0.113.9")).await["limit"], 1000);
    assert_eq!(server.check(&call("198.51.100.7")).await["source"], "deny-list");
    // As the page says of a token, for whoever wants to know.
    let token = "token/~1ec1c26b50d5d3c58d9583181af80766";
    assert!(page.contains(token));
    put(&server, json!({ "rule": "api", "key": token, "blocked": true })).await;
    let call = json!({ "attributes": { "path": "/", "token": "s3cret" } });
    assert_eq!(server.check(&call.to_string()).await["source"], "deny-list");
}

#[tokio::test]
async fn a_key_that_nobody_is_counted_under_is_refused_with_the_right_spelling() {
    let server = Server::start().await;
    for (rule, key, instead) in [
        ("api", "203.0.113.9", "write address/203.0.113.9"),
        ("api", "user_123", "write token/~HASH or address/203.0.113.9"),
        ("api", "address/2001:db8::7", "address/203.0.113.9"),
        ("login", "2001:db8::7", "write 2001:db8::/64"),
    ] {
        let body = json!({ "rule": rule, "key": key, "blocked": true, "reason": "a test" });
        let put = send(&server, "PUT", "/v1/overrides", &body).await;
        let path = format!("/v1/keys?rule={rule}&key={key}");
        let get = send(&server, "GET", &path, &Value::Null).await;
        let delete = send(&server, "DELETE", &path, &Value::Null).await;
        for answer in [put, get, delete] {
            assert_eq!((answer.status, &answer.json()["field"]), (400, &json!("key")), "{}", answer.text());
            assert!(answer.text().contains(instead), "{}", answer.text());
        }
        // What was made before there was a choice can still be taken down.
        assert_eq!(remove(&server, rule, key).await["removed"], false);
    }
    assert_eq!(look_up(&server, "login", "user_123").await["rule"], "login", "by name any key is one");
}
