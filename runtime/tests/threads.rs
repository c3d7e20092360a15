//! What a task may assume about threads: it runs on one stack, on one thread, from its first instruction to its last.
#![allow(unsafe_code)]

use mainspring::{
    Budget, Capacity, Config, CpuId, CpuSet, Cx, Exhaustion, FairTaskSettings, NurseryOptions, Profile,
    Runtime, Schedule, Weight,
};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

const DISCIPLINES: [&str; 4] = ["plain", "fair by tenant", "fair by task", "virtual"];

fn runtime(discipline: &str, workers: usize) -> Runtime {
    let config = Config::new(Profile::Cluster).workers(workers);
    match discipline {
        "plain" => config,
        "fair by tenant" => config.fair(&[Weight::DEFAULT]),
        "fair by task" => config.fair_by_task(FairTaskSettings::default()),
        _ => config.deterministic_seed(5),
    }
    .build()
    .unwrap()
}

fn options() -> NurseryOptions {
    let refill = Budget { ops: 10_000, channel_ops: 1000, syscalls: 100, ..Budget::ZERO };
    NurseryOptions::new().on_exhausted(Exhaustion::Refill(refill))
}

/// The sleepers' timers fire on the worker of the task that yields, while the other worker looks for work.
#[test]
fn a_task_that_yields_beside_eight_that_sleep_is_on_one_stack() {
    for discipline in DISCIPLINES {
        let runtime = runtime(discipline, 2);
        let sleepers = AtomicUsize::new(8);
        let sleepers = &sleepers;
        runtime
            .run(|cx| {
                cx.nursery_with(options(), |n| {
                    for i in 0..8 {
                        n.start(move |cx| {
                            (0..100 + i).for_each(|_| cx.sleep(Duration::from_millis(1)));
                            sleepers.fetch_sub(1, Ordering::Relaxed);
                        })
                        .unwrap();
                    }
                    n.start(|cx| {
                        let mut own = [0u64; 16];
                        for turn in 1.. {
                            own.iter_mut().for_each(|value| *value += 1);
                            cx.yield_now();
                            assert!(own.iter().all(|&value| value == turn), "its frame is its own");
                            if sleepers.load(Ordering::Relaxed) == 0 {
                                break;
                            }
                            if discipline == "virtual" {
                                cx.sleep(Duration::from_micros(1));
                            }
                        }
                    })
                    .unwrap();
                })
                .unwrap();
            })
            .unwrap();
    }
}

thread_local! {
    static MARK: Cell<u64> = const { Cell::new(0) };
}

/// What a task can see of its thread. The address of the thread-local is taken where the compiler may keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    thread: ThreadId,
    local: usize,
    worker: usize,
}

fn look(cx: &Cx) -> Seen {
    Seen {
        thread: std::thread::current().id(),
        local: MARK.with(|mark| std::ptr::from_ref(mark) as usize),
        worker: cx.worker(),
    }
}

/// Runs `act` again and again, and looks before and after each time.
fn stays(cx: &Cx, times: u32, mut act: impl FnMut(u32)) {
    let first = look(cx);
    for i in 0..times {
        act(i);
        assert_eq!(look(cx), first, "after {i} of {times}");
    }
}

#[test]
fn a_started_task_stays_on_its_thread_whatever_it_waits_for() {
    for discipline in DISCIPLINES {
        for workers in [2, 4] {
            let runtime = runtime(discipline, workers);
            let lock = mainspring::sync::Mutex::new(0);
            let (to, at) = runtime.channel::<u32>(Capacity::Rendezvous);
            let (lock, to, at) = (&lock, &to, &at);
            runtime
                .run(|cx| {
                    cx.nursery_with(options(), |n| {
                        for i in 0..6u32 {
                            n.start(move |cx| stays(cx, 300, |_| cx.yield_now())).unwrap();
                            n.start(move |cx| {
                                stays(cx, 60, |j| cx.sleep(Duration::from_micros((i + j).into())));
                            })
                            .unwrap();
                            n.start(move |cx| stays(cx, 100, |j| to.send(cx, j).unwrap())).unwrap();
                            n.start(move |cx| stays(cx, 100, |_| _ = at.recv(cx).unwrap())).unwrap();
                            n.start(move |cx| {
                                stays(cx, 60, |_| {
                                    let mut held = lock.lock(cx).unwrap();
                                    *held += 1;
                                    cx.yield_now();
                                });
                            })
                            .unwrap();
                        }
                        n.builder()
                            .pool(mainspring::Pool {
                                spawn_count: 500,
                                ops: 1 << 22,
                                ..mainspring::Pool::ZERO
                            })
                            .start(|cx| {
                                stays(cx, 50, |_| {
                                    cx.nursery(|n| {
                                        let child = n.spawn(|cx| stays(cx, 3, |_| cx.yield_now())).unwrap();
                                        let sleeps =
                                            n.spawn(|cx| cx.sleep(Duration::from_secs(3600))).unwrap();
                                        child.join(cx).unwrap();
                                        assert!(sleeps.cancel());
                                        assert!(sleeps.join(cx).is_err());
                                    })
                                    .unwrap();
                                });
                            })
                            .unwrap();
                        n.start(|cx| {
                            stays(cx, 20, |i| assert_eq!(cx.blocking(move || i).unwrap(), i));
                        })
                        .unwrap();
                        n.start(|cx| {
                            stays(cx, 20, |i| {
                                let (a, b) = cx.join(|_| i, |_| i + 1);
                                assert_eq!((a, b), (i, i + 1));
                            });
                        })
                        .unwrap();
                    })
                    .unwrap_or_else(|error| panic!("{discipline}, {workers}: {error:?}"));
                })
                .unwrap();
            assert_eq!(*lock.try_lock().unwrap(), 6 * 60);
        }
    }
}

