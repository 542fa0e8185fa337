//! What a limiter does about one call, before it is made: the part that the layers share.

use std::mem;
use std::task::{Context, Poll};

use tower_service::Service;

use super::Answering;

/// A limiter that stands before a service: [`LimitLayer`](super::LimitLayer) and
/// [`PaceLayer`](super::PaceLayer), by themselves or behind a breaker.
///
/// `Q` is what is asked, `T` what the service answers with and `E` what it fails with.
pub trait Turn<Q, T, E>: Clone + Send + Sync + 'static {
    /// What a call behind the limiter may fail with.
    type Error;
    /// What is remembered of a call that passes.
    type Passed: Send;

    /// Asks for a call's turn, and waits for it if that is the limiter's way.
    fn turn(&self, request: Q) -> impl Future<Output = Turned<Q, Self::Passed, T, Self::Error>> + Send;

    /// Tells the caller on the service's own response.
    fn tell(&self, passed: Self::Passed, response: &mut T);

    /// An error of the service's own.
    fn inner(error: E) -> Self::Error;
}

/// Whether a call may be made.
#[derive(Debug)]
pub enum Turned<Q, P, T, E> {
    /// It may.
    Pass(Q, P),
    /// It may not, and this is the answer to it.
    Away(Result<T, E>),
}

/// No limit at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unlimited;

impl<Q: Send, T, E> Turn<Q, T, E> for Unlimited {
    type Error = E;
    type Passed = ();

    async fn turn(&self, request: Q) -> Turned<Q, (), T, E> {
        Turned::Pass(request, ())
    }

    fn tell(&self, (): (), _: &mut T) {}

    fn inner(error: E) -> E {
        error
    }
}

/// A service behind a limiter.
#[derive(Debug, Clone)]
pub struct Turning<I, L> {
    pub(super) inner: I,
    pub(super) limit: L,
}

impl<I, L, Q> Service<Q> for Turning<I, L>
where
    I: Service<Q> + Clone + Send + 'static,
    I::Future: Send,
    L: Turn<Q, I::Response, I::Error>,
    Q: Send + 'static,
{
    type Response = I::Response;
    type Error = L::Error;
    type Future = Answering<I::Response, L::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), L::Error>> {
        // A refused request still uses up the inner service's readiness: "ready" means "may be asked",
        // and only the inner service can say so.
        self.inner.poll_ready(context).map_err(L::inner)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let mut inner = take_ready(&mut self.inner);
        let limit = self.limit.clone();
        Box::pin(async move {
            let (request, passed) = match limit.turn(request).await {
                Turned::Pass(request, passed) => (request, passed),
                Turned::Away(answer) => return answer,
            };
            let mut response = inner.call(request).await.map_err(L::inner)?;
            limit.tell(passed, &mut response);
            Ok(response)
        })
    }
}

/// The service that was ready; a clone of it, which is not, stays.
pub(super) fn take_ready<I: Clone>(inner: &mut I) -> I {
    let clone = inner.clone();
    mem::replace(inner, clone)
}
