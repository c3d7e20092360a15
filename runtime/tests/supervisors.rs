//! Supervised nurseries: a failure stays with its child, and children are started again as the strategy says.

use mainspring::supervisor::{Child, Restart, Strategy, Supervisor, SupervisorError};
use mainspring::sync::CancelToken;
use mainspring::{
    Budget, Component, Config, Cx, JoinSet, NurseryOptions, Pool, Profile, Runtime, SpawnError, TaskError,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const SETTLED: Duration = Duration::from_millis(1);

fn runtime() -> Runtime {
    Config::new(Profile::Cluster).workers(2).deterministic_seed(7).build().unwrap()
}

//= OWN:supervise
#[test]
fn a_failure_does_not_take_its_siblings() {
    let counted = runtime().run(|cx| {
        cx.nursery_with(NurseryOptions::new().isolate(), |n| {
            let bad = n.spawn(|_| panic!("a bad item")).unwrap();
            n.start(|_| panic!("a bad item that nobody joins")).unwrap();
            let tried = n.spawn_try(|_| Err::<(), _>("a bad item, politely")).unwrap();
            let good = n.spawn(|cx| (cx.sleep(SETTLED), 7).1).unwrap();
            assert!(matches!(bad.join(cx).map(|(): ()| ()), Err(TaskError::Panicked(_))));
            assert!(matches!(tried.join(cx), Err(TaskError::Failed(_))));
            assert_eq!(good.join(cx).unwrap(), 7);
            n.failures()
        })
    });
    assert_eq!(counted.unwrap().unwrap(), 3, "and the nursery itself ends well");
}

#[test]
fn results_come_in_the_order_in_which_children_end() {
    runtime()
        .run(|cx| {
            cx.nursery_with(NurseryOptions::new().isolate(), |n| {
                let mut set = JoinSet::new(n);
                for ms in [3u64, 1, 2] {
                    set.spawn(move |cx| (cx.sleep(Duration::from_millis(ms)), ms).1).unwrap();
                }
                set.spawn(|cx| {
                    cx.sleep(Duration::from_micros(2500));
                    panic!("a bad item")
                })
                .unwrap();
                let mut order = Vec::new();
                while let Some((_, result)) = set.join_next(cx) {
                    order.push(result.ok());
                }
                assert_eq!(order, [Some(1), Some(2), None, Some(3)]);
                assert!(set.is_empty() && set.join_next(cx).is_none());
                // Those that are cancelled, started or not, come too.
                for _ in 0..3 {
                    set.spawn(|cx| (cx.sleep(Duration::MAX), 0).1).unwrap();
                }
                assert!(set.join_next_timeout(cx, SETTLED).is_err());
                set.cancel_all();
                let ended: Vec<_> = std::iter::from_fn(|| set.join_next(cx)).collect();
                assert!(ended.len() == 3 && ended.iter().all(|(_, result)| result.is_err()));
            })
            .unwrap();
        })
        .unwrap();
}

/// Starts and stops of three children, of which the second fails once.
fn log_of(strategy: Strategy) -> Vec<String> {
    let (log, fails) = (Mutex::new(Vec::new()), AtomicU32::new(1));
    let note = |what: &str| log.lock().unwrap().push(what.to_owned());
    struct Stops<'a>(&'a Mutex<Vec<String>>, &'static str);
    impl Drop for Stops<'_> {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(format!("-{}", self.1));
        }
    }
    let child = |name: &'static str| {
        let (note, log, fails) = (&note, &log, &fails);
        Child::new(name, move |cx| {
            note(&format!("+{name}"));
            let _stops = Stops(log, name);
            cx.sleep(SETTLED);
            if name == "b" && fails.swap(0, Ordering::Relaxed) == 1 {
                return Err("a bad item");
            }
            cx.sleep(10 * SETTLED);
            Ok(())
        })
        .restart(Restart::Transient)
    };
    let supervisor = Supervisor::new(strategy).child(child("a")).child(child("b")).child(child("c"));
    assert_eq!(runtime().run(|cx| supervisor.run(cx).unwrap()).unwrap(), 1);
    drop(supervisor);
    log.into_inner().unwrap()
}

