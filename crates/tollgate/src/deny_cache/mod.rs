//! The deny cache: what a shared store has just refused is refused here, without a trip.
//!
//! A key that is drained is the one that is asked for most, and every such ask would cost a trip to be told what is
//! known already. So a refusal is remembered until the instant from which the same ask could pass, and never longer than
//! [`HOLD_MAX`]. That instant is counted from before the call was sent, which is before the store decided; and
//! short of it by a thousandth, in case the store's clock runs faster than ours. As long as nothing gives a key more than time does, the store
//! would have refused too. What does (a refund, a reset) is pushed to all instances; a limit that was raised is another limit, and
//! what was remembered under the old one does not hold for it. A push that is lost costs the second, no more.
//!
//! What is told is what the store said, with the time that has passed taken off: `retry_after` counts from when the
//! refusal was received, so that whoever waits for it has waited long enough.
//!
//! Only takes are answered from here. A peek asks the store.
//!
//! Proved by: tests/deny_cache.rs

mod eased;
mod queue;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::algorithm::{Algorithm, TokenBucket};
use tollgate_core::check::Check;
use tollgate_core::decision::{Decision, Found, Outcome, Take};
use tollgate_core::few::Few;
use tollgate_core::key::Key;
use tollgate_core::policy::Entry;
use tollgate_core::push::{Heard, Listener, Topic};
use tollgate_core::units::{Cost, Micros};
use tollgate_core::verdict::Judged;

use crate::clock::Clock;
pub(crate) use eased::texts;
use queue::{Gates, Turn, queue_until};
use table::{Name, Note, Table};

/// The longest that a refusal is remembered.
pub const HOLD_MAX: Micros = Micros::SECOND;

/// The most refusals remembered unless set.
pub const MAX_ENTRIES: usize = 65_536;

/// One microsecond in so many is how much faster the store's clock may run than ours: both are set right
/// by up to 500 in a million.
const DRIFT: u64 = 1000;

/// Remembers refusals. Bounded, sharded, and kept by this process alone.
#[derive(Debug)]
pub struct DenyCache {
    clock: Clock,
    table: Table,
    gates: Gates,
    /// When pushes were last begun to be heard: what was remembered before may have been eased unheard.
    gap_at: AtomicU64,
    malformed: AtomicU64,
}

/// Settings of a [`DenyCache`].
#[derive(Debug, Clone)]
pub struct Builder {
    max_entries: usize,
    clock: Clock,
}

/// What is known about an ask before the store is asked.
pub(crate) enum Look<'c> {
    /// It is refused. Of the checks of other rules those are told that are known.
    Refused(Few<Judged>),
    /// The store is to be asked.
    Ask(Asking<'c>),
    /// Somebody is asking the store just now, for a key that was drained a moment ago.
    Queue(&'c tokio::sync::Notify),
}

/// Whether an ask may be told to wait for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queueing {
    May,
    MayNot,
}

/// An ask that is under way.
pub(crate) struct Asking<'c> {
    /// From before it was sent.
    sent: Micros,
    /// Held while others wait for what comes of it. Boxed, because it is rare.
    _turn: Option<Box<Turn<'c>>>,
}

/// What is known about one check.
enum Known {
    Refused(Decision),
    /// It passed when it was last seen beside one that refused.
    Seen(Decision),
    /// It was refused, and likely is still: who comes first finds out for all.
    Lately(Name),
    Nothing,
}

impl DenyCache {
    /// A cache with bounds of your own.
    pub fn builder() -> Builder {
        Builder { max_entries: MAX_ENTRIES, clock: Clock::system() }
    }

    /// Refusals remembered now. Looks at all of them: for a scrape, not for a check.
    pub fn entries(&self) -> usize {
        let (now, gap_at) = (self.clock.now(), self.gap_at());
        self.table.count(|note| note.holds(now, gap_at))
    }

    /// The most it remembers.
    pub fn max_entries(&self) -> usize {
        self.table.capacity()
    }

