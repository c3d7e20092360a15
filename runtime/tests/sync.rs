//! What tasks wait for each other with, against slow models: lists of who waits and who holds, which know nothing of the runtime.
//!
//! A driver tells tasks one at a time what to do, in the deterministic mode. It then sleeps, which ends when every other task
//! waits, and compares what each task does with the model.

use mainspring::sync::{
    Barrier, BroadcastError, CancelToken, Condvar, Mutex, Notify, RwLock, Semaphore, Stopped,
};
use mainspring::{Budget, Capacity, Config, Cx, Parker, Profile, Refusal, Runtime, Select};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Mutex as StdMutex;
use std::time::Duration;

const TASKS: usize = 5;
const SETTLED: Duration = Duration::from_millis(1);

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Nothing,
    Waits(usize),
    Holds(usize),
}

/// What the driver does to a task, or to the thing itself.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Task, wish.
    Take(usize, usize),
    Cancel(usize),
    Give(usize),
    One,
    All,
    /// A notification of one, and a cancellation before any waiter has run.
    OneAndCancel(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let task = 0..TASKS;
    let step = prop_oneof![
        5 => (task.clone(), 0..4usize).prop_map(|(task, wish)| Step::Take(task, wish)),
        2 => task.clone().prop_map(Step::Cancel),
        4 => task.clone().prop_map(Step::Give),
        2 => Just(Step::One),
        1 => Just(Step::All),
        2 => task.prop_map(Step::OneAndCancel),
    ];
    prop::collection::vec(step, 0..60)
}

/// Something that tasks wait for and hold.
trait Thing: Sync {
    /// Waits for `wish`, calls `held`, and lets go when that returns.
    fn hold(&self, cx: &Cx, wish: usize, held: &dyn Fn(&Cx));
    fn one(&self) {}
    fn all(&self) {}
    /// What the model does.
    fn model() -> Box<dyn Model>;
}

/// The slow truth: what all tasks do, in any number of lists.
trait Model {
    fn take(&mut self, task: usize, wish: usize);
    fn cancel(&mut self, task: usize);
    fn give(&mut self, task: usize);
    fn one(&mut self) {}
    fn all(&mut self) {}
    fn does(&self) -> [Does; TASKS];
}

/// Runs the steps on the thing and on its model, and compares what the tasks do after each.
fn compare<T: Thing>(thing: &T, steps: &[Step], seed: u64) -> Result<(), TestCaseError> {
    let runtime = Config::new(Profile::Cluster).workers(2).deterministic_seed(seed).build().unwrap();
    let does: [StdMutex<(Does, CancelToken)>; TASKS] =
        std::array::from_fn(|_| StdMutex::new((Does::Nothing, CancelToken::new())));
    let gives: [Parker; TASKS] = std::array::from_fn(|_| Parker::default());
    let verdict = runtime.run(|cx| {
        cx.nursery(|n| {
            let orders: Vec<_> = (0..TASKS)
                .map(|task| {
                    let (order, orders) = cx.channel::<usize>(Capacity::Rendezvous).unwrap();
                    let (does, give) = (&does[task], &gives[task]);
                    n.start(move |cx| {
                        while let Ok(wish) = orders.recv(cx) {
                            let token = CancelToken::new();
                            *does.lock().unwrap() = (Does::Waits(wish), token.clone());
                            let _ = cx.until(&token, |cx| {
                                thing.hold(cx, wish, &|cx| {
                                    does.lock().unwrap().0 = Does::Holds(wish);
                                    assert!(give.park(cx, None));
                                });
                            });
                            does.lock().unwrap().0 = Does::Nothing;
                        }
                    })
                    .unwrap();
                    order
                })
                .collect();
            let mut model = T::model();
            let see = || std::array::from_fn(|task| does[task].lock().unwrap().0);
            for step in steps {
                let before = model.does();
                let is = |task: usize, what: fn(&Does) -> bool| what(&before[task]);
                let waits = |task| is(task, |does| matches!(does, Does::Waits(_)));
                match *step {
                    Step::Take(task, wish) if before[task] == Does::Nothing => {
                        orders[task].send(cx, wish).unwrap();
                        model.take(task, wish);
                    }
                    Step::Cancel(task) if waits(task) => {
                        does[task].lock().unwrap().1.cancel();
                        model.cancel(task);
                    }
                    Step::Give(task) if is(task, |does| matches!(does, Does::Holds(_))) => {
                        gives[task].unpark();
                        model.give(task);
                    }
                    Step::One => {
                        thing.one();
                        model.one();
                    }
                    Step::All => {
                        thing.all();
                        model.all();
                    }
                    Step::OneAndCancel(task) if waits(task) => {
                        thing.one();
                        does[task].lock().unwrap().1.cancel();
                        model.cancel(task);
                        model.one();
                    }
                    _ => continue,
                }
                cx.sleep(SETTLED);
                let (expected, seen): ([Does; TASKS], [Does; TASKS]) = (model.does(), see());
                prop_assert_eq!(seen, expected, "after {:?}", step);
            }
            drop(orders);
            n.cancel();
            Ok(())
        })
    });
    match verdict.unwrap() {
        Ok(verdict) => verdict,
        // The nursery was cancelled at the end, on purpose.
        Err(error) if error.error.is_cancelled() => Ok(()),
        Err(error) => Err(TestCaseError::fail(error.to_string())),
    }
}

