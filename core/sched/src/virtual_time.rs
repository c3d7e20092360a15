//! Virtual time: the scale on which threads of different weight are compared.
//!
//! A thread of the reference weight ages one virtual nanosecond per nanosecond of service; one of twice the weight
//! ages half as fast. Values are fixed-point with [`FRACTION_BITS`] binary places, so that rounding stays far below
//! anything a decision depends on.
//!
//! The scale wraps. Two instants are compared by their signed distance, which is right as long as they are less
//! than half the range apart: 2^43 virtual nanoseconds, 137 s of service at weight 1. Live tags lie within a few
//! requests of their queue's clock, and a request is at most [`MAX_REQUEST`].

use crate::fair::MAX_REQUEST;
use crate::hint::likely;
use core::ops::Add;
use mainspring_abi::{Nanos, Weight};

/// Binary places of a virtual nanosecond.
pub const FRACTION_BITS: u32 = 20;

/// Virtual units that one nanosecond adds to a thread of weight 1.
pub(crate) const UNITS_AT_WEIGHT_ONE: u64 = (Weight::REFERENCE.get() as u64) << FRACTION_BITS;

/// Service below two to this many nanoseconds, times [`UNITS_AT_WEIGHT_ONE`], stays below 2^62, so that 64-bit
/// division does.
pub(crate) const NARROW_BITS: u32 = 36;
const NARROW_SERVICE: u64 = 1 << NARROW_BITS;

const _: () = assert!(UNITS_AT_WEIGHT_ONE << NARROW_BITS <= 1 << 62);

const _: () = assert!(MAX_REQUEST.get() < NARROW_SERVICE);

/// An instant on one queue's virtual clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VirtualTime(pub(crate) u64);

impl VirtualTime {
    pub(crate) const ZERO: Self = Self(0);

    /// Signed distance from `other` to `self`, in fixed-point units.
    #[must_use]
    pub const fn since(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }

    /// Whether `self` comes strictly before `other`.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.since(other) < 0
    }

    pub(crate) const fn plus(self, span: u64) -> Self {
        Self(self.0.wrapping_add(span))
    }

    pub(crate) const fn minus(self, span: u64) -> Self {
        Self(self.0.wrapping_sub(span))
    }

    pub(crate) const fn offset(self, units: i64) -> Self {
        Self(self.0.wrapping_add(units as u64))
    }

    pub(crate) const fn earlier(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }

    pub(crate) const fn later(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }
}

/// How far `service` moves a thread of `weight` along the virtual scale.
#[inline(always)]
pub(crate) fn span(service: Nanos, weight: Weight) -> u64 {
    let weight = u64::from(weight.get());
    if likely(service.get() < NARROW_SERVICE) {
        let units = service.get() * UNITS_AT_WEIGHT_ONE;
        // Most weights are powers of two, and a shift takes a tenth of the time of a division.
        if likely(weight & (weight - 1) == 0) { units >> weight.trailing_zeros() } else { units / weight }
    } else {
        // Only an interval of minutes gets here: a lone thread that nothing ever stopped.
        (u128::from(service.get()) * u128::from(UNITS_AT_WEIGHT_ONE) / u128::from(weight)) as u64
    }
}

/// Service that a thread is owed (positive) or has had in advance (negative), in nanoseconds with
/// [`FRACTION_BITS`] binary places. Unlike a virtual instant it means the same on every queue and at every weight,
/// so it is what travels with a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Lag(i64);

impl Lag {
    /// Neither owed nor owing.
    pub const ZERO: Self = Self(0);

    pub(crate) const fn from_units(units: i64) -> Self {
        Self(units)
    }

    pub(crate) const fn units(self) -> i64 {
        self.0
    }

    /// The lag of a thread of `weight` that stands at `position` while its queue's clock shows `clock`.
    #[inline]
    pub(crate) fn between(clock: VirtualTime, position: VirtualTime, weight: Weight) -> Self {
        let (distance, weight) = (clock.since(position), i64::from(weight.get()));
        if let Some(service) = distance.checked_mul(weight) {
            return Self(service / i64::from(Weight::REFERENCE.get()));
        }
        let service = i128::from(distance) * i128::from(weight);
        Self((service / i128::from(Weight::REFERENCE.get())) as i64)
    }

    /// Where a thread of `weight` with this lag stands while its queue's clock shows `clock`.
    pub(crate) fn position(self, clock: VirtualTime, weight: Weight) -> VirtualTime {
        let distance = i128::from(self.0) * i128::from(Weight::REFERENCE.get()) / i128::from(weight.get());
        clock.offset(-(distance as i64))
    }

    /// What is left when credit is given up: a debt stays.
    #[must_use]
    pub const fn debt_only(self) -> Self {
        if self.0 > 0 { Self::ZERO } else { self }
    }

    /// Its size, as if it were owed.
    #[must_use]
    pub const fn abs(self) -> Self {
        Self(self.0.saturating_abs())
    }

    /// Whole nanoseconds, towards zero; positive means owed.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0 / (1 << FRACTION_BITS)
    }

    /// Size in nanoseconds, rounded up, so that a bound on it is a bound on the exact value.
    #[must_use]
    pub const fn magnitude(self) -> Nanos {
        Nanos::new(self.0.unsigned_abs().div_ceil(1 << FRACTION_BITS))
    }
}

impl Add for Lag {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(w: u64) -> Weight {
        Weight::new(w).expect("test weights are valid")
    }

    //= ARCH:acct.core-fields EVO:S3.weights
    #[test]
    fn twice_the_weight_ages_half_as_fast() {
        let ms = Nanos::from_millis(1);
        assert_eq!(span(ms, weight(64)), 1_000_000 << FRACTION_BITS);
        assert_eq!(span(ms, weight(128)), 500_000 << FRACTION_BITS);
        assert_eq!(span(ms, weight(1)), 64_000_000 << FRACTION_BITS);
    }

    #[test]
    fn long_intervals_take_the_wide_path_and_agree_with_the_narrow_one() {
        for w in [1, 7, 64, 65_535] {
            let edge = Nanos::new(NARROW_SERVICE);
            let below = span(Nanos::new(NARROW_SERVICE - 1), weight(w));
            let step = span(Nanos::new(1), weight(w));
            assert!(span(edge, weight(w)) - below <= step + 1);
        }
    }

    #[test]
    fn order_survives_the_wrap() {
        let before = VirtualTime(u64::MAX - 5);
        let after = before.plus(10);
        assert!(before.is_before(after));
        assert_eq!(after.since(before), 10);
        assert_eq!(before.earlier(after), before);
        assert_eq!(before.later(after), after);
    }

    #[test]
    fn lag_survives_the_trip_through_a_position() {
        for units in [-5_000_000_000_000i64, -1, 0, 1, 77_000_000_000] {
            let lag = Lag::from_units(units);
            let clock = VirtualTime(u64::MAX / 3);
            let back = Lag::between(clock, lag.position(clock, weight(96)), weight(96));
            assert!((back.units() - units).abs() <= 2, "{units} came back as {}", back.units());
        }
    }
}
