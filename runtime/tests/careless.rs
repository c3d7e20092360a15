//! Careless and hostile programs without a line of `unsafe`, under every discipline: none of them takes the process down, loses
//! a budget, or keeps others waiting.

use mainspring::sync::{AcquireError, Mutex, Semaphore};
use mainspring::{
    Budget, BudgetError, Capacity, Caps, Config, Cx, FairTaskSettings, NurseryOptions, Parker, Pool, Profile,
    Runtime, Select, Sender, TaskError, Weight,
};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn disciplines(program: impl Fn(&str, &Runtime)) {
    for workers in [1, 3] {
        let config = || {
            let child = Budget { ops: 1 << 20, memory: usize::MAX, ..Budget::MAX };
            let caps = Caps::root(1000, child, Budget::ZERO, 1000, u32::MAX);
            Config::new(Profile::Service).workers(workers).root_caps(caps)
        };
        program("plain", &config().build().unwrap());
        program("fair by tenant", &config().fair(&[Weight::DEFAULT]).build().unwrap());
        program("fair by task", &config().fair_by_task(FairTaskSettings::default()).build().unwrap());
        program("virtual", &config().deterministic_seed(7).build().unwrap());
    }
}

/// A destructor that panics, where that does not end the process.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            resume_unwind(Box::new("a destructor"));
        }
    }
}

/// The value that the body of a failed nursery returned is dropped by the runtime, and panics: the pool goes back all the same.
#[test]
fn a_nursery_whose_dropped_result_panics_gives_its_pool_back() {
    disciplines(|discipline, runtime| {
        let before = runtime.root_pool();
        let ended = runtime.run(|cx| {
            let had = cx.budget();
            let pool = Pool { ops: 1000, spawn_count: 1, ..Pool::ZERO };
            let caught = catch_unwind(AssertUnwindSafe(|| {
                cx.nursery_with(NurseryOptions::new().pool(pool), |n| {
                    n.spawn_try(|_| Err::<(), _>("the child")).unwrap();
                    Bomb
                })
                .map(std::mem::forget)
            }));
            assert!(caught.is_err(), "{discipline}: it panics");
            let has = cx.budget();
            // The op of the child's spawn.
            assert_eq!((had.ops - has.ops, had.memory), (1, has.memory), "{discipline}");
        });
        ended.unwrap();
        let after = runtime.root_pool();
        assert_eq!((before.ops - after.ops, before.memory), (1, after.memory), "{discipline}");
        assert_eq!(before.spawn_count - after.spawn_count, 2, "{discipline}: the root and the child");
    });
}

/// More than any host has.
#[test]
fn an_allocation_that_the_host_does_not_have_is_an_error() {
    disciplines(|discipline, runtime| {
        let ended = runtime.run(|cx| {
            cx.nursery(|n| {
                let budget = Budget { ops: 1000, memory: 1 << 58, ..Budget::ZERO };
                let child = n.builder().budget(budget).spawn(|cx| {
                    let before = cx.budget().memory;
                    for capacity in [1 << 58, 1 << 57, usize::MAX, usize::MAX / 4] {
                        let refused = cx.try_vec::<u8>(capacity).map(drop);
                        let is_paid = capacity <= before;
                        assert_eq!(
                            matches!(refused, Err(BudgetError::OutOfMemory { .. })),
                            is_paid,
                            "{capacity}: {refused:?}"
                        );
                        assert!(refused.is_err(), "{refused:?}");
                        assert!(cx.try_vec::<[u64; 9]>(capacity).is_err());
                    }
                    assert_eq!(cx.budget().memory, before, "what was not had is not charged");
                });
                child.unwrap().join(cx)
            })
        });
        ended.unwrap().unwrap_or_else(|error| panic!("{discipline}: {error}")).unwrap();
    });
}

/// A message that holds both ends of its own channel, and uses them when it is dropped.
struct Knot(Option<Sender<Knot>>, Arc<AtomicU32>);

impl Drop for Knot {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        if let Some(tx) = &self.0 {
            drop(tx.clone());
            tx.close();
        }
    }
}

#[test]
fn a_message_that_uses_its_own_channel_when_it_is_dropped_locks_nobody_out() {
    disciplines(|discipline, runtime| {
        let dropped = Arc::new(AtomicU32::new(0));
        runtime
            .run(|cx| {
                let (tx, rx) = cx.channel(Capacity::Unbounded).unwrap();
                for _ in 0..3 {
                    assert!(tx.send(cx, Knot(Some(tx.clone()), dropped.clone())).is_ok());
                }
                drop(rx);
                assert_eq!(dropped.load(Ordering::Relaxed), 3, "{discipline}");
                let refused = tx.send(cx, Knot(Some(tx.clone()), dropped.clone()));
                assert!(refused.is_err(), "{discipline}");
            })
            .unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 4, "{discipline}");
    });
}

/// Something that a task waits for.
type Wait<'a> = Box<dyn FnOnce(&Cx) + Send + 'a>;

