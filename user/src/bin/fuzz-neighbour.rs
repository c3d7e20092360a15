//! An honest program beside those that attack the kernel. In each round it computes, allocates, keeps time, calls and answers,
//! and looks whether everything is as it must be. If something is not, it says what, and fails.
#![no_std]
#![no_main]

extern crate alloc;

use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_user::arch::{self, wild};
use mainspring_user::caps::{self, Context, ContextInfo, Grant, ThreadOptions};
use mainspring_user::schema::{Access, ContextEnd, DrainStatus, OverrunPolicy};
use mainspring_user::{CapError, say};

mainspring_user::program!(main);

/// Pages that it has all the time, and those that it gets in each round.
const KEPT: u32 = 64;
const FRESH: u32 = 16;

static ROUNDS: AtomicU32 = AtomicU32::new(0);
/// What the boss wants: see `fuzz/boss.rs`.
static WANTED: AtomicU32 = AtomicU32::new(GO_ON);
static RESTS: AtomicU32 = AtomicU32::new(0);
const REST: u32 = 1;
const GO_ON: u32 = 2;
const STOP: u32 = 3;

/// Servers of the public endpoint.
const SERVERS: usize = 2;

fn main() -> i64 {
    if caps::find("serve:judge").is_none() {
        // A fuzzer started it.
        return 0;
    }
    let own = Context(caps::need("context:own"));
    for _ in 0..SERVERS {
        // It serves strangers, so it has time of its own: on theirs it would go at their pace.
        let time = own.create(SERVER).expect("within what it was given");
        let options = ThreadOptions { cpus: 1 << cpu_of(time), ..ThreadOptions::default() };
        let server = caps::spawn(options, move || serve(time)).expect("within the quota");
        server.detach().expect("a handle can be dropped");
    }
    let options = ThreadOptions { cpus: 1 << cpu_of(own), ..ThreadOptions::default() };
    caps::spawn(options, help).expect("within the quota").detach().expect("a handle can be dropped");
    // Places of threads keep their pages: a few more places than there are threads at any time have theirs from the
    // start.
    static GO: AtomicU32 = AtomicU32::new(0);
    let waits = || {
        while GO.load(Ordering::Acquire) == 0 {
            let _ = caps::park(GO.as_ptr() as u64, 0, 0);
        }
        0
    };
    let warm = [(); 6].map(|()| caps::spawn(ThreadOptions::default(), waits).expect("within the quota"));
    GO.store(1, Ordering::Release);
    let _ = caps::unpark(GO.as_ptr() as u64, u32::MAX);
    for thread in warm {
        let _ = thread.join();
        thread.detach().expect("a handle can be dropped");
    }
    let kept = caps::map(KEPT, Access::Write).expect("within the quota");
    fill(kept, KEPT, 0x5eed);
    let mut last = caps::now();
    // The kernel remembers contexts that are gone, so many of them: it does so from the start.
    for _ in 0..64 {
        let _ = own.create(FRESH_CONTEXT).map(|made| made.revoke().and_then(|()| made.release()));
    }
    // What is made once is there before the boss looks at what is in use.
    if let Err(what) = round(0, kept, &mut last) {
        say!("neighbour: HARM round=0: {what}");
        return 1;
    }
    caps::spawn(ThreadOptions::default(), judge)
        .expect("within the quota")
        .detach()
        .expect("a handle can be dropped");
    loop {
        match WANTED.load(Ordering::Acquire) {
            STOP => break,
            REST => {
                RESTS.store(1, Ordering::Release);
                let _ = caps::unpark(RESTS.as_ptr() as u64, u32::MAX);
                let _ = caps::park(WANTED.as_ptr() as u64, REST, 0);
                RESTS.store(0, Ordering::Release);
                continue;
            }
            _ => {}
        }
        let number = ROUNDS.load(Ordering::Relaxed) + 1;
        if let Err(what) = round(u64::from(number), kept, &mut last) {
            say!("neighbour: HARM round={number}: {what}");
            return 1;
        }
        ROUNDS.store(number, Ordering::Release);
    }
    say!("neighbour: unharmed=ok rounds={}", ROUNDS.load(Ordering::Relaxed));
    0
}

/// The time of a server of the public endpoint: when it is used up, it goes on as best effort.
const SERVER: Grant = Grant {
    budget_ns: 1_000_000,
    period_ns: 20_000_000,
    deadline_ns: 0,
    overrun: OverrunPolicy::Notify,
    cpus: 0,
    depth: 1,
};
/// A context that is made and revoked in each round.
const FRESH_CONTEXT: Grant = Grant { budget_ns: 10_000, overrun: OverrunPolicy::Throttle, ..SERVER };

