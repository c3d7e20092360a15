//! Why an island is refused, and the checks that need no CPU.

use super::reservations::{Reservations, entries, memory};
use super::spec::{Calls, HotPath, IrqWork, Locks, RealtimeIslandSpec, Residency, Shape};
use crate::admission::CpuDenial;
use alloc::collections::BTreeSet;
use alloc::string::String;
use core::fmt;
use mainspring_abi::ring::CapError;
use mainspring_abi::{CpuId, CpuSet, Nanos};

/// Why an island is refused. Nothing was reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IslandDenial {
    /// It has no nodes.
    NoNodes,
    /// Its deadline is zero or longer than its period.
    Timing,
    /// A node has no budget, or more than fits the island's deadline.
    NodeBudget {
        /// Which node.
        node: String,
    },
    /// A node comes less often than the graph, or is due after the graph or after its next release; or it is one of a
    /// chain, and has a period, a deadline, a band or CPUs of its own.
    NodeTiming {
        /// Which node.
        node: String,
    },
    /// The nodes of a chain need more together than fits the island's deadline.
    ChainBudget {
        /// What they need.
        total: Nanos,
        /// What there is.
        deadline: Nanos,
    },
    /// A node may wait for a lock for as long as its holder likes.
    UnboundedLock {
        /// Which node.
        node: String,
    },
    /// A node calls a server that does not run on its budget.
    BlockingCall {
        /// Which node.
        node: String,
    },
    /// A node allocates, logs, looks things up or handles credentials while it runs.
    HotPath {
        /// Which node.
        node: String,
    },
    /// A buffer may be taken out of memory; pin it first.
    NotResident {
        /// Which buffer.
        memory: String,
    },
    /// A buffer has not been committed; its first touch would fault.
    NotCommitted {
        /// Which buffer.
        memory: String,
    },
    /// More memory than is free.
    Memory {
        /// What was asked for, in bytes.
        asked: u64,
        /// What is free.
        free: u64,
    },
    /// A ring without entries.
    EmptyRing {
        /// Which.
        ring: String,
    },
    /// More ring entries than are free.
    Rings {
        /// What was asked for.
        asked: u64,
        /// What is free.
        free: u64,
    },
    /// No such device.
    NoDevice {
        /// Which.
        device: String,
    },
    /// Another island has the device, or it is asked for twice.
    DeviceTaken {
        /// Which.
        device: String,
    },
    /// No such interrupt line.
    NoIrq {
        /// Which.
        line: u32,
    },
    /// Another island has the line, or it is asked for twice.
    IrqTaken {
        /// Which.
        line: u32,
    },
    /// The work that comes with an interrupt has no bound, or no CPU of the machine to run on.
    UnboundedIrq {
        /// Which.
        line: u32,
    },
    /// No CPU that it asks for is free.
    NoCpu,
    /// A CPU that it wants for itself is in use, not one of its own, or the last CPU without an owner; or its interrupt
    /// would disturb another island there.
    Isolation {
        /// Which.
        cpu: CpuId,
    },
    /// A node fits on no CPU that it may use.
    Cpu {
        /// The node, or the first of a chain; none if an interrupt is what does not fit.
        node: Option<String>,
        /// The last CPU that refused it.
        cpu: CpuId,
        /// Why.
        denial: CpuDenial,
        /// Whether the test that refused it is sufficient only, or another placement might have fitted.
        sufficient_only: bool,
    },
    /// The machine has run out of identities for islands.
    OutOfIds,
}

impl IslandDenial {
    /// The code that a caller sees.
    #[must_use]
    pub const fn code(&self) -> CapError {
        CapError::RealtimeAdmissionDenied
    }
}

impl fmt::Display for IslandDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => f.write_str("the island has no nodes"),
            Self::Timing => f.write_str("the deadline must be above zero and at most the period"),
            Self::NodeBudget { node } => {
                write!(f, "node {node} needs a budget above zero that fits the deadline")
            }
            Self::NodeTiming { node } => write!(
                f,
                "node {node} must come at least once in the island's period and be due by its deadline; in a chain it has \
                 no timing, band or CPUs of its own"
            ),
            Self::ChainBudget { total, deadline } => {
                write!(f, "the chain needs {total} in each activation, and has {deadline}")
            }
            Self::UnboundedLock { node } => {
                write!(f, "node {node} takes a lock that may be held for any time; bound it or do without")
            }
            Self::BlockingCall { node } => {
                write!(f, "node {node} calls a server that does not run on its budget; use a passive server")
            }
            Self::HotPath { node } => write!(
                f,
                "node {node} allocates, logs, looks things up or handles credentials; do that before the start"
            ),
            Self::NotResident { memory } => {
                write!(f, "memory {memory} is not resident; make it pinned or secret")
            }
            Self::NotCommitted { memory } => write!(f, "memory {memory} is not committed; touch it first"),
            Self::Memory { asked, free } => {
                write!(f, "{asked} bytes of memory are asked for, {free} are free")
            }
            Self::EmptyRing { ring } => write!(f, "ring {ring} has no entries"),
            Self::Rings { asked, free } => write!(f, "{asked} ring entries are asked for, {free} are free"),
            Self::NoDevice { device } => write!(f, "there is no device {device}"),
            Self::DeviceTaken { device } => write!(f, "device {device} is taken"),
            Self::NoIrq { line } => write!(f, "there is no interrupt line {line}"),
            Self::IrqTaken { line } => write!(f, "interrupt line {line} is taken"),
            Self::UnboundedIrq { line } => write!(
                f,
                "the work of interrupt {line} is not bounded; bound it on a CPU of the machine or move it outside"
            ),
            Self::NoCpu => f.write_str("none of the CPUs that are asked for is there to be had"),
            Self::Isolation { cpu } => {
                write!(
                    f,
                    "CPU {cpu} cannot be had: it is in use or isolated, not one of the island's, or the last"
                )
            }
            Self::Cpu { node, cpu, denial, sufficient_only } => {
                let what = node.as_deref().unwrap_or("the interrupt work");
                write!(f, "{what} does not fit on CPU {cpu}: {}", denial.denial)?;
                if *sufficient_only { f.write_str(" (by a test that is sufficient only)") } else { Ok(()) }
            }
            Self::OutOfIds => f.write_str("no identity is left for another island"),
        }
    }
}