/// A line in which the first waits until `fits` says that its wish goes with what is held.
struct InTurn {
    held: Vec<(usize, usize)>,
    line: VecDeque<(usize, usize)>,
    fits: fn(&[(usize, usize)], usize) -> bool,
}

impl InTurn {
    fn serve(&mut self) {
        while let Some(&(task, wish)) = self.line.front() {
            if !(self.fits)(&self.held, wish) {
                break;
            }
            self.line.pop_front();
            self.held.push((task, wish));
        }
    }
}

impl Model for InTurn {
    fn take(&mut self, task: usize, wish: usize) {
        self.line.push_back((task, wish));
        self.serve();
    }

    fn cancel(&mut self, task: usize) {
        self.line.retain(|waiter| waiter.0 != task);
        self.serve();
    }

    fn give(&mut self, task: usize) {
        self.held.retain(|holder| holder.0 != task);
        self.serve();
    }

    fn does(&self) -> [Does; TASKS] {
        std::array::from_fn(|task| {
            let of = |list: &[(usize, usize)]| list.iter().find(|entry| entry.0 == task).map(|entry| entry.1);
            let line: Vec<_> = self.line.iter().copied().collect();
            match (of(&self.held), of(&line)) {
                (Some(wish), _) => Does::Holds(wish),
                (None, Some(wish)) => Does::Waits(wish),
                (None, None) => Does::Nothing,
            }
        })
    }
}

const PERMITS: usize = 3;

impl Thing for Semaphore {
    fn hold(&self, cx: &Cx, wish: usize, held: &dyn Fn(&Cx)) {
        let _permit = self.acquire(cx, wish).unwrap();
        held(cx);
    }

    fn model() -> Box<dyn Model> {
        let fits = |held: &[(usize, usize)], wish| {
            held.iter().map(|holder| holder.1).sum::<usize>() + wish <= PERMITS
        };
        Box::new(InTurn { held: Vec::new(), line: VecDeque::new(), fits })
    }
}

/// A wish of 0 is to write, and any other to read.
impl Thing for RwLock<u64> {
    fn hold(&self, cx: &Cx, wish: usize, held: &dyn Fn(&Cx)) {
        if wish == 0 {
            let mut guard = self.write(cx).unwrap();
            *guard += 1;
            held(cx);
        } else {
            let guard = self.read(cx).unwrap();
            let before = *guard;
            held(cx);
            assert_eq!(*guard, before, "a writer was beside a reader");
        }
    }

