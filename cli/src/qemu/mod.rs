//! A workload on the kernel, under QEMU.
//!
//! The workload goes in as a plan that user programs play, one per process and with one thread per instance; the flight
//! record of every CPU comes out in frames, with notes of the programs, and [`crate::machine_run`] reports it.

mod notes;
pub mod plan;

use crate::machine_run::{Counts, MachineRun, instances};
use crate::output::Output;
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

/// Runs `workload` on the kernel.
pub fn run(workload: &Workload, seed: u64, output: Output) -> Result<MachineRun, QemuError> {
    let run = boot(workload, &plan::encode(workload, seed), output)?;
    let mut threads = Vec::new();
    let mut counts = vec![Counts::default(); instances(workload).count()];
    let mut records = Vec::new();
    for frame in run.frames().map_err(QemuError::Frames)? {
        match frame {
            Frame::Record(head, bytes) => records.push((head, bytes.to_vec())),
            Frame::Note(_, bytes) => {
                let note = Note::from_bytes(bytes).ok_or(QemuError::Note)?;
                notes::take(note, workload, &mut threads, &mut counts).ok_or(QemuError::Note)?;
            }
            Frame::End(_) => {}
        }
    }
    name_starters(&mut threads, plan::process_count(workload));
    Ok(MachineRun { machine: "qemu", seats: MAX_THREADS, threads, records, counts, ..MachineRun::default() })
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
fn boot(workload: &Workload, plan: &[u8], output: Output) -> Result<Run, QemuError> {
    let machine = Machine { cpus: workload.machine.cpus as u32, memory_mb: 768, ..Machine::default() };
    let manifest = plan::manifest(workload, RECORD_BYTES);
    let image = image::build(&manifest, &["workload"], &[("plan", plan)])
        .map_err(|error| QemuError::Machine(error.into()))?;
    let wanted = Duration::from_nanos(workload.machine.duration.get());
    let deadline = wanted * PATIENCE + Duration::from_secs(30);
    output.note(format_args!("booting the kernel on {} CPUs", workload.machine.cpus));
    let run = machine.run(&image, deadline, |_| {}).map_err(QemuError::Machine)?;
    let ended = match run.code {
        Some(SUCCESS) => return Ok(run),
        Some(code) => format!("ended with code {code}"),
        None => format!("did not end within {} s", deadline.as_secs()),
    };
    let from = run.serial.len().saturating_sub(20);
    Err(QemuError::Ended { what: ended, tail: run.serial[from..].join("\n") })
}
