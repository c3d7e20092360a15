//! RealtimeIslands and RealtimeIsland.

use super::contexts::overrun;
use super::message::{with_long_result, with_params, with_result};
use super::new_cap::NewCap;
use super::{Answer, Call};
use crate::arch::{self, PAGE};
use crate::object::caps::{IslandName, Object};
use crate::object::endpoint::endpoint;
use crate::object::memory::MemoryObject;
use crate::sched::islands::{self, NODES, OBJECTS};
use crate::sched::{contexts, per_cpus};
use alloc::string::String;
use alloc::vec::Vec;
use mainspring_abi::kernel::SQ_ENTRIES;
use mainspring_abi::ring::CapError;
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos};
use mainspring_authority::island::{
    Calls, HotPath, Locks, NodeBudget, NodeTerms, OverrunPolicy, PreallocSpec, RealtimeIslandSpec, Residency,
    RingSpec, Shape, ShutdownPolicy,
};
use mainspring_sched::context::Overrun;
use mainspring_schema as schema;
use mainspring_schema::{RealtimeIslandMethod as Method, RealtimeIslandsMethod};

/// The shortest period: as for contexts, releases cost time that nobody is charged for.
const SHORTEST_PERIOD: u64 = 1_000_000;

/// What parameters ask for, with what their capabilities name.
struct Asked {
    spec: RealtimeIslandSpec,
    memory: heapless::Vec<MemoryObject, OBJECTS>,
    notify: Option<u32>,
}

pub fn islands(call: &Call<'_>, percent: u16) -> Result<Answer, CapError> {
    let RealtimeIslandsMethod::Admit =
        RealtimeIslandsMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)?;
    let asked = with_params::<schema::island_spec::Owned, _>(call, |params| Asked::read(call, &params))?;
    let cap = NewCap::reserve(call.process())?;
    // What cannot be told is not done.
    with_result::<schema::island_handle::Owned>(call, |_| {})?;
    let island = islands::admit(call.process(), percent.into(), asked.spec, asked.memory, asked.notify)?;
    let number = cap.number();
    cap.fulfil(Object::RealtimeIsland(island, percent));
    with_result::<schema::island_handle::Owned>(call, |mut result| {
        result.set_cap(number);
        result.set_id(island.id);
        result.set_generation(island.generation);
    })
}

pub fn island(call: &Call<'_>, island: IslandName, percent: u16) -> Result<Answer, CapError> {
    match Method::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        Method::Info => info(call, island),
        Method::BindCallerThread => {
            let node = with_params::<schema::node_number::Owned, _>(call, |params| Ok(params.get_node()))?;
            islands::bind(island, node as usize, call.thread)?;
            Ok(Answer::Done(0))
        }
        Method::Adjust => {
            let asked =
                with_params::<schema::island_spec::Owned, _>(call, |params| Asked::read(call, &params))?;
            let adjusted = islands::adjust(island, percent.into(), asked.spec)?;
            // Whoever adjusts knows the island by its new name.
            call.process().state.lock().caps.rename_island(call.request.v1.cap_id, island, adjusted);
            Ok(Answer::Done(0))
        }
        Method::Leave => {
            islands::leave(island)?;
            Ok(Answer::Done(0))
        }
        Method::Serve => {
            let asked =
                |params: schema::node_endpoint::Reader<'_>| (params.get_node(), params.get_endpoint());
            let (node, cap) =
                with_params::<schema::node_endpoint::Owned, _>(call, |params| Ok(asked(params)))?;
            let Object::EndpointServe(index) = call.process().state.lock().caps.find(cap)? else {
                return Err(CapError::InvalidParameter);
            };
            serve(islands::context_of(island, node as usize)?, index, call.process().index())?;
            Ok(Answer::Done(0))
        }
    }
}

/// Servers of `process` serve calls to an endpoint on the context `own` of a node from now on. If its island has left meanwhile, they
/// serve as if the endpoint had none.
fn serve(own: ContextRef, index: u32, process: u32) -> Result<(), CapError> {
    let mut ends = endpoint(index).lock();
    // A server has the present one until it has answered.
    if ends.own_context().is_some_and(|present| present != own && contexts::is_live(present)) {
        return Err(CapError::Busy);
    }
    ends.serve_on(own, Some(process));
    Ok(())
}

fn info(call: &Call<'_>, island: IslandName) -> Result<Answer, CapError> {
    let info = islands::info(island);
    with_long_result::<schema::island_info::Owned>(call, |mut result| {
        result.set_generation(island.generation);
        let Some(info) = &info else { return };
        result.set_live(info.live);
        result.set_stopping(info.stopping);
        result.set_pages(info.pages);
        result.set_ring_entries(info.ring_entries);
        result.set_ended_ns(info.ended.unwrap_or_default().get());
        result.set_shut_down(info.shut_down);
        let count = info.nodes.len() as u32;
        let listed = || (0..count).zip(&info.nodes);
        let mut cpus = result.reborrow().init_cpus(count);
        listed().for_each(|(place, node)| cpus.set(place, node.cpu));
        let mut contexts = result.reborrow().init_contexts(count);
        listed().for_each(|(place, node)| contexts.set(place, node.context));
        let mut used = result.reborrow().init_used_ns(count);
        listed().for_each(|(place, node)| used.set(place, node.usage.used.get()));
        let mut donated = result.reborrow().init_donated_ns(count);
        listed().for_each(|(place, node)| donated.set(place, node.usage.donated.get()));
        let mut depletions = result.reborrow().init_depletions(count);
        listed().for_each(|(place, node)| depletions.set(place, node.usage.depletions as u32));
        let mut misses = result.reborrow().init_misses(count);
        listed().for_each(|(place, node)| misses.set(place, node.usage.misses as u32));
        let mut overshoot = result.init_overshoot_ns(count);
        listed().for_each(|(place, node)| overshoot.set(place, node.usage.overshoot_max.get()));
    })
}

