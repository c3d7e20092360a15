//! Time goes forward, sleeps end when they are due and not before: with the timers of the local APICs, and with the PIT.
#![no_std]
#![no_main]

use mainspring_user::{caps, say};

mainspring_user::program!(main);

//= ARCH:timer.sleep TICK:L1.clocksource TICK:L1.deadline-waiter ARCH:x86.lapic TICK:verify.sqpoll
fn main() -> i64 {
    let mut last = caps::now();
    for _ in 0..200 {
        let now = caps::now();
        assert!(now >= last, "time went back");
        last = now;
    }
    for ms in [1, 2, 5, 10, 25] {
        let due = caps::now() + ms * 1_000_000;
        caps::sleep_until(due).expect("one sleep is within the quota");
        assert!(caps::now() >= due, "a sleep ended early");
    }
    caps::sleep_until(1).expect("a time that has passed is due at once");
    say!("timer-smoke: ok");
    0
}
