//! Many checks, each by itself: what so many takes would answer, one after the other and at one instant.
//!
//! A key's slot is seldom in the cache, and a thread that visits one key after the other waits for each.
//! So the slots of the next few are touched before the first of them is visited: the processor fetches
//! them side by side, and the waiting is shared.

use std::hint::black_box;

use tollgate_core::check::Check;
use tollgate_core::decision::Decision;

use super::MemoryStore;
use super::hash::KeyHash;
use super::shard::Visitor;

/// Slots that are fetched side by side: about as many as a processor has in flight.
const AHEAD: usize = 16;

impl MemoryStore {
    /// Takes each check by itself, in order.
    ///
    /// hot path: one reading of the clock for all; one lock each, no allocation.
    #[inline]
    pub(super) fn take_all<'c>(
        &self,
        mut checks: impl Iterator<Item = Check<'c>> + Clone,
        mut each: impl FnMut(&Decision),
    ) {
        let now = self.clock.now();
        loop {
            let mut hashes = [KeyHash { first: 0, second: 0 }; AHEAD];
            let mut count = 0;
            for check in checks.clone().take(AHEAD) {
                hashes[count] = self.hasher.key(&check.key, check.algorithm.kind());
                count += 1;
            }
            // In a loop of its own: reads that are close together are under way together.
            let touched =
                hashes[..count].iter().map(|hash| self.shards[self.shard_of(*hash)].table.touch(*hash));
            black_box(touched.fold(0, |all, word| all ^ word));
            for (&hash, check) in hashes[..count].iter().zip(checks.by_ref()) {
                each(&self.take_visitor(&Visitor { hash, check: &check, now, clock: &self.clock }));
            }
            if count < AHEAD {
                return;
            }
        }
    }
}
