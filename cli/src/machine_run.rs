//! A run on a machine that is not simulated, made into a file and a report.
//!
//! Everything in the report that a core knows is computed from its record, by making each decision again. So a record that
//! does not replay is an error, and a report that is printed is also a replay without a difference. What the threads alone
//! know (misses, timeouts, refusals) they have counted themselves.

use crate::args::RunArgs;
use crate::cpu_records::{CpuRecord, LogError, join};
use crate::failure::Failure;
use crate::input;
use crate::linux::LinuxError;
use crate::qemu::QemuError;
use mainspring_record::ReplayError;
use mainspring_record::file::{Header, Recorder};
use mainspring_record::jobs::{Jobs, number};
use mainspring_record::report::RecordReport;
use mainspring_record::verify::verify_with_summary;
use mainspring_report::{
    ContextReport, EndpointReport, IslandReport, LeaseReport, Miss, Report, RingReport, SyncReport,
    ThreadReport, summary,
};
use mainspring_workload::Workload;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::Write;
use std::time::Instant;

/// What a machine leaves behind.
#[derive(Debug, Default)]
pub struct MachineRun {
    /// The machine's name in the report.
    pub machine: &'static str,
    /// Seats that each core had.
    pub seats: usize,
    /// Names of the threads by their index.
    pub threads: Vec<String>,
    /// The record of each CPU.
    pub records: Vec<CpuRecord>,
    /// What each instance counted, in the order of the workload.
    pub counts: Vec<Counts>,
    /// What became of the periods of each instance, in the same order; empty if the machine does not tell.
    pub jobs: Vec<Jobs>,
    /// What became of calls.
    pub endpoints: Vec<EndpointReport>,
    /// What became of contexts, in the order of their numbers; empty if the machine does not tell.
    pub contexts: Vec<ContextReport>,
    /// What became of leases.
    pub leases: Vec<LeaseReport>,
    /// What became of islands.
    pub islands: Vec<IslandReport>,
    /// What became of rings.
    pub rings: Vec<RingReport>,
    /// What became of mutexes, semaphores, barriers and conditions.
    pub sync: Vec<SyncReport>,
    /// What the pollers of rings used, how often they slept, and how many entries were dropped.
    pub polled: (u64, u64, u64),
    /// Loans that logouts found in flight and left alone.
    pub loans_left: u64,
    /// What should be known before the numbers are read.
    pub notices: Vec<String>,
}

/// What an instance of a workload counted in all its lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub misses: u64,
    pub timeouts: u64,
    pub refusals: u64,
    pub failures: u64,
    /// Calls that were answered after their deadline.
    pub late: u64,
    /// Calls that were not begun because they were late.
    pub dropped: u64,
}

/// Why a machine did not run a workload.
#[derive(Debug)]
pub enum MachineError {
    /// The Linux runtime did not.
    Linux(LinuxError),
    /// The kernel did not.
    Qemu(QemuError),
    /// The records of its CPUs are not the record of a run.
    Log(LogError),
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linux(error) => error.fmt(f),
            Self::Qemu(error) => error.fmt(f),
            Self::Log(error) => write!(f, "the flight record: {error}"),
        }
    }
}

impl std::error::Error for MachineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            Self::Linux(error) => error,
            Self::Qemu(error) => error,
            Self::Log(error) => error,
        })
    }
}

/// A run and what the checkers found, if they were asked.
pub struct Reported {
    pub report: Report,
    pub fault: Option<ReplayError>,
}

