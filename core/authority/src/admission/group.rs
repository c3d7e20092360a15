//! Tasks that no placement can help.
//!
//! If the tasks that may use a group of CPUs only ask for more, in the long run, than the group has, then no partition of them
//! exists, and no other schedule of them either.

use super::demand::{WHOLE_CPU, utilization};
use super::{Candidate, Task};
use alloc::vec::Vec;
use mainspring_abi::{CpuSet, Nanos};
use mainspring_sched::Floor;

/// How many groups are looked at: the masks that tasks have, in the order of the tasks.
const MOST_GROUPS: usize = 64;

/// The groups of CPUs that are asked for more than they have, each CPU's floor included.
#[must_use]
pub fn overcommitted(candidates: &[Candidate], cpus: &CpuSet, floor: Floor, overhead: Nanos) -> Vec<CpuSet> {
    let with_cost = |task: Task| Task { cost: task.cost + overhead, ..task };
    let mut groups = alloc::vec![*cpus];
    for candidate in candidates {
        let group = candidate.cpus.and(cpus);
        if groups.len() < MOST_GROUPS && !group.is_empty() && !groups.contains(&group) {
            groups.push(group);
        }
    }
    let kept = Task::of_floor(floor).map_or(0, |task| utilization(&with_cost(task)));
    groups.retain(|group| {
        let bound = candidates.iter().filter(|candidate| {
            let allowed = candidate.cpus.and(cpus);
            !allowed.is_empty() && allowed.and(group) == allowed
        });
        let asked: u128 = bound.map(|candidate| utilization(&with_cost(candidate.task))).sum();
        let there = group.len() as u128;
        asked + there * kept > there * WHOLE_CPU
    });
    groups
}
