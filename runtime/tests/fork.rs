//! Fork and join: one budget for the tree, however deep and whichever worker runs it.

use mainspring::{
    Budget, Capacity, Component, Config, Cx, Exhaustion, Handle, Nursery, NurseryError, NurseryOptions, Pool,
    Profile, Runtime, TaskError,
};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn runtime(workers: usize) -> Runtime {
    Config::new(Profile::Service).workers(workers).build().unwrap()
}

/// A fork at each level, the deep half first (`left`) or second, and work at the bottom.
fn descend(cx: &Cx, depth: u32, left: bool) -> u32 {
    if depth == 0 {
        (0..5000).for_each(|_| cx.check());
        return 1;
    }
    let deep = |cx: &Cx| descend(cx, depth - 1, left);
    let (a, b) = if left { cx.join(deep, |_| 1) } else { cx.join(|_| 1, deep) };
    a + b
}

#[test]
fn deep_joins_do_not_use_up_a_budget_by_sharing_it() {
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        for left in [true, false] {
            let ended = runtime.run(|cx| {
                let options =
                    NurseryOptions::new().on_exhausted(Exhaustion::Fail).deadline(Duration::from_secs(20));
                cx.nursery_with(options, |n| {
                    let child = n.builder().stack_size(1 << 20).spawn(move |cx| descend(cx, 200, left));
                    child.unwrap().join(cx).unwrap()
                })
            });
            assert_eq!(ended.unwrap().unwrap(), 201, "{workers} workers");
        }
    }
}

fn fib(cx: &Cx, n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = cx.join(|cx| fib(cx, n - 1), |cx| fib(cx, n - 2));
    a + b
}

/// The joins of `fib(n)`.
fn joins(n: u32) -> u32 {
    if n < 2 { 0 } else { 1 + joins(n - 1) + joins(n - 2) }
}

#[test]
fn a_tree_has_exactly_the_budget_of_the_task_that_forks() {
    let needed = 2 * joins(16);
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        for (ops, enough) in [(needed, true), (needed - 1, false)] {
            let ended = runtime.run(|cx| {
                let options = NurseryOptions::new().on_exhausted(Exhaustion::Fail);
                let budget = Budget { ops, ..Budget::ZERO };
                cx.nursery_with(options, |n| {
                    drop(n.builder().budget(budget).spawn(|cx| fib(cx, 16)).unwrap());
                })
            });
            match ended.unwrap() {
                Ok(()) => assert!(enough, "{workers} workers, {ops} ops of {needed}"),
                Err(error) => {
                    assert!(!enough, "{workers} workers, {ops} ops of {needed}: {error}");
                    assert!(matches!(error.error, TaskError::BudgetExhausted(Component::Ops)), "{error}");
                }
            }
        }
    }
}

/// Each half sends and allocates.
fn busy(cx: &Cx, tx: &mainspring::Sender<u32>, depth: u32) {
    if depth == 0 {
        tx.send(cx, 1).unwrap();
        drop(cx.try_box([0u8; 100]).unwrap().keep());
        return;
    }
    cx.join(|cx| busy(cx, tx, depth - 1), |cx| busy(cx, tx, depth - 1));
}

#[test]
fn every_component_is_shared_and_conserved() {
    // 64 leaves: a send, an allocation and their two ops each; 63 joins of two ops.
    let (leaves, ops) = (64, 64 * 2 + 63 * 2);
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        for round in 0..20 {
            let (before, after, used) = runtime
                .run(|cx| {
                    let (tx, _rx) = cx.channel(Capacity::Unbounded).unwrap();
                    cx.nursery(|n| {
                        let budget =
                            Budget { ops, memory: 6400, channel_ops: 65, syscalls: 3, spawn_count: 0 };
                        let child = n.builder().budget(budget).spawn(|cx| {
                            let before = cx.budget();
                            busy(cx, &tx, 6);
                            (before, cx.budget(), cx.ops_used())
                        });
                        child.unwrap().join(cx).unwrap()
                    })
                    .unwrap()
                })
                .unwrap();
            let spent = Budget { ops, memory: 100 * leaves, channel_ops: leaves as u16, ..Budget::ZERO };
            let mut sum = after;
            assert!(sum.add(spent).is_zero());
            assert_eq!(sum, before, "{workers} workers, round {round}");
            assert_eq!(used, ops.into());
        }
    }
}

