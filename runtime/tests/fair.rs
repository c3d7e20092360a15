//! The fair discipline: by tenant, where tenants get their share, whatever the number of their tasks; and by task, where
//! each task is a thread of its worker's core, and what every core decided replays.
#![allow(unsafe_code)]

use mainspring::{
    Budget, Caps, Config, ConfigError, CpuId, CpuSet, Cx, FairTaskSettings, LatencyClass, Nanos, Parker,
    Policy, Pool, Profile, Schedule, SpawnError, TaskError, ThreadError, Weight, WorkerRecord,
};
use mainspring_sched::Cpu;
use mainspring_sched::flight::{DecodeState, Outcome, Reader, read_record};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn weight(weight: u64) -> Weight {
    Weight::new(weight).unwrap()
}

fn config(weights: &[u64]) -> Config {
    let weights: Vec<_> = weights.iter().map(|&n| weight(n)).collect();
    let caps = Caps::root(1000, Budget::MAX, Budget::ZERO, 10, 10);
    Config::new(Profile::Cluster).workers(1).root_caps(caps).fair(&weights)
}

fn spin(cx: &Cx, stop: &AtomicBool, total: &AtomicU64, used: &AtomicU64, until: u64) {
    while !stop.load(Ordering::Relaxed) {
        cx.check();
        used.fetch_add(1, Ordering::Relaxed);
        if total.fetch_add(1, Ordering::Relaxed) >= until {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn tenants_share_by_weight_and_not_by_number_of_tasks() {
    const TOTAL: u64 = 60_000_000;
    let runtime = config(&[64, 64, 192]).deterministic_seed(1).build().unwrap();
    let (stop, total) = (AtomicBool::new(false), AtomicU64::new(0));
    let used: [AtomicU64; 3] = Default::default();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                // The first has ten tasks, the second two, the third one.
                for (tenant, tasks) in [(0, 10), (1, 2), (2, 1)] {
                    for _ in 0..tasks {
                        let (stop, total, used) = (&stop, &total, &used[tenant]);
                        n.builder()
                            .tenant(tenant)
                            .budget(Budget { ops: u32::MAX, ..Budget::ZERO })
                            .spawn(move |cx| spin(cx, stop, total, used, TOTAL))
                            .unwrap();
                    }
                }
            })
            .unwrap();
        })
        .unwrap();
    let used = used.map(AtomicU64::into_inner);
    // The core's bound: within one quantum, 3,000,000 ops, of the share; and what a slice of checks adds.
    for (used, share) in used.into_iter().zip([TOTAL / 5, TOTAL / 5, TOTAL * 3 / 5]) {
        assert!(used.abs_diff(share) < 3_100_000, "{used} of {share}");
    }
}

#[test]
fn the_fair_discipline_runs_everything_that_stealing_does() {
    for workers in [1, 2, 4] {
        let runtime = config(&[64, 128]).workers(workers).build().unwrap();
        let sum = runtime
            .run(|cx| {
                let (tx, rx) = cx.channel::<u64>(mainspring::Capacity::Bounded(2)).unwrap();
                cx.nursery(|n| {
                    for i in 0..100 {
                        let tx = tx.clone();
                        n.builder()
                            .tenant(i as usize % 2)
                            .spawn(move |cx| {
                                cx.yield_now();
                                cx.sleep(std::time::Duration::from_micros(i % 20));
                                tx.send(cx, i).unwrap();
                            })
                            .unwrap();
                    }
                    drop(tx);
                    rx.iter(cx).sum::<Result<u64, _>>().unwrap()
                })
                .unwrap()
            })
            .unwrap();
        assert_eq!(sum, 4950);
    }
}

#[test]
fn children_are_their_spawners_tenants_and_unknown_tenants_are_refused() {
    let runtime = config(&[64]).build().unwrap();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                assert_eq!(n.builder().tenant(1).spawn(|_| ()).unwrap_err(), SpawnError::NoSuchTenant(1));
                n.builder().tenant(0).spawn(|_| ()).unwrap().join(cx).unwrap();
            })
            .unwrap();
        })
        .unwrap();
    assert!(matches!(config(&[]).build(), Err(ConfigError::Tenants)));
    let stealing = Config::new(Profile::Service).workers(1).build().unwrap();
    let refused = stealing.run(|cx| cx.nursery(|n| n.builder().tenant(0).spawn(|_| ()).map(drop)).unwrap());
    assert_eq!(refused.unwrap(), Err(SpawnError::NoSuchTenant(0)));
}

