//! What leases need of a machine besides its CPUs.

use super::Isolation;
use crate::contexts::at_home;
use crate::machine::Machine;
use mainspring_abi::{CpuId, CpuSet, Nanos, ThreadRef};
use mainspring_sched::lease::{AccountingTarget, EndReason, Endpoint, LeaseRef, TargetStanding};
use mainspring_sched::nohz::{Obstacle, RemoteSlot, RingFacts};
use mainspring_sched::{Affinity, Authority, NetworkNeed};

/// A ring, in the machine's own numbering.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RingId(pub u32);

/// Everything besides the run queue for which a CPU may need its tick. There is no default: a machine says each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TickDuties {
    /// Freeing, cleaning up or a flush waits to be done on this CPU.
    pub deferred_work: bool,
    /// Timers that belong to no CPU are kept on this one.
    pub global_timers: bool,
    /// A worker of the machine that is bound to no CPU is on this one.
    pub unbound_worker: bool,
    /// A watchdog counts this CPU's ticks.
    pub watchdog: bool,
    /// What the network needs of this CPU.
    pub network: NetworkNeed,
    /// An interrupt that cannot be moved is routed to this CPU.
    pub fixed_interrupt: bool,
    /// Network polls and device interrupts are served by housekeeping CPUs only.
    pub devices_on_housekeeping: bool,
    /// Time does not depend on the tick.
    pub stable_clock: bool,
    /// CPU time is charged at boundaries and from counters.
    pub boundary_accounting: bool,
    /// Other CPUs can interrupt this one.
    pub interruptible: bool,
    /// The timer can tick again when asked.
    pub periodic_timer: bool,
    /// The timer can be programmed for one interrupt.
    pub oneshot_timer: bool,
    /// The shortest time for which the timer can be programmed.
    pub min_delta: Nanos,
}

/// What the owner of a lease hears when it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseNotice {
    /// Which lease. Its generation is stale.
    pub lease: LeaseRef,
    /// Why it ended.
    pub reason: EndReason,
    /// When.
    pub at: Nanos,
}

/// Something happened to a lease. Nothing depends on whether the machine listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseEvent {
    /// It was granted, in place of another perhaps.
    Granted {
        /// Which.
        lease: LeaseRef,
        /// The lease that it replaces.
        replaces: Option<LeaseRef>,
    },
    /// A thread that may run nowhere else stays on a leased CPU.
    BoundHere {
        /// Which lease.
        lease: LeaseRef,
        /// The thread that stays.
        thread: ThreadRef,
    },
    /// It ended.
    Ended {
        /// Which.
        lease: LeaseRef,
        /// Why.
        reason: EndReason,
    },
    /// Its CPU stopped ticking.
    TickStopped {
        /// Which lease.
        lease: LeaseRef,
        /// The CPU.
        cpu: CpuId,
        /// When the one-shot comes.
        wake_at: Nanos,
        /// A thread on another CPU asked for it.
        remote: bool,
    },
    /// Its CPU keeps ticking, for another reason than last time.
    TickKept {
        /// Which lease.
        lease: LeaseRef,
        /// The CPU.
        cpu: CpuId,
        /// Why.
        why: Obstacle,
    },
    /// Its CPU could not be asked: an earlier request is still in its slot.
    SlotOccupied {
        /// Which lease.
        lease: LeaseRef,
        /// The thread that asked.
        caller: ThreadRef,
    },
    /// Its CPU ticks again.
    TickRestored {
        /// Which lease.
        lease: LeaseRef,
        /// The CPU.
        cpu: CpuId,
        /// For how long it did not tick.
        length: Nanos,
        /// How many ticks were spared.
        suppressed: u64,
        /// Why.
        reason: &'static str,
    },
}

/// A machine that leases its CPUs.
pub trait LeaseMachine: Machine {
    /// Whether a thread that sleeps can be taken to another CPU: it is ready there, looks for what it waits for, and goes on
    /// waiting. Where a wake ends a wait, a sleeper stays until it wakes.
    const MOVES_SLEEPERS: bool = false;

    /// How many threads of a leased CPU are looked at in one go. A machine that may not be uninterruptible for long takes a
    /// few: [`Leases::attend`](super::Leases::attend) goes on with the next ones each time that it is called.
    const LOOKED_AT_ONCE: u32 = u32::MAX;

    /// The present time.
    fn now(&self) -> Nanos;

    /// Exclusive access to what every CPU reads of the leases. No CPU is accessed within `act`.
    fn with_isolation<R>(&mut self, act: impl FnOnce(&mut Isolation) -> R) -> R;

    /// Exclusive access to the slot in which other CPUs leave what they ask of `cpu`. No CPU is accessed within `act`.
    fn with_remote_slot<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut RemoteSlot) -> R) -> R;

    /// Where `thread` may run if no lease decides.
    fn own_affinity(&self, thread: ThreadRef) -> Affinity;

    /// Whether no lease decides where `thread` runs: it cannot be moved any more.
    fn stays(&self, _thread: ThreadRef) -> bool {
        false
    }

    /// An affinity of these CPUs, or `None` if there is no memory for one.
    fn affinity_of(&mut self, cpus: CpuSet) -> Option<Affinity>;

    /// The CPU on which the scheduling context of `thread` is spent, if it has one or will start on one. A context that is lent is
    /// spent where it was lent, and comes back there.
    fn context_home(&mut self, thread: ThreadRef) -> Option<CpuId> {
        at_home(self, thread, |access, seat| {
            let entity = access.cpu().entity(seat).ok()?;
            (*entity.authority() != Authority::BestEffort).then_some(access.cpu().id())
        })?
    }

    /// For what `cpu` may need its tick at this moment.
    fn tick_duties(&mut self, cpu: CpuId) -> TickDuties;

    /// Whether `target` can be charged.
    fn target_standing(&self, target: AccountingTarget) -> TargetStanding;

    /// What can be seen of `ring` without waiting for it.
    fn ring_facts(&mut self, ring: RingId) -> RingFacts;

    /// The running thread of `cpu`, which is [`Machine::this_cpu`], stops with all that it needs to go on elsewhere:
    /// [`Cpu::block_current`](mainspring_sched::Cpu::block_current) without a timeout, and what the machine adds. Whether a
    /// thread ran. It is moved next, and the machine chooses another when [`Leases::attend`](super::Leases::attend) returns.
    fn stop_current(&mut self, cpu: CpuId) -> bool;

    /// Whether `cpu` is leased has changed. A machine that ranks its CPUs for placement ranks this one again.
    fn leased_changed(&mut self, cpu: CpuId);

    /// Posts `notice` where the owner of a lease wants to hear of its end.
    fn post_lease_notice(&mut self, endpoint: Endpoint, notice: LeaseNotice);

    /// Something happened to a lease.
    fn lease_event(&mut self, event: LeaseEvent);
}
