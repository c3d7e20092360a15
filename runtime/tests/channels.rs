//! Channels, select, locks and time.

use mainspring::sync::{AcquireError, Mutex, Once, Semaphore};
use mainspring::{
    Budget, BudgetError, Capacity, Caps, ChannelError, Component, Config, Exhaustion, NurseryOptions, Profile,
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
                                rx.iter(cx)
                                    .for_each(|value| _ = sum.fetch_add(value.unwrap(), Ordering::Relaxed));
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
        runtime
            .run(|cx| {
                from_host.iter(cx).for_each(|i: Result<i32, _>| to_host.send(cx, i.unwrap() * 2).unwrap());
            })
            .unwrap();
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
                let options = NurseryOptions::new().on_exhausted(Exhaustion::Park);
                let ended = cx.nursery_with(options, |n| {
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

/// Counts how often each of its values has been dropped.
#[derive(Default)]
struct Ledger(std::sync::Mutex<Vec<u32>>);

/// A value of a ledger.
struct Value<'a>(&'a Ledger, usize);

impl Ledger {
    fn value(&self) -> Value<'_> {
        let mut drops = self.0.lock().unwrap();
        drops.push(0);
        Value(self, drops.len() - 1)
    }

    fn dropped(&self) -> usize {
        self.0.lock().unwrap().iter().map(|&times| times as usize).sum()
    }

    /// Each value was dropped, once.
    fn close(self) {
        let drops = self.0.into_inner().unwrap();
        assert!(drops.iter().all(|&times| times == 1), "{drops:?}");
    }
}

impl Drop for Value<'_> {
    fn drop(&mut self) {
        self.0.0.lock().unwrap()[self.1] += 1;
    }
}

#[test]
fn the_last_receiver_drops_what_is_buffered_and_senders_get_their_values_back() {
    let ledger = Ledger::default();
    runtime(1)
        .run(|cx| {
            let (tx, rx) = cx.channel(Capacity::Bounded(3)).unwrap();
            (0..3).for_each(|_| assert!(tx.send(cx, ledger.value()).is_ok()));
            cx.nursery(|n| {
                let (tx, ledger) = (&tx, &ledger);
                let blocked = n.spawn(move |cx| tx.send(cx, ledger.value()).unwrap_err()).unwrap();
                while blocked.state() != mainspring::TaskState::Blocked {
                    cx.yield_now();
                }
                let clone = rx.clone();
                drop(rx);
                assert_eq!((ledger.dropped(), clone.len()), (0, 3), "there is a receiver yet");
                drop(clone);
                assert_eq!(ledger.dropped(), 3, "at once, by the task that dropped the last receiver");
                let refused = blocked.join(cx).unwrap();
                assert_eq!(
                    (refused.why, ledger.dropped()),
                    (Refusal::Closed, 3),
                    "this one is the sender's again"
                );
            })
            .unwrap();
            assert_eq!(tx.try_send(cx, ledger.value()).map_err(|refused| refused.why), Err(Refusal::Closed));
        })
        .unwrap();
    ledger.close();
}

#[test]
fn a_buffered_value_may_use_its_channel_when_it_is_dropped() {
    struct Last(Option<mainspring::Sender<Last>>);
    impl Drop for Last {
        fn drop(&mut self) {
            if let Some(sender) = self.0.take() {
                // Under the channel's lock this would wait for itself.
                assert!(sender.send_blocking(Last(None)).is_err());
            }
        }
    }
    let runtime = runtime(1);
    let (tx, rx) = runtime.channel(Capacity::Unbounded);
    tx.send_blocking(Last(Some(tx.clone()))).unwrap();
    drop(rx);
    assert!(tx.send_blocking(Last(None)).is_err());
}

#[test]
fn an_iteration_that_the_budget_refuses_says_so() {
    runtime(1)
        .run(|cx| {
            let (tx, rx) = cx.channel::<u32>(Capacity::Bounded(4)).unwrap();
            (0..3).for_each(|i| tx.send(cx, i).unwrap());
            cx.nursery(|n| {
                let rx = &rx;
                let poor = n.builder().budget(Budget { ops: 100, ..Budget::ZERO });
                let items = poor.spawn(move |cx| rx.iter(cx).collect::<Vec<_>>()).unwrap().join(cx).unwrap();
                let refused = Refusal::Budget(BudgetError::NeverGranted(Component::ChannelOps));
                assert_eq!(items, [Err(refused)], "one error, and then the end");
                // The values are there yet, for a task that can pay.
                drop(tx);
                let all = n.spawn(move |cx| rx.iter(cx).collect::<Result<Vec<_>, _>>()).unwrap();
                assert_eq!(all.join(cx).unwrap(), Ok(vec![0, 1, 2]));
            })
            .unwrap();
        })
        .unwrap();
}

