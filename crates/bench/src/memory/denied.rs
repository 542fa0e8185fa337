//! A refusal that the deny cache answers: the same way through the engine, less the trip.

use std::sync::Arc;

use anyhow::Result;
use tollgate::clock::Clock;
use tollgate::deny_cache::DenyCache;
use tollgate::{Ask, By, Cost, Engine, Micros, Policy, Rule, Want};
use tollgate_core::board::{Board, Notice, Post};
use tollgate_core::check::{Check, Refund};
use tollgate_core::decision::{Decision, Found, Outcome, Refunded, Take};
use tollgate_core::few::Few;
use tollgate_core::key::Key;
use tollgate_core::push::{Listener, Push};
use tollgate_core::store::{Heartbeat, Reach, Store, StoreError};

use super::instructions::{allocations_per_ask, instructions_per_ask};
use super::subject::{Limiter, Load, algorithm, ready};
use super::time;

/// Prints what one refusal from the deny cache costs.
pub(crate) fn table(rounds: usize) -> Result<()> {
    println!("| one `Engine::decide` refused by the deny cache, by a named rule of 20, 1 k keys | |");
    println!("|---|---|");
    let [alone, in_pairs] = time::of_one_and_two_threads(&Denied::new(), rounds);
    println!("| ns on one thread, median of {rounds} rounds | {alone:.1} |");
    println!("| ns on each of two threads, likewise | {in_pairs:.1} |");
    println!("| instructions | {:.0} |", instructions_per_ask("denied", "1000")?);
    println!("| heap allocations | {:.3} |\n", allocations_per_ask("denied", "1000")?);
    Ok(())
}

/// An engine before a store that refuses everything, on a clock on which no refusal ends: each key is asked for once.
pub(crate) struct Denied(Engine<Refusing>);

impl Denied {
    pub(crate) fn new() -> Denied {
        let names = (1..20).map(|n| format!("rule-{n}")).chain(["login".to_owned()]);
        let rules = names.map(|name| Rule::try_new(&name, vec![algorithm(Load::Refused)], None));
        let rules: Result<Vec<_>, _> = rules.collect();
        let policy = Policy::try_new(1, rules.expect("good names")).expect("different names");
        let (clock, _) = Clock::manual(Micros::from_secs(1));
        let cache = DenyCache::builder().clock(clock);
        Denied(Engine::builder(Refusing).policy(policy).deny_cache(Some(cache)).build())
    }
}

impl Limiter for Denied {
    #[inline]
    fn passes(&self, key: &String) -> bool {
        let want = Want { by: By::Rule("login"), key: key.as_bytes(), cost: Cost::ONE, takes: &[] };
        ready(self.0.decide(&Ask { wants: &[want] })).is_allowed()
    }
}

/// Refuses everything for an hour, as if it were far away.
struct Refusing;

impl Store for Refusing {
    async fn take(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        let refused = Decision {
            outcome: Outcome::Denied { retry_after: Micros::from_secs(3600) },
            limit: 1,
            remaining: 0,
            reset_after: Micros::from_secs(3600),
            take: Take { at: Micros::ZERO, entry: 0 },
            found: Found::State,
        };
        Ok(checks.iter().map(|_| refused).collect())
    }

    async fn peek(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        self.take(checks).await
    }

    async fn refund(&self, _: &[Refund<'_>]) -> Result<Few<Refunded>, StoreError> {
        Ok(Few::Many(Vec::new()))
    }

    async fn forget(&self, _: &[Key<'_>]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn post(&self, _: &[u8], _: Option<Notice<'_>>) -> Result<Post, StoreError> {
        Ok(Post::Full)
    }

    async fn board(&self, _: u64) -> Result<Option<Board>, StoreError> {
        Ok(None)
    }

    async fn publish(&self, _: Push<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    fn listen(&self, _: Arc<dyn Listener>) {}

    fn reach(&self) -> Reach {
        Reach::Fleet
    }

    async fn heartbeat(&self) -> Result<Heartbeat, StoreError> {
        Ok(Heartbeat { instances: 1 })
    }
}
