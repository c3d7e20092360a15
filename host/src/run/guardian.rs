//! The guardian: a process that undoes a grant when its supervisor was killed.
//!
//! It reads a pipe whose only other end is the supervisor's. The pipe ends when the supervisor does, however that
//! happens. The guardian then ends the grant as the supervisor would have; if the supervisor has done so, there is
//! nothing left to do. It is in a session of its own, so that signals for the terminal's programs do not reach it.

use crate::error::HostError;
use crate::process::Identity;
use crate::registry::Registry;
use nix::sys::signal::SigSet;
use nix::unistd::setsid;
use std::env::ArgsOs;
use std::io::{self, PipeWriter, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

/// What the process is called.
pub(super) const NAME: &str = "mainspring-guardian";

/// The supervisor's hold on its guardian.
#[derive(Debug)]
pub(super) struct Guardian {
    process: Child,
    /// Closed when this process ends, or by `dismiss`.
    alive: PipeWriter,
}

impl Guardian {
    pub(super) fn start(registry: &Registry, id: &str) -> Result<Self, HostError> {
        let failed = |cause| HostError::Process { what: "starting the guardian", cause };
        let (reader, alive) = io::pipe().map_err(failed)?;
        let process = Command::new("/proc/self/exe")
            .arg0(NAME)
            .arg(registry.directory())
            .arg(id)
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn()
            .map_err(failed)?;
        Ok(Self { process, alive })
    }

    pub(super) fn identity(&self) -> Result<Identity, HostError> {
        Identity::of(self.process.id() as i32)
            .map_err(|cause| HostError::Process { what: "starting the guardian", cause })
    }

    /// Lets it end, when there is nothing left to guard.
    pub(super) fn dismiss(mut self) {
        drop(self.alive);
        // If it was killed, another part of this process may have reaped it already.
        let _ = self.process.wait();
    }
}

/// The guardian's own part.
pub(super) fn play(mut args: ArgsOs) -> ExitCode {
    let (Some(directory), Some(id)) = (args.next(), args.next()) else { return ExitCode::FAILURE };
    let _ = SigSet::all().thread_block();
    // Fails only for a leader of a process group, which a new process is not.
    let _ = setsid();
    // Nothing is ever written to the pipe: this returns when the supervisor has ended.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    match end(Path::new(&directory), &id.to_string_lossy()) {
        Ok(()) => ExitCode::SUCCESS,
        // The entry stays, and the next `exec` or `ps` tries again.
        Err(_) => ExitCode::FAILURE,
    }
}

fn end(directory: &Path, id: &str) -> Result<(), HostError> {
    let registry = Registry::at(directory)?;
    let entries = registry.lock()?.entries()?;
    entries.iter().find(|entry| entry.id == id).map_or(Ok(()), |entry| registry.end(entry))
}
