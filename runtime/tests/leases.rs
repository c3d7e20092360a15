//! Workers that one task has to itself, the sessions that own leases and contexts, and contexts that are adjusted or at fault.
#![allow(unsafe_code)]

use mainspring::context::Depleted;
use mainspring::lease::{EndReason, GrantRefusal, Mode};
use mainspring::{
    Budget, Caps, Config, ContextError, CpuId, CpuSet, Cx, FairTaskSettings, LeaseError, LeaseRequest,
    Parker, Policy, Profile, Refusal, Reservation, Runtime, Schedule, SessionError, WorkerRecord,
};
use mainspring_random::{Random, Stream};
use mainspring_sched::Cpu;
use mainspring_sched::flight::{DecodeState, Outcome, Reader, read_record};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn only(worker: usize) -> CpuSet {
    [CpuId::new(worker).unwrap()].into_iter().collect()
}

fn config(workers: usize) -> Config {
    let settings = FairTaskSettings {
        threads: 64,
        contexts: 8,
        record_bytes: 8 << 20,
        leases: 4,
        sessions: 2,
        ..FairTaskSettings::default()
    };
    let caps = Caps::root(1000, Budget::MAX, Budget::ZERO, 100, 100).with_contexts(8, 1_000_000);
    Config::new(Profile::Cluster).workers(workers).root_caps(caps).fair_by_task(settings)
}

/// Started tasks may move, as in a host that makes sure of what that needs.
fn moving(workers: usize) -> Runtime {
    // SAFETY: the tasks here use no thread-local and hold no guard across a wait.
    unsafe { config(workers).migrate_started_tasks() }.build().unwrap()
}

fn replay(records: &[WorkerRecord]) {
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
            let outcome: Outcome = cpu.apply(stamp.now, event).unwrap().0;
            assert_eq!(outcome, recorded, "worker {number} at {}", stamp.now);
        }
        cpu.verify().unwrap();
    }
}

fn thread(number: usize) -> Schedule {
    Schedule { thread: Some(number), ..Schedule::default() }
}

/// Computes a little, so that others are looked up for.
fn spin(cx: &Cx, rounds: usize) {
    for _ in 0..rounds {
        cx.check();
        cx.look_up();
        std::hint::spin_loop();
    }
}

#[test]
fn a_lessee_has_its_worker_to_itself_and_others_leave_it() {
    let runtime = moving(2);
    let lease = runtime.lease(LeaseRequest::new(3, only(1))).unwrap();
    let lessee_on = Mutex::new(Vec::new());
    let others_on = Mutex::new(Vec::new());
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let lessee = n.builder().schedule(thread(3)).spawn(|cx| {
                    for _ in 0..50 {
                        spin(cx, 20);
                        lessee_on.lock().unwrap().push(cx.worker());
                        cx.yield_now();
                    }
                });
                for _ in 0..4 {
                    n.spawn(|cx| {
                        for _ in 0..50 {
                            spin(cx, 20);
                            let worker = cx.worker();
                            // Looked at afterwards: if it has not ended by now, it had not then.
                            if lease.ended().is_none() {
                                others_on.lock().unwrap().push(worker);
                            }
                            cx.yield_now();
                        }
                    })
                    .unwrap();
                }
                lessee.unwrap().join(cx).unwrap();
            })
            .unwrap();
        })
        .unwrap();
    assert!(lessee_on.lock().unwrap().iter().all(|worker| *worker == 1), "it is where its lease is");
    assert!(others_on.lock().unwrap().iter().all(|worker| *worker == 0), "they are not");
    // The task is over, and so is its lease.
    assert_eq!(lease.ended().map(|(reason, _)| reason), Some(EndReason::Revoked));
    replay(&runtime.close_record());
}