/// The scope keeps the handle of its thread, and its threads unpark that when they are done.
#[test]
fn scoped_threads_inside_of_a_task_that_yields_find_it_where_it_was() {
    for discipline in DISCIPLINES {
        let runtime = runtime(discipline, 2);
        let done = AtomicU32::new(0);
        let done = &done;
        runtime
            .run(|cx| {
                cx.nursery_with(options(), |n| {
                    for _ in 0..4 {
                        n.start(move |cx| {
                            for _ in 0..10 {
                                std::thread::scope(|threads| {
                                    threads.spawn(|| done.fetch_add(1, Ordering::Relaxed));
                                    for _ in 0..20 {
                                        cx.yield_now();
                                    }
                                });
                            }
                        })
                        .unwrap();
                    }
                })
                .unwrap();
            })
            .unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 40, "{discipline}");
    }
}

/// Each turn adds to a counter of its thread's, at an address that may have been computed before the loop.
#[test]
fn thread_locals_that_a_task_uses_around_yields_are_its_own_thread_s() {
    for discipline in DISCIPLINES {
        let runtime = runtime(discipline, 2);
        let wrong = AtomicU32::new(0);
        runtime
            .run(|cx| {
                cx.nursery_with(options(), |n| {
                    for _ in 0..8 {
                        n.start(|cx| {
                            for i in 0..2000u32 {
                                let before = MARK.replace(0x5eed_0000 + u64::from(i));
                                let found = MARK.get();
                                MARK.set(before);
                                wrong.fetch_add(
                                    u32::from(found != 0x5eed_0000 + u64::from(i)),
                                    Ordering::Relaxed,
                                );
                                if i % 64 == 0 {
                                    cx.sleep(Duration::from_micros(10));
                                }
                                cx.yield_now();
                            }
                        })
                        .unwrap();
                    }
                })
                .unwrap();
            })
            .unwrap();
        assert_eq!(wrong.into_inner(), 0, "{discipline}");
    }
}

/// The worker that a task takes down goes on with its other tasks, on the same thread.
//= SCHED:14.1.1d
#[test]
fn tasks_of_a_worker_that_dies_go_on_on_its_thread() {
    let runtime = runtime("plain", 2);
    let left = AtomicUsize::new(8);
    let left = &left;
    let ended = runtime.run(|cx| {
        cx.nursery_with(options(), |n| {
            for _ in 0..8 {
                n.start(move |cx| {
                    stays(cx, 200, |_| cx.yield_now());
                    left.fetch_sub(1, Ordering::Relaxed);
                })
                .unwrap();
            }
            for _ in 0..4 {
                let _ = cx.nursery(|n| {
                    n.start(|cx| {
                        cx.yield_now();
                        // SAFETY: the frames of the task own nothing that others refer to.
                        unsafe { cx.kill_worker() };
                    })
                    .unwrap();
                });
            }
        })
    });
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(left.load(Ordering::Relaxed), 0);
    assert!(runtime.worker_stats().iter().map(|stats| stats.deaths).sum::<u64>() >= 1);
}

/// Counts how often it is dropped.
struct Counted<'a>(&'a AtomicU32);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A child that has run, but was never left before, is Ready in a queue when its nursery is cancelled.
#[test]
fn what_a_child_captured_is_dropped_once_if_it_yields_in_its_first_turn_while_it_is_cancelled() {
    for discipline in DISCIPLINES {
        for workers in [1, 2, 4] {
            let runtime = runtime(discipline, workers);
            for round in 0..30u32 {
                let (captured, local) = (AtomicU32::new(0), AtomicU32::new(0));
                let ended = runtime.run(|cx| {
                    cx.nursery_with(options(), |n| {
                        for _ in 0..4 {
                            let capture = Counted(&captured);
                            let local = &local;
                            n.start(move |cx| {
                                let _capture = capture;
                                let _local = Counted(local);
                                loop {
                                    cx.yield_now();
                                }
                            })
                            .unwrap();
                        }
                        (0..round % 4).for_each(|_| cx.yield_now());
                        n.start(|_| panic!("the nursery fails")).unwrap();
                        if round % 2 == 0 {
                            cx.yield_now();
                        }
                        n.cancel();
                    })
                });
                assert!(ended.unwrap().is_err());
                assert_eq!(captured.into_inner(), 4, "{discipline}, {workers} workers, round {round}");
                assert!(local.into_inner() <= 4);
            }
        }
    }
}

