//! An open-addressing table of fixed-size slots, allocated once.
//!
//! Slots come in groups of seven. A group's word holds a one-byte tag per slot, searched with
//! plain integer arithmetic, and in its eighth byte how many entries wanted a place here and live
//! further on. A search goes on only while that count is not zero, and a removal takes its entry
//! out of the counts it passed. So there are no tombstones, no entry ever moves, and a table that
//! has been churned for a year is searched as fast as a new one. A growing map would stop all
//! callers of a shard while it copies; zeroed memory that nobody touches costs nothing instead.
//!
//! A table belongs to whoever holds its shard's lock. Its words are atomics all the same, plain loads and
//! stores to a processor, so that [`Table::touch`] may read one without the lock to have it fetched.
//!
//! Proved by: tests/table.rs

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use zerocopy::FromZeros as _;

use super::hash::KeyHash;

/// Slots per group.
pub(super) const GROUP: usize = 7;

/// Words per slot.
const WORDS: usize = 4;
/// Words per group, four cache lines: the tags fill a slot's place.
const GROUP_WORDS: usize = WORDS * (GROUP + 1);
const LINE_WORDS: usize = 8;
const LOW_BITS: u64 = 0x0001_0101_0101_0101;
const LOW_SEVENS: u64 = 0x007f_7f7f_7f7f_7f7f;
const HIGH_BITS: u64 = 0x0080_8080_8080_8080;
const TAGS: u64 = 0x00ff_ffff_ffff_ffff;
const COUNT_SHIFT: u32 = 56;
/// A count that got here stays: it no longer knows how many it stands for.
const COUNT_MAX: u64 = 255;

/// Fixed-size slots by hash.
#[derive(Debug)]
pub(super) struct Table {
    /// Per group, from `base` on: a word with seven tags (0 is empty) and the count of those who
    /// went on, three words that stay empty, and seven slots of four words. Tags beside their
    /// slots cost one address translation per search, which is what large tables wait for.
    words: Vec<AtomicU64>,
    /// Aligns groups to cache lines, so that no slot lies across two.
    base: usize,
    groups: usize,
    /// How many slots are taken.
    taken: AtomicUsize,
}

/// What one slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    /// Which interned shape the state was written under.
    pub(super) shape: u16,
    /// The time the state was true at.
    pub(super) anchor: u64,
    /// The state itself.
    pub(super) word: u64,
}

/// A slot somebody lives in, found and looked up once for all that a visit does to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'t> {
    words: &'t [AtomicU64; WORDS],
    /// The word that was compared, which holds the shape too.
    second: u64,
}

impl Place<'_> {
    /// What the slot holds.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower 16 bits are the shape")]
    pub(super) fn read(&self) -> Slot {
        let [_, _, anchor, word] = self.words;
        Slot {
            shape: self.second as u16,
            anchor: anchor.load(Ordering::Relaxed),
            word: word.load(Ordering::Relaxed),
        }
    }

    /// Replaces what the slot holds, under the shape it has.
    #[inline]
    pub(super) fn write_state(&self, anchor: u64, word: u64) {
        self.words[2].store(anchor, Ordering::Relaxed);
        self.words[3].store(word, Ordering::Relaxed);
    }
}

impl Table {
    /// A table with at least `slots` slots.
    pub(super) fn new(slots: usize) -> Table {
        let groups = slots.div_ceil(GROUP).max(1);
        // Zeroed by the system, page by page as it is touched.
        let words = AtomicU64::new_vec_zeroed(groups * GROUP_WORDS + LINE_WORDS)
            .expect("as much memory as the bounds of the store ask for");
        let base = words.as_ptr().addr().wrapping_neg() % 64 / 8;
        Table { words, base, groups, taken: AtomicUsize::new(0) }
    }

    /// How many groups there are.
    pub(super) fn groups(&self) -> usize {
        self.groups
    }

    /// Whether every slot is taken.
    pub(super) fn is_full(&self) -> bool {
        self.taken.load(Ordering::Relaxed) == self.groups * GROUP
    }

