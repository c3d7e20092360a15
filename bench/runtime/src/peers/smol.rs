//! smol: its local executor where there is one worker, two threads that run one executor where there are two.

use super::{leaf_sum, ms, ns_each, processor_time, resident_bytes};
use crate::bench::{Bench, FAN_OUT, Work, YIELDERS};
use smol::channel;
use smol::{Executor, LocalExecutor, future};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Measures one benchmark.
pub fn measure(bench: Bench, work: &Work) -> Option<f64> {
    let work = *work;
    Some(match bench {
        Bench::Yield => yields(work.yields),
        Bench::PingPong => pingpong(work.trips),
        Bench::Spawn => on_worker(|executor| spawn(executor, work.spawns)),
        Bench::Skynet => on_worker(|executor| skynet(executor, work.leaves)),
        Bench::MemoryFuture => on_worker(|executor| memory(executor, work.parked)),
        _ => return None,
    })
}

/// As a task, on an executor that lives as long as the process: tasks that wait for ever are not waited for.
fn on_worker<F>(f: impl FnOnce(&'static Executor<'static>) -> F) -> f64
where
    F: Future<Output = f64> + Send + 'static,
{
    let executor: &'static Executor<'static> = Box::leak(Box::new(Executor::new()));
    let task = executor.spawn(f(executor));
    std::thread::spawn(|| future::block_on(executor.run(future::pending::<()>())));
    future::block_on(executor.run(task))
}

fn yields(each: u32) -> f64 {
    let executor = LocalExecutor::new();
    future::block_on(executor.run(async {
        let began = processor_time();
        let tasks: Vec<_> = (0..YIELDERS)
            .map(|_| {
                executor.spawn(async move {
                    for _ in 0..each {
                        future::yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        ns_each(processor_time() - began, each * YIELDERS)
    }))
}

/// Joined by a countdown, which costs less than a million handles.
async fn spawn(executor: &'static Executor<'static>, count: u32) -> f64 {
    let began = Instant::now();
    let (done, all) = channel::bounded(1);
    let left = Arc::new((AtomicU32::new(count), done));
    for _ in 0..count {
        let left = left.clone();
        executor
            .spawn(async move {
                if left.0.fetch_sub(1, Ordering::AcqRel) == 1 {
                    left.1.try_send(()).expect("there is room");
                }
            })
            .detach();
    }
    all.recv().await.expect("the last one sends");
    ns_each(began.elapsed(), count)
}

/// There is no rendezvous: channels of one message.
fn pingpong(trips: u32) -> f64 {
    let executor = LocalExecutor::new();
    let (to, at) = channel::bounded::<u32>(1);
    let (back, home) = channel::bounded::<u32>(1);
    future::block_on(executor.run(async {
        let began = processor_time();
        let ping = executor.spawn(async move {
            for i in 0..trips {
                to.send(i).await.expect("the other side listens");
                assert_eq!(home.recv().await, Ok(i));
            }
        });
        let pong = executor.spawn(async move {
            while let Ok(i) = at.recv().await {
                back.send(i).await.expect("the other side listens");
            }
        });
        ping.await;
        pong.await;
        ns_each(processor_time() - began, trips)
    }))
}

async fn skynet(executor: &'static Executor<'static>, leaves: u64) -> f64 {
    type Node = Pin<Box<dyn Future<Output = u64> + Send>>;
    fn node(executor: &'static Executor<'static>, first: u64, leaves: u64) -> Node {
        Box::pin(async move {
            let each = leaves / FAN_OUT;
            let children: [_; FAN_OUT as usize] = std::array::from_fn(|i| {
                let first = first + i as u64 * each;
                if each == 1 {
                    executor.spawn(async move { first })
                } else {
                    executor.spawn(node(executor, first, each))
                }
            });
            let mut sum = 0;
            for child in children {
                sum += child.await;
            }
            sum
        })
    }
    let began = Instant::now();
    assert_eq!(node(executor, 0, leaves).await, leaf_sum(leaves));
    ms(began.elapsed())
}

async fn memory(executor: &'static Executor<'static>, tasks: u32) -> f64 {
    let before = resident_bytes();
    let waiting = Arc::new(AtomicU32::new(0));
    for _ in 0..tasks {
        let waiting = waiting.clone();
        executor
            .spawn(async move {
                waiting.fetch_add(1, Ordering::Relaxed);
                drop(waiting);
                future::pending::<()>().await;
            })
            .detach();
    }
    while waiting.load(Ordering::Relaxed) < tasks {
        future::yield_now().await;
    }
    smol::Timer::after(Duration::from_millis(100)).await;
    (resident_bytes() - before) / f64::from(tasks)
}
