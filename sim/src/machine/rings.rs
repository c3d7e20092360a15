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
use mainspring_abi::ring::{CapCqe, CapSqeV2, CompletionStatus, RingAbi};
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_driver::sqpoll::Poller;
use mainspring_report::RingReport;
use mainspring_ring::deadline::{self, AtDispatch, Budget, MethodTraits, Previous, Verdict};
use mainspring_ring::order::{OrderPolicy, service_order};
use mainspring_ring::{
    CqPlace, Endpoint, Geometry, HeapRegion, Next, Push, Reap, Reaper, RingMode, SqOwner, Submitter, Wakeup,
};
use mainspring_sched::WaitKind;
use mainspring_sched::nohz::RingFacts;
use mainspring_workload::{Batch, RingSpec};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

type Memory = Arc<HeapRegion>;

/// The poller of a ring that no thread has polled yet.
const NOBODY: ThreadRef = ThreadRef::new(u32::MAX, u32::MAX);

/// Entries that one thread has accepted.
#[derive(Debug, Default)]
struct Accepted {
    waiting: VecDeque<(CapSqeV2, CqPlace)>,
    serving: Option<(CapSqeV2, CqPlace)>,
}

impl Accepted {
    fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.serving.is_some())
    }
}

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
pub(super) struct Ring {
    owner: usize,
    poller: Option<usize>,
    endpoint: Endpoint<Memory>,
    submitter: Submitter<Memory>,
    reaper: Reaper<Memory>,
    polling: Poller,
    by_owner: Accepted,
    by_poller: Accepted,
    owner_step: OwnerStep,
    /// The poller spins for so long.
    spin: Option<Nanos>,
    /// Its owner has ended: no thread consumes any more.
    closed: bool,
    issued: u64,
    /// Entries that have not been reaped.
    outstanding: BTreeSet<u64>,
    report: RingReport,
    /// What the poller was charged.
    charged_ns: u64,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Ring {
    pub(super) fn new(spec: &RingSpec, bases: &[usize]) -> Self {
        let (endpoint, submitter, reaper) = memory(spec.entries);
        Self {
            owner: bases[spec.owner.thread] + spec.owner.instance.unwrap_or(0) as usize,
            poller: None,
            endpoint,
            submitter,
            reaper,
            polling: Poller::new(NOBODY),
            by_owner: Accepted::default(),
            by_poller: Accepted::default(),
            owner_step: OwnerStep::None,
            spin: None,
            closed: false,
            issued: 0,
            outstanding: BTreeSet::new(),
            report: RingReport { name: spec.name.clone(), ..RingReport::default() },
            charged_ns: 0,
        }
    }

    fn mode(&self) -> RingMode {
        self.endpoint.sqpoll().mode()
    }

    /// What the poller has just accepted stands in the order of service from now on.
    fn put_in_order(&mut self, spec: &RingSpec) {
        let mode = self.mode();
        let batch: Vec<_> = self.by_poller.waiting.iter().map(|(entry, _)| (*entry, method(spec))).collect();
        let order = service_order(order_policy(spec), mode, &batch);
        let mut accepted: Vec<Option<_>> = self.by_poller.waiting.drain(..).map(Some).collect();
        self.by_poller.waiting.extend(order.iter().filter_map(|index| accepted[index].take()));
    }

    fn accepted(&mut self, thread: usize) -> &mut Accepted {
        if thread == self.owner { &mut self.by_owner } else { &mut self.by_poller }
    }

    /// How many completions can be reaped.
    fn unread(&mut self) -> u32 {
        self.reaper.available().unwrap_or(0)
    }

    fn room_for_completions(&mut self) -> bool {
        self.endpoint.cq().room().is_ok_and(|room| room > 0)
    }
}

/// A fresh ring with room for twice as many completions as submissions.
fn memory(entries: u32) -> (Endpoint<Memory>, Submitter<Memory>, Reaper<Memory>) {
    let made = Geometry::new(RingAbi::V2, entries, 2 * entries).and_then(|geometry| {
        let region = Arc::new(HeapRegion::new(&geometry));
        geometry.format(&region)?;
        let endpoint = Endpoint::attach(region.clone())?;
        Ok((endpoint, Submitter::new(region.clone(), geometry), Reaper::new(region, geometry)))
    });
    made.unwrap_or_else(|error| unreachable!("a workload's ring has a size that rings can have: {error}"))
}

/// What the requests of a ring are allowed.
fn method(spec: &RingSpec) -> MethodTraits {
    MethodTraits { realtime_safe: true, reorder_safe: spec.reorder }
}

/// Whether a ring's poller looks for the earliest deadline, and among how many.
fn order_policy(spec: &RingSpec) -> OrderPolicy {
    if spec.reorder {
        OrderPolicy::ByDeadline { window: usize::from(spec.window) }
    } else {
        OrderPolicy::Submission
    }
}

impl Machine<'_> {
    pub(super) fn ring_owner(&self, ring: usize) -> usize {
        self.rings[ring].owner
    }

