use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// Monotonic time, or a length of it, in nanoseconds.
///
/// Sums saturate at [`Nanos::MAX`], which therefore means "never" wherever an instant is expected. Differences
/// saturate at zero: a clock that is read twice on two CPUs may not give a negative interval.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(u64);

impl Nanos {
    /// The origin of time, and the empty interval.
    pub const ZERO: Self = Self(0);
    /// Later than every instant that a machine reaches: "never".
    pub const MAX: Self = Self(u64::MAX);

    /// An instant or interval of `ns` nanoseconds.
    #[must_use]
    pub const fn new(ns: u64) -> Self {
        Self(ns)
    }

    /// `us` microseconds.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// `ms` milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// `s` seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// The number of nanoseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether this is the empty interval.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Prints in the largest unit that keeps the value exact up to three decimals: `1.5ms`, `300us`, `17ns`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MAX {
            return f.pad("never");
        }
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{}ns", self.0),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let whole = self.0 / unit;
        let thousandths = self.0 % unit * 1_000 / unit;
        match thousandths {
            0 => write!(f, "{whole}{name}"),
            t if t % 100 == 0 => write!(f, "{whole}.{}{name}", t / 100),
            t if t % 10 == 0 => write!(f, "{whole}.{:02}{name}", t / 10),
            t => write!(f, "{whole}.{t:03}{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn time_prints_in_the_unit_a_person_would_choose() {
        let shown = |ns: u64| Nanos::new(ns).to_string();
        assert_eq!(shown(17), "17ns");
        assert_eq!(shown(300_000), "300us");
        assert_eq!(shown(1_500_000), "1.5ms");
        assert_eq!(shown(1_050_000), "1.05ms");
        assert_eq!(shown(1_000_001_000), "1s");
        assert_eq!(Nanos::MAX.to_string(), "never");
    }

    #[test]
    fn arithmetic_saturates_at_never_and_at_zero() {
        assert_eq!(Nanos::MAX + Nanos::new(1), Nanos::MAX);
        assert_eq!(Nanos::new(1) - Nanos::new(2), Nanos::ZERO);
    }
}
