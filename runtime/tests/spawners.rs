//! Spawning into a nursery from its children and from threads, ends by signals, and counters.

use mainspring::signal::Signal;
use mainspring::sync::{CancelToken, Notify};
use mainspring::{
    Budget, Caps, Config, Cx, NurseryOptions, Pool, Profile, Runtime, SpawnError, Spawner, ThreadSpawner,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SETTLED: Duration = Duration::from_millis(1);

fn runtime(seed: u64) -> Runtime {
    Config::new(Profile::Cluster).workers(3).deterministic_seed(seed).build().unwrap()
}

//= OWN:budget.conserve
#[test]
fn children_spawn_siblings_that_the_nursery_waits_for_and_pays() {
    /// A tree whose nodes are all children of one nursery.
    fn grow<'scope>(cx: &Cx, spawner: Spawner<'scope>, depth: u32, leaves: &'scope AtomicU64) {
        if depth == 0 {
            leaves.fetch_add(1, Ordering::Relaxed);
            return;
        }
        for _ in 0..2 {
            spawner.start(cx, move |cx| grow(cx, spawner, depth - 1, leaves)).unwrap();
        }
    }
    for seed in 0..20 {
        let runtime = runtime(seed);
        let leaves = AtomicU64::new(0);
        let left = runtime.run(|cx| {
            let pool = Pool { ops: 1 << 30, spawn_count: 63, ..Pool::ZERO };
            cx.nursery_with(NurseryOptions::new().pool(pool), |n| {
                let (spawner, leaves) = (n.spawner(), &leaves);
                n.start(move |cx| grow(cx, spawner, 5, leaves)).unwrap();
                // Open until all are there.
                n.await_all(cx);
                n.pool()
            })
        });
        let left = left.unwrap().unwrap();
        assert_eq!(leaves.into_inner(), 32);
        // One for the root of the tree and two for each of its 31 inner nodes; each of those also paid an op.
        assert_eq!((left.spawn_count, left.ops), (63 - 63, (1 << 30) - 62));
    }
}

#[test]
fn a_pool_that_cannot_pay_and_a_nursery_that_is_over_refuse() {
    runtime(1)
        .run(|cx| {
            let pool = Pool { ops: 1000, spawn_count: 2, ..Pool::ZERO };
            cx.nursery_with(NurseryOptions::new().pool(pool), |n| {
                let spawner = n.spawner();
                let refused = n.spawn(move |cx| {
                    spawner.start(cx, |_| ()).unwrap();
                    spawner.start(cx, |_| ())
                });
                assert_eq!(refused.unwrap().join(cx).unwrap(), Err(SpawnError::SpawnBudgetExhausted));
            })
            .unwrap();
            let late = Mutex::new(None);
            cx.nursery(|n| {
                let (spawner, late) = (n.spawner(), &late);
                n.start(move |cx| {
                    // The body has ended by then.
                    cx.sleep(SETTLED);
                    *late.lock().unwrap() = Some(spawner.start(cx, |_| ()));
                })
                .unwrap();
            })
            .unwrap();
            assert_eq!(late.into_inner().unwrap(), Some(Err(SpawnError::NurseryNotActive)));
            let cancelled = cx.nursery(|n| {
                n.cancel();
                n.spawner().start(cx, |_| ())
            });
            assert!(cancelled.unwrap_err().error.is_cancelled());
        })
        .unwrap();
}

//= OWN:caps.fork
#[test]
fn a_sibling_has_no_more_authority_than_the_child_that_spawned_it() {
    runtime(1)
        .run(|cx| {
            let mine = cx.caps();
            let seen = Mutex::new(Vec::new());
            cx.nursery(|n| {
                let (spawner, seen) = (n.spawner(), &seen);
                let note = move |cx: &Cx| seen.lock().unwrap().push(cx.caps());
                let without = n.builder().caps(Caps::none()).spawn(move |cx| spawner.start(cx, note));
                assert_eq!(without.unwrap().join(cx).unwrap(), Err(SpawnError::NotPermitted));
                let less = n.builder().caps(mine.without_executor());
                let less = less.spawn(move |cx| {
                    spawner.start(cx, note).unwrap();
                    // Nor by asking for it.
                    spawner.start_with(cx, |builder| builder.caps(mine), note).unwrap();
                });
                less.unwrap().join(cx).unwrap();
                n.await_all(cx);
            })
            .unwrap();
            let seen = seen.into_inner().unwrap();
            assert_eq!(seen.len(), 2);
            assert!(seen.iter().all(|caps| caps.executor().is_none() && caps.is_within(&mine)));
        })
        .unwrap();
}

