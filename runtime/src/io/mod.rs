//! Sockets and files. Each operation costs one op and one system call, blocks its task and not its worker, and ends when the
//! task is cancelled, or when its time is over. An operation that the kernel has done by then returns what came of it: a
//! cancelled task ends at its next yield point, and has lost neither bytes nor clients.
//!
//! There are two drivers ([`IoDriver`]), and what an operation does, costs and needs is the same with both. With io_uring the
//! kernel completes operations on the task's own buffers: a cancelled task takes its operation back and waits until the
//! kernel is through with it. With epoll operations are tried until they do not block.
//!
//! The deterministic mode has no outside: everything here fails with [`std::io::ErrorKind::Unsupported`] there, but files,
//! which are read and written in place.

mod address;
mod completion;
pub(crate) mod driver;
mod epoll;
mod file;
mod future;
mod polled;
pub(crate) mod readiness;
mod ready;
mod stream;
mod unix;
mod uring;

pub use driver::IoDriver;
pub use file::File;
pub use future::{Async, StreamSocket};
pub use polled::Pollable;
pub(crate) use polled::Polled;
pub(crate) use readiness::Side;
use readiness::Sides;
pub use ready::{Ready, wait_child};
pub use stream::{ByTask, Stream, TcpStream, UnixStream};
pub use unix::{UnixDatagram, UnixListener};

use crate::audit;
use crate::budget::Component;
use crate::calls;
use crate::cx::Cx;
use crate::error::BudgetError;
use crate::runtime::Inner;
use crate::task::WaitReason;
use crate::time::Alarm;
use crate::waiter::task_word;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use uring::Uring;

fn charge(cx: &Cx) -> io::Result<()> {
    cx.charge(Component::Syscalls).map_err(refused_charge)
}

fn refused_charge(error: BudgetError) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, error)
}

/// A socket was used by a task of another runtime than the one that it was made in. Inside of the [`std::io::Error`].
///
/// A runtime's driver serves its own tasks only: it ends with the runtime, and must not leave another's tasks waiting. Hand the
/// socket over with `into_std`, and `from_std` in the other runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherRuntime;

impl fmt::Display for OtherRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the socket belongs to another runtime; hand it over with into_std and from_std")
    }
}

impl std::error::Error for OtherRuntime {}

/// The runtime that a socket was made in has ended: what is waited for would never be told. Inside of the [`std::io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeEnded;

impl fmt::Display for RuntimeEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the runtime of the socket has ended; take the socket out of it with into_std before that",
        )
    }
}

impl std::error::Error for RuntimeEnded {}

/// Something the driver knows; forgotten before it is closed.
#[derive(Debug)]
struct Source<S: AsFd> {
    socket: S,
    memory: Arc<Inner>,
    /// What epoll told of it, if that was asked.
    sides: OnceLock<Arc<Sides>>,
    /// What is attempted on it may say that it would block although the socket is ready.
    is_doubtful: bool,
}

impl<S: AsFd> Source<S> {
    fn new(cx: &Cx, socket: S) -> io::Result<Self> {
        if cx.rt().is_virtual() {
            return Err(no_network());
        }
        let memory = cx.rt().memory();
        let is_tried = memory.io.uring()?.is_none();
        let source = Self { socket, memory, sides: OnceLock::new(), is_doubtful: false };
        if is_tried {
            source.sides()?;
        }
        Ok(source)
    }

    /// As [`Source::new`], for operations of the program's own, which are tried under either driver.
    fn tried(cx: &Cx, socket: S) -> io::Result<Self> {
        if cx.rt().is_virtual() {
            return Err(no_network());
        }
        let source = Self { socket, memory: cx.rt().memory(), sides: OnceLock::new(), is_doubtful: true };
        source.sides()?;
        Ok(source)
    }

    /// What epoll tells of it from now on.
    fn sides(&self) -> io::Result<&Sides> {
        if let Some(sides) = self.sides.get() {
            return Ok(sides);
        }
        let added = self.memory.know_socket(&self.socket)?;
        Ok(keep_sides(&self.sides, added, &self.memory))
    }

    /// Begins an operation: the ring to hand it to, once it is paid for; `None` if it is to be tried.
    fn begin(&self, cx: &Cx) -> io::Result<Option<&Uring>> {
        if !std::ptr::eq(&raw const *self.memory, cx.rt()) {
            calls::count(cx);
            return Err(io::Error::new(ErrorKind::InvalidInput, OtherRuntime));
        }
        charge(cx)?;
        self.memory.io.uring()
    }

