//! What doors ask of breakers, and what they are answered.

use std::time::Duration;

use tollgate::breaker::{NoBreaker, OverrideError, Status};
use tollgate::core::breaker::{Mode, State};
use tollgate::core::store::StoreError;

use super::token::Token;

/// What came of asking for leave to make a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Acquired {
    Granted(Granted),
    Refused {
        /// When to ask again.
        retry_after: Duration,
        state: State,
    },
}

/// Leave to make a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) token: Token,
    /// A probe; it is to be cancelled when its time is over.
    pub(crate) is_probe: bool,
    /// How long its outcome is waited for.
    pub(crate) report_within: Duration,
    pub(crate) state: State,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Failure,
    Slow,
    /// It says nothing about the other side.
    Ignore,
}

/// What is told of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report<'a> {
    pub(crate) id: &'a str,
    /// Without one it counts as of now; in HalfOpen, for the oldest probe that was granted here.
    pub(crate) token: Option<Token>,
    pub(crate) outcome: Outcome,
    /// How long it took, by the caller's clock.
    pub(crate) elapsed: Option<Duration>,
    /// What the other side's `Retry-After` said.
    pub(crate) retry_after: Option<Duration>,
}

/// What came of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reported {
    Counted,
    Late(Late),
}

/// Why a report decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Late {
    /// The breaker has changed since, or refuses.
    Changed,
    /// Its time was over.
    Expired,
    /// It was reported before, or was never granted.
    Unknown,
    /// Another instance granted it for itself alone, while Redis was away.
    Elsewhere,
    /// Redis did not answer. Its lease ends by itself.
    Unanswered,
}

/// What a person decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) reason: String,
    pub(crate) who: String,
}

/// How a breaker stands, as this instance goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: String,
    /// The entry of the policy it belongs to.
    pub(crate) name: String,
    pub(crate) status: Status,
}

/// Some breakers in use here, in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) breakers: Vec<Seen>,
    /// Whether there are more after the last.
    pub(crate) has_more: bool,
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum BreakerError {
    /// Something that cannot be.
    #[error("{what}")]
    Field {
        /// The field to blame.
        field: &'static str,
        /// What is allowed.
        what: String,
    },
    /// As many breakers as may be are in use.
    #[error("{0}")]
    TooMany(NoBreaker),
    /// The fleet's record could not be reached; the change may have been made.
    #[error("{0}")]
    Store(StoreError),
}

impl Outcome {
    pub(crate) const ALL: [Outcome; 4] = [Outcome::Success, Outcome::Failure, Outcome::Slow, Outcome::Ignore];

    /// Its name on every door.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Failure => "failure",
            Outcome::Slow => "slow",
            Outcome::Ignore => "ignore",
        }
    }

    /// The outcome of that name, or what is allowed.
    pub(crate) fn parse(name: &str) -> Result<Outcome, BreakerError> {
        Outcome::ALL.into_iter().find(|outcome| outcome.name() == name).ok_or_else(|| BreakerError::Field {
            field: "outcome",
            what: "must be success, failure, slow or ignore".to_owned(),
        })
    }
}

impl Late {
    pub(crate) const ALL: [Late; 5] =
        [Late::Changed, Late::Expired, Late::Unknown, Late::Elsewhere, Late::Unanswered];

    /// Its name on every door.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Late::Changed => "changed",
            Late::Expired => "expired",
            Late::Unknown => "unknown",
            Late::Elsewhere => "elsewhere",
            Late::Unanswered => "unanswered",
        }
    }
}

impl BreakerError {
    /// A token that is none.
    pub(crate) fn token() -> BreakerError {
        let what = "is no token: give it back as it was given by acquire, or leave it out";
        BreakerError::Field { field: "token", what: what.to_owned() }
    }

    /// A mode that is none.
    pub(crate) fn mode() -> BreakerError {
        let what = "must be forced_open, forced_closed or metrics_only";
        BreakerError::Field { field: "mode", what: what.to_owned() }
    }
}

impl From<NoBreaker> for BreakerError {
    fn from(why: NoBreaker) -> BreakerError {
        match why {
            NoBreaker::Id { .. } => bad_id(why.to_string()),
            _ => BreakerError::TooMany(why),
        }
    }
}

impl From<OverrideError> for BreakerError {
    fn from(error: OverrideError) -> BreakerError {
        match error {
            OverrideError::Field { field: "keep_for", what } => BreakerError::Field { field: "ttl_ms", what },
            OverrideError::Field { field, what } => BreakerError::Field { field, what },
            OverrideError::NoBreaker(why) => why.into(),
            OverrideError::Store(error) => BreakerError::Store(error),
            _ => bad_id(error.to_string()),
        }
    }
}

pub(super) fn bad_id(what: String) -> BreakerError {
    BreakerError::Field { field: "id", what }
}