    /// Where a key lives, if it does.
    ///
    /// hot path: no allocation; one line of tags and one of slots, nearly always.
    #[inline]
    pub(super) fn find(&self, hash: KeyHash) -> Option<usize> {
        let home = self.home(hash.first);
        let guess = number(home, favourite(hash.first));
        if self.holds(guess, hash) { Some(guess) } else { self.search(hash, home) }
    }

    /// [`Table::find`] for whoever reads and writes at once.
    ///
    /// hot path: no allocation; each word is read once.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see Taking")]
    pub(super) fn place(&self, hash: KeyHash) -> Option<Place<'_>> {
        let home = self.home(hash.first);
        let words = self.slot(number(home, favourite(hash.first)));
        let second = words[1].load(Ordering::Relaxed);
        if words[0].load(Ordering::Relaxed) == hash.first && second >> 16 == low_48(hash.second) {
            return Some(Place { words, second });
        }
        let words = self.slot(self.search(hash, home)?);
        Some(Place { words, second: words[1].load(Ordering::Relaxed) })
    }

    /// [`Table::find`] for those who do not live in their favourite slot.
    #[inline(never)]
    fn search(&self, hash: KeyHash, home: usize) -> Option<usize> {
        let mut group = home;
        let wanted = LOW_BITS * tag(hash.first);
        for _ in 0..self.groups {
            let tags = self.tags(group);
            let mut matches = zero_bytes(tags ^ wanted);
            while matches != 0 {
                let slot = number(group, first_byte(matches));
                if self.holds(slot, hash) {
                    return Some(slot);
                }
                matches &= matches - 1;
            }
            if tags >> COUNT_SHIFT == 0 {
                return None;
            }
            group = self.after(group);
        }
        None
    }

    /// Puts a key that is not here into the first free slot from its home on; `None` if all are taken.
    pub(super) fn insert(&self, hash: KeyHash, slot: Slot) -> Option<usize> {
        let home = self.home(hash.first);
        let mut group = home;
        for _ in 0..self.groups {
            let empty = zero_bytes(self.tags(group));
            if empty != 0 {
                let byte = free_byte(empty, favourite(hash.first));
                self.set_tags(group, self.tags(group) | tag(hash.first) << (8 * byte));
                let at = number(group, byte);
                let words = self.slot(at);
                words[0].store(hash.first, Ordering::Relaxed);
                words[1].store(low_48(hash.second) << 16, Ordering::Relaxed);
                self.write(at, slot);
                self.count_passers(home, group, 1);
                self.taken.store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                return Some(at);
            }
            group = self.after(group);
        }
        None
    }

    /// Empties a slot.
    pub(super) fn remove(&self, slot: usize) {
        let first = &self.slot(slot)[0];
        let home = self.home(first.load(Ordering::Relaxed));
        // So that nobody takes it for their favourite slot. No hash is zero.
        first.store(0, Ordering::Relaxed);
        let group = slot / (GROUP + 1);
        self.set_tags(group, self.tags(group) & !(0xff << (8 * (slot % (GROUP + 1) - 1))));
        self.count_passers(home, group, -1);
        self.taken.store(self.taken.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    /// What a slot holds.
    #[inline]
    pub(super) fn read(&self, slot: usize) -> Slot {
        let [_, second, anchor, word] = self.slot(slot).each_ref().map(|word| word.load(Ordering::Relaxed));
        #[expect(clippy::cast_possible_truncation, reason = "the lower 16 bits are the shape")]
        Slot { shape: second as u16, anchor, word }
    }

    /// Replaces what a slot holds.
    #[inline]
    pub(super) fn write(&self, slot: usize, Slot { shape, anchor, word }: Slot) {
        let words = self.slot(slot);
        words[1].store(words[1].load(Ordering::Relaxed) & !0xffff | u64::from(shape), Ordering::Relaxed);
        words[2].store(anchor, Ordering::Relaxed);
        words[3].store(word, Ordering::Relaxed);
    }

    /// The taken slots of one group.
    pub(super) fn taken(&self, group: usize) -> impl Iterator<Item = usize> + use<> {
        let tags = self.tags(group) & TAGS;
        (0..GROUP).filter(move |byte| tags >> (8 * byte) & 0xff != 0).map(move |byte| number(group, byte))
    }

    /// The group after this one, in a circle.
    #[inline]
    pub(super) fn after(&self, group: usize) -> usize {
        if group + 1 == self.groups { 0 } else { group + 1 }
    }

    /// Counts one entry more, or one less, in every group between its home and its place.
    fn count_passers(&self, home: usize, place: usize, change: i64) {
        let mut group = home;
        while group != place {
            let count = self.tags(group) >> COUNT_SHIFT;
            if count < COUNT_MAX {
                let count = count.saturating_add_signed(change);
                self.set_tags(group, self.tags(group) & TAGS | count << COUNT_SHIFT);
            }
            group = self.after(group);
        }
    }

    #[cfg(test)]
    pub(super) fn is_pristine(&self) -> bool {
        self.taken.load(Ordering::Relaxed) == 0 && (0..self.groups()).all(|group| self.tags(group) == 0)
    }

    #[inline]
    fn holds(&self, slot: usize, hash: KeyHash) -> bool {
        let [first, second, ..] = self.slot(slot);
        first.load(Ordering::Relaxed) == hash.first
            && second.load(Ordering::Relaxed) >> 16 == low_48(hash.second)
    }

    #[inline]
    fn tags(&self, group: usize) -> u64 {
        self.words[self.base + group * GROUP_WORDS].load(Ordering::Relaxed)
    }

    fn set_tags(&self, group: usize, tags: u64) {
        self.words[self.base + group * GROUP_WORDS].store(tags, Ordering::Relaxed);
    }

    /// Reads where a key most likely lives, so that its visitor need not wait for the memory. What is read
    /// says nothing: somebody may be writing it.
    #[inline]
    pub(super) fn touch(&self, hash: KeyHash) -> u64 {
        let [first, ..] = self.slot(number(self.home(hash.first), favourite(hash.first)));
        first.load(Ordering::Relaxed)
    }

    /// Spreads a hash evenly over any number of groups.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the quotient is below the number of groups")]
    fn home(&self, first: u64) -> usize {
        ((u128::from(first) * self.groups as u128) >> 64) as usize
    }

    /// Slots are numbered by eights, of which the first is never used: their place is one product.
    #[inline]
    fn slot(&self, slot: usize) -> &[AtomicU64; WORDS] {
        self.words[self.base + slot * WORDS..].first_chunk().expect("every slot lies within the words")
    }
}

/// The number of the slot at a place in a group.
#[inline]
fn number(group: usize, byte: usize) -> usize {
    group * (GROUP + 1) + 1 + byte
}

/// The tag of a hash: its lowest byte, which the home hardly depends on, and never 0.
#[inline]
fn tag(first: u64) -> u64 {
    (first & 0xff).max(1)
}

/// The slot of a group that a hash prefers. Most live there, and are found without the tags.
#[inline]
fn favourite(first: u64) -> usize {
    (((first >> 8 & 0xffff_ffff) * GROUP as u64) >> 32) as usize
}

/// The favourite place if it is free, or else the first that is.
fn free_byte(empty: u64, favourite: usize) -> usize {
    if empty >> (8 * favourite) & 0x80 == 0 { first_byte(empty) } else { favourite }
}

#[inline]
fn low_48(second: u64) -> u64 {
    second << 16 >> 16
}

/// Marks the bytes of the lower seven that are zero, and no others. (The well-known shorter formula
/// also marks ones above a zero: a search would then find what had been removed.)
#[inline]
fn zero_bytes(word: u64) -> u64 {
    !((word & LOW_SEVENS).wrapping_add(LOW_SEVENS) | word) & HIGH_BITS
}

#[inline]
fn first_byte(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}
