//! Readiness of sockets: the kernel's epoll tells each change once, and what it told is kept for each side of a socket.
//!
//! Conserved: a waiter that registered for a side is woken once, or takes the registration back. Of several that wait for the
//! same side, one is woken at a time; as long as the side stays ready, the next one is (`protocol/ready_side.rs`).
//!
//! Who asks the kernel: one worker that has nothing to do waits outside (`protocol/sleep.rs`). While all of them are busy, they
//! look now and then, and so does the monitor. A runtime without a monitor has a thread for it.

use super::RuntimeEnded;
pub(crate) use super::epoll::Events;
use super::epoll::{Epoll, Event};
use crate::protocol::ready_side::{ReadySide, Registered, Seen, TakenBack, Told};
use crate::waiter;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// Which side of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Read,
    Write,
}

/// What is known of a socket, and who waits for it.
#[derive(Debug)]
pub(crate) struct Sides {
    /// The descriptor that it was made known by.
    fd: RawFd,
    read: ReadySide,
    write: ReadySide,
}

impl Sides {
    pub(super) fn of(&self, side: Side) -> &ReadySide {
        match side {
            Side::Read => &self.read,
            Side::Write => &self.write,
        }
    }

    /// Everybody looks once more.
    fn tell_all(&self, woken: &mut Vec<usize>) {
        woken.extend(self.read.tell(Told::ReadyForMore));
        woken.extend(self.write.tell(Told::ReadyForMore));
    }

    /// What the kernel told: who is to be woken is added to `woken`.
    fn tell(&self, event: Event, woken: &mut Vec<usize>) {
        let more = |more| if more { Told::ReadyForMore } else { Told::Ready };
        if event.is_readable() {
            woken.extend(self.read.tell(more(event.is_readable_for_more())));
        }
        if event.is_writable() {
            woken.extend(self.write.tell(more(event.is_writable_for_more())));
        }
    }

    /// Gets in line, and what was known before the last look is out of date if it does not. A word that is not used is taken back.
    pub(super) fn register(&self, side: Side, word: usize) -> Option<u64> {
        match self.of(side).register(word) {
            Registered::InLine(ticket) => Some(ticket),
            Registered::Ready => {
                waiter::take_back(word);
                None
            }
        }
    }

    /// Takes a registration back of one that attempts next.
    pub(super) fn unregister_to_try(&self, side: Side, ticket: u64) -> TakenBack {
        let taken = self.of(side).unregister(ticket);
        if let TakenBack::Word(word) = taken {
            waiter::take_back(word);
        }
        taken
    }

    /// Takes a registration back of one that goes away. If it had its turn, the next one has it.
    pub(super) fn unregister(&self, side: Side, ticket: u64) {
        if self.unregister_to_try(side, ticket) == TakenBack::Woken {
            self.pass_on(side);
        }
    }

    /// One that attempted has succeeded, or does not attempt: the next one has a turn, if the side is ready.
    pub(super) fn pass_on(&self, side: Side) {
        if let Some(next) = self.of(side).next() {
            waiter::wake(next);
        }
    }

    /// An attempt that would have blocked, and what was known before it.
    pub(super) fn used_up(&self, side: Side, seen: Seen) {
        self.of(side).used_up(seen);
    }
}

/// The driver of a runtime.
#[derive(Debug)]
pub(crate) struct Driver {
    running: OnceLock<Arc<Running>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Workers and the monitor ask the kernel. Else a thread does.
    by_workers: AtomicBool,
    /// Nobody asks the kernel any more.
    has_ended: AtomicBool,
}

/// A socket that the kernel tells of.
#[derive(Debug)]
struct Known {
    sides: Arc<Sides>,
    /// How many have it: several may share a descriptor.
    users: usize,
}

#[derive(Debug)]
struct Running {
    epoll: Epoll,
    /// By descriptor. A socket leaves it before its descriptor is closed, so a late event finds none, or that of another socket,
    /// which then makes one attempt for nothing.
    sockets: Mutex<Vec<Option<Known>>>,
    /// A worker waits outside, or the thread does.
    is_attended: AtomicBool,
    /// When the kernel was last asked.
    asked_ns: AtomicU64,
    closed: AtomicBool,
}

/// The right to wait outside, which one worker has at a time.
#[derive(Debug)]
pub(crate) struct Attendant<'a>(&'a Running);

