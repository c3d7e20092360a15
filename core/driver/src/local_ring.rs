//! A ring whose two sides are on one machine: the thread that owns it submits and reaps, and serves its own entries while no poller
//! does.
//!
//! Conserved:
//! * an entry that was submitted is in the submission queue, accepted by one server, in the completion queue, or reaped: each
//!   exactly once. [`LocalRing::reap`] and [`LocalRing::check_conserved`] look for what breaks this;
//! * an entry that was accepted is completed, even if the server that accepted it ends: its owner serves it then.

use crate::sqpoll::{Poller, PollerStep, Stepped, Stopped};
use alloc::collections::VecDeque;
use core::fmt;
use mainspring_abi::request::{self, MethodTraits, OrderPolicy, WINDOW_MAX};
use mainspring_abi::ring::{CapCqe, CapError, CapSqeV2, CompletionStatus, RingAbi};
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_ring::deadline::{self, AtDispatch, Budget, Previous, Verdict};
use mainspring_ring::order::may_move;
use mainspring_ring::{
    CqPlace, Endpoint, Geometry, Next, PollerState, Push, Reap, Reaper, Region, RingMode, RingStats,
    SQES_PER_PASS, SqOwner, SqpollGrant, StopReason, Submitter, Wakeup,
};
use mainspring_sched::nohz::RingFacts;

/// The poller of a ring that no thread has polled yet.
const NOBODY: ThreadRef = ThreadRef::new(u32::MAX, u32::MAX);

/// Which thread serves an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// The ring's owner, while there is no poller.
    Owner,
    /// The poller.
    Poller,
}

/// Entries that one server has accepted.
#[derive(Debug)]
struct Accepted {
    waiting: VecDeque<(CapSqeV2, CqPlace)>,
    serving: Option<(CapSqeV2, CqPlace)>,
}

impl Accepted {
    /// Each accepted entry has a place among the completions.
    fn new(geometry: &Geometry) -> Self {
        Self { waiting: VecDeque::with_capacity(geometry.cq_entries() as usize), serving: None }
    }

    fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.serving.is_some())
    }

    fn pop(&mut self) -> Option<(CapSqeV2, CqPlace)> {
        self.serving.take().or_else(|| self.waiting.pop_front())
    }
}

/// A completion that was posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Posted {
    /// Which entry it is of.
    pub entry: u64,
    /// How that ended.
    pub status: Option<CompletionStatus>,
}

/// What a server has to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Service {
    /// It serves an entry: [`LocalRing::finish`] when that is done.
    Begun,
    /// An entry was refused: ask again.
    Refused(Posted),
    /// It has accepted nothing else.
    Nothing,
}

/// What a look at the completions brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reaped {
    /// How many completions were taken.
    pub count: u32,
    /// An entry that had completed before. There must be none.
    pub twice: Option<u64>,
    /// Whether the poller has to know that there is room.
    pub wakeup: Wakeup,
}

/// Entries are missing, or there are more than were submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unbalanced {
    /// Submitted and not reaped.
    pub owed: u64,
    /// In the submission queue.
    pub queued: u64,
    /// Accepted.
    pub held: u64,
    /// In the completion queue.
    pub completed: u64,
}

impl fmt::Display for Unbalanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owed, queued, held, completed } = self;
        let there = queued + held + completed;
        write!(
            f,
            "{owed} entries are owed, {queued} are queued, {held} in hand and the rest completed: {there} in all"
        )
    }
}

impl core::error::Error for Unbalanced {}

/// A ring and its entries, in memory of the kind `R`.
pub struct LocalRing<R: Region + Clone> {
    geometry: Geometry,
    allocate: fn(&Geometry) -> R,
    order: OrderPolicy,
    endpoint: Endpoint<R>,
    submitter: Submitter<R>,
    reaper: Reaper<R>,
    poller: Poller,
    by_owner: Accepted,
    by_poller: Accepted,
    closed: bool,
    issued: u64,
    /// Entries that have not been reaped, in the order of their numbers.
    outstanding: VecDeque<u64>,
    stats: RingStats,
    charged: Nanos,
}

