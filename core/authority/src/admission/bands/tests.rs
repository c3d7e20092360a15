use super::*;
use proptest::prelude::*;

fn task(cost: u64, deadline: u64, period: u64) -> Task {
    Task { cost: Nanos::new(cost), deadline: Nanos::new(deadline), period: Nanos::new(period) }
}

fn bound(load: &Load<'_>, place: usize) -> Option<Nanos> {
    response_bound(load, place, &mut { Effort::FULL })
}

fn banded(criticality: u8, cost: u64, deadline: u64, period: u64) -> Banded {
    Banded { task: task(cost, deadline, period), criticality }
}

/// A job of the slow simulator: whose it is, when it came, when it is due, and what is left of it.
#[derive(Clone, Copy)]
struct Job {
    of: usize,
    came: u64,
    due: u64,
    left: u64,
}

/// What a releaser is in the slow simulator.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    Interrupt,
    Band(u8),
    Floor,
}

/// Runs a CPU slot by slot: interrupts, then the highest band that is ready, in it and with the floor by deadline.
/// `releases` says for each releaser when it comes. The longest response of each, or the first deadline that passes with
/// work left.
fn run(who: &[Who], tasks: &[Task], releases: &[Vec<u64>], horizon: u64) -> Result<Vec<u64>, u64> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut responses = alloc::vec![0; tasks.len()];
    for now in 0..=horizon {
        if let Some(missed) = jobs.iter().filter(|job| job.due <= now).map(|job| job.due).min() {
            return Err(missed);
        }
        for (of, times) in releases.iter().enumerate() {
            if times.contains(&now) {
                let due = now + tasks[of].deadline.get();
                jobs.push(Job { of, came: now, due, left: tasks[of].cost.get() });
            }
        }
        let first_band = jobs.iter().filter_map(|job| match who[job.of] {
            Who::Band(band) => Some(band),
            _ => None,
        });
        let front = first_band.max();
        let interrupt = jobs.iter().position(|job| who[job.of] == Who::Interrupt);
        let competes = |job: &Job| who[job.of] == Who::Floor || front.map(Who::Band) == Some(who[job.of]);
        let by_deadline = || {
            // Ties go to the tasks before the floor: the floor has the last place.
            let ready = jobs.iter().enumerate().filter(|(_, job)| competes(job));
            ready.min_by_key(|(_, job)| (job.due, job.of)).map(|(place, _)| place)
        };
        if let Some(place) = interrupt.or_else(by_deadline) {
            jobs[place].left -= 1;
            if jobs[place].left == 0 {
                let done = jobs.remove(place);
                responses[done.of] = responses[done.of].max(now + 1 - done.came);
            }
        }
    }
    Ok(responses)
}

struct Rig {
    who: Vec<Who>,
    tasks: Vec<Task>,
}

fn rig(load: &Load<'_>) -> Rig {
    let mut who: Vec<Who> = load.tasks.iter().map(|banded| Who::Band(banded.criticality)).collect();
    let mut tasks: Vec<Task> = load.tasks.iter().map(|banded| banded.task).collect();
    who.extend(load.floor.map(|_| Who::Floor));
    tasks.extend(load.floor);
    who.extend(load.interrupts.iter().map(|_| Who::Interrupt));
    tasks.extend(load.interrupts.iter().map(|task| Task { deadline: task.period, ..*task }));
    let with_overhead = tasks.into_iter().map(|task| inflated(task, load.overhead)).collect();
    Rig { who, tasks: with_overhead }
}

fn together(tasks: &[Task], horizon: u64) -> Vec<Vec<u64>> {
    tasks.iter().map(|task| (0..=horizon).step_by(task.period.get() as usize).collect()).collect()
}

/// Sporadic releases: each gap is the period plus what the seed says, most often nothing.
fn sporadic(tasks: &[Task], seed: u64, horizon: u64) -> Vec<Vec<u64>> {
    let mut state = seed;
    let mut random = move |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut of = |task: &Task| {
        let mut at = random(2 * task.period.get());
        let mut times = Vec::new();
        while at <= horizon {
            times.push(at);
            let pause = if random(3) == 0 { random(task.period.get()) } else { 0 };
            at += task.period.get() + pause;
        }
        times
    };
    tasks.iter().map(&mut of).collect()
}

