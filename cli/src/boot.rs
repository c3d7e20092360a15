//! `mainspring boot`: the kernel with its console on this terminal.

use crate::args::BootArgs;
use crate::failure::Failure;
use crate::machine_run::MachineError;
use crate::output::Output;
use crate::qemu::QemuError;
use mainspring_machine::image::{self, BuildError};
use mainspring_machine::qemu::{Machine, RunError, SUCCESS};

/// Programs that the console can run.
const PROGRAMS: &[&str] = &[
    "shell",
    "echo",
    "child",
    "timer-smoke",
    "timer-flood",
    "thread-lifecycle",
    "measure",
    "fairness",
    "smp",
    "shooter",
    "attack",
];

const MANIFEST: &str = "\
serve echo console,serve:echo
start shell console,timer,threads,control,processes,park,memory,policy,info,call:echo
";

/// Boots, and stays until the console is left.
pub fn boot(args: &BootArgs, output: Output) -> Result<(), Failure> {
    start(args, output)
        .map_err(|error| Failure::Machine { name: "boot".to_owned(), error: MachineError::Qemu(error) })
}

fn start(args: &BootArgs, output: Output) -> Result<(), QemuError> {
    let build = |error: BuildError| QemuError::Machine(error.into());
    let image = image::build(MANIFEST, PROGRAMS, &[]).map_err(build)?;
    let machine = Machine { cpus: args.cpus, ..Machine::default() };
    output.note("`help` lists what the console can do; `exit` ends it");
    let status = machine.interactive(&image).map_err(|error: RunError| QemuError::Machine(error))?;
    if status == SUCCESS {
        return Ok(());
    }
    Err(QemuError::Ended { what: format!("ended with code {status}"), tail: String::new() })
}
