//! `--envoy-config`: envoyproxy/ratelimit's files, doors, environment and reload.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;
#[path = "common/grpc.rs"]
#[allow(dead_code, reason = "shared with the test of the gRPC door, which calls more")]
mod grpc;
#[path = "../src/doors/grpc/proto/mod.rs"]
mod proto;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use common::{Client, PATIENCE, Server, refused, tollgate};
use grpc::{Caller, SHOULD_RATE_LIMIT, request};
use tempfile::TempDir;
use testkit::{Child, RedisServer};

const OK: i32 = 1;
const OVER: i32 = 2;

const LIMITS: &str = "
domain: shop
descriptors:
- key: tenant
  rate_limit: {unit: hour, requests_per_unit: 2, name: tenants}
- key: path
  value: /slow*
  share_threshold: true
  rate_limit: {unit: minute, requests_per_unit: 1}
  shadow_mode: true
";

/// A directory laid out as the original's: `current` is a link that is swapped.
struct Runtime {
    place: TempDir,
    versions: u32,
}

impl Runtime {
    fn new(text: &str) -> Runtime {
        let mut runtime = Runtime { place: TempDir::new().unwrap(), versions: 0 };
        runtime.swap(text);
        runtime
    }

    fn config(&self) -> PathBuf {
        self.place.path().join("current/ratelimit/config")
    }

    /// Another version behind the link, as one.
    fn swap(&mut self, text: &str) {
        self.versions += 1;
        let version = format!("v{}", self.versions);
        let folder = self.place.path().join(&version).join("ratelimit/config");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("shop.yaml"), text).unwrap();
        fs::write(folder.join(".editor.swp"), "not: [yaml").unwrap();
        let fresh = self.place.path().join("fresh");
        symlink(version, &fresh).unwrap();
        fs::rename(fresh, self.place.path().join("current")).unwrap();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn the_files_decide_over_grpc_and_json_alike() {
    let runtime = Runtime::new(LIMITS);
    let server = Server::start_with(&["--envoy-config", text(&runtime.config())]).await;
    assert!(server.child.output().contains("  envoy   2 limits of 1 domains"), "{}", server.child.output());
    let caller = Caller::connect(server.grpc).await;
    let (code, status) = caller.one("shop", &[("tenant", "acme")]).await;
    let limit = status.current_limit.unwrap();
    assert_eq!((code, status.limit_remaining), (OK, 1));
    assert_eq!((limit.requests_per_unit, limit.unit, limit.name.as_str()), (2, 3, "tenants"));

    let json = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"acme"}]}]}"#;
    let answer = server.post("/json", json).await;
    let body = answer.json();
    assert_eq!((answer.status, &body["overallCode"]), (200, &"OK".into()), "{body}");
    let status = &body["statuses"][0];
    assert_eq!(
        status["currentLimit"],
        serde_json::json!({"requestsPerUnit": 2, "unit": "HOUR", "name": "tenants"})
    );
    assert_eq!(status.get("limitRemaining"), None, "what is zero is left out");
    assert!(status["durationUntilReset"].as_str().unwrap().ends_with('s'));
    let over = server.post("/json", json).await;
    assert_eq!((over.status, &over.json()["overallCode"]), (429, &"OVER_LIMIT".into()));
    assert_eq!(caller.one("shop", &[("tenant", "acme")]).await.0, OVER, "one limit, two doors");

    // Names as in the protocol, numbers as texts, and a limit of the caller's own.
    let other = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"b"}],
        "hits_addend":"2","limit":{"requests_per_unit":3,"unit":"DAY"}}]}"#;
    assert_eq!(server.post("/json", other).await.json()["statuses"][0]["limitRemaining"], 1);
    // In proto3 JSON null is the same as nothing.
    let nulls = r#"{"domain":"shop","hitsAddend":null,"descriptors":[{"entries":[{"key":"tenant","value":null}],
        "hitsAddend":null,"limit":null,"isNegativeHits":null},{"entries":null}]}"#;
    assert_eq!(server.post("/json", nulls).await.json()["statuses"][0]["limitRemaining"], 1);
    for bad in [
        "{}",
        "x",
        r#"{"domain":"shop"}"#,
        r#"{"domain":"shop","descriptors":[{"entries":[]}],"hits":1}"#,
        r#"{"domain":"shop","descriptors":[{"limit":{"requestsPerUnit":1,"unit":"FORTNIGHT"}}]}"#,
    ] {
        assert_eq!(server.post("/json", bad).await.status, 400, "{bad}");
    }
    let mut client = Client::connect(server.http).await;
    let healthy = client.send("GET", "/healthcheck", "", b"").await;
    assert_eq!((healthy.status, healthy.text().as_str()), (200, "OK"));
    let shown = server.admin("/rlconfig", "").await.text();
    assert_eq!(
        shown,
        "shop.path_/slow*: unit=MINUTE requests_per_unit=1, shadow_mode: true, quota_mode: false\n\
         shop.tenant: unit=HOUR requests_per_unit=2, shadow_mode: false, quota_mode: false\n"
    );
}