//= EVO:S6.fail-closed
#[test]
fn one_band_is_the_exact_test_of_one_cpu() {
    let published = [banded(0, 50, 50, 100), banded(0, 10, 100, 100)];
    let verdict = judge_cpu(&Load { tasks: &published, ..Load::default() });
    assert!(verdict.is_admitted() && !verdict.sufficient_only);
    assert_eq!(verdict.utilization_ppm, 600_000);
    let over = [banded(0, 5, 10, 10), banded(0, 6, 11, 11)];
    let verdict = judge_cpu(&Load { tasks: &over, ..Load::default() });
    assert_eq!(verdict.denial, Some(CpuDenial { part: Part::Band(0), denial: Denial::Overload }));
    assert!(verdict.has_witness());
}

#[test]
fn the_floor_counts_with_the_top_band() {
    let nearly_all = [banded(0, 96, 100, 100)];
    let alone = judge_cpu(&Load { tasks: &nearly_all, ..Load::default() });
    assert!(alone.is_admitted());
    let with_floor = Load { tasks: &nearly_all, floor: Some(task(5, 100, 100)), ..Load::default() };
    assert_eq!(judge_cpu(&with_floor).denial.map(|why| why.denial), Some(Denial::Overload));
}

#[test]
fn a_lower_band_gets_what_the_higher_one_leaves() {
    // By deadline alone both fit; the higher band's later deadline makes the lower one wait for it.
    let tasks = [banded(1, 5, 10, 10), banded(0, 2, 4, 10)];
    let verdict = judge_cpu(&Load { tasks: &tasks, ..Load::default() });
    let interval =
        Interval { part: Part::Band(0), length: Nanos::new(4), demand: Nanos::new(2), supply: Nanos::ZERO };
    assert_eq!(verdict.deciding, Some(interval));
    assert!(verdict.has_witness(), "without a floor the test of a lower band is exact");
    let one_band = tasks.map(|entry| Banded { criticality: 0, ..entry });
    assert!(judge_cpu(&Load { tasks: &one_band, ..Load::default() }).is_admitted());
}

#[test]
fn with_a_floor_the_test_of_a_lower_band_says_that_it_is_sufficient_only() {
    let tasks = [banded(1, 1, 10, 10), banded(0, 1, 10, 10)];
    let with_floor = Load { tasks: &tasks, floor: Some(task(5, 100, 100)), ..Load::default() };
    let verdict = judge_cpu(&with_floor);
    assert!(verdict.is_admitted() && verdict.sufficient_only);
    assert!(!judge_cpu(&Load { floor: None, ..with_floor }).sufficient_only);
}

#[test]
fn a_floor_that_lower_bands_held_up_is_part_of_a_higher_ones_response() {
    // The low task goes before the floor while the high one is away; when that comes, the floor is due first.
    let tasks = [banded(1, 1, 15, 15), banded(0, 6, 8, 10)];
    let load = Load { tasks: &tasks, floor: Some(task(1, 20, 20)), ..Load::default() };
    assert!(judge_cpu(&load).is_admitted());
    let rig = rig(&load);
    let responses = run(&rig.who, &rig.tasks, &[[6].into(), [0].into(), [0].into()], 40).expect("no miss");
    assert_eq!(responses[0], 2);
    assert!(bound(&load, 0).is_some_and(|bound| bound >= Nanos::new(2)));
    assert_eq!(bound(&Load { floor: None, ..load }, 0), Some(Nanos::new(1)), "exact without a floor");
    assert_eq!(bound(&Load { floor: None, ..load }, 1), Some(Nanos::new(7)));
}

#[test]
fn overhead_is_paid_by_every_release() {
    let tasks = [banded(0, 4, 10, 10), banded(0, 4, 10, 10)];
    let load = |overhead| Load { tasks: &tasks, overhead: Nanos::new(overhead), ..Load::default() };
    assert!(judge_cpu(&load(1)).is_admitted());
    assert!(!judge_cpu(&load(2)).is_admitted());
    let verdict = judge_cpu(&load(7));
    let denial = Denial::Demand { interval: Nanos::new(10), due: Nanos::new(11) };
    assert_eq!(verdict.denial.map(|why| why.denial), Some(denial), "no longer fits its own deadline");
}