/// What a task or a thread does with one end of a channel.
fn act<'a>(
    cx: &mainspring::Cx,
    random: &mut impl FnMut(u64) -> u64,
    ledger: &'a Ledger,
    counts: &[AtomicUsize; 2],
    tx: &mainspring::Sender<Value<'a>>,
    rx: &mainspring::Receiver<Value<'a>>,
) {
    let [sent, received] = counts;
    let time = Duration::from_micros(random(30));
    let was_sent = |is_ok: bool| _ = sent.fetch_add(usize::from(is_ok), Ordering::Relaxed);
    let was_received = |is_ok: bool| _ = received.fetch_add(usize::from(is_ok), Ordering::Relaxed);
    match random(10) {
        0 => was_sent(tx.send(cx, ledger.value()).is_ok()),
        1 => was_sent(tx.send_timeout(cx, ledger.value(), time).is_ok()),
        2 => was_sent(tx.try_send(cx, ledger.value()).is_ok()),
        3 => was_received(rx.recv(cx).is_ok()),
        4 => was_received(rx.recv_timeout(cx, time).is_ok()),
        5 => was_received(rx.try_recv(cx).is_ok()),
        6 => was_received(rx.iter(cx).next().is_some_and(|item| item.is_ok())),
        7 | 8 => {
            // Both ways at once, and perhaps with itself.
            let mut value = Some(ledger.value());
            let select = Select::new()
                .send(tx, &mut value, |done| was_sent(done.is_ok()))
                .recv(rx, |got| was_received(got.is_ok()));
            let _ = select.run_timeout(cx, time, || ());
        }
        _ => cx.yield_now(),
    }
}

/// Tasks and threads send and receive in every way, and are cancelled, run out of time or lose the other side at random: each
/// value is received once, or dropped once.
#[test]
fn no_value_is_lost_or_doubled_whatever_ends_an_operation() {
    for seed in 0..120u64 {
        let capacity = [Capacity::Rendezvous, Capacity::Bounded(2), Capacity::Unbounded][seed as usize % 3];
        let (ledger, counts) = (Ledger::default(), [AtomicUsize::new(0), AtomicUsize::new(0)]);
        let runtime = Config::new(Profile::Cluster).workers(1 + seed as usize % 2).build().unwrap();
        let (tx, rx) = runtime.channel(capacity);
        std::thread::scope(|threads| {
            let (host_tx, host_rx) = (tx.clone(), rx.clone());
            let (ledger, counts) = (&ledger, &counts);
            threads.spawn(move || {
                for _ in 0..20 {
                    let sent = host_tx.send_blocking(ledger.value()).is_ok();
                    counts[0].fetch_add(usize::from(sent), Ordering::Relaxed);
                }
            });
            let receiving = threads.spawn(move || {
                while host_rx.recv_blocking().is_ok() {
                    counts[1].fetch_add(1, Ordering::Relaxed);
                }
            });
            runtime
                .run(|cx| {
                    for round in 0..8u64 {
                        let ended = cx.nursery(|n| {
                            for child in 0..6u64 {
                                let (tx, rx) = (tx.clone(), rx.clone());
                                n.start(move |cx| {
                                    let mut state = seed << 16 | round << 8 | child | 1 << 40;
                                    let mut random = move |n: u64| {
                                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                                        (state >> 33) % n
                                    };
                                    for _ in 0..30 {
                                        act(cx, &mut random, ledger, counts, &tx, &rx);
                                    }
                                })
                                .unwrap();
                            }
                            (0..seed % 11 * round).for_each(|_| cx.yield_now());
                            n.cancel();
                        });
                        assert!(matches!(
                            ended,
                            Ok(()) | Err(mainspring::NurseryError { error: TaskError::Cancelled, .. })
                        ));
                    }
                })
                .unwrap();
            drop((tx, rx));
            receiving.join().unwrap();
        });
        let [sent, received] = counts.map(AtomicUsize::into_inner);
        assert_eq!(sent, received, "seed {seed}: the last receiver stayed until nothing was left");
        ledger.close();
    }
}
