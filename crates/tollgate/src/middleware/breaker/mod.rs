//! The layer that breaks: calls to whoever is not well are not made.
//!
//! Before a client, a refusal is an error that says when to come again; before a service, by choice, a response.
//! How calls ended is told by a classifier. A future that is dropped and a panic say nothing, and give a probe's lease back
//! at once; a probe that takes as long as its lease is cancelled, and has failed.

mod by_status;
mod ending;
mod moment;
mod refuse;
mod which;

pub use by_status::{ByStatus, Counted};
pub use ending::{ByResult, Classify, Ending, Ignoring};
pub use moment::{AtEnd, AtHead, Moment, Watched};
pub use refuse::{AsError, AsResponse, BoxError, LeaseEnded, Refuse, Why};
pub use which::{By, ByHost, Named, Which};

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use tollgate_core::breaker::Fleet;
use tower_layer::Layer;

use super::guard::Guarded;
use super::turn::Unlimited;
use crate::breaker::{Breakers, NoBreaker};

/// Puts breakers before a client or a service. Clones share them.
pub struct BreakerLayer<F: Fleet, W, C = ByStatus, A = AsError, M = AtHead> {
    pub(super) parts: Arc<Parts<F, W, C, A>>,
    moment: PhantomData<fn() -> M>,
}

/// What a layer is made of.
pub(super) struct Parts<F: Fleet, W, C, A> {
    pub(super) breakers: Arc<Breakers<F>>,
    pub(super) which: Arc<W>,
    pub(super) classify: C,
    pub(super) refuse: A,
}

impl<F: Fleet, W> BreakerLayer<F, W> {
    fn new(breakers: &Arc<Breakers<F>>, which: W) -> Self {
        let (classify, refuse) = (ByStatus::default(), AsError);
        let parts = Parts { breakers: Arc::clone(breakers), which: Arc::new(which), classify, refuse };
        BreakerLayer::of(parts)
    }
}

impl<F: Fleet> BreakerLayer<F, Named<F>> {
    /// One breaker of that name for all calls.
    pub fn named(breakers: &Arc<Breakers<F>>, id: &[u8]) -> Result<Self, NoBreaker> {
        Ok(BreakerLayer::new(breakers, Named(breakers.handle(id)?)))
    }
}

impl<F: Fleet> BreakerLayer<F, ByHost> {
    /// A breaker for each host and port that requests are for. One that does not say whom it is for, as those of
    /// a tonic client, is made under `-`; there, [`named`](BreakerLayer::named) is better.
    pub fn by_host(breakers: &Arc<Breakers<F>>) -> Self {
        BreakerLayer::new(breakers, ByHost::default())
    }
}

impl<F: Fleet, N> BreakerLayer<F, By<N>> {
    /// A breaker for each name that the closure gives. A request that has none is made without.
    pub fn by<Q>(breakers: &Arc<Breakers<F>>, name: N) -> Self
    where
        N: for<'a> Fn(&'a Q) -> Option<Cow<'a, str>> + Send + Sync + 'static,
    {
        BreakerLayer::new(breakers, By::new(name))
    }
}

impl<F: Fleet, W, C, A, M> BreakerLayer<F, W, C, A, M> {
    fn of(parts: Parts<F, W, C, A>) -> Self {
        BreakerLayer { parts: Arc::new(parts), moment: PhantomData }
    }
}

impl<F: Fleet, W, C: Clone, A: Clone, M> BreakerLayer<F, W, C, A, M> {
    /// How calls ended ([`ByStatus`]): another classifier, or a closure over `Result<&Response, &Error>`.
    #[must_use]
    pub fn classify<D>(self, classify: D) -> BreakerLayer<F, W, D, A, M> {
        let Parts { breakers, which, refuse, .. } = &*self.parts;
        let (breakers, which) = (Arc::clone(breakers), Arc::clone(which));
        BreakerLayer::of(Parts { breakers, which, classify, refuse: refuse.clone() })
    }

    /// Answers itself in place of failing, for services: with [`FromBytes`](super::FromBytes) a 503 with a problem document, with
    /// [`Bodiless`](super::Bodiless) one without (tonic's), with a closure whatever it makes of the first. The error stays the service's own.
    #[must_use]
    pub fn respond<X>(self, respond: X) -> BreakerLayer<F, W, C, AsResponse<X>, M> {
        let Parts { breakers, which, classify, .. } = &*self.parts;
        let (breakers, which) = (Arc::clone(breakers), Arc::clone(which));
        let refuse = AsResponse(respond);
        BreakerLayer::of(Parts { breakers, which, classify: classify.clone(), refuse })
    }

    /// Tells how a call ended when its body has ended, and not with the head of its response: a body that breaks off is a failure,
    /// gRPC's trailers are read, and the time it takes counts. A probe lasts as long, and its body is
    /// cut off with [`LeaseEnded`] when the lease ends. Not for streams that go on for as long as they are wanted.
    #[must_use]
    pub fn until_end(self) -> BreakerLayer<F, W, C, A, AtEnd> {
        BreakerLayer { parts: self.parts, moment: PhantomData }
    }
}

impl<I, F: Fleet, W, C, A, M> Layer<I> for BreakerLayer<F, W, C, A, M> {
    type Service = Guarded<I, BreakerLayer<F, W, C, A, M>, Unlimited>;

    fn layer(&self, inner: I) -> Self::Service {
        Guarded { inner, breaker: self.clone(), limit: Unlimited }
    }
}

// === By hand: a derive would ask that the parts can be cloned and shown. ===

impl<F: Fleet, W, C, A, M> Clone for BreakerLayer<F, W, C, A, M> {
    fn clone(&self) -> Self {
        BreakerLayer { parts: Arc::clone(&self.parts), moment: PhantomData }
    }
}

impl<F: Fleet, W, C, A, M> fmt::Debug for BreakerLayer<F, W, C, A, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerLayer").finish_non_exhaustive()
    }
}
