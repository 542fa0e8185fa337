//! Without Redis, for good or for a while: nobody's call fails for want of it.

use std::time::Duration;

use serde_json::json;
use testkit::{ChaosProxy, RedisServer};
use tokio::time::Instant;

use crate::common::Server;
use crate::stand::{FILE, acquire, call, overriding, seen, serving, trip, until};

#[tokio::test]
async fn a_server_of_its_own_breaks_probes_and_closes() {
    let server = Server::configured(FILE, &[]).await;
    until("it trips", || async { !call(&server, "payments", "failure").await }).await;
    let refused = acquire(&server, "payments").await;
    assert_eq!((&refused["allowed"], &refused["state"]), (&json!(false), &json!("open")), "{refused}");
    until("it closes", || async {
        call(&server, "payments", "success").await;
        seen(&server, "payments").await["state"] == "closed"
    })
    .await;
    let body = json!({ "mode": "forced_open", "ttl_ms": 3_600_000, "reason": "a test" });
    assert_eq!(overriding(&server, "PUT", "payments", "", &body).await.status, 200);
    assert_eq!(acquire(&server, "payments").await["allowed"], false);
}

#[tokio::test]
async fn while_redis_is_away_calls_are_decided_in_time_and_then_by_the_fleet_again() {
    let redis = RedisServer::start().await;
    let proxy = ChaosProxy::start(redis.address()).await;
    let (cut_off, other) = (serving(&proxy.url(), &[]).await, serving(&redis.url(), &[]).await);
    until("both are heard of", || async {
        call(&cut_off, "payments", "success").await;
        call(&other, "payments", "success").await;
        seen(&cut_off, "payments").await["shared"] == true
    })
    .await;

    proxy.blackhole();
    let mut slowest = Duration::ZERO;
    while seen(&cut_off, "payments").await["shared"] == true {
        let asked = Instant::now();
        assert!(call(&cut_off, "payments", "success").await, "none is refused for want of Redis");
        slowest = slowest.max(asked.elapsed());
    }
    // A breaker that is met for the first time meanwhile waits for Redis no longer than its deadline.
    let asked = Instant::now();
    assert_eq!(acquire(&cut_off, "mail-new").await["allowed"], true);
    slowest = slowest.max(asked.elapsed());
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    until("it trips alone", || async { !call(&cut_off, "payments", "failure").await }).await;
    assert!(call(&other, "payments", "success").await, "the others know nothing of it");
    let body = json!({ "mode": "forced_open", "ttl_ms": 1_000, "reason": "a test" });
    let answer = overriding(&cut_off, "PUT", "payments", "", &body).await;
    assert_eq!((answer.status, answer.text().contains("store-away")), (503, true), "{}", answer.text());

    proxy.pass();
    until("the fleet is found again", || async {
        call(&cut_off, "payments", "success").await;
        seen(&cut_off, "payments").await["shared"] == true
            && seen(&cut_off, "payments").await["state"] == "closed"
    })
    .await;
    // Both fail: a quorum.
    until("and trips as one", || async {
        call(&cut_off, "payments", "failure").await;
        call(&other, "payments", "failure").await;
        seen(&other, "payments").await["state"] == "open"
    })
    .await;
    trip(&other, &cut_off, "payments").await;
}
