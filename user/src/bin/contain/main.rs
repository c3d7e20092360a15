//! What ring 3 may not do to others, one case after the other: stale handles, floods of an endpoint, flags that survive an
//! entry, weight without authority, refusals that change something, and threads without end. Started as anything but
//! `cases`, it is one of the programs that these start.
#![no_std]
#![no_main]

extern crate alloc;

mod families;
mod messages;
mod quotas;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_abi::kernel::MAX_THREADS;
use mainspring_abi::ring::{CapSqe, CapSqeV2, op};
use mainspring_user::arch::wild;
use mainspring_user::caps::{self, Process, Short, Thread, ThreadOptions};
use mainspring_user::schema::{self, Access, LatencyClass};
use mainspring_user::{CapError, arch, client, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;
/// Without authority over weights.
const PLAIN: &[&str] = &["console", "timer", "threads", "control", "park", "memory", "info", "processes"];

fn main() -> i64 {
    let arguments = caps::arguments();
    let (what, rest) = arguments.split_once(' ').unwrap_or((arguments, ""));
    match what {
        "cases" => cases(rest),
        "exit" => rest.parse().unwrap_or(0),
        "exit-soon" => {
            let _ = caps::sleep(MS / 2);
            rest.parse().unwrap_or(0)
        }
        "breed" => families::breed(),
        "stay" => families::stay(),
        "neighbour" => families::neighbour(),
        "sleep" => loop {
            let _ = caps::sleep(1000 * MS);
        },
        "hog-threads" => quotas::hog_threads(),
        "guaranteed-threads" => quotas::have_guaranteed(),
        "answer-late" => messages::answer_late(),
        "withdraw" => messages::withdraw(),
        "linger" => linger(),
        "serve" => serve(rest == "registers"),
        "flood" => flood(),
        "honest" => honest(rest == "registers"),
        "watch" => watch(),
        "call-until-killed" => call_until_killed(),
        "secret" => secret(),
        "light" => light(),
        "child-weight" => child_weight(rest.parse().unwrap_or(0)),
        "do" => {
            arch::misbehave(rest);
            99
        }
        other => panic!("no such part: {other}"),
    }
}

/// The cases that are named, in their order.
fn cases(named: &str) -> i64 {
    // So that a CPU idles, and a kernel that checks itself has looked at that too.
    let idled = || caps::cpu_counters(0).is_ok_and(|counters| counters.nohz_enter_idle > 0);
    assert!(caps::comes_true(20 * MS, idled), "the machine never idles");
    for name in named.split(' ') {
        match name {
            "stale_handle" => stale_handle(),
            "entry_flags" => entry_flags(),
            "faults" => faults(),
            "refusals" => refusals(),
            "weights" => weights(),
            "endpoint_share" => endpoint_share(),
            "races" => races(),
            "exhaustion" => exhaustion(),
            "many_threads" => many_threads(),
            "slots_change_hands" => slots_change_hands(),
            "selectors" => selectors(),
            "thread_hogs" => quotas::thread_hogs(),
            "process_hogs" => families::process_hogs(),
            "sleep_quota" => quotas::sleep_quota(),
            "late_answers" => messages::late_answers(),
            "direct_flags" => messages::direct_flags(),
            "waits_outlive_handles" => messages::waits_outlive_handles(),
            other => panic!("no such case: {other}"),
        }
        say!("contain: {name}=ok");
    }
    0
}

fn start(arguments: &str) -> Process {
    caps::start("contain", arguments, PLAIN).expect("the program is in the image")
}

fn ended(process: Process) -> i32 {
    let code = process.wait().expect("its end is told");
    process.detach().expect("a handle can be dropped");
    code
}

/// Waits until no more processes are there than `many`.
fn buried(many: u32) {
    let gone = || caps::usage().is_ok_and(|usage| usage.processes <= many);
    assert!(caps::comes_true(2 * MS, gone), "somebody was never buried");
}

/// A handle of a process that is gone stays its own: a grant that is refused does not loosen it, and no process that comes
/// after in the same place can be reached by it.
//= ARCH:inv.threadref
fn stale_handle() {
    let before = caps::usage().expect("usage can be read").processes;
    for _ in 0..3 {
        let dead = start("exit 5");
        assert_eq!(dead.wait(), Ok(5));
        buried(before);
        for _ in 0..2 {
            let refused = caps::start_with("contain", "exit 0", &[], &[("handle", dead.cap())]);
            assert_eq!(refused.err(), Some(CapError::InvalidParameter), "handles are not for passing on");
        }
        let strangers: Vec<_> = (0..3).map(|_| start("linger")).collect();
        assert!(strangers.iter().all(|stranger| stranger.slot() != dead.slot()), "its place is kept");
        let _ = dead.kill();
        assert_eq!(dead.wait(), Ok(5), "a handle tells of its own process");
        for stranger in strangers {
            assert_eq!(ended(stranger), 7, "a stranger was killed");
        }
        let cap = dead.cap();
        dead.detach().expect("a handle can be dropped");
        for method in 0..3 {
            let request = CapSqe { cap_id: cap, op: op::CALL, method_id: method, ..CapSqe::default() };
            assert_eq!(ask(request), Err(CapError::InvalidCapability));
        }
    }
    stale_thread_handle();
}

/// The same for threads.
fn stale_thread_handle() {
    let dead = caps::spawn(ThreadOptions::default(), || 5).expect("within the quota");
    assert_eq!(dead.join(), Ok(5));
    for _ in 0..2 {
        let refused = caps::start_with("contain", "exit 0", &[], &[("handle", dead.cap())]);
        assert_eq!(refused.err(), Some(CapError::InvalidParameter));
    }
    let others: Vec<_> =
        (0..8).map(|_| caps::spawn(ThreadOptions::default(), || 6).expect("within the quota")).collect();
    assert!(others.iter().all(|other| other.slot() != dead.slot()), "its place is kept");
    assert_eq!(dead.join(), Ok(5), "a handle tells of its own thread");
    for other in others {
        assert_eq!(other.join(), Ok(6));
        other.detach().expect("a handle can be dropped");
    }
    dead.detach().expect("a handle can be dropped");
}

fn linger() -> i64 {
    caps::sleep(30 * MS).expect("within the quota");
    7
}

fn ask(request: CapSqe) -> Result<u32, CapError> {
    client::wait(client::submit(CapSqeV2::from_v1(request))?)
}

/// Whatever flags a thread has, the kernel runs with its own: seen by the kernel that checks itself at each entry.
//= ARCH:inv.user-copy
fn entry_flags() {
    const ALIGNMENT: u64 = 1 << 18;
    const DIRECTION: u64 = 1 << 10;
    const NESTED: u64 = 1 << 14;
    const IDENTIFY: u64 = 1 << 21;
    for flags in [ALIGNMENT, DIRECTION, NESTED, IDENTIFY, ALIGNMENT | DIRECTION | NESTED | IDENTIFY] {
        for rounds in [1, 20_000_000] {
            assert_eq!(arch::enter_with_flags(flags, rounds), 0, "flags {flags:#x}");
        }
    }
}

/// A thread that comes after another one by the scheduler's decision finds nothing of that one's in its selectors.
fn selectors() {
    const ROUNDS: u32 = 200;
    static SET: AtomicU32 = AtomicU32::new(0);
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    let pinned = ThreadOptions { cpus: 1, ..ThreadOptions::default() };
    let sets = || {
        while LOOKS.load(Ordering::Relaxed) < ROUNDS {
            wild::set_selectors();
            SET.fetch_add(1, Ordering::Relaxed);
            caps::yield_now();
        }
        0
    };
    let looks = || {
        let mut before = 0;
        while LOOKS.load(Ordering::Relaxed) < ROUNDS {
            caps::yield_now();
            let found = wild::selectors();
            if found != [0; 4] {
                LOOKS.store(ROUNDS, Ordering::Relaxed);
                return 1;
            }
            // Only a look after the other has set them counts.
            let set = SET.load(Ordering::Relaxed);
            LOOKS.fetch_add(u32::from(set != before), Ordering::Relaxed);
            before = set;
        }
        0
    };
    let other = caps::spawn(pinned, sets).expect("within the quota");
    let looking = caps::spawn(pinned, looks).expect("within the quota");
    assert_eq!(looking.join(), Ok(0), "selectors of another thread");
    assert_eq!(other.join(), Ok(0));
    for thread in [other, looking] {
        thread.detach().expect("a handle can be dropped");
    }
}

/// What the processor stops ends its own process, with the exception's number.
//= ARCH:inv.exit-clean
fn faults() {
    let cases = [
        ("x87", -1016),
        ("step-into-call", -1001),
        ("flagged-fault", -1006),
        ("segment", -1013),
        ("rdpmc", -1013),
        ("swapgs", -1013),
        ("wrfsbase", -1006),
        ("sgdt", -1013),
        ("jump-noncanonical", -1013),
        ("jump-last", -1014),
        ("return-kernel", -1014),
        // Allowed: the thread has lost nothing but what was its own.
        ("load-fs", 0),
    ];
    for (what, code) in cases {
        assert_eq!(ended(start(&alloc::format!("do {what}"))), code, "{what}");
    }
}

/// A request that is refused has changed nothing: not even if only its answer cannot be written.
//= OWN:kernel.refuse-first
fn refusals() {
    buried(1);
    let before = caps::usage().expect("usage can be read");
    let first = caps::spawn(ThreadOptions::default(), || 0).expect("within the quota");
    assert_eq!(first.join(), Ok(0));
    let wild = 0xffff_8000_0000_0000_u64;
    for _ in 0..300 {
        let made = caps::spawn_with_answer_at(ThreadOptions::default(), wild);
        assert_eq!(made, Err(CapError::BadAddress), "a thread was made, or not refused for its answer");
    }
    for _ in 0..300 {
        let made = caps::start_with_answer_at("contain", "exit 0", wild);
        assert_eq!(made, Err(CapError::BadAddress), "a process was made, or not refused for its answer");
    }
    let after = caps::usage().expect("usage can be read");
    assert_eq!((after.threads, after.processes), (before.threads, before.processes));
    let cap = first.cap();
    first.detach().expect("a handle can be dropped");
    let next = caps::spawn(ThreadOptions::default(), || 0).expect("within the quota");
    assert_eq!(next.cap() & 0xffff, cap & 0xffff, "no capability was left behind");
    assert_eq!(next.join(), Ok(0));
    next.detach().expect("a handle can be dropped");
}

/// A thread gives those that it makes at most its own weight and class, unless it shows the capability for more.
//= OWN:kernel.refuse-first
fn weights() {
    assert_eq!(ended(start("light")), 0);
    let heavy = ThreadOptions { weight: 256, ..ThreadOptions::default() };
    let made = caps::spawn(heavy, || 0).expect("this process has the capability");
    assert_eq!(made.join(), Ok(0));
    made.detach().expect("a handle can be dropped");
    // A process that a light thread starts is as light.
    let light = ThreadOptions { weight: 8, ..ThreadOptions::default() };
    let starter = caps::spawn(light, || {
        let child = start("child-weight 8");
        i64::from(ended(child))
    });
    let starter = starter.expect("less than its own is anybody's to give");
    assert_eq!(starter.join(), Ok(0), "a light thread started a heavier process");
    starter.detach().expect("a handle can be dropped");
}

/// Without the capability.
fn light() -> i64 {
    let refused = Some(CapError::InvalidCapability);
    let with = |weight, class| caps::spawn(ThreadOptions { weight, class, ..ThreadOptions::default() }, || 0);
    for weight in [65, 128, 65_535] {
        assert_eq!(with(weight, LatencyClass::Normal).err(), refused, "weight {weight}");
    }
    assert_eq!(with(64, LatencyClass::Interactive).err(), refused);
    assert_eq!(with(1, LatencyClass::Interactive).err(), refused);
    let soon = ThreadOptions { request_ns: 100_000, ..ThreadOptions::default() };
    assert_eq!(caps::spawn(soon, || 0).err(), refused, "served sooner than its maker");
    for (weight, class) in [(64, LatencyClass::Normal), (1, LatencyClass::Normal), (64, LatencyClass::Batch)]
    {
        let made = with(weight, class).expect("not more than its own");
        assert_eq!(made.join(), Ok(0));
        made.detach().expect("a handle can be dropped");
    }
    // A light thread does not make a heavier one, nor does one that it made.
    let lighter = caps::spawn(ThreadOptions { weight: 8, ..ThreadOptions::default() }, || {
        let heavier = caps::spawn(ThreadOptions { weight: 9, ..ThreadOptions::default() }, || 0);
        let batch = ThreadOptions { weight: 8, class: LatencyClass::Batch, ..ThreadOptions::default() };
        let slow = caps::spawn(batch, || {
            let normal = caps::spawn(ThreadOptions { weight: 8, ..ThreadOptions::default() }, || 0);
            i64::from(normal.err() != Some(CapError::InvalidCapability))
        });
        let slow = slow.expect("not more than its own");
        let code = slow.join();
        slow.detach().expect("a handle can be dropped");
        i64::from(heavier.err() != Some(CapError::InvalidCapability) || code != Ok(0))
    });
    let lighter = lighter.expect("not more than its own");
    assert_eq!(lighter.join(), Ok(0), "a light thread made a heavier one");
    0
}

/// Whether the only thread of this process weighs `expected`.
fn child_weight(expected: u16) -> i64 {
    // Who it is, by the only thread of this program that runs.
    let mine = (0..MAX_THREADS as u32).find_map(|slot| {
        let info =
            |info: schema::thread_info::Reader<'_>| (info.get_process(), info.get_weight(), info.get_state());
        let (process, weight, state) = caps::thread_info(slot, info).ok()?;
        let name = |info: schema::process_info::Reader<'_>| info.get_threads();
        let alone = caps::process_info(process, name).ok()? == 1;
        (alone && state == Ok(schema::ThreadState::Running)).then_some(weight)
    });
    i64::from(mine != Some(expected))
}

/// Beside a client that fills an endpoint as much as it can, another is served in its turn.
//= OWN:kernel.endpoint-share
fn endpoint_share() {
    for how in ["", " registers"] {
        let shared = caps::create_object(1).expect("a page is within the quota");
        let grants =
            |role: &'static str| [role, "console", "timer", "threads", "control", "park", "memory", "info"];
        let with = |role, arguments: &str| {
            caps::start_with("contain", arguments, &grants(role), &[("shared", shared)])
                .expect("in the image")
        };
        let server = with("serve:x", &alloc::format!("serve{how}"));
        let floods = [with("call:x", "flood"), with("call:x", "flood")];
        let honest = with("call:x", &alloc::format!("honest{how}"));
        let code = ended(honest);
        for hostile in floods {
            hostile.kill().expect("a handle can kill");
            assert_eq!(ended(hostile), -3000);
        }
        server.kill().expect("a handle can kill");
        assert_eq!(ended(server), -3000);
        assert_eq!(code, 0, "an honest client was shut out");
    }
}

/// The page that the server counts on: how many calls it has answered.
fn served_page() -> u64 {
    caps::map_object(caps::need("shared"), Access::Write).expect("it was granted")
}

fn serve(registers: bool) -> i64 {
    let (endpoint, served) = (caps::need("serve:x"), arch::word(served_page()));
    let mut buffer = [0; 256];
    if registers {
        let (mut call, _) = caps::receive_any(endpoint, &mut buffer).expect("calls come");
        loop {
            arch::spin(3000);
            let count = served.fetch_add(1, Ordering::AcqRel) + 1;
            let next = caps::answer_short(endpoint, call.call_id, Short::number(count as u32), &mut buffer);
            call = match next {
                Ok((call, _)) => call,
                Err(_) => caps::receive_any(endpoint, &mut buffer).expect("calls come").0,
            };
        }
    }
    let mut call = caps::receive(endpoint, &mut buffer).expect("calls come");
    loop {
        arch::spin(3000);
        let count = served.fetch_add(1, Ordering::AcqRel) + 1;
        let answer = (count as u32).to_le_bytes();
        call = caps::answer_and_receive(endpoint, call.call_id, &answer, &mut buffer).expect("calls come");
    }
}

/// As many calls at once as threads and rings allow, again and again.
fn flood() -> i64 {
    let threads: Vec<_> =
        (0..6).map(|_| caps::spawn(ThreadOptions::default(), flood_one).expect("within the quota")).collect();
    for thread in threads {
        let _ = thread.join();
    }
    0
}

fn flood_one() -> i64 {
    const AT_ONCE: usize = 12;
    let endpoint = caps::need("call:x");
    let mut answers = [[0_u8; 32]; AT_ONCE];
    let mut tickets = [None; AT_ONCE];
    loop {
        for (ticket, answer) in tickets.iter_mut().zip(&mut answers) {
            if ticket.is_none() {
                *ticket = client::submit(client::request(endpoint, 0, b"more", answer)).ok();
            }
        }
        let _ = client::enter(1, MS);
        for ticket in &mut tickets {
            if let Some(waiting) = *ticket
                && !matches!(client::poll(waiting), Ok(None))
            {
                *ticket = None;
            }
        }
    }
}

/// One call at a time. How many others were answered before each is what the server says.
fn honest(registers: bool) -> i64 {
    const CALLS: u32 = 200;
    /// The client that is being served, one of each other client, and the one in hand once more.
    const TURN: u32 = 4;
    let (endpoint, served) = (caps::need("call:x"), arch::word(served_page()));
    // The flood is on.
    assert!(caps::comes_true(MS, || served.load(Ordering::Acquire) > 300), "nobody floods");
    let (mut refused, mut in_turn, mut most) = (0, 0, 0);
    for _ in 0..CALLS {
        let before = served.load(Ordering::Acquire) as u32;
        let mut answer = [0; 4];
        let outcome = if registers {
            caps::call_short(endpoint, Short::number(1)).map(Short::to_number)
        } else {
            caps::call_endpoint(endpoint, b"once", &mut answer).map(|_| u32::from_le_bytes(answer))
        };
        match outcome {
            Ok(after) => {
                in_turn += u32::from(after - before <= TURN + 1);
                most = most.max(after - before);
            }
            Err(CapError::Overloaded) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    say!("contain: honest calls={CALLS} refused={refused} in_turn={in_turn} most={most}");
    // A thread may lose its CPU between its look at the count and its call: then others are served meanwhile.
    i64::from(refused > 0 || in_turn * 10 < CALLS * 8)
}

/// What the programs below have at the same address, whatever they say with it.
static MESSAGE: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
const CALL: u32 = 0x1111_1111;
const SECRET: u32 = 0x5ec2_e75e;

/// Callers are killed at any moment while a server receives, and others come to their places: no server reads the memory
/// of the new ones, and no handle that is used and dropped at the same time reaches them.
//= OWN:kernel.refuse-first
fn races() {
    let grants =
        |role: &'static str| [role, "console", "timer", "threads", "control", "park", "memory", "info"];
    let with = |role, arguments: &str| {
        caps::start("contain", arguments, &grants(role)).expect("the program is in the image")
    };
    let watcher = with("serve:x", "watch");
    for round in 0..40_u64 {
        let callers = [with("call:x", "call-until-killed"), with("call:x", "call-until-killed")];
        arch::spin(20_000 + round * 7919 % 200_000);
        let killers = callers.map(end_by_two);
        let strangers = [start("secret"), start("secret"), start("secret")];
        for killer in killers {
            assert_eq!(killer.join(), Ok(0));
            killer.detach().expect("a handle can be dropped");
        }
        for stranger in strangers {
            assert_eq!(ended(stranger), 7, "a stranger was killed");
        }
    }
    watcher.kill().expect("a handle can kill");
    assert_eq!(ended(watcher), -3000, "the server has seen what was not sent");
}

/// One thread kills by a handle again and again while another drops it.
fn end_by_two(process: Process) -> Thread {
    let cap = process.cap();
    let killer = caps::spawn(ThreadOptions::default(), move || {
        let request = CapSqe { cap_id: cap, op: op::CALL, method_id: 1, ..CapSqe::default() };
        while ask(request).is_ok() {}
        0
    });
    let killer = killer.expect("within the quota");
    process.kill().expect("a handle can kill");
    process.detach().expect("a handle can be dropped");
    killer
}

/// Receives calls, answers some, and ends if one has words that no caller has sent.
fn watch() -> i64 {
    let endpoint = caps::need("serve:x");
    let mut buffer = [0; 64];
    let mut count = 0;
    loop {
        let Ok(call) = caps::receive(endpoint, &mut buffer) else { continue };
        let said = buffer[16..20].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if said != CALL {
            say!("contain: a server received {said:#x}");
            return 9;
        }
        count += 1;
        // Answers that are late, or with a number that names no call, are refused and nothing else.
        let forged = caps::return_request(endpoint, call.call_id ^ (count << 8 | 1), &[]);
        let forged = client::wait(client::submit(forged).expect("there is room"));
        assert!(matches!(forged, Err(CapError::InvalidParameter)), "a number of nobody's was answered");
        let answer = caps::return_request(endpoint, call.call_id, &buffer[16..20]);
        let _late_or_not = client::wait(client::submit(answer).expect("there is room"));
    }
}

fn call_until_killed() -> i64 {
    MESSAGE[0].store(CALL, Ordering::Relaxed);
    let endpoint = caps::need("call:x");
    let call = move || {
        let mut answers = [[0_u8; 4]; 8];
        loop {
            for answer in &mut answers {
                let mut request = client::request(endpoint, 0, &[], answer);
                request.v1.params_addr = MESSAGE.as_ptr() as u64;
                request.v1.params_len = 4;
                let _ = client::submit(request);
            }
            let _ = client::enter(1, MS);
            // What was answered is not looked at: the ring fills up, and is drained again.
            for ticket in 0..8 {
                let _ = client::submit(CapSqeV2::nop(ticket)).map(client::poll);
            }
        }
    };
    let _other = caps::spawn(ThreadOptions::default(), call);
    call()
}

fn secret() -> i64 {
    MESSAGE[0].store(SECRET, Ordering::Relaxed);
    MESSAGE[1].store(SECRET, Ordering::Relaxed);
    caps::sleep(MS).expect("within the quota");
    7
}

/// A table that is full refuses, and is as it was: nothing is lost, and nothing of what is refused is left.
//= OWN:kernel.refuse-first
//= ARCH:thread.ledger
fn exhaustion() {
    buried(1);
    let before = caps::usage().expect("usage can be read");
    let mut held = Vec::new();
    loop {
        match caps::spawn(ThreadOptions::default(), || 0) {
            Ok(thread) => held.push(thread),
            Err(code) => {
                assert_eq!(code, CapError::QuotaExceeded);
                break;
            }
        }
        assert_eq!(held[held.len() - 1].join(), Ok(0));
    }
    for _ in 0..50 {
        assert_eq!(caps::spawn(ThreadOptions::default(), || 0).err(), Some(CapError::QuotaExceeded));
        assert_eq!(caps::start("contain", "exit 0", &[]).err(), Some(CapError::QuotaExceeded));
    }
    let one = held.pop().expect("some were made");
    one.detach().expect("a handle can be dropped");
    let again = caps::spawn(ThreadOptions::default(), || 3).expect("there is room again");
    assert_eq!(again.join(), Ok(3));
    assert!(caps::spawn(ThreadOptions::default(), || 0).is_err(), "exactly as much as before");
    again.detach().expect("a handle can be dropped");
    for thread in held {
        thread.detach().expect("a handle can be dropped");
    }
    let after = caps::usage().expect("usage can be read");
    assert_eq!((after.threads, after.processes), (before.threads, before.processes));
}

/// More threads than the library's heap could ever hold something for each.
fn many_threads() {
    static DONE: AtomicU32 = AtomicU32::new(0);
    for _ in 0..20_000 {
        let thread = caps::spawn(ThreadOptions::default(), || {
            DONE.fetch_add(1, Ordering::Relaxed);
            // One in four ends without coming back to the library.
            if DONE.load(Ordering::Relaxed).is_multiple_of(4) { arch::exit(0, 3) } else { 3 }
        });
        let thread = thread.expect("within the quota");
        assert_eq!(thread.join(), Ok(3));
        thread.detach().expect("a handle can be dropped");
    }
    assert_eq!(DONE.load(Ordering::Relaxed), 20_000);
}

/// A thread that ends makes room for another in its slot of the kernel's table. The place of the process that it had is free a
/// little later, so the next thread has another one. It begins with registers of its own, and so with its own ring, also on the
/// CPU where the first one has just ended.
//= ARCH:inv.threadref
//= ARCH:inv.fs-switch
fn slots_change_hands() {
    let cpus = caps::usage().expect("usage can be read").cpus;
    for round in 0..2_000 {
        let there = ThreadOptions { cpus: 1 << (round / 4 % cpus), ..ThreadOptions::default() };
        let thread = caps::spawn(there, || {
            caps::yield_now();
            3
        });
        let thread = thread.expect("within the quota");
        assert_eq!(thread.join(), Ok(3));
        thread.detach().expect("a handle can be dropped");
    }
}
