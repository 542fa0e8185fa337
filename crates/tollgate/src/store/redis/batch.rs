//! Takes that arrived while a call was in flight, as one call: `scripts/batch.lua`.
//!
//! Each is answered as if it had come alone, in the order they came. Two asks matter to each other
//! only where they share a key, so the rest may be put in whatever order is cheapest for Redis: asks
//! for one packed bucket each, of which there are most, come first and are read with one `MGET`; a
//! bucket that is asked the same several times in a row is read and written once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;
use tollgate_core::algorithm::token_bucket::Left;
use tollgate_core::decision::Found;
use tollgate_core::few::Few;
use tollgate_core::store::StoreError;
use tollgate_core::units::Micros;

use super::call::{Attempt, Functions};
use super::config::BATCH_MAX;
use super::part::Part;
use super::plan::Plan;
use super::scripts::{Entry, Scripts, Verb};
use super::wire::Reply;

/// Bytes in a batch at most, about.
const BYTES_MAX: usize = 64 * 1024;

/// Arguments of a call at most: the plan has a byte for each number.
const ARGUMENTS_MAX: usize = 255;

/// An ask, and whom to tell.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The ask.
    pub part: Part,
    /// Whom to tell.
    pub done: oneshot::Sender<Result<Told, StoreError>>,
}

/// What an ask is told.
#[derive(Debug)]
pub(super) enum Told {
    /// Redis' own reply to an ask that went alone; or an error.
    Reply(Reply),
    /// What became of a bucket.
    Bucket {
        /// What is in it now.
        left: Left,
        /// Whether the cost was there.
        is_spent: bool,
        /// Whether the bucket was.
        found: Found,
    },
    /// The instant, and five integers for each check.
    Numbers(Vec<u64>),
}

/// Asks that travel in one call.
#[derive(Debug)]
pub(super) struct Batch {
    asks: Few<Waiting>,
    attempt: Attempt,
    plan: Plan,
}

impl Batch {
    /// Takes what may travel together off the front of those who wait; asks whose callers have gone are
    /// left out. `None` if nobody waits.
    pub(super) fn form(
        waiting: &mut VecDeque<Waiting>,
        checks_max: usize,
        functions: &Functions,
    ) -> Option<Batch> {
        let first = loop {
            let first = waiting.pop_front()?;
            if !first.done.is_closed() {
                break first;
            }
        };
        let mut room = Room::beside(&first.part, checks_max);
        let (mut first, mut asks) = (Some(first), Vec::new());
        let mut passed_over = 0;
        while passed_over < waiting.len() {
            let Some(next) = waiting.get(passed_over) else { break };
            if next.done.is_closed() {
                waiting.remove(passed_over);
            } else if next.part.slot != room.slot {
                passed_over += 1;
            } else if room.takes(&next.part) {
                asks.extend(first.take());
                asks.extend(waiting.remove(passed_over));
            } else {
                break;
            }
        }
        let asks = first.map_or(Few::Many(asks), Few::One);
        Some(Batch { asks, attempt: Attempt::new(functions), plan: Plan::default() })
    }

    /// How many asks it is.
    pub(super) fn len(&self) -> usize {
        self.asks.len()
    }

    /// Appends the call; says how many replies it makes. None, if every caller has gone.
    pub(super) fn write(&mut self, scripts: &Scripts, now: Micros, out: &mut Vec<u8>) -> Option<u8> {
        if self.asks.iter().any(|ask| ask.done.is_closed()) {
            let asks = std::mem::replace(&mut self.asks, Few::Many(Vec::new()));
            self.asks = asks.into_iter().filter(|ask| !ask.done.is_closed()).collect();
        }
        let entry = self.entry(scripts);
        let Batch { asks, attempt, plan } = self;
        match &**asks {
            [] => None,
            [ask] => Some(attempt.write(entry, out, |called, out| ask.part.write(called, now, out))),
            asks => Some(attempt.write(entry, out, |called, out| {
                *plan = Plan::write(asks.iter().map(|ask| &ask.part), called, now, out);
            })),
        }
    }

