//! The tables that stand for authority: contexts, endpoints, leases, islands, rings and the policy service.

use super::{ContextTarget, ThreadTarget};
use crate::numbering::instance_name;
use mainspring_abi::request::{MethodTraits, OrderPolicy};
use mainspring_abi::{CpuSet, Nanos};

/// `[[context]]`: CPU time that is granted.
///
/// A context that a thread table with a `count` names is one context for each instance, named `name.0`, `name.1`
/// and so on.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextSpec {
    /// The name of the table.
    pub name: String,
    /// How many instances; `None` for one with the bare name.
    pub count: Option<u32>,
    /// The CPU time in each period. At most `deadline`.
    pub budget: Nanos,
    /// The time after which what was used comes back.
    pub period: Nanos,
    /// From the release of a refill to the time by which it must have run. At most `period`, which is the default.
    pub deadline: Nanos,
    /// Where it may have its home; `None` means anywhere.
    pub cpus: Option<CpuSet>,
    /// The order among equal deadlines, higher first. Default 0.
    pub priority: u16,
    /// The band, higher first. Default 0.
    pub criticality: u8,
    /// How many refills it keeps at most, 1 to 16. Default 8.
    pub refills: u8,
    /// What happens at depletion. Default throttle.
    pub overrun: Overrun,
    /// How many calls may be nested on it, 1 to 8. Default 8.
    pub depth: u8,
    /// Index into `Workload::endpoints`: the endpoint that is told of its timeouts.
    pub timeout_endpoint: Option<usize>,
    /// Index into `Workload::processes`: it is the default of that process.
    pub process: Option<usize>,
}

impl ContextSpec {
    /// How many contexts the table makes.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.count.unwrap_or(1) as usize
    }

    /// The name of instance `n`.
    #[must_use]
    pub fn instance_name(&self, n: usize) -> String {
        instance_name(&self.name, self.count, n)
    }
}

/// What happens when a context is depleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overrun {
    /// Its thread waits for the next refill.
    #[default]
    Throttle,
    /// Its thread ends.
    Fault,
    /// Its holder is told by notification only.
    Notify,
    /// The island of the context is shut down.
    Shutdown,
}

/// `[[endpoint]]`, or an endpoint that a step names.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointSpec {
    /// The name.
    pub name: String,
    /// What a receiver without a context of its own runs on while it serves a call. Stands for one context.
    pub context: Option<ContextTarget>,
    /// Whether a call lends the caller's context to a receiver that has none. Default true.
    pub donation: bool,
    /// Whether requests with deadlines may take this path. Default true.
    pub realtime_safe: bool,
    /// Whether requests may be served in the order of their deadlines. Default false.
    pub reorder: bool,
    /// How many waiting requests are looked at for the earliest deadline, 1 to 16. Default 1.
    pub window: u8,
}

impl EndpointSpec {
    /// What it declares of its calls.
    #[must_use]
    pub fn method(&self) -> MethodTraits {
        MethodTraits { realtime_safe: self.realtime_safe, reorder_safe: self.reorder }
    }

    /// In which order it serves them.
    #[must_use]
    pub fn order(&self) -> OrderPolicy {
        order(self.reorder, self.window)
    }

    /// An endpoint without a table.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            context: None,
            donation: true,
            realtime_safe: true,
            reorder: false,
            window: 1,
        }
    }
}

/// `[[lease]]`: CPUs that one thread has to itself. Grants no CPU time.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseSpec {
    /// The name.
    pub name: String,
    /// The CPUs. Never empty, never beyond the machine.
    pub cpus: CpuSet,
    /// The thread that is isolated, and owns the lease. Stands for one thread.
    pub thread: ThreadTarget,
    /// What the thread does there. Default compute.
    pub mode: LeaseMode,
    /// Index into `Workload::rings`: the ring that is polled. Given exactly if the mode is kernel-sqpoll.
    pub ring: Option<usize>,
    /// What pays. Default: the thread's context, else the ledger.
    pub account: Account,
    /// The longest that a revocation may take. Default 1 ms.
    pub max_revocation: Nanos,
    /// When it ends by itself, from its start.
    pub lifetime: Option<Nanos>,
    /// Index into `Workload::endpoints`: where its end is told.
    pub revoke_endpoint: Option<usize>,
    /// Whether the tick is to be suppressed. Default true.
    pub nohz: bool,
    /// When it is asked for. Default at time 0.
    pub start: LeaseStart,
}

