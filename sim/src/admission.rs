//! Where the contexts of a workload have their homes, and whether every deadline holds there.
//!
//! A context is a task: its budget, in each period, due its deadline after a release. What others do on it while it is
//! lent to them is spent from the same budget, so donated service counts where the caller's does and nowhere else. The
//! simulator charges switches, interrupts and cold caches to the thread that they delay; so they too are within the
//! budget, and nothing is added on top. Faults, and the time that a reschedule travels, are not counted.
//!
//! Plain contexts are placed all together by [`survey`]. An island comes later, at its start, beside whatever has been
//! admitted by then, as a whole or not at all. `mainspring admit` and a run ask the same [`Admission`], so they place
//! alike.
//!
//! Conserved: every context has the same index as in a run; a context of an island has a home exactly while its island
//! is admitted.

mod least_demand;
mod witness;

pub use least_demand::{Excess, excessive};
pub use mainspring_authority::admission::{Denial, Interval, Part};
pub use mainspring_authority::island::IslandDenial;
pub use witness::{Miss, Search, Witness, witness};

use mainspring_abi::{CpuId, CpuSet, Nanos};
use mainspring_authority::admission::{
    Banded, Candidate, CpuVerdict, Effort, Load, Refusal, Survey, Task, judge_cpu, overcommitted,
    response_bound, survey,
};
use mainspring_authority::island::{
    Calls, Capacity, DeviceReservation, HotPath, IslandError, IslandRef, Locks, Machine, NodeBudget,
    NodeTerms, OverrunPolicy, PlainTask, PreallocSpec, RealtimeIslandSpec, Residency, RingSpec, Shape,
    ShutdownPolicy,
};
use mainspring_sched::Floor;
use mainspring_workload::{self as workload, Workload};

/// How an island of the workload stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has not asked yet.
    Waiting,
    /// It is admitted.
    Admitted(IslandRef),
    /// It was refused.
    Refused(IslandDenial),
    /// It was admitted and has left.
    Left,
}

/// What was found of one CPU with all that is on it.
#[derive(Clone, Debug)]
pub struct CpuFound {
    /// Which.
    pub cpu: CpuId,
    /// What was found.
    pub verdict: CpuVerdict,
    /// The contexts that have their home there.
    pub contexts: Vec<usize>,
    /// Each budget over its deadline, the floor included, together, in millionths, rounded up.
    pub density_ppm: u64,
    /// Whether a refusal is proof of a miss: no better test and no other placement could help.
    pub exact: bool,
}

/// The contexts of a workload, each with its home.
#[derive(Debug)]
pub struct Admission {
    cpus: CpuSet,
    floor: Floor,
    contexts: Vec<Candidate>,
    /// By context, its table in the workload.
    tables: Vec<usize>,
    /// By context, the island that it is a node of.
    island_of: Vec<Option<usize>>,
    homes: Vec<Option<CpuId>>,
    plain: Survey,
    machine: Machine,
    islands: Vec<Standing>,
}

/// What best effort keeps; a workload's floor is within range.
#[must_use]
pub fn floor(workload: &Workload) -> Floor {
    Floor::from_ppm(workload.machine.floor_ppm).unwrap_or_default()
}

/// The machine on which the islands of `workload` are admitted. None has asked yet.
pub(crate) fn island_machine(workload: &Workload) -> Machine {
    Machine::new(CpuSet::first(workload.machine.cpus), floor(workload), Nanos::ZERO, &capacity(workload))
}

