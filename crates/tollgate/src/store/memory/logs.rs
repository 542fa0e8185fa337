//! The sliding logs of one shard: the only state that is not of a fixed size.
//!
//! Bounded by bytes. A log is charged for what its list may have allocated, before it grows; a log
//! that may not grow refuses rather than admit what it cannot record.

use std::collections::HashMap;

use tollgate_core::algorithm::SlidingLog;
use tollgate_core::algorithm::sliding_log::{self, Log};
use tollgate_core::decision::{Decision, Outcome, Refunded, Step, Take, Verb};
use tollgate_core::units::{Cost, Micros};

use super::hash::KeyHash;
use super::room::Room;
use super::shard::{Undo, Visitor, refusal_for_want_of_room};

/// What a log costs besides its runs: its entry and its place in the index.
const ENTRY_BYTES: u64 = 160;
const RUN_BYTES: u64 = 16;

/// Logs by key.
#[derive(Debug, Default)]
pub(super) struct Logs {
    entries: Vec<Entry>,
    index: HashMap<KeyHash, usize>,
    cursor: usize,
}

#[derive(Debug)]
struct Entry {
    hash: KeyHash,
    /// The window it was written under.
    span: Micros,
    /// What it is charged for.
    bytes: u64,
    log: Log,
}

impl Entry {
    fn is_whole(&self, now: Micros) -> bool {
        self.log.latest().is_none_or(|latest| now >= latest + self.span)
    }
}

impl Logs {
    /// Spends if it fits; `None` if a newcomer finds no room.
    pub(super) fn take(
        &mut self,
        visitor: &Visitor<'_>,
        sliding: &SlidingLog,
        room: &Room,
    ) -> Option<(Decision, Undo)> {
        let cost = visitor.check.cost;
        let Some(at) = self.index.get(&visitor.hash).copied() else {
            return self.take_new(visitor, sliding, room);
        };
        let entry = &mut self.entries[at];
        let now = visitor.now_since(entry.log.latest().unwrap_or(Micros::ZERO));
        if entry.is_whole(now) {
            entry.log = Log::default();
        }
        let log = (!entry.log.is_empty()).then_some(&entry.log);
        let Step { decision, spend, mend } = sliding_log::visit(sliding, log, now, cost, Verb::Take);
        let Some(edit) = spend else {
            if let Some(mend) = mend {
                entry.log.apply(&mend);
            }
            return Some((decision, Undo::Nothing));
        };
        let more = bytes_for(entry.log.len() + 1).saturating_sub(entry.bytes);
        if more > 0 && !room.take_log_bytes(more) {
            let refusal = refusal_for_want_of_room(visitor.check.algorithm, now);
            return Some((refusal, Undo::Nothing));
        }
        entry.bytes += more;
        entry.span = sliding.span();
        entry.log.apply(&edit);
        Some((decision, Undo::Log { take: decision.take, cost }))
    }

    fn take_new(
        &mut self,
        visitor: &Visitor<'_>,
        sliding: &SlidingLog,
        room: &Room,
    ) -> Option<(Decision, Undo)> {
        let Visitor { hash, check, now, .. } = *visitor;
        let Step { decision, spend, .. } = sliding_log::visit(sliding, None, now, check.cost, Verb::Take);
        let Some(edit) = spend else { return Some((decision, Undo::Nothing)) };
        self.sweep(1, now, room);
        let bytes = bytes_for(1);
        if !room.take_log_bytes(bytes) {
            return None;
        }
        if !room.take_key() {
            room.give_log_bytes(bytes);
            return None;
        }
        let mut log = Log::default();
        log.apply(&edit);
        self.index.insert(hash, self.entries.len());
        self.entries.push(Entry { hash, span: sliding.span(), bytes, log });
        Some((decision, Undo::Log { take: decision.take, cost: check.cost }))
    }

    /// Only looks; `None` if a newcomer would find no room.
    pub(super) fn peek(
        &mut self,
        visitor: &Visitor<'_>,
        sliding: &SlidingLog,
        room: &Room,
    ) -> Option<Decision> {
        let Visitor { hash, check, now, .. } = *visitor;
        let Some(at) = self.index.get(&hash).copied() else {
            let decision = sliding_log::visit(sliding, None, now, check.cost, Verb::Peek).decision;
            let has_room = room.has_key() && room.has_log_bytes(bytes_for(1));
            return (has_room || decision.outcome != Outcome::Allowed).then_some(decision);
        };
        let entry = &mut self.entries[at];
        let now = visitor.now_since(entry.log.latest().unwrap_or(Micros::ZERO));
        let log = (!entry.is_whole(now)).then_some(&entry.log);
        let step = sliding_log::visit(sliding, log, now, check.cost, Verb::Peek);
        if let Some(mend) = step.mend {
            entry.log.apply(&mend);
        }
        Some(step.decision)
    }

    /// Takes the entries of an earlier take out again.
    pub(super) fn refund(
        &mut self,
        visitor: &Visitor<'_>,
        sliding: &SlidingLog,
        cost: Cost,
        take: Take,
        room: &Room,
    ) -> Refunded {
        let Some(at) = self.index.get(&visitor.hash).copied() else {
            return sliding_log::refund(sliding, None, visitor.now, cost, take);
        };
        let entry = &mut self.entries[at];
        let now = visitor.now_since(entry.log.latest().unwrap_or(Micros::ZERO));
        if entry.is_whole(now) {
            entry.log = Log::default();
        }
        let log = (!entry.log.is_empty()).then_some(&mut entry.log);
        let refunded = sliding_log::refund(sliding, log, now, cost, take);
        if self.entries[at].log.is_empty() {
            self.remove(at, room);
        }
        refunded
    }

    /// Forgets one key.
    pub(super) fn forget(&mut self, hash: KeyHash, room: &Room) {
        if let Some(at) = self.index.get(&hash).copied() {
            self.remove(at, room);
        }
    }

    /// Looks at the next `count` logs, and forgets those that are whole again.
    pub(super) fn sweep(&mut self, count: usize, now: Micros, room: &Room) {
        for _ in 0..count.min(self.entries.len()) {
            if self.cursor >= self.entries.len() {
                self.cursor = 0;
            }
            if self.entries[self.cursor].is_whole(now) {
                self.remove(self.cursor, room);
            } else {
                self.cursor += 1;
            }
        }
    }

    fn remove(&mut self, at: usize, room: &Room) {
        let gone = self.entries.swap_remove(at);
        self.index.remove(&gone.hash);
        if let Some(moved) = self.entries.get(at) {
            self.index.insert(moved.hash, at);
        }
        room.give_log_bytes(gone.bytes);
        room.give_key();
    }
}

/// What a log of so many runs may have allocated: its list doubles.
fn bytes_for(runs: usize) -> u64 {
    ENTRY_BYTES + RUN_BYTES * runs.next_power_of_two().max(4) as u64
}
