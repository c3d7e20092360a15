//! Budgets, pools, capabilities and profiles, against slow obvious models.

use mainspring::TaskEvent as Event;
use mainspring::nursery::state::NurseryEvent;
use mainspring::{Budget, Caps, Charged, Component, Cost, NurseryState, Pool, Profile, TaskState};
use proptest::prelude::*;

fn budgets() -> impl Strategy<Value = Budget> {
    let amount = prop_oneof![Just(0u64), 1..5u64, Just(u64::MAX)];
    proptest::array::uniform5(amount).prop_map(|a| Budget {
        ops: u32::try_from(a[0]).unwrap_or(u32::MAX),
        memory: usize::try_from(a[1]).unwrap_or(usize::MAX),
        spawn_count: u16::try_from(a[2]).unwrap_or(u16::MAX),
        channel_ops: u16::try_from(a[3]).unwrap_or(u16::MAX),
        syscalls: u16::try_from(a[4]).unwrap_or(u16::MAX),
    })
}

fn costs() -> impl Strategy<Value = Cost> {
    prop_oneof![
        (0..4u32).prop_map(Cost::iterations),
        Just(Cost::CALL),
        Just(Cost::SPAWN),
        Just(Cost::CHANNEL_OP),
        Just(Cost::SYSCALL),
        (0..4usize).prop_map(Cost::alloc),
    ]
}

fn sum(a: Budget, b: Budget) -> [u128; 5] {
    Component::ALL.map(|c| u128::from(a.get(c)) + u128::from(b.get(c)))
}

proptest! {
    //= SCHED:3.1.1 SCHED:3.1.2
    #[test]
    fn a_charge_takes_exactly_its_cost_or_nothing(before in budgets(), cost in costs()) {
        let mut after = before;
        let payable = Component::ALL.into_iter().all(|c| before.get(c) >= cost.amounts().get(c));
        match after.charge(cost) {
            Ok(charged) => {
                prop_assert!(payable);
                prop_assert_eq!(sum(after, cost.amounts()), sum(before, Budget::ZERO));
                let used_up = Component::ALL.into_iter().any(|c| before.get(c) > 0 && after.get(c) == 0);
                prop_assert_eq!(charged != Charged::Left, used_up);
            }
            Err(unpayable) => {
                prop_assert!(!payable);
                prop_assert_eq!(after, before);
                prop_assert!(unpayable.needed > unpayable.available);
            }
        }
    }

    #[test]
    fn what_does_not_fit_into_a_budget_is_handed_back(mut have in budgets(), more in budgets()) {
        let before = sum(have, more);
        let rest = have.add(more);
        prop_assert_eq!(sum(have, rest), before);
    }

    //= SCHED:8.2.1
    #[test]
    fn pool_and_children_are_conserved(opened in 0..1000u64, default in budgets(), spawns in 1..20usize) {
        let opened = Pool { ops: opened, memory: opened / 2, spawn_count: opened, channel_ops: 3, syscalls: 0 };
        let mut pool = opened;
        let mut children = Vec::new();
        for _ in 0..spawns {
            let grant = pool.child_grant(&default);
            prop_assert_eq!(grant.spawn_count, 0);
            prop_assert_eq!(u64::from(grant.ops), pool.ops.min(default.ops.into()));
            pool.take(&grant.into()).unwrap();
            children.push(grant);
        }
        for child in children {
            pool.put(&child.into());
        }
        prop_assert_eq!(pool, opened);
    }

    #[test]
    fn attenuation_never_amplifies(limits in proptest::collection::vec((budgets(), 0..100u32, any::<bool>()), 0..6)) {
        let root = Caps::root(50, Budget { ops: 3, ..Budget::MAX }, Budget { memory: 4, ..Budget::MAX }, 7, 9);
        let mut held = root;
        for (budget, n, drop_it) in limits {
            let before = held;
            held = held.attenuate_spawn(n, budget).attenuate_budget(budget).attenuate_channel(n, n);
            if drop_it {
                held = held.without_spawn();
            }
            prop_assert!(held.is_within(&before));
            prop_assert!(held.is_within(&root));
            prop_assert_eq!(held.intersect(&root), held);
        }
    }
}

