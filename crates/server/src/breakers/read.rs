//! A caller's words made into what the service takes, with the same bounds and complaints on every door.

use std::time::Duration;

use tollgate::Micros;
use tollgate::core::breaker::{Mode, OVERRIDE_MAX, SPAN_MAX, Stance};

use super::service::LIST_MAX;
use super::token::Token;
use super::words::{BreakerError, Outcome, Override, Report, Seen};

/// The breakers of one list, unless it asks for more or fewer.
pub(crate) const LIST: usize = 100;

impl<'a> Report<'a> {
    /// A report in a caller's words; times are in milliseconds.
    pub(crate) fn read(
        id: &'a str,
        token: Option<&str>,
        outcome: &str,
        elapsed_ms: Option<u64>,
        retry_after_ms: Option<u64>,
    ) -> Result<Report<'a>, BreakerError> {
        let token = token.map(|token| Token::parse(token).ok_or_else(BreakerError::token)).transpose()?;
        let outcome = Outcome::parse(outcome)?;
        let span =
            |field, millis: Option<u64>| millis.map(|millis| span(field, millis, 0, SPAN_MAX)).transpose();
        let (elapsed, retry_after) =
            (span("elapsed_ms", elapsed_ms)?, span("retry_after_ms", retry_after_ms)?);
        Ok(Report { id, token, outcome, elapsed, retry_after })
    }
}

impl Override {
    /// A decision in a person's words.
    pub(crate) fn read(mode: &str, ttl_ms: u64, reason: &str, who: &str) -> Result<Override, BreakerError> {
        let mode = Mode::parse(mode).ok_or_else(BreakerError::mode)?;
        let ttl = span("ttl_ms", ttl_ms, 1, OVERRIDE_MAX)?;
        if reason.is_empty() {
            return Err(bad("reason", "is missing: say why, for whoever finds it".to_owned()));
        }
        for (field, text) in [("reason", reason), ("who", who)] {
            if text.chars().any(char::is_control) {
                return Err(bad(field, "has control characters in it".to_owned()));
            }
        }
        Ok(Override { mode, ttl, reason: reason.to_owned(), who: who.to_owned() })
    }
}

impl Seen {
    /// What is left of Open, in milliseconds.
    pub(crate) fn retry_after_ms(&self) -> Option<u64> {
        match self.status.stance {
            Stance::Open { left } => Some(left.as_millis_ceil()),
            Stance::Closed | Stance::HalfOpen | Stance::Ramping { .. } => None,
        }
    }

    /// Whether a growing share of calls passes.
    pub(crate) fn is_ramping(&self) -> bool {
        matches!(self.status.stance, Stance::Ramping { .. })
    }
}

/// How many a list shows.
pub(crate) fn list_limit(limit: u64) -> Result<usize, BreakerError> {
    let number = usize::try_from(limit).ok().filter(|limit| (1..=LIST_MAX).contains(limit));
    number.ok_or_else(|| bad("limit", format!("must be a whole number from 1 to {LIST_MAX}")))
}

/// How long a report is waited for, in milliseconds: rounded down, so that what comes in time by this is in time.
pub(crate) fn report_within_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// When to ask again, in milliseconds: rounded up, so that whoever waits so long has waited long enough.
pub(crate) fn retry_after_ms(span: Duration) -> u64 {
    Micros::from(span).as_millis_ceil()
}

fn span(field: &'static str, millis: u64, least: u64, most: Micros) -> Result<Duration, BreakerError> {
    let most = most.0 / 1_000;
    if (least..=most).contains(&millis) {
        return Ok(Duration::from_millis(millis));
    }
    Err(bad(field, format!("must be a whole number from {least} to {most}")))
}

fn bad(field: &'static str, what: String) -> BreakerError {
    BreakerError::Field { field, what }
}
