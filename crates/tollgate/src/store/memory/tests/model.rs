//! The store against a model of it: one ordinary map, and the core's own functions.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use tollgate_core::algorithm::fixed_window::State as Fixed;
use tollgate_core::algorithm::sliding_log::Log;
use tollgate_core::algorithm::sliding_window::State as Sliding;
use tollgate_core::algorithm::token_bucket::State as Bucket;
use tollgate_core::algorithm::{Algorithm, Kind, fixed_window, sliding_log, sliding_window, token_bucket};
use tollgate_core::check::{Check, Refund};
use tollgate_core::decision::{Decision, Outcome, Refunded, Take, Verb};
use tollgate_core::key::{Key, Scope};
use tollgate_core::store::Store;
use tollgate_core::units::{Cost, Micros};

use super::{START, algorithm, builder, ready};

#[derive(Debug, Clone)]
enum State {
    Bucket(Bucket),
    Fixed(Fixed, Micros),
    Sliding(Sliding, Micros),
    Log(Log, Micros),
}

impl State {
    fn is_whole(&self, now: Micros) -> bool {
        match self {
            State::Bucket(state) => {
                token_bucket::visit(&state.under, Some(state), now, Cost::ONE, Verb::Peek)
                    .decision
                    .reset_after
                    == Micros::ZERO
            }
            State::Fixed(state, end) => state.count == 0 || now >= *end,
            State::Sliding(state, span) => {
                state.current + state.previous == 0 || now >= state.start + *span + *span
            }
            State::Log(log, span) => log.latest().is_none_or(|latest| now >= latest + *span),
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Model {
    keys_max: usize,
    states: HashMap<String, State>,
    overflowed: u64,
}

impl Model {
    /// The check's own name, or the name of the bucket that newcomers share.
    fn place(&mut self, check: &Check<'_>, now: Micros) -> (String, bool) {
        let own = check.key.to_string();
        self.states.retain(|_, state| !state.is_whole(now));
        let taken = self.states.keys().filter(|name| !name.starts_with("overflow")).count();
        if self.states.contains_key(&own)
            || taken < self.keys_max
            || check.cost.get() > check.algorithm.limit()
        {
            return (own, false);
        }
        // Whether tokens may be taken ahead of it does not make it another limit.
        let limit = check.algorithm.clone().leased(Micros::ZERO);
        (format!("overflow {} {limit:?}", check.key.scope.as_str()), true)
    }

    fn visit(&mut self, check: &Check<'_>, now: Micros, verb: Verb) -> Decision {
        let (name, is_overflow) = self.place(check, now);
        if is_overflow && verb == Verb::Take {
            self.overflowed += 1;
        }
        let state = self.states.get(&name).cloned();
        let cost = check.cost;
        let (decision, write) = match check.algorithm {
            Algorithm::TokenBucket(limit) => {
                let state = match &state {
                    Some(State::Bucket(state)) => Some(state),
                    _ => None,
                };
                let step = token_bucket::visit(limit, state, now, cost, verb);
                let spend = step.spend.filter(|_| verb == Verb::Take);
                (step.decision, spend.or(step.mend).map(State::Bucket))
            }
            Algorithm::FixedWindow(limit) => {
                let state = match &state {
                    Some(State::Fixed(state, _)) => Some(state),
                    _ => None,
                };
                let step = fixed_window::visit(limit, state, now, cost, verb);
                let end = limit.windows().window_of(now).end;
                (
                    step.decision,
                    step.spend.filter(|_| verb == Verb::Take).map(|state| State::Fixed(state, end)),
                )
            }
            Algorithm::SlidingWindow(limit) => {
                let state = match &state {
                    Some(State::Sliding(state, _)) => Some(state),
                    _ => None,
                };
                let step = sliding_window::visit(limit, state, now, cost, verb);
                let spend = step.spend.filter(|_| verb == Verb::Take);
                (step.decision, spend.map(|state| State::Sliding(state, limit.span())))
            }
            Algorithm::SlidingLog(limit) => {
                let mut log = match state {
                    Some(State::Log(log, _)) => Some(log),
                    _ => None,
                };
                let step = sliding_log::visit(limit, log.as_ref(), now, cost, verb);
                let edit = step.spend.filter(|_| verb == Verb::Take).or(step.mend);
                let write = edit.map(|edit| {
                    let mut log = log.take().unwrap_or_default();
                    log.apply(&edit);
                    State::Log(log, limit.span())
                });
                (step.decision, write)
            }
        };
        if let Some(write) = write {
            self.states.insert(name, write);
        }
        decision
    }

    fn take(&mut self, checks: &[Check<'_>], now: Micros) -> Vec<Decision> {
        let before = self.states.clone();
        let mut decisions = Vec::new();
        for (at, check) in checks.iter().enumerate() {
            let decision = self.visit(check, now, Verb::Take);
            decisions.push(decision);
            if decision.outcome != Outcome::Allowed {
                self.states = before;
                decisions = checks.iter().map(|check| self.visit(check, now, Verb::Peek)).collect();
                decisions[at] = decision;
                break;
            }
        }
        decisions
    }

    fn refund(&mut self, check: &Check<'_>, take: Take, now: Micros) -> Refunded {
        self.states.retain(|_, state| !state.is_whole(now));
        let name = check.key.to_string();
        let state = self.states.get_mut(&name);
        match (check.algorithm, state) {
            (Algorithm::TokenBucket(limit), state) => {
                let old = match &state {
                    Some(State::Bucket(old)) => Some(*old),
                    _ => None,
                };
                let (refunded, write) = token_bucket::refund(limit, old.as_ref(), now, check.cost, take.at);
                if let (Some(state), Some(write)) = (state, write) {
                    *state = State::Bucket(write);
                }
                refunded
            }
            (Algorithm::FixedWindow(limit), state) => {
                let old = match &state {
                    Some(State::Fixed(old, _)) => Some(*old),
                    _ => None,
                };
                let (refunded, write) = fixed_window::refund(limit, old.as_ref(), now, check.cost, take.at);
                if let (Some(state), Some(write)) = (state, write) {
                    *state = State::Fixed(write, limit.windows().window_of(now).end);
                }
                refunded
            }
            (Algorithm::SlidingWindow(limit), state) => {
                let old = match &state {
                    Some(State::Sliding(old, _)) => Some(*old),
                    _ => None,
                };
                let (refunded, write) = sliding_window::refund(limit, old.as_ref(), now, check.cost, take.at);
                if let (Some(state), Some(write)) = (state, write) {
                    *state = State::Sliding(write, limit.span());
                }
                refunded
            }
            (Algorithm::SlidingLog(limit), Some(State::Log(log, _))) => {
                sliding_log::refund(limit, Some(log), now, check.cost, take)
            }
            (Algorithm::SlidingLog(limit), _) => sliding_log::refund(limit, None, now, check.cost, take),
        }
    }
}

/// Per kind, the limits a key may be asked under one after the other.
fn limits() -> Vec<Vec<Algorithm>> {
    let many = |kind, rates: &[&str]| rates.iter().map(|rate| algorithm(kind, rate, None)).collect();
    let leased = algorithm(Kind::SlidingLog, "5/s", None).leased(Micros(20_000));
    let bursts = [("3/s", 5), ("7/s", 4), ("1/100ms", 1), ("10/min", 9)];
    vec![
        bursts.iter().map(|(rate, burst)| algorithm(Kind::TokenBucket, rate, Some(*burst))).collect(),
        // One span for all: entries that left a shorter window are dropped when an ask is undone.
        [many(Kind::SlidingLog, &["3/s", "5/s", "2/s"]), vec![leased.ahead(), leased]].concat(),
        many(Kind::SlidingWindow, &["4/s", "6/s", "3/700ms"]),
        many(Kind::FixedWindow, &["4/s", "2/s", "5/1500ms"]),
    ]
}

#[derive(Debug, Clone)]
struct Pick {
    kind: usize,
    limit: usize,
    subject: u8,
    cost: u32,
}

#[derive(Debug, Clone)]
enum Op {
    Take(Vec<Pick>),
    Peek(Vec<Pick>),
    Refund(usize, u64),
    Forget(u8),
    Wait(u64),
    Beat,
}

fn picks() -> impl Strategy<Value = Vec<Pick>> {
    let pick = (0_usize..4, 0_usize..12, 0_u8..30, 1_u32..5).prop_map(|(kind, limit, subject, cost)| Pick {
        kind,
        limit: limit % 5 % 4,
        subject,
        cost,
    });
    proptest::collection::vec(pick, 1..4)
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        12 => picks().prop_map(Op::Take),
        3 => picks().prop_map(Op::Peek),
        2 => (any::<usize>(), 0_u64..600_000).prop_map(|(which, late)| Op::Refund(which, late)),
        1 => (0_u8..30).prop_map(Op::Forget),
        4 => prop_oneof![0_u64..1000, 0_u64..400_000, 0_u64..4_000_000].prop_map(Op::Wait),
        1 => Just(Op::Beat),
    ];
    proptest::collection::vec(op, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_answer_is_the_models(ops in ops(), keys_max in 1_u8..18) {
        let limits = limits();
        let scopes: Vec<_> = limits.iter().map(|l| Scope::of_rule("rule", 0, l[0].kind())).collect();
        let subjects: Vec<_> = (0..30).map(|n| format!("subject {n}")).collect();
        let (builder, hand) = builder();
        let store = builder.max_keys(u64::from(keys_max)).shards(1).build();
        let mut model = Model { keys_max: usize::from(keys_max), ..Model::default() };
        let mut now = START;
        let mut history: Vec<Refund<'_>> = Vec::new();

        for op in ops {
            let checks_of = |picks: &[Pick]| {
                let mut checks: Vec<Check<'_>> = Vec::new();
                for pick in picks {
                    let of_kind = &limits[pick.kind];
                    let key = Key {
                        scope: &scopes[pick.kind],
                        subject: subjects[usize::from(pick.subject)].as_bytes(),
                    };
                    if checks.iter().all(|check| check.key != key) {
                        let cost = Cost::new(pick.cost).unwrap();
                        checks.push(Check { key, algorithm: &of_kind[pick.limit % of_kind.len()], cost });
                    }
                }
                checks
            };
            match op {
                Op::Take(picks) => {
                    let checks = checks_of(&picks);
                    let decisions = ready(store.take(&checks)).unwrap();
                    prop_assert_eq!(decisions.to_vec(), model.take(&checks, now));
                    if decisions.iter().all(|decision| decision.outcome == Outcome::Allowed) {
                        let takes = checks.iter().zip(&decisions);
                        history.extend(takes.map(|(check, d)| Refund { check: *check, take: d.take }));
                    }
                }
                Op::Peek(picks) => {
                    let checks = checks_of(&picks);
                    let expected: Vec<_> = checks.iter().map(|c| model.visit(c, now, Verb::Peek)).collect();
                    prop_assert_eq!(ready(store.peek(&checks)).unwrap().to_vec(), expected);
                }
                Op::Refund(which, late) if !history.is_empty() => {
                    let refund = history.swap_remove(which % history.len());
                    now = now + Micros(late);
                    hand.store(now.0, Ordering::Release);
                    let refunded = ready(store.refund(&[refund])).unwrap()[0];
                    prop_assert_eq!(refunded, model.refund(&refund.check, refund.take, now));
                }
                Op::Forget(subject) => {
                    for scope in &scopes {
                        let key = Key { scope, subject: subjects[usize::from(subject)].as_bytes() };
                        ready(store.forget(&[key])).unwrap();
                        model.states.remove(&key.to_string());
                    }
                }
                Op::Wait(micros) => {
                    now = now + Micros(micros);
                    hand.store(now.0, Ordering::Release);
                }
                Op::Beat => prop_assert_eq!(ready(store.heartbeat()).unwrap().instances, 1),
                Op::Refund(..) => {}
            }
            prop_assert!(store.live_keys() <= store.max_keys());
            prop_assert_eq!(store.overflowed(), model.overflowed);
        }

        for (scope, subject) in scopes.iter().flat_map(|scope| subjects.iter().map(move |s| (scope, s))) {
            ready(store.forget(&[Key { scope, subject: subject.as_bytes() }])).unwrap();
        }
        prop_assert_eq!(store.live_keys(), 0);
    }
}
