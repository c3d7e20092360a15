//! The deterministic mode: the same order every time, another for another seed, and billing that no order changes.

use mainspring::testing::for_seeds;
use mainspring::{Capacity, Config, Cx, Pool, Profile, VictimStrategy};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Tasks that spawn, talk, sleep and compute; returns the ops of each.
fn program(cx: &Cx) -> Vec<u64> {
    let (tx, rx) = cx.channel::<u64>(Capacity::Bounded(3)).unwrap();
    let ops = Mutex::new(vec![0; 40]);
    cx.nursery(|n| {
        for i in 0..40u64 {
            let (tx, rx, ops) = (tx.clone(), rx.clone(), &ops);
            n.spawn(move |cx| {
                for _ in 0..i * 50 {
                    cx.check();
                }
                if i % 2 == 0 {
                    tx.send(cx, i).unwrap();
                } else {
                    let _ = rx.recv(cx).unwrap();
                }
                cx.yield_now();
                cx.sleep(Duration::from_micros(i % 7));
                ops.lock().unwrap()[i as usize] = cx.ops_used();
            })
            .unwrap();
        }
    })
    .unwrap();
    ops.into_inner().unwrap()
}

fn run(config: Config) -> (Vec<u64>, (u64, u64)) {
    let runtime = config.build().unwrap();
    let ops = runtime.run(program).unwrap();
    (ops, runtime.trace().unwrap())
}

//= SCHED:9.1.1 SCHED:9.3.1 SCHED:9.2.1
#[test]
fn the_same_seed_gives_the_same_order_and_another_seed_another() {
    for victims in [VictimStrategy::Random, VictimStrategy::RoundRobin, VictimStrategy::LeastLoaded] {
        let config = || Config::new(Profile::Service).workers(4).victims(victims);
        let traces: Vec<_> = (0..10).map(|seed| run(config().deterministic_seed(seed)).1).collect();
        for (seed, trace) in traces.iter().enumerate() {
            assert_eq!(run(config().deterministic_seed(seed as u64)).1, *trace, "seed {seed}");
        }
        let mut different: Vec<_> = traces.iter().map(|(hash, _)| hash).collect();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), traces.len());
    }
}

//= SCHED:1.1.1
#[test]
fn every_worker_count_and_every_order_bills_the_same() {
    let expected = run(Config::new(Profile::Service).workers(1).deterministic_seed(0)).0;
    assert!(expected.iter().all(|&ops| ops > 0));
    for workers in [1, 2, 3, 8] {
        for seed in 0..5 {
            assert_eq!(
                run(Config::new(Profile::Service).workers(workers).deterministic_seed(seed)).0,
                expected
            );
        }
        let free_running = Config::new(Profile::Service).workers(workers).build().unwrap();
        assert_eq!(free_running.run(program).unwrap(), expected, "{workers} threads");
    }
}

#[test]
fn a_failure_names_the_seed_that_replays_it() {
    // The order decides which of two tasks comes first: some seed must fail.
    let racy = |cx: &Cx| {
        let first = Mutex::new(None);
        cx.nursery(|n| {
            for i in 0..2 {
                let first = &first;
                n.spawn(move |cx| {
                    cx.yield_now();
                    first.lock().unwrap().get_or_insert(i);
                })
                .unwrap();
            }
        })
        .unwrap();
        assert_eq!(first.into_inner().unwrap(), Some(0), "lost the race");
    };
    let config = Config::new(Profile::Service).workers(2);
    let payload = std::panic::catch_unwind(|| for_seeds(0..50, config.clone(), racy)).unwrap_err();
    let message = payload.downcast_ref::<String>().unwrap();
    let seed: u64 = message.strip_prefix("seed ").unwrap().split(':').next().unwrap().parse().unwrap();
    assert!(message.contains(&format!("MAINSPRING_SEED={seed} cargo test")), "{message}");
    for _ in 0..3 {
        let again = std::panic::catch_unwind(|| for_seeds(seed..seed + 1, config.clone(), racy));
        assert!(again.is_err(), "the seed replays the failure");
    }
}

#[test]
fn a_deadlock_is_reported_with_its_seed() {
    let stuck = |cx: &Cx| {
        let (tx, rx) = cx.channel::<u8>(Capacity::Rendezvous).unwrap();
        let _ = rx.recv(cx);
        drop(tx);
    };
    let payload = std::panic::catch_unwind(|| for_seeds(3..4, Config::default(), stuck)).unwrap_err();
    assert!(payload.downcast_ref::<String>().unwrap().contains("deadlock"));
}

#[test]
fn the_whole_pool_comes_back() {
    let pool = Pool { ops: 1 << 24, memory: 1 << 20, spawn_count: 100, channel_ops: 200_000, syscalls: 10 };
    let runtime =
        Config::new(Profile::Service).workers(2).root_pool(pool).deterministic_seed(9).build().unwrap();
    let ops: u64 = runtime.run(program).unwrap().iter().sum();
    let left = runtime.root_pool();
    assert_eq!(left.spawn_count, pool.spawn_count - 41);
    assert_eq!(left.channel_ops, pool.channel_ops - 40);
    assert_eq!(left.memory, pool.memory);
    // The children's ops, and the root's: one per spawn.
    assert_eq!(left.ops, pool.ops - ops - 40);
}

/// Virtual workers share one thread: a task that is alone on its worker and never waits does not keep the others from theirs.
#[test]
fn a_task_that_never_waits_keeps_no_other_virtual_worker_from_running() {
    for seed in 0..8 {
        let runtime = Config::new(Profile::Service).workers(2).deterministic_seed(seed).build().unwrap();
        let done = AtomicBool::new(false);
        let ended = runtime.run(|cx| {
            cx.nursery(|nursery| {
                let watcher = nursery.spawn(|cx| {
                    while !done.load(Ordering::Relaxed) {
                        cx.check_iterations(100);
                    }
                });
                let worker = nursery.spawn(|cx| {
                    (0..1000).for_each(|_| cx.check_iterations(100));
                    done.store(true, Ordering::Relaxed);
                });
                worker.unwrap().join(cx).unwrap();
                watcher.unwrap().join(cx).unwrap();
            })
        });
        ended.unwrap().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