/// Who was stopped, in order, before the last three ends; and how often each was started. When a task that was started first
/// runs is up to the workers.
fn stops_and_starts(log: &[String]) -> (Vec<&str>, [usize; 3]) {
    let stops: Vec<_> = log.iter().filter_map(|event| event.strip_prefix('-')).collect();
    let starts = ["+a", "+b", "+c"].map(|start| log.iter().filter(|event| *event == start).count());
    (stops[..stops.len() - 3].to_vec(), starts)
}

//= OWN:supervise
#[test]
fn each_strategy_restarts_its_children_and_stops_them_last_first() {
    assert_eq!(stops_and_starts(&log_of(Strategy::OneForOne)), (vec!["b"], [1, 2, 1]));
    assert_eq!(stops_and_starts(&log_of(Strategy::OneForAll)), (vec!["b", "c", "a"], [2, 2, 2]));
    assert_eq!(stops_and_starts(&log_of(Strategy::RestForOne)), (vec!["b", "c"], [1, 2, 2]));
}

//= OWN:supervise
#[test]
fn too_many_restarts_in_the_given_time_end_all_and_fewer_do_not() {
    let live = AtomicU32::new(0);
    struct Counted<'a>(&'a AtomicU32);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let sibling = || {
        Child::new("sibling", |cx| {
            live.fetch_add(1, Ordering::SeqCst);
            let _counted = Counted(&live);
            cx.sleep(Duration::MAX);
            Ok::<(), String>(())
        })
    };
    let failing = |every: Duration, lives: &'static AtomicU32, most: u32| {
        Child::new("failing", move |cx: &Cx| {
            cx.sleep(every);
            if lives.fetch_add(1, Ordering::SeqCst) >= most { Ok(()) } else { Err("again") }
        })
        .restart(Restart::Transient)
    };
    static FAST: AtomicU32 = AtomicU32::new(0);
    let fast = Supervisor::new(Strategy::OneForOne)
        .intensity(3, Duration::from_millis(10))
        .child(sibling())
        .child(failing(SETTLED, &FAST, 100));
    runtime()
        .run(|cx| match fast.run(cx) {
            Err(SupervisorError::TooManyRestarts { child: "failing", restarts: 3, last: Some(_) }) => {}
            other => panic!("{other:?}"),
        })
        .unwrap();
    assert_eq!((FAST.load(Ordering::SeqCst), live.load(Ordering::SeqCst)), (4, 0), "all have ended");
    static SLOW: AtomicU32 = AtomicU32::new(0);
    let slow = Supervisor::new(Strategy::OneForOne).intensity(3, Duration::from_millis(10)).child(failing(
        4 * SETTLED,
        &SLOW,
        20,
    ));
    assert_eq!(
        runtime().run(|cx| slow.run(cx).unwrap()).unwrap(),
        20,
        "at most three in any ten milliseconds"
    );
}

#[test]
fn a_permanent_child_that_returns_is_restarted_and_a_temporary_one_never() {
    let (permanent, temporary) = (AtomicU32::new(0), AtomicU32::new(0));
    let supervisor = Supervisor::new(Strategy::OneForAll)
        .intensity(4, Duration::from_secs(1))
        .child(Child::new("permanent", |_| {
            permanent.fetch_add(1, Ordering::Relaxed);
            Ok::<(), String>(())
        }))
        .child(
            Child::new("temporary", |cx| {
                temporary.fetch_add(1, Ordering::Relaxed);
                cx.sleep(Duration::MAX);
                Err("is stopped before")
            })
            .restart(Restart::Temporary),
        );
    runtime()
        .run(|cx| {
            assert!(matches!(
                supervisor.run(cx),
                Err(SupervisorError::TooManyRestarts { child: "permanent", last: None, restarts: 4 })
            ));
        })
        .unwrap();
    assert_eq!((permanent.load(Ordering::Relaxed), temporary.load(Ordering::Relaxed) <= 1), (5, true));
}

