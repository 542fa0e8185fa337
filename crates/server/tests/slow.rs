//! Slow, silent, large and many: every one of them meets a bound, and nobody else notices.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use std::iter::repeat_n;
use std::time::Duration;

use bytes::Bytes;
use common::{Client, PATIENCE, Server, curl};
use h2::client::SendRequest;
use hyper::{HeaderMap, Request, StatusCode};
use testkit::Certificates;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const NAMED: &str = r#"{"rule":"login","key":"k"}"#;
const RULES: &str = "rules: [{name: login, limit: 5/min, algorithm: sliding_log}]";
const IMPATIENT: &str = "rules: [{name: login, limit: 5/min, algorithm: sliding_log}]
limits: {idle_timeout: 2s}";

/// As many bytes as it takes to outlast any bound, after these.
fn endless(start: &str) -> impl Iterator<Item = u8> + use<> {
    start.to_owned().into_bytes().into_iter().chain(repeat_n(b'x', 1_000_000))
}

/// Somebody whom nothing of this may touch: asks on one connection until told to stop.
async fn bystander(server: &Server) -> JoinHandle<usize> {
    let mut client = Client::connect(server.http).await;
    assert_eq!(client.send("POST", "/v1/peek", "", NAMED.as_bytes()).await.status, 200);
    tokio::spawn(async move {
        let mut answered = 0;
        let mut beat = tokio::time::interval(Duration::from_millis(50));
        // Longer than it takes to have enough of the slow.
        while answered < 100 {
            beat.tick().await;
            assert_eq!(client.send("POST", "/v1/peek", "", NAMED.as_bytes()).await.status, 200);
            answered += 1;
        }
        answered
    })
}

async fn nothing_was_spent(server: &Server) {
    assert_eq!(server.peek(NAMED).await["remaining"], 5);
    assert_eq!(server.metric("tollgate_buckets_total{found=\"created\"}").await, Some(0.0));
}

#[tokio::test]
async fn who_dribbles_is_closed_and_others_are_served() {
    let server = Server::configured(IMPATIENT, &["--workers", "1"]).await;
    let bystander = bystander(&server).await;
    let header = "POST /v1/check HTTP/1.1\r\nhost: t\r\nx-slow: ";
    let body = "POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-length: 60000\r\n\r\n{";
    let (header, body, (), ()) = tokio::join!(
        Client::connect(server.http).await.dribble(endless(header)),
        Client::connect(server.http).await.dribble(endless(body)),
        async {
            let mut client = Client::connect(server.http).await;
            client.raw(b"PRI * HTTP/2.0\r\n\r\nS").await;
            client.closed().await;
        },
        async { Client::connect(server.http).await.closed().await },
    );
    assert!(header.is_empty(), "{header:?}");
    let body = String::from_utf8(body).unwrap();
    assert!(body.is_empty() || body.starts_with("HTTP/1.1 408 "), "{body}");
    assert_eq!(bystander.await.unwrap(), 100, "nobody else noticed");
    nothing_was_spent(&server).await;
}

#[tokio::test]
async fn a_handshake_or_a_header_that_never_ends_is_not_waited_for() {
    let certificates = Certificates::new();
    let (cert, key) = (&certificates.server.certificate.path, &certificates.server.key.path);
    // The idle clock is a minute, as it is unless set: it is not what closes these.
    let hasty = format!("{RULES}\nlimits: {{handshake_timeout: 500ms}}");
    let tls = format!("{hasty}\ntls: {{http: {{cert: {}, key: {}}}}}", cert.display(), key.display());
    let server = Server::configured(&tls, &["--workers", "1"]).await;
    // The beginning of a client's hello that says it is 512 bytes long.
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".iter().copied().chain(repeat_n(0, 400));
    Client::connect(server.http).await.dribble(hello).await;
    Client::connect(server.http).await.closed().await;
    let authority = certificates.authority.path.to_str().unwrap();
    let url = format!("https://{}/v1/peek", server.http);
    assert_eq!(curl(&["--cacert", authority, &url, "-d", NAMED]).status, 200);

    let proxied = format!("{hasty}\nlisten: {{proxy_protocol: [127.0.0.1]}}");
    let server = Server::configured(&proxied, &["--workers", "1"]).await;
    Client::connect(server.http).await.dribble(endless("PROXY UNKNOWN ")).await;
    Client::connect(server.http).await.closed().await;
    let mut client = Client::connect(server.http).await;
    client.raw(b"PROXY UNKNOWN\r\n").await;
    assert_eq!(client.send("POST", "/v1/peek", "", NAMED.as_bytes()).await.status, 200);
}

/// An HTTP/2 connection whose frames are ours to time.
async fn http2(server: &Server) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let stream = TcpStream::connect(server.http).await.unwrap();
    let (requests, connection) = h2::client::handshake(stream).await.unwrap();
    (requests, tokio::spawn(connection))
}

fn post(path: &str) -> Request<()> {
    Request::post(format!("http://test{path}")).body(()).unwrap()
}

