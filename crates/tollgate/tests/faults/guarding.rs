//! The guard by itself: what it sends while open, and what it learns from late failures.

use std::sync::Arc;
use std::time::Duration;

use testkit::{ChaosProxy, RedisServer};
use tokio::sync::oneshot;
use tollgate::core::few::Few;
use tollgate::core::store::{Shard, StoreError};
use tollgate::guard::Guard;
use tollgate::observe::{Operation, Silent};

use crate::stand::Stand;

const WHOLE: Few<Shard> = Few::One(Shard::WHOLE);

fn failure() -> Result<(), StoreError> {
    Err(StoreError::Lost { why: "a test".into() })
}

/// Failures that were still under way when the guard closed once counted against the new time, so
/// that one more was enough to open it again.
#[tokio::test]
async fn failures_of_an_older_time_do_not_count() {
    let guard = Arc::new(Guard::new(Duration::from_secs(10), 3, Arc::new(Silent)));
    let late: Vec<_> = (0..3)
        .map(|_| {
            let (fail, failed) = oneshot::channel::<()>();
            let guard = Arc::clone(&guard);
            let call = async move {
                let _ = failed.await;
                failure()
            };
            (fail, tokio::spawn(async move { guard.run(&WHOLE, Operation::Take, call).await }))
        })
        .collect();
    tokio::task::yield_now().await;

    for _ in 0..3 {
        assert!(guard.run(&WHOLE, Operation::Take, async { failure() }).await.is_err());
    }
    assert!(guard.is_open());
    let probe = async {
        tokio::task::yield_now().await;
        Ok(())
    };
    assert!(guard.probe(Shard::WHOLE, Operation::Heartbeat, probe).await.is_ok());
    assert!(!guard.is_open());

    for (fail, call) in late {
        fail.send(()).unwrap();
        assert!(call.await.unwrap().is_err());
    }
    assert!(guard.run(&WHOLE, Operation::Take, async { failure() }).await.is_err());
    assert!(!guard.is_open(), "one failure opened it");
}

/// One stall of a shared Redis once was enough: whoever waited at the time counted as a row.
#[tokio::test]
async fn calls_that_time_out_together_are_one_failure() {
    let guard = Arc::new(Guard::new(Duration::from_millis(20), 3, Arc::new(Silent)));
    let never = || std::future::pending::<Result<(), StoreError>>();
    let together: Vec<_> = (0..10)
        .map(|_| {
            let guard = Arc::clone(&guard);
            tokio::spawn(async move { guard.run(&WHOLE, Operation::Take, never()).await })
        })
        .collect();
    for call in together {
        assert!(call.await.unwrap().is_err());
    }
    assert!(!guard.is_open(), "one stall opened it");
    assert!(guard.run(&WHOLE, Operation::Take, never()).await.is_err());
    assert!(guard.is_open(), "it does not end, and the guard is closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_guard_sends_heartbeats_and_nothing_else() {
    /// Every 75 ms at most, each a few hundred bytes.
    const HEARTBEAT_BYTES_PER_SECOND: u64 = 14 * 400;
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let stand = Stand::start(&proxy.url()).await;
    // It answers at once, so whatever is sent arrives.
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    testkit::eventually("the guard opens", || stand.engine.health().outage.is_some()).await;
    stand.lasts(Duration::from_millis(100)).await;

    let (sent, asked) = (proxy.bytes_up(), stand.heard.by_fallback());
    stand.lasts(Duration::from_secs(1)).await;
    let (sent, asked) = (proxy.bytes_up() - sent, stand.heard.by_fallback() - asked);
    println!("{sent} bytes sent while {asked} asks were answered");
    assert!(asked > 200, "only {asked} asks");
    assert!(sent <= HEARTBEAT_BYTES_PER_SECOND, "{sent} bytes for {asked} asks");
    assert!(sent > 0, "no heartbeat either");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_redis_is_not_stormed_with_dials() {
    /// Three connections, each with a few quick dials and then four a second or so.
    const DIALS_MAX: u64 = 60;
    let server = RedisServer::start().await;
    let proxy = ChaosProxy::start(server.address()).await;
    let stand = Stand::start(&proxy.url()).await;
    let dialled = proxy.accepted();
    proxy.cut();
    stand.lasts(Duration::from_secs(1)).await;
    let dialled = proxy.accepted() - dialled;
    println!("{dialled} dials in a second of refusals");
    assert!((1..=DIALS_MAX).contains(&dialled), "{dialled} dials");

    // Where dials hang, one hangs at a time.
    proxy.blackhole();
    let mut open_max = 0;
    for _ in 0..100 {
        stand.lasts(Duration::from_millis(5)).await;
        open_max = open_max.max(proxy.open());
    }
    assert_eq!(open_max, 1, "dials at a time");
}

/// A sick shard keeps nobody from another, and a call on several neither opens one nor gets past one that is.
#[tokio::test]
async fn each_shard_has_a_breaker_of_its_own() {
    let guard = Guard::new(Duration::from_secs(10), 3, Arc::new(Silent));
    let (sick, well) = (Few::One(Shard(1)), Few::One(Shard(2)));
    let both = Few::Many(vec![Shard(1), Shard(2)]);
    for _ in 0..9 {
        assert!(guard.run(&both, Operation::Take, async { failure() }).await.is_err());
    }
    assert_eq!(guard.shards_open(), 0, "nobody can tell which it was");
    for _ in 0..3 {
        assert!(guard.run(&sick, Operation::Take, async { failure() }).await.is_err());
    }
    assert!(guard.is_open_for(Shard(1)) && !guard.is_open_for(Shard(2)) && !guard.is_open_for(Shard::WHOLE));
    assert_eq!((guard.shards_open(), guard.outage().is_some()), (1, true));

    let sent = std::cell::Cell::new(0);
    let call = || async {
        sent.set(sent.get() + 1);
        Ok(())
    };
    assert!(guard.run(&well, Operation::Take, call()).await.is_ok());
    assert!(guard.run(&sick, Operation::Take, call()).await.is_err());
    assert!(guard.run(&both, Operation::Take, call()).await.is_err());
    assert_eq!(sent.get(), 1, "what is set aside is not called");

    assert!(guard.probe(Shard(2), Operation::Heartbeat, call()).await.is_ok());
    assert!(guard.is_open_for(Shard(1)), "another's health says nothing");
    assert!(guard.probe(Shard(1), Operation::Heartbeat, call()).await.is_ok());
    assert!(!guard.is_open());
    assert!(guard.run(&both, Operation::Take, call()).await.is_ok());
}
