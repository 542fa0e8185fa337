//! The PROXY protocol: whose word about a client is believed, and what comes of it.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use common::{Client, PATIENCE, Server, config, curl, refused};
use testkit::Certificates;
use tokio::io::AsyncReadExt as _;

const NAMED: &str = r#"{"rule":"login","key":"k"}"#;
const REFUND: &str = r#"{"rule":"login","key":"k","take":"1.0"}"#;
const BELIEVED: &str = "rules: [{name: login, limit: 5/min, algorithm: sliding_log}]
listen: {proxy_protocol: [127.0.0.0/8]}";

/// `198.51.100.9:4711` to `127.0.0.1:80`, with a TLV behind.
const V2: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x11\xc6\x33\x64\x09\x7f\0\0\x01\x12\x67\0\x50\x04\0\x02\0\0";
const V2_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

async fn behind(server: &Server, header: &[u8]) -> Client {
    let mut client = Client::connect(server.http).await;
    client.raw(header).await;
    client
}

#[tokio::test]
async fn a_header_names_the_client_in_both_versions() {
    let server = Server::configured(BELIEVED, &["--log", "trace"]).await;
    let headers: [(&[u8], &str); 4] = [
        (b"PROXY TCP4 198.51.100.7 127.0.0.1 4710 80\r\n", "address: Some(198.51.100.7), port: 4710"),
        (b"PROXY TCP6 2001:db8::9 ::1 4712 80\r\n", "address: Some(2001:db8::9), port: 4712"),
        (V2, "address: Some(198.51.100.9), port: 4711"),
        (V2_LOCAL, "address: Some(127.0.0.1)"),
    ];
    for (header, peer) in headers {
        let mut client = behind(&server, header).await;
        for _ in 0..2 {
            let answer = client.send("POST", "/v1/peek", "", NAMED.as_bytes()).await;
            assert_eq!(answer.status, 200);
        }
        server.child.wait_for_line(|line| line.contains(peer), PATIENCE).await;
    }
}

#[tokio::test]
async fn who_comes_from_elsewhere_is_not_on_loopback() {
    let server = Server::configured(BELIEVED, &[]).await;
    for (header, status) in [
        (V2, 403),
        (b"PROXY TCP4 198.51.100.7 127.0.0.1 4710 80\r\n", 403),
        (b"PROXY UNKNOWN\r\n", 403),
        (b"PROXY TCP4 127.0.0.1 127.0.0.1 4710 80\r\n", 403),
        (V2_LOCAL, 200),
    ] {
        let mut client = behind(&server, header).await;
        assert_eq!(client.send("POST", "/v1/refund", "", REFUND.as_bytes()).await.status, status);
    }
    // Without the protocol, the same connection is from this machine.
    let plain = Server::start().await;
    assert_eq!(plain.post("/v1/refund", REFUND).await.status, 200);
}

#[tokio::test]
async fn who_must_send_a_header_is_not_served_without() {
    let server = Server::configured(BELIEVED, &[]).await;
    for bytes in [
        format!("POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n{NAMED}", NAMED.len()),
        "PROXY TCP4 198.51.100.7 127.0.0.1 4710\r\n".to_owned(),
        "PROXY TCP4 198.51.100.7 127.0.0.1 4710 80 \r\n".to_owned(),
        format!("PROXY UNKNOWN {}\r\n", "x".repeat(100)),
        "\r\n\r\n\0\r\nQUIT\n\u{21}\u{11}\u{7f}\u{7f}".to_owned(),
    ] {
        let mut client = behind(&server, bytes.as_bytes()).await;
        let mut answer = Vec::new();
        // A reset is an end, too.
        let _ = tokio::time::timeout(PATIENCE, client.stream.read_to_end(&mut answer)).await.unwrap();
        assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(server.metric("tollgate_buckets_total{found=\"created\"}").await, Some(0.0));
    let answer = behind(&server, V2).await.send("POST", "/v1/check", "", NAMED.as_bytes()).await;
    assert_eq!(answer.json()["remaining"], 4);
}

#[tokio::test]
async fn who_need_not_send_a_header_is_not_believed() {
    let elsewhere = "rules: []\nlisten: {proxy_protocol: [10.0.0.0/8, unix]}";
    let server = Server::configured(elsewhere, &["--log", "trace"]).await;
    let mut client = behind(&server, b"PROXY TCP4 198.51.100.7 127.0.0.1 4710 80\r\n").await;
    client.raw(b"\r\n").await;
    assert_eq!(client.answer().await.unwrap().status, 400, "it is not HTTP");
    client.closed().await;
    assert_eq!(server.post("/", "").await.status, 404);
    assert!(!server.child.output().contains("198.51.100.7"));
}

#[tokio::test]
async fn the_header_comes_before_tls() {
    let certificates = Certificates::new();
    let text = format!(
        "{BELIEVED}\ntls: {{http: {{cert: {}, key: {}}}}}",
        certificates.server.certificate.path.display(),
        certificates.server.key.path.display()
    );
    let server = Server::configured(&text, &["--log", "trace"]).await;
    let url = format!("https://{}/v1/check", server.http);
    let authority = certificates.authority.path.to_str().unwrap();
    let answer = curl(&["--haproxy-protocol", "--cacert", authority, &url, "-d", NAMED]);
    assert_eq!((answer.status, answer.version.as_str()), (200, "2"), "{answer:?}");
    server.child.wait_for_line(|line| line.contains("is_tls: true"), PATIENCE).await;
    assert_eq!(curl(&["--cacert", authority, &url, "-d", NAMED]).status, 0);
}

#[tokio::test]
async fn what_is_no_network_is_refused_by_its_place() {
    let file = config("listen:\n  proxy_protocol: [10.0.0.0/8, 10.1.2.3/8, lb.example.net, 7]\nrules: []\n");
    let (code, output) = refused(&["--config", file.path().to_str().unwrap()]).await;
    assert_eq!(code, 2, "{output}");
    for (place, says) in [
        (":2:32: listen.proxy_protocol[1]", "bits beyond its prefix"),
        ("listen.proxy_protocol[2]", "is no range of addresses"),
        ("listen.proxy_protocol[3]", "must be a network"),
    ] {
        let found = output.lines().find(|line| line.contains(place));
        assert!(found.is_some_and(|line| line.contains(says)), "{output}");
    }
}