/// Times that no clock reaches, in every call that takes one.
#[test]
fn a_wait_of_all_time_ends_with_its_scope() {
    disciplines(|discipline, runtime| {
        let semaphore = Semaphore::new(1);
        let parker = Parker::default();
        let ended = runtime.run(|cx| {
            let (_tx, rx) = cx.channel::<u32>(Capacity::Rendezvous).unwrap();
            let (semaphore, parker, rx) = (&semaphore, &parker, &rx);
            let _held = semaphore.acquire(cx, 1).unwrap();
            cx.nursery_with(NurseryOptions::new().deadline(Duration::MAX), |n| {
                let waits: [Wait<'_>; 7] = [
                    Box::new(move |cx: &Cx| cx.sleep(Duration::MAX)),
                    Box::new(move |cx: &Cx| drop(semaphore.acquire_timeout(cx, 1, Duration::MAX))),
                    Box::new(move |cx: &Cx| _ = parker.park(cx, Some(Duration::MAX))),
                    Box::new(move |cx: &Cx| _ = rx.recv_timeout(cx, Duration::MAX)),
                    Box::new(move |cx: &Cx| {
                        _ = Select::new().recv(rx, |_| ()).run_timeout(cx, Duration::MAX, || ());
                    }),
                    Box::new(move |cx: &Cx| _ = cx.interval(Duration::MAX).tick(cx)),
                    Box::new(move |cx: &Cx| {
                        _ = cx.nursery_with(NurseryOptions::new().deadline(Duration::MAX), |_| {
                            cx.sleep(Duration::MAX);
                        });
                    }),
                ];
                for wait in waits {
                    let child = n.spawn(move |cx| wait(cx)).unwrap();
                    (0..4).for_each(|_| cx.yield_now());
                    child.cancel();
                    let ended = child.join(cx);
                    assert!(matches!(ended, Err(TaskError::Cancelled)), "{discipline}: {ended:?}");
                }
            })
        });
        ended.unwrap().unwrap();
    });
}

/// Guards and permits that are never given back keep others waiting, and no longer than those want to wait.
#[test]
fn what_is_leaked_is_lost_and_nothing_else_is() {
    disciplines(|discipline, runtime| {
        let (lock, semaphore) = (Mutex::new(0), Semaphore::new(2));
        let ended = runtime.run(|cx| {
            std::mem::forget(lock.lock(cx).unwrap());
            std::mem::forget(semaphore.acquire(cx, 1).unwrap());
            let options = NurseryOptions::new().deadline(Duration::from_millis(5));
            let late = cx.nursery_with(options, |n| {
                n.start(|cx| drop(lock.lock(cx))).unwrap();
                n.start(|cx| drop(semaphore.acquire(cx, 2))).unwrap();
            });
            assert!(late.is_err(), "{discipline}");
            assert!(lock.try_lock().is_none(), "{discipline}");
            drop(semaphore.acquire(cx, 1).unwrap());
            let refused = semaphore.acquire(cx, usize::MAX).map(drop);
            assert!(matches!(refused, Err(AcquireError::TooMany { .. })), "{discipline}: {refused:?}");
        });
        ended.unwrap();
        assert_eq!(semaphore.free(), 1, "{discipline}");
    });
}

/// Wakes itself in every way there is, keeps its waker beyond its end, and wakes from its destructor.
struct Restless {
    polls: u32,
    kept: Arc<std::sync::Mutex<Vec<Waker>>>,
}

impl Future for Restless {
    type Output = u32;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
        let waker = context.waker();
        waker.wake_by_ref();
        let own = waker.clone();
        self.kept.lock().unwrap().push(own.clone());
        own.wake();
        self.polls += 1;
        if self.polls == 5 { Poll::Ready(self.polls) } else { Poll::Pending }
    }
}

impl Drop for Restless {
    fn drop(&mut self) {
        self.kept.lock().unwrap().iter().for_each(Waker::wake_by_ref);
    }
}

#[test]
fn a_future_that_wakes_itself_from_its_destructor_wakes_nobody_else() {
    let late = Arc::new(std::sync::Mutex::new(Vec::new()));
    disciplines(|discipline, runtime| {
        let ended = runtime.run(|cx| {
            cx.nursery(|n| {
                let children: Vec<_> = (0..8)
                    .map(|_| n.spawn_future(Restless { polls: 0, kept: late.clone() }).unwrap())
                    .collect();
                let cancelled = n.spawn_future(Restless { polls: 0, kept: late.clone() }).unwrap();
                cancelled.cancel();
                drop(cancelled);
                let own = cx.await_future(Restless { polls: 0, kept: late.clone() }).unwrap();
                children.into_iter().map(|child| child.join(cx).unwrap()).sum::<u32>() + own
            })
        });
        assert_eq!(ended.unwrap().unwrap(), 45, "{discipline}");
        // Most of them are of tasks that have ended, and of runtimes that are gone.
        late.lock().unwrap().iter().for_each(Waker::wake_by_ref);
    });
    drop(late);
}

