//! A rate as a person writes it: `100/s`, `5000/h`, `10/15min`, `1/day`, `1000/month`.

use std::fmt;

use crate::units::Micros;

/// How many, per how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    count: u32,
    period: Period,
}

/// The "per how long" of a [`Rate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Period {
    /// A fixed span, at least one microsecond and at most [`SPAN_MAX`].
    Span(Micros),
    /// A calendar month: only calendar windows know how long that is.
    Month,
}

/// The longest span a limit may be written over: 366 days.
pub const SPAN_MAX: Micros = Micros(366 * 86_400_000_000);

/// Why a rate or a limit was not accepted. Nothing was built and nothing spent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The text has no `/`.
    #[error("\"{text}\" is not a rate: write how many per how long, such as 100/s, 5000/h or 10/15min")]
    NotARate {
        /// What was written.
        text: String,
    },
    /// The part before the slash is not a whole number.
    #[error("\"{count}\" is not a count: use a whole number from 1 to 4294967295")]
    BadCount {
        /// What was written before the slash.
        count: String,
    },
    /// The part after the slash is not a span of time.
    #[error(
        "\"{period}\" is not a period: use us, ms, s, min, h, day, week or month, with a whole number before it if it is more than one (15min)"
    )]
    BadPeriod {
        /// What was written after the slash.
        period: String,
    },
    /// The span is longer than we keep.
    #[error("\"{period}\" is too long: at most 366 days")]
    PeriodTooLong {
        /// What was written after the slash.
        period: String,
    },
    /// Months have no fixed length.
    #[error("a month has no fixed length: only fixed_window with a time zone counts by month")]
    MonthNeedsCalendar,
    /// The burst is zero.
    #[error("burst 0 would never admit anything: use at least 1")]
    ZeroBurst,
    /// A burst was given to an algorithm that has none.
    #[error("{algorithm} takes no burst: its limit is the most it admits at once")]
    BurstUnused {
        /// The algorithm's name.
        algorithm: &'static str,
    },
    /// The bucket's exact arithmetic would not fit into what Redis can count.
    #[error(
        "cannot be kept exactly: {rate} with burst {burst} needs {units} units, more than 2^51; use a burst of at most {burst_max}, or a rate in rounder numbers"
    )]
    NotExact {
        /// The rate that was asked for.
        rate: Rate,
        /// The burst that was asked for.
        burst: u32,
        /// Burst times units per token.
        units: u128,
        /// The largest burst that can be kept exactly at this rate.
        burst_max: u64,
    },
    /// An exact log of that length would cost too much memory per key.
    #[error(
        "sliding_log keeps every admitted instant: a limit of {limit} is above the maximum of {max}; use sliding_window"
    )]
    LogTooLong {
        /// The limit that was asked for.
        limit: u32,
        /// The configured maximum.
        max: u32,
    },
    /// The window is too long for this algorithm's arithmetic.
    #[error("{algorithm} cannot keep a window of {period} exactly: at most {max}")]
    WindowTooLong {
        /// The algorithm's name.
        algorithm: &'static str,
        /// The window that was asked for.
        period: Micros,
        /// The longest it can keep.
        max: Micros,
    },
    /// The algorithm's name is not known.
    #[error("unknown algorithm \"{name}\": use token_bucket, sliding_log, sliding_window or fixed_window")]
    UnknownAlgorithm {
        /// What was written.
        name: String,
    },
}

impl Rate {
    /// A rate of `count` per `span`.
    pub fn try_new(count: u32, span: Micros) -> Result<Rate, LimitError> {
        if count == 0 {
            return Err(LimitError::BadCount { count: "0".to_owned() });
        }
        if span == Micros::ZERO {
            return Err(LimitError::BadPeriod { period: "0".to_owned() });
        }
        if span > SPAN_MAX {
            return Err(LimitError::PeriodTooLong { period: span.to_string() });
        }
        Ok(Rate { count, period: Period::Span(span) })
    }

