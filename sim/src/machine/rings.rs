//! Rings in the machine: the shipped ring code over ordinary memory, driven in virtual time.
//!
//! Conserved:
//! * an entry that was submitted is in the submission queue, accepted by one thread, in the completion queue, or reaped:
//!   each exactly once, which is checked when it is reaped and when the run ends;
//! * an entry that was accepted is completed, even if the thread that accepted it ends;
//! * the time that serving and spinning take is CPU time of the thread that does it.

mod poller;
mod report;
mod teardown;

use super::Machine;
use super::program::Done;
use crate::RunError;
use mainspring_abi::Nanos;
use mainspring_abi::ring::CompletionStatus;
use mainspring_driver::local_ring::{LocalRing, Posted, Reaped, Server, Service};
use mainspring_ring::{HeapRegion, RingMode, Wakeup};
use mainspring_sched::WaitKind;
use mainspring_sched::nohz::RingFacts;
use mainspring_workload::{Batch, Numbering, RingSpec};
use std::sync::Arc;

/// What the owner of a ring is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerStep {
    None,
    /// So many entries of its step are not written yet.
    Submitting(u32),
    /// So many completions of its step have not been taken yet.
    Completing {
        left: u32,
        until: Option<Nanos>,
    },
}

/// One ring of the workload.
#[derive(Debug)]
pub(super) struct Ring {
    owner: usize,
    poller: Option<usize>,
    local: LocalRing<Arc<HeapRegion>>,
    owner_step: OwnerStep,
    /// The poller spins for so long.
    spin: Option<Nanos>,
}

impl Ring {
    pub(super) fn new(spec: &RingSpec, numbers: &Numbering) -> Self {
        Self {
            owner: numbers.threads(spec.owner).start,
            poller: None,
            local: LocalRing::new(spec.entries, spec.order(), |geometry| Arc::new(HeapRegion::new(geometry))),
            owner_step: OwnerStep::None,
            spin: None,
        }
    }

    /// As what `thread` serves it.
    fn server(&self, thread: usize) -> Server {
        if thread == self.owner { Server::Owner } else { Server::Poller }
    }
}

