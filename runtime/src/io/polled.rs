//! Sockets and files as arms of a [`Select`](crate::Select): ready to be read from, or to be written to.
//!
//! Conserved: an arm's registration with the driver is taken back when the select ends, or the driver has used it to wake the waiter.
#![allow(unsafe_code)]

use super::readiness::Side;
use super::{
    OtherRuntime, Ready, Source, Stream, StreamSocket, TcpListener, UdpSocket, UnixDatagram, UnixListener,
};
use crate::runtime::Inner;
use crate::waiter;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A descriptor, and the runtime that waits for it.
#[derive(Clone, Copy)]
pub struct Polled<'a> {
    fd: BorrowedFd<'a>,
    rt: &'a Inner,
}

/// What [`Select::readable`](crate::Select::readable) and [`Select::writable`](crate::Select::writable) wait for: the sockets of
/// this module, and [`Ready`]. It cannot be implemented elsewhere.
pub trait Pollable: sealed::Sealed {
    #[doc(hidden)]
    fn polled(&self) -> Polled<'_>;
}

mod sealed {
    pub trait Sealed {}
}

impl<S: AsFd> Source<S> {
    fn polled(&self) -> Polled<'_> {
        Polled { fd: self.socket.as_fd(), rt: &self.memory }
    }
}

macro_rules! pollable {
    ($([$($bound:tt)*] $socket:ty),* $(,)?) => {$(
        impl<$($bound)*> sealed::Sealed for $socket {}

        impl<$($bound)*> Pollable for $socket {
            fn polled(&self) -> Polled<'_> {
                self.0.polled()
            }
        }
    )*};
}

pollable! {
    [S: AsFd] Ready<S>,
    [S: StreamSocket] Stream<S>,
    [] TcpListener,
    [] UdpSocket,
    [] UnixListener,
    [] UnixDatagram,
}

impl Polled<'_> {
    /// Whether that side is ready, or broken, which an attempt will tell. One system call.
    pub(crate) fn is_ready(&self, side: Side) -> io::Result<bool> {
        let events = match side {
            Side::Read => libc::POLLIN,
            Side::Write => libc::POLLOUT,
        };
        let mut asked = libc::pollfd { fd: self.fd.as_raw_fd(), events, revents: 0 };
        // SAFETY: one record, which outlives the call; no time is waited.
        match unsafe { libc::poll(&raw mut asked, 1, 0) } {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() == ErrorKind::Interrupted { Ok(false) } else { Err(error) }
            }
            ready => Ok(ready > 0),
        }
    }

    /// Whether a task of `rt` may wait for it.
    pub(crate) fn is_of(&self, rt: &Inner) -> io::Result<()> {
        let same = std::ptr::eq(self.rt, rt);
        if same { Ok(()) } else { Err(io::Error::new(ErrorKind::InvalidInput, OtherRuntime)) }
    }

    /// Registers a waiter. On an error its word is used up.
    pub(crate) fn register(&self, side: Side, word: usize) -> io::Result<u64> {
        let readiness = &self.rt.io.readiness;
        readiness.add_unless_known(&self.fd).inspect_err(|_| waiter::take_back(word))?;
        readiness.register(&self.fd, side, word)
    }

    /// Whether the driver has yet to use a registration.
    pub(crate) fn is_registered(&self, side: Side, ticket: u64) -> bool {
        self.rt.io.readiness.is_registered(&self.fd, side, ticket)
    }

    pub(crate) fn unregister(&self, side: Side, ticket: u64) {
        self.rt.io.readiness.unregister(&self.fd, side, ticket);
    }
}
