//! Placeholder: replaced by the sharded store.

use std::collections::HashMap;

use parking_lot::Mutex;
use tollgate_core::algorithm::{Algorithm, fixed_window, sliding_log, sliding_window, token_bucket};
use tollgate_core::check::{Check, Refund};
use tollgate_core::decision::{Decision, Outcome, Refunded, Verb};
use tollgate_core::few::Few;
use tollgate_core::key::Key;
use tollgate_core::store::{Heartbeat, Store, StoreError};
use tollgate_core::units::Micros;

use crate::clock::Clock;

#[derive(Debug, Clone)]
enum State {
    Bucket(token_bucket::State),
    Log(sliding_log::Log),
    Sliding(sliding_window::State),
    Fixed(fixed_window::State),
}

enum Write {
    Set(State),
    Edit(sliding_log::Edit),
}

/// Keeps state in this process.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
    states: Mutex<HashMap<String, State>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore { clock: Clock::system(), states: Mutex::default() }
    }
}

impl MemoryStore {
    /// A store on the given clock.
    pub fn with_clock(clock: Clock) -> MemoryStore {
        MemoryStore { clock, states: Mutex::default() }
    }

    fn visit(&self, checks: &[Check<'_>], verb: Verb) -> Few<Decision> {
        let now = self.clock.now();
        let mut states = self.states.lock();
        let mut out = Vec::new();
        for check in checks {
            out.push(step(states.get(&check.key.to_string()), check, now, verb));
        }
        let refused = out.iter().any(|(d, _, _)| d.outcome != Outcome::Allowed);
        if verb == Verb::Take {
            for (check, (_, spend, mend)) in checks.iter().zip(&mut out) {
                let write = if refused { mend.take() } else { spend.take() };
                match write {
                    Some(Write::Set(state)) => {
                        states.insert(check.key.to_string(), state);
                    }
                    Some(Write::Edit(edit)) => {
                        if let State::Log(log) = states
                            .entry(check.key.to_string())
                            .or_insert(State::Log(sliding_log::Log::default()))
                        {
                            log.apply(&edit);
                        }
                    }
                    None => {}
                }
            }
        }
        out.into_iter().map(|(d, _, _)| d).collect()
    }
}

fn step(
    state: Option<&State>,
    check: &Check<'_>,
    now: Micros,
    verb: Verb,
) -> (Decision, Option<Write>, Option<Write>) {
    match check.algorithm {
        Algorithm::TokenBucket(b) => {
            let s = match state {
                Some(State::Bucket(s)) => Some(s),
                _ => None,
            };
            let step = token_bucket::visit(b, s, now, check.cost, verb);
            (
                step.decision,
                step.spend.map(|s| Write::Set(State::Bucket(s))),
                step.mend.map(|s| Write::Set(State::Bucket(s))),
            )
        }
        Algorithm::SlidingLog(l) => {
            let s = match state {
                Some(State::Log(s)) => Some(s),
                _ => None,
            };
            let step = sliding_log::visit(l, s, now, check.cost, verb);
            (step.decision, step.spend.map(Write::Edit), step.mend.map(Write::Edit))
        }
        Algorithm::SlidingWindow(w) => {
            let s = match state {
                Some(State::Sliding(s)) => Some(s),
                _ => None,
            };
            let step = sliding_window::visit(w, s, now, check.cost, verb);
            (step.decision, step.spend.map(|s| Write::Set(State::Sliding(s))), None)
        }
        Algorithm::FixedWindow(w) => {
            let s = match state {
                Some(State::Fixed(s)) => Some(s),
                _ => None,
            };
            let step = fixed_window::visit(w, s, now, check.cost, verb);
            (step.decision, step.spend.map(|s| Write::Set(State::Fixed(s))), None)
        }
    }
}

impl Store for MemoryStore {
    async fn take(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        Ok(self.visit(checks, Verb::Take))
    }

    async fn peek(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        Ok(self.visit(checks, Verb::Peek))
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<Few<Refunded>, StoreError> {
        let now = self.clock.now();
        let mut states = self.states.lock();
        Ok(refunds
            .iter()
            .map(|Refund { check, take }| {
                let name = check.key.to_string();
                let cost = check.cost;
                match (check.algorithm, states.get_mut(&name)) {
                    (Algorithm::TokenBucket(b), Some(State::Bucket(s))) => {
                        let (r, w) = token_bucket::refund(b, Some(s), now, cost, take.at);
                        if let Some(w) = w {
                            *s = w;
                        }
                        r
                    }
                    (Algorithm::TokenBucket(b), _) => token_bucket::refund(b, None, now, cost, take.at).0,
                    (Algorithm::SlidingLog(l), Some(State::Log(s))) => {
                        sliding_log::refund(l, Some(s), now, cost, *take)
                    }
                    (Algorithm::SlidingLog(l), _) => sliding_log::refund(l, None, now, cost, *take),
                    (Algorithm::SlidingWindow(w), Some(State::Sliding(s))) => {
                        let (r, n) = sliding_window::refund(w, Some(s), now, cost, take.at);
                        if let Some(n) = n {
                            *s = n;
                        }
                        r
                    }
                    (Algorithm::SlidingWindow(w), _) => sliding_window::refund(w, None, now, cost, take.at).0,
                    (Algorithm::FixedWindow(w), Some(State::Fixed(s))) => {
                        let (r, n) = fixed_window::refund(w, Some(s), now, cost, take.at);
                        if let Some(n) = n {
                            *s = n;
                        }
                        r
                    }
                    (Algorithm::FixedWindow(w), _) => fixed_window::refund(w, None, now, cost, take.at).0,
                }
            })
            .collect())
    }

    async fn forget(&self, keys: &[Key<'_>]) -> Result<(), StoreError> {
        let mut states = self.states.lock();
        for key in keys {
            states.remove(&key.to_string());
        }
        Ok(())
    }

    async fn heartbeat(&self) -> Result<Heartbeat, StoreError> {
        Ok(Heartbeat { instances: 1 })
    }

    fn is_shared(&self) -> bool {
        false
    }
}
