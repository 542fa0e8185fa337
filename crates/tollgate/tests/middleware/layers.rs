//! The layer around services that mind how they are called.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tollgate::answer::{Fields, Older, Style};
use tollgate::core::address::Cidr;
use tollgate::core::attributes::Attribute;
use tollgate::core::policy::{Condition, List, When};
use tollgate::identity::{Identity, Peer};
use tollgate::middleware::LimitLayer;
use tollgate::{Algorithm, Cost, Engine, KeyTemplate, Kind, MemoryStore, Policy, Rate, Rule};
use tower::{Layer, Service, ServiceExt as _};

use crate::stand;

fn engine(rate: &str) -> Engine<MemoryStore> {
    stand::engine(stand::api(rate, None, "{token|address}")).0
}

/// Panics when it is called without having been asked whether it is ready, and counts its calls.
#[derive(Debug, Default)]
pub(crate) struct Strict {
    is_ready: bool,
    pub(crate) called: Arc<AtomicU32>,
}

impl Clone for Strict {
    fn clone(&self) -> Strict {
        Strict { is_ready: false, called: Arc::clone(&self.called) }
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<Bytes>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Response<Bytes>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without having been ready");
        self.called.fetch_add(1, Ordering::SeqCst);
        std::future::ready(match request.uri().path() {
            "/broken" => Err("broken"),
            _ => Ok(Response::new(Bytes::from_static(b"hello"))),
        })
    }
}

async fn ask<T>(service: &mut T, request: Request<()>) -> Response<Bytes>
where
    T: Service<Request<()>, Response = Response<Bytes>>,
    T::Error: std::fmt::Debug,
{
    service.ready().await.expect("ready").call(request).await.expect("a response")
}

fn left(response: &Response<Bytes>) -> &str {
    response.headers()["ratelimit"].to_str().expect("ASCII")
}