    fn entry<'a>(&self, scripts: &'a Scripts) -> Entry<'a> {
        match &*self.asks {
            [ask] => ask.part.entry(scripts, Verb::Take),
            _ => scripts.batch(),
        }
    }

    /// Whether this answer proves that nothing ran, and the call is to go out again.
    pub(super) fn is_to_go_again(&mut self, reply: &Reply, scripts: &Scripts, functions: &Functions) -> bool {
        let entry = self.entry(scripts);
        self.attempt.is_to_go_again(reply, entry, functions)
    }

    /// Tells every ask what became of it; `late` counts those in a row that had gone.
    pub(super) fn answer(self, reply: Reply, late: &mut u32) {
        let mut tell = |ask: Waiting, told| {
            let is_late = ask.done.send(told).is_err();
            *late = if is_late { *late + 1 } else { 0 };
        };
        match (self.asks, reply) {
            (Few::One(ask), reply) => tell(ask, Ok(Told::Reply(reply))),
            (Few::Many(asks), Reply::Error(why)) => {
                for ask in asks {
                    tell(ask, Ok(Told::Reply(Reply::Error(why.clone()))));
                }
            }
            (Few::Many(asks), reply) => match self.plan.read(&reply) {
                Ok(told) => asks.into_iter().zip(told).for_each(|(ask, told)| tell(ask, Ok(told))),
                Err(error) => asks.into_iter().for_each(|ask| tell(ask, Err(error.clone()))),
            },
        }
    }

    /// Tells every ask that it is not known what became of it.
    pub(super) fn lose(self, error: &StoreError) {
        for ask in self.asks {
            let _ = ask.done.send(Err(error.clone()));
        }
    }
}

/// What a batch still has room for.
struct Room {
    slot: Option<u16>,
    checks: usize,
    bytes: usize,
    arguments: usize,
}

impl Room {
    fn beside(first: &Part, checks_max: usize) -> Room {
        let (checks, bytes) = (checks_max.min(BATCH_MAX), BYTES_MAX);
        let mut room = Room { slot: first.slot, checks, bytes, arguments: ARGUMENTS_MAX - 2 };
        // However large, the first has its turn; but then it has it alone.
        if !room.takes(first) {
            room.checks = 0;
        }
        room
    }

    fn takes(&mut self, part: &Part) -> bool {
        let (checks, bytes, arguments) = (part.checks(), part.bytes(), part.arguments());
        if checks > self.checks || bytes > self.bytes || arguments > self.arguments {
            return false;
        }
        self.checks -= checks;
        self.bytes -= bytes;
        self.arguments -= arguments;
        true
    }
}

/// How many asks went out together, since start.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    calls: [AtomicU64; BatchSizes::BOUNDS.len()],
    asks: AtomicU64,
}

/// How many asks travelled together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchSizes {
    /// Calls by the first of the bounds that they keep within.
    pub calls: [u64; BatchSizes::BOUNDS.len()],
    /// Asks in all of them.
    pub asks: u64,
}

impl BatchSizes {
    /// What calls are counted by: no more asks than this.
    pub const BOUNDS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
}

impl Sizes {
    /// Counts a call.
    pub(super) fn count(&self, asks: usize) {
        let bounds = BatchSizes::BOUNDS;
        let at = bounds.partition_point(|&bound| (bound as usize) < asks).min(bounds.len() - 1);
        self.calls[at].fetch_add(1, Ordering::Relaxed);
        self.asks.fetch_add(asks as u64, Ordering::Relaxed);
    }

    /// What was counted.
    pub(super) fn counted(&self) -> BatchSizes {
        let calls = std::array::from_fn(|at| self.calls[at].load(Ordering::Relaxed));
        BatchSizes { calls, asks: self.asks.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests;
