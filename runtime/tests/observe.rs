//! What an observer sees is what tasks did, under every discipline, and what is held for it has a bound.

use mainspring::observe::{ENDED_KEPT, Observation, ObservedTask, Observer, TaskKind};
use mainspring::{
    Capacity, Config, Cx, FairTaskSettings, NurseryOptions, Parker, Profile, Runtime, TaskId, Weight,
};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

fn observed(config: Config, tasks: usize) -> (Runtime, Observer) {
    let runtime = config.observe_tasks(tasks).build().expect("a runtime");
    let observer = Observer::of(&runtime).expect("it was asked for");
    (runtime, observer)
}

fn named<'a>(seen: &'a Observation, name: &str) -> &'a ObservedTask {
    seen.tasks.iter().find(|task| task.name == Some(name)).expect("a task of that name")
}

/// Tasks that yield, sleep, send, park, await, fork, and are cancelled before and after they start.
fn much(cx: &Cx) {
    let (sender, receiver) = cx.channel(Capacity::Bounded(2)).expect("a channel");
    let parkers: [Parker; 8] = Default::default();
    let timer = cx.timer();
    let ended = cx.nursery(|n| {
        n.start(move |cx| (0..100).for_each(|i| sender.send(cx, i).expect("there is a receiver")))
            .expect("a task");
        n.start(move |cx| assert_eq!(receiver.iter(cx).map(|i| i.expect("a number")).sum::<u32>(), 4950))
            .expect("a task");
        for parker in &parkers {
            n.start(|cx| (0..50).for_each(|_| cx.yield_now())).expect("a task");
            n.start(|cx| (0..5).for_each(|_| cx.sleep(Duration::from_micros(50)))).expect("a task");
            n.start(|cx| _ = parker.park(cx, None)).expect("a task");
            let timer = timer.clone();
            let future = async move {
                for _ in 0..5 {
                    timer.sleep(Duration::from_micros(50)).await;
                    let mut polled = false;
                    poll_fn(|cx| {
                        if std::mem::replace(&mut polled, true) {
                            return Poll::Ready(());
                        }
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    })
                    .await;
                }
            };
            n.spawn_future(future).expect("a task");
        }
        cx.join(|cx| (0..20).for_each(|_| cx.yield_now()), |cx| (0..20).for_each(|_| cx.yield_now()));
        parkers.iter().for_each(Parker::unpark);
    });
    ended.expect("all of them end");
    let cancelled = cx.nursery(|n| {
        let before = n.spawn(|cx| Parker::default().park(cx, None)).expect("a task");
        before.cancel();
        n.start(|cx| _ = Parker::default().park(cx, None)).expect("a task");
        cx.yield_now();
        n.cancel();
    });
    cancelled.expect_err("it was cancelled");
}

#[test]
fn every_resume_follows_a_wake_and_no_time_is_counted_twice() {
    let plain = || Config::new(Profile::Service).workers(2);
    let weight = Weight::new(64).expect("a weight");
    let disciplines: [(&str, Config); 5] = [
        ("one worker", plain().workers(1)),
        ("two workers", plain()),
        ("deterministic", plain().deterministic_seed(7)),
        ("by tenant", plain().fair(&[weight, weight])),
        ("by task", plain().fair_by_task(FairTaskSettings::default())),
    ];
    for (discipline, config) in disciplines {
        let (runtime, observer) = observed(config, 1_000);
        runtime.run(much).expect("it ends");
        let seen = observer.tasks();
        assert!(seen.tasks.len() > 30 && seen.missed == 0, "{discipline}: {} tasks", seen.tasks.len());
        for task in &seen.tasks {
            let told = || format!("{discipline}: {task:?}");
            let ended = task.ended.unwrap_or_else(|| panic!("{} has not ended", told()));
            assert!(task.polls == task.wakes + 1 || task.polls == 0 && task.wakes == 0, "{}", told());
            assert!(task.self_wakes <= task.wakes, "{}", told());
            assert!(task.busy + task.scheduled <= ended - task.spawned, "{}", told());
            let times = observer.times(task.id).expect("it is kept");
            let count = |times: &[(Duration, u64)]| times.iter().map(|(_, count)| count).sum::<u64>();
            assert_eq!(
                (count(&times.polls), count(&times.scheduled)),
                (task.polls, task.polls),
                "{}",
                told()
            );
        }
        assert!(
            seen.tasks.iter().any(|task| task.kind == TaskKind::Future && task.self_wakes == 5),
            "{discipline}"
        );
    }
}

#[test]
fn a_half_of_a_join_that_another_worker_takes_is_a_task_of_its_own() {
    let (runtime, observer) = observed(Config::new(Profile::Service).workers(2), 10);
    let taken = AtomicBool::new(false);
    let join = |cx: &Cx| {
        // Only the other worker can end this.
        let wait = |_: &Cx| {
            while !taken.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
        };
        cx.join(wait, |_| taken.store(true, Ordering::Release));
    };
    runtime.run(join).expect("it ends");
    let seen = observer.tasks();
    let half = seen.tasks.iter().find(|task| task.kind == TaskKind::Half).expect("the half");
    assert_eq!((half.polls, half.wakes, half.location), (1, 0, None));
    assert!(half.ended.is_some());
}

#[test]
fn a_place_in_the_program_is_told_and_one_in_the_runtime_is_not() {
    let (runtime, observer) = observed(Config::new(Profile::Service).workers(1), 10);
    let spawned = runtime.run(|cx| cx.nursery(|n| n.builder().name("here").start(|_| ()).expect("a task")));
    let line = line!() - 1;
    spawned.expect("it ends").expect("it ends");
    let seen = observer.tasks();
    let location = named(&seen, "here").location.expect("a place");
    assert_eq!((location.file(), location.line()), (file!(), line));
    let root = seen.tasks.iter().find(|task| task.name.is_none()).expect("the root task");
    assert_eq!(root.location, None);
}

#[test]
fn no_more_is_held_than_was_asked_for() {
    const LIVE: usize = 8;
    let (runtime, observer) = observed(Config::new(Profile::Service).workers(2), LIVE);
    for _ in 0..3 {
        let all = 2 * ENDED_KEPT as u64;
        let before = observer.tasks().missed;
        let (mut live, mut missed) = (0, 0);
        let cancelled = runtime.nursery(NurseryOptions::new(), |n| {
            (0..all).for_each(|_| n.start(|cx| cx.sleep(Duration::from_secs(600))).expect("a task"));
            let seen = observer.tasks();
            live = seen.tasks.iter().filter(|task| task.ended.is_none()).count();
            missed = seen.missed - before;
            n.cancel();
        });
        cancelled.expect_err("it was cancelled");
        assert_eq!((live, missed), (LIVE, all - LIVE as u64));
        assert!(observer.tasks().tasks.iter().all(|task| task.ended.is_some()));
    }
    // One after the other, all are seen, and the last of them are kept.
    let missed = observer.tasks().missed;
    let mut last = TaskId(0);
    for _ in 0..2 * ENDED_KEPT {
        let spawn = |n: &mainspring::Nursery<'_, '_>| last = n.spawn(|_| ()).expect("a task").id();
        runtime.nursery(NurseryOptions::new(), spawn).expect("it ends");
    }
    let seen = observer.tasks();
    assert_eq!((seen.tasks.len(), seen.missed), (ENDED_KEPT, missed));
    assert!(seen.tasks.iter().any(|task| task.id == last));
}

#[test]
fn a_runtime_that_was_not_asked_observes_nothing() {
    let runtime = Config::new(Profile::Service).workers(1).build().expect("a runtime");
    assert!(Observer::of(&runtime).is_none());
}