/// Replays what `run` left behind, writes it to `out`, and reports.
pub fn report(
    args: &RunArgs,
    workload: &Workload,
    run: MachineRun,
    started: Instant,
    out: Option<&mut dyn Write>,
) -> Result<Reported, Failure> {
    let name = input::name(&args.file);
    let header = header(&name, workload, args.seed, run.seats, run.threads);
    // A replay spends the events, so they are read again for each.
    let log = || {
        join(&run.records)
            .map_err(|error| Failure::Machine { name: name.clone(), error: MachineError::Log(error) })
    };
    let replayed =
        RecordReport::of(&header, log()?).map_err(|error| Failure::Verify { name: name.clone(), error })?;
    let digest = replayed.digest();
    let mut report = replayed.report(run.machine, &header, started.elapsed());
    add_counts(workload, &run.counts, &mut report);
    add_jobs(workload, run.jobs, args.schedule, &mut report);
    report.endpoints = run.endpoints;
    report.contexts = run.contexts;
    report.leases = run.leases;
    report.islands = run.islands;
    report.rings = run.rings;
    report.sync = run.sync;
    let telemetry = &mut report.telemetry;
    (telemetry.sqpoll_busy_ns, telemetry.sqpoll_sleep_count, telemetry.deadline_expired_count) = run.polled;
    telemetry.donation_inflight_skipped = run.loans_left;
    report.notices.extend(run.notices);
    if let Some(out) = out {
        Recorder::new(Box::new(out), &header)
            .and_then(|recorder| log().map(|log| (recorder, log)).map_err(std::io::Error::other))
            .and_then(|(recorder, log)| log.write(recorder, &digest, &summary(&report)))
            .map_err(|cause| Failure::Write { path: args.record.clone().unwrap_or_default(), cause })?;
    }
    // The record is written by now, so that a fault can be reported with it.
    let fault = if args.verify { verify_with_summary(&header, log()?, Some(&report)).err() } else { None };
    Ok(Reported { report, fault })
}

/// What the record of a run begins with.
pub fn header(name: &str, workload: &Workload, seed: u64, seats: usize, threads: Vec<String>) -> Header {
    let machine = &workload.machine;
    Header {
        workload: name.to_owned(),
        seed,
        cpus: machine.cpus,
        seats,
        policy: machine.policy,
        quantum: machine.quantum,
        tick: machine.tick,
        floor_ppm: machine.floor_ppm,
        threads,
    }
}

/// Adds what the instances counted, and rows for those that never lived. Threads of no instance come first.
fn add_counts(workload: &Workload, counts: &[Counts], report: &mut Report) {
    let names: HashSet<String> = instances(workload).map(|(name, _)| name).collect();
    let (lived, others): (Vec<_>, _) =
        std::mem::take(&mut report.threads).into_iter().partition(|row| names.contains(&row.name));
    let mut lived: HashMap<String, ThreadReport> =
        lived.into_iter().map(|row| (row.name.clone(), row)).collect();
    report.threads = others;
    for ((name, weight), counts) in instances(workload).zip(counts) {
        let lived = lived.remove(&name);
        let Counts { misses, timeouts, refusals, failures, late, dropped } = *counts;
        let row = lived.unwrap_or_else(|| ThreadReport { name, weight, ..ThreadReport::default() });
        report.threads.push(ThreadReport { misses, timeouts, refusals, failures, late, dropped, ..row });
    }
}

/// Adds what became of the periods of each instance.
fn add_jobs(workload: &Workload, jobs: Vec<Jobs>, list: bool, report: &mut Report) {
    let (mut misses, mut listed) = (Vec::new(), Vec::new());
    for ((name, _), jobs) in instances(workload).zip(jobs) {
        let (row, missed, all) = jobs.report(&name);
        if let Some(thread) = report.threads.iter_mut().find(|thread| thread.name == name) {
            thread.jobs = row;
        }
        misses.extend(missed);
        listed.extend(all);
    }
    report.misses_total = report.threads.iter().map(|thread| thread.misses).sum();
    report.misses = number(misses);
    report.events = Some(report.misses.iter().map(Miss::event).collect());
    report.jobs = list.then_some(listed);
}

/// The names and first weights of all instances, in the order of the workload.
pub fn instances(workload: &Workload) -> impl Iterator<Item = (String, u16)> + '_ {
    let specs = workload.threads.iter();
    specs.flat_map(|spec| (0..spec.instances()).map(|n| (spec.instance_name(n), spec.weight.get())))
}
