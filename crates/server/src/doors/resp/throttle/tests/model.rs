//! redis-cell as it computes: slow, obvious, in nanoseconds of 64 bits.

/// One key of redis-cell's: the instant at which it is whole again.
#[derive(Debug, Default)]
pub(super) struct Cell {
    tat_ns: Option<i128>,
}

impl Cell {
    /// `CL.THROTTLE` at an instant, for numbers that redis-cell takes.
    pub(super) fn throttle(
        &mut self,
        now_us: u64,
        [max_burst, count, period, quantity]: [i64; 4],
    ) -> [i64; 5] {
        let now = i128::from(now_us) * 1000;
        let emission = i128::from(period) * 1_000_000_000 / i128::from(count);
        let (tolerance, increment) = (emission * i128::from(max_burst + 1), emission * i128::from(quantity));
        let tat = self.tat_ns.unwrap_or(now);
        let new_tat = tat.max(now) + increment;
        let diff = now - (new_tat - tolerance);
        let mut retry_after = -1_000_000_000;
        let ttl = if diff < 0 {
            if increment <= tolerance {
                retry_after = -diff;
            }
            tat - now
        } else {
            self.tat_ns = Some(new_tat);
            new_tat - now
        };
        // The key has a time to live, and is gone when that is over.
        self.tat_ns = self.tat_ns.filter(|tat| *tat > now);
        let next = tolerance - ttl.max(0);
        let remaining = if next > -emission { next / emission } else { 0 };
        let seconds = |span: i128| span / 1_000_000_000 + i128::from(span % 1_000_000_000 / 1_000_000 > 0);
        let number = |n: i128| i64::try_from(n).unwrap();
        let is_limited = i64::from(diff < 0);
        [
            is_limited,
            max_burst + 1,
            number(remaining),
            number(seconds(retry_after)),
            number(seconds(ttl.max(0))),
        ]
    }
}
