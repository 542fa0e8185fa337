//! The admin door: how the server is doing, and what can be changed while it runs.
//!
//! A listener of its own on the background runtime, so that a scrape never stands in line with checks.
//! `/live` and `/ready` need no token, because probes have none and learn nothing; the rest does, or a
//! client's certificate, off loopback.

mod keys;
mod overrides;
mod query;
mod reload;
mod show;

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, ORIGIN};
use hyper::{Method, Request, Response, StatusCode};
use sha2::{Digest as _, Sha256};

use crate::engine::Engine;
use crate::facing::Facing;
use crate::net::Answer;
use crate::net::gate::Gate;
use crate::net::peer::Peer;
use crate::net::problem::Problem;
use crate::net::serve::Handler;
use crate::overrides::Overrides;
use crate::reload::Reloader;
use crate::shutdown::{LifeView, Phase};
use crate::telemetry::Telemetry;

const ROUTES: &str = "this door answers /health, /live, /ready, /metrics, /v1/policy, /v1/keys, /v1/overrides, /v1/reload and /rlconfig";

/// The longest body: an override with the longest of everything does not come near it.
const BODY_BYTES_MAX: usize = 32 * 1024;

/// The admin door.
#[derive(Debug)]
pub(crate) struct Admin {
    pub(crate) engine: Engine,
    pub(crate) telemetry: Telemetry,
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) overrides: Arc<Overrides>,
    /// The longest `sliding_log`.
    pub(crate) log_max: u32,
    pub(crate) life: LifeView,
    pub(crate) gate: Gate,
    /// What is said about the server that does not change while it runs.
    pub(crate) about: About,
}

/// What does not change while the server runs.
#[derive(Debug, Clone)]
pub(crate) struct About {
    /// The store in words, without credentials.
    pub(crate) store: String,
    /// The file with the rules, in words.
    pub(crate) file: Option<String>,
    /// Since when.
    pub(crate) started: std::time::Instant,
    /// What answers for rules that name no `on_outage`.
    pub(crate) on_outage: tollgate::OnOutage,
    /// Whether it was asked for that time is reckoned here, and not in the store.
    pub(crate) client_time: bool,
}

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Live,
    Ready,
    Health,
    Metrics,
    Policy,
    Keys,
    Overrides,
    Reload,
    RlConfig,
}

impl Route {
    fn of(path: &str) -> Option<Route> {
        Some(match path {
            "/live" => Route::Live,
            "/ready" => Route::Ready,
            "/health" => Route::Health,
            "/metrics" => Route::Metrics,
            "/v1/policy" | "/policy" => Route::Policy,
            "/v1/keys" => Route::Keys,
            "/v1/overrides" => Route::Overrides,
            "/v1/reload" => Route::Reload,
            // Where envoyproxy/ratelimit has it.
            "/rlconfig" => Route::RlConfig,
            _ => return None,
        })
    }

    const fn methods(self) -> &'static str {
        match self {
            Route::Live | Route::Ready | Route::Health | Route::Metrics | Route::Policy | Route::RlConfig => {
                "GET, HEAD"
            }
            Route::Keys => "GET, HEAD, DELETE",
            Route::Overrides => "GET, HEAD, PUT, DELETE",
            Route::Reload => "POST",
        }
    }
}

impl Admin {
    async fn routed(&self, request: Request<Incoming>, peer: &Peer) -> Result<Answer, Problem> {
        let route = Route::of(request.uri().path()).ok_or_else(|| Problem::not_found(ROUTES))?;
        if !route.methods().split(", ").any(|method| method == request.method().as_str()) {
            return Err(Problem::method(route.methods()));
        }
        if !matches!(route, Route::Live | Route::Ready) {
            self.gate.pass(request.headers(), peer).map_err(|_| Problem::no_token("this path"))?;
        }
        check_origin(&request)?;
        Ok(match route {
            Route::Live => text(StatusCode::OK, "text/plain; charset=utf-8", "live\n"),
            Route::Ready => match self.life.phase() {
                Phase::Serving => text(StatusCode::OK, "text/plain; charset=utf-8", "ready\n"),
                Phase::Starting => return Err(not_ready("starting: not every door is open yet")),
                Phase::Draining | Phase::Closing => return Err(not_ready("draining: send no more here")),
            },
            Route::Health => json(&show::health(self)),
            Route::Policy => json(&show::policy(self)),
            Route::Metrics => self.metrics()?,
            Route::RlConfig => text(StatusCode::OK, "text/plain; charset=utf-8", show::envoys_limits(self)),
            Route::Reload => reload::now(self).await,
            Route::Keys | Route::Overrides => self.of_keys(route, request).await?,
        })
    }

    async fn of_keys(&self, route: Route, request: Request<Incoming>) -> Result<Answer, Problem> {
        let target = || query::target(request.uri().query());
        match (route, request.method()) {
            (Route::Keys, &Method::DELETE) => keys::reset(self, &target()?).await,
            (Route::Keys, _) => keys::look_up(self, &target()?).await,
            (_, &Method::PUT) => overrides::put(self, &body(request).await?).await,
            (_, &Method::DELETE) => overrides::remove(self, &target()?).await,
            _ => Ok(overrides::list(self)),
        }
    }

    fn has_envoys_metrics(&self) -> bool {
        Facing::of(&self.engine.policy()).is_some_and(|facing| facing.rls.has_metrics)
    }

    fn metrics(&self) -> Result<Answer, Problem> {
        let text_of = self.telemetry.text(self.has_envoys_metrics()).map_err(|error| {
            let title = "metrics could not be written";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "metrics", title, error.to_string())
        })?;
        Ok(text(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text_of))
    }
}

impl Handler for Admin {
    type Body = Full<Bytes>;

    async fn answer(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> Answer {
        self.routed(request, &peer).await.unwrap_or_else(|problem| problem.answer())
    }

    fn refuse(&self, problem: &Problem) -> Answer {
        problem.answer()
    }
}

/// A page in a browser can post to loopback without anybody's consent, and then says where it is from.
fn check_origin(request: &Request<Incoming>) -> Result<(), Problem> {
    let only_looks = matches!(*request.method(), Method::GET | Method::HEAD);
    if only_looks || !request.headers().contains_key(ORIGIN) {
        return Ok(());
    }
    let title = "browsers may not change anything";
    let detail = "a request with an Origin header comes from a web page; nothing was changed";
    Err(Problem::new(StatusCode::FORBIDDEN, "origin", title, detail))
}

async fn body(request: Request<Incoming>) -> Result<Bytes, Problem> {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| {
        let title = "the body could not be read; nothing was changed";
        let detail = format!("{error}: at most {BODY_BYTES_MAX} bytes");
        Problem::new(StatusCode::BAD_REQUEST, "bad-body", title, detail)
    })
}

/// A key as the log may have it: who knows the key finds it again, and nobody else learns it.
fn hashed(key: &[u8]) -> String {
    Sha256::digest(key).iter().take(6).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

fn not_ready(why: &'static str) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-ready", "not ready", why)
}

fn json(document: &serde_json::Value) -> Answer {
    text(StatusCode::OK, "application/json", document.to_string() + "\n")
}

fn text(status: StatusCode, kind: &'static str, body: impl Into<bytes::Bytes>) -> Answer {
    let mut answer = Response::new(http_body_util::Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