#[test]
fn threads_that_run_on_a_worker_leave_it_when_it_is_leased() {
    let runtime = moving(2);
    let (go, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let alone = AtomicUsize::new(0);
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                for _ in 0..4 {
                    n.spawn(|cx| {
                        while !done.load(Ordering::Acquire) {
                            spin(cx, 1);
                        }
                    })
                    .unwrap();
                }
                let lessee = n.builder().schedule(thread(9)).spawn(|cx| {
                    while !go.load(Ordering::Acquire) {
                        cx.sleep(ms(1));
                    }
                    // From the worker's next look on.
                    for _ in 0..1000 {
                        spin(cx, 1);
                        alone.fetch_add(usize::from(cx.worker() == 1), Ordering::Relaxed);
                    }
                    done.store(true, Ordering::Release);
                });
                cx.sleep(ms(5));
                let lease = runtime.lease(LeaseRequest::new(9, only(1))).unwrap();
                go.store(true, Ordering::Release);
                lessee.unwrap().join(cx).unwrap();
                drop(lease);
            })
            .unwrap();
        })
        .unwrap();
    assert!(alone.load(Ordering::Relaxed) > 0, "it came over");
    replay(&runtime.close_record());
}

#[test]
fn every_end_of_a_lease_is_told_once_and_the_next_can_be_had() {
    let runtime = moving(2);
    let session = runtime.open_session().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let request = || {
        let told = told.clone();
        LeaseRequest::new(5, only(1)).process(7).on_end(move |reason| told.lock().unwrap().push(reason))
    };
    runtime
        .run(|cx| {
            let revoked = runtime.lease(request()).unwrap();
            revoked.revoke().unwrap();
            assert_eq!(revoked.revoke(), Err(LeaseError::Ended));
            assert_eq!(revoked.ended().map(|(reason, _)| reason), Some(EndReason::Revoked));
            drop(revoked);
            runtime.lease(request()).unwrap().release();
            let of_process = runtime.lease(request()).unwrap();
            runtime.end_process(6);
            assert_eq!(of_process.ended(), None, "another process has ended");
            runtime.end_process(7);
            drop(of_process);
            let of_session = runtime.lease(request().session(session.name())).unwrap();
            session.logout().unwrap();
            drop(of_session);
            let mut replaced = runtime.lease(request()).unwrap();
            replaced.replace(request()).unwrap();
            assert_eq!(replaced.ended(), None, "it is the second");
            drop(replaced);
            let short = runtime.lease(request().lifetime(ms(2))).unwrap();
            while short.ended().is_none() {
                cx.sleep(ms(1));
            }
            drop(short);
        })
        .unwrap();
    use EndReason::{Expired, Logout, ProcessExit, Released, Revoked, Superseded};
    let expected = [Revoked, Released, ProcessExit, Logout, Superseded, Released, Expired];
    assert_eq!(*told.lock().unwrap(), expected);
    replay(&runtime.close_record());
}

