//! What a state was written under, as far as it matters later; interned, because a thousand keys
//! share one limit.
//!
//! A bucket is read by the numbers that wrote it (a changed limit carries its tokens over), so its
//! shape is the whole limit. A counter only needs to know when its window has passed.

use std::collections::HashMap;

use tollgate_core::algorithm::{Algorithm, TokenBucket, fixed_window, sliding_window, token_bucket};
use tollgate_core::decision::{Refunded, Step, Take, Verb};
use tollgate_core::units::{Cost, Micros};

/// What a state was written under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// The bucket's numbers.
    TokenBucket(TokenBucket),
    /// How long the counted window lasts.
    FixedWindow(Micros),
    /// How long each of the two windows lasts.
    SlidingWindow(Micros),
}

/// The state of one key, in the form a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// What it was written under.
    pub(super) shape: Shape,
    /// A bucket's last refill; where a counted window begins.
    pub(super) anchor: Micros,
    /// A bucket's units; a window's count, with the one before in the upper half.
    pub(super) word: u64,
}

impl Held {
    /// Whether forgetting this state at `now` changes nothing, because the limit is whole again.
    ///
    /// Counters of a sliding window are kept for the whole of the next one, which is a little
    /// longer than their last share counts.
    #[inline]
    pub(super) fn is_whole(&self, now: Micros) -> bool {
        let Held { ref shape, anchor, word } = *self;
        match shape {
            Shape::TokenBucket(under) => {
                is_full(&token_bucket::State { units: word, last_refill: anchor, under: *under }, now)
            }
            Shape::FixedWindow(span) => word == 0 || now >= anchor + *span,
            Shape::SlidingWindow(span) => word == 0 || now >= anchor + *span + *span,
        }
    }

    #[inline]
    fn of_bucket(state: &token_bucket::State) -> Held {
        Held { shape: Shape::TokenBucket(state.under), anchor: state.last_refill, word: state.units }
    }

    #[inline]
    fn as_bucket(&self) -> Option<token_bucket::State> {
        match self.shape {
            Shape::TokenBucket(under) => {
                Some(token_bucket::State { units: self.word, last_refill: self.anchor, under })
            }
            _ => None,
        }
    }

    fn of_fixed(state: &fixed_window::State, end: Micros) -> Held {
        Held {
            shape: Shape::FixedWindow(end - state.start),
            anchor: state.start,
            word: u64::from(state.count),
        }
    }

    fn as_fixed(&self) -> Option<fixed_window::State> {
        matches!(self.shape, Shape::FixedWindow(_))
            .then(|| fixed_window::State { start: self.anchor, count: low(self.word) })
    }

    fn of_sliding(state: &sliding_window::State, span: Micros) -> Held {
        Held {
            shape: Shape::SlidingWindow(span),
            anchor: state.start,
            word: u64::from(state.current) | u64::from(state.previous) << 32,
        }
    }

    fn as_sliding(&self) -> Option<sliding_window::State> {
        matches!(self.shape, Shape::SlidingWindow(_)).then(|| sliding_window::State {
            start: self.anchor,
            current: low(self.word),
            previous: low(self.word >> 32),
        })
    }
}

