//! The boss: starts fuzzers, kills them, counts, and looks at what is left.

use crate::child::{Bent, CARD, ISLANDS};
use crate::methods::{Kind, Method};
use crate::random::Random;
use crate::settle::settle;
use crate::shared;
use alloc::vec::Vec;
use mainspring_abi::ring::CapError;
use mainspring_user::caps::{self, Context, Grant, Process, Usage};
use mainspring_user::schema::{Access, OverrunPolicy};
use mainspring_user::{arch, say};

const MS: u64 = 1_000_000;
/// Long enough for a neighbour that gets any share at all.
const PATIENCE_NS: u64 = 60_000 * MS;
/// How long a fuzzer is waited for before it is killed.
const FUZZER_NS: u64 = 10_000 * MS;
/// Processes that no other process may end, at a time.
const WITNESSES: usize = 4;
/// How often to look whether the machine has come to rest.
const LOOKS: u32 = 1000;
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
    "leases",
    ISLANDS,
    "policy-service",
];

/// One in so many processes drives the card.
const DRIVER_EACH: u64 = 6;
/// What each fuzzer gets of contexts at most.
const CONTEXTS: [&str; 2] = ["context:a", "context:b"];

/// A fuzzer, and the contexts that were made for it.
struct Child {
    process: Process,
    contexts: Vec<Context>,
}

impl Child {
    /// It is waited for, killed first if it is to be, and forgotten with what was made for it.
    fn end(self, kill: bool) {
        if kill {
            self.process.kill().expect("a handle can kill");
        }
        wait_or_kill(&self.process);
        self.process.detach().expect("a handle can be dropped");
        for context in self.contexts {
            // It may have been revoked by the fuzzer.
            let _ = context.revoke();
            context.release().expect("the capability is the boss's own");
        }
    }
}

/// Waits until `process` has ended. A fuzzer may have a minute between two refills of its context: it is killed in the end.
fn wait_or_kill(process: &Process) {
    if process.wait_for(FUZZER_NS) == Err(CapError::TimedOut) {
        process.kill().expect("a handle can kill");
        let _ = process.wait();
    }
}

/// A little of the boss's own time. It is used up soon, and what comes of that differs.
fn context(random: &mut Random) -> Option<Context> {
    let grant = Grant {
        budget_ns: random.one_of(&[20_000, 200_000, 1_000_000]),
        period_ns: random.one_of(&[2, 20, 60_000]) * MS,
        deadline_ns: 0,
        overrun: random.one_of(&[OverrunPolicy::Throttle, OverrunPolicy::Notify]),
        cpus: 0,
        depth: random.below(3) as u8,
    };
    Context(caps::find("context:root")?).create(grant).ok()
}

/// Lodgers begin a session each, and their fuzzers get that and its contexts; the lodger ends before, with or after them.
pub fn lodge(seed: u64) -> i64 {
    let mut random = Random::new(seed, 77);
    let page = caps::create_object(1).expect("an object is within the quota");
    let held = || CONTEXTS.into_iter().filter_map(|name| Some((name, caps::find(name)?)));
    let mut children = Vec::new();
    for number in 0..4 {
        let own = Random::new(seed, number).word() >> 1 & !15 | random.one_of(&[0, 2, 4, 13]);
        let mut others: Vec<_> = held().collect();
        others.push(("pages", page));
        if !random.once_in(3) {
            others.extend(caps::find("session").map(|cap| ("session", cap)));
        }
        let grants: Vec<&str> = GRANTS.iter().copied().chain(["threads"]).collect();
        if let Ok(child) = caps::start_with("fuzz", &alloc::format!("child {own} 1"), &grants, &others) {
            children.push(child);
        }
        let _ = caps::sleep(random.below(40 * MS));
    }
    for child in children {
        match random.below(3) {
            0 => child.kill().expect("a handle can kill"),
            1 => {
                wait_or_kill(&child);
            }
            _ => {}
        }
    }
    0
}

