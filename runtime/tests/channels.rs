//! Channels, select, locks and time.

use mainspring::sync::{AcquireError, Mutex, Once, Semaphore};
use mainspring::{
    Budget, BudgetError, Capacity, Caps, ChannelError, Component, Config, NurseryOptions, Profile,
};
use mainspring::{Refusal, Runtime, Select, SendError, TaskError};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn runtime(workers: usize) -> Runtime {
    Config::new(Profile::Cluster).workers(workers).build().unwrap()
}

//= SCHED:4.2.1
#[test]
fn every_value_arrives_once_through_every_kind_of_channel() {
    for workers in [1, 2, 4] {
        for capacity in
            [Capacity::Rendezvous, Capacity::Bounded(1), Capacity::Bounded(16), Capacity::Unbounded]
        {
            let runtime = runtime(workers);
            let sum = AtomicUsize::new(0);
            runtime
                .run(|cx| {
                    let (tx, rx) = cx.channel::<usize>(capacity).unwrap();
                    cx.nursery(|n| {
                        for sender in 0..4 {
                            let tx = tx.clone();
                            n.spawn(move |cx| (0..500).for_each(|i| tx.send(cx, sender * 500 + i).unwrap()))
                                .unwrap();
                        }
                        for _ in 0..3 {
                            let (rx, sum) = (rx.clone(), &sum);
                            n.spawn(move |cx| {
                                rx.iter(cx).for_each(|value| _ = sum.fetch_add(value, Ordering::Relaxed));
                            })
                            .unwrap();
                        }
                        drop((tx, rx));
                    })
                    .unwrap();
                })
                .unwrap();
            assert_eq!(sum.load(Ordering::Relaxed), 1999 * 1000, "{capacity:?} {workers}");
        }
    }
}

#[test]
fn a_closed_channel_hands_values_back_and_gives_what_is_left() {
    runtime(1)
        .run(|cx| {
            let (tx, rx) = cx.channel(Capacity::Bounded(2)).unwrap();
            tx.send(cx, "kept").unwrap();
            tx.close();
            assert_eq!(tx.send(cx, "late"), Err(SendError { why: Refusal::Closed, value: "late" }));
            assert_eq!(rx.recv(cx), Ok("kept"));
            assert_eq!(rx.recv(cx), Err(Refusal::Closed));
            let (tx, rx) = cx.channel::<u8>(Capacity::Rendezvous).unwrap();
            drop(rx);
            assert_eq!(tx.send(cx, 1), Err(SendError { why: Refusal::Closed, value: 1 }));
            let (tx, rx) = cx.channel::<u8>(Capacity::Rendezvous).unwrap();
            assert_eq!(tx.try_send(cx, 1), Err(SendError { why: Refusal::WouldBlock, value: 1 }));
            assert_eq!(rx.try_recv(cx), Err(Refusal::WouldBlock));
            assert_eq!(rx.recv_timeout(cx, Duration::from_millis(2)), Err(Refusal::TimedOut));
            assert_eq!(
                tx.send_timeout(cx, 3, Duration::from_millis(2)),
                Err(SendError { why: Refusal::TimedOut, value: 3 })
            );
        })
        .unwrap();
}

#[test]
fn host_threads_and_tasks_share_a_channel() {
    let runtime = runtime(2);
    let (to_task, from_host) = runtime.channel(Capacity::Rendezvous);
    let (to_host, from_task) = runtime.channel(Capacity::Bounded(1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..100 {
                to_task.send_blocking(i).unwrap();
                assert_eq!(from_task.recv_blocking(), Ok(i * 2));
            }
            to_task.close();
        });
        runtime.run(|cx| from_host.iter(cx).for_each(|i: i32| to_host.send(cx, i * 2).unwrap())).unwrap();
    });
}

