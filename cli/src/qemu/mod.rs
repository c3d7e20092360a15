//! A workload on the kernel, under QEMU.
//!
//! The workload goes in as a plan that user programs play, one per process and with one thread per instance; the flight
//! record of every CPU comes out in frames, with notes of the programs, and [`crate::machine_run`] reports it.

pub mod layout;
pub mod limits;
mod manifest;
mod notes;
pub mod plan;

use crate::machine_run::MachineRun;
use crate::output::Output;
use mainspring_abi::Nanos;
use mainspring_abi::frame::{Frame, FrameError};
use mainspring_abi::kernel::MAX_THREADS;
use mainspring_abi::plan::Note;
use mainspring_machine::image;
use mainspring_machine::qemu::{Machine, Run, SUCCESS};
use mainspring_workload::Workload;
use std::fmt;
use std::time::Duration;

/// Bytes of flight record that each CPU keeps.
const RECORD_BYTES: usize = 6 << 20;
/// How much slower than real time a run may be before it counts as stuck.
const PATIENCE: u32 = 10;
/// The same where each instruction is counted.
const COUNTED_PATIENCE: u32 = 120;

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
    /// What the kernel left on its debug console cannot be read.
    Frames(FrameError),
    /// A program wrote a note that this command cannot read.
    Note,
}

impl fmt::Display for QemuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(error) => error.fmt(f),
            Self::Ended { what, tail } => write!(f, "the machine {what}; its last words:\n{tail}"),
            Self::Frames(error) => error.fmt(f),
            Self::Note => f.write_str(
                "the workload program is of another version than this command; build it again with `make kernel`",
            ),
        }
    }
}

impl std::error::Error for QemuError {}

/// How to run a workload.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Each job is kept.
    pub list: bool,
    /// Time counts instructions.
    pub counted: bool,
}

/// Runs `workload` on the kernel.
pub fn run(workload: &Workload, seed: u64, how: How, output: Output) -> Result<MachineRun, QemuError> {
    let run = boot(workload, &plan::encode(workload, seed), how.counted, output)?;
    let mut notes = notes::Notes::new(workload, how.list);
    let mut records = Vec::new();
    let mut end = Nanos::ZERO;
    for frame in run.frames().map_err(QemuError::Frames)? {
        match frame {
            Frame::Record(head, bytes) => {
                end = end.max(head.end);
                records.push((head, bytes.to_vec()));
            }
            Frame::Note(_, bytes) => {
                let note = Note::from_bytes(bytes).ok_or(QemuError::Note)?;
                notes.take(note).ok_or(QemuError::Note)?;
            }
            Frame::End(_) => {}
        }
    }
    notes.close(end);
    let (notices, endpoints) = (notes.policy_notices(), notes.endpoint_reports());
    let notes::Notes { mut threads, counts, jobs, contexts, leases, islands, rings, sync, polled, .. } =
        notes;
    name_starters(&mut threads, layout::Layout::of(workload).count());
    Ok(MachineRun {
        machine: "qemu",
        seats: MAX_THREADS,
        threads,
        records,
        counts,
        jobs,
        contexts,
        endpoints,
        leases,
        islands,
        rings,
        sync,
        polled,
        notices,
        ..MachineRun::default()
    })
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

/// Runs the kernel to its end.
fn boot(workload: &Workload, plan: &[u8], counted: bool, output: Output) -> Result<Run, QemuError> {
    let cpus = workload.machine.cpus as u32;
    let machine = Machine { cpus, memory_mb: 768, icount: counted, ..Machine::default() };
    let manifest = manifest::manifest(workload, RECORD_BYTES);
    let image = image::build(&manifest, &["workload"], &[("plan", plan)])
        .map_err(|error| QemuError::Machine(error.into()))?;
    let wanted = Duration::from_nanos(workload.machine.duration.get());
    let patience = if counted { COUNTED_PATIENCE } else { PATIENCE };
    let deadline = wanted * patience + Duration::from_secs(30);
    let plural = if cpus == 1 { "" } else { "s" };
    output.note(format_args!("booting the kernel on {cpus} CPU{plural}"));
    let run = machine.run(&image, deadline, |_| {}).map_err(QemuError::Machine)?;
    let ended = match run.code {
        Some(SUCCESS) => return Ok(run),
        Some(code) => format!("ended with code {code}"),
        None => format!("did not end within {} s", deadline.as_secs()),
    };
    let from = run.serial.len().saturating_sub(20);
    Err(QemuError::Ended { what: ended, tail: run.serial[from..].join("\n") })
}
