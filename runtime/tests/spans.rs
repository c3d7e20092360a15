//! Tasks as spans of `tracing`. The only subscriber of this process keeps what it is told, and checks that spans are entered and
//! left in pairs on each thread.

use mainspring::{Budget, Capacity, Config, Exhaustion, NurseryOptions, Profile, TaskState, Weight};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[derive(Clone, Debug, Default)]
struct Life {
    name: &'static str,
    task: Option<u64>,
    /// The name of the task.
    label: Option<String>,
    parent: Option<u64>,
    events: Vec<String>,
    handles: usize,
    entered: usize,
}

#[derive(Default)]
struct Keeper {
    next: AtomicU64,
    spans: Mutex<HashMap<u64, Life>>,
}

thread_local! {
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn innermost() -> Option<u64> {
    INSIDE.with(|inside| inside.borrow().last().copied())
}

#[derive(Default)]
struct Fields {
    message: String,
    task: Option<u64>,
    label: Option<String>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "name" {
            self.label = Some(value.to_owned());
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "task" {
            self.task = Some(value);
        }
    }
}

impl Subscriber for &'static Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "mainspring" || metadata.target() == "user"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let parent = match attributes.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if attributes.is_contextual() => innermost(),
            None => None,
        };
        let name = attributes.metadata().name();
        let life =
            Life { name, task: fields.task, label: fields.label, parent, handles: 1, ..Life::default() };
        self.spans.lock().unwrap().insert(id, life);
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if let Some(id) = event.parent().map(Id::into_u64).or_else(innermost) {
            self.spans.lock().unwrap().get_mut(&id).expect("open").events.push(fields.message);
        }
    }

    fn enter(&self, id: &Id) {
        INSIDE.with(|inside| inside.borrow_mut().push(id.into_u64()));
        self.spans.lock().unwrap().get_mut(&id.into_u64()).expect("open").entered += 1;
    }

    fn exit(&self, id: &Id) {
        let left = INSIDE.with(|inside| inside.borrow_mut().pop());
        assert_eq!(left, Some(id.into_u64()), "left in the order in which they were entered, on one thread");
        self.spans.lock().unwrap().get_mut(&id.into_u64()).expect("open").entered -= 1;
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.spans.lock().unwrap().get_mut(&id.into_u64()).expect("open").handles += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut spans = self.spans.lock().unwrap();
        let life = spans.get_mut(&id.into_u64()).expect("open");
        life.handles -= 1;
        life.handles == 0
    }
}

static KEEPER: LazyLock<Keeper> = LazyLock::new(Keeper::default);

/// Begins anew, alone: ids are unique in a runtime, and a process has one subscriber.
fn subscribe() -> MutexGuard<'static, ()> {
    static ONCE: std::sync::Once = std::sync::Once::new();
    static ALONE: Mutex<()> = Mutex::new(());
    ONCE.call_once(|| tracing::subscriber::set_global_default(&*KEEPER).unwrap());
    let alone = ALONE.lock().unwrap();
    KEEPER.spans.lock().unwrap().clear();
    alone
}

fn life_of(task: u64, among: &HashMap<u64, Life>) -> (u64, Life) {
    let (&id, life) = among.iter().find(|(_, life)| life.task == Some(task)).expect("each task has a span");
    (id, life.clone())
}

/// Each task that talks, waits, moves and runs out leaves one span, below its spawner's span, with what happened to it
/// inside.
fn tell_of_lives(config: Config) {
    let _alone = subscribe();
    let tasks = Mutex::new(Vec::new());
    let runtime = config.build().unwrap();
    let root = runtime
        .run(|cx| {
            tracing::trace!(target: "user", "root");
            let (tx, rx) = cx.channel::<u32>(Capacity::Rendezvous).unwrap();
            let (tasks, rx) = (&tasks, &rx);
            let refill = Budget { ops: 50, channel_ops: 50, ..Budget::ZERO };
            cx.nursery_with(NurseryOptions::new().on_exhausted(Exhaustion::Refill(refill)), |n| {
                for _ in 0..3 {
                    let child = n.builder().budget(Budget { ops: 40, channel_ops: 40, ..Budget::ZERO });
                    child
                        .spawn(move |cx| {
                            tasks.lock().unwrap().push(cx.id().0);
                            tracing::trace!(target: "user", "before");
                            (0..100).for_each(|_| cx.check());
                            rx.recv(cx).unwrap();
                            cx.sleep(Duration::from_millis(2));
                            tracing::trace!(target: "user", "after");
                        })
                        .unwrap();
                }
                (0..20).for_each(|_| cx.yield_now());
                (0..3).for_each(|i| tx.send(cx, i).unwrap());
            })
            .unwrap();
            cx.id().0
        })
        .unwrap();
    drop(runtime);
    let lives = KEEPER.spans.lock().unwrap().clone();
    let (root_span, root_life) = life_of(root, &lives);
    assert_eq!((root_life.handles, root_life.entered), (0, 0), "closed");
    assert!(root_life.events.contains(&"root".to_owned()));
    for task in tasks.into_inner().unwrap() {
        let (_, life) = life_of(task, &lives);
        assert_eq!((life.name, life.parent), ("task", Some(root_span)));
        assert_eq!((life.handles, life.entered), (0, 0), "closed");
        let place = |event: &str| life.events.iter().position(|other| other == event);
        assert_eq!(place("spawn"), Some(0), "{life:?}");
        assert!(place("before") < place("wake") && place("wake") < place("after"), "{life:?}");
    }
}

