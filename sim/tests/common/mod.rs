//! What the tests share: runs that are checked, recorded, replayed and repeated; and workloads drawn by seed.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod authority;
pub mod drive;
pub mod generate;
pub mod rational;
pub mod seeds;

use mainspring_abi::{CpuId, Nanos};
use mainspring_record::check::{Bound, Checks, Number, Setting, Wide};
use mainspring_record::replay::replay;
use mainspring_record::watch::Watch;
use mainspring_report::Report;
use mainspring_sched::Cpu;
use mainspring_sched::flight::{EventRef, Outcome};
use mainspring_sim::{Options, run};
use mainspring_workload::Workload;

/// Lets a run borrow its checkers, so that they can be asked afterwards.
struct Borrowed<'a, W>(&'a mut W);

impl<W: Watch> Watch for Borrowed<'_, W> {
    fn before(&mut self, now: Nanos, cpu: &Cpu, event: EventRef<'_>) {
        self.0.before(now, cpu, event);
    }
    fn after(&mut self, now: Nanos, cpu: &Cpu, outcome: Outcome) -> Result<(), String> {
        self.0.after(now, cpu, outcome)
    }
    fn end(&mut self, now: Nanos, cpus: &[&Cpu]) -> Result<(), (CpuId, String)> {
        self.0.end(now, cpus)
    }
}

/// A run that passed every check.
pub struct Checked<N> {
    pub report: Report,
    pub checks: Checks<N>,
    pub record: Vec<u8>,
}

/// Runs `workload` with `watch` and no other extras.
pub fn watched(workload: &Workload, seed: u64, watch: &mut impl Watch) -> Result<Report, String> {
    let options =
        Options { seed, schedule: true, watch: Some(Box::new(Borrowed(watch))), ..Options::default() };
    run("test", workload, options).map_err(|error| error.to_string())
}

/// Runs `workload` with all checkers of `setting`; its record must replay, and a second run without checkers must be the
/// same and leave the same record.
pub fn checked_in<N: Number>(workload: &Workload, seed: u64, setting: Setting) -> Result<Checked<N>, String> {
    let mut checks = Checks::<N>::new(setting);
    let mut record = Vec::new();
    let options = Options {
        seed,
        schedule: true,
        record: Some(Box::new(&mut record)),
        watch: Some(Box::new(Borrowed(&mut checks))),
        ..Options::default()
    };
    let report = run("test", workload, options).map_err(|error| error.to_string())?;
    let mut record_again = Vec::new();
    let options = Options { seed, record: Some(Box::new(&mut record_again)), ..Options::default() };
    let again = run("test", workload, options).map_err(|error| error.to_string())?;
    if (&again.digest, again.decisions) != (&report.digest, report.decisions) {
        return Err("a second run with the same seed decided otherwise".to_owned());
    }
    if record_again != record {
        return Err("a run that nobody watched left another record".to_owned());
    }
    let replayed = replay(record.as_slice(), &mut |_| {}).map_err(|error| format!("replay: {error}"))?;
    if (&replayed.digest, replayed.decisions) != (&report.digest, report.decisions) {
        return Err("the replay decided otherwise".to_owned());
    }
    let busy: u64 = report.cpus.iter().map(|cpu| cpu.busy_ns).sum();
    let used: u64 = report.threads.iter().map(|thread| thread.runtime_ns).sum();
    if busy != used {
        return Err(format!("CPUs were busy for {busy}ns, threads used {used}ns"));
    }
    if report.cpus.iter().any(|cpu| cpu.busy_ns + cpu.idle_ns != report.duration_ns) {
        return Err("busy and idle time do not make up the run".to_owned());
    }
    Ok(Checked { report, checks, record })
}

/// As [`checked_in`], with the fast arithmetic and `bound`; panics with what is wrong.
pub fn checked(workload: &Workload, seed: u64, bound: Bound) -> Checked<Wide> {
    let setting = Setting::of(workload).with_bound(bound);
    checked_in(workload, seed, setting).unwrap_or_else(|what| panic!("{what}"))
}

/// A workload from the text of a file.
pub fn workload(text: &str) -> Workload {
    mainspring_workload::parse("test.toml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The row of the thread named `name`.
pub fn thread<'a>(report: &'a Report, name: &str) -> &'a mainspring_report::ThreadReport {
    report.threads.iter().find(|thread| thread.name == name).unwrap_or_else(|| panic!("no thread {name}"))
}
