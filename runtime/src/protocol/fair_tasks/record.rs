//! The flight record of one worker: what its core was asked, and what it answered.

use mainspring_abi::Nanos;
use mainspring_sched::flight::Log;

/// The most bytes of a record that are copied at once, since the core waits meanwhile.
const PART: usize = 256 << 10;

/// A part of a record that is still being made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordPart {
    /// The bytes from where the caller asked, in their order.
    pub bytes: Vec<u8>,
    /// There are more: these may end in the middle of an event.
    pub more: bool,
}

impl RecordPart {
    pub(super) fn of(log: &Log, from: usize) -> Self {
        let rest = log.bytes().get(from..).unwrap_or_default();
        Self { bytes: rest[..rest.len().min(PART)].to_vec(), more: rest.len() > PART }
    }
}

/// What a core has recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerRecord {
    /// The records, one after the other.
    pub bytes: Vec<u8>,
    /// How many there are.
    pub records: u64,
    /// Records that there was no room for: the record ends before the first of them.
    pub lost: u64,
    /// When the record was closed.
    pub end: Nanos,
}

impl WorkerRecord {
    pub(super) fn of(log: Log, end: Nanos) -> Self {
        let (records, lost, end) = (log.records(), log.lost(), end.max(log.last()));
        Self { bytes: log.into_bytes(), records, lost, end }
    }
}
