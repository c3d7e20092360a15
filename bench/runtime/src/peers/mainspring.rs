//! Ours.

use super::{leaf_sum, ms, ns_each, processor_timed, resident_bytes, timed};
use crate::bench::{ATTACKERS, Attack, BLOCK, Bench, FAN_OUT, HOARD, Work, YIELDERS};
use crate::victim::{GRANT, PERIOD, Victim};
use mainspring::io::UdpSocket;
use mainspring::{
    Budget, Capacity, Caps, Config, Cx, Exhaustion, FairTaskSettings, HostReservation, NurseryOptions,
    Profile, Reservation, Runtime, budgeted,
};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What a child gets: enough for what it does here, so that no figure contains a recharge that its peers do not have.
pub(super) const CHILD: Budget =
    Budget { ops: u32::MAX, memory: 1 << 30, spawn_count: 0, channel_ops: u16::MAX, syscalls: u16::MAX };

/// What a strike may use before it is ended.
const STRIKE: Budget = Budget {
    ops: 1_000_000,
    memory: HOARD * BLOCK,
    spawn_count: HOARD as u16,
    channel_ops: HOARD as u16,
    syscalls: HOARD as u16,
};

/// What becomes of tasks that have started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// They stay on their worker: the default.
    Stay,
    /// They may go on on another.
    Move,
}

/// Measures one benchmark.
pub fn measure(bench: Bench, work: &Work, started: Started) -> Option<f64> {
    Some(match bench {
        Bench::Yield => yields(work.yields, started),
        Bench::Spawn => spawn(work.spawns, started),
        Bench::PingPong => pingpong(work.trips, started),
        Bench::Skynet => skynet(work.leaves, started),
        Bench::Fib => fib(work.fib, started),
        Bench::Memory => stackful_memory(work.parked),
        Bench::MemoryFuture => future_memory(work.parked),
        Bench::MemoryUnstarted => unstarted_memory(work.parked),
        Bench::Check | Bench::Http | Bench::HttpOverstay => return None,
        _ => hostile(bench, bench.attack()?, work.window, started),
    })
}

pub(crate) fn runtime(workers: usize) -> Runtime {
    runtime_whose(workers, Started::Stay)
}

fn runtime_whose(workers: usize, started: Started) -> Runtime {
    build_whose(config(workers).max_stacks(1 << 16), started)
}

#[allow(unsafe_code)]
pub(super) fn build_whose(config: Config, started: Started) -> Runtime {
    build(match started {
        Started::Stay => config,
        // SAFETY: the tasks of this file use no thread-local, no scope of threads and no guard across a yield point. Nor do those of
        // the HTTP server: hyper is done with its thread-locals before a poll returns.
        Started::Move => unsafe { config.migrate_started_tasks() },
    })
}

pub(super) fn config(workers: usize) -> Config {
    // No child gets more than this says, and a strike may spawn.
    let most = Budget { spawn_count: STRIKE.spawn_count, ..CHILD };
    let caps = Caps::root(u32::MAX, most, Budget::MAX, u32::MAX, u32::MAX);
    Config::new(Profile::Service).workers(workers).root_caps(caps)
}

fn build(config: Config) -> Runtime {
    config.build().expect("the configuration is sound")
}

fn yields(each: u32, started: Started) -> f64 {
    let time = runtime_whose(1, started).run(|cx| {
        processor_timed(|| {
            cx.nursery(|n| {
                for _ in 0..YIELDERS {
                    n.spawn(move |cx| (0..each).for_each(|_| cx.yield_now())).expect("the pool pays");
                }
            })
            .expect("no child fails");
        })
    });
    ns_each(time.expect("the task does not fail"), each * YIELDERS)
}

fn spawn(count: u32, started: Started) -> f64 {
    let time = runtime_whose(2, started).run(|cx| {
        timed(|| {
            cx.nursery(|n| {
                for _ in 0..count {
                    n.start(|_| ()).expect("the pool pays");
                }
            })
            .expect("no child fails");
        })
    });
    ns_each(time.expect("the task does not fail"), count)
}

