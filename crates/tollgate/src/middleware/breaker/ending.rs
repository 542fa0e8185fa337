//! How a call ended, as far as a breaker is concerned, and who says so.

use std::time::Duration;

use http::HeaderMap;
use tollgate_core::breaker::Fleet;

use crate::breaker::Permit;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Well; slowly, if it took longer than the breaker's `slow_after`.
    Success,
    /// Badly.
    Failure {
        /// When the other side wants to be asked again, if it said so.
        retry_after: Option<Duration>,
    },
    /// Well, but slowly, however long it took.
    Slow,
    /// In a way that says nothing about the other side. A probe's lease is given back.
    Ignored,
    /// Well so far; the trailers will tell. Where nobody waits for those, it is a success.
    Pending,
}

impl Ending {
    /// Badly, and nothing was said about when to come again.
    pub const FAILURE: Ending = Ending::Failure { retry_after: None };

    /// Tells the breaker.
    pub(in crate::middleware) fn tell<F: Fleet>(self, permit: Permit<F>) {
        match self {
            Ending::Success | Ending::Pending => permit.success(),
            Ending::Failure { retry_after: None } => permit.failure(),
            Ending::Failure { retry_after: Some(retry_after) } => permit.failure_until(retry_after),
            Ending::Slow => permit.slow(),
            Ending::Ignored => permit.ignore(),
        }
    }
}

/// Says how calls ended that answer with `T` or fail with `E`. A closure over `Result<&T, &E>` does it too.
pub trait Classify<T, E>: Clone + Send + Sync + 'static {
    /// How a call ended, by what came back.
    fn classify(&self, came: Result<&T, &E>) -> Ending;

    /// How a call ended that was [`Pending`](Ending::Pending), by the trailers after its body.
    fn classify_trailers(&self, trailers: &HeaderMap) -> Ending {
        let _ = trailers;
        Ending::Success
    }
}

impl<T, E, F> Classify<T, E> for F
where
    F: Fn(Result<&T, &E>) -> Ending + Clone + Send + Sync + 'static,
{
    fn classify(&self, came: Result<&T, &E>) -> Ending {
        self(came)
    }
}

/// Errors are failures and answers successes, whatever they are. For services that do not speak HTTP.
#[derive(Debug, Clone, Copy, Default)]
pub struct ByResult;

impl<T, E> Classify<T, E> for ByResult {
    fn classify(&self, came: Result<&T, &E>) -> Ending {
        came.map_or(Ending::FAILURE, |_| Ending::Success)
    }
}

/// Leaves some errors out of account; for all else the other says it.
#[derive(Debug, Clone, Copy)]
pub struct Ignoring<C, P> {
    classify: C,
    is_ignored: P,
}

impl<C, P> Ignoring<C, P> {
    /// Errors for which `is_ignored` holds say nothing about the other side: the caller gave up, or
    /// asked for nonsense.
    pub fn new<E>(classify: C, is_ignored: P) -> Ignoring<C, P>
    where
        P: Fn(&E) -> bool,
    {
        Ignoring { classify, is_ignored }
    }
}

impl<C, P, T, E> Classify<T, E> for Ignoring<C, P>
where
    C: Classify<T, E>,
    P: Fn(&E) -> bool + Clone + Send + Sync + 'static,
{
    fn classify(&self, came: Result<&T, &E>) -> Ending {
        match came {
            Err(error) if (self.is_ignored)(error) => Ending::Ignored,
            _ => self.classify.classify(came),
        }
    }

    fn classify_trailers(&self, trailers: &HeaderMap) -> Ending {
        self.classify.classify_trailers(trailers)
    }
}
