//! Admission, adjustment and end of islands on one machine.

use super::check::{IslandDenial, check_declaration};
use super::reservations::{Capacity, Reservations};
use super::spec::{IrqWork, OverrunPolicy, RealtimeIslandSpec, Shape, ShutdownPolicy};
use crate::admission::{Banded, CpuVerdict, Effort, Load, Task, judge_cpu_within};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use mainspring_abi::{CpuId, CpuSet, Nanos};
use mainspring_sched::Floor;

/// An island's name for the machine. It is never given to another, and each adjustment makes the old one stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IslandRef {
    id: u32,
    generation: u32,
}

impl IslandRef {
    /// Its number.
    #[must_use]
    pub const fn id(self) -> u32 {
        self.id
    }

    /// Counts its adjustments.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

/// A task that is no island's: a plain context that has its home on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainTask {
    /// Its home.
    pub cpu: CpuId,
    /// What it asks for.
    pub banded: Banded,
}

/// Where a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeHome {
    /// Its place in the spec.
    pub node: usize,
    /// The CPU that its context is for.
    pub cpu: CpuId,
    /// What admission counted, and in which band: for a chain, the whole of it.
    pub banded: Banded,
}

/// What admission found of a CPU that an island uses, when it was last tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Which CPU.
    pub cpu: CpuId,
    /// What was found.
    pub verdict: CpuVerdict,
}

/// Where an island is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It may run.
    Running,
    /// It is to end. What it holds stays set aside until [`Machine::leave`], since its threads may still use it.
    Stopping,
}

/// An island that was admitted: what it asked for and holds, and on what grounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Its spec. What it names is reserved.
    pub spec: RealtimeIslandSpec,
    /// Where its nodes are.
    pub homes: Vec<NodeHome>,
    /// Why it was admitted: each CPU that it uses.
    pub evidence: Vec<Evidence>,
    /// Where it is in its life.
    pub phase: Phase,
    generation: u32,
}

/// Why an operation on an island was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IslandError {
    /// The island is gone, or was adjusted since.
    Stale,
    /// It is being shut down.
    Stopping,
    /// The new spec does not fit; the old one stands.
    Denied(IslandDenial),
}

impl fmt::Display for IslandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => f.write_str("the island is gone or was adjusted; ask for its present reference"),
            Self::Stopping => f.write_str("the island is being shut down; admit it again when it has left"),
            Self::Denied(denial) => write!(f, "the island stays as it was: {denial}"),
        }
    }
}

impl core::error::Error for IslandError {}

/// What to do about a node that wants more than its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the node must be dealt with"]
pub enum OverrunAction {
    /// Let it wait for its next replenishment.
    Throttle,
    /// Give it a fault, with CAP_ERR_OVERRUN.
    Fault,
    /// Let it wait, and post the notification.
    Notify,
    /// Stop all nodes of the island in this manner, then call [`Machine::leave`].
    Shutdown(ShutdownPolicy),
    /// The island is being shut down already.
    AlreadyStopping,
}

/// A machine on which islands are admitted.
#[derive(Debug)]
pub struct Machine {
    cpus: CpuSet,
    floor: Floor,
    overhead: Nanos,
    effort: Effort,
    reservations: Reservations,
    plain: Vec<PlainTask>,
    islands: BTreeMap<u32, Admitted>,
    next_id: Option<u32>,
}

/// What an admission will do once nothing can go wrong any more.
struct Plan {
    homes: Vec<NodeHome>,
    evidence: Vec<Evidence>,
}

impl Machine {
    /// A machine with these CPUs. Best effort keeps `floor` of each. Each release is counted with `overhead`
    /// on top of its own cost.
    #[must_use]
    pub fn new(cpus: CpuSet, floor: Floor, overhead: Nanos, capacity: &Capacity) -> Self {
        Self {
            cpus,
            floor,
            overhead,
            effort: Effort::FULL,
            reservations: Reservations::new(capacity),
            plain: Vec::new(),
            islands: BTreeMap::new(),
            next_id: Some(0),
        }
    }

    /// The same with a bound on how long one decision takes, on however many CPUs: what it cannot decide by then is refused.
    #[must_use]
    pub fn with_effort(self, effort: Effort) -> Self {
        Self { effort, ..self }
    }

    /// Which resources are free, and who holds the others.
    #[must_use]
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// The island that `island` names.
    #[must_use]
    pub fn get(&self, island: IslandRef) -> Option<&Admitted> {
        self.islands.get(&island.id).filter(|found| found.generation == island.generation)
    }

