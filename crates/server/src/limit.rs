//! A limit as a person writes it, in a file or in an ask, and its passage into one we can keep.
//!
//! The configuration and the HTTP door read the same four fields and must refuse the same things
//! with the same words, so they read them here.

use std::sync::Arc;

use tollgate::calendar::{CalendarUnit, ZonedCalendar};
use tollgate::core::algorithm::fixed_window::Windows;
use tollgate::core::limit::Period;
use tollgate::{Algorithm, Kind, LimitError, Micros, Rate};

/// The longest `sliding_log` unless the configuration says otherwise.
pub(crate) const SLIDING_LOG_MAX: u32 = 10_000;

const DAY: Micros = Micros(86_400_000_000);
const WEEK: Micros = Micros(7 * 86_400_000_000);

/// The four fields of a limit, as written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written<'a> {
    /// `100/s`
    pub(crate) limit: &'a str,
    /// How many may come at once; only for `token_bucket`.
    pub(crate) burst: Option<u32>,
    /// The algorithm's name; `token_bucket` if there is none.
    pub(crate) algorithm: Option<&'a str>,
    /// The time zone of calendar windows.
    pub(crate) time_zone: Option<&'a str>,
}

/// What is wrong with a limit, and the field to blame. Nothing was built and nothing spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitProblem {
    /// `limit`, `burst`, `algorithm` or `time_zone`.
    pub(crate) field: &'static str,
    /// What is wrong, and what is allowed.
    pub(crate) why: String,
    /// Whether the field is right by itself, and cannot be kept together with the others.
    pub(crate) is_conflict: bool,
}

/// A limit that can be kept, and the period it was written with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Built {
    pub(crate) algorithm: Algorithm,
    pub(crate) period: Period,
}

impl Written<'_> {
    /// Builds the limit, or says which field is wrong.
    pub(crate) fn build(&self, log_max: u32) -> Result<Built, LimitProblem> {
        let Written { limit, burst, algorithm, time_zone } = *self;
        let kind = algorithm.map_or(Ok(Kind::default()), Kind::parse).map_err(|error| blame(&error))?;
        let rate = Rate::parse(limit).map_err(|error| blame(&error))?;
        let algorithm = match time_zone {
            Some(zone) => by_calendar(kind, rate, burst, zone)?,
            None => Algorithm::try_new(kind, rate, burst, log_max).map_err(|error| blame(&error))?,
        };
        Ok(Built { algorithm, period: rate.period() })
    }
}

fn by_calendar(kind: Kind, rate: Rate, burst: Option<u32>, zone: &str) -> Result<Algorithm, LimitProblem> {
    let problem = |why: &str| LimitProblem { field: "time_zone", why: why.to_owned(), is_conflict: false };
    if kind != Kind::FixedWindow {
        return Err(problem("only fixed_window follows a calendar: leave time_zone out"));
    }
    if burst.is_some() {
        return Err(blame(&LimitError::BurstUnused { algorithm: kind.name() }));
    }
    let unit = match rate.period() {
        Period::Month => CalendarUnit::Month,
        Period::Span(DAY) => CalendarUnit::Day,
        Period::Span(WEEK) => CalendarUnit::Week,
        Period::Span(_) => {
            return Err(problem("a calendar has days, weeks and months: use N/day, N/week or N/month"));
        }
    };
    let calendar = ZonedCalendar::try_new(unit, zone).map_err(|error| problem(&error.to_string()))?;
    Algorithm::by_calendar(rate.count(), Arc::new(calendar)).map_err(|error| blame(&error))
}

/// The field an error of the core is about.
fn blame(error: &LimitError) -> LimitProblem {
    let field = match error {
        LimitError::ZeroBurst | LimitError::BurstUnused { .. } | LimitError::NotExact { .. } => "burst",
        LimitError::UnknownAlgorithm { .. } => "algorithm",
        _ => "limit",
    };
    LimitProblem { field, why: error.to_string(), is_conflict: matches!(error, LimitError::NotExact { .. }) }
}

/// A limit's rate in the largest usual unit that states it in whole numbers: `100/s`, `5/min`.
pub(crate) fn rate_in_words(algorithm: &Algorithm) -> String {
    match algorithm {
        Algorithm::TokenBucket(bucket) => {
            let (pour, unit) = (u64::from(bucket.pour()), bucket.unit());
            [Micros::SECOND, Micros::from_secs(60), Micros::from_secs(3600), DAY]
                .into_iter()
                .filter_map(|span| Some((pour.checked_mul(span.0)?, span)))
                // What is too much to be written by the second is written as it is.
                .find(|(poured, _)| poured.is_multiple_of(unit) && u32::try_from(poured / unit).is_ok())
                .map_or_else(|| words(pour, Micros(unit)), |(poured, span)| words(poured / unit, span))
        }
        Algorithm::SlidingLog(log) => words(u64::from(log.limit()), log.span()),
        Algorithm::SlidingWindow(window) => words(u64::from(window.limit()), window.span()),
        Algorithm::FixedWindow(fixed) => match fixed.windows() {
            Windows::Every(span) => words(u64::from(fixed.limit()), *span),
            Windows::Calendar(calendar) => format!("{}/{}", fixed.limit(), calendar.name()),
        },
    }
}

fn words(count: u64, span: Micros) -> String {
    match u32::try_from(count).ok().and_then(|count| Rate::try_new(count, span).ok()) {
        Some(rate) => rate.to_string(),
        None => format!("{count}/{span}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(limit: &str) -> Written<'_> {
        Written { limit, burst: None, algorithm: None, time_zone: None }
    }

    #[test]
    fn each_mistake_is_blamed_on_its_field() {
        let limit = |limit| written(limit).build(10).unwrap_err();
        assert_eq!(limit("100").field, "limit");
        assert_eq!(limit("9/month").field, "limit");
        for (field, mistake) in [
            ("burst", Written { burst: Some(0), ..written("1/s") }),
            ("burst", Written { burst: Some(2), algorithm: Some("sliding_log"), ..written("1/s") }),
            ("algorithm", Written { algorithm: Some("leaky"), ..written("1/s") }),
            ("limit", Written { algorithm: Some("sliding_log"), ..written("11/s") }),
            ("time_zone", Written { time_zone: Some("UTC"), ..written("1/day") }),
            (
                "time_zone",
                Written { time_zone: Some("UTC"), algorithm: Some("fixed_window"), ..written("1/h") },
            ),
            (
                "time_zone",
                Written {
                    time_zone: Some("Mars/Olympus"),
                    algorithm: Some("fixed_window"),
                    ..written("1/day")
                },
            ),
        ] {
            assert_eq!(mistake.build(10).unwrap_err().field, field, "{mistake:?}");
        }
    }

    #[test]
    fn rates_read_back_in_whole_numbers() {
        for (text, algorithm, words) in [
            ("100/s", "token_bucket", "100/s"),
            ("10/15min", "token_bucket", "40/h"),
            ("4294967295/us", "token_bucket", "4294967295/us"),
            ("7/13us", "token_bucket", "7/13us"),
            ("5/min", "sliding_log", "5/min"),
            ("7/11s", "fixed_window", "7/11s"),
        ] {
            let built = Written { algorithm: Some(algorithm), ..written(text) }.build(100).unwrap();
            assert_eq!(rate_in_words(&built.algorithm), words);
        }
        let monthly =
            Written { algorithm: Some("fixed_window"), time_zone: Some("UTC"), ..written("9/month") };
        assert_eq!(rate_in_words(&monthly.build(1).unwrap().algorithm), "9/month in UTC");
    }
}
