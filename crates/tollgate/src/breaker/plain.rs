//! The decision record's four calls, by name: allow, record success, record failure, state.
//!
//! For those who cannot carry a permit from the question to the outcome. A permit knows the stretch of time it was
//! given in, how long its call took and when it was dropped; here an outcome counts where the breaker stands when
//! it is told, nothing is slow, and a probe that is never told of keeps its lease to the end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tollgate_core::breaker::{Fleet, Outcome, State};
use tollgate_core::units::Micros;

use super::permit::{Leave, Probe};
use super::{Breakers, Handle, NoBreaker, NoPermit, Permit, Refused};

/// The probes that were let through without a permit: as many as have leases, at most.
#[derive(Debug, Default)]
pub(super) struct Held {
    probes: Mutex<VecDeque<Probe>>,
    /// Looked at first, for nearly always there is none.
    is_some: AtomicBool,
}

impl Held {
    fn put(&self, probe: Probe, now: Micros) {
        let mut probes = self.probes.lock();
        probes.retain(|held| held.ends > now);
        probes.push_back(probe);
        self.is_some.store(true, Ordering::Release);
    }

    /// The one that has waited longest.
    fn take(&self, now: Micros) -> Option<Probe> {
        if !self.is_some.load(Ordering::Acquire) {
            return None;
        }
        let mut probes = self.probes.lock();
        probes.retain(|held| held.ends > now);
        let probe = probes.pop_front();
        self.is_some.store(!probes.is_empty(), Ordering::Release);
        probe
    }
}

impl<F: Fleet> Handle<F> {
    /// Asks whether a call may be made, for those who say later by name how it ended.
    pub async fn allow(&self) -> Result<(), Refused> {
        let mut permit = self.permit().await?;
        if let Leave::Probe(probe) = permit.leave {
            permit.leave = Leave::Over;
            self.cell.held.put(probe, self.now());
        }
        Ok(())
    }

    /// A call that was allowed went well.
    pub fn record_success(&self) {
        self.record_plain(Outcome::Success);
    }

    /// A call that was allowed failed.
    pub fn record_failure(&self) {
        self.record_plain(Outcome::Failure);
    }

    fn record_plain(&self, outcome: Outcome) {
        match self.cell.held.take(self.now()) {
            Some(probe) => self.end_probe(probe, Some((outcome, None))),
            None => {
                self.record(outcome, None);
            }
        }
    }
}

impl<F: Fleet> Breakers<F> {
    /// Asks the breaker of that name for leave to make a call.
    pub async fn permit(&self, id: &[u8]) -> Result<Permit<F>, NoPermit> {
        Ok(self.handle(id)?.permit().await?)
    }

    /// Whether a call may be made; [`record_success`](Breakers::record_success) or
    /// [`record_failure`](Breakers::record_failure) says how it ended.
    pub async fn allow(&self, id: &[u8]) -> Result<(), NoPermit> {
        Ok(self.handle(id)?.allow().await?)
    }

    /// A call that was allowed went well.
    pub fn record_success(&self, id: &[u8]) -> Result<(), NoBreaker> {
        self.handle(id)?.record_success();
        Ok(())
    }

    /// A call that was allowed failed.
    pub fn record_failure(&self, id: &[u8]) -> Result<(), NoBreaker> {
        self.handle(id)?.record_failure();
        Ok(())
    }

    /// How the breaker of that name stands. Its first use asks the fleet, for a few milliseconds at most.
    pub async fn state(&self, id: &[u8]) -> Result<State, NoBreaker> {
        let handle = self.handle(id)?;
        handle.learn().await;
        Ok(handle.state())
    }
}
