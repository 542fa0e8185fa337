//! What goes on in the background: telling the fleet, hearing of it, and running errands.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tollgate_core::breaker::{Event, Fleet, Permille, Pushed, Step, Transition, View};
use tollgate_core::push::{Heard, Listener, Topic};
use tollgate_core::store::StoreError;
use tollgate_core::units::Micros;

use super::belief::Came;
use super::cell::{Cell, Handle};
use super::{BREAKERS_MAX, Behaviour};
use crate::clock::Clock;
use crate::observe::{BreakerChange, BreakerTold, Observer, RecordOf};

/// How often what was counted is told.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// How many flushes make a look at those that were only asked.
const LOOK_EVERY: u32 = 10;

/// How long one exchange may take that nobody waits for.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// Exchanges under way at a time.
const EXCHANGES_MAX: usize = 64;

/// Looks after which an unused breaker is forgotten: ten minutes.
const IDLE_MAX: u32 = 600;

/// By their names.
type Cells<F> = HashMap<Box<[u8]>, Arc<Cell<F>>>;

pub(super) struct Hub<F: Fleet> {
    fleet: Arc<F>,
    /// Of breakers that are given no other.
    pub(super) behaviour: Arc<Behaviour>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) clock: Clock,
    pub(super) made: Micros,
    /// This instance, as the fleet knows it.
    pub(super) reporter: u64,
    pub(super) dirty: Mutex<Vec<Arc<Cell<F>>>>,
    /// Something cannot wait for the next flush.
    pub(super) nudge: Notify,
    cells: RwLock<Cells<F>>,
    /// By what each is called in pushes.
    names: RwLock<HashMap<String, Weak<Cell<F>>>>,
    exchanges: Arc<Semaphore>,
    /// One telling at a time: whoever has flushed knows that nothing is under way any more.
    telling: tokio::sync::Mutex<()>,
}

impl<F: Fleet> std::fmt::Debug for Hub<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("behaviour", &self.behaviour).finish_non_exhaustive()
    }
}

struct Ear<F: Fleet>(Weak<Hub<F>>);

impl<F: Fleet> Listener for Ear<F> {
    fn heard(&self, heard: Heard<'_>) {
        let Some(hub) = self.0.upgrade() else { return };
        match heard {
            Heard::Push(push) if push.topic == Topic::Breaker => {
                let Some(Pushed { name, view }) = Pushed::read(push.text) else { return };
                let cell = hub.names.read().get(name).and_then(Weak::upgrade);
                if let Some(cell) = cell {
                    cell.adopt(view, Came::Push);
                }
            }
            Heard::Push(_) => {}
            // Some may have been missed: the next look asks for all.
            Heard::Gap => hub.cells.read().values().for_each(|cell| cell.mark_used()),
        }
    }
}

impl<F: Fleet> Hub<F> {
    pub(super) fn start(
        fleet: Arc<F>,
        behaviour: Behaviour,
        clock: Clock,
        observer: Arc<dyn Observer>,
    ) -> (Arc<Hub<F>>, AbortHandle) {
        let hub = Arc::new(Hub {
            fleet,
            behaviour: Arc::new(behaviour),
            observer,
            made: clock.now(),
            clock,
            reporter: fastrand::u64(..),
            dirty: Mutex::default(),
            nudge: Notify::new(),
            cells: RwLock::default(),
            names: RwLock::default(),
            exchanges: Arc::new(Semaphore::new(EXCHANGES_MAX)),
            telling: tokio::sync::Mutex::default(),
        });
        hub.fleet.hear(Arc::new(Ear(Arc::downgrade(&hub))));
        let background = tokio::spawn(keep_telling(Arc::clone(&hub))).abort_handle();
        (hub, background)
    }