impl<R: Region + Clone> fmt::Debug for LocalRing<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalRing")
            .field("mode", &self.mode())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// Both sides of a ring in fresh memory.
fn sides<R: Region + Clone>(geometry: Geometry, region: R) -> (Endpoint<R>, Submitter<R>, Reaper<R>) {
    let attached = geometry.format(&region).and_then(|()| Endpoint::attach(region.clone()));
    let endpoint = attached.unwrap_or_else(|error| unreachable!("the memory is made for this ring: {error}"));
    (endpoint, Submitter::new(region.clone(), geometry), Reaper::new(region, geometry))
}

impl<R: Region + Clone> LocalRing<R> {
    /// A ring with room for twice as many completions as submissions. `entries` is a power of two from 2 to 4096, and `allocate`
    /// makes zeroed memory for it.
    ///
    /// # Panics
    ///
    /// If no ring can have so many entries.
    #[must_use]
    pub fn new(entries: u32, order: OrderPolicy, allocate: fn(&Geometry) -> R) -> Self {
        let geometry = Geometry::new(RingAbi::V2, entries, 2 * entries);
        let geometry = geometry.unwrap_or_else(|error| panic!("no ring has {entries} entries: {error}"));
        let (endpoint, submitter, reaper) = sides(geometry, allocate(&geometry));
        let room = geometry.sq_entries() + geometry.cq_entries();
        Self {
            geometry,
            allocate,
            order,
            endpoint,
            submitter,
            reaper,
            poller: Poller::new(NOBODY),
            by_owner: Accepted::new(&geometry),
            by_poller: Accepted::new(&geometry),
            closed: false,
            issued: 0,
            outstanding: VecDeque::with_capacity(room as usize),
            stats: RingStats::default(),
            charged: Nanos::ZERO,
        }
    }

    /// Whether its owner or a poller takes submissions.
    #[must_use]
    pub fn mode(&self) -> RingMode {
        self.endpoint.sqpoll().mode()
    }

    /// Whether it was torn down: no thread consumes any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// What its requests are allowed.
    fn method(&self) -> MethodTraits {
        let reorder_safe = matches!(self.order, OrderPolicy::ByDeadline { .. });
        MethodTraits { realtime_safe: true, reorder_safe }
    }

    fn accepted(&mut self, server: Server) -> &mut Accepted {
        match server {
            Server::Owner => &mut self.by_owner,
            Server::Poller => &mut self.by_poller,
        }
    }

    /// How many entries the server has accepted and not completed.
    #[must_use]
    pub fn held_by(&self, server: Server) -> usize {
        match server {
            Server::Owner => self.by_owner.len(),
            Server::Poller => self.by_poller.len(),
        }
    }

    /// How many submissions wait for a server.
    pub fn queued(&mut self) -> u32 {
        self.submitter.in_queue().unwrap_or(0)
    }

    /// How many completions can be reaped.
    pub fn unread(&mut self) -> u32 {
        self.reaper.available().unwrap_or(0)
    }

    /// Whether there is room for another completion.
    pub fn has_room(&mut self) -> bool {
        self.endpoint.cq().room().is_ok_and(|room| room > 0)
    }

    /// Writes at most `entries` as long as there is room; how many. `entry` makes the one with this number.
    pub fn write(&mut self, entries: u32, entry: impl Fn(u64) -> CapSqeV2) -> u32 {
        let mut written = 0;
        while written < entries && self.submitter.push(&entry(self.issued)) == Push::Queued {
            self.outstanding.push_back(self.issued);
            self.issued += 1;
            self.stats.submitted += 1;
            written += 1;
        }
        written
    }

    /// Shows what was written, and whether the poller has to know.
    #[must_use = "a poller that sleeps has to be woken"]
    pub fn publish(&mut self) -> Wakeup {
        self.submitter.publish()
    }

    /// Takes at most `at_most` completions.
    #[must_use = "a poller that waits for room has to be woken"]
    pub fn reap(&mut self, at_most: u32) -> Reaped {
        let (mut count, mut twice) = (0, None);
        while count < at_most {
            let Reap::Completion(entry) = self.reaper.reap() else { break };
            if let Ok(place) = self.outstanding.binary_search(&entry.user_data) {
                let _number = self.outstanding.remove(place);
            } else {
                twice = twice.or(Some(entry.user_data));
            }
            count += 1;
        }
        Reaped { count, twice, wakeup: self.reaper.publish() }
    }

