//! The same numbers as redis-cell, and the right ones where it has none.
#![allow(clippy::cast_precision_loss, reason = "a test may be wasteful, or coarse")]

use proptest::prelude::*;
use tollgate::core::algorithm::Algorithm;
use tollgate::core::algorithm::token_bucket::{self, State};
use tollgate::core::decision::Verb;

use super::*;

mod model;

fn bucket(max_burst: i64, count: i64, period: i64) -> Result<TokenBucket, Unfit> {
    let period_us = u128::try_from(period).unwrap() * 1_000_000;
    match (Asked { max_burst, count, period_us }).make()? {
        Made::Limit(limit) => match limit.algorithm() {
            Algorithm::TokenBucket(bucket) => Ok(*bucket),
            other => panic!("{other:?}"),
        },
        Made::Closed => panic!("closed"),
    }
}

/// One key of ours, on a clock that the test drives.
struct Ours {
    bucket: TokenBucket,
    state: Option<State>,
}

impl Ours {
    fn throttle(&mut self, now_us: u64, quantity: i64) -> [i64; 5] {
        let (cost, verb) = match Quantity::of(quantity) {
            Quantity::Take(cost) => (cost, Verb::Take),
            Quantity::Peek => (Cost::ONE, Verb::Peek),
            Quantity::Return(_) => panic!("redis-cell answers more than there is"),
        };
        let step = token_bucket::visit(&self.bucket, self.state.as_ref(), Micros(now_us), cost, verb);
        if verb == Verb::Take {
            self.state = step.spend.or(self.state);
        }
        five(&step.decision, verb == Verb::Peek, Rounding::Cell)
    }
}

