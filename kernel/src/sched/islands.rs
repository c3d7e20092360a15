//! The machine's realtime islands: the driver's table under one lock, and what each island keeps.
//!
//! The lock is taken before that of the leases, and so before all others of the scheduler. Memory of an island is kept by reference:
//! its pages were there when it was admitted, and stay until it has left, whatever its process does to its own names of them.
//!
//! Conserved: an island that is admitted has a context for each node and a reference to each of its objects, on the account of its
//! process; one that was refused or has left has neither. A program of the manifest and all that it makes, its family, have no more of
//! a CPU in islands than the manifest says, and no more than [`NODES`] nodes. What islands that have left or grant less have used, and
//! has not come back, counts as theirs until it has: an island in their place is released when there is room for it.

use super::contexts::{self, CONTEXTS};
use super::leases::with_leases;
use super::machine::Kernel;
use super::per_cpu::{PerCpu, per_cpus};
use crate::arch;
use crate::method::post_notice;
use crate::object::caps::IslandName;
use crate::object::memory::MemoryObject;
use crate::object::process::{MAX_PROCESSES, Process};
use crate::object::thread::{MAX_THREADS, Thread};
use core::sync::atomic::{AtomicBool, Ordering};
use heapless::Deque;
use mainspring_abi::kernel::{ISLAND_NODES, RELEASE_NS, SQ_ENTRIES};
use mainspring_abi::ring::CapError;
use mainspring_abi::{ContextRef, Nanos, ProcessId};
use mainspring_authority::admission::Effort;
use mainspring_authority::island::{Capacity, IslandError, IslandRef, Machine, Phase, RealtimeIslandSpec};
use mainspring_driver::contexts::Contexts;
use mainspring_driver::debts::{Debts, Owed};
use mainspring_driver::islands::{IslandMachine, IslandNotice, Islands, NotAdmitted, NotBound, UsedUp};
use mainspring_sched::Floor;
use mainspring_sched::context::{Overrun, Usage};
use mainspring_sched::lease::{Endpoint, Owner};
use mainspring_schema as schema;
use spin::{Mutex, Once};

/// Islands that there can be at a time.
const ISLANDS: usize = 8;
/// Nodes of one island, and of all islands of a family: each takes the place of a context, and its releases cost time that no share
/// counts, at most a hundredth of a CPU.
pub const NODES: usize = ISLAND_NODES;
/// Objects that one island may keep.
pub const OBJECTS: usize = 4;
/// A millionth of a CPU.
const PPM: u64 = 1_000_000;
/// Billionths of a CPU, in which contexts count, in a millionth.
const BILLIONTHS: u64 = 1000;
/// Looks of the admission test at a task, for one decision: it is taken with interrupts off.
const EFFORT: Effort = Effort::new(700);

/// What an island has beside its contexts.
struct Kept {
    island: IslandRef,
    process: ProcessId,
    /// The family of its process.
    family: u32,
    /// What its nodes have of a CPU, in millionths.
    share_ppm: u64,
    nodes: usize,
    memory: heapless::Vec<MemoryObject, OBJECTS>,
}

/// The CPU and the context of each node of an island.
type Nodes = heapless::Vec<(u32, u32), NODES>;

/// An island that has left.
struct Left {
    island: IslandName,
    nodes: Nodes,
    at: Nanos,
    /// An overrun ended it.
    shut_down: bool,
}

struct Table {
    islands: Islands,
    kept: heapless::Vec<Kept, ISLANDS>,
    /// What each family has used on islands that have left or grant less, until it would have come back.
    debts: [Debts; MAX_PROCESSES],
    /// The last islands that have left, whose names still say what was used.
    left: Deque<Left, ISLANDS>,
}

static TABLE: Once<Mutex<Option<Table>>> = Once::new();
/// Whether there is an island.
static ANY: AtomicBool = AtomicBool::new(false);
/// What has not been told.
static NOTICES: Mutex<Deque<(Endpoint, [u64; 4]), { 4 * ISLANDS }>> = Mutex::new(Deque::new());