    pub(super) fn handle(self: &Arc<Self>, id: &[u8], behaviour: &Arc<Behaviour>) -> Option<Handle<F>> {
        if let Some(cell) = self.cells.read().get(id) {
            cell.behave(behaviour);
            return Some(Handle::new(Arc::clone(cell)));
        }
        let mut cells = self.cells.write();
        if !cells.contains_key(id) && cells.len() >= BREAKERS_MAX {
            return None;
        }
        let cell = cells.entry(id.into()).or_insert_with(|| {
            let cell = Arc::new(Cell::new(Arc::clone(self), id, behaviour));
            self.names.write().insert(self.fleet.name(id), Arc::downgrade(&cell));
            cell
        });
        Some(Handle::new(Arc::clone(cell)))
    }

    /// Every breaker there is, in no order.
    pub(super) fn each(&self, mut see: impl FnMut(&Arc<Cell<F>>)) {
        self.cells.read().values().for_each(&mut see);
    }

    /// Gives every breaker the behaviour it is to have, and forgets those that are to have none.
    pub(super) fn behave(&self, of: impl Fn(&[u8]) -> Option<Arc<Behaviour>>) {
        self.cells.write().retain(|id, cell| {
            let behaviour = of(id);
            if let Some(behaviour) = &behaviour {
                cell.behave(behaviour);
            } else {
                self.names.write().remove(&self.fleet.name(id));
            }
            behaviour.is_some()
        });
    }

    /// Tells of what has changed.
    pub(super) fn tell_of(&self, cell: &Cell<F>, record: RecordOf, changes: &[Transition]) {
        for transition in changes {
            let behaviour = cell.behaviour();
            self.observer.breaker_changed(&BreakerChange { behaviour: &behaviour.name, record, transition });
        }
    }

    pub(super) fn forget_all(&self) {
        self.dirty.lock().clear();
        self.names.write().clear();
        self.cells.write().clear();
    }

    /// One event of one breaker's, and what its answer says of the fleet. `None` if there was no answer.
    pub(super) async fn exchange(&self, cell: &Cell<F>, event: Event) -> Option<Step> {
        let sent_at = self.clock.now();
        let dice = Permille(fastrand::u16(..=1000));
        let behaviour = cell.behaviour();
        let step = timeout(PATIENCE, self.fleet.step(&cell.id, &behaviour.breaker, &event, dice));
        let Ok(Ok(step)) = step.await else {
            cell.lose_touch();
            return None;
        };
        self.tell_of(cell, RecordOf::Fleet, &step.transitions);
        cell.adopt(step.view, Came::Answer { sent_at });
        Some(step)
    }

    /// One event on behalf of a person, who is told what came of it.
    pub(super) async fn tell(&self, cell: &Cell<F>, event: Event) -> Result<View, StoreError> {
        let sent_at = self.clock.now();
        let behaviour = cell.behaviour();
        let step = self.fleet.step(&cell.id, &behaviour.breaker, &event, Permille(0)).await?;
        self.tell_of(cell, RecordOf::Fleet, &step.transitions);
        cell.adopt(step.view, Came::Answer { sent_at });
        Ok(step.view)
    }

