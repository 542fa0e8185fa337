//! A bad configuration is refused whole, with every problem named by its place.

mod common;

use common::{Server, config, refused};

const BAD: &str = "\
rules:
  - name: login
    limit: 5 per minute
    algoritm: sliding_log
  - name: login
    limit: 1/s
    burst: -3
  - limit: 10/month
  - name: 'sp ace'
    limit: 7/s
    on_outage: panic
  - 7
redis:
  url: redis://ann:hunter2@cache:99999
  dial_timeout: 5
  read_timeout: 90d
  pool_size: 0
  fail_open: true
  on_outage: deny
  tls_client_key: key.pem
limits:
  sliding_log_max: lots
listen:
  http: localhost
  grpc: everywhere
log: {level: loud, format: xml}
colour: blue
";

#[tokio::test]
async fn every_problem_is_named_at_once_with_line_and_column() {
    let file = config(BAD);
    let path = file.path().to_str().unwrap();
    let (code, output) = refused(&["--config", path]).await;
    assert_eq!(code, 2, "{output}");
    for (place, says) in [
        ("3:12: rules[0].limit", "not a rate"),
        (
            "4:5: rules[0].algoritm",
            "unknown field: use name, when, key, plan, limit, burst, algorithm, time_zone, limits, cost, allow",
        ),
        ("5:11: rules[1].name", "name of rules[0] too"),
        ("7:12: rules[1].burst", "whole number from 1"),
        ("8:5: rules[2].name", "is missing"),
        ("8:12: rules[2].limit", "month"),
        ("9:11: rules[3].name", "letters, digits"),
        ("11:16: rules[3].on_outage", "allow, deny or local"),
        ("12:5: rules[4]", "must be a mapping"),
        ("14:8: redis.url", "port"),
        ("15:17: redis.dial_timeout", "with its unit"),
        ("16:17: redis.read_timeout", "out of bounds: from 1ms to 1min"),
        ("17:14: redis.pool_size", "whole number from 1 to 1024"),
        ("18:14: redis.fail_open", "on_outage is deny"),
        ("20:19: redis.tls_client_key", "other half"),
        ("22:20: limits.sliding_log_max", "whole number"),
        ("24:9: listen.http", "not an address"),
        ("25:9: listen.grpc", "not an address"),
        ("26:14: log.level", "not a level"),
        ("26:28: log.format", "text or json"),
        ("27:1: colour", "unknown field"),
    ] {
        let line = format!("{path}:{place}: ");
        let found = output.lines().find(|found| found.starts_with(&line));
        assert!(found.is_some_and(|found| found.contains(says)), "{place} … {says}\n{output}");
    }
    let named = output.lines().filter(|line| line.starts_with(path)).count();
    assert_eq!(named, 21, "nothing else is wrong:\n{output}");
    assert!(!output.contains("hunter2"), "{output}");
}

const BAD_LEASES: &str = "\
rules:
  - { name: a, limit: 100/s, lease: always }
  - { name: b, limit: 100/s, lease: { max: 101, for: 100ms } }
  - { name: c, limit: 100/s, lease: { max: 1, for: 2s } }
  - { name: d, limit: 100/s, lease: { max: 50 } }
  - { name: e, limit: 100/s, algorithm: sliding_log, lease: { max: 50, for: 21ms } }
  - { name: f, limit: 100/40ms, algorithm: sliding_log, lease: auto }
  - { name: g, limits: [{ limit: 10/s }, { limit: 100/h }], lease: auto }
  - { name: h, limit: 100/100ms, algorithm: fixed_window, lease: { max: 50, for: 101ms } }
  - { name: fine, limit: 100/s, algorithm: sliding_log, lease: { max: 50, for: 20ms } }
";

#[tokio::test]
async fn a_lease_that_a_limit_cannot_bear_is_refused() {
    let file = config(BAD_LEASES);
    let path = file.path().to_str().unwrap();
    let (code, output) = refused(&["--config", path]).await;
    assert_eq!(code, 2, "{output}");
    let expected = [
        ("rules[0].lease", "\"always\" is not known: use auto, or {max: 50, for: 100ms}"),
        ("rules[1].lease", "max is 101, and the limit never holds more than 100"),
        ("rules[2].lease.max", "whole number from 2"),
        ("rules[2].lease.for", "out of bounds: from 1ms to 1s"),
        ("rules[3].lease.for", "is missing: say how long they may be spent"),
        ("rules[4].lease", "for is 21ms: at most 20ms on this sliding_log"),
        ("rules[5].lease", "a sliding_log of 40ms is too short to lease from: at least 50ms"),
        ("rules[6].lease", "is for rules of one limit, and this one has 2"),
        ("rules[7].lease", "for is 101ms: at most 100ms on this fixed_window"),
    ];
    for (place, says) in expected {
        let line = format!(": {place}: ");
        let found = output.lines().find(|found| found.contains(&line));
        assert!(found.is_some_and(|found| found.contains(says)), "{place} … {says}\n{output}");
    }
    let named = output.lines().filter(|line| line.starts_with(path)).count();
    assert_eq!(named, expected.len(), "nothing else is wrong:\n{output}");
}

