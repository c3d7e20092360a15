//! Replay: a recorded run's events, given to fresh CPUs, must give the recorded decisions.

use crate::digest::Digest;
use crate::file::{Header, Item, RecordError, RecordReader, Trailer};
use crate::log::Entry;
use mainspring_abi::{CpuId, Nanos};
use mainspring_report::{Report, read_summary};
use mainspring_sched::Floor;
use mainspring_sched::flight::{Event, Impossible, Outcome};
use mainspring_sched::{Config, Cpu, Decision, Entity};
use std::fmt;
use std::io::Read;

/// A record that replays.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// How many events there were.
    pub events: u64,
    /// How many of them were decisions.
    pub decisions: u64,
    /// Digest of the replayed outcomes.
    pub digest: String,
    /// The workload file that was recorded.
    pub workload: String,
}

/// Why a record does not replay.
#[derive(Debug)]
pub enum ReplayError {
    /// It is no usable record.
    Record(RecordError),
    /// The machine it describes does not fit in memory.
    NoRoom,
    /// An event names a CPU that the machine does not have.
    NoSuchCpu {
        /// Which.
        cpu: CpuId,
    },
    /// An event cannot have happened.
    Impossible {
        /// Which event, from 0.
        number: u64,
        /// When.
        now: Nanos,
        /// Where.
        cpu: CpuId,
        /// Why not.
        why: Impossible,
    },
    /// The first decision that differs.
    Differs(Box<Difference>),
    /// The onlooker found something that must not be.
    Violation(Violation),
}

/// Something that must not be, as a checker found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Nanos,
    /// Where.
    pub cpu: CpuId,
    /// What.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {} on CPU {}: {}", self.at, self.cpu, self.what)
    }
}

/// Where replay and record part.
#[derive(Debug)]
pub struct Difference {
    /// Which event, from 0.
    pub number: u64,
    /// When.
    pub now: Nanos,
    /// Where.
    pub cpu: CpuId,
    /// What happened.
    pub event: String,
    /// What the record says came of it.
    pub recorded: String,
    /// What comes of it now.
    pub replayed: String,
}