#[test]
fn what_cannot_be_leased_is_refused_and_nothing_changes() {
    let runtime = config(2).build().unwrap();
    let both = CpuSet::first(2);
    let refused = |request| match runtime.lease(request) {
        Err(LeaseError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert!(
        matches!(refused(LeaseRequest::new(1, both)), GrantRefusal::Lease(_)),
        "one is for the housekeeping"
    );
    assert!(
        matches!(refused(LeaseRequest::new(1, CpuSet::EMPTY)), GrantRefusal::Lease(_)),
        "none is no worker"
    );
    assert!(
        matches!(refused(LeaseRequest::new(1, only(7))), GrantRefusal::Lease(_)),
        "there is no such worker"
    );
    assert_eq!(runtime.lease(LeaseRequest::new(64, only(1))).unwrap_err(), LeaseError::NoThread(64));
    let first = runtime.lease(LeaseRequest::new(1, only(1))).unwrap();
    assert!(matches!(refused(LeaseRequest::new(2, only(1))), GrantRefusal::Lease(_)), "it is taken");
    drop(first);
    drop(runtime.lease(LeaseRequest::new(2, only(1)).mode(Mode::KernelSqpoll)).unwrap());
    // A started task that must not move is refused any other worker.
    runtime
        .run(|cx| {
            let elsewhere = 1 - cx.worker();
            let me = cx.thread_number().unwrap();
            let refusal = runtime.lease(LeaseRequest::new(me, only(elsewhere)));
            assert_eq!(refusal.unwrap_err(), LeaseError::Refused(GrantRefusal::Affinity));
            drop(runtime.lease(LeaseRequest::new(me, only(cx.worker()))).unwrap());
        })
        .unwrap();
    let plain = Config::new(Profile::Service).workers(1).build().unwrap();
    assert_eq!(plain.lease(LeaseRequest::new(0, only(0))).unwrap_err(), LeaseError::NoLeases);
    assert_eq!(plain.open_session().unwrap_err(), SessionError::NoSessions);
}

#[test]
fn leases_come_and_go_under_load_and_nothing_is_lost() {
    for seed in 0..4 {
        let runtime = moving(3);
        let (parker, done) = (Parker::default(), AtomicUsize::new(0));
        let mut random = Random::new(seed, Stream::Thread(0));
        runtime
            .run(|cx| {
                cx.nursery(|n| {
                    for number in 0..12 {
                        let (parker, done) = (&parker, &done);
                        n.builder()
                            .schedule(thread(20 + number))
                            .spawn(move |cx| {
                                for round in 0..60 {
                                    match (number + round) % 4 {
                                        0 => cx.yield_now(),
                                        1 => cx.sleep(Duration::from_micros(50)),
                                        2 => _ = parker.park(cx, Some(Duration::from_micros(100))),
                                        _ => parker.unpark(),
                                    }
                                    spin(cx, 5);
                                }
                                done.fetch_add(1, Ordering::Relaxed);
                            })
                            .unwrap();
                    }
                    while done.load(Ordering::Relaxed) < 12 {
                        let draw = |random: &mut Random, below: u64| {
                            let range = mainspring_random::Range::new(
                                mainspring::Nanos::ZERO,
                                mainspring::Nanos::new(below - 1),
                            );
                            random.draw(range).get() as usize
                        };
                        let (lessee, worker) = (20 + draw(&mut random, 12), draw(&mut random, 3));
                        let lease = runtime.lease(LeaseRequest::new(lessee, only(worker)));
                        cx.sleep(Duration::from_micros(200));
                        if let (Ok(lease), true) = (lease, draw(&mut random, 2) == 0) {
                            let _ended = lease.revoke();
                        }
                    }
                })
                .unwrap();
            })
            .unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 12, "seed {seed}");
        replay(&runtime.close_record());
    }
}

#[test]
fn a_logout_takes_the_contexts_of_its_tasks_and_no_others() {
    let runtime = moving(1);
    let alice = runtime.open_session().unwrap();
    let bob = runtime.open_session().unwrap();
    assert_eq!(runtime.open_session().unwrap_err(), SessionError::Full(2));
    let context = || runtime.create_context(Reservation::new(ms(1), ms(10))).unwrap();
    let (hers, his) = (context(), context());
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                for (session, context) in [(&alice, &hers), (&bob, &his)] {
                    let schedule = Schedule { session: Some(session.name()), ..Schedule::default() };
                    n.builder().schedule(schedule).context(context).start(|cx| cx.sleep(ms(50))).unwrap();
                }
                cx.sleep(ms(5));
                assert_eq!(alice.logout().unwrap().contexts_revoked, 1);
            })
            .unwrap();
        })
        .unwrap();
    assert!(matches!(hers.info(), Err(ContextError::Revoked(_))));
    assert!(his.info().is_ok());
    assert_eq!(alice.logout().unwrap_err(), SessionError::Ended);
}

#[test]
fn an_adjustment_is_admitted_exactly_and_charged() {
    let runtime = config(1).build().unwrap();
    let first = runtime.create_context(Reservation::new(ms(3), ms(10))).unwrap();
    let second = runtime.create_context(Reservation::new(ms(3), ms(10))).unwrap();
    assert!(matches!(first.adjust(&runtime, ms(7), ms(10)), Err(ContextError::NotAdmitted(_))));
    assert_eq!(first.info().unwrap().budget, ms(3), "nothing has changed");
    first.adjust(&runtime, ms(6), ms(10)).unwrap();
    assert_eq!(first.info().unwrap().budget, ms(6));
    // The root has a whole worker to give: what was taken more is charged, and what is given back can be had again.
    assert!(runtime.create_context(Reservation::new(ms(2), ms(10))).is_err());
    first.adjust(&runtime, ms(1), ms(10)).unwrap();
    let third = runtime.create_context(Reservation::new(ms(5), ms(10))).unwrap();
    assert!(matches!(first.adjust(&runtime, ms(11), ms(10)), Err(ContextError::Reservation(_))));
    let other = config(1).build().unwrap();
    assert_eq!(first.adjust(&other, ms(1), ms(10)), Err(ContextError::OtherRuntime));
    drop((second, third));
}