    /// The owner is about to wait for completions.
    pub fn announce_wait(&mut self) {
        let _announced = self.reaper.prepare_wait();
    }

    /// The owner waits no longer.
    pub fn end_wait(&mut self) {
        self.reaper.awake();
    }

    /// Without a poller the owner takes its own entries; how many.
    pub fn take_own(&mut self) -> u32 {
        self.submitter.publish_for_caller();
        let (sq, cq, _) = self.endpoint.parts();
        let Ok(lease) = sq.acquire(SqOwner::Syscall) else { return 0 };
        let mut taken = 0;
        if let Ok(mut service) = sq.begin(&lease, sq.geometry().sq_entries()) {
            while let Next::Accepted(entry, place) = service.next(cq) {
                self.by_owner.waiting.push_back((entry, place));
                taken += 1;
            }
            let _kept = service.finish();
        }
        let released = sq.release(lease);
        debug_assert!(released.is_ok(), "nobody takes it away meanwhile");
        taken
    }

    /// The next entry that the server has accepted: it begins, or is refused because its time is over.
    pub fn begin(&mut self, server: Server, now: Nanos) -> Service {
        let method = self.method();
        let Some((entry, place)) = self.accepted(server).waiting.pop_front() else { return Service::Nothing };
        let at = AtDispatch { now, method, budget: Budget::Available, previous: Previous::Completed };
        match deadline::at_dispatch(&entry, 0, &at) {
            Verdict::Run { .. } => {
                self.accepted(server).serving = Some((entry, place));
                Service::Begun
            }
            Verdict::Refuse(status, error) => {
                Service::Refused(self.post(place, &deadline::refused(&entry, status, error)))
            }
        }
    }

    /// The server has worked for `spent` until `now` on the entry that it began, which is completed. `None` if it serves none, or the
    /// ring was torn down meanwhile.
    pub fn finish(&mut self, server: Server, now: Nanos, spent: Nanos) -> Option<Posted> {
        let (entry, place) = self.accepted(server).serving.take()?;
        self.stats.busy_ns += spent.get();
        if server == Server::Poller {
            self.charge(now, spent);
        }
        Some(self.post(place, &deadline::at_completion(&entry, now, Ok(0))))
    }

    fn post(&mut self, place: CqPlace, entry: &CapCqe) -> Posted {
        let status = entry.status().ok();
        self.stats.completed += 1;
        match status {
            Some(CompletionStatus::NotStartedLate) => self.stats.dropped += 1,
            Some(CompletionStatus::CompletedLate) => self.stats.late += 1,
            _ => {}
        }
        let _asked = self.endpoint.complete(place, entry);
        Posted { entry: entry.user_data, status }
    }

    /// The account of the poller is charged with what it has used until `now`.
    fn charge(&mut self, now: Nanos, spent: Nanos) {
        let (_, _, sqpoll) = self.endpoint.parts();
        self.charged += sqpoll.charge(now - spent, now).elapsed;
    }

    /// The poller has spun for `spun` until `now`.
    pub fn spun(&mut self, now: Nanos, spun: Nanos) {
        self.stats.spins_ns += spun.get();
        self.charge(now, spun);
    }

    /// `thread` is the ring's poller from now on.
    pub fn set_poller(&mut self, thread: ThreadRef) {
        if self.poller.thread() != thread {
            self.poller = Poller::new(thread);
        }
    }

    /// The owner offers the ring and the poller takes over; whether it polls.
    pub fn start_polling(&mut self, grant: SqpollGrant) -> bool {
        !self.closed && self.poller.start(&mut self.endpoint, grant).is_ok()
    }

