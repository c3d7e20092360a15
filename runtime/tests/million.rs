//! Many tasks that wait at once, each on a guarded stack of its own, with the kernel's default limits.
//!
//! `MAINSPRING_TASKS=1000000 cargo test --release -p mainspring-runtime --test million -- --nocapture` runs a million.

use mainspring::{Budget, Capacity, Caps, Config, GuardKind, Profile};
use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

//= SCHED:5.3.2
#[test]
fn very_many_tasks_wait_at_once() {
    let tasks =
        std::env::var("MAINSPRING_TASKS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000usize);
    let caps = Caps::root(u32::MAX, Budget::MAX, Budget::ZERO, 10, u32::MAX);
    let runtime = Config::new(Profile::Cluster).workers(2).root_caps(caps).build().unwrap();
    if runtime.guards() == GuardKind::Protection && tasks > 30_000 {
        println!("this kernel has no page-table guards: {tasks} stacks would exceed vm.max_map_count");
        return;
    }
    let (waiting, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let before = resident_bytes();
    let during = runtime
        .run(|cx| {
            let (tx, rx) = cx.channel::<u8>(Capacity::Rendezvous).unwrap();
            cx.nursery(|n| {
                let grant = Budget { ops: 10, channel_ops: 2, ..Budget::ZERO };
                for _ in 0..tasks {
                    let (rx, waiting, ended) = (&rx, &waiting, &ended);
                    n.builder()
                        .budget(grant)
                        .spawn(move |cx| {
                            waiting.fetch_add(1, Ordering::Relaxed);
                            assert!(rx.recv(cx).is_err());
                            ended.fetch_add(1, Ordering::Relaxed);
                        })
                        .unwrap();
                }
                while waiting.load(Ordering::Relaxed) < tasks {
                    cx.yield_now();
                }
                assert_eq!(n.live(), tasks as u64);
                let during = resident_bytes();
                tx.close();
                during
            })
            .unwrap()
        })
        .unwrap();
    assert_eq!(ended.load(Ordering::Relaxed), tasks);
    let each = (during - before) / tasks;
    println!("{tasks} waiting tasks, {each} bytes each");
    assert!(each <= 8 << 10, "{each} bytes are committed for a task");
}

//= SCHED:13.2.1a
#[test]
fn a_million_tasks_live_at_once() {
    const TASKS: usize = 1_000_000;
    let caps = Caps::root(u32::MAX, Budget::MAX, Budget::ZERO, 10, u32::MAX);
    let runtime = Config::new(Profile::Cluster).workers(2).root_caps(caps).build().unwrap();
    let (began, ended, opens) = (AtomicUsize::new(0), AtomicUsize::new(0), Gate::default());
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let grant = Budget { ops: 10, ..Budget::ZERO };
                for _ in 0..TASKS {
                    let (began, ended, opens) = (&began, &ended, &opens);
                    let task = n.builder().budget(grant).spawn_future(async move {
                        began.fetch_add(1, Ordering::Relaxed);
                        opens.wait().await;
                        ended.fetch_add(1, Ordering::Relaxed);
                    });
                    task.unwrap();
                }
                while began.load(Ordering::Relaxed) < TASKS {
                    cx.yield_now();
                }
                assert_eq!((n.live(), ended.load(Ordering::Relaxed)), (TASKS as u64, 0));
                opens.open();
            })
            .unwrap();
        })
        .unwrap();
    assert_eq!(ended.into_inner(), TASKS);
}

/// What futures wait for.
#[derive(Default)]
struct Gate(Mutex<(bool, Vec<Waker>)>);

impl Gate {
    async fn wait(&self) {
        poll_fn(|context| {
            let mut gate = self.0.lock().unwrap();
            if gate.0 {
                return Poll::Ready(());
            }
            gate.1.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn open(&self) {
        let waiting = {
            let mut gate = self.0.lock().unwrap();
            gate.0 = true;
            std::mem::take(&mut gate.1)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

//= SCHED:13.2.1a
#[test]
fn a_run_with_256_workers_completes() {
    let runtime = Config::new(Profile::Cluster).workers(256).build().unwrap();
    let sum = runtime.run(|cx| {
        cx.nursery(|n| {
            let children: Vec<_> = (0..2_000u64).map(|i| n.spawn(move |cx| (cx.yield_now(), i).1)).collect();
            children.into_iter().map(|child| child.unwrap().join(cx).unwrap()).sum::<u64>()
        })
    });
    assert_eq!(sum.unwrap().unwrap(), 2_000 * 1_999 / 2);
}

/// Uses about so many bytes of its stack, with a format and a panic at the end of it.
fn use_stack(bytes: usize) -> usize {
    let frame = std::hint::black_box([1u8; 4096]);
    if bytes > frame.len() {
        return use_stack(bytes - frame.len()) + usize::from(frame[bytes % frame.len()]);
    }
    let caught = std::panic::catch_unwind(|| panic!("{:?}", std::hint::black_box([0.5f64; 4])));
    usize::from(caught.is_err())
}

//= SCHED:5.3.2
#[test]
fn stacks_have_room_behind_what_they_commit_and_are_as_large_as_was_asked_for() {
    let room = |stack: usize| move |_: &mainspring::Cx| use_stack(stack);
    let runtime = Config::new(Profile::Service).workers(1).build().unwrap();
    assert!(runtime.run(room(32 << 10)).unwrap() > 0, "more than it commits at first");
    let large = runtime.run(|cx| {
        cx.nursery(|n| n.builder().stack_size(2 << 20).spawn(room(1 << 20)).unwrap().join(cx).unwrap())
    });
    assert!(large.unwrap().unwrap() > 0, "per spawn");
    let runtime = Config::new(Profile::Service).workers(1).stack_size(2 << 20).build().unwrap();
    assert!(runtime.run(room(1 << 20)).unwrap() > 0, "per runtime");
}
