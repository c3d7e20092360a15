//! The flight record of one lane: what its core was asked, and what it answered.

use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::flight::{EventRef, Outcome, Room, Writer, write_event, write_outcome};

/// Events and outcomes as `mainspring_sched::flight` writes them, in the lane's own order.
#[derive(Debug)]
pub struct Log {
    bytes: Vec<u8>,
    most: usize,
    last: Nanos,
    records: u64,
    lost: u64,
}

/// What a lane has recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneRecord {
    /// The records, one after the other.
    pub bytes: Vec<u8>,
    /// How many there are.
    pub records: u64,
    /// Records that there was no room for: the record ends before the first of them.
    pub lost: u64,
    /// When the record was closed.
    pub end: Nanos,
}

impl Log {
    pub(super) fn new(most_bytes: usize) -> Self {
        Self { bytes: Vec::new(), most: most_bytes, last: Nanos::ZERO, records: 0, lost: 0 }
    }

    pub(super) fn begin(&mut self, now: Nanos, cpu: CpuId, event: EventRef<'_>) {
        if self.lost > 0 || self.bytes.len() + 2 * size_of::<Room>() > self.most {
            self.lost += 1;
            return;
        }
        let before = std::mem::replace(&mut self.last, now);
        self.records += 1;
        self.append(|writer| write_event(writer, cpu, before, now, event));
    }

    pub(super) fn finish(&mut self, outcome: Outcome) {
        if self.lost == 0 {
            let now = self.last;
            self.append(|writer| write_outcome(writer, now, outcome));
        }
    }

    fn append(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        let mut room: Room = [0; size_of::<Room>()];
        let mut writer = Writer::new(&mut room);
        write(&mut writer);
        let written = writer.written();
        self.bytes.extend_from_slice(&room[..written]);
    }

    pub(super) fn close(self, end: Nanos) -> LaneRecord {
        LaneRecord { bytes: self.bytes, records: self.records, lost: self.lost, end: end.max(self.last) }
    }
}
