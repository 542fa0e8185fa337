//! What is told, what is not answered from memory, and who waits.

use std::sync::Arc;
use std::time::Duration;

use tollgate::core::decision::Outcome;
use tollgate::core::policy::Mode;
use tollgate::deny_cache::DenyCache;
use tollgate::engine::together;
use tollgate::{
    Algorithm, Ask, By, Cost, Engine, Kind, Micros, OnOutage, Policy, Rate, Rule, Source, Verdict, Want,
};

use crate::world::{Distant, World};

fn limit(kind: Kind, rate: &str) -> Algorithm {
    Algorithm::try_new(kind, Rate::parse(rate).expect("a rate"), None, 1000).expect("a limit")
}

fn rule(name: &str, limits: Vec<Algorithm>) -> Rule {
    Rule::try_new(name, limits, Some(OnOutage::Deny)).expect("a rule")
}

fn policy(rules: Vec<Rule>) -> Policy {
    Policy::try_new(1, rules).expect("a policy")
}

fn want<'a>(rule: &'a str, key: &'a str, cost: u32) -> Want<'a> {
    Want { by: By::Rule(rule), key: key.as_bytes(), cost: Cost::new(cost).expect("at least one"), takes: &[] }
}

/// A world a millisecond away, and an instance with these rules.
fn stand(rules: Vec<Rule>) -> (Arc<World>, Engine<Distant>) {
    let world = World::new(1, 0, Micros(500));
    let engine = world.instance_with(|builder| builder.policy(policy(rules)));
    (world, engine)
}

async fn take(engine: &Engine<Distant>, rule: &str, cost: u32) -> Verdict {
    engine.decide(&Ask { wants: &[want(rule, "ann", cost)] }).await
}

async fn peek(engine: &Engine<Distant>, rule: &str, cost: u32) -> Verdict {
    engine.peek(&Ask { wants: &[want(rule, "ann", cost)] }).await
}

fn retry_after(verdict: &Verdict) -> Micros {
    verdict.retry_after().expect("it says when to come again")
}

/// Takes one at a time until refused by the store.
async fn drain(engine: &Engine<Distant>, rule: &str) -> Verdict {
    for _ in 0..1000 {
        let verdict = take(engine, rule, 1).await;
        if !verdict.is_allowed() {
            assert_eq!(verdict.source, Source::Store);
            return verdict;
        }
    }
    panic!("{rule} never refuses");
}

#[tokio::test]
async fn what_is_told_is_what_the_store_would_say_and_whoever_waits_for_it_passes() {
    for kind in Kind::ALL {
        let (world, engine) = stand(vec![rule("api", vec![limit(kind, "5/min")])]);
        drain(&engine, "api").await;
        for _ in 0..3 {
            world.pass(300_000);
            let (told, truth) = (take(&engine, "api", 1).await, peek(&engine, "api", 1).await);
            assert_eq!((told.source, truth.source), (Source::DenyCache, Source::Store), "{kind}");
            let (told, truth) = (&told.checks[0], &truth.checks[0]);
            let (told_at, truth_at) = (told.decision.take.at, truth.decision.take.at);
            // From receipt: late by the half of a trip at most, and never early.
            assert!(told_at <= truth_at && truth_at - told_at <= Micros(500), "{kind}: {told_at} {truth_at}");
            let of = |outcome: Outcome| match outcome {
                Outcome::Denied { retry_after } => retry_after,
                other => panic!("{kind}: {other:?}"),
            };
            let late =
                of(told.decision.outcome).0.checked_sub(of(truth.decision.outcome).0).expect("never early");
            assert!(late <= 500, "{kind}: late by {late} us");
            let late =
                told.decision.reset_after.0.checked_sub(truth.decision.reset_after.0).expect("never early");
            assert!(late <= 500, "{kind}: late by {late} us");
            assert_eq!(
                (told.decision.limit, told.decision.remaining, told.window),
                (truth.decision.limit, truth.decision.remaining, truth.window),
                "{kind}"
            );
        }
        world.pass(200_000);
        let told = take(&engine, "api", 1).await;
        world.pass(retry_after(&told).0);
        assert!(take(&engine, "api", 1).await.is_allowed(), "{kind}");
    }
}

#[tokio::test]
async fn a_dearer_ask_is_told_what_holds_for_it() {
    for kind in [Kind::TokenBucket, Kind::FixedWindow] {
        let (world, engine) = stand(vec![rule("api", vec![limit(kind, "7/min")])]);
        drain(&engine, "api").await;
        world.pass(1_234);
        let asked = world.takes();
        for cost in [2, 3, 7] {
            let (told, truth) = (take(&engine, "api", cost).await, peek(&engine, "api", cost).await);
            let late = retry_after(&told).0.checked_sub(retry_after(&truth).0).expect("never early");
            // Half a trip, and the microsecond that a wait is rounded up to.
            assert!(told.source == Source::DenyCache && late <= 501, "{kind} {cost}: late by {late} us");
        }
        let never = take(&engine, "api", 8).await;
        assert_eq!(
            (never.checks[0].decision.outcome, never.source),
            (Outcome::Never, Source::DenyCache),
            "{kind}"
        );
        assert_eq!(world.takes(), asked, "{kind}");
    }
}