impl Attendant<'_> {
    /// Waits until the kernel tells something, the bell rings, or the time is over.
    pub(crate) fn wait(&self, events: &mut Events, timeout: Option<Duration>) {
        if let Err(error) = self.0.epoll.wait(events, timeout) {
            tracing::warn!(target: "mainspring", %error, "epoll does not wait");
        }
        if events.has_bell() {
            self.0.epoll.answer();
        }
    }
}

impl Drop for Attendant<'_> {
    fn drop(&mut self) {
        // SeqCst: a worker that falls asleep looks for this after a fence.
        self.0.is_attended.store(false, Ordering::SeqCst);
    }
}

impl Driver {
    pub(crate) fn new(by_workers: bool) -> Self {
        let by_workers = AtomicBool::new(by_workers);
        Self {
            running: OnceLock::new(),
            thread: Mutex::default(),
            by_workers,
            has_ended: AtomicBool::new(false),
        }
    }

    /// True if this call has started it.
    fn start(&self) -> io::Result<(&Arc<Running>, bool)> {
        if let Some(running) = self.running.get() {
            return Ok((running, false));
        }
        let mut thread = self.thread.lock().expect("no panic while it is held");
        self.is_asked()?;
        let is_first = self.running.get().is_none();
        if is_first {
            // It changes under the lock alone.
            let by_workers = self.by_workers.load(Ordering::Relaxed);
            let running = Arc::new(Running {
                epoll: Epoll::new()?,
                sockets: Mutex::default(),
                is_attended: AtomicBool::new(!by_workers),
                asked_ns: AtomicU64::new(0),
                closed: AtomicBool::new(false),
            });
            if !by_workers {
                *thread = Some(running.clone().start_thread()?);
            }
            let _ = self.running.set(running);
        }
        Ok((self.running.get().expect("set above, or by another thread"), is_first))
    }

    /// Has a thread ask the kernel from now on. When this returns, no worker waits outside, and none will.
    pub(crate) fn leave_to_thread(&self) -> io::Result<()> {
        let mut thread = self.thread.lock().expect("no panic while it is held");
        // SeqCst: a worker that sees it as it was, and gets the right to wait, is seen below to have it.
        if !self.by_workers.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        let Some(running) = self.running.get() else { return Ok(()) };
        while !running.take_attendance() {
            running.epoll.ring();
            std::thread::yield_now();
        }
        let started = running.clone().start_thread();
        if started.is_err() {
            self.by_workers.store(true, Ordering::SeqCst);
            running.is_attended.store(false, Ordering::SeqCst);
        }
        *thread = Some(started?);
        Ok(())
    }

    /// Ends a wait outside.
    pub(crate) fn ring(&self) {
        if let Some(running) = self.running.get() {
            running.epoll.ring();
        }
    }

