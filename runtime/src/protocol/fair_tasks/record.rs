//! The flight record of one worker: what its core was asked, and what it answered.

use mainspring_abi::Nanos;
use mainspring_sched::flight::Log;

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
