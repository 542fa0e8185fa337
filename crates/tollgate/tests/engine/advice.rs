//! Rules that watch, limits that are tried out, lists and overrides: what they say, and that what only
//! watches never keeps what refuses from being charged.

use tollgate::core::attributes::{Attribute, Known};
use tollgate::core::policy::{KeyTemplate, List, Mode, Override, Overrides, Role};
use tollgate::core::verdict::Judged;
use tollgate::{Answer, Ask, By, Cost, Engine, MemoryStore, OnOutage, Rule, Source, Verdict, Want};

use super::stand::{Manner, bucket, decide, left, memory, policy, puppet, rule};

/// Rules of one limit each, under one key: `(name, rate, mode, candidate)`.
fn engine(rules: &[(&str, &str, Mode, Option<&str>)]) -> Engine<MemoryStore> {
    let rules = rules.iter().map(|(name, rate, mode, candidate)| {
        let builder = Rule::builder(name).key(KeyTemplate::parse("k").expect("it is one")).mode(*mode);
        let candidate = candidate.iter().map(|rate| bucket(rate)).collect();
        builder.limits(vec![bucket(rate)]).candidate(candidate).build().expect("it is one")
    });
    Engine::builder(memory().0).policy(policy(3, rules.collect())).build()
}

async fn by_attributes(engine: &Engine<MemoryStore>) -> Verdict {
    let known = Known::default();
    let want = Want { by: By::Attributes(&known), key: b"", cost: Cost::ONE, takes: &[] };
    engine.decide(&Ask { wants: &[want] }).await
}

fn remaining(verdict: &Verdict, role: Role) -> Vec<u32> {
    let of_role = |judged: &&Judged| judged.role == role;
    verdict.checks.iter().filter(of_role).map(|judged| judged.decision.remaining).collect()
}

#[tokio::test]
async fn a_shadow_rule_counts_and_never_refuses() {
    let engine = engine(&[("new", "2/h", Mode::Shadow, None)]);
    let mut told = Vec::new();
    for _ in 0..4 {
        let verdict = by_attributes(&engine).await;
        assert_eq!((&verdict.answer, verdict.source), (&Answer::Allowed, Source::Shadow));
        assert!(verdict.binding().is_none() && verdict.retry_after().is_none());
        told.push((
            verdict.checks[0].decision.outcome == tollgate::core::decision::Outcome::Allowed,
            remaining(&verdict, Role::Shadow),
        ));
    }
    assert_eq!(told, [(true, vec![1]), (true, vec![0]), (false, vec![0]), (false, vec![0])]);
}

#[tokio::test]
async fn a_full_shadow_rule_keeps_no_enforced_one_from_being_charged() {
    let engine = engine(&[("api", "5/h", Mode::Enforce, None), ("new", "1/h", Mode::Shadow, None)]);
    for left in [4, 3, 2] {
        let verdict = by_attributes(&engine).await;
        assert_eq!((&verdict.answer, verdict.source), (&Answer::Allowed, Source::Store));
        assert_eq!(remaining(&verdict, Role::Enforced), [left]);
        assert_eq!(verdict.rule().map(Rule::name), Some("api"));
    }
}

#[tokio::test]
async fn a_refused_ask_is_counted_by_nothing_that_watches_it() {
    let engine = engine(&[("api", "1/h", Mode::Enforce, Some("10/h")), ("new", "10/h", Mode::Shadow, None)]);
    assert!(by_attributes(&engine).await.is_allowed());
    for _ in 0..3 {
        let verdict = by_attributes(&engine).await;
        assert!(!verdict.is_allowed());
        assert_eq!(
            (remaining(&verdict, Role::Candidate), remaining(&verdict, Role::Shadow)),
            (vec![9], vec![9])
        );
    }
}

#[tokio::test]
async fn a_candidate_says_what_it_would_have_done() {
    let engine = engine(&[("api", "10/h", Mode::Enforce, Some("2/h"))]);
    let mut refusals = 0;
    for _ in 0..5 {
        let verdict = by_attributes(&engine).await;
        assert!(verdict.is_allowed());
        refusals += verdict
            .checks
            .iter()
            .filter(|judged| {
                judged.role == Role::Candidate
                    && judged.decision.outcome != tollgate::core::decision::Outcome::Allowed
            })
            .count();
    }
    assert_eq!(refusals, 3);
    // It lives beside the limit, not in it.
    assert_eq!(left(&engine, "api", "k").await, [5, 0]);
}

#[tokio::test]
async fn nothing_applies_and_nothing_is_limited() {
    let engine = engine(&[]);
    let verdict = by_attributes(&engine).await;
    assert_eq!((&verdict.answer, verdict.source), (&Answer::Allowed, Source::Unlimited));
    assert!(verdict.checks.is_empty());
}

