//! What an engine does beside deciding: it shows itself alive, probes what was set aside and sweeps leases.

use std::sync::Weak;
use std::time::{Duration, Instant};

use tollgate_core::store::{Shard, Store};

use super::{Engine, Inner, WeakEngine, together};
use crate::clock;
use crate::observe::Operation;

/// How often a healthy store hears from this instance.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);

/// How often a store that was set aside is tried again.
const PROBE_EVERY: Duration = Duration::from_millis(100);

impl<S: Store> Engine<S> {
    /// Shows this instance alive to the others, finds the store again when it was set aside, and gives
    /// back leases that nobody needs. Runs until the engine is dropped; [`EngineBuilder::build`](crate::EngineBuilder::build) starts
    /// it where it can.
    pub async fn watch(watched: WeakEngine<S>) {
        let leases = Inner::sweep_leases(WeakEngine { inner: Weak::clone(&watched.inner) });
        tokio::join!(Engine::beat(watched), leases);
    }

    async fn beat(watched: WeakEngine<S>) {
        let mut last = None;
        loop {
            let Some(inner) = watched.inner.upgrade() else { return };
            // While some shards are set aside, they are probed more often than the others are greeted.
            let is_due =
                !inner.guard.is_open() || last.is_none_or(|last: Instant| last.elapsed() >= HEARTBEAT_EVERY);
            inner.beat(is_due).await;
            if is_due {
                last = Some(clock::instant());
            }
            let (mut is_open, opened) = (inner.guard.is_open(), inner.guard.opened());
            drop(inner);
            if !is_open {
                // A guard that opens meanwhile does not wait for the next heartbeat to be due.
                is_open = tokio::time::timeout(jittered(HEARTBEAT_EVERY), opened.notified()).await.is_ok();
            }
            if is_open {
                tokio::time::sleep(jittered(PROBE_EVERY)).await;
            }
        }
    }
}

impl<S: Store> Inner<S> {
    /// Greets every shard, or only those that are set aside; each by itself, all at once.
    async fn beat(&self, is_due: bool) {
        let shards =
            (0..self.store.shards()).map(Shard).filter(|&shard| is_due || self.guard.is_open_for(shard));
        let beats =
            shards.map(|shard| self.guard.probe(shard, Operation::Heartbeat, self.store.heartbeat_of(shard)));
        let beats = together(beats).await;
        // A shard that has just begun to count knows too few.
        if let Some(instances) =
            beats.into_iter().flatten().map(|beat| beat.instances).max().filter(|&n| n > 0)
        {
            self.fallback.saw_instances(instances);
        }
    }
}

/// Keeps a fleet that lost its store together from returning in step.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.75 + fastrand::f64() / 2.0)
}
