//! The gRPC door: Envoy's rate-limit service, our own two, health and reflection.
//!
//! Spoken with hyper itself on the workers' own runtimes, and not with tonic's server: a call of Envoy's is
//! one short message each way, and what lies between a socket and a check is the greater part of what a
//! check costs.

mod answer;
mod beside;
mod breakers;
mod decode;
mod encode;
mod own;
mod proto;
mod wire;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};

use crate::breakers::Service as Breakers;
use crate::engine::Engine;
use crate::net::body::{self, BodyError};
use crate::net::gate::{Barred, Gate};
use crate::net::peer::Peer;
use crate::net::problem::Problem;
use crate::net::serve::Handler;
use crate::rls::{Failure, Service};
use crate::telemetry::grpc::{Breaking, GrpcMetrics, Route};
use answer::{Failed, GrpcBody};
use own::Purpose;

pub(crate) use answer::Code;
pub(crate) use beside::Beside;

/// An answer under way. Boxed once, so that it is not copied from hand to hand.
type Answering = Pin<Box<dyn Future<Output = Response<GrpcBody>> + Send>>;

/// The door, as one worker has it.
#[derive(Debug)]
pub(crate) struct GrpcDoor {
    pub(crate) engine: Engine,
    pub(crate) service: Service,
    pub(crate) breakers: Arc<Breakers>,
    pub(crate) beside: Beside,
    /// In front of what can undo a limit or a breaker: refunds, limits the caller brings along, overrides.
    pub(crate) gate: Gate,
    pub(crate) log_max: u32,
    /// How long a message may take.
    pub(crate) patience: Duration,
    pub(crate) metrics: Arc<GrpcMetrics>,
}

impl GrpcDoor {
    /// hot path: one store round trip; hyper's allocations, the descriptor's lists and its subject.
    async fn answered(&self, route: Route, body: Incoming, passed: Result<(), Barred>) -> Response<GrpcBody> {
        let answer = match body::read(body, self.patience).await {
            Ok(body) => self.routed(route, &body, passed).await,
            Err(error) => Err(unread(&error)),
        };
        match answer {
            Ok(framed) => {
                self.metrics.answered(route, Code::Ok);
                answer::message(framed)
            }
            Err(failed) => {
                self.metrics.answered(route, failed.code);
                answer::failed(&failed)
            }
        }
    }

    async fn routed(&self, route: Route, body: &[u8], passed: Result<(), Barred>) -> Result<Bytes, Failed> {
        let message = message(body)?;
        let purpose = match route {
            Route::Check => Purpose::Check,
            Route::Peek => Purpose::Peek,
            Route::Refund => Purpose::Refund,
            Route::Breaker(breaking) => {
                let call = breakers::read(breaking, message)?;
                check_gate(call.undoes(), passed)?;
                // Boxed: see below.
                return Box::pin(call.answer(&self.breakers)).await;
            }
            Route::ShouldRateLimit | Route::Beside | Route::Other => {
                let request = decode::request(message)
                    .map_err(|error| Failed::new(Code::InvalidArgument, error.to_string()))?;
                check_gate(request.undoes(), passed)?;
                let response = self.service.answer(&request).await.map_err(not_answered)?;
                return Ok(encode::response(&response));
            }
        };
        // Boxed: what Envoy asks is most of what is asked here, and should not make room for the rest.
        Box::pin(async {
            let call = own::read(&self.engine, self.log_max, purpose, message)?;
            check_gate(call.undoes(), passed)?;
            call.answer(&self.engine).await
        })
        .await
    }

    /// What is asked now and then: health, reflection, and what there is none of.
    async fn seldom(&self, request: Request<Incoming>) -> Response<GrpcBody> {
        if let Err(status) = check_head(&request) {
            self.metrics.no_grpc();
            return answer::no_grpc(status);
        }
        if let Some(answering) = self.beside.answer(request) {
            self.metrics.answered(Route::Beside, Code::Ok);
            return answering.await;
        }
        let failed = Failed::new(Code::Unimplemented, "there is no such method here");
        self.metrics.answered(Route::Other, failed.code);
        answer::failed(&failed)
    }
}

impl Handler for GrpcDoor {
    type Body = GrpcBody;

