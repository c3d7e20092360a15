//! The flight records of a machine's CPUs, as the kernel and the runtime leave them behind.

use mainspring_abi::frame::RecordHead;
use mainspring_record::Log;
use mainspring_sched::flight::FORMAT;
use std::fmt;

/// The record of one CPU: what stands before it, and its bytes.
pub type CpuRecord = (RecordHead, Vec<u8>);

/// Why the records of the CPUs are not the record of a run.
#[derive(Debug)]
pub enum LogError {
    /// The kernel is of another version than this command.
    Format {
        /// The format of its records.
        found: u64,
    },
    /// A CPU had no room for all of its events.
    Lost {
        /// Which CPU.
        cpu: usize,
        /// How many events.
        events: u64,
    },
    /// A CPU's record cannot be read.
    Record(mainspring_record::file::RecordError),
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format { found } => write!(
                f,
                "the kernel is of another version than this command; build it again with `make kernel` (its records are \
                 of format {found} instead of {FORMAT})"
            ),
            Self::Lost { cpu, events } => {
                write!(f, "CPU {cpu} had no room for {events} events\nhelp: run for a shorter `duration`")
            }
            Self::Record(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LogError {}

/// The records of all CPUs, joined by time.
pub fn join(records: &[CpuRecord]) -> Result<Log, LogError> {
    let mut log = Log::default();
    for (RecordHead { format, cpu, records, lost, end }, bytes) in records {
        if *format != u64::from(FORMAT) {
            return Err(LogError::Format { found: *format });
        }
        if *lost > 0 {
            return Err(LogError::Lost { cpu: cpu.index(), events: *lost });
        }
        log.add(*cpu, bytes, *records, *end).map_err(LogError::Record)?;
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::{CpuRecord, FORMAT, LogError, RecordHead, join};
    use mainspring_abi::{CpuId, Nanos};
    use mainspring_sched::flight::{EventRef, Log, Outcome};

    fn head(cpu: usize, records: usize) -> RecordHead {
        let cpu = CpuId::new(cpu).expect("a CPU");
        RecordHead { format: FORMAT.into(), cpu, records: records as u64, lost: 0, end: Nanos::new(1000) }
    }

    /// A record of messages that far apart.
    fn record(cpu: usize, gaps_ns: &[u64]) -> CpuRecord {
        let head = head(cpu, gaps_ns.len());
        let mut log = Log::new(1 << 16);
        for gap in gaps_ns {
            log.begin(log.last() + Nanos::new(*gap), head.cpu, EventRef::RescheduleReceived);
            log.finish(Outcome::Done);
        }
        (head, log.into_bytes())
    }

    #[test]
    fn the_records_of_all_cpus_are_joined_by_time() {
        let records = [record(0, &[10, 20, 5]), record(1, &[15, 1])];
        let log = join(&records).expect("two sound records");
        let order: Vec<_> = log.entries().iter().map(|entry| (entry.now.get(), entry.cpu.index())).collect();
        assert_eq!(order, [(10, 0), (15, 1), (16, 1), (30, 0), (35, 0)]);
        assert_eq!(log.end(), Nanos::new(1000));
    }

    #[test]
    fn the_record_of_an_older_kernel_is_refused_with_what_to_do() {
        let (head, bytes) = record(0, &[1]);
        let older = RecordHead { format: head.format - 1, ..head };
        let refused = join(&[(older, bytes)]).expect_err("another format");
        assert!(refused.to_string().contains("make kernel"), "{refused}");
    }

    #[test]
    fn a_record_that_is_not_whole_is_refused() {
        let (head, bytes) = record(0, &[1, 2]);
        let lost = (RecordHead { lost: 3, ..head }, bytes.clone());
        assert!(matches!(join(&[lost]), Err(LogError::Lost { cpu: 0, events: 3 })));
        for cut in 0..bytes.len() {
            assert!(matches!(join(&[(head, bytes[..cut].to_vec())]), Err(LogError::Record(_))), "{cut}");
        }
        let fewer = (RecordHead { records: 1, ..head }, bytes);
        assert!(matches!(join(&[fewer]), Err(LogError::Record(_))));
    }
}