/// The CPUs of these bits that the machine has; all for 0.
fn cpus(bits: u64) -> CpuSet {
    let wanted = |number: &usize| bits == 0 || bits >> number & 1 == 1;
    let numbers = (0..per_cpus().len()).filter(wanted);
    numbers.filter_map(|number| CpuId::new(number).ok()).collect()
}

impl Asked {
    /// Reads what is asked for. What it takes of the heap is bounded by the numbers of nodes and objects.
    fn read(call: &Call<'_>, params: &schema::island_spec::Reader<'_>) -> Result<Self, CapError> {
        let invalid = |_| CapError::InvalidParameter;
        let _charged = arch::open_heap();
        let (period, deadline) = (params.get_period_ns(), params.get_deadline_ns());
        let listed = params.get_nodes().map_err(invalid)?;
        if period < SHORTEST_PERIOD || listed.len() as usize > NODES {
            return Err(CapError::InvalidParameter);
        }
        // A band above others' is not the authority's to give: deadlines of the bands below hold by what it leaves.
        if params.get_criticality() != 0 {
            return Err(CapError::Denied);
        }
        let (memory, notify, donates) = Self::named(call, params)?;
        let own = |ns: u64| (ns != 0).then(|| Nanos::new(ns));
        let mut nodes = Vec::new();
        for node in listed {
            if node.get_period_ns() != 0 && node.get_period_ns() < SHORTEST_PERIOD {
                return Err(CapError::InvalidParameter);
            }
            nodes.push(NodeBudget {
                name: String::new(),
                budget: Nanos::new(node.get_budget_ns()),
                period: own(node.get_period_ns()),
                deadline: own(node.get_deadline_ns()),
                criticality: None,
                cpus: (node.get_cpus() != 0).then(|| cpus(node.get_cpus())),
                locks: if params.get_unbounded_locks() { Locks::Unbounded } else { Locks::None },
                calls: donates,
                hot_path: HotPath::default(),
                terms: NodeTerms::default(),
            });
        }
        let kept = |object: &MemoryObject| PreallocSpec {
            name: String::new(),
            bytes: object.len() as u64 * PAGE as u64,
            // A page of an object is a frame that nobody can take away, and was cleared when it came.
            residency: if params.get_normal_memory() { Residency::Normal } else { Residency::Pinned },
            committed: object.len() > 0,
        };
        let spec = RealtimeIslandSpec {
            name: String::new(),
            period: Nanos::new(period),
            deadline: Nanos::new(if deadline == 0 { period } else { deadline }),
            criticality: params.get_criticality(),
            cpu_set: cpus(params.get_cpus()),
            isolated: CpuSet::EMPTY,
            shape: if params.get_chain() { Shape::Chain } else { Shape::Independent },
            // The thread of each node has a ring.
            rings: nodes.iter().map(|_| RingSpec { name: String::new(), entries: SQ_ENTRIES }).collect(),
            memory: memory.iter().map(kept).collect(),
            devices: Vec::new(),
            irqs: Vec::new(),
            endpoints: Vec::new(),
            overrun: match overrun(params.get_overrun().map_err(|_| CapError::InvalidParameter)?) {
                Overrun::Throttle => OverrunPolicy::Throttle,
                Overrun::Notify => OverrunPolicy::Notify,
                Overrun::Fault => OverrunPolicy::Fault,
                Overrun::Shutdown => OverrunPolicy::Shutdown,
            },
            shutdown: ShutdownPolicy::AtOnce,
            nodes,
        };
        Ok(Self { spec, memory, notify })
    }

    /// What the parameters name by capabilities: memory, on the account of the process once more; who is told; and what its calls
    /// are, which is blocking if an endpoint lends nothing.
    fn named(
        call: &Call<'_>,
        params: &schema::island_spec::Reader<'_>,
    ) -> Result<(heapless::Vec<MemoryObject, OBJECTS>, Option<u32>, Calls), CapError> {
        let invalid = |_| CapError::InvalidParameter;
        let process = call.process();
        let find = |cap| process.state.lock().caps.find(cap);
        let mut memory = heapless::Vec::new();
        for cap in params.get_memory().map_err(invalid)? {
            let Object::Memory(object) = find(cap)? else { return Err(CapError::InvalidParameter) };
            memory.push(object.held_by(&process.ledger)?).map_err(|_| CapError::QuotaExceeded)?;
        }
        let mut calls = if params.get_blocking_calls() { Calls::Blocking } else { Calls::None };
        for cap in params.get_endpoints().map_err(invalid)? {
            let Object::EndpointCall(index) = find(cap)? else { return Err(CapError::InvalidParameter) };
            match (endpoint(index).lock().lends(), calls) {
                (false, _) | (true, Calls::Blocking) => calls = Calls::Blocking,
                (true, _) => calls = Calls::Donating,
            }
        }
        // A notice is a message that nobody called with. Only a process that serves the endpoint may have it told there.
        let notify = match params.get_notify() {
            0 => None,
            cap => match find(cap)? {
                Object::EndpointServe(index) => Some(index),
                _ => return Err(CapError::InvalidParameter),
            },
        };
        Ok((memory, notify, calls))
    }
}
