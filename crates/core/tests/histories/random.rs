//! Numbers that look random and come from a seed alone.

/// SplitMix64: one addition and a mix, and any seed will do.
#[derive(Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        let choices = u128::from(high - low + 1);
        low + u64::try_from((u128::from(self.next()) * choices) >> 64).expect("less than the choices")
    }

    pub(crate) fn count(&mut self, low: u32, high: u32) -> u32 {
        u32::try_from(self.between(u64::from(low), u64::from(high))).expect("at most a u32")
    }

    /// From 1 to `high`, every magnitude as likely as any other.
    pub(crate) fn magnitude(&mut self, high: u64) -> u64 {
        let bits = self.between(0, u64::from(high.ilog2()));
        self.between(1 << bits, ((1 << bits) * 2 - 1).min(high))
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.between(1, n) == 1
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let index = self.between(0, choices.len() as u64 - 1);
        choices[usize::try_from(index).expect("an index")]
    }
}
