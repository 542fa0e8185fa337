//! Token bucket: a burst at once, a smooth rate after, and not one token rounded away.
//!
//! Tokens are counted in units so small that a microsecond refills a whole number of them: a rate
//! of `count` per `period` is, reduced to lowest terms, `pour` units per microsecond with `unit`
//! units to the token. Refilling is then one integer multiplication that never rounds, and the
//! time may be advanced on every spend without losing anything. The textbook's float, and the
//! floor that forgets the fraction while advancing the time, both leak; keeping one instant of
//! fullness instead (GCRA) is exact only for rates whose period is a multiple of the count.
//!
//! Twin:      tollgate/scripts/token_bucket.lua
//! Model:     tests/models/token_bucket.rs
//! Proved by: tests/algorithms.rs, tollgate/tests/twins.rs

use crate::decision::{Decision, Found, Outcome, Refunded, Returned, Step, Take, Verb};
use crate::limit::{LimitError, Rate};
use crate::units::{Cost, Micros, Reading, count, mul_div};

/// The most units a bucket may hold: a quarter of what a Lua number counts exactly, so that the
/// twin may add three of them.
pub const UNITS_MAX: u64 = 1 << 51;

/// How a bucket is shaped. Built only by [`TokenBucket::try_new`]: no field is zero, and
/// `capacity * unit` is at most [`UNITS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    pub(super) capacity: u32,
    /// Units per token.
    pub(super) unit: u64,
    /// Units refilled per microsecond.
    pub(super) pour: u32,
    /// Tokens that an ask must leave in the bucket: none, but for an instance's share of a limit,
    /// whose burst follows what the ask costs (see `share.rs`). Not part of the limit itself.
    pub(super) reserve: u32,
}

/// What is remembered about one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// What is in the bucket, in units.
    pub units: u64,
    /// When that was true.
    pub last_refill: Micros,
    /// The limit it was written under.
    pub under: TokenBucket,
}

impl TokenBucket {
    /// A bucket of `burst` tokens that refills at `rate`.
    pub fn try_new(rate: Rate, burst: u32) -> Result<TokenBucket, LimitError> {
        let period = rate.span()?.0;
        if burst == 0 {
            return Err(LimitError::ZeroBurst);
        }
        let common = gcd(u64::from(rate.count()), period);
        let unit = period.div_euclid(common);
        let pour = count(u64::from(rate.count()).div_euclid(common));
        let units = u128::from(unit).saturating_mul(u128::from(burst));
        // One refill must fit beside a full bucket, or the twin's sum would not be exact.
        let most = UNITS_MAX.saturating_sub(u64::from(pour));
        if units > u128::from(most) {
            return Err(LimitError::NotExact { rate, burst, units, burst_max: most.div_euclid(unit) });
        }
        Ok(TokenBucket { capacity: burst, unit, pour, reserve: 0 })
    }

    /// A bucket as a stored value describes it; `None` if no limit could have written that.
    pub fn from_parts(capacity: u32, unit: u64, pour: u32) -> Option<TokenBucket> {
        let fits = u128::from(capacity).saturating_mul(u128::from(unit))
            <= u128::from(UNITS_MAX.saturating_sub(u64::from(pour)));
        (capacity > 0 && unit > 0 && pour > 0 && fits).then_some(TokenBucket {
            capacity,
            unit,
            pour,
            reserve: 0,
        })
    }

    /// The most tokens it holds.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Units per token.
    #[inline]
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Units refilled per microsecond.
    #[inline]
    pub fn pour(&self) -> u32 {
        self.pour
    }

    /// How long an empty bucket takes to fill.
    pub fn time_to_full(&self) -> Micros {
        self.wait_for(self.full())
    }

    /// All the units there are. Fits by construction.
    #[inline]
    pub fn full(&self) -> u64 {
        self.unit.saturating_mul(u64::from(self.capacity))
    }

    /// What a cost is in units.
    #[inline]
    pub fn units_of(&self, cost: Cost) -> u64 {
        self.unit.saturating_mul(u64::from(cost.get()))
    }

    #[inline]
    fn is_same_limit_as(&self, other: &TokenBucket) -> bool {
        let TokenBucket { capacity, unit, pour, reserve: _ } = *self;
        (capacity, unit, pour) == (other.capacity, other.unit, other.pour)
    }

    #[inline]
    fn tokens_in(&self, units: u64) -> u32 {
        count(units.div_euclid(self.unit))
    }

    /// How long until `units` more have been poured in, rounded up to the microsecond.
    #[inline]
    fn wait_for(&self, units: u64) -> Micros {
        Micros(units.div_ceil(u64::from(self.pour)))
    }

