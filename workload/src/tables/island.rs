//! `[[island]]`.

use super::{Known, OVERRUNS, TableError, cycle, each, list, own_name};
use crate::document::{Section, table};
use crate::error::{Report, Reported, clipped};
use crate::scope::NamedTable;
use crate::sections::{HOUR, time};
use crate::value::{ENDLESS, Found, Kind, choice, integer, name};
use crate::{Calls, ContextTarget, IslandSpec, Locks, MemorySpec, Residency, cpus};
use mainspring_abi::Nanos;
use std::collections::HashMap;

const KEYS: [&str; 12] = [
    "name", "period", "deadline", "cpus", "nodes", "memory", "devices", "rings", "locks", "calls", "overrun",
    "start",
];
const LOCKS: [(&str, Locks); 3] =
    [("none", Locks::None), ("bounded", Locks::Bounded), ("unbounded", Locks::Unbounded)];
const CALLS: [(&str, Calls); 3] =
    [("none", Calls::None), ("donating", Calls::Donating), ("blocking", Calls::Blocking)];
const RESIDENCIES: [(&str, Residency); 3] =
    [("pinned", Residency::Pinned), ("secret", Residency::Secret), ("normal", Residency::Normal)];

/// Which island each context is in. Looked up, never searched: a file may name the instances of one context without
/// end.
#[derive(Default)]
struct Members<'d> {
    /// Contexts with at least one instance in an island.
    any: HashMap<usize, &'d str>,
    /// Contexts that are in an island with all their instances.
    whole: HashMap<usize, &'d str>,
    instances: HashMap<(usize, u32), &'d str>,
}

impl<'d> Members<'d> {
    /// Notes that a context is in an island, or says in which it is already.
    fn join(&mut self, target: ContextTarget, island: &'d str) -> Result<(), &'d str> {
        let context = target.context;
        let taken = match target.instance {
            None => self.any.get(&context),
            Some(instance) => self.whole.get(&context).or_else(|| self.instances.get(&(context, instance))),
        };
        if let Some(other) = taken {
            return Err(other);
        }
        self.any.entry(context).or_insert(island);
        match target.instance {
            None => self.whole.insert(context, island),
            Some(instance) => self.instances.insert((context, instance), island),
        };
        Ok(())
    }
}

/// Reads the islands.
pub(crate) fn islands(
    known: &Known<'_, '_, '_>,
    report: &mut Report<'_>,
) -> Result<Vec<IslandSpec>, Reported> {
    let mut members = Members::default();
    each(&known.scope.islands, |_, table| island(table, known, &mut members, report))
}

fn island<'d>(
    table: &NamedTable<'d>,
    known: &Known<'_, '_, 'd>,
    members: &mut Members<'d>,
    report: &mut Report<'_>,
) -> Result<IslandSpec, Reported> {
    let mut section = Section::open("[[island]]", &KEYS, table.table.clone(), report);
    let cycle = cycle(&mut section);
    let cpus = section.read("cpus", |value, report| cpus::mask(value, known.cpus, report));
    let island_name = table.name.as_ref().map_or("", |name| name.value);
    let nodes = section.require("nodes", "nodes = [\"NAME\"]", |value, report| {
        let nodes = list(value, Kind::Names, report, |item, report| {
            let node = name(item, "context", report)?;
            let target = known.scope.contexts.target(&node, report)?;
            members.join(target, island_name).map(|()| target).map_err(|other| {
                let error = TableError::InTwoIslands { context: clipped(node.value), island: clipped(other) };
                report.push(&node.at, error)
            })
        })?;
        if nodes.is_empty() { Err(report.push(&value.at, TableError::EmptyIsland)) } else { Ok(nodes) }
    });
    let memory = section.read("memory", |value, report| list(value, Kind::Memory, report, memory));
    let devices = section.read("devices", |value, report| {
        list(value, Kind::Names, report, |item, report| Ok(name(item, "device", report)?.value.to_owned()))
    });
    let rings = section.read("rings", |value, report| {
        list(value, Kind::Names, report, |item, report| {
            known.scope.rings.find(&name(item, "ring", report)?, report)
        })
    });
    let locks = section.read("locks", |value, report| choice(value, "locks", &LOCKS, report));
    let calls = section.read("calls", |value, report| choice(value, "calls", &CALLS, report));
    let overrun = section.read("overrun", |value, report| choice(value, "overrun", &OVERRUNS, report));
    let start = time(&mut section, "start", Nanos::ZERO..=HOUR);
    let (period, deadline) = cycle?;
    Ok(IslandSpec {
        name: own_name(table)?,
        period,
        deadline,
        cpus: cpus?,
        nodes: nodes?,
        memory: memory?.unwrap_or_default(),
        devices: devices?.unwrap_or_default(),
        rings: rings?.unwrap_or_default(),
        locks: locks?.unwrap_or_default(),
        calls: calls?.unwrap_or_default(),
        overrun: overrun?.unwrap_or_default(),
        start: start?.unwrap_or_default(),
    })
}

/// `{ name = "buffers", bytes = 65536, residency = "pinned" }`.
fn memory(value: &Found<'_>, report: &mut Report<'_>) -> Result<MemorySpec, Reported> {
    let table = table(value, Kind::MemoryItem, report)?;
    let mut section = Section::open("the memory", &["name", "bytes", "residency"], table, report);
    let name = section.require("name", "name = \"buffers\"", |value, report| name(value, "memory", report));
    let bytes = section
        .require("bytes", "bytes = 65536", |value, report| integer(value, "bytes", 1..=ENDLESS, report));
    let residency =
        section.read("residency", |value, report| choice(value, "residency", &RESIDENCIES, report));
    Ok(MemorySpec { name: name?.value.into(), bytes: bytes?, residency: residency?.unwrap_or_default() })
}
