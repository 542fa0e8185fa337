//! One breaker of one instance.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tollgate_core::breaker::{Answer, Event, Fleet, Outcome, Permille, Stance, State, View};
use tollgate_core::units::Micros;

use super::Behaviour;
use super::belief::{Asked, Belief, Came, Change};
use super::gate::{Gate, Tag, Way};
use super::hub::{Hub, PATIENCE};
use super::permit::{Leave, Permit, Probe, Refused, Whose};
use super::plain::Held;
use super::tally::Tally;
use crate::guard::DEADLINE;
use crate::observe::RecordOf;

/// What to wait where nothing better is known.
const PAUSE: Duration = Duration::from_millis(20);

/// A breaker, to ask again and again.
#[derive(Debug)]
pub struct Handle<F: Fleet> {
    pub(super) cell: Arc<Cell<F>>,
}

impl<F: Fleet> Clone for Handle<F> {
    fn clone(&self) -> Handle<F> {
        Handle { cell: Arc::clone(&self.cell) }
    }
}

#[derive(Debug)]
pub(super) struct Cell<F: Fleet> {
    pub(super) hub: Arc<Hub<F>>,
    pub(super) id: Box<[u8]>,
    behaviour: ArcSwap<Behaviour>,
    /// Whether calls are timed, for slow ones to be found.
    is_timed: AtomicBool,
    pub(super) gate: Gate,
    tally: Tally,
    pub(super) belief: Mutex<(Belief, Tag)>,
    /// It waits to be flushed.
    is_dirty: AtomicBool,
    /// Since when it has counted what was not told; zero if nothing.
    counted_at: AtomicU64,
    /// Somebody was refused since it was last looked at.
    is_used: AtomicBool,
    /// Looks since it was last used.
    pub(super) idle: AtomicU32,
    /// Failures since they were last told.
    failed: AtomicU32,
    /// Something failed or was slow since then.
    is_rough: AtomicBool,
    /// Leases that are being asked for.
    asking: AtomicU32,
    pub(super) held: Held,
}

impl<F: Fleet> Cell<F> {
    pub(super) fn new(hub: Arc<Hub<F>>, id: &[u8], behaviour: &Arc<Behaviour>) -> Cell<F> {
        let now = hub.clock.now();
        Cell {
            behaviour: ArcSwap::new(Arc::clone(behaviour)),
            is_timed: AtomicBool::new(behaviour.is_timed()),
            id: id.into(),
            gate: Gate::new(hub.made),
            tally: Tally::default(),
            belief: Mutex::new((Belief::new(&behaviour.breaker, now), Tag::FIRST)),
            is_dirty: AtomicBool::new(false),
            counted_at: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
            idle: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            is_rough: AtomicBool::new(false),
            asking: AtomicU32::new(0),
            held: Held::default(),
            hub,
        }
    }

    /// How it behaves.
    pub(super) fn behaviour(&self) -> Arc<Behaviour> {
        self.behaviour.load_full()
    }

    pub(super) fn is_slow(&self, took: Micros) -> bool {
        self.behaviour.load().is_slow(took)
    }

    /// Other settings hold from here on; how it stands stays.
    pub(super) fn behave(&self, behaviour: &Arc<Behaviour>) {
        if Arc::ptr_eq(&self.behaviour.load(), behaviour) {
            return;
        }
        self.behaviour.store(Arc::clone(behaviour));
        self.is_timed.store(behaviour.is_timed(), Ordering::Relaxed);
        self.believe(self.hub.clock.now(), |belief, _| {
            belief.behave(&behaviour.breaker);
            ((), Change::No)
        });
    }

    /// Changes what is believed, and then what calls meet.
    pub(super) fn believe<T>(&self, now: Micros, change: impl FnOnce(&mut Belief, Tag) -> (T, Change)) -> T {
        let mut held: MutexGuard<'_, (Belief, Tag)> = self.belief.lock();
        let (belief, tag) = &mut *held;
        let (done, changed) = change(belief, *tag);
        if changed == Change::Yes {
            *tag = tag.next();
            // Order: counters first. A permit with the new tag must find them.
            self.tally.begin(*tag);
        }
        self.gate.write(belief.way(now), *tag);
        let own = belief.take_changes();
        drop(held);
        self.hub.tell_of(self, RecordOf::Own, &own);
        done
    }

    /// Takes in how the fleet stands.
    pub(super) fn adopt(&self, view: View, came: Came) {
        let now = self.hub.clock.now();
        self.believe(now, |belief, _| ((), belief.adopt(view, came, now)));
    }

    pub(super) fn lose_touch(&self) {
        self.believe(self.hub.clock.now(), |belief, _| {
            belief.lose_touch();
            ((), Change::No)
        });
    }

    /// Gives what was counted to the own record.
    fn count(&self, now: Micros) {
        self.believe(now, |belief, tag| ((), belief.count(self.tally.take(tag), self.tally.run(tag), now)));
    }

