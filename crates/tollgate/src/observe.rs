//! What the engine tells the outside: one call per event, and nothing that could slow a check.

use std::time::Duration;

use tollgate_core::breaker::Transition;
use tollgate_core::decision::{Decision, Found, Outcome, Refunded, Verb};
use tollgate_core::policy::Policy;
use tollgate_core::store::StoreError;
use tollgate_core::verdict::Verdict;

/// Hears what happens. Every method must return at once: it is called on the hot path.
///
/// Nothing here carries a user's key, so no metric label can come from user input.
pub trait Observer: Send + Sync + 'static {
    /// An ask was answered.
    fn decided(&self, _verb: Verb, _verdict: &Verdict) {}

    /// The store answered takes that came together, each under a limit that its caller brought along.
    /// Told once for all of them, in the place of so many [`Observer::decided`].
    fn took(&self, _taken: &Taken) {}

    /// A refund was carried out.
    fn refunded(&self, _refunds: &[Refunded]) {}

    /// A shared store was called.
    fn called(&self, _call: &Call<'_>) {}

    /// The guard opened or closed.
    fn guard_changed(&self, _change: &GuardChange<'_>) {}

    /// Tokens were taken ahead for a hot key, or let go of unspent.
    fn leased(&self, _change: &LeaseChange) {}

    /// A breaker has changed; told once in the fleet for its record, and once by each instance for its own.
    fn breaker_changed(&self, _change: &BreakerChange<'_>) {}

    /// What a breaker had counted was told to the fleet, or was not.
    fn breaker_told(&self, _told: &BreakerTold<'_>) {}

    /// A new policy is in force.
    fn policy_swapped(&self, _policy: &Policy) {}
}

/// Takes that came together, counted by what came of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Those that passed.
    pub allowed: u64,
    /// Those that did not, and will.
    pub refused: u64,
    /// Those that asked for more than there ever is.
    pub never: u64,
    /// Those that found state under their key.
    pub found: u64,
    /// Those that passed and found none.
    pub created: u64,
    /// Those that found something else.
    pub malformed: u64,
}

impl Taken {
    /// Counts one more.
    #[inline]
    pub fn count(&mut self, decision: &Decision) {
        match decision.outcome {
            Outcome::Allowed => self.allowed += 1,
            Outcome::Denied { .. } => self.refused += 1,
            Outcome::Never => self.never += 1,
        }
        match decision.found {
            Found::State => self.found += 1,
            Found::Nothing => self.created += u64::from(decision.outcome == Outcome::Allowed),
            Found::Malformed => self.malformed += 1,
        }
    }
}

/// One call to a shared store.
#[derive(Debug)]
pub struct Call<'a> {
    /// What was called.
    pub operation: Operation,
    /// How long the caller waited.
    pub took: Duration,
    /// Why it failed, if it did.
    pub error: Option<&'a StoreError>,
}

/// What a store can be asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Spend.
    Take,
    /// Look.
    Peek,
    /// Give back.
    Refund,
    /// Forget.
    Forget,
    /// Show oneself alive.
    Heartbeat,
    /// Put a notice on the board.
    Post,
    /// Look at the board.
    Board,
    /// Call something out.
    Publish,
}

impl Operation {
    /// Every operation, for metrics.
    pub const ALL: [Operation; 8] = [
        Operation::Take,
        Operation::Peek,
        Operation::Refund,
        Operation::Forget,
        Operation::Heartbeat,
        Operation::Post,
        Operation::Board,
        Operation::Publish,
    ];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Take => "take",
            Operation::Peek => "peek",
            Operation::Refund => "refund",
            Operation::Forget => "forget",
            Operation::Heartbeat => "heartbeat",
            Operation::Post => "post",
            Operation::Board => "board",
            Operation::Publish => "publish",
        }
    }
}

/// Tokens of a lease came or went, other than by being spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseChange {
    /// So many were taken ahead.
    Taken {
        /// How many.
        tokens: u32,
    },
    /// So many were not spent, and the store took them back, all or in part.
    Returned {
        /// How many.
        tokens: u32,
    },
    /// So many were not spent, and it was too late to give them back.
    Expired {
        /// How many.
        tokens: u32,
    },
}

/// A breaker has changed. Its id is not told, only how its kind is called.
#[derive(Debug)]
pub struct BreakerChange<'a> {
    /// How its behaviour is called.
    pub behaviour: &'a str,
    /// Whose record it was.
    pub record: RecordOf,
    /// From what to what, and why.
    pub transition: &'a Transition,
}

/// Whose record of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordOf {
    /// The one that all instances share.
    Fleet,
    /// This instance's own.
    Own,
}

/// What a breaker had counted has been told to the fleet, or is lost.
#[derive(Debug)]
pub struct BreakerTold<'a> {
    /// How its behaviour is called.
    pub behaviour: &'a str,
    /// How long the first of it waited; `None` if nobody answered.
    pub lag: Option<Duration>,
}

/// The guard opened or closed.
#[derive(Debug)]
pub enum GuardChange<'a> {
    /// The store failed often enough; rules answer by their `on_outage` from here on.
    Opened {
        /// The failure that was one too many.
        error: &'a StoreError,
    },
    /// The store answers again.
    Closed {
        /// How long it was away.
        after: Duration,
    },
}

/// Hears nothing.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Observer for Silent {}
