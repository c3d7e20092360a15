//! What a proof is made from.

use super::eligibility::Claim;
use crate::lease::{AccountingTarget, Standing, TargetStanding};
use mainspring_abi::{CpuId, Nanos, ThreadRef};

/// What the machine says of a CPU and of a claim on it, at the moment. The default is a machine on which nothing
/// stands in the way but that no lease is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conditions {
    /// What the registry of leases says.
    pub lease: Standing,
    /// Whether the lease's accounting target can be charged.
    pub target: TargetStanding,
    /// The target that the running thread is charged to: its scheduling context, or without one the scheduler's
    /// ledger.
    pub payer: AccountingTarget,
    /// The lease's ring.
    pub ring: RingFacts,
    /// A housekeeping CPU that may work for the lease is online.
    pub housekeeping: bool,
    /// Another CPU's queue has work that this one would steal.
    pub sibling_work: bool,
    /// Freeing or cleaning up waits on this CPU.
    pub deferred_cleanup: bool,
    /// Timers that belong to no CPU are kept on this one.
    pub global_timers: bool,
    /// A kernel worker that is bound to no CPU is on this one.
    pub unbound_worker: bool,
    /// The watchdog counts this CPU's ticks.
    pub watchdog: bool,
    /// This CPU's tick polls the network.
    pub network_polling: bool,
    /// An interrupt that cannot be moved comes to this CPU.
    pub fixed_irq: bool,
    /// Network polls and device interrupts are served by housekeeping CPUs only.
    pub devices_on_housekeeping: bool,
    /// Time does not depend on the tick.
    pub stable_clock: bool,
    /// CPU time is charged at boundaries and from counters.
    pub boundary_accounting: bool,
    /// Other CPUs can interrupt this one.
    pub interruptible: bool,
    /// The timer can tick again when asked.
    pub periodic: bool,
    /// The timer can be programmed for one interrupt.
    pub oneshot: bool,
    /// The shortest such.
    pub min_delta: Nanos,
    /// The nearest wakeup that the CPU's own queue does not know of.
    pub next_wakeup: Nanos,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            lease: Standing::Stale,
            target: TargetStanding::Chargeable,
            payer: AccountingTarget::Ledger,
            ring: RingFacts::NoRing,
            housekeeping: true,
            sibling_work: false,
            deferred_cleanup: false,
            global_timers: false,
            unbound_worker: false,
            watchdog: false,
            network_polling: false,
            fixed_irq: false,
            devices_on_housekeeping: false,
            stable_clock: true,
            boundary_accounting: true,
            interruptible: true,
            periodic: true,
            oneshot: true,
            min_delta: Nanos::from_micros(1),
            next_wakeup: Nanos::MAX,
        }
    }
}

/// What could be seen of a ring without waiting for its lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingFacts {
    /// There is none.
    NoRing,
    /// Another consumer has it just now.
    Contended,
    /// It is not polled.
    NotSqpoll,
    /// It is polled.
    Sqpoll {
        /// The poller's ownership is current.
        owner_live: bool,
        /// The poller spins; otherwise it sleeps until it is woken.
        spinning: bool,
        /// Another consumer may take submissions too, such as a timer that polls.
        other_consumer: bool,
    },
}

/// The thread that has the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Runner {
    /// The thread.
    pub thread: ThreadRef,
    /// It may run on this CPU only.
    pub pinned: bool,
}

/// What the CPU's own queue says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFacts {
    /// Which CPU this is.
    pub cpu: CpuId,
    /// The thread that has it.
    pub running: Option<Runner>,
    /// How many threads could run, that one included.
    pub runnable: usize,
    /// A direct handoff has its target here.
    pub direct_target: bool,
    /// When the next timed wait here ends.
    pub next_wakeup: Nanos,
}

/// Everything that a proof is made from.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// When.
    pub now: Nanos,
    /// What is claimed.
    pub claim: &'a Claim,
    /// What the machine says.
    pub conditions: &'a Conditions,
    /// What the CPU's own queue says.
    pub queue: &'a QueueFacts,
}
