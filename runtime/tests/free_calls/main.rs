//! No loop of calls keeps a worker from its other tasks: each public operation, repeated on one worker beside a task that
//! must get on, under every discipline. What counts is the number of calls, never a clock. Nor does a loop of calls hold more
//! the longer it goes on.

mod channels;
mod contexts;
mod groups;
mod io;
mod listed;
mod services;
mod spin;
mod sync;
mod tasks;

use channels::CHANNELS;
use contexts::CONTEXTS;
use groups::GROUPS;
use io::IO;
use mainspring::{Budget, Caps, Config, FairTaskSettings, Profile, Weight};
use services::SERVICES;
use spin::{BYTES, Loop, Spin, Table, beside_others};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::SYNC;
use tasks::TASKS;

/// What a task can repeat wherever it runs.
const CALLS: &[Table] = &[TASKS, CHANNELS, SYNC, GROUPS, SERVICES];
/// The same, and what the deterministic mode does not have.
const WITH_IO: &[Table] = &[TASKS, CHANNELS, SYNC, GROUPS, SERVICES, IO];

/// Repeats one operation in the root task of a runtime with one worker; another task must get two turns.
fn repeat(config: Config, most: u64, call: Loop) -> Result<(), mainspring::TaskError> {
    let runtime = config.build().unwrap();
    let done = AtomicBool::new(false);
    runtime.run(|cx| {
        let spin = Spin { runtime: &runtime, done: &done, calls: AtomicU64::new(0), most, growth: None };
        cx.nursery(|n| {
            n.start(|cx| {
                cx.yield_now();
                done.store(true, Ordering::Relaxed);
            })
            .unwrap();
            call(cx, &spin);
        })
        .map_err(|error| error.error)
    })?
}

fn config() -> Config {
    let caps = Caps::root(10_000, Budget::MAX, Budget::MAX, u32::MAX, u32::MAX);
    Config::new(Profile::Cluster).workers(1).root_caps(caps)
}

fn every_call_gives_way(config: impl Fn() -> Config, most: u64, calls: &[Table]) {
    let _beside = beside_others();
    let only = std::env::var("MAINSPRING_CALL").ok();
    let starved: Vec<_> = calls
        .iter()
        .copied()
        .flatten()
        .filter(|(name, _)| only.as_ref().is_none_or(|only| only == name))
        .filter_map(|&(name, call)| {
            println!("{name}");
            repeat(config(), most, call).err().map(|error| format!("{name}: {error}"))
        })
        .collect();
    assert!(starved.is_empty(), "{starved:#?}; once more, with one of them alone: MAINSPRING_CALL=name");
}

/// Calls without a context give way after a million at the latest, others after a thousand.
const MOST: u64 = 3 << 20;
/// Where the clock decides: far more than fit into a turn.
const MOST_BY_TIME: u64 = 500_000_000;

//= OWN:free-calls
#[test]
fn every_call_gives_way_to_the_workers_other_tasks() {
    every_call_gives_way(config, MOST, WITH_IO);
}

//= OWN:free-calls
#[test]
fn every_call_gives_way_where_the_order_is_deterministic() {
    every_call_gives_way(|| config().deterministic_seed(1), MOST, CALLS);
}

//= OWN:free-calls
#[test]
fn every_call_gives_way_where_the_order_is_deterministic_and_fair() {
    // The clock counts what the calls took.
    let tenants = [Weight::new(64).unwrap(), Weight::new(64).unwrap()];
    every_call_gives_way(|| config().fair(&tenants).deterministic_seed(1), 16 * MOST, CALLS);
}

//= OWN:free-calls
#[test]
fn every_call_gives_way_under_the_fair_disciplines() {
    every_call_gives_way(|| config().fair(&[Weight::new(64).unwrap()]), MOST_BY_TIME, WITH_IO);
    every_call_gives_way(|| config().fair_by_task(FairTaskSettings::default()), MOST_BY_TIME, WITH_IO);
    every_call_gives_way(with_contexts, MOST_BY_TIME, &[CONTEXTS]);
}

fn with_contexts() -> Config {
    let settings = FairTaskSettings { contexts: 8, sessions: 1, leases: 1, ..FairTaskSettings::default() };
    let caps = Caps::root(10_000, Budget::MAX, Budget::MAX, u32::MAX, u32::MAX).with_contexts(8, 1_000_000);
    config().root_caps(caps).fair_by_task(settings)
}

/// How much more is held after five times as many calls.
fn growth(config: Config, calls: u64, call: Loop) -> u64 {
    let runtime = config.build().unwrap();
    let (done, growth) = (AtomicBool::new(true), AtomicU64::new(0));
    let ended = runtime.run(|cx| {
        let growth = Some(&growth);
        call(cx, &Spin { runtime: &runtime, done: &done, calls: AtomicU64::new(0), most: calls, growth });
    });
    ended.unwrap();
    growth.into_inner()
}

#[test]
fn what_a_repeated_call_holds_does_not_grow() {
    let _alone = BYTES.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    const CALLS_MADE: u64 = 2_000;
    /// Two bytes for each of the further calls. What is held for a call has at least a pointer to it.
    const AT_MOST: u64 = 2 * 4 * CALLS_MADE;
    let plainly: (fn() -> Config, &[Table]) = (config, WITH_IO);
    let on_contexts: (fn() -> Config, &[Table]) = (with_contexts, &[CONTEXTS]);
    let mut grown = Vec::new();
    for (config, tables) in [plainly, on_contexts] {
        for &(name, call) in tables.iter().copied().flatten() {
            if growth(config(), CALLS_MADE, call) <= AT_MOST {
                continue;
            }
            // What is kept to be used again grows to its limit: a worker keeps up to 8,192 records of tasks.
            let calls = 10 * CALLS_MADE;
            let growth = growth(config(), calls, call);
            if growth > AT_MOST {
                grown.push(format!("{name}: {growth} bytes more after {} more calls", 4 * calls));
            }
        }
    }
    assert!(grown.is_empty(), "{grown:#?}");
}