#[test]
fn a_recharge_reaches_whichever_task_of_the_tree_ran_out() {
    let needed = 2 * joins(14);
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        for _ in 0..10 {
            let value = runtime.run(|cx| {
                let options =
                    NurseryOptions::new().on_exhausted(Exhaustion::Park).deadline(Duration::from_secs(20));
                cx.nursery_with(options, |n| {
                    let budget = Budget { ops: 100, ..Budget::ZERO };
                    let child = n.builder().budget(budget).spawn(|cx| fib(cx, 14)).unwrap();
                    let mut given = 100;
                    while given < needed {
                        let more = 100.min(needed - given);
                        n.recharge(&child, Budget { ops: more, ..Budget::ZERO }).unwrap();
                        given += more;
                        cx.yield_now();
                    }
                    child.join(cx).unwrap()
                })
            });
            assert_eq!(value.unwrap().unwrap(), 377, "{workers} workers");
        }
    }
}

#[test]
fn what_a_tree_leaves_returns_to_the_pool() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (before, after) = runtime
            .run(|cx| {
                let pool = Pool { ops: 500_000, spawn_count: 4, channel_ops: 100, ..Pool::ZERO };
                let options = NurseryOptions::new().pool(pool);
                cx.nursery_with(options, |n| {
                    let before = n.pool();
                    n.spawn(|cx| fib(cx, 12)).unwrap().join(cx).unwrap();
                    n.await_all(cx);
                    (before, n.pool())
                })
                .unwrap()
            })
            .unwrap();
        let used = Pool { ops: u64::from(2 * joins(12)), spawn_count: 1, ..Pool::ZERO };
        let mut sum = after;
        sum.put(&used);
        // The spawn's own op is the owner's.
        assert_eq!(sum, before, "{workers} workers");
    }
}

/// A task lends what it has also while it waits for a channel that is its worker's own: the other half needs that.
#[test]
fn a_half_that_waits_at_home_lends_its_budget_to_the_other() {
    let received = runtime(1).run(|cx| {
        let budget = Budget { ops: 5_000, channel_ops: 500, ..Budget::ZERO };
        cx.nursery_with(NurseryOptions::new().deadline(Duration::from_secs(20)), |n| {
            let child = n.builder().budget(budget).spawn(|cx| {
                let (tx, rx) = cx.channel::<u32>(Capacity::Bounded(1)).unwrap();
                // More than it takes for a worker to have a channel for itself.
                for i in 0..100 {
                    tx.send(cx, i).unwrap();
                    assert_eq!(rx.recv(cx), Ok(i));
                }
                let send_late = |cx: &Cx| {
                    (0..4_000).for_each(|_| cx.check());
                    tx.send(cx, 7)
                };
                cx.join(|cx| rx.recv(cx), send_late).0
            });
            child.unwrap().join(cx).unwrap()
        })
    });
    assert_eq!(received.unwrap().unwrap(), Ok(7));
}

/// A join whose second half sleeps as a task of its own, while the first waits in a way of its own.
fn sleeping_half(cx: &Cx, begun: &AtomicBool, first: impl FnOnce(&Cx) + Send) {
    cx.join(
        |cx| {
            while !begun.load(Ordering::Acquire) {
                cx.yield_now();
            }
            first(cx);
        },
        |cx| {
            begun.store(true, Ordering::Release);
            cx.sleep(Duration::from_secs(3600));
        },
    );
}

#[test]
fn a_half_that_another_task_runs_hears_a_cancel_and_a_deadline() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let run = |options: NurseryOptions, end: &(dyn Fn(&Nursery<'_, '_>, &Handle<'_, ()>) + Sync)| {
            let begun = AtomicBool::new(false);
            runtime
                .run(|cx| {
                    cx.nursery_with(options, |n| {
                        let child = n.spawn(|cx| sleeping_half(cx, &begun, |_| ())).unwrap();
                        while !begun.load(Ordering::Acquire) {
                            cx.yield_now();
                        }
                        end(n, &child);
                        child.join(cx).map_err(|error| assert!(error.is_cancelled(), "{error}"))
                    })
                })
                .unwrap()
        };
        // Its handle.
        assert!(
            run(NurseryOptions::new(), &|_, child| assert!(child.cancel())).unwrap().is_err(),
            "{workers} workers"
        );
        // Its nursery.
        let cancelled = run(NurseryOptions::new(), &|n, _| assert!(n.cancel()));
        assert!(cancelled.unwrap_err().error.is_cancelled());
        // A deadline.
        let late = run(NurseryOptions::new().deadline(Duration::from_millis(20)), &|_, _| ());
        assert!(late.unwrap_err().error.is_cancelled());
    }
}

#[test]
fn a_half_that_another_task_runs_ends_when_the_other_half_fails() {
    for workers in [1, 2] {
        let begun = AtomicBool::new(false);
        let ended = runtime(workers).run(|cx| {
            sleeping_half(cx, &begun, |_| std::panic::resume_unwind(Box::new("the first half")));
        });
        assert!(matches!(ended, Err(TaskError::Panicked(why)) if why == "the first half"));
    }
}

