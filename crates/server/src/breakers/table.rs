//! What tokens stand for while their calls are under way: permits, and the probes this instance has granted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tollgate::Micros;
use tollgate::breaker::{Lease, Permit};

use super::fleet::Records;

/// The most calls under way that are kept by token. Those beyond it are made all the same, and are counted when they are
/// reported, only twice if they are reported twice.
pub(crate) const PERMITS_MAX: usize = 100_000;

/// Into so many parts it is divided, each with a lock of its own.
const SHARDS: usize = 16;

/// A call under way.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) permit: Permit<Records>,
    pub(super) ends: Micros,
}

/// A probe under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probing {
    pub(super) lease: Lease,
    pub(super) began: Micros,
    pub(super) ends: Micros,
}

/// Calls and probes under way.
#[derive(Debug, Default)]
pub(super) struct Table {
    calls: [Mutex<HashMap<u64, Held>>; SHARDS],
    held: AtomicUsize,
    /// By breaker, the oldest first.
    probes: Mutex<HashMap<Box<str>, Vec<Probing>>>,
}

impl Table {
    fn shard(&self, serial: u64) -> &Mutex<HashMap<u64, Held>> {
        let at = usize::try_from(serial % SHARDS as u64).unwrap_or(0);
        &self.calls[at]
    }

    /// Keeps a call under its number; whether there was room.
    pub(super) fn keep(&self, serial: u64, held: Held) -> bool {
        // Counted first: two at once cannot both have the last place.
        if self.held.fetch_add(1, Ordering::Relaxed) >= PERMITS_MAX {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        if self.shard(serial).lock().insert(serial, held).is_some() {
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
        true
    }

    /// Takes a call out, once.
    pub(super) fn take(&self, serial: u64) -> Option<Held> {
        let held = self.shard(serial).lock().remove(&serial)?;
        self.held.fetch_sub(1, Ordering::Relaxed);
        Some(held)
    }

    /// Remembers a probe.
    pub(super) fn probe(&self, id: &str, probing: Probing) {
        self.probes.lock().entry(id.into()).or_default().push(probing);
    }

    /// The probe with that lease, or, without one, the oldest under way; once.
    pub(super) fn take_probe(&self, id: &str, lease: Option<Lease>, now: Micros) -> Option<Probing> {
        let mut probes = self.probes.lock();
        let of = probes.get_mut(id)?;
        of.retain(|probing| probing.ends > now);
        let at = of.iter().position(|probing| lease.is_none_or(|lease| probing.lease == lease));
        let taken = at.map(|at| of.remove(at));
        if of.is_empty() {
            probes.remove(id);
        }
        taken
    }

    /// Shows how many probes are under way, by breaker; and says how many other calls are.
    pub(super) fn each_probing(&self, now: Micros, mut see: impl FnMut(&str, usize)) -> usize {
        for (id, of) in self.probes.lock().iter() {
            see(id, of.iter().filter(|probing| probing.ends > now).count());
        }
        self.held.load(Ordering::Relaxed)
    }

    /// Lets go of everything that has ended; how many calls were never reported.
    pub(super) fn sweep(&self, now: Micros) -> usize {
        let mut over = Vec::new();
        for shard in &self.calls {
            over.extend(shard.lock().extract_if(|_, held| held.ends <= now));
        }
        self.held.fetch_sub(over.len(), Ordering::Relaxed);
        let mut probes = self.probes.lock();
        probes.retain(|_, of| {
            of.retain(|probing| probing.ends > now);
            !of.is_empty()
        });
        over.len()
    }
}
