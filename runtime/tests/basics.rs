//! Spawning, joining, yielding, failing.

use mainspring::{Budget, Config, Pool, Profile, Runtime, Snapshot, TaskError, TaskState, WaitReason};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

fn runtime(workers: usize) -> Runtime {
    Config::new(Profile::Cluster).workers(workers).build().unwrap()
}

#[test]
fn a_root_task_returns_its_value_and_may_borrow() {
    let text = String::from("borrowed");
    assert_eq!(runtime(2).run(|_| text.len()).unwrap(), 8);
}

//= NURS:await-main NURS:notify
#[test]
fn children_run_and_are_joined() {
    for workers in [1, 2, 8] {
        let runtime = runtime(workers);
        let done = AtomicUsize::new(0);
        let sum = runtime
            .run(|cx| {
                cx.nursery(|n| {
                    let handles: Vec<_> = (0..1000u64)
                        .map(|i| {
                            let done = &done;
                            n.spawn(move |cx| {
                                for _ in 0..3 {
                                    cx.yield_now();
                                }
                                done.fetch_add(1, Ordering::Relaxed);
                                i
                            })
                            .unwrap()
                        })
                        .collect();
                    handles.into_iter().map(|handle| handle.join(cx).unwrap()).sum::<u64>()
                })
                .unwrap()
            })
            .unwrap();
        assert_eq!(sum, 499_500);
        assert_eq!(done.load(Ordering::Relaxed), 1000);
    }
}

//= NURS:await-fiber NURS:binding
#[test]
fn an_owner_that_awaits_its_children_is_blocked_for_them_and_its_worker_runs_others() {
    let runtime = runtime(1);
    let looked = Mutex::new(None);
    let owned = |snapshot: &Snapshot, owner| {
        snapshot.nurseries.iter().filter(|nursery| nursery.owner == Some(owner)).count()
    };
    runtime
        .run(|cx| {
            let owner = cx.id();
            let (runtime, looked, owned) = (&runtime, &looked, &owned);
            cx.nursery(|n| {
                // The only worker runs this while the owner waits at the end of its nursery.
                n.start(move |_| {
                    let snapshot = runtime.snapshot();
                    let waiting = snapshot.tasks.iter().find(|task| task.id == owner).unwrap();
                    let seen = (waiting.state, waiting.waits_for, owned(&snapshot, owner));
                    *looked.lock().unwrap() = Some(seen);
                })
                .unwrap();
            })
            .unwrap();
            assert_eq!(owned(&runtime.snapshot(), owner), 0, "the link is gone with the nursery");
        })
        .unwrap();
    let expected = (TaskState::Blocked, WaitReason::NurseryAwait, 1);
    assert_eq!(looked.into_inner().unwrap(), Some(expected));
}

#[test]
fn nested_nurseries_form_a_tree() {
    fn count(cx: &mainspring::Cx, depth: u32) -> u64 {
        if depth == 0 {
            return 1;
        }
        cx.nursery(|n| {
            let part = n.pool().part(4);
            let handles: Vec<_> = (0..4)
                .map(|_| {
                    let part = Pool { spawn_count: part.spawn_count.saturating_sub(1), ..part };
                    n.builder()
                        .budget(Budget { ops: 1000, ..Budget::ZERO })
                        .pool(part.part(2))
                        .spawn(move |cx| count(cx, depth - 1))
                        .unwrap()
                })
                .collect();
            handles.into_iter().map(|handle| handle.join(cx).unwrap()).sum()
        })
        .unwrap()
    }
    assert_eq!(runtime(2).run(|cx| count(cx, 6)).unwrap(), 4096);
}

//= NURS:error-propagation
#[test]
fn a_panic_fails_its_task_and_its_nursery_and_nothing_else() {
    let runtime = runtime(2);
    let error =
        runtime.run(|cx| cx.nursery(|n| drop(n.spawn(|_| panic!("on purpose")))).unwrap_err()).unwrap();
    assert!(matches!(error.error, TaskError::Panicked(ref message) if message == "on purpose"), "{error}");
    assert_eq!(runtime.run(|_| 7).unwrap(), 7);
}

#[inline(never)]
fn recurse(cx: &mainspring::Cx, depth: u64) -> u64 {
    cx.check();
    let page = std::hint::black_box([depth; 64]);
    if depth == 0 { page[0] } else { recurse(cx, depth - 1) + page[63] % 2 }
}

//= SCHED:14.1.1c
#[test]
fn a_stack_overflow_fails_its_task_and_nothing_else() {
    let runtime = runtime(2);
    for _ in 0..3 {
        let (error, sibling) = runtime
            .run(|cx| {
                let mut sibling = None;
                let error = cx
                    .nursery(|n| {
                        let hog = n.spawn(|cx| recurse(cx, 1 << 40)).unwrap();
                        let error = hog.join(cx).unwrap_err();
                        sibling = Some(matches!(error, TaskError::StackOverflow));
                    })
                    .unwrap_err();
                (error.error, sibling)
            })
            .unwrap();
        assert!(matches!(error, TaskError::StackOverflow), "{error}");
        assert_eq!(sibling, Some(true));
    }
    assert!(runtime.run(|cx| recurse(cx, 10)).unwrap() > 0);
}

fn fib(cx: &mainspring::Cx, n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = cx.join(|cx| fib(cx, n - 1), |cx| fib(cx, n - 2));
    a + b
}

#[test]
fn fork_and_join_compute_and_bill_the_same_on_any_number_of_workers() {
    let mut bills = Vec::new();
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        for _ in 0..20 {
            let (value, ops) = runtime.run(|cx| (fib(cx, 18), cx.ops_used())).unwrap();
            assert_eq!(value, 2584);
            bills.push(ops);
        }
    }
    assert!(bills.iter().all(|&ops| ops == bills[0]), "{bills:?}");
}

#[test]
fn a_panic_in_one_half_of_a_join_comes_after_both_have_ended() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        for _ in 0..50 {
            let other_ended = AtomicUsize::new(0);
            let error = runtime
                .run(|cx| {
                    cx.join(
                        |cx| {
                            (0..5).for_each(|_| cx.yield_now());
                            other_ended.fetch_add(1, Ordering::Relaxed);
                        },
                        |_| std::panic::resume_unwind(Box::new("half")),
                    )
                })
                .map(|((), ())| ())
                .unwrap_err();
            assert!(matches!(error, TaskError::Panicked(text) if text == "half"));
            assert_eq!(other_ended.load(Ordering::Relaxed), 1);
        }
    }
}
