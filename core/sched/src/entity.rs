//! A thread as the scheduler sees it.
//!
//! An [`Entity`] is neither `Clone` nor `Copy`: it is the thread's scheduling state, and the holder of the value
//! owns the thread. A CPU holds it while the thread runs, waits or sleeps there; a transfer moves it out of one CPU
//! before it can be given to the next. So a thread has one owner by construction, not by a check.

use crate::account::Account;
use crate::context::Context;
use crate::fair::class_request;
use crate::virtual_time::Lag;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::hint::cold_path;
use mainspring_abi::{ContextRef, CpuId, CpuSet, LatencyClass, Nanos, ProcessId, ThreadRef, Weight};

/// Where a thread may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// On every CPU.
    Any,
    /// On these only. Shared, so that moving the thread copies no set.
    Only(Arc<CpuSet>),
}

impl Affinity {
    /// Whether `cpu` is allowed.
    #[must_use]
    pub fn allows(&self, cpu: CpuId) -> bool {
        match self {
            Self::Any => true,
            Self::Only(cpus) => cpus.contains(cpu),
        }
    }

    /// The allowed CPUs folded onto 64 bits, `None` if all are.
    pub(crate) fn folded(&self) -> Option<u64> {
        match self {
            Self::Any => None,
            Self::Only(cpus) => {
                cold_path();
                Some(cpus.folded())
            }
        }
    }
}

/// The time that a thread runs on.
#[derive(Debug, PartialEq, Eq)]
pub enum Authority {
    /// No context: it has its share of the time that contexts leave.
    BestEffort,
    /// This context, which it holds.
    Context(Box<Context>),
    /// None: it has lent this context, and waits until the context comes back.
    Lent(ContextRef),
}

/// What a thread asks for when it is admitted.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its identity.
    pub thread: ThreadRef,
    /// The process whose quotas it counts against.
    pub process: ProcessId,
    /// Its share.
    pub weight: Weight,
    /// How soon it wants service.
    pub class: LatencyClass,
    /// How much service it asks for at a time; `None` leaves that to the class.
    pub request: Option<Nanos>,
    /// Where it may run.
    pub affinity: Affinity,
}

impl Spec {
    /// A thread like any other: of the first process, with the default share, and at home everywhere.
    #[must_use]
    pub fn new(thread: ThreadRef) -> Self {
        Self {
            thread,
            process: ProcessId::new(0),
            weight: Weight::DEFAULT,
            class: LatencyClass::Normal,
            request: None,
            affinity: Affinity::Any,
        }
    }
}

/// A thread's scheduling state, owned by the holder of the value.
// In this order, what every event needs comes first: see `Occupant`.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "dropping an entity loses its thread"]
#[repr(C)]
pub struct Entity {
    pub(crate) thread: ThreadRef,
    pub(crate) affinity: Affinity,
    /// Service already had of the request in progress.
    pub(crate) used: Nanos,
    pub(crate) last_cpu: Option<CpuId>,
    pub(crate) weight: Weight,
    pub(crate) class: LatencyClass,
    /// Since when it has been ready without running; [`Nanos::MAX`] if it is not.
    pub(crate) runnable_since: Nanos,
    pub(crate) account: Account,
    /// Service owed, while no queue holds the thread.
    pub(crate) lag: Lag,
    pub(crate) authority: Authority,
    pub(crate) request: OwnRequest,
    pub(crate) process: ProcessId,
}

/// What a thread asks for by its own wish, if it has one.
///
/// An [`Option`] but for its spare bits: of all in an entity those would be the most, so that the compiler would mark a
/// vacant seat with them, and every look at a seat would fetch a cache line that no decision needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OwnRequest {
    given: bool,
    length: Nanos,
}

impl OwnRequest {
    pub(crate) fn new(wish: Option<Nanos>) -> Self {
        Self { given: wish.is_some(), length: wish.unwrap_or(Nanos::ZERO) }
    }

    pub(crate) fn get(self) -> Option<Nanos> {
        self.given.then_some(self.length)
    }
}

impl Entity {
    /// A thread that has never run.
    pub fn new(spec: Spec) -> Self {
        Self {
            thread: spec.thread,
            process: spec.process,
            weight: spec.weight,
            class: spec.class,
            request: OwnRequest::new(spec.request),
            affinity: spec.affinity,
            last_cpu: None,
            used: Nanos::ZERO,
            lag: Lag::ZERO,
            runnable_since: Nanos::MAX,
            account: Account::default(),
            authority: Authority::BestEffort,
        }
    }

    /// How much service it asks for at a time; `None` leaves that to its class.
    #[must_use]
    pub fn own_request(&self) -> Option<Nanos> {
        self.request.get()
    }

    /// The service it asks for at a time on a CPU with that quantum. What it has used of a longer request is more
    /// than one of these: the whole ones are behind it.
    pub(crate) fn begin_request(&mut self, quantum: Nanos) -> Nanos {
        let request = self.request.get().unwrap_or_else(|| class_request(self.class, quantum));
        self.used = Nanos::new(self.used.get() % request.get());
        request
    }

    /// It is ready: since now, unless it was already.
    #[inline]
    pub(crate) fn ready_from(&mut self, now: Nanos) {
        self.runnable_since = self.runnable_since.min(now);
    }

    /// The thread that this is the state of.
    #[must_use]
    pub fn thread(&self) -> ThreadRef {
        self.thread
    }

    /// The process whose quotas it counts against.
    #[must_use]
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// Its share, as last set.
    #[must_use]
    pub fn weight(&self) -> Weight {
        self.weight
    }

    /// How soon it wants service.
    #[must_use]
    pub fn class(&self) -> LatencyClass {
        self.class
    }

    /// The time that it runs on.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The context that it holds.
    #[must_use]
    pub fn context(&self) -> Option<&Context> {
        match &self.authority {
            Authority::Context(context) => Some(context),
            Authority::BestEffort | Authority::Lent(_) => None,
        }
    }

    /// The context that it has lent.
    pub(crate) fn has_lent(&self) -> Option<ContextRef> {
        match self.authority {
            Authority::Lent(who) => Some(who),
            Authority::BestEffort | Authority::Context(_) => None,
        }
    }

    /// The context that it holds, for the thread's owner.
    #[inline]
    pub(crate) fn context_mut(&mut self) -> Option<&mut Context> {
        match &mut self.authority {
            Authority::Context(context) => Some(context),
            Authority::BestEffort | Authority::Lent(_) => None,
        }
    }

    /// Takes the context out of a thread that no CPU owns any more; a loan is written off.
    pub fn take_context(&mut self) -> Option<Box<Context>> {
        match core::mem::replace(&mut self.authority, Authority::BestEffort) {
            Authority::Context(context) => Some(context),
            Authority::BestEffort | Authority::Lent(_) => None,
        }
    }

    /// Where it may run.
    #[must_use]
    pub fn affinity(&self) -> &Affinity {
        &self.affinity
    }

    /// Changes where it may run, while no CPU owns it.
    pub fn set_affinity(&mut self, affinity: Affinity) {
        self.affinity = affinity;
    }

    /// What it has used.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The CPU it last ran on.
    #[must_use]
    pub fn last_cpu(&self) -> Option<CpuId> {
        self.last_cpu
    }

    /// Since when it has been ready without running.
    #[must_use]
    pub fn ready_since(&self) -> Option<Nanos> {
        (self.runnable_since != Nanos::MAX).then_some(self.runnable_since)
    }

    /// The service it was owed when it left its last queue.
    #[must_use]
    pub fn lag(&self) -> Lag {
        self.lag
    }
}