fn by_task(workers: usize, record_bytes: usize) -> Config {
    let caps = Caps::root(1000, Budget::MAX, Budget::ZERO, 10, 10);
    let settings = FairTaskSettings { threads: 64, record_bytes, ..FairTaskSettings::default() };
    Config::new(Profile::Cluster).workers(workers).root_caps(caps).fair_by_task(settings)
}

/// Makes each recorded decision again, on a core that knows nothing but the record.
fn replay(records: &[WorkerRecord]) -> u64 {
    let mut decisions = 0;
    for (number, record) in records.iter().enumerate() {
        assert_eq!(record.lost, 0, "no room for the whole record");
        let id = CpuId::new(number).unwrap();
        let mut cpu = Cpu::new(mainspring_sched::Config::new(id, Policy::Eevdf));
        cpu.reserve(64).unwrap();
        let (mut at, mut state) = (0, DecodeState::new());
        for _ in 0..record.records {
            let mut reader = Reader::new(&record.bytes[at..]);
            let (stamp, event, recorded) = read_record(&mut reader, &mut state).unwrap();
            at += reader.position();
            let now = stamp.now;
            assert_eq!(stamp.cpu, id);
            assert_eq!(cpu.apply(now, event).unwrap().0, recorded, "worker {number} at {now}");
            decisions += u64::from(matches!(recorded, Outcome::Decided(_)));
        }
        assert_eq!(at, record.bytes.len());
        assert!(record.end >= state.writer().last().now);
    }
    decisions
}

#[test]
fn by_task_runs_everything_that_stealing_does_and_its_record_replays() {
    for workers in [1, 2, 4] {
        let runtime = by_task(workers, 8 << 20).build().unwrap();
        let sum = runtime
            .run(|cx| {
                let (tx, rx) = cx.channel::<u64>(mainspring::Capacity::Bounded(2)).unwrap();
                cx.nursery(|n| {
                    for i in 0..50 {
                        let tx = tx.clone();
                        n.spawn(move |cx| {
                            cx.yield_now();
                            cx.sleep(std::time::Duration::from_micros(i % 20));
                            tx.send(cx, i).unwrap();
                        })
                        .unwrap();
                    }
                    drop(tx);
                    rx.iter(cx).sum::<Result<u64, _>>().unwrap()
                })
                .unwrap()
            })
            .unwrap();
        assert_eq!(sum, 1225);
        let records = runtime.close_record();
        assert_eq!(records.len(), workers);
        assert!(replay(&records) >= 51, "each task was chosen once at least");
        assert!(runtime.close_record().is_empty(), "handed out once");
    }
}

#[test]
fn a_task_runs_only_on_the_workers_that_it_may_use() {
    let runtime = by_task(4, 8 << 20).build().unwrap();
    let allowed =
        |numbers: &[usize]| Some(numbers.iter().map(|n| CpuId::new(*n).unwrap()).collect::<CpuSet>());
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                for i in 0..40_usize {
                    let workers = allowed(&[i % 4, (i + 1) % 4]);
                    let schedule = Schedule { workers, ..Schedule::default() };
                    n.builder()
                        .schedule(schedule)
                        .spawn(move |cx| {
                            for round in 0..50 {
                                assert!(
                                    [i % 4, (i + 1) % 4].contains(&cx.worker()),
                                    "worker {}",
                                    cx.worker()
                                );
                                if round % 5 == 0 {
                                    cx.sleep(std::time::Duration::from_micros(10));
                                } else {
                                    cx.yield_now();
                                }
                            }
                        })
                        .unwrap();
                }
            })
            .unwrap();
        })
        .unwrap();
    replay(&runtime.close_record());
}

