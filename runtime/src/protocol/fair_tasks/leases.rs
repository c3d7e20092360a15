//! Workers that one task has to itself: [`mainspring_driver::leases`] over the cores of a runtime, and the sessions that own
//! leases and contexts.
//!
//! Conserved: what the driver conserves. The leases are behind the lock of the table of contexts, which is taken before that of
//! any core. What every core reads of them is behind a small lock that is taken last, and is asked only while a lease decides
//! where anybody may run. A worker looks at the leases before it chooses a thread, so a thread that has to leave is moved from
//! its own worker after its stack has been left.

use super::FairTasks;
use super::contexts::Aftermath;
use super::machine::Seen;
use crate::protocol::prim::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos, ProcessId, ThreadRef};
use mainspring_driver::Machine;
use mainspring_driver::contexts::Logout;
use mainspring_driver::leases::{self as driver, GrantRefusal, GrantRequest, Isolation, Leases};
use mainspring_driver::sessions::{SessionError, SessionRef};
use mainspring_sched::Affinity;
use mainspring_sched::lease::{
    AccountingTarget, EndReason, LeaseRef, LeaseRequest, Limits, Mode, ModeSet, NamedRing, NotLive, Owner,
    RevocationPolicy, SessionId,
};

/// What a thread has besides what its core knows.
#[derive(Clone, Debug)]
struct Facts {
    /// Where it may run if no lease decides.
    affinity: Affinity,
    /// It has started, and stays where it has: no lease decides any more.
    stays: bool,
    session: Option<SessionRef>,
}

/// What every core reads of the leases, and what is known of threads.
pub(super) struct Isolated {
    isolation: Mutex<Isolation>,
    /// A lease decides where some thread may run.
    any: AtomicBool,
    /// When the next lifetime is over.
    expires_at: AtomicU64,
    threads: Mutex<Vec<Facts>>,
}

/// A lease that a task or the host asks for.
#[derive(Clone, Copy, Debug)]
pub struct LeaseWish {
    /// The thread that gets the workers to itself.
    pub lessee: usize,
    /// The workers.
    pub workers: CpuSet,
    /// What for.
    pub mode: Mode,
    /// Whose it is: it ends with this process.
    pub process: u32,
    /// It ends with this session.
    pub session: Option<SessionRef>,
    /// The context that pays, if not best effort.
    pub pays: Option<ContextRef>,
    /// How long a revocation may take.
    pub max_revocation: Nanos,
    /// How long it lasts; zero for until it is taken back.
    pub lifetime: Nanos,
    /// The lease that it takes the place of.
    pub replaces: Option<LeaseRef>,
}

/// A lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseEnd {
    /// Which.
    pub lease: LeaseRef,
    /// Why.
    pub reason: EndReason,
    /// When.
    pub at: Nanos,
}

impl Isolated {
    /// `None` if there is no memory for it.
    pub(super) fn new(workers: usize, threads: usize, leases: usize) -> Option<Box<Self>> {
        let facts = Facts { affinity: Affinity::Any, stays: false, session: None };
        Some(Box::new(Self {
            isolation: Mutex::new(Isolation::new(workers, leases).ok()?),
            any: AtomicBool::new(false),
            expires_at: AtomicU64::new(u64::MAX),
            threads: Mutex::new(vec![facts; threads]),
        }))
    }

    fn facts(&self) -> MutexGuard<'_, Vec<Facts>> {
        self.threads.lock().expect("no panic while it is held")
    }

    /// When the next lifetime is over.
    fn next_end(&self) -> Nanos {
        // Relaxed: written by the operation that made the lease, after which its worker is told.
        Nanos::new(self.expires_at.load(Ordering::Relaxed))
    }

    pub(super) fn with_isolation<R>(&self, act: impl FnOnce(&mut Isolation) -> R) -> R {
        let mut isolation = self.isolation.lock().expect("no panic while it is held");
        let result = act(&mut isolation);
        // Relaxed: a worker that has to look because of it is told, and reads this after it was told.
        self.any.store(isolation.any(), Ordering::Relaxed);
        result
    }

    pub(super) fn affinity(&self, thread: ThreadRef) -> Affinity {
        let facts = self.facts();
        facts.get(thread.index() as usize).map_or(Affinity::Any, |facts| facts.affinity.clone())
    }

    pub(super) fn stays(&self, thread: ThreadRef) -> bool {
        self.facts().get(thread.index() as usize).is_some_and(|facts| facts.stays)
    }

    pub(super) fn session(&self, thread: ThreadRef) -> Option<SessionRef> {
        self.facts().get(thread.index() as usize)?.session
    }
}

/// All leases of a runtime with so many workers. `None` if there is no memory for them.
pub(super) fn leases(workers: usize, capacity: usize) -> Option<Leases> {
    let online = CpuSet::first(workers);
    let modes = ModeSet::DEFAULT.with(Mode::UserspacePoller).with(Mode::KernelWorker);
    // Timers and sockets are served by any worker, so by one that is not leased.
    let limits = Limits { capacity, modes, devices_on_housekeeping: true, ..Limits::default() };
    Leases::new(online, online, limits).ok()
}

