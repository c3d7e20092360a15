//! Calls between tasks: each ends once, and a context that was lent is back with its caller on every end.
//!
//! Debug builds also check after every operation that each context is in exactly one place.
#![allow(unsafe_code)]

use mainspring::context::ContextState;
use mainspring::endpoint::{EndpointOptions, Reply, Request};
use mainspring::{
    Budget, CallRefusal, Capacity, Caps, Config, ContextError, CpuId, Cx, Endpoint, FairTaskSettings, Parker,
    Policy, Profile, Refusal, Reservation, Runtime, Schedule, SchedulingContext, Weight, WorkerRecord,
};
use mainspring_random::{Random, Stream};
use mainspring_sched::Cpu;
use mainspring_sched::flight::{DecodeState, Reader, read_record};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn plain(workers: usize) -> Config {
    let caps = Caps::root(1000, Budget::MAX, Budget::ZERO, 100, 100).with_contexts(16, 4_000_000);
    Config::new(Profile::Cluster).workers(workers).root_caps(caps)
}

fn with_contexts(workers: usize) -> Config {
    let settings =
        FairTaskSettings { threads: 64, contexts: 16, record_bytes: 8 << 20, ..FairTaskSettings::default() };
    plain(workers).fair_by_task(settings)
}

fn run<T: Send>(workers: usize, f: impl FnOnce(&Cx) -> T + Send) -> T {
    run_in(&with_contexts(workers).build().unwrap(), f)
}

fn run_in<T: Send>(runtime: &Runtime, f: impl FnOnce(&Cx) -> T + Send) -> T {
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
            assert_eq!(cpu.apply(stamp.now, event).unwrap().0, recorded, "worker {number} at {}", stamp.now);
        }
        cpu.verify().unwrap();
    }
}

fn on(worker: usize) -> Schedule {
    Schedule { workers: Some([CpuId::new(worker).unwrap()].into_iter().collect()), ..Schedule::default() }
}

/// Uses so much CPU time of its own.
fn burn(cx: &Cx, time: Duration) {
    let end = cx.cpu_time().unwrap() + time;
    while cx.cpu_time().unwrap() < end {
        cx.check();
        cx.look_up();
    }
}

#[test]
fn every_request_is_answered_once_under_every_discipline() {
    let settings = || FairTaskSettings { contexts: 4, ..FairTaskSettings::default() };
    let disciplines: [fn(Config) -> Config; 4] = [
        |config| config,
        |config| config.fair(&[Weight::new(64).unwrap()]),
        |config| config.deterministic_seed(5),
        |config| config,
    ];
    for (number, discipline) in disciplines.into_iter().enumerate() {
        for workers in [1, 2, 4] {
            let config = discipline(plain(workers));
            let config = if number == 3 { config.fair_by_task(settings()) } else { config };
            let served = AtomicU64::new(0);
            let sum = config.build().unwrap().run(|cx| {
                let squares = cx.endpoint::<u64, u64>().unwrap();
                cx.nursery(|n| {
                    for _ in 0..3 {
                        let (squares, served) = (squares.clone(), &served);
                        n.start(move |cx| {
                            while let Ok((x, reply)) = squares.receive(cx) {
                                served.fetch_add(1, Ordering::Relaxed);
                                if x % 3 == 0 {
                                    cx.yield_now();
                                }
                                assert!(reply.send(cx, x * x));
                            }
                        })
                        .unwrap();
                    }
                    let callers: Vec<_> = (0..5)
                        .map(|caller| {
                            let squares = squares.clone();
                            n.spawn(move |cx| {
                                (0..20).map(|i| squares.call(cx, caller * 20 + i).unwrap()).sum::<u64>()
                            })
                            .unwrap()
                        })
                        .collect();
                    let sum = callers.into_iter().map(|caller| caller.join(cx).unwrap()).sum::<u64>();
                    squares.close();
                    sum
                })
                .unwrap()
            });
            assert_eq!(sum.unwrap(), (0..100).map(|x| x * x).sum(), "{number}, {workers}");
            assert_eq!(served.into_inner(), 100);
        }
    }
}

