//! The layer that refuses: a service behind it sees only calls that may pass.
//!
//! A refusal is a response and never an error, so that wrapping a service does not change what it can fail
//! with. A call that passes is told what is left, in the headers of its own response.

use std::fmt;
use std::sync::{Arc, Once};

use core::net::{Ipv4Addr, SocketAddr};
use http::{Extensions, Request, Response};
use tollgate_core::store::Store;
use tollgate_core::units::Cost;
use tollgate_core::verdict::Verdict;
use tower_layer::Layer;

use super::ask::ask;
use super::respond::{Bodiless, FromBytes, Respond};
use super::turn::{Turn, Turned, Turning};
use crate::answer::Style;
use crate::engine::Engine;
use crate::identity::{Identity, Peer};

/// Puts a limit before a service. Clones share one engine.
pub struct LimitLayer<S, T = FromBytes> {
    shared: Arc<Shared<S>>,
    respond: T,
}

/// A service behind a limit.
pub type Limit<I, S, T = FromBytes> = Turning<I, LimitLayer<S, T>>;

struct Shared<S> {
    engine: Engine<S>,
    cost: Cost,
    identity: Identity,
    style: Style,
    peer: Arc<FindPeer>,
    /// Said once, that nobody says who is connected.
    said_no_peer: Arc<Once>,
}

/// Finds out who is connected.
type FindPeer = dyn Fn(&Extensions) -> Option<Peer> + Send + Sync;

impl<S: Store> LimitLayer<S> {
    /// Asks the engine's policy about every request: each rule that applies to it must let it pass.
    pub fn new(engine: Engine<S>) -> LimitLayer<S> {
        let shared = Shared {
            engine,
            cost: Cost::ONE,
            identity: Identity::default(),
            style: Style::default(),
            peer: Arc::new(known_peer),
            said_no_peer: Arc::new(Once::new()),
        };
        LimitLayer { shared: Arc::new(shared), respond: FromBytes }
    }
}

impl<S: Store, T> LimitLayer<S, T> {
    /// How callers are told apart: trusted proxies, tokens, claims.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        Arc::make_mut(&mut self.shared).identity = identity;
        self
    }

    /// How verdicts are said: which headers, how much jitter.
    #[must_use]
    pub fn style(mut self, style: Style) -> Self {
        Arc::make_mut(&mut self.shared).style = style;
        self
    }

    /// How many times the rules' own cost a request pays (1).
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        Arc::make_mut(&mut self.shared).cost = cost;
        self
    }

    /// How to find out who is connected, from what the server left with the request. Unless set, a
    /// [`Peer`] or a `SocketAddr` is looked for. Where there is none, the caller's address is `0.0.0.0`: a
    /// rule by address then counts all of them together, where without an address it would let all pass.
    #[must_use]
    pub fn peer(mut self, find: impl Fn(&Extensions) -> Option<Peer> + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.shared).peer = Arc::new(find);
        self
    }

    /// For services whose bodies cannot be made from bytes, but can be empty: tonic's.
    #[must_use]
    pub fn bodiless(self) -> LimitLayer<S, Bodiless> {
        LimitLayer { shared: self.shared, respond: Bodiless }
    }

    /// Makes refusals what the service's own responses are: `|refusal| refusal.map(Body::from)`.
    #[must_use]
    pub fn respond<F>(self, respond: F) -> LimitLayer<S, F> {
        LimitLayer { shared: self.shared, respond }
    }
}

/// What a server may have left with a request about who is connected.
fn known_peer(extensions: &Extensions) -> Option<Peer> {
    let address = || extensions.get::<SocketAddr>().map(|address| Peer::from(*address));
    extensions.get::<Peer>().copied().or_else(address)
}

impl<I, S, T: Clone> Layer<I> for LimitLayer<S, T> {
    type Service = Limit<I, S, T>;

    fn layer(&self, inner: I) -> Limit<I, S, T> {
        Turning { inner, limit: self.clone() }
    }
}

impl<S, T, B, R, E> Turn<Request<B>, Response<R>, E> for LimitLayer<S, T>
where
    S: Store,
    T: Respond<R>,
    B: Send,
{
    type Error = E;
    type Passed = Verdict;

    async fn turn(&self, request: Request<B>) -> Turned<Request<B>, Verdict, Response<R>, E> {
        let Shared { engine, cost, identity, style, .. } = &*self.shared;
        // In parts: a body need not be Sync, and is not looked at.
        let (parts, body) = request.into_parts();
        let peer = self.shared.peer(&parts.extensions);
        let verdict = {
            let attributes = identity.of_parts(&parts.method, &parts.uri, &parts.headers, peer);
            ask(engine, *cost, &attributes).await
        };
        if verdict.is_allowed() {
            Turned::Pass(Request::from_parts(parts, body), verdict)
        } else {
            Turned::Away(Ok(self.respond.respond(style.refuse(&verdict, &parts.headers))))
        }
    }

    fn tell(&self, verdict: Verdict, response: &mut Response<R>) {
        self.shared.style.write(&verdict, response.headers_mut());
    }

    fn inner(error: E) -> E {
        error
    }
}

impl<S> Shared<S> {
    fn peer(&self, extensions: &Extensions) -> Peer {
        (self.peer)(extensions).unwrap_or_else(|| {
            self.said_no_peer.call_once(|| {
                tracing::warn!("requests do not say who is connected: rules by address count all together");
            });
            Peer::Address(Ipv4Addr::UNSPECIFIED.into())
        })
    }
}

// === By hand: a derive would ask that the store can be cloned and shown. ===

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Shared {
            engine: self.engine.clone(),
            cost: self.cost,
            identity: self.identity.clone(),
            style: self.style,
            peer: Arc::clone(&self.peer),
            said_no_peer: Arc::clone(&self.said_no_peer),
        }
    }
}

impl<S, T: Clone> Clone for LimitLayer<S, T> {
    fn clone(&self) -> Self {
        LimitLayer { shared: Arc::clone(&self.shared), respond: self.respond.clone() }
    }
}

impl<S, T> fmt::Debug for LimitLayer<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitLayer").field("style", &self.shared.style).finish_non_exhaustive()
    }
}