    #[inline]
    fn decision(&self, outcome: Outcome, left: u64, behind: Micros, take: Take, found: Found) -> Decision {
        let missing = self.full().saturating_sub(left);
        let reset_after = if missing == 0 { Micros::ZERO } else { behind + self.wait_for(missing) };
        let remaining = self.tokens_in(left).saturating_sub(self.reserve);
        Decision { outcome, limit: self.capacity, remaining, reset_after, take, found }
    }

    #[inline]
    fn poured(&self, elapsed: Micros) -> u64 {
        elapsed.0.saturating_mul(u64::from(self.pour))
    }
}

/// A bucket brought up to the present, under the numbers that hold now.
struct Present {
    units: u64,
    now: Micros,
    behind: Micros,
    /// Carried over from another limit, or freed from a clock that ran ahead: what is answered now
    /// holds only if it is written down, whether or not the ask passes.
    mended: bool,
    found: Found,
}

/// Refills to `now`, then carries the tokens over to `bucket` if another limit wrote them.
#[inline]
fn present(bucket: &TokenBucket, state: Option<&State>, now: Micros) -> Present {
    let Some(&State { units, last_refill, under }) = state else {
        let units = bucket.full();
        return Present { units, now, behind: Micros::ZERO, mended: false, found: Found::Nothing };
    };
    let (units, now, behind, stepped) = match Reading::of(now, last_refill) {
        Reading::Steady { now: at, behind } => {
            (units.saturating_add(under.poured(at - last_refill)).min(under.full()), at, behind, false)
        }
        // The tokens stay; only the time they were counted at is given up. A refusal that left it
        // there would find it there again: no refill until the clock had made up the whole step.
        Reading::Stepped => (units.min(under.full()), now, Micros::ZERO, true),
    };
    if under.is_same_limit_as(bucket) {
        return Present { units, now, behind, mended: stepped, found: Found::State };
    }
    // The same share of the new bucket. Rounding to whole tokens instead would starve a key that
    // two instances visit under two limits by turns, as they do during a rolling reload.
    let units = mul_div(units, bucket.full(), under.full());
    Present { units, now, behind, mended: true, found: Found::State }
}

/// Decides one visit at `now`. Spends `cost` tokens if they are all there.
///
/// hot path: no allocation, no clock, no float.
#[inline]
pub fn visit(
    bucket: &TokenBucket,
    state: Option<&State>,
    now: Micros,
    cost: Cost,
    verb: Verb,
) -> Step<State> {
    let take = Take { at: now, entry: 0 };
    let Present { units, now, behind, mended, found } = present(bucket, state, now);
    let needed = bucket.units_of(cost);
    let reserved = bucket.unit.saturating_mul(u64::from(bucket.reserve));
    let state_with = |units| State { units, last_refill: now, under: *bucket };

    let (outcome, left) = if cost.get() > bucket.capacity {
        (Outcome::Never, units)
    } else if units < needed.saturating_add(reserved) {
        let missing = needed.saturating_add(reserved).saturating_sub(units);
        (Outcome::Denied { retry_after: behind + bucket.wait_for(missing) }, units)
    } else if verb == Verb::Peek {
        (Outcome::Allowed, units)
    } else {
        (Outcome::Allowed, units.saturating_sub(needed))
    };
    Step {
        decision: bucket.decision(outcome, left, behind, take, found),
        spend: (outcome == Outcome::Allowed).then(|| state_with(left)),
        mend: mended.then(|| state_with(units)),
    }
}

/// What a bucket holds after a visit that met no surprise: all that its twin's fast path answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// What is in the bucket, in units.
    pub units: u64,
    /// When.
    pub now: Micros,
}

/// What a take found and did that met no surprise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plain {
    /// What is in the bucket now.
    pub left: Left,
    /// Whether the cost was there, and is spent.
    pub is_spent: bool,
    /// Whether the bucket had filled up: what a store may as well have forgotten.
    pub was_full: bool,
}