#[tokio::test]
async fn a_deny_list_refuses_and_spends_nothing() {
    let deny = List { conditions: Vec::new(), keys: vec![b"eve"[..].into()] };
    let listed = Rule::builder("api").limits(vec![bucket("5/h")]).deny(deny).build().expect("it is one");
    let engine =
        Engine::builder(memory().0).policy(policy(1, vec![listed, rule("other", &["5/h"], None)])).build();
    let wants = ["api", "other"].map(|name| super::stand::want(name, "eve", 1));
    let verdict = engine.decide(&Ask { wants: &wants }).await;
    assert_eq!((&verdict.answer, verdict.source), (&Answer::Refused, Source::DenyList));
    assert_eq!((verdict.rule().map(Rule::name), verdict.retry_after()), (Some("api"), None));
    assert_eq!(left(&engine, "other", "eve").await, [5]);
}

#[tokio::test]
async fn overrides_hold_at_once_and_outlive_a_reload() {
    let engine = Engine::builder(memory().0).policy(policy(1, vec![rule("api", &["5/h"], None)])).build();
    assert_eq!(decide(&engine, "api", "ann", 1).await.checks[0].decision.remaining, 4);
    let mut overrides = Overrides::default();
    overrides.insert("api", b"ann", Override::Limits(vec![bucket("10/h")]));
    overrides.insert("api", b"eve", Override::Blocked);
    engine.swap_overrides(overrides);
    for version in [1, 2] {
        let verdict = decide(&engine, "api", "ann", 1).await;
        assert_eq!((verdict.checks[0].decision.limit, verdict.policy.version()), (10, version));
        assert_eq!(decide(&engine, "api", "eve", 1).await.source, Source::DenyList);
        assert_eq!(decide(&engine, "api", "bob", 1).await.checks[0].decision.limit, 5);
        engine.swap_policy(&policy(2, vec![rule("api", &["5/h"], None)]));
    }
    engine.swap_overrides(Overrides::default());
    assert_eq!(decide(&engine, "api", "ann", 1).await.checks[0].decision.limit, 5);
}

/// A block keeps a key from being asked for, and not what is remembered of it.
#[tokio::test]
async fn what_is_blocked_or_unlimited_is_forgotten_all_the_same() {
    let engine = Engine::builder(memory().0).policy(policy(1, vec![rule("api", &["5/h"], None)])).build();
    for instead in [Override::Blocked, Override::Unlimited] {
        decide(&engine, "api", "ann", 5).await;
        let mut overrides = Overrides::default();
        overrides.insert("api", b"ann", instead);
        engine.swap_overrides(overrides);
        let wants = [super::stand::want("api", "ann", 1)];
        engine.forget(&Ask { wants: &wants }).await.expect("the memory answers");
        engine.swap_overrides(Overrides::default());
        assert_eq!(super::stand::left(&engine, "api", "ann").await, [5]);
    }
}

#[tokio::test(start_paused = true)]
async fn advice_that_does_not_come_keeps_no_verdict_waiting() {
    let watching =
        Rule::builder("new").mode(Mode::Shadow).limits(vec![bucket("5/h")]).build().expect("it is one");
    let (builder, strings) = puppet(vec![rule("api", &["5/h"], OnOutage::Deny), watching]);
    let engine = builder.build();
    strings.calls(Manner::Hangs);
    let started = tokio::time::Instant::now();
    let wants = [super::stand::want("new", "k", 1)];
    let verdict = engine.decide(&Ask { wants: &wants }).await;
    assert_eq!((verdict.answer, verdict.source, verdict.checks.len()), (Answer::Allowed, Source::Shadow, 0));
    assert!(started.elapsed() <= std::time::Duration::from_millis(30), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_plan_can_be_named_beside_a_rule() {
    let plans = vec![("free".to_owned(), vec![bucket("5/h")]), ("gold".to_owned(), vec![bucket("50/h")])];
    let api = Rule::builder("api")
        .plans(Attribute::parse("tier").expect("it is one"), plans, "free")
        .build()
        .expect("it is one");
    let engine = Engine::builder(memory().0).policy(policy(1, vec![api])).build();
    let gold =
        Known::default().with(Attribute::parse("tier").expect("it is one"), "gold").expect("it is one");
    let want = |by| Want { by, key: b"ann", cost: Cost::ONE, takes: &[] };
    let verdict = engine.decide(&Ask { wants: &[want(By::RuleFor("api", &gold))] }).await;
    assert_eq!(verdict.checks[0].decision.remaining, 49);
    // Back on the other plan, what was spent is still spent.
    let verdict = engine.decide(&Ask { wants: &[want(By::Rule("api"))] }).await;
    assert_eq!(verdict.checks[0].decision.remaining, 3);
}
