//! Hostile tenants: tasks that hold little authority and try to get more ops, memory, spawns, channel operations or system
//! calls than they were granted, to take other tenants' budgets, or to go on after they were cancelled. No attempt gains
//! anything.

use mainspring::{
    Budget, Capacity, Caps, Component, Config, Cx, Exhaustion, NurseryOptions, Pool, Profile, RechargeError,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const GRANT: Budget = Budget { ops: 3000, memory: 1000, spawn_count: 8, channel_ops: 20, syscalls: 20 };
const LIMIT: Budget = Budget { ops: 500, memory: 50, spawn_count: 3, channel_ops: 5, syscalls: 5 };
const FORGED: fn() -> Caps = || Caps::root(u32::MAX, Budget::MAX, Budget::MAX, u32::MAX, u32::MAX);
/// What the tenant's owner has to hand out: more than the tenant may ever get.
const POOL: Pool =
    Pool { ops: 1_000_000, memory: 1_000_000, spawn_count: 1000, channel_ops: 10_000, syscalls: 10_000 };

/// What a tenant got out of the runtime, as it counts itself.
#[derive(Default)]
struct Loot([AtomicU64; 5]);

impl Loot {
    fn took(&self, component: Component, amount: u64) {
        self.0[component as usize].fetch_add(amount, Ordering::Relaxed);
    }

    fn of(&self, component: Component) -> u64 {
        self.0[component as usize].load(Ordering::Relaxed)
    }

    /// Computes until there are no more ops. Recharges when it can.
    fn spend_ops(&self, cx: &Cx) {
        while cx.budget().ops > 0 {
            cx.check();
            self.took(Component::Ops, 1);
        }
    }

    /// Uses up what the task has of everything, a try each.
    fn spend_all(&self, cx: &Cx) {
        let now = cx.budget();
        for (component, left) in [
            (Component::ChannelOps, now.channel_ops),
            (Component::Syscalls, now.syscalls),
            (Component::SpawnCount, now.spawn_count),
        ] {
            for _ in 0..left {
                if cx.budget().ops > 1 && cx.pay(component).is_ok() {
                    self.took(component, 1);
                    self.took(Component::Ops, 1);
                }
            }
        }
        let memory = cx.budget().memory;
        if cx.budget().ops > 1 && memory > 0 && cx.charge_alloc(memory).is_ok() {
            self.took(Component::Memory, memory as u64);
            self.took(Component::Ops, 1);
        }
        self.spend_ops(cx);
    }
}

/// The three sets of capabilities that tenants have, and the most that each may draw beside its grant.
fn tenants(all: Caps) -> [(&'static str, Caps, Budget); 3] {
    let budget = all.without_spawn().without_channel().without_executor();
    let spawn = all.without_budget().without_channel().without_executor();
    [
        ("no capability", Caps::none(), Budget::ZERO),
        ("CapBudget", budget.attenuate_budget(LIMIT), LIMIT),
        ("CapSpawn", spawn, Budget::ZERO),
    ]
}

type Attempt = fn(&Cx, &Loot);

/// Makes the attempt as each tenant, at each profile, beside a victim with an exact budget.
fn gains_nothing(attempt: Attempt) {
    for profile in [Profile::Service, Profile::Cluster, Profile::Sovereign] {
        for workers in [1, 2] {
            let root = Caps::root(1000, Budget { ops: 1_000_000, ..Budget::MAX }, Budget::MAX, 100, 100);
            let runtime =
                Config::new(profile).workers(workers).root_caps(root).cleanup_ops(100).build().unwrap();
            let before = runtime.root_pool();
            runtime
                .run(|cx| {
                    for (who, caps, limit) in tenants(cx.caps()) {
                        let what = format!("{profile:?}, {workers} workers, {who}");
                        one_tenant(cx, caps, &limit, attempt, &what);
                    }
                })
                .unwrap();
            let after = runtime.root_pool();
            for component in Component::ALL {
                assert!(after.get(component) <= before.get(component), "{component} were made");
            }
        }
    }
}

fn one_tenant(cx: &Cx, caps: Caps, limit: &Budget, attempt: Attempt, what: &str) {
    let (loot, stop) = (Loot::default(), AtomicBool::new(false));
    let opened = cx.nursery_with(NurseryOptions::new().pool(POOL).on_exhausted(Exhaustion::Cancel), |n| {
        let victim = n.builder().budget(Budget { ops: 300, ..Budget::ZERO }).spawn(|cx| {
            (0..200).for_each(|_| {
                cx.check();
                cx.yield_now();
            });
            while !stop.load(Ordering::Relaxed) {
                cx.yield_now();
            }
            cx.budget().ops
        });
        let victim = victim.unwrap();
        let tenant = n.builder().caps(caps).budget(GRANT).spawn(|cx| attempt(cx, &loot)).unwrap();
        if let Err(error) = tenant.join(cx) {
            assert!(error.exhausted().is_some(), "{what}: {error}");
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(victim.join(cx).unwrap(), 100, "{what}: the victim has lost ops");
        n.await_all(cx);
        let left = n.pool();
        for component in Component::ALL {
            let granted = GRANT.get(component) + limit.get(component);
            let taken = loot.of(component);
            assert!(taken <= granted, "{what}: {taken} {component} of {granted}");
            // Beside the tenant: the victim, and two spawns.
            let others = match component {
                Component::Ops => 200,
                Component::SpawnCount => 2,
                _ => 0,
            };
            let gone = POOL.get(component) - left.get(component);
            assert!(
                gone <= granted + others,
                "{what}: {gone} {component} are gone of {granted} and {others}"
            );
            assert!(gone >= taken.min(granted), "{what}: {taken} {component} were used, {gone} paid for");
        }
    });
    opened.unwrap();
}

macro_rules! attempts {
    ($($name:ident: $attempt:expr;)*) => {
        $(
            //= OWN:budget.conserve
            #[test]
            fn $name() {
                gains_nothing($attempt);
            }
        )*
    };
}

fn forks(cx: &Cx, loot: &Loot, depth: u32) {
    if depth == 0 || cx.budget().ops < 4 {
        let _ = cx.recharge(LIMIT);
        return loot.spend_all(cx);
    }
    cx.join(|cx| forks(cx, loot, depth - 1), |cx| forks(cx, loot, depth - 1));
}

attempts! {
    a_tenant_that_recharges_in_a_loop_gets_no_more_than_its_limit: |cx, loot| {
        for _ in 0..100 {
            let _ = cx.recharge(Budget { ops: 10, syscalls: 1, ..Budget::ZERO });
        }
        loot.spend_all(cx);
    };
    a_tenant_that_asks_for_everything_gets_nothing: |cx, loot| {
        let before = cx.budget();
        assert!(cx.recharge(Budget::MAX).is_err());
        assert_eq!(cx.budget(), before);
        loot.spend_all(cx);
    };
    a_tenant_with_forged_capabilities_has_its_own: |cx, loot| {
        let held = cx.caps();
        let options = NurseryOptions::new().caps(FORGED());
        let _ = cx.nursery_with(options, |n| {
            for _ in 0..20 {
                let child = n.builder().caps(FORGED()).budget(Budget { ops: 50, ..Budget::ZERO }).spawn(|cx| {
                    assert!(cx.caps().is_within(&held) && cx.caps().budget().is_none());
                    assert_eq!(cx.recharge(LIMIT), Err(RechargeError::NotPermitted));
                    loot.spend_all(cx);
                });
                match child {
                    Ok(child) => {
                        loot.took(Component::SpawnCount, 1);
                        let _ = child.join(cx);
                    }
                    Err(_) => return,
                }
            }
        });
        loot.spend_all(cx);
    };
    a_tenant_cannot_open_a_nursery_with_more_than_it_has: |cx, loot| {
        let before = cx.budget();
        let most = Pool { ops: u64::MAX, memory: u64::MAX, spawn_count: u64::MAX, channel_ops: 1, syscalls: 1 };
        for pool in [POOL, most, Pool { ops: u64::from(before.ops) + 1, ..Pool::ZERO }] {
            assert!(cx.nursery_with(NurseryOptions::new().pool(pool), |_| ()).is_err());
            assert_eq!(cx.budget(), before);
        }
        loot.spend_all(cx);
    };
    a_tenant_cannot_top_its_nursery_up_with_more_than_it_has: |cx, loot| {
        let before = cx.budget();
        cx.nursery(|n| {
            assert!(n.top_up(POOL).is_err());
            let all = Pool::from(cx.budget());
            n.top_up(all).unwrap();
            assert!(n.top_up(Pool { ops: 1, ..Pool::ZERO }).is_err(), "it has nothing left");
        })
        .unwrap();
        assert_eq!(cx.budget(), before, "all of it is back");
        loot.spend_all(cx);
    };
    nurseries_that_are_opened_and_closed_make_nothing_by_rounding: |cx, loot| {
        let before = cx.budget();
        for parts in 1..60 {
            let pool = Pool::from(cx.budget()).part(parts);
            cx.nursery_with(NurseryOptions::new().pool(pool), |n| {
                cx.nursery(|inner| assert!(inner.pool().ops <= n.pool().ops + inner.pool().ops)).unwrap();
            })
            .unwrap();
            assert_eq!(cx.budget(), before);
        }
        loot.spend_all(cx);
    };
    a_tenant_s_children_have_no_more_than_the_tenant_together: |cx, loot| {
        for _ in 0..20 {
            let _ = cx.nursery(|n| {
                let share = Budget { spawn_count: 0, ..n.pool().part(2).narrow() };
                if let Ok(child) = n.builder().budget(share).spawn(|cx| loot.spend_all(cx)) {
                    loot.took(Component::SpawnCount, 1);
                    let _ = n.recharge(&child, GRANT);
                    let _ = n.supervise(cx, &child, GRANT);
                }
            });
        }
        loot.spend_all(cx);
    };
    children_that_end_at_once_give_back_no_more_than_they_got: |cx, loot| {
        let before = cx.budget();
        let spawned = cx.nursery(|n| {
            let child = || n.builder().budget(Budget { ops: 10, memory: 7, ..Budget::ZERO }).spawn(|_| ());
            (0..50).map_while(|_| child().ok()).map(drop).count() as u64
        });
        let spawned = spawned.unwrap();
        loot.took(Component::SpawnCount, spawned);
        loot.took(Component::Ops, spawned);
        assert!(cx.budget().ops <= before.ops && cx.budget().memory <= before.memory);
        loot.spend_all(cx);
    };
    both_halves_of_a_join_have_one_budget: |cx, loot| {
        cx.join(|cx| loot.spend_all(cx), |cx| loot.spend_all(cx));
        loot.spend_all(cx);
    };
    a_tree_of_forks_has_one_budget_and_one_limit: |cx, loot| {
        forks(cx, loot, 5);
        loot.spend_all(cx);
    };
    an_exhausted_tenant_that_catches_its_end_computes_no_more: |cx, loot| {
        for _ in 0..50 {
            let _ = catch_unwind(AssertUnwindSafe(|| loop {
                cx.check();
                loot.took(Component::Ops, 1);
            }));
        }
    };
    a_component_that_has_run_out_stays_so_for_a_tenant_that_catches_its_end: |cx, loot| {
        for component in [Component::ChannelOps, Component::Syscalls, Component::SpawnCount] {
            for _ in 0..60 {
                let paid = catch_unwind(AssertUnwindSafe(|| cx.pay(component)));
                if matches!(paid, Ok(Ok(()))) {
                    loot.took(component, 1);
                }
            }
        }
    };
    memory_that_is_refunded_was_paid_for: |cx, loot| {
        let before = cx.budget().memory;
        for _ in 0..50 {
            let boxes: Vec<_> = std::iter::from_fn(|| cx.try_box([0u8; 100]).ok()).collect();
            assert!(boxes.len() * 100 <= before, "{} bytes of {before}", boxes.len() * 100);
            drop(boxes);
            assert_eq!(cx.budget().memory, before);
        }
        // What is kept is gone, also when it is freed.
        let kept = cx.try_vec::<u8>(200).unwrap().keep();
        loot.took(Component::Memory, 200);
        drop(kept);
        assert_eq!(cx.budget().memory, before - 200);
        loot.spend_all(cx);
    };
    sizes_that_wrap_around_are_refused: |cx, loot| {
        let before = cx.budget().memory;
        for size in [usize::MAX, usize::MAX / 2 + 1, before + 1] {
            assert!(cx.charge_alloc(size).is_err());
        }
        assert!(cx.try_vec::<u64>(usize::MAX / 8 + 2).is_err());
        assert!(cx.try_vec::<u64>(usize::MAX).is_err());
        assert_eq!(cx.budget().memory, before);
        loot.spend_all(cx);
    };
    a_batch_that_wraps_around_ends_the_tenant: |cx, loot| {
        loot.took(Component::Ops, cx.budget().ops.into());
        cx.check_iterations(u32::MAX);
        unreachable!("it cannot be paid for");
    };
    a_tenant_makes_no_channel_and_uses_no_thread: |cx, loot| {
        for _ in 0..50 {
            assert!(cx.channel::<u8>(Capacity::Bounded(1)).is_err());
            assert!(cx.channel::<u8>(Capacity::Rendezvous).is_err());
            assert!(cx.blocking(|| ()).is_err());
            assert!(cx.await_future(async {}).is_err());
            let _ = cx.nursery(|n| assert!(n.spawn_future(async {}).is_err()));
        }
        loot.spend_all(cx);
    };
}

/// A tenant is cancelled, catches that, and tries to go on.
#[test]
fn a_cancelled_tenant_that_catches_its_end_gets_nothing_done() {
    for workers in [1, 2] {
        let root = Caps::root(1000, Budget { ops: 1_000_000, ..Budget::MAX }, Budget::MAX, 100, 100);
        let runtime =
            Config::new(Profile::Cluster).workers(workers).root_caps(root).cleanup_ops(0).build().unwrap();
        runtime
            .run(|cx| {
                for (who, caps, _) in tenants(cx.caps()) {
                    let (begun, done) = (AtomicBool::new(false), AtomicU64::new(0));
                    cx.nursery_with(NurseryOptions::new().pool(POOL), |n| {
                        let tenant = n.builder().caps(caps).budget(GRANT).spawn(|cx| {
                            begun.store(true, Ordering::Relaxed);
                            let _ = catch_unwind(AssertUnwindSafe(|| cx.sleep(Duration::MAX)));
                            let acts: [&dyn Fn(); 6] = [
                                &|| cx.yield_now(),
                                &|| cx.sleep(Duration::from_secs(3600)),
                                &|| cx.look_up(),
                                &|| {
                                    cx.nursery(|n| n.start(|_| ())).unwrap().unwrap();
                                    cx.look_up();
                                },
                                &|| {
                                    cx.join(|cx| cx.yield_now(), |cx| cx.yield_now());
                                },
                                &|| cx.check_iterations(100_000),
                            ];
                            for act in acts.iter().cycle().take(60) {
                                if catch_unwind(AssertUnwindSafe(act)).is_ok() {
                                    done.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                        });
                        let tenant = tenant.unwrap();
                        while !begun.load(Ordering::Relaxed) {
                            cx.yield_now();
                        }
                        (0..3).for_each(|_| cx.yield_now());
                        assert!(tenant.cancel(), "{who}");
                        assert!(tenant.join(cx).unwrap_err().is_cancelled(), "{who}: it ends as cancelled");
                    })
                    .unwrap();
                    assert_eq!(done.into_inner(), 0, "{workers} workers, {who}");
                }
            })
            .unwrap();
    }
}