    /// Pushes that were meant for it and not understood.
    pub fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    /// Looks before the store is asked.
    ///
    /// hot path: for one check one lock, one reading of the clock, and no allocation.
    #[inline]
    pub(crate) fn look(&self, entries: &Few<Entry<'_>>, queueing: Queueing) -> Look<'_> {
        let now = self.clock.now();
        if let Few::One(entry) = entries {
            return match self.known(&entry.check(), now) {
                Known::Refused(decision) => Look::Refused(Few::One(Judged::new(entry, decision))),
                Known::Lately(name) => self.in_turn(name, now, queueing),
                Known::Seen(_) | Known::Nothing => Look::Ask(Asking { sent: now, _turn: None }),
            };
        }
        self.look_at_several(entries, now, queueing)
    }

    /// One check that is known to refuse is enough, if its rule's other limits are known as well: answers name
    /// a rule's limits by their order.
    fn look_at_several(&self, entries: &[Entry<'_>], now: Micros, queueing: Queueing) -> Look<'_> {
        let known: Vec<Known> = entries.iter().map(|entry| self.known(&entry.check(), now)).collect();
        let is_whole = |of: &Entry<'_>| {
            let mut kin =
                entries.iter().zip(&known).filter(|(one, _)| (one.origin, one.want) == (of.origin, of.want));
            kin.all(|(_, known)| matches!(known, Known::Refused(_) | Known::Seen(_)))
        };
        let mut all = entries.iter().zip(&known);
        if all.any(|(entry, known)| matches!(known, Known::Refused(_)) && is_whole(entry)) {
            let told = entries.iter().zip(&known).filter(|(entry, _)| is_whole(entry));
            let judged = told.filter_map(|(entry, known)| match known {
                Known::Refused(decision) | Known::Seen(decision) => Some(Judged::new(entry, *decision)),
                Known::Lately(_) | Known::Nothing => None,
            });
            return Look::Refused(judged.collect());
        }
        let lately = known.iter().find_map(|known| match known {
            Known::Lately(name) => Some(*name),
            _ => None,
        });
        match lately {
            Some(name) => self.in_turn(name, now, queueing),
            None => Look::Ask(Asking { sent: now, _turn: None }),
        }
    }

    /// Remembers what the store said to an ask that it refused: of each check, of those that would have passed too.
    pub(crate) fn remember(&self, asking: &Asking<'_>, entries: &[Entry<'_>], decisions: &[Decision]) {
        let (sent, received) = (asking.sent, self.clock.now());
        if self.gap_at() >= sent {
            return;
        }
        for (entry, decision) in entries.iter().zip(decisions) {
            let check = entry.check();
            let until = match decision.outcome {
                Outcome::Denied { retry_after } => sent + HOLD_MAX.min(held_for(&check, retry_after)),
                Outcome::Never | Outcome::Allowed => sent + HOLD_MAX,
            };
            let name = self.name(&check);
            self.table.write(name, sent, Note::new(name, &check, decision, received, until));
        }
    }

    /// Forgets what it knows of a key: it has more left than was last said.
    pub(crate) fn ease(&self, key: &Key<'_>) {
        self.ease_by(key.scope.digest(), key.subject);
    }

    fn ease_by(&self, digest: [u64; 2], subject: &[u8]) {
        self.table.drop_key(self.table.hash(digest, subject), self.clock.now());
    }

    #[inline]
    fn known(&self, check: &Check<'_>, now: Micros) -> Known {
        let name = self.name(check);
        let Some(note) = self.table.read(name, check.cost) else { return Known::Nothing };
        if !note.holds(now, self.gap_at()) {
            return if now < note.queue_until { Known::Lately(name) } else { Known::Nothing };
        }
        match note.outcome {
            Outcome::Allowed if note.cost == check.cost.get() => Known::Seen(note.decision(check, now)),
            Outcome::Allowed => Known::Nothing,
            Outcome::Denied { .. } | Outcome::Never => Known::Refused(note.decision(check, now)),
        }
    }

    #[inline]
    fn name(&self, check: &Check<'_>) -> Name {
        Name {
            key: self.table.hash(check.key.scope.digest(), check.key.subject),
            limit: limit_of(check.algorithm, check.cost, |text| self.table.hash([0, 0], text)[0]),
        }
    }

    fn gap_at(&self) -> Micros {
        Micros(self.gap_at.load(Ordering::Relaxed))
    }
}

impl Builder {
    /// The most refusals to remember, at least four. Each takes about 100 bytes, laid out at once.
    #[must_use]
    pub fn max_entries(mut self, entries: usize) -> Builder {
        self.max_entries = entries;
        self
    }

    /// Where to read the time; tests bring a clock of their own.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.clock = clock;
        self
    }

    /// Lays out the memory.
    pub(crate) fn build(self) -> Arc<DenyCache> {
        Arc::new(DenyCache {
            clock: self.clock,
            table: Table::new(self.max_entries),
            gates: Gates::default(),
            gap_at: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
        })
    }
}

