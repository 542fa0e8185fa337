//! The guard around a store that errs or hangs, on paused time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tollgate::core::store::{AtOnce, Spent, StoreError};
use tollgate::core::verdict::RefundAnswer;
use tollgate::engine::ForgetError;
use tollgate::observe::Observer;
use tollgate::{Ask, Cost, InlineLimit, OnOutage, Rate, Source, Want};

use crate::stand::{Ear, Manner, away, bucket, decide, puppet, rule, want};

const ALLOWED_BY_RULE: Source = Source::Fallback(OnOutage::Allow);

/// Time for an open guard to probe, however the jitter falls.
const PROBED: Duration = Duration::from_millis(200);

fn open_rule() -> Vec<tollgate::Rule> {
    vec![rule("login", &["9/s"], OnOutage::Allow)]
}

#[tokio::test(start_paused = true)]
async fn five_failures_in_a_row_open_the_guard_and_four_do_not() {
    let (builder, strings) = puppet(open_rule());
    let engine = builder.build();
    strings.all(&Manner::Errs(away()));
    for _ in 0..4 {
        assert_eq!(decide(&engine, "login", "ann", 1).await.source, ALLOWED_BY_RULE);
    }
    assert!(engine.health().outage.is_none(), "four opened it");
    decide(&engine, "login", "ann", 1).await;
    assert_eq!(engine.health().outage.unwrap().error, away());

    for _ in 0..100 {
        assert_eq!(decide(&engine, "login", "ann", 1).await.source, ALLOWED_BY_RULE);
    }
    assert_eq!(strings.called(), 5, "an open guard asks nobody");
}

#[tokio::test(start_paused = true)]
async fn an_open_guard_takes_none_of_those_that_come_together() {
    let (builder, strings) = puppet(open_rule());
    let engine = builder.failures_to_open(1).build();
    let limit = InlineLimit::new(bucket("9/s"), Rate::parse("9/s").unwrap().period());
    let asked = || [limit.check(b"ann", Cost::ONE).unwrap()].into_iter();
    let mut decided = 0;
    assert_eq!(engine.take_each(asked(), |_| decided += 1), AtOnce::Done);
    strings.all(&Manner::Errs(away()));
    decide(&engine, "login", "ann", 1).await;
    assert_eq!(engine.take_each(asked(), |_| decided += 1), AtOnce::MustWait);
    assert_eq!((decided, strings.called()), (1, 2));
}

