//! The exact processor-demand test for one CPU.

use super::effort::Effort;
use super::walk::{Aim, Point, Walk, due_by, released, walk_back};
use core::fmt;
use mainspring_abi::Nanos;
use mainspring_sched::Floor;

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
    /// The first interval in which more is due than fits; a longer one, if the first was not found within the effort.
    Demand {
        /// Its length.
        interval: Nanos,
        /// What is due in it.
        due: Nanos,
    },
    /// The test did not come to an end within its effort; nothing is known, so nothing is granted.
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
            Self::Undecided => f.write_str(
                "the exact test took too long to decide; choose periods that share a common multiple",
            ),
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
    Nanos::new(due_by(tasks, interval.get()).0)
}

/// Judges a set of tasks on one CPU by the exact test.
#[must_use]
pub fn judge(tasks: &[Task]) -> Verdict {
    judge_within(tasks, Aim::FirstExcess, &mut { Effort::FULL })
}

pub(super) fn judge_within(tasks: &[Task], aim: Aim, effort: &mut Effort) -> Verdict {
    if let Some(task) = tasks.iter().position(|task| !well_formed(task)) {
        return Verdict::Denied(Denial::Malformed { task });
    }
    if dense_at_most_one(tasks) {
        return Verdict::Admitted { interval: Nanos::ZERO, due: Nanos::ZERO };
    }
    if overloaded(tasks) {
        return Verdict::Denied(Denial::Overload);
    }
    let Some(horizon) = horizon(&[], tasks, effort) else { return Verdict::Denied(Denial::Undecided) };
    let look = |limit: u64| {
        effort.look_at(tasks.len())?;
        let (due, last) = due_by(tasks, limit);
        Some(last.map(|at| Point { at, due, need: due }))
    };
    match walk_back(horizon, aim, look) {
        Walk::Fits(tightest) => {
            let (interval, due) = tightest.map_or((0, 0), |point| (point.at, point.due));
            Verdict::Admitted { interval: Nanos::new(interval), due: Nanos::new(due) }
        }
        Walk::Excess(point) => {
            Verdict::Denied(Denial::Demand { interval: Nanos::new(point.at), due: Nanos::new(point.due) })
        }
        Walk::Undecided => Verdict::Denied(Denial::Undecided),
    }
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

/// What a task uses in the long run, in units of 2^-64 of the CPU, rounded down.
pub(super) fn utilization(task: &Task) -> u128 {
    (u128::from(task.cost.get()) << 64).checked_div(u128::from(task.period.get())).unwrap_or(0)
}

/// A whole CPU in the units of [`utilization`].
pub(super) const WHOLE_CPU: u128 = 1 << 64;

/// Whether utilization exceeds one; exactly, unless it is within rounding of one, which counts as not exceeding: the
/// walk then decides.
pub(super) fn overloaded(tasks: &[Task]) -> bool {
    tasks.iter().map(utilization).sum::<u128>() > WHOLE_CPU
}

/// A length such that, if `peers` do not hold by deadline in what `above` leaves, an interval up to it shows that. `None` if
/// none was found within the effort.
///
/// There are two. The busy period: no deadline is missed later than its end. And where the line that the demand stays below
/// crosses the time there is: within `t` at most `cost + t * cost / period` is released of a task, and at most
/// `(t + period - deadline) * cost / period` of it is due.
pub(super) fn horizon(above: &[Task], peers: &[Task], effort: &mut Effort) -> Option<u64> {
    /// After so many rounds the busy period is long, and its rounds many.
    const ROUNDS: u32 = 32;
    let mut busy = BusyPeriod::begin(above, peers);
    let soon = busy.go_on(ROUNDS, effort);
    match (soon, crossing(above, peers)) {
        (Busy::Ends(end), _) => Some(end),
        (Busy::GoesOn, Some(crossing)) => Some(crossing),
        (Busy::GoesOn, None) => busy.go_on(u32::MAX, effort).end(),
        (Busy::Unknown, _) => None,
    }
}

/// Where demand can no longer exceed time, `None` if utilization is within rounding of one.
fn crossing(above: &[Task], peers: &[Task]) -> Option<u64> {
    let all = above.iter().chain(peers);
    let rounded_up = |task: &Task| utilization(task) + 1;
    let free = WHOLE_CPU.checked_sub(all.map(rounded_up).sum()).filter(|free| *free > 0)?;
    let head_start = |task: &Task| {
        let early = u128::from((task.period - task.deadline).get()) * u128::from(task.cost.get());
        early.div_ceil(u128::from(task.period.get()))
    };
    let first: u128 = above.iter().map(|task| u128::from(task.cost.get())).sum();
    let ahead = first + peers.iter().map(head_start).sum::<u128>();
    let scaled = u64::try_from(ahead).ok().map(|ahead| u128::from(ahead) << 64)?;
    u64::try_from(scaled.div_ceil(free)).ok()
}

/// The longest time that the CPU can be busy without a pause, if all tasks are released together as often as they may.
pub(super) fn busy_period(tasks: &[Task], effort: &mut Effort) -> Option<Nanos> {
    BusyPeriod::begin(&[], tasks).go_on(u32::MAX, effort).end().map(Nanos::new)
}

/// A busy period that is being computed: `length` is at most as long as it.
struct BusyPeriod<'a> {
    above: &'a [Task],
    peers: &'a [Task],
    length: u128,
}

impl<'a> BusyPeriod<'a> {
    fn begin(above: &'a [Task], peers: &'a [Task]) -> Self {
        let length = above.iter().chain(peers).map(|task| u128::from(task.cost.get())).sum();
        Self { above, peers, length }
    }

    fn go_on(&mut self, rounds: u32, effort: &mut Effort) -> Busy {
        for _ in 0..rounds {
            let Ok(length) = u64::try_from(self.length) else { return Busy::Unknown };
            if effort.look_at(self.above.len() + self.peers.len() + 1).is_none() {
                return Busy::Unknown;
            }
            let next = released(self.above, length) + released(self.peers, length);
            if next == self.length {
                return Busy::Ends(length);
            }
            self.length = next;
        }
        Busy::GoesOn
    }
}

/// How far the search for the end of a busy period came.
enum Busy {
    /// Here it is.
    Ends(u64),
    /// Not in these rounds.
    GoesOn,
    /// It is beyond all time, or the effort is spent.
    Unknown,
}

impl Busy {
    fn end(self) -> Option<u64> {
        match self {
            Self::Ends(end) => Some(end),
            Self::GoesOn | Self::Unknown => None,
        }
    }
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

    //= EVO:S6.fail-closed TICK:verify.realtime
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
