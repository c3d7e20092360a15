//! A whole machine: on which CPU each task goes, and what holds there.
//!
//! Tasks are placed by falling density, each on the first CPU of its mask whose load still holds with it. A task that
//! finds no such CPU is placed last, on the least used CPU of its mask, so that the verdict of that CPU shows what does
//! not fit. A CPU's verdict is exact as [`CpuVerdict`] says; the search for a partition is not exact, unless no task on
//! the CPU could have gone elsewhere.

use super::bands::{Banded, CpuVerdict, Interval, Load, judge_cpu, response_bound};
use super::demand::{Denial, Task};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use mainspring_abi::{CpuId, CpuSet, Nanos};
use mainspring_sched::Floor;

/// A task that asks for a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What to call it.
    pub name: String,
    /// What it asks for.
    pub task: Task,
    /// Its band.
    pub criticality: u8,
    /// Where it may go.
    pub cpus: CpuSet,
}

/// What was found of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuReport {
    /// Which.
    pub cpu: CpuId,
    /// What was found.
    pub verdict: CpuVerdict,
}

/// What was found of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskReport {
    /// Its name.
    pub name: String,
    /// Its home, unless its mask has no CPU of this machine.
    pub cpu: Option<CpuId>,
    /// The longest that it can take from release to completion; a bound if the CPU's test is sufficient only. `None` if
    /// its CPU is overloaded or the answer takes too many steps.
    pub response: Option<Nanos>,
    /// What it must not exceed.
    pub deadline: Nanos,
}

/// Why a machine's tasks are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A task may use no CPU of this machine.
    Nowhere {
        /// Its place in the list.
        task: usize,
    },
    /// A task makes no sense by itself.
    Malformed {
        /// Its place in the list.
        task: usize,
    },
    /// A CPU's load does not hold.
    Cpu {
        /// Which.
        cpu: CpuId,
        /// Why.
        denial: Denial,
        /// The first interval that does not fit, if that is why.
        first_violated: Option<Interval>,
        /// Whether no other partition, and no better test, could have admitted it: releasing everything on the CPU
        /// together is then sure to miss a deadline.
        exact: bool,
    },
}

/// What was found of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Each CPU, ascending.
    pub cpus: Vec<CpuReport>,
    /// Each task, as given.
    pub tasks: Vec<TaskReport>,
    /// Everything that stands against it; empty if it is admitted.
    pub refusals: Vec<Refusal>,
}

impl Survey {
    /// Whether every deadline holds.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.refusals.is_empty()
    }
}

struct CpuLoad {
    cpu: CpuId,
    load: Vec<Banded>,
    /// By place in `load`, the candidate.
    who: Vec<usize>,
}

impl CpuLoad {
    fn verdict(&self, floor: Floor, overhead: Nanos) -> CpuVerdict {
        judge_cpu(&Load { tasks: &self.load, floor: Task::of_floor(floor), interrupts: &[], overhead })
    }

    fn push(&mut self, index: usize, candidate: &Candidate) {
        self.load.push(Banded { task: candidate.task, criticality: candidate.criticality });
        self.who.push(index);
    }

    fn pop(&mut self) {
        self.load.pop();
        self.who.pop();
    }
}

/// Places `candidates` on `cpus`, each of which keeps `floor` for best effort, and says what holds.
#[must_use]
pub fn survey(candidates: &[Candidate], cpus: &CpuSet, floor: Floor, overhead: Nanos) -> Survey {
    let mut places: Vec<CpuLoad> =
        cpus.iter().map(|cpu| CpuLoad { cpu, load: Vec::new(), who: Vec::new() }).collect();
    let (homeless, refusals) = place_all(candidates, &mut places, floor, overhead);
    let mut found = Survey { cpus: Vec::new(), tasks: Vec::new(), refusals };
    for index in homeless {
        let allowed = places.iter_mut().filter(|place| candidates[index].cpus.contains(place.cpu));
        match allowed.min_by_key(|place| (place.verdict(floor, overhead).utilization_ppm, place.cpu)) {
            Some(place) => place.push(index, &candidates[index]),
            None => found.refusals.push(Refusal::Nowhere { task: index }),
        }
    }
    for place in &places {
        let verdict = place.verdict(floor, overhead);
        found.cpus.push(CpuReport { cpu: place.cpu, verdict });
        found.refusals.extend(refusal(place, &verdict, candidates, cpus));
    }
    found.tasks = candidates
        .iter()
        .enumerate()
        .map(|(index, candidate)| {
            let place = places.iter().find(|place| place.who.contains(&index));
            TaskReport {
                name: candidate.name.clone(),
                cpu: place.map(|place| place.cpu),
                response: place.and_then(|place| response(place, index, floor, overhead)),
                deadline: candidate.task.deadline,
            }
        })
        .collect();
    found
}

