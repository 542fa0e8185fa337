//! Leases: as many as there are, given back, or ended.

use std::time::Duration;

use testkit::{ChaosProxy, RedisServer, Reply};
use tollgate::core::breaker::State;

use crate::stand::{call, fail_until_refused, fleet, on, probe, settings, until, until_fleet_is};

#[tokio::test]
async fn never_more_probes_than_there_are_and_a_dropped_one_is_free_at_once() {
    let server = RedisServer::start().await;
    let fleet = fleet(&server, 2, settings()).await;
    for (_, payments) in &fleet {
        fail_until_refused(payments).await;
    }
    until_fleet_is(&server, State::Open).await;
    let (first, second) = (probe(&fleet[0].1).await, probe(&fleet[1].1).await);
    for (_, payments) in &fleet {
        assert!(!call(payments, true).await, "both leases are out");
    }
    let left = first.lease_left().expect("it is a probe");
    assert!(left <= Duration::from_millis(500), "{left:?}");
    drop(first);
    let again = probe(&fleet[1].1).await;
    assert!(
        second.lease_left().expect("it is a probe") > Duration::ZERO,
        "long before the other's lease ended"
    );
    drop((second, again));
}

#[tokio::test]
async fn a_probe_that_nobody_hears_of_again_frees_its_place_when_its_lease_ends() {
    let server = RedisServer::start().await;
    let fleet = fleet(&server, 2, settings()).await;
    for (_, payments) in &fleet {
        fail_until_refused(payments).await;
    }
    until_fleet_is(&server, State::Open).await;
    // As if the process had been killed: nothing is said and nothing given back.
    std::mem::forget(probe(&fleet[0].1).await);
    std::mem::forget(probe(&fleet[0].1).await);
    let began = tokio::time::Instant::now();
    until("it is closed", || async { call(&fleet[1].1, true).await && fleet[1].1.state() == State::Closed })
        .await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn one_failed_probe_opens_it_for_longer() {
    let server = RedisServer::start().await;
    let fleet = fleet(&server, 1, settings()).await;
    let payments = &fleet[0].1;
    fail_until_refused(payments).await;
    let trips = || async {
        let keys = server.command(&["KEYS", "*:cb:*:s"]).await;
        let key = keys.array()[0].text();
        server.command(&["HGET", &key, "trips"]).await
    };
    until("the fleet has tripped", || async { trips().await == Reply::Bulk(b"1".to_vec()) }).await;
    probe(payments).await.failure();
    until("the fleet has tripped again", || async { trips().await == Reply::Bulk(b"2".to_vec()) }).await;
    let began = tokio::time::Instant::now();
    drop(probe(payments).await);
    assert!(began.elapsed() > Duration::from_millis(400), "twice as long as before: {:?}", began.elapsed());
}

#[tokio::test]
async fn a_lease_is_counted_from_when_it_was_asked_for() {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let instance = on(&proxy.url(), &testkit::unique_prefix(), settings());
    let payments = instance.handle(b"payments").expect("there is room");
    until("the fleet is heard of", || async { call(&payments, true).await && payments.is_shared() }).await;
    fail_until_refused(&payments).await;
    until_fleet_is(&server, State::Open).await;
    let delay = Duration::from_millis(15);
    proxy.delay_replies(delay);
    let probe = probe(&payments).await;
    let left = probe.lease_left().expect("it is a probe");
    // Half a second, less an eighth to tell how it went.
    assert!(
        left + delay <= Duration::from_micros(437_500),
        "{left:?}: Redis began to count before it answered"
    );
}
