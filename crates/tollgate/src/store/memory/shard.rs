//! One shard: what its lock protects, and one visit to it.
//!
//! A key whose limit is whole again counts as absent, whether its slot has been swept or not, so
//! when a slot is swept can be seen in no answer. A take is written at once; where a later check
//! of the same ask refuses, the caller undoes it before it lets go of the lock.

use tollgate_core::algorithm::Algorithm;
use tollgate_core::algorithm::token_bucket::{self, Plain, TokenBucket};
use tollgate_core::check::Check;
use tollgate_core::decision::{Decision, Found, Outcome, Refunded, Step, Take, Verb};
use tollgate_core::units::{Cost, Micros};

use super::MutexGuard;
use super::hash::KeyHash;
use super::logs::Logs;
use super::room::Room;
use super::shape::{self, Held, Shape, Shapes};
use super::table::{GROUP, Slot, Table};
use crate::clock::Clock;

/// Groups looked at for every newcomer once room is tight: up to seven go for one that comes.
/// Before that a whole limit may as well stay where its next visitor finds it.
const SWEEP_PER_NEWCOMER: usize = 1;
/// Groups looked at for a newcomer who finds no room.
const SWEEP_AT_BOUND: usize = 4;

/// What one lock protects beside the table.
#[derive(Debug, Default)]
pub(super) struct Rest {
    shapes: Shapes,
    cursor: usize,
    logs: Logs,
}

/// A shard, by whoever holds its lock: only they may change the table.
#[derive(Debug)]
pub(super) struct Shard<'a> {
    pub(super) table: &'a Table,
    pub(super) rest: MutexGuard<'a, Rest>,
}

/// One check on its way through a shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visitor<'a> {
    /// Under which key; not always the check's own.
    pub(super) hash: KeyHash,
    /// What is asked.
    pub(super) check: &'a Check<'a>,
    /// The time, read before the lock was taken.
    pub(super) now: Micros,
    /// Where to read it again.
    pub(super) clock: &'a Clock,
}

/// How to take a take back, while the lock is still held.
#[derive(Debug, Clone, Copy)]
pub(super) enum Undo {
    /// Nothing was spent.
    Nothing,
    /// Put this back.
    Restore { slot: usize, held: Held },
    /// The key was not there.
    Remove { slot: usize },
    /// Take the entries out of the log.
    Log { take: Take, cost: Cost },
}

impl Visitor<'_> {
    /// The time, not before the `anchor` of the state found: another thread may have read the
    /// clock later and taken the lock earlier. Left as it is, a thread that was stopped in
    /// between for more than a second would look like a clock that stepped back.
    #[inline]
    pub(super) fn now_since(&self, anchor: Micros) -> Micros {
        if anchor > self.now { self.clock.now() } else { self.now }
    }
}

