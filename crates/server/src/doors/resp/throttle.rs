//! `CL.THROTTLE` and `GCRA`: four numbers to a bucket, a decision to five numbers.
//!
//! redis-cell keeps the instant at which a bucket is full again, in nanoseconds, and cuts the time between
//! two tokens off at a nanosecond; we keep the bucket itself, to which that time is an exact fraction. Where
//! such a fraction has too large numbers for the burst, the nearest one that is not faster takes its place.
//!
//! Model: throttle/tests/model.rs, redis-cell's own arithmetic
//! Proved by: throttle/tests.rs

use tollgate::core::algorithm::TokenBucket;
use tollgate::core::algorithm::token_bucket::UNITS_MAX;
use tollgate::core::decision::{Decision, Outcome, Refunded};
use tollgate::{Cost, InlineLimit, Micros};

/// The largest burst, so that every larger quantity can be told from it in 32 bits.
const CAPACITY_MAX: i64 = u32::MAX as i64 - 1;

/// The limit a command brings along. `period_us` is positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    pub(super) max_burst: i64,
    pub(super) count: i64,
    pub(super) period_us: u128,
}

/// What is asked of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Spend so many.
    Take(Cost),
    /// Only look.
    Peek,
    /// Give so many back.
    Return(Cost),
}

/// Why no bucket can be made of the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// No time at all between two tokens.
    ZeroRate,
    /// A count or a period below zero.
    NegativeRate,
    /// A larger burst than we count.
    LargeBurst,
    /// A bucket that takes longer to fill than our arithmetic reaches.
    TooSlow,
}

impl Unfit {
    /// In redis-cell's words where it has some.
    pub(super) fn words(self) -> &'static str {
        match self {
            Unfit::ZeroRate => "Zero rates are not supported",
            Unfit::NegativeRate => "Negative rates are not supported",
            Unfit::LargeBurst => "max_burst is too large: at most 4294967293",
            Unfit::TooSlow => "this burst takes more than 71 years to fill: lower it, or raise the rate",
        }
    }
}

impl Quantity {
    /// The quantity as it is written. More than 32 bits of it are more than any bucket holds.
    #[inline]
    pub(super) fn of(quantity: i64) -> Quantity {
        match Cost::new(u32::try_from(quantity.unsigned_abs()).unwrap_or(u32::MAX)) {
            None => Quantity::Peek,
            Some(cost) if quantity > 0 => Quantity::Take(cost),
            Some(cost) => Quantity::Return(cost),
        }
    }
}

/// A bucket, or an answer that needs none.
#[derive(Debug, Clone)]
pub(super) enum Made<L> {
    Limit(L),
    /// A capacity of zero or less lets nothing pass, whatever was spent.
    Closed,
}

impl Asked {
    /// The bucket of these numbers.
    pub(super) fn make(&self) -> Result<Made<InlineLimit>, Unfit> {
        let Asked { max_burst, count, period_us } = *self;
        let count = match u64::try_from(count) {
            Err(_) => return Err(Unfit::NegativeRate),
            Ok(0) => return Err(Unfit::ZeroRate),
            Ok(count) => u128::from(count),
        };
        // Less than a nanosecond for a token is no time at all to redis-cell either.
        if period_us.saturating_mul(1000) < count {
            return Err(Unfit::ZeroRate);
        }
        if max_burst >= CAPACITY_MAX {
            return Err(Unfit::LargeBurst);
        }
        let Some(capacity) = u32::try_from(max_burst + 1).ok().filter(|capacity| *capacity > 0) else {
            return Ok(Made::Closed);
        };
        let unit_max = u128::from((UNITS_MAX - u64::from(u32::MAX)) / u64::from(capacity));
        let (pour, unit) = not_faster((count, period_us), (u128::from(u32::MAX), unit_max));
        let bucket = u64::try_from(unit).ok().zip(u32::try_from(pour).ok());
        let bucket = bucket.and_then(|(unit, pour)| TokenBucket::from_parts(capacity, unit, pour));
        bucket.map(|bucket| Made::Limit(InlineLimit::by_key_alone(bucket))).ok_or(Unfit::TooSlow)
    }

    /// The second of the five numbers.
    pub(super) fn capacity(&self) -> i64 {
        self.max_burst.saturating_add(1)
    }
}

/// The largest fraction within the bounds that is at most `rate`, in lowest terms; 0/1 if there is none
/// above nothing. Found by walking down the Stern-Brocot tree, a whole run of turns at a time.
fn not_faster((count, period): (u128, u128), (pour_max, unit_max): (u128, u128)) -> (u128, u128) {
    // low <= rate < high, and whatever lies between them has at least the sum of their numbers.
    let (mut low, mut high) = ((0_u128, 1_u128), (1_u128, 0_u128));
    loop {
        // How far each end is from the rate, over one denominator.
        let above = period * high.0 - count * high.1;
        let wanted = (count * low.1 - period * low.0) / above;
        let units = unit_max.saturating_sub(low.1).checked_div(high.1).unwrap_or(u128::MAX);
        let turns = wanted.min((pour_max - low.0) / high.0).min(units);
        low = (low.0 + turns * high.0, low.1 + turns * high.1);
        let below = count * low.1 - period * low.0;
        if below == 0 || turns < wanted {
            return low;
        }
        // The other end comes as near as it can while it stays above.
        let turns = (above - 1) / below;
        high = (
            high.0.saturating_add(turns.saturating_mul(low.0)),
            high.1.saturating_add(turns.saturating_mul(low.1)),
        );
        if high.0.saturating_add(low.0) > pour_max || high.1.saturating_add(low.1) > unit_max {
            return low;
        }
    }
}

/// How the times of an answer are rounded to seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    /// redis-cell: up, unless less than a millisecond is over.
    Cell,
    /// `GCRA`: up.
    Up,
}

impl Rounding {
    fn seconds(self, span: Micros) -> i64 {
        let over = match self {
            Rounding::Cell => 999_000,
            Rounding::Up => 999_999,
        };
        i64::try_from((span.0.saturating_add(over)) / 1_000_000).unwrap_or(i64::MAX)
    }
}

/// The five numbers of a decision.
#[inline]
pub(super) fn five(decision: &Decision, is_peek: bool, rounding: Rounding) -> [i64; 5] {
    let (is_limited, retry_after) = match decision.outcome {
        Outcome::Allowed => (0, -1),
        // A look asks for nothing, and nothing is always there.
        _ if is_peek => (0, -1),
        Outcome::Denied { retry_after } => (1, rounding.seconds(retry_after)),
        Outcome::Never => (1, -1),
    };
    let reset_after = rounding.seconds(decision.reset_after);
    [is_limited, i64::from(decision.limit), i64::from(decision.remaining), retry_after, reset_after]
}

/// The five numbers after something was given back.
pub(super) fn five_returned(refunded: &Refunded, rounding: Rounding) -> [i64; 5] {
    let reset_after = rounding.seconds(refunded.reset_after);
    [0, i64::from(refunded.limit), i64::from(refunded.remaining), -1, reset_after]
}

/// The five numbers of a bucket that holds nothing.
pub(super) fn five_closed(asked: &Asked, quantity: Quantity) -> [i64; 5] {
    let capacity = asked.capacity();
    [i64::from(quantity != Quantity::Peek || capacity < 0), capacity, 0, -1, 0]
}

#[cfg(test)]
mod tests;
