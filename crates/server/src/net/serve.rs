//! Accepts connections and serves HTTP/1.1 or HTTP/2 on them, with a bound on everything: connections,
//! streams, headers, idle time and the time it takes to end.
//!
//! A connection that finishes no request between two ticks of its idle clock is closed. That one rule
//! covers the silent, the slow to send a header and the slow to send a body, and costs a request
//! nothing: hyper's own header timeout allocates and resets a timer for each. On HTTP/2 a slow body can
//! hide behind other streams; whoever reads bodies gives each its own time.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::time::{Interval, timeout};

use super::accept::accept;
use super::bind::Listener;
use super::open::{Opened, Opening, Version};
use super::peer::Peer;
use super::problem::Problem;
use super::stream::{Socket, Stream};
use crate::shutdown::LifeView;

/// Headers of one request at most.
const HEADERS_MAX: usize = 64;

/// Bytes buffered per connection at most; a request line and its headers must fit.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// The same for the headers of one HTTP/2 request, counted as HTTP/2 counts: 32 more for each.
const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;

/// Requests under way on one HTTP/2 connection at most.
const STREAMS_MAX: u32 = 256;

/// The longest HTTP/2 frame we take: the least that must be taken.
const FRAME_BYTES_MAX: u32 = 16 * 1024;

/// What one stream, and one connection, may send ahead of our reading it.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// Streams that a client opened and reset, and that we reset for its mistakes, before it is cut off.
const RESETS_MAX: usize = 64;

/// How often an HTTP/2 connection is asked whether somebody is there, and how long that may take.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection that is closed for idling has to take its leave.
const GOODBYE: Duration = Duration::from_millis(500);

/// How patient a listener is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Connections at one time.
    pub(crate) connections_max: usize,
    /// How long a connection may go without a finished request.
    pub(crate) idle_timeout: Duration,
    /// How long connections may take to finish once the server closes.
    pub(crate) drain_timeout: Duration,
}

/// Turns requests into answers.
pub(crate) trait Handler: Send + Sync + 'static {
    /// What an answer carries.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Whether answers over HTTP/2 say when they were given, and whether peers are asked if they are there. Both
    /// cost every request a look at the clock.
    const HAS_DATE: bool = true;
    const HAS_PINGS: bool = true;

    /// Answers one request of that peer. Never fails: what is wrong with a request is an answer too.
    ///
    /// No `async fn` of ours: a future keeps room for what it was called with even after that was moved on, and
    /// each of them is copied a few times before it runs. Who takes the request apart first has a smaller one.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static;

    /// Answers a request that was not looked at, because this is wrong with it.
    fn refuse(&self, problem: &Problem) -> Response<Self::Body>;

    /// A connection was turned away because there were too many.
    fn turned_away(&self) {}
}

/// Serves until the life closes and connections have finished, or took too long to.
pub(crate) async fn serve<H: Handler>(
    listener: Listener,
    opening: Opening,
    handler: Arc<H>,
    life: LifeView,
    bounds: Bounds,
) {
    let opening = Arc::new(opening);
    let turned_away = |_| handler.turned_away();
    let each = |socket, peer, life| {
        connection(socket, peer, Arc::clone(&opening), Arc::clone(&handler), life, bounds)
    };
    accept(listener, life, bounds, turned_away, each).await;
}