    /// Reads `count/period`, where the period is a unit with an optional whole number before it.
    pub fn parse(text: &str) -> Result<Rate, LimitError> {
        let Some((count_text, period_text)) = text.split_once('/') else {
            return Err(LimitError::NotARate { text: clipped(text) });
        };
        let (count_text, period_text) = (count_text.trim(), period_text.trim());
        let count = whole(count_text)
            .and_then(|n| u32::try_from(n).ok())
            .filter(|&n| n > 0)
            .ok_or_else(|| LimitError::BadCount { count: clipped(count_text) })?;

        let bad = || LimitError::BadPeriod { period: clipped(period_text) };
        let digits = period_text.bytes().take_while(u8::is_ascii_digit).count();
        let (times, unit) = period_text.split_at(digits);
        let times = if times.is_empty() { 1 } else { whole(times).ok_or_else(bad)? };
        if times == 0 {
            return Err(bad());
        }
        let unit = match unit.trim() {
            "us" => 1,
            "ms" => 1_000,
            "s" | "sec" | "second" | "seconds" => 1_000_000,
            "m" | "min" | "minute" | "minutes" => 60_000_000,
            "h" | "hour" | "hours" => 3_600_000_000,
            "d" | "day" | "days" => 86_400_000_000,
            "w" | "week" | "weeks" => 604_800_000_000,
            "month" if times == 1 => return Ok(Rate { count, period: Period::Month }),
            _ => return Err(bad()),
        };
        let span = Micros(times.saturating_mul(unit));
        if span > SPAN_MAX {
            return Err(LimitError::PeriodTooLong { period: clipped(period_text) });
        }
        Ok(Rate { count, period: Period::Span(span) })
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Per how long.
    pub fn period(&self) -> Period {
        self.period
    }

    /// The span, for algorithms that need one.
    pub fn span(&self) -> Result<Micros, LimitError> {
        match self.period {
            Period::Span(span) => Ok(span),
            Period::Month => Err(LimitError::MonthNeedsCalendar),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.period {
            Period::Span(span) => {
                let span = span.to_string();
                write!(
                    f,
                    "{}/{}",
                    self.count,
                    span.strip_prefix('1')
                        .filter(|u| !u.starts_with(|c: char| c.is_ascii_digit()))
                        .unwrap_or(&span)
                )
            }
            Period::Month => write!(f, "{}/month", self.count),
        }
    }
}

/// A whole number of plain ASCII digits: no sign, no spaces, no `1e3`.
fn whole(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// What was written, short enough to print.
fn clipped(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_as_people_write_them() {
        for (text, count, micros) in [
            ("100/s", 100, 1_000_000),
            ("5000/h", 5000, 3_600_000_000),
            ("10/15min", 10, 900_000_000),
            ("1/day", 1, 86_400_000_000),
            (" 3 / 250ms ", 3, 250_000),
        ] {
            let rate = Rate::parse(text).unwrap();
            assert_eq!((rate.count(), rate.span().unwrap().0), (count, micros), "{text}");
        }
        assert_eq!(Rate::parse("1000/month").unwrap().period(), Period::Month);
    }

    #[test]
    fn rates_print_as_they_are_read() {
        for text in ["100/s", "5000/h", "10/15min", "1/d", "7/250ms", "3/11s", "9/month"] {
            assert_eq!(Rate::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_rate_is_refused_with_the_reason() {
        for (text, says) in [
            ("100", "not a rate"),
            ("0/s", "not a count"),
            ("-1/s", "not a count"),
            ("NaN/s", "not a count"),
            ("inf/s", "not a count"),
            ("1.5/s", "not a count"),
            ("1e3/s", "not a count"),
            ("4294967296/s", "not a count"),
            ("/s", "not a count"),
            ("1/", "not a period"),
            ("1/0s", "not a period"),
            ("1/x", "not a period"),
            ("1/2month", "not a period"),
            ("1/400d", "too long"),
            ("1/99999999999999999999s", "not a period"),
        ] {
            let error = Rate::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
