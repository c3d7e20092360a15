//! Readiness of anything that the kernel can poll, and the end of child processes.

use super::readiness::Side;
use super::{Source, address};
use crate::cx::Cx;
use crate::time::Alarm;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// Something that the kernel can poll, and that the runtime has no type for: a pipe, an `inotify`, a device. Operations on it are
/// tried until they do not block, under either driver.
#[derive(Debug)]
pub struct Ready<S: AsFd>(pub(super) Source<S>);

impl<S: AsFd> Ready<S> {
    /// Makes this runtime wait for it. It does not block its thread any more. Costs one op and one system call.
    pub fn new(cx: &Cx, source: S) -> io::Result<Self> {
        super::charge(cx)?;
        Self::adopt(cx, source)
    }

    /// As [`Ready::new`], once it is paid for.
    pub(super) fn adopt(cx: &Cx, source: S) -> io::Result<Self> {
        address::set_nonblocking(&source)?;
        Ok(Self(Source::tried(cx, source)?))
    }

    /// Tries until it does not fail with `WouldBlock`, when it may be read from. Costs one op and one system call.
    pub fn read_with<T>(&self, cx: &Cx, attempt: impl FnMut(&S) -> io::Result<T>) -> io::Result<T> {
        self.wait(cx, Side::Read, None, attempt)
    }

    /// As [`Ready::read_with`], when it may be written to.
    pub fn write_with<T>(&self, cx: &Cx, attempt: impl FnMut(&S) -> io::Result<T>) -> io::Result<T> {
        self.wait(cx, Side::Write, None, attempt)
    }

    /// As [`Ready::read_with`], for at most this long; then [`ErrorKind::TimedOut`].
    pub fn read_with_timeout<T>(
        &self,
        cx: &Cx,
        timeout: Duration,
        attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        self.wait(cx, Side::Read, Some(timeout), attempt)
    }

    pub(super) fn wait<T>(
        &self,
        cx: &Cx,
        side: Side,
        timeout: Option<Duration>,
        attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        self.0.begin(cx)?;
        self.0.wait(cx, &Alarm::set(cx, timeout), side, attempt)
    }

    /// What it is.
    pub fn get_ref(&self) -> &S {
        &self.0.socket
    }
}

impl<S: AsFd> AsFd for Ready<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}

/// Waits for a child process to end; only this task waits. Costs two ops and two system calls, or one of each if the child has ended. A
/// task that is cancelled leaves the child as it is.
pub fn wait_child(cx: &Cx, child: &mut Child) -> io::Result<ExitStatus> {
    super::charge(cx)?;
    // One that was waited for before has no number any more.
    if let Some(status) = child.try_wait()? {
        return Ok(status);
    }
    let ended = Ready::adopt(cx, pidfd(child)?)?;
    ended.read_with(cx, |_| child.try_wait()?.ok_or(ErrorKind::WouldBlock.into()))
}

/// A descriptor that can be read from when the child has ended.
#[allow(unsafe_code)]
fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only. A child that was not waited for keeps its number.
    let made = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and no other owner has it.
    Ok(unsafe { OwnedFd::from_raw_fd(made as i32) })
}
