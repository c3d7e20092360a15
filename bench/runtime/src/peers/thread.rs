//! Plain threads of the host: the victim under `SCHED_DEADLINE`, the attackers as any thread is.
#![allow(unsafe_code)]

use crate::bench::{ATTACKERS, Attack, BLOCK, Bench, HOARD, Work};
use crate::victim::{GRANT, PERIOD};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Threads that a fork bomb starts at a time: the host has no room for as many as a runtime has for tasks.
const FORKED: usize = 64;

/// Measures one benchmark. None of one without deadlines, and none where the host does not grant time.
pub fn measure(bench: Bench, work: &Work) -> Option<f64> {
    let attack = bench.attack().filter(|_| bench.has_deadlines())?;
    let stop = AtomicBool::new(false);
    let mut victim = bench.victim(work.window);
    std::thread::scope(|threads| {
        for _ in 0..ATTACKERS {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    strike(attack);
                }
            });
        }
        let victim = threads.spawn(|| {
            let is_granted = ask_for_time();
            while let Some(due) = victim.next_due().filter(|_| is_granted) {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                victim.answer();
            }
            stop.store(true, Ordering::Relaxed);
            is_granted.then(|| victim.figure())
        });
        victim.join().expect("it does not panic")
    })
}

/// The kernel's record for `sched_setattr`.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// A millisecond in each ten for this thread. False if the host refuses.
fn ask_for_time() -> bool {
    const SCHED_DEADLINE: u32 = 6;
    let ns = |time: Duration| time.as_nanos() as u64;
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: SCHED_DEADLINE,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime_ns: ns(GRANT),
        deadline_ns: ns(PERIOD),
        period_ns: ns(PERIOD),
    };
    // SAFETY: the record outlives the call, and is as large as it says.
    let asked = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    asked == 0
}

fn strike(attack: Attack) {
    match attack {
        Attack::None => {}
        Attack::Spin => (0..1_000_000).for_each(|i| {
            black_box(i);
        }),
        Attack::Fork => {
            let children: Vec<_> = (0..FORKED).map(|_| std::thread::spawn(|| ())).collect();
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