/// The first half is cancelled while another worker runs the second, which then fails by itself: that is what the task ends with.
#[test]
fn a_half_that_is_stopped_does_not_hide_that_the_other_panicked() {
    let [begun, cancelled] = [const { AtomicBool::new(false) }; 2];
    let runtime = runtime(2);
    let ended = runtime.nursery(NurseryOptions::new(), |n| {
        let child = n.spawn(|cx| {
            let first = |cx: &Cx| cx.sleep(Duration::from_secs(3600));
            let second = |_: &Cx| {
                begun.store(true, Ordering::Release);
                // Not a yield point: the half does not hear that it is cancelled, too.
                while !cancelled.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                std::panic::resume_unwind(Box::new("the second half"));
            };
            cx.join(first, second);
        });
        let child = child.unwrap();
        while !begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        child.cancel();
        cancelled.store(true, Ordering::Release);
        child.wait()
    });
    let error = ended.expect_err("the child failed").error;
    assert!(matches!(&error, TaskError::Panicked(why) if why == "the second half"), "{error}");
}

/// What the first half does inside a nursery of its own is none of the second half's.
#[test]
fn a_failure_inside_one_half_does_not_stop_the_other() {
    for workers in [1, 2] {
        let begun = AtomicBool::new(false);
        let done = runtime(workers).run(|cx| {
            let options = NurseryOptions::new().pool(Pool { ops: 1000, spawn_count: 1, ..Pool::ZERO });
            let first = |cx: &Cx| {
                while !begun.load(Ordering::Acquire) {
                    cx.yield_now();
                }
                cx.nursery_with(options, |n| {
                    n.spawn_try(|_| Err::<(), _>("inside")).unwrap();
                    loop {
                        cx.yield_now();
                    }
                })
                .map_err(|error: NurseryError| error.error.to_string())
            };
            let second = |cx: &Cx| {
                begun.store(true, Ordering::Release);
                (0..2000).for_each(|_| cx.yield_now());
                (0..2000).for_each(|_| cx.check());
                7
            };
            cx.join(first, second)
        });
        assert_eq!(done.unwrap(), (Err::<(), _>("inside".to_owned()), 7), "{workers} workers");
    }
}

/// The other worker is kept busy until the tree's one channel operation is gone, and takes the second half then.
#[test]
fn a_stolen_half_of_a_tree_that_has_run_out_is_told_so_and_not_that_it_never_had_any() {
    let [busy, paid, begun] = [const { AtomicBool::new(false) }; 3];
    let spin_until = |flag: &AtomicBool| {
        while !flag.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
    };
    let ended = runtime(2).run(|cx| {
        cx.nursery_with(NurseryOptions::new().on_exhausted(Exhaustion::Fail), |n| {
            n.start(|_| {
                busy.store(true, Ordering::Release);
                spin_until(&paid);
            })
            .unwrap();
            spin_until(&busy);
            let budget = Budget { ops: 50_000, channel_ops: 1, ..Budget::ZERO };
            let child = n.builder().budget(budget).spawn(|cx| {
                let first = |cx: &Cx| {
                    cx.pay(Component::ChannelOps).unwrap();
                    paid.store(true, Ordering::Release);
                    spin_until(&begun);
                };
                let second = |cx: &Cx| {
                    begun.store(true, Ordering::Release);
                    cx.pay(Component::ChannelOps)
                };
                cx.join(first, second).1
            });
            child.unwrap().join(cx)
        })
    });
    let error = ended.unwrap().expect_err("two were asked for and one was granted").error;
    assert_eq!(error.exhausted(), Some(Component::ChannelOps), "{error}");
}

/// Panics when it is dropped, with a payload that panics when it is dropped.
struct PanicsTwice;

impl Drop for PanicsTwice {
    fn drop(&mut self) {
        struct Payload;
        impl Drop for Payload {
            fn drop(&mut self) {
                panic!("the second");
            }
        }
        panic_any(Payload);
    }
}

#[test]
fn a_half_whose_captures_panic_twice_leaves_the_tree_whole() {
    for workers in [1, 2] {
        let sum = runtime(workers).run(|cx| {
            let outer = cx.join(
                |cx| {
                    let captured = PanicsTwice;
                    let half = move |_: &Cx| drop(captured);
                    let failed = catch_unwind(AssertUnwindSafe(|| {
                        cx.join(|_| panic!("the first half fails, and the second is not run"), half)
                    }));
                    let message = failed.unwrap_err().downcast::<&str>().unwrap();
                    assert_eq!(*message, "the first half fails, and the second is not run");
                    // What the task uses now comes from the tree of the outer join.
                    (0..100)
                        .map(|_| cx.nursery(|n| n.spawn(|_| 1).unwrap().join(cx).unwrap()).unwrap())
                        .sum::<u32>()
                },
                |_| 1,
            );
            outer.0 + outer.1
        });
        assert_eq!(sum.unwrap(), 101, "{workers} workers");
    }
}
