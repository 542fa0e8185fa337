//! The admin door: how the server is doing, for machines and for the people who run them.
//!
//! A listener of its own on the background runtime, so that a scrape never stands in line with checks.
//! `/live` and `/ready` need no token, because probes have none and learn nothing; the rest does, or a
//! client's certificate, off loopback.

mod show;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use crate::engine::Engine;
use crate::net::Answer;
use crate::net::gate::Gate;
use crate::net::peer::Peer;
use crate::net::problem::Problem;
use crate::net::serve::Handler;
use crate::shutdown::{LifeView, Phase};
use crate::telemetry::Telemetry;

const ROUTES: &str = "this door answers GET /health, /live, /ready, /metrics and /policy";

/// The admin door.
#[derive(Debug)]
pub(crate) struct Admin {
    pub(crate) engine: Engine,
    pub(crate) telemetry: Telemetry,
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
    /// Since when.
    pub(crate) started: std::time::Instant,
    /// What answers for rules that name no `on_outage`.
    pub(crate) on_outage: tollgate::OnOutage,
}

impl Admin {
    fn routed(&self, request: &Request<Incoming>, peer: &Peer) -> Result<Answer, Problem> {
        let path = request.uri().path();
        if !matches!(path, "/live" | "/ready" | "/health" | "/metrics" | "/policy") {
            return Err(Problem::not_found(ROUTES));
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return Err(Problem::method("GET, HEAD"));
        }
        if !matches!(path, "/live" | "/ready") {
            self.gate.pass(request.headers(), peer).map_err(|_| Problem::no_token("this path"))?;
        }
        Ok(match path {
            "/live" => text(StatusCode::OK, "text/plain; charset=utf-8", "live\n"),
            "/ready" => match self.life.phase() {
                Phase::Serving => text(StatusCode::OK, "text/plain; charset=utf-8", "ready\n"),
                Phase::Starting => return Err(not_ready("starting: not every door is open yet")),
                Phase::Draining | Phase::Closing => return Err(not_ready("draining: send no more here")),
            },
            "/health" => json(&show::health(&self.engine, &self.about, self.life.phase())),
            "/policy" => json(&show::policy(&self.engine.policy(), self.about.on_outage)),
            _ => self.metrics()?,
        })
    }

    fn metrics(&self) -> Result<Answer, Problem> {
        let text_of = self.telemetry.text().map_err(|error| {
            let title = "metrics could not be written";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "metrics", title, error.to_string())
        })?;
        Ok(text(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text_of))
    }
}

impl Handler for Admin {
    async fn answer(&self, request: Request<Incoming>, peer: &Peer) -> Answer {
        self.routed(&request, peer).unwrap_or_else(|problem| problem.answer())
    }
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
