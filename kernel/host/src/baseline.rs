//! The thread-scale work on the host's own threads, to hold the kernel's figures against.

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
