//! Victims, steals, the order of the queues, and what happens to tasks that are cancelled in a queue.

use mainspring::{
    Budget, Capacity, Caps, Config, Cx, NurseryOptions, Pool, Profile, Runtime, TaskError, VictimStrategy,
    Victims,
};
use proptest::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

proptest! {
    //= SCHED:7.2.1 SCHED:7.3.1 SCHED:7.4.1
    #[test]
    fn victims_are_others_and_attempts_are_bounded(
        seed in any::<u64>(),
        workers in 2..300usize,
        me in 0..300usize,
        loads in proptest::collection::vec(0..50usize, 300),
    ) {
        let me = me % workers;
        for strategy in [VictimStrategy::Random, VictimStrategy::RoundRobin, VictimStrategy::LeastLoaded] {
            let mut victims = Victims::new(seed, me, workers, strategy);
            prop_assert_eq!(victims.attempts(), (workers - 1).min(4));
            for _ in 0..20 {
                let victim = victims.next(|worker| loads[worker]);
                prop_assert!(victim < workers && victim != me);
                if strategy == VictimStrategy::LeastLoaded {
                    let longest = (0..workers).filter(|&worker| worker != me).map(|worker| loads[worker]).max();
                    prop_assert_eq!(Some(loads[victim]), longest, "the longest queue");
                }
            }
        }
    }
}

//= SCHED:7.3.1
#[test]
fn round_robin_goes_through_all_others() {
    let mut victims = Victims::new(0, 2, 5, VictimStrategy::RoundRobin);
    let round: Vec<_> = (0..8).map(|_| victims.next(|_| 0)).collect();
    assert_eq!(round, [3, 4, 0, 1, 3, 4, 0, 1]);
}

//= SCHED:7.3.2
#[test]
fn the_default_draw_is_the_same_in_every_run() {
    assert_eq!(VictimStrategy::default(), VictimStrategy::Random);
    let sequence = |seed| {
        let mut victims = Victims::new(seed, 0, 9, VictimStrategy::default());
        (0..50).map(|_| victims.next(|_| 0)).collect::<Vec<_>>()
    };
    assert_eq!(sequence(7), sequence(7));
    assert_ne!(sequence(7), sequence(8));
}

//= SCHED:7.2.1 SCHED:6.1.1
#[test]
fn a_worker_that_may_not_steal_steals_nothing() {
    let spread = |may_steal: bool| {
        let runtime = Config::new(Profile::Service).workers(2).deterministic_seed(3).build().unwrap();
        assert!(runtime.set_steal_enabled(0, may_steal) && runtime.set_steal_enabled(1, may_steal));
        assert!(!runtime.set_steal_enabled(2, true), "there is no third");
        let ran_on = [AtomicUsize::new(0), AtomicUsize::new(0)];
        runtime
            .run(|cx| {
                cx.nursery(|n| {
                    for _ in 0..50 {
                        n.start(|cx| {
                            ran_on[cx.worker()].fetch_add(1, Ordering::Relaxed);
                        })
                        .unwrap();
                    }
                })
                .unwrap();
            })
            .unwrap();
        let stolen: u64 = runtime.worker_stats().iter().map(|stats| stats.tasks_stolen).sum();
        (stolen, ran_on.map(AtomicUsize::into_inner))
    };
    let (stolen, ran_on) = spread(true);
    assert!(stolen > 0 && ran_on.iter().all(|&ran| ran > 0), "{ran_on:?}");
    let (stolen, ran_on) = spread(false);
    assert_eq!((stolen, ran_on.iter().filter(|&&ran| ran > 0).count()), (0, 1));
}

//= SCHED:7.1.1a
#[test]
fn a_worker_takes_its_newest_spawn_first() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let order = Mutex::new(Vec::new());
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                for i in 0..5 {
                    let order = &order;
                    n.start(move |_| order.lock().unwrap().push(i)).unwrap();
                }
            })
            .unwrap();
        })
        .unwrap();
    assert_eq!(order.into_inner().unwrap(), [4, 3, 2, 1, 0]);
}