impl Admission {
    /// Places the plain contexts of `workload`. No island has asked yet.
    #[must_use]
    pub fn new(workload: &Workload) -> Self {
        let cpus = CpuSet::first(workload.machine.cpus);
        let floor = floor(workload);
        let mut contexts = candidates(workload, &cpus);
        let instances = workload.contexts.iter().map(workload::ContextSpec::instances).enumerate();
        let tables = instances.flat_map(|(table, count)| vec![table; count]).collect();
        let island_of = memberships(workload, contexts.len());
        for (context, island) in contexts.iter_mut().zip(&island_of) {
            // A node is due when its island is, if not before.
            let due = island.map_or(Nanos::MAX, |island| workload.islands[island].deadline);
            context.task.deadline = context.task.deadline.min(due);
        }
        let lone: Vec<usize> = (0..contexts.len()).filter(|index| island_of[*index].is_none()).collect();
        let asked: Vec<Candidate> = lone.iter().map(|index| contexts[*index].clone()).collect();
        let plain = survey(&asked, &cpus, floor, Nanos::ZERO);
        let mut homes = vec![None; contexts.len()];
        for (index, task) in lone.iter().zip(&plain.tasks) {
            homes[*index] = task.cpu;
        }
        let machine = island_machine(workload);
        let islands = vec![Standing::Waiting; workload.islands.len()];
        Self { cpus, floor, contexts, tables, island_of, homes, plain, machine, islands }
    }

    /// Places the plain contexts of `workload`, and asks for its islands one after the other, in the order of their
    /// starts.
    #[must_use]
    pub fn of_all(workload: &Workload) -> Self {
        let mut all = Self::new(workload);
        let mut order: Vec<usize> = (0..workload.islands.len()).collect();
        order.sort_by_key(|island| workload.islands[*island].start);
        for island in order {
            // Its standing says what became of it.
            let _ = all.admit(workload, island, &vec![true; all.contexts.len()]);
        }
        all
    }

    /// The contexts, in the order of their tables and instances.
    #[must_use]
    pub fn contexts(&self) -> &[Candidate] {
        &self.contexts
    }

    /// The island that a context is a node of.
    #[must_use]
    pub fn island_of(&self, context: usize) -> Option<usize> {
        self.island_of[context]
    }

    /// The home of a context; none if its mask is empty, or it belongs to an island that is not admitted.
    #[must_use]
    pub fn home(&self, context: usize) -> Option<CpuId> {
        self.homes[context]
    }

    /// How the islands stand.
    #[must_use]
    pub fn islands(&self) -> &[Standing] {
        &self.islands
    }

    /// What was found of the plain contexts when they were placed.
    #[must_use]
    pub fn plain(&self) -> &Survey {
        &self.plain
    }

    /// Asks for island `island`. `live` says of each context whether it still is.
    pub fn admit(
        &mut self,
        workload: &Workload,
        island: usize,
        live: &[bool],
    ) -> Result<IslandRef, IslandDenial> {
        let spec = self.island_spec(workload, island);
        let admitted = self.set_plain(live).and_then(|()| self.machine.admit(spec));
        match &admitted {
            Ok(name) => {
                self.islands[island] = Standing::Admitted(*name);
                self.place_nodes(island, *name);
            }
            Err(denial) => self.islands[island] = Standing::Refused(denial.clone()),
        }
        admitted
    }

    /// Island `island` leaves; whether it was there.
    pub fn leave(&mut self, island: usize) -> bool {
        let Standing::Admitted(name) = self.islands[island] else { return false };
        let left = self.machine.leave(name).is_ok();
        self.islands[island] = Standing::Left;
        for context in self.nodes(island) {
            self.homes[context] = None;
        }
        left
    }

    /// Takes note of what `context` asks for from now on, if its island holds with it. It stays where it is. A plain context is
    /// judged by the driver, when it is adjusted there.
    pub fn adjust(
        &mut self,
        workload: &Workload,
        context: usize,
        task: Task,
        live: &[bool],
    ) -> Result<(), IslandError> {
        let before = std::mem::replace(&mut self.contexts[context].task, task);
        let adjusted = match self.island_of[context] {
            Some(island) => self.adjust_node(workload, island, live),
            None => Ok(()),
        };
        if adjusted.is_err() {
            self.contexts[context].task = before;
        }
        adjusted
    }

