//! The promises, one by one.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_core::algorithm::Kind;
use tollgate_core::check::Check;
use tollgate_core::decision::{Decision, Found, Outcome, Returned};
use tollgate_core::store::{AtOnce, Store};

use super::TestTime;
use super::limits::{Limit, take};

/// Longer than any limit here takes to be whole again.
const LONG: Duration = Duration::from_hours(3);

pub(super) async fn a_new_limit_is_whole(store: &impl Store, kind: Kind) {
    let limit = Limit::new(kind, "5/h");
    let peeked = limit.peek(store, 5).await;
    assert_eq!(peeked.outcome, Outcome::Allowed, "{kind}");
    assert_eq!((peeked.limit, peeked.remaining, peeked.reset_after.0), (5, 5, 0), "{kind}");
    assert_eq!(peeked.found, Found::Nothing, "{kind}");
}

/// Spent one by one, refused, refused a microsecond before `retry_after`, and allowed at it.
pub(super) async fn a_limit_is_spent_and_comes_back(store: &impl Store, time: &impl TestTime, kind: Kind) {
    let limit = Limit::new(kind, "5/h");
    for left in [4, 3, 2, 1, 0] {
        let taken = limit.take(store, 1).await;
        assert_eq!((taken.outcome, taken.remaining), (Outcome::Allowed, left), "{kind}");
    }
    let retry_after = wait(&limit.take(store, 1).await);
    assert!(!retry_after.is_zero(), "{kind}");
    time.forward(retry_after);
    time.back(Duration::from_micros(1));
    assert_eq!(wait(&limit.take(store, 1).await), Duration::from_micros(1), "{kind}");
    time.forward(Duration::from_micros(1));
    let taken = limit.take(store, 1).await;
    assert_eq!(taken.outcome, Outcome::Allowed, "{kind}");

    time.forward(taken.reset_after.to_duration());
    let whole = limit.peek(store, 5).await;
    assert_eq!((whole.outcome, whole.remaining, whole.reset_after.0), (Outcome::Allowed, 5, 0), "{kind}");
}

pub(super) async fn a_refusal_changes_nothing(store: &impl Store, time: &impl TestTime, kind: Kind) {
    let limit = Limit::new(kind, "5/h");
    limit.take(store, 3).await;
    time.forward(Duration::from_micros(7));
    let before = limit.peek(store, 1).await;
    let refused = limit.take(store, 3).await;
    for _ in 0..10 {
        assert_eq!(limit.take(store, 3).await, refused, "{kind}: refused by the same numbers each time");
    }
    assert_eq!(limit.peek(store, 1).await, before, "{kind}");
    // And they were not counted either: the wait is as long as it was.
    time.forward(wait(&refused));
    assert_eq!(limit.take(store, 3).await.outcome, Outcome::Allowed, "{kind}");
}

pub(super) async fn a_peek_spends_nothing(store: &impl Store, kind: Kind) {
    let limit = Limit::new(kind, "5/h");
    let fresh = limit.peek(store, 2).await;
    assert_eq!(limit.peek(store, 2).await, fresh, "{kind}");
    limit.take(store, 2).await;
    for (cost, is_allowed) in [(3, true), (4, false)] {
        let peeked = limit.peek(store, cost).await;
        assert_eq!(peeked.outcome == Outcome::Allowed, is_allowed, "{kind} {cost}");
        assert_eq!(peeked.remaining, 3, "{kind}: a peek tells what is there");
        assert_eq!(peeked.found, Found::State, "{kind}");
    }
    assert_eq!(limit.take(store, 3).await.remaining, 0, "{kind}");
}

pub(super) async fn a_cost_above_the_limit_is_never(store: &impl Store, kind: Kind) {
    let limit = Limit::new(kind, "5/h");
    for cost in [6, u32::MAX] {
        let refused = limit.take(store, cost).await;
        assert_eq!((refused.outcome, refused.remaining), (Outcome::Never, 5), "{kind} {cost}");
    }
    limit.take(store, 5).await;
    assert_eq!(limit.take(store, 6).await.outcome, Outcome::Never, "{kind}: not even later");
}

