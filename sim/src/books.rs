//! The report of a recorded run, computed by making each of its decisions again.
//!
//! A machine that is not simulated (the kernel, the Linux runtime) keeps a record of what each core was asked, and nothing
//! else: who ran how long, waited and was owed what follows from it. So a report that comes out of here is also a
//! replay without a difference.
//!
//! Conserved: a thread's account is booked once for each of its lives: where it ended, or where the record left it.

use crate::digest::Digest;
use crate::record::{Header, Item, RecordError, RecordReader, Recorder};
use crate::replay::{self, Description};
use crate::rows::{self, Latencies};
use mainspring_abi::{CpuId, Nanos, ThreadRef};
use mainspring_report::{Report, ScheduleEntry, Telemetry, ThreadReport};
use mainspring_sched::flight::{DecodeError, Event, Impossible, Outcome, Past, Reader, read_record};
use mainspring_sched::{Cpu, Decision, Entity, State, Stop, Via};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read};
use std::time::Duration;

/// One event of a record.
#[derive(Debug)]
pub struct Entry {
    /// When.
    pub now: Nanos,
    /// Where.
    pub cpu: CpuId,
    /// What was asked.
    pub event: Event,
    /// What was answered.
    pub outcome: Outcome,
}

/// The events of all CPUs, joined by time. Each CPU's own are in its own order; between CPUs any order replays.
#[derive(Debug, Default)]
pub struct Log {
    entries: Vec<Entry>,
    end: Nanos,
}

/// Why a record makes no sense.
#[derive(Debug, PartialEq, Eq)]
pub enum BookError {
    /// The bytes are no records.
    Decode(DecodeError),
    /// The machine does not fit in memory.
    NoRoom,
    /// There are bytes after the last record of a CPU.
    Trailing(CpuId),
    /// An event of a CPU that the machine does not have, or that cannot have happened.
    Impossible {
        /// Which event, from 0.
        number: usize,
        /// When.
        now: Nanos,
        /// Where.
        cpu: CpuId,
        /// Why not.
        why: String,
    },
    /// A decision that differs.
    Differs {
        /// Which event, from 0.
        number: usize,
        /// When.
        now: Nanos,
        /// Where.
        cpu: CpuId,
        /// What was asked.
        event: String,
        /// What was answered then.
        recorded: String,
        /// What is answered now.
        replayed: String,
    },
}

impl fmt::Display for BookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode(error) => error.fmt(f),
            Self::NoRoom => f.write_str("no memory for the recorded machine"),
            Self::Trailing(cpu) => write!(f, "CPU {cpu} has bytes after its last event"),
            Self::Impossible { number, now, cpu, why } => {
                write!(f, "event {number} at {now} on CPU {cpu} cannot have happened: {why}")
            }
            Self::Differs { number, now, cpu, event, recorded, replayed } => write!(
                f,
                "event {number} at {now} on CPU {cpu} differs: {event}\n  recorded: {recorded}\n  replayed: {replayed}"
            ),
        }
    }
}

impl std::error::Error for BookError {}

impl Log {
    /// Adds the record of one CPU: so many events as bytes, and when it was closed.
    pub fn add(&mut self, cpu: CpuId, bytes: &[u8], records: u64, end: Nanos) -> Result<(), BookError> {
        let (mut at, mut past) = (0, Past::new());
        for _ in 0..records {
            let mut reader = Reader::new(&bytes[at..]);
            let (place, event, outcome) = read_record(&mut reader, &mut past).map_err(BookError::Decode)?;
            at += reader.position();
            self.entries.push(Entry { now: place.now, cpu: place.cpu, event, outcome });
        }
        if at != bytes.len() {
            return Err(BookError::Trailing(cpu));
        }
        self.end = self.end.max(end).max(past.told().last().now);
        // Stable: events of one CPU stay in their order.
        self.entries.sort_by_key(|entry| entry.now);
        Ok(())
    }

    /// The events of a flight record file.
    pub fn read(mut reader: RecordReader<impl Read>) -> Result<Self, RecordError> {
        let mut entries = Vec::new();
        loop {
            match reader.next_item()? {
                Item::Record { now, cpu, event, outcome } => entries.push(Entry { now, cpu, event, outcome }),
                Item::End(trailer) => return Ok(Self { entries, end: trailer.end }),
            }
        }
    }

    /// The events, by time.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The same, by value.
    #[must_use]
    pub(crate) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    /// When the machine ended.
    #[must_use]
    pub fn end(&self) -> Nanos {
        self.end
    }

    /// Writes the events as a flight record file.
    pub fn write(&self, mut recorder: Recorder<'_>, digest: &str) -> io::Result<()> {
        for Entry { now, cpu, event, outcome } in &self.entries {
            recorder.begin(*now, *cpu, event.borrowed())?;
            recorder.finish(*outcome);
        }
        recorder.close(self.end, digest)
    }
}

