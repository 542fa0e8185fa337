//! Logs, short as a rule: the model reads every element.

use tollgate_core::algorithm::sliding_log::{self, Log, SlidingLog};
use tollgate_core::decision::{Outcome, Refunded};
use tollgate_core::limit::SPAN_MAX;
use tollgate_core::units::Micros;

use super::{Pair, Seen, any_count, any_span, cost_of, rate_of, seen, written};
use crate::histories::random::Random;
use crate::models::{self, Answer, GiveBack, Visit};

#[derive(Debug, Default)]
pub(crate) struct SlidingLogs {
    model: models::sliding_log::Model,
    log: Option<Log>,
}

#[derive(Debug, Clone)]
pub(crate) struct LogLimit {
    built: SlidingLog,
    pub(crate) model: models::sliding_log::Limit,
}

impl LogLimit {
    fn new(limit: u32, span: u64) -> LogLimit {
        let built = SlidingLog::try_new(rate_of(limit, span), sliding_log::LIMIT_MAX).expect("short enough");
        LogLimit { built, model: models::sliding_log::Limit { limit, span, lease: 0, ahead: 0 } }
    }

    /// With a lease time, or without one.
    fn any_lease(self, random: &mut Random) -> LogLimit {
        let longest = (self.model.span / 50).min(1_000_000);
        let lease = if longest == 0 || random.one_in(2) { 0 } else { random.between(1, longest) };
        let model = models::sliding_log::Limit { lease, ahead: 0, ..self.model };
        LogLimit { built: self.built.leased(Micros(lease)), model }
    }

    /// The same limit, asked for ahead, or at once.
    fn turned(self) -> LogLimit {
        let lease = self.model.lease;
        let ahead = if self.model.ahead == 0 { lease } else { 0 };
        let built = if ahead == 0 { self.built.leased(Micros(lease)) } else { self.built.ahead() };
        LogLimit { built, model: models::sliding_log::Limit { ahead, ..self.model } }
    }
}

impl SlidingLogs {
    fn assert_same(&self) {
        let runs = self.log.iter().flat_map(Log::runs);
        let entries = runs.flat_map(|run| {
            let numbers = run.first..run.first + run.entries;
            numbers.map(|number| models::sliding_log::Entry { at: run.at.0, number })
        });
        assert_eq!(entries.collect::<Vec<_>>(), self.model.entries(), "what is in the log");
    }
}

impl Pair for SlidingLogs {
    const NAME: &'static str = "sliding_log";
    type Limit = LogLimit;

    fn any_limit(random: &mut Random, _: u64) -> LogLimit {
        let most = if random.one_in(100) { sliding_log::LIMIT_MAX } else { 60 };
        LogLimit::new(any_count(random, most), any_span(random)).any_lease(random)
    }

    fn other_limit(random: &mut Random, now: u64, old: &LogLimit) -> LogLimit {
        let models::sliding_log::Limit { limit, span, .. } = old.model;
        match random.between(0, 8) {
            4..=8 => old.clone().turned(),
            0 => LogLimit::new(any_count(random, 60), span),
            1 => LogLimit::new(limit, any_span(random)),
            2 => LogLimit::new(limit, random.between(1, (span * 3).min(SPAN_MAX.0))),
            _ => SlidingLogs::any_limit(random, now),
        }
    }

    fn most(limit: &LogLimit) -> u32 {
        limit.model.limit
    }

    fn span(limit: &LogLimit) -> u64 {
        limit.model.span
    }

    fn next_edge(limit: &LogLimit, now: u64) -> u64 {
        now + limit.model.span
    }

    fn visit(&mut self, limit: &LogLimit, visit: Visit) -> (Answer, Seen) {
        let now = Micros(visit.now);
        let step = sliding_log::visit(&limit.built, self.log.as_ref(), now, cost_of(visit.cost), visit.verb);
        let seen = seen(&step);
        if let Some(edit) = written(step, visit) {
            self.log.get_or_insert_default().apply(&edit);
        }
        let expected = self.model.visit(&limit.model, visit);
        if seen.decision == expected.decision && seen.mends == expected.mends {
            self.assert_same();
        }
        (expected, seen)
    }

    fn refund(&mut self, limit: &LogLimit, back: GiveBack) -> (Refunded, Refunded) {
        let now = Micros(back.now);
        let refunded =
            sliding_log::refund(&limit.built, self.log.as_mut(), now, cost_of(back.cost), back.take);
        let expected = self.model.refund(&limit.model, back);
        if refunded == expected {
            self.assert_same();
        }
        (expected, refunded)
    }

    fn outcome(&self, limit: &LogLimit, visit: Visit) -> Outcome {
        let Visit { now, cost, verb, .. } = visit;
        sliding_log::visit(&limit.built, self.log.as_ref(), Micros(now), cost_of(cost), verb).decision.outcome
    }
}
