//! Rings that a thread of the workload polls: the shipped ring code over memory of the process, between the thread that owns a ring
//! and the thread that serves it.
//!
//! Conserved:
//! * an entry that was submitted is in the submission queue, accepted by one thread, in the completion queue, or reaped;
//! * an entry that was accepted is completed, even if the thread that accepted it ends: its owner serves it then;
//! * a poller sleeps only after it has announced that, with the ring locked, so a producer sees the announcement or is seen;
//! * a thread that others may end has a ring locked only while it holds [`QUIET`].

mod steps;

use crate::QUIET;
use crate::leases::persist;
use crate::plan::plan;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_abi::plan::{Note, ring_mode};
use mainspring_abi::ring::{CapCqe, CapError, CapSqeV2, CompletionStatus, RingAbi};
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_driver::sqpoll::{Poller, PollerStep, Stepped};
use mainspring_program::Batch;
use mainspring_ring::deadline::{self, AtDispatch, Budget, MethodTraits, Previous, Verdict};
use mainspring_ring::order::{OrderPolicy, service_order};
use mainspring_ring::{
    AccountingTarget, CqPlace, Endpoint, Geometry, HeapRegion, Next, PollerState, Push, Reap, Reaper,
    RingMode, SQES_PER_PASS, SqOwner, SqpollGrant, StopReason, Submitter, Wakeup,
};
use mainspring_user::{arch, caps};
use spin::Mutex;

type Memory = Arc<HeapRegion>;

/// The poller of a ring that no thread has polled yet.
const NOBODY: ThreadRef = ThreadRef::new(u32::MAX, u32::MAX);
/// Rounds that a poller spins between two looks.
const LOOK: u64 = 500;

/// What the workload says of a ring that threads poll.
#[derive(Clone, Copy)]
pub struct Terms {
    /// Whether it may be polled.
    pub sqpoll: bool,
    pub entries: u32,
    /// What serving one entry takes.
    pub cost: u64,
    /// Among how many the earliest deadline goes first; 0 for the order of submission.
    pub window: u64,
    /// How long an idle poller spins.
    pub spin: u64,
}

/// Entries that one thread has accepted.
#[derive(Default)]
struct Accepted {
    waiting: VecDeque<(CapSqeV2, CqPlace)>,
    serving: Option<(CapSqeV2, CqPlace)>,
}

impl Accepted {
    fn take(&mut self) -> Vec<(CapSqeV2, CqPlace)> {
        let Self { waiting, serving } = core::mem::take(self);
        serving.into_iter().chain(waiting).collect()
    }
}

/// What is told of a ring at the end.
#[derive(Clone, Copy, Default)]
struct Counts {
    submitted: u64,
    completed: u64,
    dropped: u64,
    late: u64,
    wakeups: u64,
    sleeps: u64,
    overflow: u64,
    busy_ns: u64,
    spins_ns: u64,
    charged_ns: u64,
}

struct Inside {
    endpoint: Endpoint<Memory>,
    submitter: Submitter<Memory>,
    reaper: Reaper<Memory>,
    polling: Poller,
    /// The instance that polls.
    poller: Option<usize>,
    by_owner: Accepted,
    by_poller: Accepted,
    /// The owner waits until so many completions can be reaped; 0 if it does not.
    awaited: u32,
    /// The owner waits for room among the submissions.
    waits_for_room: bool,
    /// Its owner has ended: no thread consumes any more.
    closed: bool,
    issued: u64,
    counts: Counts,
}

/// A ring of the workload that threads poll.
pub struct Polled {
    terms: Terms,
    inside: Mutex<Inside>,
    /// Grows with each publication, so that a poller that spins need not lock the ring.
    published: AtomicU32,
    /// Grow when the owner, or a poller, is to look again.
    owner_bell: AtomicU32,
    poller_bell: AtomicU32,
}

/// A fresh ring with room for twice as many completions as submissions. `None` if a ring cannot have this size.
fn memory(entries: u32) -> Option<(Endpoint<Memory>, Submitter<Memory>, Reaper<Memory>)> {
    let geometry = Geometry::new(RingAbi::V2, entries, 2 * entries).ok()?;
    let region = Arc::new(HeapRegion::new(&geometry));
    geometry.format(&region).ok()?;
    let endpoint = Endpoint::attach(region.clone()).ok()?;
    Some((endpoint, Submitter::new(region.clone(), geometry), Reaper::new(region, geometry)))
}

fn ring_bell(bell: &AtomicU32) {
    bell.fetch_add(1, Ordering::Release);
    // Nobody waits, or finds the word changed.
    let _woken = persist(|| caps::unpark(bell.as_ptr() as u64, u32::MAX));
}