#[test]
fn a_fault_is_told_with_the_task_that_ran() {
    let runtime = config(1).build().unwrap();
    let wish = Reservation::new(ms(1), ms(20)).when_depleted(Depleted::Fault);
    let context = runtime.create_context(wish).unwrap();
    let told = Arc::new(AtomicUsize::new(usize::MAX));
    let seen = told.clone();
    context.on_fault(move |thread| seen.store(thread, Ordering::Release));
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let schedule = thread(11);
                n.builder().schedule(schedule).context(&context).start(|cx| {
                    while told.load(Ordering::Acquire) == usize::MAX {
                        spin(cx, 10);
                    }
                })
            })
            .unwrap()
            .unwrap();
        })
        .unwrap();
    assert_eq!(told.load(Ordering::Acquire), 11);
}

#[test]
fn a_task_that_may_move_goes_to_where_its_context_is() {
    let runtime = moving(2);
    let context = runtime.create_context(Reservation::new(ms(1), ms(10)).on_worker(1)).unwrap();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let schedule = Schedule { workers: None, ..thread(4) };
                let bound = n.builder().schedule(schedule).spawn(|cx| {
                    for _ in 0..20 {
                        context.bind(cx).unwrap();
                        assert_eq!(cx.worker(), 1);
                        assert!(context.unbind(cx).unwrap());
                        cx.yield_now();
                    }
                });
                bound.unwrap().join(cx).unwrap();
            })
            .unwrap();
        })
        .unwrap();
    replay(&runtime.close_record());
    // One that must not move is told where it would have to be.
    let runtime = config(2).build().unwrap();
    runtime
        .run(|cx| {
            let elsewhere = 1 - cx.worker();
            let context =
                runtime.create_context(Reservation::new(ms(1), ms(10)).on_worker(elsewhere)).unwrap();
            assert_eq!(context.bind(cx), Err(ContextError::Elsewhere(elsewhere)));
        })
        .unwrap();
}