/// [`visit`] for what nearly every take is: `bucket` itself wrote the state, the clock has not gone
/// back since, and the cost is one that it could ever hold. `None` if it is not so.
///
/// Answers what there is to write and nothing else, so that a store can let go of its lock before
/// [`Left`] turns that into a decision, which takes two divisions.
///
/// hot path: no allocation, no clock, no float, no division.
#[inline]
pub fn plain_take(bucket: &TokenBucket, state: &State, now: Micros, cost: Cost) -> Option<Plain> {
    let (full, needed) = (bucket.full(), bucket.units_of(cost));
    if state.under != *bucket || bucket.reserve > 0 || now < state.last_refill || needed > full {
        return None;
    }
    let filled = state.units.saturating_add(bucket.poured(now - state.last_refill));
    let units = filled.min(full);
    let is_spent = units >= needed;
    let units = if is_spent { units.saturating_sub(needed) } else { units };
    Some(Plain { left: Left { units, now }, is_spent, was_full: filled >= full })
}

impl Left {
    /// The decision of a visit that spent.
    #[inline]
    pub fn after_spending(self, bucket: &TokenBucket, found: Found) -> Decision {
        let take = Take { at: self.now, entry: 0 };
        bucket.decision(Outcome::Allowed, self.units, Micros::ZERO, take, found)
    }

    /// The decision of a visit that found too little for `cost`.
    #[inline]
    pub fn when_refused(self, bucket: &TokenBucket, cost: Cost, found: Found) -> Decision {
        let take = Take { at: self.now, entry: 0 };
        let retry_after = bucket.wait_for(bucket.units_of(cost).saturating_sub(self.units));
        bucket.decision(Outcome::Denied { retry_after }, self.units, Micros::ZERO, take, found)
    }
}

/// Gives back what the take at `taken_at` spent, less what has been poured in since.
///
/// Giving the whole cost back would admit too much: once the bucket has refilled, those tokens
/// have come back already. `cost - rate * elapsed` is exactly what is still missing when the
/// bucket was full at the take, and never more than that otherwise, so whatever else was spent
/// in between, no interval admits more than capacity + rate * time.
pub fn refund(
    bucket: &TokenBucket,
    state: Option<&State>,
    now: Micros,
    cost: Cost,
    taken_at: Micros,
) -> (Refunded, Option<State>) {
    let Present { units, now, behind, mended, .. } = present(bucket, state, now);
    // No more than a bucketful can be missing. Only a limit lowered since is asked for more, and
    // the units of that would not fit the twin's numbers.
    let owed = bucket.units_of(cost).min(bucket.full());
    let still_owed = owed.saturating_sub(bucket.poured(now - taken_at));
    let after = units.saturating_add(still_owed).min(bucket.full());
    let given = after.saturating_sub(units);

    let missing = bucket.full().saturating_sub(after);
    let refunded = Refunded {
        returned: Returned::of(given, bucket.units_of(cost)),
        limit: bucket.capacity,
        remaining: bucket.tokens_in(after),
        reset_after: if missing == 0 { Micros::ZERO } else { behind + bucket.wait_for(missing) },
    };
    let write = (state.is_some() && (given > 0 || mended)).then_some(State {
        units: after,
        last_refill: now,
        under: *bucket,
    });
    (refunded, write)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a.checked_rem(b).unwrap_or(0));
    }
    a.max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Few numbers, so that buckets are often equal, full, empty or one unit short.
    fn buckets() -> impl Strategy<Value = TokenBucket> {
        (1..4_u32, 1..4_u64, 1..3_u32)
            .prop_map(|(capacity, unit, pour)| TokenBucket::from_parts(capacity, unit, pour).unwrap())
    }

    proptest! {
        #[test]
        fn a_plain_take_is_a_visit(
            (bucket, under) in (buckets(), buckets()),
            (units, last_refill, now, cost) in (0..12_u64, 0..8_u64, 0..16_u64, 1..5_u32),
        ) {
            let state = State { units: units.min(under.full()), last_refill: Micros(last_refill), under };
            let (now, cost) = (Micros(now), Cost::new(cost).unwrap());
            let is_plain = under == bucket && now >= state.last_refill && cost.get() <= bucket.capacity;

            let plain = plain_take(&bucket, &state, now, cost);
            prop_assert_eq!(plain.is_some(), is_plain);
            let Some(Plain { left, is_spent, was_full }) = plain else { return Ok(()) };
            let step = visit(&bucket, Some(&state), now, cost, Verb::Take);
            let decision = if is_spent {
                left.after_spending(&bucket, Found::State)
            } else {
                left.when_refused(&bucket, cost, Found::State)
            };
            prop_assert_eq!(decision, step.decision);
            let after = State { units: left.units, last_refill: left.now, under };
            prop_assert_eq!(is_spent.then_some(after), step.spend);
            let peek = visit(&bucket, Some(&state), now, Cost::ONE, Verb::Peek);
            prop_assert_eq!(was_full, peek.decision.reset_after == Micros::ZERO);
        }
    }
}