    fn model() -> Box<dyn Model> {
        let fits = |held: &[(usize, usize)], wish| {
            if wish == 0 { held.is_empty() } else { held.iter().all(|holder| holder.1 != 0) }
        };
        Box::new(InTurn { held: Vec::new(), line: VecDeque::new(), fits })
    }
}

/// Waiters for an event; `permits` is what is remembered of it, at most `most`.
struct Event {
    line: VecDeque<(usize, usize)>,
    gone: Vec<(usize, usize)>,
    permits: usize,
    most: usize,
}

impl Model for Event {
    fn take(&mut self, task: usize, wish: usize) {
        if self.permits > 0 {
            self.permits -= 1;
            self.gone.push((task, wish));
        } else {
            self.line.push_back((task, wish));
        }
    }

    fn cancel(&mut self, task: usize) {
        self.line.retain(|waiter| waiter.0 != task);
    }

    fn give(&mut self, task: usize) {
        self.gone.retain(|waiter| waiter.0 != task);
    }

    fn one(&mut self) {
        match self.line.pop_front() {
            Some(waiter) => self.gone.push(waiter),
            None => self.permits = self.most.min(self.permits + 1),
        }
    }

    fn all(&mut self) {
        self.gone.extend(std::mem::take(&mut self.line));
    }

    fn does(&self) -> [Does; TASKS] {
        let fits: fn(&[(usize, usize)], usize) -> bool = |_, _| false;
        InTurn { held: self.gone.clone(), line: self.line.clone(), fits }.does()
    }
}

impl Thing for Notify {
    fn hold(&self, cx: &Cx, _: usize, held: &dyn Fn(&Cx)) {
        self.notified(cx).unwrap();
        held(cx);
    }

    fn one(&self) {
        self.notify_one();
    }

    fn all(&self) {
        self.notify_waiters();
    }

    fn model() -> Box<dyn Model> {
        Box::new(Event { line: VecDeque::new(), gone: Vec::new(), permits: 0, most: 1 })
    }
}

struct Meeting {
    mutex: Mutex<()>,
    condvar: Condvar,
}

impl Thing for Meeting {
    fn hold(&self, cx: &Cx, _: usize, held: &dyn Fn(&Cx)) {
        let guard = self.mutex.lock(cx).unwrap();
        drop(self.condvar.wait(cx, guard).unwrap());
        held(cx);
    }

    fn one(&self) {
        self.condvar.notify_one();
    }

    fn all(&self) {
        self.condvar.notify_all();
    }

    fn model() -> Box<dyn Model> {
        Box::new(Event { line: VecDeque::new(), gone: Vec::new(), permits: 0, most: 0 })
    }
}

/// As `Event`, where the last of three lets all go.
struct Round(Event);

impl Model for Round {
    fn take(&mut self, task: usize, wish: usize) {
        self.0.line.push_back((task, wish));
        if self.0.line.len() == 3 {
            self.0.all();
        }
    }

    fn cancel(&mut self, task: usize) {
        self.0.cancel(task);
    }

    fn give(&mut self, task: usize) {
        self.0.give(task);
    }

    fn does(&self) -> [Does; TASKS] {
        self.0.does()
    }
}

impl Thing for Barrier {
    fn hold(&self, cx: &Cx, _: usize, held: &dyn Fn(&Cx)) {
        self.wait(cx).unwrap();
        held(cx);
    }