/// What a dearer ask must wait for only the store can say of these two.
#[tokio::test]
async fn of_sliding_windows_every_cost_is_remembered_by_itself() {
    for kind in [Kind::SlidingLog, Kind::SlidingWindow] {
        let (world, engine) = stand(vec![rule("api", vec![limit(kind, "7/min")])]);
        for _ in 0..7 {
            assert!(take(&engine, "api", 1).await.is_allowed());
            world.pass(1_000_000);
        }
        for source in [Source::Store, Source::DenyCache] {
            for cost in [1, 2, 5] {
                let (told, truth) = (take(&engine, "api", cost).await, peek(&engine, "api", cost).await);
                assert_eq!(told.source, source, "{kind} {cost}");
                let late = retry_after(&told).0.checked_sub(retry_after(&truth).0).expect("never early");
                assert!(late <= 500, "{kind} {cost}: late by {late} us");
            }
        }
    }
}

#[tokio::test]
async fn what_costs_more_than_the_limit_is_asked_for_once() {
    let (world, engine) = stand(vec![rule("api", vec![limit(Kind::TokenBucket, "5/s")])]);
    for source in [Source::Store, Source::DenyCache] {
        let never = take(&engine, "api", 6).await;
        assert_eq!((never.checks[0].decision.outcome, never.source), (Outcome::Never, source));
    }
    assert!(take(&engine, "api", 5).await.is_allowed(), "and what does not is not refused for it");
    world.pass(1_000_000);
    assert_eq!(take(&engine, "api", 6).await.source, Source::Store);
}

#[tokio::test]
async fn a_second_is_the_longest() {
    let (world, engine) = stand(vec![rule("api", vec![limit(Kind::FixedWindow, "5/h")])]);
    let before = world.now();
    drain(&engine, "api").await;
    world.pass((before + Micros::SECOND - world.now()).0);
    assert_eq!(take(&engine, "api", 1).await.source, Source::DenyCache);
    world.pass(20_000);
    assert_eq!(take(&engine, "api", 1).await.source, Source::Store);
}

#[tokio::test]
async fn all_limits_of_a_rule_are_told_and_of_others_what_is_known() {
    let (fast, slow) = (limit(Kind::TokenBucket, "100/s"), limit(Kind::FixedWindow, "5/h"));
    let rules = vec![rule("api", vec![fast.clone(), slow]), rule("other", vec![fast])];
    let (world, engine) = stand(rules);
    let by_store = drain(&engine, "api").await;
    let told = take(&engine, "api", 1).await;
    assert_eq!((told.source, told.checks.len()), (Source::DenyCache, 2));
    let allowed = |verdict: &Verdict| -> Vec<bool> {
        verdict.checks.iter().map(|judged| judged.decision.outcome == Outcome::Allowed).collect()
    };
    assert_eq!((allowed(&told), allowed(&by_store)), (vec![true, false], vec![true, false]));

    let asked = world.takes();
    let both = [want("other", "ann", 1), want("api", "ann", 1)];
    let told = engine.decide(&Ask { wants: &both }).await;
    assert_eq!((told.source, world.takes()), (Source::DenyCache, asked));
    let wants: Vec<usize> = told.checks.iter().map(|judged| judged.want).collect();
    assert_eq!(wants, [1, 1], "nothing is known of the other rule, and nothing is said of it");
    // Another cost: the limit that passed may not pass then, and nobody knows.
    assert_eq!(take(&engine, "api", 2).await.source, Source::Store);
}

#[tokio::test]
async fn a_raised_limit_is_another_limit() {
    let (_world, engine) = stand(vec![rule("api", vec![limit(Kind::TokenBucket, "5/h")])]);
    drain(&engine, "api").await;
    assert_eq!(take(&engine, "api", 1).await.source, Source::DenyCache);
    engine.swap_policy(&policy(vec![rule("api", vec![limit(Kind::TokenBucket, "6/h")])]));
    assert_eq!(take(&engine, "api", 1).await.source, Source::Store);
}

#[tokio::test]
async fn while_the_store_is_set_aside_what_it_said_is_no_answer() {
    let (world, _) = stand(vec![]);
    let engine = world.instance_with(|builder| {
        let allowing = Rule::try_new("api", vec![limit(Kind::FixedWindow, "2/h")], Some(OnOutage::Allow));
        builder.policy(policy(vec![
            allowing.expect("a rule"),
            rule("other", vec![limit(Kind::FixedWindow, "2/h")]),
        ]))
    });
    drain(&engine, "api").await;
    assert_eq!(take(&engine, "api", 1).await.source, Source::DenyCache);
    world.be_away(true);
    for _ in 0..5 {
        assert!(matches!(take(&engine, "other", 1).await.source, Source::Fallback(_)));
    }
    assert!(engine.health().outage.is_some());
    assert!(take(&engine, "api", 1).await.is_allowed(), "as its on_outage says");
}

