//! P2: whoever asks at exactly the rate passes, a million times over.
//!
//! Buckets here hold two tokens or more: a full one rightly has no room for the fraction that comes
//! between the instant a token is there and the whole microsecond it is asked for.

use tollgate_core::algorithm::sliding_log::{self, Log, SlidingLog};
use tollgate_core::algorithm::sliding_window::{self, SlidingWindow};
use tollgate_core::algorithm::token_bucket::{self, State, TokenBucket};
use tollgate_core::decision::{Outcome, Verb};
use tollgate_core::limit::Rate;
use tollgate_core::units::{Cost, Micros};

const START: u64 = 1_700_000_000_000_000;
const ASKS: u64 = 1_000_000;

/// When the `n`th token after the start has come: rounded up to the microsecond, never twice.
fn nth_token_at(n: u64, rate: Rate) -> Micros {
    let period = u128::from(rate.span().unwrap().0);
    let after = (u128::from(n) * period).div_ceil(u128::from(rate.count()));
    Micros(START + u64::try_from(after).unwrap())
}

/// A bucket emptied at the start.
fn emptied(bucket: &TokenBucket) -> State {
    let all = Cost::new(bucket.capacity()).unwrap();
    token_bucket::visit(bucket, None, Micros(START), all, Verb::Take).spend.expect("a new bucket is full")
}

#[test]
fn a_million_asks_at_exactly_the_rate_all_pass() {
    for (rate, burst) in [("3/s", 2), ("7/s", 7), ("999983/day", 5), ("999983/s", 2)] {
        let rate = Rate::parse(rate).unwrap();
        let bucket = TokenBucket::try_new(rate, burst).unwrap();
        let mut state = emptied(&bucket);
        for n in 1..=ASKS {
            let now = nth_token_at(n, rate);
            let step = token_bucket::visit(&bucket, Some(&state), now, Cost::ONE, Verb::Take);
            state = step.spend.unwrap_or_else(|| panic!("{rate}: ask {n} refused, {:?}", step.decision));
            assert_eq!(step.decision.remaining, 0, "{rate}: ask {n} found more than one token");
        }
    }
}

#[test]
fn a_microsecond_before_the_token_every_ask_is_refused() {
    for rate in ["3/s", "7/s", "999983/day"] {
        let rate = Rate::parse(rate).unwrap();
        let bucket = TokenBucket::try_new(rate, 2).unwrap();
        let mut state = emptied(&bucket);
        for n in 1..=ASKS / 10 {
            let now = nth_token_at(n, rate);
            let early = token_bucket::visit(&bucket, Some(&state), now - Micros(1), Cost::ONE, Verb::Take);
            assert_eq!(early.decision.outcome, Outcome::Denied { retry_after: Micros(1) }, "{rate}: ask {n}");
            state = token_bucket::visit(&bucket, Some(&state), now, Cost::ONE, Verb::Take).spend.unwrap();
        }
    }
}

/// However often the bucket is looked into, what passes is ⌊rate · time⌋ and not one less.
#[test]
fn a_million_asks_too_many_get_exactly_the_rate() {
    for (rate, every) in [("3/s", 99_991), ("7/s", 101), ("999983/day", 86_371), ("3/11s", 1_000_003)] {
        let rate = Rate::parse(rate).unwrap();
        let bucket = TokenBucket::try_new(rate, 10).unwrap();
        let mut state = emptied(&bucket);
        let mut admitted: u128 = 0;
        for n in 1..=ASKS {
            let now = Micros(START + n * every);
            let step = token_bucket::visit(&bucket, Some(&state), now, Cost::ONE, Verb::Take);
            admitted += u128::from(step.spend.is_some());
            state = step.spend.unwrap_or(state);
        }
        let elapsed = u128::from(ASKS * every);
        assert_eq!(
            admitted,
            u128::from(rate.count()) * elapsed / u128::from(rate.span().unwrap().0),
            "{rate}"
        );
    }
}

#[test]
fn the_full_rate_passes_a_sliding_log() {
    for rate in ["3/s", "7/s", "10/s", "61/min"] {
        let rate = Rate::parse(rate).unwrap();
        let sliding = SlidingLog::try_new(rate, sliding_log::LIMIT_MAX).unwrap();
        let mut log = Log::default();
        for n in 0..ASKS / 20 {
            let now = nth_token_at(n, rate);
            let step = sliding_log::visit(&sliding, Some(&log), now, Cost::ONE, Verb::Take);
            log.apply(&step.spend.unwrap_or_else(|| panic!("{rate}: ask {n} refused")));
        }
    }
}

/// Asks at exactly the rate, the first of them `phase` after a window began. How many were refused?
fn refused_at_the_rate(rate: Rate, phase: u64, asks: u64) -> u64 {
    let sliding = SlidingWindow::try_new(rate).unwrap();
    let (mut state, mut refused) = (None, 0);
    for n in 0..asks {
        let now = nth_token_at(n, rate) + Micros(phase);
        let step = sliding_window::visit(&sliding, state.as_ref(), now, Cost::ONE, Verb::Take);
        refused += u64::from(step.spend.is_none());
        state = step.spend.or(state);
    }
    refused
}

#[test]
fn the_full_rate_passes_a_sliding_window() {
    for rate in ["3/s", "7/s", "10/s", "61/min"] {
        for phase in [1, 2, 1_000, 33_333, 99_999] {
            assert_eq!(
                refused_at_the_rate(Rate::parse(rate).unwrap(), phase, 100_000),
                0,
                "{rate} at {phase}us"
            );
        }
    }
}

/// The known exception: at the very microsecond at which a window begins, all of the window before it
/// still counts, and so one ask in two windows must wait for the next microsecond.
#[test]
fn a_sliding_window_refuses_one_of_the_full_rate_in_two_windows_that_beats_on_its_edge() {
    assert_eq!(refused_at_the_rate(Rate::parse("10/s").unwrap(), 0, 100_000), 100_000 / 20);
}

/// During a rolling reload two instances visit one key under two limits, by turns. Each visit
/// carries the tokens over, and what that rounds away must not add up.
#[test]
fn two_limits_by_turns_do_not_starve_a_key() {
    let rate = Rate::parse("1/s").unwrap();
    let buckets = [10, 11].map(|burst| TokenBucket::try_new(rate, burst).unwrap());
    let mut state = emptied(&buckets[0]);
    let mut admitted = 0;
    for visit in 1..=20_000_u64 {
        let bucket = &buckets[usize::try_from(visit % 2).unwrap()];
        let step =
            token_bucket::visit(bucket, Some(&state), Micros(START + visit * 50_000), Cost::ONE, Verb::Take);
        admitted += u32::from(step.decision.outcome == Outcome::Allowed);
        state = step.spend.or(step.mend).unwrap_or(state);
    }
    // A token is a tenth of one bucket and an eleventh of the other, so up to a tenth more may pass.
    assert!((998..=1100).contains(&admitted), "admitted {admitted} in 1000 s at 1/s");
}
