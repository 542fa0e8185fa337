//! Several checks of one ask.

use tollgate_core::algorithm::Kind;
use tollgate_core::decision::Outcome;
use tollgate_core::store::Store;
use tollgate_core::units::Cost;

use super::{algorithm, bucket, builder, check, passes, ready, scope, take};

#[test]
fn a_refused_ask_spends_nothing_and_leaves_no_key() {
    let (builder, _hand) = builder();
    let store = builder.build();
    let (wide, narrow) = (bucket("1/s", 10), bucket("1/s", 1));
    let (scope_wide, log) = (scope(&wide), algorithm(Kind::SlidingLog, "10/s", None));
    let scope_log = scope(&log);
    assert!(passes(&store, check(&scope_wide, "narrow", &narrow)));

    let asked = [
        check(&scope_wide, "wide", &wide),
        check(&scope_log, "log", &log),
        check(&scope_wide, "narrow", &narrow),
        check(&scope_wide, "later", &wide),
    ];
    let decisions = ready(store.take(&asked)).unwrap();

    assert!(matches!(decisions[2].outcome, Outcome::Denied { .. }));
    assert_eq!([0, 1, 3].map(|at| decisions[at].outcome), [Outcome::Allowed; 3]);
    assert_eq!([0, 1, 3].map(|at| decisions[at].remaining), [10; 3]);
    assert_eq!(store.live_keys(), 1);
}

/// Both are newcomers of one scope and limit, so at the bound they meet in one bucket.
#[test]
fn two_checks_that_meet_in_one_overflow_bucket_are_both_charged() {
    let (builder, _hand) = builder();
    let store = builder.max_keys(1).build();
    let limit = bucket("1/h", 3);
    let scope = scope(&limit);
    assert!(passes(&store, check(&scope, "resident", &limit)));

    let pair = [check(&scope, "a", &limit), check(&scope, "b", &limit)];
    assert!(ready(store.take(&pair)).unwrap().iter().all(|d| d.outcome == Outcome::Allowed));
    let second = ready(store.take(&pair)).unwrap();
    assert_eq!(second[0].outcome, Outcome::Allowed);
    assert!(matches!(second[1].outcome, Outcome::Denied { .. }));

    // One of the three is still there: the refused pair gave back what its first check took.
    assert_eq!(take(&store, check(&scope, "c", &limit)).remaining, 0);
    assert!(!passes(&store, check(&scope, "d", &limit)));
}

#[test]
fn an_ask_without_checks_has_no_decisions() {
    let (builder, _hand) = builder();
    let store = builder.build();
    assert!(ready(store.take(&[])).unwrap().is_empty());
    assert!(ready(store.peek(&[])).unwrap().is_empty());
}

#[test]
fn one_key_twice_in_an_ask_is_charged_twice() {
    let (builder, _hand) = builder();
    let store = builder.build();
    let limit = bucket("1/h", 3);
    let scope = scope(&limit);
    let twice = [check(&scope, "a", &limit), check(&scope, "a", &limit)];

    assert!(ready(store.take(&twice)).unwrap().iter().all(|d| d.outcome == Outcome::Allowed));
    assert!(ready(store.take(&twice)).unwrap().iter().any(|d| d.outcome != Outcome::Allowed));

    let mut rest = check(&scope, "a", &limit);
    rest.cost = Cost::new(2).unwrap();
    assert!(!passes(&store, rest));
    assert!(passes(&store, check(&scope, "a", &limit)));
}
