//! CPUs to oneself, over all CPUs of a machine: grant, placement, ticks, and every way in which a lease ends.
//!
//! [`mainspring_sched::lease`] decides which owner may have which CPU, and [`mainspring_sched::nohz`] when one CPU may do
//! without a tick. What has to happen on the CPUs because of that is here: `grant` (and what is refused), `endings` (revoke,
//! release, exit, service replaced, logout, expiry), `placement` (the lessee comes, others leave and stay away), `tickless`
//! (the tick stops and comes back), `preflight` (what stands in its way).
//!
//! Conserved:
//! * a CPU is in at most one live lease, and at least one housekeeping CPU is in none;
//! * a lease is in `live` exactly while the registry calls it live, but for what the operation in progress still has to end;
//! * when a lease ends, its generation goes stale first, then its CPU's record is cleared and its request withdrawn, and then
//!   its CPU is told. So its CPU ticks again before it does anything else, at the latest one revocation latency later;
//! * from the next interrupt of a leased CPU on only its lessee runs there, or a thread that may run nowhere else.
//!
//! A machine with a lock per CPU guards [`Leases`] by one lock, which is taken before any CPU's. The handler of an interrupt
//! only tries to take it: [`recheck_without_leases`] is for when another CPU has it, and
//! [`on_contention`](mainspring_sched::nohz::on_contention) for when another CPU has this CPU's own lock.

mod endings;
mod grant;
mod isolation;
mod machine;
mod placement;
mod preflight;
mod tickless;

pub(crate) use grant::CpuGrant;
pub use grant::{Activate, GrantRefusal, GrantRequest, LeasedRing};
pub use isolation::{Isolation, Lessee};
pub use machine::{LeaseEvent, LeaseMachine, LeaseNotice, RingId, TickDuties};
pub use placement::{affinity, destination, moves_on, wakes_elsewhere};
pub use preflight::LeasePreflight;
pub use tickless::{Attended, recheck_without_leases};

use alloc::boxed::Box;
use alloc::vec::Vec;
use mainspring_abi::{CpuId, CpuSet, Nanos, ProcessId, ThreadRef};
use mainspring_sched::lease::{Info, LeaseRef, Limits, NotLive, Registry};
use mainspring_sched::nohz::{Eligibility, Obstacle};
use mainspring_sched::{Affinity, NoRoom};
use tickless::Window;

/// All leases of a machine. Allocates in [`Leases::new`] only; the mask that binds a lessee is the machine's
/// ([`LeaseMachine::affinity_of`]).
#[derive(Debug)]
pub struct Leases {
    registry: Registry,
    online: CpuSet,
    live: Vec<LiveLease>,
    /// The CPUs that have stopped ticking for a lease, by CPU. A window outlives its lease until its CPU has heard of the end.
    windows: Box<[Option<Window>]>,
}

/// A lease as long as it lives.
#[derive(Debug)]
struct LiveLease {
    lease: LeaseRef,
    lessee: ThreadRef,
    cpus: CpuSet,
    ring: Option<LeasedRing>,
    /// What it may claim of its CPU.
    eligibility: Eligibility,
    /// Whether it asks for its CPU without a tick.
    tickless: bool,
    /// Why its CPU kept ticking when it was last asked.
    obstacle: Option<Obstacle>,
}

impl Leases {
    /// No leases yet. `housekeeping` are the CPUs that may do the machine's own work as long as they are not leased, `online`
    /// those that run.
    pub fn new(online: CpuSet, housekeeping: CpuSet, limits: Limits) -> Result<Self, NoRoom> {
        let mut live = Vec::new();
        // A lease and its replacement are both here until the first has been rolled back.
        live.try_reserve_exact(limits.capacity.saturating_mul(2))?;
        let mut windows = Vec::new();
        let cpus = online.last().map_or(0, |last| last.index() + 1);
        windows.try_reserve_exact(cpus)?;
        windows.resize_with(cpus, || None);
        Ok(Self {
            registry: Registry::new(housekeeping, limits)?,
            online,
            live,
            windows: windows.into_boxed_slice(),
        })
    }

    /// What `lease` says.
    pub fn info(&mut self, now: Nanos, lease: LeaseRef) -> Result<&Info, NotLive> {
        self.registry.info(now, lease)
    }

    /// The thread that has the CPUs of `lease` to itself.
    #[must_use]
    pub fn lessee(&self, lease: LeaseRef) -> Option<ThreadRef> {
        self.live.iter().find(|live| live.lease == lease).map(|live| live.lessee)
    }

    /// The live lease that `thread` has.
    #[must_use]
    pub fn lease_of(&self, thread: ThreadRef) -> Option<LeaseRef> {
        self.live.iter().find(|live| live.lessee == thread).map(|live| live.lease)
    }

    /// The CPU that has no tick because of `lease`, since when, and how many ticks the CPU had spared before.
    #[must_use]
    pub fn tickless_since(&self, lease: LeaseRef) -> Option<(CpuId, Nanos, u64)> {
        let mut windows = self.windows.iter().enumerate();
        let (index, window) = windows.find_map(|(index, window)| {
            window.as_ref().filter(|window| window.lease == lease).map(|window| (index, window))
        })?;
        Some((CpuId::new(index).ok()?, window.since, window.suppressed))
    }

    /// Why the CPU of `lease` kept ticking when it was last asked.
    #[must_use]
    pub fn obstacle(&self, lease: LeaseRef) -> Option<Obstacle> {
        self.live.iter().find(|live| live.lease == lease)?.obstacle
    }

    /// The CPUs that do the machine's own work: online, in the housekeeping set, and in no lease.
    #[must_use]
    pub fn housekeepers(&self) -> CpuSet {
        self.registry.housekeepers(&self.online)
    }

    /// Where a piece of the machine's own work that arose on `from` is to be done.
    #[must_use]
    pub fn home_for_housekeeping(&self, from: CpuId) -> Option<CpuId> {
        self.registry.home_for_housekeeping(from, &self.online)
    }

    /// When the next lifetime is over; [`Nanos::MAX`] if none will be.
    #[must_use]
    pub fn next_expiry(&self) -> Nanos {
        self.registry.next_expiry()
    }

    /// How many leases `process` has, those included that have ended and were not released.
    #[must_use]
    pub fn held_by(&self, process: ProcessId) -> usize {
        self.registry.held_by(process)
    }

    /// How many leases are live.
    #[must_use]
    pub fn live_count(&self) -> usize {
        self.registry.live_count()
    }

    fn position(&self, lease: LeaseRef) -> Option<usize> {
        self.live.iter().position(|live| live.lease == lease)
    }
}

/// Whether `affinity` lets a thread run on any of `cpus`, and on which.
fn allowed(affinity: &Affinity, cpus: &CpuSet) -> CpuSet {
    match affinity {
        Affinity::Any => *cpus,
        Affinity::Only(own) => cpus.and(own),
    }
}
