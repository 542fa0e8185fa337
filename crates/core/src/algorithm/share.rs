//! One instance's share of a limit, for when it must decide alone.
//!
//! With `n` instances alive each may admit a rate of r/n and a burst of C/n. The burst is never
//! below one, nor below what the ask costs if the whole limit could have admitted it: an instance
//! cut off must not turn "rarely" into "never".

use super::{Algorithm, FixedWindow, SlidingLog, SlidingWindow, TokenBucket};
use crate::units::Cost;

impl Algorithm {
    /// This limit, divided by `instances`, for an ask of `cost`.
    #[must_use]
    pub fn share(&self, instances: u32, cost: Cost) -> Algorithm {
        let instances = instances.max(1);
        let whole = self.limit();
        let burst = whole.div_euclid(instances).max(1);
        let burst = if cost.get() <= whole { burst.max(cost.get()) } else { burst };
        match self {
            Algorithm::TokenBucket(bucket) => Algorithm::TokenBucket(bucket.shared(instances, burst)),
            Algorithm::SlidingLog(log) => Algorithm::SlidingLog(SlidingLog { limit: burst, ..*log }),
            Algorithm::SlidingWindow(window) => {
                Algorithm::SlidingWindow(SlidingWindow { limit: burst, ..*window })
            }
            Algorithm::FixedWindow(window) => {
                Algorithm::FixedWindow(FixedWindow { limit: burst, windows: window.windows.clone() })
            }
        }
    }
}

/// The most units a share may hold. It never leaves this process, so Lua's numbers do not bind it.
const SHARE_UNITS_MAX: u64 = 1 << 62;

impl TokenBucket {
    /// The same bucket, pouring `instances` times more slowly, of which only the topmost `burst`
    /// tokens are for the asking.
    ///
    /// The burst follows the cost of each ask, so it must not be the capacity: an ask for much that
    /// found a bucket of little full would find it full. Kept back from the whole capacity instead,
    /// an ask for much waits until the whole bucket is full, and pays for all it took.
    ///
    /// A token of a very slow rate may have more units than can be kept; it gets as many as can, and
    /// the share is then a little more than its part.
    fn shared(&self, instances: u32, burst: u32) -> TokenBucket {
        let most = SHARE_UNITS_MAX.div_euclid(u64::from(self.capacity.max(1)));
        let unit = self.unit.saturating_mul(u64::from(instances)).min(most.max(1));
        TokenBucket { unit, reserve: self.capacity.saturating_sub(burst), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::token_bucket::visit;
    use super::*;
    use crate::decision::{Outcome, Verb};
    use crate::limit::Rate;
    use crate::units::Micros;

    /// The capacity of a share follows the cost of the ask; what is admitted must not.
    #[test]
    fn costs_by_turns_admit_no_more_than_the_share() {
        let whole = Algorithm::try_new(Kind::TokenBucket, Rate::parse("10/s").unwrap(), None, 0).unwrap();
        let (mut state, mut admitted) = (None, 0_u32);
        for tick in 0..10_000_u64 {
            let cost = Cost::new(if tick % 2 == 0 { 10 } else { 1 }).unwrap();
            let Algorithm::TokenBucket(bucket) = whole.share(10, cost) else { panic!("a bucket stays one") };
            let now = Micros(1_700_000_000_000_000_u64.saturating_add(tick.saturating_mul(10_000)));
            let step = visit(&bucket, state.as_ref(), now, cost, Verb::Take);
            if step.decision.outcome == Outcome::Allowed {
                admitted = admitted.saturating_add(cost.get());
            }
            state = step.spend.or(step.mend).or(state);
        }
        // A burst of 10 and 100 s at 10/s divided by 10.
        assert!((90..=110).contains(&admitted), "admitted {admitted}");
    }

    /// What a share admits at once.
    fn burst(share: &Algorithm) -> u32 {
        match share {
            Algorithm::TokenBucket(bucket) => bucket.capacity.saturating_sub(bucket.reserve),
            _ => share.limit(),
        }
    }

    /// At least one, at least what is asked, and never what the whole limit would not admit either.
    #[test]
    fn a_burst_is_divided_but_not_to_nothing_and_not_raised_above_the_whole() {
        for kind in Kind::ALL {
            let whole = Algorithm::try_new(kind, Rate::parse("10/h").unwrap(), None, 100).unwrap();
            for (instances, cost, expected) in [
                (1, 1, 10),
                (4, 1, 2),
                (4, 7, 7),
                (4, 10, 10),
                (4, 11, 2),
                (20, 1, 1),
                (20, 11, 1),
                (1, 11, 10),
                (0, 1, 10),
            ] {
                let share = whole.share(instances, Cost::new(cost).unwrap());
                assert_eq!(burst(&share), expected, "{kind}: {instances} instances, cost {cost}");
            }
        }
    }

    #[test]
    fn a_share_of_the_slowest_bucket_still_fits() {
        // A token a year, and as many of them as fit into 2^51 units.
        let rate = Rate::try_new(1, Micros(31_622_400_000_000)).unwrap();
        let whole = Algorithm::try_new(Kind::TokenBucket, rate, Some(71), 0).unwrap();
        for instances in [1, 100, 100_000, u32::MAX] {
            let Algorithm::TokenBucket(share) = whole.share(instances, Cost::ONE) else {
                panic!("a bucket stays one")
            };
            let units = u128::from(share.unit) * u128::from(share.capacity);
            assert!(units <= u128::from(SHARE_UNITS_MAX) && share.unit >= 31_622_400_000_000, "{share:?}");
        }
    }
}