pub(super) async fn a_refund_gives_back_and_never_above_the_limit(store: &impl Store, kind: Kind) {
    let limit = Limit::new(kind, "5/h");
    let first = limit.take(store, 3).await;
    let second = limit.take(store, 2).await;
    let refunded = limit.refund(store, 3, first.take).await;
    assert_eq!((refunded.returned, refunded.limit, refunded.remaining), (Returned::All, 5, 3), "{kind}");
    assert_eq!(limit.take(store, 4).await.remaining, 3, "{kind}: three came back, not four");
    let refunded = limit.refund(store, 2, second.take).await;
    assert_eq!((refunded.returned, refunded.remaining), (Returned::All, 5), "{kind}");
    assert_eq!(refunded.reset_after.0, 0, "{kind}: whole again");
    for cost in [1, 5, u32::MAX] {
        let refunded = limit.refund(store, cost, second.take).await;
        assert_eq!((refunded.returned, refunded.remaining), (Returned::Nothing, 5), "{kind}");
    }
    let last = limit.take(store, 5).await;
    assert_eq!(last.remaining, 0, "{kind}");
    let more = limit.refund(store, u32::MAX, last.take).await;
    assert_eq!(
        (more.returned, more.remaining),
        (Returned::Part, 5),
        "{kind}: what was not taken is not given"
    );
}

pub(super) async fn a_refund_of_an_older_window_gives_nothing(
    store: &impl Store,
    time: &impl TestTime,
    kind: Kind,
) {
    let limit = Limit::new(kind, "5/h");
    let old = limit.take(store, 5).await;
    time.forward(LONG);
    limit.take(store, 5).await;
    let refunded = limit.refund(store, 5, old.take).await;
    assert_eq!((refunded.returned, refunded.remaining), (Returned::Nothing, 0), "{kind}");
    assert_ne!(limit.take(store, 1).await.outcome, Outcome::Allowed, "{kind}");
}

pub(super) async fn a_refund_of_a_log_is_done_once(store: &impl Store) {
    let log = Limit::new(Kind::SlidingLog, "5/h");
    let taken = log.take(store, 2).await;
    log.take(store, 3).await;
    for returned in [Returned::All, Returned::Nothing, Returned::Nothing] {
        let refunded = log.refund(store, 2, taken.take).await;
        assert_eq!((refunded.returned, refunded.remaining), (returned, 2));
    }
}

pub(super) async fn forgetting_makes_whole(store: &impl Store, kind: Kind) {
    let (forgotten, kept) = (Limit::new(kind, "5/h"), Limit::new(kind, "5/h"));
    forgotten.take(store, 5).await;
    kept.take(store, 5).await;
    let never_seen = Limit::new(kind, "5/h");
    store.forget(&[forgotten.key(), never_seen.key()]).await.expect("the store answers");
    let peeked = forgotten.peek(store, 5).await;
    assert_eq!((peeked.outcome, peeked.remaining), (Outcome::Allowed, 5), "{kind}");
    assert_eq!(peeked.found, Found::Nothing, "{kind}");
    assert_eq!(kept.peek(store, 1).await.remaining, 0, "{kind}: another's is not forgotten");
}

/// A bucket keeps its share, the others keep their counts; nobody is refilled by an upgrade.
pub(super) async fn a_changed_limit_keeps_its_state(store: &impl Store, kind: Kind) {
    let limit = Limit::new(kind, "10/h");
    limit.take(store, 5).await;
    let more = limit.changed("20/h").peek(store, 1).await;
    let expected = if kind == Kind::TokenBucket { 10 } else { 15 };
    assert_eq!((more.limit, more.remaining, more.found), (20, expected, Found::State), "{kind}");
    let fewer = limit.changed("4/h").peek(store, 1).await;
    let expected = if kind == Kind::TokenBucket { 2 } else { 0 };
    assert_eq!((fewer.limit, fewer.remaining), (4, expected), "{kind}");
    assert_eq!(limit.peek(store, 1).await.remaining, 5, "{kind}: looking changed nothing");
    // An emptied limit stays empty, whatever it is changed to.
    limit.take(store, 5).await;
    let refused = limit.changed("5/h").take(store, 1).await;
    assert_ne!(refused.outcome, Outcome::Allowed, "{kind}");
}

