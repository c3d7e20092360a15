//! Unwinding: cancellation and panics. No other task runs on a thread that panics, and a stop cannot be kept from its task.

use mainspring::sync::{AcquireError, Mutex, Semaphore, Stopped};
use mainspring::{
    AwaitError, BlockingError, Budget, Capacity, Config, Cx, Exhaustion, NurseryOptions, Parker, Pool,
    Profile, Refusal, Runtime, TaskError,
};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

fn runtime(workers: usize) -> Runtime {
    Config::new(Profile::Cluster).workers(workers).build().unwrap()
}

/// Does something when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// How a task comes to unwind.
#[derive(Clone, Copy, Debug)]
enum Cause {
    Panic,
    Cancellation,
}

/// Runs `in_destructor` while a task unwinds, beside tasks that look whether their thread panics.
fn while_it_unwinds(workers: usize, cause: Cause, in_destructor: impl Fn(&Cx) + Sync) {
    let runtime = runtime(workers);
    let (ran, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let _ = runtime.run(|cx| {
        cx.nursery(|n| {
            for _ in 0..4 {
                n.start(|cx| {
                    while !is_over.load(Ordering::Relaxed) {
                        if std::thread::panicking() {
                            eprintln!("a task runs on a thread that panics");
                            std::process::abort();
                        }
                        cx.yield_now();
                    }
                })
                .unwrap();
            }
            let child = cx.nursery(|n| {
                let child = n
                    .spawn(|cx| {
                        let _at_the_end = OnDrop(|| {
                            assert!(std::thread::panicking());
                            in_destructor(cx);
                            ran.store(true, Ordering::Relaxed);
                        });
                        match cause {
                            Cause::Panic => resume_unwind(Box::new("a panic")),
                            Cause::Cancellation => cx.sleep(Duration::MAX),
                        }
                    })
                    .unwrap();
                (0..3).for_each(|_| cx.yield_now());
                child.cancel();
                let _ = child.join(cx);
            });
            drop(child);
            is_over.store(true, Ordering::Relaxed);
        })
    });
    assert!(ran.load(Ordering::Relaxed), "{cause:?}: the destructor did not come to its end");
}

fn both_causes(in_destructor: impl Fn(&Cx) + Sync) {
    for cause in [Cause::Panic, Cause::Cancellation] {
        [1, 2].into_iter().for_each(|workers| while_it_unwinds(workers, cause, &in_destructor));
    }
}

#[test]
fn yields_and_sleeps_in_a_destructor_return_at_once() {
    both_causes(|cx| {
        cx.yield_now();
        cx.sleep(Duration::MAX);
        cx.look_up();
        (0..10_000).for_each(|_| cx.check());
    });
}

#[test]
fn a_nursery_in_a_destructor_is_refused() {
    both_causes(|cx| {
        let refused = cx.nursery(|n| n.spawn(|_| ()).map(drop));
        assert!(matches!(refused.unwrap_err().error, TaskError::Unwinding));
    });
}

#[test]
fn a_wait_in_a_destructor_is_refused() {
    let (parker, semaphore, mutex) = (Parker::default(), Semaphore::new(1), Mutex::new(1));
    let (_held, _locked) = (semaphore.try_acquire(1).unwrap(), mutex.try_lock().unwrap());
    both_causes(|cx| {
        assert!(!parker.park(cx, None));
        assert!(matches!(semaphore.acquire(cx, 1), Err(AcquireError::Unwinding)));
        assert!(matches!(mutex.lock(cx), Err(AcquireError::Unwinding)));
        let (tx, rx) = cx.channel::<u8>(Capacity::Rendezvous).unwrap();
        assert_eq!(rx.recv(cx), Err(Refusal::Unwinding));
        assert_eq!(tx.send(cx, 1).unwrap_err().why, Refusal::Unwinding);
        assert_eq!(cx.blocking(|| ()), Err(BlockingError::Unwinding));
    });
}

#[test]
fn a_join_in_a_destructor_is_refused_unless_the_child_has_ended() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let looked = AtomicU32::new(0);
        let failed = runtime.run(|cx| {
            cx.nursery(|n| {
                let slow = n.spawn(|cx| cx.sleep(Duration::MAX)).unwrap();
                let quick = n.spawn(|_| 7).unwrap();
                while !quick.is_finished() {
                    cx.yield_now();
                }
                let mut handles = Some((slow, quick));
                let _at_the_end = OnDrop(|| {
                    let (slow, quick) = handles.take().unwrap();
                    assert!(matches!(slow.join(cx), Err(TaskError::Unwinding)));
                    assert!(matches!(quick.join(cx), Ok(7)));
                    looked.fetch_add(1, Ordering::Relaxed);
                });
                resume_unwind(Box::new("a panic"))
            })
        });
        assert!(matches!(failed, Err(TaskError::Panicked(text)) if text == "a panic"));
        assert_eq!(looked.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn both_halves_of_a_join_in_a_destructor_run_there() {
    both_causes(|cx| assert_eq!(cx.join(|_| 1, |_| 2), (1, 2)));
}

#[test]
fn a_future_that_is_ready_can_be_awaited_in_a_destructor() {
    both_causes(|cx| assert_eq!(cx.await_future(async { 3 }), Ok(3)));
}

const CHILD: &str = "MAINSPRING_UNWINDING_CHILD";

/// Runs the test `name` again as a process of its own, in which [`CHILD`] is set.
fn as_child(name: &str) -> (std::process::ExitStatus, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_future_that_would_wait_in_a_destructor_is_refused() {
    both_causes(|cx| {
        assert_eq!(cx.await_future(std::future::pending::<()>()), Err(AwaitError::Unwinding));
    });
}

#[test]
fn children_that_are_awaited_in_a_destructor_end_the_process_with_a_reason() {
    if std::env::var_os(CHILD).is_some() {
        let _ = runtime(1).run(|cx| {
            cx.nursery(|n| {
                n.start(|cx| cx.sleep(Duration::MAX)).unwrap();
                let _at_the_end = OnDrop(|| n.await_all(cx));
                resume_unwind(Box::new("a panic"))
            })
        });
        return;
    }
    let (status, stderr) =
        as_child("children_that_are_awaited_in_a_destructor_end_the_process_with_a_reason");
    assert_eq!(status.signal(), Some(6), "{status}\n{stderr}");
    assert!(stderr.contains("waits in a destructor while it unwinds"), "{stderr}");
    assert!(stderr.contains("Cx::with_cleanup"), "{stderr}");
}

#[test]
fn a_cancellation_is_no_panic_to_the_hook() {
    if std::env::var_os(CHILD).is_some() {
        std::panic::set_hook(Box::new(|_| std::process::exit(42)));
        for workers in [1, 2] {
            runtime(workers)
                .run(|cx| {
                    let ended = cx.nursery(|n| {
                        n.start(|cx| cx.sleep(Duration::MAX)).unwrap();
                        n.start(|cx| {
                            loop {
                                cx.check();
                            }
                        })
                        .unwrap();
                        cx.yield_now();
                        n.cancel();
                    });
                    assert!(matches!(ended.unwrap_err().error, TaskError::Cancelled));
                })
                .unwrap();
        }
        return;
    }
    let (status, stderr) = as_child("a_cancellation_is_no_panic_to_the_hook");
    assert!(status.success(), "{status}\n{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn a_mutex_of_tasks_is_not_poisoned_by_whoever_is_cancelled_or_panics_with_it() {
    let (runtime, mutex) = (runtime(2), Mutex::new(0));
    for cause in [Cause::Panic, Cause::Cancellation] {
        let _ = runtime.run(|cx| {
            cx.nursery(|n| {
                n.start(|cx| {
                    let mut value = mutex.lock(cx).unwrap();
                    *value += 1;
                    match cause {
                        Cause::Panic => resume_unwind(Box::new("a panic")),
                        Cause::Cancellation => cx.sleep(Duration::MAX),
                    }
                })
                .unwrap();
                while mutex.try_lock().is_some() {
                    cx.yield_now();
                }
                n.cancel();
            })
        });
    }
    assert_eq!(*mutex.try_lock().unwrap(), 2);
}

/// Cancels a task that does `work`, and waits for its end.
fn cancelled(work: impl FnOnce(&Cx) + Send) {
    let runtime = runtime(1);
    let ended = runtime.run(|cx| {
        cx.nursery(|n| {
            let child = n.spawn(work).unwrap();
            (0..3).for_each(|_| cx.yield_now());
            child.cancel();
            child.join(cx)
        })
    });
    assert!(matches!(ended, Ok(Ok(Err(TaskError::Cancelled)))), "{ended:?}");
}

#[test]
fn a_loop_that_catches_panics_cannot_swallow_a_cancellation() {
    cancelled(|cx| {
        loop {
            let _ = catch_unwind(AssertUnwindSafe(|| cx.yield_now()));
        }
    });
    cancelled(|cx| while catch_unwind(AssertUnwindSafe(|| cx.sleep(Duration::MAX))).is_err() {});
    cancelled(|cx| {
        loop {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| cx.check())) {
                // A server's way to go on after a request that failed.
                std::hint::black_box(payload.downcast_ref::<&str>());
            }
        }
    });
    // Caught where it is dropped, too.
    cancelled(|cx| {
        loop {
            let _ = catch_unwind(AssertUnwindSafe(|| {
                drop(catch_unwind(AssertUnwindSafe(|| cx.yield_now())));
            }));
        }
    });
}

#[test]
fn a_cancellation_that_is_kept_comes_again_at_every_yield_point_and_others_run_in_between() {
    // One worker: the flag is set only if the task that keeps its stops gives way.
    let runtime = runtime(1);
    let (flag, caught) = (AtomicBool::new(false), AtomicU32::new(0));
    let ended = runtime.run(|cx| {
        cx.nursery(|n| {
            let keeps = n
                .spawn(|cx| {
                    let mut kept = Vec::new();
                    while !flag.load(Ordering::Relaxed) {
                        // A stop comes before the wait.
                        if let Err(payload) =
                            catch_unwind(AssertUnwindSafe(|| cx.sleep(Duration::from_micros(1))))
                        {
                            kept.push(payload);
                            caught.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    kept.into_iter().for_each(std::mem::forget);
                })
                .unwrap();
            cx.yield_now();
            keeps.cancel();
            while caught.load(Ordering::Relaxed) < 10 {
                cx.yield_now();
            }
            flag.store(true, Ordering::Relaxed);
            // It was never anywhere but at yield points, and returned in the end.
            keeps.join(cx)
        })
    });
    assert!(matches!(ended, Ok(Ok(Ok(())))), "{ended:?}");
}

#[test]
fn a_task_that_ran_out_cannot_go_on_for_nothing_by_catching_that() {
    let runtime = runtime(1);
    let ended = runtime.run(|cx| {
        cx.nursery_with(NurseryOptions::new().on_exhausted(Exhaustion::Fail), |n| {
            n.builder()
                .budget(Budget { ops: 100, ..Budget::ZERO })
                .start(|cx| {
                    loop {
                        let _ = catch_unwind(AssertUnwindSafe(|| cx.check()));
                    }
                })
                .unwrap();
        })
    });
    let error = ended.unwrap().unwrap_err().error;
    assert!(matches!(error, TaskError::BudgetExhausted(_)), "{error}");
}

#[test]
fn a_stop_that_outlives_its_scope_stops_nobody() {
    let runtime = runtime(1);
    let kept = std::sync::Mutex::new(None);
    let ended = runtime.run(|cx| {
        let failed = cx.nursery(|n| {
            n.spawn_try(|_| Err::<(), _>("it failed")).unwrap();
            let stop = catch_unwind(AssertUnwindSafe(|| cx.sleep(Duration::MAX)));
            *kept.lock().unwrap() = stop.err();
        });
        assert!(matches!(failed.unwrap_err().error, TaskError::Failed(_)));
        // In the task that it was for, but the scope that failed is over.
        drop(kept.lock().unwrap().take());
        // In another task, and on another thread.
        let failed = cx.nursery(|n| {
            n.spawn_try(|_| Err::<(), _>("it failed")).unwrap();
            *kept.lock().unwrap() = catch_unwind(AssertUnwindSafe(|| cx.sleep(Duration::MAX))).err();
            let kept = &kept;
            std::thread::scope(|threads| threads.spawn(|| drop(kept.lock().unwrap().take())).join().unwrap());
            7
        });
        drop(failed);
        cx.yield_now();
        8
    });
    assert!(matches!(ended, Ok(8)), "{ended:?}");
}

scoped_tls::scoped_thread_local!(static LENT: Cx);

#[test]
fn a_cx_that_another_task_got_hold_of_acts_for_nobody() {
    let runtime = runtime(1);
    let parker = Parker::default();
    let semaphore = Semaphore::new(1);
    let refused = AtomicU32::new(0);
    fn ignore<T>(_: T) {}
    let attacks: &[&(dyn Fn(&Cx) + Sync)] = &[
        &|cx| cx.yield_now(),
        &|cx| cx.sleep(Duration::from_millis(1)),
        &|cx| ignore(parker.park(cx, None)),
        &|cx| ignore(semaphore.acquire(cx, 1)),
        &|cx| ignore(cx.channel::<u8>(Capacity::Rendezvous).unwrap().1.recv(cx)),
        &|cx| ignore(cx.nursery(|n| n.spawn(|_| ()).map(drop))),
        &|cx| ignore(cx.join(|_| 1, |_| 2)),
        &|cx| ignore(cx.await_future(std::future::pending::<()>())),
        &|cx| ignore(cx.blocking(|| ())),
        &|cx| (0..10_000).for_each(|_| cx.check()),
    ];
    let ended = runtime.run(|cx| {
        cx.nursery(|n| {
            n.start(|cx| LENT.set(cx, || assert!(parker.park(cx, None)))).unwrap();
            cx.yield_now();
            for attack in attacks {
                let (attack, refused) = (*attack, &refused);
                n.start(move |_| {
                    LENT.with(|lent| {
                        let caught = catch_unwind(AssertUnwindSafe(|| attack(lent)));
                        let payload = caught.expect_err("it acted for a task that does not run");
                        let text = payload.downcast_ref::<String>().expect("a message");
                        assert!(text.contains("while that task does not run"), "{text}");
                        refused.fetch_add(1, Ordering::Relaxed);
                    });
                })
                .unwrap();
            }
            while n.live() > 1 {
                cx.yield_now();
            }
            parker.unpark();
        })
    });
    assert!(matches!(ended, Ok(Ok(()))), "{ended:?}");
    assert_eq!(refused.load(Ordering::Relaxed) as usize, attacks.len());
}

/// An error whose text panics.
#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        resume_unwind(Box::new(OnDrop(|| resume_unwind(Box::new("and again")))))
    }
}

impl std::error::Error for Unspeakable {}

#[test]
fn an_error_whose_text_panics_is_an_error() {
    for workers in [1, 2] {
        let ended = runtime(workers).run(|cx| {
            cx.nursery(|n| {
                let child = n.spawn_try(|_| Err::<(), _>(Unspeakable)).unwrap();
                assert!(matches!(child.join(cx), Err(TaskError::Failed(_))));
            })
        });
        let error = ended.unwrap().unwrap_err().error;
        assert_eq!(error.to_string(), "an error whose text panicked");
    }
}

#[test]
fn a_child_of_another_runtime_can_be_joined() {
    let (ours, theirs) = (runtime(2), runtime(2));
    for _ in 0..100 {
        let ended = ours.run(|cx| {
            theirs.nursery(NurseryOptions::new(), |n| {
                let child = n.spawn(|cx| {
                    cx.yield_now();
                    7
                });
                n.start(|cx| cx.yield_now()).unwrap();
                let seven = child.unwrap().join(cx).unwrap();
                n.await_all(cx);
                assert_eq!(n.live(), 0);
                seven
            })
        });
        assert!(matches!(ended, Ok(Ok(7))), "{ended:?}");
    }
}

/// Cancels a task that waits, with this cleanup, and then does `behind`: what became of the task.
fn cancel_with<T: Send>(
    runtime: &Runtime,
    cleanup: impl Fn(&Cx) + Send + Sync,
    behind: impl FnOnce(&Cx) -> T + Send,
) -> Result<T, TaskError> {
    let ended = runtime.run(|cx| {
        let child = |cx: &Cx| {
            let stopped = catch_unwind(AssertUnwindSafe(|| {
                cx.with_cleanup(|cx| cx.sleep(Duration::MAX), |cx| cleanup(cx));
            }));
            // What it ended by is forgotten.
            std::mem::forget(stopped);
            behind(cx)
        };
        cx.nursery(|n| {
            // For the nurseries that it opens.
            let pool = Pool { ops: 10_000, spawn_count: 4, ..Pool::ZERO };
            let child = n.builder().pool(pool).spawn(child).unwrap();
            cx.sleep(Duration::from_millis(1));
            child.cancel();
            child.join(cx)
        })
    });
    ended.unwrap().unwrap()
}

#[test]
fn a_cleanup_that_panics_with_what_panics_when_dropped_hides_the_task_from_no_stop() {
    let ended = cancel_with(
        &runtime(1),
        |_| panic_any(OnDrop(|| panic!("once more"))),
        |cx| (0..100).for_each(|_| cx.yield_now()),
    );
    assert!(matches!(ended, Err(TaskError::Cancelled)), "{ended:?}");
}

#[test]
fn a_timeout_inside_of_a_cleanup_stops_what_it_is_for_and_the_cleanup_goes_on() {
    for workers in [1, 2] {
        let seen = std::sync::Mutex::new(Vec::new());
        let ended = cancel_with(
            &runtime(workers),
            |cx| {
                let note = |what| seen.lock().unwrap().push(what);
                note(cx.timeout(Duration::from_millis(1), |cx| cx.sleep(Duration::MAX)));
                // One inside of another, of which the outer one ends first.
                note(cx.timeout(Duration::from_millis(1), |cx| {
                    let _inner = cx.timeout(Duration::from_secs(3600), |cx| cx.sleep(Duration::MAX));
                }));
                // A child that fails stops the body of its nursery.
                let failed = cx.nursery(|n| {
                    n.spawn_try(|_| Err::<(), _>("it fails")).unwrap();
                    cx.sleep(Duration::MAX);
                });
                note(if failed.is_err() { Err(Stopped::Cancelled) } else { Ok(()) });
                cx.yield_now();
                note(Ok(()));
            },
            |cx| cx.yield_now(),
        );
        assert!(matches!(ended, Err(TaskError::Cancelled)), "{ended:?}");
        let late = Err(Stopped::TimedOut);
        assert_eq!(seen.into_inner().unwrap(), [late, late, Err(Stopped::Cancelled), Ok(())]);
    }
}

#[test]
fn both_halves_of_a_join_run_in_a_cleanup() {
    for workers in [1, 3] {
        let both = std::sync::Mutex::new(None);
        let half = |cx: &Cx| {
            cx.yield_now();
            cx.check();
            1
        };
        let ended = cancel_with(
            &runtime(workers),
            |cx| *both.lock().unwrap() = Some(cx.join(half, half)),
            |cx| cx.yield_now(),
        );
        assert!(matches!(ended, Err(TaskError::Cancelled)), "{ended:?}");
        assert_eq!(both.into_inner().unwrap(), Some((1, 1)));
    }
}

//= OWN:budget.conserve
#[test]
fn cleanups_inside_of_cleanups_have_no_more_ops_than_one() {
    /// Uses all that it has, and then what its cleanup has.
    fn use_up(cx: &Cx, depth: u32, used: &AtomicU32) {
        let loops = |cx: &Cx| loop {
            cx.check();
            used.fetch_add(1, Ordering::Relaxed);
        };
        if depth > 0 {
            cx.with_cleanup(loops, |cx| use_up(cx, depth - 1, used));
        }
    }
    let runtime = Config::new(Profile::Cluster).workers(1).cleanup_ops(1000).build().unwrap();
    let used = AtomicU32::new(0);
    runtime
        .run(|cx| {
            let cut = NurseryOptions::new().on_exhausted(Exhaustion::Cancel);
            cx.nursery_with(cut, |n| {
                let own = Budget { ops: 10, ..Budget::ZERO };
                n.builder().budget(own).start(|cx| use_up(cx, 10, &used)).unwrap();
            })
            .unwrap();
        })
        .unwrap();
    assert!((1000..=1010).contains(&used.load(Ordering::Relaxed)), "{used:?}");
}
