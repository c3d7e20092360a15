//! CPU time as authority: who may make a context, where it is, what it enforces, and how it ends.
//!
//! Debug builds also check after every operation that each context is in exactly one place.

use mainspring::context::{ContextState, Depleted, RevokeReason, SpecError};
use mainspring::{
    Budget, Caps, Config, ContextError, ContextInfo, CpuId, Cx, FairTaskSettings, NurseryOptions, Parker,
    Policy, Pool, Profile, Reservation, Runtime, SchedulingContext, SpawnError, TaskError, WorkerRecord,
};
use mainspring_random::{Random, Stream};
use mainspring_sched::Cpu;
use mainspring_sched::flight::{DecodeState, Outcome, Reader, read_record};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn caps() -> Caps {
    Caps::root(1000, Budget::MAX, Budget::ZERO, 100, 100)
}

fn config(workers: usize) -> Config {
    let settings =
        FairTaskSettings { threads: 64, contexts: 16, record_bytes: 8 << 20, ..FairTaskSettings::default() };
    let caps = caps().with_contexts(16, 4_000_000);
    Config::new(Profile::Cluster).workers(workers).root_caps(caps).fair_by_task(settings)
}

fn runtime(workers: usize) -> Runtime {
    config(workers).build().unwrap()
}

/// Runs the root task of a new runtime, and looks at the end whether what its cores decided replays.
fn run<T: Send>(workers: usize, f: impl FnOnce(&Cx) -> T + Send) -> T {
    let runtime = runtime(workers);
    let result = runtime.run(f).unwrap();
    replay(&runtime.close_record());
    result
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

/// Uses so much CPU time of its own.
fn burn(cx: &Cx, time: Duration) {
    let end = cx.cpu_time().unwrap() + time;
    while cx.cpu_time().unwrap() < end {
        cx.check();
        cx.look_up();
    }
}

/// Uses CPU time until the task's context was used up so often; without enforcement that would never be.
fn burn_until_depleted(cx: &Cx, times: u64) {
    while cx.context().unwrap().depletions < times && cx.cpu_time().unwrap() < ms(2000) {
        burn(cx, ms(1));
    }
}

/// What can have been used in `elapsed`, if nothing but the reported overshoot went beyond the budget.
fn most_used(info: &ContextInfo, elapsed: Duration) -> Duration {
    let periods = elapsed.as_nanos() / info.period.as_nanos() + 1;
    info.budget * u32::try_from(periods).unwrap()
        + info.overshoot * u32::try_from(info.depletions + 1).unwrap()
}

#[test]
fn a_hog_uses_its_budget_and_no_more_than_the_reported_overshoot() {
    for workers in [1, 2, 4] {
        let others = AtomicU64::new(0);
        let (info, elapsed) = run(workers, |cx| {
            let began = cx.now();
            let context = cx.create_context(Reservation::new(ms(2), ms(10)).on_worker(0)).unwrap();
            let done = AtomicBool::new(false);
            cx.nursery(|n| {
                n.start(|cx| {
                    while !done.load(Ordering::Relaxed) {
                        cx.check();
                        others.fetch_add(1, Ordering::Relaxed);
                    }
                })
                .unwrap();
                let hog = n.builder().context(&context).spawn(|cx| {
                    burn_until_depleted(cx, 5);
                    done.store(true, Ordering::Relaxed);
                });
                hog.unwrap().join(cx).unwrap();
                // The whole of its life, as the clock has it that charges.
                let info = context.info().unwrap();
                (info, cx.now() - began)
            })
            .unwrap()
        });
        assert!(info.depletions >= 5 && info.used >= ms(8), "all of it was charged to the context: {info:?}");
        let most = most_used(&info, elapsed);
        assert!(info.used <= most, "{:?} of at most {most:?} in {elapsed:?}: {info:?}", info.used);
        assert!(others.into_inner() > 0, "best effort goes on beside it");
    }
}

#[test]
fn a_context_that_goes_on_as_best_effort_is_charged_no_more_than_its_budget() {
    let (info, time, elapsed) = run(1, |cx| {
        let wish = Reservation::new(ms(1), ms(20)).when_depleted(Depleted::BestEffort);
        let context = cx.create_context(wish).unwrap();
        let began = cx.now();
        context.bind(cx).unwrap();
        burn(cx, ms(30));
        (context.info().unwrap(), cx.cpu_time().unwrap(), cx.now() - began)
    });
    let most = most_used(&info, elapsed);
    assert!(info.used <= most, "{:?} of at most {most:?}: {info:?}", info.used);
    assert!(info.depletions > 0 && time >= ms(30), "it went on: {info:?}");
}

#[test]
fn higher_bands_go_first_and_then_earlier_deadlines() {
    let order = Mutex::new(Vec::new());
    run(1, |cx| {
        let wishes = [
            ("late", Reservation::new(ms(100), ms(1000))),
            ("soon", Reservation::new(ms(100), ms(1000)).deadline(ms(400))),
            ("vital", Reservation::new(ms(100), ms(1000)).criticality(1)),
        ];
        let contexts: Vec<_> = wishes.map(|(_, wish)| cx.create_context(wish).unwrap()).into();
        let parkers: [Parker; 4] = Default::default();
        cx.nursery(|n| {
            let work = |at: usize, name| {
                let (order, parker) = (&order, &parkers[at]);
                move |cx: &Cx| {
                    parker.park(cx, None);
                    order.lock().unwrap().push(name);
                }
            };
            n.builder().start(work(3, "best effort")).unwrap();
            for (at, (name, _)) in wishes.into_iter().enumerate() {
                n.builder().context(&contexts[at]).start(work(at, name)).unwrap();
            }
            // All of them wait before any goes on.
            cx.sleep(ms(1));
            for at in [3, 0, 1, 2] {
                parkers[at].unpark();
            }
        })
        .unwrap();
    });
    assert_eq!(order.into_inner().unwrap(), ["vital", "soon", "late", "best effort"]);
}

#[test]
fn a_task_without_the_capability_makes_no_context_and_nobody_below_has_more_than_the_root() {
    run(2, |cx| {
        let wish = |share| Reservation::new(ms(share), ms(100));
        cx.nursery(|n| {
            let child = n.spawn(move |cx| cx.create_context(wish(1)).map(drop)).unwrap();
            assert_eq!(child.join(cx).unwrap(), Err(ContextError::NotPermitted), "it is not inherited");
            // A capability of its own making is worth what its spawner has.
            let granted = caps().with_contexts(2, 300_000);
            let pool = Pool { spawn_count: 1, ops: 1 << 20, ..Pool::ZERO };
            let child = n.builder().caps(granted).pool(pool).spawn(move |cx| {
                let first = cx.create_context(wish(20)).unwrap();
                let over = cx.create_context(wish(20)).map(drop);
                let limit =
                    ContextError::ShareLimit { asked: 200_000_000, held: 200_000_000, limit: 300_000_000 };
                assert_eq!(over, Err(limit));
                let second = cx.create_context(wish(5)).unwrap();
                let third = cx.create_context(wish(1)).map(drop);
                assert_eq!(third, Err(ContextError::ContextLimit { held: 2, limit: 2 }));
                drop(second);
                // Its own children have a part of what is left.
                cx.nursery(|n| {
                    let grown = caps().with_contexts(100, 1_000_000);
                    let below = n.builder().caps(grown).spawn(move |cx| {
                        assert_eq!(cx.caps().context().map(|cap| cap.share_ppm()), Some(300_000));
                        cx.create_context(wish(20)).map(drop)
                    });
                    assert_eq!(below.unwrap().join(cx).unwrap(), Err(limit), "the one above holds the rest");
                })
                .unwrap();
                first
            });
            // The context outlives the task that made it, and still counts.
            let kept: SchedulingContext = child.unwrap().join(cx).unwrap();
            assert_eq!(kept.info().unwrap().state, ContextState::AtRest);
            drop(kept);
        })
        .unwrap();
    });
}

#[test]
fn what_is_dropped_or_revoked_can_be_granted_again_and_nothing_more() {
    run(1, |cx| {
        let whole = Reservation::new(ms(95), ms(100));
        for _ in 0..40 {
            let context = cx.create_context(whole).unwrap();
            let refused = cx.create_context(Reservation::new(ms(1), ms(100))).map(drop);
            assert!(matches!(refused, Err(ContextError::NotAdmitted(_))), "the floor is kept: {refused:?}");
            context.revoke().unwrap();
            assert_eq!(context.revoke(), Err(ContextError::Revoked(RevokeReason::Explicit)));
            assert_eq!(context.info(), Err(ContextError::Revoked(RevokeReason::Explicit)));
            assert_eq!(context.bind(cx), Err(ContextError::Revoked(RevokeReason::Explicit)));
            assert_eq!(context.notices(), Err(ContextError::Revoked(RevokeReason::Explicit)));
            drop(cx.create_context(whole).unwrap());
        }
    });
}

#[test]
fn each_refusal_is_named() {
    let other = runtime(1);
    let foreign = other.create_context(Reservation::new(ms(1), ms(10))).unwrap();
    run(2, |cx| {
        let make = |budget, period| cx.create_context(Reservation::new(budget, period)).map(drop);
        assert_eq!(make(ms(0), ms(1)), Err(ContextError::Reservation(SpecError::ZeroBudget)));
        assert!(matches!(
            make(ms(2), ms(1)),
            Err(ContextError::Reservation(SpecError::OversizedBudget { .. }))
        ));
        assert!(matches!(
            make(ms(1), Duration::MAX),
            Err(ContextError::Reservation(SpecError::BadPeriod(_)))
        ));
        let nowhere = cx.create_context(Reservation::new(ms(1), ms(10)).on_worker(9)).map(drop);
        assert_eq!(nowhere, Err(ContextError::NoWorker(9)));
        assert_eq!(foreign.bind(cx), Err(ContextError::OtherRuntime));
        assert_eq!(foreign.unbind(cx), Err(ContextError::OtherRuntime));
        assert_eq!(foreign.wait_notices(cx, None), Err(ContextError::OtherRuntime));
        let here = cx.create_context(Reservation::new(ms(1), ms(10))).unwrap();
        let second = cx.create_context(Reservation::new(ms(1), ms(10))).unwrap();
        assert_eq!(here.info().unwrap().worker, cx.worker());
        let there = cx.create_context(Reservation::new(ms(1), ms(10)).on_worker(1 - cx.worker())).unwrap();
        assert_eq!(there.bind(cx), Err(ContextError::Elsewhere(1 - cx.worker())), "it must not move");
        here.bind(cx).unwrap();
        assert_eq!(second.bind(cx), Err(ContextError::HasOne));
        assert_eq!(second.unbind(cx), Ok(false));
        cx.nursery(|n| {
            let spawn = |context| n.builder().context(context).spawn(|_| ()).map(drop);
            assert_eq!(spawn(&foreign), Err(SpawnError::Context(ContextError::OtherRuntime)));
            assert_eq!(spawn(&here), Err(SpawnError::Context(ContextError::Busy)), "it is bound");
            let elsewhere = mainspring::Schedule {
                workers: Some([CpuId::new(cx.worker()).unwrap()].into_iter().collect()),
                ..Default::default()
            };
            let refused = n.builder().context(&there).schedule(elsewhere).spawn(|_| ()).map(drop);
            assert_eq!(refused, Err(SpawnError::Context(ContextError::Elsewhere(1 - cx.worker()))));
            // A refusal has set nothing aside.
            spawn(&there).unwrap();
        })
        .unwrap();
        assert_eq!(here.unbind(cx), Ok(true));
        assert_eq!(here.info().unwrap().state, ContextState::AtRest);
    });
    let few = FairTaskSettings { contexts: 1, ..FairTaskSettings::default() };
    let few = Config::new(Profile::Service).root_caps(caps().with_contexts(9, 1_000_000)).fair_by_task(few);
    few.build()
        .unwrap()
        .run(|cx| {
            let _one = cx.create_context(Reservation::new(ms(1), ms(10))).unwrap();
            let refused = cx.create_context(Reservation::new(ms(1), ms(10))).map(drop);
            assert_eq!(refused, Err(ContextError::Full(1)));
        })
        .unwrap();
    let stealing =
        Config::new(Profile::Service).root_caps(caps().with_contexts(1, 1_000_000)).build().unwrap();
    let refused = stealing.run(|cx| cx.create_context(Reservation::new(ms(1), ms(10))).map(drop)).unwrap();
    assert_eq!(refused, Err(ContextError::NoContexts));
}

#[test]
fn every_end_of_a_task_leaves_its_context_at_rest() {
    for workers in [1, 2] {
        run(workers, |cx| {
            let context = cx.create_context(Reservation::new(ms(5), ms(10))).unwrap();
            let spent = |end: &str| {
                let info = context.info().unwrap();
                assert_eq!((info.state, info.enforced), (ContextState::AtRest, false), "after {end}");
                info.used
            };
            let returned =
                cx.nursery(|n| n.builder().context(&context).spawn(|cx| burn(cx, ms(1))).map(drop));
            returned.unwrap().unwrap();
            let used = spent("a return");
            assert!(used >= ms(1));
            let panicked = cx.nursery(|n| {
                n.builder().context(&context).spawn(|_| panic!("on purpose")).map(drop).unwrap();
            });
            assert!(matches!(panicked.unwrap_err().error, TaskError::Panicked(_)));
            assert!(spent("a panic") >= used, "what was used stays used");
            let cancelled = cx.nursery(|n| {
                let parker = Parker::default();
                let child = n.builder().context(&context).spawn(move |cx| parker.park(cx, None)).unwrap();
                while context.info().unwrap().state != ContextState::Bound {
                    cx.sleep(ms(1));
                }
                n.cancel();
                child.join(cx).map(drop)
            });
            assert!(cancelled.is_err());
            spent("a cancellation");
            // One that never ran.
            let unborn = cx.nursery(|n| {
                n.builder().context(&context).spawn(|_| ()).map(drop).unwrap();
                n.cancel();
            });
            assert!(unborn.is_err());
            spent("a cancellation before the start");
        });
    }
}

#[test]
fn a_revoked_context_leaves_its_task_as_best_effort_and_tells_who_waits() {
    for workers in [1, 2] {
        run(workers, |cx| {
            let context = cx.create_context(Reservation::new(ms(1), ms(1000))).unwrap();
            let goes_on = Parker::default();
            cx.nursery(|n| {
                let (context, goes_on) = (&context, &goes_on);
                let holder = n.builder().context(context).spawn(move |cx| {
                    goes_on.unpark();
                    // Far more than its budget: it is throttled for most of a second unless somebody revokes the context.
                    while cx.context().is_some() && cx.cpu_time().unwrap() < ms(2000) {
                        burn(cx, ms(1));
                    }
                    cx.context()
                });
                let waiter = n.spawn(move |cx| {
                    let first = context.wait_notices(cx, None).unwrap();
                    assert!(first.depleted.is_some_and(|event| event.times > 0 && !event.on_loan));
                    context.revoke().unwrap();
                    context.wait_notices(cx, None)
                });
                goes_on.park(cx, None);
                let told = waiter.unwrap().join(cx).unwrap();
                assert_eq!(told, Err(ContextError::Revoked(RevokeReason::Explicit)));
                assert_eq!(holder.unwrap().join(cx).unwrap(), None, "it went on without");
            })
            .unwrap();
        });
    }
}

#[test]
fn one_task_waits_for_notices_at_a_time_and_a_timeout_finds_none() {
    run(1, |cx| {
        let context = cx.create_context(Reservation::new(ms(1), ms(10))).unwrap();
        assert_eq!(context.wait_notices(cx, Some(ms(1))), Ok(mainspring::context::Notices::default()));
        let revoked = cx.nursery(|n| {
            let context = &context;
            let waiter = n.spawn(move |cx| context.wait_notices(cx, None)).unwrap();
            cx.sleep(ms(1));
            while context.wait_notices(cx, Some(ms(1))) != Err(ContextError::Awaited) {
                cx.sleep(ms(1));
            }
            context.revoke().unwrap();
            waiter.join(cx).unwrap()
        });
        assert_eq!(revoked.unwrap(), Err(ContextError::Revoked(RevokeReason::Explicit)));
    });
}

/// A worker that sleeps wakes for the refill of a task of its own, though nobody else has anything for it.
#[test]
fn a_worker_with_nothing_but_a_throttled_task_sleeps_until_the_refill() {
    for workers in [1, 2] {
        run(workers, |cx| {
            let context = cx.create_context(Reservation::new(ms(1), ms(5))).unwrap();
            context.bind(cx).unwrap();
            burn_until_depleted(cx, 3);
            assert!(context.info().unwrap().depletions >= 3);
        });
    }
}

/// A task that is woken from another worker with a budget that is used up: its own worker sleeps, and learns of the refill.
#[test]
fn a_wake_of_a_throttled_task_tells_its_sleeping_worker() {
    run(2, |cx| {
        let there = 1 - cx.worker();
        let context = cx.create_context(Reservation::new(ms(1), ms(20)).on_worker(there)).unwrap();
        let parker = Parker::default();
        cx.nursery(|n| {
            let parker = &parker;
            let child = n.builder().context(&context).spawn(move |cx| {
                for _ in 0..5 {
                    parker.park(cx, None);
                    burn(cx, ms(1));
                }
            });
            let child = child.unwrap();
            while !child.is_finished() {
                parker.unpark();
                cx.sleep(ms(1));
            }
        })
        .unwrap();
        assert!(context.info().unwrap().depletions > 0);
    });
}

/// Where the model says that a context is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    AtRest,
    With(usize),
    Gone,
}

