//! Signals for the supervisor: blocked, read one by one, and passed on.

use super::Ended;
use crate::error::HostError;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::os::fd::AsFd;
use std::time::Instant;

/// What is passed on to the program.
const PASSED_ON: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
/// `si_code` of a signal that the kernel sent, such as for a key of the terminal.
const FROM_KERNEL: i32 = 0x80;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Give this signal to the program.
    PassOn(Signal),
    /// A child may have ended.
    Child,
    /// The time has come.
    Due,
}

/// The signals of this process, blocked.
#[derive(Debug)]
pub(super) struct Signals {
    before: SigSet,
    reader: SignalFd,
}

impl Signals {
    pub(super) fn block() -> Result<Self, HostError> {
        let failed = |errno: Errno| HostError::Process { what: "blocking signals", cause: errno.into() };
        let mut ours: SigSet = PASSED_ON.into_iter().collect();
        ours.add(Signal::SIGCHLD);
        let before = ours.thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(failed)?;
        let reader =
            SignalFd::with_flags(&ours, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).map_err(failed)?;
        Ok(Self { before, reader })
    }

    /// The signals that were blocked before.
    pub(super) fn mask(&self) -> &SigSet {
        &self.before
    }

    pub(super) fn restore(self) {
        // A signal that came after the program's end would now end this process, before its report.
        while let Ok(Some(_)) = self.reader.read_signal() {}
        let _ = self.before.thread_set_mask();
    }

    /// Waits for the next thing to do.
    pub(super) fn next(&self, due: Option<Instant>) -> Result<Event, HostError> {
        let failed = |errno: Errno| HostError::Process { what: "waiting for signals", cause: errno.into() };
        loop {
            if let Some(info) = self.reader.read_signal().map_err(failed)? {
                let signal = Signal::try_from(info.ssi_signo.cast_signed()).map_err(failed)?;
                match signal {
                    Signal::SIGCHLD => return Ok(Event::Child),
                    // The terminal sends to all of its programs: ours has had it.
                    _ if info.ssi_code == FROM_KERNEL => continue,
                    _ => return Ok(Event::PassOn(signal)),
                }
            }
            let timeout = match due.map(|due| due.saturating_duration_since(Instant::now())) {
                None => PollTimeout::NONE,
                Some(left) if left.is_zero() => return Ok(Event::Due),
                // A millisecond more than what is left of one: a poll of zero would spin.
                Some(left) => PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX),
            };
            match poll(&mut [PollFd::new(self.reader.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    /// Whether a signal to pass on has come.
    pub(super) fn is_pending(&self) -> bool {
        loop {
            match self.reader.read_signal() {
                Ok(Some(info)) if info.ssi_signo == Signal::SIGCHLD as u32 => {}
                Ok(Some(_)) => return true,
                _ => return false,
            }
        }
    }
}

/// Gives the program a signal. It cannot be another's: its number is not given again before it is reaped.
pub(super) fn send(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

/// Reaps every child that has ended, and answers how the program did, if it was one of them.
pub(super) fn reap(program: i32) -> Option<Ended> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid.as_raw() == program => return Some(Ended::Code(code)),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() == program => {
                return Some(Ended::Signal(signal as i32));
            }
            Ok(WaitStatus::StillAlive) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// Reaps what is left.
pub(super) fn reap_orphans() {
    while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive)
    {
    }
}
