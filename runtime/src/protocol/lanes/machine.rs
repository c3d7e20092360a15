//! The lanes as the driver sees them.
//!
//! Conserved: an operation tells at most one worker, and whoever began the operation wakes that worker afterwards, if it sleeps.

use super::lane::Lane;
use super::{Lanes, Tell, Thread};
use crate::protocol::prim::Ordering;
use mainspring_abi::{CpuId, Nanos, ThreadRef};
use mainspring_driver::{CpuAccess, Home, Machine, Notified, Threads};
use mainspring_sched::flight::Log;
use mainspring_sched::{Offer, Seat, WaitPermit};

/// The threads of all lanes, by number.
pub(super) struct ThreadTable(pub Box<[Thread]>);

impl std::ops::Deref for ThreadTable {
    type Target = [Thread];

    fn deref(&self) -> &[Thread] {
        &self.0
    }
}

impl Threads for &ThreadTable {
    /// Under the lane's lock, so that nobody moves the thread on before.
    fn set_home(&mut self, thread: ThreadRef, home: Option<Home>) {
        // Nobody asks for the home of a thread that has ended before another task is that thread.
        if let Some(Home { cpu, seat }) = home {
            let entry = &self[thread.index() as usize];
            entry.lane.store(cpu.index(), Ordering::Relaxed);
            entry.slot.store(seat.slot(), Ordering::Relaxed);
        }
    }
}

/// The lanes at one moment, as one worker sees them or somebody who is none.
pub(super) struct Seen<'l> {
    lanes: &'l Lanes,
    here: Option<usize>,
    now: Nanos,
    told: Tell,
}

impl<'l> Seen<'l> {
    pub(super) fn new(lanes: &'l Lanes, here: Option<usize>, now: Nanos) -> Self {
        Self { lanes, here, now, told: Tell(None) }
    }

    /// The worker that was told, to be woken.
    pub(super) fn told(self) -> Tell {
        self.told
    }

    fn lane(&self, cpu: CpuId) -> &'l Lane {
        &self.lanes.lanes[cpu.index()]
    }
}

impl<'l> Machine for Seen<'l> {
    type Observer = Option<Log>;
    type Threads = &'l ThreadTable;

    fn with_cpu<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut CpuAccess<'_, Self>) -> R) -> R {
        self.lane(cpu).with(|core| act(&mut core.access(self.now, &mut &self.lanes.threads)))
    }

    fn cpus(&self) -> usize {
        self.lanes.lanes.len()
    }

    /// A worker looks at its own lane before it does anything else.
    fn this_cpu(&self) -> Option<CpuId> {
        self.here.map(|worker| self.lanes.lanes[worker].id)
    }

    fn notify_cpu(&mut self, cpu: CpuId) -> Notified {
        // SeqCst: the message comes before the look at whether the worker sleeps, and its own last look comes after it
        // has said that it does. AcqRel with `Lanes::listen` is part of it.
        if self.lane(cpu).message.swap(true, Ordering::SeqCst) {
            return Notified::Pending;
        }
        debug_assert_eq!(self.told, Tell(None), "an operation tells one worker");
        self.told = Tell(Some(cpu.index()));
        Notified::Sent
    }

    fn any_cpu_idles(&self) -> bool {
        self.next_idle_cpu(CpuId::BOOT).is_some()
    }

    fn next_idle_cpu(&self, from: CpuId) -> Option<CpuId> {
        // SeqCst: see `Lane::with`.
        let idle = |lane: &&Lane| lane.idle.load(Ordering::SeqCst);
        self.lanes.lanes.iter().skip(from.index()).find(idle).map(|lane| lane.id)
    }

    fn home(&self, thread: ThreadRef) -> Option<Home> {
        let entry = &self.lanes.threads[thread.index() as usize];
        let cpu = self.lanes.lanes[entry.lane.load(Ordering::Relaxed)].id;
        Some(Home { cpu, seat: Seat::from_parts(entry.slot.load(Ordering::Relaxed), thread) })
    }

    fn offer(&self, cpu: CpuId) -> Offer {
        self.lane(cpu).offer()
    }

    fn placed_weight(&self, cpu: CpuId) -> u64 {
        self.lane(cpu).placed_weight.load(Ordering::Relaxed) as u64
    }

    fn add_placed_weight(&mut self, cpu: CpuId, weight: u64) {
        self.lane(cpu).placed_weight.fetch_add(weight as usize, Ordering::Relaxed);
    }

    fn wait_ended(&mut self, _: ThreadRef, permit: Option<WaitPermit>) {
        debug_assert_eq!(permit, None, "timers are not of the lanes");
    }
}
