//! The two limiters under test, behind one face.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tollgate::store::memory::MemoryStore;
use tollgate_core::algorithm::{Algorithm, Kind};
use tollgate_core::check::Check;
use tollgate_core::decision::Outcome;
use tollgate_core::key::{Key, Scope};
use tollgate_core::limit::Rate;
use tollgate_core::store::Store;
use tollgate_core::units::Cost;

const BURST: u32 = 1_000_000_000;

/// One limit for all keys, and whether a check of one key passes.
#[expect(clippy::ptr_arg, reason = "the other limiter's keys are Strings, and are looked up by one")]
pub(crate) trait Limiter: Sync {
    fn passes(&self, key: &String) -> bool;

    /// How many of these asks pass. In the trait, so that it is compiled for each limiter.
    fn count_passes(&self, keys: &[String], order: &[u32]) -> u64 {
        order.iter().map(|at| u64::from(self.passes(&keys[*at as usize]))).sum()
    }
}

/// Which limit is put under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// A billion at once and one a second: every check passes, and no bucket is full again.
    Allowed,
    /// One an hour: nearly every check is refused.
    Refused,
}

pub(crate) struct Tollgate {
    store: MemoryStore,
    scope: Scope,
    algorithm: Algorithm,
}

pub(crate) struct Governor(DefaultKeyedRateLimiter<String>);

/// The limit of a load, for Tollgate.
pub(crate) fn algorithm(load: Load) -> Algorithm {
    let (rate, burst) = match load {
        Load::Allowed => ("1/s", BURST),
        Load::Refused => ("1/h", 1),
    };
    let rate = Rate::parse(rate).expect("a rate");
    Algorithm::try_new(Kind::TokenBucket, rate, Some(burst), 0).expect("an exact bucket")
}

impl Tollgate {
    pub(crate) fn new(load: Load, max_keys: u64) -> Tollgate {
        Tollgate {
            store: MemoryStore::builder().max_keys(max_keys).build(),
            scope: Scope::of_rule("login", 0, Kind::TokenBucket),
            algorithm: algorithm(load),
        }
    }

    pub(crate) fn overflowed(&self) -> u64 {
        self.store.overflowed()
    }
}

impl Limiter for Tollgate {
    #[inline]
    fn passes(&self, key: &String) -> bool {
        let key = Key { scope: &self.scope, subject: key.as_bytes() };
        let check = Check { key, algorithm: &self.algorithm, cost: Cost::ONE };
        let decisions = ready(self.store.take(&[check])).expect("memory answers");
        decisions[0].outcome == Outcome::Allowed
    }
}

impl Governor {
    pub(crate) fn new(load: Load) -> Governor {
        let quota = match load {
            Load::Allowed => {
                let burst = NonZeroU32::new(BURST).expect("not zero");
                Quota::per_second(NonZeroU32::MIN).allow_burst(burst)
            }
            Load::Refused => Quota::per_hour(NonZeroU32::MIN),
        };
        Governor(RateLimiter::keyed(quota))
    }
}

impl Limiter for Governor {
    #[inline]
    fn passes(&self, key: &String) -> bool {
        self.0.check_key(key).is_ok()
    }
}

/// Polls once: the memory store's futures are ready.
#[inline]
pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a memory store never waits"),
    }
}

/// Keys of 13 bytes.
pub(crate) fn keys(count: u32) -> Vec<String> {
    (0..count).map(|n| format!("user_{n:08}")).collect()
}

/// A random order in which to ask, the same for everybody.
pub(crate) fn order(keys: u32, asks: usize) -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..asks).map(|_| random.u32(..keys)).collect()
}