/// Places the tasks that it can; the others come back, without those that make no sense, which are refusals by
/// themselves.
fn place_all(
    candidates: &[Candidate],
    places: &mut [CpuLoad],
    floor: Floor,
    overhead: Nanos,
) -> (Vec<usize>, Vec<Refusal>) {
    let density = |task: &Task| (u128::from(task.cost.get()) << 32) / u128::from(task.deadline.get().max(1));
    let sensible = |index: &usize| super::demand::well_formed(&candidates[*index].task);
    let (mut order, senseless): (Vec<usize>, Vec<usize>) = (0..candidates.len()).partition(sensible);
    order.sort_by_key(|index| (Reverse(density(&candidates[*index].task)), *index));
    let mut homeless = Vec::new();
    for index in order {
        let candidate = &candidates[index];
        let mut allowed = places.iter_mut().filter(|place| candidate.cpus.contains(place.cpu));
        let fits = allowed.any(|place| {
            place.push(index, candidate);
            let fits = place.verdict(floor, overhead).is_admitted();
            if !fits {
                place.pop();
            }
            fits
        });
        if !fits {
            homeless.push(index);
        }
    }
    (homeless, senseless.into_iter().map(|task| Refusal::Malformed { task }).collect())
}

fn refusal(
    place: &CpuLoad,
    verdict: &CpuVerdict,
    candidates: &[Candidate],
    cpus: &CpuSet,
) -> Option<Refusal> {
    let denial = verdict.denial?.denial;
    let bound = |index: &usize| candidates[*index].cpus.and(cpus).len() == 1;
    let exact = verdict.has_witness() && place.who.iter().all(bound);
    let first_violated = verdict.deciding.filter(|_| matches!(denial, Denial::Demand { .. }));
    Some(Refusal::Cpu { cpu: place.cpu, denial, first_violated, exact })
}

