//! Many seeds on all cores.

use std::ops::Range;
use std::thread::{available_parallelism, scope};

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