impl ReplayError {
    /// Whether the record is sound but decides otherwise.
    #[must_use]
    pub fn is_difference(&self) -> bool {
        matches!(self, Self::Differs(_) | Self::Impossible { .. })
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(error) => error.fmt(f),
            Self::NoRoom => f.write_str("no memory for the recorded machine"),
            Self::NoSuchCpu { cpu } => {
                write!(f, "the record has events of CPU {cpu}, which its machine lacks")
            }
            Self::Impossible { number, now, cpu, why } => {
                write!(f, "event {number} at {now} on CPU {cpu} cannot have happened: {why}")
            }
            Self::Differs(at) => write!(
                f,
                "event {} at {} on CPU {} differs: {}\n  recorded: {}\n  replayed: {}",
                at.number, at.now, at.cpu, at.event, at.recorded, at.replayed
            ),
            Self::Violation(violation) => violation.fmt(f),
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<RecordError> for ReplayError {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

/// Looks on at a replay.
pub trait Onlooker {
    /// `event` is about to be given to `cpu`, which may be asked for its lag: that brings its clock up to `now`.
    fn before(&mut self, now: Nanos, cpu: &mut Cpu, event: &Event);

    /// `cpu` answered with `outcome`, and `left` has left it. `Err` says what must not be, and ends the replay.
    fn after(&mut self, now: Nanos, cpu: &Cpu, outcome: Outcome, left: Option<Entity>) -> Result<(), String>;
}

/// No onlooker.
impl Onlooker for () {
    fn before(&mut self, _: Nanos, _: &mut Cpu, _: &Event) {}
    fn after(&mut self, _: Nanos, _: &Cpu, _: Outcome, _: Option<Entity>) -> Result<(), String> {
        Ok(())
    }
}

/// The CPUs of a recorded machine, on which the decisions of its record are made again.
#[derive(Debug)]
pub(crate) struct Replayer {
    pub cpus: Vec<Cpu>,
    pub events: u64,
    pub decisions: u64,
    pub digest: Digest,
}

impl Replayer {
    /// The machine as it was before its record.
    pub(crate) fn new(header: &Header) -> Result<Self, ReplayError> {
        Ok(Self { cpus: machine(header)?, events: 0, decisions: 0, digest: Digest::new() })
    }

    /// Gives one event to its CPU, and compares what comes of it with the record.
    pub(crate) fn step(&mut self, entry: Entry, onlooker: &mut impl Onlooker) -> Result<(), ReplayError> {
        let Entry { now, cpu, event, outcome: recorded } = entry;
        let number = self.events;
        self.events += 1;
        let core = self.cpus.get_mut(cpu.index()).ok_or(ReplayError::NoSuchCpu { cpu })?;
        let summary = event.summary();
        onlooker.before(now, core, &event);
        let (replayed, left) =
            core.apply(now, event).map_err(|why| ReplayError::Impossible { number, now, cpu, why })?;
        if replayed != recorded {
            let (event, recorded, replayed) =
                (summary.to_string(), format!("{recorded:?}"), format!("{replayed:?}"));
            let difference = Difference { number, now, cpu, event, recorded, replayed };
            return Err(ReplayError::Differs(Box::new(difference)));
        }
        if let Outcome::Decided(decision) = replayed {
            self.decisions += 1;
            let thread = match decision {
                Decision::Run(run) => Some(run.thread.index()),
                Decision::Idle => None,
            };
            self.digest.decision(now.get(), cpu.index(), thread);
        }
        onlooker
            .after(now, core, replayed, left)
            .map_err(|what| ReplayError::Violation(Violation { at: now, cpu, what }))
    }
}

/// A record file being replayed.
pub(crate) struct Replay<R> {
    reader: RecordReader<R>,
    pub replayer: Replayer,
    /// Read, but not replayed yet.
    next: Option<Item>,
}

impl<R: Read> Replay<R> {
    pub(crate) fn new(input: R) -> Result<Self, ReplayError> {
        let reader = RecordReader::new(input)?;
        let replayer = Replayer::new(reader.header())?;
        Ok(Self { reader, replayer, next: None })
    }

    pub(crate) fn header(&self) -> &Header {
        self.reader.header()
    }

    /// When the next event happened; `None` at the end.
    pub(crate) fn peek_time(&mut self) -> Result<Option<Nanos>, ReplayError> {
        if self.next.is_none() {
            self.next = Some(self.reader.next_item()?);
        }
        Ok(match &self.next {
            Some(Item::Record(entry)) => Some(entry.now),
            _ => None,
        })
    }

    /// When the run ended, once the end has been seen.
    pub(crate) fn ended_at(&self) -> Option<Nanos> {
        match &self.next {
            Some(Item::End(trailer)) => Some(trailer.end),
            _ => None,
        }
    }

    /// Reads what is left, without replaying it: an answer comes from a whole record or not at all.
    pub(crate) fn check_rest(&mut self) -> Result<(), ReplayError> {
        self.look_through_rest(|_| {})
    }

    /// The same, and shows each event to `look`.
    pub(crate) fn look_through_rest(&mut self, mut look: impl FnMut(&Event)) -> Result<(), ReplayError> {
        loop {
            match &self.next {
                Some(Item::End(_)) => return Ok(()),
                Some(Item::Record(entry)) => look(&entry.event),
                None => {}
            }
            self.next = Some(self.reader.next_item()?);
        }
    }

    /// What the machine tells of the run, once the end has been seen and if it does.
    pub(crate) fn summary(&self) -> Option<Report> {
        match &self.next {
            Some(Item::End(trailer)) => read_summary(&trailer.summary),
            _ => None,
        }
    }

    /// Replays one event; at the end, what the end says.
    pub(crate) fn step(&mut self) -> Result<Option<Trailer>, ReplayError> {
        self.step_before(&mut ())
    }

    /// The same, with an onlooker.
    pub(crate) fn step_before(
        &mut self,
        onlooker: &mut impl Onlooker,
    ) -> Result<Option<Trailer>, ReplayError> {
        let item = match self.next.take() {
            Some(item) => item,
            None => self.reader.next_item()?,
        };
        match item {
            Item::End(trailer) => Ok(Some(trailer)),
            Item::Record(entry) => self.replayer.step(entry, onlooker).map(|()| None),
        }
    }
}

/// The CPUs of the machine that a record is of, as they were before it.
fn machine(header: &Header) -> Result<Vec<Cpu>, ReplayError> {
    let mut cpus = Vec::new();
    for index in 0..header.cpus {
        let id = CpuId::new(index).map_err(|_| ReplayError::NoRoom)?;
        let floor = Floor::from_ppm(header.floor_ppm).map_err(|_| ReplayError::NoRoom)?;
        let config =
            Config { quantum: header.quantum, tick: header.tick, floor, ..Config::new(id, header.policy) };
        let mut cpu = Cpu::new(config);
        cpu.reserve(header.seats).map_err(|_| ReplayError::NoRoom)?;
        cpus.push(cpu);
    }
    Ok(cpus)
}

/// Replays a whole record. `progress` is told how many bytes have been read.
pub fn replay(input: impl Read, progress: &mut dyn FnMut(u64)) -> Result<Replayed, ReplayError> {
    let mut replay = Replay::new(input)?;
    let mut told = 0;
    let trailer = loop {
        if let Some(trailer) = replay.step()? {
            break trailer;
        }
        let read = replay.reader.bytes_read();
        if read != told {
            told = read;
            progress(read);
        }
    };
    let Replayer { events, decisions, digest, .. } = &replay.replayer;
    let digest = digest.to_string();
    if trailer.digest != digest {
        return Err(replay.reader.bad_end().into());
    }
    let workload = replay.header().workload.clone();
    Ok(Replayed { events: *events, decisions: *decisions, digest, workload })
}
