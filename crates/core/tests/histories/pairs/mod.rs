//! Each algorithm beside its model, with the limits it is tried under.

mod fixed_window;
mod sliding_log;
mod sliding_window;
mod token_bucket;

use std::fmt::Debug;

use tollgate_core::decision::{Decision, Outcome, Refunded, Returned, Step, Verb};
use tollgate_core::limit::{Rate, SPAN_MAX};
use tollgate_core::units::{Cost, Micros};

pub(crate) use fixed_window::FixedWindows;
pub(crate) use sliding_log::SlidingLogs;
pub(crate) use sliding_window::SlidingWindows;
pub(crate) use token_bucket::TokenBuckets;

use super::random::Random;
use crate::models::{Answer, GiveBack, Others, Visit};

/// What an algorithm said to a visit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) decision: Decision,
    pub(crate) spends: bool,
    pub(crate) mends: bool,
}

/// An algorithm and its model, remembering the same key.
pub(crate) trait Pair: Default {
    const NAME: &'static str;
    type Limit: Clone + Debug;

    /// A limit to begin with, for a history that begins at `now`.
    fn any_limit(random: &mut Random, now: u64) -> Self::Limit;
    /// A limit to change to.
    fn other_limit(random: &mut Random, now: u64, old: &Self::Limit) -> Self::Limit;
    /// The most that is admitted at once.
    fn most(limit: &Self::Limit) -> u32;
    /// A span of time in which things happen under this limit.
    fn span(limit: &Self::Limit) -> u64;
    /// The next instant after `now` at which a window begins.
    fn next_edge(limit: &Self::Limit, now: u64) -> u64;
    /// Lets both decide and both remember; their states must then be the same.
    fn visit(&mut self, limit: &Self::Limit, visit: Visit) -> (Answer, Seen);
    /// Lets both give back.
    fn refund(&mut self, limit: &Self::Limit, back: GiveBack) -> (Refunded, Refunded);
    /// What the algorithm would say, remembering nothing.
    fn outcome(&self, limit: &Self::Limit, visit: Visit) -> Outcome;
    /// Whether a take so refunded is out of the books.
    fn counts_as_undone(returned: Returned) -> bool {
        returned == Returned::All
    }
}

fn cost_of(cost: u32) -> Cost {
    Cost::new(cost).expect("histories have no cost of zero")
}

fn rate_of(count: u32, span: u64) -> Rate {
    Rate::try_new(count, Micros(span)).expect("histories have no rate of zero")
}

/// Spans people write, and spans they do not.
fn any_span(random: &mut Random) -> u64 {
    const SPANS: [u64; 10] = [
        1,
        2,
        1_000,
        1_000_000,
        11_000_000,
        60_000_000,
        900_000_000,
        3_600_000_000,
        86_400_000_000,
        SPAN_MAX.0,
    ];
    if random.one_in(2) { random.pick(&SPANS) } else { random.magnitude(SPAN_MAX.0) }
}

/// Few as a rule, and now and then as many as there are.
fn any_count(random: &mut Random, most: u32) -> u32 {
    match random.between(0, 9) {
        0..=5 => random.count(1, most.min(20)),
        6 => most,
        7 => most - random.count(0, most.min(3) - 1),
        _ => u32::try_from(random.magnitude(u64::from(most))).expect("at most a u32"),
    }
}

fn seen<S>(step: &Step<S>) -> Seen {
    Seen { decision: step.decision, spends: step.spend.is_some(), mends: step.mend.is_some() }
}

/// What a store remembers: a spend if the whole ask passed, what was mended otherwise, of a peek nothing.
fn written<S>(step: Step<S>, visit: Visit) -> Option<S> {
    match (visit.verb, visit.others) {
        (Verb::Take, Others::Pass) => step.spend.or(step.mend),
        (Verb::Take, Others::Refuse) => step.mend,
        (Verb::Peek, _) => None,
    }
}