/// What a task of the model is asked to do.
#[derive(Clone, Copy, Debug)]
enum Order {
    Bind(usize),
    Unbind(usize),
    Burn,
    End,
}

/// Random programs: tasks on all workers bind, unbind, use up and lose contexts, one order at a time, and every answer is the
/// model's. Seeds are fixed; a failure names its own.
//= OWN:context.one-place
#[test]
fn contexts_are_where_a_model_says_under_random_programs() {
    for workers in 1..=4 {
        for seed in 0..6 {
            run(workers, |cx| random_program(cx, workers, seed));
        }
    }
}

const TASKS: usize = 6;
const CONTEXTS: usize = 4;

fn random_program(cx: &Cx, workers: usize, seed: u64) {
    let mut random = Random::new(seed, Stream::Thread(workers));
    let mut draw = |n: usize| random.below(n as u64) as usize;
    let on = |worker| Reservation::new(ms(1), ms(10)).on_worker(worker);
    let contexts: Vec<_> = (0..CONTEXTS).map(|c| cx.create_context(on(c % workers)).unwrap()).collect();
    let mut model = [Is::AtRest; CONTEXTS];
    let (answers, answered) =
        cx.channel::<Result<bool, ContextError>>(mainspring::Capacity::Bounded(1)).unwrap();
    cx.nursery_with(NurseryOptions::new(), |n| {
        let mut orders = Vec::new();
        for task in 0..TASKS {
            let (order, ordered) = cx.channel::<Order>(mainspring::Capacity::Bounded(1)).unwrap();
            let (contexts, answers) = (&contexts, answers.clone());
            let home = mainspring::Schedule {
                workers: Some([CpuId::new(task % workers).unwrap()].into_iter().collect()),
                ..Default::default()
            };
            let life = move |cx: &Cx| {
                while let Ok(order) = ordered.recv(cx) {
                    let answer = match order {
                        Order::Bind(which) => contexts[which].bind(cx).map(|()| true),
                        Order::Unbind(which) => contexts[which].unbind(cx),
                        Order::Burn => {
                            burn(cx, Duration::from_micros(300));
                            Ok(true)
                        }
                        Order::End => break,
                    };
                    answers.send(cx, answer).unwrap();
                }
            };
            n.builder().schedule(home).start(life).unwrap();
            orders.push(Some(order));
        }
        let mut alive = [true; TASKS];
        for step in 0..60 {
            let (task, which) = (draw(TASKS), draw(CONTEXTS));
            let has = model.contains(&Is::With(task));
            let gone = Err(ContextError::Revoked(RevokeReason::Explicit));
            let (order, expected) = match draw(12) {
                0..5 => {
                    let expected = match model[which] {
                        Is::Gone => gone,
                        Is::With(_) => Err(ContextError::Busy),
                        Is::AtRest if has => Err(ContextError::HasOne),
                        Is::AtRest if which % workers != task % workers => {
                            Err(ContextError::Elsewhere(which % workers))
                        }
                        Is::AtRest => Ok(true),
                    };
                    (Order::Bind(which), expected)
                }
                5..8 => match model[which] {
                    Is::Gone => (Order::Unbind(which), gone),
                    is => (Order::Unbind(which), Ok(is == Is::With(task))),
                },
                8..10 => (Order::Burn, Ok(true)),
                10 if step > 30 => {
                    let expected = if model[which] == Is::Gone { gone.map(drop) } else { Ok(()) };
                    assert_eq!(contexts[which].revoke(), expected, "seed {seed}, step {step}");
                    model[which] = Is::Gone;
                    continue;
                }
                _ => (Order::End, Ok(true)),
            };
            if !alive[task] {
                continue;
            }
            orders[task].as_ref().unwrap().send(cx, order).unwrap();
            if matches!(order, Order::End) {
                alive[task] = false;
                orders[task] = None;
                for is in model.iter_mut().filter(|is| **is == Is::With(task)) {
                    *is = Is::AtRest;
                }
                // It has ended when its context is at rest, if it had one.
                while has && contexts.iter().zip(model).any(|(context, is)| differs(context, is)) {
                    cx.sleep(Duration::from_micros(100));
                }
                continue;
            }
            let answer = answered.recv(cx).unwrap();
            assert_eq!(answer, expected, "seed {seed}, step {step}: {order:?} by {task}, {model:?}");
            match (order, answer) {
                (Order::Bind(which), Ok(_)) => model[which] = Is::With(task),
                (Order::Unbind(which), Ok(true)) => model[which] = Is::AtRest,
                _ => {}
            }
            for (which, (context, is)) in contexts.iter().zip(model).enumerate() {
                assert!(!differs(context, is), "seed {seed}, step {step}: context {which} is not {is:?}");
            }
        }
    })
    .unwrap();
    // All tasks have ended: nothing is with anybody, and all of the time can be granted again.
    for (context, is) in contexts.iter().zip(model) {
        assert!(!differs(context, if is == Is::Gone { Is::Gone } else { Is::AtRest }));
    }
    drop(contexts);
    for worker in 0..workers {
        drop(cx.create_context(Reservation::new(ms(95), ms(100)).on_worker(worker)).unwrap());
    }
}

fn differs(context: &SchedulingContext, is: Is) -> bool {
    match context.info() {
        Ok(info) => {
            let place = if info.enforced { ContextState::Bound } else { ContextState::AtRest };
            is == Is::Gone || info.state != place || info.enforced != matches!(is, Is::With(_))
        }
        Err(error) => is != Is::Gone || error != ContextError::Revoked(RevokeReason::Explicit),
    }
}
