//! A task that does not check is noticed, and does not hold up what need not wait for it.
//!
//! Tasks here spin until another task has run. Where nothing takes that one over, a test does not end.
#![allow(unsafe_code)]

use mainspring::{
    Config, ConfigError, Cx, FairTaskSettings, NurseryOptions, NurseryState, Overstay, Parker, Profile,
    Runtime, TaskError, Watchdog, Weight,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const OVERSTAY: Duration = Duration::from_millis(2);

fn watched(workers: usize, spare_workers: usize, cancels: bool) -> Config {
    Config::new(Profile::Cluster).workers(workers).watchdog(Some(Watchdog {
        overstay: OVERSTAY,
        spare_workers,
        cancels,
    }))
}

/// Without a check, until the flag is set.
fn spin(until: &AtomicBool) {
    while !until.load(Ordering::SeqCst) {
        std::hint::spin_loop();
    }
}

/// Waits for a report, as a thread that is no worker.
fn first_overstay(runtime: &Runtime) -> Overstay {
    loop {
        match runtime.take_overstays().first() {
            Some(first) => return *first,
            None => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}

#[test]
fn a_task_that_overstays_is_reported_by_name_and_counted() {
    for blocks in [false, true] {
        let runtime = watched(1, 0, false).build().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let spinning = threads.spawn(|| {
                runtime.run(|cx| {
                    let id = cx.nursery(|n| {
                        let hog = n.builder().name("hog").spawn(|cx| {
                            if blocks {
                                // A worker that a system call keeps is kept, too.
                                while !done.load(Ordering::SeqCst) {
                                    std::thread::sleep(Duration::from_millis(1));
                                }
                            } else {
                                spin(&done);
                            }
                            cx.id()
                        });
                        hog.unwrap().join(cx).unwrap()
                    });
                    id.unwrap()
                })
            });
            let overstay = first_overstay(&runtime);
            done.store(true, Ordering::SeqCst);
            let id = spinning.join().unwrap().unwrap();
            assert_eq!((overstay.task, overstay.name, overstay.worker), (id, Some("hog"), 0));
            assert!(overstay.time >= OVERSTAY && !overstay.cancelled);
        });
        assert!(runtime.worker_stats()[0].overstays >= 1);
        assert!(runtime.take_overstays().iter().all(|overstay| overstay.worker == 0));
    }
}

//= OWN:watchdog
#[test]
fn a_spare_worker_starts_what_has_not_started() {
    for tenants in [None, Some([Weight::DEFAULT; 2])] {
        for workers in [1, 2] {
            let config = watched(workers, 1, false);
            let runtime = match tenants {
                Some(tenants) => config.fair(&tenants).build(),
                None => config.build(),
            };
            let runtime = runtime.unwrap();
            assert_eq!(runtime.workers(), workers);
            let (ran, spinning) = (AtomicBool::new(false), AtomicU64::new(0));
            // From outside: what is spawned here is for any worker.
            let options = NurseryOptions::new();
            runtime
                .nursery(options, |n| {
                    for _ in 0..workers {
                        n.start(|_| {
                            spinning.fetch_add(1, Ordering::SeqCst);
                            spin(&ran);
                        })
                        .unwrap();
                    }
                    while spinning.load(Ordering::SeqCst) < workers as u64 {
                        std::thread::yield_now();
                    }
                    n.start(|cx| {
                        ran.store(true, Ordering::SeqCst);
                        // The second of two that spin may be on the spare one itself.
                        assert!(cx.worker() == 1 || workers == 2, "the other one is kept");
                    })
                    .unwrap();
                })
                .unwrap();
        }
    }
}

#[test]
fn children_of_a_task_that_overstays_are_taken_over() {
    let runtime = watched(1, 2, false).build().unwrap();
    let (ran, children) = (AtomicU64::new(0), 100);
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                for _ in 0..children {
                    n.start(|_| _ = ran.fetch_add(1, Ordering::SeqCst)).unwrap();
                }
                // Some may be in the worker's own hands.
                while ran.load(Ordering::SeqCst) < children / 2 {
                    std::hint::spin_loop();
                }
            })
            .unwrap();
        })
        .unwrap();
    assert_eq!(ran.into_inner(), children);
}

