//! A refusal, shown: everything on the refused CPU is released together, each thread runs exactly its budget in each
//! period, and the simulator says which context is late.
//!
//! It is the worst that can be asked of a CPU within its budgets. A refusal by an exact test always has such a run; one by
//! a test that is sufficient only need not.

use super::Admission;
use crate::{Options, RunError};
use mainspring_abi::Nanos;
use mainspring_authority::admission::Task;
use mainspring_record::check;
use mainspring_report::{Report, ScheduleEntry};
use mainspring_sched::Floor;
use mainspring_workload::{ContextSpec, Machine, Span, Start, Step, ThreadSpec, Workload};
use std::collections::HashMap;

/// How many jobs are tried before the search for a miss is given up, unless the test names an interval.
const MOST_JOBS: u64 = 200_000;

/// What the hog is called that wants the floor.
const BEST_EFFORT: &str = "best effort";

/// Which context was late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The context, or `best effort` for the floor.
    pub who: String,
    /// When it was due.
    pub due: Nanos,
    /// What it still wanted then.
    pub short: Nanos,
}

/// A run in which a context is late.
#[derive(Clone, Debug)]
pub struct Witness {
    /// What was run.
    pub workload: Workload,
    /// Which context was late first.
    pub miss: Miss,
    /// What ran up to then.
    pub schedule: Vec<ScheduleEntry>,
}

/// What a search for a miss came to.
#[derive(Clone, Debug)]
pub enum Search {
    /// A context is late.
    Late(Box<Witness>),
    /// No context was late up to this time, and the search went no further.
    NoneUpTo(Nanos),
}

/// Releases `contexts` together on one CPU and looks for a miss, at least up to `interval` if that is known.
pub fn witness(
    workload: &Workload,
    admission: &Admission,
    contexts: &[usize],
    interval: Option<Nanos>,
) -> Result<Search, RunError> {
    let mut witness = together(workload, admission, contexts);
    let last = furthest(&witness).max(interval.unwrap_or_default());
    let longest = witness.contexts.iter().map(|context| context.period).max().unwrap_or(Floor::PERIOD);
    let mut duration = interval.unwrap_or(longest).min(last);
    loop {
        // A job that is late is seen only once its deadline has passed.
        witness.machine.duration = duration + Nanos::new(1);
        let watch: Option<Box<dyn mainspring_record::watch::Watch>> =
            if cfg!(debug_assertions) { Some(Box::new(check::all(&witness))) } else { None };
        let options = Options { schedule: true, watch, ..Options::default() };
        let report = crate::run("witness", &witness, options)?;
        if let Some(miss) = first_miss(&witness, &report) {
            let ran = report.schedule.unwrap_or_default();
            let schedule = ran.into_iter().filter(|entry| entry.start_ns < miss.due.get()).collect();
            return Ok(Search::Late(Box::new(Witness { workload: witness, miss, schedule })));
        }
        if duration >= last {
            return Ok(Search::NoneUpTo(duration));
        }
        duration = Nanos::new(duration.get().saturating_mul(2)).min(last);
    }
}

/// How long it takes until so many jobs have come.
fn furthest(witness: &Workload) -> Nanos {
    let floor = Task::of_floor(super::floor(witness)).map(|task| task.period);
    let periods = witness.contexts.iter().map(|context| context.period).chain(floor);
    // Jobs in a thousand seconds; the floor alone has ten thousand.
    let span = Nanos::from_secs(1_000);
    let jobs: u64 = periods.map(|period| span.get() / period.get().max(1)).fold(1, u64::saturating_add);
    Nanos::new(
        (u128::from(span.get()) * u128::from(MOST_JOBS) / u128::from(jobs)).min(span.get().into()) as u64
    )
}

/// `contexts`, as threads that all begin at once and run all that they may.
fn together(workload: &Workload, admission: &Admission, contexts: &[usize]) -> Workload {
    let mut witness = Workload {
        machine: Machine { cpus: 1, ..workload.machine.clone() },
        processes: vec!["witness".to_owned()],
        ..Workload::default()
    };
    let mut wanted = vec![false; admission.contexts().len()];
    contexts.iter().for_each(|context| wanted[*context] = true);
    let mut all = admission.contexts().iter().zip(wanted);
    for table in &workload.contexts {
        for _ in 0..table.instances() {
            let Some((asked, true)) = all.next() else { continue };
            let (budget, period) = (asked.task.cost, asked.task.period);
            let context = witness.contexts.len();
            witness.contexts.push(ContextSpec {
                name: asked.name.clone(),
                count: None,
                budget,
                period,
                deadline: asked.task.deadline,
                cpus: None,
                overrun: mainspring_workload::Overrun::Throttle,
                timeout_endpoint: None,
                process: None,
                ..table.clone()
            });
            let work = Step::Run(Span { min: budget, max: budget });
            witness.threads.push(thread(&asked.name, Some(context), vec![work, Step::Every(period)]));
        }
    }
    if workload.machine.floor_ppm > 0 {
        witness.threads.push(thread(BEST_EFFORT, None, vec![Step::RunForever]));
    }
    witness
}

fn thread(name: &str, context: Option<usize>, program: Vec<Step>) -> ThreadSpec {
    let now = Span { min: Nanos::ZERO, max: Nanos::ZERO };
    ThreadSpec {
        name: name.to_owned(),
        count: None,
        process: 0,
        weight: Default::default(),
        latency: Default::default(),
        request: None,
        cpus: None,
        start: Start::At(now),
        program,
        times: None,
        context,
        session: None,
        budget: None,
    }
}

/// The first deadline by which the schedule does not have what was due. It is found from what ran alone, not from what the
/// scheduler says of itself.
fn first_miss(witness: &Workload, report: &Report) -> Option<Miss> {
    let schedule = report.schedule.as_deref().unwrap_or_default();
    let end = witness.machine.duration;
    let floor = Task::of_floor(super::floor(witness));
    let contexts = witness.contexts.iter().map(|spec| (&*spec.name, spec.budget, spec.deadline, spec.period));
    let best_effort = floor.map(|task| (BEST_EFFORT, task.cost, task.deadline, task.period));
    let mut by_thread: HashMap<&str, Vec<&ScheduleEntry>> = HashMap::new();
    for entry in schedule {
        by_thread.entry(&entry.thread).or_default().push(entry);
    }
    let misses = contexts.chain(best_effort).filter_map(|(who, budget, deadline, period)| {
        let mut had = by_thread.get(who).into_iter().flatten().peekable();
        let mut ran = Nanos::ZERO;
        let mut wanted = Nanos::ZERO;
        let mut release = Nanos::ZERO;
        loop {
            let due = release + deadline;
            if due >= end {
                return None;
            }
            wanted += budget;
            while let Some(entry) = had.next_if(|entry| entry.end_ns <= due.get()) {
                ran += Nanos::new(entry.end_ns - entry.start_ns);
            }
            let part = had.peek().map_or(0, |entry| due.get().saturating_sub(entry.start_ns));
            let by_then = ran + Nanos::new(part);
            if by_then < wanted {
                return Some(Miss { who: who.to_owned(), due, short: wanted - by_then });
            }
            release += period;
        }
    });
    misses.min_by_key(|miss| miss.due)
}