/// Makes the table. The CPUs are known.
pub fn init(floor: Floor, overhead: Nanos) {
    TABLE.call_once(|| {
        let cpus = per_cpus().iter().map(PerCpu::id).collect();
        let capacity = Capacity {
            // Every page of an object is a frame that its holders have paid for: no island is refused for want of it.
            memory_bytes: u64::MAX,
            ring_entries: (MAX_THREADS as u64) * u64::from(SQ_ENTRIES),
            ..Capacity::default()
        };
        let admission = Machine::new(cpus, floor, overhead, &capacity).with_effort(EFFORT);
        let islands = Islands::new(admission);
        Mutex::new(Some(Table {
            islands,
            kept: heapless::Vec::new(),
            debts: [Debts::NONE; MAX_PROCESSES],
            left: Deque::new(),
        }))
    });
}

/// Everything that islands have of the heap is given back: the machine ends.
pub fn end() {
    *table().lock() = None;
}

fn table() -> &'static Mutex<Option<Table>> {
    TABLE.get().expect("islands can exist before anything is scheduled")
}

/// Acts on the islands, with nothing else locked. What there is to tell is told afterwards.
fn with_table<R>(act: impl FnOnce(&mut Table) -> Result<R, CapError>) -> Result<R, CapError> {
    let mut guard = table().lock();
    let result = match guard.as_mut() {
        Some(table) => {
            // What islands have of the heap is bounded by their number.
            let _charged = arch::open_heap();
            let result = act(table);
            ANY.store(!table.kept.is_empty(), Ordering::Relaxed);
            result
        }
        None => Err(CapError::InvalidCapability),
    };
    drop(guard);
    loop {
        let notice = NOTICES.lock().pop_front();
        let Some((endpoint, words)) = notice else { break };
        post_notice(endpoint.0, words);
    }
    result
}

/// Whether there is an island: its nodes' overruns are its business.
#[inline(always)]
pub fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

impl IslandMachine for Kernel {
    /// It is posted when nothing is locked. One that finds no room is lost: the island's state can be asked for.
    fn post_island_notice(&mut self, endpoint: Endpoint, island: IslandRef, notice: IslandNotice) {
        let (kind, node) = match notice {
            IslandNotice::Overran { node } => (schema::IslandNotice::Overran, node as u64),
            IslandNotice::ShuttingDown => (schema::IslandNotice::ShuttingDown, 0),
            IslandNotice::Adjusted => (schema::IslandNotice::Adjusted, 0),
            IslandNotice::Left => (schema::IslandNotice::Left, 0),
        };
        let words = [u64::from(island.id()), kind as u64, node, arch::now().get()];
        let _there_is_room_for_each_event_of_each_island = NOTICES.lock().push_back((endpoint, words));
    }
}

/// What the nodes of a spec have of a CPU, in millionths, rounded up: each its budget in the time from a release to the deadline, as
/// for contexts.
fn share_ppm(spec: &RealtimeIslandSpec) -> u64 {
    let share = |node: &mainspring_authority::island::NodeBudget| {
        let period = node.period.unwrap_or(spec.period);
        let window = node.deadline.unwrap_or(spec.deadline).min(spec.deadline).min(period);
        node.budget.get().saturating_add(RELEASE_NS).saturating_mul(PPM).div_ceil(window.get().max(1))
    };
    spec.nodes.iter().map(share).fold(0, u64::saturating_add)
}

fn denied(why: &NotAdmitted) -> CapError {
    match why {
        NotAdmitted::Denied(denial) => denial.code(),
        NotAdmitted::Context { .. } => CapError::QuotaExceeded,
    }
}

