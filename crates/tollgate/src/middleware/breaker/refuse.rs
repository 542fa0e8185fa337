//! What a caller hears whose call was not made, or was ended.

use http::header::HeaderValue;
use http::{Request, Response};
use tollgate_core::units::Micros;

use crate::answer::{Broken, grpc_type};
use crate::breaker::Refused;
use crate::middleware::Respond;

/// An error of any kind, as tower has it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The call was a probe, and was ended with its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the call was a probe of a breaker's, and took longer than its lease")]
pub struct LeaseEnded;

/// Why a layer answers itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The breaker refuses.
    Refused(Refused),
    /// A probe took too long.
    LeaseEnded,
}

/// Answers for a service that answers with `T` or fails with `E`.
pub trait Refuse<Q, T, E>: Send + Sync + 'static {
    /// What calls may fail with.
    type Error;
    /// What must be known of a request to answer it when it is gone.
    type Words: Send;

    /// In which words a request is answered.
    fn words(&self, request: &Q) -> Self::Words;

    /// The answer.
    fn refuse(&self, words: Self::Words, why: Why) -> Result<T, Self::Error>;

    /// An error of the service's own.
    fn inner(error: E) -> Self::Error;
}

/// As an error, for clients: [`Refused`], [`LeaseEnded`] or the service's own error in a box, for
/// `downcast_ref` to tell.
#[derive(Debug, Clone, Copy, Default)]
pub struct AsError;

/// As a response, for services: 503 with `Retry-After` and a problem document, or `UNAVAILABLE` for those who speak
/// gRPC; 504 or `DEADLINE_EXCEEDED` for a probe that took too long.
#[derive(Debug, Clone, Copy)]
pub struct AsResponse<X>(pub(super) X);

impl<Q, T, E: Into<BoxError>> Refuse<Q, T, E> for AsError {
    type Error = BoxError;
    type Words = ();

    fn words(&self, _: &Q) {}

    fn refuse(&self, (): (), why: Why) -> Result<T, BoxError> {
        Err(match why {
            Why::Refused(refused) => refused.into(),
            Why::LeaseEnded => LeaseEnded.into(),
        })
    }

    fn inner(error: E) -> BoxError {
        error.into()
    }
}

impl<B, R, E, X: Respond<R>> Refuse<Request<B>, Response<R>, E> for AsResponse<X> {
    type Error = E;
    type Words = Option<HeaderValue>;

    fn words(&self, request: &Request<B>) -> Option<HeaderValue> {
        grpc_type(request.headers())
    }

    fn refuse(&self, grpc_kind: Option<HeaderValue>, why: Why) -> Result<Response<R>, E> {
        let broken = match why {
            Why::Refused(Refused { retry_after }) => {
                Broken::Refused { retry_after: Micros::from(retry_after) }
            }
            Why::LeaseEnded => Broken::LeaseEnded,
        };
        Ok(self.0.respond(broken.answer_as(grpc_kind)))
    }

    fn inner(error: E) -> E {
        error
    }
}
