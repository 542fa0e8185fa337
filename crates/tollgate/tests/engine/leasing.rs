//! Leases as callers see them, on a clock of ours: who decides, what is spent, and what comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tollgate::clock::Clock;
use tollgate::core::decision::Outcome;
use tollgate::core::policy::{Lease, Override, Overrides};
use tollgate::core::verdict::RefundAnswer;
use tollgate::store::memory::MemoryStore;
use tollgate::{Ask, Engine, Kind, OnOutage, Rule, Source, Verdict, Want};

use crate::stand::{Manner, Puppet, START, Strings, away, decide, left, limit, policy, puppet_on, want};

/// An engine whose leases and whose store go by one hand.
struct Scene {
    engine: Engine<Puppet>,
    strings: Arc<Strings>,
    hand: Arc<AtomicU64>,
}

fn leased(kind: Kind, rate: &str) -> Rule {
    let rule = Rule::builder("api").limits(vec![limit(kind, rate)]).lease(Lease::Auto);
    rule.on_outage(OnOutage::Deny).build().expect("a rule")
}

fn scene(rules: Vec<Rule>) -> Scene {
    let (clock, hand) = Clock::manual(START);
    let memory = MemoryStore::builder().max_keys(10_000).clock(clock.clone()).build();
    let (builder, strings) = puppet_on(rules, memory);
    Scene { engine: builder.clock(clock).build(), strings, hand }
}

/// A thousand an hour in a fixed window, whose count says to the token what was taken.
fn counted() -> Scene {
    scene(vec![leased(Kind::FixedWindow, "1000/h")])
}

impl Scene {
    /// So many calls, a millisecond apart.
    async fn calls(&self, count: u32) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for _ in 0..count {
            self.moves(1);
            verdicts.push(decide(&self.engine, "api", "ann", 1).await);
            // What is fetched beside a call lands.
            tokio::task::yield_now().await;
        }
        verdicts
    }

    fn moves(&self, millis: u64) {
        self.hand.fetch_add(millis * 1000, Ordering::SeqCst);
    }

    /// Lets the sweep come by, at a time that has moved on.
    async fn passes(&self, millis: u64) {
        self.moves(millis);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    async fn left(&self) -> u32 {
        left(&self.engine, "api", "ann").await[0]
    }
}

