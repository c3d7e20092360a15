//! The processes of a grant, however they are followed.
//!
//! Groups know every process. Without them, the environment tells those that have not cleared it.

use crate::cgroup::{GroupSet, Usage};
use crate::process::{used_ns, with_grant};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};
use std::{io, thread};

/// How long processes that were killed may take to go.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// The processes of one grant.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'a> {
    groups: &'a GroupSet,
    id: &'a str,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(groups: &'a GroupSet, id: &'a str) -> Self {
        Self { groups, id }
    }

    /// Their numbers.
    #[must_use]
    pub fn processes(self) -> Vec<i32> {
        if self.groups.tracks() { self.groups.processes() } else { with_grant(self.id) }
    }

    /// What they use: the groups' counters, or what the kernel tells of each process where there are none.
    #[must_use]
    pub fn usage(self) -> Usage {
        let mut usage = self.groups.usage();
        if !self.groups.tracks() {
            let processes = self.processes();
            usage.processes = Some(processes.len() as u64);
            usage.used_ns = Some(processes.iter().filter_map(|pid| used_ns(*pid)).sum());
        }
        usage
    }

    /// Asks every process to end.
    pub fn terminate(self) {
        signal_all(&self.processes(), Signal::SIGTERM);
    }

    /// Ends every process, and waits until none is left.
    ///
    /// # Errors
    /// If a process does not go, which only the kernel can prevent.
    pub fn kill(self) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            self.groups.kill_at_once();
            let left = self.processes();
            if left.is_empty() {
                return Ok(());
            }
            signal_all(&left, Signal::SIGKILL);
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("processes {left:?} do not end"),
                ));
            }
            thread::sleep(PAUSE);
        }
    }
}

fn signal_all(processes: &[i32], signal: Signal) {
    for pid in processes {
        // A process that has gone meanwhile is what was wanted.
        let _ = kill(Pid::from_raw(*pid), signal);
    }
}
