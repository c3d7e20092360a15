//! Exhaustion, recharge, capabilities and profiles, as tasks meet them.

use mainspring::{
    AwaitError, Budget, BudgetError, Capacity, Caps, Component, Config, ConfigError, Cx, Exhaustion, Handle,
    NurseryOptions, NurseryState, Pool, Profile, Receiver, RechargeError, Runtime, SpawnError, TaskError,
    TaskState, Unpayable,
};

fn runtime(profile: Profile) -> Runtime {
    Config::new(profile).workers(1).build().unwrap()
}

fn ops(ops: u32) -> Budget {
    Budget { ops, ..Budget::ZERO }
}

fn checks(cx: &Cx, n: u32) {
    for _ in 0..n {
        cx.check();
    }
}

fn wait_for(cx: &Cx, handle: &Handle<'_, u64>, state: TaskState) {
    for _ in 0..1000 {
        if handle.state() == state {
            return;
        }
        cx.yield_now();
    }
    panic!("{:?} is not {state:?}", handle.state());
}

//= SCHED:3.2.1 SCHED:3.2.2 SCHED:3.2.3a SCHED:4.1.2 SCHED:5.2.2b
#[test]
fn an_exhausted_task_waits_until_its_nursery_recharges_it() {
    runtime(Profile::Service)
        .run(|cx| {
            cx.nursery_with(NurseryOptions::new().on_exhausted(Exhaustion::Park), |n| {
                let child = n.builder().budget(ops(10)).spawn(|cx| {
                    checks(cx, 25);
                    cx.ops_used()
                });
                let child = child.unwrap();
                wait_for(cx, &child, TaskState::BudgetExhausted);
                assert_eq!(child.ops_used(), 10);
                for _ in 0..50 {
                    cx.yield_now();
                    assert_eq!(child.state(), TaskState::BudgetExhausted, "it is in no queue");
                }
                let too_much = Budget { syscalls: u16::MAX, ..ops(u32::MAX) };
                let lots = (0..).find_map(|_| n.recharge(&child, too_much).err());
                assert!(matches!(lots, Some(RechargeError::WouldOverflow(_) | RechargeError::Pool(_))));
                assert_eq!(child.join(cx).unwrap(), 25);
            })
            .unwrap();
        })
        .unwrap();
}

//= SCHED:3.2.3a
#[test]
fn a_recharge_that_the_pool_cannot_pay_changes_nothing() {
    runtime(Profile::Service)
        .run(|cx| {
            let small = NurseryOptions::new().pool(Pool { ops: 100, spawn_count: 1, ..Pool::ZERO });
            cx.nursery_with(small.on_exhausted(Exhaustion::Park), |n| {
                let child = n.builder().budget(ops(10)).spawn(|cx| {
                    checks(cx, 50);
                    cx.ops_used()
                });
                let child = child.unwrap();
                wait_for(cx, &child, TaskState::BudgetExhausted);
                let refused = n.recharge(&child, ops(91)).unwrap_err();
                let lacking = Unpayable { component: Component::Ops, needed: 91, available: 90 };
                assert_eq!(refused, RechargeError::Pool(lacking));
                assert_eq!((child.state(), n.pool().ops), (TaskState::BudgetExhausted, 90));
                n.recharge(&child, ops(20)).unwrap();
                // Twice is not an error: it is more budget.
                n.recharge(&child, ops(20)).unwrap();
                assert_eq!(n.pool().ops, 50);
                assert_eq!(child.join(cx).unwrap(), 50);
                assert_eq!(n.pool().ops, 50);
            })
            .unwrap();
        })
        .unwrap();
}

//= SCHED:3.2.3c SCHED:10.2.4
#[test]
fn self_recharge_is_cumulative_up_to_the_capability_and_no_further() {
    let limit = Budget { ops: 100, ..Budget::ZERO };
    let caps = Caps::root(10, Budget::MAX, limit, 0, 0);
    let runtime = Config::new(Profile::Sovereign).workers(1).root_caps(caps).build().unwrap();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let child = n.builder().budget(ops(1000)).caps(cx.caps()).spawn(move |cx| {
                    let before = cx.budget();
                    cx.recharge(ops(60)).unwrap();
                    assert_eq!(cx.budget().ops, before.ops + 60);
                    let over = Unpayable { component: Component::Ops, needed: 60, available: 40 };
                    assert_eq!(cx.recharge(ops(60)), Err(RechargeError::OverLimit(over)));
                    assert_eq!(cx.budget().ops, before.ops + 60, "a refused recharge changes nothing");
                    cx.recharge(ops(40)).unwrap();
                    assert!(cx.recharge(ops(1)).is_err());
                });
                child.unwrap().join(cx).unwrap();
                let without = n.builder().caps(cx.caps().without_budget()).budget(ops(10));
                let refused = without.spawn(|cx| cx.recharge(ops(1))).unwrap();
                assert_eq!(refused.join(cx).unwrap(), Err(RechargeError::NotPermitted));
            })
            .unwrap();
        })
        .unwrap();
}