impl FairTasks {
    /// Whether a lease decides where some thread may run.
    pub(super) fn any_lease(&self) -> bool {
        // Relaxed: see `Isolated::with_isolation`.
        self.isolated.as_ref().is_some_and(|isolated| isolated.any.load(Ordering::Relaxed))
    }

    /// Whether a task has `worker` to itself.
    pub(super) fn is_leased(&self, worker: CpuId) -> bool {
        self.any_lease()
            && self
                .isolated
                .as_ref()
                .is_some_and(|isolated| isolated.with_isolation(|isolation| isolation.is_leased(worker)))
    }

    /// Whether `worker` takes threads of others: a leased one does not.
    pub(super) fn takes_others(&self, worker: usize, may_steal: bool) -> bool {
        may_steal && !self.is_leased(self.cores[worker].id)
    }

    /// The workers that a task has to itself each.
    pub fn leased_workers(&self) -> CpuSet {
        let leased = |isolated: &Isolated| isolated.with_isolation(|isolation| *isolation.leased());
        self.isolated.as_ref().map_or(CpuSet::EMPTY, |isolated| leased(isolated))
    }

    /// A thread is about to be admitted: where it may run by itself, and in which session. Where the leases of this moment let
    /// it run.
    pub(super) fn note_thread(
        &self,
        thread: ThreadRef,
        own: Affinity,
        session: Option<SessionRef>,
    ) -> Affinity {
        let Some(isolated) = &self.isolated else { return own };
        isolated.facts()[thread.index() as usize] = Facts { affinity: own.clone(), stays: false, session };
        if !self.any_lease() {
            return own;
        }
        isolated.with_isolation(|isolation| isolation.binding(thread).cloned()).unwrap_or(own)
    }

    /// From now on a thread may run there only, whatever leases there are.
    pub(super) fn note_stays(&self, thread: usize, affinity: &Affinity) {
        if let Some(isolated) = &self.isolated {
            let facts = &mut isolated.facts()[thread];
            (facts.affinity, facts.stays) = (affinity.clone(), true);
        }
    }

    /// Whether the thread that runs on a worker stops because of a lease: the worker was told something, or a lifetime is over.
    pub(super) fn stops_for_lease(&self, told: bool, now: Nanos) -> bool {
        self.any_lease()
            && (told || self.isolated.as_ref().is_some_and(|isolated| now >= isolated.next_end()))
    }

    /// When the next lifetime of a lease is over.
    pub(super) fn next_lease_end(&self) -> Nanos {
        self.isolated.as_ref().map_or(Nanos::MAX, |isolated| isolated.next_end())
    }

