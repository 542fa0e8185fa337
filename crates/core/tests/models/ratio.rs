//! Exact fractions, as many as the models need.

use std::cmp::Ordering;
use std::ops::{Add, Div, Mul, Sub};

/// A fraction in lowest terms, not negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ratio {
    over: u128,
    under: u128,
}

impl Ratio {
    pub(crate) fn new(over: u128, under: u128) -> Ratio {
        let common = gcd(over, under);
        Ratio { over: over / common, under: under / common }
    }

    pub(crate) fn whole(number: u128) -> Ratio {
        Ratio { over: number, under: 1 }
    }

    pub(crate) fn floor(self) -> u128 {
        self.over / self.under
    }

    /// Rounded down to a multiple of the smallest part `grain` is made of.
    pub(crate) fn floor_to_parts_of(self, grain: Ratio) -> Ratio {
        let whole = self.floor();
        let rest = self - Ratio::whole(whole);
        let parts = (rest * Ratio::whole(grain.under)).floor();
        Ratio::whole(whole) + Ratio::new(parts, grain.under)
    }

    pub(crate) fn ceil(self) -> u128 {
        self.over.div_ceil(self.under)
    }
}

impl Add for Ratio {
    type Output = Ratio;
    fn add(self, other: Ratio) -> Ratio {
        Ratio::new(
            times(self.over, other.under) + times(other.over, self.under),
            times(self.under, other.under),
        )
    }
}

impl Sub for Ratio {
    type Output = Ratio;
    fn sub(self, other: Ratio) -> Ratio {
        Ratio::new(
            times(self.over, other.under) - times(other.over, self.under),
            times(self.under, other.under),
        )
    }
}

impl Mul for Ratio {
    type Output = Ratio;
    fn mul(self, other: Ratio) -> Ratio {
        Ratio::new(times(self.over, other.over), times(self.under, other.under))
    }
}

impl Div for Ratio {
    type Output = Ratio;
    fn div(self, other: Ratio) -> Ratio {
        Ratio::new(times(self.over, other.under), times(self.under, other.over))
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Ratio) -> Ordering {
        times(self.over, other.under).cmp(&times(other.over, self.under))
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Ratio) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn times(a: u128, b: u128) -> u128 {
    a.checked_mul(b).expect("the models' fractions fit into 128 bits")
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = match (u64::try_from(a), u64::try_from(b)) {
            // Many times faster than dividing 128 bits.
            (Ok(a), Ok(b)) => (u128::from(b), u128::from(a % b)),
            _ => (b, a % b),
        };
    }
    a
}
