//! Scheduling contexts across CPUs: who holds which, how they move, and what takes them away.
//!
//! A context is a value ([`Context`](mainspring_sched::context::Context)). A CPU enforces the budget of the context that a thread there holds. What no CPU knows is
//! here: which contexts exist, which owner each has, and where it is.
//!
//! # What is conserved
//!
//! * A context is in exactly one [`Location`]: at rest here; with one thread, to which it is bound or lent; in flight here, on its
//!   way to one thread; or gone. Debug builds check this for all contexts after each operation ([`Contexts::verify`]).
//! * A thread that has lent its context is asleep and cannot be woken until the context is back with it or was written off.
//!   It stands on the context's stack of donors, and no thread stands there that has not lent it.
//! * Numbers are given once. A name of an old generation is told so and changes nothing.
//! * What was used stays used: no path gives budget back, except the refills of the context itself. What has not come back when a
//!   context ends, or grants less, is not there for another one before it would have.
//! * A refusal changes nothing.
//!
//! # Locks
//!
//! One lock guards a [`Contexts`] on a machine with several CPUs. It is taken before the lock of any CPU and never after. No
//! operation holds two CPUs at once: a context is taken from one CPU, is in flight here, and is given to the next. Kill, timeout
//! and revoke take the same lock, so they find a context in flight.
//!
//! A thread with a context, or one that has lent it, changes hands only under that lock. The thread's own CPU tells whether this
//! applies to it: [`Entity::authority`](mainspring_sched::Entity::authority) is `BestEffort` if it does not. So a call between
//! threads without contexts needs neither this lock nor this table. A machine follows two rules:
//!
//! * It moves a thread to another CPU without this table only if the thread is best effort.
//! * A thread that is not best effort ends under the lock: the machine takes it off its CPU and gives its entity to
//!   [`Contexts::thread_ended`] before it lets the lock go.
//!
//! # A call
//!
//! ```text
//! caller blocks          cpu.block_current(WaitKind::Call, timeout)          the caller's CPU alone
//! loan                   contexts.lend(machine, caller, server)              Ok(Lent) or NoLoan: then the server runs on its own
//! wake the server        placement::wake(machine, server)                    unless Lent says that it is ready already
//! …
//! the call ends          contexts.end_call(machine, caller, CallEnd::Reply)  the caller has its context back
//! wake the caller        placement::wake(machine, caller)
//! ```
//!
//! Every end of a call goes through [`Contexts::end_call`], whatever its [`CallEnd`], before the caller is woken. A caller
//! that has lent nothing needs no call of it; a wake that is refused with `ContextAway` means that it was forgotten. A timed
//! wait that ends while the context is away does not wake its thread ([`Expired::away`](mainspring_sched::Expired)): the
//! machine ends the call as [`CallEnd::TimedOut`] and wakes the thread then. A server that is about to wait for the next request
//! goes through [`Contexts::about_to_wait`]: it has not answered, and its caller has the context back. Threads that end go through
//! [`Contexts::thread_ended`], which returns what they borrowed and calls in what they lent. [`Contexts::call_directly`] and
//! [`Contexts::reply_directly`] do a call or a reply on one CPU in one go, on a machine without a recorder.

mod binding;
mod check;
mod create;
mod debts;
mod endings;
mod loans;
mod notices;
mod record;
mod transfer;

pub use binding::BindError;
pub use mainspring_authority::admission::Effort;

pub use create::{AdmissionRules, CreateError, Excess, Grant, HomeCpu, share};
pub use endings::{Logout, Revocation, RevokeReason};
pub use loans::{CallEnd, Delivery, Lent, LoanEnd, NoLoan, OnBorrowedTime, may_block};
pub use notices::{Drained, NoticeWait, WaitError};
pub use record::{AdjustError, ContextError, ContextInfo, Location};
pub(crate) use transfer::at_home;
pub use transfer::lent_by;

