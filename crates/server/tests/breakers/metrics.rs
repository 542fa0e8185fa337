//! What breakers tell, by the names of the policy and never by ids.

use std::fs;

use serde_json::{Value, json};
use testkit::RedisServer;

use crate::common::{Client, Server, config};
use crate::stand::{FILE, acquire, call, report, seen, until};

#[tokio::test]
async fn what_happens_is_counted_under_the_names_of_the_policy() {
    let redis = RedisServer::start().await;
    let file = config(FILE);
    let path = file.path().to_str().unwrap();
    let server = Server::start_with(&["--config", path, "--redis", &redis.url()]).await;
    let of = async |series: &str| server.metric(&format!("tollgate_breaker{series}")).await;
    assert_eq!(of("s{breaker=\"mail\",state=\"closed\"}").await, Some(0.0), "there from the start");
    assert_eq!(of("_acquires_total{breaker=\"payments\",answer=\"refused\"}").await, Some(0.0));

    for id in ["mail-secret-1", "mail-secret-2"] {
        assert!(call(&server, id, "success").await);
    }
    let held = acquire(&server, "mail-secret-1").await;
    assert_eq!(of("_calls_held").await, Some(1.0));
    assert_eq!(report(&server, "mail-secret-1", &held["token"], "ignore").await["counted"], true);
    assert_eq!(report(&server, "mail-secret-1", &held["token"], "success").await["counted"], false);
    assert_eq!(of("_calls_held").await, Some(0.0));
    for (series, value) in [
        ("s{breaker=\"mail\",state=\"closed\"}", 2.0),
        ("_acquires_total{breaker=\"mail\",answer=\"granted\"}", 3.0),
        ("_calls_total{breaker=\"mail\",outcome=\"success\"}", 2.0),
        ("_calls_total{breaker=\"mail\",outcome=\"ignore\"}", 1.0),
        ("_late_reports_total{breaker=\"mail\",why=\"unknown\"}", 1.0),
    ] {
        assert_eq!(of(series).await, Some(value), "{series}");
    }

    until("the fleet's record trips, and not only the own", || async {
        call(&server, "payments", "failure").await;
        let cause = "_transitions_total{breaker=\"payments\",record=\"fleet\",cause=\"failures\"}";
        of(cause).await.is_some()
    })
    .await;
    assert!(of("_transitions_total{breaker=\"payments\",record=\"own\",cause=\"failures\"}").await.is_some());
    until("it is refused and counted", || async {
        acquire(&server, "payments").await;
        of("_acquires_total{breaker=\"payments\",answer=\"refused\"}").await > Some(0.0)
    })
    .await;
    until("it probes", || async { acquire(&server, "payments").await["probe"] == true }).await;
    assert_eq!(of("_probe_leases{breaker=\"payments\"}").await, Some(1.0));
    assert_eq!(of("s{breaker=\"payments\",state=\"half-open\"}").await, Some(1.0));
    assert_eq!(
        of("_transitions_total{breaker=\"payments\",record=\"fleet\",cause=\"waited\"}").await,
        Some(1.0)
    );
    assert_eq!(report(&server, "payments", &Value::Null, "success").await, json!({ "counted": true }));
    assert_eq!(of("_probe_leases{breaker=\"payments\"}").await, Some(0.0));
    // At one instant: more may be told between two looks.
    let text = server.admin("/metrics", "").await.text();
    let value = |series: &str| text.lines().find_map(|line| line.strip_prefix(series)?.parse::<u64>().ok());
    let told = value("tollgate_breaker_flushes_total{result=\"told\"} ");
    assert!(told >= Some(2), "{told:?}");
    assert_eq!(value("tollgate_breaker_flush_lag_seconds_count "), told);
    assert!(!text.contains("secret"), "an id is a caller's word");

    // An entry that is no more has no series.
    fs::write(path, "rules: []\nbreakers: [{ name: mail, match: \"mail-*\" }]\n").unwrap();
    let reloaded = Client::connect(server.admin).await.send("POST", "/v1/reload", "", b"").await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    let text = server.admin("/metrics", "").await.text();
    assert!(!text.contains("payments"), "{text}");
    assert_eq!(of("_calls_total{breaker=\"mail\",outcome=\"success\"}").await, Some(2.0), "kept");
    assert_eq!(seen(&server, "mail-secret-1").await["state"], "closed");
}

#[tokio::test]
async fn what_cannot_be_told_is_counted_as_lost() {
    let mut redis = RedisServer::start().await;
    let server = crate::stand::serving(&redis.url(), &[]).await;
    assert!(call(&server, "payments", "success").await);
    redis.kill();
    until("it is noticed", || async {
        assert!(call(&server, "payments", "success").await);
        server.metric("tollgate_breaker_flushes_total{result=\"lost\"}").await > Some(0.0)
    })
    .await;
}
