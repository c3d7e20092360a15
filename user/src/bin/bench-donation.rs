//! Instructions of the kernel's paths with contexts, counted as in `bench`: calls on the caller's time, a context bound and given up,
//! one that is used up and one that comes back, and how far a thread runs past its budget.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use mainspring_user::arch::stamp;
use mainspring_user::caps::{self, Context, Grant, Short, ThreadOptions};
use mainspring_user::say;
use mainspring_user::schema::OverrunPolicy;

mainspring_user::program!(main);

const ROUNDS: u64 = 200;
/// It is used up twenty times in all.
const SMALL: Grant = Grant {
    budget_ns: 200_000,
    period_ns: 2_000_000,
    deadline_ns: 0,
    overrun: OverrunPolicy::Throttle,
    cpus: 0,
    depth: 0,
};

//= ARCH:ctx.granularity
fn main() -> i64 {
    let (echo, direct) = (caps::need("call:echo"), caps::need("call:direct"));
    let own = Context(caps::need("context:a"));
    let alone = |act: fn(u32), end: u32| {
        own.bind().expect("it is free");
        (0..ROUNDS).for_each(|_| act(end));
        0
    };
    match caps::arguments() {
        "calls" => return alone(call, echo),
        "direct" => return alone(call_directly, direct),
        _ => {}
    }
    let empty = measure(|| {});
    let show = |name: &str, each: u64| say!("bench: {name}={}", each.saturating_sub(empty));
    show(
        "context_bind_and_unbind",
        measure(|| {
            own.bind().expect("it is free");
            own.unbind().expect("it is bound");
        }),
    );
    // Best effort beside a context whose thread sleeps: no call goes the long way for it.
    let beside = own.create(SMALL).expect("less than its creator has");
    let sleeper = caps::spawn(ThreadOptions::default(), move || {
        beside.bind().expect("it is free");
        let _ = caps::sleep(u64::MAX / 4);
        0
    });
    sleeper.expect("within the quota").detach().expect("a handle can be dropped");
    assert!(caps::comes_true(1_000_000, || beside.info().is_ok_and(|info| info.bound)), "it binds");
    show("endpoint_round_trip_beside_contexts", measure(|| call(echo)));
    show("direct_round_trip_beside_contexts", measure(|| call_directly(direct)));
    own.bind().expect("it is free");
    let donated = own.info().expect("it is there").donated_ns;
    show("endpoint_round_trip_donating", measure(|| call(echo)));
    show("direct_round_trip_donating", measure(|| call_directly(direct)));
    let info = own.info().expect("it is there");
    beside.revoke().expect("it is there");
    assert!(info.donated_ns > donated, "the servers served on their own time");
    own.unbind().expect("it is bound");
    depletion(own);
    say!("bench: donation=ok");
    0
}

#[inline(always)]
fn call(echo: u32) {
    let mut answer = [0; 16];
    caps::call_endpoint(echo, &[1, 0, 0, 0], &mut answer).expect("the server answers");
}

#[inline(always)]
fn call_directly(direct: u32) {
    let answer = caps::call_short(direct, Short::number(1)).expect("the server answers");
    assert_eq!(answer.to_number(), 2);
}

fn measure(mut act: impl FnMut()) -> u64 {
    for _ in 0..3 {
        act();
    }
    let before = stamp();
    for _ in 0..ROUNDS {
        act();
    }
    (stamp() - before) / ROUNDS
}

/// Two threads compute in turns, one on a context and one without: each notes when it ran last, and the other how long that was
/// ago when it runs first. The shortest of these is a switch and nothing else.
fn depletion(own: Context) {
    // When a thread ran last, and which of the two in the lowest bit.
    static LAST: AtomicU64 = AtomicU64::new(0);
    static SHORTEST: [AtomicU64; 2] = [const { AtomicU64::new(u64::MAX) }; 2];
    static STOP: AtomicBool = AtomicBool::new(false);
    let turn = |me: usize| {
        let now = stamp();
        let last = LAST.swap(now << 1 | me as u64, Ordering::Relaxed);
        // One that was stopped between the two has an old time.
        if last & 1 != me as u64
            && let Some(ago) = now.checked_sub(last >> 1)
        {
            SHORTEST[me].fetch_min(ago, Ordering::Relaxed);
        }
    };
    let small = own.create(SMALL).expect("less than its creator has");
    let other = caps::spawn(ThreadOptions::default(), move || {
        while !STOP.load(Ordering::Relaxed) {
            turn(1);
        }
        0
    });
    let spender = caps::spawn(ThreadOptions::default(), move || {
        small.bind().expect("it is free");
        // It computes and asks for nothing: what it runs beyond its budget is what the timer lets it.
        let end = stamp() + 20 * SMALL.period_ns;
        while stamp() < end {
            turn(0);
        }
        small.unbind().expect("it is bound");
        0
    });
    assert_eq!(spender.expect("within the quota").join(), Ok(0));
    STOP.store(true, Ordering::Relaxed);
    assert_eq!(other.expect("within the quota").join(), Ok(0));
    say!("bench: refill_to_running={}", SHORTEST[0].load(Ordering::Relaxed));
    say!("bench: depletion_to_throttled={}", SHORTEST[1].load(Ordering::Relaxed));
    // Time counts instructions here.
    let info = small.info().expect("it is there");
    assert!(info.depletions > 10, "it is used up in each period");
    say!("bench: context_overshoot={}", info.overshoot_max_ns);
}
