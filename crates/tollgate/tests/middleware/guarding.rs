//! Breaker and limiter together, both on one real Redis.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tollgate::breaker::Refused;
use tollgate::core::breaker::{Permille, Settings};
use tollgate::middleware::{BoxError, BreakerLayer, FromBytes, GuardLayer, LimitLayer, PaceError, PaceLayer};
use tollgate::store::redis::RedisStore;
use tollgate::{Engine, Micros};
use tower::{Layer as _, Service, ServiceExt as _};

use crate::broken::{Stand, settings, until_asked};
use crate::layers::Strict;
use crate::stand::api;

fn engine(stand: &Stand, rate: &str, burst: u32) -> Engine<RedisStore> {
    stand.engine(api(rate, Some(burst), "{address}"))
}

/// Keys of limits in Redis.
async fn buckets(stand: &Stand) -> usize {
    let keys = stand.server.command(&["KEYS", &format!("{}:*api*", stand.prefix)]).await;
    keys.array().len()
}

/// A service behind a breaker and three calls an hour, and how often it was called.
fn guarded(
    stand: &Stand,
) -> (
    impl Service<Request<()>, Response = Response<Bytes>, Error = &'static str> + Clone + use<>,
    Arc<AtomicU32>,
) {
    let strict = Strict::default();
    let called = Arc::clone(&strict.called);
    let breaker = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room").respond(FromBytes);
    (GuardLayer::new(breaker, LimitLayer::new(engine(stand, "3/h", 3))).layer(strict), called)
}

async fn ask<S>(service: &mut S) -> Response<Bytes>
where
    S: Service<Request<()>, Response = Response<Bytes>>,
    S::Error: std::fmt::Debug,
{
    service.ready().await.expect("it is ready").call(Request::new(())).await.expect("it answers")
}

/// Asks under a breaker that probes.
async fn probe<S>(service: &S) -> Response<Bytes>
where
    S: Service<Request<()>, Response = Response<Bytes>, Error = &'static str> + Clone,
{
    let ask = || async { service.clone().oneshot(Request::new(())).await.expect("it answers") };
    until_asked(ask, |answer| answer.status() == 503).await
}

#[tokio::test]
async fn a_call_that_the_breaker_refuses_spends_no_token() {
    let stand = Stand::start(settings()).await;
    let (mut service, called) = guarded(&stand);
    stand.open("pay").await;
    for _ in 0..10 {
        assert_eq!(ask(&mut service).await.status(), 503);
    }
    assert_eq!((buckets(&stand).await, called.load(Ordering::SeqCst)), (0, 0), "the limit was not asked");
    stand.breakers.lift(b"pay").await.expect("Redis answers");
    let passed = probe(&service).await;
    assert_eq!(
        (passed.status().as_u16(), &passed.headers()["ratelimit"]),
        (200, &"\"api\";r=2;t=1200".parse().unwrap())
    );
    assert_eq!((buckets(&stand).await, called.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn a_call_that_the_limit_refuses_tells_the_breaker_nothing() {
    let stand = Stand::start(settings()).await;
    let (mut service, called) = guarded(&stand);
    for expected in [200, 200, 200, 429, 429, 429, 429] {
        assert_eq!(ask(&mut service).await.status(), expected);
    }
    assert_eq!((stand.counted().await, called.load(Ordering::SeqCst)), ([3, 0, 0], 3));
    // A probe that is not made gives its lease back, which would last a minute.
    stand.half_open().await;
    for _ in 0..10 {
        assert_eq!(probe(&service).await.status(), 429);
        stand.until_leases(0).await;
    }
    assert_eq!(stand.state().await, "half-open");
    assert_eq!((stand.counted().await, called.load(Ordering::SeqCst)), ([0, 0, 0], 3));
}

fn paced(stand: &Stand, at_most: Duration) -> PaceLayer<RedisStore> {
    PaceLayer::by_rule(engine(stand, "10/s", 1), "api", at_most)
}

fn sent()
-> impl Service<(), Response = Response<Bytes>, Error = io::Error, Future: Send> + Clone + Send + 'static {
    tower::service_fn(|()| async { Ok(Response::new(Bytes::new())) })
}

#[tokio::test]
async fn waiting_for_a_turn_makes_no_call_slow() {
    let settings =
        Settings { slow_ratio: Some(Permille(1000)), slow_after: Micros::from_millis(60), ..settings() };
    let stand = Stand::start(settings).await;
    let breaker = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room");
    let mut service = GuardLayer::new(breaker, paced(&stand, Duration::from_mins(1))).layer(sent());
    let began = tollgate::clock::instant();
    for _ in 0..4 {
        service.ready().await.expect("it is ready").call(()).await.expect("it is sent");
    }
    assert!(began.elapsed() >= Duration::from_millis(300), "they waited: {:?}", began.elapsed());
    assert_eq!(stand.counted().await, [4, 0, 0]);
}

#[tokio::test]
async fn a_call_that_would_wait_too_long_tells_the_breaker_nothing() {
    let stand = Stand::start(settings()).await;
    let breaker = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room");
    let mut service = GuardLayer::new(breaker, paced(&stand, Duration::ZERO)).layer(sent());
    service.ready().await.expect("it is ready").call(()).await.expect("it is sent");
    let error = service.ready().await.expect("it is ready").call(()).await.expect_err("it is too early");
    let error = error.downcast_ref::<PaceError<io::Error>>().expect("the pace's own");
    assert!(matches!(error, PaceError::TooLate { .. }), "{error:?}");
    assert_eq!(stand.counted().await, [1, 0, 0]);
}

#[tokio::test]
async fn a_probe_whose_lease_went_by_in_waiting_is_not_made() {
    let stand = Stand::start(Settings { probe_for: Micros::from_millis(50), ..settings() }).await;
    let breaker = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room");
    let mut service = GuardLayer::new(breaker, paced(&stand, Duration::from_mins(1))).layer(sent());
    service.ready().await.expect("it is ready").call(()).await.expect("it is sent");
    stand.half_open().await;
    let is_late = |came: &Result<_, BoxError>| {
        let refused = came.as_ref().err().and_then(|error| error.downcast_ref::<Refused>());
        refused.is_some_and(|refused| !refused.retry_after.is_zero())
    };
    let error = until_asked(|| service.clone().oneshot(()), is_late).await.expect_err("it is too late");
    assert_eq!(error.downcast_ref::<Refused>(), Some(&Refused { retry_after: Duration::ZERO }));
    assert_eq!((stand.state().await.as_str(), stand.counted().await), ("half-open", [0, 0, 0]));
}
