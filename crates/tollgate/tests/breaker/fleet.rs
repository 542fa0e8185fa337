//! What the instances of a fleet decide together.

use std::time::Duration;

use testkit::RedisServer;
use tollgate::breaker::{Decree, OverrideError};
use tollgate::core::breaker::{Mode, State};

use crate::stand::{
    call, fail_until_refused, fleet, on, reach, settings, until, until_fleet_is, until_state,
};

#[tokio::test]
async fn while_closed_or_open_a_call_costs_no_round_trip() {
    let server = RedisServer::start().await;
    let fleet = fleet(&server, 1, settings()).await;
    let (instance, payments) = &fleet[0];
    let began = tollgate::clock::instant();
    let before = calls(&server).await;
    for _ in 0..20_000 {
        assert!(call(payments, true).await);
    }
    let decree = Decree {
        mode: Mode::ForcedOpen,
        keep_for: Duration::from_mins(1),
        reason: "a drill".into(),
        who: "ann".into(),
    };
    instance.overrule(b"payments", decree).await.expect("it answers");
    for _ in 0..20_000 {
        assert!(!call(payments, true).await);
    }
    let took = began.elapsed();
    let asked = calls(&server).await - before;
    // One report each tenth of a second, one look each second, and the override.
    assert!(u128::from(asked) <= 4 + took.as_millis() / 80, "{asked} calls of Redis in {took:?}");
}

async fn calls(server: &RedisServer) -> u64 {
    let info = server.command(&["INFO", "commandstats"]).await.text();
    let of = |line: &str| line.strip_prefix("cmdstat_fcall:calls=")?.split(',').next()?.parse().ok();
    info.lines().find_map(of).unwrap_or(0)
}

#[tokio::test]
async fn when_most_fail_all_open_and_when_all_is_well_all_close() {
    let server = RedisServer::start().await;
    let fleet = fleet(&server, 3, settings()).await;
    for (_, payments) in &fleet[..2] {
        fail_until_refused(payments).await;
    }
    // The third has not failed once, and is told.
    until_state(&fleet[2].1, State::Open).await;
    until("all are closed", || async {
        for (_, payments) in &fleet {
            call(payments, true).await;
        }
        fleet.iter().all(|(_, payments)| payments.state() == State::Closed)
    })
    .await;
}

#[tokio::test]
async fn one_that_fails_alone_opens_for_itself_alone() {
    let server = RedisServer::start().await;
    let fleet = fleet(&server, 3, settings()).await;
    let deadline = tokio::time::Instant::now() + Duration::from_millis(1500);
    let mut refused = 0;
    while tokio::time::Instant::now() < deadline {
        refused += u32::from(!call(&fleet[0].1, false).await);
        for (_, payments) in &fleet[1..] {
            assert!(call(payments, true).await, "the others are not held up");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(refused > 100, "the bad one keeps itself from calling: {refused}");
}

#[tokio::test]
async fn an_instance_that_is_new_finds_it_open() {
    let server = RedisServer::start().await;
    let prefix = testkit::unique_prefix();
    let mut settings = settings();
    settings.open_for = tollgate::Micros::from_secs(60);
    settings.open_max = settings.open_for;
    let first = on(&server.url(), &prefix, settings.clone());
    let payments = first.handle(b"payments").expect("there is room");
    fail_until_refused(&payments).await;
    until_fleet_is(&server, State::Open).await;
    drop((first, payments));
    let second = on(&server.url(), &prefix, settings);
    reach(&second).await;
    let payments = second.handle(b"payments").expect("there is room");
    assert!(!call(&payments, true).await, "its very first call is refused");
}

#[tokio::test]
async fn what_a_person_decides_holds_on_every_instance_until_it_is_lifted() {
    let server = RedisServer::start().await;
    let fleet = fleet(&server, 2, settings()).await;
    let decree =
        |mode| Decree { mode, keep_for: Duration::from_mins(1), reason: "a drill".into(), who: "ann".into() };
    fleet[0].0.overrule(b"payments", decree(Mode::ForcedOpen)).await.expect("it answers");
    until_state(&fleet[1].1, State::Open).await;
    assert!(!call(&fleet[1].1, true).await);
    fleet[0].0.overrule(b"payments", decree(Mode::ForcedClosed)).await.expect("it answers");
    until_state(&fleet[1].1, State::Closed).await;
    for _ in 0..200 {
        assert!(call(&fleet[1].1, false).await, "nothing trips");
    }
    fleet[0].0.lift(b"payments").await.expect("it answers");
    fail_until_refused(&fleet[1].1).await;

    let long = Decree { reason: "x".repeat(257), ..decree(Mode::ForcedOpen) };
    let refused = fleet[0].0.overrule(b"payments", long).await.expect_err("it is too long");
    assert!(matches!(refused, OverrideError::Field { field: "reason", .. }), "{refused}");
}

/// Nobody may publish or subscribe: what has changed is found out by asking.
#[tokio::test]
async fn who_hears_no_push_finds_out_by_asking_while_closed_and_while_open() {
    let user = "user default on nopass ~* resetchannels +@all";
    let server = RedisServer::builder().acl_line(user).start().await;
    let fleet = fleet(&server, 2, settings()).await;
    let keep_for = Duration::from_mins(1);
    let decree = Decree { mode: Mode::ForcedOpen, keep_for, reason: "a drill".into(), who: "ann".into() };
    fleet[0].0.overrule(b"payments", decree).await.expect("it answers");
    until("it is refused", || async { !call(&fleet[1].1, true).await }).await;
    fleet[0].0.lift(b"payments").await.expect("it answers");
    until("it is not refused", || async { call(&fleet[1].1, true).await }).await;
}