/// What stopped one task is caught by it, sent to another, and dropped there, or kept until both are gone.
#[test]
fn a_stop_that_is_sent_to_another_task_stops_nobody() {
    disciplines(|discipline, runtime| {
        let kept = std::sync::Mutex::new(Vec::new());
        let ended = runtime.run(|cx| {
            let (tx, rx) = cx.channel(Capacity::Unbounded).unwrap();
            cx.nursery(|n| {
                let victim = n.spawn(move |cx| {
                    for _ in 0..4 {
                        let stop = catch_unwind(AssertUnwindSafe(|| cx.sleep(Duration::from_secs(3600))));
                        // Stopped again at once, so that it must be sent without a context.
                        tx.send_blocking(stop.unwrap_err()).unwrap();
                    }
                });
                let victim = victim.unwrap();
                cx.yield_now();
                victim.cancel();
                let _ = victim.join(cx);
                while let Ok(stop) = rx.try_recv(cx) {
                    if kept.lock().unwrap().len() < 2 {
                        kept.lock().unwrap().push(stop);
                    } else {
                        drop(stop);
                    }
                }
                n.spawn(|_| 7).unwrap().join(cx)
            })
        });
        assert!(matches!(ended, Ok(Ok(Ok(7)))), "{discipline}: {ended:?}");
        drop(kept);
    });
}

/// A cleanup inside of a cleanup, which waits, forks, fails and spawns.
#[test]
fn cleanups_inside_of_cleanups_end() {
    fn deeper(cx: &Cx, depth: u32, runs: &AtomicU32) {
        cx.with_cleanup(
            |cx| if depth == 0 { cx.sleep(Duration::from_secs(3600)) } else { deeper(cx, depth - 1, runs) },
            |cx| {
                runs.fetch_add(1, Ordering::Relaxed);
                cx.yield_now();
                let _ = cx.join(|_| 1, |_| 2);
                let _ = cx.nursery(|n| n.spawn(|_| ()).map(drop));
                cx.with_cleanup(|cx| cx.sleep(Duration::from_micros(1)), |_| ());
                resume_unwind(Box::new("a cleanup"));
            },
        );
    }
    disciplines(|discipline, runtime| {
        let runs = AtomicU32::new(0);
        let ended = runtime.run(|cx| {
            cx.nursery(|n| {
                let child = n.spawn(|cx| deeper(cx, 20, &runs)).unwrap();
                (0..3).for_each(|_| cx.yield_now());
                cx.sleep(Duration::from_millis(1));
                child.cancel();
                child.join(cx)
            })
        });
        assert!(matches!(ended, Ok(Ok(Err(TaskError::Cancelled)))), "{discipline}: {ended:?}");
        assert_eq!(runs.load(Ordering::Relaxed), 21, "{discipline}");
    });
}

thread_local! {
    static LAST: std::cell::RefCell<Option<(Sender<u32>, Arc<Parker>)>> = const { std::cell::RefCell::new(None) };
}

/// What a task leaves in a thread-local goes with the worker's thread, when its runtime has ended.
#[test]
fn what_is_left_in_a_thread_local_outlives_the_runtime() {
    disciplines(|discipline, runtime| {
        let ended = runtime.run(|cx| {
            cx.nursery(|n| {
                for _ in 0..16 {
                    n.start(|cx| {
                        let (tx, rx) = cx.channel(Capacity::Bounded(4)).unwrap();
                        let parker = Arc::new(Parker::default());
                        parker.unpark();
                        LAST.set(Some((tx, parker)));
                        cx.yield_now();
                        drop(rx);
                    })
                    .unwrap();
                }
            })
        });
        assert!(matches!(ended, Ok(Ok(()))), "{discipline}: {ended:?}");
    });
    LAST.take();
}

/// A tenant that opens scopes and never leaves them, spawns children that do the same, and catches whatever comes.
#[test]
fn scopes_that_catch_everything_end_when_their_root_does() {
    fn stubborn(cx: &Cx, depth: u32) {
        for _ in 0..2 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                cx.nursery(|n| {
                    if depth > 0 {
                        let budget = Budget { ops: 10_000, spawn_count: 20, ..Budget::ZERO };
                        let _ = n.builder().budget(budget).start(move |cx| stubborn(cx, depth - 1));
                    }
                    let _ = catch_unwind(AssertUnwindSafe(|| cx.sleep(Duration::from_secs(3600))));
                })
            }));
            std::mem::forget(caught.map_err(drop));
        }
    }
    disciplines(|discipline, runtime| {
        let ended = runtime.run(|cx| {
            let options = NurseryOptions::new().deadline(Duration::from_millis(5));
            let late = cx.nursery_with(options, |n| {
                let budget = Budget { ops: 100_000, spawn_count: 100, ..Budget::ZERO };
                for _ in 0..4 {
                    n.builder().budget(budget).start(|cx| stubborn(cx, 4)).unwrap();
                }
            });
            late.map_err(|error| error.error)
        });
        assert!(matches!(ended, Ok(Err(TaskError::DeadlineExceeded))), "{discipline}: {ended:?}");
    });
}
