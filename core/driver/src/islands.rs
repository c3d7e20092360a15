//! Realtime islands on a machine: a graph gets all of its CPU time and all that it reserves, or nothing.
//!
//! [`mainspring_authority::island`] decides. Here a decision is carried out: each node gets a context on the CPU that was found for
//! it, and CPUs that the island wants alone are leased to the nodes on them.
//!
//! Conserved:
//! * an island that is admitted has one context for each node, and one that was refused or has ended has none;
//! * an adjustment that does not fit changes nothing;
//! * when an island ends, its contexts are revoked and its leases end before what it reserved is free for others.

use crate::contexts::{ContextMachine, Contexts, CreateError, Grant, HomeCpu, RevokeReason};
use crate::leases::{CpuGrant, GrantRefusal, LeaseMachine, Leases};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use mainspring_abi::{ContextRef, Nanos, ThreadRef};
use mainspring_authority::admission::{Banded, Task};
use mainspring_authority::island::{
    self, IslandDenial, IslandError, IslandRef, NodeHome, OverrunAction, OverrunPolicy, PlainTask,
    RealtimeIslandSpec,
};
use mainspring_sched::Affinity;
use mainspring_sched::context::{ContextSpec, Overrun, SpecError};
use mainspring_sched::lease::{Endpoint, LeaseRef, Owner};

/// What an island's owner hears of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IslandNotice {
    /// A node wanted more than its budget.
    Overran {
        /// The node, by its place in the spec.
        node: usize,
    },
    /// The island is to end: its threads stop, and then it leaves.
    ShuttingDown,
    /// It has another spec.
    Adjusted,
    /// It has ended. Nothing is reserved for it.
    Left,
}

/// What is left to a machine to do about a context that was used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum UsedUp {
    /// Nothing: its thread waits for the next refill, or goes on.
    Nothing,
    /// It is a fault of the thread that ran on it.
    Fault,
    /// It is revoked.
    Revoke,
    /// Its island leaves, by [`Islands::leave`].
    Leave(IslandRef),
}

/// A machine with islands.
pub trait IslandMachine: ContextMachine + LeaseMachine {
    /// Posts `notice` of `island` where its owner wants to hear of it.
    fn post_island_notice(&mut self, endpoint: Endpoint, island: IslandRef, notice: IslandNotice);
}

/// Why an island was not admitted. Nothing is reserved, and no context exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// It does not fit.
    Denied(IslandDenial),
    /// A node's context could not be created.
    Context {
        /// The node, by its place in the spec.
        node: usize,
        /// Why.
        error: CreateError,
    },
}

impl fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(denial) => write!(f, "{denial}"),
            Self::Context { node, error } => write!(f, "node {node} has no context: {error}"),
        }
    }
}

impl core::error::Error for NotAdmitted {}

/// Why a node's thread could not start. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotBound {
    /// The island or the node is not there.
    Stale,
    /// The node's context could not be bound to the thread.
    Context(crate::contexts::BindError),
    /// The CPU that the island wants alone could not be leased to the thread.
    Lease(GrantRefusal),
}

/// An island that is admitted.
#[derive(Debug)]
struct Held {
    island: IslandRef,
    /// One for each node, in the order of the spec.
    contexts: Vec<ContextRef>,
    leases: Vec<LeaseRef>,
    owner: Owner,
    notify: Option<Endpoint>,
}

/// All islands of a machine.
#[derive(Debug)]
pub struct Islands {
    admission: island::Machine,
    held: Vec<Held>,
}

impl Islands {
    /// No islands, on a machine that `admission` describes.
    #[must_use]
    pub fn new(admission: island::Machine) -> Self {
        Self { admission, held: Vec::new() }
    }

    /// What was admitted, and what is free.
    #[must_use]
    pub fn admission(&self) -> &island::Machine {
        &self.admission
    }

    /// The contexts of an island's nodes, in the order of its spec.
    #[must_use]
    pub fn contexts(&self, island: IslandRef) -> Option<&[ContextRef]> {
        self.held.iter().find(|held| held.island == island).map(|held| &*held.contexts)
    }

    /// The leases of the CPUs that an island has to itself.
    #[must_use]
    pub fn leases(&self, island: IslandRef) -> Option<&[LeaseRef]> {
        self.held.iter().find(|held| held.island == island).map(|held| &*held.leases)
    }

    /// The island and the node that `context` is for.
    #[must_use]
    pub fn node_of(&self, context: ContextRef) -> Option<(IslandRef, usize)> {
        self.held.iter().find_map(|held| {
            let node = held.contexts.iter().position(|own| own.id() == context.id())?;
            Some((held.island, node))
        })
    }