#[tokio::test]
async fn limits_are_counted_under_the_originals_names_by_choice() {
    let runtime = Runtime::new(LIMITS);
    let plain = Server::start_with(&["--envoy-config", text(&runtime.config())]).await;
    Caller::connect(plain.grpc).await.one("shop", &[("tenant", "acme")]).await;
    assert!(!plain.admin("/metrics", "").await.text().contains("ratelimit_service"));

    let mut command = tollgate(&[
        "serve",
        "--http",
        "off",
        "--grpc",
        "127.0.0.1:0",
        "--resp",
        "off",
        "--admin",
        "127.0.0.1:0",
    ]);
    command.args(["--envoy-config", text(&runtime.config())]).env("USE_PROMETHEUS", "true");
    let child = Child::spawn(&mut command);
    let mut at = Vec::new();
    for door in ["grpc", "admin"] {
        let prefix = format!("  {door}  ");
        let line = child.wait_for_line(|line| line.starts_with(&prefix), PATIENCE).await;
        at.push(line.split("://").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap());
    }
    child.wait_for_line(|line| line.starts_with("  policy"), PATIENCE).await;
    let caller = Caller::connect(at[0]).await;
    for _ in 0..3 {
        caller.ask(&request("shop", &[&[("tenant", "acme")], &[("path", "/slow/x")]])).await;
    }
    caller.ask(&request("nobody", &[&[("a", "b")]])).await;
    caller.call(SHOULD_RATE_LIMIT, &request("", &[])).await;
    let shown = Client::connect(at[1]).await.send("GET", "/metrics", "", b"").await.text();
    for line in [
        r#"ratelimit_service_rate_limit_total_hits{domain="shop",key1="tenant"} 3"#,
        r#"ratelimit_service_rate_limit_over_limit{domain="shop",key1="tenant"} 1"#,
        r#"ratelimit_service_rate_limit_near_limit{domain="shop",key1="tenant"} 1"#,
        r#"ratelimit_service_rate_limit_within_limit{domain="shop",key1="tenant"} 2"#,
        r#"ratelimit_service_rate_limit_shadow_mode{domain="shop",key1="path_/slow*"} 2"#,
        "ratelimit_service_rate_limit_domain_not_found 1",
        r#"ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 5"#,
        r#"ratelimit_service_should_rate_limit_error{err_type="service_error"} 1"#,
        r#"ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"} 5"#,
        "ratelimit_service_config_load_success 1",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}:\n{shown}");
    }
    assert!(shown.ends_with("# EOF\n"));
}

/// Asks until the limit is that one.
async fn limit_becomes(caller: &Caller, requests_per_unit: u32) {
    let asking = async {
        let mut beat = tokio::time::interval(std::time::Duration::from_millis(20));
        let limit = async || caller.one("shop", &[("tenant", "other")]).await.1.current_limit;
        while limit().await.map(|limit| limit.requests_per_unit) != Some(requests_per_unit) {
            beat.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("the limit becomes that");
}

#[tokio::test]
async fn a_swapped_link_reloads_a_bad_file_changes_nothing_and_nothing_is_refilled() {
    let mut runtime = Runtime::new(LIMITS);
    let server = Server::start_with(&["--envoy-config", text(&runtime.config())]).await;
    let caller = Caller::connect(server.grpc).await;
    assert_eq!(caller.one("shop", &[("tenant", "acme")]).await.1.limit_remaining, 1);

    runtime.swap(&LIMITS.replace("requests_per_unit: 2", "requests_per_unit: 20"));
    limit_becomes(&caller, 20).await;
    assert_eq!(caller.one("shop", &[("tenant", "acme")]).await.1.limit_remaining, 18, "two were spent");

    runtime.swap(&LIMITS.replace("name: tenants", "nmae: tenants"));
    let refused = |line: &str| line.contains("reload refused") && line.contains("stays");
    server.child.wait_for_line(refused, PATIENCE).await;
    let named = |line: &str| {
        line.contains("shop.yaml:5:") && line.contains("descriptors[0].rate_limit.nmae: unknown")
    };
    server.child.wait_for_line(named, PATIENCE).await;
    limit_becomes(&caller, 20).await;
    let health: serde_json::Value = server.admin("/health", "").await.json();
    assert_eq!(health["status"], "degraded", "{health}");

    // Another file beside it, and SIGHUP.
    runtime.swap(&LIMITS.replace("requests_per_unit: 2", "requests_per_unit: 30"));
    limit_becomes(&caller, 30).await;
    fs::write(
        runtime.config().join("more.yaml"),
        "domain: more\ndescriptors: [{key: k, rate_limit: {unit: 30s, requests_per_unit: 4}}]",
    )
    .unwrap();
    server.child.hangup();
    server
        .child
        .wait_for_line(
            |line| line.contains("another policy is in force") && line.contains("version=4"),
            PATIENCE,
        )
        .await;
    let limit = caller.one("more", &[("k", "v")]).await.1.current_limit.unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit), (4, 0), "a window that Envoy has no name for");
}

