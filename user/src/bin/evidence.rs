//! Where time goes, case by case, on a kernel that measures: what it counts is what happened. Each pair of cases differs in
//! one thing, so that what a difference comes from can be told: the workload from the scheduler, a line of the cache from the
//! work on it, and in two boots the switches from their being said.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use mainspring_user::caps::{self, Counted, ThreadOptions};
use mainspring_user::schema::{Access, Counter};
use mainspring_user::{arch, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;
const TURNS: u32 = 100;

fn main() -> i64 {
    computing();
    cache_lines();
    wakes();
    segments();
    sleeps();
    switches();
    page_tables();
    serial_line();
    say!("evidence: all=ok");
    0
}

/// Does `work`, and says how long it took and what was counted meanwhile.
fn case(name: &str, work: impl FnOnce()) -> Counted {
    caps::begin_case(name).expect("this kernel measures");
    let began = caps::now();
    work();
    let took = caps::now() - began;
    let counted = caps::begin_case("").expect("this kernel measures");
    say!("evidence: case={name} took_ns={took}");
    counted
}

/// `work`, with its number, in two threads, each on the CPUs of its mask.
fn in_two(masks: [u64; 2], work: impl Fn(u64) + Send + Clone + 'static) {
    let threads: Vec<_> = (0..)
        .zip(masks)
        .map(|(number, cpus)| {
            let work = work.clone();
            caps::spawn(ThreadOptions { cpus, ..ThreadOptions::default() }, move || {
                work(number);
                0
            })
            .expect("within the quota")
        })
        .collect();
    for thread in &threads {
        assert_eq!(thread.join(), Ok(0));
    }
}

/// `work` on each of the first two CPUs.
fn on_both(work: impl Fn(u64) + Send + Clone + 'static) {
    in_two([1, 2], work);
}

/// Two threads wake each other by turns, and wait for each other's.
fn by_turns(masks: [u64; 2]) {
    let word = Arc::new(AtomicU32::new(0));
    in_two(masks, move |number| {
        let at = word.as_ptr() as u64;
        for turn in 0..TURNS {
            loop {
                let now = word.load(Ordering::Acquire);
                if now >= 2 * turn + number as u32 {
                    break;
                }
                let _ = caps::park(at, now, 0);
            }
            word.fetch_add(1, Ordering::AcqRel);
            let _ = caps::unpark(at, 1);
        }
    });
}

/// The same time with and without memory: what takes longer is the workload's doing.
//= EVO:S0.evidence
fn computing() {
    let until = |work: fn(u64)| {
        on_both(move |cpu| {
            let end = caps::now() + 60 * MS;
            while caps::now() < end {
                work(cpu);
            }
        });
    };
    let counted = case("registers", || until(|_| arch::spin(100_000)));
    assert!(counted.of(Counter::TimersInUserMode) > 0, "60 ms without a timer interrupt");
    assert!(counted.of(Counter::Decisions) >= counted.of(Counter::Runs));
    assert_eq!(
        counted.of(Counter::Decisions),
        counted.of(Counter::Runs) + counted.of(Counter::Idles),
        "each decision has an outcome"
    );
    let base = caps::map(512, Access::Write).expect("2 MiB are within the quota");
    case("memory", move || {
        on_both(move |cpu| {
            for round in 0..20 {
                for word in 0..(1 << 17) {
                    arch::word(base + (cpu << 20) + word * 8).store(round, Ordering::Relaxed);
                }
            }
        });
    });
    caps::unmap(base, 512).expect("it is mapped");
}

/// Two threads that write to one line of the cache, or to one each.
//= EVO:S0.evidence
fn cache_lines() {
    for (name, apart) in [("lines-apart", 8), ("one-line", 1)] {
        let words: Arc<Vec<AtomicU64>> = Arc::new((0..16).map(|_| AtomicU64::new(0)).collect());
        let counters = words.clone();
        case(name, || {
            on_both(move |cpu| {
                for _ in 0..200_000 {
                    counters[cpu as usize * apart].fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        let sum: u64 = words.iter().map(|word| word.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 400_000);
    }
}

/// Requests take time in the ring, in Cap'n Proto, in methods and in the scheduler, and a program that asks for nothing takes none
/// of the first three.
//= ARCH:measure.gate
fn segments() {
    let asked = [Counter::RingCycles, Counter::CapnpCycles, Counter::MethodCycles];
    let calls = case("requests", || {
        for _ in 0..1000 {
            let _ = caps::usage().expect("usage can be read");
        }
    });
    let none = case("no-requests", || arch::spin(100_000));
    for what in asked {
        let (with, without) = (calls.of(what), none.of(what));
        assert!(with > 10 * without, "{what:?}: {with} with requests, {without} without");
    }
    let turns = case("turns", || by_turns([1, 2]));
    for what in [Counter::SchedulerCycles, Counter::LockWaitCycles] {
        assert!(turns.of(what) > 0, "threads woke each other, and {what:?} is nothing");
    }
    let (scheduler, held) = (turns.of(Counter::SchedulerCycles), turns.of(Counter::LockHoldCycles));
    assert!(scheduler <= held, "a core was at work for {scheduler} and locked for {held}");
    say!("evidence: segments=ok");
}

/// Two threads on two CPUs wake each other, and neither wakes the other.
//= ARCH:wake.counters EVO:S0.evidence
fn wakes() {
    let counted = case("wakes", || by_turns([1, 2]));
    let without = case("no-wakes", || arch::spin(100_000));
    for what in [Counter::WakeScans, Counter::IdleEligible, Counter::CpusTargeted, Counter::IpisSent] {
        let (with, without) = (counted.of(what), without.of(what));
        assert!(with > without + 10, "{what:?}: {with} with wakes, {without} without");
    }
    for what in [Counter::NotReady, Counter::NoLapic, Counter::SendFailures] {
        assert_eq!(counted.of(what), 0, "{what:?}, and all CPUs are there");
    }
    say!("evidence: wakes=ok");
}

/// No thread runs, and timers come all the same.
//= EVO:S0.evidence
fn sleeps() {
    let counted = case("sleeps", || (0..10).for_each(|_| caps::sleep(MS).expect("within the quota")));
    assert!(counted.of(Counter::TimersInIdle) > 0, "no sleep ended on an idle CPU: {counted:?}");
    assert!(counted.of(Counter::Idles) > 0, "nobody idled: {counted:?}");
}

/// Two threads of one CPU wait for each other. Said or not, by what the machine was booted with.
//= EVO:S0.evidence
fn switches() {
    let counted = case("switches", || by_turns([1, 1]));
    let (switches, bytes) = (counted.of(Counter::Switches), counted.of(Counter::SerialBytes));
    assert!(switches >= u64::from(TURNS), "{switches} switches");
    assert!(
        counted.of(Counter::Candidates) > 0
            && counted.of(Counter::CoreLocks) >= counted.of(Counter::Decisions)
    );
    let said = caps::arguments() == "said";
    assert_eq!(said, bytes > 20 * switches, "{bytes} bytes were sent for {switches} switches");
    say!("evidence: switches=ok said={said} bytes={bytes}");
}

/// Another address space is loaded, and a page that both CPUs know is taken away.
//= EVO:S0.evidence
fn page_tables() {
    let counted = case("page-tables", || {
        let child = caps::start("child", "exit 3", &[]).expect("in the image");
        assert_eq!(child.wait(), Ok(3));
        let page = caps::map(1, Access::Write).expect("within the quota");
        arch::word(page).store(1, Ordering::Relaxed);
        caps::unmap(page, 1).expect("it is mapped");
    });
    assert!(counted.of(Counter::TableLoads) >= 2, "{counted:?}");
    assert!(counted.of(Counter::Flushes) > 0 && counted.of(Counter::Shootdowns) > 0, "{counted:?}");
    say!("evidence: page_tables=ok");
}

/// What is printed is counted.
//= EVO:S0.evidence
fn serial_line() {
    const LINE: &[u8] = b"evidence: a line of forty bytes, no more\n";
    let counted = case("serial", || (0..10).for_each(|_| caps::print(LINE)));
    let bytes = counted.of(Counter::SerialBytes);
    assert!(bytes >= 10 * LINE.len() as u64, "{bytes}");
    say!("evidence: serial=ok");
}
