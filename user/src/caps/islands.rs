//! RealtimeIslands and RealtimeIsland: a graph that gets all of its time and memory, or nothing.

use super::{call_for, call_for_long, need, with_params, with_params_of};
use crate::client;
use mainspring_abi::kernel::ISLAND_NODES;
use mainspring_abi::ring::CapError;
use mainspring_schema as schema;
use mainspring_schema::RealtimeIslandMethod as Method;

/// What one node needs.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct IslandNode {
    pub budget_ns: u64,
    pub period_ns: u64,
    pub deadline_ns: u64,
    pub cpus: u64,
}

/// What an island asks for.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct IslandSpec<'a> {
    pub period_ns: u64,
    pub deadline_ns: u64,
    pub criticality: u8,
    pub cpus: u64,
    pub overrun: schema::OverrunPolicy,
    pub chain: bool,
    pub nodes: &'a [IslandNode],
    pub memory: &'a [u32],
    pub endpoints: &'a [u32],
    pub notify: u32,
    pub unbounded_locks: bool,
    pub blocking_calls: bool,
    pub normal_memory: bool,
}

impl Default for IslandSpec<'_> {
    fn default() -> Self {
        Self {
            period_ns: 0,
            deadline_ns: 0,
            criticality: 0,
            cpus: 0,
            overrun: schema::OverrunPolicy::Throttle,
            chain: false,
            nodes: &[],
            memory: &[],
            endpoints: &[],
            notify: 0,
            unbounded_locks: false,
            blocking_calls: false,
            normal_memory: false,
        }
    }
}

/// What is known of an island.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct IslandInfo {
    pub live: bool,
    pub stopping: bool,
    pub generation: u32,
    pub nodes: usize,
    pub cpus: [u32; ISLAND_NODES],
    pub contexts: [u32; ISLAND_NODES],
    pub pages: u64,
    pub ring_entries: u32,
    pub used_ns: [u64; ISLAND_NODES],
    pub donated_ns: [u64; ISLAND_NODES],
    pub depletions: [u32; ISLAND_NODES],
    pub misses: [u32; ISLAND_NODES],
    pub overshoot_ns: [u64; ISLAND_NODES],
    pub ended_ns: u64,
    pub shut_down: bool,
}

fn with_spec<T>(spec: &IslandSpec<'_>, work: impl FnOnce(&[u8]) -> T) -> Result<T, CapError> {
    with_params_of::<schema::island_spec::Owned, _, 96>(
        |mut params| {
            params.set_period_ns(spec.period_ns);
            params.set_deadline_ns(spec.deadline_ns);
            params.set_criticality(spec.criticality);
            params.set_cpus(spec.cpus);
            params.set_overrun(spec.overrun);
            params.set_chain(spec.chain);
            params.set_notify(spec.notify);
            params.set_unbounded_locks(spec.unbounded_locks);
            params.set_blocking_calls(spec.blocking_calls);
            params.set_normal_memory(spec.normal_memory);
            let mut nodes = params.reborrow().init_nodes(spec.nodes.len() as u32);
            for (place, node) in (0..).zip(spec.nodes) {
                let mut one = nodes.reborrow().get(place);
                one.set_budget_ns(node.budget_ns);
                one.set_period_ns(node.period_ns);
                one.set_deadline_ns(node.deadline_ns);
                one.set_cpus(node.cpus);
            }
            let mut memory = params.reborrow().init_memory(spec.memory.len() as u32);
            for (place, cap) in (0..).zip(spec.memory) {
                memory.set(place, *cap);
            }
            let mut endpoints = params.init_endpoints(spec.endpoints.len() as u32);
            for (place, cap) in (0..).zip(spec.endpoints) {
                endpoints.set(place, *cap);
            }
        },
        work,
    )
}

