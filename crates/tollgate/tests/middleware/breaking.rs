//! The breaker's layer around services that do as they are told; what comes of it is read in Redis.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tollgate::Micros;
use tollgate::breaker::Refused;
use tollgate::clock::Clock;
use tollgate::core::breaker::{Permille, Settings, State};
use tollgate::middleware::{
    BoxError, BreakerLayer, ByResult, ByStatus, Counted, Ending, FromBytes, Ignoring,
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
