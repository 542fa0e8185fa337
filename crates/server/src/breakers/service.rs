//! What a door asks of breakers.

use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tollgate::Micros;
use tollgate::breaker::{Breakers, Decree, Handle, Heard, ID_BYTES_MAX, Lease, Whose};
use tollgate::clock::Clock;
use tollgate::core::breaker::{Breaker, Outcome as Counted, Settings, State};
use tollgate::observe::Observer;

use super::fleet::Records;
use super::policy::{BreakerPolicy, Kind};
use super::table::{Held, Probing, Table};
use super::token::{Of, Token};
use super::words::{
    Acquired, BreakerError, Granted, Late, Listed, Outcome, Override, Report, Reported, Seen, bad_id,
};
use crate::engine::Engine;
use crate::telemetry::breakers::{Answered, BreakerMetrics, Meters};

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
    loaded: ArcSwap<Loaded>,
    metrics: Arc<BreakerMetrics>,
    table: Table,
    clock: Clock,
    /// This instance, as tokens name it; never zero.
    instance: u64,
}

/// The policy in force, with the counters of each of its entries.
#[derive(Debug)]
struct Loaded {
    policy: Arc<BreakerPolicy>,
    meters: Vec<Meters>,
}

impl Loaded {
    fn new(policy: &Arc<BreakerPolicy>, metrics: &BreakerMetrics) -> Loaded {
        let meters = policy.kinds().iter().map(|kind| metrics.meters(kind.behaviour.name())).collect();
        Loaded { policy: Arc::clone(policy), meters }
    }
}

/// A breaker, and the entry of the policy it belongs to.
struct Found {
    handle: Handle<Records>,
    loaded: Arc<Loaded>,
    at: usize,
}

impl Found {
    fn kind(&self) -> Option<&Kind> {
        self.loaded.policy.kinds().get(self.at)
    }

    fn meter(&self, count: impl FnOnce(&Meters)) {
        if let Some(meters) = self.loaded.meters.get(self.at) {
            count(meters);
        }
    }

    fn seen(&self, id: &str) -> Seen {
        let name = self.kind().map_or_else(String::new, |kind| kind.behaviour.name().to_owned());
        Seen { id: id.to_owned(), name, status: self.handle.status() }
    }
}

/// How the breakers of each entry stand, for metrics.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// By the names of their entries.
    pub(crate) kinds: BTreeMap<String, KindFigures>,
    /// Calls under way.
    pub(crate) held: usize,
}

/// How the breakers of one entry stand.
#[derive(Debug, Default)]
pub(crate) struct KindFigures {
    /// Closed, open, half-open.
    pub(crate) states: [usize; 3],
    /// Probes under way that were granted here.
    pub(crate) probes: usize,
}

impl Service {
    /// Breakers in the engine's store. Starts what goes on in the background, on the current runtime.
    pub(crate) fn start(
        engine: Engine,
        policy: &Arc<BreakerPolicy>,
        metrics: Arc<BreakerMetrics>,
    ) -> Result<Arc<Service>, BreakerError> {
        Service::start_by(Clock::system(), engine, policy, metrics)
    }

