//! Snapshots, histograms and trace events.

use mainspring::{
    Budget, Capacity, Caps, Config, Exhaustion, NurseryOptions, NurseryState, Priority, Profile, TaskState,
    WaitReason,
};
use std::sync::Mutex;
use std::time::Duration;

#[test]
fn a_snapshot_shows_tasks_nurseries_and_workers() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let snapshot = runtime
        .run(|cx| {
            let (_tx, rx) = cx.channel::<u8>(Capacity::Rendezvous).unwrap();
            let mut taken = None;
            let ended = cx.nursery_with(NurseryOptions::new().on_exhausted(Exhaustion::Park), |n| {
                let budget = Budget { ops: 5, channel_ops: 3, ..Budget::ZERO };
                let waits = n.builder().budget(budget).spawn(|cx| rx.recv(cx).is_ok()).unwrap();
                let poor = n.builder().budget(budget).spawn(|cx| (0..9).for_each(|_| cx.check())).unwrap();
                (0..200).for_each(|_| cx.yield_now());
                let snapshot = runtime.snapshot();
                taken = Some((snapshot, waits.id(), poor.id(), cx.id()));
                n.cancel();
            });
            drop(ended);
            taken.unwrap()
        })
        .unwrap();
    let (snapshot, waits, poor, root) = snapshot;
    let task = |id| snapshot.tasks.iter().find(|task| task.id == id).unwrap();
    assert_eq!((task(waits).state, task(waits).waits_for), (TaskState::Blocked, WaitReason::Channel));
    assert_eq!(task(waits).budget, Budget { ops: 4, channel_ops: 2, ..Budget::ZERO });
    assert_eq!((task(poor).state, task(poor).ops_used), (TaskState::BudgetExhausted, 5));
    assert_eq!((task(root).state, task(root).worker), (TaskState::Running, Some(0)));
    assert!(task(root).since_yield.unwrap() < Duration::from_secs(60));
    let nursery = snapshot.nurseries.iter().find(|nursery| nursery.owner == Some(root)).unwrap();
    assert_eq!((nursery.state, nursery.spawned, nursery.completed), (NurseryState::Open, 2, 0));
    assert_eq!(task(waits).nursery, Some(nursery.id));
    assert_eq!(task(waits).caps, Some(Profile::Service.implicit_caps()));
    assert_eq!(snapshot.workers.len(), 1);
    assert!(snapshot.yield_gap.count() > 0 && snapshot.yield_gap.quantile(0.5).is_some());
    assert!(runtime.snapshot().tasks.is_empty() && runtime.snapshot().nurseries.is_empty());
}

#[test]
fn snapshots_can_be_taken_at_any_time() {
    let runtime = Config::new(Profile::Cluster).workers(2).build().unwrap();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| (0..200).map(|_| runtime.snapshot().tasks.len()).max());
        while !watcher.is_finished() {
            runtime
                .run(|cx| {
                    cx.nursery(|n| {
                        for _ in 0..50 {
                            let grant = Budget { ops: 1000, spawn_count: 5, ..Budget::ZERO };
                            n.builder()
                                .budget(grant)
                                .spawn(|cx| {
                                    cx.nursery(|n| (0..5).for_each(|_| drop(n.spawn(|cx| cx.yield_now()))))
                                        .unwrap();
                                })
                                .unwrap();
                        }
                    })
                    .unwrap();
                })
                .unwrap();
        }
    });
}

/// Counts the messages of our events.
struct Counter(Mutex<Vec<String>>);

impl tracing::Subscriber for &'static Counter {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("mainspring")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(String);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                match field.name() {
                    "message" => self.0 = format!("{value:?}{}", self.0),
                    "capability" | "granted" => self.0 = format!("{} {value:?}", self.0),
                    _ => {}
                }
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

static COUNTER: Counter = Counter(Mutex::new(Vec::new()));

/// For all tests of this file: they share one subscriber, so each sees the events of all.
fn subscribe() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(&COUNTER).unwrap());
}

