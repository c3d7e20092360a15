//! The records of all CPUs, as the kernel writes them to its debug console.

use mainspring_abi::{CpuId, Nanos};
use mainspring_record::Log;
use mainspring_sched::flight::FORMAT;

const MARK: &[u8; 8] = b"MSLOG\0\0\0";
const HEAD: usize = 8 + 6 * 8;

/// Reads what the kernel wrote to its debug console.
pub fn read(mut bytes: &[u8]) -> Result<Log, String> {
    let mut logs = Log::default();
    // Firmware speaks there first.
    let begins = bytes.windows(MARK.len()).position(|window| window == MARK).ok_or("there is none")?;
    bytes = &bytes[begins..];
    while !bytes.is_empty() {
        let head = bytes.get(..HEAD).filter(|head| head.starts_with(MARK)).ok_or("it is cut short")?;
        let number = |at: usize| head[8 + 8 * at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let (format, cpu, records) = (number(0), number(1), number(2));
        let (lost, end, len) = (number(3), number(4), number(5) as usize);
        if format != u64::from(FORMAT) {
            return Err(format!(
                "the kernel is of another version than this command; build it again with `make kernel` (its records are \
                 of format {format} instead of {FORMAT})"
            ));
        }
        if lost > 0 {
            return Err(format!("CPU {cpu} had no room for {lost} events; run for a shorter time"));
        }
        let body = bytes.get(HEAD..HEAD + len).ok_or("it is cut short")?;
        let id = CpuId::new(cpu as usize).map_err(|error| error.to_string())?;
        logs.add(id, body, records, Nanos::new(end)).map_err(|error| error.to_string())?;
        bytes = &bytes[HEAD + len..];
    }
    Ok(logs)
}

#[cfg(test)]
mod tests {
    use super::{CpuId, FORMAT, MARK, Nanos, read};
    use mainspring_sched::flight::{EventRef, Log, Outcome};

    /// A log of timer interrupts that far apart.
    fn log(cpu: usize, gaps_ns: &[u64], lost: u64) -> Vec<u8> {
        let id = CpuId::new(cpu).expect("a CPU");
        let mut log = Log::new(1 << 16);
        for gap in gaps_ns {
            log.begin(log.last() + Nanos::new(*gap), id, EventRef::RescheduleReceived);
            log.finish(Outcome::Done);
        }
        let body = log.into_bytes();
        let mut bytes = MARK.to_vec();
        for number in [FORMAT.into(), cpu as u64, gaps_ns.len() as u64, lost, 1000, body.len() as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend(body);
        bytes
    }

    #[test]
    fn the_logs_of_all_cpus_are_joined_by_time() {
        let mut bytes = b"firmware speaks first".to_vec();
        bytes.extend(log(0, &[10, 20, 5], 0));
        bytes.extend(log(1, &[15, 1], 0));
        let logs = read(&bytes).expect("two sound logs");
        let order: Vec<_> = logs.entries().iter().map(|entry| (entry.now.get(), entry.cpu.index())).collect();
        assert_eq!(order, [(10, 0), (15, 1), (16, 1), (30, 0), (35, 0)]);
        assert_eq!(logs.end(), Nanos::new(1000));
    }

    #[test]
    fn the_log_of_an_older_kernel_is_refused_with_what_to_do() {
        let mut bytes = log(0, &[1], 0);
        bytes[MARK.len()] -= 1;
        assert!(read(&bytes).is_err_and(|what| what.contains("make kernel")));
    }

    #[test]
    fn half_a_story_is_refused() {
        assert!(read(b"nothing of ours").is_err());
        assert!(read(&log(0, &[1], 3)).is_err_and(|what| what.contains("no room for 3 events")));
        let whole = log(0, &[1, 2], 0);
        for cut in MARK.len()..whole.len() {
            assert!(read(&whole[..cut]).is_err(), "cut at {cut}");
        }
    }
}