    /// What the fleet is to be told.
    pub(super) fn next_report(&self) -> Event {
        let now = self.hub.clock.now();
        self.is_dirty.store(false, Ordering::Release);
        self.failed.store(0, Ordering::Relaxed);
        self.is_rough.store(false, Ordering::Relaxed);
        self.count(now);
        self.believe(now, |belief, _| (belief.next_report(self.hub.reporter), Change::No))
    }

    #[cold]
    fn mark_dirty(self: &Arc<Self>) {
        if !self.is_dirty.swap(true, Ordering::AcqRel) {
            self.counted_at.store(self.hub.clock.now().0, Ordering::Relaxed);
            self.hub.dirty.lock().push(Arc::clone(self));
        }
    }

    /// Since when it has counted what nobody was told, if it has; asked once for each report.
    pub(super) fn counted_at(&self) -> Option<Micros> {
        let since = self.counted_at.swap(0, Ordering::Relaxed);
        (since > 0).then_some(Micros(since))
    }

    /// Whether the fleet is to be told with the next flush. What is known to be well can wait for as long as a window does not
    /// look so closely, unless there is something to be heard in return.
    pub(super) fn is_due(&self, now: Micros, is_listening: bool) -> bool {
        let since = Micros(self.counted_at.load(Ordering::Relaxed));
        self.is_rough.load(Ordering::Relaxed)
            || !is_listening
            || now - since >= self.behaviour.load().calm_for
            || !self.belief.lock().0.is_calm(now)
    }

    /// Comes again with the next flush if the fleet is to vote once more.
    pub(super) fn vote_again(self: &Arc<Self>) {
        if self.belief.lock().0.is_to_vote(self.hub.clock.now()) {
            self.mark_dirty();
        }
    }

    /// Whether it was used since this was last asked, and does not wait to be flushed anyway.
    pub(super) fn take_used(&self) -> bool {
        let is_used = self.is_used.swap(false, Ordering::Relaxed);
        let is_dirty = self.is_dirty.load(Ordering::Relaxed);
        if is_used || is_dirty {
            self.idle.store(0, Ordering::Relaxed);
        }
        is_used && !is_dirty
    }

    pub(super) fn mark_used(&self) {
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }
}

impl<F: Fleet> Handle<F> {
    pub(super) fn new(cell: Arc<Cell<F>>) -> Handle<F> {
        Handle { cell }
    }

    /// Asks for leave to make a call.
    ///
    /// hot path: while Closed or Open, one load; no lock, no allocation, no round trip.
    #[inline]
    pub async fn permit(&self) -> Result<Permit<F>, Refused> {
        match self.at_once() {
            Some(answer) => answer,
            None => self.ask().await,
        }
    }

    /// How it stands, as this instance goes by.
    pub fn stance(&self) -> Stance {
        self.cell.belief.lock().0.stance(self.now())
    }

    /// The same by its outward name.
    pub fn state(&self) -> State {
        self.stance().state()
    }

    /// Whether the fleet's record was in reach when it was last asked for.
    pub fn is_shared(&self) -> bool {
        self.cell.belief.lock().0.is_in_reach()
    }

    pub(super) fn now(&self) -> Micros {
        self.cell.hub.clock.now()
    }

    /// The answer, if it can be given without asking anybody.
    #[inline]
    fn at_once(&self) -> Option<Result<Permit<F>, Refused>> {
        let (way, tag) = self.cell.gate.read();
        match way {
            Way::Pass => Some(Ok(self.flow(tag))),
            Way::Refuse { until } => {
                let now = self.now();
                (now < until).then(|| Err(self.refuse(until - now)))
            }
            Way::Share { since } => Some(self.share(self.now() - since, tag)),
            Way::Ask => None,
        }
    }

    #[inline]
    fn flow(&self, tag: Tag) -> Permit<F> {
        // The clock is read only where somebody wants to know.
        let began = self.cell.is_timed.load(Ordering::Relaxed).then(|| self.now());
        Permit::new(self.clone(), Leave::Flow(tag), began)
    }

    fn refuse(&self, wait: Micros) -> Refused {
        self.cell.mark_used();
        Refused { retry_after: wait.to_duration() }
    }

    fn share(&self, elapsed: Micros, tag: Tag) -> Result<Permit<F>, Refused> {
        let behaviour = self.cell.behaviour.load();
        let Permille(share) = behaviour.breaker.share(elapsed);
        if fastrand::u16(..1000) < share {
            return Ok(self.flow(tag));
        }
        let step = behaviour.breaker.settings().ramp_step.0.max(1);
        Err(self.refuse(Micros(step - elapsed.0 % step)))
    }

    /// Counts an outcome, unless it is of another stretch; whether it was counted.
    ///
    /// hot path: one compare-and-swap and two loads; a failure that may trip is put to the own record at
    /// once, and the fleet is told soon.
    #[inline]
    pub(super) fn count(&self, tag: Tag, outcome: Outcome, hint: Option<Micros>) -> bool {
        let Some(run) = self.cell.tally.add(tag, outcome) else { return false };
        if !self.cell.is_dirty.load(Ordering::Relaxed) {
            self.cell.mark_dirty();
        }
        if outcome != Outcome::Success {
            self.cell.is_rough.store(true, Ordering::Relaxed);
        }
        if outcome == Outcome::Failure {
            self.failed(run, hint);
        }
        true
    }

