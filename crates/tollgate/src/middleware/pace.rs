//! The layer that waits: calls behind it go out no faster than a limit lets them.
//!
//! For clients: a call to somebody else's service is better sent late than refused over there. Whoever
//! would wait longer than is worth it hears so at once, before anything was sent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::ask::{Ask, AskProblem, By, Want};
use tollgate_core::store::Store;
use tollgate_core::units::{Cost, Micros};
use tollgate_core::verdict::Answer;
use tower_layer::Layer;

use super::turn::{Turn, Turned, Turning};
use crate::engine::Engine;

/// Puts a pace before a client. Clones share one engine.
pub struct PaceLayer<S> {
    shared: Arc<Shared<S>>,
}

/// A client that keeps a pace.
pub type Pace<I, S> = Turning<I, PaceLayer<S>>;

struct Shared<S> {
    engine: Engine<S>,
    rule: Arc<str>,
    key: Arc<str>,
    cost: Cost,
    at_most: Duration,
}

/// Why a paced call did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum PaceError<E> {
    /// The limit would not let it through in time. Nothing was spent and nothing was sent.
    #[error("the pace lets the call through in {} ms, later than it may wait", retry_after.as_millis_ceil())]
    TooLate {
        /// When it could pass, if nobody else spends.
        retry_after: Micros,
    },
    /// The limit will never let it through, or the rule is not there. Nothing was spent and nothing sent.
    #[error("the pace never lets the call through: {why}")]
    Never {
        /// What stands in the way.
        why: &'static str,
    },
    /// The client's own error.
    #[error(transparent)]
    Inner(E),
}

impl<S: Store> PaceLayer<S> {
    /// Sends every call under a rule of the engine's policy, each waiting for its turn for at most so long.
    pub fn by_rule(engine: Engine<S>, rule: &str, at_most: Duration) -> PaceLayer<S> {
        let shared = Shared { engine, rule: rule.into(), key: "outbound".into(), cost: Cost::ONE, at_most };
        PaceLayer { shared: Arc::new(shared) }
    }

    /// What is counted together (`outbound`): everything that goes through layers with the same key.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        Arc::make_mut(&mut self.shared).key = key.into();
        self
    }

    /// What one call costs (1).
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        Arc::make_mut(&mut self.shared).cost = cost;
        self
    }
}

impl<I, S> Layer<I> for PaceLayer<S> {
    type Service = Pace<I, S>;

    fn layer(&self, inner: I) -> Pace<I, S> {
        Turning { inner, limit: self.clone() }
    }
}

impl<S: Store, Q: Send, T, E> Turn<Q, T, E> for PaceLayer<S> {
    type Error = PaceError<E>;
    type Passed = ();

    async fn turn(&self, request: Q) -> Turned<Q, (), T, PaceError<E>> {
        match self.shared.turn().await {
            Ok(()) => Turned::Pass(request, ()),
            Err(error) => Turned::Away(Err(error)),
        }
    }

    fn tell(&self, (): (), _: &mut T) {}

    fn inner(error: E) -> PaceError<E> {
        PaceError::Inner(error)
    }
}

impl<S: Store> Shared<S> {
    /// Waits for a turn.
    async fn turn<E>(&self) -> Result<(), PaceError<E>> {
        let Shared { engine, rule, key, cost, at_most } = self;
        let want = Want { by: By::Rule(rule), key: key.as_bytes(), cost: *cost, takes: &[] };
        let verdict = engine.wait(&Ask { wants: &[want] }, *at_most).await;
        match (&verdict.answer, verdict.retry_after()) {
            (Answer::Allowed, _) => Ok(()),
            (Answer::Refused, Some(retry_after)) => Err(PaceError::TooLate { retry_after }),
            (Answer::Refused, None) => Err(PaceError::Never { why: "it costs more than the limit" }),
            (Answer::Invalid(AskProblem::UnknownRule { .. }), _) => {
                Err(PaceError::Never { why: "the policy has no such rule" })
            }
            (Answer::Invalid(_), _) => Err(PaceError::Never { why: "its key will not do" }),
        }
    }
}

// === By hand: a derive would ask that the store can be cloned and shown. ===

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        let Shared { engine, rule, key, cost, at_most } = self;
        Shared {
            engine: engine.clone(),
            rule: Arc::clone(rule),
            key: Arc::clone(key),
            cost: *cost,
            at_most: *at_most,
        }
    }
}

impl<S> Clone for PaceLayer<S> {
    fn clone(&self) -> Self {
        PaceLayer { shared: Arc::clone(&self.shared) }
    }
}

impl<S> fmt::Debug for PaceLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceLayer").field("rule", &self.shared.rule).finish_non_exhaustive()
    }
}