#[tokio::test]
async fn nothing_that_only_watches_is_asked_about_what_was_refused_here() {
    let watched = vec![limit(Kind::TokenBucket, "5/h")];
    let shadow = Rule::builder("shadow").mode(Mode::Shadow).limits(watched).build().expect("a rule");
    let (world, engine) = stand(vec![rule("api", vec![limit(Kind::TokenBucket, "2/h")]), shadow]);
    let both = [want("api", "ann", 1), want("shadow", "ann", 1)];
    for _ in 0..2 {
        assert!(engine.decide(&Ask { wants: &both }).await.is_allowed());
    }
    assert_eq!(engine.decide(&Ask { wants: &both }).await.source, Source::Store);
    let asked = world.takes();
    let told = engine.decide(&Ask { wants: &both }).await;
    assert_eq!((told.source, told.checks.len(), world.takes()), (Source::DenyCache, 1, asked));
    assert_eq!(
        peek(&engine, "shadow", 1).await.checks[0].decision.remaining,
        3,
        "two passed, and two are counted"
    );
}

#[tokio::test]
async fn it_is_bounded_and_can_be_switched_off() {
    let (world, engine) = stand(vec![rule("api", vec![limit(Kind::FixedWindow, "1/h")])]);
    for at in 0..500 {
        for _ in 0..2 {
            let key = at.to_string();
            engine.decide(&Ask { wants: &[want("api", &key, 1)] }).await;
        }
    }
    let cache = engine.deny_cache().expect("it is on");
    assert_eq!(cache.max_entries(), 64);
    // Every one was a refusal of the last second, and the table is full but for a few unlucky places.
    assert!((32..=64).contains(&cache.entries()), "{}", cache.entries());
    world.pass(1_000_000);
    assert_eq!(cache.entries(), 0);

    let off = world.instance_with(|builder| {
        builder.policy(policy(vec![rule("api", vec![limit(Kind::FixedWindow, "1/h")])])).deny_cache(None)
    });
    assert!(off.deny_cache().is_none());
    for _ in 0..3 {
        assert_eq!(take(&off, "api", 1).await.source, Source::Store);
    }
    let own = Engine::builder(tollgate::MemoryStore::new()).deny_cache(Some(DenyCache::builder())).build();
    assert!(own.deny_cache().is_none(), "memory is no trip away");
}

/// Polls asks side by side until the store has been asked so often.
async fn asked_for(world: &World, takes: u64) {
    while world.takes() < takes {
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn when_a_refusal_ends_one_asks_for_all() {
    let (world, engine) = stand(vec![rule("api", vec![limit(Kind::TokenBucket, "10/s")])]);
    let told = drain(&engine, "api").await;
    world.pass(retry_after(&told).0);
    let asked = world.takes();
    let permits = world.hold();
    let spawned = (0..20).map(|_| {
        let engine = engine.clone();
        tokio::spawn(async move { take(&engine, "api", 1).await })
    });
    let spawned: Vec<_> = spawned.collect();
    asked_for(&world, asked + 1).await;
    assert_eq!(world.takes(), asked + 1, "one goes, the others wait");
    permits.add_permits(20);
    let all = together(spawned.into_iter()).await.into_iter().map(|one| one.expect("joins"));
    let all: Vec<Verdict> = all.collect();
    // One passes, one finds that there is no more, and the others take its word.
    let by_cache = all.iter().filter(|verdict| verdict.source == Source::DenyCache).count();
    let passed = all.iter().filter(|verdict| verdict.is_allowed()).count();
    assert_eq!((world.takes() - asked, passed, by_cache), (2, 1, 18));
}

#[tokio::test]
async fn whoever_waits_is_not_kept_longer_than_half_the_deadline() {
    let (world, _) = stand(vec![]);
    let engine = world.instance_with(|builder| {
        builder
            .policy(policy(vec![rule("api", vec![limit(Kind::TokenBucket, "10/s")])]))
            .deadline(Duration::from_millis(50))
    });
    let told = drain(&engine, "api").await;
    world.pass(retry_after(&told).0);
    let asked = world.takes();
    let permits = world.hold();
    let first = tokio::spawn({
        let engine = engine.clone();
        async move { take(&engine, "api", 1).await }
    });
    asked_for(&world, asked + 1).await;
    // Cancelled: whoever comes next need not wait.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let spawned: Vec<_> = (0..2)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move { take(&engine, "api", 1).await })
        })
        .collect();
    // The first of the two is never answered; the second goes as well after half its deadline.
    asked_for(&world, asked + 3).await;
    permits.add_permits(10);
    for one in spawned {
        one.await.expect("joins");
    }
}
