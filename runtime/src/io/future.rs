//! Sockets for futures.
//!
//! Conserved: a future that waits for a side of a socket is registered for it once, and takes the registration back when it is
//! dropped. Each attempt costs the task that polls one op and one system call, as an operation of a task does.
//!
//! Whichever driver tasks use, futures hear of their sockets by the readiness thread (epoll): a future may be dropped at any
//! time, and a kernel that still writes to its buffer could not be waited for then.

use super::readiness::{Side, Sides};
use super::{no_network, refused_charge};
use crate::budget::Component;
use crate::calls;
use crate::cx::Cx;
use crate::runtime::Inner;
use crate::waiter;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
#[cfg(feature = "hyper")]
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
#[cfg(feature = "hyper")]
use std::os::fd::AsRawFd;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

/// A socket whose operations are futures.
///
/// ```
/// # use mainspring::io::{Async, TcpListener, TcpStream};
/// # use mainspring::{Config, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// let text = runtime.run(|cx| {
///     let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
///     let address = listener.local_addr().unwrap();
///     let listener = Async::new(cx, listener.into_std().unwrap()).unwrap();
///     let client = TcpStream::connect(cx, address).unwrap();
///     client.write_all(cx, b"hello").unwrap();
///     cx.await_future(async {
///         let (stream, _) = listener.accept().await.unwrap();
///         let mut buffer = [0; 16];
///         let n = stream.read(&mut buffer).await.unwrap();
///         String::from_utf8_lossy(&buffer[..n]).into_owned()
///     }).unwrap()
/// });
/// assert_eq!(text.unwrap(), "hello");
/// ```
pub struct Async<S: AsFd> {
    socket: S,
    memory: Arc<Inner>,
    sides: Arc<Sides>,
    /// Registrations of the `poll_` methods, one for each side.
    read: Mutex<Option<u64>>,
    write: Mutex<Option<u64>>,
}

impl<S: AsFd> fmt::Debug for Async<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Async")
    }
}

/// A connected stream of the standard library.
pub trait StreamSocket: AsFd + Send + Sync + Sized + sealed::Sealed {
    /// Whether a read that does not fill its buffer leaves nothing. With Unix sockets a read ends where a descriptor was passed.
    #[doc(hidden)]
    const SHORT_READ_IS_ALL: bool;
    /// Another descriptor of the same socket.
    fn try_clone(&self) -> io::Result<Self>;
    /// Whether operations fail rather than wait.
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()>;
    /// Ends the connection in one or both directions.
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;
    /// Reads without waiting.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes without waiting.
    fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for std::net::TcpStream {}
    impl Sealed for std::os::unix::net::UnixStream {}
}

macro_rules! stream_socket {
    ($($type:ty: $short_read_is_all:expr),*) => {
        $(impl StreamSocket for $type {
            const SHORT_READ_IS_ALL: bool = $short_read_is_all;

            fn try_clone(&self) -> io::Result<Self> {
                <$type>::try_clone(self)
            }

            fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
                <$type>::set_nonblocking(self, nonblocking)
            }

            fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                <$type>::shutdown(self, how)
            }

            fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                (&mut &*self).read(buffer)
            }

            fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                (&mut &*self).write_vectored(parts)
            }
        })*
    };
}

stream_socket!(std::net::TcpStream: true, UnixStream: false);

impl<S: AsFd> Async<S> {
    /// Makes the runtime serve a socket for futures. It does not block its thread any more. Costs one op and one system call.
    pub fn new(cx: &Cx, socket: S) -> io::Result<Self> {
        super::charge(cx)?;
        Self::adopt(cx.rt().memory(), socket)
    }

    fn adopt(memory: Arc<Inner>, socket: S) -> io::Result<Self> {
        if memory.is_virtual() {
            return Err(no_network());
        }
        super::address::set_nonblocking(&socket)?;
        let sides = memory.know_socket(&socket)?;
        Ok(Self { socket, memory, sides, read: Mutex::default(), write: Mutex::default() })
    }

    /// The socket, for its options.
    pub fn get_ref(&self) -> &S {
        &self.socket
    }