/// Waits until `bell` is not `seen` any more, or until `until`.
fn wait(bell: &AtomicU32, seen: u32, until: Option<u64>) -> Result<(), CapError> {
    while bell.load(Ordering::Acquire) == seen {
        persist(|| caps::park(bell.as_ptr() as u64, seen, until.unwrap_or(0)))?;
    }
    Ok(())
}

impl Inside {
    fn mode(&self) -> RingMode {
        self.endpoint.sqpoll().mode()
    }

    fn accepted(&mut self, by_owner: bool) -> &mut Accepted {
        if by_owner { &mut self.by_owner } else { &mut self.by_poller }
    }

    /// Posts a completion. Whether the owner is to be woken, since that is all that it waited for.
    fn post(&mut self, place: CqPlace, entry: &CapCqe) -> bool {
        self.counts.completed += 1;
        match entry.status() {
            Ok(CompletionStatus::NotStartedLate) => self.counts.dropped += 1,
            Ok(CompletionStatus::CompletedLate) => self.counts.late += 1,
            _ => {}
        }
        let _asked = self.endpoint.complete(place, entry);
        self.awaited > 0 && self.reaper.available().unwrap_or(0) >= self.awaited
    }

    /// Without a poller the owner takes its own entries; how many.
    fn take_own(&mut self) -> u32 {
        self.submitter.publish_for_caller();
        let Self { endpoint, by_owner, .. } = self;
        let (sq, cq, _) = endpoint.parts();
        let Ok(lease) = sq.acquire(SqOwner::Syscall) else { return 0 };
        let mut taken = 0;
        if let Ok(mut service) = sq.begin(&lease, sq.geometry().sq_entries()) {
            while let Next::Accepted(entry, place) = service.next(cq) {
                by_owner.waiting.push_back((entry, place));
                taken += 1;
            }
            let _kept = service.finish();
        }
        let _released = sq.release(lease);
        taken
    }

    /// The poller has used `spent` until `now`, which its account is charged with.
    fn charge(&mut self, now: u64, spent: u64) {
        let (_, _, sqpoll) = self.endpoint.parts();
        let charged = sqpoll.charge(Nanos::new(now.saturating_sub(spent)), Nanos::new(now));
        self.counts.charged_ns += charged.elapsed.get();
    }

    /// What the poller has just accepted stands in the order of service from now on.
    fn put_in_order(&mut self, terms: Terms) {
        let policy = OrderPolicy::ByDeadline { window: terms.window as usize };
        let batch: Vec<_> =
            self.by_poller.waiting.iter().map(|(entry, _)| (*entry, terms.method())).collect();
        let order = service_order(policy, self.mode(), &batch);
        let mut accepted: Vec<Option<_>> = self.by_poller.waiting.drain(..).map(Some).collect();
        self.by_poller.waiting.extend(order.iter().filter_map(|index| accepted[index].take()));
    }
}

impl Terms {
    /// What the requests of the ring are allowed.
    fn method(self) -> MethodTraits {
        MethodTraits { realtime_safe: true, reorder_safe: self.window > 0 }
    }
}

/// What a step of the owner comes to.
enum OwnerStep {
    Done,
    Again,
    Refused,
    TimedOut,
    Wait,
}

impl Polled {
    /// `None` if a ring cannot have this size.
    pub fn new(terms: Terms) -> Option<Self> {
        let (endpoint, submitter, reaper) = memory(terms.entries)?;
        let inside = Inside {
            endpoint,
            submitter,
            reaper,
            polling: Poller::new(NOBODY),
            poller: None,
            by_owner: Accepted::default(),
            by_poller: Accepted::default(),
            awaited: 0,
            waits_for_room: false,
            closed: false,
            issued: 0,
            counts: Counts::default(),
        };
        let [published, owner_bell, poller_bell] = [const { AtomicU32::new(0) }; 3];
        Some(Self { terms, inside: Mutex::new(inside), published, owner_bell, poller_bell })
    }

    fn with<R>(&self, act: impl FnOnce(&mut Inside) -> R) -> R {
        let _quiet = QUIET.lock();
        act(&mut self.inside.lock())
    }

    /// The poller looks again, if it waits for a lease.
    pub fn rouse_poller(&self) {
        ring_bell(&self.poller_bell);
    }

    /// Whether a producer or reaper found that the poller sleeps and has to be woken.
    fn must_wake(&self, inside: &mut Inside, needed: Wakeup) -> bool {
        self.published.fetch_add(1, Ordering::Release);
        if needed != Wakeup::Needed {
            return false;
        }
        inside.submitter.ring_doorbell();
        if inside.polling.wake(&mut inside.endpoint).is_some() {
            inside.counts.wakeups += 1;
        }
        true
    }