fn refused(why: &IslandError) -> CapError {
    match why {
        IslandError::Stale => CapError::InvalidCapability,
        IslandError::Stopping => CapError::Busy,
        IslandError::Denied(denial) => denial.code(),
    }
}

/// Admits an island of `process`, whose family may have so many percent of a CPU in islands.
pub fn admit(
    process: &Process,
    percent: u64,
    spec: RealtimeIslandSpec,
    memory: heapless::Vec<MemoryObject, OBJECTS>,
    notify: Option<u32>,
) -> Result<IslandName, CapError> {
    let owner = Owner { process: ProcessId::new(process.index()), session: None, service: None };
    with_table(|table| {
        if table.kept.is_full() {
            return Err(CapError::QuotaExceeded);
        }
        let (family, share_ppm, nodes) = (process.family(), share_ppm(&spec), spec.nodes.len());
        table.may_have(family, None, (share_ppm, nodes), percent)?;
        let mut contexts = contexts::lock();
        contexts::begin();
        let notify = notify.map(Endpoint);
        let admitted = table.islands.admit(&mut Kernel, &mut contexts, spec, owner, notify);
        let island = admitted.map_err(|why| denied(&why))?;
        let _there_is_room =
            table.kept.push(Kept { island, process: owner.process, family, share_ppm, nodes, memory });
        table.release(&mut contexts, island, family, percent);
        Ok(name(island))
    })
}

fn name(island: IslandRef) -> IslandName {
    IslandName { id: island.id(), generation: island.generation() }
}

impl Table {
    /// The island of this name, if there is one.
    fn find(&self, named: IslandName) -> Result<IslandRef, CapError> {
        let islands = self.kept.iter().map(|kept| kept.island);
        islands.into_iter().find(|island| name(*island) == named).ok_or(CapError::InvalidCapability)
    }

    /// Whether `family` may have so much more of a CPU, and so many more nodes, in islands than those that it has, but for one.
    fn may_have(
        &self,
        family: u32,
        but: Option<IslandRef>,
        (share_ppm, nodes): (u64, usize),
        percent: u64,
    ) -> Result<(), CapError> {
        let others = self.kept.iter().filter(|kept| kept.family == family && Some(kept.island) != but);
        let has = others.clone().fold(share_ppm, |sum, kept| sum.saturating_add(kept.share_ppm));
        if has > percent * (PPM / 100) {
            return Err(CapError::Denied);
        }
        let has = others.fold(nodes, |sum, kept| sum + kept.nodes);
        if has > NODES { Err(CapError::QuotaExceeded) } else { Ok(()) }
    }

    /// What the nodes of an island of `family` had used and not got back when they last changed is a debt: at most so much of a CPU.
    fn owe(&mut self, contexts: &mut Contexts, nodes: &[ContextRef], family: u32, most_ppm: u64) {
        let mut most = most_ppm.saturating_mul(BILLIONTHS);
        for Owed { share, until } in nodes.iter().flat_map(|node| contexts.take_owed(node.id())) {
            let share = share.min(most);
            most -= share;
            self.debts[family as usize % MAX_PROCESSES].add(Owed { share, until });
        }
    }

    /// An island of `family` has more than before: it is there when what the family has, and has used, leave room for it.
    fn release(&mut self, contexts: &mut Contexts, island: IslandRef, family: u32, percent: u64) {
        let now = arch::now();
        let own = self.kept.iter().filter(|kept| kept.family == family);
        let has = own.fold(0u64, |sum, kept| sum.saturating_add(kept.share_ppm));
        let room = (percent * (PPM / 100)).saturating_sub(has).saturating_mul(BILLIONTHS);
        let from = self.debts[family as usize % MAX_PROCESSES].room_from(room, now);
        if from > now {
            for node in self.islands.contexts(island).unwrap_or(&[]) {
                contexts.release_from(&mut Kernel, *node, from);
            }
        }
    }

