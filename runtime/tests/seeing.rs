//! Snapshots, histograms and trace events.

use mainspring::{Budget, Capacity, Config, NurseryState, Profile, TaskState, WaitReason};
use std::sync::Mutex;
use std::time::Duration;

#[test]
fn a_snapshot_shows_tasks_nurseries_and_workers() {
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let snapshot = runtime
        .run(|cx| {
            let (_tx, rx) = cx.channel::<u8>(Capacity::Rendezvous).unwrap();
            let mut taken = None;
            let ended = cx.nursery(|n| {
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
        metadata.target() == "mainspring"
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
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
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

#[test]
fn spawn_wake_exhaust_cancel_and_steal_are_traced() {
    tracing::subscriber::set_global_default(&COUNTER).unwrap();
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
