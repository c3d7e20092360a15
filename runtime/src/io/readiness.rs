//! Readiness of sockets: one thread that waits in the kernel for all of them, started with the first socket.
//!
//! Conserved: a task that registered for an event of a source is woken once, or takes the registration back. Of several that
//! wait for the same side, one is woken at a time; as long as the side stays ready, the next one is.

use crate::waiter;
use polling::{Event, Events, Poller};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

/// Which side of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Read,
    Write,
}

/// The tasks that wait for one side of a source, first come first.
type Line = BTreeMap<u64, usize>;

/// The tasks that wait for the two sides of a source.
#[derive(Debug, Default)]
struct Waiting {
    read: Line,
    write: Line,
    next_ticket: u64,
}

impl Waiting {
    fn side(&mut self, side: Side) -> &mut Line {
        match side {
            Side::Read => &mut self.read,
            Side::Write => &mut self.write,
        }
    }

    fn is_empty(&self) -> bool {
        self.read.is_empty() && self.write.is_empty()
    }

    fn interest(&self, key: usize) -> Event {
        Event::new(key, !self.read.is_empty(), !self.write.is_empty())
    }
}

/// The driver of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    running: OnceLock<Arc<Running>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Running {
    poller: Poller,
    sources: Mutex<HashMap<usize, Waiting>>,
    closed: AtomicBool,
}

impl Driver {
    fn running(&self) -> io::Result<&Arc<Running>> {
        if self.running.get().is_none() {
            let mut thread = self.thread.lock().expect("no panic while it is held");
            if self.running.get().is_none() {
                let running = Arc::new(Running {
                    poller: Poller::new()?,
                    sources: Mutex::default(),
                    closed: AtomicBool::new(false),
                });
                let theirs = running.clone();
                *thread = Some(
                    std::thread::Builder::new()
                        .name("mainspring-io".to_owned())
                        .spawn(move || theirs.wait_until_closed())?,
                );
                let _ = self.running.set(running);
            }
        }
        Ok(self.running.get().expect("set above, or by another thread"))
    }

    /// Makes a source known. It must be forgotten before it is closed.
    #[allow(unsafe_code)]
    pub(crate) fn add(&self, source: &impl AsFd) -> io::Result<()> {
        let running = self.running()?;
        let fd = source.as_fd();
        let mut sources = running.sources.lock().expect("no panic while it is held");
        // SAFETY: the source's owner calls `forget` before it closes the descriptor.
        unsafe { running.poller.add(&fd, Event::none(key(fd))) }?;
        sources.insert(key(fd), Waiting::default());
        Ok(())
    }

    /// As [`Driver::add`], of a source that may be known. One that another driver serves is not.
    pub(crate) fn add_unless_known(&self, source: &impl AsFd) -> io::Result<()> {
        let known = key(source.as_fd());
        let sources = &self.running()?.sources;
        if sources.lock().expect("no panic while it is held").contains_key(&known) {
            return Ok(());
        }
        match self.add(source) {
            // Another task was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            added => added,
        }
    }

    /// Whether a registration has not been used yet.
    pub(crate) fn is_registered(&self, source: &impl AsFd, side: Side, ticket: u64) -> bool {
        let Some(running) = self.running.get() else { return false };
        let mut sources = running.sources.lock().expect("no panic while it is held");
        let waiting = sources.get_mut(&key(source.as_fd()));
        waiting.is_some_and(|waiting| waiting.side(side).contains_key(&ticket))
    }

    /// Forgets a source that is about to be closed.
    pub(crate) fn forget(&self, source: &impl AsFd) {
        let Some(running) = self.running.get() else { return };
        let fd = source.as_fd();
        let mut sources = running.sources.lock().expect("no panic while it is held");
        if sources.remove(&key(fd)).is_some() {
            let _ = running.poller.delete(fd);
        }
    }

    /// Registers a waiter, to be woken when the side may be ready: its place in the line. On an error its word is used up.
    pub(crate) fn register(&self, source: &impl AsFd, side: Side, waiter: usize) -> io::Result<u64> {
        self.enlist(source, side, waiter).inspect_err(|_| waiter::take_back(waiter))
    }

    fn enlist(&self, source: &impl AsFd, side: Side, waiter: usize) -> io::Result<u64> {
        let running = self.running()?;
        let fd = source.as_fd();
        let mut sources = running.sources.lock().expect("no panic while it is held");
        let waiting = sources.get_mut(&key(fd)).ok_or(io::ErrorKind::NotFound)?;
        let ticket = waiting.next_ticket;
        waiting.next_ticket += 1;
        waiting.side(side).insert(ticket, waiter);
        running.poller.modify(fd, waiting.interest(key(fd))).inspect_err(|_| {
            waiting.side(side).remove(&ticket);
        })?;
        Ok(ticket)
    }

    /// Takes a registration back, if it is still there.
    pub(crate) fn unregister(&self, source: &impl AsFd, side: Side, ticket: u64) {
        let Some(running) = self.running.get() else { return };
        let mut sources = running.sources.lock().expect("no panic while it is held");
        let word =
            sources.get_mut(&key(source.as_fd())).and_then(|waiting| waiting.side(side).remove(&ticket));
        drop(sources);
        if let Some(word) = word {
            waiter::take_back(word);
        }
    }

    /// Ends the thread, before the tasks that it could wake are gone.
    pub(crate) fn close(&self) {
        if let Some(running) = self.running.get() {
            running.closed.store(true, Ordering::SeqCst);
            let _ = running.poller.notify();
        }
        if let Some(thread) = self.thread.lock().expect("no panic while it is held").take() {
            let _ = thread.join();
        }
    }
}

impl Running {
    fn wait_until_closed(&self) {
        let mut events = Events::new();
        while !self.closed.load(Ordering::SeqCst) {
            if let Err(error) = self.wait(&mut events) {
                // No other thread would wake the tasks that wait here.
                tracing::warn!(target: "mainspring", %error, "epoll does not wait");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }

    fn wait(&self, events: &mut Events) -> io::Result<()> {
        events.clear();
        self.poller.wait(events, None)?;
        let mut woken = Vec::new();
        {
            let mut sources = self.sources.lock().expect("no panic while it is held");
            for event in events.iter() {
                let Some(waiting) = sources.get_mut(&event.key) else { continue };
                if event.is_interrupt() || event.is_err().unwrap_or(false) {
                    // An error or a hang-up is for all: their next attempt finds it.
                    woken.extend(std::mem::take(&mut waiting.read).into_values());
                    woken.extend(std::mem::take(&mut waiting.write).into_values());
                }
                if event.readable {
                    woken.extend(waiting.read.pop_first().map(|(_, word)| word));
                }
                if event.writable {
                    woken.extend(waiting.write.pop_first().map(|(_, word)| word));
                }
                // Events are one-shot: tasks that still wait are registered again, and hear of what the first one
                // leaves.
                if !waiting.is_empty() {
                    let interest = waiting.interest(event.key);
                    rearm(&self.poller, event.key, interest);
                }
            }
        }
        woken.into_iter().for_each(waiter::wake);
        Ok(())
    }
}

#[allow(unsafe_code)]
fn rearm(poller: &Poller, key: usize, interest: Event) {
    // SAFETY: a source leaves the map, under the lock that the caller holds, before its descriptor is closed.
    let fd = unsafe { BorrowedFd::borrow_raw(key as i32) };
    let _ = poller.modify(fd, interest);
}

fn key(fd: BorrowedFd<'_>) -> usize {
    fd.as_raw_fd() as usize
}
