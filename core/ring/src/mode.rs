//! Which thread drives a ring: its owner, or a poller. Two state machines that move together.
//!
//! ```text
//! mode     Syscall --request_start--> SqpollStarting --finish_start--> Sqpoll --request_stop--> SqpollStopping
//!             ^                            |                                                        |
//!             +--------fail_start----------+                             Syscall <---finish_stop----+
//!
//! poller   Disabled -> Starting -> Running <-> IdleSpinning -> Sleeping -> (wake) Running
//!                                     any of these -> Stopping -> Disabled
//! ```
//!
//! A refused transition changes nothing and says in which state it was refused. The right to consume is the ownership
//! word's business (`owner.rs`): from `request_start` until `finish_stop` or `fail_start` that word admits no owner but
//! a poller, so whatever a mode says, the head has one consumer.

use crate::complete::Completer;
use crate::consume::SubmissionQueue;
use crate::owner::{Revoked, SqLease, SqOwner, SqRefusal};
use crate::pass::ServicePass;
use crate::region::Region;
use crate::wake::{Sleep, Ticket};
use mainspring_abi::Nanos;

/// Whose ring it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RingScope {
    /// One thread's: it alone submits and enters.
    #[default]
    Thread,
    /// All threads of a process submit to it. It is never polled: a poller's entries are its owner's, and such a ring has none.
    Process,
}

/// Which thread drains the submission queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RingMode {
    /// The ring's thread, in `cap_enter`.
    Syscall,
    /// Its owner has asked for a poller, which has not taken over yet.
    SqpollStarting,
    /// The poller.
    Sqpoll,
    /// The poller has been asked to stop, and may still be finishing what it accepted.
    SqpollStopping,
}

/// What the poller does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PollerState {
    /// There is none.
    Disabled,
    /// It was asked for.
    Starting,
    /// It serves.
    Running,
    /// It found nothing, and looks again for a while.
    IdleSpinning,
    /// It announced that it sleeps.
    Sleeping,
    /// It was asked to stop.
    Stopping,
}

/// What pays for the poller's time. The lease itself grants none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccountingTarget {
    /// This scheduling context.
    SchedulingContext(u32),
    /// The scheduler's own coarse ledger.
    SchedulerLedger,
}

/// Time to be charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "time that nobody is charged for is stolen"]
pub struct Charge {
    /// The target that is charged.
    pub target: AccountingTarget,
    /// How much.
    pub elapsed: Nanos,
}

/// What a poller is granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SqpollGrant {
    /// The target that pays.
    pub accounting: AccountingTarget,
    /// How long it looks again before it sleeps.
    pub spin: Nanos,
}

/// What the poller has done since the ring began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SqpollCounters {
    /// Nanoseconds charged.
    pub busy_ns: u64,
    /// How often it went to sleep.
    pub sleeps: u64,
    /// How often it was woken.
    pub wakes: u64,
    /// How often it finished a start.
    pub starts: u64,
    /// How often it stopped or a start was rolled back.
    pub rollbacks: u64,
}

/// What asking for a poller did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a request can be refused"]
pub enum StartRequest {
    /// Asked for. Release the lease, so that the poller can finish the start.
    Requested,
    /// The caller does not own the queue as its syscall owner.
    NotOwner(SqRefusal),
    /// The ring is not in syscall mode.
    Refused(RingMode),
    /// The ring is shared by a process. Only a thread's own ring can be polled: give each thread its own.
    SharedRing,
}

/// What finishing a start did.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "it may hold the poller's lease"]
pub enum StartFinish {
    /// The poller runs, with this lease.
    Running(SqLease),
    /// The syscall owner has not released yet; try again.
    OwnerNotGone(SqRefusal),
    /// Nothing was starting.
    Refused(RingMode),
}

/// What finding nothing did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a poller that idles must know when to stop looking"]
pub enum Idle {
    /// Look again until then.
    Spin {
        /// When to sleep.
        until: Nanos,
    },
    /// It has looked long enough: sleep.
    SleepNow,
    /// The poller is in no state to idle.
    Refused(PollerState),
}

/// What trying to sleep did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "sleeping without asking loses wakeups"]
pub enum TrySleep {
    /// It sleeps: park on the doorbell with this ticket.
    Asleep(Ticket),
    /// Something came meanwhile; it runs.
    Running,
    /// Its lease has ended.
    Stale,
    /// It was not idle.
    Refused(PollerState),
}

