//! `mainspring boot`: the kernel with its console on this terminal.

use crate::args::BootArgs;
use crate::failure::Failure;
use crate::machine_run::MachineError;
use crate::output::Output;
use crate::qemu::QemuError;
use mainspring_machine::image::{self, BuildError};
use mainspring_machine::network::Network;
use mainspring_machine::qemu::{Machine, RunError, SUCCESS};

/// Ports of the machine.
const ECHO: u16 = 7;
const HTTP: u16 = 80;

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

/// Programs of a machine with a network card.
const NETWORK_PROGRAMS: &[&str] = &["net", "net-echo", "net-status"];

/// The network process has two fifths of a CPU, whatever comes in.
const NETWORK_MANIFEST: &str = "\
serve net console,timer,threads,control,memory,device:1af4.1041,context:net=8000000/20000000,serve:net0,serve:net1 -- 10.0.2.15/24
serve net-echo console,timer,call:net0 -- 7
serve net-status console,timer,info,call:net1
";

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
    let (mut manifest, mut programs, mut network) = (MANIFEST.to_owned(), PROGRAMS.to_vec(), None);
    if args.net {
        manifest.insert_str(0, NETWORK_MANIFEST);
        programs.extend(NETWORK_PROGRAMS);
        let ports =
            Network::to(&[ECHO, HTTP], &[]).map_err(|error| QemuError::Machine(RunError::Network(error)))?;
        for (what, guest) in [("echo at 127.0.0.1:", ECHO), ("status page at http://127.0.0.1:", HTTP)] {
            output.note(format!("{what}{}", ports.host_port(false, guest).unwrap_or_default()));
        }
        network = Some(ports);
    }
    let image = image::build(&manifest, &programs, &[]).map_err(build)?;
    let machine = Machine { cpus: args.cpus, network, ..Machine::default() };
    output.note("`help` lists what the console can do; `exit` ends it");
    let status = machine.interactive(&image).map_err(|error: RunError| QemuError::Machine(error))?;
    if status == SUCCESS {
        return Ok(());
    }
    Err(QemuError::Ended { what: format!("ended with code {status}"), tail: String::new() })
}
