//! Periodic quotas: no window of one period has more than the rate and the burst, whatever the tasks below a root do; a task that
//! is throttled ends when it is told to.

use mainspring::quota::WhenEmpty;
use mainspring::{
    Budget, BudgetError, Caps, Component, Config, ConfigError, Cx, NurseryOptions, Parker, Pool, Profile,
    Quota, QuotaError, Rate, Runtime, SpawnError, TaskError, WaitReason, Weight,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PERIOD: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_secs(3600);

fn config(workers: usize) -> Config {
    let caps = Caps::root(10_000, Budget::MAX, Budget::ZERO, 1000, 100);
    Config::new(Profile::Cluster).workers(workers).root_caps(caps)
}

/// In virtual time: a use is at the moment that the clock says, to the nanosecond.
fn in_virtual_time(seed: u64) -> Runtime {
    config(2).deterministic_seed(seed).build().unwrap()
}

/// Every use, one by one.
#[derive(Default)]
struct Uses(Mutex<Vec<(Duration, u64)>>);

impl Uses {
    fn note(&self, cx: &Cx, n: u64) {
        self.0.lock().unwrap().push((cx.now(), n));
    }

    /// Of all windows of one period.
    fn most(&self) -> u64 {
        let uses = self.0.lock().unwrap();
        let in_window = |from: Duration| {
            uses.iter().filter(|(at, _)| (from..from + PERIOD).contains(at)).map(|(_, n)| n).sum()
        };
        uses.iter().map(|(from, _)| in_window(*from)).max().unwrap_or(0)
    }

    fn all(&self) -> u64 {
        self.0.lock().unwrap().iter().map(|(_, n)| n).sum()
    }
}

/// Uses one of a component.
fn use_one(cx: &Cx, component: Component) {
    match component {
        Component::SpawnCount => {
            cx.nursery(|n| n.spawn(|_| ()).unwrap().join(cx).unwrap()).unwrap();
        }
        Component::Memory => cx.charge_alloc(1).unwrap(),
        other => cx.pay(other).unwrap(),
    }
}

fn plenty() -> Budget {
    Budget { ops: 10_000_000, memory: 1 << 30, spawn_count: 2000, channel_ops: 60_000, syscalls: 60_000 }
}

#[test]
fn no_window_has_more_than_the_rate_and_the_burst() {
    for component in Component::ALL {
        for (amount, burst, tasks, each) in
            [(100, 100, 1, 700), (50, 10, 7, 60), (7, 1, 3, 20), (1000, 3000, 4, 2500)]
        {
            if component == Component::SpawnCount && each > 1000 {
                continue;
            }
            let runtime = in_virtual_time(amount);
            let rate = Rate::per(PERIOD).limit(component, amount).burst(component, burst);
            let quota = runtime.quota(rate).unwrap();
            let uses = Uses::default();
            let took = runtime.run(|cx| {
                let began = cx.now();
                cx.nursery(|n| {
                    n.bind_quota(&quota).unwrap();
                    for task in 0..tasks {
                        let uses = &uses;
                        let body = move |cx: &Cx| {
                            for i in 0..each {
                                use_one(cx, component);
                                uses.note(cx, 1);
                                if i % 97 == task {
                                    cx.sleep(Duration::from_micros(300));
                                }
                            }
                        };
                        n.builder().budget(plenty()).start(body).unwrap();
                    }
                })
                .unwrap();
                cx.now() - began
            });
            let what = format!("{component}: {amount} and {burst} at once, {tasks} tasks");
            assert!(uses.most() <= amount + burst, "{what}: {} in a window", uses.most());
            assert_eq!(uses.all(), tasks * each);
            // It is the rate that held them up, and no more than that.
            let least = PERIOD * u32::try_from((tasks * each).saturating_sub(burst) / amount).unwrap();
            let took = took.unwrap();
            assert!(took >= least.saturating_sub(PERIOD), "{what}: {took:?} of at least {least:?}");
            assert!(
                took <= least * 2 + 4 * PERIOD,
                "{what}: {took:?} for {least:?}: it gets what it was promised"
            );
            assert!(quota.throttled() > 0, "{what}");
        }
    }
}

#[test]
fn parts_of_a_quota_never_have_more_than_the_whole() {
    for seed in 0..20 {
        let runtime = in_virtual_time(seed);
        let (amount, burst) = (400, 120);
        let rate = Rate::per(PERIOD).limit(Component::Ops, amount).burst(Component::Ops, burst);
        let root = runtime.quota(rate).unwrap();
        let uses = Uses::default();
        runtime
            .run(|cx| {
                cx.nursery(|n| {
                    for task in 0..4u64 {
                        let part = Rate::per(PERIOD)
                            .limit(Component::Ops, 80 + task)
                            .burst(Component::Ops, 20 + seed % 10);
                        let (part, uses, root) = (root.share(part).unwrap(), &uses, &root);
                        let own = [part.clone(), root.clone()];
                        n.builder()
                            .budget(plenty())
                            .quota(&part)
                            .start(move |cx| {
                                spend(cx, uses, 300);
                                cx.nursery(|n| {
                                    // The whole is not below the part.
                                    let above = n.builder().quota(&own[1]).spawn(|_| ()).unwrap_err();
                                    assert_eq!(above, SpawnError::Quota(QuotaError::NotBelow));
                                    assert_eq!(n.bind_quota(&own[1]), Err(QuotaError::NotBelow));
                                    let some = Budget { ops: 10_000, ..Budget::ZERO };
                                    let piece =
                                        Rate::per(PERIOD).limit(Component::Ops, 20).burst(Component::Ops, 5);
                                    let piece = own[0].share(piece).unwrap();
                                    n.builder()
                                        .budget(some)
                                        .quota(&piece)
                                        .start(|cx| spend(cx, uses, 50))
                                        .unwrap();
                                    n.builder().budget(some).start(|cx| spend(cx, uses, 100)).unwrap();
                                    let halves = |cx: &Cx| {
                                        cx.join(|cx| spend(cx, uses, 30), |cx| spend(cx, uses, 30));
                                    };
                                    n.builder().budget(some).start(halves).unwrap();
                                })
                                .unwrap();
                            })
                            .unwrap();
                    }
                    let left = root.share(Rate::per(PERIOD).limit(Component::Ops, 400));
                    assert!(matches!(left, Err(QuotaError::Exceeds { component: Component::Ops, .. })));
                })
                .unwrap();
            })
            .unwrap();
        assert!(uses.most() <= amount + burst, "seed {seed}: {} in a window", uses.most());
        // All of it is back.
        let whole = Rate::per(PERIOD).limit(Component::Ops, amount).burst(Component::Ops, burst);
        assert!(root.share(whole).is_ok(), "seed {seed}");
    }
}

fn spend(cx: &Cx, uses: &Uses, ops: u64) {
    for _ in 0..ops {
        cx.check();
        uses.note(cx, 1);
    }
}

#[test]
fn a_quota_that_makes_no_sense_is_refused() {
    let runtime = in_virtual_time(0);
    let quota = |rate| runtime.quota(rate).map(drop);
    let rate = |period| Rate::per(period).limit(Component::Ops, 1);
    assert_eq!(quota(rate(Duration::ZERO)), Err(QuotaError::Period(Duration::ZERO)));
    assert_eq!(quota(rate(2 * HOUR)), Err(QuotaError::Period(2 * HOUR)));
    assert_eq!(quota(rate(HOUR).limit(Component::Memory, 0)), Err(QuotaError::NoBurst(Component::Memory)));
    assert_eq!(quota(rate(HOUR).burst(Component::Ops, 0)), Err(QuotaError::NoBurst(Component::Ops)));
    assert_eq!(quota(rate(HOUR).limit(Component::Ops, u64::MAX)), Ok(()));
    let whole = runtime.quota(rate(HOUR)).unwrap();
    // A component that the whole does not limit is not its to share.
    let other = Rate::per(HOUR).limit(Component::Syscalls, 1);
    let exceeds = QuotaError::Exceeds { component: Component::Syscalls, asked: 1, left: 0 };
    assert_eq!(whole.share(other).map(drop), Err(exceeds));
    let elsewhere = in_virtual_time(1);
    elsewhere
        .run(|cx| {
            cx.nursery(|n| {
                assert_eq!(n.bind_quota(&whole), Err(QuotaError::OtherRuntime));
                let refused = n.builder().quota(&whole).spawn(|_| ()).unwrap_err();
                assert_eq!(refused, SpawnError::Quota(QuotaError::OtherRuntime));
                n.spawn(|cx| cx.sleep(PERIOD)).unwrap();
                let own = elsewhere.quota(rate(HOUR)).unwrap();
                assert_eq!(n.bind_quota(&own), Err(QuotaError::HasChildren));
            })
            .unwrap();
        })
        .unwrap();
    let config = config(1).fair(&[Weight::DEFAULT]);
    let late = config.clone().tenant_rate(1, rate(HOUR)).build();
    assert!(matches!(late, Err(ConfigError::TenantRate(1))));
    assert!(matches!(
        config.clone().tenant_rate(usize::MAX, rate(HOUR)).build(),
        Err(ConfigError::TenantRate(_))
    ));
    let bad = config.tenant_rate(0, rate(2 * HOUR)).build();
    assert!(matches!(bad, Err(ConfigError::Rate(QuotaError::Period(_)))));
}

/// One use in an hour: what waits for the second one waits for the whole test.
fn once(runtime: &Runtime, component: Component) -> Quota {
    runtime.quota(Rate::per(HOUR).limit(component, 1)).unwrap()
}

#[test]
fn a_throttled_task_ends_when_it_is_told_to() {
    for component in Component::ALL {
        let runtime = config(2).build().unwrap();
        let quota = once(&runtime, component);
        runtime
            .run(|cx| {
                for way in 0..3 {
                    let dropped = AtomicBool::new(false);
                    let _result = cx.nursery_with(
                        NurseryOptions::new().deadline(if way == 0 { PERIOD } else { HOUR }),
                        |n| {
                            n.bind_quota(&quota).unwrap();
                            let child = n.builder().budget(plenty()).spawn(|cx| {
                                let _drops = OnDrop(&dropped);
                                loop {
                                    use_one(cx, component);
                                }
                            });
                            let child: mainspring::Handle<'_, ()> = child.unwrap();
                            while !waits_for_quota(&runtime) {
                                cx.sleep(Duration::from_micros(100));
                            }
                            match way {
                                0 => {}
                                1 => _ = child.cancel(),
                                _ => _ = n.cancel(),
                            }
                            let _ended = child.join(cx);
                        },
                    );
                    assert!(dropped.into_inner(), "{component}");
                }
            })
            .unwrap();
        // What they had reserved is back: none of it was used.
        assert_eq!(quota.left().get(component), 0);
    }
}

fn waits_for_quota(runtime: &Runtime) -> bool {
    runtime.snapshot().tasks.iter().any(|task| task.waits_for == WaitReason::Quota)
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn cleanup_of_a_throttled_task_is_charged_and_not_waited_for() {
    let runtime = config(1).build().unwrap();
    let quota = once(&runtime, Component::Syscalls);
    let cleaned = AtomicU64::new(0);
    runtime
        .run(|cx| {
            let ended = cx.nursery(|n| {
                n.bind_quota(&quota).unwrap();
                let child = n.builder().budget(plenty()).spawn(|cx| {
                    cx.with_cleanup(
                        |cx| loop {
                            cx.pay(Component::Syscalls).unwrap();
                        },
                        |cx| {
                            for _ in 0..10 {
                                cx.pay(Component::Syscalls).unwrap();
                                cleaned.fetch_add(1, Ordering::Relaxed);
                            }
                        },
                    );
                });
                let child: mainspring::Handle<'_, ()> = child.unwrap();
                while !waits_for_quota(&runtime) {
                    cx.sleep(Duration::from_micros(100));
                }
                child.cancel();
                child.join(cx)
            });
            assert!(matches!(ended.unwrap(), Err(TaskError::Cancelled)));
        })
        .unwrap();
    assert_eq!(cleaned.into_inner(), 10);
    // The one of the hour, and ten more to make up for.
    let rate = Rate::per(HOUR).limit(Component::Syscalls, 1);
    assert!(quota.share(rate).is_err() || quota.left().syscalls == 0);
}

#[test]
fn a_quota_that_fails_says_when_to_try_again() {
    let runtime = in_virtual_time(3);
    for component in [Component::ChannelOps, Component::Syscalls, Component::Memory] {
        let rate = Rate::per(PERIOD).limit(component, 2).when_empty(WhenEmpty::Fail);
        let quota = runtime.quota(rate).unwrap();
        runtime
            .run(|cx| {
                cx.nursery(|n| {
                    n.bind_quota(&quota).unwrap();
                    let child = n.builder().budget(plenty()).spawn(move |cx| {
                        for _ in 0..2 {
                            cx.pay(component).unwrap();
                        }
                        let before = cx.budget();
                        let Err(BudgetError::OverRate { component: of, retry_in: Some(time), .. }) =
                            cx.pay(component)
                        else {
                            panic!("it has used both")
                        };
                        assert_eq!(of, component);
                        assert_eq!(
                            cx.budget().get(component),
                            before.get(component),
                            "a refusal charges nothing"
                        );
                        cx.sleep(time);
                        cx.pay(component).unwrap();
                        if component == Component::Memory {
                            let never = cx.charge_alloc(3).unwrap_err();
                            assert!(matches!(never, BudgetError::OverRate { retry_in: None, most: 2, .. }));
                        }
                    });
                    child.unwrap().join(cx).unwrap();
                })
                .unwrap();
            })
            .unwrap();
    }
    let rate = Rate::per(PERIOD).limit(Component::Ops, 50).when_empty(WhenEmpty::Fail);
    let quota = runtime.quota(rate).unwrap();
    let ended = runtime.run(|cx| {
        cx.nursery(|n| {
            n.bind_quota(&quota).unwrap();
            n.spawn(|cx| (0..1000).for_each(|_| cx.check())).unwrap().join(cx)
        })
        .map(drop)
    });
    let error = ended.unwrap().unwrap_err();
    assert!(matches!(error.error, TaskError::BudgetExhausted(Component::Ops)), "{error:?}");
}

#[test]
fn tasks_that_wait_hold_nothing_back() {
    let runtime = config(2).build().unwrap();
    let quota = runtime.quota(Rate::per(HOUR).limit(Component::Ops, 10_000)).unwrap();
    let (go, started) = (Parker::default(), AtomicU64::new(0));
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                n.bind_quota(&quota).unwrap();
                // Each takes a slice, of which it uses a little, and waits.
                for _ in 0..100 {
                    let (go, started) = (&go, &started);
                    n.start(move |cx| {
                        cx.check();
                        started.fetch_add(1, Ordering::SeqCst);
                        go.park(cx, None);
                    })
                    .unwrap();
                }
                while started.load(Ordering::SeqCst) < 100 {
                    cx.sleep(Duration::from_micros(100));
                }
                // There is enough left for this, in an hour.
                let used = n.spawn(|cx| {
                    (0..9000).for_each(|_| cx.check());
                    cx.ops_used()
                });
                assert_eq!(used.unwrap().join(cx).unwrap(), 9000);
                (0..100).for_each(|_| go.unpark());
                n.cancel();
            })
            .unwrap_err();
        })
        .unwrap();
    assert!(quota.left().ops <= 1000 && quota.left().ops >= 500, "{:?}", quota.left());
}