    /// Where its nodes are, and on which contexts.
    fn nodes(&self, island: IslandRef) -> Nodes {
        let Some(admitted) = self.islands.admission().get(island) else { return Nodes::new() };
        let cpu_of = |node: usize| {
            let home = admitted.homes.iter().find(|home| home.node == node);
            home.map_or(0, |home| home.cpu.index() as u32)
        };
        let contexts = self.islands.contexts(island).unwrap_or(&[]);
        contexts.iter().enumerate().map(|(node, who)| (cpu_of(node), who.id())).collect()
    }

    /// Ends an island, because an overrun shuts it down or for another reason.
    fn leave(&mut self, island: IslandRef, shut_down: bool) -> Result<(), CapError> {
        let nodes = self.nodes(island);
        let names: heapless::Vec<ContextRef, NODES> =
            self.islands.contexts(island).unwrap_or(&[]).iter().copied().collect();
        let islands = &mut self.islands;
        with_leases(|leases, machine| {
            let mut contexts = contexts::lock();
            islands.leave(machine, &mut contexts, leases, island).map_err(|why| refused(&why))
        })?;
        if let Some(place) = self.kept.iter().position(|kept| kept.island == island) {
            let Kept { family, share_ppm, .. } = self.kept.swap_remove(place);
            self.owe(&mut contexts::lock(), &names, family, share_ppm);
        }
        if self.left.is_full() {
            self.left.pop_front();
        }
        let left = Left { island: name(island), nodes, at: arch::now(), shut_down };
        let _there_is_room = self.left.push_back(left);
        Ok(())
    }
}

/// `thread`, which runs, is node `node` of the island from now on.
pub fn bind(island: IslandName, node: usize, thread: &Thread) -> Result<(), CapError> {
    with_table(|table| {
        let island = table.find(island)?;
        let Table { islands, .. } = table;
        with_leases(|leases, machine| {
            let mut contexts = contexts::lock();
            if thread.is_leaving() {
                return Err(CapError::PeerGone);
            }
            islands.bind(machine, &mut contexts, leases, (island, node), thread.name()).map_err(|why| {
                match why {
                    NotBound::Stale => CapError::InvalidCapability,
                    NotBound::Context(why) => crate::method::not_bound(why),
                    NotBound::Lease(_) => CapError::Denied,
                }
            })
        })
    })
}

/// The context of a node.
pub fn context_of(island: IslandName, node: usize) -> Result<ContextRef, CapError> {
    with_table(|table| {
        let contexts = table.islands.contexts(table.find(island)?).unwrap_or(&[]);
        contexts.get(node).copied().ok_or(CapError::InvalidCapability)
    })
}

/// Gives an island of a process whose family may have so many percent of a CPU another spec.
pub fn adjust(
    island: IslandName,
    percent: u64,
    mut spec: RealtimeIslandSpec,
) -> Result<IslandName, CapError> {
    with_table(|table| {
        let island = table.find(island)?;
        let admitted = table.islands.admission().get(island).ok_or(CapError::InvalidCapability)?;
        // What it keeps stays kept.
        spec.memory.clone_from(&admitted.spec.memory);
        spec.rings.clone_from(&admitted.spec.rings);
        spec.endpoints.clone_from(&admitted.spec.endpoints);
        if spec.nodes.len() != admitted.spec.nodes.len() {
            return Err(CapError::InvalidParameter);
        }
        let share_ppm = share_ppm(&spec);
        let place = table.kept.iter().position(|kept| kept.island == island);
        let place = place.ok_or(CapError::InvalidCapability)?;
        let (family, before) = (table.kept[place].family, table.kept[place].share_ppm);
        table.may_have(family, Some(island), (share_ppm, spec.nodes.len()), percent)?;
        let mut contexts = contexts::lock();
        let adjusted = table.islands.adjust(&mut Kernel, &mut contexts, island, spec);
        let adjusted = adjusted.map_err(|why| refused(&why))?;
        (table.kept[place].island, table.kept[place].share_ppm) = (adjusted, share_ppm);
        let nodes: heapless::Vec<ContextRef, NODES> =
            table.islands.contexts(adjusted).unwrap_or(&[]).iter().copied().collect();
        table.owe(&mut contexts, &nodes, family, before.saturating_sub(share_ppm));
        if share_ppm > before {
            table.release(&mut contexts, adjusted, family, percent);
        }
        Ok(name(adjusted))
    })
}

