//! What a door asks of breakers.

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tollgate::Micros;
use tollgate::breaker::{
    Breakers, Decree, Handle, Heard, ID_BYTES_MAX, Lease, NoBreaker, OverrideError, Status, Whose,
};
use tollgate::clock::Clock;
use tollgate::core::breaker::{Breaker, Mode, Outcome as Counted, Settings, State};
use tollgate::core::store::StoreError;
use tollgate::observe::Observer;

use super::fleet::Records;
use super::policy::{BreakerPolicy, Kind};
use super::table::{Held, Probing, Table};
use super::token::{Of, Token};
use crate::engine::Engine;

/// The most breakers of one list.
pub(crate) const LIST_MAX: usize = 1_000;

/// How often calls that were never reported are let go of.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// How long the fleet is told things before the end.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// The breakers of this instance, for every door.
#[derive(Debug)]
pub(crate) struct Service {
    breakers: Breakers<Records>,
    policy: ArcSwap<BreakerPolicy>,
    table: Table,
    clock: Clock,
    /// This instance, as tokens name it; never zero.
    instance: u64,
}

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
            OverrideError::Field { field: "keep_for", what } => BreakerError::Field { field: "ttl", what },
            OverrideError::Field { field, what } => BreakerError::Field { field, what },
            OverrideError::NoBreaker(why) => why.into(),
            OverrideError::Store(error) => BreakerError::Store(error),
            _ => bad_id(error.to_string()),
        }
    }
}

fn bad_id(what: String) -> BreakerError {
    BreakerError::Field { field: "id", what }
}

impl Service {
    /// Breakers in the engine's store. Starts what goes on in the background, on the current runtime.
    pub(crate) fn start(
        engine: Engine,
        policy: Arc<BreakerPolicy>,
        observer: Arc<dyn Observer>,
    ) -> Result<Arc<Service>, BreakerError> {
        Service::start_by(Clock::system(), engine, policy, observer)
    }

