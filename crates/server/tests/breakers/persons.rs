//! What people decide: overrides, and another policy while it runs.

use std::fs;

use serde_json::{Value, json};
use testkit::RedisServer;
use tokio::time::Instant;

use crate::common::{Client, Server, config};
use crate::stand::{FILE, acquire, call, overriding, seen, serving, until, until_state};

fn decided(mode: &str, ttl_ms: u64) -> Value {
    json!({ "mode": mode, "ttl_ms": ttl_ms, "reason": "they are moving", "who": "ann" })
}

#[tokio::test]
async fn an_override_holds_for_the_fleet_until_it_ends_or_is_lifted() {
    let redis = RedisServer::start().await;
    let (one, two) = (serving(&redis.url(), &[]).await, serving(&redis.url(), &[]).await);
    acquire(&two, "payments").await;

    let answer = overriding(&one, "PUT", "payments", "", &decided("forced_open", 1_500)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let (told, since) = (answer.json(), Instant::now());
    assert_eq!(
        (&told["state"], &told["override"]["mode"]),
        (&json!("open"), &json!("forced_open")),
        "{told}"
    );
    until_state(&two, "payments", "open").await;
    assert_eq!(seen(&two, "payments").await["override"]["mode"], "forced_open");
    assert_eq!(acquire(&two, "payments").await["allowed"], false);
    until("it ends by itself", || async { acquire(&two, "payments").await["probe"] == true }).await;
    assert!(since.elapsed().as_millis() >= 1_400, "{:?}", since.elapsed());

    let answer = overriding(&one, "PUT", "payments", "", &decided("forced_closed", 3_600_000)).await;
    assert_eq!(answer.json()["state"], "closed", "{}", answer.text());
    until("the other hears of it", || async { seen(&two, "payments").await["state"] == "closed" }).await;
    for _ in 0..10 {
        assert!(call(&two, "payments", "failure").await, "nothing trips");
    }
    let answer = overriding(&two, "DELETE", "payments", "", &Value::Null).await;
    assert_eq!((answer.status, &answer.json()["override"]), (200, &Value::Null), "{}", answer.text());
    until("the other hears of that", || async { seen(&one, "payments").await["override"].is_null() }).await;
    until("both fail, and it trips", || async {
        call(&one, "payments", "failure").await;
        call(&two, "payments", "failure").await;
        seen(&one, "payments").await["state"] == "open"
    })
    .await;
}

#[tokio::test]
async fn whoever_may_not_undo_a_limit_may_not_override_a_breaker() {
    let token = "a-token-of-good-length";
    let server = Server::configured(FILE, &["--token", token]).await;
    for (method, body) in [("PUT", decided("forced_closed", 1_000)), ("DELETE", Value::Null)] {
        for headers in ["", "authorization: Bearer another-token-of-a-length\r\n"] {
            let answer = overriding(&server, method, "payments", headers, &body).await;
            assert_eq!(answer.status, 401, "{}", answer.text());
            assert!(answer.text().contains("an override needs the header"), "{}", answer.text());
        }
        let header = format!("authorization: Bearer {token}\r\n");
        let answer = overriding(&server, method, "payments", &header, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(acquire(&server, "payments").await["allowed"], true, "anybody may ask");
}

#[tokio::test]
async fn another_policy_changes_settings_and_forgets_nothing() {
    let redis = RedisServer::start().await;
    let file = config(FILE);
    let path = file.path().to_str().unwrap();
    let server = Server::start_with(&["--config", path, "--redis", &redis.url()]).await;
    until("it is open for an hour", || async { !call(&server, "mail-a", "failure").await }).await;
    assert!(call(&server, "mail-b", "success").await);

    let changed = FILE.replace("failures: 1, open_for: 1h, open_max: 1h", "failures: 2, open_for: 50ms");
    assert_ne!(changed, FILE);
    fs::write(path, &changed).unwrap();
    let reload = async || {
        let answer = Client::connect(server.admin).await.send("POST", "/v1/reload", "", b"").await;
        (answer.status, answer.text())
    };
    assert_eq!(reload().await.0, 200);
    let open = seen(&server, "mail-a").await;
    assert_eq!(open["state"], "open", "it has the end it was given: {open}");
    assert!(open["retry_after_ms"].as_u64().is_some_and(|left| left > 3_000_000), "{open}");
    assert!(call(&server, "mail-b", "failure").await && call(&server, "mail-b", "failure").await);
    let refused = acquire(&server, "mail-b").await;
    assert!(refused["retry_after_ms"].as_u64().is_some_and(|wait| wait <= 60), "{refused}");

    // A bad one changes nothing.
    fs::write(path, changed.replace("failures: 2", "failures: none")).unwrap();
    let (status, said) = reload().await;
    assert!(status == 422 || status == 400 || status == 409, "{status} {said}");
    assert!(said.contains("breakers[1].failures") && said.contains("or off"), "{said}");
    assert_eq!(acquire(&server, "payments").await["allowed"], true);

    // What nobody is for any more is an error that says so.
    fs::write(path, "rules: []\nbreakers: [{ name: payments }]\n").unwrap();
    assert_eq!(reload().await.0, 200);
    let answer = server.post("/v1/breakers/acquire", r#"{"id":"mail-a"}"#).await;
    assert_eq!((answer.status, &answer.json()["field"]), (400, &json!("id")), "{}", answer.text());
}