/// One connection, from its first byte to its last.
async fn connection<H: Handler>(
    socket: Socket,
    peer: Peer,
    opening: Arc<Opening>,
    handler: Arc<H>,
    mut life: LifeView,
    bounds: Bounds,
) {
    let idle = tokio::time::interval(bounds.idle_timeout);
    let opened = tokio::select! {
        biased;
        opened = timeout(bounds.idle_timeout, opening.open(socket, peer)) => opened,
        // Who has not sent a request yet has none under way.
        () = life.closing() => return,
    };
    match opened {
        Ok(Ok(Opened { stream, peer, version })) => {
            tracing::trace!(?peer, ?version, "a connection is open");
            let served = Arc::new(Served { handler, peer, finished: AtomicU64::new(0) });
            // Boxed: a connection speaks one of the two, and should not make room for the other.
            match version {
                Version::Http1 => Box::pin(served.http1(stream, life, idle)).await,
                Version::Http2 => Box::pin(served.http2(stream, life, idle)).await,
            }
        }
        Ok(Err(error)) => tracing::debug!(%error, ?peer, "a connection did not open"),
        Err(_) => tracing::trace!(?peer, "a connection said nothing"),
    }
}

/// A connection that is ready for requests.
struct Served<H> {
    handler: Arc<H>,
    peer: Peer,
    /// Requests answered so far: the idle clock looks at it.
    finished: AtomicU64,
}

impl<H: Handler> Served<H> {
    async fn http1(self: Arc<Self>, stream: Stream, life: LifeView, idle: Interval) {
        let service = service_fn(|request| self.answer(request));
        let connection = http1::Builder::new()
            .max_headers(HEADERS_MAX)
            .max_buf_size(BUFFER_BYTES_MAX)
            .header_read_timeout(None)
            .half_close(true)
            // An answer is a few hundred bytes: copying its body behind its header costs less than two
            // pieces cost the kernel.
            .writev(false)
            .serve_connection(TokioIo::new(stream), service);
        self.drive(pin!(connection), life, idle).await;
    }

    async fn http2(self: Arc<Self>, stream: Stream, life: LifeView, idle: Interval) {
        let service = service_fn(|request: Request<Incoming>| {
            // HTTP/1.1's reader counts them itself.
            let answering = if request.headers().len() > HEADERS_MAX {
                Err(self.handler.refuse(&too_many_headers()))
            } else {
                Ok(self.answer(request))
            };
            async move {
                match answering {
                    Ok(answering) => answering.await,
                    Err(refused) => Ok(refused),
                }
            }
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .auto_date_header(H::HAS_DATE)
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEADER_LIST_BYTES_MAX)
            .max_frame_size(FRAME_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_pending_accept_reset_streams(RESETS_MAX)
            .max_local_error_reset_streams(RESETS_MAX)
            .keep_alive_interval(H::HAS_PINGS.then_some(PING_EVERY))
            .keep_alive_timeout(PING_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        self.drive(pin!(connection), life, idle).await;
    }

    fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<H::Body>, Infallible>> + Send + 'static + use<H> {
        let served = Arc::clone(self);
        let answering = Arc::clone(&self.handler).answer(request, self.peer);
        async move {
            let answer = answering.await;
            served.finished.fetch_add(1, Ordering::Relaxed);
            Ok(answer)
        }
    }

    /// Runs a connection to its end, its life's end, or until it idles.
    async fn drive<C>(&self, mut connection: Pin<&mut C>, mut life: LifeView, mut idle: Interval)
    where
        C: GracefulConnection<Error = hyper::Error>,
    {
        let mut finished_before = None;
        let mut closing = pin!(life.closing());
        let mut is_closing = false;
        loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => return ended_early(ended),
                () = closing.as_mut(), if !is_closing => {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                _ = idle.tick() => {
                    let finished = self.finished.load(Ordering::Relaxed);
                    if finished_before.replace(finished) == Some(finished) {
                        break;
                    }
                }
            }
        }
        // An HTTP/2 client is told which of its requests were not begun, so that it can ask elsewhere.
        connection.as_mut().graceful_shutdown();
        if let Ok(ended) = timeout(GOODBYE, connection).await {
            ended_early(ended);
        }
    }
}

fn ended_early(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::trace!(%error, "a connection ended early");
    }
}

fn too_many_headers() -> Problem {
    let title = "too many headers; nothing was spent";
    let detail = format!("a request has at most {HEADERS_MAX} headers");
    Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers", title, detail)
}