/// A policy service, which fuzzers may be, has given this program's thread less weight than its new thread would have.
const LOWERED: CapError = CapError::InvalidCapability;

fn cpu_of(context: Context) -> u32 {
    context.info().map_or(0, |info| info.cpu)
}

/// Answers whatever comes with what came.
fn serve(time: Context) -> i64 {
    if time.bind().is_err() {
        return harm("a server cannot have its own context");
    }
    let cap = caps::need("serve:public");
    let mut buffer = [0; 1100];
    let Ok(mut head) = caps::receive(cap, &mut buffer) else { return harm("a server cannot receive") };
    loop {
        let mut answer = [0; 1024];
        let len = (head.len as usize).min(1024);
        answer[..len].copy_from_slice(&buffer[16..16 + len]);
        head = match caps::answer_and_receive(cap, head.call_id, &answer[..len], &mut buffer) {
            Ok(head) => head,
            Err(_) => return harm("a server cannot go on"),
        };
    }
}

/// Serves the neighbour's own thread, on the time of that thread: computes, and answers with what its caller's context says.
fn help() -> i64 {
    let (cap, own) = (caps::need("serve:own"), Context(caps::need("context:own")));
    let mut buffer = [0; 64];
    let Ok(mut head) = caps::receive(cap, &mut buffer) else { return harm("the helper cannot receive") };
    loop {
        arch::spin(2_000);
        let lent = own.info().is_ok_and(|info| info.lent && info.bound);
        head = match caps::answer_and_receive(cap, head.call_id, &[u8::from(lent)], &mut buffer) {
            Ok(head) => head,
            Err(_) => return harm("the helper cannot go on"),
        };
    }
}

/// Its own time: it arrives and is no more than was granted, a call lends it and it comes back, it is nobody else's, and numbers
/// of contexts never repeat.
fn has_its_time(number: u64) -> Result<(), &'static str> {
    static LAST_ID: AtomicU32 = AtomicU32::new(0);
    let own = Context(caps::need("context:own"));
    let made = own.create(FRESH_CONTEXT).map_err(|code| {
        say!("neighbour: a context: {code}");
        "a context within its ledger was refused"
    })?;
    let info = |of: Context| of.info().map_err(|_| "a context of its own cannot be asked");
    let id = info(made)?.id;
    if LAST_ID.swap(id, Ordering::Relaxed) >= id {
        return Err("the number of a context was given twice");
    }
    made.revoke().map_err(|_| "a context of its own cannot be revoked")?;
    let drained = made.drain().map_err(|_| "a context of its own cannot be drained")?;
    if (drained.status, drained.reason) != (DrainStatus::Revoked, ContextEnd::ExplicitRevoke) {
        return Err("a revoked context does not say so");
    }
    made.release().map_err(|_| "a capability was not given up")?;
    if !number.is_multiple_of(4) {
        return Ok(());
    }
    let options = ThreadOptions { cpus: 1 << info(own)?.cpu, ..ThreadOptions::default() };
    let thread = match caps::spawn(options, || spend().err().map_or(0, harm)) {
        // A holder of leases has the CPU to itself at the moment, where its time is set aside.
        Err(CapError::Busy | LOWERED) => return Ok(()),
        made => made.map_err(|_| "a thread was refused")?,
    };
    let code = thread.join().map_err(|_| "a join was refused")?;
    thread.detach().map_err(|_| "a handle was not dropped")?;
    if code != 0 {
        say!("neighbour: its thread ended with {code}");
        return Err("a thread that nobody may end was ended");
    }
    if info(own)?.bound { Err("its context is not at rest") } else { Ok(()) }
}

/// Budgets that a thread computes through. How long they take to arrive depends on the host, which may let a virtual CPU stand still:
/// whoever asks the neighbour something waits for as long as that can be.
const BUDGETS: u64 = 3;

fn spend() -> Result<(), &'static str> {
    let own = Context(caps::need("context:own"));
    let info = || own.info().map_err(|_| "its context cannot be asked");
    own.bind().map_err(|_| "its own context cannot be bound")?;
    let (began, before) = (caps::now(), info()?);
    let mut answer = [0; 1];
    while info()?.used_ns - before.used_ns < BUDGETS * before.budget_ns {
        arch::spin(20_000);
        caps::call_endpoint(caps::need("call:own"), &[1], &mut answer).map_err(|_| "its call failed")?;
        let ContextInfo { lent, bound, budget_enforced, stale, .. } = info()?;
        if lent || stale || !bound || !budget_enforced {
            return Err("its context did not come back from a call");
        }
    }
    // What the thread has run by now is charged, and so is what it ran too long: a timer that comes late is not counted before.
    own.unbind().map_err(|_| "its own context cannot be given up")?;
    let (after, ran) = (info()?, caps::now() - began);
    let late = (after.depletions - before.depletions) * after.overshoot_max_ns;
    if after.used_ns - before.used_ns > (ran / after.period_ns + 2) * after.budget_ns + late {
        return Err("it got more than its budget");
    }
    Ok(())
}

