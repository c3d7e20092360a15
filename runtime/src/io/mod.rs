//! Sockets and files. Each operation costs one op and one system call, blocks its task and not its worker, and ends when the
//! task is cancelled.
//!
//! The deterministic mode has no outside: everything here fails with [`std::io::ErrorKind::Unsupported`] there, but files,
//! which are read and written in place.

pub(crate) mod driver;

use crate::budget::Component;
use crate::cx::Cx;
use crate::task::WaitReason;
use crate::waiter::task_word;
use driver::Side;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::path::Path;

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
        memory.io.add(&socket)?;
        Ok(Self { socket, memory })
    }

    /// Tries until it does not block.
    fn wait<T>(&self, cx: &Cx, side: Side, mut attempt: impl FnMut(&S) -> io::Result<T>) -> io::Result<T> {
        charge(cx)?;
        loop {
            match attempt(&self.socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                result => return result,
            }
            if std::thread::panicking() {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.memory.io.register(&self.socket, side, task_word(cx.task_ptr()))?;
            if !cx.must_stop() {
                cx.block(WaitReason::Io);
            }
            self.memory.io.unregister(&self.socket, side);
            cx.acknowledge();
        }
    }
}

impl<S: AsFd> Drop for Source<S> {
    fn drop(&mut self) {
        self.memory.io.forget(&self.socket);
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
        socket.set_nonblocking(true)?;
        Ok(Self(Source::new(cx, socket)?))
    }

    /// Waits for a connection.
    pub fn accept(&self, cx: &Cx) -> io::Result<(TcpStream, SocketAddr)> {
        let (socket, peer) = self.0.wait(cx, Side::Read, std::net::TcpListener::accept)?;
        socket.set_nonblocking(true)?;
        Ok((TcpStream(Source::new(cx, socket)?), peer))
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket.local_addr()
    }
}

/// A TCP connection.
#[derive(Debug)]
pub struct TcpStream(Source<std::net::TcpStream>);

impl TcpStream {
    /// Connects. The connection is made on the pool of threads, so it needs `CapExecutor`.
    pub fn connect(cx: &Cx, address: impl ToSocketAddrs + Send) -> io::Result<Self> {
        if cx.rt().is_virtual() {
            return Err(io::Error::new(ErrorKind::Unsupported, "the deterministic mode has no network"));
        }
        let socket = cx.blocking(|| std::net::TcpStream::connect(address)).map_err(refused)??;
        socket.set_nonblocking(true)?;
        Ok(Self(Source::new(cx, socket)?))
    }

    /// Reads what there is, at least one byte; 0 at the end.
    pub fn read(&self, cx: &Cx, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.wait(cx, Side::Read, |mut socket| socket.read(buffer))
    }

    /// Writes some of `bytes`.
    pub fn write(&self, cx: &Cx, bytes: &[u8]) -> io::Result<usize> {
        self.0.wait(cx, Side::Write, |mut socket| socket.write(bytes))
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
        socket.set_nonblocking(true)?;
        Ok(Self(Source::new(cx, socket)?))
    }

    /// Sends one datagram.
    pub fn send_to(&self, cx: &Cx, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.0.wait(cx, Side::Write, |socket| socket.send_to(bytes, to))
    }

    /// Waits for one datagram.
    pub fn recv_from(&self, cx: &Cx, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.wait(cx, Side::Read, |socket| socket.recv_from(buffer))
    }

    /// The address it is bound to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket.local_addr()
    }
}

fn refused(error: crate::blocking::BlockingError) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, error)
}

/// Reads a whole file, on the pool of threads.
pub fn read_file(cx: &Cx, path: impl AsRef<Path> + Send) -> io::Result<Vec<u8>> {
    cx.blocking(|| std::fs::read(path)).map_err(refused)?
}

/// Writes a whole file, on the pool of threads.
pub fn write_file(cx: &Cx, path: impl AsRef<Path> + Send, bytes: impl AsRef<[u8]> + Send) -> io::Result<()> {
    cx.blocking(|| std::fs::write(path, bytes)).map_err(refused)?
}