    /// The same, by another clock.
    fn start_by(
        clock: Clock,
        engine: Engine,
        policy: Arc<BreakerPolicy>,
        observer: Arc<dyn Observer>,
    ) -> Result<Arc<Service>, BreakerError> {
        // Every breaker is handed out with the behaviour of its kind; this one is never met.
        let unmet = Breaker::try_new(Settings::default()).map_err(|_| bad_id("no settings".to_owned()))?;
        let records = Arc::new(Records::new(engine, clock.clone()));
        let breakers = Breakers::start_watched(records, unmet, clock.clone(), observer);
        let service = Arc::new(Service {
            breakers,
            policy: ArcSwap::new(policy),
            table: Table::default(),
            clock,
            instance: fastrand::u64(1..),
        });
        let swept = Arc::downgrade(&service);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(SWEEP_EVERY);
            loop {
                ticks.tick().await;
                let Some(service) = swept.upgrade() else { return };
                service.table.sweep(service.clock.now());
            }
        });
        Ok(service)
    }

    /// Puts another policy in force. Breakers in use take on their new settings and stay as they stand; those that
    /// no entry is for any more are forgotten here.
    pub(crate) fn apply(&self, policy: &Arc<BreakerPolicy>) {
        self.policy.store(Arc::clone(policy));
        self.breakers.behave(|id| {
            let (_, kind) = policy.find(std::str::from_utf8(id).ok()?)?;
            Some(Arc::clone(&kind.behaviour))
        });
    }

    /// Tells the fleet what would be told soon, before the end.
    pub(crate) async fn close(&self) {
        if tokio::time::timeout(CLOSE_WITHIN, self.breakers.flush()).await.is_err() {
            tracing::warn!("not all that breakers had counted was told in time");
        }
    }

    /// The breaker of that id, and the entry of the policy it belongs to.
    fn find(&self, id: &str) -> Result<(Handle<Records>, Kind), BreakerError> {
        if id.is_empty() || id.len() > ID_BYTES_MAX || id.chars().any(char::is_control) {
            return Err(bad_id(format!("must have 1 to {ID_BYTES_MAX} bytes, and no control characters")));
        }
        let policy = self.policy.load();
        let Some((_, kind)) = policy.find(id) else {
            let what = if policy.kinds().is_empty() {
                "there are no breakers: name some under `breakers` in the policy".to_owned()
            } else {
                "no breaker of the policy has this name or a pattern that matches it".to_owned()
            };
            return Err(bad_id(what));
        };
        Ok((self.breakers.handle_as(id.as_bytes(), &kind.behaviour)?, kind.clone()))
    }

    /// Asks for leave to make a call.
    ///
    /// hot path: while Closed or Open no round trip; a look-up, and a place in the table.
    pub(crate) async fn acquire(&self, id: &str) -> Result<Acquired, BreakerError> {
        let (handle, kind) = self.find(id)?;
        // Order: the epoch first. An older one than the permit's is late elsewhere; a newer one would count.
        let epoch = handle.status().epoch.unwrap_or(0);
        let permit = match handle.permit().await {
            Ok(permit) => permit,
            Err(refused) => {
                let retry_after = refused.retry_after;
                return Ok(Acquired::Refused { retry_after, state: handle.state() });
            }
        };
        let (now, lease_left) = (self.clock.now(), permit.lease_left());
        let report_within = lease_left.unwrap_or(kind.report_within);
        let token = match permit.into_lease() {
            Ok((lease, left)) => {
                // To its very end: who cancels a probe in time says so a moment later.
                let ends = now + Micros::from(left);
                let of = if lease.whose == Whose::Fleet { Of::Probe } else { Of::OwnProbe };
                self.table.probe(id, Probing { lease, began: now, ends });
                Token { of, instance: self.instance, epoch: lease.epoch, serial: lease.token, ends }
            }
            Err(permit) => {
                let (serial, ends) = (fastrand::u64(..), now + Micros::from(report_within));
                let is_kept = self.table.keep(serial, Held { permit, ends });
                // Without a place it is as good as another instance's.
                let instance = if is_kept { self.instance } else { 0 };
                Token { of: Of::Call, instance, epoch, serial, ends }
            }
        };
        let is_probe = lease_left.is_some();
        Ok(Acquired::Granted(Granted { token, is_probe, report_within, state: handle.state() }))
    }

    /// Hears how a call ended.
    pub(crate) async fn report(&self, report: Report<'_>) -> Result<Reported, BreakerError> {
        let (handle, _) = self.find(report.id)?;
        Ok(match report.token {
            None => self.report_by_id(&handle, report).await,
            Some(token) if token.of == Of::Call => self.report_call(&handle, token, report),
            Some(token) => self.report_probe(&handle, token, report).await,
        })
    }

    /// A call that was not granted, or whose token was not kept: it counts as of now.
    async fn report_by_id(&self, handle: &Handle<Records>, report: Report<'_>) -> Reported {
        let now = self.clock.now();
        if let Some(probing) = self.table.take_probe(report.id, None, now) {
            let heard = settle(handle, probing.lease, report, now - probing.began).await;
            return reported(heard);
        }
        count(handle, report)
    }

    fn report_call(&self, handle: &Handle<Records>, token: Token, report: Report<'_>) -> Reported {
        if token.instance != self.instance {
            let epoch = handle.status().epoch.unwrap_or(0);
            let is_current = token.epoch == 0 || token.epoch == epoch;
            return if is_current { count(handle, report) } else { Reported::Late(Late::Changed) };
        }
        let now = self.clock.now();
        let Some(Held { permit, ends }) = self.table.take(token.serial) else {
            return Reported::Late(if token.ends <= now { Late::Expired } else { Late::Unknown });
        };
        if ends <= now {
            return Reported::Late(Late::Expired);
        }
        if permit.id() != report.id.as_bytes() {
            // Somebody has mixed them up; what it stood for is gone with it.
            return Reported::Late(Late::Unknown);
        }
        let outcome = match report.outcome {
            Outcome::Ignore => {
                permit.ignore();
                return Reported::Counted;
            }
            Outcome::Success => permit.went_well(report.elapsed),
            Outcome::Failure => Counted::Failure,
            Outcome::Slow => Counted::Slow,
        };
        reported(permit.record(outcome, report.retry_after))
    }

    async fn report_probe(&self, handle: &Handle<Records>, token: Token, report: Report<'_>) -> Reported {
        let now = self.clock.now();
        let is_ours = token.instance == self.instance;
        let whose = if token.of == Of::Probe { Whose::Fleet } else { Whose::Own };
        if whose == Whose::Own && !is_ours {
            return Reported::Late(Late::Elsewhere);
        }
        let lease = Lease { token: token.serial, epoch: token.epoch, whose };
        let probing = self.table.take_probe(report.id, Some(lease), now);
        let took = match probing {
            Some(probing) => now - probing.began,
            None if is_ours => {
                return Reported::Late(if token.ends <= now { Late::Expired } else { Late::Unknown });
            }
            // Another instance granted it, and knows when it began.
            None => Micros::ZERO,
        };
        reported(settle(handle, lease, report, took).await)
    }

    /// How a breaker stands.
    pub(crate) async fn state(&self, id: &str) -> Result<Seen, BreakerError> {
        let (handle, kind) = self.find(id)?;
        handle.learn().await;
        Ok(seen(id, kind.behaviour.name(), &handle))
    }

    /// Breakers in use here whose ids come after one, in their order.
    pub(crate) fn list(&self, after: Option<&str>, limit: usize) -> Listed {
        let limit = limit.clamp(1, LIST_MAX);
        // The smallest ids, the largest of them on top: whatever there is, this holds no more than is shown.
        let mut ids: BinaryHeap<Box<[u8]>> = BinaryHeap::new();
        self.breakers.each(|id, _| {
            let is_after = after.is_none_or(|after| id > after.as_bytes());
            if is_after && (ids.len() <= limit || ids.peek().is_some_and(|last| id < &**last)) {
                ids.push(id.into());
                if ids.len() > limit + 1 {
                    ids.pop();
                }
            }
        });
        let mut ids = ids.into_sorted_vec();
        let has_more = ids.len() > limit;
        ids.truncate(limit);
        let breakers = ids.iter().filter_map(|id| {
            let id = std::str::from_utf8(id).ok()?;
            let (handle, kind) = self.find(id).ok()?;
            Some(seen(id, kind.behaviour.name(), &handle))
        });
        Listed { breakers: breakers.collect(), has_more }
    }

    /// Decides for the whole fleet.
    pub(crate) async fn overrule(&self, id: &str, decided: Override) -> Result<Seen, BreakerError> {
        let (handle, kind) = self.find(id)?;
        let Override { mode, ttl, reason, who } = decided;
        handle.overrule(Decree { mode, keep_for: ttl, reason, who }).await?;
        Ok(seen(id, kind.behaviour.name(), &handle))
    }

    /// Lets the rules decide again.
    pub(crate) async fn lift(&self, id: &str) -> Result<Seen, BreakerError> {
        let (handle, kind) = self.find(id)?;
        handle.lift().await?;
        Ok(seen(id, kind.behaviour.name(), &handle))
    }
}