/// What a wake did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a wake of a stopped poller leads nowhere"]
pub enum Wake {
    /// It slept, and runs now.
    Running,
    /// It was awake already.
    WasAwake,
    /// There is no poller to wake, or it stops.
    Refused(PollerState),
}

/// Why a poller ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StopReason {
    /// The CPU lease was revoked.
    LeaseRevoked,
    /// The capability was released.
    CapReleased,
    /// The thread or process ends.
    Teardown,
}

/// What asking the poller to stop did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "until the stop is finished the ring is the poller's"]
pub enum StopRequest {
    /// No consumer is serving: finish the stop at once.
    Stopped,
    /// A consumer is serving: finish the stop after it.
    AfterService,
    /// The start that was going on is rolled back; the ring is in syscall mode.
    RolledBack,
    /// There is no poller.
    Refused(RingMode),
}

/// What finishing a stop did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the ring may not be in syscall mode yet"]
pub enum StopFinish {
    /// The ring is in syscall mode.
    Syscall,
    /// A consumer is still serving; try again after it.
    StillServing,
    /// No stop was asked for.
    Refused(RingMode),
}

/// One ring's mode and its poller's state.
#[derive(Debug)]
pub struct Sqpoll {
    scope: RingScope,
    mode: RingMode,
    poller: PollerState,
    grant: SqpollGrant,
    idle_since: Nanos,
    last_pass: Option<ServicePass>,
    last_stop: Option<StopReason>,
    counters: SqpollCounters,
}

impl Default for Sqpoll {
    fn default() -> Self {
        Self {
            scope: RingScope::Thread,
            mode: RingMode::Syscall,
            poller: PollerState::Disabled,
            grant: SqpollGrant { accounting: AccountingTarget::SchedulerLedger, spin: Nanos::ZERO },
            idle_since: Nanos::ZERO,
            last_pass: None,
            last_stop: None,
            counters: SqpollCounters::default(),
        }
    }
}

impl Sqpoll {
    /// Of a ring of this scope, in syscall mode.
    #[must_use]
    pub fn new(scope: RingScope) -> Self {
        Self { scope, ..Self::default() }
    }

    /// Which thread drains.
    #[must_use]
    pub fn mode(&self) -> RingMode {
        self.mode
    }

    /// What the poller does.
    #[must_use]
    pub fn poller(&self) -> PollerState {
        self.poller
    }

    /// What it has done.
    #[must_use]
    pub fn counters(&self) -> SqpollCounters {
        self.counters
    }

    /// Why it last stopped.
    #[must_use]
    pub fn last_stop(&self) -> Option<StopReason> {
        self.last_stop
    }

    /// The syscall owner asks for a poller, while it still owns the queue.
    pub fn request_start<R: Region>(
        &mut self,
        sq: &SubmissionQueue<R>,
        lease: &SqLease,
        grant: SqpollGrant,
    ) -> StartRequest {
        if self.scope != RingScope::Thread {
            return StartRequest::SharedRing;
        }
        if self.mode != RingMode::Syscall {
            return StartRequest::Refused(self.mode);
        }
        if let Err(refusal) = sq.offer_to_poller(lease) {
            return StartRequest::NotOwner(refusal);
        }
        self.mode = RingMode::SqpollStarting;
        self.poller = PollerState::Starting;
        self.grant = grant;
        StartRequest::Requested
    }

    /// The poller takes over, once the syscall owner has let go.
    pub fn finish_start<R: Region>(&mut self, sq: &SubmissionQueue<R>) -> StartFinish {
        if self.mode != RingMode::SqpollStarting {
            return StartFinish::Refused(self.mode);
        }
        match sq.acquire(SqOwner::Sqpoll) {
            Ok(lease) => {
                self.mode = RingMode::Sqpoll;
                self.poller = PollerState::Running;
                self.counters.starts += 1;
                StartFinish::Running(lease)
            }
            Err(refusal) => StartFinish::OwnerNotGone(refusal),
        }
    }