#[test]
fn a_service_is_charged_to_the_callers_context_and_goes_before_best_effort() {
    for donates in [true, false] {
        let runtime = with_contexts(1).build().unwrap();
        let store = runtime.endpoint::<(), bool>(donates);
        let (during, used, after) = run_in(&runtime, |cx| {
            let context = cx.create_context(Reservation::new(ms(20), ms(50))).unwrap();
            let done = AtomicBool::new(false);
            cx.nursery(|n| {
                let (served, seen) = (store.clone(), &context);
                n.start(move |cx| {
                    while let Ok(((), reply)) = served.receive(cx) {
                        burn(cx, ms(1));
                        let on_loan = reply.is_on_loan() && seen.info().unwrap().state == ContextState::Lent;
                        reply.send(cx, on_loan);
                    }
                })
                .unwrap();
                n.start(|cx| {
                    while !done.load(Ordering::Relaxed) {
                        cx.check();
                    }
                })
                .unwrap();
                context.bind(cx).unwrap();
                let during: Vec<bool> = (0..5).map(|_| store.call(cx, ()).unwrap()).collect();
                done.store(true, Ordering::Relaxed);
                store.close();
                (during, context.info().unwrap().used_on_loan, context.info().unwrap().state)
            })
            .unwrap()
        });
        assert_eq!(during, [donates; 5]);
        assert_eq!(used >= ms(5), donates, "{used:?} was used on loan");
        assert_eq!(after, ContextState::Bound);
    }
}

/// What a server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Reply,
    Drop,
    Panic,
    /// Waits until it is told to go on, and then replies.
    Stall,
}

fn serve(cx: &Cx, endpoint: &Endpoint<Deed, bool>, goes_on: &Parker, began: &Parker) {
    while let Ok((deed, reply)) = endpoint.receive(cx) {
        let on_loan = reply.is_on_loan();
        match deed {
            Deed::Reply => _ = reply.send(cx, on_loan),
            Deed::Drop => drop(reply),
            Deed::Panic => panic!("on purpose"),
            Deed::Stall => {
                began.unpark();
                goes_on.park(cx, None);
                reply.send(cx, on_loan);
            }
        }
    }
}

/// With a server, and a caller that is bound to a context of the same worker.
fn with_server<T: Send>(
    workers: usize,
    f: impl FnOnce(&Cx, &Endpoint<Deed, bool>, &SchedulingContext, &Parker, &Parker) -> T + Send,
) -> T {
    run(workers, |cx| {
        let endpoint = cx.endpoint().unwrap();
        let context = cx.create_context(Reservation::new(ms(5), ms(10))).unwrap();
        let (goes_on, began) = (Parker::default(), Parker::default());
        let here = cx.worker();
        let mut result = None;
        // A server that panics fails its nursery.
        let _ = cx.nursery(|n| {
            let (served, goes_on, began) = (endpoint.clone(), &goes_on, &began);
            n.builder().schedule(on(here)).start(move |cx| serve(cx, &served, goes_on, began)).unwrap();
            context.bind(cx).unwrap();
            result = Some(f(cx, &endpoint, &context, goes_on, began));
            endpoint.close();
            goes_on.unpark();
        });
        result.expect("it was called")
    })
}

fn place(context: &SchedulingContext) -> ContextState {
    context.info().unwrap().state
}

#[test]
fn every_end_of_a_call_brings_the_context_back() {
    for workers in [1, 2] {
        with_server(workers, |cx, endpoint, context, goes_on, began| {
            assert!(endpoint.call(cx, Deed::Reply).unwrap());
            assert_eq!(place(context), ContextState::Bound, "after a reply");
            let dropped = endpoint.call(cx, Deed::Drop).unwrap_err();
            assert_eq!((dropped.why, dropped.request), (CallRefusal::ServerGone, None));
            assert_eq!(place(context), ContextState::Bound, "after a reply that was dropped");
            // The server sleeps on the loan, and the caller takes it back.
            loop {
                let late = endpoint.call_timeout(cx, Deed::Stall, ms(2)).unwrap_err();
                assert_eq!(late.why, CallRefusal::TimedOut);
                if late.request.is_none() {
                    break;
                }
            }
            assert_eq!(place(context), ContextState::Bound, "after a timeout");
            assert!(context.notices().unwrap().late.is_some(), "a timeout is told");
            began.park(cx, None);
            // Nobody takes this one.
            let untaken = endpoint.call_timeout(cx, Deed::Reply, ms(1)).unwrap_err();
            assert_eq!((untaken.why, untaken.request), (CallRefusal::TimedOut, Some(Deed::Reply)));
            assert_eq!(place(context), ContextState::Bound, "after a timeout in the queue");
            goes_on.unpark();
            assert!(endpoint.call(cx, Deed::Reply).unwrap(), "it serves on");
            endpoint.close();
            let closed = endpoint.call(cx, Deed::Reply).unwrap_err();
            assert_eq!((closed.why, closed.request), (CallRefusal::Closed, Some(Deed::Reply)));
            assert_eq!(place(context), ContextState::Bound, "after a call to a closed endpoint");
        });
        let panicked = with_server(workers, |cx, endpoint, context, _, _| {
            let panicked = endpoint.call(cx, Deed::Panic).unwrap_err().why;
            (panicked, place(context))
        });
        assert_eq!(panicked, (CallRefusal::ServerGone, ContextState::Bound));
        let closed = with_server(workers, |cx, endpoint, context, _, began| {
            cx.nursery(|n| {
                let closing = endpoint.clone();
                n.start(move |cx| {
                    began.park(cx, None);
                    closing.close();
                })
                .unwrap();
                (endpoint.call(cx, Deed::Stall).unwrap_err().why, place(context))
            })
            .unwrap()
        });
        assert_eq!(closed, (CallRefusal::Closed, ContextState::Bound), "while it was served");
    }
}