    /// All islands.
    pub fn islands(&self) -> impl Iterator<Item = (IslandRef, &Admitted)> {
        let name = |id: &u32, found: &Admitted| IslandRef { id: *id, generation: found.generation };
        self.islands.iter().map(move |(id, found)| (name(id, found), found))
    }

    /// Replaces the plain tasks of the machine, if the islands still hold beside them. If not, nothing changes. Where no
    /// island is, plain tasks may be more than fits; no island comes there then.
    pub fn set_plain(&mut self, plain: Vec<PlainTask>) -> Result<(), IslandDenial> {
        for cpu in plain.iter().map(|task| task.cpu) {
            if !self.cpus.contains(cpu) {
                return Err(IslandDenial::NoCpu);
            }
            if self.islands.values().any(|island| island.spec.isolated.contains(cpu)) {
                return Err(IslandDenial::Isolation { cpu });
            }
        }
        if plain == self.plain {
            return Ok(());
        }
        let before = core::mem::replace(&mut self.plain, plain);
        let used: CpuSet =
            self.islands.values().flat_map(|island| &island.evidence).map(|evidence| evidence.cpu).collect();
        let (mut effort, mut found) = (self.effort, Vec::with_capacity(used.len()));
        for cpu in used.iter() {
            let verdict = self.load_of(cpu, None).judge(self.floor, self.overhead, &mut effort);
            if let Some(denial) = verdict.denial {
                self.plain = before;
                let sufficient_only = !verdict.has_witness();
                return Err(IslandDenial::Cpu { node: None, cpu, denial, sufficient_only });
            }
            found.push(Evidence { cpu, verdict });
        }
        self.keep_evidence(&found);
        Ok(())
    }

    /// Admits an island with all that it needs. On denial nothing is reserved.
    pub fn admit(&mut self, spec: RealtimeIslandSpec) -> Result<IslandRef, IslandDenial> {
        let id = self.next_id.ok_or(IslandDenial::OutOfIds)?;
        check_declaration(&spec, &self.reservations, &self.cpus)?;
        let plan = self.plan(&spec, None)?;

        self.next_id = id.checked_add(1);
        let island = IslandRef { id, generation: 0 };
        self.enter(spec, plan, island);
        Ok(island)
    }

    /// Replaces an island's spec, as if it had left and come again, but without a moment in which it holds nothing. On
    /// denial it stays as it was.
    pub fn adjust(&mut self, island: IslandRef, spec: RealtimeIslandSpec) -> Result<IslandRef, IslandError> {
        let present = self.get(island).ok_or(IslandError::Stale)?;
        if present.phase == Phase::Stopping {
            return Err(IslandError::Stopping);
        }
        let generation =
            island.generation.checked_add(1).ok_or(IslandError::Denied(IslandDenial::OutOfIds))?;
        let mut without = self.reservations.clone();
        without.give_back(&present.spec);
        check_declaration(&spec, &without, &self.cpus).map_err(IslandError::Denied)?;
        let plan = self.plan(&spec, Some(island.id)).map_err(IslandError::Denied)?;

        self.reservations = without;
        let adjusted = IslandRef { id: island.id, generation };
        self.enter(spec, plan, adjusted);
        Ok(adjusted)
    }

    /// Ends an island and gives back all that it held. Its threads must have stopped.
    pub fn leave(&mut self, island: IslandRef) -> Result<Admitted, IslandError> {
        if self.get(island).is_none() {
            return Err(IslandError::Stale);
        }
        let left = self.islands.remove(&island.id).ok_or(IslandError::Stale)?;
        self.reservations.give_back(&left.spec);
        // What was found of the others holds beside less, too.
        Ok(left)
    }

    /// Node `node` of the island wants more than its budget.
    pub fn overrun(&mut self, island: IslandRef, node: usize) -> Result<OverrunAction, IslandError> {
        let found = self.get_mut(island)?;
        if found.phase == Phase::Stopping {
            return Ok(OverrunAction::AlreadyStopping);
        }
        Ok(match found.spec.overrun_of(node) {
            OverrunPolicy::Throttle => OverrunAction::Throttle,
            OverrunPolicy::Fault => OverrunAction::Fault,
            OverrunPolicy::Notify => OverrunAction::Notify,
            OverrunPolicy::Shutdown => {
                found.phase = Phase::Stopping;
                OverrunAction::Shutdown(found.spec.shutdown)
            }
        })
    }

    /// Begins the end of an island, whatever its overrun policy.
    pub fn shut_down(&mut self, island: IslandRef) -> Result<OverrunAction, IslandError> {
        let found = self.get_mut(island)?;
        if found.phase == Phase::Stopping {
            return Ok(OverrunAction::AlreadyStopping);
        }
        found.phase = Phase::Stopping;
        Ok(OverrunAction::Shutdown(found.spec.shutdown))
    }

