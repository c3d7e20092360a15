//! Writing the flight records out. Each core's is in memory that was set aside at boot, in its own order; the host joins
//! them by time.

use crate::arch::cpu::MAX_CPUS;
use crate::frames;
use mainspring_abi::frame::{Frame, RecordHead};
use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::flight::{FORMAT, Log};

fn write_out(log: &Log, cpu: CpuId, end: Nanos) {
    let head = RecordHead { format: FORMAT.into(), cpu, records: log.records(), lost: log.lost(), end };
    frames::write(&Frame::Record(head, log.bytes()));
}

/// Writes out the records of all CPUs, up to one moment: no core goes on once all are locked, so no thread is in two
/// records, as it would be if it moved on while the first of them was written. Nobody else ever holds two of these locks.
pub fn write_all(now: Nanos) {
    let cores: heapless::Vec<_, MAX_CPUS> =
        super::per_cpus().iter().map(|per_cpu| (per_cpu.id(), per_cpu.lock_too())).collect();
    for (cpu, core) in &cores {
        if let Some(log) = &core.log {
            write_out(log, *cpu, now.max(core.cpu.last()));
        }
    }
}