    fn adjust_node(&mut self, workload: &Workload, island: usize, live: &[bool]) -> Result<(), IslandError> {
        let Standing::Admitted(name) = self.islands[island] else { return Ok(()) };
        self.set_plain(live).map_err(IslandError::Denied)?;
        let mut spec = self.island_spec(workload, island);
        for (node, context) in spec.nodes.iter_mut().zip(self.nodes(island)) {
            node.cpus = self.homes[context].map(|home| [home].into_iter().collect());
        }
        let name = self.machine.adjust(name, spec)?;
        self.islands[island] = Standing::Admitted(name);
        Ok(())
    }

    /// Every CPU, with all that has its home there.
    #[must_use]
    pub fn found(&self) -> Vec<CpuFound> {
        let homes = self.by_home();
        let verdicts: Vec<CpuVerdict> = homes.iter().map(|(_, contexts)| self.judge_all(contexts)).collect();
        let hopeless = if verdicts.iter().all(CpuVerdict::is_admitted) {
            Vec::new()
        } else {
            overcommitted(&self.contexts, &self.cpus, self.floor, Nanos::ZERO)
        };
        let of = |((cpu, contexts), verdict): ((CpuId, Vec<usize>), CpuVerdict)| {
            let bound = |context: &usize| self.contexts[*context].cpus.len() == 1;
            // Contexts that could have gone elsewhere are not to blame if the CPU does not hold without them.
            let here: Vec<usize> = contexts.iter().copied().filter(bound).collect();
            let alone = verdict.has_witness() && self.judge_all(&here).has_witness();
            let beyond_group = !verdict.is_admitted() && hopeless.iter().any(|group| group.contains(cpu));
            let density_ppm = self.density_ppm(&contexts);
            CpuFound { cpu, verdict, contexts, density_ppm, exact: alone || beyond_group }
        };
        homes.into_iter().zip(verdicts).map(of).collect()
    }

    fn by_home(&self) -> Vec<(CpuId, Vec<usize>)> {
        let mut homes: Vec<(CpuId, Vec<usize>)> = self.cpus.iter().map(|cpu| (cpu, Vec::new())).collect();
        for (context, home) in self.homes.iter().enumerate() {
            let Some(home) = home else { continue };
            if let Ok(place) = homes.binary_search_by_key(home, |(cpu, _)| *cpu) {
                homes[place].1.push(context);
            }
        }
        homes
    }

    /// The plain contexts that may use no CPU, or make no sense.
    #[must_use]
    pub fn homeless(&self) -> Vec<usize> {
        let plain: Vec<usize> =
            (0..self.contexts.len()).filter(|index| self.island_of[*index].is_none()).collect();
        let of = |refusal: &Refusal| match refusal {
            Refusal::Nowhere { task } | Refusal::Malformed { task } => Some(plain[*task]),
            Refusal::Cpu { .. } => None,
        };
        self.plain.refusals.iter().filter_map(of).collect()
    }

    /// By context, the longest that its budget can take from a release on; `None` if that has no bound, no home, or all of
    /// them together take too long.
    #[must_use]
    pub fn responses(&self) -> Vec<Option<Nanos>> {
        /// Some seconds, however many contexts there are.
        const EFFORT: Effort = Effort::new(1 << 28);
        let mut effort = EFFORT;
        let mut responses = vec![None; self.contexts.len()];
        for (_, on) in self.by_home() {
            let tasks = self.load(&on);
            let load = self.load_of(&tasks);
            // What is admitted is never late, even where the bound is not tight.
            let admitted = judge_cpu(&load).is_admitted();
            for (place, context) in on.iter().enumerate() {
                let deadline = self.contexts[*context].task.deadline;
                let latest = if admitted { deadline } else { Nanos::MAX };
                responses[*context] =
                    response_bound(&load, place, &mut effort).map(|bound| bound.min(latest));
            }
        }
        responses
    }

