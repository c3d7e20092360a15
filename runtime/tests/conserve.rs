//! Budgets are moved, never made: what the root was given is all that there is below it, and unused budget comes back.

use mainspring::sync::{CancelToken, Stopped};
use mainspring::{
    Budget, BudgetError, Caps, Component, Config, Cx, Exhaustion, NurseryOptions, Pool, Profile,
    RechargeError, Runtime, SpawnError, TaskError, TaskState, Unpayable,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PROFILES: [Profile; 3] = [Profile::Service, Profile::Cluster, Profile::Sovereign];

fn ops(ops: u32) -> Budget {
    Budget { ops, ..Budget::ZERO }
}

fn caps(limit: Budget) -> Caps {
    Caps::root(100, Budget { ops: 1_000_000, ..Budget::MAX }, limit, 10, 10)
}

fn runtime(profile: Profile, workers: usize, limit: Budget) -> Runtime {
    Config::new(profile).workers(workers).root_caps(caps(limit)).build().unwrap()
}

/// Uses up what the task has and can get, and returns how many ops that were.
fn squander(cx: &Cx, step: u32) -> u64 {
    let mut used = 0;
    loop {
        while cx.budget().ops > 0 {
            cx.check();
            used += 1;
        }
        if cx.recharge(ops(step)).is_err() {
            return used;
        }
    }
}

//= OWN:budget.conserve
#[test]
fn recharges_and_supervision_take_from_the_pool_of_the_root() {
    for profile in PROFILES {
        for workers in [1, 2] {
            let runtime = runtime(profile, workers, Budget::MAX);
            let pool = Pool { ops: 50_000, spawn_count: 20, ..Pool::ZERO };
            let before = runtime.root_pool();
            let used = AtomicU64::new(0);
            let all = runtime.nursery(NurseryOptions::new().pool(pool), |n| {
                let root = n.builder().caps(caps(Budget::MAX)).budget(ops(1000)).pool(Pool {
                    ops: 10_000,
                    spawn_count: 10,
                    ..Pool::ZERO
                });
                let root = root.spawn(|cx| {
                    let mine = cx.caps();
                    let inside =
                        cx.nursery_with(NurseryOptions::new().on_exhausted(Exhaustion::Cancel), |n| {
                            for _ in 0..5 {
                                let tenant = n.builder().caps(mine).budget(ops(100));
                                let child =
                                    tenant.spawn(|cx| used.fetch_add(squander(cx, 50), Ordering::Relaxed));
                                // Its siblings may have used the whole pool.
                                let Ok(child) = child else { break };
                                // The spawn's own op.
                                used.fetch_add(1, Ordering::Relaxed);
                                for _ in 0..1000 {
                                    let _ = n.supervise(cx, &child, ops(1000));
                                    let _ = n.recharge(&child, ops(1));
                                }
                            }
                        });
                    inside.unwrap();
                    used.fetch_add(squander(cx, 7), Ordering::Relaxed);
                });
                root.unwrap().wait().unwrap();
            });
            all.unwrap();
            let used = used.load(Ordering::Relaxed);
            assert!(used <= 50_000, "{profile:?}: {used} ops of 50,000 were used");
            assert!(used > 10_000, "{profile:?}: only {used} ops could be drawn");
            assert_eq!(before.ops - runtime.root_pool().ops, used, "{profile:?}");
        }
    }
}

//= OWN:budget.conserve SCHED:3.2.3c
#[test]
fn a_limit_that_is_granted_leaves_the_grantor_and_comes_back() {
    for profile in PROFILES {
        runtime(profile, 1, ops(100))
            .run(|cx| {
                assert_eq!(cx.caps().budget().unwrap().limit(), ops(100));
                cx.nursery(|n| {
                    let heir = n.spawn(|cx| (cx.caps().budget().copied(), cx.recharge(ops(1)))).unwrap();
                    assert_eq!(
                        heir.join(cx).unwrap(),
                        (None, Err(RechargeError::NotPermitted)),
                        "not inherited"
                    );
                    let all = cx.caps();
                    let child = n.builder().caps(all.attenuate_budget(ops(70))).spawn(|cx| {
                        cx.recharge(ops(20)).unwrap();
                        cx.yield_now();
                        cx.caps().budget().unwrap().limit()
                    });
                    let child = child.unwrap();
                    assert_eq!(cx.caps().budget().unwrap().limit(), ops(30), "what was granted is gone");
                    let over = Unpayable { component: Component::Ops, needed: 31, available: 30 };
                    assert_eq!(cx.recharge(ops(31)), Err(RechargeError::OverLimit(over)));
                    // An old copy is worth what is left.
                    let second =
                        n.builder().caps(all).spawn(|cx| cx.caps().budget().unwrap().limit()).unwrap();
                    assert_eq!(second.join(cx).unwrap(), ops(30));
                    assert_eq!(child.join(cx).unwrap(), ops(50));
                    n.await_all(cx);
                    assert_eq!(cx.caps().budget().unwrap().limit(), ops(80), "what was not drawn came back");
                })
                .unwrap();
            })
            .unwrap();
    }
}

//= OWN:budget.conserve SCHED:3.2.3b
#[test]
fn supervision_has_a_total() {
    runtime(Profile::Cluster, 1, ops(100))
        .run(|cx| {
            cx.nursery(|n| {
                let child = n.builder().budget(ops(1)).spawn(|cx| cx.yield_now()).unwrap();
                n.supervise(cx, &child, ops(60)).unwrap();
                let over = Unpayable { component: Component::Ops, needed: 60, available: 40 };
                assert_eq!(n.supervise(cx, &child, ops(60)), Err(RechargeError::OverLimit(over)));
                assert_eq!(cx.recharge(ops(41)).unwrap_err(), {
                    let over = Unpayable { component: Component::Ops, needed: 41, available: 40 };
                    RechargeError::OverLimit(over)
                });
                child.join(cx).unwrap();
            })
            .unwrap();
        })
        .unwrap();
}

//= OWN:budget.conserve
#[test]
fn cleanups_make_no_ops() {
    let runtime = Config::new(Profile::Service).workers(1).cleanup_ops(100).build().unwrap();
    let before = runtime.root_pool();
    let used = AtomicU64::new(0);
    runtime
        .nursery(NurseryOptions::new().on_exhausted(Exhaustion::Cancel), |n| {
            let child = n.builder().budget(ops(10)).spawn(|cx| {
                // Caught and begun again, a cancellation must not bring new ops each time.
                for _ in 0..50 {
                    let body = |cx: &Cx| loop {
                        cx.check();
                        used.fetch_add(1, Ordering::Relaxed);
                    };
                    let cleanup = |cx: &Cx| loop {
                        cx.check();
                        used.fetch_add(1, Ordering::Relaxed);
                    };
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        cx.with_cleanup::<()>(body, cleanup);
                    }));
                }
            });
            // A stop that was caught goes on.
            assert_eq!(child.unwrap().wait().unwrap_err().exhausted(), Some(Component::Ops));
        })
        .unwrap();
    let used = used.load(Ordering::Relaxed);
    assert!(used <= 110, "{used} ops with a budget of 10 and 100 for cleanup");
    assert_eq!(before.ops - runtime.root_pool().ops, used);
}