/// A task that finds no stack ends with an error, and its handle and its nursery report that.
#[test]
fn a_task_without_a_stack_fails_and_drops_what_it_captured_once() {
    use mainspring::TaskError;
    for discipline in DISCIPLINES {
        for workers in [1, 2] {
            let config = Config::new(Profile::Cluster).workers(workers).max_stacks(4);
            let runtime = match discipline {
                "plain" => config,
                "fair by tenant" => config.fair(&[Weight::DEFAULT]),
                "fair by task" => config.fair_by_task(FairTaskSettings::default()),
                _ => config.deterministic_seed(5),
            }
            .build()
            .unwrap();
            let captured = AtomicU32::new(0);
            let (mut failed, mut made) = (0, 0);
            runtime
                .run(|cx| {
                    for _ in 0..8 {
                        let ended = cx.nursery_with(options(), |n| {
                            let mut handles = Vec::new();
                            for _ in 0..12 {
                                made += 1;
                                let capture = Counted(&captured);
                                let child = n.spawn(move |cx| {
                                    let _capture = capture;
                                    cx.sleep(Duration::from_micros(200));
                                });
                                match child {
                                    Ok(child) => handles.push(child),
                                    Err(_) => break,
                                }
                            }
                            for child in handles {
                                failed += u32::from(matches!(child.join(cx), Err(TaskError::NoStack)));
                            }
                        });
                        if let Err(error) = ended {
                            assert!(matches!(error.error, TaskError::NoStack), "{discipline}: {error:?}");
                            failed += 1;
                        }
                    }
                })
                .unwrap();
            assert!(failed > 0, "{discipline}, {workers}: twelve children on four stacks");
            assert_eq!(captured.into_inner(), made, "{discipline}, {workers}");
        }
    }
}

/// Stacks that one worker has used and needs no more are there for the other.
#[test]
fn stacks_that_a_worker_has_free_are_found_by_the_others() {
    const STACKS: usize = 6;
    let runtime = Config::new(Profile::Cluster)
        .workers(2)
        .max_stacks(STACKS)
        .fair_by_task(FairTaskSettings::default())
        .build()
        .unwrap();
    // As many as are left beside the root's. The other worker may keep one, and may be about to give its last task's back.
    for (worker, tasks) in [(0, STACKS - 1), (1, STACKS - 3)] {
        let begun = AtomicUsize::new(0);
        let ended = runtime.run(|cx| {
            cx.nursery_with(options(), |n| {
                let schedule = Schedule {
                    workers: Some(CpuSet::from_iter([CpuId::new(worker).unwrap()])),
                    ..Schedule::default()
                };
                for _ in 0..tasks {
                    n.builder()
                        .schedule(schedule.clone())
                        .start(|cx| {
                            begun.fetch_add(1, Ordering::Relaxed);
                            while begun.load(Ordering::Relaxed) < tasks {
                                cx.sleep(Duration::from_micros(50));
                            }
                        })
                        .unwrap();
                }
            })
        });
        ended.unwrap().unwrap_or_else(|error| panic!("worker {worker}: {error}"));
    }
}

/// Both drivers, and waits that end with bytes, with a time and with a connection.
#[test]
fn a_started_task_stays_on_its_thread_while_it_waits_for_sockets() {
    use mainspring::io::{IoDriver, TcpListener, TcpStream};
    for discipline in ["plain", "fair by tenant", "fair by task"] {
        for driver in [IoDriver::Epoll, IoDriver::Auto] {
            let config = Config::new(Profile::Cluster).workers(3).io(driver);
            let runtime = match discipline {
                "plain" => config,
                "fair by tenant" => config.fair(&[Weight::DEFAULT]),
                _ => config.fair_by_task(FairTaskSettings::default()),
            };
            let ended = runtime.build().unwrap().run(|cx| {
                let listener = TcpListener::bind(cx, "127.0.0.1:0").unwrap();
                let (address, listener) = (listener.local_addr().unwrap(), &listener);
                cx.nursery_with(options(), |n| {
                    for _ in 0..4 {
                        n.start(move |cx| {
                            stays(cx, 8, |_| {
                                let (stream, _) = listener.accept(cx).unwrap();
                                let mut byte = [0];
                                while stream.read_timeout(cx, &mut byte, Duration::from_micros(50)).is_err() {
                                }
                                stream.write_all(cx, &byte).unwrap();
                            });
                        })
                        .unwrap();
                        n.start(move |cx| {
                            stays(cx, 8, |i| {
                                let stream = TcpStream::connect(cx, address).unwrap();
                                cx.sleep(Duration::from_micros(100));
                                let mut byte = [0];
                                stream.write_all(cx, &[i as u8]).unwrap();
                                stream.read_exact(cx, &mut byte).unwrap();
                                assert_eq!(byte, [i as u8]);
                            });
                        })
                        .unwrap();
                    }
                })
            });
            ended.unwrap().unwrap_or_else(|error| panic!("{discipline}, {driver:?}: {error}"));
        }
    }
}
