//! What a client is told is what the program did.

use crate::client::{
    Watch, client, connect, is_idle, is_running, is_scheduled, observed, polls, settings, temporality, text,
    value,
};
use console_api::field::Value;
use console_api::instrument::{PauseRequest, ResumeRequest, StateRequest, TaskDetailsRequest, Temporality};
use console_api::tasks::task_details::PollTimesHistogram;
use mainspring::{Config, NurseryOptions, Parker, Profile, Weight};
use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

#[test]
fn polls_and_wakes_are_those_of_the_program() {
    let (runtime, console) = observed();
    let parker = Parker::default();
    let _cancelled = runtime.nursery(NurseryOptions::new(), |n| {
        n.builder()
            .name("parks")
            .start(|cx| {
                for _ in 0..4 {
                    parker.park(cx, None);
                }
            })
            .expect("a task");
        n.builder()
            .name("sleeps")
            .start(|cx| {
                for _ in 0..3 {
                    cx.sleep(Duration::from_millis(1));
                }
                cx.sleep(Duration::from_secs(600));
            })
            .expect("a task");
        client(async {
            let mut watch = Watch::begin(&mut connect(console.address()).await).await;
            for unparks in 1..=3 {
                let parked = |stats: &_| is_idle(stats) && polls(stats).polls == unparks;
                let (_, stats) = watch.until("parks", parked).await;
                assert_eq!((stats.wakes, stats.self_wakes), (unparks - 1, 0));
                parker.unpark();
            }
            let (task, stats) = watch.until("parks", |stats| is_idle(stats) && stats.wakes == 3).await;
            assert_eq!((polls(&stats).polls, stats.self_wakes), (4, 0));
            assert_eq!(text(&task, "kind").as_deref(), Some("task"));
            let (_, stats) = watch.until("sleeps", |stats| is_idle(stats) && stats.wakes == 3).await;
            assert_eq!((polls(&stats).polls, stats.self_wakes), (4, 0));
            assert_eq!(stats.waker_clones - stats.waker_drops, 1, "the timer knows it");
        });
        n.cancel();
    });
}

#[test]
fn a_yield_to_another_task_is_a_wake_by_itself() {
    let (runtime, console) = observed();
    let over = AtomicBool::new(false);
    let _cancelled = runtime.nursery(NurseryOptions::new(), |n| {
        // Ready at every yield of the other.
        n.builder()
            .name("beside")
            .start(|cx| {
                while !over.load(Ordering::Relaxed) {
                    cx.yield_now();
                }
            })
            .expect("a task");
        n.builder()
            .name("yields")
            .start(|cx| {
                for _ in 0..5 {
                    cx.yield_now();
                }
                over.store(true, Ordering::Relaxed);
                Parker::default().park(cx, None);
            })
            .expect("a task");
        client(async {
            let mut watch = Watch::begin(&mut connect(console.address()).await).await;
            let (_, stats) = watch.until("yields", |stats| is_idle(stats) && stats.wakes > 0).await;
            assert_eq!((polls(&stats).polls, stats.wakes, stats.self_wakes), (6, 5, 5));
        });
        n.cancel();
    });
}

#[test]
fn a_future_that_wakes_itself_is_told_from_one_that_others_wake() {
    let (runtime, console) = observed();
    let kept: Mutex<Option<Waker>> = Mutex::new(None);
    let kept = &kept;
    let _cancelled = runtime.nursery(NurseryOptions::new(), |n| {
        let mut left = 4;
        let itself = poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            left -= 1;
            if left > 0 { Poll::Pending } else { Poll::Ready(()) }
        });
        let by_others = poll_fn(move |cx| {
            *kept.lock().expect("whole") = Some(cx.waker().clone());
            Poll::<()>::Pending
        });
        let both = async {
            itself.await;
            by_others.await;
        };
        n.builder().name("future").spawn_future(both).expect("a task");
        let lost = poll_fn(|_| Poll::<()>::Pending);
        n.builder().name("lost").spawn_future(lost).expect("a task");
        client(async {
            let mut watch = Watch::begin(&mut connect(console.address()).await).await;
            // The last of the four wakes is noted, and ends the wait for others once.
            let (task, stats) = watch.until("future", |stats| is_idle(stats) && stats.wakes == 4).await;
            assert_eq!((polls(&stats).polls, stats.self_wakes), (5, 4));
            assert_eq!(text(&task, "kind").as_deref(), Some("future"));
            assert_eq!(stats.waker_clones - stats.waker_drops, 1, "the test has it");
            kept.lock().expect("whole").take().expect("a waker").wake();
            let (_, stats) = watch.until("future", |stats| is_idle(stats) && stats.wakes == 5).await;
            assert_eq!((polls(&stats).polls, stats.self_wakes), (6, 4));
            let (_, stats) = watch.until("lost", is_idle).await;
            assert_eq!((stats.waker_clones, stats.wakes), (0, 0), "nobody can wake it");
        });
        n.cancel();
    });
}

