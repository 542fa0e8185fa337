//! The HTTP door: one JSON question, one JSON answer.
//!
//! Spoken with hyper itself and no framework: a few routes need no router, and what lies between a
//! socket and a check is the greater part of what a check costs.

mod attributes;
mod breakers;
mod decode;
mod encode;
mod forward;
mod json;
mod openapi;
mod raw;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, ORIGIN};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tollgate::core::few::Few;
use tollgate::core::verdict::RefundAnswer;
use tollgate::{Ask, Policy, Want};

use crate::breakers::Service as Breakers;
use crate::engine::Engine;
use crate::facing::Facing;
use crate::net::Answer;
use crate::net::body;
use crate::net::gate::{Barred, Gate};
use crate::net::peer::Peer;
use crate::net::problem::Problem;
use crate::net::serve::Handler;
use crate::rls::Service;
use crate::shutdown::LifeView;
use crate::telemetry::http::{HttpMetrics, Route};
use decode::{Decoded, DecodedAsk, Purpose, Reading, Wanted};
use encode::Spends;
use tollgate::engine::together;

const ROUTES: &str = "this door answers POST /v1/check, /v1/peek and /v1/refund, /v1/breakers, /v1/forward-auth, /json, /healthcheck and /openapi.json; \
                      health and metrics are on the admin port";

/// The door, as one worker has it.
#[derive(Debug)]
pub(crate) struct HttpDoor {
    pub(crate) engine: Engine,
    pub(crate) breakers: Arc<Breakers>,
    /// In front of what can undo a limit or a breaker: refunds, limits the caller brings along, overrides.
    pub(crate) gate: Gate,
    pub(crate) log_max: u32,
    /// How long a body may take.
    pub(crate) patience: Duration,
    pub(crate) metrics: Arc<HttpMetrics>,
    /// For Envoy's question in JSON.
    pub(crate) service: Service,
    pub(crate) life: LifeView,
}

impl HttpDoor {
    /// hot path: one store round trip; hyper's allocations and one for the header map.
    async fn routed(&self, route: Route, request: Request<Incoming>, peer: &Peer) -> Result<Answer, Problem> {
        if route == Route::Other {
            return Err(Problem::not_found(ROUTES));
        }
        if route == Route::ForwardAuth {
            // Proxies ask with a GET, or with the client's own method.
            const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
            if !METHODS.split(", ").any(|method| request.method() == method) {
                return Err(Problem::method(METHODS));
            }
            let (head, _) = request.into_parts();
            return forward::answer(self, &head, peer).await;
        }
        if matches!(route, Route::BreakerAcquire | Route::BreakerReport | Route::Breakers) {
            return breakers::answer(self, request, peer).await;
        }
        if route == Route::Json {
            return json::answer(self, request, peer).await;
        }
        if route == Route::HealthCheck {
            return Ok(json::health(self));
        }
        if route == Route::OpenApi {
            return match *request.method() {
                Method::GET | Method::HEAD => {
                    Ok(as_json(Bytes::from(openapi::document(&self.engine.policy()))))
                }
                _ => Err(Problem::method("GET")),
            };
        }
        if request.method() != Method::POST {
            return Err(Problem::method("POST"));
        }
        let (head, body) = request.into_parts();
        check_origin(&head.headers)?;
        check_kind(&head.headers)?;
        let body = body::read(body, self.patience).await.map_err(|error| error.problem())?;
        let purpose = if route == Route::Refund { Purpose::Refund } else { Purpose::Ask };
        // One snapshot to read with and to decide under: a reload in between cannot mix the two.
        let policy = self.engine.policy();
        let identity = &Facing::of(&policy).ok_or_else(Problem::unfinished)?.identity;
        let decoded = decode::body(&body, Reading { purpose, log_max: self.log_max, identity })?;
        self.check_gate(route, &decoded, &head.headers, peer)?;
        match &decoded {
            Decoded::Ask(ask) => self.ask(route, &policy, ask).await.map(as_json),
            Decoded::Batch(asks) => {
                check_all(&policy, asks)?;
                let answers = together(asks.iter().map(|ask| self.ask(route, &policy, ask))).await;
                Ok(as_json(encode::batch(&answers)))
            }
        }
    }