#[test]
fn select_takes_the_first_that_is_ready_and_knows_closing_and_timeouts() {
    runtime(2)
        .run(|cx| {
            let (tx1, rx1) = cx.channel::<u32>(Capacity::Rendezvous).unwrap();
            let (tx2, rx2) = cx.channel::<&str>(Capacity::Bounded(1)).unwrap();
            let late = Select::new().recv(&rx1, |_| "number").recv(&rx2, |_| "text").run_timeout(
                cx,
                Duration::from_millis(1),
                || "late",
            );
            assert_eq!(late, Ok("late"));
            cx.nursery(|n| {
                n.spawn(|cx| {
                    for i in 0..50 {
                        tx1.send(cx, i).unwrap();
                        tx2.send(cx, "x").unwrap();
                    }
                    tx1.close();
                    tx2.close();
                })
                .unwrap();
                let (mut numbers, mut texts, mut open) = (0, 0, 2);
                while open > 0 {
                    let got = Select::new()
                        .recv(&rx1, |n| n.ok().map(Some))
                        .recv(&rx2, |t| t.ok().map(|_| None))
                        .run(cx);
                    match got.unwrap() {
                        Some(Some(_)) => numbers += 1,
                        Some(None) => texts += 1,
                        None => {
                            // One is closed: take the rest of the other by itself.
                            open = 0;
                            texts += rx2.iter(cx).count();
                            numbers += rx1.iter(cx).count();
                        }
                    }
                }
                assert_eq!((numbers, texts), (50, 50));
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn channel_authority_is_needed_and_bounded() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let few = cx.caps().attenuate_channel(2, 4);
                let child = n.builder().caps(few).spawn(|cx| {
                    cx.channel::<u8>(Capacity::Bounded(4)).unwrap();
                    let large = cx.channel::<u8>(Capacity::Bounded(5)).unwrap_err();
                    assert_eq!(large, ChannelError::BufferTooLarge { asked: Some(5), allowed: 4 });
                    let unbounded = cx.channel::<u8>(Capacity::Unbounded).unwrap_err();
                    assert_eq!(unbounded, ChannelError::BufferTooLarge { asked: None, allowed: 4 });
                    cx.channel::<u8>(Capacity::Rendezvous).unwrap();
                    assert_eq!(cx.channel::<u8>(Capacity::Rendezvous).unwrap_err(), ChannelError::TooMany(2));
                });
                child.unwrap().join(cx).unwrap();
                let none = n
                    .builder()
                    .caps(Caps::none())
                    .spawn(|cx| cx.channel::<u8>(Capacity::Rendezvous).unwrap_err());
                assert_eq!(none.unwrap().join(cx).unwrap(), ChannelError::NotPermitted);
            })
            .unwrap();
        })
        .unwrap();
}

