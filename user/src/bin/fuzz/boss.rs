//! The boss: starts fuzzers, kills them, counts, and looks at what is left.

use crate::child::Bent;
use crate::random::Random;
use crate::shared;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use mainspring_abi::ring::CapError;
use mainspring_user::caps::{self, Process, Usage};
use mainspring_user::schema::Access;
use mainspring_user::{arch, say};

const MS: u64 = 1_000_000;
/// Long enough for a neighbour that gets any share at all.
const PATIENCE_NS: u64 = 60_000 * MS;
/// Processes that no other process may end, at a time.
const WITNESSES: usize = 4;
/// How often to look whether the machine has come to rest.
const LOOKS: u32 = 300;
/// Fuzzers at a time, besides those that they start themselves.
const AT_ONCE: usize = 4;
/// What a fuzzer may be given.
const GRANTS: &[&str] = &[
    "timer",
    "control",
    "park",
    "memory",
    "info",
    "call:free",
    "serve:free",
    "call:public",
    "policy",
    "processes",
];

/// Fuzzes until `calls` have been made, and then asks whether anything is missing.
pub fn run(seed: u64, calls: u64) -> i64 {
    let page_cap = caps::create_object(1).expect("an object is within the quota");
    let page = caps::map_object(page_cap, Access::Write).expect("the object can be mapped");
    // What is made once for the first children is there before anything is counted.
    let warm = [(); AT_ONCE].map(|()| caps::start("fuzz", "", &[]));
    for child in warm.into_iter().flatten() {
        let _ = child.wait();
        child.detach().expect("a handle can be dropped");
    }
    let before = quiet(None);
    let mut random = Random::new(seed, 0);
    let mut children: Vec<Process> = Vec::with_capacity(AT_ONCE);
    let (mut started, mut killed, mut refused, mut number) = (0_u64, 0_u64, 0_u64, 0_u64);
    let (mut made, mut seen) = (0, 0);
    // A fuzzer may map the page once more and write nonsense into it: a leap is no count.
    let mut done = move || {
        let now = arch::word(page + shared::CALLS).load(Ordering::Relaxed);
        let more = now.wrapping_sub(seen);
        made += if more < 1 << 22 { more } else { 0 };
        seen = now;
        made
    };
    let mut said = 0;
    let mut witnesses = [const { None }; WITNESSES];
    while done() < calls {
        while children.len() < AT_ONCE {
            number += 1;
            match start(&mut random, seed, number, page_cap) {
                Ok(child) => {
                    children.push(child);
                    started += 1;
                }
                Err(CapError::QuotaExceeded | CapError::NoMemory) => {
                    refused += 1;
                    break;
                }
                Err(code) => panic!("a fuzzer could not be started: {code}"),
            }
        }
        for _ in 0..2 {
            let place = random.below(WITNESSES as u64) as usize;
            witnesses[place] = look_after(witnesses[place].take());
        }
        // Most live until they end by themselves; some hardly begin.
        let pause = random.one_of(&[2, 40, 200]) * MS;
        let _ = caps::sleep(random.below(pause));
        if !children.is_empty() {
            // The one that waits longest, or any other: it may still run, or have ended long ago.
            let at = if random.once_in(2) { 0 } else { random.below(children.len() as u64) as usize };
            let child = children.swap_remove(at);
            if random.once_in(2) {
                child.kill().expect("a handle can kill");
                killed += 1;
            }
            let _ = child.wait();
            child.detach().expect("a handle can be dropped");
        }
        let made = done();
        if made / (1 << 14) > said {
            said = made / (1 << 14);
            let usage = caps::usage().expect("usage can be read");
            say!(
                "fuzz: calls={made} started={started} killed={killed} threads={} processes={} free={} heap={}",
                usage.threads,
                usage.processes,
                usage.free_frames,
                usage.heap_used
            );
        }
    }
    arch::word(page + shared::STOP).store(1, Ordering::Relaxed);
    for child in children {
        child.kill().expect("a handle can kill");
        let _ = child.wait();
        child.detach().expect("a handle can be dropped");
    }
    for witness in witnesses.into_iter().flatten() {
        ended(&witness);
        witness.detach().expect("a handle can be dropped");
    }
    let after = quiet(Some(&before));
    // What a fuzzer printed may stand on a line without an end.
    caps::print(b"\n");
    let said = |what| arch::word(page + what).load(Ordering::Relaxed);
    let (theirs, carried_out) = (said(shared::STARTED), said(shared::DONE));
    let (declined, bad) = (said(shared::REFUSED), said(shared::BAD_RING));
    say!("fuzz: carried_out={carried_out} refused={declined} bad_rings={bad}");
    say!(
        "fuzz: seed={seed} calls={} processes={started}+{theirs} killed={killed} not_started={refused}",
        done()
    );
    neighbour(STOP);
    if after != before {
        say!("fuzz: LEAK before {before:?}");
        say!("fuzz: LEAK after  {after:?}");
        return 1;
    }
    say!("fuzz: nothing_is_missing=ok");
    0
}

