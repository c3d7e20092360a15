//! A context of a nursery or of a tenant: who has it, whom it goes to, and how it ends.
//!
//! Debug builds also check after every operation that each context is in exactly one place.

use mainspring::context::{ContextState, Group, RevokeReason};
use mainspring::{
    Budget, Capacity, Caps, Config, ContextError, CpuId, Cx, FairTaskSettings, Nursery, Pool, Profile,
    Receiver, Reservation, Runtime, Schedule, SchedulingContext, Sender,
};
use mainspring_random::{Random, Stream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn config(workers: usize) -> Config {
    let settings = FairTaskSettings { threads: 64, contexts: 16, ..FairTaskSettings::default() };
    let caps = Caps::root(1000, Budget::MAX, Budget::ZERO, 100, 100).with_contexts(16, 4_000_000);
    Config::new(Profile::Cluster).workers(workers).root_caps(caps).fair_by_task(settings)
}

fn runtime(workers: usize) -> Runtime {
    config(workers).build().unwrap()
}

/// Started tasks may move.
#[allow(unsafe_code)]
fn migrating(workers: usize) -> Runtime {
    // SAFETY: no task of these tests has anything that belongs to a thread.
    unsafe { config(workers).migrate_started_tasks() }.build().unwrap()
}

const POOL: Pool = Pool { ops: 1 << 20, spawn_count: 4, channel_ops: 64, ..Pool::ZERO };

fn of(tenant: u32) -> Schedule {
    Schedule { process: tenant, ..Schedule::default() }
}

/// Waits until `is` says so: what others do comes in its own time.
fn until(cx: &Cx, what: &str, is: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if is() {
            return;
        }
        cx.sleep(Duration::from_micros(500));
    }
    panic!("{what} did not come");
}

/// What a child of these tests is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Unbind,
    Fail,
    End,
}

/// A child that waits for orders, and where it can be told.
struct Child {
    orders: Option<Sender<Order>>,
    /// Its number, at its start and after each `Unbind`.
    said: Receiver<usize>,
    number: usize,
}

fn child<'s>(cx: &Cx, n: &Nursery<'s, '_>, context: &'s SchedulingContext, schedule: Schedule) -> Child {
    let (orders, ordered) = cx.channel::<Order>(Capacity::Bounded(4)).unwrap();
    let (say, said) = cx.channel::<usize>(Capacity::Bounded(1)).unwrap();
    n.builder()
        .schedule(schedule)
        .spawn_try(move |cx| {
            say.send(cx, cx.thread_number().unwrap()).unwrap();
            while let Ok(order) = ordered.recv(cx) {
                match order {
                    Order::Unbind => {
                        let _had_it = context.unbind(cx);
                        say.send(cx, cx.thread_number().unwrap()).unwrap();
                    }
                    Order::Fail => return Err("on purpose"),
                    Order::End => break,
                }
            }
            Ok(())
        })
        .map(drop)
        .unwrap();
    let number = said.recv(cx).unwrap();
    Child { orders: Some(orders), said, number }
}

impl Child {
    fn tell(&mut self, cx: &Cx, order: Order) {
        self.orders.as_ref().unwrap().send(cx, order).unwrap();
        if order == Order::Unbind {
            assert_eq!(self.said.recv(cx), Ok(self.number));
        } else {
            self.orders = None;
        }
    }
}

