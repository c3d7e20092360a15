//! Starts one attack on the kernel's memory after the other, beside neighbours that must not notice.
#![no_std]
#![no_main]

extern crate alloc;

use core::sync::atomic::Ordering;
use mainspring_abi::kernel::MAPPINGS;
use mainspring_user::caps::{self, Usage};
use mainspring_user::schema::Access;
use mainspring_user::{arch, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;
const GRANTS: &[&str] =
    &["console", "timer", "threads", "control", "park", "memory", "info", "policy", "processes"];

const ATTACKS: &[&str] = &[
    "map-halfway",
    "map-occupied",
    "remap",
    "page-tables",
    "object-flood",
    "wx-object",
    "wx-shared",
    "wx-race",
    "kernel-writes",
    "protect-halfway",
    "unmap-halfway",
    "stale",
    "exit-full",
];

/// Those that must end with a page fault.
const FAULTS: &[&str] =
    &["touch-halfway 0", "touch-halfway 30000", "touch-halfway 1000000", "touch-halfway 5000000", "wx-pages"];

//= OWN:kernel.charge-all
fn main() -> i64 {
    // Page tables stay with the process after their first use.
    for _ in 0..2 {
        let first = caps::map(300, Access::Write).expect("within what is guaranteed");
        caps::unmap(first, 300).expect("it is mapped");
    }
    let before = settled(None);
    let mut failed = 0;
    for attack in ATTACKS {
        let child = caps::start("attack-memory", attack, GRANTS).expect("the program is in the image");
        let code = child.wait().expect("its end is told");
        child.detach().expect("a handle can be dropped");
        say!("hostile-memory: attack={attack} code={code} contained={}", if code == 0 { "ok" } else { "NO" });
        failed += u32::from(code != 0);
    }
    for attack in FAULTS {
        let child = caps::start("attack-memory", attack, GRANTS).expect("the program is in the image");
        let code = child.wait().expect("its end is told");
        child.detach().expect("a handle can be dropped");
        let held = code == -1014;
        say!("hostile-memory: attack={attack} code={code} contained={}", if held { "ok" } else { "NO" });
        failed += u32::from(!held);
    }
    failed += u32::from(!killed_while_mapping());
    failed += u32::from(!neighbours_can_go_on("hogs", &["hog"; 10]));
    failed += u32::from(!neighbours_can_go_on("heirs", &["heirs 11"; 3]));
    failed += u32::from(!neighbours_keep_theirs("abandon", abandoners));
    failed += u32::from(!neighbours_keep_theirs("leave-slowly", slow_leavers));
    assert_eq!(failed, 0, "attacks that were not contained");
    let after = settled(Some(&before));
    assert_eq!(after.free_frames, before.free_frames, "all memory came back");
    assert_eq!(after.heap_used, before.heap_used, "all of the kernel's heap came back");
    assert_eq!((after.threads, after.processes), (before.threads, before.processes));
    say!(
        "hostile-memory: attacks={} memory=ok frames={}",
        ATTACKS.len() + FAULTS.len() + 5,
        after.free_frames
    );
    0
}

/// A program is killed in the middle of mappings and objects that its threads make, at many moments: all of it comes back
/// before its end is told.
//= OWN:kernel.charge-all OWN:kernel.irq-off
fn killed_while_mapping() -> bool {
    let before = caps::usage().map(|usage| usage.free_frames);
    for round in 0..25 {
        let child =
            caps::start("attack-memory", "map-until-killed", GRANTS).expect("the program is in the image");
        let _ = caps::sleep(200_000 + round * 173_000);
        let _ = child.kill();
        let code = child.wait();
        let _ = child.detach();
        if code != Ok(-3000) {
            return false;
        }
    }
    let after = caps::usage().map(|usage| usage.free_frames);
    say!("hostile-memory: attack=killed-while-mapping free={before:?} {after:?}");
    before == after
}

/// What the machine has in use, once the dead are buried.
fn settled(before: Option<&Usage>) -> Usage {
    let buried =
        || caps::usage().is_ok_and(|usage| before.is_none_or(|before| usage.processes == before.processes));
    assert!(caps::comes_true(2 * MS, buried), "somebody was never buried");
    caps::usage().expect("usage can be read")
}

/// Programs that take all memory that they can get leave enough for an honest neighbour, old or new.
//= OWN:kernel.charge-all
fn neighbours_can_go_on(name: &str, programs: &[&str]) -> bool {
    let before = caps::usage().expect("usage can be read");
    let hogs: heapless::Vec<_, 16> =
        programs.iter().filter_map(|program| caps::start("attack-memory", program, GRANTS).ok()).collect();
    // Until they take no more.
    let mut last = u64::MAX;
    let quiet = || {
        let free = caps::usage().map_or(0, |usage| usage.free_frames);
        core::mem::replace(&mut last, free) == free
    };
    let _they_may_never_be = caps::comes_true(300 * MS, quiet);
    let free = last;
    let mapped = caps::map(200, Access::Write);
    if let Ok(at) = mapped {
        for page in 0..200 {
            arch::word(at + page * 4096).store(page, Ordering::Relaxed);
        }
    }
    let started = caps::start("child", "exit 5", &["park"]).map(|child| {
        let code = child.wait();
        let _ = child.detach();
        code
    });
    say!("hostile-memory: {name} free={free} mapped={:?} started={started:?}", mapped.map(|_| 200));
    let held = mapped.is_ok_and(|at| caps::unmap(at, 200).is_ok()) && started == Ok(Ok(5));
    for hog in hogs {
        let _ = hog.kill();
        let _ = hog.wait();
        let _ = hog.detach();
    }
    let alone = || caps::usage().is_ok_and(|usage| usage.processes <= before.processes);
    let all_ended = caps::comes_true(20 * MS, alone);
    say!("hostile-memory: {name} contained={}", if held && all_ended { "ok" } else { "NO" });
    held && all_ended
}

/// Processes of an attack.
type Attackers = heapless::Vec<caps::Process, 56>;

fn abandoners(attackers: &mut Attackers) {
    for _ in 0..6 {
        attackers.extend(caps::start("attack-memory", "abandon", GRANTS));
    }
}

/// Programs that leave with all memory that they could get, one after the other, beside others that want the CPUs.
fn slow_leavers(attackers: &mut Attackers) {
    let cpus = caps::usage().map_or(1, |usage| usage.cpus);
    for _ in 0..(3 * cpus).min(24) {
        attackers.extend(caps::start("attack-memory", "spin", GRANTS));
    }
    for _ in 0..24 {
        attackers.extend(caps::start("attack-memory", "leave-slowly", GRANTS));
        let _ = caps::sleep(60 * MS);
    }
}

/// While programs take memory and give it up in ways of which the kernel itself has work, a neighbour can always have what is guaranteed
/// to it.
//= OWN:kernel.charge-all
fn neighbours_keep_theirs(name: &str, attack: fn(&mut Attackers)) -> bool {
    const ROUNDS: u32 = 60;
    let before = caps::usage().expect("usage can be read");
    let mut attackers = Attackers::new();
    attack(&mut attackers);
    // Where the first mapping was: the page tables are there.
    let mapped_again =
        || caps::map_at(MAPPINGS, 200, Access::Write).is_ok_and(|at| caps::unmap(at, 200).is_ok());
    let (mut kept, mut least) = (0, u64::MAX);
    for _ in 0..ROUNDS {
        let _ = caps::sleep(5 * MS);
        least = least.min(caps::usage().map_or(0, |usage| usage.free_frames));
        kept += u32::from(mapped_again());
    }
    for attacker in attackers {
        let _ = attacker.kill();
        let _ = attacker.wait();
        let _ = attacker.detach();
    }
    let alone = || caps::usage().is_ok_and(|usage| usage.processes <= before.processes);
    let all_ended = caps::comes_true(20 * MS, alone);
    let held = kept == ROUNDS && all_ended;
    say!(
        "hostile-memory: {name} kept={kept} of {ROUNDS} least_free={least} contained={}",
        if held { "ok" } else { "NO" }
    );
    held
}
