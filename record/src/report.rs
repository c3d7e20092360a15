//! The report of a recorded run, computed by making each of its decisions again.
//!
//! A machine that is not simulated (the kernel, the Linux runtime) keeps a record of what each core was asked, and nothing
//! else: how long each thread ran, waited and was owed follows from it. So a report that comes out of here is also a
//! replay without a difference.
//!
//! Conserved: a thread's account is counted once for each of its lives: where it ended, or where the record left it.

use crate::Latencies;
use crate::file::{Header, Malformed, RecordError};
use crate::log::Log;
use crate::replay::{Onlooker, ReplayError, Replayer};
use crate::sections;
use crate::states::StateKeeper;
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_report::{Miss, Report, ScheduleEntry, Telemetry, ThreadReport, read_summary};
use mainspring_sched::flight::{Event, Outcome};
use mainspring_sched::{Cpu, Decision, Entity, Lag, State, Stop, Via};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Debug, Default)]
struct Row {
    report: ThreadReport,
    lived: bool,
    born: Nanos,
    alive: Nanos,
    woken_at: Option<Nanos>,
    latencies: Latencies,
}

/// Adds a row of that name; which it is.
fn add_row(rows: &mut Vec<Row>, name: String) -> usize {
    rows.push(Row { report: ThreadReport { name, ..ThreadReport::default() }, ..Row::default() });
    rows.len() - 1
}

/// The report of a record, once all of its decisions have been made again.
#[derive(Debug)]
pub struct RecordReport {
    replayer: Replayer,
    threads: Threads,
    end: Nanos,
}

/// What is learnt of the threads while a record is replayed.
#[derive(Debug)]
struct Threads {
    /// A row per name, and one for each thread that has none.
    rows: Vec<Row>,
    /// By thread index.
    row_of: BTreeMap<u32, usize>,
    /// Threads that have left one CPU and not arrived at another, and since when: on their way, or gone for good.
    in_transit: BTreeMap<u32, (Entity, Nanos)>,
    /// Threads whose arrival comes before their departure, since two CPUs read two clocks.
    early: BTreeSet<ThreadRef>,
    running: Vec<Option<(ThreadRef, Nanos)>>,
    schedule: Vec<ScheduleEntry>,
    states: StateKeeper,
    /// What the outcome of the event that is under way means.
    under_way: UnderWay,
}

/// An event whose outcome is still to come.
#[derive(Clone, Copy, Debug, Default)]
enum UnderWay {
    /// Nothing is to be learnt from its outcome.
    #[default]
    Other,
    /// The running thread stops for this reason, and another is chosen.
    Decision(&'static str),
    /// This thread is woken.
    Wake(ThreadRef),
    /// The running thread ends.
    Exit,
    /// A thread leaves for another CPU.
    Departure,
}

impl Onlooker for Threads {
    fn before(&mut self, now: Nanos, cpu: &mut Cpu, event: &Event) {
        self.under_way = UnderWay::Other;
        self.states.before(cpu, event.borrowed());
        match event {
            Event::Accept(entity, via) => {
                self.arrive(entity.thread(), *via);
                let row = self.row(entity.thread().index());
                match via {
                    Via::Admit => {
                        row.lived = true;
                        row.born = now;
                    }
                    Via::HandOff => {
                        row.report.wakeups += 1;
                        row.woken_at.get_or_insert(now);
                    }
                    Via::Steal => {}
                }
            }
            Event::Resched(stop) => {
                self.under_way = UnderWay::Decision(match stop {
                    Stop::Nothing => "",
                    Stop::Preempted => "preempted",
                    Stop::Yielded => "yielded",
                    Stop::Blocked(..) => "blocked",
                });
                if let (Some(lag), Some(seat)) = (cpu.current_lag(now), cpu.current()) {
                    self.note_lag(seat.thread(), lag);
                }
            }
            Event::ExitCurrent => self.under_way = UnderWay::Exit,
            Event::Give(_) | Event::Remove(_) => self.under_way = UnderWay::Departure,
            Event::Wake(seat) | Event::HandOff(seat) => self.under_way = UnderWay::Wake(seat.thread()),
            _ => {}
        }
    }