#[test]
fn a_server_that_waits_can_be_interrupted() {
    let runtime = config(1).build().unwrap();
    let endpoint = runtime.endpoint::<u32, u32>(true);
    assert!(!endpoint.interrupt(), "nobody waits");
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let served = endpoint.clone();
                let server = n.spawn(move |cx| {
                    assert_eq!(served.receive(cx).unwrap_err(), Refusal::Interrupted);
                    let (request, reply) = served.receive(cx).unwrap();
                    reply.send(cx, request + 1);
                });
                cx.sleep(ms(2));
                while !endpoint.interrupt() {
                    cx.sleep(ms(1));
                }
                assert_eq!(endpoint.call(cx, 1).unwrap(), 2);
                server.unwrap().join(cx).unwrap();
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn a_callback_that_panics_ends_neither_a_worker_nor_a_task() {
    let runtime = config(2).build().unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let panics = |told: &Arc<AtomicUsize>| {
        let told = told.clone();
        move || {
            told.fetch_add(1, Ordering::SeqCst);
            panic!("a panic of the host's");
        }
    };
    // A worker ends it, when its time is over.
    let tell = panics(&told);
    let request = LeaseRequest::new(7, only(1)).lifetime(ms(1)).on_end(move |_| tell());
    let lease = runtime.lease(request).unwrap();
    runtime
        .run(|cx| {
            while lease.ended().is_none() {
                cx.sleep(ms(1));
            }
            let wish = Reservation::new(Duration::from_micros(500), ms(5)).when_depleted(Depleted::Fault);
            let context = cx.create_context(wish).unwrap();
            let tell = panics(&told);
            context.on_fault(move |_| tell());
            cx.nursery(|n| {
                let used_up = told.load(Ordering::SeqCst);
                let told = &told;
                let spins = move |cx: &Cx| {
                    while told.load(Ordering::SeqCst) == used_up {
                        cx.look_up();
                    }
                };
                n.builder().context(&context).spawn(spins).unwrap().join(cx).unwrap();
            })
            .unwrap();
        })
        .unwrap();
    assert!(told.load(Ordering::SeqCst) >= 2);
    // Both workers are there.
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                for worker in 0..2 {
                    let schedule = Schedule { workers: Some(only(worker)), ..Schedule::default() };
                    let child = n.builder().schedule(schedule).spawn(|cx| cx.worker()).unwrap();
                    assert_eq!(child.join(cx).unwrap(), worker);
                }
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn a_callback_is_dropped_where_it_may_be_replaced() {
    struct Replaces(Arc<mainspring::SchedulingContext>);
    impl Drop for Replaces {
        fn drop(&mut self) {
            self.0.on_fault(|_| {});
        }
    }
    let runtime = config(1).build().unwrap();
    runtime
        .run(|cx| {
            let context = Arc::new(cx.create_context(Reservation::new(ms(1), ms(10))).unwrap());
            let replaces = Replaces(context.clone());
            context.on_fault(move |_| _ = &replaces);
            context.on_fault(|_| {});
        })
        .unwrap();
}

#[test]
fn a_lease_ends_by_itself_while_every_worker_sleeps() {
    for contexts in [0, 8] {
        let settings = FairTaskSettings { leases: 1, contexts, ..FairTaskSettings::default() };
        let runtime = Config::new(Profile::Service).workers(2).fair_by_task(settings).build().unwrap();
        runtime.run(|_| ()).unwrap();
        for _ in 0..20 {
            // By now they sleep, most likely.
            std::thread::sleep(ms(1));
            let lease = runtime.lease(LeaseRequest::new(7, only(1)).lifetime(ms(1))).unwrap();
            while lease.ended().is_none() {
                std::thread::sleep(ms(1));
            }
            assert_eq!(lease.ended().unwrap().0, EndReason::Expired);
        }
    }
}

#[test]
fn a_task_that_has_started_under_a_lease_stays_on_its_thread() {
    let runtime = config(3).build().unwrap();
    let both: CpuSet = [0, 1].into_iter().map(|worker| CpuId::new(worker).unwrap()).collect();
    for round in 0..20 {
        let lease = runtime.lease(LeaseRequest::new(7, both)).unwrap();
        let done = AtomicBool::new(false);
        runtime
            .run(|cx| {
                cx.nursery(|n| {
                    let schedule = Schedule { thread: Some(7), ..Schedule::default() };
                    let stays = |cx: &Cx| {
                        let thread = std::thread::current().id();
                        for _ in 0..100 {
                            cx.sleep(Duration::from_micros(20));
                            cx.yield_now();
                            assert_eq!(std::thread::current().id(), thread);
                        }
                    };
                    let child = n.builder().schedule(schedule).spawn(stays).unwrap();
                    for _ in 0..3 {
                        n.start(|cx| {
                            while !done.load(Ordering::SeqCst) {
                                cx.yield_now();
                            }
                        })
                        .unwrap();
                    }
                    (0..round).for_each(|_| cx.yield_now());
                    drop(lease);
                    child.join(cx).unwrap();
                    done.store(true, Ordering::SeqCst);
                })
                .unwrap();
            })
            .unwrap();
    }
}

#[test]
fn the_callback_of_a_lease_that_is_refused_is_dropped_where_it_may_panic() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("it is dropped");
        }
    }
    let runtime = config(2).build().unwrap();
    let bomb = Bomb;
    // All workers are more than a lease can have.
    let request = LeaseRequest::new(7, CpuSet::first(2)).on_end(move |_| _ = &bomb);
    assert!(catch_unwind(AssertUnwindSafe(|| runtime.lease(request).map(drop))).is_err());
    runtime.lease(LeaseRequest::new(7, only(1))).unwrap().release();
}