    fn get_mut(&mut self, island: IslandRef) -> Result<&mut Admitted, IslandError> {
        let found = self.islands.get_mut(&island.id).ok_or(IslandError::Stale)?;
        if found.generation == island.generation { Ok(found) } else { Err(IslandError::Stale) }
    }

    /// Cannot fail: all of it was found free.
    fn enter(&mut self, spec: RealtimeIslandSpec, plan: Plan, island: IslandRef) {
        self.reservations.take(&spec, island);
        let Plan { homes, evidence } = plan;
        self.keep_evidence(&evidence);
        let generation = island.generation;
        let admitted = Admitted { spec, homes, evidence, phase: Phase::Running, generation };
        self.islands.insert(island.id, admitted);
    }

    /// These CPUs were tested with all that is there now: that is what is known of them, for each island that uses them.
    fn keep_evidence(&mut self, found: &[Evidence]) {
        for evidence in self.islands.values_mut().flat_map(|island| &mut island.evidence) {
            if let Some(newer) = found.iter().find(|newer| newer.cpu == evidence.cpu) {
                *evidence = *newer;
            }
        }
    }

    /// Finds a place for the nodes of `spec`, beside all but island `without`.
    fn plan(&self, spec: &RealtimeIslandSpec, without: Option<u32>) -> Result<Plan, IslandDenial> {
        let allowed = self.allowed(spec, without)?;
        let mut effort = self.effort;
        let mut loads: BTreeMap<CpuId, CpuLoad> =
            self.cpus.iter().map(|cpu| (cpu, self.load_of(cpu, without))).collect();
        let mut touched = CpuSet::EMPTY;
        // The last verdict of each CPU, which counts all that comes there.
        let mut found = BTreeMap::new();
        for irq in &spec.irqs {
            if let IrqWork::Bounded { cpu, cost, interval } = irq.work {
                let work = Task { cost, deadline: interval, period: interval };
                loads.entry(cpu).or_default().interrupts.push(work);
                touched.insert(cpu);
            }
        }
        for cpu in touched.iter() {
            let verdict = loads.entry(cpu).or_default().judge(self.floor, self.overhead, &mut effort);
            if let Some(denial) = verdict.denial {
                let sufficient_only = !verdict.has_witness();
                return Err(IslandDenial::Cpu { node: None, cpu, denial, sufficient_only });
            }
            found.insert(cpu, verdict);
        }
        let mut homes = Vec::new();
        for (nodes, banded) in pieces(spec) {
            let allowed = spec.nodes[nodes[0]].cpus.map_or(allowed, |cpus| cpus.and(&allowed));
            let Evidence { cpu, verdict } =
                self.place(spec, nodes[0], banded, &allowed, &mut loads, &mut effort)?;
            found.insert(cpu, verdict);
            homes.extend(nodes.into_iter().map(|node| NodeHome { node, cpu, banded }));
        }
        homes.sort_by_key(|home| home.node);
        let evidence = found.into_iter().map(|(cpu, verdict)| Evidence { cpu, verdict }).collect();
        Ok(Plan { homes, evidence })
    }

    /// The CPUs on which nodes of `spec` may be placed.
    fn allowed(&self, spec: &RealtimeIslandSpec, without: Option<u32>) -> Result<CpuSet, IslandDenial> {
        let others = || self.islands.iter().filter(|(id, _)| Some(**id) != without).map(|(_, other)| other);
        for cpu in spec.isolated.iter() {
            let used = others().any(|other| {
                other.spec.isolated.contains(cpu) || other.evidence.iter().any(|used| used.cpu == cpu)
            });
            let plain = self.plain.iter().any(|task| task.cpu == cpu);
            if used || plain || !self.cpus.contains(cpu) || !spec.cpu_set.contains(cpu) {
                return Err(IslandDenial::Isolation { cpu });
            }
        }
        let isolated_by_others: CpuSet = others().flat_map(|other| other.spec.isolated.iter()).collect();
        if let Some(last) = spec.isolated.last()
            && self.cpus.without(&isolated_by_others).without(&spec.isolated).is_empty()
        {
            return Err(IslandDenial::Isolation { cpu: last });
        }
        for irq in &spec.irqs {
            if let IrqWork::Bounded { cpu, .. } = irq.work
                && isolated_by_others.contains(cpu)
            {
                return Err(IslandDenial::Isolation { cpu });
            }
        }
        let allowed = spec.cpu_set.and(&self.cpus).without(&isolated_by_others);
        if allowed.is_empty() { Err(IslandDenial::NoCpu) } else { Ok(allowed) }
    }

