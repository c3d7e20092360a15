//! Sockets and files as arms of a [`Select`](crate::Select): ready to be read from, or to be written to.
//!
//! Conserved: an arm's registration with the driver is taken back when the select ends, or the driver has used it to wake the waiter.
#![allow(unsafe_code)]

use super::readiness::{Side, Sides};
use super::{
    OtherRuntime, Ready, Source, Stream, StreamSocket, TcpListener, UdpSocket, UnixDatagram, UnixListener,
    keep_sides,
};
use crate::runtime::Inner;
use crate::waiter;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, OnceLock};

/// A descriptor, what is known of it, and the runtime that waits for it.
#[derive(Clone, Copy)]
pub struct Polled<'a> {
    fd: BorrowedFd<'a>,
    rt: &'a Inner,
    sides: &'a OnceLock<Arc<Sides>>,
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
    pub(super) fn polled(&self) -> Polled<'_> {
        Polled { fd: self.socket.as_fd(), rt: &self.memory, sides: &self.sides }
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
        let known = self.sides.get().map(|sides| (sides, sides.of(side).seen()));
        let is_ready = self.is_ready_now(side)?;
        if let Some((sides, seen)) = known
            && !is_ready
        {
            sides.used_up(side, seen);
        }
        Ok(is_ready)
    }

    fn is_ready_now(&self, side: Side) -> io::Result<bool> {
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

    /// Registers a waiter. `None` if another look is due. If there is no place in the line, its word is used up.
    pub(crate) fn register(&self, side: Side, word: usize) -> io::Result<Option<u64>> {
        let sides = match self.sides.get() {
            Some(sides) => sides,
            None => {
                let added = self.rt.know_socket(&self.fd).inspect_err(|_| waiter::take_back(word))?;
                keep_sides(self.sides, added, self.rt)
            }
        };
        let ticket = sides.register(side, word);
        if let Err(error) = self.rt.io.readiness.is_asked() {
            if let Some(ticket) = ticket {
                sides.unregister(side, ticket);
            }
            return Err(error);
        }
        Ok(ticket)
    }

    /// Whether the driver has yet to use a registration.
    pub(crate) fn is_registered(&self, side: Side, ticket: u64) -> bool {
        self.sides.get().is_some_and(|sides| sides.of(side).is_registered(ticket))
    }

    pub(crate) fn unregister(&self, side: Side, ticket: u64) {
        if let Some(sides) = self.sides.get() {
            sides.unregister(side, ticket);
        }
    }
}
