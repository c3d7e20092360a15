//! Where the time of requests goes, in counts of the time stamp counter: the ring, Cap'n Proto, the method, the scheduler; and how
//! long CPUs waited for cores and held them. A build that measures alone has any of it.
//!
//! Conserved: each count of a CPU is in one segment at most, but for the time that cores are held. A segment that begins within
//! another interrupts that one, so what is told of a method is without its Cap'n Proto and without the scheduler.

use super::{Counter, ON, add};
use crate::arch::cpu::{self, MAX_CPUS};
use crate::arch::time_stamp;
use core::sync::atomic::{AtomicU64, Ordering};

/// What a CPU does for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment {
    /// Requests are read from a ring, and completions written.
    Ring = Counter::RingCycles as isize,
    /// Parameters are read and results written.
    Capnp = Counter::CapnpCycles as isize,
    /// A method does its work.
    Method = Counter::MethodCycles as isize,
    /// A core is told of an event, or decides.
    Scheduler = Counter::SchedulerCycles as isize,
    /// It waits for a core that another CPU may have.
    LockWait = Counter::LockWaitCycles as isize,
}

/// In place of a segment: none is under way.
const NONE: u64 = u64::MAX;

/// The segment under way on one CPU, and since when it goes on.
#[repr(align(128))]
struct Current {
    what: AtomicU64,
    since: AtomicU64,
}

static CURRENT: [Current; MAX_CPUS] =
    [const { Current { what: AtomicU64::new(NONE), since: AtomicU64::new(0) } }; MAX_CPUS];

/// The segment under way on this CPU stops here, and `next` goes on; which one that was.
fn change(next: u64) -> u64 {
    let (now, current) = (time_stamp(), &CURRENT[cpu::index()]);
    let before = current.what.swap(next, Ordering::Relaxed);
    let since = current.since.swap(now, Ordering::Relaxed);
    if let Some(counter) = u16::try_from(before).ok().and_then(|number| Counter::try_from(number).ok()) {
        add(counter, now.saturating_sub(since));
    }
    before
}

/// A segment, until this is dropped: on the CPU where it began, since kernel code does not move.
#[must_use]
pub struct Within(u64);

/// A segment begins.
#[inline(always)]
pub fn within(what: Segment) -> Within {
    Within(if ON { change(what as u64) } else { NONE })
}

impl Drop for Within {
    #[inline(always)]
    fn drop(&mut self) {
        if ON {
            change(self.0);
        }
    }
}

/// A core is held, until this is dropped.
#[must_use]
pub struct Holding(u64);

/// A core is held from now on.
#[inline(always)]
pub fn holding() -> Holding {
    Holding(if ON { time_stamp() } else { 0 })
}

impl Drop for Holding {
    #[inline(always)]
    fn drop(&mut self) {
        if ON {
            add(Counter::LockHoldCycles, time_stamp().saturating_sub(self.0));
        }
    }
}
