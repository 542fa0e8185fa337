//! The breaker's layer around services that do as they are told; what comes of it is read in Redis.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tollgate::Micros;
use tollgate::breaker::Refused;
use tollgate::clock::Clock;
use tollgate::core::breaker::{Permille, Settings, State};
use tollgate::middleware::{
    BoxError, BreakerLayer, ByResult, ByStatus, Counted, Ending, FromBytes, Ignoring, LeaseEnded,
};
use tower::{Layer as _, Service, ServiceExt as _};

use crate::broken::{Do, Stand, obedient, settings, short_leases, until_asked};
use crate::layers::Strict;

pub(crate) async fn call<S, Q>(service: &mut S, what: Q) -> Result<S::Response, S::Error>
where
    S: Service<Q>,
    S::Error: std::fmt::Debug,
{
    service.ready().await.expect("it is ready").call(what).await
}

pub(crate) fn refused(error: &BoxError) -> Duration {
    error.downcast_ref::<Refused>().unwrap_or_else(|| panic!("refused: {error}")).retry_after
}

/// Calls under a breaker that probes.
async fn probe<S>(service: &S, what: Do) -> Result<S::Response, BoxError>
where
    S: Service<Do, Error = BoxError> + Clone,
{
    let is_late = |came: &Result<S::Response, BoxError>| {
        let refused = came.as_ref().err().and_then(|error| error.downcast_ref::<Refused>());
        refused.is_some_and(|refused| refused.retry_after <= Duration::from_millis(20))
    };
    until_asked(|| service.clone().oneshot(what.clone()), is_late).await
}

#[tokio::test]
async fn calls_are_counted_as_they_ended() {
    let stand = Stand::start(settings()).await;
    let by_status = ByStatus::default().status(http::StatusCode::NOT_IMPLEMENTED, Counted::Success);
    let classify = Ignoring::new(by_status, |error: &io::Error| error.kind() == io::ErrorKind::Interrupted);
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room").classify(classify);
    let mut service = layer.layer(obedient());
    for (what, expected) in [
        (Do::Answer(200), [1, 0, 0]),
        (Do::Answer(404), [2, 0, 0]),
        (Do::Answer(500), [2, 1, 0]),
        (Do::Answer(501), [3, 1, 0]),
        (Do::Answer(429), [3, 2, 0]),
        (Do::Answer(503), [3, 3, 0]),
        (Do::Fail(io::ErrorKind::ConnectionReset), [3, 4, 0]),
        (Do::Fail(io::ErrorKind::Interrupted), [3, 4, 0]),
    ] {
        let came = call(&mut service, what.clone()).await;
        match (&what, came) {
            (Do::Answer(status), Ok(response)) => assert_eq!(response.status().as_u16(), *status),
            (Do::Fail(kind), Err(error)) => {
                assert_eq!(error.downcast_ref::<io::Error>().map(io::Error::kind), Some(*kind));
            }
            (_, came) => panic!("{what:?} came to {came:?}"),
        }
        assert_eq!(stand.counted().await, expected, "{what:?}");
    }
    let closure = |came: Result<&Response<Bytes>, &io::Error>| match came {
        Ok(response) if response.status() == 200 => Ending::Slow,
        Ok(_) => Ending::Ignored,
        Err(_) => Ending::Success,
    };
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room");
    let mut service = layer.clone().classify(closure).layer(obedient());
    for (what, expected) in [
        (Do::Answer(200), [3, 4, 1]),
        (Do::Answer(500), [3, 4, 1]),
        (Do::Fail(io::ErrorKind::ConnectionReset), [4, 4, 1]),
    ] {
        let _ = call(&mut service, what).await;
        assert_eq!(stand.counted().await, expected);
    }
    // What is not HTTP.
    let halves = tower::service_fn(|n: u32| async move { n.checked_sub(1).ok_or("nothing left") });
    let mut service = layer.classify(ByResult).layer(halves);
    assert_eq!(call(&mut service, 1).await.expect("it is one"), 0);
    assert_eq!(call(&mut service, 0).await.expect_err("it is none").to_string(), "nothing left");
    assert_eq!(stand.counted().await, [5, 5, 1]);
}

