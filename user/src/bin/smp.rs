//! Several CPUs: all of them work, threads are woken across them and stolen, page table changes reach them, and idle ones
//! are left alone. `idle`: one idle second.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use mainspring_user::caps::{self, CpuCounters, ThreadOptions};
use mainspring_user::schema::Access;
use mainspring_user::{arch, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;

fn main() -> i64 {
    let cpus = caps::usage().expect("usage can be read").cpus;
    match caps::arguments() {
        "idle" => idle(cpus),
        _ => {
            all_work(cpus);
            wakes_across(cpus);
            shootdown(cpus);
            siblings(cpus);
            let usage = caps::usage().expect("usage can be read");
            assert_eq!(usage.hard_path_allocations, 0);
            // No thread has anything to do: every CPU halts, also where there is only one.
            caps::sleep(5_000_000).expect("within the quota");
            say!("smp: all=ok cpus={cpus}");
        }
    }
    0
}

fn counters(cpus: u32) -> Vec<CpuCounters> {
    (0..cpus).map(|cpu| caps::cpu_counters(cpu).expect("the CPU exists")).collect()
}

/// Threads made on one CPU spread over all of them by stealing. At each tick each CPU compares the thread that it runs with
/// the one that its core says runs, and stops the machine if they differ.
//= ARCH:x86.smp ARCH:place.local ARCH:inv.current-mirror
fn all_work(cpus: u32) {
    let before = counters(cpus);
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..2 * cpus)
        .map(|_| {
            let stop = stop.clone();
            caps::spawn(ThreadOptions::default(), move || {
                while !stop.load(Ordering::Relaxed) {
                    arch::spin(1000);
                }
                0
            })
            .expect("within the quota")
        })
        .collect();
    caps::sleep(300 * MS).expect("within the quota");
    // Every CPU has taken a thread or charged one, and no CPU idles between two looks. (What a lone thread has run is
    // charged only when it stops, and how long a CPU has idled is known when it does not any more.)
    let spread = || {
        let first = counters(cpus);
        let _ = caps::sleep(5 * MS);
        let has_worked = |b: &CpuCounters, a: &CpuCounters| a.steals > b.steals || a.busy_ns > b.busy_ns;
        before.iter().zip(&first).all(|(b, a)| has_worked(b, a))
            && first.iter().zip(&counters(cpus)).all(|(b, a)| a.idle_ns == b.idle_ns)
    };
    let all = caps::comes_true(50 * MS, spread);
    stop.store(true, Ordering::Relaxed);
    for thread in &threads {
        assert_eq!(thread.join(), Ok(0));
    }
    assert!(all, "threads are made on one CPU and must be stolen by all others");
    let after = counters(cpus);
    let busy = before.iter().zip(&after).filter(|(b, a)| a.busy_ns > b.busy_ns).count();
    let steals: u64 = before.iter().zip(&after).map(|(b, a)| a.steals - b.steals).sum();
    assert_eq!(busy as u32, cpus, "every CPU had work");
    assert!(cpus == 1 || steals > 0, "work came to the others by stealing");
    say!("smp: all_work=ok busy={busy} steals={steals}");
}

/// Threads bound to each CPU wake each other in a ring, across CPUs.
//= ARCH:inv.no-double-run
fn wakes_across(cpus: u32) {
    const ROUNDS: u32 = 50;
    let turn = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..cpus)
        .map(|cpu| {
            let turn = turn.clone();
            let options = ThreadOptions { cpus: 1 << cpu, ..ThreadOptions::default() };
            caps::spawn(options, move || {
                let at = turn.as_ptr() as u64;
                loop {
                    let now = turn.load(Ordering::Acquire);
                    if now >= ROUNDS * cpus {
                        return 0;
                    }
                    if now % cpus == cpu {
                        turn.store(now + 1, Ordering::Release);
                        let _ = caps::unpark(at, cpus);
                    } else {
                        let _ = caps::park(at, now, 0);
                    }
                }
            })
            .expect("within the quota")
        })
        .collect();
    for thread in &threads {
        assert_eq!(thread.join(), Ok(0));
    }
    say!("smp: wakes_across=ok turns={}", turn.load(Ordering::Relaxed));
}