//= OWN:supervise OWN:budget.conserve
#[test]
fn restarts_move_budgets_and_make_none() {
    const POOL: Pool = Pool { ops: 10_000, spawn_count: 1000, ..Pool::ZERO };
    let used = AtomicU64::new(0);
    let runtime = runtime();
    let before = runtime.root_pool();
    let supervisor = Supervisor::new(Strategy::OneForOne)
        .intensity(u32::MAX, SETTLED)
        .nursery(NurseryOptions::new().pool(POOL))
        .child(
            Child::new("glutton", |cx: &Cx| {
                while used.fetch_add(1, Ordering::Relaxed) < u64::MAX {
                    cx.check();
                }
                Ok::<(), String>(())
            })
            .options(|spawn| spawn.budget(Budget { ops: 700, ..Budget::ZERO })),
        );
    let own = runtime.run(|cx| {
        match supervisor.run(cx) {
            Err(SupervisorError::NotStarted {
                child: "glutton",
                error: SpawnError::Pool(lack),
                restarts,
            }) => {
                assert_eq!((lack.component, lack.available, restarts), (Component::Ops, 10_000 % 700, 14));
            }
            other => panic!("{other:?}"),
        }
        cx.ops_used()
    });
    let used = used.load(Ordering::Relaxed);
    // Each life counts once more than it can pay.
    let used = used - 14;
    assert_eq!(used, 14 * 700, "as many lives as the pool can pay, and not an op more");
    assert_eq!(before.ops - runtime.root_pool().ops, used + own.unwrap(), "the rest is back");
}

//= OWN:supervise
#[test]
fn a_supervisor_that_gives_up_fails_like_any_child_and_is_restarted_by_the_one_above() {
    let lives = AtomicU32::new(0);
    let inner_lives = AtomicU32::new(0);
    let inner = Supervisor::new(Strategy::OneForOne).intensity(2, Duration::from_secs(1)).child(
        Child::new("worker", |_| {
            if inner_lives.fetch_add(1, Ordering::SeqCst) < 7 { Err("again") } else { Ok(()) }
        })
        .restart(Restart::Transient),
    );
    let outer = Supervisor::new(Strategy::OneForOne).intensity(5, Duration::from_secs(1)).child(
        Child::new("inner", |cx| {
            lives.fetch_add(1, Ordering::SeqCst);
            inner.run(cx).map(|_| ())
        })
        .options(|spawn| spawn.pool(Pool { ops: 1000, spawn_count: 100, ..Pool::ZERO }))
        .restart(Restart::Transient),
    );
    // Three lives of the worker in each of the inner supervisor's.
    assert_eq!(runtime().run(|cx| outer.run(cx).unwrap()).unwrap(), 2);
    assert_eq!((lives.load(Ordering::SeqCst), inner_lives.load(Ordering::SeqCst)), (3, 8));
}

#[test]
fn a_supervisor_is_stopped_by_its_token_or_with_its_task() {
    let token = CancelToken::new();
    let order = Mutex::new(Vec::new());
    struct Ends<'a>(&'a Mutex<Vec<u32>>, u32);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(self.1);
        }
    }
    let child = |number| {
        let order = &order;
        Child::new("child", move |cx| {
            let _ends = Ends(order, number);
            cx.sleep(Duration::MAX);
            Ok::<(), String>(())
        })
    };
    let supervisor = Supervisor::new(Strategy::OneForOne).child(child(1)).child(child(2)).child(child(3));
    runtime()
        .run(|cx| {
            cx.nursery(|n| {
                let pool = Pool { ops: 10_000, spawn_count: 10, ..Pool::ZERO };
                let running = n.builder().pool(pool).spawn(|cx| supervisor.run_until(cx, &token)).unwrap();
                cx.sleep(SETTLED);
                token.cancel();
                assert_eq!(running.join(cx).unwrap().unwrap(), 0);
                assert_eq!(std::mem::take(&mut *order.lock().unwrap()), [3, 2, 1]);
                let running = n.builder().pool(pool).spawn(|cx| supervisor.run(cx)).unwrap();
                cx.sleep(SETTLED);
                running.cancel();
                assert!(running.join(cx).unwrap_err().is_cancelled());
                assert_eq!(order.lock().unwrap().len(), 3, "none is left");
            })
            .unwrap();
        })
        .unwrap();
}
