//! Hostile tasks stop at their budget, one attack each, while a victim beside them finishes its work. Bad input gets a
//! typed error and loses nothing.
#![allow(unsafe_code)]

use mainspring::{
    Budget, Capacity, Component, Config, ConfigError, Cx, Exhaustion, NurseryOptions, Pool, Profile, Runtime,
    SpawnError, TaskError, TaskState,
};
use std::time::Duration;

/// Runs an attack beside a victim that needs 100 turns. Returns the attacker's state and what it had left.
fn attack(budget: Budget, attack: impl FnOnce(&Cx) + Send) -> (TaskState, Budget) {
    let runtime = Config::new(Profile::Cluster).workers(1).build().unwrap();
    runtime
        .run(|cx| {
            let mut seen = None;
            let ended = cx.nursery_with(NurseryOptions::new().on_exhausted(Exhaustion::Park), |n| {
                let attacker = n.builder().budget(budget).spawn(move |cx| {
                    attack(cx);
                    unreachable!("the budget ends it");
                });
                let attacker = attacker.unwrap();
                let victim = n.spawn(|cx| (0..100).for_each(|_| cx.yield_now())).unwrap();
                victim.join(cx).unwrap();
                // The victim is done, so the attacker has had as many turns.
                for _ in 0..1000 {
                    if attacker.state() == TaskState::BudgetExhausted {
                        break;
                    }
                    cx.yield_now();
                }
                seen = Some((attacker.state(), attacker.budget()));
                n.cancel();
            });
            assert!(matches!(ended.unwrap_err().error, TaskError::Cancelled));
            seen.unwrap()
        })
        .unwrap()
}

//= SCHED:15.1.1
#[test]
fn a_spin_loop_stops_at_its_ops() {
    let (state, left) = attack(Budget { ops: 1_000_000, ..Budget::ZERO }, |cx| {
        loop {
            cx.check();
        }
    });
    assert_eq!((state, left.ops), (TaskState::BudgetExhausted, 0));
}

//= SCHED:15.1.1
#[test]
fn a_fork_bomb_stops_at_its_spawns() {
    fn bomb(cx: &Cx) -> u32 {
        cx.nursery(|n| {
            let mut spawned = 0;
            loop {
                let half = n.pool().part(2);
                match n.builder().pool(half).spawn(bomb) {
                    Ok(child) => spawned += 1 + child.join(cx).unwrap(),
                    Err(SpawnError::SpawnBudgetExhausted) => return spawned,
                    Err(other) => panic!("{other}"),
                }
            }
        })
        .unwrap()
    }
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let spawned = runtime
        .run(|cx| {
            cx.nursery(|n| {
                let pool = Pool { spawn_count: 60, ops: 10_000, ..Pool::ZERO };
                let bomb =
                    n.builder().budget(Budget { ops: 1000, ..Budget::ZERO }).pool(pool).spawn(bomb).unwrap();
                let victim = n.spawn(|cx| (0..100).for_each(|_| cx.yield_now())).unwrap();
                victim.join(cx).unwrap();
                bomb.join(cx).unwrap()
            })
            .unwrap()
        })
        .unwrap();
    assert_eq!(spawned, 60, "every spawn was paid for, and none after the last");
}

//= SCHED:15.1.1
#[test]
fn a_channel_flood_stops_at_its_channel_operations() {
    let (state, left) = attack(Budget { ops: 100_000, channel_ops: 500, ..Budget::ZERO }, |cx| {
        let (tx, rx) = cx.channel(Capacity::Unbounded).unwrap();
        for i in 0.. {
            assert!(rx.len() <= 500);
            tx.send(cx, i).unwrap();
        }
    });
    assert_eq!((state, left.channel_ops), (TaskState::BudgetExhausted, 0));
}

//= SCHED:15.1.1
#[test]
fn an_allocation_bomb_stops_at_its_memory() {
    let (state, left) = attack(Budget { ops: 100_000, memory: 1 << 20, ..Budget::ZERO }, |cx| {
        let mut hoard = Vec::new();
        loop {
            hoard.push(cx.try_box([1u8; 1024]).unwrap());
        }
    });
    assert_eq!((state, left.memory), (TaskState::BudgetExhausted, 0));
}

//= SCHED:15.1.1
#[test]
fn a_storm_of_system_calls_stops_at_its_number() {
    let (state, left) = attack(Budget { ops: 100_000, syscalls: 300, ..Budget::ZERO }, |cx| {
        let mut calls = 0;
        loop {
            cx.pay(Component::Syscalls).unwrap();
            std::fs::metadata("/").unwrap();
            calls += 1;
            assert!(calls <= 300, "each call is paid for");
        }
    });
    assert_eq!((state, left.syscalls), (TaskState::BudgetExhausted, 0));
}