#[tokio::test]
async fn what_is_not_yaml_is_one_problem_with_its_place() {
    for (text, place) in [("rules: [", ":1:"), ("a: 1\na: 2\n", ":2:"), ("rules:\n\t- x", ":2:")] {
        let file = config(text);
        let (code, output) = refused(&["--config", file.path().to_str().unwrap()]).await;
        assert_eq!(code, 2, "{output}");
        assert!(output.contains(place), "{text:?}: {output}");
    }
}

#[tokio::test]
async fn flags_are_checked_as_the_file_is() {
    for (flags, says) in [
        (&["--redis", "redis://:hunter2@h/x"][..], "--redis: database"),
        (&["--redis", "redis-sentinel://:hunter2@h"], "--redis: names no service"),
        (&["--redis", "redis-cluster://:hunter2@h/3"], "--redis: a cluster has database 0 alone"),
        (&["--http", "8080"], "--http: \"8080\" is not an address"),
        (&["--grpc", "8081"], "--grpc: \"8081\" is not an address"),
        (&["--resp", "6380"], "--resp: \"6380\" is not an address"),
        (&["--deadline", "25"], "--deadline: \"25\" is not a time"),
        (&["--deadline", "1h"], "out of bounds: from 1ms to 10s"),
        (&["--workers", "0"], "whole number from 1"),
        (&["--log", "loud"], "--log: \"loud\" is not a level"),
        (&["--token", "short"], "--token: needs at least 16"),
        (&["--admin", "0.0.0.0:0"], "the admin door needs --admin-token"),
        (&["--config", "/nowhere/policy.yaml"], "cannot read /nowhere/policy.yaml"),
    ] {
        let (code, output) = refused(flags).await;
        assert_eq!(code, 2, "{flags:?}: {output}");
        assert!(output.contains(says), "{flags:?}: {output}");
        assert!(!output.contains("hunter2"), "{output}");
    }
}

#[tokio::test]
async fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let file = config("listen: {http: off, admin: '127.0.0.1:1'}\nrules: []\n");
    let mut command =
        common::tollgate(&["serve", "--grpc", "off", "--resp", "off", "--admin", "127.0.0.1:0"]);
    command
        .env("TOLLGATE_CONFIG", file.path())
        .env("TOLLGATE_HTTP", "127.0.0.1:0")
        .env("TOLLGATE_ADMIN", "127.0.0.1:2");
    let child = testkit::Child::spawn(&mut command);
    let line = child.wait_for_line(|line| line.starts_with("  policy"), common::PATIENCE).await;
    assert!(line.contains("(0 rules)"), "{line}");
    let output = child.output();
    assert!(output.contains("  http    http://127.0.0.1:"), "{output}");
    assert!(!output.contains("127.0.0.1:1 ") && !output.contains("127.0.0.1:2 "), "{output}");
}

#[tokio::test]
async fn a_closed_door_is_closed() {
    let child = testkit::Child::spawn(&mut common::tollgate(&[
        "serve", "--http", "off", "--grpc", "off", "--resp", "off", "--admin", "off",
    ]));
    child.wait_for_line(|line| line.starts_with("  policy"), common::PATIENCE).await;
    let output = child.output();
    assert!(output.contains("  http    off") && output.contains("  admin   off"), "{output}");
}

#[tokio::test]
async fn a_taken_port_is_named_with_its_door() {
    let server = Server::start().await;
    for (door, flag, address) in [("http", "--http", server.http), ("admin", "--admin", server.admin)] {
        let other = if flag == "--http" { "--admin" } else { "--http" };
        let (code, output) =
            refused(&[flag, &address.to_string(), other, "127.0.0.1:0", "--grpc", "off", "--resp", "off"])
                .await;
        assert_eq!(code, 1, "{output}");
        assert!(
            output.contains(&format!("{door} door: cannot listen on {address}: the address is in use")),
            "{output}"
        );
    }
}

#[tokio::test]
async fn where_redis_is_is_said_without_the_credentials() {
    let port = testkit::free_port();
    let url = format!("redis://ann:hunter2@127.0.0.1:{port}/3");
    let server = Server::start_with(&["--redis", &url, "--log", "trace"]).await;
    let health = server.admin("/health", "").await.text();
    let shown = format!("redis://127.0.0.1:{port}/3");
    assert!(health.contains(&shown), "{health}");
    // Nobody answers there: every rule answers as it said it would.
    let answer = server.check(r#"{"rule":"search","key":"k"}"#).await;
    assert_eq!(
        (&answer["source"], &answer["on_outage"], &answer["allowed"]),
        (&"fallback".into(), &"allow".into(), &true.into())
    );
    assert!(answer["take"].is_null(), "what the store never saw cannot be refunded there");
    let answer = server.check(r#"{"rule":"login","key":"k"}"#).await;
    assert_eq!((&answer["on_outage"], &answer["allowed"]), (&"deny".into(), &false.into()));
    let refund = server.post("/v1/refund", r#"{"rule":"login","key":"k","take":"1.0"}"#).await;
    assert_eq!(refund.status, 503);
    assert!(refund.text().contains("given back"), "{}", refund.text());
    let output = server.child.output();
    assert!(
        output.contains(&shown) && !output.contains("hunter2") && !health.contains("hunter2"),
        "{output}"
    );
}