/// It once did not, for a store that answers at once.
#[tokio::test(start_paused = true)]
async fn a_success_between_failures_ends_the_row() {
    let (builder, strings) = puppet(open_rule());
    let engine = builder.build();
    for _ in 0..10 {
        strings.calls(Manner::Errs(away()));
        for _ in 0..4 {
            decide(&engine, "login", "ann", 1).await;
        }
        strings.calls(Manner::Answers);
        assert_eq!(decide(&engine, "login", "ann", 1).await.source, Source::Store);
    }
    assert!(engine.health().outage.is_none());
    assert_eq!(strings.called(), 50);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_failures_can_be_set() {
    let (builder, strings) = puppet(open_rule());
    let engine = builder.failures_to_open(2).build();
    strings.all(&Manner::Errs(away()));
    decide(&engine, "login", "ann", 1).await;
    assert!(engine.health().outage.is_none());
    decide(&engine, "login", "ann", 1).await;
    assert!(engine.health().outage.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_costs_the_deadline_and_then_nothing() {
    for deadline_ms in [25, 7, 300] {
        let (builder, strings) = puppet(open_rule());
        let deadline = Duration::from_millis(deadline_ms);
        let ear = Arc::new(Ear::default());
        let builder = builder.observer(Arc::clone(&ear) as Arc<dyn Observer>);
        let engine = if deadline_ms == 25 { builder.build() } else { builder.deadline(deadline).build() };
        strings.all(&Manner::Hangs);
        for _ in 0..20 {
            let started = Instant::now();
            assert_eq!(decide(&engine, "login", "ann", 1).await.source, ALLOWED_BY_RULE);
            let waited = started.elapsed();
            assert!(waited.is_zero() || waited == deadline, "waited {waited:?} of {deadline:?}");
        }
        let started = Instant::now();
        decide(&engine, "login", "ann", 1).await;
        assert_eq!(started.elapsed(), Duration::ZERO, "the guard is open");
        assert_eq!(engine.health().outage.unwrap().error, StoreError::TimedOut { waited: deadline });
        assert!(ear.errors().iter().all(|name| *name == "timeout"), "{:?}", ear.errors());
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_closes_the_guard_and_each_change_is_heard_once() {
    let (builder, strings) = puppet(open_rule());
    let ear = Arc::new(Ear::default());
    let engine = builder.observer(Arc::clone(&ear) as Arc<dyn Observer>).build();
    for round in 1..=3 {
        strings.all(&Manner::Errs(away()));
        for _ in 0..50 {
            decide(&engine, "login", "ann", 1).await;
        }
        let (called, beaten) = (strings.called(), strings.beaten());
        tokio::time::sleep(PROBED).await;
        assert!(strings.beaten() > beaten, "nobody probes");
        assert!(engine.health().outage.is_some(), "a probe that fails closes nothing");
        // Calls alone cannot close it: they are not made.
        strings.calls(Manner::Answers);
        assert_eq!(decide(&engine, "login", "ann", 1).await.source, ALLOWED_BY_RULE);
        assert_eq!(strings.called(), called);

        strings.heartbeats(Manner::Answers);
        tokio::time::sleep(PROBED).await;
        assert!(engine.health().outage.is_none(), "not closed after {PROBED:?}");
        assert_eq!(decide(&engine, "login", "ann", 1).await.source, Source::Store);
        let changes: Vec<String> =
            (0..round).flat_map(|_| [format!("opened: {}", away()), "closed".to_owned()]).collect();
        assert_eq!(ear.changes(), changes);
    }
    assert!(ear.errors().iter().all(|name| *name == "unreachable"));
}

#[tokio::test(start_paused = true)]
async fn heartbeats_alone_find_an_outage_that_no_ask_has_met() {
    let (builder, strings) = puppet(open_rule());
    strings.heartbeats(Manner::Errs(away()));
    let engine = builder.build();
    // Five heartbeats, a second and a jitter apart.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(engine.health().outage.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_refund_and_a_forget_say_that_they_were_not_done() {
    let (builder, strings) = puppet(open_rule());
    let engine = builder.build();
    let takes = [decide(&engine, "login", "ann", 1).await.checks[0].decision.take];
    let wants = [Want { takes: &takes, ..want("login", "ann", 1) }];
    let ask = Ask { wants: &wants };

    strings.all(&Manner::Hangs);
    let RefundAnswer::NotDone { why } = engine.refund(&ask).await else { panic!("done") };
    assert_eq!(why.spent(), Spent::Unknown, "it may have been given back");
    let Err(ForgetError::Store(why)) = engine.forget(&ask).await else { panic!("forgotten") };
    assert_eq!(why.name(), "timeout");

    strings.all(&Manner::Errs(away()));
    for _ in 0..5 {
        engine.refund(&ask).await;
    }
    let called = strings.called();
    let RefundAnswer::NotDone { why } = engine.refund(&ask).await else { panic!("done") };
    assert_eq!((why.spent(), strings.called()), (Spent::Nothing, called), "not even sent");
}

/// Nobody's ask waits for the board, and it is looked at so often that it would open any guard.
#[tokio::test(start_paused = true)]
async fn a_board_out_of_reach_is_no_outage() {
    let (builder, strings) = puppet(open_rule());
    let ear = Arc::new(Ear::default());
    let engine = builder.observer(Arc::clone(&ear) as Arc<dyn Observer>).build();
    strings.calls(Manner::Errs(away()));
    for _ in 0..20 {
        assert_eq!(engine.board(0).await, Err(away()));
        assert_eq!(engine.post(b"name", None).await, Err(away()));
    }
    strings.calls(Manner::Hangs);
    let started = Instant::now();
    assert_eq!(engine.board(0).await.unwrap_err().spent(), Spent::Unknown);
    assert_eq!(started.elapsed(), Duration::from_millis(500));
    assert!(engine.health().outage.is_none());
    assert_eq!(ear.errors().len(), 41, "but it is counted");

    strings.calls(Manner::Answers);
    assert_eq!(decide(&engine, "login", "ann", 1).await.source, Source::Store);
    assert_eq!(engine.board(0).await, Ok(None));
}
