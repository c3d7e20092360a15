//! The fair discipline: tenants get their share, whatever the number of their tasks.

use mainspring::{Budget, Caps, Config, ConfigError, Cx, Profile, SpawnError, Weight};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn weight(weight: u64) -> Weight {
    Weight::new(weight).unwrap()
}

fn config(weights: &[u64]) -> Config {
    let weights: Vec<_> = weights.iter().map(|&n| weight(n)).collect();
    let caps = Caps::root(1000, Budget::MAX, Budget::ZERO, 10, 10);
    Config::new(Profile::Cluster).workers(1).root_caps(caps).fair(&weights)
}

fn spin(cx: &Cx, stop: &AtomicBool, total: &AtomicU64, used: &AtomicU64, until: u64) {
    while !stop.load(Ordering::Relaxed) {
        cx.check();
        used.fetch_add(1, Ordering::Relaxed);
        if total.fetch_add(1, Ordering::Relaxed) >= until {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn tenants_share_by_weight_and_not_by_number_of_tasks() {
    const TOTAL: u64 = 60_000_000;
    let runtime = config(&[64, 64, 192]).deterministic_seed(1).build().unwrap();
    let (stop, total) = (AtomicBool::new(false), AtomicU64::new(0));
    let used: [AtomicU64; 3] = Default::default();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                // The first has ten tasks, the second two, the third one.
                for (tenant, tasks) in [(0, 10), (1, 2), (2, 1)] {
                    for _ in 0..tasks {
                        let (stop, total, used) = (&stop, &total, &used[tenant]);
                        n.builder()
                            .tenant(tenant)
                            .budget(Budget { ops: u32::MAX, ..Budget::ZERO })
                            .spawn(move |cx| spin(cx, stop, total, used, TOTAL))
                            .unwrap();
                    }
                }
            })
            .unwrap();
        })
        .unwrap();
    let used = used.map(AtomicU64::into_inner);
    // The core's bound: within one quantum, 3,000,000 ops, of the share; and what a slice of checks adds.
    for (used, share) in used.into_iter().zip([TOTAL / 5, TOTAL / 5, TOTAL * 3 / 5]) {
        assert!(used.abs_diff(share) < 3_100_000, "{used} of {share}");
    }
}

#[test]
fn the_fair_discipline_runs_everything_that_stealing_does() {
    for workers in [1, 2, 4] {
        let runtime = config(&[64, 128]).workers(workers).build().unwrap();
        let sum = runtime
            .run(|cx| {
                let (tx, rx) = cx.channel::<u64>(mainspring::Capacity::Bounded(2)).unwrap();
                cx.nursery(|n| {
                    for i in 0..100 {
                        let tx = tx.clone();
                        n.builder()
                            .tenant(i as usize % 2)
                            .spawn(move |cx| {
                                cx.yield_now();
                                cx.sleep(std::time::Duration::from_micros(i % 20));
                                tx.send(cx, i).unwrap();
                            })
                            .unwrap();
                    }
                    drop(tx);
                    rx.iter(cx).sum::<u64>()
                })
                .unwrap()
            })
            .unwrap();
        assert_eq!(sum, 4950);
    }
}

#[test]
fn children_are_their_spawners_tenants_and_unknown_tenants_are_refused() {
    let runtime = config(&[64]).build().unwrap();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                assert_eq!(n.builder().tenant(1).spawn(|_| ()).unwrap_err(), SpawnError::NoSuchTenant(1));
                n.builder().tenant(0).spawn(|_| ()).unwrap().join(cx).unwrap();
            })
            .unwrap();
        })
        .unwrap();
    assert!(matches!(config(&[]).build(), Err(ConfigError::Tenants)));
    let stealing = Config::new(Profile::Service).workers(1).build().unwrap();
    let refused = stealing.run(|cx| cx.nursery(|n| n.builder().tenant(0).spawn(|_| ()).map(drop)).unwrap());
    assert_eq!(refused.unwrap(), Err(SpawnError::NoSuchTenant(0)));
}
