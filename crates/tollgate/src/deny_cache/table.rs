//! Where refusals are kept: a fixed number of sets, each with room for a few.
//!
//! A key is known by 128 bits of SipHash under a secret of this process, so nobody can make two keys meet, and what one
//! is refused never refuses another. A set that is full gives up what would have ended first: that costs a trip, no more.

use std::hash::{BuildHasher, Hasher, RandomState};

use parking_lot::Mutex;
use tollgate_core::decision::Outcome;
use tollgate_core::sip::Sip;
use tollgate_core::units::{Cost, Micros};

/// Refusals to a set.
const WAYS: usize = 4;

/// The most locks.
const SHARDS_MAX: usize = 64;

/// Whose refusal, under which limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) key: [u64; 2],
    pub(super) limit: [u64; 2],
}

/// What was said of one name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Note {
    pub(super) name: Name,
    /// When it ends, and when it was received, by our clock.
    pub(super) until: Micros,
    pub(super) received: Micros,
    /// When it was decided, by the store's.
    pub(super) at: Micros,
    /// `Allowed` for a check that stood beside one that refused: known, and no reason to refuse.
    pub(super) outcome: Outcome,
    pub(super) reset_after: Micros,
    pub(super) cost: u32,
    pub(super) remaining: u32,
    /// Until when whoever comes after its end waits for the one who asks already.
    pub(super) queue_until: Micros,
    /// It is over, and somebody asks the store what is so now.
    pub(super) is_asked: bool,
}

const NONE: Note = Note {
    name: Name { key: [0, 0], limit: [0, 0] },
    until: Micros::ZERO,
    received: Micros::ZERO,
    at: Micros::ZERO,
    outcome: Outcome::Allowed,
    reset_after: Micros::ZERO,
    cost: 0,
    remaining: 0,
    queue_until: Micros::ZERO,
    is_asked: false,
};

impl Note {
    /// Whether it may be told.
    #[inline]
    pub(super) fn holds(&self, now: Micros, gap_at: Micros) -> bool {
        now < self.until && self.received > gap_at
    }

    /// Whether it covers asks that `other` does not, or longer.
    fn is_worth_more_than(&self, other: &Note, now: Micros) -> bool {
        let refuses = |note: &Note| note.outcome != Outcome::Allowed;
        now < self.until && refuses(self) && (!refuses(other) || self.cost < other.cost)
    }
}

#[derive(Debug, Clone, Copy)]
struct Set {
    /// When a key of this set last got more than time gives: what was asked for before is not remembered.
    eased_at: Micros,
    ways: [Note; WAYS],
}

/// All that is remembered.
pub(super) struct Table {
    secret: [u64; 2],
    shards: Box<[Mutex<Box<[Set]>>]>,
    sets_per_shard: usize,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

impl Table {
    pub(super) fn new(max_entries: usize) -> Table {
        let sets = (max_entries / WAYS).max(1);
        let shards = SHARDS_MAX.min(sets);
        let word = || RandomState::new().build_hasher().finish();
        let shard = |_| {
            let set = Set { eased_at: Micros::ZERO, ways: [NONE; WAYS] };
            Mutex::new(vec![set; sets / shards].into_boxed_slice())
        };
        Table {
            secret: [word(), word()],
            shards: (0..shards).map(shard).collect(),
            sets_per_shard: sets / shards,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.shards.len() * WAYS * self.sets_per_shard
    }

    /// A key as 128 bits; never those of an empty place.
    #[inline]
    pub(super) fn hash(&self, digest: [u64; 2], subject: &[u8]) -> [u64; 2] {
        let [first, second] = self.secret;
        let [first, second] = Sip::new(first ^ digest[0], second ^ digest[1]).hash(subject);
        [first.max(1), second]
    }

    #[inline]
    fn set<T>(&self, key: [u64; 2], f: impl FnOnce(&mut Set) -> T) -> T {
        let shard = portion(key[1], self.shards.len());
        let mut shard = self.shards[shard].lock();
        f(&mut shard[portion(key[0], self.sets_per_shard)])
    }

    /// What was said of a name, if it holds for asks of this cost or did until it ended.
    #[inline]
    pub(super) fn read(&self, name: Name, cost: Cost) -> Option<Note> {
        self.set(name.key, |set| {
            set.ways.iter().find(|note| note.name == name && note.cost <= cost.get()).copied()
        })
    }

    /// Writes a note down, unless its key was eased since the ask was sent.
    pub(super) fn write(&self, name: Name, sent: Micros, note: Note) {
        self.set(name.key, |set| {
            if set.eased_at >= sent {
                return;
            }
            let place = match set.ways.iter().position(|other| other.name == name) {
                Some(at) if set.ways[at].is_worth_more_than(&note, note.received) => return,
                Some(at) => Some(&mut set.ways[at]),
                None => set.ways.iter_mut().min_by_key(|other| other.until),
            };
            if let Some(place) = place {
                *place = note;
            }
        });
    }

    /// Forgets all that is known of a key.
    pub(super) fn drop_key(&self, key: [u64; 2], now: Micros) {
        self.set(key, |set| {
            set.eased_at = now;
            for note in set.ways.iter_mut().filter(|note| note.name.key == key) {
                *note = NONE;
            }
        });
    }

    /// Marks a note that is over as being asked about; false if it is already.
    pub(super) fn claim(&self, name: Name) -> bool {
        self.set(name.key, |set| {
            let note = set.ways.iter_mut().find(|note| note.name == name);
            note.is_none_or(|note| !std::mem::replace(&mut note.is_asked, true))
        })
    }

    /// Takes that mark away. Nothing was refused, or there would be another note by now: if that was not to be expected yet,
    /// the note is wrong, and nobody should wait because of it.
    pub(super) fn disclaim(&self, name: Name, now: Micros) {
        self.set(name.key, |set| {
            let marked = set.ways.iter_mut().filter(|note| note.name == name && note.is_asked);
            for note in marked {
                match note.outcome {
                    Outcome::Denied { retry_after } if now >= note.received + retry_after => {
                        note.is_asked = false;
                    }
                    _ => *note = NONE,
                }
            }
        });
    }

    pub(super) fn count(&self, counts: impl Fn(&Note) -> bool) -> usize {
        let in_shard = |shard: &Mutex<Box<[Set]>>| -> usize {
            shard.lock().iter().map(|set| set.ways.iter().filter(|note| counts(note)).count()).sum()
        };
        self.shards.iter().map(in_shard).sum()
    }
}

/// Which of `of` places a hash falls into.
#[inline]
pub(super) fn portion(hash: u64, of: usize) -> usize {
    let place = (u128::from(hash) * of as u128) >> 64;
    usize::try_from(place).unwrap_or(0) // it is below `of`
}
