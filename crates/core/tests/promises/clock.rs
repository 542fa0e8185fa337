//! What a clock that steps may do, and what it may not: the stories behind the rule of one second.

use tollgate_core::algorithm::sliding_log::{self, Log, SlidingLog};
use tollgate_core::algorithm::sliding_window::{self, SlidingWindow};
use tollgate_core::algorithm::token_bucket::{self, State, TokenBucket};
use tollgate_core::decision::{Outcome, Verb};
use tollgate_core::limit::Rate;
use tollgate_core::units::{Cost, Micros};

const START: Micros = Micros(1_700_000_000_000_000);

fn bucket(rate: &str, burst: u32) -> TokenBucket {
    TokenBucket::try_new(Rate::parse(rate).unwrap(), burst).unwrap()
}

fn take(bucket: &TokenBucket, state: &mut Option<State>, now: Micros) -> Outcome {
    let step = token_bucket::visit(bucket, state.as_ref(), now, Cost::ONE, Verb::Take);
    *state = step.spend.or(step.mend).or(*state);
    step.decision.outcome
}

/// The clock was an hour ahead when the bucket was emptied. A refusal that did not write the time down
/// would be repeated at every visit for the next hour.
#[test]
fn a_long_step_back_locks_nobody_out() {
    let bucket = bucket("10/s", 1);
    let mut state = None;
    assert_eq!(take(&bucket, &mut state, START + Micros::from_secs(3600)), Outcome::Allowed);

    let retry_after = Micros::from_millis(100);
    assert_eq!(take(&bucket, &mut state, START), Outcome::Denied { retry_after });
    assert_eq!(take(&bucket, &mut state, START + retry_after), Outcome::Allowed);
}

#[test]
fn a_clock_that_trembles_mints_no_tokens() {
    let bucket = bucket("10/s", 1);
    let mut state = None;
    let mut admitted = 0;
    for n in 0..1_000 {
        // To and fro by half a second, for a thousand asks and no time at all.
        let now = if n % 2 == 0 { START } else { START - Micros::from_millis(500) };
        admitted += u32::from(take(&bucket, &mut state, now) == Outcome::Allowed);
    }
    assert_eq!(admitted, 1);
}

#[test]
fn a_short_step_back_is_added_to_the_wait() {
    let bucket = bucket("10/s", 1);
    let mut state = None;
    assert_eq!(take(&bucket, &mut state, START), Outcome::Allowed);
    let now = START - Micros::SECOND;
    let retry_after = Micros::from_millis(1_100);
    assert_eq!(take(&bucket, &mut state, now), Outcome::Denied { retry_after });
    assert_eq!(take(&bucket, &mut state, now + retry_after), Outcome::Allowed);
}

#[test]
fn a_log_drops_what_a_fast_clock_wrote() {
    let sliding = SlidingLog::try_new(Rate::parse("2/min").unwrap(), 10).unwrap();
    let mut log = Log::default();
    for now in [START, START + Micros::from_secs(30)] {
        let step = sliding_log::visit(&sliding, Some(&log), now, Cost::ONE, Verb::Take);
        log.apply(&step.spend.unwrap());
    }
    let now = START + Micros::from_secs(10);
    let two = Cost::new(2).unwrap();
    let step = sliding_log::visit(&sliding, Some(&log), now, two, Verb::Take);
    let retry_after = Micros::from_secs(50);
    assert_eq!(step.decision.outcome, Outcome::Denied { retry_after });
    log.apply(&step.mend.expect("what the fast clock wrote goes, though the ask is refused"));
    assert_eq!(log.latest(), Some(START));
    let step = sliding_log::visit(&sliding, Some(&log), now + retry_after, two, Verb::Take);
    assert_eq!(step.decision.outcome, Outcome::Allowed);
}

/// A sum that saturates at the largest number there is must not be mistaken for one that fits.
#[test]
fn the_largest_limit_is_a_limit() {
    let most = Cost::new(u32::MAX).unwrap();
    let rate = Rate::try_new(u32::MAX, Micros::SECOND).unwrap();
    let sliding = SlidingWindow::try_new(rate).unwrap();
    let step = sliding_window::visit(&sliding, None, START, most, Verb::Take);
    let step = sliding_window::visit(&sliding, step.spend.as_ref(), START, Cost::ONE, Verb::Take);
    assert_eq!(step.decision.outcome, Outcome::Denied { retry_after: Micros(1_000_001) });

    let sliding = SlidingLog::try_new(rate, u32::MAX).unwrap();
    let mut log = Log::default();
    log.apply(&sliding_log::visit(&sliding, None, START, most, Verb::Take).spend.unwrap());
    let step = sliding_log::visit(&sliding, Some(&log), START, Cost::ONE, Verb::Take);
    assert_eq!(step.decision.outcome, Outcome::Denied { retry_after: Micros::SECOND });
}