//= SCHED:3.2.3b
#[test]
fn a_supervisor_recharges_its_children_in_the_cluster_profile_only() {
    for (profile, expected) in
        [(Profile::Cluster, Ok(())), (Profile::Service, Err(RechargeError::NotASupervisor))]
    {
        runtime(profile)
            .run(|cx| {
                cx.nursery_with(NurseryOptions::new().on_exhausted(Exhaustion::Park), |n| {
                    let child = n.builder().budget(ops(5)).spawn(|cx| {
                        checks(cx, 8);
                        cx.ops_used()
                    });
                    let child = child.unwrap();
                    wait_for(cx, &child, TaskState::BudgetExhausted);
                    assert_eq!(n.supervise(cx, &child, ops(100)), expected);
                    match expected {
                        Ok(()) => assert_eq!(child.join(cx).unwrap(), 8),
                        Err(_) => assert!(child.cancel()),
                    }
                })
                .unwrap();
            })
            .unwrap();
    }
}

//= SCHED:4.2.2 SCHED:4.1.1d
#[test]
fn a_yield_is_free_and_always_gives_way() {
    runtime(Profile::Service)
        .run(|cx| {
            let turns = std::sync::Mutex::new(Vec::new());
            cx.nursery(|n| {
                for i in 0..3 {
                    let turns = &turns;
                    n.spawn(move |cx| {
                        let before = cx.budget();
                        for _ in 0..4 {
                            turns.lock().unwrap().push(i);
                            cx.yield_now();
                        }
                        assert_eq!(cx.budget(), before);
                    })
                    .unwrap();
                }
            })
            .unwrap();
            let turns = turns.into_inner().unwrap();
            assert!(
                turns.chunks(3).all(|round| round.len() == 3 && round[0] != round[1] && round[1] != round[2])
            );
        })
        .unwrap();
}

//= SCHED:4.1.1c
#[test]
fn an_allocation_is_charged_and_a_refused_one_is_not() {
    runtime(Profile::Service)
        .run(|cx| {
            cx.nursery(|n| {
                let budget = Budget { ops: 10, memory: 100, ..Budget::ZERO };
                let child = n.builder().budget(budget).spawn(move |cx| {
                    let boxed = cx.try_box([0u8; 60]).unwrap();
                    assert_eq!(boxed.len(), 60);
                    assert_eq!(cx.budget(), Budget { ops: 9, memory: 40, ..Budget::ZERO });
                    let refused = cx.try_vec::<u64>(6).unwrap_err();
                    let lacking = Unpayable { component: Component::Memory, needed: 48, available: 40 };
                    assert_eq!(refused, BudgetError::MemoryBudgetExhausted(lacking));
                    assert_eq!(cx.budget(), Budget { ops: 9, memory: 40, ..Budget::ZERO });
                    assert_eq!(cx.try_vec::<u64>(usize::MAX).unwrap_err(), {
                        let needed = usize::MAX as u64;
                        BudgetError::MemoryBudgetExhausted(Unpayable {
                            component: Component::Memory,
                            needed,
                            available: 40,
                        })
                    });
                });
                child.unwrap().join(cx).unwrap();
                let child = n.builder().budget(ops(10)).spawn(|cx| cx.charge_alloc(1)).unwrap();
                assert_eq!(child.join(cx).unwrap(), Err(BudgetError::NeverGranted(Component::Memory)));
            })
            .unwrap();
        })
        .unwrap();
}

//= SCHED:14.1.1a
#[test]
fn an_exhausted_memory_or_spawn_budget_is_named_and_a_recharge_lets_the_task_try_again() {
    let more = Budget { memory: 100, ..Budget::ZERO };
    let caps = Caps::root(10, Budget::MAX, more, 0, 0);
    let runtime = Config::new(Profile::Sovereign).workers(1).root_caps(caps).build().unwrap();
    runtime
        .run(|cx| {
            let one =
                NurseryOptions::new().pool(Pool { ops: 1000, memory: 1000, spawn_count: 1, ..Pool::ZERO });
            cx.nursery_with(one, |n| {
                let budget = Budget { ops: 100, memory: 10, ..Budget::ZERO };
                let child = n.builder().budget(budget).caps(cx.caps()).spawn(move |cx| {
                    let lacking = Unpayable { component: Component::Memory, needed: 64, available: 10 };
                    let refused = cx.try_box([1u8; 64]).unwrap_err();
                    assert_eq!(refused, BudgetError::MemoryBudgetExhausted(lacking));
                    cx.recharge(more).unwrap();
                    cx.try_box([1u8; 64]).unwrap().len()
                });
                assert_eq!(child.unwrap().join(cx).unwrap(), 64);
                assert_eq!(n.spawn(|_| ()).unwrap_err(), SpawnError::SpawnBudgetExhausted);
            })
            .unwrap();
        })
        .unwrap();
}

