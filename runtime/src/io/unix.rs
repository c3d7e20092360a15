//! Unix sockets that listen, and datagrams.

use super::readiness::Side;
use super::ready::Ready;
use super::{Source, UnixStream, charge, completion, tries};
use crate::cx::Cx;
use crate::time::Alarm;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// A Unix socket that accepts connections. Several tasks may accept from it at once. It does not remove its path when it goes.
#[derive(Debug)]
pub struct UnixListener(pub(super) Source<net::UnixListener>);

impl UnixListener {
    /// Binds to a path, which must not exist, and listens.
    pub fn bind(cx: &Cx, path: impl AsRef<Path>) -> io::Result<Self> {
        charge(cx)?;
        Self::adopt(cx, net::UnixListener::bind(path)?)
    }

    /// Makes this runtime serve a socket that listens.
    pub fn from_std(cx: &Cx, socket: net::UnixListener) -> io::Result<Self> {
        charge(cx)?;
        Self::adopt(cx, socket)
    }

    fn adopt(cx: &Cx, socket: net::UnixListener) -> io::Result<Self> {
        socket.set_nonblocking(tries(cx))?;
        Ok(Self(Source::new(cx, socket)?))
    }

    /// Waits for a connection.
    pub fn accept(&self, cx: &Cx) -> io::Result<UnixStream> {
        self.accept_until(cx, None)
    }

    /// As [`UnixListener::accept`], for at most this long; then [`io::ErrorKind::TimedOut`].
    pub fn accept_timeout(&self, cx: &Cx, timeout: Duration) -> io::Result<UnixStream> {
        self.accept_until(cx, Some(timeout))
    }

    fn accept_until(&self, cx: &Cx, timeout: Option<Duration>) -> io::Result<UnixStream> {
        let ring = self.0.begin(cx)?;
        let alarm = Alarm::set(cx, timeout);
        let socket = match ring {
            Some(ring) => completion::accept_any(ring, cx, &alarm, &self.0.socket)?.into(),
            None => self.0.wait(cx, &alarm, Side::Read, net::UnixListener::accept)?.0,
        };
        UnixStream::adopt(cx, socket)
    }

    /// The socket, for its address.
    pub fn get_ref(&self) -> &net::UnixListener {
        &self.0.socket
    }
}

impl AsFd for UnixListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}

/// A Unix socket for datagrams. Several tasks may receive from it and send to it at once. Its operations are tried until they do not
/// block, under either driver.
#[derive(Debug)]
pub struct UnixDatagram(pub(super) Ready<net::UnixDatagram>);

impl UnixDatagram {
    /// Binds to a path, which must not exist.
    pub fn bind(cx: &Cx, path: impl AsRef<Path>) -> io::Result<Self> {
        charge(cx)?;
        Ready::adopt(cx, net::UnixDatagram::bind(path)?).map(Self)
    }

    /// Two that are connected with each other.
    pub fn pair(cx: &Cx) -> io::Result<(Self, Self)> {
        charge(cx)?;
        let (one, two) = net::UnixDatagram::pair()?;
        Ok((Self(Ready::adopt(cx, one)?), Self(Ready::adopt(cx, two)?)))
    }

    /// Makes this runtime serve a socket. Costs one op and one system call.
    pub fn from_std(cx: &Cx, socket: net::UnixDatagram) -> io::Result<Self> {
        Ready::new(cx, socket).map(Self)
    }

    /// Sends one datagram to the socket at a path.
    pub fn send_to(&self, cx: &Cx, bytes: &[u8], to: impl AsRef<Path>) -> io::Result<usize> {
        self.0.write_with(cx, |socket| socket.send_to(bytes, &to))
    }

    /// Sends one datagram to the socket that this one is connected with.
    pub fn send(&self, cx: &Cx, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_with(cx, |socket| socket.send(bytes))
    }

    /// Waits for one datagram, and whose it is. What does not fit into the buffer is cut off.
    pub fn recv_from(&self, cx: &Cx, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.read_with(cx, |socket| socket.recv_from(buffer))
    }

    /// As [`UnixDatagram::recv_from`], for at most this long; then [`io::ErrorKind::TimedOut`]. No datagram is lost by that.
    pub fn recv_from_timeout(
        &self,
        cx: &Cx,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> io::Result<(usize, SocketAddr)> {
        self.0.read_with_timeout(cx, timeout, |socket| socket.recv_from(buffer))
    }

    /// The socket, for its options and its address.
    pub fn get_ref(&self) -> &net::UnixDatagram {
        self.0.get_ref()
    }
}

impl AsFd for UnixDatagram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
