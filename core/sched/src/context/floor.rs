//! What best effort keeps, however many contexts there are.
//!
//! The floor is a context of its own: a [share](Floor) of the CPU per [`Floor::PERIOD`], due at the end of it, which competes by
//! deadline in whichever band is first. Whatever best effort runs counts against it, also in time that no context wants;
//! so it costs the contexts no more than a task of that budget and period would, which is what admission counts it as.
//!
//! Conserved: best effort that is always ready gets its share of every window of a period, whatever the contexts do.

use super::refill::{MAX_REFILLS, Refills};
use crate::admission::Floor;
use mainspring_abi::Nanos;

/// The floor of one CPU.
#[derive(Debug)]
pub(crate) struct FloorBudget {
    /// `None` if best effort keeps nothing.
    refills: Option<Refills>,
    active: bool,
}

impl FloorBudget {
    pub(crate) fn new(floor: Floor) -> Self {
        let refills = floor.task().map(|task| Refills::new(task.cost, task.period, MAX_REFILLS, Nanos::ZERO));
        Self { refills, active: false }
    }

    /// Somebody of best effort is ready, or nobody is.
    #[inline]
    pub(crate) fn note_ready(&mut self, now: Nanos, ready: bool) {
        if self.active != ready {
            self.change_ready(now, ready);
        }
    }

    fn change_ready(&mut self, now: Nanos, ready: bool) {
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
        (head.at <= now).then_some((head.at + Floor::PERIOD, head.amount))
    }

    /// Until when best effort, which waits, could insist at `now`.
    pub(crate) fn due(&self, now: Nanos) -> Option<Nanos> {
        let at = self.refills.as_ref()?.head().at;
        let release = if self.active { at } else { at.max(now) };
        (release <= now).then_some(release + Floor::PERIOD)
    }

    /// When best effort may insist next, and until when that is due.
    pub(crate) fn next_claim(&self) -> Option<(Nanos, Nanos)> {
        let head = self.refills.as_ref()?.head();
        Some((head.at, head.at + Floor::PERIOD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Nanos {
        Nanos::from_millis(n)
    }

    #[test]
    fn free_time_is_not_owed() {
        let mut floor = FloorBudget::new(Floor::DEFAULT);
        floor.note_ready(ms(0), true);
        floor.charge(ms(0), ms(80));
        assert_eq!(floor.claim(ms(80)), None, "this period's five milliseconds are had");
        assert_eq!(floor.claim(ms(100)), Some((ms(200), ms(5))), "the next period's are not");
    }

    #[test]
    fn who_comes_late_claims_from_then_on() {
        let mut floor = FloorBudget::new(Floor::DEFAULT);
        floor.note_ready(ms(90), true);
        assert_eq!(floor.claim(ms(90)), Some((ms(190), ms(5))));
        assert_eq!(FloorBudget::new(Floor::NONE).claim(ms(90)), None);
    }
}