fn pingpong(trips: u32, started: Started) -> f64 {
    let time = runtime_whose(1, started).run(|cx| {
        let (to, at) = cx.channel(Capacity::Rendezvous).expect("the root may");
        let (back, home) = cx.channel(Capacity::Rendezvous).expect("the root may");
        processor_timed(|| {
            // A budget has no more than 65,535 channel operations.
            let options = NurseryOptions::new().on_exhausted(Exhaustion::Refill(CHILD));
            cx.nursery_with(options, |n| {
                n.spawn(move |cx| {
                    for i in 0..trips {
                        to.send(cx, i).expect("the other side listens");
                        assert_eq!(home.recv(cx), Ok(i));
                    }
                })
                .expect("the pool pays");
                n.spawn(move |cx| {
                    for _ in 0..trips {
                        let i: u32 = at.recv(cx).expect("the other side sends");
                        back.send(cx, i).expect("the other side listens");
                    }
                })
                .expect("the pool pays");
            })
            .expect("no child fails");
        })
    });
    ns_each(time.expect("the task does not fail"), trips)
}

fn skynet(leaves: u64, started: Started) -> f64 {
    fn node(cx: &Cx, first: u64, leaves: u64) -> u64 {
        if leaves == 1 {
            return first;
        }
        cx.nursery(|n| {
            let each = leaves / FAN_OUT;
            let part = n.pool().part(FAN_OUT + 1);
            let children: [_; FAN_OUT as usize] = std::array::from_fn(|i| {
                let first = first + i as u64 * each;
                let child = n.builder().budget(Budget { ops: 100, ..Budget::ZERO });
                let child = if each == 1 { child } else { child.pool(part) };
                child.spawn(move |cx| node(cx, first, each)).expect("the pool pays")
            });
            children.into_iter().map(|child| child.join(cx).expect("no child fails")).sum()
        })
        .expect("no child fails")
    }
    let time =
        runtime_whose(2, started).run(|cx| timed(|| assert_eq!(node(cx, 0, leaves), leaf_sum(leaves))));
    ms(time.expect("the task does not fail"))
}

fn fib(n: u32, started: Started) -> f64 {
    fn fib(cx: &Cx, n: u32) -> u32 {
        if n < 2 {
            return n;
        }
        let (a, b) = cx.join(|cx| fib(cx, n - 1), |cx| fib(cx, n - 2));
        a + b
    }
    let time = runtime_whose(2, started).run(|cx| {
        timed(|| {
            black_box(fib(cx, n));
        })
    });
    ms(time.expect("the task does not fail"))
}

fn stackful_memory(tasks: u32) -> f64 {
    let runtime = build(config(2));
    let waiting = AtomicU32::new(0);
    let before = resident_bytes();
    let during = runtime.run(|cx| {
        let (keep, gate) = cx.channel::<()>(Capacity::Rendezvous).expect("the root may");
        let budget = Budget { ops: 10, channel_ops: 2, ..Budget::ZERO };
        let (waiting, gate) = (&waiting, &gate);
        cx.nursery(|n| {
            for _ in 0..tasks {
                n.builder()
                    .budget(budget)
                    .spawn(move |cx| {
                        waiting.fetch_add(1, Ordering::Relaxed);
                        let _ = gate.recv(cx);
                    })
                    .expect("the pool pays");
            }
            while waiting.load(Ordering::Relaxed) < tasks {
                cx.yield_now();
            }
            cx.sleep(Duration::from_millis(100));
            let during = resident_bytes();
            keep.close();
            during
        })
        .expect("no child fails")
    });
    (during.expect("the task does not fail") - before) / f64::from(tasks)
}

