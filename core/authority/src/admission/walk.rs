//! A walk over the intervals that matter, from the longest down.
//!
//! Let `need(t)` be the time by which all that is due within `t` can be done. It never falls as `t` grows. So where
//! `need(t) <= t`, every interval between `need(t)` and `t` holds as well, and the walk leaps over all of them: quick
//! processor-demand analysis (Zhang and Burns 2009), for every test of this module.
//!
//! Conserved: an interval is leapt over only if it holds.

use super::demand::Task;
use super::effort::Effort;

/// An interval from a common release that ends where more becomes due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Point {
    /// Its length.
    pub at: u64,
    /// What is due in it.
    pub due: u64,
    /// When that can be done at the earliest; anything above `at` if not in time.
    pub need: u64,
}

/// What a walk found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Walk {
    /// Every interval holds; the tightest that was looked at.
    Fits(Option<Point>),
    /// This interval does not hold.
    Excess(Point),
    /// The effort was spent before anything was known.
    Undecided,
}

/// What a walk is to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aim {
    /// Whether all holds.
    Verdict,
    /// That, and the first interval that does not hold, as far as the effort lasts.
    FirstExcess,
}

/// Looks at intervals from `horizon` down. `look` finds the longest interval up to a length that ends where more becomes due;
/// its outer `None` says that the effort is spent.
pub(super) fn walk_back(horizon: u64, aim: Aim, mut look: impl FnMut(u64) -> Option<Option<Point>>) -> Walk {
    let mut tightest: Option<Point> = None;
    let mut excess = None;
    let mut limit = Some(horizon);
    while let Some(at) = limit {
        let point = match look(at) {
            None => return excess.map_or(Walk::Undecided, Walk::Excess),
            Some(None) => break,
            Some(Some(point)) => point,
        };
        if point.need > point.at {
            excess = Some(point);
            if aim == Aim::Verdict {
                break;
            }
            limit = point.at.checked_sub(1);
            continue;
        }
        if tightest.is_none_or(|old| point.at - point.need < old.at - old.need) {
            tightest = Some(point);
        }
        limit = if point.need < point.at { Some(point.need) } else { point.at.checked_sub(1) };
    }
    excess.map_or(Walk::Fits(tightest), Walk::Excess)
}

/// What is due of `tasks` up to `limit` after a common release, and the last time up to then at which some of it became due.
/// The first is zero if the second is `None`.
pub(super) fn due_by(tasks: &[Task], limit: u64) -> (u64, Option<u64>) {
    let mut due: u128 = 0;
    let mut last = None;
    for task in tasks {
        let Some(room) = limit.checked_sub(task.deadline.get()) else { continue };
        let again = room.checked_div(task.period.get()).unwrap_or(0);
        due += (u128::from(again) + 1) * u128::from(task.cost.get());
        last = last.max(Some(task.deadline.get() + again * task.period.get()));
    }
    (narrow(due), last)
}

/// When `work` is done that comes after all of `above`, if all of it begins together and `above` comes as often as it may.
/// A value above `limit` says only that it is not done by then. `None` if the effort is spent.
pub(super) fn done_at(work: u64, above: &[Task], limit: u64, effort: &mut Effort) -> Option<u64> {
    let once: u128 = above.iter().map(|task| u128::from(task.cost.get())).sum();
    let mut at = narrow(u128::from(work) + once);
    while at <= limit {
        effort.look_at(above.len() + 1)?;
        let next = u128::from(work) + released(above, at);
        if next == u128::from(at) {
            break;
        }
        at = narrow(next);
    }
    Some(at)
}

/// The time that `above` leaves to others within `length` of a common release, if it comes as often as it may: the idle time
/// of what goes first. No other pattern of releases leaves less in an interval that begins with none of it pending. At
/// least what is returned, if the effort is spent.
pub(super) fn left_over(above: &[Task], length: u64, effort: &mut Effort) -> u64 {
    let idle_by = |at: u64| u128::from(at).saturating_sub(released(above, at));
    let mut left = narrow(idle_by(length));
    while left < length {
        let more = left + 1;
        let Some(at) = done_at(more, above, length, effort).filter(|at| *at <= length) else { return left };
        // Nothing of `above` is pending then, and it stays so until the next release.
        let next = above.iter().map(|task| at.div_ceil(task.period.get()).saturating_mul(task.period.get()));
        let pause_end = next.min().unwrap_or(u64::MAX).min(length);
        left = narrow(idle_by(pause_end)).max(more);
        if effort.look_at(above.len() + 1).is_none() {
            break;
        }
    }
    left
}

/// What `tasks` release in the first `length` after a common release, its end excluded.
pub(super) fn released(tasks: &[Task], length: u64) -> u128 {
    let of = |task: &Task| u128::from(length.div_ceil(task.period.get())) * u128::from(task.cost.get());
    tasks.iter().map(of).sum()
}

pub(super) fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_abi::Nanos;

    fn task(cost: u64, period: u64) -> Task {
        Task { cost: Nanos::new(cost), deadline: Nanos::new(period), period: Nanos::new(period) }
    }

    #[test]
    fn what_is_left_is_the_idle_time_of_the_work_above() {
        let above = [task(2, 5), task(1, 4)];
        let mut effort = Effort::FULL;
        // Busy in [0,3), [4,7) because of 4 and 5, [8,9), [10,12), [12,13).
        let expected = [0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4];
        for (length, idle) in (1..).zip(expected) {
            assert_eq!(left_over(&above, length, &mut effort), idle, "in {length}");
        }
        assert_eq!(left_over(&[], u64::MAX, &mut effort), u64::MAX);
    }

    #[test]
    fn work_below_is_done_when_that_much_is_left() {
        let above = [task(2, 5), task(1, 4)];
        let mut effort = Effort::FULL;
        for (work, done) in [(1, 4), (2, 8), (3, 10), (4, 14)] {
            assert_eq!(done_at(work, &above, 100, &mut effort), Some(done), "{work}");
        }
        assert!(done_at(4, &above, 13, &mut effort).is_some_and(|at| at > 13), "not by then");
        assert_eq!(done_at(4, &above, 100, &mut Effort::new(2)), None, "the effort is bounded");
    }
}
