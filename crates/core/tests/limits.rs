//! What a limit may be: whatever cannot be kept exactly is refused, with the reason and with a way out.

use std::sync::Arc;

use tollgate_core::algorithm::fixed_window::{Bounds, Calendar};
use tollgate_core::algorithm::token_bucket::UNITS_MAX;
use tollgate_core::algorithm::{Algorithm, Kind, SlidingLog, TokenBucket, sliding_log};
use tollgate_core::limit::{LimitError, Rate, SPAN_MAX};
use tollgate_core::units::Micros;

fn rate(text: &str) -> Rate {
    Rate::parse(text).expect("the tests write rates that can be read")
}

#[test]
fn what_cannot_be_kept_exactly_is_refused_with_the_burst_that_can() {
    for (text, burst) in
        [("999983/day", 999_983), ("7/366d", 4_294_967_295), ("4294967291/366d", 72), ("3/s", u32::MAX)]
    {
        let rate = rate(text);
        let error = TokenBucket::try_new(rate, burst).unwrap_err();
        let LimitError::NotExact { units, burst_max, .. } = error else { panic!("{text}: {error}") };
        let burst_max = u32::try_from(burst_max).unwrap();
        assert!(units > u128::from(UNITS_MAX) && burst_max < burst, "{text}: {units} units, {burst_max}");

        let kept = TokenBucket::try_new(rate, burst_max).unwrap();
        assert_eq!(kept.capacity(), burst_max, "{text}");
        assert!(kept.unit() * u64::from(burst_max) + u64::from(kept.pour()) <= UNITS_MAX, "{text}");
        assert!(
            matches!(TokenBucket::try_new(rate, burst_max + 1), Err(LimitError::NotExact { .. })),
            "{text}: one more than the largest that can be kept"
        );
    }
}

/// Where what one microsecond refills decides: 2^31 tokens of 2^20 units are 2^51 exactly.
#[test]
fn one_refill_must_fit_beside_a_full_bucket() {
    let rate = Rate::try_new(4_294_967_291, Micros(1 << 20)).unwrap();
    let error = TokenBucket::try_new(rate, 1 << 31).unwrap_err();
    assert!(matches!(error, LimitError::NotExact { burst_max: 2_147_479_552, .. }), "{error:?}");
    assert!(TokenBucket::try_new(rate, 2_147_479_552).is_ok());
    assert!(TokenBucket::try_new(rate, 2_147_479_553).is_err());
}

#[test]
fn the_reason_says_what_to_do() {
    let error = TokenBucket::try_new(rate("999983/day"), 999_983).unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot be kept exactly: 999983/d with burst 999983 needs 86398531200000000 units, more than 2^51; \
         use a burst of at most 26062, or a rate in rounder numbers"
    );
}

#[test]
fn a_round_rate_may_have_any_burst() {
    for text in ["1/us", "10/s", "1000/s", "864000/day", "4294967295/us"] {
        let bucket =
            TokenBucket::try_new(rate(text), u32::MAX).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(bucket.capacity(), u32::MAX);
    }
}

#[test]
fn one_limit_in_two_wordings_is_one_limit() {
    let bucket = |text| TokenBucket::try_new(rate(text), 5).unwrap();
    assert_eq!(bucket("10/s"), bucket("600/min"));
    assert_ne!(bucket("10/s"), bucket("601/min"));
}

#[test]
fn a_burst_of_nothing_is_refused() {
    assert_eq!(TokenBucket::try_new(rate("10/s"), 0), Err(LimitError::ZeroBurst));
}

#[test]
fn only_a_bucket_has_a_burst() {
    for kind in [Kind::SlidingLog, Kind::SlidingWindow, Kind::FixedWindow] {
        let refused = Algorithm::try_new(kind, rate("10/s"), Some(20), sliding_log::LIMIT_MAX);
        assert_eq!(refused, Err(LimitError::BurstUnused { algorithm: kind.name() }));
    }
    let bucket = Algorithm::try_new(Kind::TokenBucket, rate("10/s"), None, sliding_log::LIMIT_MAX).unwrap();
    assert_eq!(bucket.limit(), 10);
}

#[test]
fn a_month_needs_a_calendar() {
    for kind in Kind::ALL {
        let refused = Algorithm::try_new(kind, rate("1000/month"), None, sliding_log::LIMIT_MAX);
        assert_eq!(refused, Err(LimitError::MonthNeedsCalendar), "{kind}");
    }
    let quota = Algorithm::by_calendar(1_000, Arc::new(OneLongDay)).unwrap();
    assert_eq!((quota.kind(), quota.limit()), (Kind::FixedWindow, 1_000));
    assert!(matches!(Algorithm::by_calendar(0, Arc::new(OneLongDay)), Err(LimitError::BadCount { .. })));
}

#[derive(Debug)]
struct OneLongDay;

impl Calendar for OneLongDay {
    fn around(&self, _: Micros) -> Bounds {
        Bounds { previous: Micros(0), current: Micros(1), next: Micros(2), end: Micros(3) }
    }

    fn name(&self) -> &'static str {
        "one long day"
    }
}

#[test]
fn a_log_is_as_long_as_allowed_and_no_longer() {
    assert_eq!(SlidingLog::try_new(rate("100/s"), 100).map(|log| log.limit()), Ok(100));
    assert_eq!(SlidingLog::try_new(rate("101/s"), 100), Err(LimitError::LogTooLong { limit: 101, max: 100 }));
}

#[test]
fn a_rate_of_nothing_or_over_no_time_or_for_ever_is_refused() {
    assert!(matches!(Rate::try_new(0, Micros::SECOND), Err(LimitError::BadCount { .. })));
    assert!(matches!(Rate::try_new(1, Micros::ZERO), Err(LimitError::BadPeriod { .. })));
    assert!(matches!(Rate::try_new(1, SPAN_MAX + Micros(1)), Err(LimitError::PeriodTooLong { .. })));
    assert!(Rate::try_new(1, SPAN_MAX).is_ok());
}

#[test]
fn a_stored_value_that_no_limit_wrote_is_no_bucket() {
    let bucket = TokenBucket::try_new(rate("7/s"), 5).unwrap();
    let parts = (bucket.capacity(), bucket.unit(), bucket.pour());
    assert_eq!(TokenBucket::from_parts(parts.0, parts.1, parts.2), Some(bucket));
    for (capacity, unit, pour) in
        [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, UNITS_MAX, 1), (u32::MAX, u64::MAX, 1)]
    {
        assert_eq!(TokenBucket::from_parts(capacity, unit, pour), None, "{capacity} {unit} {pour}");
    }
}
