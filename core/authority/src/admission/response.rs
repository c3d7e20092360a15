//! Worst-case response times under earliest deadline first (Spuri 1996).

use super::demand::{Task, busy_period, well_formed};
use super::effort::Effort;
use super::walk::released;
use alloc::vec::Vec;
use mainspring_abi::Nanos;

/// The longest time from release to completion of task `index`, if `tasks` share one CPU on which all of `above` goes before them.
/// `None` if the CPU is overloaded, a task makes no sense, or the answer takes more than `effort`.
pub(super) fn worst_response(
    above: &[Task],
    tasks: &[Task],
    index: usize,
    effort: &mut Effort,
) -> Option<Nanos> {
    let all: Vec<Task> = above.iter().chain(tasks).copied().collect();
    if !all.iter().all(well_formed) {
        return None;
    }
    let own = tasks.get(index)?;
    let busy = busy_period(&all, effort)?.get();
    let end = busy.checked_add(own.deadline.get())?;
    let mut worst = own.cost.get();
    // The worst release is one at which some task's deadline coincides with the task's own.
    for other in tasks {
        let mut due = Some(other.deadline.get());
        while let Some(at) = due.filter(|at| *at < end) {
            effort.look_at(1)?;
            if let Some(release) = at.checked_sub(own.deadline.get()) {
                worst = worst.max(response_at(above, tasks, index, release, effort)?);
            }
            due = at.checked_add(other.period.get());
        }
    }
    Some(Nanos::new(worst))
}

/// The response of task `index` released `release` into a busy period that begins with all others.
fn response_at(
    above: &[Task],
    tasks: &[Task],
    index: usize,
    release: u64,
    effort: &mut Effort,
) -> Option<u64> {
    let own = &tasks[index];
    let due = release.checked_add(own.deadline.get())?;
    let own_work = u128::from(1 + release / own.period.get()) * u128::from(own.cost.get());
    let mut length = u64::try_from(own_work).ok()?;
    loop {
        effort.look_at(above.len() + tasks.len())?;
        let peers =
            tasks.iter().enumerate().filter(|(other, task)| *other != index && task.deadline.get() <= due);
        let work = |task: &Task| {
            let released = length.div_ceil(task.period.get());
            let due_before = 1 + (due - task.deadline.get()) / task.period.get();
            u128::from(released.min(due_before)) * u128::from(task.cost.get())
        };
        let next = own_work + peers.map(|(_, task)| work(task)).sum::<u128>() + released(above, length);
        if next == u128::from(length) {
            return Some(length.saturating_sub(release).max(own.cost.get()));
        }
        length = u64::try_from(next).ok()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn task(cost: u64, deadline: u64, period: u64) -> Task {
        Task { cost: Nanos::new(cost), deadline: Nanos::new(deadline), period: Nanos::new(period) }
    }

    /// Of a task that no other band goes before.
    fn worst_response_alone(tasks: &[Task], index: usize) -> Option<Nanos> {
        worst_response(&[], tasks, index, &mut { Effort::FULL })
    }

    #[test]
    fn the_published_pair_responds_in_time() {
        let tasks = [task(50, 50, 100), task(10, 100, 100)];
        assert_eq!(worst_response_alone(&tasks, 0), Some(Nanos::new(50)));
        assert_eq!(worst_response_alone(&tasks, 1), Some(Nanos::new(60)));
    }

    #[test]
    fn what_makes_no_sense_has_no_response() {
        assert_eq!(worst_response_alone(&[task(1, 5, 10), task(0, 0, 0)], 0), None);
        assert_eq!(worst_response_alone(&[task(1, 5, 10)], 1), None, "there is no such task");
        assert_eq!(worst_response_alone(&[task(9, 10, 10), task(2, 10, 10)], 0), None, "overloaded");
    }

    /// Runs the set, released together and as often as it may, slot by slot, by earliest deadline; the longest
    /// response of each task. A lower bound on the worst case, which other release patterns may exceed.
    fn simulated(tasks: &[Task], horizon: u64) -> Vec<u64> {
        let mut left: Vec<Vec<(u64, u64)>> = alloc::vec![Vec::new(); tasks.len()];
        let mut worst = alloc::vec![0; tasks.len()];
        for now in 0..horizon {
            for (task, jobs) in tasks.iter().zip(&mut left) {
                if now % task.period.get() == 0 {
                    jobs.push((now, task.cost.get()));
                }
            }
            let due = |index: usize| left[index].first().map(|(at, _)| at + tasks[index].deadline.get());
            let Some(next) = (0..tasks.len()).filter(|i| due(*i).is_some()).min_by_key(|i| due(*i)) else {
                continue;
            };
            left[next][0].1 -= 1;
            if left[next][0].1 == 0 {
                let (at, _) = left[next].remove(0);
                worst[next] = worst[next].max(now + 1 - at);
            }
        }
        worst
    }

    proptest! {
        #[test]
        fn no_run_takes_longer_than_the_worst_case(
            tasks in prop::collection::vec((1u64..4, 4u64..12, prop::sample::select(alloc::vec![12u64, 15, 20])), 1..5)
        ) {
            let tasks: Vec<Task> = tasks.into_iter().map(|(c, d, t)| task(c, d, t)).collect();
            prop_assume!(matches!(crate::admission::judge(&tasks), crate::admission::Verdict::Admitted { .. }));
            for (index, seen) in simulated(&tasks, 240).into_iter().enumerate() {
                let worst = worst_response_alone(&tasks, index).expect("not overloaded");
                prop_assert!(Nanos::new(seen) <= worst, "task {} took {}, worst {}", index, seen, worst);
                prop_assert!(worst <= tasks[index].deadline);
            }
        }
    }
}