/// A ConfigMap as Kubernetes mounts it: each file is a link through `..data`, which is swapped.
#[tokio::test]
async fn a_config_map_is_read_again_when_kubernetes_swaps_it() {
    let place = TempDir::new().unwrap();
    let swap = |version: &str, text: &str| {
        fs::create_dir(place.path().join(version)).unwrap();
        fs::write(place.path().join(version).join("shop.yaml"), text).unwrap();
        symlink(version, place.path().join("..data_tmp")).unwrap();
        fs::rename(place.path().join("..data_tmp"), place.path().join("..data")).unwrap();
    };
    swap("..2026_11_15_1", LIMITS);
    symlink("..data/shop.yaml", place.path().join("shop.yaml")).unwrap();
    let server = Server::start_with(&["--envoy-config", text(place.path())]).await;
    assert!(server.child.output().contains("2 limits of 1 domains"), "each file is read once");
    let caller = Caller::connect(server.grpc).await;
    assert_eq!(caller.one("shop", &[("tenant", "acme")]).await.1.limit_remaining, 1);
    swap("..2026_11_15_2", &LIMITS.replace("requests_per_unit: 2", "requests_per_unit: 20"));
    limit_becomes(&caller, 20).await;
    fs::remove_dir_all(place.path().join("..2026_11_15_1")).unwrap();
    assert_eq!(caller.one("shop", &[("tenant", "acme")]).await.1.limit_remaining, 18);
}

#[tokio::test]
async fn a_start_with_bad_files_or_settings_is_refused_with_all_of_them() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("a.yaml"), "domain: a\nx: 1").unwrap();
    fs::write(place.path().join("b.yaml"), "domain: b\ndescriptors: [{}]").unwrap();
    let (code, output) = refused(&["--envoy-config", text(place.path())]).await;
    assert_eq!(code, 2);
    assert!(output.contains("a.yaml:2:1: x: unknown field") && output.contains("b.yaml:2:15"), "{output}");
    let (code, output) = refused(&["--envoy-config", "/nonexistent"]).await;
    assert!(code == 2 && output.contains("cannot read /nonexistent"), "{output}");
}

#[test]
fn files_are_checked_without_starting_anything() {
    let place = TempDir::new().unwrap();
    let check = |limits: &str| {
        fs::write(place.path().join("shop.yaml"), limits).unwrap();
        let mut command = tollgate(&["check", "--envoy-config", text(place.path())]);
        let output = command.env("STATSD_HOST", "x").output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, said) = check(LIMITS);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("2 limits of 1 domain, ") && said.contains("STATSD_HOST is not understood"),
        "{said}"
    );
    let (code, said) = check(&LIMITS.replace("unit: hour", "unit: fortnight"));
    assert!(code == Some(2) && said.contains("shop.yaml:5:"), "{code:?} {said}");
}

#[tokio::test]
async fn the_environment_of_the_original_names_redis_and_doors() {
    let redis = RedisServer::start().await;
    let runtime = Runtime::new(LIMITS);
    let start = async |more: &[(&str, &str)]| {
        let mut command = tollgate(&[
            "serve",
            "--envoy-config",
            text(&runtime.config()),
            "--resp",
            "off",
            "--admin",
            "off",
        ]);
        let port = testkit::free_port().to_string();
        command.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", &port);
        command.env("HOST", "127.0.0.1").env("PORT", testkit::free_port().to_string());
        command.env("REDIS_SOCKET_TYPE", "tcp").env("REDIS_URL", format!("127.0.0.1:{}", redis.port()));
        command.envs(more.iter().copied());
        let child = Child::spawn(&mut command);
        child.wait_for_line(|line| line.starts_with("  policy"), PATIENCE).await;
        (Caller::connect(format!("127.0.0.1:{port}").parse().unwrap()).await, child)
    };
    let (first, _child) = start(&[]).await;
    assert_eq!(first.one("shop", &[("tenant", "acme")]).await.1.limit_remaining, 1);
    let (second, child) =
        start(&[("REDIS_PERSECOND", "true"), ("LIMIT_RESPONSE_HEADERS_ENABLED", "true")]).await;
    let answer = second.ask(&request("shop", &[&[("tenant", "acme")]])).await;
    assert_eq!(answer.statuses[0].limit_remaining, 0, "one Redis, two servers");
    assert_eq!(answer.response_headers_to_add[0].key, "RateLimit-Limit");
    child.wait_for_line(|line| line.contains("REDIS_PERSECOND is not understood"), PATIENCE).await;
}