    /// Tries until it does not block.
    fn wait<T>(
        &self,
        cx: &Cx,
        alarm: &Alarm<'_>,
        side: Side,
        mut attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        let sides = self.sides()?;
        loop {
            let seen = sides.of(side).seen();
            match attempt(&self.socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => sides.used_up(side, seen),
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    // An attempt of the program's own may say so for ever.
                    calls::count(cx);
                    if alarm.is_over() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    continue;
                }
                result => {
                    sides.pass_on(side);
                    return result;
                }
            }
            if std::thread::panicking() {
                return Err(ErrorKind::WouldBlock.into());
            }
            if alarm.is_over() {
                return Err(ErrorKind::TimedOut.into());
            }
            if self.is_doubtful && self.polled().is_ready(side)? {
                cx.yield_now();
                continue;
            }
            let Some(ticket) = sides.register(side, task_word(cx.task_ptr())) else { continue };
            // A task that is cancelled here has its turn passed on.
            let in_line = InLine { sides, side, ticket };
            if !cx.must_stop() {
                cx.block(WaitReason::Io);
            }
            cx.acknowledge();
            in_line.try_again();
        }
    }
}

/// Keeps what was made known, unless another thread was faster.
fn keep_sides<'a>(place: &'a OnceLock<Arc<Sides>>, added: Arc<Sides>, rt: &Inner) -> &'a Sides {
    if let Err(added) = place.set(added) {
        rt.io.readiness.forget(&added);
    }
    place.get().expect("set above, or by another thread")
}

/// A registration of a task that may be cancelled.
struct InLine<'a> {
    sides: &'a Sides,
    side: Side,
    ticket: u64,
}

impl InLine<'_> {
    fn try_again(self) {
        let _ = self.sides.unregister_to_try(self.side, self.ticket);
        std::mem::forget(self);
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.sides.unregister(self.side, self.ticket);
    }
}

impl<S: AsFd> Drop for Source<S> {
    fn drop(&mut self) {
        if let Some(sides) = self.sides.get() {
            self.memory.io.readiness.forget(sides);
        }
    }
}

/// A TCP socket that accepts connections. Several tasks may accept from it at once.
#[derive(Debug)]
pub struct TcpListener(Source<std::net::TcpListener>);

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}

impl TcpListener {
    /// Binds and listens, with the backlog that the standard library chooses.
    pub fn bind(cx: &Cx, address: impl ToSocketAddrs) -> io::Result<Self> {
        charge(cx)?;
        Self::adopt(cx, std::net::TcpListener::bind(address)?)
    }

    /// As [`TcpListener::bind`]: at most about `backlog` connections wait to be accepted, and no more than the system allows
    /// (`net.core.somaxconn`).
    pub fn bind_with_backlog(cx: &Cx, address: impl ToSocketAddrs, backlog: u32) -> io::Result<Self> {
        let listener = Self::bind(cx, address)?;
        address::set_backlog(&listener.0.socket, backlog)?;
        Ok(listener)
    }

    /// Makes this runtime serve a socket that listens.
    pub fn from_std(cx: &Cx, socket: std::net::TcpListener) -> io::Result<Self> {
        charge(cx)?;
        Self::adopt(cx, socket)
    }

    /// Takes the socket from the runtime. It blocks its thread from now on.
    pub fn into_std(self) -> io::Result<std::net::TcpListener> {
        let socket = self.0.socket.try_clone()?;
        drop(self);
        socket.set_nonblocking(false)?;
        Ok(socket)
    }

    fn adopt(cx: &Cx, socket: std::net::TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(tries(cx))?;
        Ok(Self(Source::new(cx, socket)?))
    }

    /// Waits for a connection.
    pub fn accept(&self, cx: &Cx) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_until(cx, None)
    }

    /// As [`TcpListener::accept`], for at most this long; then [`ErrorKind::TimedOut`]. No connection is lost by that: one that
    /// comes too late waits for the next accept.
    pub fn accept_timeout(&self, cx: &Cx, timeout: Duration) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_until(cx, Some(timeout))
    }

    fn accept_until(&self, cx: &Cx, timeout: Option<Duration>) -> io::Result<(TcpStream, SocketAddr)> {
        let ring = self.0.begin(cx)?;
        let alarm = Alarm::set(cx, timeout);
        let (socket, peer) = match ring {
            Some(ring) => {
                let (socket, peer) = completion::accept(ring, cx, &alarm, &self.0.socket)?;
                (socket.into(), peer)
            }
            None => self.0.wait(cx, &alarm, Side::Read, std::net::TcpListener::accept)?,
        };
        Ok((TcpStream::adopt(cx, socket)?, peer))
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        calls::count_poll();
        self.0.socket.local_addr()
    }
}

/// A UDP socket. Several tasks may receive from it and send to it at once.
#[derive(Debug)]
pub struct UdpSocket(Source<std::net::UdpSocket>);