#[test]
fn a_tenant_has_its_rate_and_so_has_everything_below_it() {
    let slow = Rate::per(HOUR).limit(Component::Syscalls, 5);
    let runtime = config(2).fair(&[Weight::DEFAULT; 3]).tenant_rate(1, slow).build().unwrap();
    let done = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];
    runtime
        .run(|cx| {
            let ended = cx.nursery(|n| {
                for tenant in [1, 2] {
                    let done = &done[tenant];
                    let below = move |cx: &Cx| {
                        for _ in 0..20 {
                            cx.pay(Component::Syscalls).unwrap();
                            done.fetch_add(1, Ordering::SeqCst);
                        }
                    };
                    n.builder()
                        .tenant(tenant)
                        .budget(plenty())
                        .pool(Pool { spawn_count: 10, ..Pool::AMPLE.part(1000) })
                        .start(move |cx| {
                            assert_eq!(cx.quota().is_some(), tenant == 1);
                            cx.nursery(|n| {
                                for _ in 0..2 {
                                    n.builder()
                                        .budget(Budget { spawn_count: 0, ..plenty() })
                                        .start(below)
                                        .unwrap();
                                }
                            })
                            .unwrap();
                        })
                        .unwrap();
                }
                while done[2].load(Ordering::SeqCst) < 40 || done[1].load(Ordering::SeqCst) < 5 {
                    cx.sleep(Duration::from_micros(100));
                }
                n.cancel();
            });
            assert!(ended.is_err());
        })
        .unwrap();
    assert_eq!(done.map(AtomicU64::into_inner), [0, 5, 40]);
}

