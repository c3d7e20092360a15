//! Tests that try many orders, and name the one that failed.

use crate::config::Config;
use crate::cx::Cx;
use crate::error::TaskError;
use std::ops::Range;

/// The variable that makes [`for_seeds`] run one seed alone.
pub const SEED_VARIABLE: &str = "MAINSPRING_SEED";

/// Runs `f` as a root task of a deterministic runtime, once per seed: each seed is another order of switches and steals.
///
/// # Panics
///
/// If `f` panics, or its tasks deadlock, with a message that says how to replay that order alone.
///
/// ```
/// use mainspring::testing::for_seeds;
/// use mainspring::{Capacity, Config, Profile};
///
/// for_seeds(0..20, Config::new(Profile::Service).workers(3), |cx| {
///     let (tx, rx) = cx.channel(Capacity::Rendezvous).unwrap();
///     let sum: u32 = cx
///         .nursery(|n| {
///             n.spawn(move |cx| (1..=3).for_each(|i| tx.send(cx, i).unwrap())).unwrap();
///             rx.iter(cx).map(Result::unwrap).sum()
///         })
///         .unwrap();
///     assert_eq!(sum, 6);
/// });
/// ```
#[allow(clippy::needless_pass_by_value)]
pub fn for_seeds(seeds: Range<u64>, config: Config, f: impl Fn(&Cx) + Sync) {
    let only = std::env::var(SEED_VARIABLE).ok().and_then(|text| text.parse().ok());
    let seeds = only.map_or(seeds, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let runtime = match config.clone().deterministic_seed(seed).fail_on_deadlock().build() {
            Ok(runtime) => runtime,
            Err(error) => panic!("the configuration makes no runtime: {error}"),
        };
        match runtime.run(&f) {
            Ok(()) => {}
            Err(TaskError::Panicked(message)) => report(seed, &message),
            Err(error) => report(seed, &error.to_string()),
        }
    }
}

fn report(seed: u64, message: &str) -> ! {
    let test = std::thread::current().name().unwrap_or("TEST").to_owned();
    panic!("seed {seed}: {message}\nreplay it with: {SEED_VARIABLE}={seed} cargo test {test}");
}
