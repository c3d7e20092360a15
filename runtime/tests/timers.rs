//! A deadline that has come is noticed after a bounded amount of work, whatever that work is. Work is counted, not timed.

use mainspring::io::UdpSocket;
use mainspring::{
    Budget, Capacity, Config, Cx, Exhaustion, FairTaskSettings, NurseryOptions, Profile, Reservation,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// On the only worker, repeats `work` from when a sleeper's deadline has passed until the sleeper has run. Returns how often.
fn work_until_woken(work: impl Fn(&Cx) + Send + Sync) -> u32 {
    let runtime = Config::new(Profile::Cluster).workers(1).build().unwrap();
    let (asleep, woken) = (AtomicBool::new(false), AtomicBool::new(false));
    let (asleep, woken, work) = (&asleep, &woken, &work);
    runtime
        .run(|cx| {
            cx.nursery(|n| {
                let busy = n.builder().budget(cx.caps().spawn().unwrap().child_budget());
                let busy = busy.spawn(move |cx| {
                    while !asleep.load(Ordering::Relaxed) {
                        cx.yield_now();
                    }
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_millis(2) {
                        std::hint::spin_loop();
                    }
                    let mut times = 0;
                    while !woken.load(Ordering::Relaxed) {
                        work(cx);
                        times += 1;
                        assert!(times < 1_000_000, "the sleeper is never woken");
                    }
                    times
                });
                n.spawn(move |cx| {
                    asleep.store(true, Ordering::Relaxed);
                    cx.sleep(Duration::from_millis(1));
                    woken.store(true, Ordering::Relaxed);
                })
                .unwrap();
                busy.unwrap().join(cx).unwrap()
            })
            .unwrap()
        })
        .unwrap()
}

/// 16,384 ops: what a task may use before it gives way.
const QUANTUM_SLICES: u32 = 16;

#[test]
fn ops_bring_a_deadline_on_within_a_quantum() {
    let times = work_until_woken(|cx| (0..1024).for_each(|_| cx.check()));
    assert!(times <= QUANTUM_SLICES + 1, "{times} slices");
}

/// A block of 32 KiB takes the time of 512 ops, which is how often a task of this profile looks up.
#[test]
fn allocations_bring_a_deadline_on_by_their_size() {
    let times = work_until_woken(|cx| cx.charge_alloc(32 << 10).unwrap());
    assert!(times <= 2 * QUANTUM_SLICES + 1, "{times} blocks of 32 KiB");
}

#[test]
fn system_calls_bring_a_deadline_on() {
    let times = work_until_woken(|cx| {
        let socket = UdpSocket::bind(cx, "127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        for _ in 0..7 {
            socket.send_to(cx, &[0], to).unwrap();
        }
    });
    assert!(times <= QUANTUM_SLICES + 1, "{times} times eight system calls");
}

/// A child that uses less than a slice never comes to a slow check of its own.
#[test]
fn tasks_that_end_soon_bring_a_deadline_on_together() {
    let times = work_until_woken(|cx| {
        cx.nursery(|n| n.spawn(|cx| cx.check_iterations(1000)).unwrap().join(cx).unwrap()).unwrap();
    });
    assert!(times <= 3, "{times} tasks");
}

/// Nor does one that its budget ends.
#[test]
fn tasks_that_their_budget_ends_bring_a_deadline_on_together() {
    let times = work_until_woken(|cx| {
        let options = NurseryOptions::new().on_exhausted(Exhaustion::Cancel);
        cx.nursery_with(options, |n| {
            let budget = Budget { ops: 10_000, channel_ops: 1000, ..Budget::ZERO };
            let flood = n.builder().budget(budget).spawn(|cx| {
                let (tx, _rx) = cx.channel(Capacity::Unbounded).unwrap();
                loop {
                    tx.send(cx, 0).unwrap();
                }
            });
            flood.map(drop).unwrap();
        })
        .unwrap();
    });
    assert!(times <= 3, "{times} tasks");
}

/// On the only worker, of a runtime that grants time to tasks, spawns from when the deadline of a sleeper with a context has passed
/// until the sleeper has run. Returns how many tasks were spawned meanwhile.
fn spawns_until_woken() -> u32 {
    let caps = Profile::Cluster.implicit_caps().with_contexts(1, 500_000);
    let settings = FairTaskSettings { threads: 2048, contexts: 1, ..FairTaskSettings::default() };
    let config = Config::new(Profile::Cluster).workers(1).root_caps(caps).fair_by_task(settings);
    let (asleep, woken) = (AtomicBool::new(false), AtomicBool::new(false));
    let (asleep, woken) = (&asleep, &woken);
    config
        .build()
        .unwrap()
        .run(|cx| {
            let grant = Reservation::new(Duration::from_millis(1), Duration::from_millis(10));
            let context = cx.create_context(grant).unwrap();
            cx.nursery(|n| {
                let sleeper = n.builder().context(&context).spawn(move |cx| {
                    asleep.store(true, Ordering::Relaxed);
                    cx.sleep(Duration::from_millis(1));
                    woken.store(true, Ordering::Relaxed);
                });
                sleeper.unwrap();
                while !asleep.load(Ordering::Relaxed) {
                    cx.yield_now();
                }
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(2) {
                    std::hint::spin_loop();
                }
                let mut times = 0;
                while !woken.load(Ordering::Relaxed) {
                    n.spawn(|_| ()).unwrap();
                    times += 1;
                    assert!(times < 2_000, "the sleeper is never woken");
                }
                times
            })
            .unwrap()
        })
        .unwrap()
}

/// To admit a task to a core takes the time of hundreds of ops.
#[test]
fn spawns_bring_the_deadline_of_a_context_on() {
    let times = spawns_until_woken();
    assert!(times <= 8, "{times} spawns");
}