#[test]
fn accounts_weights_and_thread_numbers_of_tasks() {
    let runtime = by_task(1, 1 << 20).build().unwrap();
    runtime
        .run(|cx| {
            let began = cx.now();
            cx.nursery(|n| {
                let heavy = Schedule { thread: Some(3), weight: weight(128), ..Schedule::default() };
                let first = n
                    .builder()
                    .schedule(heavy.clone())
                    .spawn(|cx| {
                        while cx.cpu_time().unwrap() < std::time::Duration::from_micros(200) {
                            cx.check();
                            cx.look_up();
                        }
                        assert!(cx.set_weight(weight(32)));
                        cx.cpu_time().unwrap()
                    })
                    .unwrap();
                let taken = n.builder().schedule(heavy.clone()).spawn(|_| ()).unwrap_err();
                assert_eq!(taken, SpawnError::Thread(ThreadError::Taken(3)));
                let used = first.join(cx).unwrap();
                assert!(used <= cx.now() - began, "no more than the time that passed");
                n.builder()
                    .schedule(heavy)
                    .spawn(|_| ())
                    .expect("the number is free again")
                    .join(cx)
                    .unwrap();
                // Leases and policies name tasks by their numbers: a child gives its children none.
                let pool = Pool { ops: 1000, spawn_count: 2, ..Pool::ZERO };
                let names = n.builder().pool(pool).spawn(|cx| {
                    let named = Schedule { thread: Some(3), ..Schedule::default() };
                    cx.nursery(|n| n.builder().schedule(named).spawn(|_| ()).map(drop).unwrap_err()).unwrap()
                });
                let refused = SpawnError::Thread(ThreadError::NotToChoose(3));
                assert_eq!(names.unwrap().join(cx).unwrap(), refused);
                for (schedule, error) in [
                    (Schedule { thread: Some(64), ..Schedule::default() }, ThreadError::OutOfRange(64)),
                    (
                        Schedule {
                            workers: Some([CpuId::new(1).unwrap()].into_iter().collect()),
                            ..Schedule::default()
                        },
                        ThreadError::NoWorker,
                    ),
                    (
                        Schedule { request: Some(Nanos::ZERO), ..Schedule::default() },
                        ThreadError::BadRequest(Nanos::ZERO),
                    ),
                ] {
                    assert_eq!(
                        n.builder().schedule(schedule).spawn(|_| ()).unwrap_err(),
                        SpawnError::Thread(error)
                    );
                }
            })
            .unwrap();
        })
        .unwrap();
    replay(&runtime.close_record());
}

#[test]
fn by_task_and_tenants_or_a_seed_do_not_mix() {
    assert!(matches!(by_task(1, 0).fair(&[weight(64)]).build(), Err(ConfigError::OneDiscipline)));
    assert!(matches!(by_task(1, 0).deterministic_seed(1).build(), Err(ConfigError::OneDiscipline)));
    let none = FairTaskSettings { threads: 0, ..FairTaskSettings::default() };
    assert!(matches!(Config::default().fair_by_task(none).build(), Err(ConfigError::Threads(0))));
    let still = FairTaskSettings { quantum: Nanos::ZERO, ..FairTaskSettings::default() };
    assert!(matches!(Config::default().fair_by_task(still).build(), Err(ConfigError::Quantum)));
    let endless = FairTaskSettings { quantum: Nanos::MAX, ..FairTaskSettings::default() };
    assert!(matches!(Config::default().fair_by_task(endless).build(), Err(ConfigError::Quantum)));
    let long = FairTaskSettings { record_bytes: usize::MAX, ..FairTaskSettings::default() };
    assert!(matches!(
        Config::default().fair_by_task(long).build(),
        Err(ConfigError::RecordBytes(usize::MAX))
    ));
    let many = FairTaskSettings { contexts: usize::MAX, ..FairTaskSettings::default() };
    assert!(matches!(Config::default().fair_by_task(many).build(), Err(ConfigError::Threads(_))));
    let stealing = Config::new(Profile::Service).workers(1).build().unwrap();
    let refused = stealing
        .run(|cx| cx.nursery(|n| n.builder().schedule(Schedule::default()).spawn(|_| ()).map(drop)).unwrap());
    assert_eq!(refused.unwrap(), Err(SpawnError::NotByTask));
}