fn seen(id: &str, name: &str, handle: &Handle<Records>) -> Seen {
    Seen { id: id.to_owned(), name: name.to_owned(), status: handle.status() }
}

/// What an outcome is to the breaker; `None` says nothing about the other side.
fn outcome_of(handle: &Handle<Records>, report: Report<'_>, took: Micros) -> Option<Counted> {
    match report.outcome {
        Outcome::Ignore => None,
        Outcome::Failure => Some(Counted::Failure),
        Outcome::Slow => Some(Counted::Slow),
        Outcome::Success => Some(handle.outcome_of(report.elapsed.map_or(took, Micros::from))),
    }
}

/// Counts as of now.
fn count(handle: &Handle<Records>, report: Report<'_>) -> Reported {
    match outcome_of(handle, report, Micros::ZERO) {
        None => Reported::Counted,
        Some(outcome) => reported(handle.record(outcome, report.retry_after)),
    }
}

async fn settle(handle: &Handle<Records>, lease: Lease, report: Report<'_>, took: Micros) -> Heard {
    let outcome = outcome_of(handle, report, took).map(|outcome| (outcome, report.retry_after));
    handle.settle(lease, outcome).await
}

fn reported(heard: Heard) -> Reported {
    match heard {
        Heard::Counted => Reported::Counted,
        Heard::Late => Reported::Late(Late::Changed),
        Heard::Unanswered => Reported::Late(Late::Unanswered),
    }
}

#[cfg(test)]
mod tests;