//= OWN:budget.conserve
#[test]
fn a_price_that_no_pool_can_hold_is_refused() {
    let most = Pool { ops: u64::MAX, spawn_count: u64::MAX, memory: u64::MAX, channel_ops: 0, syscalls: 0 };
    let runtime = Config::new(Profile::Service).workers(1).root_pool(most).build().unwrap();
    runtime
        .nursery(NurseryOptions::new(), |n| {
            let dear = n.builder().budget(ops(1000)).pool(Pool { ops: u64::MAX, ..Pool::ZERO });
            assert!(matches!(dear.start(|_| ()), Err(SpawnError::Pool(_))));
            let dear = n.builder().budget(ops(1)).pool(Pool { spawn_count: u64::MAX, ..Pool::ZERO });
            assert!(matches!(dear.start(|_| ()), Err(SpawnError::Pool(_))));
        })
        .unwrap();
    assert_eq!(runtime.root_pool(), most);
    runtime.run(|cx| cx.nursery(|n| n.start(|_| ()).unwrap()).unwrap()).unwrap();
    assert_eq!(runtime.root_pool().spawn_count, u64::MAX - 2);
}

#[test]
fn a_budget_beyond_the_capability_is_refused_and_not_cut() {
    runtime(Profile::Service, 1, Budget::ZERO)
        .run(|cx| {
            cx.nursery_with(NurseryOptions::new().caps(cx.caps().attenuate_spawn(10, ops(500))), |n| {
                let over = Unpayable { component: Component::Ops, needed: 501, available: 500 };
                assert_eq!(n.builder().budget(ops(501)).start(|_| ()), Err(SpawnError::OverLimit(over)));
                n.builder().budget(ops(500)).start(|_| ()).unwrap();
            })
            .unwrap();
        })
        .unwrap();
}

