//! The tests as their definitions say them, slow: every deadline is looked at, one by one. What is shipped must say the same.

use super::bands::{Banded, CpuDenial, Load, Part};
use super::demand::{Denial, Task, Verdict, demand, well_formed};
use super::{Candidate, Effort, Refusal, judge, judge_cpu, judge_cpu_within, survey};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use mainspring_abi::{CpuId, CpuSet, Nanos};
use mainspring_sched::Floor;
use proptest::prelude::*;

const MAX_STEPS: u32 = 100_000;

fn overloaded(tasks: &[Task]) -> bool {
    let utilization = |task: &Task| (u128::from(task.cost.get()) << 64) / u128::from(task.period.get());
    tasks.iter().map(utilization).sum::<u128>() > 1 << 64
}

/// The longest time that the CPU can be busy without a pause, if all tasks are released together as often as they
/// may. No deadline is missed later than its end.
fn busy_period(tasks: &[Task]) -> Option<Nanos> {
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

/// The first absolute deadline strictly after `after`, counted from a common release.
fn next_deadline(tasks: &[Task], after: Nanos) -> Option<Nanos> {
    let of = |task: &Task| match after.get().checked_sub(task.deadline.get()) {
        None => task.deadline,
        Some(past) => {
            let periods = past / task.period.get() + 1;
            task.deadline + Nanos::new(periods.saturating_mul(task.period.get()))
        }
    };
    tasks.iter().map(of).min()
}

/// The shortest time above `after` within which one more release of `task` can have come.
fn next_request(task: &Task, after: Nanos) -> Nanos {
    let releases = after.get().div_ceil(task.period.get());
    Nanos::new(releases.saturating_mul(task.period.get()).saturating_add(1))
}

/// What `above` leaves to others, from a common release of all of it as often as it may come.
struct LeftOver<'a> {
    above: &'a [Task],
    releases: Vec<u64>,
    now: u64,
    pending: u64,
    left: u64,
}

impl<'a> LeftOver<'a> {
    fn new(above: &'a [Task]) -> Self {
        Self { above, releases: alloc::vec![0; above.len()], now: 0, pending: 0, left: 0 }
    }

    /// The time left in the first `length`; lengths must not fall from one call to the next. `None` when `steps` runs
    /// out.
    fn within(&mut self, length: Nanos, steps: &mut u32) -> Option<Nanos> {
        while self.now < length.get() {
            self.release();
            let next = self.releases.iter().copied().min().unwrap_or(u64::MAX).min(length.get());
            let span = next - self.now;
            let work = self.pending.min(span);
            self.pending -= work;
            self.left += span - work;
            self.now = next;
            *steps = steps.checked_sub(1)?;
        }
        Some(Nanos::new(self.left))
    }

    fn release(&mut self) {
        for (task, at) in self.above.iter().zip(&mut self.releases) {
            if *at <= self.now {
                self.pending = self.pending.saturating_add(task.cost.get());
                *at = at.saturating_add(task.period.get());
            }
        }
    }
}

fn inflated(task: Task, overhead: Nanos) -> Task {
    Task { cost: task.cost + overhead, ..task }
}

/// Why a load is refused, by looking at every deadline up to the end of the busy period. The load makes sense.
fn judge_slowly(load: &Load<'_>) -> Option<CpuDenial> {
    let with_cost = |task: Task| inflated(task, load.overhead);
    let of = |keep: &dyn Fn(u8) -> bool| -> Vec<Task> {
        let kept = load.tasks.iter().filter(|banded| keep(banded.criticality));
        kept.map(|banded| with_cost(banded.task)).collect()
    };
    let interrupts: Vec<Task> =
        load.interrupts.iter().map(|task| Task { deadline: task.period, ..with_cost(*task) }).collect();
    let floor = load.floor.map(with_cost);
    let everything: Vec<Task> = of(&|_| true).into_iter().chain(interrupts.clone()).chain(floor).collect();
    let mut bands: Vec<u8> = load.tasks.iter().map(|banded| banded.criticality).collect();
    bands.sort_unstable_by(|a, b| b.cmp(a));
    bands.dedup();
    if overloaded(&everything) {
        let part = bands.last().map_or(Part::Floor, |lowest| Part::Band(*lowest));
        return Some(CpuDenial { part, denial: Denial::Overload });
    }
    for (rank, band) in bands.iter().enumerate() {
        let mut above = interrupts.clone();
        above.extend(of(&|other| other > *band));
        let mut peers = of(&|other| other == *band);
        if rank == 0 { &mut peers } else { &mut above }.extend(floor);
        if let Some(denial) = judge_band(&above, &peers) {
            return Some(CpuDenial { part: Part::Band(*band), denial });
        }
    }
    let floor = floor?;
    let denial = match bands.len() {
        0 => judge_band(&interrupts, &[floor])?,
        1 => return None,
        _ => judge_floor(load, floor, &bands, &interrupts, &everything)?,
    };
    Some(CpuDenial { part: Part::Floor, denial })
}