/// What a lease is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseMode {
    /// `"compute"`: a thread that computes.
    #[default]
    Compute,
    /// `"poller"`: a thread that polls in user space.
    Poller,
    /// `"kernel-sqpoll"`: the kernel's poller of a ring.
    KernelSqpoll,
    /// `"kernel-worker"`: other work of the kernel.
    KernelWorker,
}

/// What the time on leased CPUs is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// The best-effort ledger of the thread.
    Ledger,
    /// One context.
    Context(ContextTarget),
}

/// When a lease is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStart {
    /// At a time.
    At(Nanos),
    /// `"step"`: by a `lease` step.
    Step,
}

/// `[[island]]`: admitted as a whole or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct IslandSpec {
    /// The name.
    pub name: String,
    /// The period of the whole graph.
    pub period: Nanos,
    /// By when a cycle of the graph must be through. At most `period`, which is the default.
    pub deadline: Nanos,
    /// Where it runs; `None` means anywhere.
    pub cpus: Option<CpuSet>,
    /// Its contexts, at least one; no context is in two islands.
    pub nodes: Vec<ContextTarget>,
    /// The memory of its hot path.
    pub memory: Vec<MemorySpec>,
    /// The devices it reserves.
    pub devices: Vec<String>,
    /// Indices into `Workload::rings`: the rings it reserves.
    pub rings: Vec<usize>,
    /// The locks on its hot path. Default none.
    pub locks: Locks,
    /// The calls on its hot path. Default donating.
    pub calls: Calls,
    /// What an overrun of one node does. Default throttle.
    pub overrun: Overrun,
    /// When it asks for admission. Default at time 0.
    pub start: Nanos,
}

/// A piece of memory that an island uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySpec {
    /// The name.
    pub name: String,
    /// Its size, at least a byte.
    pub bytes: u64,
    /// Whether it can be swapped or faulted in. Default pinned.
    pub residency: Residency,
}

/// Where memory is while it is not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residency {
    /// Always resident.
    #[default]
    Pinned,
    /// Always resident, and never mapped by others.
    Secret,
    /// Anywhere: an access may fault.
    Normal,
}

/// The locks that a hot path takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locks {
    /// None.
    #[default]
    None,
    /// Each held for a bounded time.
    Bounded,
    /// Some held for any time.
    Unbounded,
}

/// The calls that a hot path makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    /// None.
    None,
    /// Calls that carry the caller's context along.
    #[default]
    Donating,
    /// Calls that wait for whatever the receiver runs on.
    Blocking,
}

/// `[[ring]]`: submissions one way, completions the other.
#[derive(Clone, Debug, PartialEq)]
pub struct RingSpec {
    /// The name.
    pub name: String,
    /// The thread that submits. Stands for one thread.
    pub owner: ThreadTarget,
    /// How many entries, a power of two from 2 to 4096. Default 64.
    pub entries: u32,
    /// Whether a poller may serve it, so that a submission needs no system call. Default false.
    pub sqpoll: bool,
    /// How long an idle poller spins before it sleeps. Default 50 us.
    pub idle_spin: Nanos,
    /// What serving one entry takes, at least a nanosecond. Default 1 us.
    pub cost: Nanos,
    /// Whether a poller may serve its entries in the order of their deadlines. Default false.
    pub reorder: bool,
    /// Among how many neighbours, if it may. Default 1.
    pub window: u8,
}

impl RingSpec {
    /// In which order a poller serves its entries.
    #[must_use]
    pub fn order(&self) -> OrderPolicy {
        order(self.reorder, self.window)
    }
}

fn order(reorder: bool, window: u8) -> OrderPolicy {
    match reorder {
        true => OrderPolicy::ByDeadline { window: window.into() },
        false => OrderPolicy::Submission,
    }
}

/// `[policy]`: the policy service in user space, and the thread that is left when it fails.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySpec {
    /// The service. Stands for one thread.
    pub service: ThreadTarget,
    /// The thread that recovers the machine without it. Stands for one thread.
    pub recovery: Option<ThreadTarget>,
    /// The epoch of what the file itself sets; an older setting is stale. Default 1.
    pub epoch: u64,
    /// How long it may not be heard of before it counts as slow. Default 100 ms.
    pub timeout: Nanos,
}
