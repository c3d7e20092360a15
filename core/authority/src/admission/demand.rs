//! The exact processor-demand test for one CPU.

use core::fmt;
use mainspring_abi::Nanos;
use mainspring_sched::Floor;

/// How many points in time the exact test looks at before it gives up. Sets that need more are refused, as undecided.
const MAX_STEPS: u32 = 1_000_000;

/// A sporadic demand for CPU time: at most `cost` in each `period`, due `deadline` after its release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// CPU time per release.
    pub cost: Nanos,
    /// From release to deadline; at most the period.
    pub deadline: Nanos,
    /// Shortest time between two releases.
    pub period: Nanos,
}

impl Task {
    /// What admission counts for the floor of best effort: its budget in each of its periods, due at their end.
    #[must_use]
    pub fn of_floor(floor: Floor) -> Option<Self> {
        let (cost, period) = (floor.budget(), Floor::PERIOD);
        (!cost.is_zero()).then_some(Self { cost, deadline: period, period })
    }
}

/// Why a set of tasks is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// A task asks for nothing, or its deadline is shorter than its cost or longer than its period.
    Malformed {
        /// Which task.
        task: usize,
    },
    /// More CPU time is asked for, in the long run, than there is.
    Overload,
    /// The first interval in which more is due than fits.
    Demand {
        /// Its length.
        interval: Nanos,
        /// What is due in it.
        due: Nanos,
    },
    /// The test did not come to an end within its bound; nothing is known, so nothing is granted.
    Undecided,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { task } => {
                write!(
                    f,
                    "task {task} needs a cost above zero and at most its deadline, which is at most its period"
                )
            }
            Self::Overload => f.write_str("more CPU time is asked for than there is"),
            Self::Demand { interval, due } => {
                write!(f, "{due} is due within {interval} of a common release: more than fits")
            }
            Self::Undecided => {
                f.write_str("the exact test took too many steps to decide; simplify the periods")
            }
        }
    }
}

impl core::error::Error for Denial {}

/// What was found of a set of tasks on one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every deadline holds. The interval that comes closest, of those looked at, and what is due in it.
    Admitted {
        /// Length of the tightest interval that was looked at; zero if the quick test was enough.
        interval: Nanos,
        /// What is due in it.
        due: Nanos,
    },
    /// Some deadline can be missed, or nothing is known.
    Denied(Denial),
}

/// The work that is released and due within `interval` of a common release of all tasks. A task without a period is
/// released once.
#[must_use]
pub fn demand(tasks: &[Task], interval: Nanos) -> Nanos {
    let of = |task: &Task| {
        if interval < task.deadline {
            return 0;
        }
        let again = (interval - task.deadline).get().checked_div(task.period.get()).unwrap_or(0);
        let releases = u128::from(again) + 1;
        releases * u128::from(task.cost.get())
    };
    narrow(tasks.iter().map(of).sum())
}

/// Judges a set of tasks on one CPU by the exact test.
#[must_use]
pub fn judge(tasks: &[Task]) -> Verdict {
    if let Some(task) = tasks.iter().position(|task| !well_formed(task)) {
        return Verdict::Denied(Denial::Malformed { task });
    }
    if dense_at_most_one(tasks) {
        return Verdict::Admitted { interval: Nanos::ZERO, due: Nanos::ZERO };
    }
    if overloaded(tasks) {
        return Verdict::Denied(Denial::Overload);
    }
    let Some(horizon) = busy_period(tasks) else { return Verdict::Denied(Denial::Undecided) };
    walk_back(tasks, horizon)
}

pub(super) fn well_formed(task: &Task) -> bool {
    !task.cost.is_zero() && task.cost <= task.deadline && task.deadline <= task.period
}

/// Whether the sum of `cost / deadline` is at most one: then every deadline holds, whatever the periods.
fn dense_at_most_one(tasks: &[Task]) -> bool {
    // Rounded up in units of 2^-32, so that the sum errs towards looking closer.
    let density = |task: &Task| (u128::from(task.cost.get()) << 32).div_ceil(u128::from(task.deadline.get()));
    tasks.iter().map(density).sum::<u128>() <= 1 << 32
}

/// Whether utilization exceeds one; exactly, unless it is within rounding of one, which counts as not exceeding: the
/// walk then decides.
pub(super) fn overloaded(tasks: &[Task]) -> bool {
    let utilization = |task: &Task| (u128::from(task.cost.get()) << 64) / u128::from(task.period.get());
    tasks.iter().map(utilization).sum::<u128>() > 1 << 64
}

/// The longest time that the CPU can be busy without a pause, if all tasks are released together as often as they
/// may. No deadline is missed later than its end.
pub(super) fn busy_period(tasks: &[Task]) -> Option<Nanos> {
    let mut length: u128 = tasks.iter().map(|task| u128::from(task.cost.get())).sum();
    for _ in 0..MAX_STEPS {
        let released =
            |task: &Task| length.div_ceil(u128::from(task.period.get())) * u128::from(task.cost.get());
        let next: u128 = tasks.iter().map(released).sum();
        if next == length {
            return u64::try_from(length).ok().map(Nanos::new);
        }
        if next > u128::from(u64::MAX) {
            return None;
        }
        length = next;
    }
    None
}

