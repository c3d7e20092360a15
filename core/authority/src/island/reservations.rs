//! Which resources are set aside, and for which island.

use super::machine::IslandRef;
use super::spec::RealtimeIslandSpec;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

/// What a machine has.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Capacity {
    /// Memory that may be pinned.
    pub memory_bytes: u64,
    /// Ring slots.
    pub ring_entries: u64,
    /// Devices.
    pub devices: BTreeSet<String>,
    /// Interrupt lines.
    pub irqs: BTreeSet<u32>,
}

/// Which resources are free, and who holds the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservations {
    /// Memory that no island holds.
    pub memory_free: u64,
    /// Ring slots that no island holds.
    pub ring_entries_free: u64,
    /// Every device, and who holds it.
    pub devices: BTreeMap<String, Option<IslandRef>>,
    /// Every interrupt line, and who holds it.
    pub irqs: BTreeMap<u32, Option<IslandRef>>,
}

impl Reservations {
    pub(super) fn new(capacity: &Capacity) -> Self {
        Self {
            memory_free: capacity.memory_bytes,
            ring_entries_free: capacity.ring_entries,
            devices: capacity.devices.iter().map(|name| (name.clone(), None)).collect(),
            irqs: capacity.irqs.iter().map(|line| (*line, None)).collect(),
        }
    }

    /// Writes down that `island` holds what `spec` asks for. All of it was found free.
    pub(super) fn take(&mut self, spec: &RealtimeIslandSpec, island: IslandRef) {
        self.memory_free -= memory(spec);
        self.ring_entries_free -= entries(spec);
        for device in &spec.devices {
            self.devices.insert(device.name.clone(), Some(island));
        }
        for irq in &spec.irqs {
            self.irqs.insert(irq.line, Some(island));
        }
    }

    /// Notes that the resources of `spec` are free again.
    pub(super) fn give_back(&mut self, spec: &RealtimeIslandSpec) {
        self.memory_free += memory(spec);
        self.ring_entries_free += entries(spec);
        for device in &spec.devices {
            self.devices.insert(device.name.clone(), None);
        }
        for irq in &spec.irqs {
            self.irqs.insert(irq.line, None);
        }
    }
}

/// All memory of a spec; saturating, so that an absurd sum is more than any machine has.
pub(super) fn memory(spec: &RealtimeIslandSpec) -> u64 {
    spec.memory.iter().map(|buffer| buffer.bytes).fold(0, u64::saturating_add)
}

pub(super) fn entries(spec: &RealtimeIslandSpec) -> u64 {
    spec.rings.iter().map(|ring| u64::from(ring.entries)).fold(0, u64::saturating_add)
}
