//! Rings in the machine: the shipped ring code over ordinary memory, driven in virtual time.
//!
//! Conserved:
//! * an entry that was submitted is in the submission queue, in one thread's hands, in the completion queue, or reaped:
//!   each exactly once, which is checked when it is reaped and when the run ends;
//! * an entry that was accepted is completed, even if whoever accepted it ends;
//! * the time that serving and spinning take is CPU time of the thread that does it.

use super::Machine;
use super::program::{Done, Progress};
use crate::RunError;
use mainspring_abi::Nanos;
use mainspring_abi::ring::{CapCqe, CapError, CapSqeV2, CompletionStatus, QosFlags, RingAbi};
use mainspring_report::RingReport;
use mainspring_ring::deadline::{self, AtDispatch, Budget, MethodTraits, Previous, Verdict};
use mainspring_ring::{
    AccountingTarget, CqPlace, Endpoint, Geometry, HeapRegion, Idle, Next, Passes, Polled, PollerState, Push,
    Reap, Reaper, RingMode, SQES_PER_PASS, SqLease, SqOwner, SqpollGrant, StartFinish, StartRequest,
    StopFinish, StopReason, StopRequest, Submitter, TrySleep, Wake, Wakeup,
};
use mainspring_sched::WaitKind;
use mainspring_sched::nohz::RingFacts;
use mainspring_workload::{Account, Lateness, RingSpec, Span};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

type Memory = Arc<HeapRegion>;

/// What a `submit` step asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub entries: u32,
    pub deadline: Option<Nanos>,
    pub late: Lateness,
}

/// Entries that one thread has accepted.
#[derive(Debug, Default)]
struct Hands {
    waiting: VecDeque<(CapSqeV2, CqPlace)>,
    serving: Option<(CapSqeV2, CqPlace)>,
}

impl Hands {
    fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.serving.is_some())
    }
}