    /// The right to wait outside, if there is an outside and nobody waits there.
    pub(crate) fn attend(&self) -> Option<Attendant<'_>> {
        let running = self.running.get().filter(|_| self.by_workers.load(Ordering::SeqCst))?;
        running.take_attendance().then(|| Attendant(running))
    }

    /// Whether there is an outside, and nobody waits there.
    pub(crate) fn is_unattended(&self) -> bool {
        self.running.get().is_some_and(|running| !running.is_attended.load(Ordering::SeqCst))
    }

    /// Wakes those that waited for what was told, now.
    pub(crate) fn tell(&self, events: &mut Events, now_ns: u64) {
        if let Some(running) = self.running.get() {
            running.asked_ns.store(now_ns, Ordering::Relaxed);
            running.tell(events);
        }
    }

    /// Whether somebody is to look: nobody waits outside, and nobody has looked for `patience_ns`.
    #[inline]
    pub(crate) fn is_look_due(&self, now_ns: u64, patience_ns: u64) -> bool {
        self.running.get().is_some_and(|running| {
            // Relaxed: two that look at once do no harm.
            now_ns >= running.asked_ns.load(Ordering::Relaxed).saturating_add(patience_ns)
                && !running.is_attended.load(Ordering::Relaxed)
        })
    }

    /// A look without a wait.
    pub(crate) fn look(&self, events: &mut Events, now_ns: u64) {
        let Some(running) = self.running.get() else { return };
        running.asked_ns.store(now_ns, Ordering::Relaxed);
        if running.epoll.wait(events, Some(Duration::ZERO)).is_ok() {
            running.tell(events);
        }
    }

    /// Makes a socket known, if it is not. It must be forgotten before it is closed, as often as it was made known. True if it is the
    /// first of the runtime: then a worker that sleeps has to wait outside.
    pub(crate) fn add(&self, socket: &impl AsFd) -> io::Result<(Arc<Sides>, bool)> {
        let (running, is_first) = self.start()?;
        let fd = socket.as_fd();
        let mut sockets = running.sockets.lock().expect("no panic while it is held");
        if let Some(Some(known)) = sockets.get_mut(key(fd)) {
            known.users += 1;
            return Ok((known.sides.clone(), is_first));
        }
        let sides =
            Arc::new(Sides { fd: fd.as_raw_fd(), read: ReadySide::default(), write: ReadySide::default() });
        running.epoll.add(fd, key(fd))?;
        // The kernel gives out the least number that is free, so there are not many more places than sockets.
        if sockets.len() <= key(fd) {
            sockets.resize_with(key(fd) + 1, || None);
        }
        sockets[key(fd)] = Some(Known { sides: sides.clone(), users: 1 });
        Ok((sides, is_first))
    }

    /// One of those that have a socket has it no more. The last is about to close it.
    pub(crate) fn forget(&self, sides: &Sides) {
        let Some(running) = self.running.get() else { return };
        let mut sockets = running.sockets.lock().expect("no panic while it is held");
        // Not by asking the socket again: what it answers may be the program's own code.
        let Some(place) = sockets.get_mut(sides.fd as usize) else { return };
        let Some(known) = place.as_mut().filter(|known| std::ptr::eq(&*known.sides, sides)) else { return };
        known.users -= 1;
        if known.users == 0 {
            *place = None;
            let _ = running.epoll.delete(sides.fd);
        }
    }

    /// Refused if the runtime has ended: what is waited for would never be told.
    pub(crate) fn is_asked(&self) -> io::Result<()> {
        if self.has_ended.load(Ordering::SeqCst) { Err(io::Error::other(RuntimeEnded)) } else { Ok(()) }
    }

    /// Ends the thread, if there is one, before the tasks that it could wake are gone. Others that wait for a socket of the runtime, as
    /// threads or in futures, are told.
    pub(crate) fn close(&self) {
        let mut woken = Vec::new();
        {
            let _starting = self.thread.lock().expect("no panic while it is held");
            // SeqCst, and before they are told: whoever gets in line afterwards looks for it then.
            self.has_ended.store(true, Ordering::SeqCst);
        }
        if let Some(running) = self.running.get() {
            running.closed.store(true, Ordering::SeqCst);
            running.epoll.ring();
            let sockets = running.sockets.lock().expect("no panic while it is held");
            sockets.iter().flatten().for_each(|known| known.sides.tell_all(&mut woken));
        }
        woken.into_iter().for_each(waiter::wake);
        if let Some(thread) = self.thread.lock().expect("no panic while it is held").take() {
            let _ = thread.join();
        }
    }
}

impl Running {
    /// True if nobody waited outside. The caller does now.
    fn take_attendance(&self) -> bool {
        self.is_attended.compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    fn start_thread(self: Arc<Self>) -> io::Result<JoinHandle<()>> {
        let builder = std::thread::Builder::new().name("mainspring-io".to_owned());
        builder.spawn(move || self.wait_until_closed())
    }

    fn wait_until_closed(&self) {
        let mut events = Events::default();
        while !self.closed.load(Ordering::SeqCst) {
            if let Err(error) = self.epoll.wait(&mut events, None) {
                // No other thread would wake the tasks that wait here.
                tracing::warn!(target: "mainspring", %error, "epoll does not wait");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            if events.has_bell() {
                self.epoll.answer();
            }
            self.tell(&mut events);
        }
    }

    /// Wakes those that waited for what was told.
    fn tell(&self, events: &mut Events) {
        if events.is_empty() {
            return;
        }
        // Taken: what is woken may be the program's own code, which may come back here.
        let mut woken = std::mem::take(&mut events.woken);
        {
            let sockets = self.sockets.lock().expect("no panic while it is held");
            for event in events.iter() {
                if let Some(Some(known)) = sockets.get(event.key) {
                    known.sides.tell(event, &mut woken);
                }
            }
        }
        woken.drain(..).for_each(waiter::wake);
        events.woken = woken;
    }
}

fn key(fd: BorrowedFd<'_>) -> usize {
    fd.as_raw_fd() as usize
}
