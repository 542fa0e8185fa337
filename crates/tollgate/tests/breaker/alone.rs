//! Without Redis: nobody's call fails for want of it, the same machine runs here, and the fleet is found again.

use std::time::Duration;

use testkit::{ChaosProxy, RedisServer};
use tollgate::breaker::Decree;
use tollgate::core::breaker::{Mode, State};

use crate::stand::{call, fail_until_refused, on, reach, settings, until, until_state};

#[tokio::test]
async fn where_there_never_was_a_redis_it_breaks_all_the_same() {
    let instance = on("redis://127.0.0.1:1", "nowhere", settings());
    let payments = instance.handle(b"payments").expect("there is room");
    assert!(call(&payments, true).await);
    assert!(!payments.is_shared());
    fail_until_refused(&payments).await;
    until("it is closed again", || async {
        call(&payments, true).await && payments.state() == State::Closed
    })
    .await;
}

#[tokio::test]
async fn a_first_answer_that_comes_late_is_heard_though_nobody_waits_for_it() {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let instance = on(&proxy.url(), &testkit::unique_prefix(), settings());
    reach(&instance).await;
    proxy.delay_replies(Duration::from_millis(60));
    let payments = instance.handle(b"pay").expect("room");
    // Says nothing about the other side, so there is nothing to tell the fleet either.
    payments.permit().await.expect("no call waits longer than the deadline").ignore();
    assert!(!payments.is_shared());
    until("it is heard", || async { payments.is_shared() }).await;
}

#[tokio::test]
async fn while_redis_is_away_it_decides_alone_and_then_with_the_fleet_again() {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let prefix = testkit::unique_prefix();
    let cut_off = on(&proxy.url(), &prefix, settings());
    let other = on(&server.url(), &prefix, settings());
    let (here, there) = (cut_off.handle(b"pay").expect("room"), other.handle(b"pay").expect("room"));
    until("both are heard of", || async {
        (call(&here, true).await, call(&there, true).await) == (true, true)
            && here.is_shared()
            && there.is_shared()
    })
    .await;

    proxy.blackhole();
    until("it is noticed", || async {
        assert!(call(&here, true).await, "no call waits for it, and none is refused");
        !here.is_shared()
    })
    .await;
    fail_until_refused(&here).await;
    assert!(call(&there, true).await, "the fleet knows nothing of it");
    until("it is closed again", || async { call(&here, true).await && here.state() == State::Closed }).await;

    proxy.pass();
    until("the fleet is found again", || async {
        assert!(call(&here, true).await);
        here.is_shared()
    })
    .await;
    // And what the fleet decides is heard again.
    for _ in 0..2 {
        fail_until_refused(&here).await;
        fail_until_refused(&there).await;
    }
    until_state(&here, State::Open).await;
}

/// What was pushed while nobody could hear it is asked for, though no call is made.
#[tokio::test]
async fn what_was_missed_is_asked_for_once_pushes_are_heard_again() {
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let prefix = testkit::unique_prefix();
    let cut_off = on(&proxy.url(), &prefix, settings());
    let other = on(&server.url(), &prefix, settings());
    let here = cut_off.handle(b"pay").expect("room");
    until("it is heard of", || async { call(&here, true).await && here.is_shared() }).await;
    cut_off.flush().await;
    // Nothing is left to be told: whatever it hears from here on, it has asked for because of the gap.
    proxy.cut();
    let keep_for = Duration::from_mins(1);
    let decree = Decree { mode: Mode::ForcedOpen, keep_for, reason: "a drill".into(), who: "ann".into() };
    other.overrule(b"pay", decree).await.expect("it answers");
    assert_eq!(here.state(), State::Closed);
    proxy.pass();
    until_state(&here, State::Open).await;
}
