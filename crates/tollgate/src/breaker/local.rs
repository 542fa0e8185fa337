//! A fleet of one: the records that Redis would keep, in this process.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_core::breaker::{Breaker, Event, Fleet, Permille, Record, Step};
use tollgate_core::push::Listener;
use tollgate_core::store::StoreError;
use tollgate_core::units::Micros;

use super::BREAKERS_MAX;
use crate::clock::Clock;

/// How often at most it is looked for records that nobody needs any more.
const SWEEP_EVERY: Micros = Micros::SECOND;

/// The records of breakers of a process that shares them with nobody.
#[derive(Debug)]
pub struct LocalFleet {
    clock: Clock,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    records: HashMap<Box<[u8]>, (Record, Micros)>,
    swept: Micros,
}

impl LocalFleet {
    /// No records yet, by that clock.
    pub fn new(clock: Clock) -> LocalFleet {
        LocalFleet { clock, kept: Mutex::default() }
    }
}

impl Kept {
    /// Makes room for a record that is not there, if there is any to make.
    fn has_room(&mut self, now: Micros) -> bool {
        if self.records.len() >= BREAKERS_MAX && now - self.swept >= SWEEP_EVERY {
            self.swept = now;
            self.records.retain(|_, (_, ends)| *ends > now);
        }
        self.records.len() < BREAKERS_MAX
    }
}

impl Fleet for LocalFleet {
    async fn step(
        &self,
        id: &[u8],
        breaker: &Breaker,
        event: &Event,
        dice: Permille,
    ) -> Result<Step, StoreError> {
        let now = self.clock.now();
        let mut kept = self.kept.lock();
        if !kept.records.contains_key(id) && !kept.has_room(now) {
            return Err(StoreError::Unreachable { why: "as many records as may be are kept".into() });
        }
        let (record, ends) = kept.records.entry(id.into()).or_default();
        if *ends <= now {
            *record = Record::default();
        }
        let step = breaker.step(record, event, now, dice);
        let standing = record.overridden.as_ref().map_or(Micros::ZERO, |standing| standing.until - now);
        *ends = now + breaker.keep_for() + standing;
        Ok(step)
    }

    fn name(&self, id: &[u8]) -> String {
        String::from_utf8_lossy(id).into_owned()
    }

    /// Whoever makes a step is told of it in the answer; there is nobody else.
    fn hear(&self, _: Arc<dyn Listener>) {}

    fn is_listening(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use tollgate_core::breaker::{Mode, Settings, Stance};

    use super::*;

    #[tokio::test]
    async fn a_record_is_kept_as_long_as_anything_in_it_could_be_missed_and_no_longer() {
        let (clock, hand) = Clock::manual(Micros(1_800_000_000_000_000));
        let fleet = LocalFleet::new(clock);
        let breaker = Breaker::try_new(Settings::default()).expect("the defaults are fine");
        let look = async || fleet.step(b"a", &breaker, &Event::Look, Permille(0)).await.expect("room").view;
        let first = look().await;
        assert_eq!(first.stance, Stance::Closed);
        let keep_for = Micros::from_secs(86_400);
        let (reason, who) = (String::new(), String::new());
        let event = Event::Override { mode: Mode::ForcedOpen, keep_for, reason, who };
        fleet.step(b"a", &breaker, &event, Permille(0)).await.expect("room");
        hand.fetch_add(keep_for.0 - 1, Ordering::SeqCst);
        let standing = look().await;
        assert_eq!(standing.overridden, Some((Mode::ForcedOpen, Micros(1))));
        hand.fetch_add(breaker.keep_for().0 + 1, Ordering::SeqCst);
        let anew = look().await;
        assert_eq!((anew.stance, anew.overridden), (Stance::Closed, None));
        assert!(anew.epoch > standing.epoch, "what was told of the old one is late");
    }
}
