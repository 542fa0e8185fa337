//! The engine's answer to an ask, and where it came from.

use std::sync::Arc;

use crate::ask::AskProblem;
use crate::attributes::SubjectKind;
use crate::decision::{Decision, Found, Outcome, Refunded, Take};
use crate::few::Few;
use crate::policy::{Blocked, Entry, OnOutage, Origin, Policy, Role, Rule};
use crate::units::Micros;

/// The engine's answer. Always there: an outage has been answered by the rule in advance.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Whether the ask may pass.
    pub answer: Answer,
    /// Who decided.
    pub source: Source,
    /// Each check's part in it: those that may refuse in the order asked, then those that only report.
    /// Empty if the ask was invalid, or if no limit applied. Where no store was asked, those that are known.
    pub checks: Few<Judged>,
    /// The policy it was decided under.
    pub policy: Arc<Policy>,
}

/// Whether the ask may pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It may, and everything it wanted is spent.
    Allowed,
    /// It may not, and nothing is spent.
    Refused,
    /// It could not be understood, and nothing is spent.
    Invalid(AskProblem),
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The store: exact.
    Store,
    /// What the store refused less than a second ago, and would still.
    DenyCache,
    /// Tokens this instance had taken ahead, or the news that there were none to take.
    Lease,
    /// The rule's `on_outage`, because the store did not answer.
    Fallback(OnOutage),
    /// A list or an override that refuses, whatever has been spent.
    DenyList,
    /// Only rules that watch applied, and they refuse nobody.
    Shadow,
    /// No limit applied.
    Unlimited,
}

impl Source {
    /// Every source, for metrics.
    pub const ALL: [Source; 9] = [
        Source::Store,
        Source::DenyCache,
        Source::Lease,
        Source::Fallback(OnOutage::Allow),
        Source::Fallback(OnOutage::Deny),
        Source::Fallback(OnOutage::Local),
        Source::DenyList,
        Source::Shadow,
        Source::Unlimited,
    ];

    /// Its name in answers and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Store => "store",
            Source::DenyCache => "deny-cache",
            Source::Lease => "lease",
            Source::Fallback(_) => "fallback",
            Source::DenyList => "deny-list",
            Source::Shadow => "shadow",
            Source::Unlimited => "unlimited",
        }
    }
}

/// One check's part in a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// Where the check came from.
    pub origin: Origin,
    /// Which want it served.
    pub want: usize,
    /// Whether it may refuse.
    pub role: Role,
    /// What kind of subject it was about.
    pub subject: SubjectKind,
    /// How long what was spent counts: the span in which `decision.limit` may be admitted.
    pub window: Micros,
    /// How it was decided.
    pub decision: Decision,
}

impl Judged {
    /// A check and its decision.
    #[inline]
    pub fn new(entry: &Entry<'_>, decision: Decision) -> Judged {
        Judged {
            origin: entry.origin,
            want: entry.want,
            role: entry.role,
            subject: entry.kind,
            window: entry.algorithm.window(),
            decision,
        }
    }

    /// A refusal that no store was asked for.
    pub fn blocked(blocked: &Blocked) -> Judged {
        let decision = Decision {
            outcome: Outcome::Never,
            limit: 0,
            remaining: 0,
            reset_after: Micros::ZERO,
            take: Take { at: Micros::ZERO, entry: 0 },
            found: Found::Nothing,
        };
        let Blocked { origin, want, kind, role } = *blocked;
        Judged { origin, want, role, subject: kind, window: Micros::ZERO, decision }
    }
}

impl Verdict {
    /// Whether the ask may pass.
    pub fn is_allowed(&self) -> bool {
        self.answer == Answer::Allowed
    }

    /// The check that speaks for the ask: of those that refuse, the one to wait for longest;
    /// otherwise the one with the least left.
    pub fn binding(&self) -> Option<&Judged> {
        let weight = |judged: &&Judged| match judged.decision.outcome {
            Outcome::Never => (2, u64::MAX),
            Outcome::Denied { retry_after } => (1, retry_after.0),
            Outcome::Allowed => (0, u64::from(u32::MAX.saturating_sub(judged.decision.remaining))),
        };
        // Of two alike the last is taken; a single one needs no comparison.
        match &self.checks {
            Few::One(judged) if judged.role == Role::Enforced => Some(judged),
            checks => checks.iter().filter(|judged| judged.role == Role::Enforced).max_by_key(weight),
        }
    }

    /// How long to wait before the same ask can pass, if nobody else spends. `None` if it passed,
    /// or if no waiting helps.
    pub fn retry_after(&self) -> Option<Micros> {
        match self.binding()?.decision.outcome {
            Outcome::Denied { retry_after } => Some(retry_after),
            Outcome::Allowed | Outcome::Never => None,
        }
    }

    /// The rule that speaks for the ask; `None` for an inline limit.
    pub fn rule(&self) -> Option<&Rule> {
        self.policy.rule_of(self.binding()?.origin)
    }
}

/// The engine's answer to a refund.
#[derive(Debug, Clone)]
pub enum RefundAnswer {
    /// What came back, in the order asked.
    Done(Few<Refunded>),
    /// The store did not answer; what came back is unknown, or nothing did.
    NotDone {
        /// Why, for the log and the caller.
        why: crate::store::StoreError,
    },
    /// The refund could not be understood.
    Invalid(AskProblem),
}
