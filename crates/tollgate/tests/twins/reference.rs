//! The pure functions with a memory: what Redis ought to hold, and what it ought to answer.
//!
//! It also keeps Redis' TTLs, because a state that has expired cannot come back when the clock
//! steps back. That an expired state was worth nothing is not assumed but checked: see
//! [`Reference::look`].

use std::collections::HashMap;

use tollgate::core::algorithm::{fixed_window, sliding_log, sliding_window, token_bucket};
use tollgate::core::check::{Check, Refund};
use tollgate::core::decision::{Decision, Found, Outcome, Refunded, Verb};
use tollgate::store::redis::Layout;
use tollgate::{Algorithm, Kind, Micros};

/// What Redis ought to hold.
#[derive(Debug)]
pub(crate) struct Reference {
    layout: Layout,
    keys: HashMap<String, Kept>,
}

#[derive(Debug, Clone)]
struct Kept {
    state: State,
    /// The last millisecond the key is there.
    expires_ms: u64,
    /// The limit its TTL was reckoned by.
    under: Algorithm,
}

#[derive(Debug, Clone)]
enum State {
    Bucket(token_bucket::State),
    Log(sliding_log::Log),
    Sliding(sliding_window::State),
    Fixed(fixed_window::State),
}

/// What a visit changes.
#[derive(Debug, Clone)]
enum Change {
    Set(State),
    Edit(sliding_log::Edit),
}

struct Step {
    decision: Decision,
    spend: Option<Change>,
    mend: Option<Change>,
}

impl Reference {
    pub(crate) fn new(layout: Layout) -> Reference {
        Reference { layout, keys: HashMap::new() }
    }

