//! The end: readiness fails first, nothing new is accepted, what is under way finishes, exit code 0.

mod common;

use common::{Client, PATIENCE, Server, config};
use tokio::net::TcpStream;

const BODY: &str = r#"{"rule":"login","key":"last"}"#;

/// A request of which the body has not come yet; the server has it in hand when this returns.
async fn under_way(server: &Server) -> Client {
    let mut client = Client::connect(server.http).await;
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        BODY.len()
    );
    client.raw(head.as_bytes()).await;
    // It asks for the body when, and only when, it has begun to read it.
    assert_eq!(client.answer().await.expect("an interim answer").status, 100);
    client
}

async fn until_not_ready(server: &Server) {
    while server.admin("/ready", "").await.status == 200 {}
    assert_eq!(server.admin("/ready", "").await.status, 503);
}

async fn exit_code(server: &mut Server) -> Option<i32> {
    tokio::time::timeout(PATIENCE, server.child.wait()).await.expect("it ends").code()
}

#[tokio::test]
async fn what_is_under_way_finishes_and_nothing_new_begins() {
    let mut server = Server::start().await;
    let mut client = under_way(&server).await;
    let mut idle = Client::connect(server.http).await;
    assert_eq!(idle.send("POST", "/v1/peek", "", BODY.as_bytes()).await.status, 200);

    server.child.terminate();
    until_not_ready(&server).await;
    assert_eq!(server.admin("/live", "").await.status, 200);
    idle.closed().await;
    let http = server.http;
    while TcpStream::connect(http).await.is_ok() {}

    client.raw(BODY.as_bytes()).await;
    assert_eq!(client.answer().await.unwrap().json()["remaining"], 4);
    client.closed().await;
    assert_eq!(exit_code(&mut server).await, Some(0));
    assert!(server.child.output().contains("drained"));
}

#[tokio::test]
async fn during_the_delay_readiness_fails_and_checks_are_still_answered() {
    let mut server = Server::start_with(&["--drain-delay", "1h"]).await;
    server.child.terminate();
    until_not_ready(&server).await;
    assert_eq!(server.check(BODY).await["allowed"], true);
    assert_eq!(server.admin("/health", "").await.json()["status"], "degraded");

    // Asked again, it does not wait.
    server.child.terminate();
    assert_eq!(exit_code(&mut server).await, Some(0));
}

#[tokio::test]
async fn who_never_finishes_is_not_waited_for() {
    let file = config("rules: []\ndrain: {timeout: 100ms}");
    let mut server = Server::start_with(&["--config", file.path().to_str().unwrap()]).await;
    let mut client = under_way(&server).await;
    server.child.terminate();
    client.closed().await;
    assert_eq!(exit_code(&mut server).await, Some(0));
    assert!(server.child.output().contains("cut off"), "{}", server.child.output());
}

#[tokio::test]
async fn logs_are_json_where_asked() {
    let mut server = Server::start_with(&["--log-format", "json"]).await;
    server.child.terminate();
    assert_eq!(exit_code(&mut server).await, Some(0));
    let logged = server.child.output_on(testkit::process::Stream::Stderr);
    let lines: Vec<serde_json::Value> =
        logged.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["message"] == "drained" && line["level"] == "INFO"), "{logged}");
}
