//! The poller of a ring: an entity of the scheduler that takes a thread's submissions, so that the thread need not enter the
//! kernel.
//!
//! A poller is no thread of a process. It has a seat on a CPU like every other entity, is charged to the context of its lease, and
//! runs what [`Poller::step`] says: a batch, a look around, or sleep.
//!
//! Conserved:
//! * the head of a submission queue has one consumer. The poller's right to it has a generation, and a stale one takes nothing;
//! * an entry that was accepted is past the head. The server that accepted it completes it, also after
//!   a stop;
//! * a poller sleeps only after it has announced that, and has looked once more: so a producer either sees the announcement or is
//!   seen.

use mainspring_abi::ring::CapSqeV2;
use mainspring_abi::{LatencyClass, Nanos, ProcessId, ThreadRef, Weight};
use mainspring_ring::{
    AccountingTarget, Completer, CqPlace, Endpoint, Idle, Passes, Pollable, Polled, PollerState, Region,
    RingMode, RingParts, SqLease, SqOwner, Sqpoll, SqpollGrant, StartFinish, StartRequest, StopFinish,
    StopReason, StopRequest, SubmissionQueue, TrySleep, Wake,
};
use mainspring_sched::lease::{self, Mode, NamedRing, Terms};
use mainspring_sched::nohz::RingFacts;
use mainspring_sched::{Affinity, Entity, Spec};

/// What a poller has to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum PollerStep {
    /// It has accepted so many entries: carry them out, then step again.
    Serve {
        /// How many.
        requests: u32,
    },
    /// Nothing came: look again until then, then step again. A producer that publishes meanwhile ends this.
    Spin {
        /// Until when.
        until: Nanos,
    },
    /// It has announced that it sleeps: block until [`Poller::wake`].
    Sleep,
    /// It does not poll: block until the ring is started again.
    NotPolling,
}

/// What a step found besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stepped {
    /// What to do next.
    pub next: PollerStep,
    /// Entries wait for room among the completions: the ring's owner has to reap some.
    pub held_back: bool,
}

/// Why a poller was not started. The ring is in syscall mode, or polled by another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotStarted {
    /// Its lease is not for polling a ring of the caller's.
    Lease,
    /// A consumer is serving the queue at the moment.
    Busy,
    /// The ring is shared by a process.
    SharedRing,
    /// The ring is not in syscall mode.
    Mode(RingMode),
}

/// How a poller ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// The ring is in syscall mode.
    Syscall,
    /// A consumer still serves it: call [`Poller::finish_stop`] after that.
    AfterService,
    /// There was none.
    NotPolling,
}

/// The poller of one ring.
#[derive(Debug)]
pub struct Poller {
    thread: ThreadRef,
    consumer: Option<SqLease>,
    passes: Passes,
}

impl Poller {
    /// A poller under this name, which no thread has.
    #[must_use]
    pub fn new(thread: ThreadRef) -> Self {
        Self { thread, consumer: None, passes: Passes::default() }
    }

    /// Its name.
    #[must_use]
    pub fn thread(&self) -> ThreadRef {
        self.thread
    }

    /// What the scheduler has of it: to be started where its lease is, and bound to the lease's context there.
    pub fn entity(&self, process: ProcessId, affinity: Affinity) -> Entity {
        Entity::new(Spec {
            thread: self.thread,
            process,
            weight: Weight::DEFAULT,
            class: LatencyClass::Interactive,
            request: None,
            affinity,
        })
    }

    /// Whether it has the right to consume.
    #[must_use]
    pub fn polls<R: Region>(&self, endpoint: &Endpoint<R>) -> bool {
        self.is_owner(endpoint.sq())
    }

    /// The same of a queue that is kept apart.
    #[must_use]
    pub fn is_owner<R: Region>(&self, sq: &SubmissionQueue<R>) -> bool {
        self.consumer.as_ref().is_some_and(|consumer| sq.holds(consumer))
    }

    /// The target that pays for a poller under a lease: the lease names it. Refused unless the lease is for a poller of its
    /// owner's ring.
    pub fn payer(terms: &Terms) -> Result<AccountingTarget, NotStarted> {
        if terms.mode() != Mode::KernelSqpoll || terms.ring() != NamedRing::CallerThread {
            return Err(NotStarted::Lease);
        }
        Ok(match terms.target() {
            lease::AccountingTarget::Ledger => AccountingTarget::SchedulerLedger,
            lease::AccountingTarget::Context { id, .. } => {
                AccountingTarget::SchedulingContext(u32::try_from(id).map_err(|_| NotStarted::Lease)?)
            }
        })
    }