    pub(super) fn with_leases<R>(
        &self,
        here: Option<usize>,
        now: Nanos,
        act: impl FnOnce(&mut Leases, &mut Seen<'_>) -> R,
    ) -> Option<(R, Aftermath)> {
        let isolated = self.isolated.as_ref()?;
        let mut table = self.table()?;
        // The clock was read before the lock was had: a lease would begin before the one ended that it follows.
        let now = now.max(table.leases_at);
        table.leases_at = now;
        let leases = table.leases.as_mut()?;
        let mut machine = self.seen_from(here, now);
        let result = act(leases, &mut machine);
        isolated.expires_at.store(leases.next_expiry().get(), Ordering::Relaxed);
        Some((result, machine.aftermath()))
    }

    /// Grants a lease, or refuses. `None` if this runtime has none.
    pub fn grant_lease(
        &self,
        wish: &LeaseWish,
        now: Nanos,
    ) -> Option<(Result<LeaseRef, GrantRefusal>, Aftermath)> {
        let target = match wish.pays {
            None => AccountingTarget::Ledger,
            Some(who) => self.table()?.name(who).into(),
        };
        let standing = self.table()?.contexts.standing(target);
        let cpus: Vec<u8> = wish.workers.bytes().collect();
        let polls = wish.mode == Mode::KernelSqpoll;
        let asked = GrantRequest {
            request: LeaseRequest {
                owner: Owner {
                    process: ProcessId::new(wish.process),
                    session: wish.session.map(|session| SessionId(session.id())),
                    service: None,
                },
                cpus: &cpus,
                housekeeping_exclusions: &[],
                mode: wish.mode,
                ring: if polls { NamedRing::CallerThread } else { NamedRing::None },
                allow_irqs: false,
                target,
                max_revocation_latency: wish.max_revocation,
                revocation: RevocationPolicy::Silent,
                lifetime: wish.lifetime,
                replaces: wish.replaces,
            },
            lessee: self.name(wish.lessee),
            caller: None,
            ring: None,
            // The tick is the host's.
            tickless: false,
            allow_busy_spin: polls || wish.mode == Mode::UserspacePoller,
        };
        self.with_leases(None, now, |leases, machine| {
            machine.payer = standing;
            let granted = leases.grant(machine, &asked);
            if let (Ok(_), Some(worker)) = (&granted, wish.workers.iter().next()) {
                // One that sleeps plans again: it ends the lease when its lifetime is over.
                let _told = machine.notify_cpu(worker);
            }
            granted
        })
    }

    /// Takes a lease back.
    pub fn revoke_lease(&self, lease: LeaseRef, now: Nanos) -> Option<(Result<(), NotLive>, Aftermath)> {
        self.with_leases(None, now, |leases, machine| leases.revoke(machine, lease))
    }

    /// The owner of a lease gives it up, or is done with one that has ended.
    pub fn release_lease(&self, lease: LeaseRef, now: Nanos) -> Option<(Result<(), NotLive>, Aftermath)> {
        self.with_leases(None, now, |leases, machine| leases.release(machine, lease))
    }

    /// A process has ended, and its leases with it.
    pub fn end_leases_of_process(&self, process: u32, now: Nanos) -> Aftermath {
        let ended = self.with_leases(None, now, |leases, machine| {
            leases.end_leases_of_process(machine, ProcessId::new(process));
        });
        ended.map_or_else(Aftermath::default, |((), aftermath)| aftermath)
    }

    /// `worker` is about to choose a thread: those that have to leave it because of a lease do, and leases whose lifetime is over
    /// end.
    pub fn attend_leases(&self, worker: usize, now: Nanos) -> Aftermath {
        if !self.any_lease() {
            return Aftermath::default();
        }
        let id = self.cores[worker].id;
        let attended = self.with_leases(Some(worker), now, |leases, machine| {
            leases.expire(machine);
            // The worker chooses a thread next, whether one was moved or not.
            let _attended = leases.attend(machine, id);
        });
        attended.map_or_else(Aftermath::default, |((), aftermath)| aftermath)
    }

    /// A thread has ended, and the lease that it had with it.
    pub(super) fn end_lease_of(&self, thread: ThreadRef, now: Nanos) -> Aftermath {
        if !self.any_lease() {
            return Aftermath::default();
        }
        let ended = self.with_leases(None, now, |leases, machine| leases.thread_exited(machine, thread));
        ended.map_or_else(Aftermath::default, |((), aftermath)| aftermath)
    }

    /// Opens a session. `None` if this runtime has none.
    pub fn open_session(&self) -> Option<Result<SessionRef, SessionError>> {
        self.isolated.as_ref()?;
        Some(self.table()?.contexts.sessions.open())
    }

    /// A session ends: the contexts of its threads are revoked, but for those on loan, which end when they come back; and its
    /// leases end.
    pub fn logout(
        &self,
        session: SessionRef,
        now: Nanos,
    ) -> Option<(Result<Logout, SessionError>, Aftermath)> {
        self.isolated.as_ref()?;
        self.with_table(None, now, |table, machine| {
            let logout = table.contexts.logout(machine, session);
            table.close_orphans();
            if let Some(leases) = &mut table.leases {
                leases.end_leases_of_session(machine, SessionId(session.id()));
            }
            logout
        })
    }
}

/// Whether a lease wants `thread`, whose wait is over, to wake on another worker: it does then. A thread with a context stays
/// where its context is spent.
pub(super) fn wakes_elsewhere(machine: &mut Seen<'_>, thread: ThreadRef) -> bool {
    machine.is_best_effort(thread) && driver::wakes_elsewhere(machine, thread)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::protocol::fair_tasks::{FairTaskSettings, TimeLimits};

    #[test]
    fn a_lease_lasts_from_when_the_one_before_it_has_ended_also_if_its_clock_was_read_earlier() {
        let settings = FairTaskSettings { threads: 4, leases: 2, ..FairTaskSettings::default() };
        let tasks = FairTasks::new(2, &settings, TimeLimits::NONE).expect("a few bytes");
        let ms = Nanos::from_millis;
        let wish = |lifetime| LeaseWish {
            lessee: 0,
            workers: CpuId::new(1).into_iter().collect(),
            mode: Mode::Compute,
            process: 0,
            session: None,
            pays: None,
            max_revocation: ms(1),
            lifetime,
            replaces: None,
        };
        let grant = |lifetime, now| {
            let (granted, _) = tasks.grant_lease(&wish(lifetime), now).expect("it has leases");
            granted.expect("the worker is free")
        };
        let first = grant(Nanos::ZERO, ms(1));
        let (revoked, _) = tasks.revoke_lease(first, ms(30)).expect("it has leases");
        assert_eq!(revoked, Ok(()));
        let second = grant(ms(20), ms(10));
        assert_eq!(tasks.attend_leases(1, ms(49)).lease_ends, [], "it lasts from 30 ms on");
        let ends = tasks.attend_leases(1, ms(50)).lease_ends;
        assert_eq!(ends, [LeaseEnd { lease: second, reason: EndReason::Expired, at: ms(50) }]);
    }
}
