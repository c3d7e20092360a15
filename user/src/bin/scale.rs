//! The thread-scale benchmark: 16 MiB in 262,144 blocks, 64 rounds over each, by 1, 2 and 4 threads; the parent waits in
//! join. Prints the time of the work and of the whole, with making and joining the threads.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::schema::Access;
use mainspring_user::{arch, say};

mainspring_user::program!(main);

const BYTES: u64 = 16 << 20;
const BLOCKS: u64 = 262_144;
const BLOCK_WORDS: u64 = BYTES / BLOCKS / 8;
const ROUNDS: u64 = 64;

/// Works through the blocks of `part` of `parts`; their sum.
fn work(base: u64, part: u64, parts: u64) -> u64 {
    let mut sum = 0_u64;
    for block in (BLOCKS * part / parts)..(BLOCKS * (part + 1) / parts) {
        let at = base + block * BLOCK_WORDS * 8;
        for _ in 0..ROUNDS {
            for word in 0..BLOCK_WORDS {
                let value = arch::word(at + word * 8).load(Ordering::Relaxed);
                sum = sum.wrapping_mul(31).wrapping_add(value ^ word);
            }
        }
        arch::word(at).store(sum, Ordering::Relaxed);
    }
    sum
}

fn main() -> i64 {
    let base = caps::map((BYTES / 4096) as u32, Access::Write).expect("16 MiB are within the quota");
    let cpus = u64::from(caps::usage().expect("usage can be read").cpus);
    let mut first = (0, 0);
    for threads in [1, 2, 4].into_iter().filter(|threads| *threads <= cpus) {
        say!("scale: begin threads={threads}");
        let (began_at, ended_at) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicU64::new(0)));
        let start = caps::now();
        let handles: Vec<_> = (0..threads)
            .map(|part| {
                let (began_at, ended_at) = (began_at.clone(), ended_at.clone());
                caps::spawn(ThreadOptions::default(), move || {
                    began_at.fetch_min(caps::now(), Ordering::Relaxed);
                    core::hint::black_box(work(base, part, threads));
                    ended_at.fetch_max(caps::now(), Ordering::Relaxed);
                    0
                })
                .expect("within the quota")
            })
            .collect();
        for handle in &handles {
            assert_eq!(handle.join(), Ok(0));
        }
        let total = caps::now() - start;
        let work = ended_at.load(Ordering::Relaxed) - began_at.load(Ordering::Relaxed);
        if threads == 1 {
            first = (work, total);
        }
        say!(
            "scale: threads={threads} work_ns={work} total_ns={total} work_speedup_percent={} total_speedup_percent={}",
            first.0 * 100 / work.max(1),
            first.1 * 100 / total.max(1)
        );
    }
    say!("scale: blocks={BLOCKS} work_rounds={ROUNDS} done=ok");
    0
}
