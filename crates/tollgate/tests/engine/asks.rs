//! What an engine answers, spends, gives back and forgets while its store is well.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollgate::core::ask::AskProblem;
use tollgate::core::decision::{Found, Outcome, Returned, Verb};
use tollgate::core::policy::{Origin, Overrides};
use tollgate::core::store::AtOnce;
use tollgate::core::verdict::RefundAnswer;
use tollgate::engine::ForgetError;
use tollgate::observe::{Observer, Taken};
use tollgate::store::memory::MemoryStore;
use tollgate::{Answer, Ask, By, Cost, Engine, InlineLimit, Kind, Micros, Policy, Rate, Rule, Source, Want};

use crate::stand::{Ear, Heard, bucket, decide, drain, left, limit, memory, policy, rule, want};

fn engine(rules: Vec<Rule>) -> Engine<MemoryStore> {
    Engine::builder(memory().0).policy(policy(1, rules)).build()
}

fn inline(kind: Kind, rate: &str) -> InlineLimit {
    InlineLimit::new(limit(kind, rate), Rate::parse(rate).expect("a rate").period())
}

#[tokio::test]
async fn deciding_spends_and_peeking_looks() {
    let engine = engine(vec![rule("login", &["3/min"], None)]);
    let verdict = decide(&engine, "login", "ann", 2).await;
    assert_eq!((&verdict.answer, verdict.source), (&Answer::Allowed, Source::Store));
    assert_eq!(verdict.checks[0].decision.remaining, 1);
    for _ in 0..3 {
        assert_eq!(left(&engine, "login", "ann").await, [1], "a peek spends nothing");
    }
    assert!(!decide(&engine, "login", "ann", 2).await.is_allowed());
    assert_eq!(left(&engine, "login", "ann").await, [1], "nor does a refusal");
    assert_eq!(left(&engine, "login", "bob").await, [3], "another key is another limit");
}

#[tokio::test]
async fn takes_that_come_together_are_decided_each_and_told_once() {
    let ear = Arc::new(Ear::default());
    let observer: Arc<dyn Observer> = Arc::clone(&ear) as _;
    let engine = Engine::builder(memory().0).observer(observer).build();
    let limit = inline(Kind::TokenBucket, "3/min");
    let check = |key: &'static str, cost| limit.check(key.as_bytes(), Cost::new(cost).unwrap()).unwrap();
    let asked = [check("ann", 2), check("bob", 1), check("ann", 2), check("ann", 1), check("eve", 4)];
    let mut decided = Vec::new();
    let at_once =
        engine.take_each(asked.into_iter(), |decision| decided.push((decision.outcome, decision.remaining)));
    assert_eq!(at_once, AtOnce::Done);
    let wait = Outcome::Denied { retry_after: Micros(20_000_000) };
    assert_eq!(
        decided,
        [(Outcome::Allowed, 1), (Outcome::Allowed, 2), (wait, 1), (Outcome::Allowed, 0), (Outcome::Never, 3)]
    );
    let told = Taken { allowed: 3, refused: 1, never: 1, found: 2, created: 2, malformed: 0 };
    assert_eq!((ear.taken(), ear.decided()), (vec![told], Vec::new()));
    assert!(!engine.check("ann", &limit).await.is_allowed(), "it was the same bucket");
    for (key, problem) in [
        (Vec::new(), AskProblem::EmptyKey { at: 0 }),
        (vec![b'x'; 1025], AskProblem::LongKey { at: 0, bytes: 1025 }),
    ] {
        assert_eq!(limit.check(&key, Cost::ONE).unwrap_err(), problem);
    }
}

#[tokio::test]
async fn a_refund_gives_back_what_its_take_spent() {
    for kind in Kind::ALL {
        let rule = Rule::try_new("login", vec![limit(kind, "3/min")], None).unwrap();
        let engine = engine(vec![rule]);
        let takes = [decide(&engine, "login", "ann", 2).await.checks[0].decision.take];
        let named = Want { takes: &takes, ..want("login", "ann", 2) };
        let RefundAnswer::Done(refunded) = engine.refund(&Ask { wants: &[named] }).await else {
            panic!("{kind}: not done");
        };
        assert_eq!((refunded[0].returned, refunded[0].remaining), (Returned::All, 3), "{kind}");
        assert_eq!(left(&engine, "login", "ann").await, [3], "{kind}");
    }
}

