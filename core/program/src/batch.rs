//! What a `submit` step puts into a ring.

use crate::Lateness;
use mainspring_abi::Nanos;
use mainspring_abi::ring::{CapSqeV2, QosFlags};

/// What a `submit` step asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// How many entries.
    pub entries: u32,
    /// How long after its submission an entry is late, if it can be.
    pub deadline: Option<Nanos>,
    /// What becomes of a late entry.
    pub late: Lateness,
}

impl Batch {
    /// Entry `number` of a ring, submitted `now`. `reorder` says whether entries with earlier deadlines may overtake it.
    #[must_use]
    pub fn entry(&self, number: u64, now: Nanos, reorder: bool) -> CapSqeV2 {
        let mut entry = CapSqeV2::nop(number);
        let Some(deadline) = self.deadline else { return entry };
        let order = QosFlags::DEADLINE_ORDERED.with(QosFlags::REORDERABLE);
        // Zero means no deadline.
        entry.deadline_ns = (now + deadline).get().max(1);
        entry.qos_flags = self.late.flag().bits() | if reorder { order.bits() } else { 0 };
        entry
    }
}
