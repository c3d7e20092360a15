//! Which seeds a sweep takes, and many seeds on all cores.

use std::env::var;
use std::ops::Range;
use std::thread::{available_parallelism, scope};

/// Runs one seed alone, and prints its workload.
pub const SEED: &str = "MAINSPRING_SEED";
/// `all` runs every seed of every sweep, as `make sweeps` does.
const SEEDS: &str = "MAINSPRING_SEEDS";
/// Without `all`, a sweep runs one part in this many of its seeds: the first ones.
const PART: u64 = 10;

/// The seeds of a sweep.
pub struct Sweep {
    pub seeds: Range<u64>,
    /// Whether one seed was asked for, so that nothing can be said of how often something happened.
    pub alone: bool,
}

impl Sweep {
    /// The seeds to run out of `all` of a sweep.
    pub fn of(all: Range<u64>) -> Self {
        if let Ok(seed) = var(SEED) {
            let seed: u64 = seed.parse().expect("MAINSPRING_SEED is a number");
            return Self { seeds: seed..seed + 1, alone: true };
        }
        let count = all.end - all.start;
        let count = match var(SEEDS).as_deref() {
            Ok("all") => count,
            Ok(other) => panic!("{SEEDS}={other}; `all` is the only value"),
            Err(_) => count.div_ceil(PART),
        };
        Self { seeds: all.start..all.start + count, alone: false }
    }

    /// How many seeds there are.
    pub fn count(&self) -> u64 {
        self.seeds.end - self.seeds.start
    }
}

/// What `of` says of each seed, in their order. A panic goes on to the caller.
pub fn on_all_cores<T: Send>(seeds: Range<u64>, of: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let workers = available_parallelism().map_or(1, |cores| cores.get() as u64);
    let share = (seeds.end - seeds.start).div_ceil(workers);
    let of = &of;
    scope(|scope| {
        let shares: Vec<_> = (0..workers)
            .map(|worker| {
                let from = seeds.end.min(seeds.start + worker * share);
                let share = from..seeds.end.min(from + share);
                scope.spawn(move || share.map(of).collect::<Vec<T>>())
            })
            .collect();
        let told = shares.into_iter().flat_map(|share| match share.join() {
            Ok(told) => told,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        told.collect()
    })
}