    /// One ask and its answer.
    async fn ask(&self, route: Route, policy: &Arc<Policy>, ask: &DecodedAsk<'_>) -> Result<Bytes, Problem> {
        let DecodedAsk { wanted, shape } = ask;
        let wants: Few<Want<'_>> = wanted.iter().map(Wanted::want).collect();
        let ask = Ask { wants: &wants };
        match route {
            Route::Check => {
                let verdict = self.engine.decide_under(Arc::clone(policy), &ask).await;
                encode::verdict(&verdict, &wants, Spends::Named, *shape)
            }
            Route::Peek => {
                let verdict = self.engine.peek_under(Arc::clone(policy), &ask).await;
                encode::verdict(&verdict, &wants, Spends::None, *shape)
            }
            _ => match self.engine.refund(&ask).await {
                RefundAnswer::Done(refunds) => Ok(encode::refunded(&wants, &refunds)),
                RefundAnswer::NotDone { why } => Err(encode::not_refunded(&why)),
                RefundAnswer::Invalid(problem) => Err(encode::invalid(&problem, *shape)),
            },
        }
    }

    fn check_gate(
        &self,
        route: Route,
        decoded: &Decoded<'_>,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<(), Problem> {
        let what = if route == Route::Refund {
            "a refund"
        } else if decoded.asks().iter().flat_map(|ask| ask.wanted.iter()).any(Wanted::is_inline) {
            "an inline limit"
        } else {
            return Ok(());
        };
        self.pass(what, headers, peer)
    }

    /// Lets through who may do what can undo a limit.
    fn pass(&self, what: &str, headers: &HeaderMap, peer: &Peer) -> Result<(), Problem> {
        self.gate.pass(headers, peer).map_err(|barred| match barred {
            Barred::NoToken => Problem::no_token(what),
            Barred::Shut => {
                let title = "this can undo a limit or a breaker and is shut on this address";
                let detail = format!(
                    "{what} is answered off this machine only with a token (start with --token) or a client certificate"
                );
                Problem::new(StatusCode::FORBIDDEN, "shut", title, detail)
            }
        })
    }
}

impl Handler for HttpDoor {
    type Body = Full<Bytes>;

    async fn answer(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> Answer {
        let route = match request.uri().path() {
            "/v1/check" => Route::Check,
            "/v1/peek" => Route::Peek,
            "/v1/refund" => Route::Refund,
            "/v1/forward-auth" => Route::ForwardAuth,
            "/openapi.json" => Route::OpenApi,
            // Where envoyproxy/ratelimit has them.
            "/json" => Route::Json,
            "/healthcheck" => Route::HealthCheck,
            "/v1/breakers/acquire" => Route::BreakerAcquire,
            "/v1/breakers/report" => Route::BreakerReport,
            "/v1/breakers" => Route::Breakers,
            path if path.starts_with("/v1/breakers/") => Route::Breakers,
            _ => Route::Other,
        };
        let answer = match self.routed(route, request, &peer).await {
            Ok(answer) => answer,
            Err(problem) => problem.answer(),
        };
        self.metrics.answered(route, answer.status());
        answer
    }

    fn refuse(&self, problem: &Problem) -> Answer {
        problem.answer()
    }

    fn turned_away(&self) {
        self.metrics.turned_away();
    }
}

/// Refuses what is certainly not a question to us.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    // A page in a browser can post to loopback without anybody's consent, and then says where it is
    // from; the programs we are for do not.
    if headers.contains_key(ORIGIN) {
        let title = "browsers may not ask";
        let detail = "a request with an Origin header comes from a web page; ask from a server";
        return Err(Problem::new(StatusCode::FORBIDDEN, "origin", title, detail));
    }
    Ok(())
}

/// Refuses what says of itself that it is no JSON.
fn check_kind(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(kind) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.as_bytes();
    let kind = kind.split(|&byte| byte == b';').next().unwrap_or(kind).trim_ascii();
    // `curl -d` says that it posts a form, whatever it posts.
    let is_ours = kind.eq_ignore_ascii_case(b"application/json")
        || kind.eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
        || kind.to_ascii_lowercase().ends_with(b"+json");
    if is_ours {
        return Ok(());
    }
    let title = "the body must be JSON; nothing was spent";
    let detail = "send content-type: application/json";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media-type", title, detail))
}

/// Refuses a batch of which one ask cannot be understood, before any of it is spent.
fn check_all(policy: &Policy, asks: &[DecodedAsk<'_>]) -> Result<(), Problem> {
    for DecodedAsk { wanted, shape } in asks {
        let wants: Few<Want<'_>> = wanted.iter().map(Wanted::want).collect();
        policy.matched(&Ask { wants: &wants }).map_err(|problem| encode::invalid(&problem, *shape))?;
    }
    Ok(())
}

fn as_json(body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