//= SCHED:3.3.1
#[test]
fn a_send_and_a_receive_cost_one_op_and_one_channel_operation_each() {
    runtime(1)
        .run(|cx| {
            let (tx, rx) = cx.channel(Capacity::Bounded(1)).unwrap();
            cx.nursery(|n| {
                let budget = Budget { ops: 10, channel_ops: 5, ..Budget::ZERO };
                let left = n.builder().budget(budget).spawn(move |cx| {
                    tx.send(cx, 1).unwrap();
                    let after_send = cx.budget();
                    rx.recv(cx).unwrap();
                    (after_send, cx.budget())
                });
                let (after_send, after_recv) = left.unwrap().join(cx).unwrap();
                assert_eq!(after_send, Budget { ops: 9, channel_ops: 4, ..budget });
                assert_eq!(after_recv, Budget { ops: 8, channel_ops: 3, ..budget });
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn a_task_without_channel_budget_gets_a_typed_error() {
    runtime(1)
        .run(|cx| {
            let (tx, _rx) = cx.channel(Capacity::Bounded(1)).unwrap();
            cx.nursery(|n| {
                let child =
                    n.builder().budget(Budget { ops: 10, ..Budget::ZERO }).spawn(move |cx| tx.send(cx, 5));
                let never = Refusal::Budget(BudgetError::NeverGranted(Component::ChannelOps));
                assert_eq!(child.unwrap().join(cx).unwrap(), Err(SendError { why: never, value: 5 }));
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn cancellation_reaches_tasks_that_wait_in_every_way() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        runtime
            .run(|cx| {
                let (tx, rx) = cx.channel::<u8>(Capacity::Rendezvous).unwrap();
                let (lock, semaphore) = (Mutex::new(()), Semaphore::new(1));
                let held = (lock.lock(cx).unwrap(), semaphore.acquire(cx, 1).unwrap());
                let ended = cx.nursery(|n| {
                    n.spawn(|cx| rx.recv(cx)).unwrap();
                    n.spawn(|cx| cx.sleep(Duration::from_secs(3600))).unwrap();
                    n.spawn(|cx| drop(lock.lock(cx))).unwrap();
                    n.spawn(|cx| drop(semaphore.acquire(cx, 1))).unwrap();
                    n.spawn(|cx| Select::new().recv(&rx, |_| ()).run(cx)).unwrap();
                    n.builder()
                        .budget(Budget { ops: 3, ..Budget::ZERO })
                        .spawn(|cx| (0..9).for_each(|_| cx.check()))
                        .unwrap();
                    let parent = n.builder().budget(Budget { ops: 100, spawn_count: 1, ..Budget::ZERO });
                    parent
                        .spawn(|cx| {
                            let slow = |cx: &mainspring::Cx| cx.sleep(Duration::from_secs(3600));
                            drop(cx.nursery(|n| drop(n.spawn(slow).unwrap())));
                        })
                        .unwrap();
                    for _ in 0..20 {
                        cx.yield_now();
                    }
                    assert_eq!(n.live(), 7);
                    n.cancel();
                });
                assert!(matches!(ended.unwrap_err().error, TaskError::Cancelled));
                drop(held);
                assert_eq!(semaphore.free(), 1);
                drop((tx, lock.try_lock().unwrap()));
            })
            .unwrap();
    }
}

#[test]
fn a_mutex_keeps_others_out_across_yields() {
    let runtime = runtime(2);
    let counter = Mutex::new(0u32);
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                for _ in 0..8 {
                    n.spawn(|cx| {
                        for _ in 0..100 {
                            let mut value = counter.lock(cx).unwrap();
                            let read = *value;
                            cx.yield_now();
                            *value = read + 1;
                        }
                    })
                    .unwrap();
                }
            })
            .unwrap();
        })
        .unwrap();
    assert_eq!(counter.into_inner(), 800);
}

#[test]
fn a_semaphore_is_fair_bounded_and_refuses_what_it_never_has() {
    runtime(1)
        .run(|cx| {
            let semaphore = Semaphore::new(2);
            assert_eq!(semaphore.acquire(cx, 3).unwrap_err(), AcquireError::TooMany { wanted: 3, total: 2 });
            let both = semaphore.acquire(cx, 2).unwrap();
            let late = semaphore.acquire_timeout(cx, 1, Duration::from_millis(1));
            assert_eq!(late.unwrap_err(), AcquireError::TimedOut);
            drop(both);
            assert_eq!(semaphore.free(), 2);
        })
        .unwrap();
}

#[test]
fn once_makes_its_value_once() {
    let (runtime, made, once) = (runtime(2), AtomicUsize::new(0), Once::new());
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                for _ in 0..10 {
                    n.spawn(|cx| {
                        let value = once.get_or_make(cx, || {
                            cx.yield_now();
                            made.fetch_add(1, Ordering::Relaxed) + 41
                        });
                        assert_eq!(value, Ok(41));
                    })
                    .unwrap();
                }
            })
            .unwrap();
        })
        .unwrap();
    assert_eq!(made.load(Ordering::Relaxed), 1);
}

#[test]
fn a_deadline_cancels_a_nursery_and_says_so() {
    let error = runtime(2)
        .run(|cx| {
            let options = NurseryOptions::new().deadline(Duration::from_millis(5));
            cx.nursery_with(options, |n| drop(n.spawn(|cx| cx.sleep(Duration::from_secs(3600))))).unwrap_err()
        })
        .unwrap();
    assert!(matches!(error.error, TaskError::DeadlineExceeded), "{error}");
}

