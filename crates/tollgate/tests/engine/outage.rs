//! What each `on_outage` answers, and what one instance's share of a limit is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::core::decision::{Outcome, Verb};
use tollgate::observe::Observer;
use tollgate::{Answer, Ask, Engine, InlineLimit, Kind, Micros, OnOutage, Rate, Rule, Source};

use crate::stand::{
    Ear, Manner, Puppet, Strings, away, bucket, decide, drain, left, limit, memory, puppet, rule, want,
};

const DAY_US: u64 = 86_400_000_000;

/// An engine whose store is away for good, sharing among at least `instances`, and its local clock.
fn cut_off(rules: Vec<Rule>, instances: u32) -> (Engine<Puppet>, Arc<Strings>, Arc<AtomicU64>) {
    let (builder, strings) = puppet(rules);
    let (local, hand) = memory();
    strings.all(&Manner::Errs(away()));
    (builder.instances(instances).local(local).build(), strings, hand)
}

#[tokio::test(start_paused = true)]
async fn each_rule_answers_as_it_says() {
    let rules = vec![
        rule("open", &["2/min"], OnOutage::Allow),
        rule("shut", &["2/min"], OnOutage::Deny),
        rule("own", &["2/min"], OnOutage::Local),
    ];
    let (engine, _, _) = cut_off(rules, 1);
    for _ in 0..9 {
        let verdict = decide(&engine, "open", "ann", 1).await;
        assert_eq!((&verdict.answer, verdict.source), (&Answer::Allowed, Source::Fallback(OnOutage::Allow)));
        let decision = verdict.checks[0].decision;
        assert_eq!((decision.limit, decision.remaining), (2, 2));
        assert_eq!(decision.reset_after, Micros::from_secs(60));

        let verdict = decide(&engine, "shut", "ann", 1).await;
        assert_eq!((&verdict.answer, verdict.source), (&Answer::Refused, Source::Fallback(OnOutage::Deny)));
        assert_eq!(verdict.retry_after(), Some(Micros::SECOND));
        assert_eq!(verdict.checks[0].decision.remaining, 0);
    }
    assert_eq!(drain(&engine, "own", "ann").await, 2);
    let verdict = decide(&engine, "own", "ann", 1).await;
    assert_eq!(
        (verdict.source, verdict.retry_after()),
        (Source::Fallback(OnOutage::Local), Some(Micros::from_secs(30)))
    );
    assert_eq!(verdict.rule().map(Rule::name), Some("own"));
}