fn future_memory(tasks: u32) -> f64 {
    let runtime = runtime(2);
    let waiting = AtomicU32::new(0);
    let before = resident_bytes();
    let during = runtime.run(|cx| {
        let waiting = &waiting;
        let mut during = 0.0;
        let _cancelled = cx.nursery(|n| {
            for _ in 0..tasks {
                n.spawn_future(async move {
                    waiting.fetch_add(1, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                })
                .expect("the pool pays");
            }
            while waiting.load(Ordering::Relaxed) < tasks {
                cx.yield_now();
            }
            cx.sleep(Duration::from_millis(100));
            during = resident_bytes();
            n.cancel();
        });
        during
    });
    (during.expect("the task does not fail") - before) / f64::from(tasks)
}

/// The only worker is kept busy while the host spawns.
fn unstarted_memory(tasks: u32) -> f64 {
    let runtime = runtime(1);
    let (busy, measured) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut bytes = 0.0;
    runtime
        .nursery(NurseryOptions::new(), |n| {
            n.spawn(|_| {
                busy.store(true, Ordering::Release);
                while !measured.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
            .expect("the pool pays");
            while !busy.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let before = resident_bytes();
            for _ in 0..tasks {
                n.spawn(|_| ()).expect("the pool pays");
            }
            bytes = (resident_bytes() - before) / f64::from(tasks);
            measured.store(true, Ordering::Release);
        })
        .expect("no child fails");
    bytes
}

/// Two workers that can grant time, and that the host grants time if it allows that.
fn runtime_with_contexts() -> Runtime {
    let settings = FairTaskSettings { threads: 1 << 14, contexts: 1, ..FairTaskSettings::default() };
    let most = Budget { spawn_count: STRIKE.spawn_count, ..CHILD };
    let caps = Caps::root(u32::MAX, most, Budget::MAX, u32::MAX, u32::MAX).with_contexts(1, 1_000_000);
    let host = HostReservation::Deadline { budget: PERIOD * 9 / 10, period: PERIOD };
    build(config(2).max_stacks(1 << 16).root_caps(caps).fair_by_task(settings).reserve(host))
}

/// A strike ends at its budget, and the attacker strikes again: the attack lasts as long as the window. A victim with deadlines has a
/// context.
fn hostile(bench: Bench, attack: Attack, window: Duration, started: Started) -> f64 {
    let stop = AtomicBool::new(false);
    let runtime = if bench.has_deadlines() { runtime_with_contexts() } else { runtime_whose(2, started) };
    let figure = runtime.run(|cx| {
        let stop = &stop;
        let context = bench
            .has_deadlines()
            .then(|| cx.create_context(Reservation::new(GRANT, PERIOD)).expect("there is time to grant"));
        let mut victim: Victim = bench.victim(window);
        cx.nursery(|n| {
            if attack != Attack::None {
                for _ in 0..ATTACKERS {
                    let part = n.pool().part(ATTACKERS as u64 * 2);
                    n.builder()
                        .budget(CHILD)
                        .pool(part)
                        .spawn(move |cx| {
                            while !stop.load(Ordering::Relaxed) {
                                let options = NurseryOptions::new().on_exhausted(Exhaustion::Cancel);
                                let ended = cx.nursery_with(options, |n| {
                                    let strike =
                                        n.builder().budget(STRIKE).spawn(move |cx| strike(cx, attack));
                                    strike.map(drop)
                                });
                                ended.expect("a cancelled child is no error").expect("the pool pays");
                            }
                        })
                        .expect("the pool pays");
                }
            }
            let child = n.builder();
            let child = match &context {
                Some(context) => child.context(context),
                None => child,
            };
            let victim = child.spawn(move |cx| {
                while let Some(due) = victim.next_due() {
                    cx.sleep(due.saturating_duration_since(Instant::now()));
                    victim.answer();
                }
                stop.store(true, Ordering::Relaxed);
                victim.figure()
            });
            victim.expect("the pool pays").join(cx).expect("no child fails")
        })
        .expect("no child fails")
    });
    figure.expect("the task does not fail")
}

/// Goes on until its budget ends it.
#[budgeted]
fn strike(cx: &Cx, attack: Attack) {
    match attack {
        Attack::None => {}
        Attack::Spin => loop {
            black_box(0);
        },
        Attack::Fork => {
            let bombed = cx.nursery(|n| while n.spawn(|_| ()).is_ok() {});
            bombed.expect("no child fails");
        }
        Attack::Flood => {
            let (tx, _rx) = cx.channel(Capacity::Unbounded).expect("the root allows it");
            loop {
                tx.send(cx, 0).expect("it is open");
            }
        }
        Attack::Alloc => {
            let mut hoard = Vec::new();
            // Not boxed from a value, which might be made on the task's stack first, and is larger than that.
            while let Ok(mut block) = cx.try_vec::<u8>(BLOCK) {
                block.resize(BLOCK, 1);
                hoard.push(block);
            }
        }
        Attack::Syscall => {
            let socket = UdpSocket::bind(cx, "127.0.0.1:0").expect("loopback has a free port");
            let to = socket.local_addr().expect("it is bound");
            loop {
                socket.send_to(cx, &[0], to).expect("loopback takes all");
            }
        }
    }
}
