//! What the timer and the time stamp counter count, from readings of them beside the PIT. Nothing here touches hardware.

/// Counts per second of the PIT.
pub const PIT_HZ: u64 = 1_193_182;

/// All three clocks read together, and how long that took by the time stamp counter.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Counts of the PIT since it was started.
    pub pit: u64,
    /// The time stamp counter.
    pub stamp: u64,
    /// Counts of the local APIC's timer since it was started.
    pub timer: u64,
    /// How far the readings are apart.
    pub gap: u64,
}

/// One stretch of time on all three clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// How long it was.
    pub nanos: u64,
    /// Counts of the time stamp counter in it.
    pub stamps: u64,
    /// Counts of the timer in it.
    pub timer: u64,
}

impl Measured {
    /// The stretch whose readings are closest together. A host that holds the machine up does not stretch a round, since
    /// its end is read and not waited for; it may come between two readings, so the tightest round counts. None if there
    /// was no round, or no time passed in it.
    pub fn tightest(rounds: impl Iterator<Item = (Sample, Sample)>) -> Option<Self> {
        let (first, last) = rounds.min_by_key(|(first, last)| first.gap.max(last.gap))?;
        let nanos = last.pit.checked_sub(first.pit)? * 1_000_000_000 / PIT_HZ;
        let stamps = last.stamp.checked_sub(first.stamp)?;
        let timer = last.timer.saturating_sub(first.timer);
        (nanos > 0 && stamps > 0).then_some(Self { nanos, stamps, timer })
    }

    /// Timer counts per nanosecond, with 32 binary places; 0 for a timer that stands still.
    #[must_use]
    pub fn timer_scale(self) -> u64 {
        (self.timer << 32) / self.nanos
    }
}

/// Where ticks come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TickSource {
    /// Each CPU's local APIC.
    Lapic,
    /// The PIT, for all of them.
    Pit,
}

impl TickSource {
    /// The local APICs' timers if they can be used, unless the PIT `is_asked_for`. A timer that was not measured, or that
    /// does not count once in a millisecond, cannot be used.
    #[must_use]
    pub fn choose(is_asked_for: bool, timer_scale: u64) -> Self {
        if is_asked_for || counts_per_ms(timer_scale) == 0 { Self::Pit } else { Self::Lapic }
    }
}

/// Counts per millisecond of a timer with this scale.
#[must_use]
pub fn counts_per_ms(timer_scale: u64) -> u64 {
    ((u128::from(timer_scale) * 1_000_000) >> 32) as u64
}