    fn after(&mut self, now: Nanos, cpu: &Cpu, outcome: Outcome, left: Option<Entity>) -> Result<(), String> {
        self.states.after(now, cpu, outcome);
        match (std::mem::take(&mut self.under_way), outcome, left) {
            (UnderWay::Decision(reason), Outcome::Decided(decision), _) => {
                self.decided(now, cpu, reason, decision);
            }
            (UnderWay::Exit, _, Some(entity)) => {
                self.end_segment(cpu.id().index(), now, "exited");
                self.bury(&entity, now);
            }
            (UnderWay::Departure, _, Some(entity)) => self.depart(entity, now),
            (UnderWay::Wake(thread), Outcome::Ready(..) | Outcome::Direct(_), _) => self.woken(thread, now),
            (_, Outcome::Expired(Some((seat, _)), _), _) => self.woken(seat.thread(), now),
            _ => {}
        }
        Ok(())
    }
}

impl Threads {
    fn new(header: &Header) -> Self {
        let mut threads = Self {
            rows: Vec::new(),
            row_of: BTreeMap::new(),
            in_transit: BTreeMap::new(),
            early: BTreeSet::new(),
            running: vec![None; header.cpus],
            schedule: Vec::new(),
            states: StateKeeper::default(),
            under_way: UnderWay::Other,
        };
        threads.name(&header.threads);
        threads
    }

    /// Instances that had several threads have one row.
    fn name(&mut self, names: &[String]) {
        let mut known = BTreeMap::new();
        for (thread, name) in (0..).zip(names) {
            let row = *known.entry(name).or_insert_with(|| add_row(&mut self.rows, name.clone()));
            self.row_of.insert(thread, row);
        }
    }

    fn row(&mut self, thread: u32) -> &mut Row {
        let rows = &mut self.rows;
        let row = *self.row_of.entry(thread).or_insert_with(|| add_row(rows, format!("(thread {thread})")));
        &mut self.rows[row]
    }

    fn arrive(&mut self, thread: ThreadRef, via: Via) {
        match self.in_transit.remove(&thread.index()) {
            Some((here, _)) if here.thread() == thread => {}
            // Another life: the one before had left for good.
            Some((gone, left)) => self.bury(&gone, left),
            None if via == Via::Admit => {}
            None => {
                self.early.insert(thread);
            }
        }
    }

    fn depart(&mut self, entity: Entity, now: Nanos) {
        if !self.early.remove(&entity.thread()) {
            self.in_transit.insert(entity.thread().index(), (entity, now));
        }
    }

    fn decided(&mut self, now: Nanos, cpu: &Cpu, reason: &'static str, decision: Decision) {
        let at = cpu.id().index();
        let reason = if self.is_throttled(cpu) { "depleted" } else { reason };
        let Decision::Run(run) = decision else { return self.end_segment(at, now, reason) };
        if run.switched {
            self.end_segment(at, now, reason);
            self.running[at] = Some((run.thread, now));
        }
        if let Some(lag) = cpu.charged_lag() {
            self.note_lag(run.thread, lag);
        }
        let row = self.row(run.thread.index());
        if let Some(since) = row.woken_at.take() {
            row.latencies.record(now - since);
        }
    }

    /// Whether the thread that had `cpu` waits for its context's next refill.
    fn is_throttled(&self, cpu: &Cpu) -> bool {
        let Some((thread, _)) = self.running[cpu.id().index()] else { return false };
        cpu.contexts() > 0
            && cpu.threads().iter().any(|view| view.thread == thread && view.state == State::Throttled)
    }

    fn note_lag(&mut self, thread: ThreadRef, lag: Lag) {
        let report = &mut self.row(thread.index()).report;
        report.lag_max_ns = report.lag_max_ns.max(lag.magnitude().get());
    }

    fn woken(&mut self, thread: ThreadRef, now: Nanos) {
        let row = self.row(thread.index());
        row.report.wakeups += 1;
        row.woken_at.get_or_insert(now);
    }

    fn end_segment(&mut self, at: usize, now: Nanos, reason: &str) {
        let Some((thread, start)) = self.running[at].take() else { return };
        if start < now {
            let thread = self.row(thread.index()).report.name.clone();
            self.schedule.push(ScheduleEntry {
                cpu: at as u32,
                thread,
                start_ns: start.get(),
                end_ns: now.get(),
                reason: reason.to_owned(),
            });
        }
    }

