//! Fixed windows, aligned to the epoch or to a calendar that nobody has.

use std::sync::Arc;

use tollgate_core::algorithm::fixed_window::{self, FixedWindow};
use tollgate_core::decision::{Outcome, Refunded};
use tollgate_core::limit::SPAN_MAX;
use tollgate_core::units::Micros;

use super::{Pair, Seen, any_count, any_span, cost_of, rate_of, seen, written};
use crate::histories::random::Random;
use crate::models::{self, Answer, GiveBack, Visit};

#[derive(Debug, Default)]
pub(crate) struct FixedWindows {
    model: models::fixed_window::Model,
    state: Option<fixed_window::State>,
}

#[derive(Debug, Clone)]
pub(crate) struct FixedLimit {
    built: FixedWindow,
    pub(crate) model: models::fixed_window::Limit,
}

impl FixedLimit {
    fn every(limit: u32, span: u64) -> FixedLimit {
        let built = FixedWindow::try_new(rate_of(limit, span)).expect("a span is enough");
        let windows = models::fixed_window::Windows::Every(span);
        FixedLimit { built, model: models::fixed_window::Limit { limit, windows } }
    }

    /// Some windows around `now`, each of a length of its own.
    fn irregular(limit: u32, random: &mut Random, now: u64) -> FixedLimit {
        let longest = random.pick(&[100, 1_000_000, 3_600_000_000, 40 * 86_400_000_000]);
        let mut boundaries = vec![0];
        let mut boundary = now.saturating_sub(random.magnitude(20 * longest)).max(1);
        for _ in 0..60 {
            boundaries.push(boundary);
            boundary += random.magnitude(longest);
        }
        boundaries.push(1 << 60);
        let name = format!("irregular {}", random.next());
        let calendar = Arc::new(models::fixed_window::Irregular { name, boundaries });
        let windows = models::fixed_window::Windows::Irregular(Arc::clone(&calendar));
        let built = FixedWindow::by_calendar(limit, calendar).expect("not zero");
        FixedLimit { built, model: models::fixed_window::Limit { limit, windows } }
    }
}

impl FixedWindows {
    fn assert_same(&self) {
        let state = self.state.map(|state| (state.start.0, u64::from(state.count)));
        assert_eq!(state, self.model.newest(), "what was counted, and when");
    }
}

impl Pair for FixedWindows {
    const NAME: &'static str = "fixed_window";
    type Limit = FixedLimit;

    fn any_limit(random: &mut Random, now: u64) -> FixedLimit {
        let limit = any_count(random, u32::MAX);
        if random.one_in(3) {
            FixedLimit::irregular(limit, random, now)
        } else {
            FixedLimit::every(limit, any_span(random))
        }
    }

    fn other_limit(random: &mut Random, now: u64, old: &FixedLimit) -> FixedLimit {
        match (&old.model.windows, random.between(0, 2)) {
            (models::fixed_window::Windows::Every(span), 0) => {
                FixedLimit::every(any_count(random, u32::MAX), *span)
            }
            (models::fixed_window::Windows::Every(span), 1) => {
                FixedLimit::every(old.model.limit, random.between(1, (span * 3).min(SPAN_MAX.0)))
            }
            _ => FixedWindows::any_limit(random, now),
        }
    }

    fn most(limit: &FixedLimit) -> u32 {
        limit.model.limit
    }

    fn span(limit: &FixedLimit) -> u64 {
        match &limit.model.windows {
            models::fixed_window::Windows::Every(span) => *span,
            models::fixed_window::Windows::Irregular(calendar) => {
                (calendar.boundaries[60] - calendar.boundaries[1]) / 60 + 1
            }
        }
    }

    fn next_edge(limit: &FixedLimit, now: u64) -> u64 {
        limit.model.windows.around(now).1.min(now + (SPAN_MAX.0))
    }

    fn visit(&mut self, limit: &FixedLimit, visit: Visit) -> (Answer, Seen) {
        let step = fixed_window::visit(
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

    fn refund(&mut self, limit: &FixedLimit, back: GiveBack) -> (Refunded, Refunded) {
        let (refunded, state) = fixed_window::refund(
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

    fn outcome(&self, limit: &FixedLimit, visit: Visit) -> Outcome {
        let Visit { now, cost, verb, .. } = visit;
        let step = fixed_window::visit(&limit.built, self.state.as_ref(), Micros(now), cost_of(cost), verb);
        step.decision.outcome
    }
}