#[test]
fn threads_spawn_into_a_nursery_for_as_long_as_it_is_open() {
    for _ in 0..20 {
        let runtime = Config::new(Profile::Service).workers(2).build().unwrap();
        let (ran, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let all = runtime.nursery(NurseryOptions::new(), |n| {
            let spawner = n.thread_spawner();
            let (ran, refused) = (&ran, &refused);
            std::thread::scope(|threads| {
                for _ in 0..3 {
                    threads.spawn(move || {
                        for _ in 0..200 {
                            let started = spawner.start(|_| _ = ran.fetch_add(1, Ordering::Relaxed));
                            refused.fetch_add(u64::from(started.is_err()), Ordering::Relaxed);
                        }
                    });
                }
                // Beside them the owner spawns.
                for _ in 0..100 {
                    n.start(|_| _ = ran.fetch_add(1, Ordering::Relaxed)).unwrap();
                }
            });
        });
        all.unwrap();
        assert_eq!(ran.load(Ordering::Relaxed) + refused.load(Ordering::Relaxed), 700);
        assert_eq!(refused.into_inner(), 0);
    }
}

#[test]
fn a_nursery_that_closes_while_guests_spawn_waits_for_those_that_it_took() {
    for seed in 0..50 {
        let runtime = runtime(seed);
        let (took, ran) = (AtomicU64::new(0), AtomicU64::new(0));
        runtime
            .run(|cx| {
                cx.nursery(|n| {
                    let (spawner, took, ran) = (n.spawner(), &took, &ran);
                    for _ in 0..4 {
                        n.start(move |cx| {
                            for _ in 0..10 {
                                let started = spawner.start(cx, move |cx| {
                                    cx.yield_now();
                                    ran.fetch_add(1, Ordering::Relaxed);
                                });
                                took.fetch_add(u64::from(started.is_ok()), Ordering::Relaxed);
                                cx.yield_now();
                            }
                        })
                        .unwrap();
                    }
                    for _ in 0..seed % 7 {
                        cx.yield_now();
                    }
                })
                .unwrap();
            })
            .unwrap();
        assert_eq!(took.into_inner(), ran.into_inner(), "seed {seed}");
    }
}

/// Sends the process a signal.
#[allow(unsafe_code)]
fn raise(signal: Signal) {
    // SAFETY: the call takes numbers only; the signal has a handler.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal.number()) }, 0);
}

#[test]
fn signals_reach_tasks_threads_and_tokens() {
    let runtime = Config::new(Profile::Service).workers(2).build().unwrap();
    let one = runtime.signals(&[Signal::USER1]).unwrap();
    let both = runtime.signals(&[Signal::USER1, Signal::USER2]).unwrap();
    let stop = runtime.stop_on(&[Signal::USER2]).unwrap();
    runtime
        .run(|cx| {
            assert!(one.recv_timeout(cx, SETTLED).is_err(), "none has come");
            raise(Signal::USER1);
            assert_eq!(one.recv(cx), Ok(Signal::USER1));
            assert_eq!(both.recv(cx), Ok(Signal::USER1));
            assert!(!stop.token().is_cancelled());
            // A service that ends when it is told, and finishes what it has begun.
            cx.nursery(|n| {
                let token: &CancelToken = stop.token();
                let service = n.spawn(move |cx| {
                    let waited = cx.until(token, |cx| cx.sleep(Duration::MAX));
                    (waited.is_err(), "finished")
                });
                raise(Signal::USER2);
                assert_eq!(service.unwrap().join(cx).unwrap(), (true, "finished"));
            })
            .unwrap();
            assert_eq!(both.recv(cx), Ok(Signal::USER2));
        })
        .unwrap();
    raise(Signal::USER1);
    assert_eq!(one.recv_blocking(), Signal::USER1);
}

#[test]
fn metrics_count_what_was_done() {
    let runtime = Config::new(Profile::Service).workers(2).build().unwrap();
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let budget = Budget { ops: 10_000, ..Budget::ZERO };
                for _ in 0..1000 {
                    n.builder().budget(budget).start(|cx| cx.check_iterations(1000)).unwrap();
                }
            })
            .unwrap();
            // Both workers have nothing to do meanwhile.
            cx.sleep(Duration::from_millis(20));
        })
        .unwrap();
    let metrics = runtime.metrics();
    assert_eq!(metrics.workers.iter().map(|worker| worker.tasks_spawned).sum::<u64>(), 1000);
    assert!(metrics.workers.iter().map(|worker| worker.parks).sum::<u64>() > 0);
    assert_eq!((metrics.tasks, metrics.nurseries), (0, 0));
    let text = metrics.prometheus();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("mainspring_") && value.parse::<f64>().is_ok(), "{line}");
        let family = name.split('{').next().unwrap();
        assert!(text.contains(&format!("# TYPE {family} ")), "{line}");
    }
}