    /// The ring goes back to its owner. What the poller has accepted it finishes.
    pub fn stop_polling(&self) {
        self.with(|inside| stop(inside, StopReason::LeaseRevoked));
        self.both_look();
    }

    fn both_look(&self) {
        self.published.fetch_add(1, Ordering::Release);
        ring_bell(&self.owner_bell);
        ring_bell(&self.poller_bell);
    }

    /// An instance has ended: if it `owns` the ring, the ring is torn down; if it polled, the ring goes back to its owner. The caller
    /// holds [`QUIET`].
    pub fn ended(&self, instance: usize, owns: bool) {
        let mut inside = self.inside.lock();
        if owns && !inside.closed {
            stop(&mut inside, StopReason::Teardown);
            let accepted: Vec<_> =
                inside.by_owner.take().into_iter().chain(inside.by_poller.take()).collect();
            for (entry, place) in accepted {
                let failed =
                    CapCqe::failed(entry.v1.user_data, CompletionStatus::Failed, CapError::RingClosed);
                inside.post(place, &failed);
            }
            let _revoked = inside.endpoint.tear_down();
            (inside.closed, inside.awaited, inside.waits_for_room) = (true, 0, false);
        } else if inside.poller == Some(instance) {
            inside.poller = None;
            let left = inside.by_poller.take();
            inside.by_owner.waiting.extend(left);
            stop(&mut inside, StopReason::Teardown);
        } else {
            return;
        }
        drop(inside);
        self.both_look();
    }

    /// Whether `instance` may poll: it does not own the ring, and no other that lives polls.
    fn may_poll(&self, instance: usize, owner: usize, slot: u32) -> bool {
        self.with(|inside| {
            let lives =
                |other: usize| !plan().instances[other].lives.load(Ordering::Acquire).is_multiple_of(2);
            let other = inside.poller.filter(|poller| *poller != instance);
            let allowed = self.terms.sqpoll && owner != instance && !other.is_some_and(lives);
            if allowed && inside.poller != Some(instance) {
                inside.poller = Some(instance);
                inside.polling = Poller::new(ThreadRef::new(slot, 0));
            }
            allowed
        })
    }

    /// One turn of the poller, which may take the ring over if it `may_start`.
    fn step(&self, may_start: bool) -> PollerStep {
        let mut owner_waits = false;
        let next = self.with(|inside| {
            if !may_start {
                stop(inside, StopReason::LeaseRevoked);
                owner_waits = true;
                return PollerStep::NotPolling;
            }
            if inside.mode() != RingMode::Sqpoll {
                let grant = SqpollGrant {
                    accounting: AccountingTarget::SchedulerLedger,
                    spin: Nanos::new(self.terms.spin),
                };
                if inside.closed || inside.polling.start(&mut inside.endpoint, grant).is_err() {
                    return PollerStep::NotPolling;
                }
            }
            let limit = SQES_PER_PASS.max(self.terms.window as u32);
            let Inside { endpoint, polling, by_poller, .. } = inside;
            let accept = |entry, place| by_poller.waiting.push_back((entry, place));
            let Stepped { next, held_back } = polling.step(endpoint, Nanos::new(caps::now()), limit, accept);
            let serves = matches!(next, PollerStep::Serve { .. });
            if serves && self.terms.window > 0 {
                inside.put_in_order(self.terms);
            }
            // There is room again, or the owner has to make some.
            owner_waits = inside.waits_for_room && (held_back || serves);
            next
        });
        if owner_waits {
            ring_bell(&self.owner_bell);
        }
        next
    }

    /// Looks at the ring until something comes or `until`.
    fn spin(&self, until: u64) {
        let (seen, began) = (self.published.load(Ordering::Acquire), caps::now());
        let empty = self.with(|inside| inside.submitter.in_queue().is_ok_and(|queued| queued == 0));
        while empty && self.published.load(Ordering::Acquire) == seen && caps::now() < until {
            arch::spin(LOOK);
        }
        let now = caps::now();
        self.with(|inside| {
            inside.counts.spins_ns += now - began;
            inside.charge(now, now - began);
        });
    }

