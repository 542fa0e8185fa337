//! One at a time, where a key was drained until a moment ago.
//!
//! When a refusal is remembered no longer, everybody who floods the key finds that out at once, and all would go and ask. One
//! goes; the others wait for what it is told, which is most likely a refusal that answers them all. Nobody waits where there is
//! plenty, nor for longer than half the deadline.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tollgate_core::algorithm::Algorithm;
use tollgate_core::decision::Outcome;
use tollgate_core::few::Few;
use tollgate_core::policy::Entry;
use tollgate_core::units::Micros;

use super::table::{Name, portion};
use super::{Asking, DenyCache, HOLD_MAX, Look, Queueing};

/// A key that lets somebody pass more often than this is not worth waiting for.
const SCARCE: Micros = Micros::from_millis(5);

/// How long after the instant at which an ask may pass the others wait for it, at most: it is long enough for whoever floods the
/// key to come by, and a bucket has poured at most once more in it.
const GRACE_MAX: Micros = Micros::from_millis(100);

/// Until when whoever comes after the end of a refusal waits for another one: as long as the store would refuse,
/// by all that is known; and a moment longer where what then comes back is little.
pub(super) fn queue_until(algorithm: &Algorithm, outcome: Outcome, received: Micros) -> Micros {
    let retry_after = match outcome {
        Outcome::Denied { retry_after } if retry_after >= SCARCE => retry_after,
        Outcome::Never => HOLD_MAX + HOLD_MAX,
        Outcome::Denied { .. } | Outcome::Allowed => return Micros::ZERO,
    };
    let grace = match algorithm {
        Algorithm::TokenBucket(_) => retry_after.min(GRACE_MAX),
        Algorithm::SlidingLog(_) | Algorithm::SlidingWindow(_) => SCARCE,
        // All of it comes back at once.
        Algorithm::FixedWindow(_) => Micros::ZERO,
    };
    received + retry_after + grace
}

/// Where asks wait. Keys share gates: who is woken for another looks again, and waits on.
const GATES: usize = 64;

#[derive(Debug)]
pub(super) struct Gates([Notify; GATES]);

impl Default for Gates {
    fn default() -> Gates {
        Gates(std::array::from_fn(|_| Notify::new()))
    }
}

impl Gates {
    fn of(&self, name: Name) -> &Notify {
        &self.0[portion(name.key[0], GATES)]
    }
}

/// Held by the one who asks; letting go of it, also by being cancelled, wakes those who wait.
pub(super) struct Turn<'c> {
    cache: &'c DenyCache,
    name: Name,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.cache.table.disclaim(self.name, self.cache.clock.now());
        self.cache.gates.of(self.name).notify_waiters();
    }
}

impl DenyCache {
    /// The first goes and asks, the others are told to wait.
    pub(super) fn in_turn(&self, name: Name, sent: Micros, queueing: Queueing) -> Look<'_> {
        if self.table.claim(name) {
            return Look::Ask(Asking { sent, _turn: Some(Box::new(Turn { cache: self, name })) });
        }
        match queueing {
            Queueing::May => Look::Queue(self.gates.of(name)),
            Queueing::MayNot => Look::Ask(Asking { sent, _turn: None }),
        }
    }

    /// Waits at a gate for those who ask already, and looks again.
    pub(crate) async fn queue(
        &self,
        mut gate: &Notify,
        entries: &Few<Entry<'_>>,
        at_most: Duration,
    ) -> Look<'_> {
        let until = Instant::now() + at_most;
        loop {
            let mut opened = pin!(gate.notified());
            // Order: first listen, then look, or the gate could open in between and never again.
            opened.as_mut().enable();
            match self.look(entries, Queueing::May) {
                Look::Queue(same) if std::ptr::eq(same, gate) => {
                    if timeout_at(until, opened).await.is_err() {
                        return self.look(entries, Queueing::MayNot);
                    }
                }
                Look::Queue(_) if Instant::now() >= until => return self.look(entries, Queueing::MayNot),
                Look::Queue(other) => gate = other,
                known => return known,
            }
        }
    }
}
