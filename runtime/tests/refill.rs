//! Children that are refilled from their nursery's pool.

use mainspring::{Budget, Config, Exhaustion, NurseryOptions, Pool, Profile};

#[test]
fn a_refill_comes_while_the_owner_joins_inside_the_nursery() {
    for workers in [1, 2] {
        let runtime = Config::new(Profile::Service).workers(workers).build().unwrap();
        let ended = runtime.run(|cx| {
            let amount = Budget { ops: 500, ..Budget::ZERO };
            let options = NurseryOptions::new()
                .pool(Pool { ops: 20_000, spawn_count: 4, ..Pool::ZERO })
                .on_exhausted(Exhaustion::Refill(amount))
                .deadline(std::time::Duration::from_secs(20));
            cx.nursery_with(options, |n| {
                let small = Budget { ops: 100, ..Budget::ZERO };
                let child = n.builder().budget(small).spawn(|cx| (0..5000).for_each(|_| cx.check())).unwrap();
                child.join(cx).unwrap();
                n.pool().ops
            })
        });
        let left = ended.unwrap().unwrap();
        assert_eq!(left + 5000, 20_000, "{workers} workers: what was not used is in the pool");
    }
}

#[test]
fn a_refill_waits_for_what_others_give_back() {
    let runtime = Config::new(Profile::Service).workers(2).build().unwrap();
    let ended = runtime.run(|cx| {
        let amount = Budget { ops: 1000, ..Budget::ZERO };
        let options = NurseryOptions::new()
            .pool(Pool { ops: 2000, spawn_count: 4, ..Pool::ZERO })
            .on_exhausted(Exhaustion::Refill(amount))
            .deadline(std::time::Duration::from_secs(20));
        cx.nursery_with(options, |n| {
            // The first has nearly all that there is and does not use it; the second needs it.
            let rich = n.builder().budget(Budget { ops: 1900, ..Budget::ZERO });
            let rich = rich.spawn(|cx| (0..50).for_each(|_| cx.yield_now())).unwrap();
            let poor = n.builder().budget(Budget { ops: 100, ..Budget::ZERO });
            let poor = poor.spawn(|cx| (0..600).for_each(|_| cx.check())).unwrap();
            poor.join(cx).unwrap();
            rich.join(cx).unwrap();
        })
    });
    ended.unwrap().unwrap();
}

#[test]
fn a_refill_larger_than_a_task_can_hold_is_not_lost() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let pool = Pool { ops: 10_000, spawn_count: 4, channel_ops: 200_000, ..Pool::ZERO };
    let left = runtime.run(|cx| {
        let amount = Budget { ops: 1000, channel_ops: u16::MAX, ..Budget::ZERO };
        let options = NurseryOptions::new().pool(pool).on_exhausted(Exhaustion::Refill(amount));
        cx.nursery_with(options, |n| {
            let budget = Budget { ops: 100, channel_ops: 500, ..Budget::ZERO };
            let child = n.builder().budget(budget).spawn(|cx| (0..1500).for_each(|_| cx.check())).unwrap();
            child.join(cx).unwrap();
            n.await_all(cx);
            n.pool()
        })
    });
    let mut left = left.unwrap().unwrap();
    left.put(&Pool { ops: 1500, spawn_count: 1, ..Pool::ZERO });
    assert_eq!(left, pool);
}