    /// Tries if it may succeed; if that would block, the waker of `context` is told when to try again. `ticket` is the registration
    /// for that.
    fn poll_io<T>(
        &self,
        side: Side,
        ticket: &mut Option<u64>,
        context: &Context<'_>,
        mut attempt: impl FnMut(&S) -> Attempt<T>,
    ) -> Poll<io::Result<T>> {
        if let Some(ticket) = ticket.take() {
            let _ = self.sides.unregister_to_try(side, ticket);
        }
        loop {
            let seen = self.sides.of(side).seen();
            if seen.is_ready() {
                charge_current()?;
                match attempt(&self.socket) {
                    Attempt::Done(Err(error)) if error.kind() == ErrorKind::WouldBlock => {
                        self.sides.used_up(side, seen);
                    }
                    Attempt::Done(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                    Attempt::Done(result) => {
                        self.sides.pass_on(side);
                        return Poll::Ready(result);
                    }
                    Attempt::FoundLittle(result) => {
                        self.sides.of(side).found_little(seen);
                        self.sides.pass_on(side);
                        return Poll::Ready(Ok(result));
                    }
                }
                continue;
            }
            calls::count_poll();
            // What is ready by now is told at once: nothing is slept over.
            *ticket = self.sides.register(side, waiter::future_word(context.waker()));
            if let Err(error) = self.memory.io.readiness.is_asked() {
                if let Some(ticket) = ticket.take() {
                    self.sides.unregister(side, ticket);
                }
                return Poll::Ready(Err(error));
            }
            if ticket.is_some() {
                return Poll::Pending;
            }
        }
    }

    /// As [`Async::poll_io`], for the methods of which one may wait for each side.
    fn poll_side<T>(
        &self,
        side: Side,
        context: &Context<'_>,
        attempt: impl FnMut(&S) -> Attempt<T>,
    ) -> Poll<io::Result<T>> {
        let place = if side == Side::Read { &self.read } else { &self.write };
        let mut ticket = place.lock().expect("no panic while it is held").take();
        let polled = self.poll_io(side, &mut ticket, context, attempt);
        *place.lock().expect("no panic while it is held") = ticket;
        polled
    }

    fn operation<T, F: FnMut(&S) -> Attempt<T> + Unpin>(
        &self,
        side: Side,
        attempt: F,
    ) -> Operation<'_, S, F> {
        Operation { of: self, side, attempt, ticket: None }
    }
}

/// What came of an attempt.
enum Attempt<T> {
    Done(io::Result<T>),
    /// Less than it could take: the next one would block.
    FoundLittle(T),
}

/// An operation costs what one of a task does. A future that no task of a runtime polls costs nothing.
fn charge_current() -> io::Result<()> {
    match calls::current_task() {
        Some(task) => Cx::new(task).charge(Component::Syscalls).map_err(refused_charge),
        None => Ok(()),
    }
}

impl<S: AsFd> Drop for Async<S> {
    fn drop(&mut self) {
        for (side, place) in [(Side::Read, &self.read), (Side::Write, &self.write)] {
            if let Some(ticket) = place.lock().expect("no panic while it is held").take() {
                self.sides.unregister(side, ticket);
            }
        }
        self.memory.io.readiness.forget(&self.sides);
    }
}

impl<S: AsFd> AsFd for Async<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An operation that is tried until it does not block.
struct Operation<'a, S: AsFd, F> {
    of: &'a Async<S>,
    side: Side,
    attempt: F,
    ticket: Option<u64>,
}

impl<T, S: AsFd, F: FnMut(&S) -> Attempt<T> + Unpin> Future for Operation<'_, S, F> {
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let this = self.get_mut();
        this.of.poll_io(this.side, &mut this.ticket, context, &mut this.attempt)
    }
}

impl<S: AsFd, F> Drop for Operation<'_, S, F> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.of.sides.unregister(self.side, ticket);
        }
    }
}

/// A read that fills its buffer may leave something, and so may one that the kernel cuts off at 2 GiB.
fn was_read<S: StreamSocket>(read: io::Result<usize>, room: usize) -> Attempt<usize> {
    match read {
        Ok(n) if S::SHORT_READ_IS_ALL && 0 < n && n < room.min(1 << 30) => Attempt::FoundLittle(n),
        read => Attempt::Done(read),
    }
}

fn read_from<S: StreamSocket>(socket: &S, buffer: &mut [u8]) -> Attempt<usize> {
    was_read::<S>(socket.try_read(buffer), buffer.len())
}