/// Ends an island.
pub fn leave(island: IslandName) -> Result<(), CapError> {
    with_table(|table| table.leave(table.find(island)?, false))
}

/// The process has ended, but for its last thread: its islands leave.
pub fn process_ended(process: &Process) {
    if !any() {
        return;
    }
    let owner = ProcessId::new(process.index());
    loop {
        let left = with_table(|table| {
            let own = table.kept.iter().find(|kept| kept.process == owner).map(|kept| kept.island);
            own.map_or(Err(CapError::NotFound), |island| table.leave(island, false))
        });
        if left.is_err() {
            return;
        }
    }
}

/// A context was used up: what is left to do about it. An island that it shuts down has left.
pub fn used_up(context: ContextRef, policy: Overrun) -> UsedUp {
    let left_to_do = with_table(|table| match table.islands.used_up(&mut Kernel, context, policy) {
        UsedUp::Leave(island) => table.leave(island, true).map(|()| UsedUp::Nothing),
        other => Ok(other),
    });
    left_to_do.unwrap_or(UsedUp::Nothing)
}

/// What is known of a node.
pub struct Node {
    /// Its CPU.
    pub cpu: u32,
    /// The number of its context.
    pub context: u32,
    /// What was used.
    pub usage: Usage,
}

/// What is known of an island.
pub struct Info {
    /// It is there.
    pub live: bool,
    /// It is to end.
    pub stopping: bool,
    /// By node.
    pub nodes: heapless::Vec<Node, NODES>,
    /// Pages that it keeps.
    pub pages: u64,
    /// Ring entries that it has.
    pub ring_entries: u32,
    /// When it left.
    pub ended: Option<Nanos>,
    /// An overrun ended it.
    pub shut_down: bool,
}

fn usage_of(nodes: &Nodes) -> heapless::Vec<Node, NODES> {
    let table = contexts::lock();
    let node = |(cpu, context): &(u32, u32)| {
        let known = table.inspect(&mut Kernel, arch::now(), *context);
        Node { cpu: *cpu, context: *context, usage: known.map(|known| known.usage).unwrap_or_default() }
    };
    nodes.iter().map(node).collect()
}

/// What is known of an island; `None` if the name is of none that there is or was lately.
pub fn info(named: IslandName) -> Option<Info> {
    let found = with_table(|table| {
        let Ok(island) = table.find(named) else {
            let left = table.left.iter().find(|left| left.island == named);
            let left = left.ok_or(CapError::InvalidCapability)?;
            return Ok(Info {
                live: false,
                stopping: false,
                nodes: usage_of(&left.nodes),
                pages: 0,
                ring_entries: 0,
                ended: Some(left.at),
                shut_down: left.shut_down,
            });
        };
        let admitted = table.islands.admission().get(island).ok_or(CapError::InvalidCapability)?;
        let kept = table.kept.iter().find(|kept| kept.island == island);
        Ok(Info {
            live: true,
            stopping: admitted.phase == Phase::Stopping,
            nodes: usage_of(&table.nodes(island)),
            pages: kept.map_or(0, |kept| kept.memory.iter().map(|object| object.len() as u64).sum()),
            ring_entries: admitted.spec.rings.iter().map(|ring| ring.entries).sum(),
            ended: None,
            shut_down: false,
        })
    });
    found.ok()
}

const _: () = assert!(ISLANDS * NODES <= CONTEXTS);