#[test]
fn a_failure_or_a_deadline_interrupts_the_body_of_the_nursery_too() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        runtime
            .run(|cx| {
                let (_tx, rx) = cx.channel::<u8>(Capacity::Rendezvous).unwrap();
                let failed = cx.nursery(|n| {
                    n.spawn_try(|_| Err::<(), _>("a child")).unwrap();
                    rx.recv(cx)
                });
                assert_eq!(failed.unwrap_err().to_string().split(": ").last(), Some("a child"));
                let options = NurseryOptions::new().deadline(Duration::from_millis(2));
                let late = cx.nursery_with(options, |_| {
                    // The inner nursery is in the way of the outer one's deadline.
                    cx.nursery(|n| n.start(|cx| cx.sleep(Duration::from_secs(3600))))
                });
                assert!(matches!(late.unwrap_err().error, TaskError::DeadlineExceeded));
                // The task itself goes on.
                cx.sleep(Duration::from_micros(10));
                assert!(!cx.is_cancelled());
            })
            .unwrap();
    }
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    let runtime = Config::new(Profile::Service).deterministic_seed(1).workers(3).build().unwrap();
    let order = std::sync::Mutex::new(Vec::new());
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                for ms in [50u64, 10, 30, 20, 40] {
                    let order = &order;
                    n.spawn(move |cx| {
                        cx.sleep(Duration::from_millis(ms));
                        assert_eq!(cx.now(), Duration::from_millis(ms), "virtual time is exact");
                        order.lock().unwrap().push(ms);
                    })
                    .unwrap();
                }
            })
            .unwrap();
        })
        .unwrap();
    assert_eq!(*order.lock().unwrap(), [10, 20, 30, 40, 50]);
}

#[test]
fn many_waiters_leave_a_channel_one_by_one_and_the_rest_keep_their_order() {
    const WAITERS: usize = 50_000;
    let caps = Caps::root(u32::MAX, Profile::Cluster.child_budget(), Budget::MAX, u32::MAX, u32::MAX);
    let pool = mainspring::Pool::AMPLE;
    let runtime = Config::new(Profile::Cluster).workers(1).root_caps(caps).root_pool(pool).build().unwrap();
    let order = runtime.run(|cx| {
        let (tx, rx) = cx.channel::<usize>(Capacity::Rendezvous).unwrap();
        let budget = Budget { ops: 10, channel_ops: 2, ..Budget::ZERO };
        let (rx, order) = (&rx, std::sync::Mutex::new(Vec::new()));
        let waiting = AtomicUsize::new(0);
        cx.nursery(|outer| {
            let (order, waiting) = (&order, &waiting);
            // The first and the last to wait stay; all those between them are cancelled.
            let stay = |name: usize| {
                let body = move |cx: &mainspring::Cx| {
                    let value = rx.recv(cx).unwrap();
                    order.lock().unwrap().push((name, value));
                };
                outer.start(body).unwrap();
                cx.yield_now();
            };
            stay(1);
            let cancelled = cx.nursery(|n| {
                for _ in 0..WAITERS {
                    let body = move |cx: &mainspring::Cx| {
                        waiting.fetch_add(1, Ordering::Relaxed);
                        let _ended = rx.recv(cx);
                    };
                    n.builder().budget(budget).start(body).unwrap();
                }
                while waiting.load(Ordering::Relaxed) < WAITERS {
                    cx.yield_now();
                }
                stay(2);
                n.cancel();
            });
            assert!(matches!(cancelled.unwrap_err().error, TaskError::Cancelled));
            tx.send(cx, 10).unwrap();
            tx.send(cx, 20).unwrap();
        })
        .unwrap();
        let mut order = order.into_inner().unwrap();
        order.sort_unstable();
        order
    });
    assert_eq!(order.unwrap(), [(1, 10), (2, 20)], "who came first got the first");
}
