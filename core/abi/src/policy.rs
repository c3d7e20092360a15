use core::fmt;

/// A best-effort thread's share: its CPU time relative to its competitors' weights.
///
/// The default is also the reference: a thread of weight 64 ages one virtual nanosecond per nanosecond run, one of
/// weight 128 half a virtual nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Weight(u16);

/// A weight of zero: it would entitle to nothing for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WeightError {
    /// What was asked for.
    pub weight: u64,
}

impl fmt::Display for WeightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weight {} is out of range; choose 1 to {} (default 64)", self.weight, u16::MAX)
    }
}

impl core::error::Error for WeightError {}

impl Weight {
    /// What a thread gets that asks for nothing.
    pub const DEFAULT: Self = Self(64);
    /// The largest.
    pub const MAX: Self = Self(u16::MAX);
    /// The weight at which virtual time passes as fast as real time.
    pub const REFERENCE: Self = Self::DEFAULT;

    /// A weight from 1 to 65535.
    pub const fn new(weight: u64) -> Result<Self, WeightError> {
        if weight >= 1 && weight <= u16::MAX as u64 {
            Ok(Self(weight as u16))
        } else {
            Err(WeightError { weight })
        }
    }

    /// The bare number, never zero.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// How soon a best-effort thread wants to be served. It never changes how much it gets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LatencyClass {
    /// Asks for a quarter of a quantum at a time, so its virtual deadlines come four times as soon.
    Interactive,
    /// Asks for one quantum at a time.
    #[default]
    Normal,
    /// Asks for one quantum at a time, and its wakeups never preempt.
    Batch,
}

/// How best-effort threads are ordered on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// Earliest eligible virtual deadline first (Stoica and Abdel-Wahab 1995).
    #[default]
    Eevdf,
    /// Weighted fair queueing: lowest virtual finish first, eligible or not.
    Wfq,
}