pub(super) async fn a_small_step_back_neither_admits_nor_locks_out(
    store: &impl Store,
    time: &impl TestTime,
    kind: Kind,
) {
    let limit = Limit::new(kind, "5/s");
    limit.take(store, 5).await;
    let retry_after = wait(&limit.take(store, 1).await);
    for _ in 0..5 {
        time.back(Duration::from_millis(100));
        assert_ne!(limit.take(store, 1).await.outcome, Outcome::Allowed, "{kind}: a step mints nothing");
        time.forward(Duration::from_millis(100));
    }
    time.forward(retry_after);
    assert_eq!(limit.take(store, 1).await.outcome, Outcome::Allowed, "{kind}");
}

pub(super) async fn a_large_step_back_locks_nobody_out(store: &impl Store, time: &impl TestTime, kind: Kind) {
    let limit = Limit::new(kind, "5/s");
    limit.take(store, 5).await;
    time.back(LONG);
    let after_step = limit.take(store, 5).await;
    if let Outcome::Denied { .. } = after_step.outcome {
        assert!(wait(&after_step) <= Duration::from_secs(1), "{kind}: locked out for the step");
        time.forward(wait(&after_step));
        assert_eq!(limit.take(store, 5).await.outcome, Outcome::Allowed, "{kind}");
    }
    time.forward(LONG + LONG);
}

pub(super) async fn all_or_nothing(store: &impl Store) {
    for refuses in Kind::ALL {
        let empty = Limit::new(refuses, "2/h");
        empty.take(store, 2).await;
        let fresh = Kind::ALL.map(|kind| Limit::new(kind, "2/h"));
        let seen = Kind::ALL.map(|kind| Limit::new(kind, "5/h"));
        for limit in &seen {
            limit.take(store, 1).await;
        }
        for place in [0, 4, 8] {
            let mut checks: Vec<Check<'_>> = fresh.iter().chain(&seen).map(|limit| limit.check(2)).collect();
            checks.insert(place, empty.check(1));
            let decisions = take(store, &checks).await;
            for (at, decision) in decisions.iter().enumerate() {
                assert_eq!(decision.outcome != Outcome::Allowed, at == place, "{refuses} at {place}: {at}");
            }
            checks[place] = empty.check(3);
            assert_eq!(take(store, &checks).await[place].outcome, Outcome::Never, "{refuses}");
        }
        for (limit, left) in fresh.iter().map(|limit| (limit, 2)).chain(seen.iter().map(|limit| (limit, 4))) {
            let peeked = limit.peek(store, 1).await;
            assert_eq!(peeked.remaining, left, "{refuses} refused, {} was spent", limit.kind());
        }
        let checks: Vec<Check<'_>> = fresh.iter().chain(&seen).map(|limit| limit.check(2)).collect();
        let spent = take(store, &checks).await;
        let left: Vec<u32> = spent.iter().map(|decision| decision.remaining).collect();
        assert_eq!(left, [0, 0, 0, 0, 2, 2, 2, 2]);
    }
}

pub(super) async fn answers_come_in_the_order_asked(store: &impl Store) {
    let limits: Vec<Limit> = (1..=12_usize)
        .map(|count| Limit::new(Kind::ALL[(count * 7) % 4], &format!("{}/h", count * 10)))
        .collect();
    let checks: Vec<Check<'_>> = limits.iter().zip(1..).map(|(limit, cost)| limit.check(cost)).collect();
    for (decision, nth) in take(store, &checks).await.iter().zip(1..) {
        assert_eq!((decision.limit, decision.remaining), (nth * 10, nth * 9));
    }
    let backwards: Vec<Check<'_>> = checks.iter().rev().copied().collect();
    let peeked = store.peek(&backwards).await.expect("the store answers");
    for (decision, nth) in peeked.iter().rev().zip(1..) {
        assert_eq!((decision.limit, decision.remaining), (nth * 10, nth * 9));
    }
}