//= SCHED:1.1.2 SCHED:15.1.2 SCHED:10.2.4
#[test]
fn without_the_capability_nothing_can_be_spawned_by_any_route() {
    runtime(Profile::Service)
        .run(|cx| {
            cx.nursery(|n| {
                let grant = Budget { spawn_count: 10, ops: 1000, ..Budget::ZERO };
                let plugin = n.builder().caps(cx.caps().without_spawn()).budget(grant).spawn(|cx| {
                    let inner = cx.nursery(|n| n.spawn(|_| ()).map(drop)).unwrap();
                    assert_eq!(inner, Err(SpawnError::NotPermitted));
                    // Asking for more than one has gives no more.
                    let forged = Caps::root(u32::MAX, Budget::MAX, Budget::MAX, u32::MAX, u32::MAX);
                    let options = NurseryOptions::new().caps(forged);
                    let forged =
                        cx.nursery_with(options, |n| n.builder().caps(forged).spawn(|_| ()).map(drop));
                    assert_eq!(forged.unwrap(), Err(SpawnError::NotPermitted));
                    assert!(cx.caps().spawn().is_none());
                });
                plugin.unwrap().join(cx).unwrap();
            })
            .unwrap();
        })
        .unwrap();
    let sovereign = runtime(Profile::Sovereign);
    let refused = sovereign.run(|cx| cx.nursery(|n| n.spawn(|_| ()).map(drop)).unwrap()).unwrap();
    assert_eq!(refused, Err(SpawnError::NotPermitted));
}

//= SCHED:10.2.2
#[test]
fn a_service_task_spawns_with_the_default_budget_and_no_ceremony() {
    runtime(Profile::Service)
        .run(|cx| {
            let budget = cx.nursery(|n| n.spawn(|cx| cx.budget()).unwrap().join(cx).unwrap()).unwrap();
            assert_eq!(budget, Budget { spawn_count: 0, ..Profile::Service.child_budget() });
        })
        .unwrap();
}

//= SCHED:10.2.1
#[test]
fn the_core_profile_starts_no_worker() {
    assert!(matches!(Config::new(Profile::Core).build(), Err(ConfigError::CoreProfile)));
}

//= SCHED:8.1.2a SCHED:14.1.1b SCHED:8.1.3
#[test]
fn refused_spawns_say_why_and_create_nothing() {
    runtime(Profile::Service)
        .run(|cx| {
            let two = NurseryOptions::new().pool(Pool { ops: 1000, spawn_count: 2, ..Pool::ZERO });
            cx.nursery_with(two, |n| {
                n.builder().budget(ops(1)).spawn(|_| ()).unwrap();
                let lacking = Unpayable { component: Component::Ops, needed: 2000, available: 999 };
                let refused = n.builder().budget(ops(2000)).spawn(|_| ()).unwrap_err();
                assert_eq!(refused, SpawnError::Pool(lacking));
                n.builder().budget(ops(1)).spawn(|_| ()).unwrap();
                assert_eq!(n.spawn(|_| ()).unwrap_err(), SpawnError::SpawnBudgetExhausted);
                assert_eq!(n.live(), 2);
            })
            .unwrap();
            let few = NurseryOptions::new().caps(cx.caps().attenuate_spawn(3, Budget::MAX));
            cx.nursery_with(few, |n| {
                let (tx, rx) = cx.channel::<u8>(Capacity::Rendezvous).unwrap();
                let wait = |rx: Receiver<u8>| move |cx: &Cx| assert!(rx.recv(cx).is_err());
                let held: Vec<_> = (0..3).map(|_| n.spawn(wait(rx.clone())).unwrap()).collect();
                assert_eq!(n.spawn(|_| ()).unwrap_err(), SpawnError::TaskLimit(3));
                tx.close();
                held.into_iter().for_each(|handle| handle.join(cx).unwrap());
                n.spawn(|_| ()).unwrap();
                assert!(n.cancel());
                assert_eq!(n.state(), NurseryState::Cancelling);
                assert_eq!(n.spawn(|_| ()).unwrap_err(), SpawnError::NurseryNotActive);
            })
            .unwrap_err();
        })
        .unwrap();
}

