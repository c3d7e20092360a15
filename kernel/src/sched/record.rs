//! Writing the flight records out. Each core's is in memory that was set aside at boot, in its own order; the host joins
//! them by time.

use crate::arch::cpu::MAX_CPUS;
use crate::arch::record_out;
use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::flight::{FORMAT, Log};

/// "MSLOG", the format of the records, the CPU, how many records, how many were lost, the time of the end, the length, the bytes.
fn write_out(log: &Log, cpu: CpuId, now: Nanos) {
    record_out(b"MSLOG\0\0\0");
    let bytes = log.bytes();
    let (format, cpu) = (u64::from(FORMAT), cpu.index() as u64);
    for number in [format, cpu, log.records(), log.lost(), now.get(), bytes.len() as u64] {
        record_out(&number.to_le_bytes());
    }
    record_out(bytes);
}

/// Writes out the records of all CPUs, up to one moment: no core goes on once all are locked, so no thread is in two
/// records, as it would be if it moved on while the first of them was written. Nobody else ever holds two of these locks.
pub fn write_all(now: Nanos) {
    let cores: heapless::Vec<_, MAX_CPUS> =
        super::lanes().iter().map(|lane| (lane.id(), lane.lock_too())).collect();
    for (cpu, core) in &cores {
        if let Some(log) = &core.log {
            write_out(log, *cpu, now.max(core.cpu.last()));
        }
    }
}
