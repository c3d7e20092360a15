//! Starts one hostile program after the other beside an honest neighbour, and looks at what is left: each attack ends
//! only its own process, with the right code, and everything that it had comes back.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use mainspring_user::arch::wild::INSTRUCTIONS;
use mainspring_user::caps::{self, ThreadOptions, Usage};
use mainspring_user::{arch, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;
const GRANTS: &[&str] =
    &["console", "timer", "threads", "control", "park", "memory", "info", "policy", "processes"];

/// Attacks, and how each ends: the processor's exceptions are -1000 less their number.
const ATTACKS: &[(&str, i32)] = &[
    ("kernel-read", -1014),
    ("kernel-write", -1014),
    ("null", -1014),
    ("unmapped", -1014),
    ("noncanonical", -1013),
    ("gs-read", -1014),
    ("text-write", -1014),
    ("data-execute", -1014),
    ("cli", -1013),
    ("hlt", -1013),
    ("port", -1013),
    ("cr3", -1013),
    ("wrmsr", -1013),
    ("int3", -1013),
    ("int80", -1013),
    ("ud2", -1006),
    ("divide", -1000),
    ("stack-overflow", -1014),
    ("bad-stack", -1014),
    ("kernel-stack", -1014),
    ("single-step", -1001),
    ("pointers", 0),
    ("capabilities", 0),
    ("requests", 0),
    ("system-calls", 0),
    ("ring-tail", 0),
    ("ring-head", 0),
    ("ring-version", 0),
    ("ring-sizes", 0),
    ("ring-scribble", 0),
    ("registers", 0),
    ("unmap-flood", 0),
    ("thread-bomb", 0),
    ("thread-entry", -1014),
    ("fork-bomb 4", 0),
];

/// Attacks on what processes could learn of each other and do to each other, and how each ends.
const INVASIONS: &[(&str, i32)] = &[
    ("fresh-registers", 0),
    ("call-registers", 0),
    ("leave-secrets", 0),
    ("find-secrets", 0),
    ("instructions-allowed", 0),
    ("times", 0),
    ("ring-remap", 0),
    ("execute-stack", -1014),
    ("execute-written", -1014),
    ("write-executable", -1014),
    ("fill-capabilities", 0),
    ("pointers-out", 0),
    ("joins", 0),
    ("completions", 0),
    ("tick-requests", 0),
    ("selectors", 0),
    ("edge-of-memory", -1014),
    ("spurious-wakes", 0),
    ("reuse", 0),
    ("deep", 0),
];

/// Every interrupt that a program can ask for is refused, and so is every instruction that is not its to use.
fn each_vector_and_instruction() -> usize {
    for vector in 0..=255 {
        let code = run("invade", &alloc::format!("vector {vector}"));
        assert_eq!(code, -1013, "int {vector}");
    }
    for number in 0..INSTRUCTIONS {
        let code = run("invade", &alloc::format!("instruction {number}"));
        assert!([-1006, -1013].contains(&code), "instruction {number} ended with {code}");
    }
    256 + INSTRUCTIONS as usize
}

/// Runs a program to its end. However many have run before, nothing of them is in its way: all of them have come back before
/// their end is told.
fn run(program: &str, arguments: &str) -> i32 {
    let child =
        caps::start(program, arguments, GRANTS).expect("the program is in the image, and there is room");
    let code = child.wait().expect("its end is told");
    child.detach().expect("a handle can be dropped");
    code
}

//= TICK:L4.reject ARCH:inv.user-copy ARCH:inv.exit-clean ARCH:exit.process
fn main() -> i64 {
    // The place of the honest thread stays mapped after its first use.
    let first = caps::spawn(ThreadOptions::default(), || 0).expect("within the quota");
    assert_eq!(first.join(), Ok(0));
    first.detach().expect("a handle can be dropped");
    let before = settled(None);
    let only = caps::arguments();
    let attacks = ATTACKS.iter().map(|attack| ("attack", attack));
    let all = attacks.chain(INVASIONS.iter().map(|attack| ("invade", attack)));
    let mut count = 0;
    for (program, (attack, expected)) in
        all.filter(|(_, (attack, _))| only.is_empty() || attack.contains(only))
    {
        let code = run(program, attack);
        assert_eq!(code, *expected, "{attack}");
        say!("hostile: attack={attack} code={code} contained=ok");
        count += 1;
    }
    if only.is_empty() || only == "vector" {
        count += each_vector_and_instruction();
    }
    if only.is_empty() {
        let _ = settled(Some(&before));
        neighbours_share("attack", "spin", 1);
        // Threads that ask for a nanosecond at a time get no more than their share by that, and cost others nothing.
        if before.cpus == 1 {
            let _ = settled(Some(&before));
            neighbours_share("invade", "requests-of-a-nanosecond", 4);
        }
    }
    let after = settled(Some(&before));
    assert_eq!(after.free_frames, before.free_frames, "all memory came back");
    assert_eq!((after.threads, after.processes), (before.threads, before.processes));
    assert_eq!(after.pending_waits, before.pending_waits, "no wait is left");
    assert_eq!(after.hard_path_allocations, 0);
    say!("hostile: attacks={count} memory=ok frames={}", after.free_frames);
    0
}

/// What the machine has in use, once the dead are buried.
fn settled(before: Option<&Usage>) -> Usage {
    let buried =
        || caps::usage().is_ok_and(|usage| before.is_none_or(|before| usage.processes == before.processes));
    assert!(caps::comes_true(2 * MS, buried), "somebody was never buried");
    caps::usage().expect("usage can be read")
}

/// Programs that never stop get their share beside an honest thread, and it gets its own.
fn neighbours_share(program: &str, how: &str, threads: u64) {
    let (stop, runtime) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let cpus = caps::usage().expect("usage can be read").cpus;
    let spinners: Vec<_> =
        (0..3 * cpus).map(|_| caps::start(program, how, GRANTS).expect("in the image")).collect();
    let (told, ran) = (stop.clone(), runtime.clone());
    let honest = caps::spawn(ThreadOptions::default(), move || {
        let before = caps::account().expect("a thread can read its account").runtime_ns;
        while !told.load(Ordering::Relaxed) {
            arch::spin(100_000);
            let now = caps::account().expect("a thread can read its account").runtime_ns;
            ran.store(now - before, Ordering::Relaxed);
        }
        0
    });
    let honest = honest.expect("within the quota");
    // However much time the host gives the machine: what all CPUs spent on threads is what there was to share.
    let busy = || (0..cpus).map(|cpu| caps::cpu_counters(cpu).map_or(0, |cpu| cpu.busy_ns)).sum::<u64>();
    let began = busy();
    caps::sleep(200 * MS).expect("within the quota");
    let mut percent = 0;
    let shares = caps::comes_true(50 * MS, || {
        let fair = (busy() - began) / (spinners.len() as u64 * threads + 1);
        percent = runtime.load(Ordering::Relaxed) * 100 / fair.max(1);
        // CPUs that are all busy do not even out how many threads each has: a share on average is not one on each.
        percent >= 25
    });
    stop.store(true, Ordering::Relaxed);
    assert_eq!(honest.join(), Ok(0));
    honest.detach().expect("a handle can be dropped");
    let count = spinners.len();
    for spinner in spinners {
        spinner.kill().expect("a handle can kill");
        assert_eq!(spinner.wait(), Ok(-3000));
        spinner.detach().expect("a handle can be dropped");
    }
    assert!(shares, "the honest thread got {percent} percent of its share");
    say!("hostile: neighbour_share=ok how={how} percent={percent} spinners={count}");
}