    fn bury(&mut self, entity: &Entity, now: Nanos) {
        let account = entity.account();
        let ready = entity.ready_since().map_or(Nanos::ZERO, |since| now - since);
        let row = self.row(entity.thread().index());
        row.alive += now - row.born;
        row.woken_at = None;
        let report = &mut row.report;
        report.weight = entity.weight().get();
        report.runtime_ns += account.runtime().get();
        report.entitled_ns += account.runtime().get().saturating_add_signed(entity.lag().as_nanos());
        report.ready_ns += (account.runnable_accumulated() + ready).get();
        report.preemptions += account.preemptions();
        report.voluntary_blocks += account.voluntary_blocks();
        report.migrations += account.migrations();
        report.switches += account.switches();
    }

    /// Threads that still live are accounted for as if they ended with the machine.
    fn close(&mut self, cpus: &mut [Cpu], machine_end: Nanos) {
        for (at, cpu) in cpus.iter_mut().enumerate() {
            self.end_segment(at, machine_end, "end");
            let end = machine_end.max(cpu.since());
            if let Some(entity) = cpu.exit_current(end) {
                self.bury(&entity, end);
            }
            for view in cpu.threads() {
                if view.state != State::Running
                    && let Ok(removed) = cpu.remove(end, view.seat)
                {
                    self.bury(&removed.entity, end);
                }
            }
        }
        for (entity, left) in std::mem::take(&mut self.in_transit).into_values() {
            self.bury(&entity, left);
        }
    }
}

impl RecordReport {
    /// Makes every decision of `log` again, on CPUs as `header` says.
    pub fn of(header: &Header, log: Log) -> Result<Self, ReplayError> {
        let mut replayer = Replayer::new(header)?;
        let mut threads = Threads::new(header);
        let end = log.end();
        for entry in log.into_entries() {
            replayer.step(entry, &mut threads)?;
        }
        threads.close(&mut replayer.cpus, end);
        Ok(Self { replayer, threads, end })
    }

    /// Makes every decision of a record file again. The summary that the file ends with is part of the report; see
    /// [`Log::summary`].
    pub fn of_file(header: &Header, log: Log) -> Result<Report, ReplayError> {
        let (recorded, summary) = (log.digest().map(str::to_owned), read_summary(log.summary()));
        let end = RecordError::Malformed { block: 0, what: Malformed::End };
        let replayed = Self::of(header, log)?;
        let digest = replayed.digest();
        let fits = |summary: &Report| summary.digest == digest && summary.seed == header.seed;
        if recorded.is_some_and(|recorded| recorded != digest)
            || summary.as_ref().is_some_and(|summary| !fits(summary))
        {
            return Err(end.into());
        }
        let replayed = replayed.report("record", header, Duration::ZERO);
        Ok(match summary {
            None => replayed,
            Some(summary) => Report {
                schedule: replayed.schedule,
                states: replayed.states,
                events: Some(summary.misses.iter().map(Miss::event).collect()),
                ..summary
            },
        })
    }

    /// The digest of the decisions.
    #[must_use]
    pub fn digest(&self) -> String {
        self.replayer.digest.to_string()
    }

    /// The report of a run on `machine`, which took `wall`. Rows of threads that never lived are left out.
    #[must_use]
    pub fn report(self, machine: &str, header: &Header, wall: Duration) -> Report {
        let Self { replayer, mut threads, end } = self;
        let Replayer { cpus, decisions, digest, .. } = replayer;
        threads.schedule.sort_by_key(|entry| (entry.start_ns, entry.cpu));
        let states = threads.states.finish(end, header.threads.iter().cloned());
        // Reschedules that were sent are not events of a core: those received are.
        let received = cpus.iter().map(|core| core.telemetry().reschedules).sum();
        let counted = Telemetry { reschedules_sent: received, ..Telemetry::default() };
        let lived = threads.rows.into_iter().filter(|row| row.lived);
        let rows = lived.map(|mut row| ThreadReport {
            blocked_ns: row.alive.get().saturating_sub(row.report.runtime_ns + row.report.ready_ns),
            wake_latency_ns: row.latencies.summary(),
            ..row.report
        });
        Report {
            machine: machine.to_owned(),
            config: sections::config(&header.workload, header.policy, header.quantum, header.tick),
            seed: header.seed,
            duration_ns: end.get(),
            decisions,
            wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
            digest: digest.to_string(),
            cpus: sections::cpus(cpus.iter(), end),
            threads: rows.collect(),
            telemetry: sections::telemetry(cpus.iter(), counted),
            schedule: Some(threads.schedule),
            states: Some(states),
            ..Report::default()
        }
    }
}
