//! Connections: of TCP, and of Unix sockets.

use super::future::StreamSocket;
use super::readiness::Side;
use super::{Source, address, charge, completion, no_network, refused, tries};
use crate::calls;
use crate::cx::Cx;
use crate::time::Alarm;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// A connection. Several tasks may read from it and write to it at once: each byte goes to one of them, in no set order among those
/// that wait.
pub struct Stream<S: StreamSocket>(pub(super) Source<S>);

/// A TCP connection.
pub type TcpStream = Stream<std::net::TcpStream>;

/// A connection of Unix sockets.
pub type UnixStream = Stream<std::os::unix::net::UnixStream>;

impl<S: StreamSocket> fmt::Debug for Stream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

impl TcpStream {
    /// Connects to the first of the addresses that answers. Names are looked up on the pool of threads, so it needs
    /// `CapExecutor`, and a lookup that has begun is waited for.
    pub fn connect(cx: &Cx, address: impl ToSocketAddrs + Send) -> io::Result<Self> {
        Self::connect_until(cx, address, None)
    }

    /// As [`TcpStream::connect`]: gives up when this much time has passed since the addresses are known, with
    /// [`ErrorKind::TimedOut`].
    pub fn connect_timeout(
        cx: &Cx,
        address: impl ToSocketAddrs + Send,
        timeout: Duration,
    ) -> io::Result<Self> {
        Self::connect_until(cx, address, Some(timeout))
    }

    fn connect_until(
        cx: &Cx,
        address: impl ToSocketAddrs + Send,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        if cx.rt().is_virtual() {
            return Err(no_network());
        }
        let found: Vec<SocketAddr> =
            cx.blocking(move || address.to_socket_addrs().map(Iterator::collect)).map_err(refused)??;
        let alarm = Alarm::set(cx, timeout);
        let mut last = io::Error::new(ErrorKind::InvalidInput, "the name has no address");
        for to in found {
            match Self::connect_to(cx, &alarm, to) {
                Err(error) if error.kind() != ErrorKind::TimedOut => last = error,
                result => return result,
            }
        }
        Err(last)
    }

    fn connect_to(cx: &Cx, alarm: &Alarm<'_>, to: SocketAddr) -> io::Result<Self> {
        if let Some(ring) = cx.rt().io.uring()? {
            return Self::adopt(cx, completion::connect(ring, cx, alarm, to)?.into());
        }
        let socket = address::stream_socket(to, libc::SOCK_NONBLOCK)?;
        let is_done = address::begin_connect(&socket, to)?;
        let source = Source::new(cx, std::net::TcpStream::from(socket))?;
        if !is_done {
            source.wait(cx, alarm, Side::Write, |socket| match socket.take_error()? {
                Some(error) => Err(error),
                None => match socket.peer_addr() {
                    Err(error) if error.kind() == ErrorKind::NotConnected => {
                        Err(ErrorKind::WouldBlock.into())
                    }
                    result => result.map(drop),
                },
            })?;
        }
        Ok(Self(source))
    }
}

impl UnixStream {
    /// Connects to the listener at a path. It may have to wait for room in the listener's backlog, on the pool of threads: it needs
    /// `CapExecutor`.
    pub fn connect(cx: &Cx, path: impl AsRef<Path> + Send) -> io::Result<Self> {
        if cx.rt().is_virtual() {
            return Err(no_network());
        }
        Self::adopt(cx, cx.blocking(|| std::os::unix::net::UnixStream::connect(path)).map_err(refused)??)
    }

    /// Two that are connected with each other.
    pub fn pair(cx: &Cx) -> io::Result<(Self, Self)> {
        charge(cx)?;
        let (one, two) = std::os::unix::net::UnixStream::pair()?;
        Ok((Self::adopt(cx, one)?, Self::adopt(cx, two)?))
    }
}

impl<S: StreamSocket> Stream<S> {
    /// Makes this runtime serve a socket that is connected.
    pub fn from_std(cx: &Cx, socket: S) -> io::Result<Self> {
        charge(cx)?;
        Self::adopt(cx, socket)
    }

    /// Takes the socket from the runtime. It blocks its thread from now on.
    pub fn into_std(self) -> io::Result<S> {
        let socket = self.0.socket.try_clone()?;
        drop(self);
        socket.set_nonblocking(false)?;
        Ok(socket)
    }

    pub(super) fn adopt(cx: &Cx, socket: S) -> io::Result<Self> {
        socket.set_nonblocking(tries(cx))?;
        Ok(Self(Source::new(cx, socket)?))
    }

    /// Reads what there is, at least one byte; 0 at the end, and for an empty buffer.
    pub fn read(&self, cx: &Cx, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_until(cx, buffer, None)
    }

