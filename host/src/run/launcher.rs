//! The launcher: a process that waits to be put into its place, and then becomes the program.
//!
//! It is told by a signal, because its standard input and output are the program's. It dies with its supervisor, and so
//! does the program that it becomes, unless that changes its user.

use super::affinity;
use crate::error::HostError;
use crate::process::GRANT_VARIABLE;
use mainspring_abi::CpuSet;
use nix::sched::sched_setaffinity;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getpid, getppid};
use std::env::ArgsOs;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// What the process is called before it becomes the program.
pub(super) const NAME: &str = "mainspring-launcher";
const GO: Signal = Signal::SIGUSR1;
/// Exit codes that shells and `env` use for programs that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// A launcher that has not been let go. It is killed when it is dropped.
#[derive(Debug)]
pub(super) struct Launcher {
    pid: Pid,
    gone: bool,
}

impl Launcher {
    /// Starts one. `mask` are the signals that the program is to have blocked.
    pub(super) fn start(program: &[OsString], id: &str, mask: &SigSet) -> Result<Self, HostError> {
        let blocked: Vec<String> = mask.iter().map(|signal| (signal as i32).to_string()).collect();
        let child = Command::new("/proc/self/exe")
            .arg0(NAME)
            .arg(getpid().to_string())
            .arg(blocked.join(","))
            .args(program)
            .env(GRANT_VARIABLE, id)
            .spawn()
            .map_err(|cause| HostError::Process { what: "starting the program", cause })?;
        Ok(Self { pid: Pid::from_raw(child.id() as i32), gone: false })
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Keeps it to CPUs, where no cpuset does.
    pub(super) fn pin(&self, cpus: &CpuSet) -> Result<(), HostError> {
        sched_setaffinity(self.pid, &affinity(cpus)).map_err(|errno| HostError::Process {
            what: "keeping the program to its CPUs",
            cause: errno.into(),
        })
    }

    /// Lets it become the program, whose number this is.
    pub(super) fn let_go(mut self) -> Result<i32, HostError> {
        kill(self.pid, GO)
            .map_err(|errno| HostError::Process { what: "letting the program go", cause: errno.into() })?;
        self.gone = true;
        Ok(self.pid.as_raw())
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        if !self.gone {
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = waitpid(self.pid, None);
        }
    }
}

/// The launcher's own part.
pub(super) fn play(mut args: ArgsOs) -> ExitCode {
    let mut number = || args.next().and_then(|text| text.into_string().ok());
    let (Some(parent), Some(mask)) = (number().and_then(|text| text.parse::<i32>().ok()), number()) else {
        return ExitCode::from(NOT_RUN);
    };
    let Some(program) = args.next() else { return ExitCode::from(NOT_RUN) };
    let mut go = SigSet::empty();
    go.add(GO);
    // Blocked since before this process was started, so that the signal cannot come too early.
    let waited = set_pdeathsig(Signal::SIGKILL)
        .and_then(|()| if getppid().as_raw() == parent { go.wait() } else { Err(nix::errno::Errno::ESRCH) });
    if waited.is_err() {
        return ExitCode::from(NOT_RUN);
    }
    let blocked = mask.split(',').filter_map(|text| text.parse::<i32>().ok());
    let blocked: SigSet = blocked.filter_map(|number| Signal::try_from(number).ok()).collect();
    let _ = blocked.thread_set_mask();
    let cause = Command::new(&program).args(args).exec();
    let (code, help) = match cause.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, "give its path, or put its folder on the PATH"),
        io::ErrorKind::PermissionDenied => (NOT_RUN, "make the file executable"),
        _ => (NOT_RUN, "is it a program for this machine?"),
    };
    let _ = writeln!(io::stderr(), "{}: {cause}\nhelp: {help}", program.to_string_lossy());
    ExitCode::from(code)
}