/// Asks for an island, by the capability that the process begins with under this name.
pub fn admit_island(authority: &str, spec: &IslandSpec<'_>) -> Result<Island, CapError> {
    with_spec(spec, |bytes| {
        let method = schema::RealtimeIslandsMethod::Admit as u16;
        let made =
            |made: schema::island_handle::Reader<'_>| Island { cap: made.get_cap(), id: made.get_id() };
        call_for::<schema::island_handle::Owned, _>(need(authority), method, bytes, made)
    })?
}

/// An island that this process has a capability of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct Island {
    pub cap: u32,
    pub id: u32,
}

impl Island {
    /// What is known of it.
    pub fn info(self) -> Result<IslandInfo, CapError> {
        let invalid = |_| CapError::InvalidParameter;
        call_for_long::<schema::island_info::Owned, _>(self.cap, Method::Info as u16, &[], |info| {
            let mut known = IslandInfo {
                live: info.get_live(),
                stopping: info.get_stopping(),
                generation: info.get_generation(),
                pages: info.get_pages(),
                ring_entries: info.get_ring_entries(),
                ended_ns: info.get_ended_ns(),
                shut_down: info.get_shut_down(),
                ..IslandInfo::default()
            };
            let (cpus, contexts) = (info.get_cpus().map_err(invalid)?, info.get_contexts().map_err(invalid)?);
            known.nodes = cpus.len() as usize;
            known.cpus.iter_mut().zip(cpus).for_each(|(place, cpu)| *place = cpu);
            known.contexts.iter_mut().zip(contexts).for_each(|(place, context)| *place = context);
            let (used, donated) =
                (info.get_used_ns().map_err(invalid)?, info.get_donated_ns().map_err(invalid)?);
            known.used_ns.iter_mut().zip(used).for_each(|(place, used)| *place = used);
            known.donated_ns.iter_mut().zip(donated).for_each(|(place, donated)| *place = donated);
            let (depletions, misses) =
                (info.get_depletions().map_err(invalid)?, info.get_misses().map_err(invalid)?);
            known.depletions.iter_mut().zip(depletions).for_each(|(place, count)| *place = count);
            known.misses.iter_mut().zip(misses).for_each(|(place, count)| *place = count);
            let overshoot = info.get_overshoot_ns().map_err(invalid)?;
            known.overshoot_ns.iter_mut().zip(overshoot).for_each(|(place, furthest)| *place = furthest);
            Ok(known)
        })?
    }

    /// The calling thread runs on the budget of this node from now on.
    pub fn bind(self, node: u32) -> Result<(), CapError> {
        with_params::<schema::node_number::Owned, _>(
            |mut params| params.set_node(node),
            |bytes| client::call(self.cap, Method::BindCallerThread as u16, bytes, &mut []).map(|_| ()),
        )?
    }

    /// Calls to an endpoint, named by its serving end, are served on the budget of this node from now on.
    pub fn serve(self, node: u32, endpoint: u32) -> Result<(), CapError> {
        with_params::<schema::node_endpoint::Owned, _>(
            |mut params| {
                params.set_node(node);
                params.set_endpoint(endpoint);
            },
            |bytes| client::call(self.cap, Method::Serve as u16, bytes, &mut []).map(|_| ()),
        )?
    }

    /// It is another from now on, with as many nodes.
    pub fn adjust(self, spec: &IslandSpec<'_>) -> Result<(), CapError> {
        with_spec(spec, |bytes| client::call(self.cap, Method::Adjust as u16, bytes, &mut []).map(|_| ()))?
    }

    /// It ends.
    pub fn leave(self) -> Result<(), CapError> {
        client::call(self.cap, Method::Leave as u16, &[], &mut []).map(|_| ())
    }
}

/// What the owner of an island is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are the schema's")]
pub struct IslandTold {
    pub id: u64,
    pub what: schema::IslandNotice,
    pub node: u64,
}

impl IslandTold {
    /// Reads it from the message of a notice, which follows the head.
    #[must_use]
    pub fn from_message(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(8 * at..)?.first_chunk()?));
        let what = schema::IslandNotice::try_from(u16::try_from(word(1)?).ok()?).ok()?;
        Some(Self { id: word(0)?, what, node: word(2)? })
    }
}
