//! A workload on Linux: each CPU is a worker thread of the runtime, each thread a task, scheduled by the same core as on
//! the other machines.
//!
//! The record of every worker's core comes out, and [`crate::recorded`] reports it.

mod endpoint;
mod player;
mod stage;

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use crate::progress::Progress;
use crate::recorded::{Played, Recorded};
use mainspring::{
    Caps, Config, ConfigError, Exhaustion, LaneRecord, LaneSettings, NurseryError, NurseryOptions, Profile,
    Runtime, TaskError,
};
use mainspring_abi::CpuId;
use mainspring_record::{Log, ReplayError};
use mainspring_report::{Report, ThreadReport};
use mainspring_workload::Workload;
use stage::Stage;
use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

/// The most bytes of record that each worker keeps: some tens of millions of events.
const RECORD_BYTES: usize = 512 << 20;

/// Why a workload could not be run on Linux.
#[derive(Debug)]
pub enum LinuxError {
    /// The runtime could not be started.
    Start(ConfigError),
    /// A task ended as it must not.
    Task(NurseryError),
    /// The record does not replay.
    Record(ReplayError),
    /// There was no room for the record of a worker.
    TooLong {
        /// Which worker.
        cpu: usize,
        /// How many events were lost.
        lost: u64,
    },
}

impl fmt::Display for LinuxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "the runtime does not start: {error}"),
            Self::Task(error) => write!(f, "a task failed: {error}; please report it"),
            Self::Record(error) => write!(f, "the flight record: {error}"),
            Self::TooLong { cpu, lost } => {
                write!(f, "CPU {cpu} had no room for {lost} events\nhelp: run for a shorter `duration`")
            }
        }
    }
}

impl std::error::Error for LinuxError {}

/// Runs `workload` on workers of this host; the report, with the flight record written to `record`.
pub fn run(
    args: &RunArgs,
    workload: &Workload,
    record: Option<&mut dyn Write>,
    output: Output,
) -> Result<Played, Failure> {
    let started = Instant::now();
    let name = input::name(&args.file);
    let fail = |error| Failure::Linux { name: name.clone(), error };
    let stage = Stage::new(workload, args.seed);
    let records = play(workload, &stage, output).map_err(fail)?;
    let recorded = Recorded {
        machine: "linux",
        args,
        workload,
        seats: stage.names().len(),
        threads: stage.names(),
        started,
    };
    let mut played =
        recorded.report(|| log(&records).map_err(fail), |error| fail(LinuxError::Record(error)), record)?;
    tell(&stage, &mut played.report);
    Ok(played)
}

/// Starts the runtime, plays the workload, and returns what each worker's core was asked.
fn play(workload: &Workload, stage: &Stage<'_>, output: Output) -> Result<Vec<LaneRecord>, LinuxError> {
    let machine = &workload.machine;
    let settings = LaneSettings {
        policy: machine.policy,
        quantum: machine.quantum,
        threads: stage.names().len().max(1),
        record_bytes: RECORD_BYTES,
    };
    let config =
        Config::new(Profile::Cluster).workers(machine.cpus).root_caps(Caps::none()).fair_by_task(settings);
    let runtime: Runtime = moving(config).build().map_err(LinuxError::Start)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    if machine.cpus > cores {
        output.note(format_args!(
            "note: {} workers share {cores} CPUs of this host, so they take turns",
            machine.cpus
        ));
    }
    let duration = Duration::from_nanos(machine.duration.get());
    let mut progress = Progress::new("running", machine.duration.get(), output);
    let mut records = Vec::new();
    // Who has run out stands still, and is reported.
    let options = NurseryOptions::new().on_exhausted(Exhaustion::Park);
    let result = runtime.nursery(options, |nursery| {
        stage.direct(nursery, duration, |now| {
            progress.at(now.as_nanos() as u64, || format!("{} of {}", rounded(now), machine.duration));
        });
        records = runtime.close_record();
        stage.look_at(&runtime.snapshot());
        nursery.cancel();
    });
    drop(progress);
    match result {
        // The end of time is how a run ends.
        Ok(()) | Err(NurseryError { error: TaskError::Cancelled, .. }) => Ok(records),
        Err(error) => Err(LinuxError::Task(error)),
    }
}

/// The threads of a workload move between CPUs, as on the other machines: that is part of what a run shows.
#[allow(unsafe_code)]
fn moving(config: Config) -> Config {
    // SAFETY: the tasks of a run are those of this folder. They compute, sleep, park and count in atomics; nothing in them
    // uses a thread-local, holds a guard, opens a scope of threads or waits in a destructor.
    unsafe { config.migrate_started_tasks() }
}

fn rounded(now: Duration) -> String {
    format!("{:.1}s", now.as_secs_f64())
}

fn log(records: &[LaneRecord]) -> Result<Log, LinuxError> {
    let mut log = Log::default();
    for (cpu, record) in records.iter().enumerate() {
        if record.lost > 0 {
            return Err(LinuxError::TooLong { cpu, lost: record.lost });
        }
        if let Ok(id) = CpuId::new(cpu) {
            log.add(id, &record.bytes, record.records, record.end)
                .map_err(|error| LinuxError::Record(error.into()))?;
        }
    }
    Ok(log)
}

/// What the threads know of themselves and their cores do not, and rows for those that never lived.
fn tell(stage: &Stage<'_>, report: &mut Report) {
    let mut lived = std::mem::take(&mut report.threads).into_iter().peekable();
    for (number, name) in stage.names().into_iter().enumerate() {
        let mut row = match lived.next_if(|row| row.name == name) {
            Some(row) => row,
            None => ThreadReport { name, weight: stage.weight(number), ..ThreadReport::default() },
        };
        stage.tell(number, &mut row);
        report.threads.push(row);
    }
    report.notices.extend(stage.notices());
}
