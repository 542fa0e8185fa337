//! Responses whose outcome is told at the end of their body.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use tollgate::core::breaker::State;
use tollgate::middleware::{BreakerLayer, LeaseEnded, Watched};
use tower::{Layer as _, ServiceExt as _};

use crate::broken::{Stand, settings, short_leases, until_asked};

/// A piece of a body.
#[derive(Debug, Clone, Copy)]
enum Piece {
    Data,
    Trailers(&'static str),
    NoStatus,
    Broken,
    /// Nothing more.
    Hang,
    /// More and more.
    Endless,
}

use Piece::{Broken, Data, Endless, Hang, NoStatus, Trailers};

/// A body of such pieces, which says nothing of itself before it is read.
#[derive(Debug)]
struct Pieces(VecDeque<Piece>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(match self.0.pop_front() {
            Some(Data) => Ok(Frame::data(Bytes::from_static(b"data"))),
            Some(Trailers(code)) => {
                trailers.insert("grpc-status", HeaderValue::from_static(code));
                Ok(Frame::trailers(trailers))
            }
            Some(NoStatus) => Ok(Frame::trailers(trailers)),
            Some(Broken) => Err(io::ErrorKind::ConnectionReset.into()),
            // Whoever polls it is woken by others.
            Some(Hang) => return Poll::Pending,
            Some(Endless) => {
                self.0.push_front(Endless);
                Ok(Frame::data(Bytes::from_static(b"more")))
            }
            None => return Poll::Ready(None),
        }))
    }
}

/// The response behind a layer that waits for its end.
async fn watched<R>(stand: &Stand, response: impl Fn() -> Response<R>) -> Response<Watched<R>>
where
    R: Body + Send + 'static,
{
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room").until_end();
    // The request brings its response along.
    let echo = layer.layer(tower::service_fn(|response| async { Ok::<_, Infallible>(response) }));
    until_asked(|| echo.clone().oneshot(response()), Result::is_err).await.expect("it answers")
}

fn of(pieces: &[Piece]) -> Response<Pieces> {
    Response::new(Pieces(pieces.iter().copied().collect()))
}