//= SCHED:6.2.3
#[test]
fn configurations_that_make_no_sense_are_refused() {
    let config = || Config::new(Profile::Service);
    assert!(matches!(config().workers(0).build(), Err(ConfigError::Workers(0))));
    assert!(matches!(config().workers(1025).build(), Err(ConfigError::Workers(1025))));
    assert!(matches!(config().stack_size(100).build(), Err(ConfigError::StackSize(100))));
    assert!(matches!(config().stack_size(usize::MAX).build(), Err(ConfigError::StackSize(_))));
    assert!(matches!(config().max_stacks(usize::MAX / 2).build(), Err(ConfigError::Stacks(_))));
    assert!(matches!(config().yield_interval(0).build(), Err(ConfigError::YieldInterval)));
}

//= SCHED:6.2.1 SCHED:6.2.2
#[test]
fn the_number_of_workers_is_one_per_core_or_what_was_asked_for() {
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(Config::default().build().unwrap().workers(), cores);
    assert_eq!(Config::default().workers(3).build().unwrap().workers(), 3);
}

#[test]
fn late_and_repeated_orders_are_harmless() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let done = n.spawn(|_| 5).unwrap();
                while !done.is_finished() {
                    cx.yield_now();
                }
                assert!(!done.cancel(), "a cancel after completion");
                let late = n.recharge(&done, Budget { ops: 1, ..Budget::ZERO });
                assert_eq!(late, Err(mainspring::RechargeError::Finished));
                assert_eq!(done.join(cx).unwrap(), 5, "and its result is still there");
                let odd = n.builder().stack_size(1).spawn(|_| ());
                assert_eq!(odd.unwrap_err(), SpawnError::StackSize(1));
            })
            .unwrap();
            // A nursery whose body panics is awaited all the same.
            let child_ended = std::sync::atomic::AtomicBool::new(false);
            let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                cx.nursery(|n| {
                    n.spawn(|cx| {
                        struct Ends<'a>(&'a std::sync::atomic::AtomicBool);
                        impl Drop for Ends<'_> {
                            fn drop(&mut self) {
                                self.0.store(true, std::sync::atomic::Ordering::Relaxed);
                            }
                        }
                        let _ends = Ends(&child_ended);
                        cx.sleep(Duration::from_secs(3600));
                    })
                    .unwrap();
                    cx.yield_now();
                    std::panic::resume_unwind(Box::new("the body"));
                })
            }));
            assert_eq!(unwound.unwrap_err().downcast_ref::<&str>(), Some(&"the body"));
            assert!(child_ended.into_inner());
        })
        .unwrap();
}

/// A runtime that gives the frames of a task up that overflows.
fn abandoning() -> Runtime {
    // SAFETY: the tasks of these tests own nothing but memory, and borrow through the runtime's scopes only.
    let config = unsafe { Config::new(Profile::Service).abandon_overflowed_stacks() };
    config.workers(2).build().unwrap()
}

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let page = std::hint::black_box([depth; 128]);
    if depth == 0 { page[0] } else { recurse(depth - 1) + page[127] }
}

//= SCHED:5.3.3 SCHED:14.1.1c SCHED:15.2.1
#[test]
fn children_of_an_abandoned_task_end_before_it_does() {
    let runtime = abandoning();
    for _ in 0..20 {
        let error = runtime
            .run(|cx| {
                cx.nursery(|n| {
                    n.builder()
                        .budget(Budget { ops: 10_000, spawn_count: 4, ..Budget::ZERO })
                        .spawn(|cx| {
                            let borrowed = [7u64; 16];
                            cx.nursery(|n| {
                                for _ in 0..4 {
                                    n.builder()
                                        .budget(Budget { ops: 100, ..Budget::ZERO })
                                        .spawn(|cx| {
                                            loop {
                                                assert_eq!(std::hint::black_box(&borrowed), &[7; 16]);
                                                cx.yield_now();
                                            }
                                        })
                                        .unwrap();
                                }
                                cx.yield_now();
                                recurse(1 << 40)
                            })
                            .unwrap()
                        })
                        .unwrap();
                })
                .unwrap_err()
            })
            .unwrap();
        assert!(matches!(error.error, TaskError::StackOverflow), "{error}");
    }
}

