//! Layers for tower services: axum, tonic, and whatever else takes a request and answers with a response.
//!
//! [`LimitLayer`] stands before a service and refuses; [`PaceLayer`] stands before a client and waits. [`BreakerLayer`]
//! stands before either and makes no calls to whoever is not well; [`GuardLayer`] asks a breaker and a limiter together.
//! All hold a handle to one engine, or to one set of breakers. tower's own `RateLimit` keeps its count in the service, which servers clone
//! for every connection, so that every connection gets the whole limit; here a clone is another handle.

mod ask;
mod breaker;
mod guard;
mod limit;
mod pace;
mod respond;
mod turn;

pub use breaker::{
    AsError, AsResponse, AtEnd, AtHead, BoxError, BreakerLayer, By, ByHost, ByResult, ByStatus, Classify,
    Counted, Ending, Ignoring, LeaseEnded, Moment, Named, Refuse, Watched, Which, Why,
};
pub use guard::{GuardLayer, Guarded};
pub use limit::{Limit, LimitLayer};
pub use pace::{Pace, PaceError, PaceLayer};
pub use respond::{Bodiless, FromBytes, Respond};
pub use turn::{Turn, Turned, Turning, Unlimited};

/// What a boxed call answers with. Boxed because `Engine::decide` is an async fn and cannot be named: one
/// allocation per call, beside a look at the store.
type Answering<T, E> = std::pin::Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;
