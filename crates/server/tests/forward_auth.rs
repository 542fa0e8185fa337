//! The forward-auth door as a proxy sees it; the proxies themselves are in `proxies.rs`.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use common::{Answer, Client, Server, config};

const FILE: &str = r#"
identity: { trusted_proxies: [127.0.0.1, 10.0.0.0/8] }
answer: { x_ratelimit: seconds }
deny: { address: 192.0.2.66 }
rules:
  - name: api
    when: { path: /api/**, host: "*.example.com" }
    key: "{token|address}"
    limit: 2/h
  - name: writes
    when: { method: [POST, PUT] }
    key: "{address}"
    limit: 1/h
"#;

async fn server() -> (Server, tempfile::NamedTempFile) {
    let file = config(FILE);
    let server = Server::start_with(&["--config", file.path().to_str().unwrap()]).await;
    (server, file)
}

/// Asks about a request, with more headers.
async fn ask(server: &Server, method: &str, uri: &str, headers: &str) -> Answer {
    ask_at(server, "/v1/forward-auth", method, uri, headers).await
}

async fn ask_at(server: &Server, path: &str, method: &str, uri: &str, headers: &str) -> Answer {
    let headers = format!(
        "x-forwarded-method: {method}\r\nx-forwarded-uri: {uri}\r\nx-forwarded-host: api.example.com\r\n{headers}"
    );
    Client::connect(server.http).await.send("GET", path, &headers, b"").await
}

const ANN: &str = "x-forwarded-for: 203.0.113.9\r\n";

#[tokio::test]
async fn a_request_passes_until_its_limit_and_is_told_when_to_come_again() {
    let (server, _file) = server().await;
    let first = ask(&server, "GET", "/api/orders?page=2", ANN).await;
    assert_eq!((first.status, first.text().as_str()), (200, ""));
    assert_eq!(first.header("ratelimit-policy"), Some("\"api\";q=2;w=3600"));
    assert!(
        first.header("ratelimit").unwrap().starts_with("\"api\";r=1;t="),
        "{:?}",
        first.header("ratelimit")
    );
    assert_eq!(
        (first.header("x-ratelimit-limit"), first.header("x-ratelimit-remaining")),
        (Some("2"), Some("1"))
    );
    assert_eq!(first.header("retry-after"), None);
    assert_eq!(ask(&server, "GET", "/api//x/../orders", ANN).await.status, 200);
    let refused = ask(&server, "GET", "/%61pi/orders", ANN).await;
    assert_eq!((refused.status, refused.header("content-type")), (429, Some("application/problem+json")));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1795..=1800).contains(&wait), "{wait}");
    let body = refused.json();
    assert_eq!((body["status"].as_u64(), body["rule"].as_str()), (Some(429), Some("api")));
    assert!(!refused.text().contains("203.0.113.9"), "nobody's key is told: {}", refused.text());
    // Another caller, another host, another path.
    assert_eq!(ask(&server, "GET", "/api/orders", "x-forwarded-for: 203.0.113.10\r\n").await.status, 200);
    assert_eq!(ask(&server, "GET", "/elsewhere", ANN).await.header("ratelimit"), None);
}

#[tokio::test]
async fn every_rule_of_a_request_is_charged_or_none() {
    let (server, _file) = server().await;
    assert_eq!(ask(&server, "POST", "/api/orders", ANN).await.status, 200);
    let refused = ask(&server, "POST", "/api/orders", ANN).await;
    assert_eq!((refused.status, refused.json()["rule"].as_str()), (429, Some("writes")));
    assert_eq!(ask(&server, "GET", "/api/orders", ANN).await.status, 200, "the refused one was not charged");
    assert_eq!(ask(&server, "GET", "/api/orders", ANN).await.status, 429);
}

#[tokio::test]
async fn a_token_counts_by_itself() {
    let (server, _file) = server().await;
    let token = format!("{ANN}authorization: Bearer s3cret\r\n");
    for status in [200, 200, 429] {
        assert_eq!(ask(&server, "GET", "/api", &token).await.status, status);
    }
    let other = "x-forwarded-for: 203.0.113.77\r\napi_key: s3cret\r\n";
    assert_eq!(ask(&server, "GET", "/api", other).await.status, 429, "wherever it comes from");
    assert_eq!(ask(&server, "GET", "/api", ANN).await.status, 200);
}

#[tokio::test]
async fn whoever_writes_the_header_first_gains_nothing() {
    let (server, _file) = server().await;
    for (at, status) in [200, 200, 429, 429].into_iter().enumerate() {
        // The client invents hops; the proxy adds what it saw, and ours is behind one more.
        let header =
            format!("x-forwarded-for: 198.51.100.{at}, 203.0.113.9\r\nx-forwarded-for: 10.1.1.1\r\n");
        assert_eq!(ask(&server, "GET", "/api", &header).await.status, status);
    }
}

#[tokio::test]
async fn nginx_is_told_what_it_understands() {
    let (server, _file) = server().await;
    let at = "/v1/forward-auth?refusal=403";
    for status in [200, 200, 403] {
        let answer = ask_at(&server, at, "GET", "/api", ANN).await;
        assert_eq!((answer.status, answer.header("retry-after").is_some()), (status, status == 403));
    }
    for (path, field) in [("?refusal=200", "refusal"), ("?refusal=", "refusal"), ("?status=403", "status")] {
        let answer = ask_at(&server, &format!("/v1/forward-auth{path}"), "GET", "/api", ANN).await;
        assert_eq!((answer.status, answer.json()["field"].as_str()), (400, Some(field)), "{path}");
    }
}

#[tokio::test]
async fn those_on_a_deny_list_are_forbidden() {
    let (server, _file) = server().await;
    let denied = ask(&server, "GET", "/api", "x-forwarded-for: 192.0.2.66\r\n").await;
    assert_eq!((denied.status, denied.header("retry-after"), denied.header("ratelimit")), (403, None, None));
    assert_eq!(denied.json()["source"], "deny-list");
    let path = "/v1/forward-auth?refusal=429";
    let denied = ask_at(&server, path, "GET", "/api", "x-forwarded-for: 192.0.2.66\r\n").await;
    assert_eq!(denied.status, 403, "a status for limits is not for them");
}

#[tokio::test]
async fn a_proxy_that_does_not_say_what_it_asks_about_is_told_so() {
    let (server, _file) = server().await;
    for (headers, field) in [("", "X-Forwarded-Uri"), ("x-forwarded-uri: /api\r\n", "X-Forwarded-Method")] {
        let answer = Client::connect(server.http).await.send("GET", "/v1/forward-auth", headers, b"").await;
        assert_eq!((answer.status, answer.json()["field"].as_str()), (400, Some(field)));
    }
}

#[tokio::test]
async fn an_untrusted_peer_speaks_for_itself_alone() {
    let file = config(&FILE.replace("127.0.0.1, ", ""));
    let server = Server::start_with(&["--config", file.path().to_str().unwrap()]).await;
    for (at, status) in [200, 200, 429].into_iter().enumerate() {
        let header = format!("x-forwarded-for: 198.51.100.{at}\r\nforwarded: for=198.51.100.{at}\r\n");
        assert_eq!(ask(&server, "GET", "/api", &header).await.status, status);
    }
}

#[tokio::test]
async fn nobody_slips_past_by_saying_something_twice_or_otherwise() {
    let file = config(
        r#"
deny: { header.user-agent: BadBot }
rules:
  - { name: tenant, when: { header.x-tenant: acme }, key: everyone, limit: 2/h }
  - { name: keyed, when: { path: /keyed }, key: "{header.x-user}", limit: 2/h }
  - { name: login, when: { path: /api/login }, key: everyone, limit: 2/h }
  - { name: asked, when: { query.q: x }, key: everyone, limit: 2/h }
"#,
    );
    let server = Server::start_with(&["--config", file.path().to_str().unwrap()]).await;
    let denied = ask(&server, "GET", "/", "user-agent: x\r\nuser-agent: BadBot\r\n").await;
    assert_eq!(denied.status, 403);
    for (uri, headers) in [
        ("/", "x-tenant: acme\r\nx-tenant: acme\r\n"),
        ("/keyed", "x-user: ann\r\nx-user: NTH\r\n"),
        ("/api%2Flogin", ""),
        ("/?q=NTH&q=x", ""),
    ] {
        let mut statuses = Vec::new();
        for nth in ["1", "2", "3"] {
            let (uri, headers) = (uri.replace("NTH", nth), headers.replace("NTH", nth));
            statuses.push(ask(&server, "GET", &uri, &format!("{ANN}{headers}")).await.status);
        }
        assert_eq!(statuses, [200, 200, 429], "{uri} {headers}");
    }
}