//= NURS:queue-race SCHED:5.2.2c
#[test]
fn a_task_that_is_cancelled_in_a_queue_never_runs() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let ran = AtomicUsize::new(0);
    runtime
        .run(|cx| {
            let ended = cx.nursery(|n| {
                let one = n.spawn(|_| ran.fetch_add(1, Ordering::Relaxed)).unwrap();
                assert!(one.cancel());
                assert!(matches!(one.join(cx), Err(TaskError::Cancelled)));
                for _ in 0..4 {
                    n.start(|_| _ = ran.fetch_add(1, Ordering::Relaxed)).unwrap();
                }
                n.cancel();
            });
            assert!(matches!(ended.unwrap_err().error, TaskError::Cancelled));
        })
        .unwrap();
    assert_eq!(ran.into_inner(), 0);
    assert_eq!(runtime.worker_stats()[0].tasks_cancelled, 5);
}

//= NURS:owner-cancel SCHED:8.1.1
#[test]
fn cancelling_an_owner_reaches_every_level_below_it() {
    fn level(cx: &mainspring::Cx, depth: u32, waiting: &AtomicUsize, ended: &AtomicUsize) {
        struct Ends<'a>(&'a AtomicUsize);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let _ends = Ends(ended);
        if depth == 0 {
            waiting.fetch_add(1, Ordering::Relaxed);
            cx.sleep(std::time::Duration::from_secs(3600));
        }
        let _ = cx.nursery(|n| {
            for _ in 0..2 {
                let budget = Budget { ops: 10 << (2 * depth), spawn_count: (1 << depth) - 2, ..Budget::ZERO };
                n.builder().budget(budget).start(move |cx| level(cx, depth - 1, waiting, ended)).unwrap();
            }
        });
        unreachable!("only a cancellation ends this nursery, and that unwinds its owner too");
    }
    for workers in [1, 2] {
        let runtime = Config::new(Profile::Service).workers(workers).build().unwrap();
        let (waiting, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        runtime
            .run(|cx| {
                cx.nursery(|n| {
                    let budget = Budget { ops: 5000, spawn_count: 100, ..Budget::ZERO };
                    let top = n.builder().budget(budget).spawn(|cx| level(cx, 3, &waiting, &ended)).unwrap();
                    let all_wait = || waiting.load(Ordering::Relaxed) == 8;
                    while !all_wait() && !top.is_finished() {
                        cx.yield_now();
                    }
                    assert!(all_wait());
                    assert!(top.cancel());
                    assert!(matches!(top.join(cx), Err(TaskError::Cancelled)));
                    assert_eq!(ended.load(Ordering::Relaxed), 15, "all levels have ended before their owner");
                })
                .unwrap();
            })
            .unwrap();
    }
}

/// Two tasks that wake each other in turn leave the worker to a third one now and then.
#[test]
fn a_pair_that_is_always_busy_does_not_keep_a_new_task_from_starting() {
    const TRIPS: u32 = 200;
    let runtime = Config::new(Profile::Cluster).workers(1).build().unwrap();
    let started = AtomicBool::new(false);
    let started = &started;
    let trips = runtime
        .run(|cx| {
            let (to, at) = cx.channel::<u32>(Capacity::Rendezvous).unwrap();
            let (back, home) = cx.channel::<u32>(Capacity::Rendezvous).unwrap();
            cx.nursery(|n| {
                // First, so that its worker takes it last.
                n.spawn(|_| started.store(true, Ordering::Relaxed)).unwrap();
                n.spawn(move |cx| {
                    while let Ok(i) = at.recv(cx) {
                        back.send(cx, i).unwrap();
                    }
                })
                .unwrap();
                let pair = n.spawn(move |cx| {
                    let mut trips = 0;
                    while trips < TRIPS && !started.load(Ordering::Relaxed) {
                        to.send(cx, trips).unwrap();
                        assert_eq!(home.recv(cx), Ok(trips));
                        trips += 1;
                    }
                    trips
                });
                pair.unwrap().join(cx).unwrap()
            })
            .unwrap()
        })
        .unwrap();
    assert!(trips < TRIPS, "it starts before the pair has ended");
}

