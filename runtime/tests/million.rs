//! Many tasks that wait at once, each on a guarded stack of its own, with the kernel's default limits.
//!
//! `MAINSPRING_TASKS=1000000 cargo test --release -p mainspring-runtime --test million -- --nocapture` runs a million.

use mainspring::{Budget, Capacity, Caps, Config, GuardKind, Profile};
use std::sync::atomic::{AtomicUsize, Ordering};

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

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
    println!("{tasks} waiting tasks, {} bytes each", (during - before) / tasks);
}
