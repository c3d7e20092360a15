//! A whole machine: on which CPU each task goes, and what holds there.
//!
//! Tasks are placed by falling density, each on the first CPU of its mask whose load still holds with it. A task that
//! finds no such CPU is placed last, on the least used CPU of its mask, so that the verdict of that CPU shows what does
//! not fit. A CPU's verdict is exact as [`CpuVerdict`] says. The search for a partition is not exact, unless no task on
//! the CPU could have gone elsewhere, or the CPU is of a group that is asked for more than all of it.

use super::bands::{CpuVerdict, Interval};
use super::demand::{Denial, Task};
use super::effort::Effort;
use super::group::overcommitted;
use super::placement::{CpuLoad, Terms, place_all};
use alloc::string::String;
use alloc::vec::Vec;
use mainspring_abi::{CpuId, CpuSet, Nanos};
use mainspring_sched::Floor;

/// What the search for a partition may cost in all.
const SEARCH: Effort = Effort::new(1 << 27);

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
        /// Whether no other partition, and no better test, could have admitted everything.
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

/// Places `candidates` on `cpus` and says what holds. Each CPU keeps `floor` for best effort.
#[must_use]
pub fn survey(candidates: &[Candidate], cpus: &CpuSet, floor: Floor, overhead: Nanos) -> Survey {
    let terms = Terms { floor, overhead };
    let mut places: Vec<CpuLoad> = cpus.iter().map(|cpu| CpuLoad::new(cpu, terms)).collect();
    let (unplaced, senseless) = place_all(candidates, &mut places, &mut { SEARCH });
    let mut refusals: Vec<Refusal> = senseless.into_iter().map(|task| Refusal::Malformed { task }).collect();
    for index in unplaced {
        let allowed = places.iter_mut().filter(|place| candidates[index].cpus.contains(place.cpu));
        match allowed.min_by_key(|place| (place.utilization_ppm(), place.cpu)) {
            Some(place) => place.push(index, &candidates[index]),
            None => refusals.push(Refusal::Nowhere { task: index }),
        }
    }
    let verdicts: Vec<CpuVerdict> = places.iter().map(|place| place.verdict(&mut { Effort::FULL })).collect();
    if verdicts.iter().any(|verdict| !verdict.is_admitted()) {
        let hopeless = overcommitted(candidates, cpus, floor, overhead);
        let refused = places.iter().zip(&verdicts);
        refusals.extend(
            refused.filter_map(|(place, verdict)| refusal(place, verdict, candidates, cpus, &hopeless)),
        );
    }
    let mut homes = alloc::vec![None; candidates.len()];
    for place in &places {
        for index in &place.who {
            homes[*index] = Some(place.cpu);
        }
    }
    let reports = places.iter().zip(verdicts).map(|(place, verdict)| CpuReport { cpu: place.cpu, verdict });
    let tasks = candidates.iter().zip(homes);
    Survey {
        cpus: reports.collect(),
        tasks: tasks.map(|(candidate, cpu)| TaskReport { name: candidate.name.clone(), cpu }).collect(),
        refusals,
    }
}

fn refusal(
    place: &CpuLoad,
    verdict: &CpuVerdict,
    candidates: &[Candidate],
    cpus: &CpuSet,
    hopeless: &[CpuSet],
) -> Option<Refusal> {
    let denial = verdict.denial?.denial;
    let bound = |index: &usize| candidates[*index].cpus.and(cpus).len() == 1;
    let alone = verdict.has_witness() && place.who.iter().all(bound);
    let exact = alone || hopeless.iter().any(|group| group.contains(place.cpu));
    let first_violated = verdict.deciding.filter(|_| matches!(denial, Denial::Demand { .. }));
    Some(Refusal::Cpu { cpu: place.cpu, denial, first_violated, exact })
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
    fn the_published_pair_is_admitted() {
        let one = CpuSet::first(1);
        let tasks = [candidate("long", 0, [50, 50, 100], one), candidate("short", 0, [10, 100, 100], one)];
        let found = survey(&tasks, &one, Floor::NONE, Nanos::ZERO);
        assert!(found.is_admitted());
        assert!(found.tasks.iter().all(|task| task.cpu == Some(CpuId::BOOT)));
    }

    #[test]
    fn a_group_that_is_asked_for_more_than_all_of_it_is_refused_as_exact() {
        // 2.05 of two CPUs: no partition can help, though each task could have gone to either.
        let both = CpuSet::first(2);
        let tasks: Vec<Candidate> = (0..5).map(|_| candidate("t", 0, [41, 100, 100], both)).collect();
        let found = survey(&tasks, &both, Floor::NONE, Nanos::ZERO);
        assert!(!found.refusals.is_empty());
        assert!(found.refusals.iter().all(|refusal| matches!(refusal, Refusal::Cpu { exact: true, .. })));
        // 1.8 of two: a partition in whole tasks does not exist either, but that is not what was shown.
        let tasks: Vec<Candidate> = (0..3).map(|_| candidate("t", 0, [60, 100, 100], both)).collect();
        let found = survey(&tasks, &both, Floor::NONE, Nanos::ZERO);
        assert!(matches!(found.refusals[..], [Refusal::Cpu { exact: false, .. }]));
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
    fn a_task_that_could_have_gone_elsewhere_makes_a_refusal_inexact() {
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
            }
            let all_hold = found.cpus.iter().all(|cpu| cpu.verdict.is_admitted());
            prop_assert!(!found.is_admitted() || all_hold);
        }
    }
}
