//! Responses whose outcome is told at the end of their body.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use tollgate::core::breaker::State;
use tollgate::middleware::{BreakerLayer, LeaseEnded, Watched};
use tower::{Layer as _, ServiceExt as _};

use crate::broken::{Stand, settings, short_leases};

/// A piece of a body.
#[derive(Debug, Clone, Copy)]
enum Piece {
    Data,
    Trailers(&'static str),
    NoStatus,
    Broken,
    Hang,
}

use Piece::{Broken, Data, Hang, NoStatus, Trailers};

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
            None => return Poll::Ready(None),
        }))
    }
}

/// The response behind a layer that waits for its end.
async fn watched<R>(stand: &Stand, response: Response<R>) -> Response<Watched<R>>
where
    R: Body + Send + 'static,
{
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room").until_end();
    // The request brings its response along.
    let echo = tower::service_fn(|response: Response<R>| async { Ok::<_, Infallible>(response) });
    layer.layer(echo).oneshot(response).await.expect("it answers")
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
    let mut body = watched(&stand, of(&[Data, Data])).await.into_body();
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
    for (response, which) in [
        (of(&[Data, Data]), Some(0)),
        (of(&[]), Some(0)),
        (of(&[Data, Broken]), Some(1)),
        // gRPC's status is gRPC's.
        (of(&[Data, Trailers("14")]), Some(0)),
        (grpc(&[Data, Trailers("0")]), Some(0)),
        (grpc(&[Data, Trailers("5")]), Some(0)),
        (grpc(&[Data, Trailers("14")]), Some(1)),
        (grpc(&[Data, Trailers("1")]), None),
        (grpc(&[Data, NoStatus]), Some(1)),
        (grpc(&[Data]), Some(1)),
        (grpc(&[Data, Broken]), Some(1)),
    ] {
        if let Some(which) = which {
            expected[usize::from(which == 1)] += 1;
        }
        let shown = format!("{response:?}");
        let _ = watched(&stand, response).await.into_body().collect().await;
        assert_eq!(stand.counted().await, expected, "{shown}");
    }
}

#[tokio::test]
async fn what_the_head_tells_is_not_waited_for() {
    let stand = Stand::start(settings()).await;
    let mut failed = of(&[Hang]);
    *failed.status_mut() = http::StatusCode::BAD_GATEWAY;
    let failed = watched(&stand, failed).await;
    assert_eq!(stand.counted().await, [0, 1, 0]);
    let mut refused = grpc(&[Hang]);
    refused.headers_mut().insert("grpc-status", HeaderValue::from_static("14"));
    let refused = watched(&stand, refused).await;
    assert_eq!(stand.counted().await, [0, 2, 0]);
    drop((failed, refused));
    assert_eq!(stand.counted().await, [0, 2, 0]);
}

/// As hyper does: what is known to have ended is not read on.
#[tokio::test]
async fn a_body_that_knows_its_end_tells_without_being_read_to_it() {
    let stand = Stand::start(settings()).await;
    let empty = watched(&stand, Response::new(Full::new(Bytes::new()))).await;
    assert_eq!(stand.counted().await, [1, 0, 0]);
    let mut full = watched(&stand, Response::new(Full::new(Bytes::from_static(b"data")))).await;
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
    let mut response = watched(&stand, of(&[Data, Hang])).await;
    response.body_mut().frame().await.expect("a frame").expect("data");
    assert_eq!(stand.leases().await, 1);
    drop(response);
    stand.until_leases(0).await;
    assert_eq!((stand.state().await.as_str(), stand.counted().await), ("half-open", [0, 0, 0]));
}

#[tokio::test]
async fn a_probe_whose_body_takes_too_long_is_cut_off_and_has_failed() {
    for pieces in [vec![Data, Hang], vec![Data; 1 << 20]] {
        let stand = Stand::start(short_leases()).await;
        stand.half_open().await;
        let mut body = watched(&stand, of(&pieces)).await.into_body();
        let error = loop {
            match body.frame().await.expect("it is cut off before its end") {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => break error,
            }
        };
        assert!(error.downcast_ref::<LeaseEnded>().is_some(), "{error}");
        assert!(body.frame().await.is_none());
        stand.until_state(State::Open).await;
    }
}