    /// The poller could not start; the ring goes back to syscall mode. Whether there was a start to roll back.
    #[must_use]
    pub fn fail_start<R: Region>(&mut self, sq: &SubmissionQueue<R>) -> bool {
        if self.mode != RingMode::SqpollStarting {
            return false;
        }
        self.back_to_syscall(sq);
        true
    }

    /// Whether the poller may be served in `pass`: at most once in each.
    #[must_use]
    pub fn select(&mut self, pass: ServicePass) -> bool {
        let fresh = self.last_pass != Some(pass);
        self.last_pass = Some(pass);
        fresh && self.mode == RingMode::Sqpoll
    }

    /// The poller found something.
    pub fn found_work(&mut self) {
        if self.poller == PollerState::IdleSpinning {
            self.poller = PollerState::Running;
        }
    }

    /// The poller found nothing at `now`.
    pub fn found_nothing(&mut self, now: Nanos) -> Idle {
        match self.poller {
            PollerState::Running => {
                self.poller = PollerState::IdleSpinning;
                self.idle_since = now;
            }
            PollerState::IdleSpinning => {}
            other => return Idle::Refused(other),
        }
        let until = self.idle_since + self.grant.spin;
        if now >= until { Idle::SleepNow } else { Idle::Spin { until } }
    }

    /// The idle poller goes to sleep, unless something came.
    pub fn try_sleep<R: Region>(
        &mut self,
        sq: &SubmissionQueue<R>,
        lease: &SqLease,
        cq: &mut Completer<R>,
    ) -> TrySleep {
        if self.poller != PollerState::IdleSpinning {
            return TrySleep::Refused(self.poller);
        }
        match sq.prepare_sleep(lease, cq) {
            Ok(Sleep::Park(ticket)) => {
                self.poller = PollerState::Sleeping;
                self.counters.sleeps += 1;
                TrySleep::Asleep(ticket)
            }
            Ok(Sleep::WorkPending) => {
                self.poller = PollerState::Running;
                TrySleep::Running
            }
            Err(_) => TrySleep::Stale,
        }
    }

    /// A producer, or another caller, wants the poller awake.
    pub fn wake<R: Region>(&mut self, sq: &SubmissionQueue<R>) -> Wake {
        match self.poller {
            PollerState::Sleeping => {
                sq.awake();
                self.poller = PollerState::Running;
                self.counters.wakes += 1;
                Wake::Running
            }
            PollerState::Running | PollerState::IdleSpinning => Wake::WasAwake,
            other => Wake::Refused(other),
        }
    }

    /// Asks the poller to stop. It stops between two requests; what it has accepted it finishes.
    pub fn request_stop<R: Region>(&mut self, sq: &SubmissionQueue<R>, reason: StopReason) -> StopRequest {
        match self.mode {
            RingMode::Syscall | RingMode::SqpollStopping => return StopRequest::Refused(self.mode),
            RingMode::SqpollStarting => {
                self.last_stop = Some(reason);
                self.back_to_syscall(sq);
                return StopRequest::RolledBack;
            }
            RingMode::Sqpoll => {}
        }
        self.last_stop = Some(reason);
        self.mode = RingMode::SqpollStopping;
        self.poller = PollerState::Stopping;
        match sq.revoke() {
            Revoked::AfterService => StopRequest::AfterService,
            Revoked::Now | Revoked::NotOwned => StopRequest::Stopped,
        }
    }

    /// Completes a stop, once no consumer serves.
    pub fn finish_stop<R: Region>(&mut self, sq: &SubmissionQueue<R>) -> StopFinish {
        if self.mode != RingMode::SqpollStopping {
            return StopFinish::Refused(self.mode);
        }
        if sq.owner().is_some() {
            return StopFinish::StillServing;
        }
        self.back_to_syscall(sq);
        StopFinish::Syscall
    }

    /// What the poller's work from `began` to `ended` costs, and which target pays.
    pub fn charge(&mut self, began: Nanos, ended: Nanos) -> Charge {
        let elapsed = ended - began;
        self.counters.busy_ns = self.counters.busy_ns.saturating_add(elapsed.get());
        Charge { target: self.grant.accounting, elapsed }
    }

    fn back_to_syscall<R: Region>(&mut self, sq: &SubmissionQueue<R>) {
        sq.end_polling();
        self.mode = RingMode::Syscall;
        self.poller = PollerState::Disabled;
        self.counters.rollbacks += 1;
    }
}
