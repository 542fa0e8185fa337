//! What one instance hears of, all of them go by.

use serde_json::{Value, json};
use testkit::{RedisCluster, RedisServer, SentinelGroup};

use crate::common::Server;
use crate::stand::{acquire, call, overriding, report, seen, serving, trip, until, until_state};

#[tokio::test]
async fn what_trips_through_one_is_refused_at_the_other_and_probed_by_one_of_them() {
    let redis = RedisServer::start().await;
    let (one, two) = (serving(&redis.url(), &[]).await, serving(&redis.url(), &[]).await);
    for server in [&one, &two] {
        let first = acquire(server, "payments").await;
        assert_eq!((&first["allowed"], &first["state"]), (&json!(true), &json!("closed")), "{first}");
        assert_eq!((&first["probe"], &first["report_within_ms"]), (&json!(false), &json!(60_000)));
    }
    trip(&one, &two, "payments").await;
    let refused = acquire(&two, "payments").await;
    assert_eq!((&refused["allowed"], &refused["state"]), (&json!(false), &json!("open")), "{refused}");
    assert!(refused["retry_after_ms"].as_u64().is_some_and(|wait| wait <= 2_000), "{refused}");

    // Both at once, and again and again: one of them probes, and the other waits.
    let probing = async {
        loop {
            let (here, there) = tokio::join!(acquire(&one, "payments"), acquire(&two, "payments"));
            match (here["allowed"] == true, there["allowed"] == true) {
                (true, true) => panic!("two at once: {here} {there}"),
                (true, false) => return (here, &two),
                (false, true) => return (there, &one),
                (false, false) => {}
            }
        }
    };
    let (probe, other) = probing.await;
    assert_eq!((&probe["probe"], &probe["state"]), (&json!(true), &json!("half-open")), "{probe}");
    assert!(probe["report_within_ms"].as_u64().is_some_and(|wait| wait <= 2_000), "{probe}");
    // It is reported where it was not granted, once.
    assert_eq!(report(other, "payments", &probe["token"], "success").await, json!({ "counted": true }));
    let again = report(other, "payments", &probe["token"], "failure").await;
    assert_eq!(again, json!({ "counted": false, "why": "changed" }));
    until("one more closes it", || async {
        call(&one, "payments", "success").await;
        seen(&one, "payments").await["state"] == "closed" && seen(&two, "payments").await["state"] == "closed"
    })
    .await;
}

#[tokio::test]
async fn a_probe_that_fails_opens_it_for_all_and_one_that_is_lost_frees_its_place() {
    let redis = RedisServer::start().await;
    let (one, two) = (serving(&redis.url(), &[]).await, serving(&redis.url(), &[]).await);
    acquire(&two, "payments").await;
    trip(&one, &two, "payments").await;
    let probe = async |server: &Server| loop {
        let acquired = acquire(server, "payments").await;
        if acquired["probe"] == true {
            return acquired;
        }
    };
    let lost = probe(&one).await;
    // Nobody reports it: the other has the next one when its lease is over.
    let next = probe(&two).await;
    assert_ne!(lost["token"], next["token"]);
    let late = report(&one, "payments", &lost["token"], "success").await;
    assert_eq!(late, json!({ "counted": false, "why": "expired" }));
    assert_eq!(report(&two, "payments", &next["token"], "failure").await, json!({ "counted": true }));
    until_state(&one, "payments", "open").await;
}

/// A call's report counts wherever it arrives, as long as the fleet has not changed since.
#[tokio::test]
async fn a_call_is_reported_to_any_instance() {
    let redis = RedisServer::start().await;
    let (one, two) = (serving(&redis.url(), &[]).await, serving(&redis.url(), &[]).await);
    until("both have heard of the fleet", || async {
        call(&one, "payments", "success").await;
        call(&two, "payments", "success").await;
        seen(&one, "payments").await["shared"] == true && seen(&two, "payments").await["shared"] == true
    })
    .await;
    let old = acquire(&one, "payments").await;
    until("reports of the other's calls trip it", || async {
        let acquired = acquire(&one, "payments").await;
        if acquired["allowed"] == true {
            report(&two, "payments", &acquired["token"], "failure").await;
        }
        seen(&two, "payments").await["state"] == "open"
    })
    .await;
    // What a person decides is a change, too.
    let decided = json!({ "mode": "forced_closed", "ttl_ms": 60_000, "reason": "a test" });
    assert_eq!(overriding(&one, "PUT", "payments", "", &decided).await.status, 200);
    until("the other hears of it", || async { !seen(&two, "payments").await["override"].is_null() }).await;
    let late = report(&two, "payments", &old["token"], "failure").await;
    assert_eq!(late, json!({ "counted": false, "why": "changed" }), "it was let through an epoch ago");
}

/// The four calls of a breaker that knows no tokens.
#[tokio::test]
async fn tokens_may_be_left_alone() {
    let redis = RedisServer::start().await;
    let server = serving(&redis.url(), &[]).await;
    let none = Value::Null;
    until("it trips", || async {
        if acquire(&server, "payments").await["allowed"] == true {
            report(&server, "payments", &none, "failure").await;
        }
        seen(&server, "payments").await["state"] == "open"
    })
    .await;
    let late = report(&server, "payments", &none, "success").await;
    assert_eq!(late, json!({ "counted": false, "why": "changed" }));
    until("it closes", || async {
        if acquire(&server, "payments").await["allowed"] == true {
            report(&server, "payments", &none, "success").await;
        }
        seen(&server, "payments").await["state"] == "closed"
    })
    .await;
}

#[tokio::test]
async fn a_fleet_breaks_together_on_sentinels_and_on_a_cluster() {
    let (group, cluster) = tokio::join!(SentinelGroup::start(), RedisCluster::start());
    for url in [group.url(), cluster.url()] {
        let (one, two) = (serving(&url, &[]).await, serving(&url, &[]).await);
        for id in ["mail-a", "mail-b", "mail-c", "mail-d"] {
            acquire(&two, id).await;
            trip(&one, &two, id).await;
            assert_eq!(acquire(&two, id).await["allowed"], false, "{url} {id}");
        }
    }
}