    /// The owner of the ring offers it and lets go, and the poller takes over. If it cannot, the ring is in syscall mode again.
    pub fn start<R: Region>(
        &mut self,
        ring: &mut impl Pollable<R>,
        grant: SqpollGrant,
    ) -> Result<(), NotStarted> {
        let RingParts { sq, sqpoll, .. } = ring.ring();
        let Ok(owner) = sq.acquire(SqOwner::Syscall) else { return Err(NotStarted::Busy) };
        let requested = sqpoll.request_start(sq, &owner, grant);
        let released = sq.release(owner).is_ok();
        match requested {
            StartRequest::Requested => {}
            StartRequest::NotOwner(_) => return Err(NotStarted::Busy),
            StartRequest::Refused(mode) => return Err(NotStarted::Mode(mode)),
            StartRequest::SharedRing => return Err(NotStarted::SharedRing),
        }
        match sqpoll.finish_start(sq) {
            StartFinish::Running(consumer) if released => {
                self.consumer = Some(consumer);
                Ok(())
            }
            StartFinish::Running(_) | StartFinish::OwnerNotGone(_) | StartFinish::Refused(_) => {
                let _rolled_back = sqpoll.fail_start(sq);
                Err(NotStarted::Busy)
            }
        }
    }

    /// One turn: accepts at most `limit` entries ([`SQES_PER_PASS`](mainspring_ring::SQES_PER_PASS) unless the ring is served by deadline), or says what a
    /// poller does that found none.
    pub fn step<R: Region>(
        &mut self,
        ring: &mut impl Pollable<R>,
        now: Nanos,
        limit: u32,
        mut accept: impl FnMut(CapSqeV2, CqPlace),
    ) -> Stepped {
        let mut held_back = false;
        let Some(consumer) = &self.consumer else {
            return Stepped { next: PollerStep::NotPolling, held_back };
        };
        let mut accept = |entry: CapSqeV2, place: CqPlace, _: &mut Completer<R>| accept(entry, place);
        // What comes while it falls asleep is found by the second look.
        for _ in 0..2 {
            match ring.ring().poll(self.passes.begin(), consumer, limit, &mut accept) {
                Polled::Served { requests } | Polled::Stopped { requests } => {
                    return Stepped { next: PollerStep::Serve { requests }, held_back };
                }
                Polled::HeldBack => held_back = true,
                Polled::Idle | Polled::Fault(_) => {}
                Polled::NotSelected | Polled::Refused(_) => {
                    return Stepped { next: PollerStep::NotPolling, held_back };
                }
            }
            let RingParts { sq, cq, sqpoll } = ring.ring();
            let next = match sqpoll.found_nothing(now) {
                Idle::Spin { until } => PollerStep::Spin { until },
                Idle::SleepNow => match sqpoll.try_sleep(sq, consumer, cq) {
                    TrySleep::Asleep(_ticket) => PollerStep::Sleep,
                    TrySleep::Running => continue,
                    TrySleep::Stale | TrySleep::Refused(_) => PollerStep::NotPolling,
                },
                Idle::Refused(_) => PollerStep::NotPolling,
            };
            return Stepped { next, held_back };
        }
        Stepped { next: PollerStep::Spin { until: now }, held_back }
    }

    /// A producer saw the announcement, or the owner entered. The poller's name if it slept: then its entity is to be woken, as
    /// any other by [`placement::wake`](crate::placement::wake), on a leased CPU too.
    #[must_use = "the poller sleeps until its entity is woken"]
    pub fn wake<R: Region>(&mut self, ring: &mut impl Pollable<R>) -> Option<ThreadRef> {
        let RingParts { sq, sqpoll, .. } = ring.ring();
        (sqpoll.wake(sq) == Wake::Running).then_some(self.thread)
    }

    /// Ends the polling. An accepted entry stays with the server that accepted it.
    pub fn stop<R: Region>(&mut self, ring: &mut impl Pollable<R>, reason: StopReason) -> Stopped {
        let RingParts { sq, sqpoll, .. } = ring.ring();
        match sqpoll.request_stop(sq, reason) {
            StopRequest::Refused(_) => return Stopped::NotPolling,
            StopRequest::RolledBack => {
                self.consumer = None;
                return Stopped::Syscall;
            }
            StopRequest::Stopped | StopRequest::AfterService => {}
        }
        self.consumer = None;
        self.finish_stop(ring)
    }

    /// Completes a stop once no consumer serves.
    pub fn finish_stop<R: Region>(&mut self, ring: &mut impl Pollable<R>) -> Stopped {
        let RingParts { sq, sqpoll, .. } = ring.ring();
        match sqpoll.finish_stop(sq) {
            StopFinish::Syscall => Stopped::Syscall,
            StopFinish::StillServing => Stopped::AfterService,
            StopFinish::Refused(_) => Stopped::NotPolling,
        }
    }

    /// What a lease has to know of the ring. `other_consumer` if another consumer may take submissions, such as a
    /// timer.
    #[must_use]
    pub fn facts<R: Region>(&self, endpoint: &Endpoint<R>, other_consumer: bool) -> RingFacts {
        self.facts_of(endpoint.sq(), endpoint.sqpoll(), other_consumer)
    }

    /// The same of a ring whose parts are kept apart.
    #[must_use]
    pub fn facts_of<R: Region>(
        &self,
        sq: &SubmissionQueue<R>,
        sqpoll: &Sqpoll,
        other_consumer: bool,
    ) -> RingFacts {
        if sqpoll.mode() != RingMode::Sqpoll {
            return RingFacts::NotSqpoll;
        }
        RingFacts::Sqpoll {
            owner_live: self.is_owner(sq),
            spinning: sqpoll.poller() == PollerState::IdleSpinning,
            other_consumer,
        }
    }
}
