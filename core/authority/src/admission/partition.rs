//! Several CPUs: each task gets one, and each CPU is tested by itself.
//!
//! Tasks are placed by falling density, each on the first CPU that it may use and whose set still holds with it. A set
//! that fits no way this order finds is refused although another order might have found one: the test of one CPU is
//! exact, the search for a partition is not, and the answer says which.

use super::demand::{Denial, Task, Verdict, judge};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use mainspring_abi::{CpuId, CpuSet};

/// Which CPU each task got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// By task.
    pub cpus: Vec<CpuId>,
}

/// Why a set of tasks found no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionError {
    /// The task that did not fit.
    pub task: usize,
    /// Why the last CPU that it may use refused it; `None` if it may use none.
    pub denial: Option<Denial>,
    /// Whether no partition at all exists, because a single CPU was to be had.
    pub exact: bool,
}

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denial {
            None => write!(f, "task {} may use no CPU of this machine", self.task),
            Some(denial) => {
                write!(f, "task {} fits on no CPU that it may use: {denial}", self.task)?;
                if self.exact { Ok(()) } else { f.write_str(" (another partition may exist)") }
            }
        }
    }
}

impl core::error::Error for PartitionError {}

/// Places every task on one of the CPUs that it may use.
pub fn partition(tasks: &[(Task, CpuSet)], cpus: &CpuSet) -> Result<Assignment, PartitionError> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    let density = |task: &Task| (u128::from(task.cost.get()) << 32) / u128::from(task.deadline.get().max(1));
    order.sort_by_key(|index| (Reverse(density(&tasks[*index].0)), *index));
    let mut sets: Vec<(CpuId, Vec<Task>)> = cpus.iter().map(|cpu| (cpu, Vec::new())).collect();
    let mut placed = alloc::vec![None; tasks.len()];
    for index in order {
        let (task, allowed) = &tasks[index];
        let mut denial = None;
        let mut choices = 0;
        for (cpu, set) in sets.iter_mut().filter(|(cpu, _)| allowed.contains(*cpu)) {
            choices += 1;
            set.push(*task);
            match judge(set) {
                Verdict::Admitted { .. } => {
                    placed[index] = Some(*cpu);
                    break;
                }
                Verdict::Denied(why) => {
                    set.pop();
                    denial = Some(why);
                }
            }
        }
        if placed[index].is_none() {
            return Err(PartitionError { task: index, denial, exact: choices <= 1 && cpus.len() <= 1 });
        }
    }
    Ok(Assignment { cpus: placed.into_iter().flatten().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_abi::Nanos;

    fn task(cost: u64, deadline: u64, period: u64) -> Task {
        Task { cost: Nanos::new(cost), deadline: Nanos::new(deadline), period: Nanos::new(period) }
    }

    #[test]
    fn what_one_cpu_cannot_hold_is_spread_over_two() {
        let both = CpuSet::first(2);
        let tasks = [(task(6, 10, 10), both), (task(6, 10, 10), both), (task(3, 10, 10), both)];
        let found = partition(&tasks, &both).expect("it fits on two");
        assert_ne!(found.cpus[0], found.cpus[1]);
        assert!(partition(&tasks, &CpuSet::first(1)).is_err());
    }

    #[test]
    fn a_mask_is_kept_and_an_empty_choice_is_named() {
        let second: CpuSet = CpuId::new(1).into_iter().collect();
        let tasks = [(task(6, 10, 10), second), (task(6, 10, 10), second)];
        let error = partition(&tasks, &CpuSet::first(2)).expect_err("both want CPU 1");
        assert_eq!((error.task, error.denial), (1, Some(Denial::Overload)));
        let error = partition(&tasks, &CpuSet::first(1)).expect_err("CPU 1 is not there");
        assert_eq!(error.denial, None);
    }
}