fn judge_band(above: &[Task], peers: &[Task]) -> Option<Denial> {
    let all: Vec<Task> = above.iter().chain(peers).copied().collect();
    let Some(horizon) = busy_period(&all) else { return Some(Denial::Undecided) };
    let mut left = LeftOver::new(above);
    let mut steps = MAX_STEPS;
    let mut at = next_deadline(peers, Nanos::ZERO);
    while let Some(interval) = at.filter(|length| *length <= horizon) {
        let Some(supply) = left.within(interval, &mut steps) else { return Some(Denial::Undecided) };
        let due = demand(peers, interval);
        if due > supply {
            return Some(Denial::Demand { interval, due });
        }
        at = next_deadline(peers, interval);
    }
    None
}

fn judge_floor(
    load: &Load<'_>,
    floor: Task,
    bands: &[u8],
    interrupts: &[Task],
    all: &[Task],
) -> Option<Denial> {
    let Some(horizon) = busy_period(all) else { return Some(Denial::Undecided) };
    let lowest = bands.last().copied();
    let of = |is_lowest: bool| -> Vec<Task> {
        let kept = load.tasks.iter().filter(|banded| (Some(banded.criticality) == lowest) == is_lowest);
        kept.map(|banded| inflated(banded.task, load.overhead)).collect()
    };
    let mut by_deadline = of(true);
    by_deadline.push(floor);
    let higher = of(false);
    let requests = |tasks: &[Task], before: Nanos| -> Nanos {
        let of = |task: &Task| before.get().div_ceil(task.period.get()).saturating_mul(task.cost.get());
        Nanos::new(tasks.iter().map(of).fold(0, u64::saturating_add))
    };
    let mut length = floor.deadline;
    for _ in 0..MAX_STEPS {
        if length > horizon {
            return None;
        }
        let before = length - floor.deadline;
        let late_of_higher = higher.iter().fold(Nanos::ZERO, |sum, task| {
            let one = core::slice::from_ref(task);
            sum + (requests(one, before) - demand(one, length))
        });
        let due = demand(&by_deadline, length)
            + demand(&higher, length)
            + late_of_higher.min(before)
            + requests(interrupts, length);
        if due > length {
            return Some(Denial::Demand { interval: length, due });
        }
        let deadlines = by_deadline.iter().chain(&higher);
        let due = deadlines.filter_map(|task| next_deadline(core::slice::from_ref(task), length));
        let from_higher = higher.iter().map(|task| floor.deadline + next_request(task, before));
        let from_interrupts = interrupts.iter().map(|task| next_request(task, length));
        length = due.chain(from_higher).chain(from_interrupts).min()?;
    }
    Some(Denial::Undecided)
}

/// Each task by falling density to the first CPU that holds with it.
fn place_slowly(candidates: &[Candidate], cpus: &CpuSet, floor: Floor) -> Vec<Option<CpuId>> {
    let density = |task: &Task| (u128::from(task.cost.get()) << 32) / u128::from(task.deadline.get().max(1));
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|index| (Reverse(density(&candidates[*index].task)), *index));
    let mut loads: Vec<(CpuId, Vec<Banded>)> = cpus.iter().map(|cpu| (cpu, Vec::new())).collect();
    let mut homes = alloc::vec![None; candidates.len()];
    for index in order {
        let Candidate { task, criticality, cpus, .. } = &candidates[index];
        for (cpu, load) in loads.iter_mut().filter(|(cpu, _)| cpus.contains(*cpu)) {
            load.push(Banded { task: *task, criticality: *criticality });
            let whole = Load { tasks: load, floor: Task::of_floor(floor), ..Load::default() };
            if judge_slowly(&whole).is_none() {
                homes[index] = Some(*cpu);
                break;
            }
            load.pop();
        }
    }
    homes
}

fn task(cost: u64, deadline: u64, period: u64) -> Task {
    Task { cost: Nanos::new(cost), deadline: Nanos::new(deadline), period: Nanos::new(period) }
}