fn response(place: &CpuLoad, index: usize, floor: Floor, overhead: Nanos) -> Option<Nanos> {
    let load = Load { tasks: &place.load, floor: Task::of_floor(floor), interrupts: &[], overhead };
    let own = place.who.iter().position(|who| *who == index)?;
    let bound = response_bound(&load, own)?;
    // What is admitted is never late, even where the bound is not tight.
    let deadline = place.load[own].task.deadline;
    Some(if place.verdict(floor, overhead).is_admitted() { bound.min(deadline) } else { bound })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn candidate(name: &str, criticality: u8, ms: [u64; 3], cpus: CpuSet) -> Candidate {
        let [cost, deadline, period] = ms.map(Nanos::from_millis);
        Candidate { name: name.to_string(), task: Task { cost, deadline, period }, criticality, cpus }
    }

    fn only(cpu: usize) -> CpuSet {
        CpuId::new(cpu).into_iter().collect()
    }

    //= EVO:S6.fail-closed
    #[test]
    fn the_published_pair_is_admitted_with_its_responses() {
        let one = CpuSet::first(1);
        let tasks = [candidate("long", 0, [50, 50, 100], one), candidate("short", 0, [10, 100, 100], one)];
        let found = survey(&tasks, &one, Floor::NONE, Nanos::ZERO);
        assert!(found.is_admitted());
        let responses: Vec<_> = found.tasks.iter().map(|task| task.response).collect();
        assert_eq!(responses, [Some(Nanos::from_millis(50)), Some(Nanos::from_millis(60))]);
    }

    #[test]
    fn a_refused_machine_shows_where_everyone_would_be_and_the_first_interval_that_does_not_fit() {
        let one = CpuSet::first(1);
        let tasks = [
            candidate("a", 0, [3, 4, 10], one),
            candidate("b", 0, [3, 5, 10], one),
            candidate("elsewhere", 0, [1, 5, 10], only(7)),
            candidate("nonsense", 0, [5, 4, 10], one),
        ];
        let found = survey(&tasks, &one, Floor::NONE, Nanos::ZERO);
        let homes: Vec<_> = found.tasks.iter().map(|task| task.cpu).collect();
        assert_eq!(homes, [Some(CpuId::BOOT), Some(CpuId::BOOT), None, None]);
        assert_eq!(found.refusals[..2], [Refusal::Malformed { task: 3 }, Refusal::Nowhere { task: 2 }]);
        let Refusal::Cpu { first_violated: Some(first), exact: true, .. } = found.refusals[2] else {
            panic!("the CPU does not hold: {:?}", found.refusals)
        };
        assert_eq!((first.length, first.demand), (Nanos::from_millis(5), Nanos::from_millis(6)));
    }

    #[test]
    fn who_could_have_gone_elsewhere_makes_a_refusal_inexact() {
        let both = CpuSet::first(2);
        let tasks = [
            candidate("a", 0, [6, 10, 10], both),
            candidate("b", 0, [6, 10, 10], both),
            candidate("c", 0, [6, 10, 10], both),
        ];
        let found = survey(&tasks, &both, Floor::NONE, Nanos::ZERO);
        assert!(matches!(found.refusals[..], [Refusal::Cpu { exact: false, .. }]));
        let bound = tasks.map(|task| Candidate { cpus: only(1), ..task });
        let found = survey(&bound, &both, Floor::NONE, Nanos::ZERO);
        assert!(matches!(found.refusals[..], [Refusal::Cpu { exact: true, .. }]));
    }

    #[test]
    fn the_floor_is_kept_on_every_cpu() {
        let both = CpuSet::first(2);
        let tasks = [candidate("a", 0, [96, 100, 100], only(0)), candidate("b", 0, [95, 100, 100], only(1))];
        let found = survey(&tasks, &both, Floor::DEFAULT, Nanos::ZERO);
        let admitted: Vec<_> = found.cpus.iter().map(|cpu| cpu.verdict.is_admitted()).collect();
        assert_eq!(admitted, [false, true]);
    }

    proptest! {
        #[test]
        fn a_survey_accounts_for_every_task_and_respects_masks(
            tasks in prop::collection::vec((1u64..8, 1u64..30, 0u8..3, 1u8..8), 0..12),
        ) {
            let cpus = CpuSet::first(2);
            let tasks: Vec<Candidate> = tasks
                .into_iter()
                .map(|(cost, period, band, mask)| {
                    let mask = CpuSet::from_bytes(&[mask]).expect("not zero");
                    candidate("t", band, [cost, period, period], mask)
                })
                .collect();
            let found = survey(&tasks, &cpus, Floor::DEFAULT, Nanos::ZERO);
            prop_assert_eq!(found.tasks.len(), tasks.len());
            for (task, report) in tasks.iter().zip(&found.tasks) {
                match report.cpu {
                    Some(cpu) => prop_assert!(task.cpus.contains(cpu) && cpus.contains(cpu)),
                    None => prop_assert!(!found.is_admitted()),
                }
                let full = found.cpus.iter().any(|cpu| cpu.verdict.utilization_ppm >= 1_000_000);
                if found.is_admitted() {
                    // On a CPU that is used wholly a busy period may have no end.
                    prop_assert!(report.response.map_or(full, |response| response <= report.deadline));
                }
            }
            let all_hold = found.cpus.iter().all(|cpu| cpu.verdict.is_admitted());
            prop_assert!(!found.is_admitted() || all_hold);
        }
    }
}
