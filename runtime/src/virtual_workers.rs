//! The deterministic mode: virtual workers that take turns on one thread, by a seeded draw, in virtual time.
//!
//! Conserved: the order of every dispatch and steal is a function of the program, the seed, the number of workers and the
//! budgets. A task runs from one switch to the next while no other task runs; time passes only when every task waits.

use crate::runtime::Inner;
use crate::worker::{Worker, set_current};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

/// What the host's threads and the virtual workers share.
#[derive(Debug)]
pub(crate) struct Shared {
    seed: u64,
    bell: Mutex<Bell>,
    rung: Condvar,
    /// A hash of all dispatches and steals so far.
    trace: AtomicU64,
    steps: AtomicU64,
}

#[derive(Debug, Default)]
struct Bell {
    rung: bool,
    closed: bool,
}

impl Shared {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            bell: Mutex::default(),
            rung: Condvar::new(),
            trace: AtomicU64::new(0xcbf2_9ce4_8422_2325),
            steps: AtomicU64::new(0),
        }
    }

    /// Work came from outside.
    pub(crate) fn ring(&self) {
        self.bell.lock().expect("no panic while it is held").rung = true;
        self.rung.notify_one();
    }

    pub(crate) fn close(&self) {
        self.bell.lock().expect("no panic while it is held").closed = true;
        self.rung.notify_one();
    }

    /// Waits for work from outside. False when the runtime shuts down.
    fn wait(&self) -> bool {
        let mut bell = self.bell.lock().expect("no panic while it is held");
        while !bell.rung && !bell.closed {
            bell = self.rung.wait(bell).expect("no panic while it is held");
        }
        bell.rung = false;
        !bell.closed
    }

    pub(crate) fn is_rung(&self) -> bool {
        let bell = self.bell.lock().expect("no panic while it is held");
        bell.rung || bell.closed
    }

    fn note(&self, a: u64, b: u64) {
        let mut hash = self.trace.load(Ordering::Relaxed);
        for word in [a, b] {
            hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
        self.trace.store(hash, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_steal(&self, thief: usize, victim: usize) {
        self.note(1 << 32 | thief as u64, victim as u64);
    }

    /// The hash of the order so far, and how many steps it covers.
    pub(crate) fn trace(&self) -> (u64, u64) {
        (self.trace.load(Ordering::Relaxed), self.steps.load(Ordering::Relaxed))
    }
}

/// Runs the virtual workers until the runtime shuts down.
pub(crate) fn run(inner: &Inner, workers: &[Worker]) {
    let shared = inner.virtual_run.as_ref().expect("a deterministic runtime");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(shared.seed);
    loop {
        if turn(inner, workers, shared, &mut rng) {
            continue;
        }
        if inner.timers.skip_to_next() {
            set_current(&raw const workers[0]);
            inner.timers.fire_due();
            continue;
        }
        if inner.config.fail_on_deadlock && inner.fail_deadlock() {
            continue;
        }
        set_current(std::ptr::null());
        if !shared.wait() {
            return;
        }
    }
}

/// One worker, drawn by the seed, runs one task to its next switch. False if no worker has anything to run.
fn turn(inner: &Inner, workers: &[Worker], shared: &Shared, rng: &mut Xoshiro256PlusPlus) -> bool {
    let has_work = || !inner.global.is_empty() || workers.iter().any(|worker| worker.has_own());
    // No draw is spent on an empty machine: when the host's threads come is not part of the seed.
    if !has_work() {
        return false;
    }
    let first = ((u128::from(rng.next_u64()) * workers.len() as u128) >> 64) as usize;
    for offset in 0..workers.len() {
        let worker = &workers[(first + offset) % workers.len()];
        set_current(&raw const *worker);
        let Some(task) = worker.next_in_turn() else { continue };
        shared.note(worker.index as u64, task.id.load(Ordering::Relaxed));
        // A virtual worker that is killed is replaced by going on with it.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.run_one(task)));
        inner.timers.fire_due();
        return true;
    }
    // A worker that finds nothing reports the children that ended there, which may wake a task of a worker before it.
    has_work()
}