impl UdpSocket {
    /// Binds.
    pub fn bind(cx: &Cx, address: impl ToSocketAddrs) -> io::Result<Self> {
        charge(cx)?;
        Self::adopt(cx, std::net::UdpSocket::bind(address)?)
    }

    /// Makes this runtime serve a socket that is bound.
    pub fn from_std(cx: &Cx, socket: std::net::UdpSocket) -> io::Result<Self> {
        charge(cx)?;
        Self::adopt(cx, socket)
    }

    /// Takes the socket from the runtime. It blocks its thread from now on.
    pub fn into_std(self) -> io::Result<std::net::UdpSocket> {
        let socket = self.0.socket.try_clone()?;
        drop(self);
        socket.set_nonblocking(false)?;
        Ok(socket)
    }

    fn adopt(cx: &Cx, socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(tries(cx))?;
        Ok(Self(Source::new(cx, socket)?))
    }

    /// Sends one datagram, which may be empty.
    pub fn send_to(&self, cx: &Cx, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.send_until(cx, bytes, to, None)
    }

    /// As [`UdpSocket::send_to`], for at most this long; then [`ErrorKind::TimedOut`], and nothing has been sent.
    pub fn send_to_timeout(
        &self,
        cx: &Cx,
        bytes: &[u8],
        to: SocketAddr,
        timeout: Duration,
    ) -> io::Result<usize> {
        self.send_until(cx, bytes, to, Some(timeout))
    }

    fn send_until(
        &self,
        cx: &Cx,
        bytes: &[u8],
        to: SocketAddr,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let ring = self.0.begin(cx)?;
        let alarm = Alarm::set(cx, timeout);
        match ring {
            Some(ring) => completion::send_to(ring, cx, &alarm, &self.0.socket, bytes, to),
            None => self.0.wait(cx, &alarm, Side::Write, |socket| socket.send_to(bytes, to)),
        }
    }

    /// Waits for one datagram. What does not fit into the buffer is cut off, so an empty buffer takes a datagram and keeps none
    /// of it.
    pub fn recv_from(&self, cx: &Cx, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_until(cx, buffer, None)
    }

    /// As [`UdpSocket::recv_from`], for at most this long; then [`ErrorKind::TimedOut`]. No datagram is lost by that.
    pub fn recv_from_timeout(
        &self,
        cx: &Cx,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> io::Result<(usize, SocketAddr)> {
        self.recv_until(cx, buffer, Some(timeout))
    }

    fn recv_until(
        &self,
        cx: &Cx,
        buffer: &mut [u8],
        timeout: Option<Duration>,
    ) -> io::Result<(usize, SocketAddr)> {
        let ring = self.0.begin(cx)?;
        let alarm = Alarm::set(cx, timeout);
        match ring {
            Some(ring) => completion::receive_from(ring, cx, &alarm, &self.0.socket, buffer),
            None => self.0.wait(cx, &alarm, Side::Read, |socket| socket.recv_from(buffer)),
        }
    }

    /// The address it is bound to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        calls::count_poll();
        self.0.socket.local_addr()
    }
}

fn refused(error: crate::blocking::BlockingError) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, error)
}

fn no_network() -> io::Error {
    io::Error::new(ErrorKind::Unsupported, "the deterministic mode has no network")
}

/// Whether operations are tried until they do not block, rather than completed by the kernel.
fn tries(cx: &Cx) -> bool {
    cx.rt().io.kind() == IoDriver::Epoll
}

/// The ring for a file operation, which costs and needs the same as on the pool of threads.
fn file_ring(cx: &Cx) -> io::Result<Option<&Uring>> {
    if cx.rt().is_virtual() {
        return Ok(None);
    }
    let Some(ring) = cx.rt().io.uring()? else { return Ok(None) };
    let cap = cx.caps().executor().copied().ok_or(crate::blocking::BlockingError::NotPermitted);
    audit::noted(cx, "CapExecutor", "file", cap).map_err(refused)?;
    charge(cx)?;
    Ok(Some(ring))
}

/// Reads a whole file. Needs `CapExecutor`: it is for what may wait for a device.
pub fn read_file(cx: &Cx, path: impl AsRef<Path> + Send) -> io::Result<Vec<u8>> {
    if let Some(ring) = file_ring(cx)? {
        return completion::read_file(ring, cx, path.as_ref());
    }
    cx.blocking(|| std::fs::read(path)).map_err(refused)?
}

/// Writes a whole file, as [`read_file`].
pub fn write_file(cx: &Cx, path: impl AsRef<Path> + Send, bytes: impl AsRef<[u8]> + Send) -> io::Result<()> {
    if let Some(ring) = file_ring(cx)? {
        return completion::write_file(ring, cx, path.as_ref(), bytes.as_ref());
    }
    cx.blocking(|| std::fs::write(path, bytes)).map_err(refused)?
}
