//! What an engine promises through any tier, in driven time: the clocks of Redis and of the instances stand still but
//! where the test moves them.
//!
//! The measure is an engine on the same store with no tier at all, which the contract of stores is held against elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use testkit::{ClockShim, TestTime, unique_prefix};
use tollgate::clock::Clock;
use tollgate::core::decision::{Decision, Take};
use tollgate::core::verdict::RefundAnswer;
use tollgate::deny_cache::DenyCache;
use tollgate::store::redis::RedisStore;
use tollgate::{Ask, By, Cost, Engine, Kind, Micros, Source, Verdict, Want};

use crate::bound::{Bound, Call};
use crate::cells::{Tier, limit};

/// Half past an hour, so that no window of an hour ends while a case runs.
pub(crate) const START: Micros = Micros(1_800_001_800_000_000);

const HOUR_US: u64 = 3_600_000_000;

/// How long an instance that was not told may go on refusing.
const UNHEARD_MAX: Duration = Duration::from_secs(1);

const FAST: (&str, u32) = ("fast", 50);
const SLOW: (&str, u32) = ("slow", 20);

/// The hands of all clocks.
pub(crate) struct Hands {
    redis: Arc<ClockShim>,
    here: Arc<AtomicU64>,
    clock: Clock,
}

impl Hands {
    /// Stops Redis' clock.
    pub(crate) fn freeze(redis: Arc<ClockShim>) -> Hands {
        redis.freeze_at_us(i64::try_from(START.0).expect("a time of this millennium"));
        let (clock, here) = Clock::manual(START);
        Hands { redis, here, clock }
    }

    fn now(&self) -> Micros {
        Micros(self.here.load(Ordering::SeqCst))
    }

    /// To the next half past.
    fn to_half_past(&self) {
        let past = (self.now().0 + HOUR_US / 2) % HOUR_US;
        self.forward(Duration::from_micros(HOUR_US - past));
    }
}

impl TestTime for Hands {
    fn forward(&self, by: Duration) {
        self.redis.forward(by);
        self.here.fetch_add(Micros::from(by).0, Ordering::SeqCst);
    }

    fn back(&self, by: Duration) {
        self.redis.back(by);
        self.here.fetch_sub(Micros::from(by).0, Ordering::SeqCst);
    }
}

/// Two instances with a tier, and one without any, on one store.
struct Stand<'h> {
    kind: Kind,
    tier: Tier,
    tiered: [Engine<RedisStore>; 2],
    plain: Engine<RedisStore>,
    time: &'h Hands,
}

/// Holds the engine to its promises for one algorithm. Panics at the first that is broken.
pub(crate) async fn engine_contract(url: &str, tier: Tier, kind: Kind, time: &Hands) {
    let prefix = unique_prefix();
    let limits =
        [FAST, SLOW].map(|(rule, count)| (rule.to_owned(), limit(kind, &format!("{count}/{}", span(rule)))));
    // All of them under the same rules; the one without tiers takes no lease, whatever those say.
    let builder = |uses: Tier| {
        let store = RedisStore::new(uses.config(url, &prefix)).expect("no TLS to go wrong");
        let cache = DenyCache::builder().clock(time.clock.clone());
        Engine::builder(store)
            .policy(tier.policy(&limits))
            .deadline(Duration::from_secs(20))
            .deny_cache((uses >= Tier::DenyCache).then_some(cache))
            .clock(time.clock.clone())
    };
    let tiered = [builder(tier).build(), builder(tier).build()];
    let plain = builder(Tier::None).without_leases().build();
    let stand = Stand { kind, tier, tiered, plain, time };
    stand.a_cold_key_is_exact().await;
    stand.several_pass_together_or_not_at_all().await;
    stand.a_refusal_changes_nothing().await;
    stand.what_was_eased_is_seen_within_a_second().await;
    stand.a_hot_key_holds_its_bound_and_a_peek_is_true().await;
}

fn span(rule: &str) -> &'static str {
    if rule == FAST.0 { "s" } else { "h" }
}

fn want<'w>(rule: &'w str, key: &'w str, cost: u32, takes: &'w [Take]) -> Want<'w> {
    Want { by: By::Rule(rule), key: key.as_bytes(), cost: Cost::new(cost).expect("a cost"), takes }
}