impl Shard<'_> {
    /// [`Shard::take`] for the most frequent case, with nothing to undo: a bucket that is there, and
    /// was written under the limit it is asked for. `None`, and nothing done, if it is not.
    ///
    /// hot path: no allocation, no division; the caller holds one lock.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see Taking")]
    pub(super) fn take_plain(&mut self, visitor: &Visitor<'_>, bucket: &TokenBucket) -> Option<Plain> {
        let place = self.table.place(visitor.hash)?;
        let Slot { shape, anchor, word: units } = place.read();
        let Shape::TokenBucket(under) = *self.rest.shapes.shape(shape) else { return None };
        let last_refill = Micros(anchor);
        let now = visitor.now_since(last_refill);
        let state = token_bucket::State { units, last_refill, under };
        let plain = token_bucket::plain_take(bucket, &state, now, visitor.check.cost)?;
        if plain.is_spent {
            place.write_state(now.0, plain.left.units);
        }
        Some(plain)
    }

    /// Spends if it fits; `None` if a newcomer finds no room.
    pub(super) fn take(&mut self, visitor: &Visitor<'_>, room: &Room) -> Option<(Decision, Undo)> {
        let Check { algorithm, cost, .. } = visitor.check;
        if let Algorithm::SlidingLog(sliding) = algorithm {
            return self.rest.logs.take(visitor, sliding, room).or_else(|| {
                self.sweep(SWEEP_AT_BOUND, visitor.now, room);
                self.rest.logs.take(visitor, sliding, room)
            });
        }
        let Some(slot) = self.table.find(visitor.hash) else {
            return self.take_new(visitor, room);
        };
        let (id, held) = self.held(slot);
        let now = visitor.now_since(held.anchor);
        let live = (!held.is_whole(now)).then_some(&held);
        let Step { decision, spend, mend } = shape::visit(algorithm, live, now, *cost, Verb::Take)?;
        let Some(spend) = spend else {
            if let Some(mend) = mend {
                self.write(slot, id, &held, &mend);
            }
            return Some((decision, Undo::Nothing));
        };
        self.write(slot, id, &held, &spend);
        Some((decision, Undo::Restore { slot, held: mend.unwrap_or(held) }))
    }

    #[cold]
    #[inline(never)]
    fn take_new(&mut self, visitor: &Visitor<'_>, room: &Room) -> Option<(Decision, Undo)> {
        let Visitor { hash, check, now, .. } = *visitor;
        let Step { decision, spend, .. } = shape::visit(check.algorithm, None, now, check.cost, Verb::Take)?;
        let Some(spend) = spend else { return Some((decision, Undo::Nothing)) };
        if room.is_tight() {
            self.sweep(SWEEP_PER_NEWCOMER, now, room);
        }
        if !self.has_room(room) {
            self.sweep(SWEEP_AT_BOUND, now, room);
        }
        if self.table.is_full() || !room.take_key() {
            return None;
        }
        let Held { shape, anchor, word } = spend;
        let shape = self.rest.shapes.acquire(shape);
        let slot = self
            .table
            .insert(hash, Slot { shape, anchor: anchor.0, word })
            .expect("a table that is not full has a place");
        Some((decision, Undo::Remove { slot }))
    }

    /// Only looks; `None` if a newcomer would find no room.
    pub(super) fn peek(&mut self, visitor: &Visitor<'_>, room: &Room) -> Option<Decision> {
        let Check { algorithm, cost, .. } = visitor.check;
        if let Algorithm::SlidingLog(sliding) = algorithm {
            return self.rest.logs.peek(visitor, sliding, room).or_else(|| {
                self.sweep(SWEEP_AT_BOUND, visitor.now, room);
                self.rest.logs.peek(visitor, sliding, room)
            });
        }
        let Some(slot) = self.table.find(visitor.hash) else {
            let decision = shape::visit(algorithm, None, visitor.now, *cost, Verb::Peek)?.decision;
            if decision.outcome == Outcome::Allowed && !self.has_room(room) {
                self.sweep(SWEEP_AT_BOUND, visitor.now, room);
                return self.has_room(room).then_some(decision);
            }
            return Some(decision);
        };
        let (id, held) = self.held(slot);
        let now = visitor.now_since(held.anchor);
        let live = (!held.is_whole(now)).then_some(&held);
        let step = shape::visit(algorithm, live, now, *cost, Verb::Peek)?;
        if let Some(mend) = step.mend {
            self.write(slot, id, &held, &mend);
        }
        Some(step.decision)
    }

    /// Takes a take back. The lock has been held since.
    pub(super) fn undo(&mut self, visitor: &Visitor<'_>, undo: Undo, room: &Room) {
        match undo {
            Undo::Nothing => {}
            Undo::Restore { slot, held: before } => {
                let (id, held) = self.held(slot);
                self.write(slot, id, &held, &before);
            }
            Undo::Remove { slot } => self.remove(slot, room),
            Undo::Log { take, cost } => {
                if let Algorithm::SlidingLog(sliding) = visitor.check.algorithm {
                    self.rest.logs.refund(visitor, sliding, cost, take, room);
                }
            }
        }
    }

    /// Undoes an earlier take, as far as it still counts.
    pub(super) fn refund(&mut self, visitor: &Visitor<'_>, take: Take, room: &Room) -> Refunded {
        let Check { algorithm, cost, .. } = visitor.check;
        if let Algorithm::SlidingLog(sliding) = algorithm {
            return self.rest.logs.refund(visitor, sliding, *cost, take, room);
        }
        let found = self.table.find(visitor.hash).map(|slot| (slot, self.held(slot)));
        let now = found.map_or(visitor.now, |(_, (_, held))| visitor.now_since(held.anchor));
        let found = found.filter(|(_, (_, held))| !held.is_whole(now));
        let (refunded, write) =
            shape::refund(algorithm, found.as_ref().map(|(_, (_, held))| held), now, *cost, take)
                .expect("sliding logs were answered above");
        if let (Some((slot, (id, held))), Some(write)) = (found, write) {
            self.write(slot, id, &held, &write);
        }
        refunded
    }

    /// Forgets one key.
    pub(super) fn forget(&mut self, hash: KeyHash, room: &Room) {
        if let Some(slot) = self.table.find(hash) {
            self.remove(slot, room);
        }
        self.rest.logs.forget(hash, room);
    }

    /// Looks at the next `groups` groups, and at as many logs as slots, and forgets what is whole again.
    pub(super) fn sweep(&mut self, groups: usize, now: Micros, room: &Room) {
        for _ in 0..groups.min(self.table.groups()) {
            for slot in self.table.taken(self.rest.cursor) {
                if self.held(slot).1.is_whole(now) {
                    self.remove(slot, room);
                }
            }
            self.rest.cursor = self.table.after(self.rest.cursor);
        }
        self.rest.logs.sweep(groups * GROUP, now, room);
    }

    fn has_room(&self, room: &Room) -> bool {
        room.has_key() && !self.table.is_full()
    }

    #[inline]
    fn held(&self, slot: usize) -> (u16, Held) {
        let Slot { shape, anchor, word } = self.table.read(slot);
        (shape, Held { shape: *self.rest.shapes.shape(shape), anchor: Micros(anchor), word })
    }

    /// Replaces `old`, which was written under shape number `id`.
    #[inline]
    fn write(&mut self, slot: usize, id: u16, old: &Held, new: &Held) {
        let shape = if new.shape == old.shape { id } else { self.rest.shapes.replace(id, new.shape) };
        self.table.write(slot, Slot { shape, anchor: new.anchor.0, word: new.word });
    }

    fn remove(&mut self, slot: usize, room: &Room) {
        self.rest.shapes.release(self.table.read(slot).shape);
        self.table.remove(slot);
        room.give_key();
    }
}

/// The answer where not even an overflow bucket has room. Nothing is admitted unrecorded; the time
/// to wait is a guess, the only one this store makes.
pub(super) fn refusal_for_want_of_room(algorithm: &Algorithm, now: Micros) -> Decision {
    Decision {
        outcome: Outcome::Denied { retry_after: Micros::SECOND },
        limit: algorithm.limit(),
        remaining: 0,
        reset_after: Micros::SECOND,
        take: Take { at: now, entry: 0 },
        found: Found::Nothing,
    }
}
