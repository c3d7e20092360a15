//! The kernel's epoll: a set of descriptors, each of whose changes is told once, and a bell that ends a wait.
#![allow(unsafe_code)]

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Events that one wait takes at most.
const BATCH: usize = 256;
/// The key of the bell. No descriptor has it.
const BELL: u64 = u64::MAX;

/// What the kernel has told.
#[derive(Default)]
pub(crate) struct Events {
    list: Vec<libc::epoll_event>,
    /// Room for those who are to be woken for them.
    pub(super) woken: Vec<usize>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Events({})", self.list.len())
    }
}

/// What the kernel has told of one descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) key: usize,
    flags: u32,
}

impl Event {
    fn has(self, flags: i32) -> bool {
        self.flags & flags as u32 != 0
    }

    /// A read may not block.
    pub(crate) fn is_readable(self) -> bool {
        self.has(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLHUP | libc::EPOLLERR)
    }

    /// A read that finds little does not mean that the next one blocks: the other end is gone, or there are urgent bytes, at which
    /// reads end.
    pub(crate) fn is_readable_for_more(self) -> bool {
        self.has(libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLHUP | libc::EPOLLERR)
    }

    /// A write may not block.
    pub(crate) fn is_writable(self) -> bool {
        self.has(libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR)
    }

    /// As [`Event::is_readable_for_more`], of writes.
    pub(crate) fn is_writable_for_more(self) -> bool {
        self.has(libc::EPOLLHUP | libc::EPOLLERR)
    }
}

impl Events {
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether the bell is among them.
    pub(crate) fn has_bell(&self) -> bool {
        self.list.iter().any(|event| event.u64 == BELL)
    }

    /// Those of descriptors.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        let told = self.list.iter().filter(|event| event.u64 != BELL);
        told.map(|event| Event { key: event.u64 as usize, flags: event.events })
    }
}

/// The set, and its bell.
#[derive(Debug)]
pub(crate) struct Epoll {
    set: OwnedFd,
    bell: OwnedFd,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the calls take numbers only, and what they return has no other owner.
        let (set, bell) = unsafe {
            let set = OwnedFd::from_raw_fd(checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?);
            let bell = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            (set, OwnedFd::from_raw_fd(checked(bell)?))
        };
        let epoll = Self { set, bell };
        // It is told again and again until it is answered, so that no wait misses it.
        epoll.control(libc::EPOLL_CTL_ADD, epoll.bell.as_raw_fd(), libc::EPOLLIN, BELL)?;
        Ok(epoll)
    }

    fn control(&self, what: i32, fd: i32, flags: i32, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: flags as u32, u64: key };
        // SAFETY: one record, which outlives the call.
        checked(unsafe { libc::epoll_ctl(self.set.as_raw_fd(), what, fd, &raw mut event) }).map(drop)
    }

    /// Each change of the descriptor is told once from now on, under this key. What it is now is told, too.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, key: usize) -> io::Result<()> {
        let changes = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET;
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), changes, key as u64)
    }

    pub(crate) fn delete(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// Waits until something is told, the bell rings, or the time is over. Any number of threads may: each change is told to one.
    pub(crate) fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.list.clear();
        events.list.reserve(BATCH);
        let told = match timeout {
            None => self.take(events, -1),
            Some(Duration::ZERO) => self.take(events, 0),
            Some(timeout) => self.take_within(events, timeout),
        };
        match told {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            told => told,
        }
    }

    fn take(&self, events: &mut Events, milliseconds: i32) -> io::Result<()> {
        let (set, room) = (self.set.as_raw_fd(), events.list.spare_capacity_mut());
        // SAFETY: there is room for so many records, which the kernel writes.
        let told = unsafe {
            libc::epoll_wait(set, room.as_mut_ptr().cast(), room.len().min(BATCH) as i32, milliseconds)
        };
        let told = checked(told)?;
        // SAFETY: so many have been written.
        unsafe { events.list.set_len(told as usize) };
        Ok(())
    }

    /// A wait that is told in nanoseconds. `epoll_wait` knows milliseconds only; `epoll_pwait2` is missing in kernels before 5.11, and
    /// there it takes two calls.
    fn take_within(&self, events: &mut Events, timeout: Duration) -> io::Result<()> {
        static IS_MISSING: AtomicBool = AtomicBool::new(false);
        let time = libc::timespec {
            tv_sec: timeout.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        if !IS_MISSING.load(Ordering::Relaxed) {
            let told = self.take_until(events, &time);
            // A filter of system calls that does not know it says that it is not permitted.
            if !told
                .as_ref()
                .is_err_and(|error| matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)))
            {
                return told;
            }
            IS_MISSING.store(true, Ordering::Relaxed);
        }
        self.sleep_and_take(events, &time)
    }

    fn sleep_and_take(&self, events: &mut Events, time: &libc::timespec) -> io::Result<()> {
        let mut asked = libc::pollfd { fd: self.set.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one record and the time, which outlive the call.
        checked(unsafe { libc::ppoll(&raw mut asked, 1, std::ptr::from_ref(time), std::ptr::null()) })?;
        self.take(events, 0)
    }

    /// `epoll_pwait2`, which may be missing.
    fn take_until(&self, events: &mut Events, time: &libc::timespec) -> io::Result<()> {
        let (set, room) = (self.set.as_raw_fd(), events.list.spare_capacity_mut());
        let most = room.len().min(BATCH);
        // SAFETY: there is room for so many records, which the kernel writes. The time outlives the call; there is no signal mask.
        let told = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                set,
                room.as_mut_ptr().cast::<libc::epoll_event>(),
                most as i32,
                std::ptr::from_ref(time),
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        let told = checked(told as i32)?;
        // SAFETY: so many have been written.
        unsafe { events.list.set_len(told as usize) };
        Ok(())
    }

    /// Ends a wait, now or when the next one begins.
    pub(crate) fn ring(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes, which outlive the call. It fails only when the bell has been rung often enough.
        let _ = unsafe { libc::write(self.bell.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// The bell has been heard.
    pub(crate) fn answer(&self) {
        let mut rung = 0_u64;
        // SAFETY: eight bytes, which outlive the call. It does not block.
        let _ = unsafe { libc::read(self.bell.as_raw_fd(), (&raw mut rung).cast(), 8) };
    }
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::{Epoll, Events};

    #[test]
    fn both_ways_to_wait_hear_the_bell_and_end_with_their_time() {
        let epoll = Epoll::new().unwrap();
        let short = libc::timespec { tv_sec: 0, tv_nsec: 1000 };
        let hour = libc::timespec { tv_sec: 3600, tv_nsec: 0 };
        for wait in [Epoll::take_until, Epoll::sleep_and_take] {
            let mut events = Events::default();
            events.list.reserve(1);
            if let Err(error) = wait(&epoll, &mut events, &short) {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSYS), "a kernel without the call");
                continue;
            }
            assert!(!events.has_bell());
            epoll.ring();
            wait(&epoll, &mut events, &hour).unwrap();
            assert!(events.has_bell());
            epoll.answer();
        }
    }
}