/// Constrained deadlines, many of them short, so that density is above one and utilization is not.
fn a_task() -> impl Strategy<Value = Task> {
    (4u64..60, 1u64..=60, 1u64..=12).prop_map(|(period, deadline, cost)| {
        let deadline = deadline.min(period);
        task(cost.min(deadline), deadline, period)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6_000))]

    #[test]
    fn one_cpu_is_judged_as_by_looking_at_every_deadline(
        tasks in prop::collection::vec((a_task(), 0u8..3), 0..10),
        one_band in any::<bool>(),
        floor in prop::option::of((1u64..=3, 10u64..=40).prop_map(|(cost, period)| task(cost, period, period))),
        interrupts in prop::collection::vec((1u64..=2, 6u64..=40), 0..2),
    ) {
        let band = |criticality: u8| if one_band { 0 } else { criticality };
        let tasks: Vec<Banded> =
            tasks.into_iter().map(|(task, criticality)| Banded { task, criticality: band(criticality) }).collect();
        let interrupts: Vec<Task> =
            interrupts.into_iter().map(|(cost, period)| task(cost, period, period)).collect();
        let load = Load { tasks: &tasks, floor, interrupts: &interrupts, overhead: Nanos::ZERO };
        let slow = judge_slowly(&load);
        prop_assume!(slow.is_none_or(|why| why.denial != Denial::Undecided));
        let fast = judge_cpu(&load);
        prop_assert_eq!(fast.denial, slow, "{:?}", load);
        if let Some(interval) = fast.deciding {
            let holds = interval.demand <= interval.supply;
            prop_assert_eq!(holds, slow.is_none(), "{:?} decides about {:?}", interval, load);
        }
    }

    #[test]
    fn tasks_are_placed_as_by_offering_them_one_by_one(
        tasks in prop::collection::vec((a_task(), 0u8..2, 1u8..8), 0..24),
        one_band in any::<bool>(),
        floor in prop::sample::select(alloc::vec![Floor::NONE, Floor::DEFAULT]),
    ) {
        let cpus = CpuSet::first(3);
        // In milliseconds, so that the floor's period of 100 ms is among them.
        let scaled = |task: Task| Task {
            cost: Nanos::from_millis(task.cost.get()),
            deadline: Nanos::from_millis(task.deadline.get()),
            period: Nanos::from_millis(task.period.get()),
        };
        let candidates: Vec<Candidate> = tasks
            .into_iter()
            .map(|(task, criticality, mask)| Candidate {
                name: String::new(),
                task: scaled(task),
                criticality: if one_band { 0 } else { criticality },
                cpus: CpuSet::from_bytes(&[mask]).expect("not zero"),
            })
            .collect();
        let slow = place_slowly(&candidates, &cpus, floor);
        let fast = survey(&candidates, &cpus, floor, Nanos::ZERO);
        prop_assert_eq!(fast.is_admitted(), slow.iter().all(Option::is_some));
        for (home, task) in slow.iter().zip(&fast.tasks) {
            // What fits nowhere is shown on the least used CPU.
            prop_assert!(home.is_none() || *home == task.cpu, "{:?}", candidates);
        }
    }
}

#[test]
fn figures_without_a_common_measure_end_in_a_refusal() {
    // Coprime periods, used wholly, with deadlines that are a little short: the busy period has no end in sight.
    let primes = [1_000_003u64, 1_000_033, 1_000_037, 1_000_039, 1_000_081, 1_000_099, 1_000_117, 1_000_121];
    let tasks: Vec<Task> = primes.map(|prime| task(prime / 8 + 1, prime - 1_000, prime)).into();
    let verdict = judge(&tasks[..8]);
    assert!(matches!(verdict, Verdict::Denied(_)), "{verdict:?}");
    let nearly: Vec<Banded> = primes
        .map(|prime| Banded { task: task(prime / 8, prime - 1_000, prime), criticality: (prime % 3) as u8 })
        .into();
    let load = Load { tasks: &nearly, ..Load::default() };
    let refused = judge_cpu_within(&load, &mut Effort::new(1_000)).denial.expect("too little effort");
    assert_eq!(refused.denial, Denial::Undecided);
}

#[test]
fn extreme_figures_neither_overflow_nor_hang() {
    let max = u64::MAX;
    let figures = [1, 2, 3, 1_000, max / 3, max / 2, max - 1, max];
    let mut all = Vec::new();
    for period in figures {
        for deadline in figures {
            for cost in figures {
                all.push(task(cost, deadline, period));
            }
        }
    }
    let sensible: Vec<Task> = all.iter().copied().filter(well_formed).collect();
    for a in &sensible {
        for b in sensible.iter().step_by(7) {
            let tasks = [Banded { task: *a, criticality: 0 }, Banded { task: *b, criticality: 1 }];
            for floor in [None, Some(task(1, max, max)), Some(task(5, 100, 100))] {
                let load =
                    Load { tasks: &tasks, floor, interrupts: &[task(1, 1, max)], overhead: Nanos::new(1) };
                let _ = judge_cpu_within(&load, &mut Effort::new(20_000));
                let _ = super::response_bound(&load, 0, &mut Effort::new(20_000));
            }
            let _ = super::demand::judge_within(
                &[*a, *b],
                super::walk::Aim::FirstExcess,
                &mut Effort::new(20_000),
            );
        }
    }
}

#[test]
fn a_hundred_thousand_tasks_come_to_an_answer() {
    // Deadlines of a nanosecond: each fits by itself and no two do.
    let one = CpuSet::first(1);
    let tiny = |_| Candidate { name: String::new(), task: task(1, 1, 1 << 40), criticality: 0, cpus: one };
    let candidates: Vec<Candidate> = (0..100_000).map(tiny).collect();
    let found = survey(&candidates, &one, Floor::NONE, Nanos::ZERO);
    assert!(matches!(found.refusals[..], [Refusal::Cpu { denial: Denial::Demand { .. }, exact: true, .. }]));
}