    /// Admits an island with all that it needs, beside all contexts that there are. Its contexts are at rest: the threads of
    /// its nodes start by [`Islands::bind`].
    pub fn admit<M: IslandMachine>(
        &mut self,
        machine: &mut M,
        contexts: &mut Contexts,
        spec: RealtimeIslandSpec,
        owner: Owner,
        notify: Option<Endpoint>,
    ) -> Result<IslandRef, NotAdmitted> {
        self.count_plain(contexts).map_err(NotAdmitted::Denied)?;
        let island = self.admission.admit(spec).map_err(NotAdmitted::Denied)?;
        let Some(admitted) = self.admission.get(island) else {
            return Err(NotAdmitted::Denied(IslandDenial::OutOfIds));
        };
        let mut made = Vec::with_capacity(admitted.homes.len());
        let mut homes = admitted.homes.clone();
        homes.sort_unstable_by_key(|home| home.node);
        for home in homes {
            let grant = Grant {
                session: None,
                process: Some(owner.process),
                ledger: None,
                home: HomeCpu::Decided(home.cpu),
            };
            let wanted = context_of(&admitted.spec, home);
            match contexts.grant(machine.now(), wanted, grant) {
                Ok(who) => made.push(who),
                Err(error) => {
                    for who in made {
                        let _gone = contexts.revoke(machine, who, RevokeReason::IslandEnd);
                    }
                    let _left = self.admission.leave(island);
                    return Err(NotAdmitted::Context { node: home.node, error });
                }
            }
        }
        self.held.push(Held { island, contexts: made, leases: Vec::new(), owner, notify });
        Ok(island)
    }

    /// `thread` is to run node `node`: it gets the node's context, and the CPU to itself if the island wants that one alone.
    pub fn bind<M: IslandMachine>(
        &mut self,
        machine: &mut M,
        contexts: &mut Contexts,
        leases: &mut Leases,
        (island, node): (IslandRef, usize),
        thread: ThreadRef,
    ) -> Result<(), NotBound> {
        let admitted = self.admission.get(island).ok_or(NotBound::Stale)?;
        let held = self.held.iter_mut().find(|held| held.island == island).ok_or(NotBound::Stale)?;
        let who = *held.contexts.get(node).ok_or(NotBound::Stale)?;
        contexts.bind(machine, who, thread).map_err(NotBound::Context)?;
        let home = admitted.homes.iter().find(|home| home.node == node).map(|home| home.cpu);
        if let Some(cpu) = home.filter(|cpu| admitted.spec.isolated.contains(*cpu)) {
            let asked = CpuGrant {
                owner: held.owner,
                lessee: thread,
                target: who.into(),
                lifetime: Nanos::ZERO,
                replaces: None,
            };
            match leases.grant_cpu(machine, cpu, asked) {
                Ok(lease) => held.leases.push(lease),
                Err(refusal) => {
                    contexts.unbind(machine, thread);
                    return Err(NotBound::Lease(refusal));
                }
            }
        }
        Ok(())
    }

    /// A context was used up whose own policy is `policy`. If it is a node's, its island's policy counts, and the island's owner
    /// hears of it.
    pub fn used_up<M: IslandMachine>(
        &mut self,
        machine: &mut M,
        context: ContextRef,
        policy: Overrun,
    ) -> UsedUp {
        let of_node = self.node_of(context).and_then(|(island, node)| {
            let action = self.admission.overrun(island, node).ok()?;
            Some((island, node, action))
        });
        let Some((island, node, action)) = of_node else {
            return match policy {
                Overrun::Throttle | Overrun::Notify => UsedUp::Nothing,
                Overrun::Fault => UsedUp::Fault,
                Overrun::Shutdown => UsedUp::Revoke,
            };
        };
        match action {
            OverrunAction::Throttle | OverrunAction::AlreadyStopping => UsedUp::Nothing,
            OverrunAction::Fault => UsedUp::Fault,
            OverrunAction::Notify => {
                self.notify_owner(machine, island, IslandNotice::Overran { node });
                UsedUp::Nothing
            }
            OverrunAction::Shutdown(_) => {
                self.notify_owner(machine, island, IslandNotice::Overran { node });
                self.notify_owner(machine, island, IslandNotice::ShuttingDown);
                UsedUp::Leave(island)
            }
        }
    }

