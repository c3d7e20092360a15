//! A workload on the kernel, under QEMU.
//!
//! The workload goes in as a plan that user programs play, one per process and with one thread per instance; the flight
//! record of every CPU comes out, and [`crate::recorded`] reports it.

mod logs;
pub mod plan;
mod report;

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use crate::recorded::{Played, Recorded};
use mainspring_machine::image;
use mainspring_machine::qemu::{Machine, SUCCESS};
use mainspring_workload::Workload;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Threads that the kernel can have: the seats that each of its CPUs reserves.
const SEATS: usize = 512;
/// Bytes of flight record that each CPU keeps.
const RECORD_BYTES: usize = 6 << 20;
/// How much slower than real time a run may be before it counts as stuck.
const PATIENCE: u32 = 10;

/// Why a workload could not be run on the kernel.
#[derive(Debug)]
pub enum QemuError {
    /// QEMU or the kernel is missing.
    Machine(mainspring_machine::qemu::RunError),
    /// The machine did not end well.
    Ended {
        /// What happened.
        what: String,
        /// The last lines of its serial output.
        tail: String,
    },
    /// The record makes no sense, or does not replay.
    Record(String),
}

impl fmt::Display for QemuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(error) => error.fmt(f),
            Self::Ended { what, tail } => write!(f, "the machine {what}; its last words:\n{tail}"),
            Self::Record(what) => write!(f, "the kernel's flight record: {what}"),
        }
    }
}

impl std::error::Error for QemuError {}

/// A file that is gone when the value is.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs `workload` on the kernel; the report, with the flight record written to `record`.
pub fn run(
    args: &RunArgs,
    workload: &Workload,
    record: Option<&mut dyn Write>,
    output: Output,
) -> Result<Played, Failure> {
    let started = Instant::now();
    let name = input::name(&args.file);
    let fail = |error| Failure::Qemu { name: name.clone(), error };
    let plan = plan::encode(workload, args.seed);
    let log = Scratch(std::env::temp_dir().join(format!("mainspring-record-{}.bin", std::process::id())));
    let (serial, bytes) = boot(workload, &plan, &log, output).map_err(fail)?;
    let mut names = report::names(workload, &serial);
    name_starters(&mut names, plan::process_count(workload));
    let recorded = Recorded { machine: "qemu", args, workload, seats: SEATS, threads: names, started };
    let wrong = |what| fail(QemuError::Record(what));
    let mut played =
        recorded.report(|| logs::read(&bytes).map_err(wrong), |error| wrong(error.to_string()), record)?;
    report::told(workload, &serial, &mut played.report);
    Ok(played)
}

/// Each process begins with a thread that starts the others, and these threads are the first that the kernel makes.
fn name_starters(names: &mut Vec<String>, processes: usize) {
    if names.len() < processes {
        names.resize(processes, String::new());
    }
    for name in &mut names[..processes] {
        "(starter)".clone_into(name);
    }
}

fn boot(
    workload: &Workload,
    plan: &[u8],
    log: &Scratch,
    output: Output,
) -> Result<(Vec<String>, Vec<u8>), QemuError> {
    let machine = Machine {
        cpus: workload.machine.cpus as u32,
        memory_mb: 768,
        record: Some(log.0.clone()),
        ..Machine::default()
    };
    let manifest = plan::manifest(workload, RECORD_BYTES);
    let image = image::build(&manifest, &["workload"], &[("plan", plan)])
        .map_err(|error| QemuError::Machine(error.into()))?;
    let wanted = Duration::from_nanos(workload.machine.duration.get());
    let deadline = wanted * PATIENCE + Duration::from_secs(30);
    output.note(format_args!("booting the kernel on {} CPUs", workload.machine.cpus));
    let run = machine.run(&image, deadline, |_| {}).map_err(QemuError::Machine)?;
    let ended = match run.code {
        Some(SUCCESS) => {
            let bytes = std::fs::read(&log.0).map_err(|error| QemuError::Record(error.to_string()))?;
            return Ok((run.serial, bytes));
        }
        Some(code) => format!("ended with code {code}"),
        None => format!("did not end within {} s", deadline.as_secs()),
    };
    let from = run.serial.len().saturating_sub(20);
    Err(QemuError::Ended { what: ended, tail: run.serial[from..].join("\n") })
}