/// Sends a request and says what it was answered.
async fn ask(requests: &mut SendRequest<Bytes>, request: Request<()>, body: &str) -> (StatusCode, String) {
    let mut ready = requests.clone().ready().await.unwrap();
    let (answer, mut sending) = ready.send_request(request, false).unwrap();
    sending.send_data(Bytes::from(body.to_owned()), true).unwrap();
    let (head, mut body) = tokio::time::timeout(PATIENCE, answer).await.unwrap().unwrap().into_parts();
    let mut text = Vec::new();
    while let Some(piece) = body.data().await {
        text.extend_from_slice(&piece.unwrap());
    }
    (head.status, String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn a_body_that_dribbles_behind_other_streams_is_answered_408() {
    let server = Server::configured(IMPATIENT, &["--workers", "1"]).await;
    let (mut requests, connection) = http2(&server).await;
    let (slow, mut sending) = requests.send_request(post("/v1/check"), false).unwrap();
    let dribble = async {
        let mut beat = tokio::time::interval(Duration::from_millis(20));
        // Until the stream is reset, because nobody waits for the rest.
        while sending.send_data(Bytes::from_static(b" "), false).is_ok() {
            beat.tick().await;
        }
    };
    let mut others = requests.clone();
    let busy = async {
        let mut beat = tokio::time::interval(Duration::from_millis(50));
        loop {
            beat.tick().await;
            assert_eq!(ask(&mut others, post("/v1/peek"), NAMED).await.0, 200);
        }
    };
    tokio::select! {
        (slow, ()) = async { tokio::join!(slow, dribble) } => assert_eq!(slow.unwrap().status(), 408),
        () = busy => unreachable!("it never ends"),
        () = tokio::time::sleep(PATIENCE) => panic!("the slow one is waited for"),
    }
    assert_eq!(ask(&mut requests, post("/v1/peek"), NAMED).await.0, 200, "the connection goes on");
    nothing_was_spent(&server).await;

    // And when it idles it is told to go, and closed.
    let ended = tokio::time::timeout(PATIENCE, connection).await.expect("the idle are closed").unwrap();
    ended.expect("with a farewell and no error");
}

#[tokio::test]
async fn what_is_too_large_is_refused_with_its_status_and_spends_nothing() {
    let server = Server::configured(IMPATIENT, &["--workers", "1"]).await;
    let (mut requests, _connection) = http2(&server).await;
    let with = |count: usize, length: usize| {
        let mut request = post("/v1/check");
        let headers =
            (0..count).map(|at| (format!("x-{at}").parse().unwrap(), "y".repeat(length).parse().unwrap()));
        request.headers_mut().extend(headers.collect::<HeaderMap>());
        request
    };
    let long = format!("{NAMED}{}", " ".repeat(64 * 1024));
    assert_eq!(ask(&mut requests, post("/v1/check"), &long).await.0, 413);
    let (status, text) = ask(&mut requests, with(65, 1), NAMED).await;
    assert!(status == 431 && text.contains("at most 64 headers"), "{status} {text}");
    assert_eq!(ask(&mut requests, with(60, 2000), NAMED).await.0, 431);
    assert_eq!(ask(&mut requests, with(60, 20), r#"{"rule":"login","key":"other"}"#).await.0, 200);

    // The same over HTTP/1.1.
    let headers = |count: usize, length: usize| -> String {
        (0..count).map(|at| format!("x-{at}: {}\r\n", "y".repeat(length))).collect::<Vec<_>>().concat()
    };
    for (headers, body, status) in
        [(headers(65, 1), NAMED, 431), (headers(60, 2000), NAMED, 431), (String::new(), long.as_str(), 413)]
    {
        assert_eq!(server.post_with("/v1/check", &headers, body).await.status, status);
    }
    assert_eq!(server.peek(NAMED).await["remaining"], 5);
}

#[tokio::test]
async fn streams_are_bounded_and_resets_are_not_free() {
    // The idle clock is a minute: it is not what ends the flood.
    let server = Server::configured(RULES, &["--workers", "1"]).await;
    let (mut requests, _connection) = http2(&server).await;
    ask(&mut requests, post("/v1/peek"), NAMED).await;
    assert_eq!(requests.current_max_send_streams(), 256);

    // Rapid reset (CVE-2023-44487): requests that are taken back before they are looked at.
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    // POST, http, /v1/check, test: as HPACK writes them without compressing.
    let headers = b"\x83\x86\x04\x09/v1/check\x01\x04test";
    for stream in (1..200_u32).step_by(2) {
        flood.extend([0, 0, u8::try_from(headers.len()).unwrap(), 1, 4]);
        flood.extend(stream.to_be_bytes());
        flood.extend(headers);
        flood.extend([0, 0, 4, 3, 0]);
        flood.extend(stream.to_be_bytes());
        flood.extend([0, 0, 0, 8]);
    }
    let mut attacker = Client::connect(server.http).await;
    attacker.raw(&flood).await;
    let mut said = Vec::new();
    // A reset is an end, too; the farewell comes before it.
    let _ = tokio::time::timeout(PATIENCE, attacker.stream.read_to_end(&mut said)).await.unwrap();
    let is_told = said.windows(15).any(|words| words == b"too_many_resets");
    assert!(is_told, "{}", String::from_utf8_lossy(&said));
    assert_eq!(ask(&mut requests, post("/v1/peek"), NAMED).await.0, 200, "others go on");
    nothing_was_spent(&server).await;
}

#[tokio::test]
async fn a_drain_lets_http2_requests_finish() {
    let mut server = Server::configured(IMPATIENT, &["--workers", "1"]).await;
    let (mut requests, connection) = http2(&server).await;
    let (answer, mut sending) = requests.send_request(post("/v1/check"), false).unwrap();
    // Once another stream is answered, the first has been begun.
    ask(&mut requests, post("/v1/peek"), NAMED).await;
    server.child.terminate();
    let http = server.http;
    while TcpStream::connect(http).await.is_ok() {}
    sending.send_data(Bytes::from_static(NAMED.as_bytes()), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    drop((requests, sending));
    connection.await.unwrap().unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, server.child.wait()).await.unwrap().code(), Some(0));
}
