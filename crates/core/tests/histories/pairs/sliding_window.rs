//! Sliding windows, of up to the largest limit there is.

use tollgate_core::algorithm::sliding_window::{self, SlidingWindow};
use tollgate_core::decision::{Outcome, Refunded};
use tollgate_core::limit::SPAN_MAX;
use tollgate_core::units::Micros;

use super::{Pair, Seen, any_count, any_span, cost_of, rate_of, seen, written};
use crate::histories::random::Random;
use crate::models::{self, Answer, GiveBack, Visit};

#[derive(Debug, Default)]
pub(crate) struct SlidingWindows {
    model: models::sliding_window::Model,
    state: Option<sliding_window::State>,
}

#[derive(Debug, Clone)]
pub(crate) struct SlidingLimit {
    built: SlidingWindow,
    pub(crate) model: models::sliding_window::Limit,
}

impl SlidingLimit {
    pub(crate) fn new(limit: u32, span: u64) -> SlidingLimit {
        let built = SlidingWindow::try_new(rate_of(limit, span)).expect("not too long");
        SlidingLimit { built, model: models::sliding_window::Limit { limit, span } }
    }
}

impl SlidingWindows {
    fn assert_same(&self) {
        let state = self
            .state
            .map(|state| (i128::from(state.start.0), u64::from(state.current), u64::from(state.previous)));
        assert_eq!(state, self.model.newest(), "what was counted, and when");
    }
}

impl Pair for SlidingWindows {
    const NAME: &'static str = "sliding_window";
    type Limit = SlidingLimit;

    fn any_limit(random: &mut Random, _: u64) -> SlidingLimit {
        SlidingLimit::new(any_count(random, u32::MAX), any_span(random))
    }

    fn other_limit(random: &mut Random, now: u64, old: &SlidingLimit) -> SlidingLimit {
        let models::sliding_window::Limit { limit, span } = old.model;
        match random.between(0, 3) {
            0 => SlidingLimit::new(any_count(random, u32::MAX), span),
            1 => SlidingLimit::new(limit, any_span(random)),
            2 => SlidingLimit::new(limit, random.between(1, (span * 3).min(SPAN_MAX.0))),
            _ => SlidingWindows::any_limit(random, now),
        }
    }

    fn most(limit: &SlidingLimit) -> u32 {
        limit.model.limit
    }

    fn span(limit: &SlidingLimit) -> u64 {
        limit.model.span
    }

    fn next_edge(limit: &SlidingLimit, now: u64) -> u64 {
        now - now % limit.model.span + limit.model.span
    }

    fn visit(&mut self, limit: &SlidingLimit, visit: Visit) -> (Answer, Seen) {
        let step = sliding_window::visit(
            &limit.built,
            self.state.as_ref(),
            Micros(visit.now),
            cost_of(visit.cost),
            visit.verb,
        );
        let seen = seen(&step);
        self.state = written(step, visit).or(self.state);
        let expected = self.model.visit(&limit.model, visit);
        if seen.decision == expected.decision && seen.mends == expected.mends {
            self.assert_same();
        }
        (expected, seen)
    }

    fn refund(&mut self, limit: &SlidingLimit, back: GiveBack) -> (Refunded, Refunded) {
        let (refunded, state) = sliding_window::refund(
            &limit.built,
            self.state.as_ref(),
            Micros(back.now),
            cost_of(back.cost),
            back.take.at,
        );
        self.state = state.or(self.state);
        let expected = self.model.refund(&limit.model, back);
        if refunded == expected {
            self.assert_same();
        }
        (expected, refunded)
    }

    fn outcome(&self, limit: &SlidingLimit, visit: Visit) -> Outcome {
        let Visit { now, cost, verb, .. } = visit;
        let step = sliding_window::visit(&limit.built, self.state.as_ref(), Micros(now), cost_of(cost), verb);
        step.decision.outcome
    }
}
