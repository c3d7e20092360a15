//! The arithmetic of the exact schedule.

use std::fmt::Debug;

/// Binary places of [`Number::units`], as many as the core keeps.
const UNIT_BITS: u32 = 20;

/// A quantity of virtual or real time. An implementation with rational numbers gives an exact schedule.
pub trait Number: Clone + Ord + Debug {
    /// `n` nanoseconds.
    fn whole(n: i128) -> Self;
    /// The sum.
    fn plus(&self, other: &Self) -> Self;
    /// The difference.
    fn minus(&self, other: &Self) -> Self;
    /// `self * times / over`.
    fn scaled(&self, times: u64, over: u64) -> Self;
    /// In units of 2^-20 ns, rounded down: the core's resolution.
    fn units(&self) -> i128;

    /// For people.
    fn shown(&self) -> String {
        format!("{:.3}ns", self.units() as f64 / f64::from(1 << UNIT_BITS))
    }
}

/// Fixed point with 56 binary cpus: 36 more than the core has. After a million roundings it is still a million
/// times as exact as the core after one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Wide(i128);

const WIDE_BITS: u32 = 56;

impl Number for Wide {
    fn whole(n: i128) -> Self {
        Self(n << WIDE_BITS)
    }

    fn plus(&self, other: &Self) -> Self {
        Self(self.0 + other.0)
    }

    fn minus(&self, other: &Self) -> Self {
        Self(self.0 - other.0)
    }

    fn scaled(&self, times: u64, over: u64) -> Self {
        let product = self.0.checked_mul(i128::from(times)).expect("lags and weights fit in 128 bits");
        Self(product.div_euclid(i128::from(over)))
    }

    fn units(&self) -> i128 {
        self.0 >> (WIDE_BITS - UNIT_BITS)
    }
}