#[test]
fn a_refused_closure_may_spawn_again_when_it_is_dropped() {
    struct Again<'scope>(ThreadSpawner<'scope>);
    impl Drop for Again<'_> {
        fn drop(&mut self) {
            assert!(self.0.start(|_| ()).is_err());
        }
    }
    for deterministic in [false, true] {
        let config = Config::new(Profile::Service).workers(1);
        let config = if deterministic { config.deterministic_seed(1) } else { config };
        let poor = NurseryOptions::new().pool(Pool::ZERO);
        let runtime = config.build().unwrap();
        runtime
            .nursery(poor, |n| {
                let again = Again(n.thread_spawner());
                assert!(n.thread_spawner().start(move |_| _ = &again).is_err());
            })
            .unwrap();
    }
}

#[test]
fn a_nursery_waits_for_what_a_guest_spawns_on_the_way_to_its_spawn() {
    for seed in 0..20 {
        let ended = AtomicU64::new(0);
        let waited_for = runtime(seed).run(|cx| {
            cx.nursery(|n| {
                let (spawner, ended) = (n.spawner(), &ended);
                n.start(move |cx| {
                    let late = move |cx: &Cx| {
                        cx.sleep(SETTLED);
                        ended.fetch_add(1, Ordering::Relaxed);
                    };
                    // The options are used for a spawn of its own, and do not come back.
                    let unwound = catch_unwind(AssertUnwindSafe(|| {
                        spawner.start_with(
                            cx,
                            |builder| {
                                builder.start(late).unwrap();
                                panic!("no options")
                            },
                            |_| (),
                        )
                    }));
                    assert!(unwound.is_err());
                })
                .unwrap();
                // Open until the guest is through with it.
                n.await_all(cx);
            })
            .unwrap();
            ended.load(Ordering::Relaxed)
        });
        assert_eq!(waited_for.unwrap(), 1, "seed {seed}");
    }
}

//= OWN:budget.conserve
#[test]
fn what_a_guest_has_given_of_its_right_to_draw_comes_back_to_no_other_task() {
    let right = Budget { ops: 1000, ..Budget::ZERO };
    runtime(1)
        .run(|cx| {
            let mine = cx.caps().attenuate_budget(right);
            let left = |cx: &Cx| cx.caps().budget().map(|cap| cap.limit().ops);
            cx.nursery(|n| {
                let (spawner, heir, next) = (n.spawner(), Notify::new(), Notify::new());
                let (heir, next) = (std::sync::Arc::new(heir), std::sync::Arc::new(next));
                let ends = heir.clone();
                let guest = n.builder().caps(mine).spawn(move |cx| {
                    let ends = move |cx: &Cx| ends.notified(cx).unwrap();
                    spawner.start_with(cx, |builder| builder.caps(mine), ends).unwrap();
                    left(cx)
                });
                assert_eq!(guest.unwrap().join(cx).unwrap(), Some(0), "all of it is given");
                // Its record is another task's now, which has drawn all of its own right.
                let goes_on = next.clone();
                let other = n.builder().caps(mine).spawn(move |cx| {
                    cx.recharge(right).unwrap();
                    goes_on.notified(cx).unwrap();
                    left(cx)
                });
                let other = other.unwrap();
                cx.sleep(SETTLED);
                heir.notify_one();
                cx.sleep(SETTLED);
                next.notify_one();
                assert_eq!(other.join(cx).unwrap(), Some(0));
            })
            .unwrap();
        })
        .unwrap();
}

//= OWN:caps.fork
#[test]
fn a_runtime_of_ones_own_is_no_authority_in_another() {
    let refused = runtime(1).run(|cx| {
        cx.nursery(|n| {
            let spawner = n.spawner();
            let poor = n.builder().caps(Caps::none()).spawn(move |_| {
                // Anybody can make one, and says what its tasks may do.
                let own = Config::new(Profile::Cluster).workers(1).build().unwrap();
                own.run(|cx| spawner.start(cx, |cx| assert!(cx.caps().spawn().is_none()))).unwrap()
            });
            poor.unwrap().join(cx).unwrap()
        })
    });
    assert_eq!(refused.unwrap().unwrap(), Err(SpawnError::OtherRuntime));
}
