//! The flight record: every event of a core and what came of it, as bytes in memory set aside at boot.

use crate::arch::cpu::MAX_CPUS;
use crate::arch::record_out;
use alloc::vec;
use alloc::vec::Vec;
use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::flight::{EventRef, Outcome, Room, Writer, write_event, write_outcome};

/// One core's record, in its own order. The host joins the CPUs' records by time.
pub struct Log {
    bytes: Vec<u8>,
    len: usize,
    last: Nanos,
    records: u64,
    /// Records that there was no room for: the record ends before the first of them.
    lost: u64,
}

impl Log {
    /// Room for `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes: vec![0; bytes.max(4 * size_of::<Room>())],
            len: 0,
            last: Nanos::ZERO,
            records: 0,
            lost: 0,
        }
    }

    pub(super) fn begin(&mut self, now: Nanos, cpu: CpuId, event: EventRef<'_>) {
        if self.lost > 0 || self.bytes.len() - self.len < 2 * size_of::<Room>() {
            self.lost += 1;
            return;
        }
        let before = core::mem::replace(&mut self.last, now);
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
        if let Some(room) = self.bytes[self.len..].first_chunk_mut() {
            let mut writer = Writer::new(room);
            write(&mut writer);
            self.len += writer.written();
        }
    }

    /// Writes it out: "MSLOG", the CPU, how many records, how many were lost, the time of the end, the length, the bytes.
    pub fn write_out(&self, cpu: CpuId, now: Nanos) {
        record_out(b"MSLOG\0\0\0");
        for number in [cpu.index() as u64, self.records, self.lost, now.get(), self.len as u64] {
            record_out(&number.to_le_bytes());
        }
        record_out(&self.bytes[..self.len]);
    }
}

/// Writes out the records of all CPUs, up to one moment: no core goes on once all are locked, so no thread is in two
/// records, as it would be if it moved on while the first of them was written. Nobody else ever holds two of these locks.
pub fn write_all(now: Nanos) {
    let cores: heapless::Vec<_, MAX_CPUS> =
        super::lanes().iter().map(|lane| (lane.id(), lane.lock_too())).collect();
    for (cpu, core) in &cores {
        if let Some(log) = &core.log {
            log.write_out(*cpu, now.max(core.last));
        }
    }
}
