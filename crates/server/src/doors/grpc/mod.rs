//! The gRPC door: Envoy's rate-limit service, our own, health and reflection.
//!
//! Spoken with hyper itself on the workers' own runtimes, and not with tonic's server: a call of Envoy's is
//! one short message each way, and what lies between a socket and a check is the greater part of what a
//! check costs.

mod answer;
mod beside;
mod decode;
mod encode;
mod own;
mod proto;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};

use crate::engine::Engine;
use crate::net::body::{self, BodyError};
use crate::net::gate::{Barred, Gate};
use crate::net::peer::Peer;
use crate::net::problem::Problem;
use crate::net::serve::Handler;
use crate::rls::{Failure, Service};
use crate::telemetry::grpc::{GrpcMetrics, Route};
use answer::{Failed, GrpcBody};
use own::Purpose;

pub(crate) use answer::Code;
pub(crate) use beside::Beside;

/// The door, as one worker has it.
#[derive(Debug)]
pub(crate) struct GrpcDoor {
    engine: Engine,
    service: Service,
    beside: Beside,
    /// In front of what can undo a limit: refunds, and limits the caller brings along.
    gate: Gate,
    log_max: u32,
    /// How long a message may take.
    patience: Duration,
    metrics: Arc<GrpcMetrics>,
}

impl GrpcDoor {
    /// A door to this engine.
    pub(crate) fn new(
        engine: Engine,
        service: Service,
        beside: Beside,
        gate: Gate,
        log_max: u32,
        patience: Duration,
        metrics: Arc<GrpcMetrics>,
    ) -> GrpcDoor {
        GrpcDoor { engine, service, beside, gate, log_max, patience, metrics }
    }

    /// hot path: one store round trip; hyper's allocations, the descriptor's lists and its subject.
    async fn routed(&self, route: Route, request: Request<Incoming>, peer: &Peer) -> Result<Bytes, Failed> {
        let purpose = match route {
            Route::ShouldRateLimit => None,
            Route::Check => Some(Purpose::Check),
            Route::Peek => Some(Purpose::Peek),
            Route::Refund => Some(Purpose::Refund),
            Route::Beside | Route::Other => {
                return Err(Failed::new(Code::Unimplemented, "there is no such method here"));
            }
        };
        let (head, body) = request.into_parts();
        let body = body::read(body, self.patience).await.map_err(|error| unread(&error))?;
        let message = message(&body)?;
        let Some(purpose) = purpose else {
            let request = decode::request(message)
                .map_err(|error| Failed::new(Code::InvalidArgument, error.to_string()))?;
            self.check_gate(request.undoes(), &head.headers, peer)?;
            let response = self.service.answer(&request).await.map_err(not_answered)?;
            return Ok(encode::response(&response));
        };
        let call = own::read(&self.engine, self.log_max, purpose, message)?;
        self.check_gate(call.undoes(), &head.headers, peer)?;
        call.answer(&self.engine).await
    }

    fn check_gate(&self, undoes: Option<&str>, headers: &HeaderMap, peer: &Peer) -> Result<(), Failed> {
        let Some(what) = undoes else { return Ok(()) };
        self.gate.pass(headers, peer).map_err(|barred| match barred {
            Barred::NoToken => {
                let why = format!("{what} can undo a limit and needs authorization: Bearer TOKEN");
                Failed::new(Code::Unauthenticated, why)
            }
            Barred::Shut => {
                let why = format!(
                    "{what} can undo a limit: off this machine it needs a token (start with --token) or a client certificate"
                );
                Failed::new(Code::PermissionDenied, why)
            }
        })
    }
}

impl Handler for GrpcDoor {
    type Body = GrpcBody;

    async fn answer(&self, request: Request<Incoming>, peer: &Peer) -> Response<GrpcBody> {
        if let Err(status) = check_head(&request) {
            self.metrics.no_grpc();
            return answer::no_grpc(status);
        }
        let route = match request.uri().path() {
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => Route::ShouldRateLimit,
            "/tollgate.v1.Tollgate/Check" => Route::Check,
            "/tollgate.v1.Tollgate/Peek" => Route::Peek,
            "/tollgate.v1.Tollgate/Refund" => Route::Refund,
            _ => match self.beside.answer(request) {
                Ok(answering) => {
                    self.metrics.answered(Route::Beside, Code::Ok);
                    return answering.await;
                }
                Err(_) => {
                    let failed = Failed::new(Code::Unimplemented, "there is no such method here");
                    self.metrics.answered(Route::Other, failed.code);
                    return answer::failed(&failed);
                }
            },
        };
        match self.routed(route, request, peer).await {
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

    fn refuse(&self, problem: &Problem) -> Response<GrpcBody> {
        answer::failed(&Failed::new(Code::ResourceExhausted, problem.title()))
    }

    fn turned_away(&self) {
        self.metrics.turned_away();
    }
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