/// Answers the boss: at once how many rounds there were, but when it is to rest only once it does.
fn judge() -> i64 {
    let cap = caps::need("serve:judge");
    let mut buffer = [0; 64];
    let Ok(mut head) = caps::receive(cap, &mut buffer) else { return harm("the judge cannot receive") };
    loop {
        let wanted = u32::from_le_bytes([buffer[16], buffer[17], buffer[18], buffer[19]]);
        WANTED.store(wanted, Ordering::Release);
        let _ = caps::unpark(WANTED.as_ptr() as u64, u32::MAX);
        while wanted == REST && RESTS.load(Ordering::Acquire) == 0 {
            let _ = caps::park(RESTS.as_ptr() as u64, 0, 0);
        }
        let rounds = ROUNDS.load(Ordering::Acquire).to_le_bytes();
        head = match caps::answer_and_receive(cap, head.call_id, &rounds, &mut buffer) {
            Ok(head) => head,
            Err(_) => return harm("the judge cannot go on"),
        };
    }
}

fn harm(what: &str) -> i64 {
    say!("neighbour: HARM {what}");
    arch::exit(mainspring_abi::kernel::EXIT_PROCESS, 1)
}

fn fill(at: u64, pages: u32, seed: u64) {
    for number in 0..u64::from(pages) * 512 {
        arch::word(at + 8 * number).store(seed.wrapping_mul(number | 1), Ordering::Relaxed);
    }
}

fn holds(at: u64, pages: u32, seed: u64) -> bool {
    (0..u64::from(pages) * 512)
        .all(|number| arch::word(at + 8 * number).load(Ordering::Relaxed) == seed.wrapping_mul(number | 1))
}

/// One round; what was not as it must be.
fn round(number: u64, kept: u64, last: &mut u64) -> Result<(), &'static str> {
    let refused = |what: &'static str| {
        move |code: CapError| {
            say!("neighbour: {what}: {code}");
            what
        }
    };
    if !wild::registers_hold(number ^ 0x1234_5678_9abc_def0, 40_000) {
        return Err("registers changed while it computed");
    }
    if !holds(kept, KEPT, 0x5eed) {
        return Err("its memory changed");
    }
    // Memory that it is entitled to, cleared.
    let fresh =
        caps::map_at(kept + 0x40_0000, FRESH, Access::Write).map_err(refused("its memory was refused"))?;
    if !holds(fresh, FRESH, 0) {
        return Err("a new page was not cleared");
    }
    fill(fresh, FRESH, number);
    wild::x87_works(2_000);
    let now = caps::now();
    if now < *last {
        return Err("time went backwards");
    }
    caps::sleep_until(now + 50_000).map_err(refused("a sleep was refused"))?;
    *last = caps::now();
    if *last < now + 50_000 {
        return Err("a sleep ended early");
    }
    if !wild::x87_is_empty() {
        return Err("a system call left an x87 register in use");
    }
    talk(number)?;
    has_its_time(number)?;
    if !holds(fresh, FRESH, number) {
        return Err("its new memory changed");
    }
    caps::unmap(fresh, FRESH).map_err(refused("an unmap was refused"))?;
    let thread =
        caps::spawn(ThreadOptions::default(), move || i64::from(wild::registers_hold(!number, 2_000)) + 40);
    let thread = match thread {
        Err(LOWERED) => return Ok(()),
        made => made.map_err(refused("a thread was refused"))?,
    };
    if thread.join().map_err(refused("a join was refused"))? != 41 {
        return Err("a thread's registers changed");
    }
    thread.detach().map_err(refused("a handle was not dropped"))
}

/// Calls the endpoint that every program may call, and gets its own words back.
fn talk(number: u64) -> Result<(), &'static str> {
    let cap = caps::need("call:public");
    for len in [4, 40, 900] {
        let mut message = [0; 1024];
        for (place, byte) in (number..).zip(&mut message[..len]) {
            *byte = place as u8;
        }
        let mut answer = [0; 1024];
        let answered = caps::call_endpoint(cap, &message[..len], &mut answer);
        match answered {
            Ok(count) if count as usize == len && answer[..len] == message[..len] => {}
            Ok(_) => return Err("an answer was another's"),
            Err(code) => {
                say!("neighbour: a call of {len} bytes: {code}");
                return Err("a call was refused");
            }
        }
    }
    Ok(())
}
