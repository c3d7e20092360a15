//! What waits leave behind: nothing, on every way out.

use mainspring::sync::Semaphore;
use mainspring::{Capacity, Config, Parker, Profile, Runtime, TaskError, TaskState};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

fn runtime(workers: usize) -> Runtime {
    Config::new(Profile::Service).workers(workers).build().unwrap()
}

#[test]
fn a_timeout_of_any_length_is_a_wait_and_not_a_panic() {
    for timeout in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_nanos(u64::MAX)] {
        let parker = Parker::default();
        std::thread::scope(|threads| {
            threads.spawn(|| assert!(parker.park_blocking(Some(timeout)), "{timeout:?}"));
            // Most likely it waits by then; an unpark that comes before is remembered.
            std::thread::sleep(Duration::from_millis(20));
            parker.unpark();
        });
        let runtime = runtime(1);
        let parker = Parker::default();
        let semaphore = Semaphore::new(1);
        let all = runtime.run(|cx| {
            let (tx, rx) = cx.channel::<u8>(Capacity::Rendezvous).unwrap();
            cx.nursery(|n| {
                let held = semaphore.try_acquire(1).unwrap();
                n.start(|cx| assert!(parker.park(cx, Some(timeout)))).unwrap();
                n.start(|cx| drop(semaphore.acquire_timeout(cx, 1, timeout).unwrap())).unwrap();
                n.start(move |cx| assert_eq!(rx.recv_timeout(cx, timeout).unwrap(), 7)).unwrap();
                let sleeper = n.spawn(|cx| cx.sleep(timeout)).unwrap();
                let mut ticks = cx.interval(timeout);
                let ticker = n.spawn(move |cx| ticks.tick(cx)).unwrap();
                cx.sleep(Duration::from_millis(1));
                parker.unpark();
                drop(held);
                tx.send_timeout(cx, 7, timeout).unwrap();
                assert!(sleeper.cancel() && ticker.cancel());
            })
        });
        all.unwrap().unwrap();
    }
}

#[test]
fn an_unpark_that_was_given_to_a_cancelled_task_goes_to_the_next() {
    // One worker: the waiter has been unparked and cancelled, in either order, before it runs again.
    for cancelled_first in [false, true] {
        let runtime = runtime(1);
        let (parker, went_on) = (Parker::default(), AtomicBool::new(false));
        let got = runtime.run(|cx| {
            cx.nursery(|n| {
                let waiter = n
                    .spawn(|cx| {
                        parker.park(cx, None);
                        went_on.store(true, Ordering::Relaxed);
                    })
                    .unwrap();
                while waiter.state() != TaskState::Blocked {
                    cx.yield_now();
                }
                if cancelled_first {
                    assert!(waiter.cancel());
                    parker.unpark();
                } else {
                    parker.unpark();
                    assert!(waiter.cancel());
                }
                assert!(matches!(waiter.join(cx), Err(TaskError::Cancelled)));
                parker.park(cx, Some(Duration::ZERO))
            })
        });
        assert!(got.unwrap().unwrap(), "the unpark is lost, cancelled_first: {cancelled_first}");
        assert!(!went_on.load(Ordering::Relaxed));
    }
}

#[test]
fn permits_come_back_from_every_way_out_of_a_wait() {
    let runtime = runtime(2);
    let semaphore = Semaphore::new(3);
    let got = AtomicU32::new(0);
    for round in 0..50u32 {
        let result = runtime.run(|cx| {
            cx.nursery(|n| {
                let handles: Vec<_> = (0..20u32)
                    .map(|i| {
                        let (semaphore, got) = (&semaphore, &got);
                        n.spawn(move |cx| {
                            let permit = semaphore.acquire_timeout(
                                cx,
                                1 + (i % 3) as usize,
                                Duration::from_micros(u64::from(i * round)),
                            );
                            if permit.is_ok() {
                                got.fetch_add(1, Ordering::Relaxed);
                                cx.yield_now();
                                assert!(i != 13, "a panic that holds permits");
                            }
                        })
                        .unwrap()
                    })
                    .collect();
                cx.yield_now();
                handles.iter().step_by(3).for_each(|handle| {
                    handle.cancel();
                });
            })
        });
        drop(result);
        assert_eq!(semaphore.free(), 3, "round {round}");
    }
    assert_ne!(got.load(Ordering::Relaxed), 0);
}

#[test]
fn a_blocking_call_that_is_taken_back_drops_its_captures_in_its_task_alone() {
    /// A destructor that panics.
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                std::panic::resume_unwind(Box::new("the bomb"));
            }
        }
    }
    // All threads of the pool are busy, so that the last call waits in the queue and is taken back.
    let runtime = Config::new(Profile::Cluster).workers(1).build().unwrap();
    let (go_on, began) = (AtomicBool::new(false), AtomicU32::new(0));
    let ended = runtime.run(|cx| {
        cx.nursery(|n| {
            for _ in 0..64 {
                n.start(|cx| {
                    cx.blocking(|| {
                        began.fetch_add(1, Ordering::Relaxed);
                        while !go_on.load(Ordering::Relaxed) {
                            std::thread::yield_now();
                        }
                    })
                    .unwrap();
                })
                .unwrap();
            }
            while began.load(Ordering::Relaxed) < 64 {
                cx.sleep(Duration::from_millis(1));
            }
            let failed = cx.nursery(|n| {
                let bomb = Bomb;
                let queued = n.spawn(move |cx| cx.blocking(move || std::mem::forget(bomb))).unwrap();
                while queued.state() != TaskState::Blocked {
                    cx.yield_now();
                }
                queued.cancel();
                queued.join(cx).map(drop)
            });
            go_on.store(true, Ordering::Relaxed);
            // The bomb went off in its task.
            assert!(matches!(failed.unwrap_err().error, TaskError::Panicked(text) if text == "the bomb"));
            // And the pool works on.
            assert_eq!(cx.blocking(|| 7), Ok(7));
        })
    });
    assert!(matches!(ended, Ok(Ok(()))), "{ended:?}");
}
