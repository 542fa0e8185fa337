//! When a call has ended: with the head of its response, or with the end of its body.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderMap, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tollgate_core::breaker::Fleet;

use super::ending::Ending;
use super::refuse::{BoxError, LeaseEnded};
use crate::breaker::Permit;

/// When the outcome of a call is told.
pub trait Moment<T> {
    /// What responses become.
    type Response;

    /// A response that no outcome hangs on.
    fn plain(response: T) -> Self::Response;

    /// A response that ended so as far as its head can tell. `by_trailers` knows more.
    fn watch<F: Fleet>(
        response: T,
        ending: Ending,
        permit: Permit<F>,
        by_trailers: impl FnOnce(&HeaderMap) -> Ending + Send + 'static,
    ) -> Self::Response;
}

/// With the head of the response. What becomes of its body is not looked at.
#[derive(Debug, Clone, Copy)]
pub struct AtHead;

/// With the end of its body, if the head was good.
#[derive(Debug, Clone, Copy)]
pub struct AtEnd;

impl<T> Moment<T> for AtHead {
    type Response = T;

    fn plain(response: T) -> T {
        response
    }

    fn watch<F: Fleet>(
        response: T,
        ending: Ending,
        permit: Permit<F>,
        _: impl FnOnce(&HeaderMap) -> Ending + Send + 'static,
    ) -> T {
        ending.tell(permit);
        response
    }
}

impl<R: Body> Moment<Response<R>> for AtEnd {
    type Response = Response<Watched<R>>;

    fn plain(response: Response<R>) -> Response<Watched<R>> {
        response.map(|body| Watched { body: Some(Box::pin(body)), watch: None })
    }

    fn watch<F: Fleet>(
        response: Response<R>,
        ending: Ending,
        permit: Permit<F>,
        by_trailers: impl FnOnce(&HeaderMap) -> Ending + Send + 'static,
    ) -> Response<Watched<R>> {
        let is_pending = match ending {
            Ending::Success => false,
            Ending::Pending => true,
            Ending::Failure { .. } | Ending::Slow | Ending::Ignored => {
                ending.tell(permit);
                return AtEnd::plain(response);
            }
        };
        let lease = permit.lease_left().map(|left| Box::pin(tokio::time::sleep(left)));
        let tell = move |last: Last<'_>| {
            let ending = match last {
                Last::Error => Ending::FAILURE,
                Last::Trailers(trailers) if is_pending => by_trailers(trailers),
                // Trailers were awaited, and none came: it was broken off.
                Last::Nothing if is_pending => Ending::FAILURE,
                Last::Trailers(_) | Last::Nothing => Ending::Success,
            };
            ending.tell(permit);
        };
        let watch = Watch { tell: Box::new(tell), lease, is_pending };
        let mut response = response.map(|body| Watched { body: Some(Box::pin(body)), watch: Some(watch) });
        // An empty body is never read.
        response.body_mut().look_for_end();
        response
    }
}

/// A body by whose end a breaker is told how the call went. Dropped before, it tells nothing, and gives a probe's lease
/// back.
pub struct Watched<R> {
    /// `None` once it was cancelled.
    body: Option<Pin<Box<R>>>,
    /// `None` once it was told.
    watch: Option<Watch>,
}

struct Watch {
    tell: Box<dyn FnOnce(Last<'_>) + Send>,
    /// A probe's.
    lease: Option<Pin<Box<Sleep>>>,
    /// Whether trailers must come.
    is_pending: bool,
}

/// The last of a body.
enum Last<'a> {
    Trailers(&'a HeaderMap),
    Nothing,
    Error,
}

impl<R> Watched<R> {
    fn tell(&mut self, last: Last<'_>) {
        if let Some(watch) = self.watch.take() {
            (watch.tell)(last);
        }
    }
}

impl<R: Body> Watched<R> {
    /// Whoever knows that nothing more comes does not read on to hear it.
    fn look_for_end(&mut self) {
        let (Some(body), Some(watch)) = (&self.body, &self.watch) else { return };
        let is_read = || body.size_hint().exact() == Some(0) && !watch.is_pending;
        if body.is_end_stream() || is_read() {
            self.tell(Last::Nothing);
        }
    }

    fn is_lease_over(&mut self, context: &mut Context<'_>) -> bool {
        let lease = self.watch.as_mut().and_then(|watch| watch.lease.as_mut());
        lease.is_some_and(|lease| lease.as_mut().poll(context).is_ready())
    }
}

impl<R> Body for Watched<R>
where
    R: Body,
    R::Error: Into<BoxError>,
{
    type Data = R::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, BoxError>>> {
        let this = self.get_mut();
        if this.is_lease_over(context) {
            this.body = None;
            this.tell(Last::Error);
            return Poll::Ready(Some(Err(LeaseEnded.into())));
        }
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let Poll::Ready(frame) = body.as_mut().poll_frame(context) else { return Poll::Pending };
        match &frame {
            None => this.tell(Last::Nothing),
            Some(Err(_)) => this.tell(Last::Error),
            Some(Ok(frame)) => match frame.trailers_ref() {
                Some(trailers) => this.tell(Last::Trailers(trailers)),
                None => this.look_for_end(),
            },
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<R> fmt::Debug for Watched<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("is_told", &self.watch.is_none()).finish_non_exhaustive()
    }
}