//= SCHED:15.2.2 NURS:error-propagation
#[test]
fn the_first_error_cancels_the_siblings_and_is_what_the_owner_sees() {
    for workers in [1, 2] {
        let runtime = Config::new(Profile::Service).workers(workers).build().unwrap();
        let error = runtime
            .run(|cx| {
                cx.nursery(|n| {
                    n.spawn(|cx| cx.sleep(std::time::Duration::from_secs(3600))).unwrap();
                    n.spawn_try(|cx| {
                        cx.yield_now();
                        Err::<(), _>("first")
                    })
                    .unwrap();
                })
                .unwrap_err()
            })
            .unwrap();
        assert_eq!(error.error.to_string(), "first");
        assert!(error.task.is_some());
    }
}

#[test]
fn cleanup_runs_on_cancellation_under_its_own_budget() {
    let runtime = Config::new(Profile::Service).workers(1).cleanup_ops(50).build().unwrap();
    let (cleaned, cut_short) = (std::sync::atomic::AtomicU32::new(0), std::sync::atomic::AtomicU32::new(0));
    use std::sync::atomic::Ordering::Relaxed;
    runtime
        .run(|cx| {
            let ended = cx.nursery(|n| {
                n.spawn(|cx| {
                    cx.with_cleanup(
                        |cx| cx.sleep(std::time::Duration::from_secs(3600)),
                        |cx| {
                            checks(cx, 20);
                            cx.yield_now();
                            cx.sleep(std::time::Duration::from_micros(10));
                            cleaned.fetch_add(1, Relaxed);
                        },
                    );
                })
                .unwrap();
                n.spawn(|cx| {
                    cx.with_cleanup(
                        |cx| cx.sleep(std::time::Duration::from_secs(3600)),
                        |cx| loop {
                            cx.check();
                            cut_short.fetch_add(1, Relaxed);
                        },
                    );
                })
                .unwrap();
                (0..5).for_each(|_| cx.yield_now());
                n.cancel();
            });
            assert!(matches!(ended.unwrap_err().error, TaskError::Cancelled));
        })
        .unwrap();
    assert_eq!((cleaned.into_inner(), cut_short.into_inner()), (1, 50));
}

#[test]
fn refills_come_out_of_the_pool() {
    runtime(Profile::Service)
        .run(|cx| {
            let options = NurseryOptions::new()
                .pool(Pool { ops: 100, spawn_count: 1, ..Pool::ZERO })
                .on_exhausted(Exhaustion::Refill(ops(30)));
            cx.nursery_with(options, |n| {
                let child = n.builder().budget(ops(10)).spawn(|cx| {
                    checks(cx, 70);
                    cx.ops_used()
                });
                let child = child.unwrap();
                n.await_all(cx);
                assert_eq!(child.join(cx).unwrap(), 70);
                assert_eq!(n.pool().ops, 30);
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn a_future_is_awaited_with_the_capability_only() {
    let polls = std::sync::atomic::AtomicU32::new(0);
    let polls = &polls;
    let future = || async move { polls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) };
    let polled = || polls.load(std::sync::atomic::Ordering::Relaxed);
    runtime(Profile::Service)
        .run(|cx| {
            assert_eq!(cx.await_future(future()), Ok(0));
            cx.nursery(|n| {
                for caps in [Caps::none(), cx.caps().without_executor()] {
                    let child = n.builder().caps(caps).spawn(|cx| {
                        // In the task itself, in a half of a fork, and in a nursery that asks for more.
                        assert_eq!(cx.await_future(future()), Err(AwaitError::NotPermitted));
                        let halves = cx.join(|cx| cx.await_future(future()), |cx| cx.await_future(future()));
                        assert_eq!(halves, (Err(AwaitError::NotPermitted), Err(AwaitError::NotPermitted)));
                        let forged = Caps::root(10, Budget::MAX, Budget::MAX, 10, 10);
                        let _ = cx.nursery_with(NurseryOptions::new().caps(forged), |n| {
                            if let Ok(child) = n.builder().caps(forged).spawn(|cx| cx.await_future(future()))
                            {
                                assert_eq!(child.join(cx).unwrap(), Err(AwaitError::NotPermitted));
                            }
                        });
                    });
                    child.unwrap().join(cx).unwrap();
                    assert_eq!(polled(), 1, "a future that is refused is not polled");
                }
            })
            .unwrap();
        })
        .unwrap();
    let sovereign = runtime(Profile::Sovereign).run(|cx| cx.await_future(future())).unwrap();
    assert_eq!(sovereign, Err(AwaitError::NotPermitted));
}
