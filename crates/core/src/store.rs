//! The one seam between deciding and remembering.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::board::{Board, Notice, Post};
use crate::check::{Check, Refund};
use crate::decision::{Decision, Refunded};
use crate::few::Few;
use crate::key::Key;
use crate::push::{Listener, Push};

/// A place where limiter state lives, together with the clock that state is read by.
///
/// State and time come from the same machine: many instances may share one store, and two
/// instances never agree on `now`. That is why no method here takes a time.
///
/// # Contract
///
/// Proved for every implementation by `testkit::contract`:
///
/// 1. **All or nothing.** `take` spends every check, or none of them.
/// 2. **A refusal writes nothing** (but for a changed limit or a stepped clock, once).
/// 3. **One round trip.** `take` costs one exchange with the backend, whatever its length.
/// 4. **No patience.** A store neither retries nor waits out a deadline; the guard does.
/// 5. **No two checks of one ask have the same key.** The caller sees to that.
pub trait Store: Send + Sync + 'static {
    /// Spends every check at one instant, or spends nothing. Answers in the order asked.
    fn take(&self, checks: &[Check<'_>]) -> impl Future<Output = Result<Few<Decision>, StoreError>> + Send;

    /// Takes each check by itself and in order, as so many `take`s would, if none of them has to be waited
    /// for. For callers with many asks in hand: a store in memory fetches what they need all at once.
    ///
    /// [`AtOnce::MustWait`], and nothing is done, unless the store says otherwise.
    fn take_each<'c>(
        &self,
        _checks: impl Iterator<Item = Check<'c>> + Clone,
        _each: impl FnMut(&Decision),
    ) -> AtOnce {
        AtOnce::MustWait
    }

    /// What `take` would answer, without spending.
    fn peek(&self, checks: &[Check<'_>]) -> impl Future<Output = Result<Few<Decision>, StoreError>> + Send;

    /// Undoes earlier takes, as far as they still count.
    fn refund(
        &self,
        refunds: &[Refund<'_>],
    ) -> impl Future<Output = Result<Few<Refunded>, StoreError>> + Send;

    /// Forgets keys: their next visitors find whole limits.
    fn forget(&self, keys: &[Key<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Puts a notice on the board for all instances to see, in the place of any other of that name; or
    /// takes it down.
    fn post(
        &self,
        name: &[u8],
        notice: Option<Notice<'_>>,
    ) -> impl Future<Output = Result<Post, StoreError>> + Send;

    /// What is on the board, unless it is still as it was in version `seen`. Zero has seen none.
    fn board(&self, seen: u64) -> impl Future<Output = Result<Option<Board>, StoreError>> + Send;

    /// Calls a push out to all that listen to this store, on any instance. Whether anybody heard it is not known.
    fn publish(&self, push: Push<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Has `listener` told what any instance publishes, from about the next heartbeat on and as long as the
    /// store lives.
    fn listen(&self, listener: Arc<dyn Listener>);

    /// Whose state it is.
    fn reach(&self) -> Reach;

    /// How many shards there are: pieces that fail by themselves, [`Shard::WHOLE`] the first of them.
    fn shards(&self) -> u16 {
        1
    }

    /// The shards that keep these keys, each once.
    fn shards_of<'a>(&self, _keys: impl Iterator<Item = Key<'a>>) -> Few<Shard> {
        Few::One(Shard::WHOLE)
    }

    /// As [`Store::heartbeat`], on one shard.
    fn heartbeat_of(&self, _shard: Shard) -> impl Future<Output = Result<Heartbeat, StoreError>> + Send {
        self.heartbeat()
    }

    /// Called about once a second: a shared store shows this instance alive, by writing as a take
    /// would, and says how many are; an embedded one may tidy up. An open guard probes with it.
    fn heartbeat(&self) -> impl Future<Output = Result<Heartbeat, StoreError>> + Send;
}

/// A piece of a store that fails by itself, by its number. A store of one piece has [`Shard::WHOLE`] alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shard(pub u16);

impl Shard {
    /// The store as a whole.
    pub const WHOLE: Shard = Shard(0);
}

/// Whether a store answered without waiting for anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum AtOnce {
    /// It did, and all is decided.
    Done,
    /// It cannot: nothing was done.
    MustWait,
}

/// Whose state a store keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// This process' alone: to ask costs no trip.
    Process,
    /// All instances' that share it: to ask costs a trip, and what is known of it can be out of date.
    Fleet,
}

/// What a heartbeat brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Instances seen alive, this one included.
    pub instances: u32,
}

/// Why a store could not answer. A refusal is not here: refusing is an answer.
///
/// One variant per thing the caller can *do*; what was spent is [`StoreError::spent`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No answer in time. The spend may or may not have happened.
    #[error("no answer within {}ms", waited.as_millis())]
    TimedOut {
        /// How long we waited.
        waited: Duration,
    },
    /// The connection was lost after sending. The spend may or may not have happened.
    #[error("the connection was lost before the answer came: {why}")]
    Lost {
        /// What the connection said.
        why: Cow<'static, str>,
    },
    /// The store was not asked: no connection, or no room to queue. Nothing was spent.
    #[error("not reachable: {why}")]
    Unreachable {
        /// What was tried last.
        why: Cow<'static, str>,
    },
    /// The store answered that it would not. Nothing was spent.
    #[error("refused to work ({}): {message}", class.name())]
    Answered {
        /// What kind of refusal to work.
        class: ErrorClass,
        /// The answer, as it came.
        message: String,
    },
    /// The store answered something this version does not understand: a bug, or version skew.
    /// The spend may have happened.
    #[error("unexpected answer: {what}")]
    BadReply {
        /// What was wrong with it.
        what: String,
    },
}

/// Whether a failed take may have spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// Nothing was spent.
    Nothing,
    /// It may have been, and must never be sent again.
    Unknown,
}

