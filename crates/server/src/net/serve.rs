//! Accepts connections and serves HTTP/1.1 on them, with a bound on everything: connections, headers,
//! idle time and the time it takes to end.
//!
//! A connection that finishes no request between two ticks of its idle clock is closed. That one rule
//! covers the silent, the slow to send a header and the slow to send a body, and costs a request
//! nothing: hyper's own header timeout allocates and resets a timer for each.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::Answer;
use crate::shutdown::LifeView;

/// Headers of one request at most.
const HEADERS_MAX: usize = 64;

/// Bytes buffered per connection at most; a request line and its headers must fit.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// How long to wait after the system refused us a connection (out of file descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    /// Answers one request. Never fails: what is wrong with a request is an answer too.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Answer> + Send;

    /// A connection was turned away because there were too many.
    fn turned_away(&self) {}
}

/// Serves until the life closes and connections have finished, or took too long to.
pub(crate) async fn serve<H: Handler>(
    listener: TcpListener,
    handler: Arc<H>,
    mut life: LifeView,
    bounds: Bounds,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = life.closing() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() < bounds.connections_max => {
                    let connection = Connection { handler: Arc::clone(&handler), finished: AtomicU64::new(0) };
                    connections.spawn(connection.run(stream, life.clone(), bounds.idle_timeout));
                }
                Ok(_) => handler.turned_away(),
                Err(error) => {
                    tracing::debug!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let finish = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(bounds.drain_timeout, finish).await.is_err() {
        tracing::warn!(connections = connections.len(), "connections cut off: they did not finish in time");
    }
}

struct Connection<H> {
    handler: Arc<H>,
    /// Requests answered so far: the idle clock looks at it.
    finished: AtomicU64,
}

impl<H: Handler> Connection<H> {
    async fn run(self, stream: TcpStream, mut life: LifeView, idle_timeout: Duration) {
        // An answer is one small write; waiting for more of it would only delay it.
        let _ = stream.set_nodelay(true);
        let shared = Arc::new(self);
        let service = service_fn(|request| {
            let shared = Arc::clone(&shared);
            async move {
                let answer = shared.handler.answer(request).await;
                shared.finished.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(answer)
            }
        });
        let mut connection = pin!(
            http1::Builder::new()
                .max_headers(HEADERS_MAX)
                .max_buf_size(BUFFER_BYTES_MAX)
                .header_read_timeout(None)
                .half_close(true)
                .serve_connection(TokioIo::new(stream), service)
        );
        let mut idle = tokio::time::interval(idle_timeout);
        let mut finished_before = None;
        let mut closing = pin!(life.closing());
        let mut is_closing = false;
        loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::trace!(%error, "a connection ended early");
                    }
                    return;
                }
                () = closing.as_mut(), if !is_closing => {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                _ = idle.tick() => {
                    let finished = shared.finished.load(Ordering::Relaxed);
                    if finished_before.replace(finished) == Some(finished) {
                        return;
                    }
                }
            }
        }
    }
}