    fn model() -> Box<dyn Model> {
        Box::new(Round(Event { line: VecDeque::new(), gone: Vec::new(), permits: 0, most: 0 }))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_semaphore_is_a_line_of_wishes(steps in steps(), seed: u64) {
        compare(&Semaphore::new(PERMITS), &steps, seed)?;
    }

    #[test]
    fn a_lock_has_one_writer_or_readers_in_the_order_in_which_they_came(steps in steps(), seed: u64) {
        compare(&RwLock::new(0), &steps, seed)?;
    }

    #[test]
    fn a_notification_goes_to_one_and_is_handed_on_when_that_is_cancelled(steps in steps(), seed: u64) {
        compare(&Notify::new(), &steps, seed)?;
    }

    #[test]
    fn a_condvar_forgets_what_nobody_waits_for(steps in steps(), seed: u64) {
        compare(&Meeting { mutex: Mutex::new(()), condvar: Condvar::new() }, &steps, seed)?;
    }

    #[test]
    fn a_barrier_counts_those_that_are_there(steps in steps(), seed: u64) {
        compare(&Barrier::new(3), &steps, seed)?;
    }

    /// Against a list of all values, of which receivers know their place.
    #[test]
    fn a_broadcast_gives_every_value_in_order_or_says_how_many_are_gone(
        room in 1..5u32,
        steps in prop::collection::vec((0..6u8, 0..3usize), 0..80),
    ) {
        let runtime = runtime();
        let verdict = runtime.run(|cx| {
            let (sender, first) = cx.broadcast(room).unwrap();
            let mut sent = Vec::new();
            let mut receivers = [Some((first, 0usize)), None, None];
            for (number, (step, which)) in steps.into_iter().enumerate() {
                match step {
                    0..=2 => {
                        let any = receivers.iter().any(Option::is_some);
                        let result = sender.send(cx, number).map_err(|error| (error.why, error.value));
                        prop_assert_eq!(result, if any { Ok(()) } else { Err((Refusal::Closed, number)) });
                        if any {
                            sent.push(number);
                        }
                    }
                    3 => receivers[which] = Some((sender.subscribe(), sent.len())),
                    4 => receivers[which] = None,
                    _ => {
                        let Some((receiver, place)) = &mut receivers[which] else { continue };
                        let oldest = sent.len().saturating_sub(room as usize);
                        let expected = if *place < oldest {
                            let missed = (oldest - *place) as u64;
                            *place = oldest;
                            Err(BroadcastError::Missed(missed))
                        } else if let Some(value) = sent.get(*place) {
                            *place += 1;
                            Ok(*value)
                        } else {
                            Err(BroadcastError::Refused(Refusal::WouldBlock))
                        };
                        prop_assert_eq!(receiver.try_recv(cx).map(|value| *value), expected);
                    }
                }
            }
            drop(sender);
            for (receiver, place) in receivers.iter_mut().flatten() {
                let left = sent.len() - (*place).max(sent.len().saturating_sub(room as usize));
                let mut got = 0;
                loop {
                    match receiver.recv(cx) {
                        Ok(_) => got += 1,
                        Err(BroadcastError::Missed(_)) => {}
                        Err(error) => {
                            prop_assert_eq!(error, BroadcastError::Refused(Refusal::Closed));
                            break;
                        }
                    }
                }
                prop_assert_eq!(got, left);
            }
            Ok(())
        });
        verdict.unwrap()?;
    }
}

fn runtime() -> Runtime {
    Config::new(Profile::Cluster).workers(2).deterministic_seed(1).build().unwrap()
}

#[test]
fn a_watch_tells_of_the_latest_value_and_of_the_end() {
    runtime()
        .run(|cx| {
            let (sender, mut one) = cx.watch(0).unwrap();
            let mut two = sender.subscribe();
            assert!(!one.has_changed());
            assert_eq!(two.changed_timeout(cx, SETTLED), Err(Refusal::TimedOut));
            cx.nursery(|n| {
                let waiter = n
                    .spawn(|cx| {
                        let last = one.wait_for(cx, |value| *value == 3).map(|value| *value);
                        (last, one.changed(cx))
                    })
                    .unwrap();
                for value in 1..=3 {
                    sender.send(cx, value).unwrap();
                    cx.sleep(SETTLED);
                }
                two.changed(cx).unwrap();
                assert_eq!((*two.get(), two.has_changed()), (3, false));
                drop(sender);
                assert_eq!(waiter.join(cx).unwrap(), (Ok(3), Err(Refusal::Closed)));
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn a_oneshot_passes_one_value_or_says_that_its_sender_went() {
    runtime()
        .run(|cx| {
            let (tx, rx) = cx.oneshot().unwrap();
            tx.send(cx, 1).unwrap();
            assert_eq!(rx.recv(cx), Ok(1));
            let (tx, rx) = cx.oneshot::<u8>().unwrap();
            drop(tx);
            assert_eq!(rx.recv(cx), Err(Refusal::Closed));
            let (tx, rx) = cx.oneshot().unwrap();
            assert!(!tx.is_closed());
            drop(rx);
            assert!(tx.is_closed());
            assert_eq!(tx.send(cx, 2).map_err(|error| error.value), Err(2));
            let (tx, mut rx) = cx.oneshot().unwrap();
            assert_eq!(rx.recv_timeout(cx, SETTLED), Err(Refusal::TimedOut));
            tx.send(cx, 3).unwrap();
            assert_eq!(rx.try_recv(cx), Ok(3));
        })
        .unwrap();
}

#[test]
fn a_token_stops_what_runs_under_it_and_all_tokens_below_it() {
    let root = CancelToken::new();
    let (branch, other) = (root.child(), root.child());
    let leaf = branch.child();
    let ended = runtime().run(|cx| {
        cx.nursery(|n| {
            let run = |token: CancelToken| {
                let budget = Budget { ops: 10_000, spawn_count: 4, ..Budget::ZERO };
                n.builder()
                    .budget(budget)
                    .spawn(move |cx| {
                        cx.until(&token, |cx| {
                            // Its children end with it.
                            cx.nursery(|n| n.start(|cx| cx.sleep(Duration::MAX)).unwrap())
                                .map_err(|error| error.error.is_cancelled())
                        })
                    })
                    .unwrap()
            };
            let [on_leaf, on_other, on_root] = [leaf.clone(), other.clone(), root.clone()].map(run);
            cx.sleep(SETTLED);
            assert!(branch.cancel() && !branch.cancel());
            assert_eq!(on_leaf.join(cx).unwrap(), Err(Stopped::Cancelled));
            assert!(leaf.is_cancelled() && !other.is_cancelled() && !root.is_cancelled());
            assert!(branch.child().is_cancelled(), "a child of a cancelled token");
            assert_eq!(cx.until(&leaf, |_| panic!("must not run")), Err::<(), _>(Stopped::Cancelled));
            root.cancel();
            let both = [on_other.join(cx).unwrap(), on_root.join(cx).unwrap()];
            root.cancelled(cx).unwrap();
            both
        })
    });
    assert_eq!(ended.unwrap().unwrap(), [Err(Stopped::Cancelled), Err(Stopped::Cancelled)]);
}

#[test]
fn a_long_chain_of_tokens_needs_no_deep_stack() {
    runtime()
        .run(|_| {
            let root = CancelToken::new();
            let mut last = root.clone();
            for _ in 0..50_000 {
                last = last.child();
            }
            root.cancel();
            assert!(last.is_cancelled());
        })
        .unwrap();
}

#[test]
fn a_timeout_keeps_budgets_and_nurseries_as_they_are_without_it() {
    let costs = |limited: bool| {
        let body = |cx: &Cx| {
            let made = cx.nursery(|n| n.spawn(|cx| cx.check_iterations(100)).unwrap().join(cx).unwrap());
            made.unwrap();
            cx.check_iterations(1000);
        };
        runtime()
            .run(|cx| {
                let before = cx.budget();
                if limited {
                    cx.timeout(Duration::from_secs(1), body).unwrap();
                } else {
                    body(cx);
                }
                (before.ops - cx.budget().ops, cx.budget())
            })
            .unwrap()
    };
    assert_eq!(costs(true), costs(false));
}

#[test]
fn a_timeout_ends_what_is_inside_and_nothing_else() {
    runtime()
        .run(|cx| {
            let long = Duration::from_secs(60);
            let inner = cx.timeout(long, |cx| cx.timeout(SETTLED, |cx| cx.sleep(long)));
            assert_eq!(inner, Ok(Err(Stopped::TimedOut)));
            let outer = cx.timeout(SETTLED, |cx| cx.timeout(long, |cx| cx.sleep(long)));
            assert_eq!(outer, Err(Stopped::TimedOut));
            let computing = cx.timeout(SETTLED, |cx| {
                loop {
                    cx.sleep(Duration::from_micros(1));
                }
            });
            assert_eq!(computing, Err::<(), _>(Stopped::TimedOut));
            assert_eq!(cx.timeout(Duration::ZERO, |_| 7), Ok(7), "what has returned is not thrown away");
            cx.sleep(SETTLED);
        })
        .unwrap();
}

#[test]
fn a_cancelled_task_passes_through_its_timeouts() {
    let runtime = runtime();
    let ended = runtime.run(|cx| {
        cx.nursery(|n| {
            let child = n
                .spawn(|cx| {
                    let _ = cx.timeout(Duration::from_secs(60), |cx| cx.sleep(Duration::MAX));
                    panic!("a cancelled task must not go on behind a timeout");
                })
                .unwrap();
            cx.sleep(SETTLED);
            child.cancel();
            child.join(cx).map(|(): ()| ()).unwrap_err().is_cancelled()
        })
    });
    assert!(ended.unwrap().unwrap());
}

mainspring::task_local! {
    static REQUEST: u32;
    static USER: String;
}

#[test]
fn a_local_value_is_found_inside_of_its_scope_also_by_the_halves_of_a_fork() {
    for seed in 0..20 {
        let runtime = Config::new(Profile::Service).workers(4).deterministic_seed(seed).build().unwrap();
        runtime
            .run(|cx| {
                assert_eq!(REQUEST.get(cx), None);
                REQUEST.scope(cx, 1, |cx| {
                    USER.scope(cx, "ann".to_owned(), |cx| {
                        let look = |cx: &Cx| (REQUEST.get(cx), USER.with(cx, String::len));
                        let halves = cx.join(
                            |cx| {
                                cx.yield_now();
                                (look(cx), REQUEST.scope(cx, 2, |cx| (cx.yield_now(), look(cx)).1))
                            },
                            |cx| (look(cx), REQUEST.scope(cx, 3, |cx| (cx.yield_now(), look(cx)).1)),
                        );
                        let outer = (Some(1), Some(3));
                        assert_eq!(halves, ((outer, (Some(2), Some(3))), (outer, (Some(3), Some(3)))));
                        assert_eq!(look(cx), outer);
                        let child = cx.nursery(|n| n.spawn(|cx| REQUEST.get(cx)).unwrap().join(cx).unwrap());
                        assert_eq!(child.unwrap(), None, "a child is handed what it is to know");
                    });
                    let stopped = cx.timeout(SETTLED, |cx| {
                        REQUEST.scope(cx, 9, |cx| cx.sleep(Duration::from_secs(60)));
                    });
                    assert_eq!((stopped, REQUEST.get(cx)), (Err(Stopped::TimedOut), Some(1)));
                });
            })
            .unwrap();
    }
}

#[test]
fn a_select_waits_for_whatever_comes_first_and_leaves_the_rest() {
    runtime()
        .run(|cx| {
            let (notify, semaphore, token) = (Notify::new(), Semaphore::new(1), CancelToken::new());
            let (sender, mut watch) = cx.watch(0).unwrap();
            let select = |cx: &Cx, watch: &mainspring::sync::WatchReceiver<i32>| {
                Select::new()
                    .notified(&notify, || "notified".to_owned())
                    .acquire(&semaphore, 1, |permit| format!("{permit:?}"))
                    .cancelled(&token, || "cancelled".to_owned())
                    .changed(watch, || "changed".to_owned())
                    .run_timeout(cx, SETTLED, || "late".to_owned())
                    .unwrap()
            };
            let held = semaphore.acquire(cx, 1).unwrap();
            assert_eq!(select(cx, &watch), "late");
            // What comes while it waits.
            cx.nursery(|n| {
                let watch_too = watch.clone();
                let waiter = n.spawn(move |cx| select(cx, &watch_too)).unwrap();
                cx.yield_now();
                notify.notify_one();
                assert_eq!(waiter.join(cx).unwrap(), "notified");
            })
            .unwrap();
            assert_eq!(select(cx, &watch), "late", "the notification was used up");
            drop(held);
            assert!(select(cx, &watch).starts_with("Permit"));
            let held = semaphore.acquire(cx, 1).unwrap();
            assert_eq!(semaphore.free(), 0, "the permit of the select came back");
            sender.send(cx, 1).unwrap();
            assert_eq!(select(cx, &watch), "changed");
            watch.changed(cx).unwrap();
            token.cancel();
            assert_eq!(select(cx, &watch), "cancelled");
            drop(held);
        })
        .unwrap();
}

#[test]
fn a_select_takes_the_child_that_ends_first() {
    runtime()
        .run(|cx| {
            cx.nursery(|n| {
                let mut children: Vec<_> = [3u64, 1, 2]
                    .map(|ms| n.spawn(move |cx| (cx.sleep(Duration::from_millis(ms)), ms).1).unwrap())
                    .into();
                let mut order = Vec::new();
                while !children.is_empty() {
                    let first = children
                        .iter()
                        .enumerate()
                        .fold(Select::new(), |select, (index, child)| select.ended(child, move || index))
                        .run(cx)
                        .unwrap();
                    order.push(children.remove(first).join(cx).unwrap());
                }
                assert_eq!(order, [1, 2, 3]);
                // It may also end as nobody waits for it any more.
                let child = n.spawn(|cx| cx.sleep(2 * SETTLED)).unwrap();
                let late = Select::new().ended(&child, || false).run_timeout(cx, SETTLED, || true);
                assert_eq!(late, Ok(true));
                child.join(cx).unwrap();
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn the_three_channels_are_charged_as_channels_are() {
    runtime()
        .run(|cx| {
            cx.nursery(|n| {
                let budget = Budget { ops: 1000, channel_ops: 6, ..Budget::ZERO };
                let (watch, mut changes) = cx.watch(0).unwrap();
                let (news, mut reader) = cx.broadcast(4).unwrap();
                let (once, mut answer) = cx.oneshot().unwrap();
                let child = n.builder().budget(budget).spawn(move |cx| {
                    let before = cx.budget().channel_ops;
                    watch.send(cx, 1).unwrap();
                    changes.changed(cx).unwrap();
                    news.send(cx, 1).unwrap();
                    reader.recv(cx).unwrap();
                    once.send(cx, 1).unwrap();
                    before - cx.budget().channel_ops
                });
                assert_eq!(child.unwrap().join(cx).unwrap(), 5);
                assert_eq!(answer.try_recv(cx), Ok(1));
                let broke = Budget { ops: 1000, ..Budget::ZERO };
                let (watch, _changes) = cx.watch(0).unwrap();
                let refused = n.builder().budget(broke).spawn(move |cx| watch.send(cx, 1).is_err());
                assert!(refused.unwrap().join(cx).unwrap(), "a task that was granted none");
            })
            .unwrap();
        })
        .unwrap();
}

#[test]
fn ordinary_threads_wait_too() {
    let runtime = Config::new(Profile::Service).workers(2).build().unwrap();
    let (lock, notify, barrier) = (RwLock::new(0), Notify::new(), Barrier::new(2));
    let (mut changes, watch) = {
        let (sender, receiver) = runtime.watch(0);
        (receiver, sender)
    };
    std::thread::scope(|threads| {
        threads.spawn(|| {
            notify.notified_blocking();
            *lock.write_blocking() += 1;
            changes.changed_blocking().unwrap();
            barrier.wait_blocking();
        });
        runtime
            .run(|cx| {
                notify.notify_one();
                watch.send(cx, 1).unwrap();
                barrier.wait(cx).unwrap();
                assert_eq!(*lock.read(cx).unwrap(), 1);
            })
            .unwrap();
    });
}