pub(super) async fn sixty_four_checks_are_one_ask(store: &impl Store) {
    let limits: Vec<Limit> = (0..64).map(|at| Limit::new(Kind::ALL[at % 4], "2/h")).collect();
    let checks: Vec<Check<'_>> = limits.iter().map(|limit| limit.check(1)).collect();
    for left in [1, 0] {
        let decisions = take(store, &checks).await;
        assert!(decisions.iter().all(|decision| decision.remaining == left));
        let at = decisions[0].take.at;
        assert!(decisions.iter().all(|decision| decision.take.at == at), "one ask is one instant");
    }
    assert!(take(store, &checks).await.iter().all(|decision| decision.outcome != Outcome::Allowed));
}

/// More of them than any store looks ahead, some for the same key, and some that do not fit.
pub(super) async fn each_by_itself_is_one_after_the_other(store: &impl Store, time: &impl TestTime) {
    let limits = || (0..20).map(|at| Limit::new(Kind::ALL[at % 4], "5/h")).collect::<Vec<Limit>>();
    let (together, single) = (limits(), limits());
    for count in [0, 1, 15, 16, 17, 32, 100] {
        let asked = (0_usize..count).map(|at| ((at * at) % 20, 1 + u32::try_from(at % 3).expect("is small")));
        let checks = asked.clone().map(|(at, cost)| together[at].check(cost));
        let mut decisions = Vec::new();
        match store.take_each(checks, |decision| decisions.push(*decision)) {
            AtOnce::Done => {
                for ((at, cost), decision) in asked.zip(&decisions) {
                    assert_eq!(single[at].take(store, cost).await, *decision, "{count}: {at}");
                }
                assert_eq!(decisions.len(), count);
            }
            AtOnce::MustWait => {
                assert!(decisions.is_empty());
                assert_eq!(together[0].peek(store, 1).await.found, Found::Nothing, "nothing was done");
            }
        }
        time.forward(Duration::from_mins(15));
    }
}

pub(super) async fn many_at_once_admit_exactly_the_limit<S: Store>(store: &Arc<S>, kind: Kind) {
    let limit = Arc::new(Limit::new(kind, "100/h"));
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (store, limit) = (Arc::clone(store), Arc::clone(&limit));
        tasks.spawn(async move {
            let mut admitted = 0_u32;
            for _ in 0..10 {
                admitted += u32::from(limit.take(&*store, 1).await.outcome == Outcome::Allowed);
                tokio::task::yield_now().await;
            }
            admitted
        });
    }
    let admitted: u32 = tasks.join_all().await.into_iter().sum();
    assert_eq!(admitted, 100, "{kind}: 200 asked, on a clock that stood still");
}

/// Two limits, always asked together: whoever reads them must find them spent alike.
pub(super) async fn many_at_once_spend_all_or_nothing<S: Store>(store: &Arc<S>) {
    let limits = Arc::new([
        Limit::new(Kind::TokenBucket, "60/h"),
        Limit::new(Kind::SlidingLog, "50/h"),
        Limit::new(Kind::FixedWindow, "70/h"),
    ]);
    let mut tasks = JoinSet::new();
    for task in 0..10 {
        let (store, limits) = (Arc::clone(store), Arc::clone(&limits));
        tasks.spawn(async move {
            let mut admitted = 0_u32;
            for _ in 0..10 {
                let mut checks: Vec<Check<'_>> = limits.iter().map(|limit| limit.check(1)).collect();
                // In another order each time: no order of locking may deadlock.
                checks.rotate_left(task % 3);
                let is_allowed =
                    take(&*store, &checks).await.iter().all(|one| one.outcome == Outcome::Allowed);
                admitted += u32::from(is_allowed);
                tokio::task::yield_now().await;
            }
            admitted
        });
    }
    let admitted: u32 = tasks.join_all().await.into_iter().sum();
    assert_eq!(admitted, 50);
    for (limit, left) in limits.iter().zip([10, 0, 20]) {
        assert_eq!(limit.peek(&**store, 1).await.remaining, left, "{}", limit.kind());
    }
}

/// What a refusal says must be waited.
fn wait(decision: &Decision) -> Duration {
    match decision.outcome {
        Outcome::Denied { retry_after } => retry_after.to_duration(),
        Outcome::Allowed | Outcome::Never => panic!("not refused for now: {decision:?}"),
    }
}