    /// Sends an event on its way. If there are too many it is left: a lease ends by itself.
    pub(super) fn run_errand(self: &Arc<Self>, cell: &Arc<Cell<F>>, event: Event) {
        let Ok(turn) = Arc::clone(&self.exchanges).try_acquire_owned() else { return };
        let (hub, cell) = (Arc::clone(self), Arc::clone(cell));
        // A permit may be dropped where no runtime is, as at the end of a process.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _turn = turn;
                hub.exchange(&cell, event).await;
            });
        }
    }

    /// Tells the fleet what was counted.
    pub(super) async fn flush(self: &Arc<Self>) {
        let _telling = self.telling.lock().await;
        let dirty = std::mem::take(&mut *self.dirty.lock());
        self.report(dirty).await;
    }

    /// The same for those it cannot wait with.
    async fn flush_due(self: &Arc<Self>) {
        let _telling = self.telling.lock().await;
        let dirty = std::mem::take(&mut *self.dirty.lock());
        let (now, is_listening) = (self.clock.now(), self.fleet.is_listening());
        let (due, calm): (Vec<_>, Vec<_>) =
            dirty.into_iter().partition(|cell| cell.is_due(now, is_listening));
        self.dirty.lock().extend(calm);
        self.report(due).await;
    }

    async fn report(self: &Arc<Self>, cells: Vec<Arc<Cell<F>>>) {
        let mut reports = JoinSet::new();
        for cell in cells {
            let Ok(turn) = Arc::clone(&self.exchanges).acquire_owned().await else { return };
            let hub = Arc::clone(self);
            reports.spawn(async move {
                let _turn = turn;
                let counted_at = cell.counted_at();
                let event = cell.next_report();
                let is_told = hub.exchange(&cell, event).await.is_some();
                if let Some(since) = counted_at {
                    let lag = is_told.then(|| (hub.clock.now() - since).to_duration());
                    let behaviour = cell.behaviour();
                    hub.observer.breaker_told(&BreakerTold { behaviour: &behaviour.name, lag });
                }
                cell.vote_again();
            });
        }
        while reports.join_next().await.is_some() {}
    }

    /// Asks for those that were used and have counted nothing, and forgets those that were not used for long.
    async fn look(self: &Arc<Self>) {
        let mut used = Vec::new();
        let mut forgotten = Vec::new();
        for (id, cell) in self.cells.read().iter() {
            if cell.take_used() {
                used.push(Arc::clone(cell));
            } else if cell.idle.fetch_add(1, Ordering::Relaxed) >= IDLE_MAX && Arc::strong_count(cell) == 1 {
                forgotten.push(id.clone());
            }
        }
        for id in forgotten {
            // Nobody else has it now, and nobody gets it while this is held.
            let mut cells = self.cells.write();
            if cells.get(&id).is_some_and(|cell| Arc::strong_count(cell) == 1) {
                cells.remove(&id);
                self.names.write().remove(&self.fleet.name(&id));
            }
        }
        let _telling = self.telling.lock().await;
        self.report(used).await;
    }
}

async fn keep_telling<F: Fleet>(hub: Arc<Hub<F>>) {
    let mut ticks = interval(FLUSH_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut count = 0_u32;
    loop {
        tokio::select! {
            _ = ticks.tick() => count = count.wrapping_add(1),
            () = hub.nudge.notified() => {}
        }
        hub.flush_due().await;
        if count >= LOOK_EVERY {
            count = 0;
            hub.look().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::breaker::{Breaker, Settings};

    use super::super::{Breakers, LocalFleet};
    use super::*;

    #[tokio::test]
    async fn what_went_well_waits_for_a_tenth_of_the_window_and_nothing_else_does() {
        let (clock, hand) = Clock::manual(Micros(1_800_000_000_000_000));
        let breaker = Breaker::try_new(Settings::default()).expect("the defaults are fine");
        let fleet = Arc::new(LocalFleet::new(clock.clone()));
        let breakers = Breakers::start_with(fleet, breaker, clock);
        let payments = breakers.handle(b"payments").expect("there is room");
        let (cell, now) = (&payments.cell, || Micros(hand.load(Ordering::SeqCst)));
        let (second, almost) = (Micros::SECOND, Micros::SECOND - Micros(1));
        payments.permit().await.expect("it is closed").success();
        assert!(cell.is_due(now(), true), "the epoch is new");
        breakers.flush().await;
        hand.fetch_add(2_000_000, Ordering::SeqCst);

        payments.permit().await.expect("it is closed").success();
        assert!(!cell.is_due(now() + almost, true));
        assert!(cell.is_due(now() + second, true), "a tenth of the window");
        assert!(cell.is_due(now(), false), "no push is heard");
        payments.permit().await.expect("it is closed").slow();
        assert!(cell.is_due(now(), true), "one was slow");
        breakers.flush().await;
        payments.permit().await.expect("it is closed").success();
        assert!(!cell.is_due(now(), true));
        payments.permit().await.expect("it is closed").failure();
        assert!(cell.is_due(now(), true), "one has failed");
    }
}