/// Reads into room that holds nothing yet.
#[cfg(feature = "hyper")]
#[allow(unsafe_code)]
fn receive_into<S: StreamSocket>(socket: &S, room: &mut [MaybeUninit<u8>]) -> Attempt<usize> {
    // SAFETY: the room is borrowed for writing. The socket does not block.
    let read = unsafe { libc::recv(socket.as_fd().as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
    let read = if read < 0 { Err(io::Error::last_os_error()) } else { Ok(read as usize) };
    was_read::<S>(read, room.len())
}

/// One that is cut short may have been so for the number of its parts: the next one tells whether the socket is full.
fn write_to<S: StreamSocket>(socket: &S, parts: &[IoSlice<'_>]) -> Attempt<usize> {
    Attempt::Done(socket.try_write(parts))
}

impl<S: StreamSocket> Async<S> {
    /// Reads what there is, at least one byte; 0 at the end, and for an empty buffer. No byte is lost if it is dropped before.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.operation(Side::Read, |socket: &S| read_from(socket, buffer)).await
    }

    /// Writes some of `bytes`: how many.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.operation(Side::Write, |socket: &S| write_to(socket, &[IoSlice::new(bytes)])).await
    }

    /// Writes all of `bytes`. If it is dropped before, some of them may be written.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes).await? {
                0 => return Err(ErrorKind::WriteZero.into()),
                n => bytes = &bytes[n..],
            }
        }
        Ok(())
    }

    /// As [`Async::read`], for code that polls. One task at a time is told when to try again.
    pub fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_side(Side::Read, context, |socket| read_from(socket, buffer))
    }

    /// Writes some of the parts, for code that polls. One task at a time is told when to try again.
    pub fn poll_write(&self, context: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_side(Side::Write, context, |socket| write_to(socket, parts))
    }

    /// Ends the connection in one or both directions.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        charge_current()?;
        self.socket.shutdown(how)
    }
}

impl Async<std::net::TcpListener> {
    /// Waits for a connection. None is lost if it is dropped before.
    pub async fn accept(&self) -> io::Result<(Async<std::net::TcpStream>, SocketAddr)> {
        let (socket, peer) = self
            .operation(Side::Read, |listener| Attempt::Done(std::net::TcpListener::accept(listener)))
            .await?;
        Ok((Async::adopt(self.memory.clone(), socket)?, peer))
    }
}

impl Async<UnixListener> {
    /// Waits for a connection. None is lost if it is dropped before.
    pub async fn accept(&self) -> io::Result<Async<UnixStream>> {
        let (socket, _) =
            self.operation(Side::Read, |listener| Attempt::Done(UnixListener::accept(listener))).await?;
        Async::adopt(self.memory.clone(), socket)
    }
}

#[cfg(feature = "futures-io")]
mod for_futures_io {
    use super::{Async, StreamSocket};
    use std::io::{self, IoSlice};
    use std::net::Shutdown;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    impl<S: StreamSocket> futures_io::AsyncRead for Async<S> {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            Async::poll_read(&self, context, buffer)
        }
    }

    impl<S: StreamSocket> futures_io::AsyncWrite for Async<S> {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Async::poll_write(&self, context, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            Async::poll_write(&self, context, parts)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(self.shutdown(Shutdown::Write))
        }
    }
}

#[cfg(feature = "hyper")]
mod for_hyper {
    use super::{Async, Side, StreamSocket, receive_into};
    use std::io::{self, IoSlice};
    use std::net::Shutdown;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    impl<S: StreamSocket> hyper::rt::Read for Async<S> {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            mut buffer: hyper::rt::ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            #[allow(unsafe_code)]
            // SAFETY: nothing is taken out of the room: bytes are only written into it.
            let room = unsafe { buffer.as_mut() };
            let read = self.poll_side(Side::Read, context, |socket| receive_into(socket, room));
            read.map_ok(|n| {
                #[allow(unsafe_code)]
                // SAFETY: the kernel has written so many bytes.
                unsafe {
                    buffer.advance(n);
                }
            })
        }
    }

    impl<S: StreamSocket> hyper::rt::Write for Async<S> {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Async::poll_write(&self, context, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            Async::poll_write(&self, context, parts)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(self.shutdown(Shutdown::Write))
        }
    }
}