#[tokio::test]
async fn forgetting_makes_every_limit_of_an_ask_whole() {
    let engine = engine(vec![rule("login", &["3/min", "9/h"], None), rule("other", &["2/s"], None)]);
    decide(&engine, "login", "ann", 3).await;
    decide(&engine, "other", "ann", 1).await;
    let wants = [want("login", "ann", 1)];
    engine.forget(&Ask { wants: &wants }).await.unwrap();
    assert_eq!(left(&engine, "login", "ann").await, [3, 9]);
    assert_eq!(left(&engine, "other", "ann").await, [1], "what was not named is not forgotten");
    let unknown = [want("nothing", "ann", 1)];
    let error = engine.forget(&Ask { wants: &unknown }).await.unwrap_err();
    assert!(matches!(error, ForgetError::Invalid(AskProblem::UnknownRule { at: 0, .. })), "{error:?}");
}

#[tokio::test]
async fn what_cannot_be_understood_says_where_and_spends_nothing() {
    let engine = engine(vec![rule("login", &["3/min"], None), rule("pair", &["100/s", "100/min"], None)]);
    let good = want("login", "ann", 1);
    let long = "k".repeat(1025);
    let names: Vec<String> = (0..65).map(|n| format!("user-{n}")).collect();
    let many: Vec<Want<'_>> = names.iter().map(|name| want("login", name, 1)).collect();
    // 33 wants of two limits each are 66 checks.
    let pairs: Vec<Want<'_>> = names[..33].iter().map(|name| want("pair", name, 1)).collect();
    let unknown = AskProblem::UnknownRule { at: 1, rule: "nothing".into() };
    for (wants, problem) in [
        (vec![], AskProblem::Empty),
        (vec![good, want("nothing", "ann", 1)], unknown),
        (vec![good, want("login", "", 1)], AskProblem::EmptyKey { at: 1 }),
        (vec![good, want("login", &long, 1)], AskProblem::LongKey { at: 1, bytes: 1025 }),
        (vec![good, want("login", "bob", 1), good], AskProblem::Repeated { at: 2, first: 0 }),
        (many.clone(), AskProblem::TooMany { wants: 65 }),
        (pairs, AskProblem::TooMany { wants: 66 }),
    ] {
        let ask = Ask { wants: &wants };
        for verdict in [engine.decide(&ask).await, engine.peek(&ask).await] {
            assert_eq!(verdict.answer, Answer::Invalid(problem.clone()));
            assert!(verdict.checks.is_empty() && verdict.binding().is_none() && verdict.rule().is_none());
            assert_eq!(verdict.retry_after(), None, "no waiting mends a mistake");
        }
        assert!(matches!(engine.refund(&ask).await, RefundAnswer::Invalid(found) if found == problem));
        assert_eq!(left(&engine, "login", "ann").await, [3], "{problem}");
    }
    assert_eq!(left(&engine, "login", "user-0").await, [3]);
    assert_eq!(left(&engine, "pair", "user-0").await, [100, 100]);
    let verdict = engine.decide(&Ask { wants: &many[..64] }).await;
    assert!(verdict.is_allowed(), "64 are not too many: {:?}", verdict.answer);
}

#[tokio::test]
async fn a_refund_names_as_many_takes_as_were_made() {
    let engine = engine(vec![rule("pair", &["9/s", "9/min"], None), rule("login", &["9/h"], None)]);
    let verdict = engine.decide(&Ask { wants: &[want("pair", "ann", 4), want("login", "ann", 4)] }).await;
    let takes: Vec<_> = verdict.checks.iter().map(|judged| judged.decision.take).collect();
    for (pair, login, problem) in [
        (&takes[..1], &takes[2..], AskProblem::WrongTakes { at: 0, named: 1, needed: 2 }),
        (&takes[..2], &takes[..0], AskProblem::WrongTakes { at: 1, named: 0, needed: 1 }),
        (&takes[..3], &takes[..0], AskProblem::WrongTakes { at: 0, named: 3, needed: 2 }),
    ] {
        let wants = [
            Want { takes: pair, ..want("pair", "ann", 4) },
            Want { takes: login, ..want("login", "ann", 4) },
        ];
        let answer = engine.refund(&Ask { wants: &wants }).await;
        assert!(matches!(&answer, RefundAnswer::Invalid(found) if *found == problem), "{answer:?}");
    }
    assert_eq!(left(&engine, "pair", "ann").await, [5, 5]);
    let wants = [
        Want { takes: &takes[..2], ..want("pair", "ann", 4) },
        Want { takes: &takes[2..], ..want("login", "ann", 4) },
    ];
    assert!(
        matches!(engine.refund(&Ask { wants: &wants }).await, RefundAnswer::Done(done) if done.len() == 3)
    );
    assert_eq!(left(&engine, "pair", "ann").await, [9, 9]);
    assert_eq!(left(&engine, "login", "ann").await, [9]);
}