/// A tree that is explored in depth has few nodes under way at a time, however many it has. In breadth it has nearly all of its
/// inner nodes, each with a stack of its own.
#[test]
fn a_tree_of_tasks_is_explored_in_depth() {
    const FAN_OUT: u32 = 10;
    const DEPTH: u32 = 5;
    /// Inner nodes that have begun and have not ended, and the most that there ever were.
    #[derive(Default)]
    struct Open(AtomicUsize, AtomicUsize);
    fn node(cx: &mainspring::Cx, depth: u32, open: &Open) -> u32 {
        if depth == 0 {
            return 1;
        }
        open.1.fetch_max(open.0.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let leaves = cx.nursery(|n| {
            let part = n.pool().part(u64::from(FAN_OUT) + 1);
            let children: Vec<_> = (0..FAN_OUT)
                .map(|_| {
                    let child = n.builder().budget(Budget { ops: 100, ..Budget::ZERO }).pool(part);
                    child.spawn(|cx| node(cx, depth - 1, open)).unwrap()
                })
                .collect();
            children.into_iter().map(|child| child.join(cx).unwrap()).sum()
        });
        open.0.fetch_sub(1, Ordering::Relaxed);
        leaves.unwrap()
    }
    let caps = Caps::root(u32::MAX, Budget::MAX, Budget::ZERO, 0, 0);
    let runtime = Config::new(Profile::Service).workers(1).root_caps(caps).build().unwrap();
    let open = Open::default();
    let leaves = runtime.run(|cx| node(cx, DEPTH, &open)).unwrap();
    assert_eq!(leaves, FAN_OUT.pow(DEPTH));
    // A path, and the upper levels, whose nodes are old enough to have had a turn as the oldest spawn.
    let inner = (0..DEPTH).map(|depth| FAN_OUT.pow(depth)).sum::<u32>();
    let most = open.1.load(Ordering::Relaxed) as u32;
    assert!(most < inner / 10, "{most} of {inner} inner nodes were under way at once");
}

const OPS: Budget = Budget { ops: 100, ..Budget::ZERO };

/// What one worker runs once it is let go, when there is something in each place. The other one is kept, with two tasks in its deque.
fn order_of_one_worker(runtime: &Runtime) -> Vec<&'static str> {
    let (order, ready, kept) = (Mutex::new(Vec::new()), AtomicUsize::new(0), AtomicBool::new(true));
    let free = AtomicUsize::new(usize::MAX);
    let (order, ready, kept, free) = (&order, &ready, &kept, &free);
    let spin = |until: &dyn Fn() -> bool| {
        while !until() {
            std::hint::spin_loop();
        }
    };
    // Only what that worker runs.
    let note = move |cx: &Cx, what| {
        if cx.worker() == free.load(Ordering::SeqCst) {
            order.lock().unwrap().push(what);
        }
    };
    let pool = Pool { ops: 1000, spawn_count: 2, ..Pool::ZERO };
    runtime
        .nursery(NurseryOptions::new(), |n| {
            n.start(move |cx| {
                free.store(cx.worker(), Ordering::SeqCst);
                ready.fetch_add(1, Ordering::SeqCst);
                spin(&|| ready.load(Ordering::SeqCst) == 3);
            })
            .unwrap();
            spin(&|| ready.load(Ordering::SeqCst) == 1);
            let keeper = n.builder().pool(pool).start(move |cx| {
                cx.nursery(|n| {
                    for _ in 0..2 {
                        n.builder().budget(OPS).start(move |cx| note(cx, "stolen")).unwrap();
                    }
                    ready.fetch_add(1, Ordering::SeqCst);
                    spin(&|| !kept.load(Ordering::SeqCst));
                })
                .unwrap();
            });
            keeper.unwrap();
            spin(&|| ready.load(Ordering::SeqCst) == 2);
            for _ in 0..2 {
                let global = n.builder().pool(pool).start(move |cx| {
                    note(cx, "global");
                    cx.nursery(|n| n.builder().budget(OPS).start(move |cx| note(cx, "local")))
                        .unwrap()
                        .unwrap();
                });
                global.unwrap();
            }
            ready.store(3, Ordering::SeqCst);
            spin(&|| order.lock().unwrap().len() == 6);
            kept.store(false, Ordering::SeqCst);
        })
        .unwrap();
    order.lock().unwrap().clone()
}

//= SCHED:6.3.1a
#[test]
fn a_worker_takes_its_own_then_from_the_global_queue_and_then_steals() {
    let runtime = Config::new(Profile::Service).workers(2).watchdog(None).build().unwrap();
    let orders: Vec<_> = (0..40).map(|_| order_of_one_worker(&runtime)).collect();
    // Every 64th pick looks at the global queue first, so that nothing waits there for ever.
    let usual = ["global", "local", "global", "local", "stolen", "stolen"];
    let kept = orders.iter().filter(|order| **order == usual).count();
    assert!(kept >= 30, "{kept} of {}: {orders:?}", orders.len());
    let steals_last = |order: &Vec<_>| order[3..].iter().filter(|what| **what == "stolen").count() == 2;
    assert!(orders.iter().all(steals_last), "{orders:?}");
}
