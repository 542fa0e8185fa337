//! One question, free of protocol.

use crate::algorithm::{Algorithm, TokenBucket};
use crate::attributes::Attributes;
use crate::check::Check;
use crate::decision::Take;
use crate::key::{Key, SUBJECT_BYTES_MAX, Scope};
use crate::limit::Period;
use crate::units::Cost;

/// The most checks one ask may carry.
pub const WANTS_MAX: usize = 64;

/// One question: everything in it passes together, or nothing is spent.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// What is asked for; at most [`WANTS_MAX`].
    pub wants: &'a [Want<'a>],
}

/// One thing an ask wants.
#[derive(Debug, Clone, Copy)]
pub struct Want<'a> {
    /// The limit it is measured by.
    pub by: By<'a>,
    /// Whose limit: at most [`SUBJECT_BYTES_MAX`] bytes, not empty. Not looked at under
    /// [`By::Attributes`], where the rules say whose.
    pub key: &'a [u8],
    /// How much of it.
    pub cost: Cost,
    /// For a refund: the takes to undo, one per limit of the rule, as the check answered them.
    pub takes: &'a [Take],
}

/// The limit a want is measured by.
#[derive(Debug, Clone, Copy)]
pub enum By<'a> {
    /// A rule of the policy, by name.
    Rule(&'a str),
    /// A rule of the policy, by name, for a call of which more is known: its plan, its cost and its lists
    /// may ask for it.
    RuleFor(&'a str, &'a dyn Attributes),
    /// Every rule of the policy that applies to what is known of the call.
    Attributes(&'a dyn Attributes),
    /// A limit the caller brings along.
    Inline(&'a InlineLimit),
}

/// A limit the caller brings along, with the scope its state lives under.
#[derive(Debug, Clone, PartialEq)]
pub struct InlineLimit {
    algorithm: Algorithm,
    scope: Scope,
}

impl InlineLimit {
    /// A limit with the period it was written with.
    pub fn new(algorithm: Algorithm, period: Period) -> InlineLimit {
        use crate::algorithm::fixed_window::Windows;
        let calendar = match &algorithm {
            Algorithm::FixedWindow(fixed) => match fixed.windows() {
                Windows::Calendar(calendar) => Some(calendar.name().to_owned()),
                Windows::Every(_) => None,
            },
            _ => None,
        };
        let span = match period {
            Period::Span(span) => Some(span),
            Period::Month => None,
        };
        let text = crate::key::inline_period(span, calendar.as_deref());
        let scope = Scope::of_inline(&text, algorithm.kind());
        InlineLimit { algorithm, scope }
    }

    /// A bucket whose state is by key alone: asked for again with another burst or rate, the same key keeps
    /// its state.
    pub fn by_key_alone(bucket: TokenBucket) -> InlineLimit {
        InlineLimit { algorithm: Algorithm::TokenBucket(bucket), scope: Scope::of_key_alone() }
    }

    /// So much of it for a key.
    #[inline]
    pub fn check<'a>(&'a self, subject: &'a [u8], cost: Cost) -> Result<Check<'a>, AskProblem> {
        check_key(0, subject)?;
        Ok(Check { key: Key { scope: &self.scope, subject }, algorithm: &self.algorithm, cost })
    }

    /// How it limits.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// Where its state lives.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}

/// Whether a key is one, as the want `at` a place names it.
#[inline]
pub(crate) fn check_key(at: usize, key: &[u8]) -> Result<(), AskProblem> {
    match key.len() {
        0 => Err(AskProblem::EmptyKey { at }),
        bytes if bytes > SUBJECT_BYTES_MAX => Err(AskProblem::LongKey { at, bytes }),
        _ => Ok(()),
    }
}

/// What is wrong with an ask. Nothing was spent. `at` is the place among the wants.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskProblem {
    /// Nothing was asked.
    #[error("asks for nothing: give at least one check")]
    Empty,
    /// Too much at once.
    #[error("has {wants} checks: at most {WANTS_MAX} in one ask")]
    TooMany {
        /// How many there were.
        wants: usize,
    },
    /// No rule has that name.
    #[error("unknown rule \"{rule}\"")]
    UnknownRule {
        /// Which want.
        at: usize,
        /// The name, clipped.
        rule: String,
    },
    /// The key is empty.
    #[error("is empty: say whose limit it is")]
    EmptyKey {
        /// Which want.
        at: usize,
    },
    /// The key is too long.
    #[error("is {bytes} bytes long: at most {SUBJECT_BYTES_MAX}")]
    LongKey {
        /// Which want.
        at: usize,
        /// Its length.
        bytes: usize,
    },
    /// Two wants would be counted under one key.
    #[error("is the same key and limit as checks[{first}]: raise its cost instead")]
    Repeated {
        /// Which want.
        at: usize,
        /// The one it repeats.
        first: usize,
    },
    /// A refund that does not say what it undoes.
    #[error("names {named} takes where {needed} were made: give it as the check answered it")]
    WrongTakes {
        /// Which want.
        at: usize,
        /// How many takes it names.
        named: usize,
        /// How many limits the check spent.
        needed: usize,
    },
}

impl AskProblem {
    /// The field to blame, and which want it is in.
    pub fn place(&self) -> (Option<usize>, &'static str) {
        match self {
            AskProblem::Empty | AskProblem::TooMany { .. } => (None, "checks"),
            AskProblem::UnknownRule { at, .. } => (Some(*at), "rule"),
            AskProblem::EmptyKey { at }
            | AskProblem::LongKey { at, .. }
            | AskProblem::Repeated { at, .. } => (Some(*at), "key"),
            AskProblem::WrongTakes { at, .. } => (Some(*at), "take"),
        }
    }
}
