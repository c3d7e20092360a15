//! The ways by which a CPU comes to idle: it has never run a thread, its thread waits, ends, or is ended while it computes.
//! Meant for the kernel that checks itself at every turn: what holds at each halt and each return to user mode is looked at
//! there, and here it is made to happen.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use mainspring_user::caps::{self, Context, ThreadOptions};
use mainspring_user::{arch, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;
/// A victim dies by a message, or by the tick if that finds its mark first. Ticks are as close as this proof's boot manifest sets them.
const VICTIMS: u64 = 150;

/// All of it from CPU 0, so that CPU 1 has nothing but what it is given. Each request, and each return to user mode from each
/// of these ways, is one at which the kernel looks at itself.
//= ARCH:inv.ring-no-lock ARCH:inv.current-mirror ARCH:inv.kernel-stack ARCH:tlb.resident
fn main() -> i64 {
    let options = ThreadOptions { cpus: 1, ..ThreadOptions::default() };
    let work = caps::spawn(options, || {
        blocks();
        exits();
        throttled();
        killed_while_computing();
        served_by_idle_cpus();
        served_by_ticks();
        0
    });
    i64::from(work.expect("within the quota").join() != Ok(0))
}

/// A thread that waits, and no other thread: its CPU idles after it, and goes on with it when its time has come.
//= ARCH:idle.cpl0 ARCH:idle.loop ARCH:idle.cooperative
fn blocks() {
    for _ in 0..50 {
        let due = caps::now() + MS / 5;
        caps::sleep_until(due).expect("within the quota");
        assert!(caps::now() >= due, "the sleep ended early");
    }
    say!("idle-paths: blocks=ok");
}

/// A thread and a process that end on a CPU which has nothing else.
//= ARCH:idle.dispatch-sites ARCH:inv.idle-no-block
fn exits() {
    for _ in 0..10 {
        let options = ThreadOptions { cpus: 2, ..ThreadOptions::default() };
        let thread = caps::spawn(options, || 3).expect("within the quota");
        assert_eq!(thread.join(), Ok(3));
        let child = caps::start("child", "exit 4", &[]).expect("in the image");
        assert_eq!(child.wait(), Ok(4));
        child.detach().expect("a handle can be dropped");
    }
    say!("idle-paths: exits=ok");
}

/// A thread that computes on after its budget, on a CPU which has nothing else: the timer takes the CPU away from it.
//= ARCH:idle.dispatch-sites
fn throttled() {
    let context = Context(caps::need("context:a"));
    let options = ThreadOptions { cpus: 2, ..ThreadOptions::default() };
    let thread = caps::spawn(options, move || {
        context.bind().expect("its time is on this CPU");
        while context.info().expect("it is there").depletions < 3 {
            arch::spin(1000);
        }
        0
    });
    assert_eq!(thread.expect("within the quota").join(), Ok(0));
    say!("idle-paths: throttled=ok");
}

/// A thread that never enters the kernel by itself is ended by whatever interrupts it next.
//= ARCH:idle.dispatch-sites TICK:L1.idle-irq
fn killed_while_computing() {
    for round in 0..VICTIMS {
        let child = caps::start("child", "spin", &["park", "threads", "timer"]).expect("in the image");
        caps::sleep(MS + round * 1_700).expect("within the quota");
        child.kill().expect("a handle can kill");
        assert_eq!(child.wait(), Ok(-3000));
        child.detach().expect("a handle can be dropped");
    }
    say!("idle-paths: killed=ok rounds={VICTIMS}");
}

/// A process that ended is torn down though no thread runs whose tick could do it.
//= ARCH:idle.parity
fn served_by_idle_cpus() {
    bury_one();
    say!("idle-paths: served_by_idle_cpus=ok");
}

/// A process that ended is torn down though no CPU idles.
//= ARCH:idle.parity
fn served_by_ticks() {
    let stop = Arc::new(AtomicBool::new(false));
    let cpus = caps::usage().expect("usage can be read").cpus;
    let busy: alloc::vec::Vec<_> = (0..cpus)
        .map(|cpu| {
            let stop = stop.clone();
            caps::spawn(ThreadOptions { cpus: 1 << cpu, ..ThreadOptions::default() }, move || {
                while !stop.load(Ordering::Relaxed) {
                    arch::spin(1000);
                }
                0
            })
            .expect("within the quota")
        })
        .collect();
    caps::sleep(5 * MS).expect("within the quota");
    bury_one();
    stop.store(true, Ordering::Relaxed);
    for thread in &busy {
        assert_eq!(thread.join(), Ok(0));
    }
    say!("idle-paths: served_by_ticks=ok");
}

fn bury_one() {
    let before = caps::usage().expect("usage can be read");
    let child = caps::start("child", "exit 5", &[]).expect("in the image");
    assert_eq!(child.wait(), Ok(5));
    child.detach().expect("a handle can be dropped");
    let buried = || caps::usage().is_ok_and(|usage| usage.processes == before.processes);
    assert!(caps::comes_true(MS, buried), "the child was never torn down");
}
