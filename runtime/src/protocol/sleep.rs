//! How idle workers go to sleep, and how new work wakes one.
//!
//! Conserved: work that was published while a worker fell asleep is seen by that worker's last look, or a sleeper is
//! woken for it. Each entry of the list of sleepers is woken at most once, and its worker leaves the list before it
//! works again.
//!
//! A worker that has just run out of work dozes for a moment before it sleeps. A doze may miss what is published while it begins, and
//! finds that when it ends: so it does without the fence that interrupts all other threads of the process.
//!
//! A sleeper waits at its own bell, or outside: in a system call that also ends when something happens to a socket. The thread
//! that wakes it finds out which under the lock of the bed, and ends the system call by the bell outside.

use super::asymmetric;
use super::mutant::{Mutant, broken};
use super::prim::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

/// How a worker rests.
#[derive(Debug)]
struct Rest {
    /// Set by the thread that wakes this worker, cleared by the worker.
    woken: bool,
    /// It waits outside, or is about to.
    outside: bool,
}

/// One worker's place to sleep.
#[derive(Debug)]
struct Bed {
    rest: Mutex<Rest>,
    bell: Condvar,
    /// Whether the worker is in the list. Written under the list's lock, read without it.
    listed: AtomicBool,
}

/// What ends a wait outside, now or when it begins.
pub type OuterBell = Box<dyn Fn() + Send + Sync>;

/// The workers that sleep or are about to.
pub struct IdleWorkers {
    beds: Box<[Bed]>,
    asleep: Mutex<Vec<usize>>,
    /// How many are in the list: read without the lock by the publisher of work.
    sleeping: AtomicUsize,
    /// How many are awake and looking for work: while there is one, no sleeper needs to be woken.
    searching: AtomicUsize,
    closed: AtomicBool,
    /// Of the one place outside. It is set before a worker waits there.
    outer_bell: OnceLock<OuterBell>,
}

impl std::fmt::Debug for IdleWorkers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdleWorkers").field("sleeping", &self.sleeping()).finish_non_exhaustive()
    }
}

/// Proof that this worker is counted as searching. It is given up by value, on purpose.
#[must_use]
#[derive(Debug)]
pub struct Searching(());

/// How a sleep ended.
#[must_use]
#[derive(Debug)]
pub enum Woke {
    /// Another thread published work: search, this worker is already counted.
    ForWork(Searching),
    /// The time was over.
    TimedOut(Searching),
    /// Something may have happened outside. The worker is not counted as searching: those that publish meanwhile wake others.
    Outside,
    /// The runtime shuts down.
    Closed,
}

/// What a sleeper relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// It looks again before long.
    Doze,
    /// It is woken for whatever is published.
    Sleep,
}

impl Bed {
    fn new() -> Self {
        let rest = Rest { woken: false, outside: false };
        Self { rest: Mutex::new(rest), bell: Condvar::new(), listed: AtomicBool::new(false) }
    }
}

// A proof is used up by what takes it.
#[allow(clippy::needless_pass_by_value)]
impl IdleWorkers {
    /// Beds for `workers`.
    pub fn new(workers: usize) -> Self {
        Self {
            beds: (0..workers).map(|_| Bed::new()).collect(),
            asleep: Mutex::new(Vec::with_capacity(workers)),
            sleeping: AtomicUsize::new(0),
            searching: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            outer_bell: OnceLock::new(),
        }
    }

    /// Says how a wait outside is ended. Once.
    pub fn set_outer_bell(&self, bell: OuterBell) {
        let _ = self.outer_bell.set(bell);
    }

    /// How many workers are asleep or falling asleep.
    #[inline]
    pub fn sleeping(&self) -> usize {
        self.sleeping.load(Ordering::Relaxed)
    }

    /// A worker begins to look for work.
    pub fn search(&self) -> Searching {
        self.searching.fetch_add(1, Ordering::SeqCst);
        Searching(())
    }