#[tokio::test]
async fn a_call_that_takes_long_is_slow() {
    let (clock, hand) = Clock::manual(Micros::from_secs(1_800_000_000));
    let settings =
        Settings { slow_ratio: Some(Permille(1000)), slow_after: Micros::from_millis(50), ..settings() };
    let stand = Stand::start_with(settings, clock).await;
    let takes = tower::service_fn(move |micros: u64| {
        hand.fetch_add(micros, Ordering::SeqCst);
        async { Ok::<_, io::Error>(Response::new(Bytes::new())) }
    });
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room");
    let mut service = layer.layer(takes);
    for (micros, expected) in [(49_999, [1, 0, 0]), (50_000, [1, 0, 1]), (0, [2, 0, 1])] {
        call(&mut service, micros).await.expect("it answers");
        assert_eq!(stand.counted().await, expected, "{micros}");
    }
}

#[tokio::test]
async fn whoever_says_when_to_come_again_is_left_alone_until_then() {
    let stand = Stand::start(settings()).await;
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room");
    let mut service = layer.layer(obedient());
    // Not a word of it on others.
    call(&mut service, Do::AnswerLater(500, "30")).await.expect("it answers");
    assert_eq!((stand.counted().await, stand.state().await), ([0, 1, 0], "closed".to_owned()));
    call(&mut service, Do::AnswerLater(503, "30")).await.expect("it answers");
    stand.until_state(State::Open).await;
    let error = call(&mut service, Do::Panic).await.expect_err("it is not called");
    let wait = refused(&error);
    assert!(wait > Duration::from_secs(20) && wait <= Duration::from_secs(30), "{wait:?}");
}

#[tokio::test]
async fn a_probe_is_cancelled_in_time_and_has_failed() {
    let stand = Stand::start(short_leases()).await;
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room");
    let service = layer.layer(obedient());
    stand
        .probe_until(State::Open, || async {
            let is_dropped = Arc::new(AtomicBool::new(false));
            let error =
                probe(&service, Do::Hang(Arc::clone(&is_dropped))).await.expect_err("it took too long");
            assert!(error.downcast_ref::<LeaseEnded>().is_some(), "{error}");
            assert!(is_dropped.load(Ordering::SeqCst), "it goes on no longer");
        })
        .await;
    assert_eq!(stand.leases().await, 0);
}

#[tokio::test]
async fn one_that_is_no_probe_takes_as_long_as_it_takes() {
    let stand = Stand::start(Settings { probe_for: Micros::from_millis(100), ..settings() }).await;
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room");
    let mut service = layer.layer(obedient());
    let hang = call(&mut service, Do::Hang(Arc::default()));
    let came = tokio::time::timeout(Duration::from_millis(300), hang).await;
    assert!(came.is_err(), "nobody has cancelled it: {came:?}");
}

#[tokio::test]
async fn a_probe_that_ends_well_counts_and_one_that_fails_opens() {
    let stand = Stand::start(Settings { successes_to_close: 1, ramp: vec![], ..settings() }).await;
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room");
    let service = layer.layer(obedient());
    for (status, state) in [(404, State::Closed), (500, State::Open)] {
        let probe = || async { drop(probe(&service, Do::Answer(status)).await.expect("it answers")) };
        stand.probe_until(state, probe).await;
    }
}

/// The leases last a minute: what is free before then was given back.
#[tokio::test]
async fn what_says_nothing_gives_its_lease_back_at_once() {
    let stand = Stand::start(settings()).await;
    let classify =
        Ignoring::new(ByStatus::default(), |error: &io::Error| error.kind() == io::ErrorKind::Interrupted);
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room").classify(classify);
    let service = layer.layer(obedient());
    stand.half_open().await;

    let is_dropped = Arc::new(AtomicBool::new(false));
    let other = service.clone();
    let what = Do::Hang(Arc::clone(&is_dropped));
    let hanging = tokio::spawn(async move { probe(&other, what).await });
    stand.until_leases(1).await;
    hanging.abort();
    assert!(hanging.await.expect_err("it was dropped").is_cancelled());
    stand.until_leases(0).await;

    let other = service.clone();
    let panics = tokio::spawn(async move { probe(&other, Do::Panic).await });
    assert!(panics.await.expect_err("as it was told").is_panic());
    stand.until_leases(0).await;

    probe(&service, Do::Fail(io::ErrorKind::Interrupted)).await.expect_err("as it was told");
    stand.until_leases(0).await;
    assert_eq!(stand.state().await, "half-open", "none of it has decided anything");
    // That the lease was there at all.
    let other = service.clone();
    let hanging = tokio::spawn(async move { probe(&other, Do::Hang(Arc::default())).await });
    stand.until_leases(1).await;
    hanging.abort();
}