//= SCHED:3.3.1
#[test]
fn each_operation_costs_exactly_its_row() {
    let row = |ops, memory, spawn_count, channel_ops, syscalls| Budget {
        ops,
        memory,
        spawn_count,
        channel_ops,
        syscalls,
    };
    for (cost, expected) in [
        (Cost::iterations(1), row(1, 0, 0, 0, 0)),
        (Cost::CALL, row(1, 0, 0, 0, 0)),
        (Cost::alloc(77), row(1, 77, 0, 0, 0)),
        (Cost::SPAWN, row(1, 0, 1, 0, 0)),
        (Cost::CHANNEL_OP, row(1, 0, 0, 1, 0)),
        (Cost::SYSCALL, row(1, 0, 0, 0, 1)),
    ] {
        assert_eq!(cost.amounts(), expected);
    }
}

//= SCHED:4.3.1
#[test]
fn profiles_have_their_defaults() {
    let service = Profile::Service;
    assert_eq!((service.task_limit(), service.channel_limit(), service.yield_interval()), (100, 1000, 1024));
    assert_eq!(
        service.child_budget(),
        Budget { ops: 100_000, memory: 10 << 20, spawn_count: 100, channel_ops: 1000, syscalls: 100 }
    );
    let cluster = Profile::Cluster;
    assert_eq!(
        (cluster.task_limit(), cluster.channel_limit(), cluster.yield_interval()),
        (10_000, 10_000, 512)
    );
    assert_eq!(
        cluster.child_budget(),
        Budget { ops: 1_000_000, memory: 100 << 20, spawn_count: 1000, channel_ops: 10_000, syscalls: 1000 }
    );
    assert_eq!(Profile::Sovereign.implicit_caps(), Caps::none());
    assert_eq!(Profile::Core.implicit_caps(), Caps::none());
}

//= SCHED:5.2.1 SCHED:5.2.2a SCHED:5.2.2b SCHED:5.2.2c
#[test]
fn task_states_have_these_steps_and_no_others() {
    use Event as E;
    use TaskState as S;
    let legal = [
        (S::Ready, E::Dispatch, S::Running),
        (S::Ready, E::Cancel, S::Cancelled),
        (S::Running, E::Yield, S::Ready),
        (S::Running, E::Block, S::Blocked),
        (S::Running, E::Exhaust, S::BudgetExhausted),
        (S::Running, E::Complete, S::Completed),
        (S::Running, E::Cancel, S::Cancelled),
        (S::Blocked, E::Wake, S::Ready),
        (S::Blocked, E::Interrupt, S::Ready),
        (S::BudgetExhausted, E::Recharge, S::Ready),
        (S::BudgetExhausted, E::Interrupt, S::Ready),
    ];
    let events = [
        E::Dispatch,
        E::Yield,
        E::Block,
        E::Exhaust,
        E::Wake,
        E::Recharge,
        E::Interrupt,
        E::Complete,
        E::Cancel,
    ];
    for state in S::ALL {
        for event in events {
            let expected =
                legal.iter().find(|(s, e, _)| (*s, *e) == (state, event)).map(|(_, _, next)| *next);
            assert_eq!(state.step(event).ok(), expected, "{state:?} {event:?}");
        }
        assert_eq!(state.is_final(), events.iter().all(|&event| state.step(event).is_err()));
    }
}

//= NURS:state-machine
#[test]
fn nursery_states_have_these_steps_and_no_others() {
    use NurseryEvent as E;
    use NurseryState as S;
    let legal = [
        (S::Open, E::Spawn, S::Open),
        (S::Open, E::CloseEmpty, S::Closed),
        (S::Open, E::CloseActive, S::Closing),
        (S::Open, E::Cancel, S::Cancelling),
        (S::Closing, E::AllDone, S::Closed),
        (S::Closing, E::Cancel, S::Cancelling),
        (S::Cancelling, E::Cancel, S::Cancelling),
        (S::Cancelling, E::AllDone, S::Cancelled),
    ];
    for state in S::ALL {
        for event in [E::Spawn, E::CloseEmpty, E::CloseActive, E::AllDone, E::Cancel] {
            let expected =
                legal.iter().find(|(s, e, _)| (*s, *e) == (state, event)).map(|(_, _, next)| *next);
            assert_eq!(state.step(event).ok(), expected, "{state:?} {event:?}");
        }
    }
}