    /// A searching worker found work. If it was the last that searched, another is woken: there may be more.
    pub fn found(&self, searching: Searching) {
        let Searching(()) = searching;
        if self.searching.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.wake_one();
        }
    }

    /// Work has been published.
    #[inline]
    pub fn published(&self) {
        // Pairs with the heavy one in `sleep`: either the sleeper's last look sees the work, or its count is seen here.
        if !broken(Mutant::PublishWithoutFence) {
            asymmetric::light();
        }
        if self.sleeping.load(Ordering::Relaxed) != 0 && self.searching.load(Ordering::Relaxed) == 0 {
            self.wake_one();
        }
    }

    #[cold]
    fn wake_one(&self) {
        let sleeper = {
            let mut asleep = self.asleep.lock().expect("no panic while it is held");
            let sleeper = asleep.pop();
            if let Some(index) = sleeper {
                self.delisted(index);
            }
            sleeper
        };
        if let Some(index) = sleeper {
            self.ring(index);
        }
    }

    /// Wakes one worker whether there is work or not, if it sleeps: it is to look at something else, such as a timer.
    pub fn wake(&self, index: usize) {
        {
            let mut asleep = self.asleep.lock().expect("no panic while it is held");
            let Some(position) = asleep.iter().position(|&sleeper| sleeper == index) else { return };
            asleep.swap_remove(position);
            self.delisted(index);
        }
        self.ring(index);
    }

    /// Something was put where only worker `index` finds it: that worker is woken if it sleeps.
    #[inline]
    pub fn notify(&self, index: usize) {
        // Pairs with the heavy one in `sleep`: either the last look of that worker sees what was put there, or that it is
        // in the list is seen here.
        if !broken(Mutant::NotifyWithoutFence) {
            asymmetric::light();
        }
        if self.beds[index].listed.load(Ordering::Relaxed) {
            self.wake(index);
        }
    }

    /// A worker has been taken off the list, under its lock. It is counted as searching on its behalf, so that the next
    /// publication does not wake another one meanwhile.
    fn delisted(&self, index: usize) {
        self.unlist(index);
        self.searching.fetch_add(1, Ordering::SeqCst);
    }

    fn unlist(&self, index: usize) {
        self.beds[index].listed.store(false, Ordering::Relaxed);
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    fn ring(&self, index: usize) {
        let bed = &self.beds[index];
        let mut rest = bed.rest.lock().expect("no panic while it is held");
        rest.woken = true;
        if rest.outside {
            if !broken(Mutant::OuterBellForgotten) {
                // Under the lock: once the worker is back, the bell is silent.
                self.outer_bell.get().expect("set before a worker waits outside")();
            }
            // It looks whether it was woken when it is back, so its own bell, which is a system call, need not ring.
            return;
        }
        drop(rest);
        bed.bell.notify_one();
    }

    /// Sleeps until woken, for at most `timeout`. `last_look` says whether there is anything to do after all.
    pub fn sleep(
        &self,
        index: usize,
        searching: Searching,
        (depth, timeout): (Depth, Option<Duration>),
        last_look: impl FnOnce() -> bool,
    ) -> Woke {
        if let Some(woke) = self.lie_down(index, searching, depth, last_look) {
            return woke;
        }
        let bed = &self.beds[index];
        let mut rest = bed.rest.lock().expect("no panic while it is held");
        while !rest.woken {
            match timeout {
                None => rest = bed.bell.wait(rest).expect("no panic while it is held"),
                Some(timeout) => {
                    #[cfg(not(loom))]
                    {
                        rest = bed.bell.wait_timeout(rest, timeout).expect("no panic while it is held").0;
                    }
                    #[cfg(loom)]
                    let _ = timeout;
                    if !rest.woken {
                        drop(rest);
                        return self.get_up(index, false);
                    }
                }
            }
        }
        rest.woken = false;
        drop(rest);
        self.woken()
    }

    /// As [`IdleWorkers::sleep`]: `wait` waits outside, until something happens there or the bell outside rings. One worker at a
    /// time.
    pub fn sleep_outside(
        &self,
        index: usize,
        searching: Searching,
        depth: Depth,
        wait: impl FnOnce(),
        last_look: impl FnOnce() -> bool,
    ) -> Woke {
        if let Some(woke) = self.lie_down(index, searching, depth, last_look) {
            return woke;
        }
        let bed = &self.beds[index];
        {
            let mut rest = bed.rest.lock().expect("no panic while it is held");
            if rest.woken && !broken(Mutant::OutsideWithoutLook) {
                rest.woken = false;
                drop(rest);
                return self.woken();
            }
            rest.outside = true;
        }
        wait();
        let mut rest = bed.rest.lock().expect("no panic while it is held");
        rest.outside = false;
        if std::mem::take(&mut rest.woken) {
            drop(rest);
            return self.woken();
        }
        drop(rest);
        if self.leave_list(index, false) { Woke::Outside } else { self.take_wake(index) }
    }

    fn woken(&self) -> Woke {
        if self.closed.load(Ordering::SeqCst) { Woke::Closed } else { Woke::ForWork(Searching(())) }
    }

    /// Enters the list, and looks once more. How the sleep ended, if that was its end.
    fn lie_down(
        &self,
        index: usize,
        searching: Searching,
        depth: Depth,
        last_look: impl FnOnce() -> bool,
    ) -> Option<Woke> {
        let Searching(()) = searching;
        {
            let mut asleep = self.asleep.lock().expect("no panic while it is held");
            asleep.push(index);
            self.beds[index].listed.store(true, Ordering::Relaxed);
            self.sleeping.fetch_add(1, Ordering::SeqCst);
        }
        self.searching.fetch_sub(1, Ordering::SeqCst);
        // Pairs with the light one in `published`, and with that in `notify`.
        if depth == Depth::Sleep && !broken(Mutant::SleepWithoutFence) {
            asymmetric::heavy();
        }
        if self.closed.load(Ordering::SeqCst) {
            return Some(Woke::Closed);
        }
        (!broken(Mutant::SleepWithoutLook) && last_look()).then(|| self.get_up(index, true))
    }

    /// Leaves the list, or takes the wake that came first.
    fn get_up(&self, index: usize, for_work: bool) -> Woke {
        if !self.leave_list(index, true) {
            return self.take_wake(index);
        }
        if for_work { Woke::ForWork(Searching(())) } else { Woke::TimedOut(Searching(())) }
    }

    /// Leaves the list, to search or not. False if another thread took this worker off it.
    fn leave_list(&self, index: usize, searches: bool) -> bool {
        let mut asleep = self.asleep.lock().expect("no panic while it is held");
        let Some(position) = asleep.iter().position(|&sleeper| sleeper == index) else { return false };
        asleep.swap_remove(position);
        if searches {
            self.delisted(index);
        } else {
            self.unlist(index);
        }
        true
    }

    /// Another thread took this worker off the list and counted it as searching: its bell will ring.
    fn take_wake(&self, index: usize) -> Woke {
        let bed = &self.beds[index];
        let mut rest = bed.rest.lock().expect("no panic while it is held");
        while !rest.woken {
            rest = bed.bell.wait(rest).expect("no panic while it is held");
        }
        rest.woken = false;
        drop(rest);
        self.woken()
    }

    /// Whether the runtime shuts down.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Wakes every worker for good.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for index in 0..self.beds.len() {
            self.ring(index);
        }
    }
}
