//! What best effort keeps, however many contexts there are.
//!
//! The floor is a context of its own: a share of the CPU per [`FLOOR_PERIOD`], due at the end of it, which competes by
//! deadline in whichever band is first. Whatever best effort runs counts against it, also in time that no context wants;
//! so it costs the contexts no more than a task of that budget and period would, which is what admission counts it as.
//!
//! Conserved: best effort that is always ready gets its share of every window of a period, whatever the contexts do.

use super::refill::{MAX_REFILLS, Refills};
use core::fmt;
use mainspring_abi::Nanos;

/// How often the floor is to be had.
pub const FLOOR_PERIOD: Nanos = Nanos::from_millis(100);

/// A part of a CPU, in parts per million.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share(u32);

/// A share out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShareError {
    /// What was asked for, in parts per million.
    pub ppm: u32,
}

impl fmt::Display for ShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a floor of {} parts per million is out of range; choose 0 to {}", self.ppm, Share::MOST)
    }
}

impl core::error::Error for ShareError {}

impl Share {
    /// Nothing: contexts may have the whole CPU.
    pub const NONE: Self = Self(0);
    /// Enough to recover: five percent.
    pub const DEFAULT: Self = Self(50_000);
    /// The most that best effort can be promised.
    pub const MOST: u32 = 500_000;

    /// So many parts per million, up to [`Share::MOST`].
    pub const fn new(ppm: u32) -> Result<Self, ShareError> {
        if ppm <= Self::MOST { Ok(Self(ppm)) } else { Err(ShareError { ppm }) }
    }

    /// In parts per million.
    #[must_use]
    pub const fn ppm(self) -> u32 {
        self.0
    }

    /// The floor's budget in each [`FLOOR_PERIOD`].
    #[must_use]
    pub const fn budget(self) -> Nanos {
        Nanos::new(FLOOR_PERIOD.get() / 1_000_000 * self.0 as u64)
    }
}

/// The floor of one CPU.
#[derive(Debug)]
pub(crate) struct Floor {
    /// `None` if best effort keeps nothing.
    refills: Option<Refills>,
    active: bool,
}

impl Floor {
    pub(crate) fn new(share: Share) -> Self {
        let budget = share.budget();
        let refills =
            (!budget.is_zero()).then(|| Refills::new(budget, FLOOR_PERIOD, MAX_REFILLS, Nanos::ZERO));
        Self { refills, active: false }
    }

    /// Somebody of best effort is ready, or nobody is.
    pub(crate) fn note_ready(&mut self, now: Nanos, ready: bool) {
        let Some(refills) = &mut self.refills else { return };
        match (self.active, ready) {
            (false, true) => refills.resume(now),
            (true, false) => refills.pause(now),
            _ => {}
        }
        self.active = ready;
    }

    /// Best effort ran for `ran`, since `start`. What it had beyond its floor was free.
    pub(crate) fn charge(&mut self, start: Nanos, ran: Nanos) {
        let Some(refills) = &mut self.refills else { return };
        let mut left = ran;
        // Each turn takes a refill that was usable; there are no more than the list holds.
        for _ in 0..MAX_REFILLS {
            let head = refills.head();
            if head.at > start + ran || left.is_zero() {
                return;
            }
            let part = left.min(head.amount);
            refills.charge(part);
            left = left - part;
        }
    }

    /// If best effort may insist at `now`: until when it is due, and how much of it.
    pub(crate) fn claim(&self, now: Nanos) -> Option<(Nanos, Nanos)> {
        let head = self.refills.as_ref()?.head();
        (head.at <= now).then_some((head.at + FLOOR_PERIOD, head.amount))
    }

    /// When best effort may insist next, and until when that is due.
    pub(crate) fn next_claim(&self) -> Option<(Nanos, Nanos)> {
        let head = self.refills.as_ref()?.head();
        Some((head.at, head.at + FLOOR_PERIOD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Nanos {
        Nanos::from_millis(n)
    }

    #[test]
    fn shares_have_bounds() {
        assert_eq!(Share::DEFAULT.budget(), ms(5));
        assert_eq!(Share::new(500_001), Err(ShareError { ppm: 500_001 }));
    }

    #[test]
    fn free_time_is_not_owed() {
        let mut floor = Floor::new(Share::DEFAULT);
        floor.note_ready(ms(0), true);
        floor.charge(ms(0), ms(80));
        assert_eq!(floor.claim(ms(80)), None, "this period's five milliseconds are had");
        assert_eq!(floor.claim(ms(100)), Some((ms(200), ms(5))), "the next period's are not");
    }

    #[test]
    fn who_comes_late_claims_from_then_on() {
        let mut floor = Floor::new(Share::DEFAULT);
        floor.note_ready(ms(90), true);
        assert_eq!(floor.claim(ms(90)), Some((ms(190), ms(5))));
        assert_eq!(Floor::new(Share::NONE).claim(ms(90)), None);
    }
}
