//! Blocking calls and futures.

use mainspring::sync::Semaphore;
use mainspring::{
    BlockingError, Budget, BudgetError, Capacity, Caps, Component, Config, Cx, Nursery, Pool, Profile,
    Receiver, Refusal, Runtime, SpawnError, TaskError,
};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

fn runtime(workers: usize) -> Runtime {
    Config::new(Profile::Service).workers(workers).build().unwrap()
}

#[test]
fn a_blocking_call_blocks_its_task_and_not_its_worker() {
    let turns = runtime(1)
        .run(|cx| {
            let mut text = String::from("may borrow");
            let turns = AtomicUsize::new(0);
            cx.nursery(|n| {
                let other = n.spawn(|cx| {
                    while turns.load(Ordering::Relaxed) < 50 {
                        turns.fetch_add(1, Ordering::Relaxed);
                        cx.yield_now();
                    }
                });
                let turns_seen = cx.blocking(|| {
                    text.push('!');
                    let start = Instant::now();
                    while turns.load(Ordering::Relaxed) < 50 && start.elapsed() < Duration::from_secs(20) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    turns.load(Ordering::Relaxed)
                });
                other.unwrap().join(cx).unwrap();
                assert_eq!(text, "may borrow!");
                turns_seen.unwrap()
            })
            .unwrap()
        })
        .unwrap();
    assert_eq!(turns, 50);
}

#[test]
fn a_blocking_call_needs_authority_and_budget_and_passes_panics_on() {
    runtime(1)
        .run(|cx| {
            cx.nursery(|n| {
                let grant = Budget { ops: 100, syscalls: 2, ..Budget::ZERO };
                let none =
                    n.builder().caps(Caps::none()).budget(grant).spawn(|cx| cx.blocking(|| 1)).unwrap();
                assert_eq!(none.join(cx).unwrap(), Err(BlockingError::NotPermitted));
                let poor = n
                    .builder()
                    .budget(Budget { ops: 100, ..Budget::ZERO })
                    .spawn(|cx| cx.blocking(|| 1))
                    .unwrap();
                let never = BlockingError::Budget(BudgetError::NeverGranted(Component::Syscalls));
                assert_eq!(poor.join(cx).unwrap(), Err(never));
                let charged =
                    n.builder().budget(grant).spawn(|cx| (cx.blocking(|| 1).unwrap(), cx.budget())).unwrap();
                assert_eq!(charged.join(cx).unwrap(), (1, Budget { ops: 99, syscalls: 1, ..Budget::ZERO }));
            })
            .unwrap();
            let panicked = cx.nursery(|n| {
                n.start(|cx| cx.blocking(|| std::panic::resume_unwind(Box::new("inside"))).unwrap()).unwrap();
            });
            assert!(matches!(panicked.unwrap_err().error, TaskError::Panicked(text) if text == "inside"));
        })
        .unwrap();
}

/// A future that another thread completes.
#[derive(Clone, Default)]
struct Later(Arc<Mutex<(Option<u32>, Option<Waker>)>>);