#[test]
fn each_use_of_a_capability_and_each_refusal_is_audited() {
    subscribe();
    let runtime = Config::new(Profile::Cluster).workers(1).build().unwrap();
    runtime
        .run(|cx| {
            cx.channel::<u8>(Capacity::Bounded(1)).unwrap();
            cx.blocking(|| ()).unwrap();
            cx.nursery(|n| n.spawn_future(async { 1 }).unwrap().join(cx).unwrap()).unwrap();
            cx.nursery(|n| {
                let child = n.spawn(|cx| cx.yield_now()).unwrap();
                let _ = n.supervise(cx, &child, Budget { ops: 1, ..Budget::ZERO });
                let bare =
                    n.builder().caps(Caps::none()).budget(Budget { ops: 50, syscalls: 1, ..Budget::ZERO });
                bare.spawn(|cx| {
                    assert!(cx.channel::<u8>(Capacity::Rendezvous).is_err());
                    assert!(cx.recharge(Budget { ops: 1, ..Budget::ZERO }).is_err());
                    assert!(cx.blocking(|| ()).is_err());
                    cx.nursery(|n| assert!(n.spawn(|_| ()).is_err())).unwrap();
                })
                .unwrap();
            })
            .unwrap();
        })
        .unwrap();
    let seen = COUNTER.0.lock().unwrap();
    for event in [
        r#"channel "CapChannel" true"#,
        r#"channel "CapChannel" false"#,
        r#"blocking "CapExecutor" true"#,
        r#"blocking "CapExecutor" false"#,
        r#"spawn_future "CapExecutor" true"#,
        r#"recharge "CapBudget" false"#,
        r#"supervise "CapBudget" true"#,
        r#"spawn "CapSpawn" false"#,
    ] {
        assert!(seen.iter().any(|seen| seen == event), "{event} in {seen:?}");
    }
}

//= SCHED:5.1.1
#[test]
fn a_task_has_an_id_a_state_a_budget_a_nursery_capabilities_a_place_in_line_and_a_result() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let (ids, order, results) = runtime
        .run(|cx| {
            let order = Mutex::new(Vec::new());
            let (ids, results) = cx
                .nursery(|n| {
                    let budget = Budget { ops: 9, memory: 5, ..Budget::ZERO };
                    let caps = Profile::Service.implicit_caps().without_spawn();
                    let spawn = |priority, value: u64| {
                        let order = &order;
                        let task = n.builder().budget(budget).caps(caps).priority(priority);
                        task.spawn(move |cx| {
                            order.lock().unwrap().push(value);
                            // Its continuation is kept while it waits.
                            let kept = value * 2;
                            cx.sleep(Duration::from_micros(50));
                            assert!(cx.caps().spawn().is_none());
                            kept + 1
                        })
                        .unwrap()
                    };
                    let children =
                        [spawn(Priority::Normal, 1), spawn(Priority::Normal, 2), spawn(Priority::High, 3)];
                    let snapshot = runtime.snapshot();
                    for child in &children {
                        assert_eq!((child.state(), child.budget()), (TaskState::Ready, budget));
                    }
                    let nursery =
                        snapshot.nurseries.iter().find(|nursery| nursery.owner == Some(cx.id())).unwrap();
                    assert_eq!(nursery.spawned, 3, "they are this nursery's");
                    let ids: Vec<u64> = children.iter().map(|child| child.id().0).collect();
                    (ids, children.map(|child| child.join(cx).unwrap()))
                })
                .unwrap();
            (ids, order.into_inner().unwrap(), results)
        })
        .unwrap();
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
    assert_eq!(order[0], 3, "a high priority goes first: {order:?}");
    assert_eq!(results, [3, 5, 7]);
}

#[test]
fn spawn_wake_exhaust_cancel_and_steal_are_traced() {
    subscribe();
    let runtime = Config::new(Profile::Service).workers(2).deterministic_seed(5).build().unwrap();
    let ended = runtime
        .run(|cx| {
            cx.nursery(|n| {
                for _ in 0..10 {
                    n.spawn(|cx| cx.sleep(Duration::from_micros(3))).unwrap();
                }
                n.builder()
                    .budget(Budget { ops: 2, ..Budget::ZERO })
                    .spawn(|cx| (0..9).for_each(|_| cx.check()))
                    .unwrap();
                cx.sleep(Duration::from_millis(1));
                n.cancel();
            })
            .is_err()
        })
        .unwrap();
    assert!(ended);
    let seen = COUNTER.0.lock().unwrap();
    for kind in ["spawn", "wake", "exhausted", "cancel", "steal"] {
        assert!(seen.iter().any(|message| message == kind), "{kind} in {seen:?}");
    }
}