async fn decide(engine: &Engine<RedisStore>, rule: &str, key: &str, cost: u32) -> Verdict {
    let verdict = engine.decide(&Ask { wants: &[want(rule, key, cost, &[])] }).await;
    assert!(!matches!(verdict.source, Source::Fallback(_)), "Redis answers");
    verdict
}

async fn peek(engine: &Engine<RedisStore>, rule: &str, key: &str) -> Decision {
    let verdict = engine.peek(&Ask { wants: &[want(rule, key, 1, &[])] }).await;
    assert_eq!(verdict.source, Source::Store, "a peek asks the store");
    verdict.checks[0].decision
}

impl Stand<'_> {
    /// Visits so far apart that nothing is hot, beside the same on another key without tiers.
    async fn a_cold_key_is_exact(&self) {
        let (kind, (rule, _)) = (self.kind, FAST);
        let (ours, theirs) = (unique_prefix(), unique_prefix());
        let mut dice = fastrand::Rng::with_seed(7);
        let mut refused = 0;
        for visit in 0..60 {
            // More than a quarter of the longest lease, and sometimes exactly when something comes free.
            let pause = match peek(&self.plain, rule, &theirs).await.outcome {
                tollgate::core::decision::Outcome::Denied { retry_after } if dice.bool() => {
                    retry_after.to_duration()
                }
                _ => Duration::from_micros(dice.u64(26_000..90_000)),
            };
            self.time.forward(pause);
            let cost = dice.u32(2..=12);
            let expected = decide(&self.plain, rule, &theirs, cost).await;
            let verdict = decide(&self.tiered[0], rule, &ours, cost).await;
            assert_eq!(verdict.is_allowed(), expected.is_allowed(), "{kind}: visit {visit}");
            refused += u32::from(!verdict.is_allowed());
            if verdict.source == Source::Store {
                assert_eq!(verdict.checks[0].decision, expected.checks[0].decision, "{kind}: visit {visit}");
            } else {
                assert_eq!((verdict.source, verdict.is_allowed()), (Source::DenyCache, false), "{kind}");
            }
        }
        assert!((10..=50).contains(&refused), "{kind}: {refused} of 60 say little");
    }

    /// On a cluster these keys are of several nodes.
    async fn several_pass_together_or_not_at_all(&self) {
        let (kind, (rule, count)) = (self.kind, SLOW);
        self.time.to_half_past();
        let keys: Vec<String> = (0..5).map(|_| unique_prefix()).collect();
        let wants: Vec<Want<'_>> = keys.iter().map(|key| want(rule, key, 1, &[])).collect();
        decide(&self.plain, rule, &keys[3], count).await;
        for engine in self.tiered.iter().cycle().take(6) {
            assert!(
                !engine.decide(&Ask { wants: &wants }).await.is_allowed(),
                "{kind}: one of them is drained"
            );
        }
        // What was taken on a node before another refused is given back, in the background if need be.
        for (at, key) in keys.iter().enumerate().filter(|(at, _)| *at != 3) {
            self.is_left(rule, key, count, &format!("{at} was spent")).await;
        }
        self.forget(&keys[3]).await;
        self.time.forward(UNHEARD_MAX);
        assert!(self.tiered[1].decide(&Ask { wants: &wants }).await.is_allowed(), "{kind}: all are whole");
        for key in &keys {
            self.is_left(rule, key, count - 1, "each is spent once").await;
        }
    }

    /// What is left of a key comes to be this, by the store itself.
    async fn is_left(&self, rule: &str, key: &str, left: u32, what: &str) {
        for _ in 0..200 {
            if peek(&self.plain, rule, key).await.remaining == left {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let found = peek(&self.plain, rule, key).await.remaining;
        panic!("{}: {what}: {found} left, not {left}", self.kind);
    }

    async fn forget(&self, key: &str) {
        self.plain.forget(&Ask { wants: &[want(SLOW.0, key, 1, &[])] }).await.expect("it is forgotten");
    }

    async fn a_refusal_changes_nothing(&self) {
        let (kind, (rule, count)) = (self.kind, SLOW);
        let key = unique_prefix();
        decide(&self.plain, rule, &key, count).await;
        self.time.forward(Duration::from_millis(3));
        let before = peek(&self.plain, rule, &key).await;
        let mut sources = Vec::new();
        for engine in self.tiered.iter().cycle().take(40) {
            let verdict = decide(engine, rule, &key, 1).await;
            assert!(!verdict.is_allowed(), "{kind}");
            sources.push(verdict.source);
        }
        assert_eq!(peek(&self.plain, rule, &key).await, before, "{kind}");
        let without_a_trip = sources.iter().filter(|source| **source != Source::Store).count();
        // Each instance asks once, and then knows.
        let expected = if self.tier >= Tier::DenyCache { 30..=38 } else { 0..=0 };
        assert!(expected.contains(&without_a_trip), "{kind}: {without_a_trip} without a trip");
        // Nor were they counted: it may pass when it was said to.
        let tollgate::core::decision::Outcome::Denied { retry_after } = before.outcome else {
            panic!("{kind}: {before:?}")
        };
        self.time.forward(retry_after.to_duration());
        assert!(decide(&self.tiered[0], rule, &key, 1).await.is_allowed(), "{kind}: at its retry instant");
    }

    /// By an instance that tells nobody: this engine without tiers has no cache that it would tell others of.
    async fn what_was_eased_is_seen_within_a_second(&self) {
        let (kind, (rule, count)) = (self.kind, SLOW);
        self.time.to_half_past();
        for is_reset in [false, true] {
            let key = unique_prefix();
            let spent = decide(&self.plain, rule, &key, count).await.checks[0].decision.take;
            for engine in self.tiered.iter().cycle().take(20) {
                assert!(!decide(engine, rule, &key, 1).await.is_allowed(), "{kind}");
            }
            if is_reset {
                self.forget(&key).await;
            } else {
                let takes = [spent];
                let answer = self.plain.refund(&Ask { wants: &[want(rule, &key, count, &takes)] }).await;
                assert!(matches!(answer, RefundAnswer::Done(_)), "{kind}: {answer:?}");
            }
            assert_eq!(peek(&self.plain, rule, &key).await.remaining, count, "{kind}");
            self.time.forward(UNHEARD_MAX);
            for engine in &self.tiered {
                assert!(decide(engine, rule, &key, 1).await.is_allowed(), "{kind}: hidden after a second");
            }
        }
    }

    /// Two instances and ten times the demand, in bursts, with pauses.
    async fn a_hot_key_holds_its_bound_and_a_peek_is_true(&self) {
        let (kind, (rule, count)) = (self.kind, FAST);
        let (key, mut dice) = (unique_prefix(), fastrand::Rng::with_seed(11));
        let (mut calls, mut leased, mut compared) = (Vec::new(), 0, 0);
        let started = self.time.now();
        for step in 0..400 {
            match dice.u32(..10) {
                0 => self.time.forward(Duration::from_micros(dice.u64(..40_000))),
                1..=4 => self.time.forward(Duration::from_micros(dice.u64(..2_000))),
                _ => {}
            }
            let verdict = decide(&self.tiered[dice.usize(..2)], rule, &key, 1).await;
            if verdict.is_allowed() {
                calls.push(Call::at(self.time.now()));
                leased += u32::from(verdict.source == Source::Lease);
            }
            if step % 20 == 0 {
                let before = peek(&self.plain, rule, &key).await;
                let seen = peek(&self.tiered[dice.usize(..2)], rule, &key).await;
                let after = peek(&self.plain, rule, &key).await;
                // Fetches beside the calls may come in between.
                if before == after {
                    assert_eq!(seen, before, "{kind}: a peek at step {step}");
                    compared += 1;
                }
            }
        }
        let algorithm = limit(kind, &format!("{count}/{}", span(rule)));
        let lease = self.tier.lease_time(&algorithm);
        let bound = Bound { kind, count: count.into(), span: Micros::SECOND, lease };
        assert_eq!(bound.check(&calls), Ok(()), "{kind}");
        let elapsed = self.time.now() - started;
        assert!(calls.len() >= 45, "{kind}: only {} admitted in {elapsed}", calls.len());
        assert!(compared >= 5, "{kind}: no peek could be compared");
        assert_eq!(leased > 0, self.tier == Tier::Lease, "{kind}: {leased} on leases");
    }
}
