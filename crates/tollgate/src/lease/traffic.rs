//! How much a key is asked for: so many calls, and so many tokens, a quarter of its lease time.
//!
//! A quarter, so that what is taken for one is spent long before the lease ends even if traffic halves,
//! and a hot key still costs a handful of round trips per lease time.

use tollgate_core::units::{Cost, Micros};

/// Quarters in a lease time.
pub(super) const QUARTERS: u64 = 4;

/// Calls in a quarter from which on a key is hot. With fewer, a lease would save next to nothing.
pub(super) const HOT_CALLS: u32 = 4;

/// What was asked in the present quarter, and in the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    start: Micros,
    current: Asked,
    before: Asked,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Asked {
    calls: u32,
    tokens: u32,
    spent: u32,
}

impl Traffic {
    /// Traffic that has just been found to be hot.
    pub(super) fn hot(now: Micros, cost: Cost) -> Traffic {
        let calls = HOT_CALLS.saturating_sub(1);
        let tokens = calls.saturating_mul(cost.get());
        let current = Asked { calls, tokens, spent: tokens };
        Traffic { start: now, current, before: Asked::default() }
    }

    /// Counts a call.
    #[inline]
    pub(super) fn count(&mut self, now: Micros, quarter: Micros, cost: Cost) {
        self.turn(now, quarter);
        self.current.calls = self.current.calls.saturating_add(1);
        self.current.tokens = self.current.tokens.saturating_add(cost.get());
    }

    /// Counts what a call was given.
    #[inline]
    pub(super) fn spent(&mut self, cost: Cost) {
        self.current.spent = self.current.spent.saturating_add(cost.get());
    }

    /// Whether most of what was asked for lately could be given.
    pub(super) fn is_mostly_served(&self) -> bool {
        let (asked, spent) = (
            self.current.tokens.saturating_add(self.before.tokens),
            self.current.spent.saturating_add(self.before.spent),
        );
        spent >= asked / 2
    }

    #[inline]
    fn turn(&mut self, now: Micros, quarter: Micros) {
        let into = now - self.start;
        if into < quarter {
            return;
        }
        let is_next = into < quarter + quarter;
        self.before = if is_next { self.current } else { Asked::default() };
        self.current = Asked::default();
        self.start = if is_next { self.start + quarter } else { now };
    }

    /// Tokens that a quarter takes.
    #[inline]
    pub(super) fn tokens(&self) -> u32 {
        self.current.tokens.max(self.before.tokens)
    }

    /// Whether a lease is worth its while.
    #[inline]
    pub(super) fn is_hot(&self) -> bool {
        self.current.calls.max(self.before.calls) >= HOT_CALLS
    }
}

/// Which keys may be hot, among any number of keys, in a fixed number of cells.
///
/// A key that is asked for often holds its cell against those that are not: every stranger takes one off
/// its count, and only an empty or outlived cell changes hands. Two hot keys on one cell may keep each
/// other cold, which costs round trips and nothing else.
#[derive(Debug)]
pub(super) struct Sketch {
    cells: Box<[Cell]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    tag: u64,
    start: Micros,
    calls: u32,
}

/// Cells of one sketch. With 64 shards, one in 16 thousand keys shares one.
const CELLS: usize = 256;

impl Sketch {
    pub(super) fn new() -> Sketch {
        Sketch { cells: vec![Cell::default(); CELLS].into() }
    }

    /// Counts a call of the key with this hash, and says whether that makes it hot.
    #[inline]
    pub(super) fn is_hot_by(&mut self, hash: [u64; 2], now: Micros, quarter: Micros) -> bool {
        let place = usize::try_from(hash[0] % CELLS as u64).unwrap_or(0);
        let Some(cell) = self.cells.get_mut(place) else { return false };
        let is_over = now - cell.start >= quarter;
        if cell.tag != hash[1] && !is_over && cell.calls > 1 {
            cell.calls -= 1;
            return false;
        }
        if cell.tag != hash[1] || is_over {
            *cell = Cell { tag: hash[1], start: now, calls: 0 };
        }
        cell.calls = cell.calls.saturating_add(1);
        if cell.calls < HOT_CALLS {
            return false;
        }
        *cell = Cell::default();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUARTER: Micros = Micros(1_000);

    #[test]
    fn a_quarter_is_remembered_for_one_more() {
        let mut traffic = Traffic::default();
        let three = Cost::new(3).unwrap();
        for at in 0..10 {
            traffic.count(Micros(5_000 + at), QUARTER, three);
        }
        assert!(traffic.is_hot() && traffic.tokens() == 30);
        traffic.count(Micros(6_500), QUARTER, three);
        assert!(traffic.is_hot() && traffic.tokens() == 30, "{traffic:?}");
        traffic.count(Micros(7_500), QUARTER, three);
        assert!(!traffic.is_hot() && traffic.tokens() == 3, "{traffic:?}");
        traffic.count(Micros(20_000), QUARTER, three);
        assert_eq!(traffic.tokens(), 3);
    }

    #[test]
    fn slow_keys_stay_cold_and_fast_ones_become_hot() {
        let mut sketch = Sketch::new();
        let calls = |sketch: &mut Sketch, every: u64| {
            (0..100).any(|at| sketch.is_hot_by([7, 9], Micros(1_000_000 + at * every), QUARTER))
        };
        assert!(!calls(&mut sketch, 400), "three calls a quarter are too few");
        assert!(calls(&mut Sketch::new(), 200));
    }

    #[test]
    fn a_hot_key_is_found_among_many_cold_ones() {
        let mut sketch = Sketch::new();
        let mut found = false;
        for at in 0..4_000_u64 {
            let now = Micros(1_000_000 + at * 10);
            // Of a hundred calls a quarter, every third is of the one key.
            let hash = if at % 3 == 0 { [7, 9] } else { [at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 3, at] };
            found |= sketch.is_hot_by(hash, now, QUARTER) && hash == [7, 9];
        }
        assert!(found);
    }
}
