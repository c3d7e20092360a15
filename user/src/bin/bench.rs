//! Instructions of the kernel's paths, counted: under `-icount shift=0` the time stamp counter counts instructions, so
//! every figure is exact and the same on any machine. Each line is the mean of many rounds, less the measuring itself.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use mainspring_abi::ring::CapSqeV2;
use mainspring_user::arch::stamp;
use mainspring_user::caps::{self, Short, ThreadOptions};
use mainspring_user::{client, say};

mainspring_user::program!(main);

const ROUNDS: u64 = 200;

fn main() -> i64 {
    let (echo, direct) = (caps::need("call:echo"), caps::need("call:direct"));
    match caps::arguments() {
        "calls" => {
            call(echo, ROUNDS);
            return 0;
        }
        "direct" => {
            call_directly(direct, ROUNDS);
            return 0;
        }
        _ => {}
    }
    let empty = measure(|| {});
    let show = |name: &str, each: u64| say!("bench: {name}={}", each.saturating_sub(empty));
    show(
        "null_cap_enter",
        measure(|| {
            let _ = client::enter(0, 0);
        }),
    );
    show(
        "nop_request",
        measure(|| {
            let ticket = client::submit(CapSqeV2::nop(0)).expect("the ring has room");
            client::wait(ticket).expect("a nop completes");
        }),
    );
    show(
        "timer_now",
        measure(|| {
            core::hint::black_box(caps::now());
        }),
    );
    show("endpoint_round_trip", measure(|| call(echo, 1)));
    show("direct_round_trip", measure(|| call_directly(direct, 1)));
    switches(empty);
    parks(empty);
    timer_interrupt();
    show(
        "thread_spawn_and_exit",
        measure(|| {
            let thread = caps::spawn(ThreadOptions::default(), || 0).expect("within the quota");
            thread.join().expect("it ends");
            thread.detach().expect("a handle can be dropped");
        }),
    );
    let processes = measure_for(20, || {
        let child = caps::start("child", "exit 0", &[]).expect("in the image");
        child.wait().expect("it ends");
        child.detach().expect("a handle can be dropped");
    });
    show("process_spawn_and_exit", processes);
    say!("bench: done=ok");
    0
}

/// Calls the server in the other address space.
#[inline(always)]
fn call(echo: u32, rounds: u64) {
    let mut answer = [0; 16];
    for _ in 0..rounds {
        caps::call_endpoint(echo, &[1, 0, 0, 0], &mut answer).expect("the server answers");
    }
}

/// The same with the message in registers.
#[inline(always)]
fn call_directly(direct: u32, rounds: u64) {
    for _ in 0..rounds {
        let answer = caps::call_short(direct, Short::number(1)).expect("the server answers");
        assert_eq!(answer.to_number(), 2);
    }
}

fn measure(act: impl FnMut()) -> u64 {
    measure_for(ROUNDS, act)
}

fn measure_for(rounds: u64, mut act: impl FnMut()) -> u64 {
    for _ in 0..3 {
        act();
    }
    let before = stamp();
    for _ in 0..rounds {
        act();
    }
    (stamp() - before) / rounds
}

/// Two threads that yield to each other: a switch is half of a round.
fn switches(empty: u64) {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    let partner = caps::spawn(ThreadOptions::default(), move || {
        while !told.load(Ordering::Relaxed) {
            caps::yield_now();
        }
        0
    });
    let partner = partner.expect("within the quota");
    let round = measure(caps::yield_now);
    stop.store(true, Ordering::Relaxed);
    partner.join().expect("it ends");
    say!("bench: thread_switch_by_yield={}", (round - empty) / 2);
}

/// Two threads that wake each other and park: a round is two wakes and two parks.
fn parks(empty: u64) {
    let word = Arc::new(AtomicU32::new(0));
    let other = word.clone();
    let partner = caps::spawn(ThreadOptions::default(), move || {
        let at = other.as_ptr() as u64;
        loop {
            let now = other.load(Ordering::Acquire);
            if now == u32::MAX {
                return 0;
            }
            if now % 2 == 1 {
                other.store(now + 1, Ordering::Release);
                let _ = caps::unpark(at, 1);
            } else {
                let _ = caps::park(at, now, 0);
            }
        }
    });
    let partner = partner.expect("within the quota");
    let at = word.as_ptr() as u64;
    let round = measure(|| {
        let now = word.load(Ordering::Acquire);
        word.store(now + 1, Ordering::Release);
        let _ = caps::unpark(at, 1);
        while word.load(Ordering::Acquire) == now + 1 {
            let _ = caps::park(at, now + 1, 0);
        }
    });
    word.store(u32::MAX, Ordering::Release);
    let _ = caps::unpark(at, 1);
    partner.join().expect("it ends");
    say!("bench: park_and_wake={}", (round - empty) / 2);
}

/// The longest gap in a loop that does nothing: a tick, from user mode into the kernel and back.
fn timer_interrupt() {
    let (mut least, mut last, end) = (u64::MAX, stamp(), stamp() + 100_000_000);
    while last < end {
        let now = stamp();
        let gap = now - last;
        if gap > 100 {
            least = least.min(gap);
        }
        last = now;
    }
    say!("bench: timer_interrupt={least}");
}
