//! Buckets, from 1 token to as many as can be kept exactly.

use tollgate_core::algorithm::token_bucket::{self, TokenBucket};
use tollgate_core::decision::{Outcome, Refunded, Returned};
use tollgate_core::limit::{LimitError, SPAN_MAX};
use tollgate_core::units::Micros;

use super::{Pair, Seen, any_count, any_span, cost_of, rate_of, seen, written};
use crate::histories::random::Random;
use crate::models::{self, Answer, GiveBack, Visit, ratio::Ratio};

#[derive(Debug, Default)]
pub(crate) struct TokenBuckets {
    model: models::token_bucket::Model,
    state: Option<token_bucket::State>,
}

#[derive(Debug, Clone)]
pub(crate) struct BucketLimit {
    built: TokenBucket,
    pub(crate) model: models::token_bucket::Limit,
}

impl BucketLimit {
    /// With that burst, or with the largest that can be kept exactly.
    pub(crate) fn new(count: u32, period: u64, burst: u32) -> BucketLimit {
        let rate = rate_of(count, period);
        let (built, capacity) = match TokenBucket::try_new(rate, burst) {
            Ok(built) => (built, burst),
            Err(LimitError::NotExact { burst_max, .. }) => {
                let capacity = u32::try_from(burst_max).expect("less than the burst");
                (TokenBucket::try_new(rate, capacity).expect("is said to be exact"), capacity)
            }
            Err(error) => panic!("{rate} with burst {burst}: {error}"),
        };
        BucketLimit { built, model: models::token_bucket::Limit { count, period, capacity } }
    }
}

impl TokenBuckets {
    fn assert_same(&self) {
        let state = self.state.map(|state| {
            (Ratio::new(u128::from(state.units), u128::from(state.under.unit())), state.last_refill.0)
        });
        let model = self.model.bucket().map(|bucket| (bucket.tokens, bucket.at));
        assert_eq!(state, model, "tokens, and when");
        if let (Some(state), Some(bucket)) = (self.state, self.model.bucket()) {
            assert_eq!(state.under.capacity(), bucket.limit.capacity, "the limit it is under");
        }
    }
}

impl Pair for TokenBuckets {
    const NAME: &'static str = "token_bucket";
    type Limit = BucketLimit;

    fn any_limit(random: &mut Random, _: u64) -> BucketLimit {
        let burst = any_count(random, u32::MAX);
        let (count, period) = match random.between(0, 4) {
            0 => random.pick(&[(3, 1_000_000), (7, 1_000_000), (999_983, 86_400_000_000), (1, SPAN_MAX.0)]),
            1 => (u32::MAX - random.count(0, 9), random.magnitude(1_000_000)),
            _ => (any_count(random, u32::MAX), any_span(random)),
        };
        BucketLimit::new(count, period, burst)
    }

    fn other_limit(random: &mut Random, now: u64, old: &BucketLimit) -> BucketLimit {
        let models::token_bucket::Limit { count, period, capacity } = old.model;
        match random.between(0, 4) {
            0 => BucketLimit::new(count, period, any_count(random, u32::MAX)),
            1 => BucketLimit::new(any_count(random, u32::MAX), period, capacity),
            // The same limit in other words.
            2 => BucketLimit::new(count.saturating_mul(2), (period * 2).min(SPAN_MAX.0), capacity),
            3 => BucketLimit::new(count, period, capacity.saturating_add(1)),
            _ => TokenBuckets::any_limit(random, now),
        }
    }

    fn most(limit: &BucketLimit) -> u32 {
        limit.model.capacity
    }

    fn span(limit: &BucketLimit) -> u64 {
        limit.model.period
    }

    fn next_edge(limit: &BucketLimit, now: u64) -> u64 {
        now + limit.model.period.div_ceil(u64::from(limit.model.count))
    }

    fn visit(&mut self, limit: &BucketLimit, visit: Visit) -> (Answer, Seen) {
        let step = token_bucket::visit(
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

    fn refund(&mut self, limit: &BucketLimit, back: GiveBack) -> (Refunded, Refunded) {
        let (refunded, state) = token_bucket::refund(
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

    fn outcome(&self, limit: &BucketLimit, visit: Visit) -> Outcome {
        let Visit { now, cost, verb, .. } = visit;
        token_bucket::visit(&limit.built, self.state.as_ref(), Micros(now), cost_of(cost), verb)
            .decision
            .outcome
    }

    /// What a refund does not give back had come back by itself: the take is out of the books either way.
    fn counts_as_undone(_: Returned) -> bool {
        true
    }
}