#[test]
fn a_caller_that_is_cancelled_or_a_context_that_is_revoked_leaves_nothing_lent() {
    for workers in [1, 2] {
        with_server(workers, |cx, endpoint, context, goes_on, began| {
            assert!(context.unbind(cx).unwrap());
            let cancelled = cx.nursery(|n| {
                let calling = endpoint.clone();
                n.builder().context(context).start(move |cx| _ = calling.call(cx, Deed::Stall)).unwrap();
                began.park(cx, None);
                assert_eq!(place(context), ContextState::Lent);
                n.cancel();
            });
            assert!(cancelled.is_err());
            assert_eq!(place(context), ContextState::AtRest, "its task has ended");
            goes_on.unpark();
            context.bind(cx).unwrap();
            // The server has it when it is revoked: the call goes on without.
            let answer = cx.nursery(|n| {
                n.start(move |cx| {
                    began.park(cx, None);
                    context.revoke().unwrap();
                    goes_on.unpark();
                })
                .unwrap();
                endpoint.call(cx, Deed::Stall).unwrap()
            });
            assert!(answer.unwrap());
            assert!(matches!(context.info(), Err(ContextError::Revoked(_))));
            assert_eq!(cx.context(), None);
            assert!(!endpoint.call(cx, Deed::Reply).unwrap(), "there is nothing to lend");
        });
    }
}

#[test]
fn a_loan_goes_along_a_chain_of_calls_and_a_chain_that_is_too_long_is_refused() {
    for links in [1, 4, 8, 9, 12] {
        let (answer, place) = run(1, |cx| {
            let chain: Vec<Endpoint<(), Result<usize, CallRefusal>>> =
                (0..links).map(|_| cx.endpoint().unwrap()).collect();
            let context = cx.create_context(Reservation::new(ms(5), ms(10))).unwrap();
            cx.nursery(|n| {
                for link in 0..links {
                    let (served, next) = (chain[link].clone(), chain.get(link + 1).cloned());
                    n.start(move |cx| {
                        while let Ok(((), reply)) = served.receive(cx) {
                            let mine = usize::from(reply.is_on_loan());
                            let below = next.as_ref().map_or(Ok(0), |next| {
                                next.call(cx, ()).unwrap_or_else(|error| Err(error.why))
                            });
                            reply.send(cx, below.map(|below| below + mine));
                        }
                    })
                    .unwrap();
                }
                context.bind(cx).unwrap();
                let answer = chain[0].call(cx, ()).unwrap();
                chain.iter().for_each(Endpoint::close);
                (answer, place(&context))
            })
            .unwrap()
        });
        let expected = if links <= 8 { Ok(links) } else { Err(CallRefusal::Chain) };
        assert_eq!((answer, place), (expected, ContextState::Bound), "{links}");
    }
}

/// An answer whose destructor uses the endpoint, or panics.
struct Answer {
    endpoint: Endpoint<(), Answer>,
    panics: bool,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.endpoint.close();
        assert!(!self.panics, "on purpose");
    }
}

