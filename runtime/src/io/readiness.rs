//! Readiness of sockets: one thread that waits in the kernel for all of them, started with the first socket.
//!
//! Conserved: whoever registered for an event of a source is woken once, or takes the registration back.

use crate::waiter;
use polling::{Event, Events, Poller};
use std::collections::HashMap;
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

/// Who waits for the two sides of a source; 0 for nobody.
#[derive(Debug, Default)]
struct Waiting {
    read: usize,
    write: usize,
}

impl Waiting {
    fn side(&mut self, side: Side) -> &mut usize {
        match side {
            Side::Read => &mut self.read,
            Side::Write => &mut self.write,
        }
    }

    fn interest(&self, key: usize) -> Event {
        Event::new(key, self.read != 0, self.write != 0)
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
        if let Some(running) = self.running.get() {
            return Ok(running);
        }
        let running = Arc::new(Running {
            poller: Poller::new()?,
            sources: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let theirs = Arc::downgrade(&running);
        if self.running.set(running).is_ok() {
            let thread = std::thread::Builder::new().name("mainspring-io".to_owned()).spawn(move || {
                let mut events = Events::new();
                while let Some(running) = theirs.upgrade().filter(|running| !running.is_closed()) {
                    if running.wait(&mut events).is_err() {
                        return;
                    }
                }
            })?;
            *self.thread.lock().expect("no panic while it is held") = Some(thread);
        }
        Ok(self.running.get().expect("set by somebody"))
    }

    /// Makes a source known. It must be forgotten before it is closed.
    #[allow(unsafe_code)]
    pub(crate) fn add(&self, source: &impl AsFd) -> io::Result<()> {
        let running = self.running()?;
        let fd = source.as_fd();
        let key = key(fd);
        running.sources.lock().expect("no panic while it is held").insert(key, Waiting::default());
        // SAFETY: the source's owner calls `forget` before it closes the descriptor.
        unsafe { running.poller.add(&fd, Event::none(key)) }
    }

    /// Forgets a source that is about to be closed.
    pub(crate) fn forget(&self, source: &impl AsFd) {
        let Some(running) = self.running.get() else { return };
        let fd = source.as_fd();
        let _ = running.poller.delete(fd);
        running.sources.lock().expect("no panic while it is held").remove(&key(fd));
    }

    /// Registers a waiter, to be woken when the side may be ready.
    pub(crate) fn register(&self, source: &impl AsFd, side: Side, waiter: usize) -> io::Result<()> {
        let running = self.running()?;
        let fd = source.as_fd();
        let mut sources = running.sources.lock().expect("no panic while it is held");
        let waiting = sources.get_mut(&key(fd)).ok_or(io::ErrorKind::NotFound)?;
        let place = waiting.side(side);
        if *place != 0 {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another task waits for this side of the socket",
            ));
        }
        *place = waiter;
        running.poller.modify(fd, waiting.interest(key(fd)))
    }

    /// Takes a registration back, if it is still there.
    pub(crate) fn unregister(&self, source: &impl AsFd, side: Side) {
        let Some(running) = self.running.get() else { return };
        let mut sources = running.sources.lock().expect("no panic while it is held");
        if let Some(waiting) = sources.get_mut(&key(source.as_fd())) {
            *waiting.side(side) = 0;
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
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn wait(&self, events: &mut Events) -> io::Result<()> {
        events.clear();
        // Now and then by itself, to see whether the runtime is gone.
        self.poller.wait(events, Some(std::time::Duration::from_secs(1)))?;
        let mut woken = Vec::new();
        {
            let mut sources = self.sources.lock().expect("no panic while it is held");
            for event in events.iter() {
                let Some(waiting) = sources.get_mut(&event.key) else { continue };
                // An error or a hang-up is for both sides: their next attempt finds it.
                let closed = event.is_interrupt() || event.is_err().unwrap_or(false);
                if event.readable || closed {
                    woken.push(std::mem::take(&mut waiting.read));
                }
                if event.writable || closed {
                    woken.push(std::mem::take(&mut waiting.write));
                }
                // Events are one-shot: whoever still waits is registered again.
                if waiting.read != 0 || waiting.write != 0 {
                    let interest = waiting.interest(event.key);
                    rearm(&self.poller, event.key, interest);
                }
            }
        }
        for word in woken.into_iter().filter(|&word| word != 0) {
            waiter::wake(word);
        }
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