#[test]
fn a_task_s_life_is_a_span_with_what_happens_to_it_inside() {
    for workers in [1, 2, 4] {
        tell_of_lives(Config::new(Profile::Cluster).workers(workers));
    }
    tell_of_lives(Config::new(Profile::Cluster).workers(3).deterministic_seed(7));
    tell_of_lives(Config::new(Profile::Cluster).workers(2).fair(&[Weight::new(64).unwrap()]));
}

#[test]
fn exhaustion_cancellation_and_stolen_halves_are_inside_the_span_of_their_task() {
    let _alone = subscribe();
    let runtime = Config::new(Profile::Cluster).workers(2).build().unwrap();
    let (mut poor, mut halves) = (0, (0, 0));
    runtime
        .run(|cx| {
            let ended = cx.nursery_with(NurseryOptions::new().on_exhausted(Exhaustion::Park), |n| {
                let child = n.builder().budget(Budget { ops: 5, ..Budget::ZERO });
                poor = child.spawn(|cx| (0..9).for_each(|_| cx.check())).unwrap().id().0;
                while !runtime
                    .snapshot()
                    .tasks
                    .iter()
                    .any(|task| task.id.0 == poor && task.state == TaskState::BudgetExhausted)
                {
                    cx.yield_now();
                }
                n.cancel();
            });
            assert!(ended.is_err());
            // Until the other worker has taken the second half.
            while halves.0 == halves.1 {
                halves = cx.join(
                    |cx| {
                        cx.sleep(Duration::from_millis(1));
                        cx.id().0
                    },
                    |cx| cx.id().0,
                );
            }
        })
        .unwrap();
    drop(runtime);
    let lives = KEEPER.spans.lock().unwrap().clone();
    let (_, life) = life_of(poor, &lives);
    assert!(life.events.contains(&"exhausted".to_owned()), "{life:?}");
    assert_eq!((life.handles, life.entered), (0, 0), "closed, though it was cancelled");
    let ((one, _), (_, other)) = (life_of(halves.0, &lives), life_of(halves.1, &lives));
    assert_eq!(other.parent, Some(one), "a half is below the task that forked");
    let (_, owner) = life_of(halves.0, &lives);
    assert!(owner.events.contains(&"cancel".to_owned()), "{owner:?}");
}

#[test]
fn a_task_s_name_is_shown_in_its_span_and_in_the_error_of_its_nursery() {
    let _alone = subscribe();
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    let (named, unnamed) = (AtomicU64::new(0), AtomicU64::new(0));
    let failed = runtime
        .run(|cx| {
            cx.nursery(|n| {
                n.start(|cx| unnamed.store(cx.id().0, Ordering::Relaxed)).unwrap();
                cx.yield_now();
                let indexer = n.builder().name("indexer").spawn_try(|cx| {
                    named.store(cx.id().0, Ordering::Relaxed);
                    Err::<(), _>("no index")
                });
                drop(indexer.unwrap());
            })
        })
        .unwrap()
        .unwrap_err();
    let (named, unnamed) = (named.into_inner(), unnamed.into_inner());
    assert_eq!((failed.task.map(|id| id.0), failed.name), (Some(named), Some("indexer")));
    assert_eq!(failed.to_string(), format!("task {named} (indexer): no index"));
    let spans = KEEPER.spans.lock().unwrap();
    assert_eq!(life_of(named, &spans).1.label.as_deref(), Some("indexer"));
    assert_eq!(life_of(unnamed, &spans).1.label, None);
}
