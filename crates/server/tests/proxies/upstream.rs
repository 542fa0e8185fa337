//! The application behind the proxy: says 200 to everything, and remembers who came.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Collected, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use testkit::unique_prefix;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

/// The header by which its answers are told from anybody else's.
pub(crate) const MARK: &str = "x-application";

/// A server of this test. It ends with the value.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    pub(crate) mark: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    accepting: AbortHandle,
}

/// A request that reached it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Upstream {
    pub(crate) async fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mark, seen) = (unique_prefix(), Arc::new(Mutex::new(Vec::new())));
        let accepting = tokio::spawn(accept(listener, mark.clone(), Arc::clone(&seen))).abort_handle();
        Upstream { address, mark, seen, accepting }
    }

    /// The requests for one path that reached it, in order.
    pub(crate) fn seen(&self, path: &str) -> Vec<Seen> {
        let is_wanted = |seen: &&Seen| seen.target.split('?').next() == Some(path);
        self.seen.lock().unwrap().iter().filter(is_wanted).cloned().collect()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, mark: String, seen: Arc<Mutex<Vec<Seen>>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (mark, seen) = (mark.clone(), Arc::clone(&seen));
        connections.spawn(async move {
            let answer = service_fn(|request| answer(request, &mark, &seen));
            // A proxy may drop a connection whenever it likes.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    mark: &str,
    seen: &Mutex<Vec<Seen>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    // A body that breaks off is seen as an empty one.
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    seen.lock().unwrap().push(Seen {
        method: head.method.to_string(),
        target: head.uri.to_string(),
        headers: head.headers,
        body,
    });
    Ok(Response::builder().header(MARK, mark).body(Full::from("the application")).unwrap())
}
