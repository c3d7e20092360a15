//! The share of each CPU that best effort keeps.

use core::fmt;
use mainspring_abi::Nanos;

/// The share of a CPU that threads without a context can always use, so that recovery is always possible.
///
/// It competes as a context of its own: a budget of `share * 100 ms` in every 100 ms, due at their end. A floor of zero
/// is no task at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Floor {
    parts_per_million: u32,
}

/// A share above the most that best effort can be promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FloorError {
    /// What was asked for.
    pub parts_per_million: u32,
}

impl fmt::Display for FloorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (asked, most) = (self.parts_per_million, Floor::MOST_PPM);
        write!(f, "a floor of {asked} parts per million is out of range; choose 0 to {most}")
    }
}

impl core::error::Error for FloorError {}

impl Floor {
    /// The floor's period, which is also its deadline.
    pub const PERIOD: Nanos = Nanos::from_millis(100);
    /// Nothing is kept for best effort.
    pub const NONE: Self = Self { parts_per_million: 0 };
    /// 5 %.
    pub const DEFAULT: Self = Self { parts_per_million: 50_000 };

    /// The most that best effort can be promised: half, in millionths.
    pub const MOST_PPM: u32 = 500_000;

    /// A floor of so many millionths of a CPU, up to [`Floor::MOST_PPM`].
    pub const fn from_ppm(parts_per_million: u32) -> Result<Self, FloorError> {
        if parts_per_million <= Self::MOST_PPM {
            Ok(Self { parts_per_million })
        } else {
            Err(FloorError { parts_per_million })
        }
    }

    /// The share, in millionths.
    #[must_use]
    pub const fn ppm(self) -> u32 {
        self.parts_per_million
    }

    /// How much of each period; zero for no floor.
    #[must_use]
    pub const fn budget(self) -> Nanos {
        // A hundred nanoseconds for each millionth of 100 ms.
        Nanos::new(self.parts_per_million as u64 * (Self::PERIOD.get() / 1_000_000))
    }
}

impl Default for Floor {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_floor_is_five_milliseconds_in_a_hundred() {
        assert_eq!(
            (Floor::DEFAULT.budget(), Floor::PERIOD),
            (Nanos::from_millis(5), Nanos::from_millis(100))
        );
        assert_eq!(Floor::NONE.budget(), Nanos::ZERO);
        assert_eq!(Floor::from_ppm(Floor::MOST_PPM).map(Floor::budget), Ok(Nanos::from_millis(50)));
        assert!(Floor::from_ppm(Floor::MOST_PPM + 1).is_err());
    }
}