fn by(verdicts: &[Verdict], source: Source) -> usize {
    verdicts.iter().filter(|verdict| verdict.source == source).count()
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_is_decided_here_and_costs_few_calls() {
    for kind in [Kind::TokenBucket, Kind::SlidingWindow, Kind::FixedWindow, Kind::SlidingLog] {
        let scene = scene(vec![leased(kind, "1000/h")]);
        let verdicts = scene.calls(500).await;
        assert!(verdicts.iter().all(Verdict::is_allowed), "{kind}");
        assert!(by(&verdicts, Source::Lease) >= 495, "{kind}: {}", by(&verdicts, Source::Lease));
        assert!(scene.strings.called() < 25, "{kind}: {} calls", scene.strings.called());
        let remaining: Vec<u32> = verdicts.iter().map(|one| one.checks[0].decision.remaining).collect();
        assert!(remaining.is_sorted_by(|a, b| a > b), "{kind}: {remaining:?} counts down");
        assert_eq!(remaining.last(), Some(&500), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cold_key_is_answered_as_without_a_lease() {
    let plain = Rule::builder("plain").limits(vec![limit(Kind::TokenBucket, "60/min")]).build().unwrap();
    let scene = scene(vec![leased(Kind::TokenBucket, "60/min"), plain]);
    for call in 0..400 {
        scene.moves(84); // three calls a quarter of a second
        let leased = decide(&scene.engine, "api", "ann", 1 + call % 3).await;
        let plain = decide(&scene.engine, "plain", "ann", 1 + call % 3).await;
        assert_eq!(leased.source, Source::Store);
        assert_eq!(leased.checks[0].decision, plain.checks[0].decision);
    }
    assert_eq!(scene.engine.leases(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_spent_goes_back_when_calls_stop() {
    let scene = counted();
    scene.calls(20).await;
    assert!(scene.left().await < 980 && scene.engine.leases() == 1, "some are held here");
    scene.passes(600).await;
    assert_eq!((scene.left().await, scene.engine.leases()), (980, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_spent_goes_back_at_the_end() {
    let scene = counted();
    scene.calls(20).await;
    scene.engine.close().await;
    assert_eq!((scene.left().await, scene.engine.leases()), (980, 0));
    // Whoever still asks is answered by the store.
    let late = scene.calls(20).await;
    assert_eq!((by(&late, Source::Store), scene.left().await), (20, 960));
}

#[tokio::test(start_paused = true)]
async fn a_drained_limit_is_refused_here_until_it_may_have_more() {
    let scene = scene(vec![leased(Kind::TokenBucket, "100/s")]);
    let verdicts = scene.calls(10_000).await;
    let passed = verdicts.iter().filter(|verdict| verdict.is_allowed()).count();
    // What came in during the last pause has not been asked for yet.
    assert!((1066..=1100).contains(&passed), "{passed} of the 1100 there were in ten seconds");
    assert!(scene.strings.called() < 150, "{} calls", scene.strings.called());
    let refused = verdicts.iter().find(|one| !one.is_allowed() && one.source == Source::Lease).unwrap();
    let Outcome::Denied { retry_after } = refused.checks[0].decision.outcome else { panic!("{refused:?}") };
    assert!((1..=250_000).contains(&retry_after.0), "{retry_after}");
}

#[tokio::test(start_paused = true)]
async fn a_lowered_limit_a_block_and_a_reset_end_leases_at_once() {
    let scene = counted();
    scene.calls(20).await;
    scene.engine.swap_policy(&policy(2, vec![leased(Kind::FixedWindow, "30/h")]));
    let next = scene.calls(1).await.remove(0);
    assert_eq!((next.source, next.checks[0].decision.limit), (Source::Store, 30));
    let mut verdicts = scene.calls(50).await;
    verdicts.push(next);
    assert_eq!(verdicts.iter().filter(|one| one.is_allowed()).count(), 10, "30 in all, and 20 were spent");

    let scene = counted();
    scene.calls(20).await;
    scene.engine.forget(&Ask { wants: &[want("api", "ann", 1)] }).await.unwrap();
    assert_eq!((scene.left().await, scene.engine.leases()), (1000, 0));

    let mut blocked = Overrides::default();
    blocked.insert("api", b"ann", Override::Blocked);
    scene.calls(20).await;
    scene.engine.swap_overrides(blocked);
    let next = scene.calls(1).await.remove(0);
    assert!(!next.is_allowed() && next.source == Source::DenyList);
    assert_eq!(scene.engine.leases(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_leased_call_can_be_refunded() {
    for kind in [Kind::SlidingWindow, Kind::FixedWindow, Kind::SlidingLog] {
        let scene = scene(vec![leased(kind, "1000/h")]);
        let verdicts = scene.calls(20).await;
        let last = verdicts.last().unwrap();
        assert_eq!(last.source, Source::Lease);
        let before = scene.left().await;
        let takes = [last.checks[0].decision.take];
        let want = Want { takes: &takes, ..want("api", "ann", 1) };
        let refunded = scene.engine.refund(&Ask { wants: &[want] }).await;
        assert!(matches!(refunded, RefundAnswer::Done(_)), "{refunded:?}");
        assert_eq!(scene.left().await, before + 1, "{kind}");
        scene.engine.close().await;
        assert_eq!(scene.left().await, 981, "{kind}: only what was not spent came back beside it");
    }
}

#[tokio::test(start_paused = true)]
async fn leases_answer_first_while_the_store_is_away() {
    let scene = counted();
    scene.calls(40).await;
    scene.strings.all(&Manner::Errs(away()));
    let verdicts = scene.calls(60).await;
    let leased = verdicts.iter().take_while(|one| one.source == Source::Lease).count();
    assert!(leased >= 10, "{leased} answered from the lease");
    let fallback = Source::Fallback(OnOutage::Deny);
    assert_eq!(by(&verdicts, fallback), 60 - leased, "then the rule's own answer");

    // Those who held some when it went away hold none that have ended.
    let scene = counted();
    scene.calls(40).await;
    scene.strings.all(&Manner::Errs(away()));
    scene.moves(1000);
    assert_eq!(by(&scene.calls(10).await, fallback), 10);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_tokens_waits_no_longer_than_the_deadline() {
    let scene = counted();
    scene.strings.all(&Manner::Hangs);
    let mut calls = Vec::new();
    for _ in 0..50 {
        scene.moves(1);
        let engine = scene.engine.clone();
        calls.push(tokio::spawn(async move {
            let started = Instant::now();
            let verdict = decide(&engine, "api", "ann", 1).await;
            (verdict.source, started.elapsed())
        }));
        tokio::task::yield_now().await;
    }
    for call in calls {
        let (source, took) = call.await.unwrap();
        assert_eq!(source, Source::Fallback(OnOutage::Deny));
        assert!(took <= Duration::from_millis(26), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_ask_of_several_checks_is_put_to_the_store() {
    let other = Rule::builder("other").limits(vec![limit(Kind::FixedWindow, "1000/h")]).build().unwrap();
    let scene = scene(vec![leased(Kind::FixedWindow, "1000/h"), other]);
    scene.calls(20).await;
    let verdict =
        scene.engine.decide(&Ask { wants: &[want("api", "ann", 1), want("other", "ann", 1)] }).await;
    assert_eq!((verdict.source, verdict.checks.len()), (Source::Store, 2));
}

#[tokio::test(start_paused = true)]
async fn what_costs_more_than_is_held_is_put_to_the_store() {
    let scene = counted();
    scene.calls(20).await;
    let dear = decide(&scene.engine, "api", "ann", 900).await;
    assert!(dear.is_allowed(), "{dear:?}");
    let dearer = decide(&scene.engine, "api", "ann", 1001).await;
    assert_eq!((dearer.source, dearer.checks[0].decision.outcome), (Source::Store, Outcome::Never));
}