impl core::error::Error for IslandDenial {}

/// Everything but CPU time, against what is free.
pub(super) fn check_declaration(
    spec: &RealtimeIslandSpec,
    reservations: &Reservations,
    cpus: &CpuSet,
) -> Result<(), IslandDenial> {
    check_nodes(spec)?;
    check_memory(spec, reservations)?;
    check_devices(spec, reservations)?;
    check_irqs(spec, reservations, cpus)
}

fn check_nodes(spec: &RealtimeIslandSpec) -> Result<(), IslandDenial> {
    if spec.nodes.is_empty() {
        return Err(IslandDenial::NoNodes);
    }
    if spec.deadline.is_zero() || spec.deadline > spec.period {
        return Err(IslandDenial::Timing);
    }
    for node in &spec.nodes {
        let name = || node.name.clone();
        let has_own = node.period.is_some()
            || node.deadline.is_some()
            || node.criticality.is_some()
            || node.cpus.is_some();
        let period = node.period.unwrap_or(spec.period);
        let due = node.deadline.unwrap_or(spec.deadline.min(period));
        let fits = !period.is_zero() && period <= spec.period && due <= spec.deadline.min(period);
        if !fits || (spec.shape == Shape::Chain && has_own) {
            return Err(IslandDenial::NodeTiming { node: name() });
        }
        if node.budget.is_zero() || node.budget > due {
            return Err(IslandDenial::NodeBudget { node: name() });
        }
        if node.locks == Locks::Unbounded {
            return Err(IslandDenial::UnboundedLock { node: name() });
        }
        if node.calls == Calls::Blocking {
            return Err(IslandDenial::BlockingCall { node: name() });
        }
        if node.hot_path != HotPath::default() {
            return Err(IslandDenial::HotPath { node: name() });
        }
    }
    let total = spec.nodes.iter().fold(Nanos::ZERO, |sum, node| sum + node.budget);
    if spec.shape == Shape::Chain && total > spec.deadline {
        return Err(IslandDenial::ChainBudget { total, deadline: spec.deadline });
    }
    Ok(())
}

fn check_memory(spec: &RealtimeIslandSpec, reservations: &Reservations) -> Result<(), IslandDenial> {
    for buffer in &spec.memory {
        if buffer.residency == Residency::Normal {
            return Err(IslandDenial::NotResident { memory: buffer.name.clone() });
        }
        if !buffer.committed {
            return Err(IslandDenial::NotCommitted { memory: buffer.name.clone() });
        }
    }
    let asked = memory(spec);
    if asked > reservations.memory_free {
        return Err(IslandDenial::Memory { asked, free: reservations.memory_free });
    }
    if let Some(ring) = spec.rings.iter().find(|ring| ring.entries == 0) {
        return Err(IslandDenial::EmptyRing { ring: ring.name.clone() });
    }
    let asked = entries(spec);
    if asked > reservations.ring_entries_free {
        return Err(IslandDenial::Rings { asked, free: reservations.ring_entries_free });
    }
    Ok(())
}

fn check_devices(spec: &RealtimeIslandSpec, reservations: &Reservations) -> Result<(), IslandDenial> {
    let mut seen = BTreeSet::new();
    for reservation in &spec.devices {
        let device = reservation.name.clone();
        match reservations.devices.get(&device) {
            None => return Err(IslandDenial::NoDevice { device }),
            Some(Some(_)) => return Err(IslandDenial::DeviceTaken { device }),
            Some(None) if !seen.insert(&reservation.name) => {
                return Err(IslandDenial::DeviceTaken { device });
            }
            Some(None) => {}
        }
    }
    Ok(())
}

fn check_irqs(
    spec: &RealtimeIslandSpec,
    reservations: &Reservations,
    cpus: &CpuSet,
) -> Result<(), IslandDenial> {
    let mut seen = BTreeSet::new();
    for irq in &spec.irqs {
        let line = irq.line;
        match reservations.irqs.get(&line) {
            None => return Err(IslandDenial::NoIrq { line }),
            Some(Some(_)) => return Err(IslandDenial::IrqTaken { line }),
            Some(None) if !seen.insert(line) => return Err(IslandDenial::IrqTaken { line }),
            Some(None) => {}
        }
        let bounded = match irq.work {
            IrqWork::MovedOutside => true,
            IrqWork::Unbounded => false,
            IrqWork::Bounded { cpu, cost, interval } => {
                cpus.contains(cpu) && cost > Nanos::ZERO && cost <= interval
            }
        };
        if !bounded {
            return Err(IslandDenial::UnboundedIrq { line });
        }
    }
    Ok(())
}
