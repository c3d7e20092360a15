//! First fit, CPU by CPU.
//!
//! Tasks come by falling density, and each goes to the first CPU of its mask that still holds with it. Whether a CPU takes a
//! task depends on the earlier tasks that it took and on no other CPU, so the CPUs can be filled one after the other, each
//! from what those before it left. And what holds with more tasks holds with fewer: so a CPU is offered twice as many tasks
//! each time they fit, and half as many when they do not, instead of one at a time. A CPU remembers where it refused tasks: a
//! task that asks for no less is refused at once, and so is one whose work does not fit into an interval that was too full before.
//!
//! Conserved: the placement is the same as if each task were offered to each CPU by itself, as long as the effort lasts. What was not
//! decided within it is not placed.

use super::bands::{Banded, CpuVerdict, Load, failure, judge_cpu_within, to_ppm};
use super::demand::{Task, WHOLE_CPU, utilization, well_formed};
use super::effort::Effort;
use super::survey::Candidate;
use super::walk::due_by;
use alloc::vec::Vec;
use core::cmp::Reverse;
use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::Floor;

/// How many refused tasks a CPU remembers, to refuse at once what asks for no less.
const REMEMBERED: usize = 8;

/// What every CPU keeps and counts.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub floor: Floor,
    pub overhead: Nanos,
}

/// One CPU with the tasks that it has.
pub(super) struct CpuLoad {
    pub cpu: CpuId,
    load: Vec<Banded>,
    /// By place in `load`, the candidate.
    pub who: Vec<usize>,
    terms: Terms,
    /// What the floor and the tasks use in the long run.
    used: u128,
    refused: Vec<Banded>,
    /// Intervals in which more was due than fits, with one task that was refused, and what is due in them of those that are here.
    /// Empty with several bands, where it takes more than that to tell.
    full: Vec<(Nanos, u128)>,
}

impl CpuLoad {
    pub(super) fn new(cpu: CpuId, terms: Terms) -> Self {
        let mut new = Self {
            cpu,
            load: Vec::new(),
            who: Vec::new(),
            terms,
            used: 0,
            refused: Vec::new(),
            full: Vec::new(),
        };
        new.used = Task::of_floor(terms.floor).map_or(0, |floor| new.utilization(floor));
        new
    }

    pub(super) fn verdict(&self, effort: &mut Effort) -> CpuVerdict {
        judge_cpu_within(&self.as_load(), effort)
    }

    pub(super) fn utilization_ppm(&self) -> u64 {
        to_ppm(self.used)
    }

    pub(super) fn push(&mut self, index: usize, candidate: &Candidate) {
        self.used += self.utilization(candidate.task);
        for (interval, due) in &mut self.full {
            *due += due_of(&candidate.task, self.terms, *interval);
        }
        if self.load.first().is_some_and(|first| first.criticality != candidate.criticality) {
            self.full.clear();
        }
        self.load.push(Banded { task: candidate.task, criticality: candidate.criticality });
        self.who.push(index);
    }

