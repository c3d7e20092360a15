//! What the runtime must reach on any host, measured and judged.

use mainspring::{Budget, Capacity, Caps, Config, Profile, Runtime};
use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How much work to measure with.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub yields: u32,
    pub spawns: u32,
    pub parked: u32,
    pub forks: u32,
    /// Tasks of the parallel load, and what each computes.
    pub parallel: u32,
    pub steps: u64,
}

/// One figure and its limit.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: &'static str,
    pub unit: &'static str,
    pub value: f64,
    pub limit: Limit,
}

/// What a figure must not pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    Below(f64),
    Above(f64),
}

impl Figure {
    /// Whether it is within its limit. What could not be measured is not.
    pub fn holds(&self) -> bool {
        match self.limit {
            Limit::Below(limit) => self.value < limit,
            Limit::Above(limit) => self.value > limit,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, limit) = match self.limit {
            Limit::Below(limit) => ("below", limit),
            Limit::Above(limit) => ("above", limit),
        };
        let verdict = if self.holds() { "holds" } else { "MISSED" };
        let Self { name, unit, value, .. } = self;
        write!(f, "{name:<22} {value:>14.2} {unit:<12} {word} {limit:<12.2} {verdict}")
    }
}

/// How near the speed-up of a parallel load must come to what the host's CPUs give plain threads at the same time.
pub const SCALING_TOLERANCE: f64 = 0.8;

/// Rounds of the parallel load; the medians count.
const ROUNDS: usize = 5;

/// Measures everything.
pub fn measure(work: &Work) -> Vec<Figure> {
    let below = |name, unit, value, limit| Figure { name, unit, value, limit: Limit::Below(limit) };
    let above = |name, unit, value, limit| Figure { name, unit, value, limit: Limit::Above(limit) };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let mut figures = vec![
        below("switch", "ns", switch_ns(work.yields), 1_000.0),
        above("spawn", "tasks/s", spawns_per_second(work.spawns), 1_000_000.0),
        below("memory", "bytes/task", bytes_per_task(work.parked), 16.0 * 1024.0),
        below("steal", "ns", steal_ns(work.forks), 10_000.0),
    ];
    if cores > 1 {
        // In turns, so that whatever else the host does hits all of them.
        let rounds: Vec<(f64, f64)> = (0..ROUNDS)
            .map(|_| {
                let ratio = |one: Duration, all: Duration| one.as_secs_f64() / all.as_secs_f64();
                let ours = ratio(parallel(work, 1), parallel(work, cores));
                (ours, ratio(threads(work, 1), threads(work, cores)))
            })
            .collect();
        let ours = median(rounds.iter().map(|round| round.0));
        let host = median(rounds.iter().map(|round| round.1));
        figures.push(above("scaling", "times", ours, SCALING_TOLERANCE * host));
    }
    figures
}

fn runtime(workers: usize) -> Runtime {
    let caps = Caps::root(u32::MAX, Budget::MAX, Budget::ZERO, 100, 100);
    Config::new(Profile::Cluster).workers(workers).root_caps(caps).build().expect("a runtime")
}

/// From one task to the next, on one worker.
fn switch_ns(yields: u32) -> f64 {
    let took = runtime(1).run(|cx| {
        cx.nursery(|n| {
            let began = Instant::now();
            let other = n.spawn(move |cx| (0..yields).for_each(|_| cx.yield_now())).expect("a task");
            (0..yields).for_each(|_| cx.yield_now());
            other.join(cx).expect("it ends");
            began.elapsed()
        })
    });
    let took = took.expect("it ends").expect("it ends");
    took.as_nanos() as f64 / f64::from(2 * yields)
}

/// Empty tasks, spawned and awaited.
fn spawns_per_second(spawns: u32) -> f64 {
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get).min(2);
    let took = runtime(workers).run(|cx| {
        let began = Instant::now();
        let ended = cx.nursery(|n| {
            (0..spawns).for_each(|_| {
                n.builder().budget(Budget { ops: 1, ..Budget::ZERO }).start(|_| ()).expect("a task");
            });
        });
        ended.map(|()| began.elapsed())
    });
    f64::from(spawns) / took.expect("it ends").expect("it ends").as_secs_f64()
}

/// Resident memory of a task that waits, its stack and its guard included.
fn bytes_per_task(parked: u32) -> f64 {
    let runtime = runtime(1);
    let grown = runtime.run(|cx| {
        let (close, wait) = cx.channel::<()>(Capacity::Rendezvous).expect("a channel");
        cx.nursery(|n| {
            let before = resident();
            for _ in 0..parked {
                let wait = wait.clone();
                let budget = Budget { ops: 9, channel_ops: 2, ..Budget::ZERO };
                n.builder().budget(budget).start(move |cx| assert!(wait.recv(cx).is_err())).expect("a task");
            }
            (0..10).for_each(|_| cx.yield_now());
            let grown = resident().saturating_sub(before);
            drop(close);
            grown
        })
    });
    grown.expect("it ends").expect("it ends") as f64 / f64::from(parked)
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// The median of what a thief needs from its first look to its catch; not a number if nothing was stolen.
fn steal_ns(forks: u32) -> f64 {
    let runtime = runtime(2);
    let ended = runtime.run(|cx| {
        for _ in 0..forks {
            let half = cx.nursery(|n| {
                for _ in 0..4 {
                    n.start(|cx| compute(cx, 2_000)).expect("a task");
                }
            });
            half.expect("it ends");
        }
    });
    ended.expect("it ends");
    let median = runtime.snapshot().steal_latency.quantile(0.5);
    median.map_or(f64::NAN, |median| median.as_nanos() as f64)
}

/// As many equal tasks as asked for, on so many workers.
fn parallel(work: &Work, workers: usize) -> Duration {
    let Work { parallel, steps, .. } = *work;
    let took = runtime(workers).run(|cx| {
        let began = Instant::now();
        let ended = cx.nursery(|n| {
            for _ in 0..parallel {
                let budget = Budget { ops: u32::MAX, ..Budget::ZERO };
                n.builder().budget(budget).start(move |cx| compute(cx, steps)).expect("a task");
            }
        });
        ended.map(|()| began.elapsed())
    });
    took.expect("it ends").expect("it ends")
}

/// The same load on so many plain threads: what the host's CPUs allow.
fn threads(work: &Work, threads: usize) -> Duration {
    let each = u64::from(work.parallel) * work.steps / threads as u64;
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(move || (0..each).fold(each, step));
        }
    });
    began.elapsed()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Work that needs nothing but a CPU.
fn compute(cx: &mainspring::Cx, steps: u64) {
    let mut state = steps;
    for number in 0..steps {
        state = step(state, number);
        if number % 64 == 0 {
            cx.check();
        }
    }
}

fn step(state: u64, number: u64) -> u64 {
    black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number))
}