    fn load_of<'a>(&self, tasks: &'a [Banded]) -> Load<'a> {
        Load { tasks, floor: Task::of_floor(self.floor), interrupts: &[], overhead: Nanos::ZERO }
    }

    fn density_ppm(&self, contexts: &[usize]) -> u64 {
        let tasks =
            contexts.iter().map(|context| self.contexts[*context].task).chain(Task::of_floor(self.floor));
        let scaled =
            |task: Task| (u128::from(task.cost.get()) << 64) / u128::from(task.deadline.get().max(1));
        let sum = tasks.map(scaled).fold(0, u128::saturating_add).saturating_mul(1_000_000);
        u64::try_from(sum.div_ceil(1 << 64)).unwrap_or(u64::MAX)
    }

    fn judge_all(&self, contexts: &[usize]) -> CpuVerdict {
        judge_cpu(&self.load_of(&self.load(contexts)))
    }

    fn load(&self, contexts: &[usize]) -> Vec<Banded> {
        let of = |context: &usize| {
            let Candidate { task, criticality, .. } = self.contexts[*context];
            Banded { task, criticality }
        };
        contexts.iter().map(of).collect()
    }

    /// The contexts that are nodes of an island.
    #[must_use]
    pub fn nodes(&self, island: usize) -> Vec<usize> {
        (0..self.contexts.len()).filter(|context| self.island_of[*context] == Some(island)).collect()
    }

    fn set_plain(&mut self, live: &[bool]) -> Result<(), IslandDenial> {
        let plain = |context: &usize| live[*context] && self.island_of[*context].is_none();
        let of = |context: usize| {
            let Candidate { task, criticality, .. } = self.contexts[context];
            Some(PlainTask { cpu: self.homes[context]?, banded: Banded { task, criticality } })
        };
        let tasks = (0..self.contexts.len()).filter(plain).filter_map(of).collect();
        self.machine.set_plain(tasks)
    }

    fn place_nodes(&mut self, island: usize, name: IslandRef) {
        let Some(admitted) = self.machine.get(name) else { return };
        let homes: Vec<CpuId> = admitted.homes.iter().map(|home| home.cpu).collect();
        for (context, home) in self.nodes(island).into_iter().zip(homes) {
            self.homes[context] = Some(home);
        }
    }

    /// A context that is not granted yet, or that the driver has adjusted, asks for this from now on.
    pub(crate) fn set_task(&mut self, context: usize, task: Task) {
        self.contexts[context].task = task;
    }

    /// What the island's tables ask for, with the nodes in the order of their contexts.
    pub(crate) fn island_spec(&self, workload: &Workload, island: usize) -> RealtimeIslandSpec {
        let spec = &workload.islands[island];
        let policy = |overrun| match overrun {
            workload::Overrun::Throttle => OverrunPolicy::Throttle,
            workload::Overrun::Fault => OverrunPolicy::Fault,
            workload::Overrun::Notify => OverrunPolicy::Notify,
            workload::Overrun::Shutdown => OverrunPolicy::Shutdown,
        };
        let node = |context: usize| {
            let Candidate { name, task, criticality, cpus } = &self.contexts[context];
            let own = &workload.contexts[self.tables[context]];
            NodeBudget {
                name: name.clone(),
                budget: task.cost,
                period: Some(task.period),
                deadline: Some(task.deadline),
                criticality: Some(*criticality),
                cpus: Some(*cpus),
                locks: match spec.locks {
                    workload::Locks::None => Locks::None,
                    workload::Locks::Bounded => Locks::Bounded,
                    workload::Locks::Unbounded => Locks::Unbounded,
                },
                calls: match spec.calls {
                    workload::Calls::None => Calls::None,
                    workload::Calls::Donating => Calls::Donating,
                    workload::Calls::Blocking => Calls::Blocking,
                },
                hot_path: HotPath::default(),
                terms: NodeTerms {
                    priority: own.priority,
                    refills: own.refills.max(2),
                    depth: own.depth,
                    timeout_endpoint: own.timeout_endpoint.map(|endpoint| endpoint as u32),
                    // A node that says nothing about overruns does what its island says.
                    overrun: (own.overrun != workload::Overrun::Throttle).then(|| policy(own.overrun)),
                },
            }
        };
        RealtimeIslandSpec {
            name: spec.name.clone(),
            period: spec.period,
            deadline: spec.deadline,
            criticality: 0,
            cpu_set: spec.cpus.unwrap_or(self.cpus),
            isolated: CpuSet::EMPTY,
            shape: Shape::Independent,
            nodes: self.nodes(island).into_iter().map(node).collect(),
            rings: spec.rings.iter().map(|ring| ring_spec(workload, *ring)).collect(),
            memory: spec.memory.iter().map(buffer).collect(),
            devices: spec.devices.iter().map(|name| DeviceReservation { name: name.clone() }).collect(),
            irqs: Vec::new(),
            endpoints: Vec::new(),
            overrun: policy(spec.overrun),
            shutdown: ShutdownPolicy::AtOnce,
        }
    }
}