/// Asks at instants that are some microseconds apart, mostly few, sometimes many.
fn asks() -> impl Strategy<Value = Vec<(u64, i64)>> {
    let apart = prop_oneof![
        Just(0_u64),
        0..1000_u64,
        0..3_000_000_u64,
        (0..5_000_u64).prop_map(|ms| ms * 1000),
        Just(600_000_000)
    ];
    let quantity =
        prop_oneof![5 => Just(1_i64), 1 => 0..6_i64, 1 => Just(50_i64), 1 => Just(i64::MAX / (1 << 40))];
    prop::collection::vec((apart, quantity), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Where a token takes whole microseconds, every one of the five numbers is redis-cell's.
    #[test]
    fn the_five_numbers_are_redis_cells(
        max_burst in 0..20_i64,
        (count, period) in prop_oneof![
            Just((30, 60)), Just((1, 1)), Just((5, 1)), Just((10, 3600)), Just((1000, 1)), Just((8, 5)),
            Just((1_000_000, 1)), (1..20_i64, 1..20_i64).prop_map(|(count, period)| (count, count * period)),
        ],
        asks in asks(),
    ) {
        let mut ours = Ours { bucket: bucket(max_burst, count, period).unwrap(), state: None };
        let (mut theirs, mut now) = (model::Cell::default(), 1_700_000_000_000_000);
        for (apart, quantity) in asks {
            now += apart;
            let expected = theirs.throttle(now, [max_burst, count, period, quantity]);
            prop_assert_eq!(ours.throttle(now, quantity), expected, "at {} for {}", now, quantity);
        }
    }

    /// Where it does not, redis-cell cuts the time of a token off at a nanosecond, and we do not: sixty asks
    /// apart, that can be one second or one token at the edge of one.
    #[test]
    fn other_rates_differ_by_what_redis_cell_cuts_off(
        (max_burst, count, period) in (0..20_i64, 1..50_i64, 1..50_i64),
        asks in prop::collection::vec((0..3_000_000_u64, 1..4_i64), 1..40),
    ) {
        let mut ours = Ours { bucket: bucket(max_burst, count, period).unwrap(), state: None };
        let (mut theirs, mut now) = (model::Cell::default(), 1_700_000_000_000_000);
        for (apart, quantity) in asks {
            now += apart;
            let expected = theirs.throttle(now, [max_burst, count, period, quantity]);
            let found = ours.throttle(now, quantity);
            if found[0] != expected[0] {
                // At that very microsecond one of them had a token, and the other nearly.
                return Ok(());
            }
            for (found, expected) in found.iter().zip(expected) {
                prop_assert!((found - expected).abs() <= 1, "{:?} {:?}", found, expected);
            }
        }
    }

    #[test]
    fn the_nearest_rate_that_is_not_faster_is_found(
        (count, period, pour_max, unit_max) in (1..60_u128, 1..60_u128, 1..40_u128, 1..40_u128),
    ) {
        let found = not_faster((count, period), (pour_max, unit_max));
        let mut best = (0, 1);
        for unit in 1..=unit_max {
            let pour = (count * unit / period).min(pour_max);
            if pour * best.1 > best.0 * unit {
                best = (pour, unit);
            }
        }
        prop_assert_eq!(found.0 * best.1, best.0 * found.1, "{:?} {:?}", found, best);
        prop_assert!(found.0 <= pour_max && found.1 <= unit_max.max(1));
    }
}

#[test]
fn any_numbers_make_a_bucket_or_a_reason() {
    for (asked, expected) in [
        ((15, 0, 60), Err(Unfit::ZeroRate)),
        ((15, 30, 0), Err(Unfit::ZeroRate)),
        ((15, 1_000_000_001, 1), Err(Unfit::ZeroRate)),
        ((15, -30, 60), Err(Unfit::NegativeRate)),
        ((i64::MAX, 30, 60), Err(Unfit::LargeBurst)),
        ((CAPACITY_MAX, 30, 60), Err(Unfit::LargeBurst)),
        ((1_000_000, 1, 86_400), Err(Unfit::TooSlow)),
        ((0, 1, i64::MAX), Err(Unfit::TooSlow)),
        // Thirty a minute is one every two seconds.
        ((15, 30, 60), Ok((16, 2_000_000, 1))),
        // A thousand tokens in a microsecond, the fastest there is.
        ((15, 1_000_000_000, 1), Ok((16, 1, 1000))),
        ((CAPACITY_MAX - 1, 1_000_000, 1), Ok((u32::MAX - 1, 1, 1))),
    ] {
        let (max_burst, count, period) = asked;
        let found = bucket(max_burst, count, period).map(|b| (b.capacity(), b.unit(), b.pour()));
        assert_eq!(found, expected, "{asked:?}");
    }
}

#[test]
fn a_rate_that_cannot_be_exact_is_off_by_less_than_redis_cell_cuts_off() {
    // A prime number a day, with a burst that leaves no room for its fraction.
    let found = bucket(999_999, 1_000_003, 86_400).unwrap();
    // As fractions over one denominator: what is kept, and what is asked for.
    let kept = u128::from(found.pour()) * 86_400_000_000;
    let asked = u128::from(found.unit()) * 1_000_003;
    assert!(kept <= asked && (asked - kept) * 100_000_000 < asked, "{found:?}");
}

#[test]
fn a_bucket_that_holds_nothing_refuses_everything() {
    let asked = Asked { max_burst: -1, count: 1, period_us: 1 };
    assert!(matches!(asked.make(), Ok(Made::Closed)));
    assert_eq!(five_closed(&asked, Quantity::of(1)), [1, 0, 0, -1, 0]);
    assert_eq!(five_closed(&asked, Quantity::Peek), [0, 0, 0, -1, 0]);
    assert_eq!(five_closed(&Asked { max_burst: -5, ..asked }, Quantity::Peek), [1, -4, 0, -1, 0]);
}

#[test]
fn times_round_as_each_command_rounds() {
    for (us, cell, up) in [
        (0, 0, 0),
        (1, 0, 1),
        (999, 0, 1),
        (1000, 1, 1),
        (2_000_000, 2, 2),
        (2_000_999, 2, 3),
        (2_001_000, 3, 3),
    ] {
        assert_eq!(
            (Rounding::Cell.seconds(Micros(us)), Rounding::Up.seconds(Micros(us))),
            (cell, up),
            "{us}"
        );
    }
}