    fn as_load(&self) -> Load<'_> {
        let Terms { floor, overhead } = self.terms;
        Load { tasks: &self.load, floor: Task::of_floor(floor), interrupts: &[], overhead }
    }

    fn utilization(&self, task: Task) -> u128 {
        utilization(&Task { cost: task.cost + self.terms.overhead, ..task })
    }

    /// Takes all of `block`, or none of it.
    fn take(&mut self, block: &[usize], candidates: &[Candidate], effort: &mut Effort) -> bool {
        let before = (self.load.len(), self.used, self.full.clone());
        for index in block {
            self.push(*index, &candidates[*index]);
        }
        let judged = if self.used > WHOLE_CPU { Err(None) } else { failure(&self.as_load(), effort) };
        let Err(interval) = judged else { return true };
        self.load.truncate(before.0);
        self.who.truncate(before.0);
        (self.used, self.full) = (before.1, before.2);
        if let ([index], Some(interval)) = (block, interval) {
            self.remember(&candidates[*index], interval);
        }
        false
    }

    /// Whether it is known without a test that the CPU does not hold with `candidate`.
    fn surely_refuses(&self, candidate: &Candidate) -> bool {
        let one_band = self.load.first().is_none_or(|first| first.criticality == candidate.criticality);
        let too_full = |(interval, due): &(Nanos, u128)| {
            *due + due_of(&candidate.task, self.terms, *interval) > u128::from(interval.get())
        };
        self.used + self.utilization(candidate.task) > WHOLE_CPU
            || self.refused_less(candidate)
            || (one_band && self.full.iter().any(too_full))
    }

    /// Whether a task was refused that asks for no more than `candidate`.
    fn refused_less(&self, candidate: &Candidate) -> bool {
        let asks_no_less = |refused: &Banded| {
            let (old, new) = (refused.task, candidate.task);
            refused.criticality == candidate.criticality
                && new.cost >= old.cost
                && new.deadline <= old.deadline
                && new.period <= old.period
        };
        self.refused.iter().any(asks_no_less)
    }

    fn remember(&mut self, candidate: &Candidate, interval: Nanos) {
        if self.refused.len() == REMEMBERED {
            self.refused.remove(0);
        }
        self.refused.push(Banded { task: candidate.task, criticality: candidate.criticality });
        if self.load.iter().all(|banded| banded.criticality == candidate.criticality) {
            let here = self.load.iter().map(|banded| banded.task).chain(Task::of_floor(self.terms.floor));
            let due = here.map(|task| due_of(&task, self.terms, interval)).sum();
            if self.full.len() == REMEMBERED {
                self.full.remove(0);
            }
            self.full.push((interval, due));
        }
    }

    /// Takes what fits of `offered`, in order.
    fn fill(&mut self, offered: &[usize], candidates: &[Candidate], effort: &mut Effort) {
        let (mut next, mut block, mut growing) = (0, 1, true);
        while next < offered.len() {
            let first = &candidates[offered[next]];
            if self.surely_refuses(first) {
                next += 1;
                continue;
            }
            let end = offered.len().min(next + block);
            if self.take(&offered[next..end], candidates, effort) {
                next = end;
                block = if growing { block * 2 } else { (block / 2).max(1) };
            } else if end - next == 1 {
                next = end;
                (block, growing) = (1, true);
            } else {
                block = ((end - next) / 2).max(1);
                growing = false;
            }
        }
    }
}

/// What is due of a task, its overhead included, within `interval` of a common release.
fn due_of(task: &Task, terms: Terms, interval: Nanos) -> u128 {
    due_by(&[Task { cost: task.cost + terms.overhead, ..*task }], interval.get()).0.into()
}

/// Places the tasks that it can; those that fit nowhere come back, and those that make no sense by themselves.
pub(super) fn place_all(
    candidates: &[Candidate],
    places: &mut [CpuLoad],
    effort: &mut Effort,
) -> (Vec<usize>, Vec<usize>) {
    let density = |task: &Task| (u128::from(task.cost.get()) << 32) / u128::from(task.deadline.get().max(1));
    let sensible = |index: &usize| well_formed(&candidates[*index].task);
    let (mut left, senseless): (Vec<usize>, Vec<usize>) = (0..candidates.len()).partition(sensible);
    left.sort_by_cached_key(|index| (Reverse(density(&candidates[*index].task)), *index));
    let mut placed = alloc::vec![false; candidates.len()];
    for place in places {
        let may = |index: &usize| candidates[*index].cpus.contains(place.cpu);
        let offered: Vec<usize> = left.iter().copied().filter(may).collect();
        place.fill(&offered, candidates, effort);
        for index in &place.who {
            placed[*index] = true;
        }
        left.retain(|index| !placed[*index]);
    }
    (left, senseless)
}
