//! Deadlines: which waiter is to be woken when.
//!
//! Conserved: an entry fires once or is taken back, never both. There is no tick: the earliest deadline is the timeout of
//! one sleeping worker, and busy workers look between tasks and at slow checks.

use crate::error::TaskError;
use crate::nursery::core::NurseryCore;
use crate::protocol::earliest::{Earliest, NEVER};
use crate::task::TaskPtr;
use crate::task::state::Event;
use crate::waiter;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a deadline does.
pub(crate) enum Fire {
    Wake(TaskPtr),
    /// Wakes a future, by its word.
    Future(usize),
    /// Cancels a nursery, which takes the entry back before it ends.
    Deadline(*const NurseryCore),
}

#[allow(unsafe_code)]
// SAFETY: the nursery pointer is used under the lock of the timers only, and is taken back under it.
unsafe impl Send for Fire {}

/// Names an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    due_ns: u64,
    serial: u64,
}

/// The clock of a runtime: the monotonic one, or virtual. Clones tell the same time.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    began: Instant,
    /// Virtual time, in the deterministic mode. Unused otherwise, and the name of the clock in both.
    virtual_ns: Arc<AtomicU64>,
    is_virtual: bool,
}

impl Clock {
    fn new(is_virtual: bool) -> Self {
        Self { began: Instant::now(), virtual_ns: Arc::default(), is_virtual }
    }

    /// Nanoseconds since the runtime started.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        if self.is_virtual {
            self.virtual_ns.load(Ordering::Relaxed)
        } else {
            u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
        }
    }

    /// Whether both are of one runtime.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.virtual_ns, &other.virtual_ns)
    }
}

/// The deadlines of a runtime.
pub(crate) struct Timers {
    pub(crate) clock: Clock,
    /// The earliest deadline, and which sleeper wakes for it.
    pub(crate) earliest: Earliest,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    by_time: BTreeMap<TimerKey, Fire>,
    serial: u64,
}

impl Timers {
    pub(crate) fn new(is_virtual: bool) -> Self {
        Self { clock: Clock::new(is_virtual), earliest: Earliest::default(), entries: Mutex::default() }
    }

    /// Nanoseconds since the runtime started.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// A new entry, and whether it is now the earliest: then the worker that sleeps until the earliest must be
    /// told.
    pub(crate) fn insert(&self, due_ns: u64, fire: Fire) -> (TimerKey, bool) {
        let mut entries = self.entries.lock().expect("no panic while it is held");
        let key = TimerKey { due_ns, serial: entries.serial };
        entries.serial += 1;
        entries.by_time.insert(key, fire);
        let first = entries.by_time.first_key_value().is_some_and(|(first, _)| *first == key);
        if first {
            self.earliest.set(due_ns);
        }
        (key, first)
    }

    /// Takes an entry back. False if it has fired.
    pub(crate) fn remove(&self, key: TimerKey) -> bool {
        let mut entries = self.entries.lock().expect("no panic while it is held");
        let removed = entries.by_time.remove(&key).is_some();
        self.update_next(&entries);
        removed
    }

    fn update_next(&self, entries: &Entries) {
        let next = entries.by_time.first_key_value().map_or(u64::MAX, |(key, _)| key.due_ns);
        self.earliest.set(next);
    }

    /// Whether a deadline has come.
    pub(crate) fn is_due(&self) -> bool {
        let next = self.earliest.get();
        next != u64::MAX && next <= self.now_ns()
    }

    /// Whether a deadline had come at `now_ns`.
    #[inline]
    pub(crate) fn is_due_at(&self, now_ns: u64) -> bool {
        self.earliest.get() <= now_ns
    }

    /// Whether there is any entry.
    pub(crate) fn has_entries(&self) -> bool {
        self.earliest.get() != NEVER
    }

    /// How long until `deadline_ns`; `None` if there is none.
    pub(crate) fn time_until(&self, deadline_ns: u64) -> Option<Duration> {
        (deadline_ns != NEVER).then(|| Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns())))
    }

    /// Fires what is due.
    pub(crate) fn fire_due(&self) {
        while self.is_due() {
            let mut entries = self.entries.lock().expect("no panic while it is held");
            let now = self.now_ns();
            let Some(first) = entries.by_time.first_entry().filter(|entry| entry.key().due_ns <= now) else {
                self.update_next(&entries);
                return;
            };
            let fire = first.remove();
            self.update_next(&entries);
            match fire {
                Fire::Wake(task) => task.wake(Event::Wake),
                Fire::Future(word) => {
                    // Its waker may be any code.
                    drop(entries);
                    waiter::wake(word);
                }
                // Under the lock: the nursery cannot end before its entry has been taken back or has fired.
                Fire::Deadline(core) => cancel_for_deadline(core),
            }
        }
    }

    /// Moves virtual time to the earliest deadline. False if there is none.
    pub(crate) fn skip_to_next(&self) -> bool {
        let next = self.earliest.get();
        let may = self.clock.is_virtual && next != u64::MAX;
        if may {
            self.clock.virtual_ns.fetch_max(next, Ordering::Relaxed);
        }
        may
    }
}

#[allow(unsafe_code)]
fn cancel_for_deadline(core: *const NurseryCore) {
    // SAFETY: under the lock of the timers; the nursery takes its entry back, under that lock, before it ends.
    unsafe { &*core }.cancel(Some(TaskError::DeadlineExceeded));
}