/// Looks at deadlines from `horizon` backwards, leaping over all for which the demand at a later time speaks already.
fn walk_back(tasks: &[Task], horizon: Nanos) -> Verdict {
    let shortest = tasks.iter().map(|task| task.deadline).min().unwrap_or(Nanos::MAX);
    let mut at = last_deadline_before(tasks, horizon + Nanos::new(1));
    let mut tightest = (Nanos::ZERO, Nanos::ZERO);
    for _ in 0..MAX_STEPS {
        let Some(interval) = at else { break };
        let due = demand(tasks, interval);
        if due > interval {
            return Verdict::Denied(first_excess(tasks, interval));
        }
        if tightest.0.is_zero() || interval - due < tightest.0 - tightest.1 {
            tightest = (interval, due);
        }
        if due <= shortest && due < interval {
            return Verdict::Admitted { interval: tightest.0, due: tightest.1 };
        }
        at = if due < interval { Some(due) } else { last_deadline_before(tasks, interval) };
        if at.is_some_and(|next| next < shortest) {
            return Verdict::Admitted { interval: tightest.0, due: tightest.1 };
        }
    }
    match at {
        None => Verdict::Admitted { interval: tightest.0, due: tightest.1 },
        Some(_) => Verdict::Denied(Denial::Undecided),
    }
}

/// The greatest absolute deadline strictly before `limit`, counted from a common release.
fn last_deadline_before(tasks: &[Task], limit: Nanos) -> Option<Nanos> {
    let of = |task: &Task| {
        let room = limit.get().checked_sub(task.deadline.get() + 1)?;
        Some(task.deadline + Nanos::new(room / task.period.get() * task.period.get()))
    };
    tasks.iter().filter_map(of).max()
}

/// The shortest interval whose demand does not fit; `known` is one.
fn first_excess(tasks: &[Task], known: Nanos) -> Denial {
    let mut worst = known;
    let mut at = Some(known);
    for _ in 0..MAX_STEPS {
        let Some(interval) = at else { break };
        if demand(tasks, interval) > interval {
            worst = interval;
        }
        at = last_deadline_before(tasks, interval);
    }
    Denial::Demand { interval: worst, due: demand(tasks, worst) }
}

fn narrow(value: u128) -> Nanos {
    Nanos::new(u64::try_from(value).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn task(cost: u64, deadline: u64, period: u64) -> Task {
        Task { cost: Nanos::new(cost), deadline: Nanos::new(deadline), period: Nanos::new(period) }
    }

    //= EVO:S6.fail-closed
    #[test]
    fn a_set_denser_than_one_that_fits_is_admitted() {
        // Linux deadline documentation: total density 1.1, yet schedulable.
        let tasks = [task(50, 50, 100), task(10, 100, 100)];
        assert!(matches!(judge(&tasks), Verdict::Admitted { .. }));
    }

    //= EVO:S6.fail-closed
    #[test]
    fn more_work_than_time_is_refused() {
        assert_eq!(judge(&[task(5, 10, 10), task(6, 11, 11)]), Verdict::Denied(Denial::Overload));
    }

    #[test]
    fn the_first_interval_that_does_not_fit_is_named() {
        let tasks = [task(3, 4, 10), task(3, 5, 10)];
        let denial = Denial::Demand { interval: Nanos::new(5), due: Nanos::new(6) };
        assert_eq!(judge(&tasks), Verdict::Denied(denial));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [task(0, 5, 10), task(6, 5, 10), task(5, 11, 10), task(0, 0, 0)] {
            assert_eq!(judge(&[task(1, 5, 10), bad]), Verdict::Denied(Denial::Malformed { task: 1 }));
        }
    }

    /// Every interval up to the hyperperiod plus the longest deadline, one by one.
    fn fits_slowly(tasks: &[Task]) -> bool {
        let gcd = |mut a: u64, mut b: u64| {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let hyperperiod =
            tasks.iter().fold(1, |all, task| all / gcd(all, task.period.get()) * task.period.get());
        let load: u64 = tasks.iter().map(|task| hyperperiod / task.period.get() * task.cost.get()).sum();
        load <= hyperperiod
            && (1..=2 * hyperperiod).all(|length| demand(tasks, Nanos::new(length)) <= Nanos::new(length))
    }

    fn a_task() -> impl Strategy<Value = Task> {
        (prop::sample::select(alloc::vec![4u64, 5, 6, 8, 10, 12, 15, 20]), 1u64..=20, 1u64..=8).prop_map(
            |(period, deadline, cost)| {
                let deadline = deadline.min(period);
                task(cost.min(deadline), deadline, period)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn the_verdict_is_that_of_looking_at_every_interval(tasks in prop::collection::vec(a_task(), 1..6)) {
            let tasks: Vec<Task> = tasks;
            let admitted = matches!(judge(&tasks), Verdict::Admitted { .. });
            prop_assert_eq!(admitted, fits_slowly(&tasks), "{:?}", tasks);
        }
    }
}