//= OWN:exhaust.told
#[test]
fn a_task_that_nobody_can_recharge_is_reported_and_not_waited_for() {
    fn spin(cx: &Cx) {
        loop {
            cx.check();
        }
    }
    let refill = Exhaustion::Refill(ops(10));
    for workers in [1, 2] {
        let runtime = Config::new(Profile::Service).workers(workers).build().unwrap();
        for policy in [Exhaustion::RefillOrFail, Exhaustion::Fail, Exhaustion::Park, refill] {
            let pool = Pool { ops: 2000, spawn_count: 4, channel_ops: 10, ..Pool::ZERO };
            let options = NurseryOptions::new().pool(pool).on_exhausted(policy);
            let told = |error: TaskError, how: &str| {
                let is_told = matches!(error, TaskError::BudgetExhausted(Component::Ops));
                assert!(is_told, "{workers} workers, {policy:?}, {how}: {error}");
                assert!(!error.is_cancelled() && error.exhausted() == Some(Component::Ops));
            };
            runtime
                .run(|cx| {
                    let ended =
                        cx.nursery_with(options, |n| n.builder().budget(ops(100)).start(spin).unwrap());
                    told(ended.unwrap_err().error, "at the end of the nursery");
                    let ended = cx.nursery_with(options, |n| {
                        let child = n.builder().budget(ops(100)).spawn(spin).unwrap();
                        told(child.join(cx).unwrap_err(), "at a join");
                    });
                    told(ended.unwrap_err().error, "after a join");
                    let ended = cx.nursery_with(options, |n| {
                        n.builder().budget(ops(100)).start(spin).unwrap();
                        // The first may have used the whole pool.
                        let _ = n.builder().budget(ops(100)).start(spin);
                        (0..50).for_each(|_| cx.yield_now());
                        n.await_all(cx);
                    });
                    told(ended.unwrap_err().error, "where all are awaited");
                    let ended = cx.nursery_with(options, |n| {
                        let tree = |cx: &Cx| {
                            let _: ((), ()) = cx.join(spin, spin);
                        };
                        n.builder().budget(ops(100)).start(tree).unwrap();
                    });
                    told(ended.unwrap_err().error, "in a fork tree");
                })
                .unwrap();
            let ended = runtime.nursery(options, |n| {
                let child = n.builder().budget(ops(100)).spawn(spin).unwrap();
                told(child.wait().unwrap_err(), "where a thread waits");
            });
            told(ended.unwrap_err().error, "in a thread's nursery");
        }
    }
}

