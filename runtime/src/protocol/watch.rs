//! The monitor's sleep: while no worker runs a task, it sleeps for good, and the first worker that does rings.
//!
//! Conserved: while a worker runs tasks, the monitor is awake, or has been rung. A worker that begins writes that it is busy and then
//! looks whether the monitor is parked. The monitor writes that it is parked and then looks who is busy. Between the writes and the
//! looks are a light fence of the worker, who does this often, and a heavy one of the monitor. So one of the two sees the other.

use super::asymmetric;
use super::mutant::{Mutant, broken};
use super::prim::{AtomicBool, Condvar, Mutex, Ordering};
use std::time::Duration;

/// Which workers run tasks, and how the monitor sleeps.
#[derive(Debug)]
pub struct Watch {
    busy: Box<[AtomicBool]>,
    parked: AtomicBool,
    closed: AtomicBool,
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Watch {
    /// For so many workers, none of which runs a task.
    pub fn new(workers: usize) -> Self {
        Self {
            busy: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            parked: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            rung: Mutex::new(false),
            bell: Condvar::new(),
        }
    }

    /// `worker` is about to run tasks.
    pub fn begin(&self, worker: usize) {
        self.busy[worker].store(true, Ordering::Relaxed);
        // Pairs with the heavy one in `park`.
        if !broken(Mutant::BeginWithoutFence) {
            asymmetric::light();
        }
        if self.parked.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// `worker` has no task to run.
    pub fn end(&self, worker: usize) {
        self.busy[worker].store(false, Ordering::Relaxed);
    }

    /// Whether `worker` runs tasks.
    pub fn is_busy(&self, worker: usize) -> bool {
        self.busy[worker].load(Ordering::Relaxed)
    }

    /// Whether any worker does.
    pub fn is_any_busy(&self) -> bool {
        self.busy.iter().any(|busy| busy.load(Ordering::Relaxed))
    }

    #[cold]
    fn ring(&self) {
        *self.rung.lock().expect("no panic while it is held") = true;
        self.bell.notify_one();
    }

    /// The monitor sleeps until a worker begins.
    pub fn park(&self) {
        self.parked.store(true, Ordering::Relaxed);
        // Pairs with the light one in `begin`.
        if !broken(Mutant::ParkWithoutFence) {
            asymmetric::heavy();
        }
        if broken(Mutant::ParkWithoutLook) || !self.is_any_busy() {
            let mut rung = self.rung.lock().expect("no panic while it is held");
            while !*rung && !self.is_closed() {
                rung = self.bell.wait(rung).expect("no panic while it is held");
            }
        }
        self.parked.store(false, Ordering::Relaxed);
        *self.rung.lock().expect("no panic while it is held") = false;
    }

    /// The monitor sleeps for so long, or until the runtime shuts down.
    pub fn sleep(&self, time: Duration) {
        let rung = self.rung.lock().expect("no panic while it is held");
        if !self.is_closed() {
            #[cfg(not(loom))]
            drop(self.bell.wait_timeout(rung, time).expect("no panic while it is held"));
            #[cfg(loom)]
            let _ = (rung, time);
        }
    }

    /// Whether the runtime shuts down.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// The runtime shuts down.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.ring();
    }
}
