//! Sockets and files. Each operation costs one op and one system call, blocks its task and not its worker, and ends when the
//! task is cancelled.
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
mod readiness;
mod uring;

pub use driver::IoDriver;

use crate::audit;
use crate::budget::Component;
use crate::calls;
use crate::cx::Cx;
use crate::task::WaitReason;
use crate::waiter::task_word;
use readiness::Side;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::path::Path;
use uring::Uring;

fn charge(cx: &Cx) -> io::Result<()> {
    cx.charge(Component::Syscalls).map_err(|error| io::Error::new(ErrorKind::PermissionDenied, error))
}

/// Something the driver knows; forgotten before it is closed.
#[derive(Debug)]
struct Source<S: AsFd> {
    socket: S,
    memory: std::sync::Arc<crate::runtime::Inner>,
}

impl<S: AsFd> Source<S> {
    fn new(cx: &Cx, socket: S) -> io::Result<Self> {
        if cx.rt().is_virtual() {
            return Err(io::Error::new(ErrorKind::Unsupported, "the deterministic mode has no network"));
        }
        let memory = cx.rt().memory();
        if memory.io.uring()?.is_none() {
            memory.io.readiness.add(&socket)?;
        }
        Ok(Self { socket, memory })
    }

    /// The ring to hand an operation to, once that is paid for; `None` if it is to be tried.
    fn ring(&self, cx: &Cx) -> io::Result<Option<&Uring>> {
        charge(cx)?;
        self.memory.io.uring()
    }

    /// Tries until it does not block.
    fn wait<T>(&self, cx: &Cx, side: Side, mut attempt: impl FnMut(&S) -> io::Result<T>) -> io::Result<T> {
        loop {
            match attempt(&self.socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                result => return result,
            }
            if std::thread::panicking() {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.memory.io.readiness.register(&self.socket, side, task_word(cx.task_ptr()))?;
            if !cx.must_stop() {
                cx.block(WaitReason::Io);
            }
            self.memory.io.readiness.unregister(&self.socket, side);
            cx.acknowledge();
        }
    }
}

impl<S: AsFd> Drop for Source<S> {
    fn drop(&mut self) {
        self.memory.io.readiness.forget(&self.socket);
    }
}

/// A TCP socket that accepts connections.
#[derive(Debug)]
pub struct TcpListener(Source<std::net::TcpListener>);

impl TcpListener {
    /// Binds and listens.
    pub fn bind(cx: &Cx, address: impl ToSocketAddrs) -> io::Result<Self> {
        charge(cx)?;
        let socket = std::net::TcpListener::bind(address)?;
        socket.set_nonblocking(tries(cx))?;
        Ok(Self(Source::new(cx, socket)?))
    }

    /// Waits for a connection.
    pub fn accept(&self, cx: &Cx) -> io::Result<(TcpStream, SocketAddr)> {
        let (socket, peer) = match self.0.ring(cx)? {
            Some(ring) => {
                let (socket, peer) = completion::accept(ring, cx, &self.0.socket)?;
                (socket.into(), peer)
            }
            None => self.0.wait(cx, Side::Read, std::net::TcpListener::accept)?,
        };
        socket.set_nonblocking(tries(cx))?;
        Ok((TcpStream(Source::new(cx, socket)?), peer))
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        calls::count_poll();
        self.0.socket.local_addr()
    }
}

/// A TCP connection.
#[derive(Debug)]
pub struct TcpStream(Source<std::net::TcpStream>);

impl TcpStream {
    /// Connects. Names are looked up on the pool of threads, so it needs `CapExecutor`.
    pub fn connect(cx: &Cx, address: impl ToSocketAddrs + Send) -> io::Result<Self> {
        if cx.rt().is_virtual() {
            return Err(io::Error::new(ErrorKind::Unsupported, "the deterministic mode has no network"));
        }
        let socket = match cx.rt().io.uring()? {
            Some(ring) => connect_with(ring, cx, address)?,
            None => cx.blocking(|| std::net::TcpStream::connect(address)).map_err(refused)??,
        };
        socket.set_nonblocking(tries(cx))?;
        Ok(Self(Source::new(cx, socket)?))
    }

    /// Reads what there is, at least one byte; 0 at the end.
    pub fn read(&self, cx: &Cx, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.ring(cx)? {
            Some(ring) => completion::receive(ring, cx, &self.0.socket, buffer),
            None => self.0.wait(cx, Side::Read, |mut socket| socket.read(buffer)),
        }
    }

    /// Writes some of `bytes`.
    pub fn write(&self, cx: &Cx, bytes: &[u8]) -> io::Result<usize> {
        match self.0.ring(cx)? {
            Some(ring) => completion::send(ring, cx, &self.0.socket, bytes),
            None => self.0.wait(cx, Side::Write, |mut socket| socket.write(bytes)),
        }
    }

    /// Writes all of `bytes`.
    pub fn write_all(&self, cx: &Cx, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(cx, bytes)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                n => bytes = &bytes[n..],
            }
        }
        Ok(())
    }

    /// Fills the buffer.
    pub fn read_exact(&self, cx: &Cx, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read(cx, buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => buffer = &mut buffer[n..],
            }
        }
        Ok(())
    }

    /// Ends the connection in one or both directions.
    pub fn shutdown(&self, cx: &Cx, how: std::net::Shutdown) -> io::Result<()> {
        charge(cx)?;
        self.0.socket.shutdown(how)
    }
}

/// A UDP socket.
#[derive(Debug)]
pub struct UdpSocket(Source<std::net::UdpSocket>);

impl UdpSocket {
    /// Binds.
    pub fn bind(cx: &Cx, address: impl ToSocketAddrs) -> io::Result<Self> {
        charge(cx)?;
        let socket = std::net::UdpSocket::bind(address)?;
        socket.set_nonblocking(tries(cx))?;
        Ok(Self(Source::new(cx, socket)?))
    }

    /// Sends one datagram.
    pub fn send_to(&self, cx: &Cx, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        match self.0.ring(cx)? {
            Some(ring) => completion::send_to(ring, cx, &self.0.socket, bytes, to),
            None => self.0.wait(cx, Side::Write, |socket| socket.send_to(bytes, to)),
        }
    }

    /// Waits for one datagram.
    pub fn recv_from(&self, cx: &Cx, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match self.0.ring(cx)? {
            Some(ring) => completion::receive_from(ring, cx, &self.0.socket, buffer),
            None => self.0.wait(cx, Side::Read, |socket| socket.recv_from(buffer)),
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

/// Whether operations are tried until they do not block, rather than completed by the kernel.
fn tries(cx: &Cx) -> bool {
    cx.rt().io.kind() == IoDriver::Epoll
}

/// Looks the address up on the pool of threads, and has the kernel connect to the first that answers.
fn connect_with(
    ring: &Uring,
    cx: &Cx,
    address: impl ToSocketAddrs + Send,
) -> io::Result<std::net::TcpStream> {
    let found: Vec<SocketAddr> =
        cx.blocking(move || address.to_socket_addrs().map(Iterator::collect)).map_err(refused)??;
    let mut last = io::Error::new(ErrorKind::InvalidInput, "the name has no address");
    for to in found {
        match completion::connect(ring, cx, to) {
            Ok(socket) => return Ok(socket.into()),
            Err(error) => last = error,
        }
    }
    Err(last)
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