#[test]
fn a_metered_function_is_held_to_the_rate() {
    #[mainspring::budgeted]
    fn sum(cx: &Cx, n: u64) -> u64 {
        let mut sum = 0;
        for i in 0..n {
            sum = std::hint::black_box(sum + i);
        }
        sum
    }
    let runtime = in_virtual_time(5);
    let quota = runtime.quota(Rate::per(PERIOD).limit(Component::Ops, 1000)).unwrap();
    let both = runtime.run(|cx| {
        let began = cx.now();
        let ops = cx.nursery(|n| {
            n.bind_quota(&quota).unwrap();
            let summed = n.builder().budget(plenty()).spawn(|cx| {
                assert_eq!(sum(cx, 20_000), 199_990_000);
                cx.ops_used()
            });
            summed.unwrap().join(cx).unwrap()
        });
        (ops.unwrap(), cx.now() - began)
    });
    let (ops, took) = both.unwrap();
    let periods = u32::try_from(ops / 1000).unwrap();
    assert!(ops >= 20_000);
    assert!(
        took >= PERIOD * (periods - 2) && took <= PERIOD * (periods + 2),
        "{took:?} for {ops} ops at 1,000 a period"
    );
}

#[test]
fn a_task_that_spawns_into_the_nursery_of_another_gives_the_quota_that_it_has() {
    let runtime = config(1).build().unwrap();
    let quota = once(&runtime, Component::Syscalls);
    let (bound, free) = (AtomicBool::new(false), AtomicBool::new(false));
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let spawner = n.spawner();
                let (bound, free) = (&bound, &free);
                let child = n.builder().budget(plenty()).quota(&quota).spawn(move |cx| {
                    spawner.start(cx, |cx| bound.store(cx.quota().is_some(), Ordering::SeqCst)).unwrap();
                });
                child.unwrap().join(cx).unwrap();
                n.start(|cx| free.store(cx.quota().is_none(), Ordering::SeqCst)).unwrap();
            })
            .unwrap();
        })
        .unwrap();
    assert!(bound.into_inner() && free.into_inner());
}

#[test]
fn a_long_chain_of_parts_is_given_back_on_a_small_stack() {
    let runtime = config(1).build().unwrap();
    let rate = Rate::per(PERIOD).limit(Component::Syscalls, 10);
    let root = runtime.quota(rate).unwrap();
    runtime
        .run(|_| {
            let mut part = root.clone();
            for _ in 0..10_000 {
                part = part.share(rate).unwrap();
            }
            assert_eq!(root.left().syscalls, 0);
            drop(part);
        })
        .unwrap();
    assert_eq!(root.left().syscalls, 10);
}