fn grpc(pieces: &[Piece]) -> Response<Pieces> {
    let mut response = of(pieces);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

#[tokio::test]
async fn a_body_tells_when_it_has_ended_and_not_before() {
    let stand = Stand::start(settings()).await;
    let mut body = watched(&stand, || of(&[Data, Data])).await.into_body();
    for _ in 0..2 {
        assert!(body.frame().await.expect("a frame").expect("data").is_data());
        assert_eq!(stand.counted().await, [0, 0, 0]);
    }
    assert!(body.frame().await.is_none());
    assert_eq!(stand.counted().await, [1, 0, 0]);
    drop(body);
    assert_eq!(stand.counted().await, [1, 0, 0], "once");
}

#[tokio::test]
async fn a_body_tells_how_it_ended() {
    let stand = Stand::start(settings()).await;
    let mut expected = [0, 0, 0];
    for (kind, pieces, which) in [
        (of as fn(_) -> _, &[Data, Data] as &[Piece], Some(0)),
        (of as fn(_) -> _, &[] as &[Piece], Some(0)),
        (of as fn(_) -> _, &[Data, Broken] as &[Piece], Some(1)),
        // gRPC's status is gRPC's.
        (of as fn(_) -> _, &[Data, Trailers("14")] as &[Piece], Some(0)),
        (grpc as fn(_) -> _, &[Data, Trailers("0")] as &[Piece], Some(0)),
        (grpc as fn(_) -> _, &[Data, Trailers("5")] as &[Piece], Some(0)),
        (grpc as fn(_) -> _, &[Data, Trailers("14")] as &[Piece], Some(1)),
        (grpc as fn(_) -> _, &[Data, Trailers("1")] as &[Piece], None),
        (grpc as fn(_) -> _, &[Data, NoStatus] as &[Piece], Some(1)),
        (grpc as fn(_) -> _, &[Data] as &[Piece], Some(1)),
        (grpc as fn(_) -> _, &[Data, Broken] as &[Piece], Some(1)),
    ] {
        if let Some(which) = which {
            expected[usize::from(which == 1)] += 1;
        }
        let _ = watched(&stand, || kind(pieces)).await.into_body().collect().await;
        assert_eq!(stand.counted().await, expected, "{pieces:?}");
    }
}

#[tokio::test]
async fn nobody_waits_for_trailers_unless_asked_to() {
    let stand = Stand::start(settings()).await;
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room");
    let echo = tower::service_fn(|response: Response<Pieces>| async { Ok::<_, Infallible>(response) });
    let response = layer.layer(echo).oneshot(grpc(&[Data, Trailers("14")])).await.expect("it answers");
    assert_eq!(stand.counted().await, [1, 0, 0], "its head was good");
    let _ = response.into_body().collect().await;
    assert_eq!(stand.counted().await, [1, 0, 0]);
}

#[tokio::test]
async fn what_the_head_tells_is_not_waited_for() {
    let stand = Stand::start(settings()).await;
    let failed = || {
        let mut failed = of(&[Hang]);
        *failed.status_mut() = http::StatusCode::BAD_GATEWAY;
        failed
    };
    let failed = watched(&stand, failed).await;
    assert_eq!(stand.counted().await, [0, 1, 0]);
    let refused = || {
        let mut refused = grpc(&[Hang]);
        refused.headers_mut().insert("grpc-status", HeaderValue::from_static("14"));
        refused
    };
    let refused = watched(&stand, refused).await;
    assert_eq!(stand.counted().await, [0, 2, 0]);
    drop((failed, refused));
    assert_eq!(stand.counted().await, [0, 2, 0]);
}

/// As hyper does: what is known to have ended is not read on.
#[tokio::test]
async fn a_body_that_knows_its_end_tells_without_being_read_to_it() {
    let stand = Stand::start(settings()).await;
    let empty = watched(&stand, || Response::new(Full::new(Bytes::new()))).await;
    assert_eq!(stand.counted().await, [1, 0, 0]);
    let mut full = watched(&stand, || Response::new(Full::new(Bytes::from_static(b"data")))).await;
    assert_eq!(stand.counted().await, [1, 0, 0]);
    assert_eq!((full.body().size_hint().exact(), full.body().is_end_stream()), (Some(4), false));
    full.body_mut().frame().await.expect("a frame").expect("data");
    assert!(full.body().is_end_stream());
    assert_eq!(stand.counted().await, [2, 0, 0]);
    drop((empty, full));
}

/// The leases last a minute: what is free before then was given back.
#[tokio::test]
async fn a_probe_lasts_as_long_as_its_body_and_one_that_is_dropped_gives_its_lease_back() {
    let stand = Stand::start(settings()).await;
    stand.half_open().await;
    let mut response = watched(&stand, || of(&[Data, Hang])).await;
    response.body_mut().frame().await.expect("a frame").expect("data");
    assert_eq!(stand.leases().await, 1);
    drop(response);
    stand.until_leases(0).await;
    assert_eq!((stand.state().await.as_str(), stand.counted().await), ("half-open", [0, 0, 0]));
}

#[tokio::test]
async fn a_probe_whose_body_takes_too_long_is_cut_off_and_has_failed() {
    let stand = Stand::start(short_leases()).await;
    for last in [Hang, Endless] {
        let probe = || async {
            let mut body = watched(&stand, || of(&[Data, last])).await.into_body();
            let reading = async {
                loop {
                    match body.frame().await.expect("it is cut off before its end") {
                        Ok(_) => tokio::task::yield_now().await,
                        Err(error) => return error,
                    }
                }
            };
            let error = tokio::time::timeout(Duration::from_secs(30), reading).await.expect("it is cut off");
            assert!(error.downcast_ref::<LeaseEnded>().is_some(), "{error}");
            assert!(body.frame().await.is_none());
        };
        stand.probe_until(State::Open, probe).await;
    }
}