    /// One turn of the poller, which has completed all that it had accepted.
    pub fn poll(&mut self, now: Nanos) -> Stepped {
        let limit = match self.order {
            OrderPolicy::ByDeadline { window } => SQES_PER_PASS.max(window as u32),
            OrderPolicy::Submission => SQES_PER_PASS,
        };
        let Self { endpoint, poller, by_poller, .. } = self;
        let stepped =
            poller.step(endpoint, now, limit, |entry, place| by_poller.waiting.push_back((entry, place)));
        if matches!(stepped.next, PollerStep::Serve { .. }) {
            self.put_in_order();
        }
        stepped
    }

    /// What the poller has just accepted stands in the order of service from now on.
    fn put_in_order(&mut self) {
        let (mode, method) = (self.mode(), self.method());
        let waiting = &mut self.by_poller.waiting;
        let order = request::service_order(self.order, waiting.len(), |index| {
            let entry = &waiting[index].0;
            may_move(mode, entry, method).then(|| request::urgency(entry.deadline_ns))
        });
        let mut accepted: [_; WINDOW_MAX] = core::array::from_fn(|_| waiting.pop_front());
        let rest = waiting.len();
        waiting.extend(order.iter().filter_map(|index| accepted[index].take()));
        waiting.rotate_left(rest);
    }

    /// A submission or a reaped completion is news to the poller. Its name if it slept: then it is to be woken.
    #[must_use = "the poller sleeps until it is woken"]
    pub fn wake_poller(&mut self) -> Option<ThreadRef> {
        self.submitter.ring_doorbell();
        let poller = self.poller.wake(&mut self.endpoint)?;
        self.stats.wakeups += 1;
        Some(poller)
    }

    /// The ring goes back to its owner; whether it was polled. What the poller has accepted it finishes.
    pub fn stop_polling(&mut self, reason: StopReason) -> bool {
        match self.poller.stop(&mut self.endpoint, reason) {
            Stopped::NotPolling => false,
            Stopped::Syscall => true,
            Stopped::AfterService => {
                debug_assert!(false, "a service begins and ends within one call");
                true
            }
        }
    }

    /// The poller has ended: what it accepted is still owed, and the owner serves it when it looks next.
    pub fn poller_ended(&mut self) {
        while let Some(left) = self.by_poller.pop() {
            self.by_owner.waiting.push_back(left);
        }
    }

    /// The owner has ended: every accepted entry fails, and no thread consumes any more.
    pub fn tear_down(&mut self) {
        for server in [Server::Owner, Server::Poller] {
            while let Some((entry, place)) = self.accepted(server).pop() {
                let failed =
                    CapCqe::failed(entry.v1.user_data, CompletionStatus::Failed, CapError::RingClosed);
                let _posted = self.post(place, &failed);
            }
        }
        let _revoked = self.endpoint.tear_down();
        self.closed = true;
    }

    /// Another life of the owner begins, with fresh memory.
    pub fn open_again(&mut self) {
        self.stats = self.stats();
        (self.endpoint, self.submitter, self.reaper) = sides(self.geometry, (self.allocate)(&self.geometry));
        self.outstanding.clear();
        self.closed = false;
    }

    /// What a lease that is coupled to the ring has to know of it.
    #[must_use]
    pub fn facts(&self) -> RingFacts {
        self.poller.facts(&self.endpoint, false)
    }

    /// What its poller does.
    #[must_use]
    pub fn poller_state(&self) -> PollerState {
        self.endpoint.sqpoll().poller()
    }

    /// What became of its entries.
    #[must_use]
    pub fn stats(&self) -> RingStats {
        RingStats {
            overflow: self.stats.overflow + self.endpoint.sq().held_back(),
            sleeps: self.stats.sleeps + self.endpoint.sqpoll().counters().sleeps,
            ..self.stats
        }
    }

    /// What the poller was charged.
    #[must_use]
    pub fn charged(&self) -> Nanos {
        self.charged
    }

    /// Every entry that was submitted and not reaped is somewhere, and nothing else is.
    pub fn check_conserved(&mut self) -> Result<(), Unbalanced> {
        let (queued, completed) = (self.queued().into(), self.unread().into());
        let held = (self.by_owner.len() + self.by_poller.len()) as u64;
        let owed = self.outstanding.len() as u64;
        match queued + held + completed == owed {
            true => Ok(()),
            false => Err(Unbalanced { owed, queued, held, completed }),
        }
    }
}
