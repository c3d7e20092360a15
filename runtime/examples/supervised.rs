//! A supervised worker: it is recharged while it makes progress, and restarted when it fails.
//!
//! `cargo run -p mainspring-runtime --example supervised`

use mainspring::{Budget, Config, Cx, Exhaustion, NurseryOptions, Profile, TaskState};
use std::sync::atomic::{AtomicU32, Ordering};

fn worker(cx: &Cx, done: &AtomicU32) {
    while done.load(Ordering::Relaxed) < 100 {
        for _ in 0..100 {
            cx.check();
        }
        if done.fetch_add(1, Ordering::Relaxed) == 40 {
            panic!("a bad item");
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The panic is part of the show: it is reported by the supervisor.
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = Config::new(Profile::Cluster).build()?;
    let done = AtomicU32::new(0);
    runtime.run(|cx| {
        for life in 1..=3 {
            let mut recharges = 0;
            let options = NurseryOptions::new().on_exhausted(Exhaustion::Park);
            let result = cx.nursery_with(options, |n| {
                let budget = Budget { ops: 1000, ..Budget::ZERO };
                let child = n.builder().budget(budget).spawn(|cx| worker(cx, &done)).expect("the pool pays");
                while !child.is_finished() {
                    if child.state() == TaskState::BudgetExhausted && n.recharge(&child, budget).is_ok() {
                        recharges += 1;
                    }
                    cx.yield_now();
                }
            });
            println!(
                "life {life}: {} items, {recharges} recharges: {result:?}",
                done.load(Ordering::Relaxed)
            );
            if result.is_ok() {
                return;
            }
        }
    })?;
    Ok(())
}