#[derive(Debug, Default)]
struct Row {
    told: ThreadReport,
    lived: bool,
    born: Nanos,
    alive: Nanos,
    woken_at: Option<Nanos>,
    latencies: Latencies,
}

/// Adds a row of that name; which it is.
fn add_row(rows: &mut Vec<Row>, name: String) -> usize {
    rows.push(Row { told: ThreadReport { name, ..ThreadReport::default() }, ..Row::default() });
    rows.len() - 1
}

/// What has been learnt from a record so far.
#[derive(Debug)]
pub struct Books {
    cpus: Vec<Cpu>,
    /// A row per name, and one for each thread that has none.
    rows: Vec<Row>,
    /// By thread index.
    row_of: BTreeMap<u32, usize>,
    /// Threads that have left one CPU and not arrived at another, and since when: on their way, or gone for good.
    in_hand: BTreeMap<u32, (Entity, Nanos)>,
    /// Threads whose arrival comes before their departure, since two CPUs read two clocks.
    early: BTreeSet<ThreadRef>,
    running: Vec<Option<(ThreadRef, Nanos)>>,
    schedule: Vec<ScheduleEntry>,
    decisions: u64,
    digest: Digest,
    end: Nanos,
}

impl Books {
    /// Makes every decision of `log` again, on cores as `header` says.
    pub fn of(header: &Header, log: Log) -> Result<Self, BookError> {
        let mut books = Self {
            cpus: replay::machine(header).map_err(|_| BookError::NoRoom)?,
            rows: Vec::new(),
            row_of: BTreeMap::new(),
            in_hand: BTreeMap::new(),
            early: BTreeSet::new(),
            running: vec![None; header.cpus],
            schedule: Vec::new(),
            decisions: 0,
            digest: Digest::new(),
            end: log.end,
        };
        books.name(&header.threads);
        for (number, entry) in log.entries.into_iter().enumerate() {
            books.take(number, entry)?;
        }
        books.close();
        Ok(books)
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

    fn take(&mut self, number: usize, entry: Entry) -> Result<(), BookError> {
        let Entry { now, cpu, event, outcome: recorded } = entry;
        let what = Description::of(&event);
        let impossible =
            |why: &dyn fmt::Display| BookError::Impossible { number, now, cpu, why: why.to_string() };
        if cpu.index() >= self.cpus.len() {
            return Err(impossible(&"the machine has no such CPU"));
        }
        let replayed = self.step(now, cpu.index(), event).map_err(|why| impossible(&why))?;
        if replayed != recorded {
            let (recorded, replayed) = (format!("{recorded:?}"), format!("{replayed:?}"));
            return Err(BookError::Differs { number, now, cpu, event: what.to_string(), recorded, replayed });
        }
        if let Outcome::Decided(decision) = replayed {
            self.decisions += 1;
            let thread = match decision {
                Decision::Run(run) => Some(run.thread.index()),
                Decision::Idle => None,
            };
            self.digest.decision(now.get(), cpu.index(), thread);
        }
        Ok(())
    }

    fn step(&mut self, now: Nanos, at: usize, event: Event) -> Result<Outcome, Impossible> {
        match event {
            Event::Accept(entity, via) => {
                let index = entity.thread().index();
                self.arrive(entity.thread(), via);
                let row = self.row(index);
                match via {
                    Via::Admit => {
                        row.lived = true;
                        row.born = now;
                    }
                    Via::HandOff => {
                        row.told.wakeups += 1;
                        row.woken_at.get_or_insert(now);
                    }
                    Via::Steal => {}
                }
                Ok((&self.cpus[at].accept(now, entity, via)).into())
            }
            Event::ExitCurrent => {
                self.end_segment(at, now, "exited");
                let left = self.cpus[at].exit_current(now);
                let outcome = Outcome::from(&left);
                if let Some(entity) = left {
                    self.bury(&entity, now);
                }
                Ok(outcome)
            }
            Event::Give(thief) => {
                let given = self.cpus[at].give(now, thief);
                let outcome = Outcome::from(&given);
                given.into_iter().for_each(|entity| self.depart(entity, now));
                Ok(outcome)
            }
            Event::Remove(seat) => {
                let removed = self.cpus[at].remove(now, seat);
                let outcome = Outcome::from(&removed);
                self.in_hand
                    .extend(removed.ok().map(|removed| (seat.thread().index(), (removed.entity, now))));
                Ok(outcome)
            }
            Event::Resched(stop) => Ok(self.decide(at, now, stop)),
            event => {
                let sleeper = match event {
                    Event::Wake(seat) | Event::HandOff(seat) => Some(seat.thread()),
                    _ => None,
                };
                let outcome = self.cpus[at].apply(now, event)?;
                match (sleeper, outcome) {
                    (_, Outcome::Expired(Some((seat, _)), _)) => self.woken(seat.thread(), now),
                    (Some(thread), Outcome::Ready(..) | Outcome::Direct(_)) => self.woken(thread, now),
                    _ => {}
                }
                Ok(outcome)
            }
        }
    }

    fn arrive(&mut self, thread: ThreadRef, via: Via) {
        match self.in_hand.remove(&thread.index()) {
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
            self.in_hand.insert(entity.thread().index(), (entity, now));
        }
    }

    fn decide(&mut self, at: usize, now: Nanos, stop: Stop) -> Outcome {
        let reason = match stop {
            Stop::Nothing => "",
            Stop::Preempted => "preempted",
            Stop::Yielded => "yielded",
            Stop::Blocked(..) => "blocked",
        };
        if let (Some(lag), Some(seat)) = (self.cpus[at].current_lag(now), self.cpus[at].current()) {
            let row = &mut self.row(seat.thread().index()).told;
            row.lag_max_ns = row.lag_max_ns.max(lag.magnitude().get());
        }
        let decision = self.cpus[at].resched(now, stop);
        match decision {
            Decision::Run(run) => {
                if run.switched {
                    self.end_segment(at, now, reason);
                    self.running[at] = Some((run.thread, now));
                }
                let lag = self.cpus[at].charged_lag();
                let row = self.row(run.thread.index());
                if let Some(lag) = lag {
                    row.told.lag_max_ns = row.told.lag_max_ns.max(lag.magnitude().get());
                }
                if let Some(since) = row.woken_at.take() {
                    row.latencies.record(now - since);
                }
            }
            Decision::Idle => self.end_segment(at, now, reason),
        }
        decision.into()
    }

    fn woken(&mut self, thread: ThreadRef, now: Nanos) {
        let row = self.row(thread.index());
        row.told.wakeups += 1;
        row.woken_at.get_or_insert(now);
    }

    fn end_segment(&mut self, at: usize, now: Nanos, reason: &str) {
        let Some((thread, start)) = self.running[at].take() else { return };
        if start < now {
            let thread = self.row(thread.index()).told.name.clone();
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
        let told = &mut row.told;
        told.weight = entity.weight().get();
        told.runtime_ns += account.runtime().get();
        told.entitled_ns += account.runtime().get().saturating_add_signed(entity.lag().as_nanos());
        told.ready_ns += (account.runnable_accumulated() + ready).get();
        told.preemptions += account.preemptions();
        told.voluntary_blocks += account.voluntary_blocks();
        told.migrations += account.migrations();
        told.switches += account.switches();
    }

    /// Threads that still live are booked as if they ended with the machine.
    fn close(&mut self) {
        for at in 0..self.cpus.len() {
            self.end_segment(at, self.end, "end");
            let end = self.end.max(self.cpus[at].since());
            if let Some(entity) = self.cpus[at].exit_current(end) {
                self.bury(&entity, end);
            }
            for view in self.cpus[at].threads() {
                if view.state != State::Running
                    && let Ok(removed) = self.cpus[at].remove(end, view.seat)
                {
                    self.bury(&removed.entity, end);
                }
            }
        }
        for (entity, left) in std::mem::take(&mut self.in_hand).into_values() {
            self.bury(&entity, left);
        }
    }

    /// The digest of the decisions.
    #[must_use]
    pub fn digest(&self) -> String {
        self.digest.to_string()
    }

    /// The report of a run on `machine`, which took `wall`. Rows of threads that never lived are left out.
    #[must_use]
    pub fn report(mut self, machine: &str, header: &Header, wall: Duration) -> Report {
        self.schedule.sort_by_key(|entry| (entry.start_ns, entry.cpu));
        // Reschedules that were sent are not events of a core: those received are.
        let received = self.cpus.iter().map(|core| core.telemetry().reschedules).sum();
        let counted = Telemetry { reschedules_sent: received, ..Telemetry::default() };
        let lived = self.rows.into_iter().filter(|row| row.lived);
        let threads = lived.map(|mut row| ThreadReport {
            blocked_ns: row.alive.get().saturating_sub(row.told.runtime_ns + row.told.ready_ns),
            wake_latency_ns: row.latencies.summary(),
            ..row.told
        });
        Report {
            machine: machine.to_owned(),
            config: rows::config(&header.workload, header.policy, header.quantum, header.tick),
            seed: header.seed,
            duration_ns: self.end.get(),
            decisions: self.decisions,
            wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
            digest: self.digest.to_string(),
            cpus: rows::cpus(&self.cpus, self.end),
            threads: threads.collect(),
            telemetry: rows::telemetry(&self.cpus, counted),
            schedule: Some(self.schedule),
            ..Report::default()
        }
    }
}