/// Whether a bucket has filled up by `now`.
#[inline]
pub(super) fn is_full(state: &token_bucket::State, now: Micros) -> bool {
    let token_bucket::State { units, last_refill, under } = state;
    let poured = (now - *last_refill).0.saturating_mul(u64::from(under.pour()));
    units.saturating_add(poured) >= under.unit() * u64::from(under.capacity())
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is asked for")]
fn low(word: u64) -> u32 {
    word as u32
}

/// Decides one visit; `None` for a sliding log, whose state fits no slot.
///
/// hot path: no allocation, no clock.
#[inline]
pub(super) fn visit(
    algorithm: &Algorithm,
    held: Option<&Held>,
    now: Micros,
    cost: Cost,
    verb: Verb,
) -> Option<Step<Held>> {
    Some(match algorithm {
        Algorithm::TokenBucket(bucket) => {
            let state = held.and_then(Held::as_bucket);
            let Step { decision, spend, mend } = token_bucket::visit(bucket, state.as_ref(), now, cost, verb);
            let held = |state: token_bucket::State| Held::of_bucket(&state);
            Step { decision, spend: spend.map(held), mend: mend.map(held) }
        }
        Algorithm::FixedWindow(fixed) => {
            let state = held.and_then(Held::as_fixed);
            let Step { decision, spend, mend } = fixed_window::visit(fixed, state.as_ref(), now, cost, verb);
            // Where something is counted, the window ends when the limit is whole again. That
            // spares asking a calendar twice.
            let held = |state| Held::of_fixed(&state, now + decision.reset_after);
            Step { decision, spend: spend.map(held), mend: mend.map(held) }
        }
        Algorithm::SlidingWindow(sliding) => {
            let state = held.and_then(Held::as_sliding);
            let Step { decision, spend, mend } =
                sliding_window::visit(sliding, state.as_ref(), now, cost, verb);
            let held = |state| Held::of_sliding(&state, sliding.span());
            Step { decision, spend: spend.map(held), mend: mend.map(held) }
        }
        Algorithm::SlidingLog(_) => return None,
    })
}

/// Undoes one take; `None` for a sliding log.
pub(super) fn refund(
    algorithm: &Algorithm,
    held: Option<&Held>,
    now: Micros,
    cost: Cost,
    take: Take,
) -> Option<(Refunded, Option<Held>)> {
    Some(match algorithm {
        Algorithm::TokenBucket(bucket) => {
            let state = held.and_then(Held::as_bucket);
            let (refunded, write) = token_bucket::refund(bucket, state.as_ref(), now, cost, take.at);
            (refunded, write.map(|state| Held::of_bucket(&state)))
        }
        Algorithm::FixedWindow(fixed) => {
            let state = held.and_then(Held::as_fixed);
            let (refunded, write) = fixed_window::refund(fixed, state.as_ref(), now, cost, take.at);
            (refunded, write.map(|state| Held::of_fixed(&state, fixed.windows().window_of(state.start).end)))
        }
        Algorithm::SlidingWindow(sliding) => {
            let state = held.and_then(Held::as_sliding);
            let (refunded, write) = sliding_window::refund(sliding, state.as_ref(), now, cost, take.at);
            (refunded, write.map(|state| Held::of_sliding(&state, sliding.span())))
        }
        Algorithm::SlidingLog(_) => return None,
    })
}

/// The shapes of one shard, by small numbers, with how many slots use each.
///
/// A shard has fewer slots than numbers, so there is always a number for one shape more.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    /// The last one asked for: nearly always the next one too.
    recent: Option<(u16, Shape)>,
    list: Vec<(Shape, u32)>,
    free: Vec<u16>,
    index: HashMap<Shape, u16>,
}

impl Shapes {
    /// The most slots a shard may have.
    pub(super) const SLOTS_MAX: usize = 1 << 15;

    /// The shape behind a number.
    #[inline]
    pub(super) fn shape(&self, id: u16) -> &Shape {
        match &self.recent {
            Some((recent, shape)) if *recent == id => shape,
            _ => &self.list[usize::from(id)].0,
        }
    }

    /// The number of a shape that takes another's place in one slot.
    #[cold]
    pub(super) fn replace(&mut self, id: u16, shape: Shape) -> u16 {
        let new = self.acquire(shape);
        self.release(id);
        new
    }

    /// The number of a shape, counting one slot more that uses it.
    pub(super) fn acquire(&mut self, shape: Shape) -> u16 {
        let id = match self.recent {
            Some((id, recent)) if recent == shape => id,
            _ => self.intern(shape),
        };
        self.list[usize::from(id)].1 += 1;
        id
    }

    /// Counts one slot less. The number stays until room is needed: limits come back.
    pub(super) fn release(&mut self, id: u16) {
        self.list[usize::from(id)].1 -= 1;
    }

    fn intern(&mut self, shape: Shape) -> u16 {
        let id = self.index.get(&shape).copied().unwrap_or_else(|| self.add(shape));
        self.recent = Some((id, shape));
        id
    }

    fn add(&mut self, shape: Shape) -> u16 {
        let is_packed = self.list.len() == self.list.capacity() || self.list.len() > usize::from(u16::MAX);
        if self.free.is_empty() && is_packed {
            self.purge();
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.list.push((shape, 0));
            u16::try_from(self.list.len() - 1).expect("fewer slots than numbers, and unused ones are purged")
        });
        self.list[usize::from(id)] = (shape, 0);
        self.index.insert(shape, id);
        id
    }

    /// Takes back the numbers no slot uses. Called when the list would grow, so that its cost is
    /// spread over as many additions.
    fn purge(&mut self) {
        let Shapes { recent, list, free, index } = self;
        *recent = None;
        index.retain(|_, id| {
            let is_used = list[usize::from(*id)].1 > 0;
            if !is_used {
                free.push(*id);
            }
            is_used
        });
        if free.len() < list.len() / 4 {
            list.reserve(list.len());
        }
    }
}