#[test]
fn a_timer_fires_while_every_worker_is_kept_and_a_task_that_may_move_goes_on() {
    // SAFETY: nothing of a thread crosses a yield point here.
    let config = unsafe { watched(1, 1, false).migrate_started_tasks() };
    let runtime = config.build().unwrap();
    let (woke, sleeps) = (AtomicBool::new(false), AtomicBool::new(false));
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                n.start(|cx| {
                    sleeps.store(true, Ordering::SeqCst);
                    cx.sleep(Duration::from_millis(5));
                    woke.store(true, Ordering::SeqCst);
                })
                .unwrap();
                while !sleeps.load(Ordering::SeqCst) {
                    cx.yield_now();
                }
                spin(&woke);
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn a_deadline_passes_while_every_worker_is_kept() {
    let runtime = watched(1, 0, false).build().unwrap();
    let over = AtomicBool::new(false);
    let options = NurseryOptions::new().deadline(Duration::from_millis(5));
    let ended = runtime.nursery(options, |n| {
        n.start(|_| spin(&over)).unwrap();
        // This thread looks at no timers.
        while n.state() == NurseryState::Open {
            std::thread::yield_now();
        }
        over.store(true, Ordering::SeqCst);
    });
    assert!(matches!(ended.map_err(|error| error.error), Err(TaskError::DeadlineExceeded)));
}

#[test]
fn a_spare_worker_keeps_the_tasks_that_started_on_it_and_retires_after_them() {
    let runtime = watched(1, 1, false).build().unwrap();
    for _ in 0..3 {
        let (started, go) = (AtomicBool::new(false), Parker::default());
        runtime
            .nursery(NurseryOptions::new(), |n| {
                n.start(|_| spin(&started)).unwrap();
                n.start(|cx| {
                    let thread = std::thread::current().id();
                    started.store(true, Ordering::SeqCst);
                    go.park(cx, None);
                    assert_eq!(std::thread::current().id(), thread, "it stays where it started");
                })
                .unwrap();
                while !started.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                // By now no task overstays.
                std::thread::sleep(Duration::from_millis(5));
                go.unpark();
            })
            .unwrap();
    }
}

#[test]
fn a_task_that_overstays_is_cancelled_at_its_next_check_and_no_other_is() {
    let runtime = watched(1, 0, true).build().unwrap();
    let noticed = AtomicBool::new(false);
    let others = AtomicU64::new(0);
    std::thread::scope(|threads| {
        let run = threads.spawn(|| {
            runtime.run(|cx| {
                cx.nursery(|n| {
                    let hog = n.spawn(|cx| {
                        spin(&noticed);
                        // 1,024 at most.
                        (0..100_000).for_each(|_| cx.check());
                    });
                    let ended = hog.unwrap().join(cx);
                    for _ in 0..100 {
                        n.spawn(|cx| {
                            (0..10_000).for_each(|_| cx.check());
                            others.fetch_add(1, Ordering::SeqCst);
                        })
                        .unwrap()
                        .join(cx)
                        .unwrap();
                    }
                    ended
                })
            })
        });
        let overstay = first_overstay(&runtime);
        assert!(overstay.cancelled);
        noticed.store(true, Ordering::SeqCst);
        let ended = run.join().unwrap().unwrap().unwrap();
        assert!(matches!(ended, Err(TaskError::Cancelled)), "{ended:?}");
    });
    assert_eq!(others.into_inner(), 100);
}

#[test]
fn what_the_monitor_took_from_a_worker_does_not_wait_behind_the_task_that_overstays_again() {
    const ROUNDS: u64 = 50;
    let runtime = watched(1, 0, false).fair(&[Weight::DEFAULT]).build().unwrap();
    let ran = AtomicBool::new(false);
    let overstays = || runtime.worker_stats()[0].overstays;
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                n.start(|_| ran.store(true, Ordering::SeqCst)).unwrap();
                let mut rounds = 0;
                while !ran.load(Ordering::SeqCst) && rounds < ROUNDS {
                    rounds += 1;
                    while overstays() < rounds {
                        std::thread::sleep(OVERSTAY);
                    }
                    // Looks after that in which it was noticed: by then the other one is in the global queue.
                    std::thread::sleep(2 * OVERSTAY);
                    cx.yield_now();
                }
                assert!(rounds < ROUNDS, "it never had a turn in {} stays", overstays());
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn what_the_monitor_took_from_a_worker_gets_its_turn_when_the_task_that_overstayed_only_checks() {
    // More checks than fit into a slice by far.
    const CHECKS: u32 = 20_000_000;
    let runtime = watched(1, 0, false).fair(&[Weight::DEFAULT]).build().unwrap();
    let ran = AtomicBool::new(false);
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                n.start(|_| ran.store(true, Ordering::SeqCst)).unwrap();
                while runtime.worker_stats()[0].overstays == 0 {
                    std::thread::sleep(OVERSTAY);
                }
                // By then the other one is in the global queue, for a worker that there is not.
                std::thread::sleep(2 * OVERSTAY);
                let gave_way = (0..CHECKS).any(|_| {
                    cx.check();
                    ran.load(Ordering::SeqCst)
                });
                assert!(gave_way, "it never had a turn");
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn what_it_is_charged_with_is_the_whole_time() {
    let settings = FairTaskSettings::default();
    let runtime = watched(1, 0, false).fair_by_task(settings).build().unwrap();
    let noticed = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let charged = threads.spawn(|| {
            runtime.run(|cx: &Cx| {
                let before = cx.cpu_time().unwrap();
                spin(&noticed);
                cx.cpu_time().unwrap() - before
            })
        });
        let overstay = first_overstay(&runtime);
        noticed.store(true, Ordering::SeqCst);
        assert!(charged.join().unwrap().unwrap() >= overstay.time);
    });
}

/// The tenant of a task that overstays has had its turn for as long: the other tenant has what it is owed before that one goes on. It is
/// owed as much, of which a busy host takes a part. Without the charge it would have one turn of 50 microseconds.
//= OWN:watchdog
#[test]
fn the_tenant_of_a_task_that_overstays_is_charged() {
    let runtime = watched(1, 0, false).fair(&[Weight::DEFAULT; 3]).build().unwrap();
    let (noticed, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let ran_ns = AtomicU64::new(0);
    let (kept, owed) = std::thread::scope(|threads| {
        let turns = threads.spawn(|| {
            runtime.run(|cx| {
                let (noticed, done, ran_ns) = (&noticed, &done, &ran_ns);
                cx.nursery(|n| {
                    let hog = n.builder().tenant(1).spawn(move |cx| {
                        while ran_ns.load(Ordering::SeqCst) == 0 {
                            cx.yield_now();
                        }
                        let began = Instant::now();
                        spin(noticed);
                        while began.elapsed() < 5 * OVERSTAY {}
                        let (kept, before) = (began.elapsed(), ran_ns.load(Ordering::SeqCst));
                        cx.yield_now();
                        let owed = Duration::from_nanos(ran_ns.load(Ordering::SeqCst) - before);
                        done.store(true, Ordering::SeqCst);
                        (kept, owed)
                    });
                    let other = n.builder().tenant(2).start(move |cx| {
                        while !done.load(Ordering::SeqCst) {
                            let began = Instant::now();
                            while began.elapsed() < Duration::from_micros(50) {}
                            ran_ns.fetch_add(began.elapsed().as_nanos() as u64, Ordering::SeqCst);
                            cx.yield_now();
                        }
                    });
                    other.unwrap();
                    hog.unwrap().join(cx).unwrap()
                })
                .unwrap()
            })
        });
        first_overstay(&runtime);
        noticed.store(true, Ordering::SeqCst);
        turns.join().unwrap().unwrap()
    });
    assert!(
        owed >= kept / 8,
        "it kept its worker for {kept:?}, and the other tenant had {owed:?} before its next turn"
    );
}

#[test]
fn settings_that_make_no_sense_are_refused_and_no_watchdog_is_one_too() {
    let with = |overstay, spare_workers| {
        let watchdog = Watchdog { overstay, spare_workers, cancels: false };
        Config::new(Profile::Service).workers(1).watchdog(Some(watchdog)).build()
    };
    for (overstay, spares) in [(Duration::ZERO, 0), (Duration::from_secs(61), 0), (OVERSTAY, 65)] {
        assert!(matches!(with(overstay, spares), Err(ConfigError::Watchdog)));
    }
    let runtime = Config::new(Profile::Service).workers(1).watchdog(None).build().unwrap();
    runtime.run(|_| std::thread::sleep(3 * OVERSTAY)).unwrap();
    assert_eq!(runtime.take_overstays(), []);
}