    /// What a lease that is coupled to `ring` has to know of it.
    pub(super) fn facts_of_ring(&self, ring: usize) -> RingFacts {
        let one = &self.rings[ring];
        one.polling.facts(&one.endpoint, false)
    }

    /// `submit`: writes entries as long as there is room, and waits for some while there is none.
    pub(super) fn submit(&mut self, cpu: usize, thread: usize, ring: usize, batch: &Batch) -> Done {
        if let Some(refused) = self.refuse_stranger(thread, ring) {
            return refused;
        }
        if self.rings[ring].closed {
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
        let written = self.write_entries(ring, left, batch);
        left -= written;
        self.rings[ring].owner_step = OwnerStep::Submitting(left);
        if written > 0 {
            self.log_ring("ring-submit", ring, Some(thread), Some(u64::from(written)), "");
            self.publish_entries(cpu, ring);
        }
        if self.rings[ring].mode() == RingMode::Syscall && self.take_own(ring) > 0 {
            // The step is taken again when they are served, and then finds room.
            return self.serve_own(thread, ring).unwrap_or(Done::Next);
        }
        if left == 0 {
            self.rings[ring].owner_step = OwnerStep::None;
            return Done::Next;
        }
        if self.rings[ring].mode() == RingMode::Syscall || !self.rings[ring].room_for_completions() {
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
        let one = &mut self.rings[ring];
        one.report.overflow += one.endpoint.sq().held_back();
        one.report.sleeps += one.endpoint.sqpoll().counters().sleeps;
        (one.endpoint, one.submitter, one.reaper) = memory(self.workload.rings[ring].entries);
        one.outstanding.clear();
        one.closed = false;
        self.rouse_poller(ring);
    }

    fn write_entries(&mut self, ring: usize, entries: u32, batch: &Batch) -> u32 {
        let now = self.now;
        let reorder = self.workload.rings[ring].reorder;
        let one = &mut self.rings[ring];
        let mut written = 0;
        while written < entries {
            let entry = batch.entry(one.issued, now, reorder);
            if one.submitter.push(&entry) != Push::Queued {
                break;
            }
            one.outstanding.insert(one.issued);
            one.issued += 1;
            one.report.submitted += 1;
            written += 1;
        }
        written
    }

    /// Shows what was written, and wakes the poller if it asked for that.
    fn publish_entries(&mut self, cpu: usize, ring: usize) {
        if self.rings[ring].submitter.publish() == Wakeup::Needed {
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
        if self.rings[ring].mode() == RingMode::Syscall && self.take_own(ring) > 0 {
            return self.serve_own(thread, ring).unwrap_or(Done::Next);
        }
        if until.is_some_and(|until| until <= self.now) {
            self.threads[thread].stats.timeouts += 1;
            self.rings[ring].owner_step = OwnerStep::None;
            return Done::Next;
        }
        let _announced = self.rings[ring].reaper.prepare_wait();
        self.wait_on_ring(thread, ring, until)
    }

    fn reap(&mut self, cpu: usize, ring: usize, at_most: u32) -> u32 {
        let mut reaped = 0;
        while reaped < at_most {
            let Reap::Completion(entry) = self.rings[ring].reaper.reap() else { break };
            if !self.rings[ring].outstanding.remove(&entry.user_data) {
                let what =
                    format!("ring `{}`: entry {} completed twice", self.ring_name(ring), entry.user_data);
                self.observer.trouble.get_or_insert(RunError::violation(self.now, cpu, what));
            }
            reaped += 1;
        }
        if self.rings[ring].reaper.publish() == Wakeup::Needed {
            self.wake_poller(cpu, ring);
        } else if reaped > 0 {
            self.end_spin(ring);
        }
        reaped
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
            ring.reaper.awake();
            self.give_up_step(thread);
        }
    }

    /// Without a poller the owner takes its own entries; how many.
    fn take_own(&mut self, ring: usize) -> u32 {
        let one = &mut self.rings[ring];
        one.submitter.publish_for_caller();
        let (sq, cq, _) = one.endpoint.parts();
        let Ok(lease) = sq.acquire(SqOwner::Syscall) else { return 0 };
        let mut taken = 0;
        if let Ok(mut service) = sq.begin(&lease, sq.geometry().sq_entries()) {
            while let Next::Accepted(entry, place) = service.next(cq) {
                one.by_owner.waiting.push_back((entry, place));
                taken += 1;
            }
            let _kept = service.finish();
        }
        let released = sq.release(lease);
        debug_assert!(released.is_ok(), "nobody takes it away within a step");
        taken
    }

    fn serve_own(&mut self, thread: usize, ring: usize) -> Option<Done> {
        self.serve_next(thread, ring).then(|| {
            self.retake(thread);
            Done::Next
        })
    }

    /// Completes the entry whose time is over and begins the next that `thread` has accepted; whether there is one.
    fn serve_next(&mut self, thread: usize, ring: usize) -> bool {
        if let Some((entry, place)) = self.rings[ring].accepted(thread).serving.take() {
            let cost = self.workload.rings[ring].cost;
            let now = self.now;
            let one = &mut self.rings[ring];
            one.report.busy_ns += cost.get();
            if thread != one.owner {
                let (_, _, sqpoll) = one.endpoint.parts();
                one.charged_ns += sqpoll.charge(now - cost, now).elapsed.get();
            }
            self.post(ring, place, &deadline::at_completion(&entry, now, Ok(0)));
        }
        while let Some((entry, place)) = self.rings[ring].accepted(thread).waiting.pop_front() {
            let at = AtDispatch {
                now: self.now,
                method: method(&self.workload.rings[ring]),
                budget: Budget::Available,
                previous: Previous::Completed,
            };
            match deadline::at_dispatch(&entry, 0, &at) {
                Verdict::Run { .. } => {
                    self.rings[ring].accepted(thread).serving = Some((entry, place));
                    self.threads[thread].remaining = self.workload.rings[ring].cost;
                    return true;
                }
                Verdict::Refuse(status, error) => {
                    self.post(ring, place, &deadline::refused(&entry, status, error));
                }
            }
        }
        false
    }

    /// Posts a completion, and wakes the owner if that is all that it waited for.
    fn post(&mut self, ring: usize, place: CqPlace, entry: &CapCqe) {
        let one = &mut self.rings[ring];
        one.report.completed += 1;
        let event = match entry.status() {
            Ok(CompletionStatus::NotStartedLate) => {
                one.report.dropped += 1;
                "ring-drop"
            }
            Ok(CompletionStatus::CompletedLate) => {
                one.report.late += 1;
                "ring-late"
            }
            _ => "",
        };
        let _asked = one.endpoint.complete(place, entry);
        if !event.is_empty() {
            self.log_ring(event, ring, None, Some(entry.user_data), "");
        }
        if let OwnerStep::Completing { left, .. } = self.rings[ring].owner_step
            && self.rings[ring].unread() >= left
        {
            self.wake_owner(ring);
        }
    }

    /// The owner looks again, if it waits.
    fn wake_owner(&mut self, ring: usize) {
        let owner = self.rings[ring].owner;
        if self.threads[owner].wait == Some(WaitKind::Ring) {
            self.rings[ring].reaper.awake();
            self.wake_thread(owner, self.acting);
        }
    }
}
