//! A recorded run under the eyes of checkers.
//!
//! Conserved: the events of each CPU keep their order, and a thread arrives at a CPU after it has left the one before. The
//! clocks of real CPUs differ by a little, so that by the times alone a thread may arrive before it left.

use crate::check::{Checks, Setting, Wide};
use crate::file::Header;
use crate::log::{Entry, Log};
use crate::replay::{Onlooker, ReplayError, Replayer, Violation};
use crate::watch::Watch;
use mainspring_abi::{CpuId, Nanos, ThreadRef};
use mainspring_report::Report;
use mainspring_sched::flight::{Event, Outcome};
use mainspring_sched::{Cpu, Entity};
use mainspring_workload::MAX_THREADS;
use std::collections::{BTreeSet, VecDeque};

/// How long a thread runs or a CPU idles at most in a record that can be checked. The books follow each refill on the way.
const LONGEST: Nanos = Nanos::from_millis(60 * 60 * 1_000);

/// Makes every decision of `log` again on CPUs as `header` says, under the eyes of all checkers; how many events there were.
pub fn verify(header: &Header, log: Log) -> Result<u64, ReplayError> {
    verify_contexts(header, log).map(|(events, _)| events)
}

/// The furthest that each context was run past its budget, by its number, beside the number of events.
fn verify_contexts(header: &Header, log: Log) -> Result<(u64, Vec<(u32, Nanos)>), ReplayError> {
    let mut replayer = Replayer::new(header)?;
    let end = log.end();
    let mut watched = Watched(Checks::<Wide>::new(Setting::recorded(header, requests(&log)?)));
    for entry in Causal::new(header.cpus, log) {
        let (now, cpu) = (entry.now, entry.cpu);
        if let Some(core) = replayer.cpus.get(cpu.index())
            && now - core.since() > LONGEST
        {
            let since = core.since();
            let what = format!("nothing is said of it since {since}, and no books are kept over so long");
            return Err(violation(now, cpu, what));
        }
        replayer.step(entry, &mut watched)?;
    }
    let cpus: Vec<&Cpu> = replayer.cpus.iter().collect();
    watched.0.end(end, &cpus).map_err(|(cpu, what)| violation(end, cpu, what))?;
    Ok((watched.0.events(), watched.0.grants().overshoots().collect()))
}

/// As [`verify`], of a run with the report `summary`: no context overran its budget by more than the report says.
pub fn verify_with_summary(header: &Header, log: Log, summary: Option<&Report>) -> Result<u64, ReplayError> {
    let end = log.end();
    let (events, overshoots) = verify_contexts(header, log)?;
    // A machine that reports no contexts cannot be wrong about them.
    let rows = summary.map_or(&[][..], |summary| &summary.contexts);
    for (number, overshoot) in overshoots {
        let row = (number as usize).checked_sub(1).and_then(|row| rows.get(row));
        if let Some(row) = row.filter(|row| row.overshoot_max_ns < overshoot.get()) {
            let reported = Nanos::new(row.overshoot_max_ns);
            let what = format!("context {} was overrun by {overshoot}, and {reported} is reported", row.name);
            return Err(violation(end, CpuId::BOOT, what));
        }
    }
    Ok(events)
}

/// A watcher of live runs looks on at a replay.
struct Watched<W>(W);

impl<W: Watch> Onlooker for Watched<W> {
    fn before(&mut self, now: Nanos, cpu: &mut Cpu, event: &Event) {
        self.0.before(now, cpu, event.borrowed());
    }

    fn after(&mut self, now: Nanos, cpu: &Cpu, outcome: Outcome, _: Option<Entity>) -> Result<(), String> {
        self.0.after(now, cpu, outcome)
    }
}

fn violation(at: Nanos, cpu: CpuId, what: String) -> ReplayError {
    ReplayError::Violation(Violation { at, cpu, what })
}

/// What each thread asks for at a time, by its index. It brings that along wherever it arrives.
fn requests(log: &Log) -> Result<Vec<Option<Nanos>>, ReplayError> {
    let mut requests = Vec::new();
    for Entry { now, cpu, event, .. } in log.entries() {
        let Event::Accept(entity, _) = event else { continue };
        let index = entity.thread().index() as usize;
        if index >= MAX_THREADS {
            return Err(violation(*now, *cpu, format!("thread number {index}: no machine has so many")));
        }
        if requests.len() <= index {
            requests.resize(index + 1, None);
        }
        requests[index] = entity.own_request();
    }
    Ok(requests)
}

/// The events of a log, in an order in which they can have happened.
struct Causal {
    /// What each CPU has still before it.
    queues: Vec<VecDeque<Entry>>,
    /// Threads that sit at some CPU.
    seated: BTreeSet<ThreadRef>,
}

impl Causal {
    fn new(cpus: usize, log: Log) -> Self {
        let mut queues: Vec<VecDeque<Entry>> = (0..cpus).map(|_| VecDeque::new()).collect();
        for entry in log.into_entries() {
            let at = entry.cpu.index();
            if queues.len() <= at {
                queues.resize_with(at + 1, VecDeque::new);
            }
            queues[at].push_back(entry);
        }
        Self { queues, seated: BTreeSet::new() }
    }

    /// Whether the first event of a CPU is the arrival of a thread that has not left another yet.
    fn is_early(&self, entry: &Entry) -> bool {
        matches!(&entry.event, Event::Accept(entity, _) if self.seated.contains(&entity.thread()))
    }
}

impl Iterator for Causal {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let heads = || self.queues.iter().enumerate().filter_map(|(cpu, queue)| Some((cpu, queue.front()?)));
        let first = |early: bool| {
            let heads = heads().filter(|(_, entry)| early || !self.is_early(entry));
            heads.min_by_key(|(_, entry)| entry.now).map(|(cpu, _)| cpu)
        };
        // If no thread leaves any more, the record is wrong, and the onlooker will say so.
        let cpu = first(false).or_else(|| first(true))?;
        let entry = self.queues[cpu].pop_front()?;
        match (&entry.event, entry.outcome) {
            (Event::Accept(entity, _), Outcome::Seated(..)) => {
                self.seated.insert(entity.thread());
            }
            (_, Outcome::Left(Some((thread, _)))) => {
                self.seated.remove(&thread);
            }
            _ => {}
        }
        Some(entry)
    }
}