    /// Looks at all, then spends all or only mends.
    pub(crate) fn visit(&mut self, checks: &[Check<'_>], now: Micros, verb: Verb) -> Vec<Decision> {
        let steps: Vec<Step> = checks
            .iter()
            .map(|check| {
                let state = self.look(check, now);
                step(state.as_ref(), check, now, verb)
            })
            .collect();
        let is_refused = steps.iter().any(|step| step.decision.outcome != Outcome::Allowed);
        if verb == Verb::Take {
            let expires_ms = match checks {
                [check] if !is_refused => self.ttl_kept(check, now),
                _ => None,
            };
            for (check, step) in checks.iter().zip(&steps) {
                let change = if is_refused { &step.mend } else { &step.spend };
                if let Some(change) = change {
                    self.write(check, now, change);
                }
            }
            if let (Some(expires_ms), [check]) = (expires_ms, checks) {
                self.keys.entry(check.key.to_string()).and_modify(|kept| kept.expires_ms = expires_ms);
            }
        }
        steps.into_iter().map(|step| step.decision).collect()
    }

    /// Gives back one take.
    pub(crate) fn refund(&mut self, refund: &Refund<'_>, now: Micros) -> Refunded {
        let Refund { check, take } = refund;
        let state = self.look(check, now);
        let (refunded, written) = match (check.algorithm, state) {
            (Algorithm::TokenBucket(bucket), state) => {
                let state = state.map(State::bucket);
                let (refunded, written) =
                    token_bucket::refund(bucket, state.as_ref(), now, check.cost, take.at);
                (refunded, written.map(State::Bucket))
            }
            (Algorithm::SlidingWindow(window), state) => {
                let state = state.map(State::sliding);
                let (refunded, written) =
                    sliding_window::refund(window, state.as_ref(), now, check.cost, take.at);
                (refunded, written.map(State::Sliding))
            }
            (Algorithm::FixedWindow(window), state) => {
                let state = state.map(State::fixed);
                let (refunded, written) =
                    fixed_window::refund(window, state.as_ref(), now, check.cost, take.at);
                (refunded, written.map(State::Fixed))
            }
            (Algorithm::SlidingLog(log), state) => {
                let mut state = state.map(State::log);
                let refunded = sliding_log::refund(log, state.as_mut(), now, check.cost, *take);
                // Entries are taken out where they are: the key keeps its TTL.
                if let Some(state) = state {
                    self.replace_log(&check.key.to_string(), state);
                }
                (refunded, None)
            }
        };
        if let Some(state) = written {
            self.write(check, now, &Change::Set(state));
        }
        refunded
    }

    pub(crate) fn forget(&mut self, key: &str) {
        self.keys.remove(key);
    }

    /// When a key expires, in microseconds: the first instant at which it is gone.
    pub(crate) fn gone_at(&self, key: &str) -> Option<Micros> {
        self.keys.get(key).map(|kept| Micros((kept.expires_ms + 1) * 1_000))
    }

    /// What is under a key. What has expired is gone for good, and makes no difference: unless the
    /// limit was changed since, the state that was kept decides as none at all.
    fn look(&mut self, check: &Check<'_>, now: Micros) -> Option<State> {
        let key = check.key.to_string();
        let kept = self.keys.get(&key)?;
        if now.0 / 1_000 <= kept.expires_ms {
            return Some(kept.state.clone());
        }
        if kept.under == *check.algorithm {
            for verb in [Verb::Take, Verb::Peek] {
                let mut with = step(Some(&kept.state), check, now, verb).decision;
                with.found = Found::Nothing;
                assert_eq!(
                    with,
                    step(None, check, now, verb).decision,
                    "{key} expired while it still counted: {kept:?}"
                );
            }
        }
        self.keys.remove(&key);
        None
    }

    /// The fast path of a single packed bucket sets a TTL once a period, and keeps it otherwise.
    fn ttl_kept(&self, check: &Check<'_>, now: Micros) -> Option<u64> {
        let Kept { state: State::Bucket(state), expires_ms, .. } = self.keys.get(&check.key.to_string())?
        else {
            return None;
        };
        let Algorithm::TokenBucket(bucket) = check.algorithm else { return None };
        let period = check.algorithm.keep_for().0 - check.algorithm.time_to_whole().0;
        let is_fast = self.layout == Layout::Packed && state.under == *bucket && state.last_refill <= now;
        (is_fast && state.last_refill.0 >= now.0 - now.0 % period).then_some(*expires_ms)
    }

    fn write(&mut self, check: &Check<'_>, now: Micros, change: &Change) {
        let key = check.key.to_string();
        let spare = if check.algorithm.kind() == Kind::TokenBucket { Micros::SECOND } else { Micros::ZERO };
        let ttl_ms = (check.algorithm.keep_for() + spare).as_millis_ceil();
        let expires_ms = now.0 / 1_000 + ttl_ms;
        let under = check.algorithm.clone();
        match change {
            Change::Set(state) => {
                self.keys.insert(key, Kept { state: state.clone(), expires_ms, under });
            }
            Change::Edit(edit) => {
                let kept = self.keys.entry(key.clone()).or_insert_with(|| Kept {
                    state: State::Log(sliding_log::Log::default()),
                    expires_ms,
                    under: under.clone(),
                });
                let mut log = kept.state.clone().log();
                log.apply(edit);
                if edit.push.is_some() {
                    (kept.expires_ms, kept.under) = (expires_ms, under);
                }
                self.replace_log(&key, log);
            }
        }
    }

    /// A sorted set without members is no key.
    fn replace_log(&mut self, key: &str, log: sliding_log::Log) {
        if log.is_empty() {
            self.keys.remove(key);
        } else if let Some(kept) = self.keys.get_mut(key) {
            kept.state = State::Log(log);
        }
    }
}

fn step(state: Option<&State>, check: &Check<'_>, now: Micros, verb: Verb) -> Step {
    let state = state.cloned();
    match check.algorithm {
        Algorithm::TokenBucket(bucket) => {
            let state = state.map(State::bucket);
            let step = token_bucket::visit(bucket, state.as_ref(), now, check.cost, verb);
            Step {
                decision: step.decision,
                spend: step.spend.map(|state| Change::Set(State::Bucket(state))),
                mend: step.mend.map(|state| Change::Set(State::Bucket(state))),
            }
        }
        Algorithm::SlidingLog(log) => {
            let state = state.map(State::log);
            let step = sliding_log::visit(log, state.as_ref(), now, check.cost, verb);
            Step {
                decision: step.decision,
                spend: step.spend.map(Change::Edit),
                mend: step.mend.map(Change::Edit),
            }
        }
        Algorithm::SlidingWindow(window) => {
            let state = state.map(State::sliding);
            let step = sliding_window::visit(window, state.as_ref(), now, check.cost, verb);
            Step {
                decision: step.decision,
                spend: step.spend.map(|state| Change::Set(State::Sliding(state))),
                mend: step.mend.map(|state| Change::Set(State::Sliding(state))),
            }
        }
        Algorithm::FixedWindow(window) => {
            let state = state.map(State::fixed);
            let step = fixed_window::visit(window, state.as_ref(), now, check.cost, verb);
            Step {
                decision: step.decision,
                spend: step.spend.map(|state| Change::Set(State::Fixed(state))),
                mend: step.mend.map(|state| Change::Set(State::Fixed(state))),
            }
        }
    }
}

/// The kind is part of every key, so a key never holds another kind's state.
impl State {
    fn bucket(self) -> token_bucket::State {
        match self {
            State::Bucket(state) => state,
            other => panic!("not a bucket: {other:?}"),
        }
    }

    fn log(self) -> sliding_log::Log {
        match self {
            State::Log(log) => log,
            other => panic!("not a log: {other:?}"),
        }
    }

    fn sliding(self) -> sliding_window::State {
        match self {
            State::Sliding(state) => state,
            other => panic!("not a sliding window: {other:?}"),
        }
    }

    fn fixed(self) -> fixed_window::State {
        match self {
            State::Fixed(state) => state,
            other => panic!("not a fixed window: {other:?}"),
        }
    }
}