#[tokio::test(start_paused = true)]
async fn what_names_no_choice_takes_the_engines() {
    for choice in [None, Some(OnOutage::Allow), Some(OnOutage::Deny), Some(OnOutage::Local)] {
        let (builder, strings) = puppet(vec![rule("plain", &["2/min"], None)]);
        strings.all(&Manner::Errs(away()));
        let builder = match choice {
            None => builder,
            Some(choice) => builder.on_outage(choice),
        };
        let engine = builder.build();
        let expected = Source::Fallback(choice.unwrap_or(OnOutage::Local));
        assert_eq!(decide(&engine, "plain", "ann", 1).await.source, expected);
        let inline = InlineLimit::new(bucket("2/min"), Rate::parse("2/min").unwrap().period());
        assert_eq!(engine.check("ann", &inline).await.source, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn one_rule_that_denies_refuses_the_ask_and_nothing_local_is_spent() {
    let rules = vec![
        rule("open", &["2/min"], OnOutage::Allow),
        rule("own", &["2/min"], OnOutage::Local),
        rule("shut", &["2/min"], OnOutage::Deny),
    ];
    let (engine, _, _) = cut_off(rules, 1);
    let all = [want("open", "ann", 1), want("own", "ann", 1), want("shut", "ann", 1)];
    for _ in 0..5 {
        let verdict = engine.decide(&Ask { wants: &all }).await;
        assert_eq!((&verdict.answer, verdict.source), (&Answer::Refused, Source::Fallback(OnOutage::Deny)));
        assert_eq!(verdict.rule().map(Rule::name), Some("shut"));
    }
    assert_eq!(left(&engine, "own", "ann").await, [2], "a refusal spends nothing");

    // Without it, the local ones decide.
    for is_allowed in [true, true, false] {
        let verdict = engine.decide(&Ask { wants: &all[..2] }).await;
        assert_eq!((verdict.is_allowed(), verdict.source), (is_allowed, Source::Fallback(OnOutage::Local)));
    }
    // A peek under an outage spends nothing either.
    for _ in 0..3 {
        assert_eq!(left(&engine, "own", "bob").await, [2]);
    }
    // Two local rules are spent together or not at all.
    let two = [want("own", "ann", 1), want("own", "bob", 1)];
    assert!(!engine.decide(&Ask { wants: &two }).await.is_allowed());
    assert_eq!(left(&engine, "own", "bob").await, [2]);
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_limit_never_passes_whatever_the_rule_says() {
    for choice in [OnOutage::Allow, OnOutage::Deny, OnOutage::Local] {
        let rules = vec![rule("login", &["5/min"], choice), rule("own", &["5/min"], OnOutage::Local)];
        let (engine, _, _) = cut_off(rules, 3);
        let verdict = decide(&engine, "login", "ann", 6).await;
        assert_eq!(verdict.answer, Answer::Refused, "{choice}");
        assert_eq!(verdict.checks[0].decision.outcome, Outcome::Never, "{choice}");
        assert_eq!(verdict.retry_after(), None);
        let before = left(&engine, "own", "ann").await;
        let wants = [want("login", "ann", 6), want("own", "ann", 1)];
        assert!(!engine.decide(&Ask { wants: &wants }).await.is_allowed());
        assert_eq!(left(&engine, "own", "ann").await, before, "{choice}");
    }
}

/// Rate r/n to the microsecond, burst ⌊C/n⌋, and the caller still reads the rule's own limit.
#[tokio::test(start_paused = true)]
async fn one_of_four_has_a_quarter() {
    let (engine, _, hand) = cut_off(vec![rule("login", &["100/min"], OnOutage::Local)], 4);
    let verdict = decide(&engine, "login", "ann", 1).await;
    assert_eq!((verdict.checks[0].decision.limit, verdict.checks[0].decision.remaining), (100, 24));
    assert_eq!(drain(&engine, "login", "ann").await, 24);
    // 25 a minute is one in 2.4 seconds.
    for _ in 0..50 {
        let verdict = decide(&engine, "login", "ann", 1).await;
        assert_eq!(verdict.retry_after(), Some(Micros(2_400_000)));
        hand.fetch_add(2_399_999, Ordering::SeqCst);
        assert_eq!(decide(&engine, "login", "ann", 1).await.retry_after(), Some(Micros(1)));
        hand.fetch_add(1, Ordering::SeqCst);
        assert!(decide(&engine, "login", "ann", 1).await.is_allowed());
    }
    hand.fetch_add(DAY_US, Ordering::SeqCst);
    assert_eq!(drain(&engine, "login", "ann").await, 25, "and never more at once");
}

#[tokio::test(start_paused = true)]
async fn every_kind_is_shared() {
    for kind in Kind::ALL {
        let rule = Rule::try_new("login", vec![limit(kind, "100/min")], Some(OnOutage::Local)).unwrap();
        let (engine, _, hand) = cut_off(vec![rule], 8);
        assert_eq!(drain(&engine, "login", "ann").await, 12, "{kind}: ⌊100/8⌋");
        hand.fetch_add(DAY_US, Ordering::SeqCst);
        assert_eq!(drain(&engine, "login", "ann").await, 12, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_share_is_at_least_one_and_at_least_what_is_asked() {
    let rules = vec![rule("few", &["3/min"], OnOutage::Local), rule("many", &["100/min"], OnOutage::Local)];
    let (engine, _, hand) = cut_off(rules, 10);
    assert_eq!(drain(&engine, "few", "ann").await, 1);
    let verdict = decide(&engine, "few", "ann", 1).await;
    assert_eq!(verdict.retry_after(), Some(Micros::from_secs(200)), "3 a minute among ten");

    // An ask of 50 fits into the whole limit, so it fits into a share, if rarely.
    assert!(decide(&engine, "many", "bob", 50).await.is_allowed());
    let verdict = decide(&engine, "many", "bob", 50).await;
    assert_eq!(verdict.retry_after(), Some(Micros::from_secs(300)), "50 at 10 a minute");
    hand.fetch_add(300_000_000, Ordering::SeqCst);
    assert!(decide(&engine, "many", "bob", 50).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_share_is_by_the_instances_last_seen_and_never_below_those_configured() {
    let (builder, strings) = puppet(vec![rule("login", &["100/min"], OnOutage::Local)]);
    strings.instances(10);
    let engine = builder.instances(4).build();
    assert_eq!(engine.health().instances, 4, "before the first heartbeat");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(engine.health().instances, 10);
    strings.calls(Manner::Errs(away()));
    assert_eq!(drain(&engine, "login", "ann").await, 10);
    // Fewer are believed only after a while, and never fewer than are configured.
    strings.instances(1);
    tokio::time::sleep(Duration::from_millis(1300)).await;
    assert_eq!(engine.health().instances, 10);
}

/// Nothing is cleared when the store comes back: an outage of seconds is no refill.
#[tokio::test(start_paused = true)]
async fn a_share_that_was_spent_stays_spent_over_a_recovery() {
    let (engine, strings, _) = cut_off(vec![rule("login", &["100/min"], OnOutage::Local)], 4);
    assert_eq!(drain(&engine, "login", "ann").await, 25);
    strings.all(&Manner::Answers);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(decide(&engine, "login", "ann", 1).await.source, Source::Store);
    strings.all(&Manner::Errs(away()));
    assert_eq!(drain(&engine, "login", "ann").await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_who_answered_for_the_store() {
    let rules = vec![rule("open", &["2/min"], OnOutage::Allow), rule("own", &["2/min"], None)];
    let (builder, strings) = puppet(rules);
    let ear = Arc::new(Ear::default());
    let engine = builder.observer(Arc::clone(&ear) as Arc<dyn Observer>).build();
    strings.all(&Manner::Errs(away()));
    decide(&engine, "open", "ann", 1).await;
    left(&engine, "own", "ann").await;
    let heard: Vec<_> = ear.decided().into_iter().map(|heard| (heard.verb, heard.source)).collect();
    let expected =
        [(Verb::Take, Source::Fallback(OnOutage::Allow)), (Verb::Peek, Source::Fallback(OnOutage::Local))];
    assert_eq!(heard, expected);
    assert_eq!(ear.errors(), ["unreachable", "unreachable"]);
}

#[tokio::test(start_paused = true)]
async fn costs_that_change_do_not_lift_the_rate_of_a_share() {
    let (engine, _, hand) = cut_off(vec![rule("many", &["100/min"], OnOutage::Local)], 10);
    let mut admitted = 0;
    // For ten minutes, a small ask and then a large one, each second.
    for _ in 0..600 {
        for cost in [1, 50] {
            if decide(&engine, "many", "ann", cost).await.is_allowed() {
                admitted += cost;
            }
        }
        hand.fetch_add(1_000_000, Ordering::SeqCst);
    }
    assert!(admitted <= 50 + 10 * 10, "{admitted} in ten minutes, of ten a minute");
}

/// A share's burst follows the ask's cost. If it were the bucket's capacity, whoever waits for a small
/// one to be full and then asks for much would have `cost ÷ ⌊C/n⌋` times the rate of the share.
#[tokio::test(start_paused = true)]
async fn a_full_small_share_is_no_full_large_one() {
    let (engine, _, hand) = cut_off(vec![rule("many", &["100/min"], OnOutage::Local)], 10);
    let mut admitted = 0;
    for _ in 0..10 {
        for cost in [50, 1] {
            if decide(&engine, "many", "ann", cost).await.is_allowed() {
                admitted += cost;
            }
        }
        hand.fetch_add(60_000_000, Ordering::SeqCst);
    }
    assert!(admitted <= 50 + 10 * 10, "{admitted} in ten minutes, of ten a minute");
}
