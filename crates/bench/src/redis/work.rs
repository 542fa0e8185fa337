//! Who is asked about: four kinds of traffic, and how much of each the limits allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tollgate::{Algorithm, Kind, Rate};

/// Keys that Zipf's law is over.
const ZIPF_KEYS: u32 = 1_000_000;

/// Drawn beforehand and asked for in turn, over and over.
const ZIPF_DRAWS: usize = 1 << 22;

/// Keys of a flood.
pub(super) const DRAINED_KEYS: u32 = 1000;

/// A kind of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Every ask about a key that was never seen.
    Unique,
    /// The key of rank k in proportion to 1/k.
    Zipf,
    /// One key, the limit above demand.
    Hot,
    /// Keys that have nothing left.
    Drained,
}

impl Work {
    /// All of them.
    pub(super) const ALL: [Work; 4] = [Work::Unique, Work::Zipf, Work::Hot, Work::Drained];

    /// The word for it in a filter.
    pub(super) fn name(self) -> &'static str {
        match self {
            Work::Unique => "unique",
            Work::Zipf => "zipf",
            Work::Hot => "hot",
            Work::Drained => "drained",
        }
    }

    /// What stands above its table.
    pub(super) fn title(self) -> &'static str {
        match self {
            Work::Unique => "unique keys, 1000/min each",
            Work::Zipf => "Zipf (s = 1) over 1 M keys, 1000/min each",
            Work::Hot => "one hot key, the limit above demand",
            Work::Drained => "a flood on 1000 drained keys, 1/day each",
        }
    }

    /// The limit, as a policy has it.
    pub(super) fn rate(self) -> &'static str {
        match self {
            Work::Unique | Work::Zipf => "1000/min",
            Work::Hot => "400000000/s",
            Work::Drained => "1/day",
        }
    }

    /// The limit.
    pub(super) fn limit(self) -> Result<Algorithm> {
        Ok(Algorithm::try_new(Kind::TokenBucket, Rate::parse(self.rate())?, None, 0)?)
    }
}

/// The ranks that Zipf's law draws, once for all rows.
pub(super) fn zipf() -> Arc<[u32]> {
    drawn(ZIPF_DRAWS)
}

fn drawn(count: usize) -> Arc<[u32]> {
    let mut below = Vec::new();
    let mut sum = 0.0;
    for rank in 1..=ZIPF_KEYS {
        sum += 1.0 / f64::from(rank);
        below.push(sum);
    }
    let mut random = fastrand::Rng::with_seed(1);
    let mut draw = || {
        let at = random.f64() * sum;
        u32::try_from(below.partition_point(|below| *below < at)).unwrap_or(0)
    };
    (0..count).map(|_| draw()).collect()
}

/// The keys of one row, in the order they are asked for.
#[derive(Debug)]
pub(super) struct Keys {
    work: Work,
    draws: Arc<[u32]>,
    asked: AtomicU64,
}

impl Keys {
    /// Of this traffic; `draws` are Zipf's.
    pub(super) fn new(work: Work, draws: &Arc<[u32]>) -> Keys {
        Keys { work, draws: Arc::clone(draws), asked: AtomicU64::new(0) }
    }

    /// Keys that were never seen.
    pub(super) fn unique() -> Keys {
        Keys { work: Work::Unique, draws: Arc::new([]), asked: AtomicU64::new(0) }
    }

    /// The next one.
    pub(super) fn next(&self) -> u64 {
        let turn = self.asked.fetch_add(1, Ordering::Relaxed);
        match self.work {
            Work::Unique => turn,
            Work::Zipf => u64::from(self.drawn(turn)),
            Work::Hot => 0,
            Work::Drained => turn % u64::from(DRAINED_KEYS),
        }
    }

    fn drawn(&self, turn: u64) -> u32 {
        self.draws[usize::try_from(turn).unwrap_or(0) % self.draws.len()]
    }

    /// How many were asked for.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// How many of them the limits allow at most, asked within that time: of each key what was asked, or its
    /// capacity and what flows in.
    #[expect(clippy::cast_precision_loss, reason = "counts of asks are far below 2^52")]
    pub(super) fn allowed(&self, within: Duration) -> f64 {
        let asked = self.asked();
        match self.work {
            Work::Unique | Work::Hot => asked as f64,
            Work::Drained => f64::from(DRAINED_KEYS),
            Work::Zipf => {
                let most = 1000.0 + within.as_secs_f64() * 1000.0 / 60.0;
                let mut counts = vec![0.0_f64; ZIPF_KEYS as usize];
                (0..asked).for_each(|turn| counts[self.drawn(turn) as usize] += 1.0);
                counts.into_iter().map(|count| count.min(most)).sum()
            }
        }
    }
}

/// Spells a key out without a heap: what the generator does is on the engine's thread.
pub(super) fn spell(key: u64, into: &mut [u8; 25]) -> &[u8] {
    let (mut at, mut left) = (into.len(), key);
    loop {
        at -= 1;
        into[at] = b'0' + u8::try_from(left % 10).unwrap_or(0);
        left /= 10;
        if left == 0 {
            break;
        }
    }
    at -= 5;
    into[at..at + 5].copy_from_slice(b"user:");
    &into[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spelt_as_format_would() {
        for key in [0, 7, 10, 999, 1_000_000, u64::MAX] {
            assert_eq!(spell(key, &mut [0; 25]), format!("user:{key}").as_bytes());
        }
    }

    #[test]
    fn the_key_of_rank_k_is_drawn_a_kth_as_often_as_the_first() {
        let draws = drawn(300_000);
        let count =
            |rank: u32| f64::from(u32::try_from(draws.iter().filter(|at| **at == rank).count()).unwrap());
        let first = count(0);
        for rank in [1, 4, 9] {
            let share = count(rank) * f64::from(rank + 1) / first;
            assert!((0.95..1.05).contains(&share), "rank {rank}: {share}");
        }
    }

    #[test]
    fn of_a_key_no_more_is_allowed_than_its_limit_lets_through() {
        let keys = Keys::new(Work::Zipf, &Arc::from([0, 1]));
        for _ in 0..3000 {
            keys.next();
        }
        // Each of two keys was asked for 1500 times: 1000, and 100 that flowed in within six seconds.
        assert!((keys.allowed(Duration::from_secs(6)) - 2200.0).abs() < 1e-6);
        assert!((keys.allowed(Duration::from_mins(1)) - 3000.0).abs() < 1e-6);
    }
}