#[test]
fn the_other_half_of_a_join_ends_before_an_abandoned_task_does() {
    let runtime = abandoning();
    for _ in 0..20 {
        let error = runtime
            .run(|cx| {
                let borrowed = [7u64; 16];
                cx.join(
                    |cx| {
                        (0..20).for_each(|_| cx.yield_now());
                        recurse(1 << 40)
                    },
                    |cx| {
                        for _ in 0..200 {
                            assert_eq!(std::hint::black_box(&borrowed), &[7; 16]);
                            cx.yield_now();
                        }
                    },
                )
            })
            .map(|_| ())
            .unwrap_err();
        assert!(matches!(error, TaskError::StackOverflow), "{error}");
    }
}

#[test]
fn an_overflow_holds_no_lock_of_the_runtime() {
    fn deeper(cx: &Cx, tx: &mainspring::Sender<u64>, depth: u64) {
        let frame = std::hint::black_box([depth; 32]);
        tx.send(cx, frame[0]).unwrap();
        if depth < u64::MAX {
            deeper(cx, tx, depth + 1);
        }
        std::hint::black_box(frame);
    }
    let runtime = Config::new(Profile::Cluster).workers(1).build().unwrap();
    for _ in 0..10 {
        runtime
            .run(|cx| {
                let (tx, rx) = cx.channel(Capacity::Unbounded).unwrap();
                let failed = cx.nursery(|n| n.start(|cx| deeper(cx, &tx, 0)));
                assert!(matches!(failed.unwrap_err().error, TaskError::StackOverflow));
                // The channel works on, and what was sent is there.
                tx.send(cx, u64::MAX).unwrap();
                assert!(rx.len() > 1);
                (0..rx.len() - 1).for_each(|depth| assert_eq!(rx.recv(cx), Ok(depth as u64)));
            })
            .unwrap();
    }
}

#[test]
fn a_task_can_have_a_larger_stack_than_usual() {
    let runtime = Config::new(Profile::Service).workers(2).build().unwrap();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                // About 4 MiB of frames: far more than the usual stack.
                let deep = n.builder().stack_size(16 << 20).spawn(|cx| {
                    cx.yield_now();
                    recurse(4000)
                });
                assert_eq!(deep.unwrap().join(cx).unwrap(), (1..=4000).sum::<u64>());
            })
            .unwrap();
        })
        .unwrap();
}

//= SCHED:14.1.1d
#[test]
fn a_dying_worker_is_replaced_and_its_queue_survives() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let survivors = runtime
        .run(|cx| {
            cx.nursery(|n| {
                let queued: Vec<_> = (0..20).map(|i| n.spawn(move |_| i).unwrap()).collect();
                // In a nursery of its own, since a failure cancels what waits beside it.
                let failed = cx.nursery(|n| {
                    // SAFETY: the task owns nothing.
                    let killer = n.spawn(|cx| unsafe { cx.kill_worker() }).unwrap();
                    assert!(matches!(killer.join(cx), Err(TaskError::WorkerPanic)));
                });
                assert!(matches!(failed.unwrap_err().error, TaskError::WorkerPanic));
                queued.into_iter().map(|handle| handle.join(cx).unwrap()).collect::<Vec<_>>()
            })
            .unwrap()
        })
        .unwrap();
    assert_eq!(survivors, (0..20).collect::<Vec<_>>(), "no other task failed or was lost");
    assert_eq!(runtime.worker_stats()[0].deaths, 1);
    assert_eq!(runtime.run(|_| 3).unwrap(), 3);
}

fn hammer(runtime: &Runtime, tasks: u64) -> u64 {
    runtime
        .run(|cx| {
            let options = NurseryOptions::new().on_exhausted(Exhaustion::Fail);
            cx.nursery_with(options, |n| {
                let handles: Vec<_> = (0..tasks)
                    .map(|i| {
                        n.spawn(move |cx| {
                            (0..i % 5).for_each(|_| cx.yield_now());
                            if i % 7 == 0 {
                                cx.sleep(Duration::from_micros(i % 50));
                            }
                            i
                        })
                        .unwrap()
                    })
                    .collect();
                handles.into_iter().map(|handle| handle.join(cx).unwrap()).sum()
            })
            .unwrap()
        })
        .unwrap()
}

#[test]
fn two_hundred_and_fifty_six_workers_share_the_work() {
    let runtime = Config::new(Profile::Cluster).workers(256).build().unwrap();
    for _ in 0..3 {
        assert_eq!(hammer(&runtime, 5000), (0..5000).sum());
    }
}