use crate::debts::Debts;
use crate::ledgers::Ledgers;
use crate::machine::Machine;
use crate::sessions::{SessionRef, Sessions};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use mainspring_abi::{ContextRef, ThreadRef};
use mainspring_sched::Overran;
use record::Record;

/// What a machine with contexts gives beyond [`Machine`]. No CPU is held when these are called; the lock of the [`Contexts`] is.
pub trait ContextMachine: Machine {
    /// A context was used up or missed its deadline at an event that moved it. Throttling has happened already; a fault or the
    /// shutdown of an island is for the machine, after the operation, and so is waking [`Overran::waiter`].
    fn overran(&mut self, overran: Overran);

    /// Something has happened to `context` that `waiter` waited to be told of: see [`Contexts::wait_for_notice`].
    fn wake_waiter(&mut self, context: ContextRef, waiter: ThreadRef);

    /// The session that `thread` runs in.
    fn session_of(&self, thread: ThreadRef) -> Option<SessionRef> {
        let _ = thread;
        None
    }

    /// Something has happened to a context, for a log.
    fn context_moved(&mut self, event: ContextMoved) {
        let _ = event;
    }
}

/// What happened to a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContextMoved {
    /// It is bound to `thread`, which holds it.
    Bound {
        /// Which.
        context: ContextRef,
        /// To whom.
        thread: ThreadRef,
    },
    /// `thread` gave it up.
    Unbound {
        /// Which.
        context: ContextRef,
        /// Who had it.
        thread: ThreadRef,
    },
    /// `from` lent it to `to`, which holds it.
    Lent {
        /// Which.
        context: ContextRef,
        /// The caller.
        from: ThreadRef,
        /// The server.
        to: ThreadRef,
    },
    /// It goes back to `to`, which lent it, from `from` unless it was in flight.
    Returned {
        /// Which.
        context: ContextRef,
        /// Who had it.
        from: Option<ThreadRef>,
        /// Who lent it.
        to: ThreadRef,
        /// The end of the call that brought it back.
        end: CallEnd,
    },
    /// It is at rest: no thread has it, and any authorised thread can bind it.
    AtRest {
        /// Which.
        context: ContextRef,
    },
    /// It was taken away for good, from `from` if a thread had it.
    Revoked {
        /// Which, by the name that it had.
        context: ContextRef,
        /// Who had it.
        from: Option<ThreadRef>,
        /// Why.
        reason: RevokeReason,
    },
}

/// All contexts of a machine, with the sessions and ledgers that they belong to.
#[derive(Debug, Default)]
pub struct Contexts {
    /// In the order of their numbers.
    records: Vec<Record>,
    /// The last number that was given.
    last_id: u32,
    /// How many contexts are in flight.
    in_flight: u32,
    rules: AdmissionRules,
    /// What is owed on each CPU.
    debts: Vec<Debts>,
    /// Login sessions.
    pub sessions: Sessions,
    /// What processes and sessions may hold.
    pub ledgers: Ledgers,
    /// Loans that a logout found in flight and left alone until they come back.
    inflight_skipped: u64,
}

impl Contexts {
    /// No contexts, and room for `capacity` at a time.
    pub fn new(
        capacity: usize,
        rules: AdmissionRules,
        sessions: Sessions,
        ledgers: Ledgers,
    ) -> Result<Self, TryReserveError> {
        let mut records = Vec::new();
        records.try_reserve_exact(capacity)?;
        let debts = debts::none(&rules.cpus)?;
        Ok(Self { records, rules, debts, sessions, ledgers, ..Self::default() })
    }

    /// Loans that logouts found in flight and left alone until they came back, over the machine's life.
    #[must_use]
    pub fn inflight_skipped(&self) -> u64 {
        self.inflight_skipped
    }

    /// How many contexts are in flight between two threads.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether there has never been a context.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The present names of all contexts that are not forgotten, those that are gone included.
    pub fn names(&self) -> impl Iterator<Item = ContextRef> + '_ {
        self.records.iter().map(Record::name)
    }
}
