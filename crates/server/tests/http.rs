//! The HTTP door: bytes in, the documented bytes out.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use common::{Client, Server, config};
use serde_json::{Value, json};

/// Without the fields that depend on when it was asked.
fn timeless(mut answer: Value) -> Value {
    fn strip(value: &mut Value) {
        let Some(fields) = value.as_object_mut() else { return };
        fields.remove("reset_after_ms").expect("every decision says when it is whole");
        fields.remove("take");
    }
    strip(&mut answer);
    for check in answer["checks"].as_array_mut().unwrap() {
        strip(check);
    }
    answer
}

#[tokio::test]
async fn a_named_rule_is_spent_and_then_refused_as_documented() {
    let server = Server::start().await;
    let body = r#"{"rule":"login","key":"user_123","cost":5}"#;

    let first = server.check(body).await;
    let check = json!({"allowed": true, "limit": 5, "remaining": 0, "retry_after_ms": null, "rule": "login"});
    let mut expected = check.clone();
    expected["source"] = "store".into();
    expected["policy_version"] = 1.into();
    expected["checks"] = json!([check]);
    assert_eq!(timeless(first), expected);

    let second = server.check(body).await;
    assert_eq!(second["allowed"], false);
    assert_eq!(second["take"], Value::Null, "a refusal spent nothing that could be named");
    let retry = second["retry_after_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&retry), "{second}");

    let never = server.check(r#"{"rule":"login","key":"user_123","cost":6}"#).await;
    assert_eq!((&never["never"], &never["retry_after_ms"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn the_answer_is_these_very_bytes() {
    let file = config("rules: [{name: quota, limit: 10/week, algorithm: fixed_window}]");
    let server = Server::start_with(&["--config", file.path().to_str().unwrap()]).await;
    let answer = server.post("/v1/peek", r#"{"rule":"quota","key":"k"}"#).await;
    let text = answer.text();
    let reset = text.split("\"reset_after_ms\":").nth(1).unwrap().split(',').next().unwrap();
    let check = format!(
        "\"allowed\":true,\"limit\":10,\"remaining\":10,\"retry_after_ms\":null,\"reset_after_ms\":{reset},\"rule\":\"quota\""
    );
    assert_eq!(
        text,
        format!("{{{check},\"source\":\"store\",\"policy_version\":1,\"checks\":[{{{check}}}]}}\n")
    );
}

#[tokio::test]
async fn an_inline_limit_is_the_callers_own() {
    let server = Server::start().await;
    let bucket = r#"{"key":"u","limit":"1/h","burst":2,"algorithm":"token_bucket"}"#;
    for remaining in [1, 0] {
        let answer = server.check(bucket).await;
        assert_eq!((&answer["allowed"], &answer["remaining"]), (&json!(true), &json!(remaining)));
        assert_eq!(answer["rule"], Value::Null);
    }
    assert_eq!(server.check(bucket).await["allowed"], false);

    for calendar in [
        r#"{"key":"u","limit":"9/month","algorithm":"fixed_window","time_zone":"Europe/Berlin"}"#,
        r#"{"key":"u","limit":"9/week","algorithm":"fixed_window","time_zone":"UTC"}"#,
        r#"{"key":"u","limit":"9/day","algorithm":"fixed_window","time_zone":"America/New_York"}"#,
        r#"{"key":"u","limit":"9/h","algorithm":"sliding_window"}"#,
    ] {
        assert_eq!(server.check(calendar).await["remaining"], 8, "{calendar}");
    }
}

#[tokio::test]
async fn several_checks_pass_together_or_not_at_all() {
    let server = Server::start().await;
    server.check(r#"{"rule":"signup","key":"a","cost":3}"#).await;

    let both = r#"{"checks":[{"rule":"login","key":"a"},{"rule":"signup","key":"a"}]}"#;
    let refused = server.check(both).await;
    assert_eq!((&refused["allowed"], &refused["rule"]), (&json!(false), &json!("signup")));
    assert_eq!(refused["checks"][0]["allowed"], true);
    assert_eq!(refused["checks"][1]["allowed"], false);
    assert_eq!(server.peek(r#"{"rule":"login","key":"a"}"#).await["remaining"], 5);

    let passed =
        server.check(r#"{"checks":[{"rule":"login","key":"b"},{"rule":"signup","key":"b","cost":2}]}"#).await;
    assert_eq!(
        (&passed["allowed"], &passed["rule"], &passed["remaining"]),
        (&json!(true), &json!("signup"), &json!(1))
    );
    assert!(passed["checks"][0]["take"].is_string() && passed["take"].is_null());
}

#[tokio::test]
async fn a_peek_spends_nothing() {
    let server = Server::start().await;
    for _ in 0..10 {
        let answer = server.peek(r#"{"rule":"login","key":"p","cost":5}"#).await;
        assert_eq!((&answer["allowed"], &answer["remaining"]), (&json!(true), &json!(5)));
        assert_eq!(answer["take"], Value::Null);
    }
}

#[tokio::test]
async fn a_refund_is_the_checks_body_and_its_take() {
    let server = Server::start().await;
    let checked = server.check(r#"{"rule":"login","key":"r","cost":4}"#).await;
    let refund = format!(r#"{{"rule":"login","key":"r","cost":4,"take":{}}}"#, checked["take"]);

    let answer = server.json("/v1/refund", &refund).await;
    assert_eq!(
        (&answer["refunded"], &answer["remaining"], &answer["limit"]),
        (&json!("all"), &json!(5), &json!(5))
    );
    let again = server.json("/v1/refund", &refund).await;
    assert_eq!((&again["refunded"], &again["remaining"]), (&json!("nothing"), &json!(5)));

    let many = server
        .check(
            r#"{"checks":[{"rule":"login","key":"r"},{"key":"r","limit":"5/h","algorithm":"sliding_log"}]}"#,
        )
        .await;
    let refund = format!(
        r#"{{"checks":[{{"rule":"login","key":"r","take":{}}},{{"key":"r","limit":"5/h","algorithm":"sliding_log","take":{}}}]}}"#,
        many["checks"][0]["take"], many["checks"][1]["take"]
    );
    let answer = server.json("/v1/refund", &refund).await;
    assert_eq!(answer["refunded"], "all");
    assert_eq!(answer["checks"][1]["remaining"], 5);
}

#[tokio::test]
async fn one_connection_carries_many_requests_pipelined_too() {
    let server = Server::start().await;
    let mut client = Client::connect(server.http).await;
    let body = r#"{"rule":"login","key":"keep"}"#;
    for remaining in (0..5).rev() {
        let answer = client.send("POST", "/v1/check", "", body.as_bytes()).await;
        assert_eq!(answer.json()["remaining"], remaining);
    }
    let one = format!("POST /v1/peek HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    client.raw(one.repeat(20).as_bytes()).await;
    for _ in 0..20 {
        assert_eq!(client.answer().await.unwrap().json()["remaining"], 0);
    }
}

#[tokio::test]
async fn a_body_in_pieces_is_one_body() {
    let server = Server::start().await;
    let mut client = Client::connect(server.http).await;
    client.raw(b"POST /v1/check HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n").await;
    for piece in [r#"{"rule":"#, r#""login","key"#, r#"":"pieces"}"#] {
        client.raw(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).await;
    }
    client.raw(b"0\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().json()["remaining"], 4);
}

#[tokio::test]
async fn the_printed_curl_line_works_as_pasted() {
    let server = Server::start().await;
    let line =
        server.child.wait_for_line(|line| line.trim_start().starts_with("curl "), common::PATIENCE).await;
    let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["allowed"], true, "{line}");
}

#[tokio::test]
async fn off_loopback_what_can_undo_a_limit_needs_a_token() {
    let named = r#"{"rule":"login","key":"t"}"#;
    let inline = r#"{"key":"t","limit":"1/s"}"#;
    let refund = r#"{"rule":"login","key":"t","take":"1.0"}"#;

    let open = Server::start_with(&["--http", "0.0.0.0:0"]).await;
    assert_eq!(open.post("/v1/check", named).await.status, 200);
    assert_eq!(open.post("/v1/check", inline).await.status, 403);
    assert_eq!(open.post("/v1/refund", refund).await.status, 403);

    let token = "0123456789abcdef";
    let gated = Server::start_with(&["--http", "0.0.0.0:0", "--token", token]).await;
    assert_eq!(gated.post("/v1/check", named).await.status, 200);
    for (path, body) in [("/v1/check", inline), ("/v1/peek", inline), ("/v1/refund", refund)] {
        let none = gated.post(path, body).await;
        assert_eq!((none.status, none.header("www-authenticate").is_some()), (401, true), "{path}");
        let wrong = gated.post_with(path, "authorization: Bearer 0123456789abcdeX\r\n", body).await;
        assert_eq!(wrong.status, 401, "{path}");
        let right = gated.post_with(path, &format!("authorization: Bearer {token}\r\n"), body).await;
        assert_eq!(right.status, 200, "{path}");
    }
}

#[tokio::test]
async fn connections_beyond_the_bound_are_turned_away_and_the_idle_are_closed() {
    let file = config("rules: []\nlimits: {connections: 1, idle_timeout: 1s}");
    let server = Server::start_with(&["--config", file.path().to_str().unwrap(), "--workers", "1"]).await;
    let mut first = Client::connect(server.http).await;
    assert_eq!(first.send("GET", "/", "", b"").await.status, 404);

    Client::connect(server.http).await.closed().await;
    assert_eq!(server.metric("tollgate_http_connections_refused_total").await, Some(1.0));

    // Half a header, and then silence.
    first.raw(b"POST /v1/check HTTP/1.1\r\nhos").await;
    first.closed().await;
}
