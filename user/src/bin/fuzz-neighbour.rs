//! An honest program beside those that attack the kernel. In each round it computes, allocates, keeps time, calls and answers,
//! and looks whether everything is as it must be. If something is not, it says what, and fails.
#![no_std]
#![no_main]

extern crate alloc;

use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_user::arch::{self, wild};
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::schema::Access;
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
    for _ in 0..SERVERS {
        let server = caps::spawn(ThreadOptions::default(), serve).expect("within the quota");
        server.detach().expect("a handle can be dropped");
    }
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

/// Answers whatever comes with what came.
fn serve() -> i64 {
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
    if !holds(fresh, FRESH, number) {
        return Err("its new memory changed");
    }
    caps::unmap(fresh, FRESH).map_err(refused("an unmap was refused"))?;
    let thread =
        caps::spawn(ThreadOptions::default(), move || i64::from(wild::registers_hold(!number, 2_000)) + 40);
    let thread = thread.map_err(refused("a thread was refused"))?;
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
