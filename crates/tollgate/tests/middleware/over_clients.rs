//! The examples with a breaker, on real sockets: hyper's client and reqwest's against one service, tonic's, and axum behind
//! both a breaker and a limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use tokio::net::TcpListener;
use tollgate::Micros;
use tollgate::breaker::Refused;
use tollgate::core::breaker::{Settings, State};
use tollgate::middleware::BoxError;
use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tower::{Service, ServiceExt as _};

use crate::broken::{Stand, settings};
use crate::stand::Connection;
use crate::{example_breaker_hyper, example_breaker_reqwest, example_breaker_tonic, example_guard_axum};

/// Five failures trip it, and it stays open.
fn five() -> Settings {
    Settings { failures: Some(5), ..settings() }
}

/// A service that fails, and how often it was asked.
async fn failing() -> (SocketAddr, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let answer = move || async move {
        count.fetch_add(1, Ordering::SeqCst);
        StatusCode::INTERNAL_SERVER_ERROR
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let app = Router::new().route("/", get(answer));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, asked)
}

/// Asks a failing service until it is asked no more, and then some.
async fn break_it<S, Q>(client: &mut S, request: impl Fn() -> Q, status: impl Fn(&S::Response) -> StatusCode)
where
    S: Service<Q, Error = BoxError>,
{
    for _ in 0..5 {
        let came = client.ready().await.expect("it is ready").call(request()).await;
        let response = came.unwrap_or_else(|error| panic!("an answer, and not: {error}"));
        assert_eq!(status(&response), StatusCode::INTERNAL_SERVER_ERROR);
    }
    for _ in 0..20 {
        let Err(error) = client.ready().await.expect("it is ready").call(request()).await else {
            panic!("it was asked again");
        };
        assert!(error.downcast_ref::<Refused>().is_some(), "{error}");
    }
}

#[tokio::test]
async fn a_hyper_client_leaves_a_host_alone_that_fails() {
    let stand = Stand::start(five()).await;
    let (address, asked) = failing().await;
    stand.is_heard(&address.to_string()).await;
    let mut client = example_breaker_hyper::client(&stand.breakers);
    let get = || Request::get(format!("http://{address}/")).body(Empty::new()).expect("a request");
    break_it(&mut client, get, Response::status).await;
    assert_eq!(asked.load(Ordering::SeqCst), 5);
    stand.is_heard("127.0.0.1:1").await;
    // Nobody listens there: that is a failure, too, and another host's.
    let nowhere = || Request::get("http://127.0.0.1:1/").body(Empty::new()).expect("a request");
    let Err(error) = client.ready().await.expect("it is ready").call(nowhere()).await else { panic!("who?") };
    assert!(error.downcast_ref::<Refused>().is_none(), "{error}");
    assert_eq!(stand.counted_of("127.0.0.1:1").await, [0, 1, 0]);
}

#[tokio::test]
async fn a_reqwest_client_leaves_a_host_alone_that_fails() {
    let stand = Stand::start(five()).await;
    let (address, asked) = failing().await;
    stand.is_heard(&address.to_string()).await;
    let plain = reqwest::Client::new();
    let mut client = example_breaker_reqwest::guarded(&stand.breakers, plain.clone());
    let get = || plain.get(format!("http://{address}/")).build().expect("a request");
    break_it(&mut client, get, reqwest::Response::status).await;
    assert_eq!(asked.load(Ordering::SeqCst), 5);
}

/// gRPC's health service as some servers are: it answers, and then says in the trailers that it failed.
#[derive(Clone)]
struct FailsAtTheEnd(Arc<AtomicU32>);

impl tonic::server::NamedService for FailsAtTheEnd {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl Service<Request<tonic::body::Body>> for FailsAtTheEnd {
    type Response = Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), std::convert::Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<tonic::body::Body>) -> Self::Future {
        self.0.fetch_add(1, Ordering::SeqCst);
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("13"));
        // An empty message: not compressed, of no length.
        let message = Full::new(Bytes::from_static(&[0; 5]));
        let body = tonic::body::Body::new(message.with_trailers(std::future::ready(Some(Ok(trailers)))));
        let response = Response::builder().header("content-type", "application/grpc").body(body);
        std::future::ready(Ok(response.expect("a response")))
    }
}

#[tokio::test]
async fn a_tonic_client_learns_from_trailers_and_then_hears_unavailable() {
    let stand = Stand::start(five()).await;
    stand.is_heard("health").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let asked = Arc::new(AtomicU32::new(0));
    let service = FailsAtTheEnd(Arc::clone(&asked));
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Endpoint::from_shared(endpoint).expect("a URL").connect().await.expect("it listens");
    let mut client = example_breaker_tonic::client(&stand.breakers, channel).expect("there is room");
    for _ in 0..5 {
        let status = client.check(HealthCheckRequest::default()).await.expect_err("it fails");
        assert_eq!(status.code(), Code::Internal, "{status:?}");
    }
    for _ in 0..20 {
        let status = client.check(HealthCheckRequest::default()).await.expect_err("it is not asked");
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        assert!(status.message().starts_with("its breaker refuses this call: try again in "), "{status:?}");
        assert!(status.metadata().contains_key("grpc-retry-pushback-ms"));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn an_axum_service_says_at_once_that_it_is_broken_and_spends_nobodys_limit() {
    let settings =
        Settings { open_for: Micros::from_millis(300), successes_to_close: 1, ramp: vec![], ..five() };
    let stand = Stand::start(settings).await;
    stand.is_heard("orders").await;
    let engine = stand.engine(example_guard_axum::policy().expect("a policy"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let breakers = Arc::clone(&stand.breakers);
    tokio::spawn(async move {
        if let Err(error) = example_guard_axum::serve(listener, &breakers, engine).await {
            panic!("{error}");
        }
    });
    let set = |status: u16| {
        let put = reqwest::Client::new().put(format!("http://{address}/answer/{status}"));
        async { put.send().await.expect("it answers").error_for_status().expect("it is set") }
    };
    let mut connection = Connection::open(address).await;
    assert_eq!(connection.get(&[]).await.status, 200);
    set(500).await;
    let mut left = String::new();
    for _ in 0..5 {
        let failed = connection.get(&[]).await;
        assert_eq!(failed.status, 500);
        left = failed.header("ratelimit").expect("what is left").to_owned();
    }
    assert!(left.starts_with("\"api\";r=94;"), "{left}");
    let broken = connection.get(&[]).await;
    assert_eq!((broken.status, broken.header("retry-after")), (503, Some("1")));
    assert!(broken.body.starts_with("{\"type\":\"urn:tollgate:problem:breaker-open\""), "{}", broken.body);
    assert_eq!(broken.header("ratelimit"), None);
    set(200).await;
    let handle = stand.breakers.handle(b"orders").expect("there is room");
    let mut spent = 6;
    let closing = async {
        while handle.state() != State::Closed {
            spent += u32::from(connection.get(&[]).await.status == 200);
        }
    };
    tokio::time::timeout(Duration::from_secs(30), closing).await.expect("it closes");
    let well = connection.get(&[]).await;
    let left = format!("\"api\";r={};", 100 - spent - 1);
    assert!(well.header("ratelimit").is_some_and(|said| said.starts_with(&left)), "{well:?} {left}");
}
