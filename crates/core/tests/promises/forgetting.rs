//! State may be forgotten after `keep_for`: whoever asks then gets the answer that a new key gets.

use tollgate_core::algorithm::{Algorithm, Kind, fixed_window, sliding_log, sliding_window, token_bucket};
use tollgate_core::decision::{Decision, Found, Verb};
use tollgate_core::limit::{Rate, SPAN_MAX};
use tollgate_core::units::{Cost, Micros};

use crate::histories::random::Random;
use crate::histories::seed;

/// Spends all there is at `spent_at`, then asks for one at `now`: with what was remembered, and without.
fn with_and_without(algorithm: &Algorithm, spent_at: Micros, now: Micros) -> (Decision, Decision) {
    let all = Cost::new(algorithm.limit()).unwrap();
    match algorithm {
        Algorithm::TokenBucket(bucket) => {
            let visit =
                |state: Option<&_>, at, cost| token_bucket::visit(bucket, state, at, cost, Verb::Take);
            let state = visit(None, spent_at, all).spend;
            (visit(state.as_ref(), now, Cost::ONE).decision, visit(None, now, Cost::ONE).decision)
        }
        Algorithm::SlidingLog(log) => {
            let visit = |state: Option<&_>, at, cost| sliding_log::visit(log, state, at, cost, Verb::Take);
            let mut state = sliding_log::Log::default();
            state.apply(&visit(None, spent_at, all).spend.unwrap());
            (visit(Some(&state), now, Cost::ONE).decision, visit(None, now, Cost::ONE).decision)
        }
        Algorithm::SlidingWindow(window) => {
            let visit =
                |state: Option<&_>, at, cost| sliding_window::visit(window, state, at, cost, Verb::Take);
            let state = visit(None, spent_at, all).spend;
            (visit(state.as_ref(), now, Cost::ONE).decision, visit(None, now, Cost::ONE).decision)
        }
        Algorithm::FixedWindow(window) => {
            let visit =
                |state: Option<&_>, at, cost| fixed_window::visit(window, state, at, cost, Verb::Take);
            let state = visit(None, spent_at, all).spend;
            (visit(state.as_ref(), now, Cost::ONE).decision, visit(None, now, Cost::ONE).decision)
        }
    }
}

#[test]
fn state_may_be_forgotten_once_it_says_nothing() {
    let mut random = Random::new(seed());
    for kind in Kind::ALL {
        for _ in 0..500 {
            let count = random.count(1, 70);
            let span = Micros(random.magnitude(SPAN_MAX.0));
            let rate = Rate::try_new(count, span).unwrap();
            let algorithm = Algorithm::try_new(kind, rate, None, sliding_log::LIMIT_MAX).unwrap();
            let spent_at = Micros(random.between(1_600_000_000_000_000, 2_000_000_000_000_000));
            // A clock may be a second behind by then, and still the margin covers it.
            let forgotten_at = spent_at + algorithm.keep_for() - Micros::SECOND;
            let (with, without) = with_and_without(&algorithm, spent_at, forgotten_at);
            assert_eq!(Decision { found: Found::Nothing, ..with }, without, "{kind} {rate} at {spent_at:?}");
        }
    }
}
