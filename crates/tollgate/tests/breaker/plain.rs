//! The decision record's four calls: allow, record success, record failure, state.

use std::time::Duration;

use testkit::RedisServer;
use tollgate::breaker::{BREAKERS_MAX, NoBreaker, NoPermit, Refused};
use tollgate::core::breaker::State;

use crate::stand::{fail_until_refused, fleet, on, probe, reach, settings, until, until_fleet_is};

#[tokio::test]
async fn by_four_calls_it_trips_probes_and_closes() {
    let server = RedisServer::start().await;
    let mut settings = settings();
    settings.ramp = vec![];
    let breakers = on(&server.url(), &testkit::unique_prefix(), settings);
    assert_eq!(breakers.state(b"pay").await, Ok(State::Closed));
    until("the fleet has tripped", || async {
        if breakers.allow(b"pay").await.is_ok() {
            breakers.record_failure(b"pay").expect("there is room");
        }
        breakers.state(b"pay").await == Ok(State::Open)
    })
    .await;
    until_fleet_is(&server, State::Open).await;
    let refused = breakers.allow(b"pay").await.expect_err("it is open");
    assert!(
        matches!(refused, NoPermit::Refused(Refused { retry_after }) if !retry_after.is_zero()),
        "{refused:?}"
    );
    // Nobody was let through: whoever says so all the same is late.
    breakers.record_success(b"pay").expect("there is room");

    // Both of its leases, and no third.
    for _ in 0..2 {
        until("a lease is given", || async { breakers.allow(b"pay").await.is_ok() }).await;
    }
    assert_eq!(breakers.state(b"pay").await, Ok(State::HalfOpen));
    assert!(breakers.allow(b"pay").await.is_err());
    for _ in 0..2 {
        breakers.record_success(b"pay").expect("there is room");
    }
    until_fleet_is(&server, State::Closed).await;
    until("it is known", || async { breakers.state(b"pay").await == Ok(State::Closed) }).await;
}

#[tokio::test]
async fn a_failure_by_name_ends_the_probe_that_was_allowed() {
    let server = RedisServer::start().await;
    let fleet = fleet(&server, 1, settings()).await;
    let (_, payments) = &fleet[0];
    fail_until_refused(payments).await;
    until_fleet_is(&server, State::Open).await;
    until("a lease is given", || async { payments.allow().await.is_ok() }).await;
    until_fleet_is(&server, State::HalfOpen).await;
    payments.record_failure();
    until_fleet_is(&server, State::Open).await;
}

#[tokio::test]
async fn the_first_look_at_a_name_asks_the_fleet() {
    let server = RedisServer::start().await;
    let mut settings = settings();
    settings.open_for = tollgate::Micros::from_secs(60);
    settings.open_max = settings.open_for;
    let prefix = testkit::unique_prefix();
    let first = on(&server.url(), &prefix, settings.clone());
    fail_until_refused(&first.handle(b"payments").expect("there is room")).await;
    until_fleet_is(&server, State::Open).await;
    let second = on(&server.url(), &prefix, settings);
    reach(&second).await;
    assert_eq!(second.state(b"payments").await, Ok(State::Open));
}

#[tokio::test]
async fn a_name_that_cannot_be_is_said_to_be_one() {
    let breakers = on("redis://127.0.0.1:1", "nowhere", settings());
    assert_eq!(breakers.allow(b"").await, Err(NoPermit::NoBreaker(NoBreaker::Id { length: 0 })));
    assert_eq!(breakers.state(&[b'x'; 1025]).await, Err(NoBreaker::Id { length: 1025 }));
    assert!(breakers.record_failure(&[b'x'; 1024]).is_ok(), "one of {BREAKERS_MAX}");
}

/// At the very end of its lease a probe can say nothing any more: Redis has taken the lease back.
#[tokio::test]
async fn a_probe_cancelled_when_told_to_is_heard_in_time() {
    let server = RedisServer::start().await;
    let mut settings = settings();
    settings.probe_for = tollgate::Micros::from_secs(2);
    let fleet = fleet(&server, 1, settings).await;
    let (_, payments) = &fleet[0];
    fail_until_refused(payments).await;
    until_fleet_is(&server, State::Open).await;
    // On a busy machine one may come late all the same.
    for _ in 0..5 {
        let permit = probe(payments).await;
        until_fleet_is(&server, State::HalfOpen).await;
        let left = permit.lease_left().expect("it is a probe");
        assert!(left > Duration::from_secs(1), "most of its two seconds are its own: {left:?}");
        tokio::time::sleep(left).await;
        permit.failure();
        let opened = until_fleet_is(&server, State::Open);
        if tokio::time::timeout(Duration::from_secs(1), opened).await.is_ok() {
            return;
        }
    }
    panic!("none was heard in time");
}
