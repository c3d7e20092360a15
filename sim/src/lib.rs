//! The simulator: the scheduler core on virtual CPUs, in virtual time.
//!
//! A run is a function of the workload and the seed. Threads are scripted programs; costs and faults are what the
//! workload says. Every input of the core goes through one place, where it can be recorded and watched: see
//! [`mainspring_record`] for the record and the checkers.

pub mod admission;
mod machine;
pub mod policy;
mod steal_offers;
mod tournament;

use mainspring_abi::{CpuId, Nanos};
pub(crate) use mainspring_random as random;
use mainspring_record::Violation;
use mainspring_record::watch::Watch;
use mainspring_report::Report;
use mainspring_workload::Workload;
use std::fmt;
use std::io::{self, Write};

/// What to do besides running.
#[derive(Default)]
pub struct Options<'a> {
    /// Seeds every random choice.
    pub seed: u64,
    /// Whether the report lists what ran when.
    pub schedule: bool,
    /// Where to write the flight record, a hundred kilobytes or so at a time.
    pub record: Option<Box<dyn Write + 'a>>,
    /// Called with the virtual time a thousand times in a run.
    pub progress: Option<Box<dyn FnMut(Nanos) + 'a>>,
    /// Looks on at every event of every CPU.
    pub watch: Option<Box<dyn Watch + 'a>>,
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("seed", &self.seed)
            .field("schedule", &self.schedule)
            .finish_non_exhaustive()
    }
}

/// Why a run ended early.
#[derive(Debug)]
pub enum RunError {
    /// The machine does not fit in memory.
    NoRoom {
        /// How many CPUs.
        cpus: usize,
        /// How many thread instances.
        threads: usize,
    },
    /// Threads keep handing over to each other and no time passes.
    Standstill {
        /// When.
        at: Nanos,
        /// One of them.
        thread: String,
    },
    /// The flight record could not be written.
    Record(io::Error),
    /// A watcher found something that must not be.
    Violation(Violation),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom { cpus, threads } => {
                write!(f, "no memory for {threads} threads on {cpus} CPUs; use fewer of either")
            }
            Self::Standstill { at, thread } => write!(
                f,
                "time stands still at {at}: thread `{thread}` and its partners never run; add a `run` step"
            ),
            Self::Record(error) => write!(f, "cannot write the flight record: {error}"),
            Self::Violation(violation) => violation.fmt(f),
        }
    }
}

impl RunError {
    /// A watcher or the machine itself found something that must not be.
    pub(crate) fn violation(at: Nanos, cpu: usize, what: String) -> Self {
        Self::Violation(Violation { at, cpu: CpuId::new(cpu).unwrap_or(CpuId::BOOT), what })
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Record(error) => Some(error),
            _ => None,
        }
    }
}

/// Runs `workload`, which came from the file `name`.
pub fn run(name: &str, workload: &Workload, options: Options<'_>) -> Result<Report, RunError> {
    machine::run(name, workload, options)
}
