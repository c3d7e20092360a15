//! Tokio: the current-thread scheduler where there is one worker, the multi-thread one where there are two.

use super::{leaf_sum, ms, ns_each, processor_time, resident_bytes};
use crate::bench::{ATTACKERS, Attack, BLOCK, Bench, FAN_OUT, HOARD, Work, YIELDERS};
use crate::victim::Victim;
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc};

/// Measures one benchmark.
pub fn measure(bench: Bench, work: &Work) -> Option<f64> {
    let work = *work;
    Some(match bench {
        Bench::Yield => one().block_on(yields(work.yields)),
        Bench::PingPong => one().block_on(pingpong(work.trips)),
        Bench::Spawn => on_worker(spawn(work.spawns)),
        Bench::Skynet => on_worker(skynet(work.leaves)),
        Bench::MemoryFuture => on_worker(memory(work.parked)),
        _ => on_worker(hostile(bench.attack()?, work.window, bench.victim(work.window))),
    })
}

fn one() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime starts")
}

/// As a task, which spawns faster than a thread outside.
fn on_worker(f: impl Future<Output = f64> + Send + 'static) -> f64 {
    let runtime =
        Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime starts");
    let value = runtime.block_on(runtime.spawn(f)).expect("the task does not panic");
    // What waits for ever is not waited for.
    runtime.shutdown_background();
    value
}

async fn yields(each: u32) -> f64 {
    let began = processor_time();
    let tasks: Vec<_> = (0..YIELDERS)
        .map(|_| {
            tokio::spawn(async move {
                for _ in 0..each {
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("it does not panic");
    }
    ns_each(processor_time() - began, each * YIELDERS)
}

/// Joined by a countdown, which costs less than a million handles.
async fn spawn(count: u32) -> f64 {
    let began = Instant::now();
    let all = Arc::new((AtomicU32::new(count), Notify::new()));
    for _ in 0..count {
        let all = all.clone();
        tokio::spawn(async move {
            if all.0.fetch_sub(1, Ordering::AcqRel) == 1 {
                all.1.notify_one();
            }
        });
    }
    all.1.notified().await;
    ns_each(began.elapsed(), count)
}

/// There is no rendezvous: channels of one message.
async fn pingpong(trips: u32) -> f64 {
    let began = processor_time();
    let (to, mut at) = mpsc::channel::<u32>(1);
    let (back, mut home) = mpsc::channel::<u32>(1);
    let ping = tokio::spawn(async move {
        for i in 0..trips {
            to.send(i).await.expect("the other side listens");
            assert_eq!(home.recv().await, Some(i));
        }
    });
    let pong = tokio::spawn(async move {
        while let Some(i) = at.recv().await {
            back.send(i).await.expect("the other side listens");
        }
    });
    ping.await.expect("it does not panic");
    pong.await.expect("it does not panic");
    ns_each(processor_time() - began, trips)
}

async fn skynet(leaves: u64) -> f64 {
    fn node(first: u64, leaves: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
        Box::pin(async move {
            let each = leaves / FAN_OUT;
            let children: [_; FAN_OUT as usize] = std::array::from_fn(|i| {
                let first = first + i as u64 * each;
                if each == 1 { tokio::spawn(async move { first }) } else { tokio::spawn(node(first, each)) }
            });
            let mut sum = 0;
            for child in children {
                sum += child.await.expect("it does not panic");
            }
            sum
        })
    }
    let began = Instant::now();
    assert_eq!(node(0, leaves).await, leaf_sum(leaves));
    ms(began.elapsed())
}

async fn memory(tasks: u32) -> f64 {
    let before = resident_bytes();
    let waiting = Arc::new(AtomicU32::new(0));
    for _ in 0..tasks {
        let waiting = waiting.clone();
        tokio::spawn(async move {
            waiting.fetch_add(1, Ordering::Relaxed);
            drop(waiting);
            std::future::pending::<()>().await;
        });
    }
    while waiting.load(Ordering::Relaxed) < tasks {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    (resident_bytes() - before) / f64::from(tasks)
}

async fn hostile(attack: Attack, window: Duration, mut victim: Victim) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    // A starved victim cannot end the attack.
    let end = stop.clone();
    std::thread::spawn(move || {
        std::thread::sleep(window);
        end.store(true, Ordering::Relaxed);
    });
    let victim = tokio::spawn(async move {
        while let Some(due) = victim.next_due() {
            tokio::time::sleep_until(due.into()).await;
            victim.answer();
        }
        victim.figure()
    });
    if attack != Attack::None {
        for _ in 0..ATTACKERS {
            let stop = stop.clone();
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    strike(attack).await;
                }
            });
        }
    }
    victim.await.expect("it does not panic")
}

async fn strike(attack: Attack) {
    match attack {
        Attack::None => {}
        Attack::Spin => (0..1_000_000).for_each(|i| {
            black_box(i);
        }),
        Attack::Fork => {
            let children: Vec<_> = (0..HOARD).map(|_| tokio::spawn(async {})).collect();
            for child in children {
                child.await.expect("it does not panic");
            }
        }
        Attack::Flood => {
            let (tx, rx) = mpsc::unbounded_channel();
            (0..HOARD).for_each(|i| tx.send(i).expect("it is open"));
            black_box(rx.len());
        }
        Attack::Alloc => {
            black_box((0..HOARD).map(|_| vec![1u8; BLOCK]).collect::<Vec<_>>());
        }
        Attack::Syscall => {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
            let to = socket.local_addr().expect("it is bound");
            (0..HOARD).for_each(|_| assert_eq!(socket.send_to(&[0], to).ok(), Some(1)));
        }
    }
}