    // No caller of gRPC looks at a date, and who has fallen silent is closed by the idle clock anyway.
    const HAS_DATE: bool = false;
    const HAS_PINGS: bool = false;

    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<GrpcBody>> + Send + 'static {
        let route = match request.uri().path() {
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => Some(Route::ShouldRateLimit),
            "/tollgate.v1.Tollgate/Check" => Some(Route::Check),
            "/tollgate.v1.Tollgate/Peek" => Some(Route::Peek),
            "/tollgate.v1.Tollgate/Refund" => Some(Route::Refund),
            path => path.strip_prefix("/tollgate.v1.Breakers/").and_then(breaking).map(Route::Breaker),
        };
        let answering: Answering = match route.filter(|_| check_head(&request).is_ok()) {
            Some(route) => {
                // Looked at before it is known whether it is needed, so that the headers can go.
                let passed = self.gate.pass(request.headers(), &peer);
                let body = request.into_body();
                Box::pin(async move { self.answered(route, body, passed).await })
            }
            None => Box::pin(async move { self.seldom(request).await }),
        };
        answering
    }

    fn refuse(&self, problem: &Problem) -> Response<GrpcBody> {
        answer::failed(&Failed::new(Code::ResourceExhausted, problem.title()))
    }

    fn turned_away(&self) {
        self.metrics.turned_away();
    }
}

/// The method of that name, of those that are about breakers.
fn breaking(method: &str) -> Option<Breaking> {
    Some(match method {
        "Acquire" => Breaking::Acquire,
        "Report" => Breaking::Report,
        "State" => Breaking::State,
        "List" => Breaking::List,
        "Override" => Breaking::Override,
        "Lift" => Breaking::Lift,
        _ => return None,
    })
}

/// Lets through what undoes nothing, and whoever may.
fn check_gate(undoes: Option<&str>, passed: Result<(), Barred>) -> Result<(), Failed> {
    let (Some(what), Err(barred)) = (undoes, passed) else { return Ok(()) };
    Err(match barred {
        Barred::NoToken => {
            let why = format!("{what} can undo a limit or a breaker and needs authorization: Bearer TOKEN");
            Failed::new(Code::Unauthenticated, why)
        }
        Barred::Shut => {
            let why = format!(
                "{what} can undo a limit or a breaker: off this machine it needs a token (start with --token) or a client certificate"
            );
            Failed::new(Code::PermissionDenied, why)
        }
    })
}

/// Refuses what is no gRPC, in the words of HTTP.
fn check_head(request: &Request<Incoming>) -> Result<(), StatusCode> {
    if request.version() != Version::HTTP_2 {
        return Err(StatusCode::HTTP_VERSION_NOT_SUPPORTED);
    }
    if request.method() != Method::POST {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    // `application/grpc`, and with `+proto` or parameters behind it.
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let rest = kind.strip_prefix(answer::KIND.as_bytes());
    match rest.map(|rest| (rest.first(), rest.starts_with(b"+proto"))) {
        Some((None | Some(b';'), _) | (_, true)) => Ok(()),
        _ => Err(StatusCode::UNSUPPORTED_MEDIA_TYPE),
    }
}

/// The message in a body: one, whole, and not compressed.
fn message(body: &[u8]) -> Result<&[u8], Failed> {
    let Some((head, message)) = body.split_first_chunk::<5>() else {
        return Err(Failed::new(Code::InvalidArgument, "there is no message"));
    };
    let [flag, length @ ..] = *head;
    if flag != 0 {
        return Err(Failed::new(Code::Unimplemented, "messages are not compressed here"));
    }
    if usize::try_from(u32::from_be_bytes(length)) != Ok(message.len()) {
        return Err(Failed::new(Code::InvalidArgument, "there must be one message, and the whole of it"));
    }
    Ok(message)
}

fn unread(error: &BodyError) -> Failed {
    let code = match error {
        BodyError::TooSlow => Code::DeadlineExceeded,
        BodyError::TooLong => Code::ResourceExhausted,
        BodyError::CutShort { .. } => Code::InvalidArgument,
    };
    Failed::new(code, error.to_string())
}

fn not_answered(failure: Failure) -> Failed {
    match failure {
        Failure::Bad(bad) => Failed::new(Code::InvalidArgument, bad.to_string()),
        Failure::Away => Failed::new(Code::Unavailable, "the store does not answer"),
        Failure::Unfinished => Failed::new(Code::Internal, "the policy came without its settings"),
    }
}

#[cfg(test)]
mod tests;