    /// The same, by another clock.
    fn start_by(
        clock: Clock,
        engine: Engine,
        policy: &Arc<BreakerPolicy>,
        metrics: Arc<BreakerMetrics>,
    ) -> Result<Arc<Service>, BreakerError> {
        // Every breaker is handed out with the behaviour of its kind; this one is never met.
        let unmet = Breaker::try_new(Settings::default()).map_err(|_| bad_id("no settings".to_owned()))?;
        let records = Arc::new(Records::new(engine, clock.clone()));
        let observer: Arc<dyn Observer> = Arc::<BreakerMetrics>::clone(&metrics);
        let breakers = Breakers::start_watched(records, unmet, clock.clone(), observer);
        let service = Arc::new(Service {
            breakers,
            loaded: ArcSwap::from_pointee(Loaded::new(policy, &metrics)),
            metrics,
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
                service.metrics.unreported(service.table.sweep(service.clock.now()));
            }
        });
        Ok(service)
    }

    /// Puts another policy in force. Breakers in use take on their new settings and stay as they stand; those that
    /// no entry is for any more are forgotten here.
    pub(crate) fn apply(&self, policy: &Arc<BreakerPolicy>) {
        let before = self.loaded.swap(Arc::new(Loaded::new(policy, &self.metrics)));
        let is_gone = |name: &str| policy.kinds().iter().all(|kind| kind.behaviour.name() != name);
        for kind in before.policy.kinds().iter().filter(|kind| is_gone(kind.behaviour.name())) {
            self.metrics.forget(kind.behaviour.name());
        }
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
    fn find(&self, id: &str) -> Result<Found, BreakerError> {
        if id.is_empty() || id.len() > ID_BYTES_MAX || id.chars().any(char::is_control) {
            return Err(bad_id(format!("must have 1 to {ID_BYTES_MAX} bytes, and no control characters")));
        }
        let loaded = self.loaded.load_full();
        let Some((at, kind)) = loaded.policy.find(id) else {
            let what = if loaded.policy.kinds().is_empty() {
                "there are no breakers: name some under `breakers` in the policy".to_owned()
            } else {
                "no breaker of the policy has this name or a pattern that matches it".to_owned()
            };
            return Err(bad_id(what));
        };
        let handle = self.breakers.handle_as(id.as_bytes(), &kind.behaviour)?;
        Ok(Found { handle, loaded, at })
    }

    /// Asks for leave to make a call.
    ///
    /// hot path: while Closed or Open no round trip; a look-up, and a place in the table.
    pub(crate) async fn acquire(&self, id: &str) -> Result<Acquired, BreakerError> {
        let found = self.find(id)?;
        let handle = &found.handle;
        // Order: the epoch first. An older one than the permit's is late elsewhere; a newer one would count.
        let epoch = handle.status().epoch.unwrap_or(0);
        let permit = match handle.permit().await {
            Ok(permit) => permit,
            Err(refused) => {
                found.meter(|meters| meters.acquired(Answered::Refused));
                let retry_after = refused.retry_after;
                return Ok(Acquired::Refused { retry_after, state: handle.state() });
            }
        };
        let (now, lease_left) = (self.clock.now(), permit.lease_left());
        let usual = found.kind().map_or(Duration::ZERO, |kind| kind.report_within);
        let report_within = lease_left.unwrap_or(usual);
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
        let answered = if is_probe { Answered::Probe } else { Answered::Granted };
        found.meter(|meters| meters.acquired(answered));
        Ok(Acquired::Granted(Granted { token, is_probe, report_within, state: handle.state() }))
    }

    /// Hears how a call ended.
    pub(crate) async fn report(&self, report: Report<'_>) -> Result<Reported, BreakerError> {
        let found = self.find(report.id)?;
        let handle = &found.handle;
        let reported = match report.token {
            None => self.report_by_id(handle, report).await,
            Some(token) if token.of == Of::Call => self.report_call(handle, token, report).await,
            Some(token) => self.report_probe(handle, token, report).await,
        };
        found.meter(|meters| match reported {
            Reported::Counted => meters.counted(report.outcome),
            Reported::Late(why) => meters.late(why),
        });
        Ok(reported)
    }

    /// A call that was not granted, or whose token was not kept: it counts as of now.
    async fn report_by_id(&self, handle: &Handle<Records>, report: Report<'_>) -> Reported {
        let now = self.clock.now();
        if let Some(probing) = self.table.take_probe(report.id, None, now) {
            let heard = settle(handle, probing.lease, report, now - probing.began).await;
            return reported(heard);
        }
        // It may be the first that is heard of this breaker here.
        handle.learn().await;
        count(handle, report)
    }

    async fn report_call(&self, handle: &Handle<Records>, token: Token, report: Report<'_>) -> Reported {
        if token.instance != self.instance {
            handle.learn().await;
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
        let found = self.find(id)?;
        found.handle.learn().await;
        Ok(found.seen(id))
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
            Some(self.find(id).ok()?.seen(id))
        });
        Listed { breakers: breakers.collect(), has_more }
    }

    /// Decides for the whole fleet.
    pub(crate) async fn overrule(&self, id: &str, decided: Override) -> Result<Seen, BreakerError> {
        let found = self.find(id)?;
        let Override { mode, ttl, reason, who } = decided;
        found.handle.overrule(Decree { mode, keep_for: ttl, reason, who }).await?;
        Ok(found.seen(id))
    }

    /// Lets the rules decide again.
    pub(crate) async fn lift(&self, id: &str) -> Result<Seen, BreakerError> {
        let found = self.find(id)?;
        found.handle.lift().await?;
        Ok(found.seen(id))
    }

    /// How all of them stand, for metrics.
    pub(crate) fn figures(&self) -> Figures {
        let policy = &self.loaded.load().policy;
        let mut kinds: BTreeMap<String, KindFigures> = BTreeMap::new();
        for kind in policy.kinds() {
            kinds.entry(kind.behaviour.name().to_owned()).or_default();
        }
        self.breakers.each(|_, handle| {
            let state = match handle.state() {
                State::Closed => 0,
                State::Open => 1,
                State::HalfOpen => 2,
            };
            if let Some(figures) = kinds.get_mut(handle.behaviour().name()) {
                figures.states[state] += 1;
            }
        });
        let held = self.table.each_probing(self.clock.now(), |id, probes| {
            let figures = policy.find(id).and_then(|(_, kind)| kinds.get_mut(kind.behaviour.name()));
            if let Some(figures) = figures {
                figures.probes += probes;
            }
        });
        Figures { kinds, held }
    }
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