impl Machine<'_> {
    pub(super) fn ring_owner(&self, ring: usize) -> usize {
        self.rings[ring].owner
    }

    /// What a lease that is coupled to `ring` has to know of it.
    pub(super) fn facts_of_ring(&self, ring: usize) -> RingFacts {
        self.rings[ring].local.facts()
    }

    /// `submit`: writes entries as long as there is room, and waits for some while there is none.
    pub(super) fn submit(&mut self, cpu: usize, thread: usize, ring: usize, batch: &Batch) -> Done {
        if let Some(refused) = self.refuse_stranger(thread, ring) {
            return refused;
        }
        if self.rings[ring].local.is_closed() {
            self.open_again(ring);
        }
        // Coming back to the step: what it has accepted is served first, as no other thread will.
        if let Some(done) = self.serve_own(thread, ring) {
            return done;
        }
        let mut left = match self.rings[ring].owner_step {
            OwnerStep::Submitting(left) => left,
            OwnerStep::None | OwnerStep::Completing { .. } => batch.entries,
        };
        let (now, reorder) = (self.now, self.workload.rings[ring].reorder);
        let written = self.rings[ring].local.write(left, |number| batch.entry(number, now, reorder));
        left -= written;
        self.rings[ring].owner_step = OwnerStep::Submitting(left);
        if written > 0 {
            self.log_ring("ring-submit", ring, Some(thread), Some(u64::from(written)), "");
            self.publish_entries(cpu, ring);
        }
        if self.rings[ring].local.mode() == RingMode::Syscall && self.rings[ring].local.take_own() > 0 {
            // The step is taken again when they are served, and then finds room.
            return self.serve_own(thread, ring).unwrap_or(Done::Next);
        }
        if left == 0 {
            self.rings[ring].owner_step = OwnerStep::None;
            return Done::Next;
        }
        let local = &mut self.rings[ring].local;
        if local.mode() == RingMode::Syscall || !local.has_room() {
            // Only this thread could make room, by reaping: its other entries are not taken.
            self.rings[ring].owner_step = OwnerStep::None;
            self.refuse_step(thread, "the ring is full, and its completions are not reaped");
            self.log_ring("ring-full", ring, Some(thread), Some(u64::from(left)), "completions not reaped");
            return Done::Next;
        }
        self.log_ring("ring-full", ring, Some(thread), Some(u64::from(left)), "");
        self.wait_on_ring(thread, ring, None)
    }

    /// Rings belong to one thread each.
    fn refuse_stranger(&mut self, thread: usize, ring: usize) -> Option<Done> {
        if self.rings[ring].owner == thread {
            return None;
        }
        self.refuse_step(thread, "the ring is another thread's");
        self.log_ring("ring-refuse", ring, Some(thread), None, "not-the-owner");
        Some(Done::Next)
    }

    fn open_again(&mut self, ring: usize) {
        self.rings[ring].local.open_again();
        self.rouse_poller(ring);
    }

    /// Shows what was written, and wakes the poller if it asked for that.
    fn publish_entries(&mut self, cpu: usize, ring: usize) {
        if self.rings[ring].local.publish() == Wakeup::Needed {
            self.wake_poller(cpu, ring);
        } else {
            self.end_spin(ring);
        }
    }

    /// `complete`: takes completions, and waits for those that are missing.
    pub(super) fn complete(
        &mut self,
        cpu: usize,
        thread: usize,
        ring: usize,
        entries: u32,
        timeout: Option<Nanos>,
    ) -> Done {
        if let Some(refused) = self.refuse_stranger(thread, ring) {
            return refused;
        }
        let (left, until) = match self.rings[ring].owner_step {
            OwnerStep::Completing { left, until } => (left, until),
            OwnerStep::None | OwnerStep::Submitting(_) => (entries, timeout),
        };
        // The step is taken again after each entry that its thread serves itself.
        self.rings[ring].owner_step = OwnerStep::Completing { left, until };
        if let Some(done) = self.serve_own(thread, ring) {
            return done;
        }
        let reaped = self.reap(cpu, ring, left);
        let left = left - reaped;
        if reaped > 0 {
            self.log_ring("ring-complete", ring, Some(thread), Some(u64::from(reaped)), "");
        }
        if left == 0 {
            self.rings[ring].owner_step = OwnerStep::None;
            return Done::Next;
        }
        self.rings[ring].owner_step = OwnerStep::Completing { left, until };
        if self.rings[ring].local.mode() == RingMode::Syscall && self.rings[ring].local.take_own() > 0 {
            return self.serve_own(thread, ring).unwrap_or(Done::Next);
        }
        if until.is_some_and(|until| until <= self.now) {
            self.threads[thread].stats.timeouts += 1;
            self.rings[ring].owner_step = OwnerStep::None;
            return Done::Next;
        }
        self.rings[ring].local.announce_wait();
        self.wait_on_ring(thread, ring, until)
    }

    fn reap(&mut self, cpu: usize, ring: usize, at_most: u32) -> u32 {
        let Reaped { count, twice, wakeup } = self.rings[ring].local.reap(at_most);
        if let Some(entry) = twice {
            let what = format!("ring `{}`: entry {entry} completed twice", self.ring_name(ring));
            self.observer.trouble.get_or_insert(RunError::violation(self.now, cpu, what));
        }
        if wakeup == Wakeup::Needed {
            self.wake_poller(cpu, ring);
        } else if count > 0 {
            self.end_spin(ring);
        }
        count
    }

    /// The owner waits; the step is taken again when it wakes.
    fn wait_on_ring(&mut self, thread: usize, ring: usize, until: Option<Nanos>) -> Done {
        self.begin_wait(thread);
        let blocked = self.block(thread, WaitKind::Ring, until);
        match blocked {
            Done::Next => self.rings[ring].owner_step = OwnerStep::None,
            Done::Stay(_) => self.retake(thread),
        }
        blocked
    }

    /// The `complete` that `thread` is at has timed out: it goes on with the next step.
    pub(super) fn give_up_completions(&mut self, thread: usize) {
        if let Some(ring) = self.rings.iter_mut().find(|ring| {
            ring.owner == thread && matches!(ring.owner_step, OwnerStep::Completing { until: Some(_), .. })
        }) {
            ring.owner_step = OwnerStep::None;
            ring.local.end_wait();
            self.give_up_step(thread);
        }
    }

    fn serve_own(&mut self, thread: usize, ring: usize) -> Option<Done> {
        self.serve_next(thread, ring).then(|| {
            self.retake(thread);
            Done::Next
        })
    }

    /// Completes the entry whose time is over and begins the next that `thread` has accepted; whether there is one.
    fn serve_next(&mut self, thread: usize, ring: usize) -> bool {
        let (server, cost) = (self.rings[ring].server(thread), self.workload.rings[ring].cost);
        if let Some(posted) = self.rings[ring].local.finish(server, self.now, cost) {
            self.posted(ring, posted);
        }
        loop {
            match self.rings[ring].local.begin(server, self.now) {
                Service::Begun => {
                    self.threads[thread].remaining = cost;
                    return true;
                }
                Service::Refused(posted) => self.posted(ring, posted),
                Service::Nothing => return false,
            }
        }
    }

    /// A completion was posted: wakes the owner if that is all that it waited for.
    fn posted(&mut self, ring: usize, posted: Posted) {
        let event = match posted.status {
            Some(CompletionStatus::NotStartedLate) => "ring-drop",
            Some(CompletionStatus::CompletedLate) => "ring-late",
            _ => "",
        };
        if !event.is_empty() {
            self.log_ring(event, ring, None, Some(posted.entry), "");
        }
        if let OwnerStep::Completing { left, .. } = self.rings[ring].owner_step
            && self.rings[ring].local.unread() >= left
        {
            self.wake_owner(ring);
        }
    }

    /// The owner looks again, if it waits.
    fn wake_owner(&mut self, ring: usize) {
        let owner = self.rings[ring].owner;
        if self.threads[owner].wait == Some(WaitKind::Ring) {
            self.rings[ring].local.end_wait();
            self.wake_thread(owner, self.acting);
        }
    }
}
