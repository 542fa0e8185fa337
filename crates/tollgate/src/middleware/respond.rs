//! From a refusal to a response of the service's own type.

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;

use crate::answer::PROBLEM_JSON;

/// Gives a refusal the body that a service's responses have. A closure does it too.
pub trait Respond<R>: Clone + Send + Sync + 'static {
    /// The same response with a body of type `R`.
    fn respond(&self, refusal: Response<Bytes>) -> Response<R>;
}

/// For bodies that can be made from bytes: axum's, `Full<Bytes>`, `Bytes` themselves.
#[derive(Debug, Clone, Copy, Default)]
pub struct FromBytes;

/// For bodies that can be empty: tonic's, and any other with a default. A gRPC refusal loses nothing by
/// it, for it stands in the headers; a problem document is left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bodiless;

impl<R: From<Bytes>> Respond<R> for FromBytes {
    fn respond(&self, refusal: Response<Bytes>) -> Response<R> {
        refusal.map(R::from)
    }
}

impl<R: Default> Respond<R> for Bodiless {
    fn respond(&self, refusal: Response<Bytes>) -> Response<R> {
        let mut response = refusal.map(|_| R::default());
        if response.headers().get(CONTENT_TYPE) == Some(&PROBLEM_JSON) {
            response.headers_mut().remove(CONTENT_TYPE);
        }
        response
    }
}

impl<R, F> Respond<R> for F
where
    F: Fn(Response<Bytes>) -> Response<R> + Clone + Send + Sync + 'static,
{
    fn respond(&self, refusal: Response<Bytes>) -> Response<R> {
        self(refusal)
    }
}
