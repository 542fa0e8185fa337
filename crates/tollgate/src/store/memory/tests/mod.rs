//! What the memory store promises, each promise in a file of its own.

mod bound;
mod model;
mod several;
mod table;
mod threads;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};

use tollgate_core::algorithm::{Algorithm, Kind};
use tollgate_core::check::Check;
use tollgate_core::decision::{Decision, Outcome};
use tollgate_core::key::{Key, Scope};
use tollgate_core::limit::Rate;
use tollgate_core::store::Store;
use tollgate_core::units::{Cost, Micros};

use super::{Builder, MemoryStore};
use crate::clock::Clock;

/// A Thursday in 2025.
const START: Micros = Micros(1_750_000_000_000_000);

/// The memory store's futures are ready at once.
fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a memory store never waits"),
    }
}

fn builder() -> (Builder, Arc<AtomicU64>) {
    let (clock, hand) = Clock::manual(START);
    (MemoryStore::builder().clock(clock), hand)
}

fn algorithm(kind: Kind, rate: &str, burst: Option<u32>) -> Algorithm {
    Algorithm::try_new(kind, Rate::parse(rate).unwrap(), burst, 1000).unwrap()
}

fn bucket(rate: &str, burst: u32) -> Algorithm {
    algorithm(Kind::TokenBucket, rate, Some(burst))
}

fn scope(algorithm: &Algorithm) -> Scope {
    Scope::of_rule("rule", 0, algorithm.kind())
}

fn check<'a>(scope: &'a Scope, subject: &'a str, algorithm: &'a Algorithm) -> Check<'a> {
    Check { key: Key { scope, subject: subject.as_bytes() }, algorithm, cost: Cost::ONE }
}

fn take(store: &MemoryStore, check: Check<'_>) -> Decision {
    ready(store.take(&[check])).unwrap()[0]
}

fn passes(store: &MemoryStore, check: Check<'_>) -> bool {
    take(store, check).outcome == Outcome::Allowed
}