/// Each context as a task that asks for a place: on the CPUs that it and the thread that names it may use.
fn candidates(workload: &Workload, cpus: &CpuSet) -> Vec<Candidate> {
    let mut all = Vec::new();
    for (table, spec) in workload.contexts.iter().enumerate() {
        let mut allowed = spec.cpus.unwrap_or(*cpus).and(cpus);
        for thread in workload.threads.iter().filter(|thread| thread.context == Some(table)) {
            allowed = thread.cpus.map_or(allowed, |bound| bound.and(&allowed));
        }
        allowed = beside_leases(workload, table, allowed);
        all.extend((0..spec.instances()).map(|instance| Candidate {
            name: spec.instance_name(instance),
            task: Task { cost: spec.budget, deadline: spec.deadline, period: spec.period },
            criticality: spec.criticality,
            cpus: allowed,
        }));
    }
    all
}

/// The context of a thread with a lease is spent on the leased CPUs; others are kept off them if they can be elsewhere.
fn beside_leases(workload: &Workload, table: usize, allowed: CpuSet) -> CpuSet {
    let own =
        workload.leases.iter().find(|lease| workload.threads[lease.thread.thread].context == Some(table));
    if let Some(lease) = own {
        return lease.cpus.and(&allowed);
    }
    let mut free = allowed;
    for cpu in workload.leases.iter().flat_map(|lease| lease.cpus.iter().collect::<Vec<_>>()) {
        free.remove(cpu);
    }
    if free.is_empty() { allowed } else { free }
}

fn memberships(workload: &Workload, contexts: usize) -> Vec<Option<usize>> {
    let mut bases = Vec::new();
    let mut next = 0;
    for spec in &workload.contexts {
        bases.push(next);
        next += spec.instances();
    }
    let mut island_of = vec![None; contexts];
    for (island, spec) in workload.islands.iter().enumerate() {
        for node in &spec.nodes {
            let (base, count) = (bases[node.context], workload.contexts[node.context].instances());
            let instances = match node.instance {
                Some(instance) => base + instance as usize..base + instance as usize + 1,
                None => base..base + count,
            };
            island_of[instances].fill(Some(island));
        }
    }
    island_of
}

/// A workload file does not say how much memory and how many ring entries there are, so they do not run out; a device is
/// there, once, if the file names it.
fn capacity(workload: &Workload) -> Capacity {
    let devices = workload.islands.iter().flat_map(|island| island.devices.iter().cloned()).collect();
    Capacity { memory_bytes: u64::MAX, ring_entries: u64::MAX, devices, ..Capacity::default() }
}

fn ring_spec(workload: &Workload, ring: usize) -> RingSpec {
    let spec = &workload.rings[ring];
    RingSpec { name: spec.name.clone(), entries: spec.entries }
}

/// A workload's memory is as good as touched: a simulated machine has no page faults.
fn buffer(memory: &workload::MemorySpec) -> PreallocSpec {
    PreallocSpec {
        name: memory.name.clone(),
        bytes: memory.bytes,
        residency: match memory.residency {
            workload::Residency::Pinned => Residency::Pinned,
            workload::Residency::Secret => Residency::Secret,
            workload::Residency::Normal => Residency::Normal,
        },
        committed: true,
    }
}