    /// As [`Stream::read`], for at most this long; then [`ErrorKind::TimedOut`]. No byte is lost by that: what comes too late
    /// waits for the next read.
    pub fn read_timeout(&self, cx: &Cx, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        self.read_until(cx, buffer, Some(timeout))
    }

    fn read_until(&self, cx: &Cx, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        let ring = self.0.begin(cx)?;
        if buffer.is_empty() {
            return Ok(0);
        }
        let alarm = Alarm::set(cx, timeout);
        match ring {
            Some(ring) => completion::receive(ring, cx, &alarm, &self.0.socket, buffer),
            None => self.0.wait(cx, &alarm, Side::Read, |socket| socket.try_read(buffer)),
        }
    }

    /// Writes some of `bytes`: how many.
    pub fn write(&self, cx: &Cx, bytes: &[u8]) -> io::Result<usize> {
        self.write_until(cx, bytes, None)
    }

    /// As [`Stream::write`], for at most this long; then [`ErrorKind::TimedOut`], and nothing of `bytes` has been written.
    pub fn write_timeout(&self, cx: &Cx, bytes: &[u8], timeout: Duration) -> io::Result<usize> {
        self.write_until(cx, bytes, Some(timeout))
    }

    fn write_until(&self, cx: &Cx, bytes: &[u8], timeout: Option<Duration>) -> io::Result<usize> {
        let ring = self.0.begin(cx)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let alarm = Alarm::set(cx, timeout);
        match ring {
            Some(ring) => completion::send(ring, cx, &alarm, &self.0.socket, bytes),
            None => self.0.wait(cx, &alarm, Side::Write, |socket| socket.try_write(&[IoSlice::new(bytes)])),
        }
    }

    /// Writes all of `bytes`. A task that is cancelled meanwhile may have written some of them.
    pub fn write_all(&self, cx: &Cx, mut bytes: &[u8]) -> io::Result<()> {
        calls::count(cx);
        while !bytes.is_empty() {
            match self.write(cx, bytes)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                n => bytes = &bytes[n..],
            }
        }
        Ok(())
    }

    /// Fills the buffer. A task that is cancelled meanwhile may have read some of it: where that matters, use
    /// [`Stream::read`].
    pub fn read_exact(&self, cx: &Cx, mut buffer: &mut [u8]) -> io::Result<()> {
        calls::count(cx);
        while !buffer.is_empty() {
            match self.read(cx, buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => buffer = &mut buffer[n..],
            }
        }
        Ok(())
    }

    /// Ends the connection in one or both directions. Tasks that wait for it go on.
    pub fn shutdown(&self, cx: &Cx, how: std::net::Shutdown) -> io::Result<()> {
        self.0.begin(cx)?;
        self.0.socket.shutdown(how)
    }

    /// Writes some of the parts, in order, in one operation: how many bytes.
    pub fn write_vectored(&self, cx: &Cx, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let ring = self.0.begin(cx)?;
        if parts.iter().all(|part| part.is_empty()) {
            return Ok(0);
        }
        let alarm = Alarm::never(cx);
        match ring {
            Some(ring) => completion::send_parts(ring, cx, &alarm, &self.0.socket, parts),
            None => self.0.wait(cx, &alarm, Side::Write, |socket| socket.try_write(parts)),
        }
    }

    /// The socket, for its options and addresses. It is the runtime's: reads and writes by this may block the worker.
    pub fn get_ref(&self) -> &S {
        &self.0.socket
    }

    /// The connection as [`std::io::Read`] and [`std::io::Write`], by this task.
    ///
    /// ```
    /// # use mainspring::io::UnixStream;
    /// # use mainspring::{Config, Profile};
    /// # use std::io::{BufRead, BufReader, Write};
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// let line = runtime.run(|cx| {
    ///     let (one, two) = UnixStream::pair(cx).unwrap();
    ///     writeln!(one.with(cx), "hello").unwrap();
    ///     let mut line = String::new();
    ///     BufReader::new(two.with(cx)).read_line(&mut line).unwrap();
    ///     line
    /// });
    /// assert_eq!(line.unwrap(), "hello\n");
    /// ```
    pub fn with<'a>(&'a self, cx: &'a Cx) -> ByTask<'a, S> {
        ByTask { stream: self, cx }
    }
}

impl<S: StreamSocket> AsFd for Stream<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}

/// A connection as it is used by one task: [`Stream::with`].
#[derive(Clone, Copy, Debug)]
pub struct ByTask<'a, S: StreamSocket> {
    stream: &'a Stream<S>,
    cx: &'a Cx,
}

impl<S: StreamSocket> Read for ByTask<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(self.cx, buffer)
    }
}

impl<S: StreamSocket> Write for ByTask<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(self.cx, bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(self.cx, parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
