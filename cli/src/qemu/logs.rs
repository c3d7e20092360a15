//! The records of all CPUs, joined by time.
//!
//! Each CPU's record is in its own order and replays on its own; between CPUs any order does. Time is a good one.

use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::flight::{Event, Outcome, Reader, read_record};
use mainspring_sim::record::Recorder;
use std::io;

const MARK: &[u8; 8] = b"MSLOG\0\0\0";
const HEAD: usize = 8 + 5 * 8;

/// One event.
#[derive(Debug)]
pub struct Entry {
    pub now: Nanos,
    pub cpu: CpuId,
    pub event: Event,
    pub outcome: Outcome,
}

/// All events, and when the machine ended.
#[derive(Debug, Default)]
pub struct Logs {
    pub entries: Vec<Entry>,
    pub end: Nanos,
}

/// Reads what the kernel wrote to its debug console.
pub fn read(mut bytes: &[u8]) -> Result<Logs, String> {
    let mut logs = Logs::default();
    // Firmware speaks there first.
    let begins = bytes.windows(MARK.len()).position(|window| window == MARK).ok_or("there is none")?;
    bytes = &bytes[begins..];
    while !bytes.is_empty() {
        let head = bytes.get(..HEAD).filter(|head| head.starts_with(MARK)).ok_or("it is cut short")?;
        let number = |at: usize| head[8 + 8 * at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let (cpu, records, lost, end, len) = (number(0), number(1), number(2), number(3), number(4) as usize);
        if lost > 0 {
            return Err(format!("CPU {cpu} had no room for {lost} events; run for a shorter time"));
        }
        let body = bytes.get(HEAD..HEAD + len).ok_or("it is cut short")?;
        let (mut at, mut now) = (0, Nanos::ZERO);
        for _ in 0..records {
            let mut reader = Reader::new(&body[at..]);
            let (cpu, then, event, outcome) =
                read_record(&mut reader, now).map_err(|error| error.to_string())?;
            at += reader.position();
            now = then;
            logs.entries.push(Entry { now, cpu, event, outcome });
        }
        if at != len {
            return Err(format!("CPU {cpu} has bytes after its last event"));
        }
        logs.end = logs.end.max(Nanos::new(end)).max(now);
        bytes = &bytes[HEAD + len..];
    }
    // Stable: events of one CPU stay in their order.
    logs.entries.sort_by_key(|entry| entry.now);
    Ok(logs)
}

/// Writes them as a flight record file.
pub fn write(mut recorder: Recorder<'_>, logs: &Logs, digest: &str) -> io::Result<()> {
    for Entry { now, cpu, event, outcome } in &logs.entries {
        recorder.begin(*now, *cpu, event.borrowed());
        recorder.finish(*outcome)?;
    }
    recorder.close(logs.end, digest)
}
