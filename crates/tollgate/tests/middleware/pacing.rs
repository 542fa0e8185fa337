//! The pacing example: calls that wait for their turn.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tollgate::clock;
use tollgate::middleware::{PaceError, PaceLayer};
use tollgate::{Cost, Engine, MemoryStore};
use tower::{Service, ServiceBuilder, ServiceExt as _};

use crate::example_pacing::{client, policy};
use crate::stand::engine;

/// On the machine's own clock, which only runs on: the pace is seen from below.
#[tokio::test]
async fn calls_go_out_one_after_the_other() {
    let engine = Engine::builder(MemoryStore::new()).policy(policy().unwrap()).build();
    let mut client = client(engine, Duration::from_mins(1));
    let started: Instant = clock::instant();
    for call in 0..5 {
        let answer = client.ready().await.unwrap().call(call).await;
        assert_eq!(answer, Ok(format!("call {call} was sent")));
    }
    // The first goes at once, each other 50 ms after the one before.
    assert!(started.elapsed() >= Duration::from_millis(4 * 50), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_call_that_would_wait_too_long_hears_so_and_is_not_sent() {
    let (engine, _hand) = engine(policy().unwrap());
    let mut client = client(engine, Duration::from_millis(40));
    assert!(client.ready().await.unwrap().call(0).await.is_ok());
    let error = client.ready().await.unwrap().call(1).await.unwrap_err();
    assert!(matches!(error, PaceError::TooLate { retry_after } if retry_after.0 == 50_000), "{error:?}");
    assert_eq!(error.to_string(), "the pace lets the call through in 50 ms, later than it may wait");
}

#[tokio::test]
async fn what_can_never_go_out_says_why() {
    let (engine, _hand) = engine(policy().unwrap());
    let sent = tower::service_fn(|()| async { Ok::<_, Infallible>(()) });
    let layer = PaceLayer::by_rule(engine.clone(), "upstream", Duration::from_secs(1));
    let mut dear = ServiceBuilder::new().layer(layer.cost(Cost::new(2).unwrap())).service(sent);
    let error = dear.ready().await.unwrap().call(()).await.unwrap_err();
    assert_eq!(error, PaceError::Never { why: "it costs more than the limit" });
    let layer = PaceLayer::by_rule(engine, "missing", Duration::from_secs(1));
    let mut lost = ServiceBuilder::new().layer(layer).service(sent);
    let error = lost.ready().await.unwrap().call(()).await.unwrap_err();
    assert_eq!(error, PaceError::Never { why: "the policy has no such rule" });
}

#[tokio::test]
async fn what_has_one_key_is_paced_together() {
    let (engine, _hand) = engine(policy().unwrap());
    let sent = tower::service_fn(|()| async { Ok::<_, Infallible>(()) });
    let layer = |key: &str| PaceLayer::by_rule(engine.clone(), "upstream", Duration::ZERO).key(key);
    let mut first = ServiceBuilder::new().layer(layer("a")).service(sent);
    let mut second = ServiceBuilder::new().layer(layer("a")).service(sent);
    let mut other = ServiceBuilder::new().layer(layer("b")).service(sent);
    assert_eq!(first.ready().await.unwrap().call(()).await, Ok(()));
    assert!(second.ready().await.unwrap().call(()).await.is_err());
    assert_eq!(other.ready().await.unwrap().call(()).await, Ok(()));
}

#[tokio::test]
async fn the_clients_own_error_comes_back() {
    let (engine, _hand) = engine(policy().unwrap());
    let broken = tower::service_fn(|()| async { Err::<(), _>("broken pipe") });
    let layer = PaceLayer::by_rule(engine, "upstream", Duration::ZERO);
    let mut client = ServiceBuilder::new().layer(layer).service(broken);
    assert_eq!(client.ready().await.unwrap().call(()).await, Err(PaceError::Inner("broken pipe")));
}