#[tokio::test]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let strict = Strict::default();
    let called = Arc::clone(&strict.called);
    let mut service = LimitLayer::new(engine("3/h")).layer(strict);
    for expected in [200, 200, 200, 429, 429] {
        assert_eq!(ask(&mut service, Request::new(())).await.status(), expected);
    }
    // Refused calls do not reach it.
    assert_eq!(called.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn an_error_of_the_service_is_its_own() {
    let mut service = LimitLayer::new(engine("3/h")).layer(Strict::default());
    let request = Request::builder().uri("/broken").body(()).unwrap();
    let answer: Result<_, &'static str> = service.ready().await.unwrap().call(request).await;
    assert_eq!(answer.unwrap_err(), "broken");
}

#[tokio::test]
async fn clones_share_one_limit() {
    let layer = LimitLayer::new(engine("2/h"));
    let mut first = layer.layer(Strict::default());
    let mut second = first.clone();
    let mut third = layer.clone().layer(Strict::default());
    assert_eq!(ask(&mut first, Request::new(())).await.status(), 200);
    assert_eq!(ask(&mut second, Request::new(())).await.status(), 200);
    assert_eq!(ask(&mut third, Request::new(())).await.status(), 429);
}

#[tokio::test]
async fn a_peer_is_found_in_what_the_server_left() {
    let mut service = LimitLayer::new(engine("9/h")).layer(Strict::default());
    let ours = |text: &str| {
        let mut request = Request::new(());
        request.extensions_mut().insert(Peer::Address(text.parse().unwrap()));
        request
    };
    let a = ours("203.0.113.9");
    let mut a_again = Request::new(());
    a_again.extensions_mut().insert("203.0.113.9:4711".parse::<SocketAddr>().unwrap());
    let b = ours("203.0.113.8");
    // One v6 client has a whole /64.
    let six = ours("2001:db8::1");
    let six_again = ours("2001:db8::ffff:2");
    for (request, expected) in [(a, 8), (a_again, 7), (b, 8), (six, 8), (six_again, 7)] {
        let response = ask(&mut service, request).await;
        assert!(left(&response).starts_with(&format!("\"api\";r={expected};")), "{}", left(&response));
    }
}

#[tokio::test]
async fn callers_of_whom_nothing_is_known_are_counted_together() {
    let identity = Identity::builder().trust_unix().build();
    let layer = LimitLayer::new(engine("9/h")).identity(identity);
    let mut service = layer.layer(Strict::default());
    for (says, expected) in [("203.0.113.7", 8), ("203.0.113.8", 7), ("203.0.113.9", 6)] {
        let request = Request::builder().header("x-forwarded-for", says).body(()).unwrap();
        let response = ask(&mut service, request).await;
        assert!(left(&response).starts_with(&format!("\"api\";r={expected};")), "{}", left(&response));
    }
}

#[tokio::test]
async fn a_trusted_proxy_speaks_for_its_clients() {
    let identity = Identity::builder().trust(Cidr::parse("10.0.0.0/8").unwrap()).build();
    let layer = LimitLayer::new(engine("9/h")).identity(identity);
    let mut service =
        layer.peer(|_| Some(Peer::Address("10.0.0.1".parse().unwrap()))).layer(Strict::default());
    for (client, expected) in [("203.0.113.9", 8), ("203.0.113.9", 7), ("203.0.113.8", 8)] {
        let request = Request::builder().header("x-forwarded-for", client).body(()).unwrap();
        let response = ask(&mut service, request).await;
        assert!(left(&response).starts_with(&format!("\"api\";r={expected};")), "{client}");
    }
}

#[tokio::test]
async fn cost_and_style_are_by_choice() {
    let style = Style::default().fields(Fields::None).older(Older::Seconds);
    let layer = LimitLayer::new(engine("9/h")).style(style).cost(Cost::new(4).unwrap());
    let mut service = layer.layer(Strict::default());
    for (expected, remaining) in [(200, "5"), (200, "1"), (429, "1")] {
        let response = ask(&mut service, Request::new(())).await;
        assert_eq!(response.status(), expected);
        assert_eq!(response.headers()["x-ratelimit-remaining"], remaining);
        assert!(!response.headers().contains_key("ratelimit"));
    }
}

#[tokio::test]
async fn rules_that_do_not_apply_let_pass_and_say_nothing() {
    let limit = Algorithm::try_new(Kind::TokenBucket, Rate::parse("1/h").unwrap(), None, 1000).unwrap();
    let when = When::new(vec![Condition::new(Attribute::Path, ["/login"]).unwrap()], vec![]);
    let key = KeyTemplate::parse("{address}").unwrap();
    let login = Rule::builder("login").when(when).key(key).limits(vec![limit]).build().unwrap();
    let engine = stand::engine(Policy::try_new(1, vec![login]).unwrap()).0;
    let mut service = LimitLayer::new(engine).layer(Strict::default());
    for (path, expected) in
        [("/", 200), ("/", 200), ("/login", 200), ("/login", 429), ("//%6Cogin", 429), ("/", 200)]
    {
        let response = ask(&mut service, Request::builder().uri(path).body(()).unwrap()).await;
        assert_eq!(response.status(), expected, "{path}");
        assert_eq!(response.headers().contains_key("ratelimit"), path != "/", "{path}");
    }
}

#[tokio::test]
async fn those_on_a_deny_list_are_refused_in_their_own_protocol() {
    let deny =
        List { conditions: vec![Condition::new(Attribute::Address, ["0.0.0.0"]).unwrap()], keys: vec![] };
    let engine = stand::engine(Policy::builder(1).deny(deny).build().unwrap()).0;
    let mut service = LimitLayer::new(engine).layer(Strict::default());
    let response = ask(&mut service, Request::new(())).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert!(!response.headers().contains_key("retry-after"), "{response:?}");
    let request = Request::builder().header("content-type", "application/grpc").body(()).unwrap();
    let response = ask(&mut service, request).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["grpc-status"], "7");
    assert_eq!(response.headers()["grpc-retry-pushback-ms"], "-1");
}

/// A body that can neither be made from bytes nor be empty by itself.
#[derive(Debug, PartialEq)]
struct Odd(Option<Bytes>);

#[tokio::test]
async fn refusals_take_any_body() {
    let odd = tower::service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Odd(None))) });
    let layer = LimitLayer::new(engine("1/h"));
    let mut service =
        layer.respond(|refusal: Response<Bytes>| refusal.map(|body| Odd(Some(body)))).layer(odd);
    let passed = service.ready().await.unwrap().call(Request::new(())).await.unwrap();
    assert_eq!(passed.body(), &Odd(None));
    let refused = service.ready().await.unwrap().call(Request::new(())).await.unwrap();
    assert!(refused.body().0.as_ref().is_some_and(|body| body.starts_with(b"{\"type\":")), "{refused:?}");

    let text =
        tower::service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let mut service = LimitLayer::new(engine("1/h")).bodiless().layer(text);
    assert_eq!(service.ready().await.unwrap().call(Request::new(())).await.unwrap().status(), 200);
    let refused = service.ready().await.unwrap().call(Request::new(())).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!refused.headers().contains_key("content-type"), "{refused:?}");
}
