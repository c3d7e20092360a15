//! `may`: stackful coroutines on a global scheduler.
#![allow(unsafe_code)]

use super::{leaf_sum, ms, ns_each, processor_timed, resident_bytes, timed};
use crate::bench::{ATTACKERS, Attack, BLOCK, Bench, FAN_OUT, HOARD, Work, YIELDERS};
use crate::victim::Victim;
use may::coroutine::{self, JoinHandle};
use may::sync::mpsc;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Measures one benchmark.
pub fn measure(bench: Bench, work: &Work) -> Option<f64> {
    let one_worker = matches!(bench, Bench::Yield | Bench::PingPong);
    may::config().set_workers(if one_worker { 1 } else { 2 });
    let work = *work;
    let value = match bench {
        Bench::Yield => spawn(move || yields(work.yields)),
        Bench::PingPong => spawn(move || pingpong(work.trips)),
        Bench::Skynet => spawn(move || ms(timed(|| assert_eq!(node(0, work.leaves), leaf_sum(work.leaves))))),
        Bench::Memory => spawn(move || memory(work.parked)),
        _ => {
            let attack = bench.attack()?;
            spawn(move || hostile(attack, work.window, bench.victim(work.window)))
        }
    };
    Some(value.join().expect("it does not panic"))
}

fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // SAFETY: the closures here use no thread-local, and far less stack than there is.
    unsafe { coroutine::spawn(f) }
}

fn yields(each: u32) -> f64 {
    let time = processor_timed(|| {
        let tasks: Vec<_> =
            (0..YIELDERS).map(|_| spawn(move || (0..each).for_each(|_| coroutine::yield_now()))).collect();
        tasks.into_iter().for_each(|task| task.join().expect("it does not panic"));
    });
    ns_each(time, each * YIELDERS)
}

/// There is no rendezvous: unbounded channels, which never wait to send.
fn pingpong(trips: u32) -> f64 {
    let (to, at) = mpsc::channel::<u32>();
    let (back, home) = mpsc::channel::<u32>();
    let time = processor_timed(|| {
        let ping = spawn(move || {
            for i in 0..trips {
                to.send(i).expect("the other side listens");
                assert_eq!(home.recv(), Ok(i));
            }
        });
        let pong = spawn(move || {
            while let Ok(i) = at.recv() {
                back.send(i).expect("the other side listens");
            }
        });
        ping.join().expect("it does not panic");
        pong.join().expect("it does not panic");
    });
    ns_each(time, trips)
}

fn node(first: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return first;
    }
    let each = leaves / FAN_OUT;
    let children: [_; FAN_OUT as usize] =
        std::array::from_fn(|i| spawn(move || node(first + i as u64 * each, each)));
    children.into_iter().map(|child| child.join().expect("it does not panic")).sum()
}

fn memory(tasks: u32) -> f64 {
    let before = resident_bytes();
    let waiting = Arc::new(AtomicU32::new(0));
    let parked: Vec<_> = (0..tasks)
        .map(|_| {
            let waiting = waiting.clone();
            spawn(move || {
                waiting.fetch_add(1, Ordering::Relaxed);
                coroutine::park();
            })
        })
        .collect();
    while waiting.load(Ordering::Relaxed) < tasks {
        coroutine::yield_now();
    }
    let bytes = (resident_bytes() - before) / f64::from(tasks);
    std::mem::forget(parked);
    bytes
}

fn hostile(attack: Attack, window: Duration, mut victim: Victim) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    // A starved victim cannot end the attack.
    let end = stop.clone();
    std::thread::spawn(move || {
        std::thread::sleep(window);
        end.store(true, Ordering::Relaxed);
    });
    let victim = spawn(move || {
        while let Some(due) = victim.next_due() {
            coroutine::sleep(due.saturating_duration_since(Instant::now()));
            victim.answer();
        }
        victim.figure()
    });
    if attack != Attack::None {
        for _ in 0..ATTACKERS {
            let stop = stop.clone();
            spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    strike(attack);
                }
            });
        }
    }
    victim.join().expect("it does not panic")
}

fn strike(attack: Attack) {
    match attack {
        Attack::None => {}
        Attack::Spin => (0..1_000_000).for_each(|i| {
            black_box(i);
        }),
        Attack::Fork => {
            let children: Vec<_> = (0..HOARD).map(|_| spawn(|| ())).collect();
            children.into_iter().for_each(|child| child.join().expect("it does not panic"));
        }
        Attack::Flood => {
            let (tx, rx) = mpsc::channel();
            (0..HOARD).for_each(|i| tx.send(i).expect("it is open"));
            black_box(&rx);
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