#[test]
fn a_nurserys_context_goes_from_child_to_child_on_every_end_and_rests_after_the_last() {
    for (runtime, workers) in [(runtime(1), 1), (migrating(1), 1), (migrating(3), 3)] {
        runtime
            .run(|cx| {
                let context = cx.create_context(Reservation::new(ms(5), ms(10)).on_worker(0)).unwrap();
                let isolating = mainspring::NurseryOptions::new().isolate();
                cx.nursery_with(isolating, |n| {
                    n.bind_context(&context).unwrap();
                    assert_eq!(context.info().unwrap().state, ContextState::AtRest, "there is no child yet");
                    let here = || Schedule {
                        workers: Some([CpuId::new(0).unwrap()].into_iter().collect()),
                        ..Schedule::default()
                    };
                    let mut children: Vec<_> = (0..4).map(|_| child(cx, n, &context, here())).collect();
                    let holder = || context.info().unwrap().holder;
                    let group = context.info().unwrap().group;
                    assert!(matches!(group, Some(Group::Nursery(_))), "{group:?}");
                    for (turn, order) in [Order::Unbind, Order::Fail, Order::End].into_iter().enumerate() {
                        until(cx, "the next child", || holder() == Some(children[turn].number));
                        children[turn].tell(cx, order);
                    }
                    until(cx, "the last child", || holder() == Some(children[3].number));
                    children[3].tell(cx, Order::Unbind);
                    // The first has had it, and is not given it again.
                    until(cx, "rest", || context.info().unwrap().state == ContextState::AtRest);
                    // A new child is due it at once, by itself.
                    let born = n.spawn(|cx| cx.context().map(|held| held.budget)).unwrap();
                    assert_eq!(born.join(cx).unwrap(), Some(ms(5)), "{workers} workers");
                })
                .unwrap();
                let info = context.info().unwrap();
                assert_eq!((info.state, info.group, info.holder), (ContextState::AtRest, None, None));
                context.bind(cx).unwrap();
            })
            .unwrap();
    }
}

#[test]
fn a_tenants_context_is_for_its_tasks_alone_and_no_task_chooses_its_tenant() {
    let runtime = runtime(1);
    let context = runtime.create_context(Reservation::new(ms(5), ms(10))).unwrap();
    context.bind_to_tenant(&runtime, 7).unwrap();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let other = n.builder().schedule(of(8)).spawn(|cx| cx.context().is_some()).unwrap();
                assert!(!other.join(cx).unwrap(), "another tenant's task has it");
                // A task of tenant 8 asks for a child of tenant 7, and gets one of its own.
                let thief = n.builder().pool(POOL).schedule(of(8)).spawn(|cx| {
                    cx.nursery(|n| {
                        let child = n.builder().schedule(of(7)).spawn(|cx| cx.context().is_some());
                        child.unwrap().join(cx).unwrap()
                    })
                });
                assert!(!thief.unwrap().join(cx).unwrap().unwrap(), "a task gave its child another's time");
                let family = n.builder().pool(POOL).schedule(of(7)).spawn(|cx| {
                    let mine = cx.context().is_some();
                    context.unbind(cx).unwrap();
                    let childs = cx.nursery(|n| n.spawn(|cx| cx.context().is_some()).unwrap().join(cx));
                    (mine, childs.unwrap().unwrap())
                });
                assert_eq!(family.unwrap().join(cx).unwrap(), (true, true), "a child is of its tenant too");
            })
            .unwrap();
        })
        .unwrap();
    assert_eq!(context.info().unwrap().state, ContextState::AtRest);
    assert_eq!(context.info().unwrap().group, Some(Group::Tenant(7)));
    assert!(context.unbind_group().unwrap() && !context.unbind_group().unwrap());
}

