//! What an island asks for, as it is declared. Nothing here has been checked.

use alloc::string::String;
use alloc::vec::Vec;
use mainspring_abi::{CpuId, CpuSet, Nanos};
use mainspring_sched::context::ContextSpec;

/// A realtime graph and all that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealtimeIslandSpec {
    /// What to call it.
    pub name: String,
    /// Shortest time between two activations of the graph.
    pub period: Nanos,
    /// From an activation to the end of all its nodes; at most the period.
    pub deadline: Nanos,
    /// The band that its nodes run in.
    pub criticality: u8,
    /// Where its nodes may run.
    pub cpu_set: CpuSet,
    /// CPUs that it wants for itself: no other island, and no plain task, may be there.
    pub isolated: CpuSet,
    /// How its nodes hang together.
    pub shape: Shape,
    /// Its nodes.
    pub nodes: Vec<NodeBudget>,
    /// Its rings.
    pub rings: Vec<RingSpec>,
    /// Its memory.
    pub memory: Vec<PreallocSpec>,
    /// Its devices.
    pub devices: Vec<DeviceReservation>,
    /// Its interrupts.
    pub irqs: Vec<IrqSpec>,
    /// Endpoints and notifications that it uses. All are resolved before it starts.
    pub endpoints: Vec<String>,
    /// What happens to a node that wants more than its budget.
    pub overrun: OverrunPolicy,
    /// How it ends when it must.
    pub shutdown: ShutdownPolicy,
}

impl RealtimeIslandSpec {
    /// What happens to node `node` when it wants more than its budget.
    #[must_use]
    pub fn overrun_of(&self, node: usize) -> OverrunPolicy {
        self.nodes.get(node).and_then(|node| node.terms.overrun).unwrap_or(self.overrun)
    }
}

/// How the nodes of a graph hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Shape {
    /// They are all released at the activation, and may run on different CPUs.
    #[default]
    Independent,
    /// Each begins when the one before it ends. They share a CPU, where together they count as one task: the test then
    /// speaks of the end of the last. Across CPUs a chain would have waits that the test knows nothing of.
    Chain,
}

/// What one node needs in each period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBudget {
    /// What to call it.
    pub name: String,
    /// CPU time per activation.
    pub budget: Nanos,
    /// How often it comes, if that is more often than the graph. Not for the nodes of a chain.
    pub period: Option<Nanos>,
    /// By when it must have run, if that is before the island's deadline. Not for the nodes of a chain.
    pub deadline: Option<Nanos>,
    /// Its band, if it is not the island's. Not for the nodes of a chain.
    pub criticality: Option<u8>,
    /// Where it may run, if not on all of the island's CPUs. Not for the nodes of a chain.
    pub cpus: Option<CpuSet>,
    /// The locks that it takes.
    pub locks: Locks,
    /// The calls that it makes.
    pub calls: Calls,
    /// What else it does while it runs.
    pub hot_path: HotPath,
    /// What its context grants beside the budget.
    pub terms: NodeTerms,
}

/// What the context of a node grants beside its budget. Admission does not count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeTerms {
    /// Goes first among equal deadlines of a band if higher.
    pub priority: u16,
    /// How many refills are kept.
    pub refills: u8,
    /// How deep it may be donated.
    pub depth: u8,
    /// The endpoint that is told of faults.
    pub timeout_endpoint: Option<u32>,
    /// What happens when the node wants more than its budget, if not what the island says.
    pub overrun: Option<OverrunPolicy>,
}

impl Default for NodeTerms {
    /// As every context has it that says nothing.
    fn default() -> Self {
        let ContextSpec { priority, refills, depth, timeout_endpoint, .. } =
            ContextSpec::new(Nanos::ZERO, Nanos::ZERO);
        Self { priority, refills, depth, timeout_endpoint, overrun: None }
    }
}

/// The locks that a node takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Locks {
    /// None.
    #[default]
    None,
    /// Any holder holds each for a bounded time, which is part of the node's budget.
    Bounded,
    /// A holder may keep one for any length of time.
    Unbounded,
}

/// The calls that a node makes inside its callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Calls {
    /// None.
    #[default]
    None,
    /// To passive servers, which run on the node's own budget.
    Donating,
    /// To servers that run when they get to it.
    Blocking,
}

/// What a node does that takes an unbounded time. All of it must be false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HotPath {
    /// It allocates.
    pub allocates: bool,
    /// It logs.
    pub logs: bool,
    /// It looks services up, or resolves capabilities or policy.
    pub discovers: bool,
    /// It handles credentials.
    pub credentials: bool,
}

/// A ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingSpec {
    /// What to call it.
    pub name: String,
    /// Its submission and completion slots.
    pub entries: u32,
}

/// A buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreallocSpec {
    /// What to call it.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Whether it stays in memory.
    pub residency: Residency,
    /// Whether it has been written to, so that no first touch faults.
    pub committed: bool,
}

/// Whether memory stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// It does.
    Pinned,
    /// It does, and no other program can read it.
    Secret,
    /// It may be taken away at any time.
    Normal,
}

/// A device that an island has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReservation {
    /// Which.
    pub name: String,
}

/// An interrupt that belongs to an island.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqSpec {
    /// Which line.
    pub line: u32,
    /// What it brings along.
    pub work: IrqWork,
}

/// The work that comes with an interrupt, deferred work included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqWork {
    /// At most `cost` every `interval` on `cpu`, before any task there.
    Bounded {
        /// Where it is handled.
        cpu: CpuId,
        /// How long that takes at most.
        cost: Nanos,
        /// Shortest time between two.
        interval: Nanos,
    },
    /// It is handled where no island runs.
    MovedOutside,
    /// The bound is not known.
    Unbounded,
}

/// What happens to a node that wants more than its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OverrunPolicy {
    /// It waits for its next replenishment.
    #[default]
    Throttle,
    /// It gets a fault.
    Fault,
    /// It waits, and a notice is sent.
    Notify,
    /// The island is shut down.
    Shutdown,
}

/// How an island ends when it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ShutdownPolicy {
    /// All nodes stop at once.
    #[default]
    AtOnce,
    /// Nodes that are running may use what is left of their budgets; none begins again.
    FinishActivation,
}
