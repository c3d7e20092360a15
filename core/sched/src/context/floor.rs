//! What best effort keeps, however many contexts there are.
//!
//! The floor is a periodic task: a [share](Floor) of the CPU in every window of [`Floor::PERIOD`], due at the window's end. It
//! competes by deadline in whichever criticality band is first. Windows are aligned: they begin at the multiples of the period.
//!
//! Best effort insists on its floor in a window only if it has been ready since the window began. If it becomes ready later, it
//! insists from the next window on: a claim with a shorter deadline would be more than admission counts the floor as.
//!
//! Everything that best effort runs in a window counts against that window's floor, time that no context wants included. What it
//! ran before the window began does not.
//!
//! Conserved: beside contexts that were admitted, best effort that is ready during a whole window gets its share of it.

use crate::floor::Floor;
use mainspring_abi::Nanos;

/// How many late windows one charge pays for; older ones are forgiven, so that a charge takes bounded time.
const LATE_WINDOWS: usize = 16;

/// The floor of one CPU.
#[derive(Debug)]
pub(crate) struct FloorBudget {
    /// How much of each window; zero if best effort keeps nothing.
    budget: Nanos,
    /// The first window of whose floor something is left.
    window: Nanos,
    /// What is left of it; never zero.
    left: Nanos,
    /// Since when best effort has been ready; `Nanos::MAX` while no such thread is.
    ready_since: Nanos,
}

/// When the window begins that `now` is in.
#[inline]
fn window_of(now: Nanos) -> Nanos {
    Nanos::new(now.get() - now.get() % Floor::PERIOD.get())
}

impl FloorBudget {
    pub(crate) fn new(floor: Floor) -> Self {
        let budget = floor.budget();
        Self { budget, window: Nanos::ZERO, left: budget, ready_since: Nanos::MAX }
    }

    /// A best-effort thread is ready, or none is.
    #[inline]
    pub(crate) fn note_ready(&mut self, now: Nanos, ready: bool) {
        if !ready {
            self.ready_since = Nanos::MAX;
        } else if self.ready_since == Nanos::MAX {
            self.ready_since = now;
        }
    }

    /// Best effort ran for `ran`, since `start`. What it had beyond its floor was free.
    pub(crate) fn charge(&mut self, start: Nanos, ran: Nanos) {
        let Some((mut at, mut left)) = self.pending(self.ready_since.min(start)) else { return };
        let end = start + ran;
        let mut from = start;
        for _ in 0..LATE_WINDOWS {
            from = from.max(at);
            let part = left.min(end - from);
            from += part;
            left = left - part;
            if !left.is_zero() {
                break;
            }
            (at, left) = (at + Floor::PERIOD, self.budget);
        }
        if from < end && at < window_of(end) {
            (at, left) = (window_of(end), self.budget);
        }
        (self.window, self.left) = (at, left);
    }

    /// If best effort may insist at `now`: until when it is due, and how much of it.
    #[inline]
    pub(crate) fn claim(&self, now: Nanos) -> Option<(Nanos, Nanos)> {
        let (at, amount) = self.pending(self.ready_since)?;
        (at <= now).then_some((at + Floor::PERIOD, amount))
    }

    /// Until when best effort, which waits, could insist at `now`.
    #[inline]
    pub(crate) fn due(&self, now: Nanos) -> Option<Nanos> {
        let (at, _) = self.pending(self.ready_since.min(now))?;
        (at <= now).then_some(at + Floor::PERIOD)
    }

    /// When best effort, which waits, may insist next, and until when that is due.
    pub(crate) fn next_claim(&self) -> Option<(Nanos, Nanos)> {
        self.pending(self.ready_since).map(|(at, _)| (at, at + Floor::PERIOD))
    }

    /// The first window whose floor best effort, ready since `since`, has not had, and what it has not had of it. A window that
    /// passed without its floor stays pending, as a late job does.
    #[inline]
    fn pending(&self, since: Nanos) -> Option<(Nanos, Nanos)> {
        if self.budget.is_zero() || since == Nanos::MAX {
            return None;
        }
        let entered = window_of(since + (Floor::PERIOD - Nanos::new(1)));
        let at = self.window.max(entered);
        Some((at, if at == self.window { self.left } else { self.budget }))
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
        assert_eq!(floor.claim(ms(80)), None, "this window's five milliseconds are had");
        assert_eq!(floor.claim(ms(100)), Some((ms(200), ms(5))), "the next window's are not");
    }

    //= OWN:floor.window
    #[test]
    fn time_before_a_window_is_not_charged_to_it() {
        let mut floor = FloorBudget::new(Floor::DEFAULT);
        floor.note_ready(ms(0), true);
        floor.charge(ms(40), ms(60));
        assert_eq!(floor.claim(ms(100)), Some((ms(200), ms(5))), "it ran up to the window, not in it");
        floor.charge(ms(100), ms(3));
        floor.charge(ms(150), ms(52));
        assert_eq!(floor.claim(ms(202)), Some((ms(300), ms(3))), "two milliseconds were in the window");
    }

    #[test]
    fn best_effort_that_comes_late_insists_from_the_next_window_on() {
        let mut floor = FloorBudget::new(Floor::DEFAULT);
        floor.note_ready(ms(90), true);
        assert_eq!(floor.claim(ms(90)), None, "less than a window is left until its end");
        assert_eq!(floor.next_claim(), Some((ms(100), ms(200))));
        assert_eq!(floor.claim(ms(100)), Some((ms(200), ms(5))));
        let mut none = FloorBudget::new(Floor::NONE);
        none.note_ready(ms(0), true);
        assert_eq!((none.claim(ms(90)), none.next_claim()), (None, None));
    }

    #[test]
    fn a_window_that_passed_without_its_floor_stays_due() {
        let mut floor = FloorBudget::new(Floor::DEFAULT);
        floor.note_ready(ms(0), true);
        assert_eq!(floor.claim(ms(250)), Some((ms(100), ms(5))), "nobody served it: it is late, not gone");
        floor.charge(ms(250), ms(5));
        assert_eq!(floor.claim(ms(255)), Some((ms(200), ms(5))), "so is the next");
    }

    #[test]
    fn a_pause_gives_up_the_rest_of_the_window() {
        let mut floor = FloorBudget::new(Floor::DEFAULT);
        floor.note_ready(ms(0), true);
        floor.charge(ms(0), ms(1));
        floor.note_ready(ms(1), false);
        floor.note_ready(ms(60), true);
        assert_eq!(floor.claim(ms(60)), None);
        assert_eq!(floor.claim(ms(100)), Some((ms(200), ms(5))));
    }
}
