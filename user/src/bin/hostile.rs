//! Starts one hostile program after the other beside an honest neighbour, and looks at what is left: each attack ends
//! only its own process, with the right code, and everything that it had comes back.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

//= TICK:L4.reject ARCH:inv.user-copy ARCH:inv.exit-clean ARCH:exit.process ARCH:x86.syscall-gs
fn main() -> i64 {
    // The place of the honest thread stays mapped after its first use.
    let first = caps::spawn(ThreadOptions::default(), || 0).expect("within the quota");
    assert_eq!(first.join(), Ok(0));
    first.detach().expect("a handle can be dropped");
    let before = settled(None);
    for (attack, expected) in ATTACKS {
        let child = caps::start("attack", attack, GRANTS).expect("the program is in the image");
        let code = child.wait().expect("its end is told");
        assert_eq!(code, *expected, "{attack}");
        child.detach().expect("a handle can be dropped");
        say!("hostile: attack={attack} code={code} contained=ok");
    }
    neighbours_share();
    let after = settled(Some(&before));
    assert_eq!(after.free_frames, before.free_frames, "all memory came back");
    assert_eq!((after.threads, after.processes), (before.threads, before.processes));
    assert_eq!(after.pending_waits, before.pending_waits, "no wait is left");
    assert_eq!(after.hard_path_allocations, 0);
    say!("hostile: attacks={} memory=ok frames={}", ATTACKS.len(), after.free_frames);
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
fn neighbours_share() {
    let (stop, runtime) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let cpus = caps::usage().expect("usage can be read").cpus;
    let spinners: Vec<_> =
        (0..3 * cpus).map(|_| caps::start("attack", "spin", GRANTS).expect("in the image")).collect();
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
    let began = caps::now();
    caps::sleep(400 * MS).expect("within the quota");
    // One of four or more on its CPU: a quarter, less what moving between CPUs may cost.
    let mut percent = 0;
    let shares = caps::comes_true(100 * MS, || {
        percent = runtime.load(Ordering::Relaxed) * 100 / (caps::now() - began);
        percent >= 12
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
    assert!(shares, "the honest thread got {percent} percent of a CPU");
    say!("hostile: neighbour_share=ok percent={percent} spinners={count}");
}