#[tokio::test]
async fn the_service_that_was_ready_is_the_one_that_is_called_and_not_while_open() {
    let stand = Stand::start(settings()).await;
    let strict = Strict::default();
    let called = Arc::clone(&strict.called);
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room").respond(FromBytes);
    let mut service = layer.layer(strict);
    let mut clone = service.clone();
    for _ in 0..2 {
        assert_eq!(call(&mut service, Request::new(())).await.expect("it answers").status(), 200);
        assert_eq!(call(&mut clone, Request::new(())).await.expect("it answers").status(), 200);
    }
    stand.open("pay").await;
    assert_eq!(call(&mut service, Request::new(())).await.expect("it answers").status(), 503);
    assert_eq!(call(&mut clone, Request::new(())).await.expect("it answers").status(), 503);
    assert_eq!(called.load(Ordering::SeqCst), 4);
    // Its own errors stay what they are.
    stand.breakers.lift(b"pay").await.expect("Redis answers");
    let request = Request::builder().uri("/broken").body(()).expect("a request");
    let answer: Result<_, &'static str> = call(&mut service, request).await;
    assert_eq!(answer.expect_err("it is broken"), "broken");
}

#[tokio::test]
async fn one_that_is_never_ready_is_not_counted() {
    #[derive(Debug, Clone)]
    struct Gone;
    impl Service<Do> for Gone {
        type Response = Response<Bytes>;
        type Error = io::Error;
        type Future = std::future::Ready<Result<Response<Bytes>, io::Error>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), io::Error>> {
            std::task::Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
        }

        fn call(&mut self, _: Do) -> Self::Future {
            std::future::ready(Err(io::ErrorKind::Other.into()))
        }
    }
    let stand = Stand::start(settings()).await;
    let mut service = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room").layer(Gone);
    let error = service.ready().await.expect_err("it is gone");
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    assert_eq!(kind, Some(io::ErrorKind::NotConnected));
    assert_eq!(stand.counted().await, [0, 0, 0]);
}

#[tokio::test]
async fn a_service_says_that_it_is_broken_in_the_callers_own_words() {
    let stand = Stand::start(short_leases()).await;
    let hangs = tower::service_fn(|_: Request<()>| async {
        std::future::pending::<Result<Response<Bytes>, std::convert::Infallible>>().await
    });
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room").respond(FromBytes);
    let mut service = layer.layer(hangs);
    let grpc = || Request::builder().header("content-type", "application/grpc+proto").body(()).expect("one");
    stand.open("pay").await;
    let Ok(answer) = call(&mut service, Request::new(())).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    let body = std::str::from_utf8(answer.body()).expect("a text");
    let (head, rest) = body.split_once("try again in ").expect("when");
    let (ms, rest) = rest.split_once(' ').expect("a number");
    assert_eq!(
        head,
        "{\"type\":\"urn:tollgate:problem:breaker-open\",\"title\":\"the service is not well\",\"status\":503,\
         \"detail\":\"its breaker refuses this call: "
    );
    assert_eq!(rest, format!("ms\",\"retry_after_ms\":{ms}}}\n"));
    let ms: u64 = ms.parse().expect("a number");
    assert!(ms > 50_000 && ms <= 60_001, "{ms}");
    assert_eq!(answer.headers()["retry-after"], ms.div_ceil(1000).to_string(), "rounded up");
    let Ok(answer) = call(&mut service, grpc()).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["grpc-status"]), (200, &"14".parse().unwrap()));
    let pushback: u64 = answer.headers()["grpc-retry-pushback-ms"].to_str().unwrap().parse().unwrap();
    assert!(pushback > 50_000 && pushback <= 60_001, "{pushback}");
    assert!(answer.body().is_empty());

    let plain = || Request::new(());
    for (request, expected) in [(&plain as &dyn Fn() -> _, (504, None)), (&grpc, (200, Some("4")))] {
        let is_refusal = |answer: &Response<Bytes>| {
            answer.status() == 503 || answer.headers().get("grpc-status").is_some_and(|code| code == "14")
        };
        let is_late = |came: &Result<_, _>| came.as_ref().is_ok_and(is_refusal);
        let probe = || async {
            let Ok(answer) = until_asked(|| service.clone().oneshot(request()), is_late).await;
            let code = answer.headers().get("grpc-status").map(|code| code.to_str().expect("ASCII"));
            assert_eq!((answer.status().as_u16(), code), expected);
            assert!(!answer.headers().contains_key("retry-after"), "{answer:?}");
        };
        stand.probe_until(State::Open, probe).await;
    }
}