#[tokio::test]
async fn the_limits_of_a_rule_are_spent_together_or_not_at_all() {
    let (store, hand) = memory();
    let rules = vec![rule("login", &["2/s", "3/min"], None), rule("other", &["1/h"], None)];
    let engine = Engine::builder(store).policy(policy(7, rules)).build();

    let verdict = decide(&engine, "login", "ann", 1).await;
    assert_eq!(verdict.binding().unwrap().decision.remaining, 1, "the one with the least left speaks");
    decide(&engine, "login", "ann", 1).await;
    let verdict = decide(&engine, "login", "ann", 1).await;
    assert_eq!(verdict.answer, Answer::Refused);
    assert_eq!(verdict.checks[1].decision.outcome, Outcome::Allowed, "the minute had one left");
    assert_eq!(left(&engine, "login", "ann").await, [0, 1], "and has it still");
    assert_eq!(verdict.retry_after(), Some(Micros(500_000)), "one of two a second");

    // True to the microsecond, and not before.
    hand.fetch_add(499_999, Ordering::SeqCst);
    let verdict = decide(&engine, "login", "ann", 1).await;
    assert_eq!(verdict.retry_after(), Some(Micros(1)));
    hand.fetch_add(1, Ordering::SeqCst);
    assert!(decide(&engine, "login", "ann", 1).await.is_allowed());

    // Of several that refuse, the one to wait for longest speaks; `never` is longer than all.
    decide(&engine, "other", "ann", 1).await;
    let wants = [want("login", "ann", 1), want("other", "ann", 1)];
    let verdict = engine.decide(&Ask { wants: &wants }).await;
    assert_eq!(verdict.rule().map(Rule::name), Some("other"));
    let wants = [want("login", "ann", 4), want("other", "ann", 1)];
    let verdict = engine.decide(&Ask { wants: &wants }).await;
    assert_eq!((verdict.rule().map(Rule::name), verdict.retry_after()), (Some("login"), None));
    assert_eq!(verdict.policy.version(), 7);
}

#[tokio::test]
async fn an_inline_limit_needs_no_policy() {
    let engine = Engine::builder(memory().0).build();
    let two = inline(Kind::TokenBucket, "2/min");
    assert!(engine.check("ann", &two).await.is_allowed());
    let verdict = engine.check("ann", &two).await;
    assert!(verdict.is_allowed() && verdict.rule().is_none());
    assert_eq!(verdict.checks[0].origin, Origin::Inline);
    assert!(!engine.check("ann", &two).await.is_allowed());
    assert!(engine.check("bob", &two).await.is_allowed());
    assert!(engine.check("ann", &inline(Kind::TokenBucket, "2/h")).await.is_allowed(), "another period");
    assert!(engine.check("ann", &inline(Kind::FixedWindow, "2/min")).await.is_allowed(), "another kind");
    assert!(!engine.check("ann", &two).await.is_allowed());
}

#[tokio::test]
async fn another_policy_keeps_the_state_and_is_named() {
    let ear = Arc::new(Ear::default());
    let engine = Engine::builder(memory().0)
        .policy(policy(1, vec![rule("login", &["10/min"], None)]))
        .observer(Arc::clone(&ear) as Arc<dyn Observer>)
        .build();
    let before = decide(&engine, "login", "ann", 5).await;
    engine.swap_policy(&policy(2, vec![rule("first", &["1/s"], None), rule("login", &["20/min"], None)]));
    // Half of it was left, and half of the new one is; a verdict goes on naming its own policy.
    assert_eq!(left(&engine, "login", "ann").await, [10]);
    let after = decide(&engine, "login", "ann", 1).await;
    assert_eq!((before.policy.version(), after.policy.version()), (1, 2));
    assert_eq!(before.rule().map(Rule::name), Some("login"));
    assert_eq!(after.rule().map(Rule::name), Some("login"), "at another place by now");
    assert_eq!((engine.health().policy_version, engine.policy().version()), (2, 2));
    assert_eq!(ear.policies(), [1, 2]);
    engine.swap_policy(&policy(3, vec![]));
    assert!(matches!(decide(&engine, "login", "ann", 1).await.answer, Answer::Invalid(_)));
}

