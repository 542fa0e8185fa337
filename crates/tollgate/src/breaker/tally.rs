//! Outcomes, counted by many threads at once, each under the tag it was let through under.
//!
//! A counter's head is its tag, and a count is added by compare-and-swap: an outcome of before a change
//! finds another tag and is dropped, however long its thread slept in between.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tollgate_core::breaker::{Counts, Outcome};

use super::gate::Tag;

/// Threads share this many lines of memory.
const SHARDS: usize = 4;

/// What is below the tag.
const COUNT: u64 = (1 << 48) - 1;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard {
    ok: AtomicU64,
    failed: AtomicU64,
    slow: AtomicU64,
}

/// The counts of one stretch.
#[derive(Debug, Default)]
pub(super) struct Tally {
    shards: [Shard; SHARDS],
    /// Failures one after the other.
    run: AtomicU64,
}

thread_local! {
    static MY_SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[inline]
fn my_shard() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    MY_SHARD.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        mine.get()
    })
}

impl Tally {
    /// Counts one outcome, unless it is of another stretch; says how long the run of failures is.
    ///
    /// hot path: one compare-and-swap on a line that few threads share, and a load.
    #[inline]
    pub(super) fn add(&self, tag: Tag, outcome: Outcome) -> Option<u64> {
        let shard = &self.shards[my_shard()];
        let counter = match outcome {
            Outcome::Success => &shard.ok,
            Outcome::Failure => &shard.failed,
            Outcome::Slow => &shard.slow,
        };
        increment(counter, tag)?;
        if outcome == Outcome::Failure {
            return increment(&self.run, tag);
        }
        // Looked at before it is written: all threads share this line.
        if self.run.load(Ordering::Relaxed) != tag.head() {
            let _ = self.run.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |run| {
                tag.is_of(run).then_some(tag.head())
            });
        }
        Some(0)
    }

    /// Failures one after the other, in this stretch.
    pub(super) fn run(&self, tag: Tag) -> u32 {
        let run = self.run.load(Ordering::Relaxed);
        if tag.is_of(run) { u32::try_from(run & COUNT).unwrap_or(u32::MAX) } else { 0 }
    }

    /// Takes what was counted since it was last taken.
    pub(super) fn take(&self, tag: Tag) -> Counts {
        let mut counts = Counts::default();
        for Shard { ok, failed, slow } in &self.shards {
            counts.ok += take(ok, tag);
            counts.failed += take(failed, tag);
            counts.slow += take(slow, tag);
        }
        counts
    }

    /// Begins another stretch. What was counted and not taken is forgotten.
    pub(super) fn begin(&self, tag: Tag) {
        for Shard { ok, failed, slow } in &self.shards {
            for counter in [ok, failed, slow] {
                counter.store(tag.head(), Ordering::Relaxed);
            }
        }
        self.run.store(tag.head(), Ordering::Relaxed);
    }
}

#[inline]
fn increment(counter: &AtomicU64, tag: Tag) -> Option<u64> {
    let mut word = counter.load(Ordering::Relaxed);
    loop {
        if !tag.is_of(word) {
            return None;
        }
        match counter.compare_exchange_weak(word, word + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some((word & COUNT) + 1),
            Err(other) => word = other,
        }
    }
}

fn take(counter: &AtomicU64, tag: Tag) -> u64 {
    let word = counter.swap(tag.head(), Ordering::Relaxed);
    if tag.is_of(word) { word & COUNT } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_counts_under_its_own_tag_and_no_other() {
        let (tally, old) = (Tally::default(), Tag::FIRST);
        for run in 1..=3 {
            assert_eq!(tally.add(old, Outcome::Failure), Some(run));
        }
        assert_eq!(tally.add(old, Outcome::Success), Some(0));
        assert_eq!(tally.run(old), 0, "a success ends the run");
        assert_eq!(tally.take(old), Counts { ok: 1, failed: 3, slow: 0 });
        assert_eq!(tally.take(old), Counts::default(), "once");
        let new = old.next();
        tally.begin(new);
        assert_eq!(tally.add(old, Outcome::Failure), None);
        assert_eq!(tally.add(new, Outcome::Slow), Some(0));
        assert_eq!(tally.take(new), Counts { ok: 0, failed: 0, slow: 1 });
    }

    #[test]
    fn threads_lose_nothing() {
        let tally = Tally::default();
        let taken = std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        assert!(tally.add(Tag::FIRST, Outcome::Success).is_some());
                    }
                });
            }
            let mut taken = 0;
            while taken < 80_000 {
                taken += tally.take(Tag::FIRST).ok;
                std::thread::yield_now();
            }
            taken
        });
        assert_eq!((taken, tally.take(Tag::FIRST).ok), (80_000, 0));
    }
}