    /// Puts a task on the first CPU whose load still holds with it; which, and what was found of it.
    fn place(
        &self,
        spec: &RealtimeIslandSpec,
        node: usize,
        banded: Banded,
        allowed: &CpuSet,
        loads: &mut BTreeMap<CpuId, CpuLoad>,
        effort: &mut Effort,
    ) -> Result<Evidence, IslandDenial> {
        let mut refused = None;
        for cpu in allowed.iter() {
            let load = loads.entry(cpu).or_default();
            load.tasks.push(banded);
            let verdict = load.judge(self.floor, self.overhead, effort);
            match verdict.denial {
                None => return Ok(Evidence { cpu, verdict }),
                Some(denial) => {
                    load.tasks.pop();
                    refused = Some((cpu, denial, !verdict.has_witness()));
                }
            }
            if effort.is_spent() {
                break;
            }
        }
        let (cpu, denial, sufficient_only) = refused.ok_or(IslandDenial::NoCpu)?;
        let sufficient_only = sufficient_only || allowed.len() > 1;
        Err(IslandDenial::Cpu { node: Some(spec.nodes[node].name.clone()), cpu, denial, sufficient_only })
    }

    /// All that is admitted on `cpu`, but for island `without`.
    fn load_of(&self, cpu: CpuId, without: Option<u32>) -> CpuLoad {
        let plain = self.plain.iter().filter(|task| task.cpu == cpu);
        let mut tasks = Vec::with_capacity(plain.clone().count() + TASKS_MORE);
        tasks.extend(plain.map(|task| task.banded));
        let mut load = CpuLoad { tasks, interrupts: Vec::new() };
        for island in self.islands.iter().filter(|(id, _)| Some(**id) != without).map(|(_, island)| island) {
            // A chain is one task, however many nodes have it.
            let first_of_chain = |home: &&NodeHome| island.spec.shape == Shape::Independent || home.node == 0;
            let here = island.homes.iter().filter(|home| home.cpu == cpu).filter(first_of_chain);
            load.tasks.extend(here.map(|home| home.banded));
            load.interrupts.extend(island.spec.irqs.iter().filter_map(|irq| match irq.work {
                IrqWork::Bounded { cpu: at, cost, interval } if at == cpu => {
                    Some(Task { cost, deadline: interval, period: interval })
                }
                _ => None,
            }));
        }
        load
    }
}

/// What it costs to judge a CPU besides the looks at its tasks, in looks: at all, and for each task.
const JUDGEMENT: usize = 20;
const JUDGEMENT_EACH: usize = 6;

/// Room in a load for what comes to it, so that it seldom grows.
const TASKS_MORE: usize = 16;

/// What wants time on one CPU.
#[derive(Clone, Debug, Default)]
struct CpuLoad {
    tasks: Vec<Banded>,
    interrupts: Vec<Task>,
}

impl CpuLoad {
    fn judge(&self, floor: Floor, overhead: Nanos, effort: &mut Effort) -> CpuVerdict {
        // Whatever it finds: with nothing left it says that it did not decide.
        let _paid = effort.look_at(JUDGEMENT + JUDGEMENT_EACH * self.tasks.len());
        let load =
            Load { tasks: &self.tasks, floor: Task::of_floor(floor), interrupts: &self.interrupts, overhead };
        judge_cpu_within(&load, effort)
    }
}

/// What is placed as one: each node, the largest first, or the whole of a chain.
fn pieces(spec: &RealtimeIslandSpec) -> Vec<(Vec<usize>, Banded)> {
    match spec.shape {
        Shape::Chain => {
            let total = spec.nodes.iter().fold(Nanos::ZERO, |sum, node| sum + node.budget);
            let task = Task { cost: total, deadline: spec.deadline, period: spec.period };
            let whole = Banded { task, criticality: spec.criticality };
            alloc::vec![((0..spec.nodes.len()).collect(), whole)]
        }
        Shape::Independent => {
            let mut order: Vec<usize> = (0..spec.nodes.len()).collect();
            order.sort_by_key(|node| (Reverse(spec.nodes[*node].budget), *node));
            let piece = |node: usize| {
                let own = &spec.nodes[node];
                let period = own.period.unwrap_or(spec.period);
                let deadline = own.deadline.unwrap_or(spec.deadline).min(period);
                let task = Task { cost: own.budget, deadline, period };
                let criticality = own.criticality.unwrap_or(spec.criticality);
                (alloc::vec![node], Banded { task, criticality })
            };
            order.into_iter().map(piece).collect()
        }
    }
}