/// What travels with a policy is of the same reload as its rules, for whoever looks first and asks then.
#[tokio::test]
async fn an_ask_is_decided_under_the_policy_it_was_read_with() {
    let with = |version, words: &'static str, limit| {
        let rules = vec![rule("login", &[limit], None)];
        Policy::builder(version).rules(rules).companion(words.to_owned()).build().unwrap()
    };
    let engine = Engine::builder(memory().0).policy(with(1, "one", "10/min")).build();
    let seen = engine.policy();
    engine.swap_policy(&with(2, "two", "20/min"));
    engine.swap_overrides(Overrides::default());
    assert_eq!(seen.companion::<String>().map(String::as_str), Some("one"));
    assert_eq!(engine.policy().companion::<String>().map(String::as_str), Some("two"));
    assert_eq!(engine.policy().companion::<u32>(), None, "of another type");

    let want = Want { by: By::Rule("login"), key: b"ann", cost: Cost::ONE, takes: &[] };
    let ask = Ask { wants: &[want] };
    let peeked = engine.peek_under(Arc::clone(&seen), &ask).await;
    let decided = engine.decide_under(seen, &ask).await;
    for verdict in [peeked, decided] {
        assert_eq!((verdict.policy.version(), verdict.checks[0].decision.limit), (1, 10));
    }
    assert_eq!(engine.decide(&ask).await.checks[0].decision.limit, 20);
}

#[tokio::test]
async fn an_observer_hears_the_rule_the_source_and_what_was_found() {
    let ear = Arc::new(Ear::default());
    let rules = vec![rule("first", &["5/s"], None), rule("login", &["1/min", "9/h"], None)];
    let engine = Engine::builder(memory().0)
        .policy(policy(1, rules))
        .observer(Arc::clone(&ear) as Arc<dyn Observer>)
        .build();
    drain(&engine, "login", "ann").await;
    left(&engine, "first", "ann").await;
    let one = inline(Kind::SlidingLog, "1/min");
    let verdict = engine.check("ann", &one).await;
    let takes = [verdict.checks[0].decision.take];
    let want = Want { by: By::Inline(&one), key: b"ann", cost: Cost::ONE, takes: &takes };
    engine.refund(&Ask { wants: &[want] }).await;
    decide(&engine, "nothing", "ann", 1).await;

    let login = Origin::Rule(1);
    let heard = |verb, answer, checks: &[(Origin, Found)]| Heard {
        verb,
        answer,
        source: Source::Store,
        checks: checks.to_vec(),
    };
    let unknown = AskProblem::UnknownRule { at: 0, rule: "nothing".into() };
    assert_eq!(
        ear.decided(),
        [
            heard(Verb::Take, Answer::Allowed, &[(login, Found::Nothing), (login, Found::Nothing)]),
            heard(Verb::Take, Answer::Refused, &[(login, Found::State), (login, Found::State)]),
            heard(Verb::Peek, Answer::Allowed, &[(Origin::Rule(0), Found::Nothing)]),
            heard(Verb::Take, Answer::Allowed, &[(Origin::Inline, Found::Nothing)]),
            Heard {
                verb: Verb::Take,
                answer: Answer::Invalid(unknown),
                source: Source::Unlimited,
                checks: vec![],
            },
        ]
    );
    assert_eq!(ear.refunds(), 1);
    assert!(ear.errors().is_empty() && ear.changes().is_empty());
}

#[tokio::test]
async fn clones_share_one_engine_and_the_last_one_ends_its_watch() {
    let engine = engine(vec![Rule::try_new("login", vec![bucket("2/min")], None).unwrap()]);
    let clone = engine.clone();
    decide(&engine, "login", "ann", 1).await;
    assert_eq!(left(&clone, "login", "ann").await, [1]);
    let watched = engine.downgrade();
    drop((engine, clone));
    // Would never return if a handle were left.
    Engine::watch(watched).await;
}
