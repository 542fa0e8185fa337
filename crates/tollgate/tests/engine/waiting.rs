//! Waiting until an ask passes, on paused time.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::core::decision::{Decision, Found, Outcome, Take};
use tollgate::{Answer, Ask, Micros, OnOutage, Source};

use crate::stand::{Manner, START, away, puppet, rule, want};

fn decision(outcome: Outcome) -> Decision {
    let take = Take { at: START, entry: 0 };
    Decision { outcome, limit: 9, remaining: 0, reset_after: Micros::SECOND, take, found: Found::State }
}

fn denied(millis: u64) -> Decision {
    decision(Outcome::Denied { retry_after: Micros::from_millis(millis) })
}

/// Waits at most a second for scripted answers; how long it took, and how often it asked.
async fn wait(decisions: &[Decision]) -> (Answer, Duration, u32) {
    let (builder, strings) = puppet(vec![rule("login", &["9/s"], None)]);
    let engine = builder.build();
    strings.script(decisions.iter().copied());
    let started = Instant::now();
    let wants = [want("login", "ann", 1)];
    let verdict = engine.wait(&Ask { wants: &wants }, Duration::from_secs(1)).await;
    (verdict.answer, started.elapsed(), strings.called())
}

#[tokio::test(start_paused = true)]
async fn what_passes_is_not_waited_for() {
    assert_eq!(wait(&[decision(Outcome::Allowed)]).await, (Answer::Allowed, Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn a_wait_lasts_exactly_as_long_as_the_refusal_says() {
    let allowed = decision(Outcome::Allowed);
    assert_eq!(wait(&[denied(300), allowed]).await, (Answer::Allowed, Duration::from_millis(300), 2));
    // Somebody else was quicker, twice.
    let waited = wait(&[denied(300), denied(200), denied(500), allowed]).await;
    assert_eq!(waited, (Answer::Allowed, Duration::from_secs(1), 4));
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_vain_is_not_begun() {
    assert_eq!(wait(&[denied(1001)]).await, (Answer::Refused, Duration::ZERO, 1));
    let waited = wait(&[denied(600), denied(401)]).await;
    assert_eq!(waited, (Answer::Refused, Duration::from_millis(600), 2), "what is left is not enough");
    assert_eq!(wait(&[decision(Outcome::Never)]).await, (Answer::Refused, Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn an_ask_that_cannot_be_understood_is_not_waited_for() {
    let (builder, strings) = puppet(vec![]);
    let wants = [want("nothing", "ann", 1)];
    let started = Instant::now();
    let verdict = builder.build().wait(&Ask { wants: &wants }, Duration::from_secs(1)).await;
    assert!(matches!(verdict.answer, Answer::Invalid(_)));
    assert_eq!((started.elapsed(), strings.called()), (Duration::ZERO, 0));
}

/// An outage ends while somebody waits: the next answer is the store's.
#[tokio::test(start_paused = true)]
async fn a_wait_outlasts_an_outage() {
    let (builder, strings) = puppet(vec![rule("login", &["9/s"], OnOutage::Deny)]);
    let engine = builder.build();
    strings.calls(Manner::Errs(away()));
    let started = Instant::now();
    let told = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        strings.calls(Manner::Answers);
    };
    let wants = [want("login", "ann", 1)];
    let ask = Ask { wants: &wants };
    let (verdict, ()) = tokio::join!(engine.wait(&ask, Duration::from_secs(5)), told);
    assert_eq!((verdict.answer, verdict.source), (Answer::Allowed, Source::Store));
    assert_eq!(started.elapsed(), Duration::from_secs(1), "`deny` says to come back after a second");
}