    /// Gives an island another spec with as many nodes, each on its CPU, if every task that was promised a deadline keeps
    /// it. The old reference is stale then.
    pub fn adjust<M: IslandMachine>(
        &mut self,
        machine: &mut M,
        contexts: &mut Contexts,
        island: IslandRef,
        mut spec: RealtimeIslandSpec,
    ) -> Result<IslandRef, IslandError> {
        let held = self.held.iter().position(|held| held.island == island).ok_or(IslandError::Stale)?;
        let present = self.admission.get(island).ok_or(IslandError::Stale)?;
        if spec.nodes.len() != present.homes.len() {
            return Err(IslandError::Stale);
        }
        for home in &present.homes {
            // The threads of its nodes hold contexts, which are spent where they are.
            spec.nodes[home.node].cpus = Some([home.cpu].into_iter().collect());
        }
        // What admission would grant and no context can is refused before anything has changed.
        let no_context = |home: &&NodeHome| {
            let checked = context_of(&spec, **home).check();
            matches!(
                checked,
                Err(SpecError::BadPeriod(_) | SpecError::BadRefills(_) | SpecError::BadDepth(_))
            )
        };
        if let Some(home) = present.homes.iter().find(no_context) {
            let node = spec.nodes[home.node].name.clone();
            return Err(IslandError::Denied(IslandDenial::NodeTiming { node }));
        }
        self.count_plain(contexts).map_err(IslandError::Denied)?;
        let adjusted = self.admission.adjust(island, spec)?;
        self.held[held].island = adjusted;
        let Some(admitted) = self.admission.get(adjusted) else { return Err(IslandError::Stale) };
        for home in &admitted.homes {
            let wanted = context_of(&admitted.spec, *home);
            let who = self.held[held].contexts[home.node];
            let terms = (wanted.budget, wanted.period, wanted.deadline);
            // A node whose terms are the same is not disturbed. One whose context was revoked has none to change.
            let present = contexts.spec(who.id()).map(|spec| (spec.budget, spec.period, spec.deadline));
            if present == Some(terms) || contexts.is_gone(who.id()) {
                continue;
            }
            let changed = contexts.adjust(machine, machine.now(), who, terms);
            debug_assert!(changed.is_ok(), "the context of an admitted node is live: {changed:?}");
        }
        self.notify_owner(machine, adjusted, IslandNotice::Adjusted);
        Ok(adjusted)
    }

    /// Ends an island: its contexts and leases first, then everything that it reserved.
    pub fn leave<M: IslandMachine>(
        &mut self,
        machine: &mut M,
        contexts: &mut Contexts,
        leases: &mut Leases,
        island: IslandRef,
    ) -> Result<(), IslandError> {
        let index = self.held.iter().position(|held| held.island == island).ok_or(IslandError::Stale)?;
        for who in &self.held[index].contexts {
            // One that a logout or an exit has taken already is gone.
            let _gone = contexts.revoke(machine, *who, RevokeReason::IslandEnd);
        }
        for lease in &self.held[index].leases {
            let _ended = leases.revoke(machine, *lease).or_else(|_| leases.release(machine, *lease));
        }
        self.admission.leave(island)?;
        self.notify_owner(machine, island, IslandNotice::Left);
        self.held.swap_remove(index);
        Ok(())
    }

    fn notify_owner<M: IslandMachine>(&self, machine: &mut M, island: IslandRef, notice: IslandNotice) {
        let notify = self.held.iter().find(|held| held.island == island).and_then(|held| held.notify);
        if let Some(endpoint) = notify {
            machine.post_island_notice(endpoint, island, notice);
        }
    }

    /// Tells admission which contexts there are outside of islands.
    fn count_plain(&mut self, contexts: &Contexts) -> Result<(), IslandDenial> {
        let counts = |who: &ContextRef| !contexts.is_gone(who.id()) && self.node_of(*who).is_none();
        let plain = contexts.names().filter(counts);
        let plain: Vec<PlainTask> = plain
            .filter_map(|who| {
                let (spec, cpu) = (contexts.spec(who.id())?, contexts.home(who.id())?);
                let task = Task { cost: spec.budget, deadline: spec.deadline, period: spec.period };
                Some(PlainTask { cpu, banded: Banded { task, criticality: spec.criticality } })
            })
            .collect();
        self.admission.set_plain(plain)
    }
}

/// What a node's context grants, on the CPU that was found for it.
fn context_of(spec: &RealtimeIslandSpec, home: NodeHome) -> ContextSpec {
    let node = &spec.nodes[home.node];
    let period = node.period.unwrap_or(spec.period);
    ContextSpec {
        deadline: node.deadline.unwrap_or(spec.deadline).min(spec.deadline).min(period),
        priority: node.terms.priority,
        criticality: node.criticality.unwrap_or(spec.criticality),
        cpus: Affinity::Only(Arc::new([home.cpu].into_iter().collect())),
        refills: node.terms.refills,
        timeout_endpoint: node.terms.timeout_endpoint,
        depth: node.terms.depth,
        overrun: match spec.overrun_of(home.node) {
            OverrunPolicy::Throttle => Overrun::Throttle,
            OverrunPolicy::Fault => Overrun::Fault,
            OverrunPolicy::Notify => Overrun::Notify,
            OverrunPolicy::Shutdown => Overrun::Shutdown,
        },
        ..ContextSpec::new(node.budget, period)
    }
}