/// The kinds of error a Redis answers with, by what must be done about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The script cache was lost: load and send again, once.
    NoScript,
    /// A replica: the primary has moved. Leave this connection.
    ReadOnly,
    /// Still reading its data from disk.
    Loading,
    /// A replica that lost its primary.
    MasterDown,
    /// The fence of `min-replicas-to-write` is up: perhaps we are on the wrong side of a partition.
    NoReplicas,
    /// Out of memory.
    OutOfMemory,
    /// Persistence is failing, so writes are refused.
    Misconfigured,
    /// Somebody's script runs and runs.
    Busy,
    /// The slot lives elsewhere now.
    Moved,
    /// The slot is moving.
    AskRedirect,
    /// Keys of one slot are on two nodes for a moment.
    TryAgain,
    /// The cluster does not serve this slot.
    ClusterDown,
    /// Keys of one call on several slots: our mistake.
    CrossSlot,
    /// The user may not do this.
    NoPermission,
    /// No, or wrong, credentials.
    NoAuthentication,
    /// Too many connections.
    TooManyClients,
    /// Anything else.
    Other,
}

impl ErrorClass {
    /// Every class, for metrics.
    pub const ALL: [ErrorClass; 17] = [
        ErrorClass::NoScript,
        ErrorClass::ReadOnly,
        ErrorClass::Loading,
        ErrorClass::MasterDown,
        ErrorClass::NoReplicas,
        ErrorClass::OutOfMemory,
        ErrorClass::Misconfigured,
        ErrorClass::Busy,
        ErrorClass::Moved,
        ErrorClass::AskRedirect,
        ErrorClass::TryAgain,
        ErrorClass::ClusterDown,
        ErrorClass::CrossSlot,
        ErrorClass::NoPermission,
        ErrorClass::NoAuthentication,
        ErrorClass::TooManyClients,
        ErrorClass::Other,
    ];

    /// Its name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorClass::NoScript => "noscript",
            ErrorClass::ReadOnly => "readonly",
            ErrorClass::Loading => "loading",
            ErrorClass::MasterDown => "masterdown",
            ErrorClass::NoReplicas => "noreplicas",
            ErrorClass::OutOfMemory => "oom",
            ErrorClass::Misconfigured => "misconf",
            ErrorClass::Busy => "busy",
            ErrorClass::Moved => "moved",
            ErrorClass::AskRedirect => "ask",
            ErrorClass::TryAgain => "tryagain",
            ErrorClass::ClusterDown => "clusterdown",
            ErrorClass::CrossSlot => "crossslot",
            ErrorClass::NoPermission => "noperm",
            ErrorClass::NoAuthentication => "noauth",
            ErrorClass::TooManyClients => "maxclients",
            ErrorClass::Other => "other",
        }
    }
}

impl StoreError {
    /// Whether the failed call may have spent.
    pub fn spent(&self) -> Spent {
        match self {
            StoreError::TimedOut { .. } | StoreError::Lost { .. } | StoreError::BadReply { .. } => {
                Spent::Unknown
            }
            StoreError::Unreachable { .. } | StoreError::Answered { .. } => Spent::Nothing,
        }
    }

    /// Its name in metrics and logs.
    pub fn name(&self) -> &'static str {
        match self {
            StoreError::TimedOut { .. } => "timeout",
            StoreError::Lost { .. } => "lost",
            StoreError::Unreachable { .. } => "unreachable",
            StoreError::Answered { class, .. } => class.name(),
            StoreError::BadReply { .. } => "badreply",
        }
    }
}