#[test]
fn a_child_without_a_budget_of_its_own_goes_on_as_long_as_the_pool_pays() {
    for workers in [1, 2] {
        let runtime = Config::new(Profile::Service).workers(workers).build().unwrap();
        let before = runtime.root_pool();
        runtime
            .run(|cx| {
                let pool = Pool { ops: 1_000_000, spawn_count: 2, channel_ops: 5000, ..Pool::ZERO };
                cx.nursery_with(NurseryOptions::new().pool(pool), |n| {
                    n.start(|cx| {
                        (0..900_000).for_each(|_| cx.check());
                        (0..4000).for_each(|_| cx.pay(Component::ChannelOps).unwrap());
                    })
                    .unwrap();
                    n.start(|_| ()).unwrap();
                })
                .unwrap();
            })
            .unwrap();
        let after = runtime.root_pool();
        assert_eq!((before.ops - after.ops, before.channel_ops - after.channel_ops), (904_002, 4000));
    }
}

#[test]
fn the_end_of_a_budget_and_a_cancellation_are_told_apart() {
    Config::new(Profile::Service)
        .workers(1)
        .build()
        .unwrap()
        .run(|cx| {
            cx.nursery_with(NurseryOptions::new().on_exhausted(Exhaustion::Cancel), |n| {
                let poor = n.builder().budget(ops(5)).spawn(|cx| (0..9).for_each(|_| cx.check())).unwrap();
                let idle = n.spawn(|cx| cx.sleep(Duration::from_secs(3600))).unwrap();
                let poor = poor.join(cx).unwrap_err();
                assert!(
                    matches!(poor, TaskError::BudgetCut(Component::Ops)) && !poor.is_cancelled(),
                    "{poor}"
                );
                cx.yield_now();
                assert!(idle.cancel(), "its sibling goes on");
                let idle = idle.join(cx).unwrap_err();
                assert!(matches!(idle, TaskError::Cancelled) && idle.exhausted().is_none(), "{idle}");
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn the_last_of_a_component_may_be_used() {
    Config::new(Profile::Service)
        .workers(1)
        .build()
        .unwrap()
        .run(|cx| {
            let exact = Budget { ops: 100, channel_ops: 3, memory: 64, ..Budget::ZERO };
            cx.nursery(|n| {
                let child = n.builder().budget(exact).spawn(|cx| {
                    (0..3).for_each(|_| cx.pay(Component::ChannelOps).unwrap());
                    cx.charge_alloc(64).unwrap();
                    (0..90).for_each(|_| cx.check());
                });
                child.unwrap().join(cx).unwrap();
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn an_open_nursery_takes_more() {
    for workers in [1, 2] {
        let runtime = Config::new(Profile::Service).workers(workers).build().unwrap();
        let before = runtime.root_pool();
        runtime
            .run(|cx| {
                let small = NurseryOptions::new().pool(Pool { ops: 100, spawn_count: 1, ..Pool::ZERO });
                cx.nursery_with(small.on_exhausted(Exhaustion::Refill(ops(50))), |n| {
                    let child =
                        n.builder().budget(ops(10)).spawn(|cx| (0..1000).for_each(|_| cx.check())).unwrap();
                    while child.state() != TaskState::BudgetExhausted {
                        cx.yield_now();
                    }
                    assert_eq!(n.spawn(|_| ()).unwrap_err(), SpawnError::SpawnBudgetExhausted);
                    n.top_up(Pool { ops: 2000, spawn_count: 3, ..Pool::ZERO }).unwrap();
                    child.join(cx).unwrap();
                    // And one that is inside another.
                    cx.nursery_with(NurseryOptions::new().pool(Pool::ZERO), |inner| {
                        assert_eq!(inner.spawn(|_| ()).unwrap_err(), SpawnError::SpawnBudgetExhausted);
                        inner.top_up(Pool { ops: 10, spawn_count: 1, ..Pool::ZERO }).unwrap();
                        inner.spawn(|cx| cx.check()).unwrap().join(cx).unwrap();
                        let error = inner.top_up(Pool { ops: 1 << 40, ..Pool::ZERO }).unwrap_err();
                        assert!(matches!(error, RechargeError::Pool(_)));
                    })
                    .unwrap();
                })
                .unwrap();
            })
            .unwrap();
        // The checks, and a spawn each.
        assert_eq!(before.ops - runtime.root_pool().ops, 1000 + 1 + 1 + 1, "{workers} workers");
    }
}

#[test]
fn memory_is_refunded_and_an_allocation_reads_its_mail() {
    Config::new(Profile::Service)
        .workers(1)
        .build()
        .unwrap()
        .run(|cx| {
            let bytes = |memory| Budget { memory, ops: 10_000, ..Budget::ZERO };
            let (kept_one, ready) = (AtomicBool::new(false), AtomicBool::new(false));
            cx.nursery(|n| {
                let child = n.builder().budget(bytes(100)).spawn(|cx| {
                    for _ in 0..1000 {
                        let first = cx.try_box([0u8; 60]).unwrap();
                        let lacking = Unpayable { component: Component::Memory, needed: 60, available: 40 };
                        assert_eq!(
                            cx.try_box([0u8; 60]).unwrap_err(),
                            BudgetError::MemoryBudgetExhausted(lacking)
                        );
                        assert_eq!(first.len(), 60);
                    }
                    let kept: Box<[u8; 60]> = cx.try_box([7; 60]).unwrap().keep();
                    assert_eq!((cx.budget().memory, kept[0]), (40, 7));
                    kept_one.store(true, Ordering::Relaxed);
                    while !ready.load(Ordering::Relaxed) {
                        cx.yield_now();
                    }
                    cx.charge_alloc(100).unwrap();
                    cx.budget().memory
                });
                let child = child.unwrap();
                while !kept_one.load(Ordering::Relaxed) {
                    cx.yield_now();
                }
                n.recharge(&child, Budget { memory: 80, ..Budget::ZERO }).unwrap();
                ready.store(true, Ordering::Relaxed);
                assert_eq!(child.join(cx).unwrap(), 20);
                // A child without a budget of its own takes what it lacks from the pool.
                let large = n.spawn(|cx| cx.charge_alloc(64 << 20)).unwrap();
                assert_eq!(large.join(cx).unwrap(), Ok(()));
            })
            .unwrap();
        })
        .unwrap();
}

/// A loop of allocations and refunds must not put off the end of the quantum.
#[test]
fn refunds_do_not_keep_a_worker_from_its_other_tasks() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let other_ran = AtomicBool::new(false);
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                n.start(|cx| {
                    let mut rounds = 0;
                    while !other_ran.load(Ordering::Relaxed) {
                        drop(cx.try_box([0u8; 8]).unwrap());
                        cx.nursery(|_| ()).unwrap();
                        rounds += 1;
                        assert!(rounds < 100_000, "the other task never runs");
                    }
                })
                .unwrap();
                n.start(|_| other_ran.store(true, Ordering::Relaxed)).unwrap();
            })
            .unwrap();
        })
        .unwrap();
}

//= OWN:budget.conserve
#[test]
fn memory_that_is_charged_when_a_stop_comes_is_paid_back() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let left = runtime.run(|cx| {
        cx.nursery(|n| {
            let budget = Budget { ops: 1000, memory: 64, ..Budget::ZERO };
            let child = n.builder().budget(budget).spawn(|cx| {
                let stop = CancelToken::new();
                // The last of it is charged, so that the charge itself finds the stop.
                let stopped = cx.until(&stop, |cx| {
                    stop.cancel();
                    cx.try_vec::<u8>(64).map(drop)
                });
                assert_eq!(stopped.unwrap_err(), Stopped::Cancelled);
                let stop = CancelToken::new();
                let stopped = cx.until(&stop, |cx| {
                    stop.cancel();
                    cx.try_box([0_u8; 64]).map(drop)
                });
                assert_eq!(stopped.unwrap_err(), Stopped::Cancelled);
                cx.budget().memory
            });
            child.unwrap().join(cx).unwrap()
        })
    });
    assert_eq!(left.unwrap().unwrap(), 64);
}