impl Later {
    fn complete(&self, value: u32) {
        let waker = {
            let mut inside = self.0.lock().unwrap();
            inside.0 = Some(value);
            inside.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for Later {
    type Output = u32;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
        let mut inside = self.0.lock().unwrap();
        match inside.0 {
            Some(value) => Poll::Ready(value),
            None => {
                inside.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[test]
fn futures_are_awaited_and_spawned_and_woken_from_anywhere() {
    for workers in [1, 2] {
        let later: Vec<Later> = (0..50).map(|_| Later::default()).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (i, later) in later.iter().enumerate() {
                    std::thread::sleep(Duration::from_micros(100));
                    later.complete(i as u32);
                }
            });
            let sum = runtime(workers)
                .run(|cx| {
                    cx.nursery(|n| {
                        let awaiting: Vec<_> = later[..25]
                            .iter()
                            .map(|later| n.spawn(|cx| cx.await_future(later.clone()).unwrap()).unwrap())
                            .collect();
                        let spawned: Vec<_> =
                            later[25..].iter().map(|later| n.spawn_future(later.clone()).unwrap()).collect();
                        let awaited: u32 = awaiting.into_iter().map(|handle| handle.join(cx).unwrap()).sum();
                        awaited + spawned.into_iter().map(|handle| handle.join(cx).unwrap()).sum::<u32>()
                    })
                    .unwrap()
                })
                .unwrap();
            assert_eq!(sum, (0..50).sum());
        });
    }
}

#[test]
fn cancelled_futures_are_dropped_and_their_wakers_do_no_harm() {
    struct Dropped<'a>(&'a AtomicUsize);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (dropped, kept) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    {
        let runtime = runtime(1);
        let ended = runtime
            .run(|cx| {
                cx.nursery(|n| {
                    for i in 0..10 {
                        let (dropped, kept) = (Dropped(&dropped), &kept);
                        let never = async move {
                            let _dropped = dropped;
                            poll_fn(|context| {
                                kept.lock().unwrap().push(context.waker().clone());
                                Poll::<()>::Pending
                            })
                            .await;
                        };
                        if i % 2 == 0 {
                            n.spawn_future(never).unwrap();
                        } else {
                            n.spawn(|cx| cx.await_future(never).unwrap()).unwrap();
                        }
                    }
                    while kept.lock().unwrap().len() < 10 {
                        cx.yield_now();
                    }
                    n.cancel();
                })
                .unwrap_err()
            })
            .unwrap();
        assert!(matches!(ended.error, TaskError::Cancelled));
    }
    assert_eq!(dropped.load(Ordering::Relaxed), 10);
    // Task and runtime are gone.
    kept.into_inner().unwrap().into_iter().for_each(Waker::wake);
}

#[test]
fn spawning_a_future_needs_the_executor_capability() {
    runtime(1)
        .run(|cx| {
            cx.nursery_with(mainspring::NurseryOptions::new().caps(cx.caps().without_executor()), |n| {
                assert_eq!(n.spawn_future(async {}).unwrap_err(), SpawnError::NotPermitted);
            })
            .unwrap();
        })
        .unwrap();
}

/// What a call of an async function comes to: a spawn, and a channel for one value.
fn async_call<'scope, T: Send + 'scope>(
    cx: &Cx,
    n: &Nursery<'scope, '_>,
    f: impl FnOnce(&Cx) -> T + Send + 'scope,
) -> Receiver<T> {
    let (result, promise) = cx.channel(Capacity::Bounded(1)).unwrap();
    let budget = Budget { ops: 1000, channel_ops: 2, ..Budget::ZERO };
    n.builder().budget(budget).start(move |cx| result.send(cx, f(cx)).unwrap()).unwrap();
    promise
}

#[test]
fn an_async_call_is_a_spawn_and_a_channel_of_one_value() {
    let runtime = Config::new(Profile::Service).workers(2).build().unwrap();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let words = ["one", "three"];
                let promises = words.map(|word| {
                    async_call(cx, n, move |cx| {
                        cx.yield_now();
                        word.len()
                    })
                });
                // Awaited out of order; each value comes once, and then the channel is closed.
                assert_eq!(promises[1].recv(cx), Ok(5));
                assert_eq!(promises[0].recv(cx), Ok(3));
                assert!(promises.iter().all(|promise| promise.recv(cx) == Err(Refusal::Closed)));
                // A handle is the same, without a channel's costs.
                assert_eq!(n.spawn(|_| 7).unwrap().join(cx).unwrap(), 7);
            })
            .unwrap();
        })
        .unwrap();
}

/// A host thread hands a value or the last permit to a task, and the runtime goes as soon as the task has it: the waker
/// must be done with the runtime by then.
#[test]
fn a_runtime_goes_as_soon_as_a_task_has_what_a_host_thread_gave_it() {
    for round in 0..200 {
        let semaphore = Semaphore::new(1);
        let permit = semaphore.try_acquire(1).unwrap();
        let runtime = runtime(1);
        let (tx, rx) = runtime.channel(Capacity::Rendezvous);
        let is_about_to_wait = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let about_to_wait = || is_about_to_wait.store(true, Ordering::Release);
            // Sometimes just before the task waits, sometimes just after.
            let is_about_to_wait = &is_about_to_wait;
            let look = move || {
                while !is_about_to_wait.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                (0..round * 50).for_each(|_| std::hint::spin_loop());
            };
            // By turns the one or the other is the last that the task waits for.
            if round % 2 == 0 {
                threads.spawn(move || {
                    look();
                    assert_eq!(tx.send_blocking(round), Ok(()));
                });
                let received = runtime.run(|cx| {
                    about_to_wait();
                    rx.recv(cx)
                });
                assert_eq!(received.unwrap(), Ok(round));
            } else {
                threads.spawn(move || {
                    look();
                    drop(permit);
                });
                let acquired = runtime.run(|cx| {
                    about_to_wait();
                    semaphore.acquire(cx, 1).is_ok()
                });
                assert!(acquired.unwrap());
            }
            drop(runtime);
        });
    }
}