#[test]
fn a_task_that_runs_and_one_that_waits_for_its_worker_are_told_as_such() {
    let weight = Weight::new(64).expect("a weight");
    let config = Config::new(Profile::Service).workers(1).fair(&[weight, weight]);
    let (runtime, console) = settings().build(config).expect("a runtime and its console");
    let over = AtomicBool::new(false);
    runtime
        .nursery(NurseryOptions::new(), |n| {
            let _also_if_a_check_fails = Ends(&over);
            let spins = |_: &_| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            n.builder().name("runs").tenant(1).start(spins).expect("a task");
            let line = line!() - 1;
            client(async {
                let mut client = connect(console.address()).await;
                let mut watch = Watch::begin(&mut client).await;
                let (task, stats) = watch.until("runs", is_running).await;
                assert_eq!(polls(&stats).polls, 1);
                assert_eq!(value(&task, "tenant"), Some(Value::U64Val(1)));
                assert!(matches!(value(&task, "nursery"), Some(Value::U64Val(_))));
                let location = task.location.expect("it was spawned here");
                assert_eq!(location.file.as_deref(), Some(file!()));
                assert_eq!(location.line, Some(line));
                n.builder().name("waits").tenant(0).start(|_| ()).expect("a task");
                let (_, stats) = watch.until("waits", is_scheduled).await;
                assert_eq!((polls(&stats).polls, stats.wakes), (0, 0));
            });
        })
        .expect("both end");
}

/// Ends a task that spins.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_task_that_has_ended_is_told_as_dropped_also_to_those_who_come_later() {
    let (runtime, console) = observed();
    let parker = Parker::default();
    client(async {
        let mut first = connect(console.address()).await;
        let mut watch = Watch::begin(&mut first).await;
        runtime
            .nursery(NurseryOptions::new(), |n| {
                n.builder().name("ends").start(|cx| _ = parker.park(cx, None)).expect("a task");
                parker.unpark();
            })
            .expect("it ends");
        let (_, stats) = watch.until("ends", |stats| stats.dropped_at.is_some()).await;
        assert_eq!(polls(&stats).polls, stats.wakes + 1);
        assert_eq!(stats.waker_clones, stats.waker_drops);
        let (_, later) =
            Watch::begin(&mut first).await.until("ends", |stats| stats.dropped_at.is_some()).await;
        assert_eq!(later, stats);
        let id = watch.tasks.values().map(|(task, _)| task.id).next().expect("a task");
        let details = first.watch_task_details(TaskDetailsRequest { id }).await.expect("it is still known");
        let details = details.into_inner().message().await.expect("details").expect("details");
        let Some(PollTimesHistogram::Histogram(times)) = details.poll_times_histogram else {
            panic!("how long each poll took")
        };
        assert_eq!(count(&times.raw_histogram), polls(&stats).polls);
        let scheduled = details.scheduled_times_histogram.expect("how long each wait took");
        assert_eq!(count(&scheduled.raw_histogram), polls(&stats).polls);
        let id = Some(console_api::Id { id: u64::MAX });
        let refused = first.watch_task_details(TaskDetailsRequest { id }).await.expect_err("there is none");
        assert_eq!(refused.code(), tonic::Code::NotFound);
    });
}

fn count(raw: &[u8]) -> u64 {
    let histogram: hdrhistogram::Histogram<u64> =
        hdrhistogram::serialization::Deserializer::new().deserialize(&mut &raw[..]).expect("a histogram");
    histogram.len()
}

#[test]
fn nothing_is_told_of_tasks_while_the_console_is_paused() {
    let (runtime, console) = observed();
    let parker = Parker::default();
    let _cancelled = runtime.nursery(NurseryOptions::new(), |n| {
        n.builder().name("parks").start(|cx| while parker.park(cx, None) {}).expect("a task");
        client(async {
            let mut client = connect(console.address()).await;
            let mut watch = Watch::begin(&mut client).await;
            let states = client.watch_state(StateRequest {}).await.expect("it may watch");
            let mut states = states.into_inner();
            assert_eq!(temporality(&mut states).await, Temporality::Live);
            watch.until("parks", is_idle).await;
            client.pause(PauseRequest {}).await.expect("it pauses");
            while temporality(&mut states).await == Temporality::Live {}
            // What was told before may be on its way for some ticks.
            ticks(&mut states, 10).await;
            while tokio::time::timeout(Duration::ZERO, watch.next()).await.is_ok() {}
            parker.unpark();
            ticks(&mut states, 10).await;
            assert!(tokio::time::timeout(Duration::ZERO, watch.next()).await.is_err(), "it is paused");
            client.resume(ResumeRequest {}).await.expect("it goes on");
            while temporality(&mut states).await == Temporality::Paused {}
            let (_, stats) = watch.until("parks", |stats| is_idle(stats) && stats.wakes == 1).await;
            assert_eq!(polls(&stats).polls, 2);
        });
        n.cancel();
    });
}

async fn ticks(states: &mut tonic::Streaming<console_api::instrument::State>, n: u32) {
    for _ in 0..n {
        assert_eq!(temporality(states).await, Temporality::Paused);
    }
}
