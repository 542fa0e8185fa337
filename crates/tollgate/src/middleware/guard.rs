//! Breaker and limiter before one service, asked in this order: a call that the breaker refuses spends no
//! token, and one that the limiter refuses tells the breaker nothing.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;
use tollgate_core::breaker::Fleet;
use tower_layer::Layer;
use tower_service::Service;

use super::Answering;
use super::breaker::{BreakerLayer, Classify, Ending, Moment, Refuse, Which, Why};
use super::turn::{Turn, Turned, take_ready};
use crate::breaker::{Permit, Refused};

/// Puts a breaker and a limiter before a service. `B` is a [`BreakerLayer`], `L` a
/// [`LimitLayer`](super::LimitLayer) or a [`PaceLayer`](super::PaceLayer).
#[derive(Debug, Clone)]
pub struct GuardLayer<B, L> {
    breaker: B,
    limit: L,
}

impl<B, L> GuardLayer<B, L> {
    /// Asks the breaker, and then the limiter.
    ///
    /// Not the same as one layer in the other: there a breaker takes the limiter's refusals for the service's failures, and
    /// a wait for one's turn for a slow answer; or the limiter is asked about calls that are not made.
    pub fn new(breaker: B, limit: L) -> GuardLayer<B, L> {
        GuardLayer { breaker, limit }
    }
}

/// A service behind a breaker, and perhaps a limiter.
#[derive(Debug, Clone)]
pub struct Guarded<I, B, L> {
    pub(super) inner: I,
    pub(super) breaker: B,
    pub(super) limit: L,
}

impl<I, B: Clone, L: Clone> Layer<I> for GuardLayer<B, L> {
    type Service = Guarded<I, B, L>;

    fn layer(&self, inner: I) -> Guarded<I, B, L> {
        Guarded { inner, breaker: self.breaker.clone(), limit: self.limit.clone() }
    }
}

impl<I, F, W, C, A, M, L, Q> Service<Q> for Guarded<I, BreakerLayer<F, W, C, A, M>, L>
where
    I: Service<Q> + Clone + Send + 'static,
    I::Future: Send,
    F: Fleet,
    W: Which<Q, F>,
    C: Classify<I::Response, I::Error>,
    A: Refuse<Q, I::Response, L::Error>,
    M: Moment<I::Response> + 'static,
    L: Turn<Q, I::Response, I::Error>,
    Q: Send + 'static,
{
    type Response = M::Response;
    type Error = A::Error;
    type Future = Answering<M::Response, A::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), A::Error>> {
        // As with the other layers, only the inner service can say whether it may be asked. That it cannot is
        // not counted: no call was made.
        self.inner.poll_ready(context).map_err(|error| A::inner(L::inner(error)))
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let mut inner = take_ready(&mut self.inner);
        let parts = Arc::clone(&self.breaker.parts);
        let limit = self.limit.clone();
        Box::pin(async move {
            let words = parts.refuse.words(&request);
            let handle = parts.which.which(&parts.breakers, &request);
            let refuse = |words, why| parts.refuse.refuse(words, why).map(M::plain);
            let mut permit = match handle {
                None => None,
                Some(handle) => match handle.permit().await {
                    Ok(permit) => Some(permit),
                    Err(refused) => return refuse(words, Why::Refused(refused)),
                },
            };
            let (request, passed) = match limit.turn(request).await {
                Turned::Pass(request, passed) => (request, passed),
                // The permit is dropped: nothing was found out.
                Turned::Away(answer) => return answer.map(M::plain).map_err(A::inner),
            };
            let lease = permit.as_mut().and_then(|permit| {
                permit.begin();
                permit.lease_left()
            });
            let came = match lease {
                None => Ok(inner.call(request).await),
                // It was spent on waiting for a turn: too late to begin.
                Some(Duration::ZERO) => {
                    return refuse(words, Why::Refused(Refused { retry_after: Duration::ZERO }));
                }
                Some(left) => timeout(left, inner.call(request)).await,
            };
            let Ok(came) = came else {
                tell(permit, Ending::FAILURE);
                return refuse(words, Why::LeaseEnded);
            };
            let ending = parts.classify.classify(came.as_ref());
            match came {
                Ok(mut response) => {
                    limit.tell(passed, &mut response);
                    let Some(permit) = permit else { return Ok(M::plain(response)) };
                    let by_trailers = move |trailers: &_| parts.classify.classify_trailers(trailers);
                    Ok(M::watch(response, ending, permit, by_trailers))
                }
                Err(error) => {
                    tell(permit, ending);
                    Err(A::inner(L::inner(error)))
                }
            }
        })
    }
}

fn tell<F: Fleet>(permit: Option<Permit<F>>, ending: Ending) {
    if let Some(permit) = permit {
        ending.tell(permit);
    }
}
