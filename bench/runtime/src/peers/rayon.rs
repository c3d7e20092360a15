//! Rayon: scopes and fork-join on a pool of two threads.

use super::{leaf_sum, ms, ns_each, timed};
use crate::bench::{Bench, FAN_OUT, Work};
use std::hint::black_box;

/// Measures one benchmark.
pub fn measure(bench: Bench, work: &Work) -> Option<f64> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool starts");
    pool.install(|| {
        Some(match bench {
            Bench::Spawn => {
                let time = timed(|| rayon::scope(|scope| (0..work.spawns).for_each(|_| scope.spawn(|_| ()))));
                ns_each(time, work.spawns)
            }
            Bench::Skynet => ms(timed(|| assert_eq!(node(0, work.leaves), leaf_sum(work.leaves)))),
            Bench::Fib => ms(timed(|| {
                black_box(fib(work.fib));
            })),
            _ => return None,
        })
    })
}

fn fib(n: u32) -> u32 {
    if n < 2 {
        return n;
    }
    let (a, b) = rayon::join(|| fib(n - 1), || fib(n - 2));
    a + b
}

fn node(first: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return first;
    }
    let each = leaves / FAN_OUT;
    let mut sums = [0; FAN_OUT as usize];
    rayon::scope(|scope| {
        for (i, sum) in sums.iter_mut().enumerate() {
            scope.spawn(move |_| *sum = node(first + i as u64 * each, each));
        }
    });
    sums.iter().sum()
}
