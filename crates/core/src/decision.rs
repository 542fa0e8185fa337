//! The store's answer to one check.

use crate::units::Micros;

/// Whether one check lets its ask pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The cost fits.
    Allowed,
    /// The cost does not fit now; it will, after `retry_after`, if nobody else spends.
    Denied {
        /// Exact: refused one microsecond before, allowed then.
        retry_after: Micros,
    },
    /// The cost is above the limit itself. No waiting helps.
    Never,
}

/// The store's answer to one check. A refusal changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Whether the cost fits.
    pub outcome: Outcome,
    /// The most that can be admitted at once.
    pub limit: u32,
    /// What is left: after the spend for a take that passed, as it stands otherwise.
    pub remaining: u32,
    /// Until the limit is whole again, if nobody spends.
    pub reset_after: Micros,
    /// The spend, by the name a refund calls it by.
    pub take: Take,
    /// What the store knew of the key before.
    pub found: Found,
}

/// Names one spend on one key: when it was decided, and which one of that microsecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Take {
    /// The instant it was decided at, by the store's clock.
    pub at: Micros,
    /// The first of its entries among those of the same microsecond (`sliding_log`; else 0).
    pub entry: u32,
}

/// What a store found under a key when it looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// State of this key.
    State,
    /// Nothing: the limit is whole.
    Nothing,
    /// Something that is not ours: wrong type, length or version. Treated as nothing, and counted.
    Malformed,
}

/// How much of a refund was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returned {
    /// The whole cost.
    All,
    /// Part of it: the rest had come back by itself, or would lift the limit above its capacity.
    Part,
    /// Nothing: the take is gone (an older window, an expired entry, a limit that is whole again).
    Nothing,
}

impl Returned {
    /// What came back of several refunds taken together.
    pub fn of_several(refunds: &[Refunded]) -> Returned {
        let is_every = |wanted| refunds.iter().all(|refund| refund.returned == wanted);
        if is_every(Returned::All) {
            Returned::All
        } else if is_every(Returned::Nothing) {
            Returned::Nothing
        } else {
            Returned::Part
        }
    }

    /// Its name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Returned::All => "all",
            Returned::Part => "part",
            Returned::Nothing => "nothing",
        }
    }

    /// How much of `taken` was `given` back.
    pub(crate) fn of(given: u64, taken: u64) -> Returned {
        match given {
            0 => Returned::Nothing,
            _ if given < taken => Returned::Part,
            _ => Returned::All,
        }
    }
}

/// The store's answer to one refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refunded {
    /// How much came back.
    pub returned: Returned,
    /// The most that can be admitted at once.
    pub limit: u32,
    /// What is left now.
    pub remaining: u32,
    /// Until the limit is whole again, if nobody spends.
    pub reset_after: Micros,
}

/// One visit to one key, decided but not yet written.
///
/// The store looks at every check of an ask first. If all pass it writes each `spend`; if any
/// refuses it writes only each `mend`, and there is none unless the clock or the limit changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<S> {
    /// What to answer.
    pub decision: Decision,
    /// What to remember if the whole ask passes. `None` if this check refuses.
    pub spend: Option<S>,
    /// What to remember even if the ask is refused: a state carried over to a changed limit, or
    /// freed from a clock that ran ahead. Without it a refusal would promise a `retry_after` by
    /// numbers that the next visitor does not see.
    pub mend: Option<S>,
}

/// Whether a visit spends or only looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Spend if it fits; `remaining` is what is left after.
    Take,
    /// Only look; `remaining` is what is there.
    Peek,
}