/// What the owner of a ring is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Errand {
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
    passes: Passes,
    /// The poller's right to consume.
    sq_lease: Option<SqLease>,
    by_owner: Hands,
    by_poller: Hands,
    errand: Errand,
    /// The poller spins for so long.
    spin: Option<Nanos>,
    /// Its owner has ended: nobody consumes any more.
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
            passes: Passes::default(),
            sq_lease: None,
            by_owner: Hands::default(),
            by_poller: Hands::default(),
            errand: Errand::None,
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

    fn hands(&mut self, thread: usize) -> &mut Hands {
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

/// What every simulated request is allowed.
const METHOD: MethodTraits = MethodTraits { realtime_safe: true, reorder_safe: false };

impl Machine<'_> {
    pub(super) fn ring_owner(&self, ring: usize) -> usize {
        self.rings[ring].owner
    }

    /// What a lease that is coupled to `ring` has to know of it.
    pub(super) fn ring_facts(&self, ring: usize) -> RingFacts {
        let one = &self.rings[ring];
        if one.mode() != RingMode::Sqpoll {
            return RingFacts::NotSqpoll;
        }
        let live = one.sq_lease.as_ref().is_some_and(|lease| one.endpoint.sq().holds(lease));
        let spinning = one.endpoint.sqpoll().poller() == PollerState::IdleSpinning;
        RingFacts::Sqpoll { owner_live: live && !one.closed, spinning, other_consumer: false }
    }

    /// `submit`: writes entries as long as there is room, and waits for some while there is none.
    pub(super) fn submit(&mut self, cpu: usize, thread: usize, ring: usize, batch: &Batch) -> Done {
        if let Some(refused) = self.refuse_stranger(thread, ring) {
            return refused;
        }
        if self.rings[ring].closed {
            self.open_again(ring);
        }
        // Coming back to the step: what it has accepted is served first, as nobody else will.
        if let Some(done) = self.serve_own(thread, ring) {
            return done;
        }
        let mut left = match self.rings[ring].errand {
            Errand::Submitting(left) => left,
            Errand::None | Errand::Completing { .. } => batch.entries,
        };
        let written = self.write_entries(ring, left, batch);
        left -= written;
        self.rings[ring].errand = Errand::Submitting(left);
        if written > 0 {
            self.log_ring("ring-submit", ring, Some(thread), Some(u64::from(written)), "");
            self.publish_entries(cpu, ring);
        }
        if self.rings[ring].mode() == RingMode::Syscall && self.take_own(ring) > 0 {
            // The step is taken again when they are served, and then finds room.
            return self.serve_own(thread, ring).unwrap_or(Done::Next);
        }
        if left == 0 {
            self.rings[ring].errand = Errand::None;
            return Done::Next;
        }
        if self.rings[ring].mode() == RingMode::Syscall || !self.rings[ring].room_for_completions() {
            // Only this thread could make room, by reaping: its other entries are not taken.
            self.rings[ring].errand = Errand::None;
            self.threads[thread].stats.refusals += 1;
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
        self.threads[thread].stats.refusals += 1;
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
        let one = &mut self.rings[ring];
        let mut written = 0;
        while written < entries {
            let mut entry = CapSqeV2::nop(one.issued);
            if let Some(deadline) = batch.deadline {
                entry.deadline_ns = (now + deadline).get().max(1);
                entry.qos_flags = match batch.late {
                    Lateness::Drop => QosFlags::DROP_IF_LATE.bits(),
                    Lateness::Allow => QosFlags::ALLOW_LATE.bits(),
                };
            }
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

    fn wake_poller(&mut self, cpu: usize, ring: usize) {
        let one = &mut self.rings[ring];
        one.submitter.ring_doorbell();
        let (sq, _, sqpoll) = one.endpoint.parts();
        if sqpoll.wake(sq) != Wake::Running {
            return;
        }
        one.report.wakeups += 1;
        let poller = one.poller;
        self.log_ring("ring-wake", ring, poller, None, "");
        if let Some(poller) = poller
            && self.threads[poller].wait == Some(WaitKind::Ring)
        {
            self.wake_thread(poller, Some(cpu));
        }
    }

    /// The poller that spins finds what was published.
    fn end_spin(&mut self, ring: usize) {
        let (Some(poller), Some(spin)) = (self.rings[ring].poller, self.rings[ring].spin) else { return };
        let Some((cpu, _)) = self.place_of(poller) else { return };
        let runs = self.lanes[cpu].running == Some(poller as u32);
        if runs {
            self.pause_work(cpu);
        }
        let spun = spin - self.threads[poller].remaining;
        self.threads[poller].remaining = Nanos::ZERO;
        if runs {
            self.expect_done(cpu);
        }
        self.book_spin(ring, spun);
    }

    fn book_spin(&mut self, ring: usize, spun: Nanos) {
        let now = self.now;
        let one = &mut self.rings[ring];
        one.spin = None;
        one.report.spins_ns += spun.get();
        let (_, _, sqpoll) = one.endpoint.parts();
        one.charged_ns += sqpoll.charge(now - spun, now).elapsed.get();
    }

    /// `complete`: takes completions, and waits for those that are missing.
    pub(super) fn complete(
        &mut self,
        cpu: usize,
        thread: usize,
        ring: usize,
        entries: u32,
        timeout: Option<Span>,
    ) -> Done {
        if let Some(refused) = self.refuse_stranger(thread, ring) {
            return refused;
        }
        if let Some(done) = self.serve_own(thread, ring) {
            return done;
        }
        let (left, until) = match self.rings[ring].errand {
            Errand::Completing { left, until } => (left, until),
            Errand::None | Errand::Submitting(_) => (entries, self.deadline(thread, timeout)),
        };
        let reaped = self.reap(cpu, ring, left);
        let left = left - reaped;
        if reaped > 0 {
            self.log_ring("ring-complete", ring, Some(thread), Some(u64::from(reaped)), "");
        }
        if left == 0 {
            self.rings[ring].errand = Errand::None;
            return Done::Next;
        }
        self.rings[ring].errand = Errand::Completing { left, until };
        if self.rings[ring].mode() == RingMode::Syscall && self.take_own(ring) > 0 {
            return self.serve_own(thread, ring).unwrap_or(Done::Next);
        }
        if until.is_some_and(|until| until <= self.now) {
            self.threads[thread].stats.timeouts += 1;
            self.rings[ring].errand = Errand::None;
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
                self.trouble.get_or_insert(RunError::Violation { at: self.now, cpu, what });
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
            Done::Next => self.rings[ring].errand = Errand::None,
            Done::Stay(_) => self.threads[thread].pc -= 1,
        }
        blocked
    }

    /// The `complete` that `thread` is at has timed out: it goes on with the next step.
    pub(super) fn give_up_completions(&mut self, thread: usize) {
        if let Some(ring) = self.rings.iter_mut().find(|ring| {
            ring.owner == thread && matches!(ring.errand, Errand::Completing { until: Some(_), .. })
        }) {
            ring.errand = Errand::None;
            ring.reaper.awake();
            self.threads[thread].pc += 1;
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
            self.threads[thread].pc -= 1;
            Done::Next
        })
    }

    /// Completes the entry whose time is over and begins the next that `thread` has accepted; whether there is one.
    fn serve_next(&mut self, thread: usize, ring: usize) -> bool {
        if let Some((entry, place)) = self.rings[ring].hands(thread).serving.take() {
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
        while let Some((entry, place)) = self.rings[ring].hands(thread).waiting.pop_front() {
            let at = AtDispatch {
                now: self.now,
                method: METHOD,
                budget: Budget::Available,
                previous: Previous::Completed,
            };
            match deadline::at_dispatch(&entry, &at) {
                Verdict::Run { .. } => {
                    self.rings[ring].hands(thread).serving = Some((entry, place));
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
        if let Errand::Completing { left, .. } = self.rings[ring].errand
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

    /// `poll`: serves one batch; spins while there is none, and then sleeps.
    pub(super) fn poll_ring(&mut self, _cpu: usize, thread: usize, ring: usize) -> Done {
        if !self.may_poll(thread, ring) {
            return self.sleep_until_polled(thread);
        }
        if let Some(spin) = self.rings[ring].spin {
            self.book_spin(ring, spin);
        }
        let had = self.rings[ring].by_poller.len() > 0;
        if self.serve_next(thread, ring) {
            self.threads[thread].pc -= 1;
            return Done::Next;
        }
        if had {
            return Done::Next;
        }
        if self.rings[ring].mode() != RingMode::Sqpoll && !self.start_polling(thread, ring) {
            // Until a lease is granted, or granted again.
            return self.sleep_until_polled(thread);
        }
        loop {
            let Ring { endpoint, passes, sq_lease: Some(lease), by_poller, .. } = &mut self.rings[ring]
            else {
                return self.sleep_until_polled(thread);
            };
            let mut accept =
                |entry: CapSqeV2, place: CqPlace, _: &mut _| by_poller.waiting.push_back((entry, place));
            let polled = endpoint.poll(passes.begin(), lease, SQES_PER_PASS, &mut accept);
            match polled {
                Polled::Served { .. } | Polled::Stopped { .. } => {
                    self.wake_submitter(ring);
                    if self.serve_next(thread, ring) {
                        self.threads[thread].pc -= 1;
                    }
                    return Done::Next;
                }
                Polled::HeldBack => self.wake_submitter(ring),
                Polled::Idle | Polled::Fault(_) => {}
                Polled::NotSelected | Polled::Refused(_) => return self.sleep_until_polled(thread),
            }
            let Ring { endpoint, sq_lease: Some(lease), .. } = &mut self.rings[ring] else {
                return self.sleep_until_polled(thread);
            };
            let (sq, cq, sqpoll) = endpoint.parts();
            match sqpoll.found_nothing(self.now) {
                Idle::Spin { until } => {
                    let spin = until - self.now;
                    self.rings[ring].spin = Some(spin);
                    self.threads[thread].remaining = spin;
                    self.threads[thread].pc -= 1;
                    return Done::Next;
                }
                Idle::SleepNow => match sqpoll.try_sleep(sq, lease, cq) {
                    TrySleep::Asleep(_ticket) => {
                        self.log_ring("ring-sleep", ring, Some(thread), None, "");
                        return self.sleep_until_polled(thread);
                    }
                    TrySleep::Running => {}
                    TrySleep::Stale | TrySleep::Refused(_) => return self.sleep_until_polled(thread),
                },
                Idle::Refused(_) => return self.sleep_until_polled(thread),
            }
        }
    }

    /// Whether `thread` is the one that polls `ring`: not its owner, and no second.
    fn may_poll(&mut self, thread: usize, ring: usize) -> bool {
        let one = &self.rings[ring];
        let other = one.poller.filter(|poller| *poller != thread);
        let taken = other.is_some_and(|poller| self.threads[poller].home.is_some());
        let allowed = self.workload.rings[ring].sqpoll && one.owner != thread && !taken;
        if allowed {
            self.rings[ring].poller = Some(thread);
        } else {
            self.threads[thread].stats.refusals += 1;
            self.log_ring("ring-refuse", ring, Some(thread), None, "not-the-poller");
        }
        allowed
    }

    /// A poller with nothing to poll waits to be woken, and then takes the step again.
    fn sleep_until_polled(&mut self, thread: usize) -> Done {
        self.begin_wait(thread);
        match self.block(thread, WaitKind::Ring, None) {
            // It must not wait on what was lent to it, and going round would take no time.
            Done::Next => Done::Stay(Progress::Exit),
            blocked @ Done::Stay(_) => {
                self.threads[thread].pc -= 1;
                blocked
            }
        }
    }

    /// The owner offers its ring and the poller takes over, if the ring's lease allows it; whether it did.
    fn start_polling(&mut self, thread: usize, ring: usize) -> bool {
        let Some(accounting) = self.poller_account(thread, ring) else { return false };
        let spin = self.workload.rings[ring].idle_spin;
        let one = &mut self.rings[ring];
        if one.closed {
            return false;
        }
        let (sq, _, sqpoll) = one.endpoint.parts();
        let Ok(owner) = sq.acquire(SqOwner::Syscall) else { return false };
        let requested = sqpoll.request_start(sq, &owner, SqpollGrant { accounting, spin });
        let released = sq.release(owner);
        if requested != StartRequest::Requested || released.is_err() {
            return false;
        }
        let StartFinish::Running(lease) = sqpoll.finish_start(sq) else {
            let _rolled_back = sqpoll.fail_start(sq);
            return false;
        };
        one.sq_lease = Some(lease);
        self.log_ring("ring-start", ring, Some(thread), None, "");
        if let Some((cpu, _)) = self.place_of(thread) {
            self.ask_at_end_of_event(cpu);
        }
        true
    }

    /// Who pays for the poller: whom the ring's lease names, if it has one. `None` while that lease is not live.
    fn poller_account(&self, thread: usize, ring: usize) -> Option<AccountingTarget> {
        let Some(lease) = self.workload.leases.iter().position(|lease| lease.ring == Some(ring)) else {
            return Some(match self.holds(thread) {
                Some(context) => AccountingTarget::SchedulingContext(context.who().id()),
                None => AccountingTarget::SchedulerLedger,
            });
        };
        self.is_lessee(lease, thread).then(|| match self.workload.leases[lease].account {
            Account::Ledger => AccountingTarget::SchedulerLedger,
            Account::Context(context) => {
                let grant = self.grants.named(self.workload, context).start;
                AccountingTarget::SchedulingContext(self.grants.list[grant].who.id())
            }
        })
    }

    /// The ring goes back to its owner. What the poller has accepted it finishes.
    pub(super) fn stop_polling(&mut self, ring: usize, reason: StopReason) {
        let one = &mut self.rings[ring];
        let (sq, _, sqpoll) = one.endpoint.parts();
        match sqpoll.request_stop(sq, reason) {
            StopRequest::Refused(_) => return,
            StopRequest::RolledBack => {}
            StopRequest::Stopped | StopRequest::AfterService => {
                let finished = sqpoll.finish_stop(sq);
                debug_assert_eq!(finished, StopFinish::Syscall, "nobody serves between two events");
            }
        }
        one.sq_lease = None;
        let why = match reason {
            StopReason::LeaseRevoked => "lease-ended",
            StopReason::CapReleased => "released",
            StopReason::Teardown => "teardown",
        };
        let poller = self.rings[ring].poller;
        self.log_ring("ring-stop", ring, poller, None, why);
        self.end_spin(ring);
        self.wake_owner(ring);
    }

    /// A poller that waits for its ring may begin now.
    pub(super) fn rouse_poller(&mut self, ring: usize) {
        if let Some(poller) = self.rings[ring].poller
            && self.threads[poller].wait == Some(WaitKind::Ring)
            && self.rings[ring].mode() == RingMode::Syscall
        {
            self.wake_thread(poller, self.acting);
        }
    }

    fn wake_submitter(&mut self, ring: usize) {
        if matches!(self.rings[ring].errand, Errand::Submitting(_)) {
            self.wake_owner(ring);
        }
    }

    /// `thread` has ended: its rings are torn down, and those that it polled go back to their owners.
    pub(super) fn end_rings_of_thread(&mut self, thread: usize) {
        for ring in 0..self.rings.len() {
            if self.rings[ring].owner == thread && !self.rings[ring].closed {
                self.tear_down(ring);
            } else if self.rings[ring].poller == Some(thread) {
                self.rings[ring].poller = None;
                self.rings[ring].spin = None;
                let Hands { waiting, serving } = std::mem::take(&mut self.rings[ring].by_poller);
                let left = serving.into_iter().chain(waiting);
                // What it accepted is still owed: the owner serves it when it enters next.
                self.rings[ring].by_owner.waiting.extend(left);
                self.stop_polling(ring, StopReason::Teardown);
            }
        }
    }

    fn tear_down(&mut self, ring: usize) {
        self.check_conserved(ring);
        self.rings[ring].errand = Errand::None;
        self.stop_polling(ring, StopReason::Teardown);
        let one = &mut self.rings[ring];
        let hands = [std::mem::take(&mut one.by_owner), std::mem::take(&mut one.by_poller)];
        for (entry, place) in
            hands.into_iter().flat_map(|hands| hands.serving.into_iter().chain(hands.waiting))
        {
            let failed = CapCqe::failed(entry.v1.user_data, CompletionStatus::Failed, CapError::RingClosed);
            self.post(ring, place, &failed);
        }
        let one = &mut self.rings[ring];
        let _revoked = one.endpoint.tear_down();
        one.closed = true;
    }

    /// Every entry that was submitted and not reaped is somewhere, and nothing else is.
    fn check_conserved(&mut self, ring: usize) {
        let one = &mut self.rings[ring];
        let queued = one.submitter.in_queue().map_or(0, u64::from);
        let held = (one.by_owner.len() + one.by_poller.len()) as u64;
        let there = queued + held + u64::from(one.unread());
        let owed = one.outstanding.len() as u64;
        if there != owed {
            let what = format!(
                "ring `{}`: {owed} entries are owed, {queued} are queued, {held} in hand and the rest completed: \
                 {there} in all",
                self.ring_name(ring)
            );
            self.trouble.get_or_insert(RunError::Violation { at: self.now, cpu: 0, what });
        }
    }

    fn ring_name(&self, ring: usize) -> &str {
        &self.workload.rings[ring].name
    }

    fn log_ring(
        &mut self,
        kind: &str,
        ring: usize,
        thread: Option<usize>,
        count: Option<u64>,
        reason: &'static str,
    ) {
        self.log(kind, |machine, event| {
            event.ring = Some(machine.ring_name(ring).to_owned());
            event.thread = thread.map(|thread| machine.thread_name(thread));
            event.cpu = thread.and_then(|thread| machine.place_of(thread)).map(|(cpu, _)| cpu as u32);
            event.count = count;
            event.reason = (!reason.is_empty()).then(|| reason.to_owned());
        });
    }

    /// Time charged for pollers: what they served and what they spun.
    pub(super) fn poller_busy_ns(&self) -> u64 {
        self.rings.iter().map(|ring| ring.charged_ns).sum()
    }

    pub(super) fn poller_sleeps(&self) -> u64 {
        let sleeps = |ring: &Ring| ring.report.sleeps + ring.endpoint.sqpoll().counters().sleeps;
        self.rings.iter().map(sleeps).sum()
    }

    pub(super) fn entries_expired(&self) -> u64 {
        self.rings.iter().map(|ring| ring.report.dropped).sum()
    }

    pub(super) fn ring_reports(&mut self) -> Result<Vec<RingReport>, RunError> {
        for ring in 0..self.rings.len() {
            if !self.rings[ring].closed {
                self.check_conserved(ring);
            }
        }
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        let report = |ring: &Ring| {
            let (sqpoll, mut report) = (ring.endpoint.sqpoll(), ring.report.clone());
            report.overflow += ring.endpoint.sq().held_back();
            report.sleeps += sqpoll.counters().sleeps;
            report.mode = match (sqpoll.mode(), sqpoll.poller()) {
                (RingMode::Syscall, _) => "syscall",
                (RingMode::SqpollStarting, _) => "sqpoll-starting",
                (RingMode::Sqpoll, PollerState::Sleeping) => "sqpoll-sleeping",
                (RingMode::Sqpoll, _) => "sqpoll-running",
                (RingMode::SqpollStopping, _) => "sqpoll-stopping",
            }
            .to_owned();
            report
        };
        Ok(self.rings.iter().map(report).collect())
    }
}