impl Listener for DenyCache {
    fn heard(&self, heard: Heard<'_>) {
        match heard {
            Heard::Gap => self.gap_at.store(self.clock.now().0, Ordering::Relaxed),
            Heard::Push(push) => match push.topic {
                Topic::Eased => {
                    for key in eased::keys(push.text) {
                        match key {
                            Some((digest, subject)) => self.ease_by(digest, subject),
                            None => {
                                self.malformed.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
                Topic::Breaker => {}
            },
        }
    }
}

/// How long a refusal surely holds. Short of what was said by the drift of clocks; and never longer than it takes to pour what the
/// ask costs, because whatever a bucket says beyond that is a clock that stepped back, and may step on.
fn held_for(check: &Check<'_>, retry_after: Micros) -> Micros {
    let retry_after = match check.algorithm {
        Algorithm::TokenBucket(bucket) => retry_after.min(poured_in(bucket, check.cost.get())),
        Algorithm::SlidingLog(_) | Algorithm::SlidingWindow(_) | Algorithm::FixedWindow(_) => retry_after,
    };
    retry_after - Micros(retry_after.0.div_ceil(DRIFT))
}

/// How long it takes to pour so many tokens.
#[inline]
fn poured_in(bucket: &TokenBucket, tokens: u32) -> Micros {
    Micros(bucket.unit().saturating_mul(u64::from(tokens)).div_ceil(u64::from(bucket.pour())))
}

/// The numbers of a limit, by which two are told apart: what was refused under one says nothing about another. Its kind
/// is in the key already.
///
/// Of the sliding windows a dearer ask waits for longer by what only the store knows, so what they refuse is
/// remembered for asks of the very same cost: the cost is one of the numbers.
#[inline]
fn limit_of(algorithm: &Algorithm, cost: Cost, hash: impl Fn(&[u8]) -> u64) -> [u64; 2] {
    use tollgate_core::algorithm::fixed_window::Windows;
    let both = |limit: u32, other: u32| u64::from(limit) | u64::from(other) << 32;
    match algorithm {
        Algorithm::TokenBucket(bucket) => [both(bucket.capacity(), bucket.pour()), bucket.unit()],
        Algorithm::SlidingLog(log) => [both(log.limit(), cost.get()), log.span().0],
        Algorithm::SlidingWindow(window) => [both(window.limit(), cost.get()), window.span().0],
        Algorithm::FixedWindow(window) => match window.windows() {
            Windows::Every(span) => [both(window.limit(), 0), span.0],
            // Equal names mean equal calendars.
            Windows::Calendar(calendar) => [both(window.limit(), 1), hash(calendar.name().as_bytes())],
        },
    }
}

impl Note {
    fn new(name: Name, check: &Check<'_>, decision: &Decision, received: Micros, until: Micros) -> Note {
        Note {
            name,
            until,
            received,
            at: decision.take.at,
            outcome: decision.outcome,
            reset_after: decision.reset_after,
            cost: check.cost.get(),
            remaining: decision.remaining,
            queue_until: queue_until(check.algorithm, decision.outcome, received),
            is_asked: false,
        }
    }

    /// What the store would say now: what it said, less the time since. What is left is as it was last seen.
    #[inline]
    fn decision(&self, check: &Check<'_>, now: Micros) -> Decision {
        let since = now - self.received;
        let limit = check.algorithm.limit();
        let outcome = match self.outcome {
            Outcome::Denied { .. } if check.cost.get() > limit => Outcome::Never,
            Outcome::Denied { retry_after } => {
                let retry_after = retry_after + self.dearer_by(check);
                Outcome::Denied { retry_after: (retry_after - since).max(Micros(1)) }
            }
            outcome @ (Outcome::Never | Outcome::Allowed) => outcome,
        };
        Decision {
            outcome,
            limit,
            remaining: self.remaining,
            reset_after: self.reset_after - since,
            take: Take { at: self.at + since, entry: 0 },
            found: Found::State,
        }
    }

    /// How much longer an ask must wait that costs more: a bucket pours steadily, a fixed window ends for all alike,
    /// and for the others only asks of one cost come here.
    #[inline]
    fn dearer_by(&self, check: &Check<'_>) -> Micros {
        match (check.algorithm, check.cost.get().saturating_sub(self.cost)) {
            (Algorithm::TokenBucket(bucket), more @ 1..) => poured_in(bucket, more),
            _ => Micros::ZERO,
        }
    }
}