/// Whether a witness ended by itself.
fn ended(witness: &Process) {
    let code = witness.wait().expect("its end is told");
    if i64::from(code) != crate::WITNESS {
        say!("fuzz: HARM a process that nobody may end ended with {code}");
        arch::exit(mainspring_abi::kernel::EXIT_PROCESS, 1)
    }
}

/// Waits for one witness and starts the next, in whatever place is free by then.
fn look_after(witness: Option<Process>) -> Option<Process> {
    if let Some(witness) = witness {
        ended(&witness);
        witness.detach().expect("a handle can be dropped");
    }
    caps::start("fuzz", "witness", &[]).ok()
}

/// A fuzzer with a random subset of what the boss has.
fn start(random: &mut Random, seed: u64, number: u64, page: u32) -> Result<Process, CapError> {
    // All that a process can be bent on, in turn, and several of them at a time.
    let own = Random::new(seed, number).word() >> 1 & !15 | ((seed + number / 4) % 16);
    let bent = Bent::of(own);
    let arguments = alloc::format!("child {own} 1");
    let mut grants: Vec<&str> = Vec::new();
    for name in GRANTS {
        // Copies of copies are rarer: each of them may take as much memory as a process may.
        let chosen = if *name == "processes" {
            bent == Bent::Handles || random.once_in(6)
        } else {
            !random.once_in(8) || bent != Bent::Nothing
        };
        if chosen {
            grants.push(name);
        }
    }
    if bent != Bent::Nothing || !random.once_in(8) {
        grants.push("threads");
    }
    if random.once_in(8) {
        grants.push("console");
    }
    caps::start_with("fuzz", &arguments, &grants, &[("pages", page)])
}

/// Tells the neighbour to rest.
const REST: u32 = 1;
/// Tells it to go on.
const GO_ON: u32 = 2;
/// Tells it to end.
const STOP: u32 = 3;

/// Asks the neighbour for something; how many rounds it has made.
fn neighbour(what: u32) -> u32 {
    let mut answer = [0; 4];
    let cap = caps::need("call:judge");
    match caps::call_endpoint_for(cap, &what.to_le_bytes(), &mut answer, PATIENCE_NS) {
        Ok(_) => u32::from_le_bytes(answer),
        Err(code) => {
            say!("fuzz: HARM the neighbour does not answer: {code}");
            arch::exit(mainspring_abi::kernel::EXIT_PROCESS, 1)
        }
    }
}

/// What the machine has in use when only the boss does anything, and all ended processes are gone.
fn quiet(before: Option<&Usage>) -> Usage {
    let rounds = neighbour(REST);
    // What is being torn down comes back a piece at a time.
    let mut last = caps::usage().expect("usage can be read");
    let mut looks = 0;
    let mut settled = false;
    while looks < LOOKS && !settled {
        looks += 1;
        let _ = caps::sleep(10 * MS);
        let now = caps::usage().expect("usage can be read");
        // At first there are the boss and its neighbour.
        let same = now == last && before.map_or(now.processes == 2, |before| now == *before);
        last = now;
        settled = same;
    }
    if !settled {
        say!("fuzz: the machine does not come to rest");
    }
    say!("fuzz: neighbour_rounds={rounds}");
    neighbour(GO_ON);
    last
}