#[test]
fn a_context_that_is_bound_to_a_tenant_that_lives_goes_to_its_first_task() {
    let runtime = runtime(1);
    let context = runtime.create_context(Reservation::new(ms(5), ms(10))).unwrap();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let mut lives: Vec<_> = (0..3).map(|_| child(cx, n, &context, of(3))).collect();
                assert_eq!(context.info().unwrap().state, ContextState::AtRest);
                context.bind_to_tenant(&runtime, 3).unwrap();
                assert_eq!(context.info().unwrap().holder, Some(lives[0].number));
                // Withdrawn, it stays with the task that has it, and goes to no other.
                assert!(context.unbind_group().unwrap());
                assert_eq!(context.info().unwrap().holder, Some(lives[0].number));
                lives[0].tell(cx, Order::End);
                until(cx, "rest", || context.info().unwrap().state == ContextState::AtRest);
                lives.iter_mut().skip(1).for_each(|child| child.tell(cx, Order::End));
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn a_groups_context_that_is_revoked_is_gone_for_all_of_it() {
    let runtime = runtime(1);
    runtime
        .run(|cx| {
            let context = cx.create_context(Reservation::new(ms(5), ms(10))).unwrap();
            cx.nursery(|n| {
                n.bind_context(&context).unwrap();
                let mut children: Vec<_> =
                    (0..3).map(|_| child(cx, n, &context, Schedule::default())).collect();
                assert_eq!(context.info().unwrap().holder, Some(children[0].number));
                context.revoke().unwrap();
                children.iter_mut().for_each(|child| child.tell(cx, Order::End));
                let late = n.spawn(|cx| cx.context().is_some()).unwrap();
                assert!(!late.join(cx).unwrap(), "a context that is gone was given");
                let gone = Err(ContextError::Revoked(RevokeReason::Explicit));
                assert_eq!(n.bind_context(&context), gone);
                // Its place is free for another.
                let second = cx.create_context(Reservation::new(ms(5), ms(10))).unwrap();
                n.bind_context(&second).unwrap();
                let heir = n.spawn(|cx| cx.context().is_some()).unwrap();
                assert!(heir.join(cx).unwrap());
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn one_context_is_of_one_group_and_a_group_may_have_several() {
    let (runtime, other) = (runtime(1), runtime(1));
    let [a, b] = [1, 2].map(|budget| runtime.create_context(Reservation::new(ms(budget), ms(100))).unwrap());
    a.bind_to_tenant(&runtime, 1).unwrap();
    assert_eq!(a.bind_to_tenant(&runtime, 2), Err(ContextError::OfGroup(Group::Tenant(1))));
    assert_eq!(b.bind_to_tenant(&other, 1), Err(ContextError::OtherRuntime));
    other
        .run(|cx| cx.nursery(|n| assert_eq!(n.bind_context(&a), Err(ContextError::OtherRuntime))))
        .unwrap()
        .unwrap();
    assert_eq!((a.info().unwrap().group, b.info().unwrap().group), (Some(Group::Tenant(1)), None));
    b.bind_to_tenant(&runtime, 1).unwrap();
    let budgets = runtime.run(|cx| {
        cx.nursery(|n| {
            let children: Vec<_> = (0..3)
                .map(|_| {
                    n.builder().schedule(of(1)).spawn(|cx| cx.context().map(|held| held.budget)).unwrap()
                })
                .collect();
            children.into_iter().map(|child| child.join(cx).unwrap()).collect::<Vec<_>>()
        })
    });
    // The third is given what the first has left behind, if that has ended by then.
    assert_eq!(budgets.unwrap().unwrap()[..2], [Some(ms(1)), Some(ms(2))]);
}

#[test]
fn a_cancelled_group_ends_though_its_context_is_used_up_for_a_minute() {
    for runtime in [runtime(1), migrating(2)] {
        let ended = runtime.run(|cx| {
            let context = cx.create_context(Reservation::new(ms(1), ms(60_000)).on_worker(0)).unwrap();
            let went = cx.nursery(|n| {
                n.bind_context(&context).unwrap();
                for _ in 0..4 {
                    n.start(|cx| {
                        loop {
                            cx.check();
                            cx.look_up();
                        }
                    })
                    .unwrap();
                }
                until(cx, "a throttled child", || context.info().unwrap().depletions > 0);
                n.cancel();
            });
            assert!(went.is_err());
            context.info().unwrap()
        });
        let info = ended.unwrap();
        assert_eq!(
            (info.state, info.remaining),
            (ContextState::AtRest, ms(0)),
            "a child waited for the refill"
        );
    }
}

/// Random nurseries and tenants on one worker: the model is a queue for each context.
#[test]
fn a_groups_context_is_with_whom_a_queue_says_under_random_programs() {
    for seed in 0..12 {
        let runtime = runtime(1);
        let contexts: Vec<_> =
            (0..3).map(|_| runtime.create_context(Reservation::new(ms(1), ms(10))).unwrap()).collect();
        for (tenant, context) in contexts.iter().enumerate() {
            context.bind_to_tenant(&runtime, 1 + tenant as u32).unwrap();
        }
        runtime.run(|cx| random_tenants(cx, &contexts, seed)).unwrap();
        for context in &contexts {
            let info = context.info().unwrap();
            assert_eq!(
                (info.state, info.holder),
                (ContextState::AtRest, None),
                "seed {seed}: all tasks have ended"
            );
        }
    }
}

fn random_tenants(cx: &Cx, contexts: &[SchedulingContext], seed: u64) {
    let mut random = Random::new(seed, Stream::Thread(0));
    let mut draw = |n: usize| random.below(n as u64) as usize;
    let isolating = mainspring::NurseryOptions::new().isolate();
    cx.nursery_with(isolating, |n| {
        // Of each tenant: the children that live, and of these the ones that have had no turn, in the order of their births.
        let mut alive: [Vec<Child>; 3] = Default::default();
        let mut queue: [std::collections::VecDeque<usize>; 3] = Default::default();
        let mut holder = [None; 3];
        for step in 0..80 {
            let tenant = draw(3);
            match draw(3) {
                0 if alive.iter().map(Vec::len).sum::<usize>() < 20 => {
                    let born = child(cx, n, &contexts[tenant], of(1 + tenant as u32));
                    queue[tenant].push_back(born.number);
                    alive[tenant].push(born);
                }
                _ if alive[tenant].is_empty() => continue,
                act => {
                    let at = draw(alive[tenant].len());
                    let order = [Order::Unbind, Order::Fail, Order::End][act.min(1) * draw(3)];
                    let number = alive[tenant][at].number;
                    alive[tenant][at].tell(cx, order);
                    if order != Order::Unbind {
                        drop(alive[tenant].remove(at));
                        queue[tenant].retain(|waits| *waits != number);
                    }
                    if holder[tenant] == Some(number) {
                        holder[tenant] = None;
                    }
                }
            }
            if holder[tenant].is_none() {
                holder[tenant] = queue[tenant].pop_front();
            }
            for (tenant, context) in contexts.iter().enumerate() {
                until(cx, &format!("seed {seed}, step {step}: {:?} of {tenant}", holder[tenant]), || {
                    let info = context.info().unwrap();
                    info.holder == holder[tenant]
                        && (info.state == ContextState::Bound) == holder[tenant].is_some()
                });
            }
        }
    })
    .unwrap();
}

/// Many tasks on several workers come, go, bind, unbind and are cancelled: no two are ever on one context, and at the end each
/// context is at rest and can be had.
#[test]
fn no_two_tasks_have_a_groups_context_at_once() {
    for (seed, runtime) in [runtime(2), migrating(2), migrating(4)].into_iter().enumerate() {
        let contexts: Vec<_> = (0..2)
            .map(|worker| runtime.create_context(Reservation::new(ms(2), ms(10)).on_worker(worker)).unwrap())
            .collect();
        let on: [Mutex<Option<usize>>; 2] = Default::default();
        let turns = [const { AtomicUsize::new(0) }; 2];
        for (tenant, context) in contexts.iter().enumerate() {
            context.bind_to_tenant(&runtime, tenant as u32 + 1).unwrap();
        }
        runtime
            .run(|cx| {
                cx.nursery(|n| {
                    for tenant in (0..60).map(|task| task % 2) {
                        let (context, on, turns) = (&contexts[tenant], &on[tenant], &turns[tenant]);
                        let live = move |cx: &Cx| {
                            for _ in 0..20 {
                                if cx.context().is_some() {
                                    // Only the one that has it is here.
                                    let before = on.lock().unwrap().replace(cx.thread_number().unwrap());
                                    assert_eq!(before, None, "two tasks have one context");
                                    turns.fetch_add(1, Ordering::Relaxed);
                                    cx.yield_now();
                                    *on.lock().unwrap() = None;
                                    assert!(
                                        context.unbind(cx).unwrap(),
                                        "it is not with the task that it was with"
                                    );
                                    break;
                                }
                                cx.sleep(Duration::from_micros(200));
                            }
                        };
                        n.builder().schedule(of(tenant as u32 + 1)).start(live).unwrap();
                    }
                })
                .unwrap();
            })
            .unwrap();
        for (context, turns) in contexts.iter().zip(&turns) {
            assert_eq!(context.info().unwrap().state, ContextState::AtRest, "run {seed}");
            assert!(turns.load(Ordering::Relaxed) > 0, "run {seed}: nobody was given it");
        }
    }
}

/// A task that computes on another worker, and one that sleeps there, are given it where tasks may move.
#[test]
fn a_task_on_another_worker_comes_over_for_its_groups_context() {
    let runtime = migrating(2);
    runtime
        .run(|cx| {
            let context = cx.create_context(Reservation::new(ms(5), ms(10)).on_worker(0)).unwrap();
            cx.nursery(|n| {
                n.bind_context(&context).unwrap();
                let mut first = child(cx, n, &context, Schedule::default());
                let sleeper = n.spawn(|cx| {
                    until(cx, "a context that comes in a sleep", || cx.context().is_some());
                    cx.context().map(|held| held.worker)
                });
                let busy = n.spawn(|cx| {
                    let looks = (0..1_000_000).find(|_| {
                        cx.yield_now();
                        cx.context().is_some()
                    });
                    assert!(looks.is_some(), "a context did not come in a yield");
                    cx.context().map(|held| held.worker)
                });
                let (sleeper, busy) = (sleeper.unwrap(), busy.unwrap());
                first.tell(cx, Order::End);
                assert_eq!(sleeper.join(cx).unwrap(), Some(0));
                assert_eq!(busy.join(cx).unwrap(), Some(0));
            })
            .unwrap();
        })
        .unwrap();
}

/// Where started tasks stay, one is given its context before it has run. Debug builds check every context after each bind and unbind
/// of the other task.
#[test]
fn a_child_that_is_given_a_context_before_it_runs_has_it_all_the_time() {
    let runtime = runtime(2);
    let had = AtomicUsize::new(0);
    runtime
        .run(|cx| {
            let [ours, others] = [0, 1]
                .map(|worker| cx.create_context(Reservation::new(ms(2), ms(10)).on_worker(worker)).unwrap());
            let done = AtomicBool::new(false);
            cx.nursery(|n| {
                let there = Schedule {
                    workers: Some([CpuId::new(1).unwrap()].into_iter().collect()),
                    ..Schedule::default()
                };
                let watcher = n.builder().schedule(there).spawn(|cx| {
                    while !done.load(Ordering::Relaxed) {
                        others.bind(cx).unwrap();
                        assert!(others.unbind(cx).unwrap());
                        cx.yield_now();
                    }
                });
                let watcher = watcher.unwrap();
                for _ in 0..20 {
                    cx.nursery(|n| {
                        n.bind_context(&ours).unwrap();
                        for _ in 0..20 {
                            n.start(|cx| _ = had.fetch_add(cx.context().is_some().into(), Ordering::Relaxed))
                                .unwrap();
                        }
                    })
                    .unwrap();
                    assert_eq!(ours.info().unwrap().state, ContextState::AtRest);
                }
                done.store(true, Ordering::Relaxed);
                watcher.join(cx).unwrap();
            })
            .unwrap();
        })
        .unwrap();
    assert!(had.into_inner() >= 20, "in each nursery some child has it");
}