/// Fuzzes until `calls` have been made, and then asks whether anything is missing.
//= OWN:kernel.fuzz
pub fn run(seed: u64, calls: u64) -> i64 {
    let page_cap = caps::create_object(1).expect("an object is within the quota");
    shared::use_page(caps::map_object(page_cap, Access::Write).expect("the object can be mapped"));
    // What is made once for the first children is there before anything is counted.
    let warm = [(); AT_ONCE].map(|()| caps::start("fuzz", "", &[]));
    for child in warm.into_iter().flatten() {
        let _ = child.wait();
        child.detach().expect("a handle can be dropped");
    }
    let mut random = Random::new(seed, 0);
    let before = quiet(None);
    let mut children: Vec<Child> = Vec::with_capacity(AT_ONCE);
    let (mut started, mut killed, mut refused, mut number) = (0_u64, 0_u64, 0_u64, 0_u64);
    let (mut made, mut seen) = (0, 0);
    // A fuzzer may map the page once more and write nonsense into it: a leap is no count.
    let mut done = move || {
        let now = shared::read(shared::CALLS);
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
            let kill = random.once_in(2);
            killed += u64::from(kill);
            if let Some(context) = child.contexts.first().filter(|_| random.once_in(4)) {
                // Taken away from whoever has it at this moment.
                let _ = context.revoke();
            }
            child.end(kill);
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
    shared::stop();
    for child in children {
        child.end(true);
    }
    for witness in witnesses.into_iter().flatten() {
        ended(&witness);
        witness.detach().expect("a handle can be dropped");
    }
    let after = quiet(Some(&before));
    // What a fuzzer printed may stand on a line without an end.
    caps::print(b"\n");
    let (theirs, carried_out) = (shared::read(shared::STARTED), shared::read(shared::DONE));
    let (declined, bad) = (shared::read(shared::REFUSED), shared::read(shared::BAD_RING));
    say!("fuzz: carried_out={carried_out} refused={declined} bad_rings={bad}");
    say!(
        "fuzz: seed={seed} calls={} processes={started}+{theirs} killed={killed} not_started={refused}",
        done()
    );
    say_methods();
    neighbour(STOP);
    if after != before {
        say!("fuzz: LEAK before {before:?}");
        say!("fuzz: LEAK after  {after:?}");
        return 1;
    }
    say!("fuzz: nothing_is_missing=ok");
    0
}

/// How often each method was asked for and carried out, and whether each was asked for at all that this boss's fuzzers can ask for:
/// the card is not there in every machine, and sessions are the lodgers'.
fn say_methods() {
    let mut never = 0;
    let has_card = caps::find(CARD).is_some();
    for method in Method::all() {
        let (asked, done) = shared::tally(method);
        say!("fuzz: method={:?}.{} asked={asked} carried_out={done}", method.kind(), method.name());
        let could_be = match method.kind() {
            Kind::Session => false,
            Kind::Device | Kind::Dma | Kind::Interrupt => has_card,
            _ => true,
        };
        never += u32::from(asked == 0 && could_be);
    }
    if never == 0 {
        say!("fuzz: every_method=ok");
    } else {
        say!("fuzz: methods_never_asked={never}");
    }
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
fn start(random: &mut Random, seed: u64, number: u64, page: u32) -> Result<Child, CapError> {
    let has_card = caps::find(CARD).is_some();
    if has_card && number.is_multiple_of(DRIVER_EACH) {
        let grants = ["timer", "memory", "console", CARD];
        let arguments = alloc::format!("driver {}", seed.wrapping_add(number));
        let process = caps::start_with("fuzz", &arguments, &grants, &[("pages", page)])?;
        return Ok(Child { process, contexts: Vec::new() });
    }
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
    if has_card && random.once_in(4) {
        // One that could map the card's registers could make it write any memory.
        grants.retain(|name| *name != "memory");
        grants.push(CARD);
    }
    let wanted = if bent == Bent::Lender { CONTEXTS.len() as u64 } else { random.below(3) };
    let contexts: Vec<Context> = (0..wanted).filter_map(|_| context(random)).collect();
    let mut others: Vec<(&str, u32)> = CONTEXTS.into_iter().zip(contexts.iter().map(|one| one.0)).collect();
    others.push(("pages", page));
    match caps::start_with("fuzz", &arguments, &grants, &others) {
        Ok(process) => Ok(Child { process, contexts }),
        Err(code) => {
            for context in contexts {
                context.revoke().expect("nobody else has it");
                context.release().expect("it is this process's");
            }
            Err(code)
        }
    }
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
    let usage = || caps::usage().expect("usage can be read");
    // At first there are the boss and its neighbour.
    let alone = wait_until(|| usage().processes == 2);
    if let Err(what) = settle() {
        say!("fuzz: LEAK {what}");
    }
    // What is being torn down comes back a piece at a time.
    let mut last = usage();
    let settled = wait_until(|| {
        let now = usage();
        let same = now == last && before.is_none_or(|before| now == *before);
        last = now;
        same
    });
    if !alone || !settled {
        say!("fuzz: the machine does not come to rest");
    }
    say!("fuzz: neighbour_rounds={rounds}");
    neighbour(GO_ON);
    last
}

/// Looks until it is so, or often enough; whether it is.
fn wait_until(mut so: impl FnMut() -> bool) -> bool {
    (0..LOOKS).any(|_| {
        let _ = caps::sleep(10 * MS);
        so()
    })
}
