//! Several checks at one instant: all are spent, or none.
//!
//! The shards are locked in ascending order, each once, and the overflow buckets after them, so
//! that two asks never wait for each other in a circle. Each check is spent as it is looked at,
//! because two of them may meet in one overflow bucket; the first refusal undoes them, backwards,
//! before any lock is let go.

use tollgate_core::check::Check;
use tollgate_core::decision::{Decision, Outcome};
use tollgate_core::few::Few;
use tollgate_core::units::Micros;

use super::hash::KeyHash;
use super::shard::{Shard, Undo, Visitor, refusal_for_want_of_room};
use super::{MemoryStore, Ordering};

impl MemoryStore {
    /// Spends every check, or nothing.
    pub(super) fn take_several(&self, checks: &[Check<'_>]) -> Few<Decision> {
        let mut locked = Locked::new(self, checks);
        let mut decisions = Vec::with_capacity(checks.len());
        let mut spent = Vec::with_capacity(checks.len());
        for (at, check) in checks.iter().enumerate() {
            let (decision, place, undo) = locked.take(at, check);
            if decision.outcome != Outcome::Allowed {
                locked.undo_all(checks, &spent);
                return locked.peek_around(checks, at, decision);
            }
            decisions.push(decision);
            spent.push((place, undo));
        }
        Few::Many(decisions)
    }

    /// What `take_several` would answer, each check by itself.
    pub(super) fn peek_several(&self, checks: &[Check<'_>]) -> Few<Decision> {
        let mut locked = Locked::new(self, checks);
        checks.iter().enumerate().map(|(at, check)| locked.peek(at, check)).collect()
    }
}

/// Where a check was spent.
#[derive(Debug, Clone, Copy)]
enum Place {
    Own,
    Overflow(KeyHash),
    Nowhere,
}

/// The locks of one ask.
struct Locked<'a> {
    store: &'a MemoryStore,
    hashes: Vec<KeyHash>,
    shards: Vec<usize>,
    guards: Vec<Shard<'a>>,
    overflow: Option<Shard<'a>>,
    now: Micros,
}

impl<'a> Locked<'a> {
    fn new(store: &'a MemoryStore, checks: &[Check<'_>]) -> Locked<'a> {
        let hashes: Vec<_> =
            checks.iter().map(|check| store.hasher.key(&check.key, check.algorithm.kind())).collect();
        let mut shards: Vec<_> = hashes.iter().map(|hash| store.shard_of(*hash)).collect();
        shards.sort_unstable();
        shards.dedup();
        let guards = shards.iter().map(|shard| store.lock(*shard)).collect();
        // Order: after the locks, so that no state is ahead of it.
        let now = store.clock.now();
        Locked { store, hashes, shards, guards, overflow: None, now }
    }

    fn take(&mut self, at: usize, check: &Check<'_>) -> (Decision, Place, Undo) {
        let store = self.store;
        let visitor = self.visitor(self.hashes[at], check);
        if let Some((decision, undo)) = self.own(at).take(&visitor, &store.room) {
            return (decision, Place::Own, undo);
        }
        store.overflowed.fetch_add(1, Ordering::Relaxed);
        let visitor = self.visitor(store.hasher.overflow(check.key.scope, check.algorithm), check);
        match self.overflow().take(&visitor, &store.overflow_room) {
            Some((decision, undo)) => (decision, Place::Overflow(visitor.hash), undo),
            None => (refusal_for_want_of_room(check.algorithm, self.now), Place::Nowhere, Undo::Nothing),
        }
    }

    fn peek(&mut self, at: usize, check: &Check<'_>) -> Decision {
        let store = self.store;
        let visitor = self.visitor(self.hashes[at], check);
        if let Some(decision) = self.own(at).peek(&visitor, &store.room) {
            return decision;
        }
        let visitor = self.visitor(store.hasher.overflow(check.key.scope, check.algorithm), check);
        self.overflow()
            .peek(&visitor, &store.overflow_room)
            .unwrap_or_else(|| refusal_for_want_of_room(check.algorithm, self.now))
    }

    /// Takes back what was spent, last first.
    fn undo_all(&mut self, checks: &[Check<'_>], spent: &[(Place, Undo)]) {
        for (at, (place, undo)) in spent.iter().enumerate().rev() {
            self.undo(at, &checks[at], *place, *undo);
        }
    }

    /// The answers to an ask that was refused by one check: the others as they stand.
    fn peek_around(&mut self, checks: &[Check<'_>], refused: usize, refusal: Decision) -> Few<Decision> {
        let answers = checks.iter().enumerate();
        answers.map(|(at, check)| if at == refused { refusal } else { self.peek(at, check) }).collect()
    }

    fn undo(&mut self, at: usize, check: &Check<'_>, place: Place, undo: Undo) {
        let store = self.store;
        match place {
            Place::Own => {
                let visitor = self.visitor(self.hashes[at], check);
                self.own(at).undo(&visitor, undo, &store.room);
            }
            Place::Overflow(hash) => {
                let visitor = self.visitor(hash, check);
                self.overflow().undo(&visitor, undo, &store.overflow_room);
            }
            Place::Nowhere => {}
        }
    }

    fn visitor<'b>(&self, hash: KeyHash, check: &'b Check<'b>) -> Visitor<'b>
    where
        'a: 'b,
    {
        Visitor { hash, check, now: self.now, clock: &self.store.clock }
    }

    fn own(&mut self, at: usize) -> &mut Shard<'a> {
        let shard = self.store.shard_of(self.hashes[at]);
        let at = self.shards.binary_search(&shard).expect("every check's shard was locked");
        &mut self.guards[at]
    }

    fn overflow(&mut self) -> &mut Shard<'a> {
        self.overflow.get_or_insert_with(|| self.store.overflow.lock())
    }
}