#[test]
fn an_answer_that_comes_too_late_is_dropped_where_its_destructor_may_do_anything() {
    for panics in [false, true] {
        run(1, |cx| {
            let endpoint = cx.endpoint::<(), Answer>().unwrap();
            let served = endpoint.clone();
            let failed = cx.nursery(|n| {
                let server = n.spawn(move |cx| {
                    let ((), reply) = served.receive(cx).unwrap();
                    while !reply.is_over() {
                        cx.yield_now();
                    }
                    let endpoint = served.clone();
                    assert!(!reply.send(cx, Answer { endpoint, panics }));
                });
                while endpoint.call_timeout(cx, (), ms(1)).is_err_and(|error| error.request.is_some()) {}
                server.unwrap().join(cx)
            });
            assert_eq!(failed.is_err(), panics, "the panic is its task's");
            // No lock is left behind, held or poisoned.
            assert_eq!(endpoint.call(cx, ()).map_err(|error| error.why).err(), Some(CallRefusal::Closed));
        });
    }
}

#[test]
fn an_endpoint_of_another_runtime_is_refused() {
    let other = with_contexts(1).build().unwrap();
    let foreign = other.endpoint::<u32, u32>(true);
    run(1, |cx| {
        let refused = foreign.call(cx, 7).unwrap_err();
        assert_eq!((refused.why, refused.request), (CallRefusal::OtherRuntime, Some(7)));
        assert!(foreign.receive(cx).is_err());
    });
}

/// Started tasks move: the server comes to the worker of the caller's context.
#[test]
fn where_tasks_may_move_the_server_comes_to_the_context() {
    for busy in [false, true] {
        // SAFETY: nothing of a thread crosses a yield point in this test's tasks.
        let runtime = unsafe { with_contexts(2).migrate_started_tasks() }.build().unwrap();
        let store = runtime.endpoint::<(), (bool, usize)>(true);
        let ready = Parker::default();
        let served = run_in(&runtime, |cx| {
            let context = cx.create_context(Reservation::new(ms(5), ms(10)).on_worker(0)).unwrap();
            cx.nursery(|n| {
                let (endpoint, ready) = (store.clone(), &ready);
                n.start(move |cx| {
                    ready.unpark();
                    if busy {
                        // It takes the request out of the queue, wherever it runs by then.
                        cx.sleep(ms(3));
                    }
                    while let Ok(((), reply)) = endpoint.receive(cx) {
                        burn(cx, Duration::from_micros(200));
                        let seen = (reply.is_on_loan(), cx.worker());
                        reply.send(cx, seen);
                    }
                })
                .unwrap();
                let calling = store.clone();
                let caller = n.builder().context(&context).spawn(move |cx| {
                    ready.park(cx, None);
                    (0..10).map(|_| calling.call(cx, ()).unwrap()).collect::<Vec<_>>()
                });
                let served = caller.unwrap().join(cx).unwrap();
                store.close();
                served
            })
            .unwrap()
        });
        assert_eq!(served, [(true, 0); 10], "busy: {busy}");
    }
}

/// Random programs: callers with and without contexts call servers on all workers, which answer, drop, call on, or keep the caller
/// waiting until its time is over. What is lent, and where each context is afterwards, is what the model says.
//= OWN:context.one-place
#[test]
fn loans_are_where_a_model_says_under_random_programs() {
    for workers in 1..=4 {
        for seed in 0..5 {
            run(workers, |cx| random_program(cx, workers, seed));
        }
    }
}

const PAIRS: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Ask {
    deed: Deed,
    /// It calls this one first, and asks it for the same.
    via: Option<usize>,
}

