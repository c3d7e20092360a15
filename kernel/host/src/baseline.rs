//! The thread-scale work on the host's own threads, to hold the kernel's figures against.

use crate::qemu::Run;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

// As in `user/src/bin/scale.rs`.
const BYTES: usize = 16 << 20;
const BLOCKS: usize = 262_144;
const BLOCK_WORDS: usize = BYTES / BLOCKS / 8;
const ROUNDS: usize = 64;

fn work(memory: &[AtomicU64], part: usize, parts: usize) -> u64 {
    let mut sum = 0_u64;
    for block in (BLOCKS * part / parts)..(BLOCKS * (part + 1) / parts) {
        let words = &memory[block * BLOCK_WORDS..(block + 1) * BLOCK_WORDS];
        for _ in 0..ROUNDS {
            for (number, word) in (0..).zip(words) {
                sum = sum.wrapping_mul(31).wrapping_add(word.load(Ordering::Relaxed) ^ number);
            }
        }
        words[0].store(sum, Ordering::Relaxed);
    }
    sum
}

/// A line per number of threads, in the form of the kernel's program.
#[must_use]
pub fn run() -> Vec<String> {
    let memory: Vec<AtomicU64> = (0..BYTES / 8).map(|_| AtomicU64::new(0)).collect();
    let mut first = 0;
    let counts = [1, 2, 4].into_iter();
    let counts =
        counts.filter(|threads| thread::available_parallelism().is_ok_and(|cores| cores.get() >= *threads));
    let line = |threads: usize| {
        let began = Instant::now();
        thread::scope(|scope| {
            for part in 0..threads {
                let memory = &memory;
                scope.spawn(move || std::hint::black_box(work(memory, part, threads)));
            }
        });
        let total = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if threads == 1 {
            first = total;
        }
        format!(
            "linux: threads={threads} total_ns={total} total_speedup_percent={}",
            first * 100 / total.max(1)
        )
    };
    counts.map(line).collect()
}

/// How much faster two threads must be than one, in percent, where the host has two cores for them.
const WANTED: u64 = 160;
/// What the host's own threads reach when it has.
const FREE_HOST: u64 = 180;
/// How much of the time QEMU's busiest thread has a core then, in percent.
const SERVED: u64 = 90;

/// More than two threads can gain by themselves, in percent, says that the books were read too late.
const PLAUSIBLE: u64 = 300;

/// What `key` is in the line of two threads.
fn with_two_threads(lines: &[String], key: &str) -> Option<u64> {
    let line = lines.iter().find(|line| line.contains("threads=2 "))?;
    line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
}

/// How much of a host CPU the busiest of QEMU's threads used while `threads` threads of the kernel worked. However busy
/// the host is, that is how long the work would have taken with a core for each.
fn busiest_ns(run: &Run, threads: u64) -> Option<u64> {
    let at = |text: String| {
        let line = run.serial.iter().position(|line| line.starts_with(&text))?;
        run.used_ns.get(line)
    };
    let (before, after) =
        (at(format!("scale: begin threads={threads}"))?, at(format!("scale: threads={threads} "))?);
    after.iter().map(|(thread, used)| used - before.get(thread).copied().unwrap_or(0).min(*used)).max()
}

/// What a run says about the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judged {
    /// Two threads are as much faster than one as they must be.
    Met,
    /// They are not, and the host had a core for each.
    Missed,
    /// Nothing, on this host.
    Not,
}

/// What the kernel's run comes to beside the host's own threads, for people. A host that has no second core to give says
/// nothing about the kernel by the time that passes, and the verdict says that.
#[must_use]
pub fn verdict(run: &Run, linux: &[String]) -> (Judged, String) {
    let found = (
        with_two_threads(&run.serial, "work_speedup_percent"),
        with_two_threads(&run.serial, "total_speedup_percent"),
        with_two_threads(linux, "total_speedup_percent"),
    );
    let (Some(work), Some(total), Some(host)) = found else {
        return (Judged::Not, "two threads were not measured on both".to_owned());
    };
    let (one, two) = (busiest_ns(run, 1), busiest_ns(run, 2));
    let took_ns = with_two_threads(&run.serial, "total_ns");
    let served = took_ns.zip(two).is_none_or(|(took_ns, two)| two * 100 >= took_ns * SERVED);
    let (judged, word) = if work.min(total) >= WANTED {
        (Judged::Met, "met")
    } else if host < FREE_HOST || !served {
        (Judged::Not, "not judged, the host has no two free cores; try again on a quiet one")
    } else {
        (Judged::Missed, "missed")
    };
    // The books are read when a line arrives, which may be long after it was written.
    let own = match one.zip(two).map(|(one, two)| one * 100 / two.max(1)) {
        Some(own) if own <= PLAUSIBLE => format!("{own}%"),
        _ => "unknown".to_owned(),
    };
    let text = format!(
        "two threads: work {work}%, total {total}%, by the virtual CPUs' own time {own}, the host's threads {host}%; \
         at least {WANTED}% is {word}"
    );
    (judged, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn lines(work: u64, total: u64) -> Vec<String> {
        let line = |n: u64, work, total| {
            format!(
                "scale: threads={n} total_ns=205 work_speedup_percent={work} total_speedup_percent={total}"
            )
        };
        vec![line(1, 100, 100), line(2, work, total)]
    }

    fn run(work: u64, total: u64) -> Run {
        let mut serial = lines(work, total);
        serial.insert(1, "scale: begin threads=2".to_owned());
        serial.insert(0, "scale: begin threads=1".to_owned());
        let used = |a: u64, b: u64| BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]);
        let used_ns = vec![used(50, 0), used(450, 10), used(450, 10), used(650, 190)];
        Run { serial, used_ns, code: None, took: Duration::ZERO, console: Vec::new() }
    }

    #[test]
    fn a_verdict_is_given_only_on_a_host_with_two_free_cores() {
        assert!(verdict(&run(185, 170), &lines(0, 110)).1.ends_with("is met"));
        assert_eq!(verdict(&run(185, 150), &lines(0, 195)).0, Judged::Missed);
        assert!(verdict(&run(120, 120), &lines(0, 110)).1.contains("not judged"));
        assert!(verdict(&run(120, 120), &[]).1.contains("not measured"));
        let mut starved = run(120, 120);
        starved.serial[3] = starved.serial[3].replace("total_ns=205", "total_ns=400");
        assert_eq!(verdict(&starved, &lines(0, 195)).0, Judged::Not, "QEMU had no core half of the time");
    }

    #[test]
    fn the_busiest_thread_of_each_part_counts() {
        assert_eq!((busiest_ns(&run(1, 1), 1), busiest_ns(&run(1, 1), 2)), (Some(400), Some(200)));
        assert!(verdict(&run(120, 120), &lines(0, 110)).1.contains("own time 200%"));
    }
}