#[test]
fn what_ends_badly_ends_on_its_core_too() {
    for workers in [1, 2] {
        let runtime = by_task(workers, 4 << 20).build().unwrap();
        let result = runtime.run(|cx| {
            let panicked = cx.nursery(|n| n.spawn(|_| panic!("as planned")).map(drop));
            assert!(matches!(panicked.unwrap_err().error, TaskError::Panicked(_)));
            // SAFETY: the task owns nothing.
            let killed = cx.nursery(|n| n.spawn(|cx| unsafe { cx.kill_worker() }).map(drop));
            assert!(matches!(killed.unwrap_err().error, TaskError::WorkerPanic));
            let cancelled = cx.nursery(|n| {
                for _ in 0..20 {
                    n.start(|cx| cx.sleep(std::time::Duration::from_secs(3600))).unwrap();
                }
                cx.yield_now();
                n.cancel();
            });
            assert!(matches!(cancelled.unwrap_err().error, TaskError::Cancelled));
            7
        });
        assert_eq!(result.unwrap(), 7);
        replay(&runtime.close_record());
    }
}

#[test]
fn a_task_hands_its_turn_to_the_one_it_wakes_wherever_that_slept() {
    for workers in [1, 2, 3] {
        let runtime = by_task(workers, 16 << 20).build().unwrap();
        let (ping, pong) = (Parker::default(), Parker::default());
        let only = |worker: usize| Some([CpuId::new(worker).unwrap()].into_iter().collect::<CpuSet>());
        runtime
            .run(|cx| {
                cx.nursery(|n| {
                    let (ping, pong) = (&ping, &pong);
                    // One that may move to its partner, and one that may not.
                    let fixed = Schedule { workers: only(workers - 1), ..Schedule::default() };
                    n.builder()
                        .schedule(fixed)
                        .start(move |cx| {
                            for _ in 0..500 {
                                assert!(ping.park(cx, None));
                                assert_eq!(cx.worker(), workers - 1);
                                pong.hand_over(cx);
                            }
                        })
                        .unwrap();
                    n.start(move |cx| {
                        for _ in 0..500 {
                            ping.hand_over(cx);
                            assert!(pong.park(cx, None));
                        }
                    })
                    .unwrap();
                })
                .unwrap();
            })
            .unwrap();
        replay(&runtime.close_record());
    }
}

#[test]
fn a_park_takes_one_unpark_that_may_come_before_it_or_not_at_all() {
    let runtime = by_task(2, 0).build().unwrap();
    let parker = Parker::default();
    runtime
        .run(|cx| {
            parker.unpark();
            parker.unpark();
            assert!(parker.park(cx, None), "remembered");
            assert!(!parker.park(cx, Some(std::time::Duration::from_millis(1))), "once");
            // Several wait at one place: each unpark lets one of them go.
            cx.nursery(|n| {
                let waiting: Vec<_> = (0..3).map(|_| n.spawn(|cx| parker.park(cx, None)).unwrap()).collect();
                while !waiting.iter().all(|one| one.is_finished()) {
                    parker.unpark();
                    cx.yield_now();
                }
                assert!(waiting.into_iter().all(|one| one.join(cx).unwrap()));
            })
            .unwrap();
            while parker.park(cx, Some(std::time::Duration::ZERO)) {}
            // A cancelled one leaves its place.
            let ended = cx.nursery(|n| {
                n.start(|cx| assert!(!parker.park(cx, None), "nobody unparks it")).unwrap();
                cx.sleep(std::time::Duration::from_millis(1));
                n.cancel();
            });
            assert!(matches!(ended.unwrap_err().error, TaskError::Cancelled));
            parker.unpark();
            assert!(parker.park(cx, None));
        })
        .unwrap();
}