#[test]
fn interrupts_come_before_every_band_and_the_floor() {
    let tasks = [banded(9, 2, 4, 10)];
    let interrupts = [task(3, 100, 100)];
    let load = Load { tasks: &tasks, interrupts: &interrupts, ..Load::default() };
    let verdict = judge_cpu(&load);
    assert_eq!(verdict.deciding.map(|interval| interval.supply), Some(Nanos::new(1)));
    assert!(verdict.has_witness());
    assert!(judge_cpu(&Load { interrupts: &[task(2, 100, 100)], ..load }).is_admitted());
    let silly = [task(1, 0, 0)];
    assert!(!judge_cpu(&Load { interrupts: &silly, ..load }).is_admitted());
}

#[test]
fn figures_at_the_end_of_the_range_are_refused_and_nothing_panics() {
    let max = u64::MAX;
    let huge = [banded(1, max, max, max), banded(0, max - 1, max, max)];
    assert!(
        !judge_cpu(&Load { tasks: &huge, floor: Some(task(1, max, max)), ..Load::default() }).is_admitted()
    );
    let spread = [banded(1, 1, 3, 3), banded(0, max / 3, max, max)];
    let _ = judge_cpu(&Load { tasks: &spread, ..Load::default() });
    let with_cost = Load { tasks: &spread, overhead: Nanos::MAX, ..Load::default() };
    assert!(!judge_cpu(&with_cost).is_admitted());
}

fn a_task() -> impl Strategy<Value = Task> {
    (prop::sample::select(alloc::vec![4u64, 5, 6, 8, 10, 12, 15, 20]), 1u64..=20, 1u64..=6).prop_map(
        |(period, deadline, cost)| {
            let deadline = deadline.min(period);
            task(cost.min(deadline), deadline, period)
        },
    )
}

fn a_floor() -> impl Strategy<Value = Option<Task>> {
    let floor = (1u64..=3, prop::sample::select(alloc::vec![10u64, 12, 20]))
        .prop_map(|(cost, period)| task(cost, period, period));
    prop::option::of(floor)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn nothing_admitted_ever_misses_and_what_is_refused_exactly_has_a_witness(
        tasks in prop::collection::vec((a_task(), 0u8..3), 1..6),
        floor in a_floor(),
        interrupts in prop::collection::vec((1u64..=2, 6u64..=20), 0..2),
        overhead in 0u64..2,
        seeds in prop::collection::vec(any::<u64>(), 6),
    ) {
        let tasks: Vec<Banded> =
            tasks.into_iter().map(|(task, criticality)| Banded { task, criticality }).collect();
        let interrupts: Vec<Task> =
            interrupts.into_iter().map(|(cost, period)| task(cost, period, period)).collect();
        let load = Load { tasks: &tasks, floor, interrupts: &interrupts, overhead: Nanos::new(overhead) };
        let verdict = judge_cpu(&load);
        let rig = rig(&load);
        if verdict.is_admitted() {
            let bounds: Vec<Nanos> =
                (0..tasks.len()).map(|place| bound(&load, place).unwrap_or(Nanos::MAX)).collect();
            let patterns = seeds.iter().map(|seed| sporadic(&rig.tasks, *seed, 400));
            for releases in patterns.chain([together(&rig.tasks, 400)]) {
                let responses = run(&rig.who, &rig.tasks, &releases, 400);
                prop_assert!(responses.is_ok(), "a miss at {:?} with {:?}", responses, releases);
                for (seen, bound) in responses.into_iter().flatten().zip(&bounds) {
                    prop_assert!(Nanos::new(seen) <= *bound, "{} above {}", seen, bound);
                }
            }
        }
        if verdict.has_witness() {
            // An overloaded set misses within its hyperperiod, which odd periods of interrupts make long.
            let horizon = verdict.deciding.map_or_else(|| hyperperiod(&rig.tasks), |first| first.length.get());
            prop_assume!(horizon <= 20_000);
            let outcome = run(&rig.who, &rig.tasks, &together(&rig.tasks, horizon), horizon);
            prop_assert!(outcome.is_err(), "no miss within {horizon}");
        }
    }
}

fn hyperperiod(tasks: &[Task]) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    tasks.iter().fold(1, |all, task| all / gcd(all, task.period.get()) * task.period.get())
}