    /// Serves one entry that the owner, or the poller, has accepted; whether there was one.
    fn serve_next(&self, by_owner: bool, compute: impl FnOnce(u64)) -> bool {
        let mut owner_waits = false;
        let entry = self.with(|inside| {
            loop {
                let (entry, place) = inside.accepted(by_owner).waiting.pop_front()?;
                let at = AtDispatch {
                    now: Nanos::new(caps::now()),
                    method: self.terms.method(),
                    budget: Budget::Available,
                    previous: Previous::Completed,
                };
                match deadline::at_dispatch(&entry, 0, &at) {
                    Verdict::Run { .. } => {
                        inside.accepted(by_owner).serving = Some((entry, place));
                        return Some(entry);
                    }
                    Verdict::Refuse(status, error) => {
                        owner_waits |= inside.post(place, &deadline::refused(&entry, status, error));
                    }
                }
            }
        });
        if let Some(entry) = entry {
            let began = caps::now();
            compute(self.terms.cost);
            let now = caps::now();
            self.with(|inside| {
                // Torn down meanwhile, the entry has been answered.
                if let Some((_, place)) = inside.accepted(by_owner).serving.take() {
                    inside.counts.busy_ns += self.terms.cost;
                    if !by_owner {
                        inside.charge(now, now - began);
                    }
                    let completion = deadline::at_completion(&entry, Nanos::new(now), Ok(0));
                    owner_waits |= inside.post(place, &completion);
                }
            });
        }
        if owner_waits && !by_owner {
            ring_bell(&self.owner_bell);
        }
        entry.is_some()
    }

    /// Writes entries as long as there is room; `left` are to be written.
    fn submit_some(&self, left: &mut u32, batch: &Batch) -> OwnerStep {
        let mut wake = false;
        let step = self.with(|inside| {
            if inside.closed {
                let Some((endpoint, submitter, reaper)) = memory(self.terms.entries) else {
                    return OwnerStep::Refused;
                };
                inside.counts.overflow += inside.endpoint.sq().held_back();
                inside.counts.sleeps += inside.endpoint.sqpoll().counters().sleeps;
                (inside.endpoint, inside.submitter, inside.reaper) = (endpoint, submitter, reaper);
                inside.closed = false;
                wake = true;
            }
            let (before, now) = (*left, Nanos::new(caps::now()));
            while *left > 0
                && inside.submitter.push(&batch.entry(inside.issued, now, self.terms.window > 0))
                    == Push::Queued
            {
                inside.issued += 1;
                inside.counts.submitted += 1;
                *left -= 1;
            }
            if *left != before {
                let needed = inside.submitter.publish();
                wake |= self.must_wake(inside, needed);
            }
            if inside.mode() == RingMode::Syscall && inside.take_own() > 0 {
                return OwnerStep::Again;
            }
            if *left == 0 {
                return OwnerStep::Done;
            }
            let room = inside.endpoint.cq().room().is_ok_and(|room| room > 0);
            if inside.mode() == RingMode::Syscall || !room {
                // Only this thread could make room, by reaping.
                return OwnerStep::Refused;
            }
            inside.waits_for_room = true;
            OwnerStep::Wait
        });
        if wake {
            ring_bell(&self.poller_bell);
        }
        step
    }

    /// Takes completions, of which `left` are missing; it has waited for them long enough if it is `late`.
    fn reap_some(&self, left: &mut u32, late: bool) -> OwnerStep {
        let mut wake = false;
        let step = self.with(|inside| {
            while *left > 0 && matches!(inside.reaper.reap(), Reap::Completion(_)) {
                *left -= 1;
            }
            let needed = inside.reaper.publish();
            wake = self.must_wake(inside, needed);
            if *left == 0 {
                return OwnerStep::Done;
            }
            if inside.mode() == RingMode::Syscall && inside.take_own() > 0 {
                return OwnerStep::Again;
            }
            if late {
                return OwnerStep::TimedOut;
            }
            let _announced = inside.reaper.prepare_wait();
            inside.awaited = *left;
            OwnerStep::Wait
        });
        if wake {
            ring_bell(&self.poller_bell);
        }
        step
    }

    /// Tells what became of the entries of ring `number`.
    pub fn tell(&self, number: u32) {
        let (counts, mode) = self.with(|inside| {
            let sqpoll = inside.endpoint.sqpoll();
            let mut counts = inside.counts;
            counts.sleeps += sqpoll.counters().sleeps;
            counts.overflow += inside.endpoint.sq().held_back();
            let mode = match (sqpoll.mode(), sqpoll.poller()) {
                (RingMode::Syscall, _) => ring_mode::SYSCALL,
                (RingMode::Sqpoll, PollerState::Sleeping) => ring_mode::SLEEPING,
                _ => ring_mode::RUNNING,
            };
            (counts, mode)
        });
        let Counts { submitted, completed, dropped, late, wakeups, .. } = counts;
        let polled = mode != ring_mode::SYSCALL;
        crate::tell(Note::Ring { ring: number, polled, submitted, completed, dropped, late, wakeups });
        let Counts { sleeps, overflow, busy_ns, spins_ns, charged_ns, .. } = counts;
        crate::tell(Note::Polled { ring: number, mode, sleeps, overflow, busy_ns, spins_ns, charged_ns });
    }
}

fn stop(inside: &mut Inside, reason: StopReason) {
    // Nobody serves outside the lock, so it has stopped then, or nobody polled.
    let _stopped = inside.polling.stop(&mut inside.endpoint, reason);
}