#[test]
fn a_worker_that_may_not_steal_runs_what_is_meant_for_it_alone() {
    let runtime = by_task(2, 8 << 20).build().unwrap();
    assert!(runtime.set_steal_enabled(1, false));
    let ran_on: Vec<usize> = runtime
        .nursery(mainspring::NurseryOptions::default(), |n| {
            let start = |worker: usize| {
                let workers = Some([CpuId::new(worker).unwrap()].into_iter().collect::<CpuSet>());
                let schedule = Schedule { workers, ..Schedule::default() };
                n.builder().schedule(schedule).spawn(|cx| {
                    (0..20).for_each(|_| cx.yield_now());
                    cx.worker()
                })
            };
            let handles: Vec<_> = (0..20).map(|i| start(i % 2).unwrap()).collect();
            handles.into_iter().map(|one| one.wait().unwrap()).collect()
        })
        .unwrap();
    assert!(ran_on.iter().enumerate().all(|(i, worker)| *worker == i % 2));
    assert_eq!(runtime.worker_stats()[1].tasks_stolen, 0);
    replay(&runtime.close_record());
}

/// What a task without standing tries: more weight than it was given, and service sooner.
#[test]
fn a_task_gives_itself_and_its_children_no_more_weight_than_it_was_given() {
    let settings = FairTaskSettings { threads: 64, ..FairTaskSettings::default() };
    let runtime = Config::new(Profile::Cluster).workers(1).fair_by_task(settings).build().unwrap();
    let heavy = |w| Schedule { weight: weight(w), ..Schedule::default() };
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let budget = Budget { spawn_count: 100, channel_ops: 100, ..Budget::MAX };
                let budget = Budget { ops: 100_000, memory: 0, syscalls: 0, ..budget };
                let batch = Schedule { class: LatencyClass::Batch, ..heavy(32) };
                // The root gives any weight and any class.
                for schedule in
                    [heavy(1000), batch, Schedule { class: LatencyClass::Interactive, ..heavy(64) }]
                {
                    let (most, class) = (schedule.weight, schedule.class);
                    let tenant = n.builder().schedule(schedule).budget(budget).spawn(move |cx| {
                        assert!(!cx.set_weight(Weight::new(u64::from(most.get()) + 1).unwrap()));
                        assert!(cx.set_weight(weight(1)) && cx.set_weight(most));
                        cx.nursery(|n| {
                            let spawn =
                                |schedule| n.builder().schedule(schedule).spawn(|cx| cx.set_weight(most));
                            let asked = Weight::new(u64::from(most.get()) + 1).unwrap();
                            let refused = SpawnError::Thread(ThreadError::Weight { asked, most });
                            let more = Schedule { weight: asked, class, ..Schedule::default() };
                            assert_eq!(spawn(more.clone()).unwrap_err(), refused);
                            let hidden =
                                Schedule { weight: weight(1), most_weight: Some(asked), ..more.clone() };
                            assert_eq!(spawn(hidden).unwrap_err(), refused);
                            let eager =
                                Schedule { weight: weight(1), class: LatencyClass::Interactive, ..more };
                            let eager = spawn(eager).map(|child| child.join(cx).unwrap());
                            match class {
                                LatencyClass::Interactive => assert!(!eager.unwrap(), "its weight is 1"),
                                _ => assert_eq!(
                                    eager.unwrap_err(),
                                    SpawnError::Thread(ThreadError::Class(class))
                                ),
                            }
                            // One that is asked nothing gets the usual, or less.
                            let usual = n.spawn(|cx| cx.set_weight(weight(65))).unwrap();
                            assert!(!usual.join(cx).unwrap());
                        })
                        .unwrap();
                    });
                    tenant.unwrap().join(cx).unwrap();
                }
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn a_tenant_spawns_for_no_other_tenant() {
    let weights = [Weight::DEFAULT; 3];
    let runtime = Config::new(Profile::Cluster).workers(1).fair(&weights).build().unwrap();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let budget = Budget { ops: 100_000, spawn_count: 10, ..Budget::ZERO };
                let tenant = n.builder().tenant(1).budget(budget).spawn(|cx| {
                    cx.nursery(|n| {
                        for other in [0, 2] {
                            let refused = n.builder().tenant(other).spawn(|_| ()).unwrap_err();
                            assert_eq!(refused, SpawnError::OtherTenant(1));
                        }
                        n.builder().tenant(1).spawn(|_| ()).unwrap().join(cx).unwrap();
                    })
                    .unwrap();
                });
                tenant.unwrap().join(cx).unwrap();
            })
            .unwrap();
        })
        .unwrap();
}
