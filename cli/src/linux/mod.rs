//! A workload on Linux: each CPU is a worker thread of the runtime, each thread a task, scheduled by the same core as on
//! the other machines.
//!
//! The record of every worker's core comes out, and [`crate::machine_run`] reports it.

mod calls;
mod contexts;
mod director;
mod endpoint;
mod follower;
mod leases;
mod player;
mod policy;
mod rings;
mod stage;
mod sync;

use crate::live::Live;
use crate::machine_run::{MachineRun, instances};
use crate::output::Output;
use crate::progress::Progress;
use mainspring::context::Floor;
use mainspring::policy::PolicyError;
use mainspring::{
    Caps, Config, ConfigError, ContextError, Exhaustion, FairTaskSettings, NurseryError, NurseryOptions,
    Profile, Runtime, TaskError, WorkerRecord,
};
use mainspring_abi::frame::RecordHead;
use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::flight::FORMAT;
use mainspring_workload::{ContextSpec, Workload};
use stage::{Accounts, Stage};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The most bytes of record that each worker keeps: some tens of millions of events.
const RECORD_BYTES: usize = 512 << 20;

/// Why a workload could not be run on Linux.
#[derive(Debug)]
pub enum LinuxError {
    /// The runtime could not be started.
    Start(ConfigError),
    /// A context could not be made.
    Context(String, ContextError),
    /// A task ended as it must not.
    Task(NurseryError),
    /// There can be no policy service.
    Policy(PolicyError),
    /// Entries of a ring were lost or came twice.
    Ring(String),
}

impl fmt::Display for LinuxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "the runtime does not start: {error}"),
            Self::Context(name, error) => write!(f, "context {name:?}: {error}"),
            Self::Policy(error) => write!(f, "[policy]: {error}"),
            Self::Task(error) => write!(f, "a task failed: {error}; please report it"),
            Self::Ring(what) => write!(f, "{what}; please report it"),
        }
    }
}

impl std::error::Error for LinuxError {}

/// How to run a workload.
#[derive(Debug)]
pub struct How<'l> {
    /// The workload, as its report calls it.
    pub name: String,
    /// Every job is listed.
    pub list: bool,
    /// Where the run is shown while it goes on.
    pub live: Option<&'l Live>,
}

/// Runs `workload` on workers of this host.
pub fn run(workload: &Workload, seed: u64, how: &How<'_>, output: Output) -> Result<MachineRun, LinuxError> {
    let runtime = start(workload)?;
    let stage = Stage::new(workload, &runtime, seed, how.list)?;
    let over = AtomicBool::new(false);
    let (records, accounts) = std::thread::scope(|scope| {
        if let Some(live) = how.live {
            let (stage, over) = (&stage, &over);
            scope.spawn(move || follower::follow(&how.name, stage, live, over, output));
        }
        let played = play(workload, &runtime, &stage, output);
        // Relaxed: the follower looks again and again, and the end of the scope waits for it.
        over.store(true, Ordering::Relaxed);
        played
    })?;
    stage.close_jobs(end_of(&records));
    let threads: Vec<String> = instances(workload).map(|(name, _)| name).collect();
    let head = |cpu, WorkerRecord { records, lost, end, .. }: &WorkerRecord| {
        let cpu = CpuId::new(cpu).expect("the workload names no CPU beyond the last");
        RecordHead { format: FORMAT.into(), cpu, records: *records, lost: *lost, end: *end }
    };
    Ok(MachineRun {
        machine: "linux",
        seats: threads.len(),
        threads,
        records: (0..).zip(records).map(|(cpu, record)| (head(cpu, &record), record.bytes)).collect(),
        counts: stage.counts(),
        jobs: stage.take_jobs(),
        endpoints: stage.endpoint_reports(),
        contexts: accounts.contexts,
        leases: accounts.leases,
        islands: accounts.islands,
        rings: accounts.rings,
        sync: stage.sync.reports(workload),
        polled: accounts.polled,
        loans_left: stage.loans_left(),
        notices: stage.notices(),
    })
}

/// Starts the runtime that a workload asks for.
fn start(workload: &Workload) -> Result<Runtime, LinuxError> {
    let machine = &workload.machine;
    let contexts: usize = workload.contexts.iter().map(ContextSpec::instances).sum();
    let settings = FairTaskSettings {
        policy: machine.policy,
        quantum: machine.quantum,
        tick: machine.tick,
        threads: instances(workload).count().max(1),
        record_bytes: RECORD_BYTES,
        contexts,
        // A workload file has no larger floor than there can be.
        floor: Floor::from_ppm(machine.floor_ppm).unwrap_or_default(),
        // A policy service needs a table of leases.
        leases: workload.leases.len().max(usize::from(workload.policy.is_some())),
        sessions: workload.sessions.len(),
    };
    // Admission decides what fits.
    let all = u32::try_from(machine.cpus).unwrap_or(u32::MAX).saturating_mul(1_000_000);
    let caps = Caps::none().with_contexts(u32::try_from(contexts).unwrap_or(u32::MAX), all);
    let config = Config::new(Profile::Cluster).workers(machine.cpus).root_caps(caps).fair_by_task(settings);
    moving(config).build().map_err(LinuxError::Start)
}

/// Plays the workload, and returns what each worker's core was asked.
fn play(
    workload: &Workload,
    runtime: &Runtime,
    stage: &Stage<'_>,
    output: Output,
) -> Result<(Vec<WorkerRecord>, Accounts), LinuxError> {
    let machine = &workload.machine;
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
    let mut accounts = None;
    // A task that has run out stands still, and is reported.
    let options = NurseryOptions::new().on_exhausted(Exhaustion::Park);
    let result = runtime.nursery(options, |nursery| {
        stage.direct(nursery, duration, |now| {
            progress.at(now.as_nanos() as u64, || format!("{} of {}", rounded(now), machine.duration));
        });
        records = runtime.close_record();
        let end = end_of(&records);
        stage.look_at(&runtime.snapshot());
        accounts = Some(stage.close_accounts(end));
        nursery.cancel();
    });
    drop(progress);
    match result {
        // The end of time is how a run ends.
        Ok(()) | Err(NurseryError { error: TaskError::Cancelled, .. }) => {
            Ok((records, accounts.expect("they were closed at the end of time")?))
        }
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

/// When the records of a run end.
fn end_of(records: &[WorkerRecord]) -> Nanos {
    records.iter().map(|record| record.end).max().unwrap_or_default()
}

fn rounded(now: Duration) -> String {
    format!("{:.1}s", now.as_secs_f64())
}