fn random_program(cx: &Cx, workers: usize, seed: u64) {
    let mut random = Random::new(seed, Stream::Thread(workers));
    let mut draw = |n: usize| random.below(n as u64) as usize;
    let endpoints: Vec<Endpoint<Ask, Vec<bool>>> = (0..PAIRS).map(|_| cx.endpoint().unwrap()).collect();
    let reservation = |worker| Reservation::new(ms(2), ms(10)).on_worker(worker);
    let contexts: Vec<_> =
        (0..PAIRS).map(|which| cx.create_context(reservation(which % workers)).unwrap()).collect();
    let (answers, answered) = cx.channel(Capacity::Bounded(1)).unwrap();
    let served = |cx: &Cx, ask: Ask, reply: Reply<Ask, Vec<bool>>| {
        let mut seen = vec![reply.is_on_loan()];
        if let Some(next) = ask.via {
            let further = endpoints[next].call(cx, Ask { deed: Deed::Reply, via: None });
            seen.extend(further.unwrap());
        }
        match ask.deed {
            Deed::Reply | Deed::Panic => _ = reply.send(cx, seen),
            Deed::Drop => drop(reply),
            Deed::Stall => {
                while !reply.is_over() {
                    cx.sleep(Duration::from_micros(200));
                }
                assert!(!reply.send(cx, seen));
            }
        }
    };
    cx.nursery(|n| {
        let (endpoints, contexts, served) = (&endpoints, &contexts, &served);
        for (which, endpoint) in endpoints.iter().enumerate() {
            let life = move |cx: &Cx| {
                while let Ok((ask, reply)) = endpoint.receive(cx) {
                    served(cx, ask, reply);
                }
            };
            n.builder().schedule(on(which % workers)).start(life).unwrap();
        }
        let mut orders = Vec::new();
        for (caller, context) in contexts.iter().enumerate() {
            let (order, ordered) = cx.channel::<(usize, Ask)>(Capacity::Bounded(1)).unwrap();
            let answers = answers.clone();
            let life = move |cx: &Cx| {
                // The last one has no context.
                if caller + 1 < PAIRS {
                    context.bind(cx).unwrap();
                }
                answers.send(cx, Ok(Vec::new())).unwrap();
                while let Ok((to, ask)) = ordered.recv(cx) {
                    let answer = match ask.deed {
                        Deed::Stall => endpoints[to].call_timeout(cx, ask, ms(1)),
                        _ => endpoints[to].call(cx, ask),
                    };
                    answers.send(cx, answer.map_err(|error| error.why)).unwrap();
                }
            };
            n.builder().schedule(on(caller % workers)).start(life).unwrap();
            orders.push(order);
        }
        for _ in 0..PAIRS {
            assert_eq!(answered.recv(cx).unwrap(), Ok(Vec::new()), "it is bound");
        }
        for step in 0..60 {
            let (caller, to) = (draw(PAIRS), draw(PAIRS));
            let deed = [Deed::Reply, Deed::Reply, Deed::Drop, Deed::Stall][draw(4)];
            let via = Some(draw(PAIRS)).filter(|next| *next != to && step % 2 == 0);
            let ask = Ask { deed, via };
            orders[caller].send(cx, (to, ask)).unwrap();
            let answer = answered.recv(cx).unwrap();
            // A task that has started stays on its worker, so it serves on a loan only where the context is.
            let lends = |server: usize| caller + 1 < PAIRS && server % workers == caller % workers;
            let expected = match deed {
                Deed::Drop => Err(CallRefusal::ServerGone),
                Deed::Stall => Err(CallRefusal::TimedOut),
                Deed::Reply | Deed::Panic => {
                    // What the first server has, it lends on.
                    let first = lends(to);
                    Ok([Some(first), via.map(|next| first && lends(next))].into_iter().flatten().collect())
                }
            };
            assert_eq!(answer, expected, "seed {seed}, step {step}: {ask:?} by {caller} to {to}");
            for (which, context) in contexts.iter().enumerate() {
                let expected = if which + 1 < PAIRS { ContextState::Bound } else { ContextState::AtRest };
                assert_eq!(place(context), expected, "seed {seed}, step {step}: context {which}");
            }
        }
        orders.clear();
        endpoints.iter().for_each(Endpoint::close);
    })
    .unwrap();
    assert!(contexts.iter().all(|context| place(context) == ContextState::AtRest));
}

#[test]
fn what_a_request_says_of_its_timing_may_panic_or_call() {
    fn panics(_: &u32) -> Request {
        panic!("no timing")
    }
    let runtime = plain(1).build().unwrap();
    let endpoint = runtime.endpoint_with(EndpointOptions { timing: panics, ..EndpointOptions::default() });
    runtime
        .run(|cx| {
            let refused = catch_unwind(AssertUnwindSafe(|| endpoint.call_timeout(cx, 1, ms(1))));
            assert!(refused.is_err());
            // Others do not notice.
            let nobody: Result<(u32, Reply<u32, ()>), _> = endpoint.receive_timeout(cx, ms(1));
            assert_eq!(nobody.unwrap_err(), Refusal::TimedOut);
            endpoint.close();
        })
        .unwrap();
}