/// A page is taken away while threads on all CPUs read it: when the call completes, none can read what is there next.
//= ARCH:tlb.shootdown ARCH:tlb.drain
fn shootdown(cpus: u32) {
    let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let page = caps::map(1, Access::Write).expect("a page is within the quota");
    let threads: Vec<_> = (0..cpus)
        .map(|cpu| {
            let (stop, reads) = (stop.clone(), reads.clone());
            let options = ThreadOptions { cpus: 1 << cpu, ..ThreadOptions::default() };
            caps::spawn(options, move || {
                while !stop.load(Ordering::Relaxed) {
                    core::hint::black_box(arch::word(page).load(Ordering::Relaxed));
                    reads.fetch_add(1, Ordering::Relaxed);
                }
                0
            })
            .expect("within the quota")
        })
        .collect();
    for round in 0..20 {
        arch::word(page).store(round, Ordering::Relaxed);
        caps::protect(page, 1, Access::Read).expect("the page is ours");
        caps::protect(page, 1, Access::Write).expect("the page is ours");
    }
    stop.store(true, Ordering::Relaxed);
    for thread in &threads {
        assert_eq!(thread.join(), Ok(0));
    }
    let before = caps::usage().expect("usage can be read").free_frames;
    caps::unmap(page, 1).expect("the page is ours");
    assert!(caps::usage().expect("usage can be read").free_frames > before, "the page came back");
    for how in ["unmapped", "read-only"] {
        let child =
            caps::start("shooter", how, &["memory", "threads", "timer", "park"]).expect("in the image");
        assert_eq!(child.wait(), Ok(-1014), "{how}: a write through an old translation is stopped");
    }
    say!("smp: shootdown=ok reads={}", reads.load(Ordering::Relaxed));
}

/// Siblings with rings of their own run at the same time, and each gets its own completions.
//= ARCH:sibling-smp ARCH:ring.per-thread
fn siblings(cpus: u32) {
    let threads: Vec<_> = (0..cpus)
        .map(|_| {
            caps::spawn(ThreadOptions::default(), || {
                for _ in 0..50 {
                    let due = caps::now() + 100_000;
                    caps::sleep_until(due).expect("within the quota");
                    assert!(caps::now() >= due);
                }
                0
            })
            .expect("within the quota")
        })
        .collect();
    for thread in &threads {
        assert_eq!(thread.join(), Ok(0));
    }
    say!("smp: siblings=ok");
}

/// One idle second: hardly any timer interrupt, and what sleeps still wakes on time.
//= TICK:verify.idle TICK:nongoal.apic TICK:telemetry.evidence TICK:L1.idle-entry
fn idle(cpus: u32) {
    caps::sleep(50 * MS).expect("within the quota");
    let began = caps::now();
    let before = counters(cpus);
    let due = began + 1000 * MS;
    caps::sleep_until(due).expect("within the quota");
    let late = caps::now().checked_sub(due).expect("the sleep ended early");
    let after = counters(cpus);
    // A second that took longer has room for more.
    let most = (caps::now() - began) * 12 / (1000 * MS);
    // A CPU counts what it suppressed at its next interrupt, whenever the host lets it have that.
    let suppressed = || -> Vec<u64> {
        let now = counters(cpus);
        before.iter().zip(&now).map(|(b, a)| a.ticks_suppressed - b.ticks_suppressed).collect()
    };
    let counted = || suppressed().iter().all(|ticks| *ticks >= 80);
    assert!(caps::comes_true(100 * MS, counted), "of about 100 ticks {:?} were suppressed", suppressed());
    for (cpu, (b, a)) in before.iter().zip(&after).enumerate() {
        let (interrupts, ticks) = (a.timer_interrupts - b.timer_interrupts, a.ticks - b.ticks);
        say!("smp: idle cpu={cpu} timer_interrupts={interrupts} ticks={ticks}");
        assert!(interrupts <= most, "an idle CPU was interrupted {interrupts} times, not at most {most}");
    }
    say!("smp: idle ticks_suppressed={:?}", suppressed());
    let word = AtomicU32::new(0);
    let due = caps::now() + 10 * MS;
    assert_eq!(caps::park(word.as_ptr() as u64, 0, due), Err(mainspring_user::CapError::TimedOut));
    assert!(caps::now() >= due, "a park ended early");
    say!("smp: idle=ok late_ns={late}");
}