const FINITE: Pool =
    Pool { ops: 1 << 40, memory: 1 << 30, spawn_count: 1000, channel_ops: 1000, syscalls: 1000 };

//= OWN:exhaust.told
#[test]
fn a_root_goes_on_for_as_long_as_the_root_pool_has_something() {
    runtime(1)
        .run(|cx| {
            let (tx, rx) = cx.channel(Capacity::Bounded(1)).unwrap();
            drop(rx);
            for i in 0..200_000u32 {
                cx.pay(Component::Syscalls).unwrap();
                assert!(tx.try_send(cx, i).is_err());
            }
            // More than a task can hold.
            (0..10).for_each(|_| cx.check_iterations(1 << 31));
            cx.nursery(|n| {
                for _ in 0..200_000 {
                    n.start(|_| ()).unwrap();
                    cx.pay(Component::Syscalls).unwrap();
                }
            })
            .unwrap();
        })
        .unwrap();
}

/// Uses one of a component, or says that it cannot.
fn use_one(cx: &Cx, component: Component, used: &AtomicUsize) {
    cx.pay(component).unwrap();
    used.fetch_add(1, Ordering::Relaxed);
}

//= OWN:exhaust.told OWN:budget.conserve
#[test]
fn a_root_whose_pool_is_empty_ends_with_an_error_after_it_has_used_all_of_it() {
    for component in [Component::Syscalls, Component::ChannelOps] {
        for in_nursery in [false, true] {
            let runtime = Config::new(Profile::Cluster).workers(1).root_pool(FINITE).build().unwrap();
            let used = AtomicUsize::new(0);
            let ended = runtime.run(|cx| {
                if in_nursery {
                    // What the nursery was given is the root's too.
                    cx.nursery(|_| {
                        loop {
                            use_one(cx, component, &used);
                        }
                    })
                    .unwrap();
                }
                loop {
                    use_one(cx, component, &used);
                }
            });
            let told = matches!(ended, Err::<(), _>(TaskError::BudgetExhausted(which)) if which == component);
            assert!(told, "{component} {in_nursery}");
            assert_eq!(used.into_inner(), 1000, "{component} {in_nursery}");
            assert_eq!(runtime.root_pool().get(component), 0);
            assert_eq!(runtime.root_pool().spawn_count, 999, "what was not used is back");
        }
    }
}

//= OWN:budget.conserve
#[test]
fn the_nursery_of_a_root_spawns_for_as_long_as_the_root_pool_pays() {
    let runtime = Config::new(Profile::Cluster).workers(1).root_pool(FINITE).build().unwrap();
    let spawned = runtime
        .run(|cx| {
            cx.nursery(|n| {
                let small = Budget { ops: 10, ..Budget::ZERO };
                (0..).find(|_| n.builder().budget(small).start(|_| ()).is_err()).unwrap()
            })
            .unwrap()
        })
        .unwrap();
    assert_eq!(spawned, 999, "and the root itself");
    assert_eq!(runtime.root_pool().spawn_count, 0);
}

//= OWN:budget.conserve
#[test]
fn runs_of_several_threads_at_a_time_share_the_root_pool() {
    const THREADS: usize = 48;
    for pool in [Pool::AMPLE, Pool { spawn_count: 10_000, channel_ops: 100_000, syscalls: 10_000, ..FINITE }]
    {
        let runtime = Config::new(Profile::Service).workers(2).root_pool(pool).build().unwrap();
        let (running, used) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|threads| {
            for _ in 0..THREADS {
                threads.spawn(|| {
                    runtime
                        .run(|cx| {
                            running.fetch_add(1, Ordering::Relaxed);
                            // Until all of them run at the same time.
                            while running.load(Ordering::Relaxed) < THREADS {
                                cx.yield_now();
                            }
                            cx.nursery(|n| {
                                let small = Budget { ops: 100, syscalls: 20, ..Budget::ZERO };
                                for _ in 0..3 {
                                    let child = n.builder().budget(small).spawn(|cx| {
                                        (0..20).for_each(|_| use_one(cx, Component::Syscalls, &used));
                                    });
                                    child.unwrap().join(cx).unwrap();
                                }
                            })
                            .unwrap();
                            (0..40).for_each(|_| use_one(cx, Component::Syscalls, &used));
                        })
                        .unwrap();
                });
            }
        });
        let used = used.into_inner() as u64;
        assert_eq!(used, THREADS as u64 * 100);
        let left = runtime.root_pool();
        assert_eq!(
            (left.syscalls, left.spawn_count),
            (pool.syscalls - used, pool.spawn_count - 4 * THREADS as u64)
        );
    }
}