    fn failed(&self, run: u64, hint: Option<Micros>) {
        let cell = &self.cell;
        let failed = cell.failed.fetch_add(1, Ordering::Relaxed) + 1;
        let behaviour = cell.behaviour.load();
        let is_run = behaviour.is_run(run);
        if !is_run && hint.is_none() && failed != behaviour.early_at {
            return;
        }
        let now = self.now();
        if let Some(hint) = hint {
            cell.believe(now, |belief, _| {
                belief.hint(hint);
                ((), Change::No)
            });
        }
        cell.count(now);
        cell.hub.nudge.notify_one();
    }

    /// How long before its lease ends a probe must say how it went, to be heard in time.
    pub(super) fn room_to_tell(&self) -> Micros {
        Micros::from(PATIENCE).min(Micros(self.cell.behaviour.load().breaker.settings().probe_for.0 / 8))
    }

    /// A probe has ended, or was not made.
    pub(super) fn end_probe(&self, probe: Probe, outcome: Option<(Outcome, Option<Micros>)>) {
        let Probe { token, epoch, whose, .. } = probe;
        match whose {
            Whose::Own => {
                let now = self.now();
                self.cell.believe(now, |belief, _| belief.end_own(token, epoch, outcome, now));
            }
            Whose::Fleet => {
                let event = match outcome {
                    Some((outcome, hint)) => Event::Settle { token, epoch, outcome, hint },
                    None => Event::Return { token, epoch },
                };
                self.cell.hub.run_errand(&self.cell, event);
            }
        }
    }

    /// Asks whoever knows.
    async fn ask(&self) -> Result<Permit<F>, Refused> {
        for _ in 0..4 {
            let now = self.now();
            let asked = self.cell.believe(now, |belief, _| (belief.asked(), belief.look(now)));
            if let Some(answer) = self.at_once() {
                return answer;
            }
            let answer = match asked {
                Asked::Own => self.ask_own(now),
                Asked::Look => {
                    self.look().await;
                    None
                }
                Asked::Fleet => self.ask_fleet().await,
            };
            if let Some(answer) = answer {
                return answer;
            }
        }
        Err(Refused { retry_after: PAUSE })
    }

    fn ask_own(&self, now: Micros) -> Option<Result<Permit<F>, Refused>> {
        let token = fastrand::u64(..);
        let (answer, epoch) = self.cell.believe(now, |belief, _| {
            let (answer, epoch, change) = belief.lease_own(token, now);
            ((answer, epoch), change)
        });
        self.answered(answer, Probe { token, epoch, ends: now, whose: Whose::Own })
    }

    fn answered(&self, answer: Answer, probe: Probe) -> Option<Result<Permit<F>, Refused>> {
        match answer {
            Answer::Granted { left } => {
                let probe = Probe { ends: probe.ends + left, ..probe };
                Some(Ok(Permit::new(self.clone(), Leave::Probe(probe), Some(self.now()))))
            }
            Answer::Full { wait } => Some(Err(self.refuse(wait))),
            Answer::Moot | Answer::Done | Answer::Late => None,
        }
    }

    /// Asks in a task of its own: an answer that nobody waits for any longer is heard all the same.
    pub(super) async fn look(&self) {
        let cell = Arc::clone(&self.cell);
        let looking = tokio::spawn(async move { cell.hub.exchange(&cell, Event::Look).await });
        let _ = timeout(DEADLINE, looking).await;
        // Nobody waits for the answer any longer: from here on this instance decides.
        self.cell.believe(self.now(), |belief, _| {
            belief.stop_waiting();
            ((), Change::No)
        });
    }

    /// Asks in a task of its own: if nobody waits for the answer any longer, the permit it brings is dropped,
    /// and with it the lease is given back.
    async fn ask_fleet(&self) -> Option<Result<Permit<F>, Refused>> {
        let most = self.cell.behaviour.load().breaker.settings().probes;
        if self.cell.asking.fetch_add(1, Ordering::Relaxed) >= most {
            self.cell.asking.fetch_sub(1, Ordering::Relaxed);
            return Some(Err(Refused { retry_after: PAUSE }));
        }
        let (done, answer) = oneshot::channel();
        let handle = self.clone();
        tokio::spawn(async move {
            let (token, sent_at) = (fastrand::u64(..), handle.now());
            let step = handle.cell.hub.exchange(&handle.cell, Event::Lease { token }).await;
            handle.cell.asking.fetch_sub(1, Ordering::Relaxed);
            let answer = step.and_then(|step| {
                let now = handle.now();
                handle.cell.believe(now, |belief, _| (belief.heard_full(step.answer, now), Change::No));
                let epoch = step.view.epoch;
                handle.answered(step.answer, Probe { token, epoch, ends: sent_at, whose: Whose::Fleet })
            });
            let _ = done.send(answer); // Nobody waits: it is dropped.
        });
        match timeout(DEADLINE, answer).await {
            Ok(Ok(answer)) => answer,
            // Not in time. Whether Redis is away is for the exchange to find out.
            _ => Some(Err(Refused { retry_after: PAUSE })),
        }
    }
}
