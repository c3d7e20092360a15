//! More attacks, one per run: what one process could learn of another, do to its time, or take from it. What the processor
//! stops ends the process; anything else that does not hold is a panic, and the exit code is not 0.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use mainspring_abi::kernel::{
    MAPPINGS, RING_ARENA, RING_STRIDE, STACK_BYTES, STACK_STRIDE, STACKS, STARTUP, THREAD_BLOCK,
};
use mainspring_abi::ring::{CapSqe, CapSqeV2, SLOTS_OFFSET, op};
use mainspring_user::CapError;
use mainspring_user::arch::{self, wild};
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::client::{self, Ticket};
use mainspring_user::schema::Access;

mainspring_user::program!(main);

const PAGE: u64 = 4096;
/// What a process leaves in everything that it had.
const SECRET: u64 = 0x5ec2_e75e_c2e7_5ec2;

fn main() -> i64 {
    let arguments = caps::arguments();
    let (how, rest) = arguments.split_once(' ').unwrap_or((arguments, ""));
    match how {
        "fresh-registers" => fresh_registers(),
        "call-registers" => call_registers(),
        "leave-secrets" => leave_secrets(),
        "find-secrets" => find_secrets(),
        "vector" => {
            wild::interrupt(rest.parse().unwrap_or(0), made_code());
            99
        }
        "instruction" => {
            wild::instruction(rest.parse().unwrap_or(0));
            99
        }
        "instructions-allowed" => instructions_allowed(),
        "times" => times(),
        "ring-remap" => ring_remap(),
        "execute-stack" => wild::execute(stack_code()),
        "execute-written" => wild::execute(written_code()),
        "write-executable" => write_executable(),
        "fill-capabilities" => fill_capabilities(),
        "pointers-out" => pointers_out(),
        "joins" => joins(),
        "completions" => completions(),
        "tick-requests" => tick_requests(),
        "selectors" => selectors(),
        "edge-of-memory" => edge_of_memory(),
        "spurious-wakes" => spurious_wakes(),
        "reuse" => reuse(),
        "deep" => deep(),
        "requests-of-a-nanosecond" => requests_of_a_nanosecond(),
        _ => 98,
    }
}

fn ask(request: CapSqe) -> Result<u32, CapError> {
    client::wait(client::submit(CapSqeV2::from_v1(request))?)
}

fn begin(request: CapSqe) -> Result<Ticket, CapError> {
    client::submit(CapSqeV2::from_v1(request))
}

/// A new thread begins with registers that say nothing about another thread: zeros, its arguments, and the usual
/// flags.
fn fresh_registers() -> i64 {
    static SEEN: [AtomicU64; 40] = [const { AtomicU64::new(u64::MAX) }; 40];
    for round in 0..40 {
        // Something of this thread's own is in the vector registers of the CPU that runs the next one.
        assert!(wild::registers_hold(SECRET ^ round, 3000));
        let thread = caps::spawn_raw(ThreadOptions::default(), wild::look_entry(), SEEN.as_ptr() as u64);
        let thread = thread.expect("within the quota");
        assert_eq!(thread.join(), Ok(3));
        thread.detach().expect("a handle can be dropped");
        let seen = |at: usize| SEEN[at].load(Ordering::Relaxed);
        // rdi, rsi, rdx are the arguments; rsp is the thread's own.
        for at in 0..12 {
            assert_eq!(seen(at), 0, "a general register ({at}) was not cleared");
        }
        assert_eq!(seen(12) & 0x3f_7fd7 & !0x202, 0, "flags {:#x}", seen(12));
        for at in 16..32 {
            assert_eq!(seen(at), 0, "a vector register ({at}) was not cleared");
        }
        assert_eq!(seen(32) & 0xffff, 0xffff, "an x87 register is in use");
    }
    0
}

/// A system call changes rax, rcx and r11, and nothing else that the ABI keeps; no vector register has a value of the
/// kernel's.
fn call_registers() -> i64 {
    let word = AtomicU32::new(0);
    for round in 0..200_u64 {
        let odd = wild::call_keeps_registers(SECRET.wrapping_mul(round | 1), 0, 0);
        assert_eq!(odd, 0, "a system call changed register {odd}");
        // One that waits: others run in between.
        let odd = wild::call_keeps_registers(SECRET.wrapping_mul(round | 1), 1, 20_000);
        assert_eq!(odd, 0, "a system call that waited changed register {odd}");
    }
    let _ = word;
    0
}

/// Fills everything that this process has with a pattern, and ends: memory, the ring, stacks, vector registers.
fn leave_secrets() -> i64 {
    const PAGES: u32 = 2000;
    let at = caps::map(PAGES, Access::Write).expect("within the quota");
    for word in 0..u64::from(PAGES) * 512 {
        arch::word(at + 8 * word).store(SECRET, Ordering::Relaxed);
    }
    let object = caps::create_object(500).expect("within the quota");
    let shared = caps::map_object(object, Access::Write).expect("within the quota");
    for word in 0..500 * 512 {
        arch::word(shared + 8 * word).store(SECRET, Ordering::Relaxed);
    }
    // A thread's stack and ring, while no thread uses them.
    let thread = caps::spawn(ThreadOptions::default(), || 0).expect("within the quota");
    assert_eq!(thread.join(), Ok(0));
    for word in 0..STACK_BYTES / 8 {
        wild::any_word(STACKS + STACK_STRIDE + PAGE + 8 * word).store(SECRET, Ordering::Relaxed);
    }
    for ring in [RING_ARENA, RING_ARENA + RING_STRIDE] {
        for word in SLOTS_OFFSET as u64 / 8..512 {
            wild::any_word(ring + 8 * word).store(SECRET, Ordering::Relaxed);
        }
    }
    assert!(wild::registers_hold(SECRET, 1000));
    0
}

/// Looks for that pattern in everything that a new process gets.
fn find_secrets() -> i64 {
    let look = |what: &str, from: u64, words: u64| {
        for word in 0..words {
            let found = wild::any_word(from + 8 * word).load(Ordering::Relaxed);
            assert_ne!(found, SECRET, "{what} has what another process left");
        }
    };
    look("the ring", RING_ARENA, 512);
    look("the stack", STACKS + PAGE, STACK_BYTES / 8);
    look("the page that tells of capabilities", STARTUP, 512);
    let at = caps::map(3000, Access::Write).expect("within the quota");
    for word in 0..3000 * 512 {
        assert_eq!(arch::word(at + 8 * word).load(Ordering::Relaxed), 0, "a new page is not cleared");
    }
    let object = caps::create_object(1000).expect("within the quota");
    let shared = caps::map_object(object, Access::Write).expect("within the quota");
    for word in 0..1000 * 512 {
        assert_eq!(
            arch::word(shared + 8 * word).load(Ordering::Relaxed),
            0,
            "an object's page is not cleared"
        );
    }
    let thread = caps::spawn(ThreadOptions::default(), || 0).expect("within the quota");
    assert_eq!(thread.join(), Ok(0));
    look("a thread's ring", RING_ARENA + RING_STRIDE, 512);
    look("a thread's stack", STACKS + STACK_STRIDE + PAGE, STACK_BYTES / 8);
    0
}

/// A page that can be written now and executed later.
fn made_code() -> u64 {
    caps::map(1, Access::Write).expect("a page is within the quota")
}

/// Makes the page executable, for `wild::interrupt`.
fn stack_code() -> u64 {
    // A `ret` on the stack.
    let code = core::hint::black_box([0xc3c3_c3c3_c3c3_c3c3_u64; 4]);
    core::hint::black_box(code.as_ptr()) as u64
}

fn written_code() -> u64 {
    let at = made_code();
    arch::word(at).store(0xc3c3_c3c3_c3c3_c3c3, Ordering::Relaxed);
    at
}

/// A page that is executable cannot be written, by the program or by the kernel on its behalf.
//= ARCH:inv.user-copy
fn write_executable() -> i64 {
    let at = written_code();
    caps::protect(at, 1, Access::Execute).expect("the page is ours");
    assert_eq!(wild::execute(at), 98, "code that was written before can be executed now");
    let now = CapSqe {
        cap_id: caps::need("timer"),
        op: op::CALL,
        result_addr: at,
        result_len: 64,
        ..CapSqe::default()
    };
    assert_eq!(ask(now), Err(CapError::BadAddress), "the kernel wrote into code");
    arch::word(at).store(1, Ordering::Relaxed);
    1
}

/// Instructions that look privileged and are not: none of them says anything about the kernel or changes anything for others.
fn instructions_allowed() -> i64 {
    for number in 0..wild::ALLOWED {
        let value = wild::allowed(number);
        assert!(
            value < 0xffff_8000_0000_0000,
            "instruction {number} told an address of the kernel: {value:#x}"
        );
    }
    0
}

/// Times at both ends of what a number can say, in everything that takes one.
fn times() -> i64 {
    let (timer, park) = (caps::need("timer"), caps::need("park"));
    let word = AtomicU32::new(0);
    let at = word.as_ptr() as u64;
    let thread = caps::spawn(ThreadOptions::default(), || {
        loop {
            let _ = arch::cap_enter(1, u64::MAX - 1);
        }
    });
    let thread = thread.expect("within the quota");
    for time in
        [0, 1, 2, u64::MAX, u64::MAX - 1, u64::MAX - 2, 1 << 63, (1 << 63) - 1, u64::MAX / 2, u64::MAX / 1000]
    {
        let far = time > 1 << 40;
        let sleep = [1_u64 << 32, time];
        let sleep = CapSqe {
            cap_id: timer,
            op: op::CALL,
            method_id: 1,
            params_addr: sleep.as_ptr() as u64,
            params_len: 16,
            ..CapSqe::default()
        };
        let ticket = begin(sleep).expect("there is room in the ring");
        let answer = client::wait_for(ticket, 30_000).expect("a thread may wait");
        assert!(matches!(answer, None | Some(Ok(_))), "a sleep is within the quota: {answer:?}");
        assert_eq!(answer.is_none(), far, "a sleep until {time:#x}");
        if far {
            assert_eq!(client::cancel(ticket), Err(CapError::Cancelled));
        }
        // A deadline of 0 is none: parked until woken, so the other thread's entry is what ends it.
        let wait = [3_u64 << 32, at, 0, time.max(1)];
        let wait = CapSqe {
            cap_id: park,
            op: op::CALL,
            params_addr: wait.as_ptr() as u64,
            params_len: 32,
            ..CapSqe::default()
        };
        let ticket = begin(wait).expect("there is room in the ring");
        match client::wait_for(ticket, 30_000) {
            Ok(None) => {
                assert!(far, "a park until {time:#x}");
                assert_eq!(client::cancel(ticket), Err(CapError::Cancelled));
            }
            other => assert_eq!(other, Ok(Some(Err(CapError::TimedOut))), "a park until {time:#x}"),
        }
        if far {
            assert_eq!(thread.join_until(caps::now() + 20_000), Err(CapError::TimedOut));
        } else {
            assert_eq!(thread.join_until(time.max(1)), Err(CapError::TimedOut));
        }
        assert_eq!(arch::cap_enter(0, time), 0);
        let mut late = CapSqeV2::nop(0);
        late.deadline_ns = time;
        // Without a flag that says otherwise a request is carried out late.
        assert_eq!(client::submit(late).and_then(client::wait), Ok(0), "a request that is due at {time:#x}");
    }
    let began = caps::now();
    caps::sleep(100_000).expect("within the quota");
    assert!(caps::now() >= began + 100_000, "time goes on as before");
    0
}

/// The pages of rings, stacks and the startup page cannot be mapped, unmapped or protected.
fn ring_remap() -> i64 {
    let places = [
        RING_ARENA,
        RING_ARENA + PAGE,
        RING_ARENA + RING_STRIDE,
        STARTUP,
        STACKS,
        STACKS + PAGE,
        0x40_0000,
        STACKS - PAGE + 1,
        MAPPINGS - PAGE,
        u64::MAX - PAGE + 1,
        1 << 47,
    ];
    for at in places {
        assert_eq!(caps::map_at(at, 1, Access::Write), Err(CapError::BadAddress), "{at:#x}");
        assert_eq!(caps::unmap(at, 1), Err(CapError::BadAddress), "{at:#x}");
        assert_eq!(caps::protect(at, 1, Access::Execute), Err(CapError::BadAddress), "{at:#x}");
        assert_eq!(caps::unmap_object(at), Err(CapError::BadAddress), "{at:#x}");
    }
    // A range that ends in one of them, or beyond the end of numbers.
    for (at, pages) in
        [(STACKS - PAGE, 2), (STACKS - 4 * PAGE, 5), (MAPPINGS, 0), (MAPPINGS, u32::MAX), (!0xfff, 2)]
    {
        assert!(caps::map_at(at, pages, Access::Write).is_err(), "{at:#x} {pages}");
        assert!(caps::unmap(at, pages).is_err(), "{at:#x} {pages}");
    }
    // The kernel's own addresses.
    for at in [0xffff_8000_0000_0000, 0xffff_c000_0000_0000, 0xffff_ffff_8010_0000] {
        assert_eq!(caps::map_at(at, 1, Access::Write), Err(CapError::BadAddress), "{at:#x}");
    }
    0
}

/// A full table of capabilities: everything that needs a place is refused, and nothing comes to be without one.
fn fill_capabilities() -> i64 {
    let mut made = Vec::new();
    // Handles of threads that have ended: nothing but their numbers is left.
    while let Ok(thread) = caps::spawn_raw(ThreadOptions::default(), wild::leaf_entry(), 0) {
        assert_eq!(thread.join(), Ok(3));
        made.push(thread);
        assert!(made.len() <= 128, "more capabilities than there are places");
    }
    let before = caps::usage().expect("usage can be read");
    for _ in 0..50 {
        assert!(caps::spawn(ThreadOptions::default(), || 0).is_err(), "a thread without a handle");
        assert!(caps::start("invade", "none", &[]).is_err(), "a process without a handle");
        assert!(caps::create_object(1).is_err());
    }
    let after = caps::usage().expect("usage can be read");
    assert_eq!((before.threads, before.processes), (after.threads, after.processes));
    assert_eq!(before.free_frames, after.free_frames, "a refusal cost memory");
    0
}

/// What the kernel tells: no address of its own is in any of it, and no byte beyond what it says that it wrote.
fn pointers_out() -> i64 {
    let info = caps::need("info");
    let mut buffer = [0xa5_u8; 1024];
    for method in 0..8_u16 {
        for slot in 0..70_u64 {
            let params = [1_u64 << 32, slot];
            buffer.fill(0xa5);
            let request = CapSqe {
                cap_id: info,
                op: op::CALL,
                method_id: method,
                params_addr: params.as_ptr() as u64,
                params_len: 16,
                result_addr: buffer.as_mut_ptr() as u64,
                result_len: 1024,
                ..CapSqe::default()
            };
            let len = ask(request).unwrap_or(0) as usize;
            assert!(
                buffer[len..].iter().all(|byte| *byte == 0xa5),
                "method {method} wrote more than {len} bytes"
            );
            for word in buffer[..len].as_chunks::<8>().0 {
                let word = u64::from_le_bytes(*word);
                assert!(word < 0xffff_8000_0000_0000 || word == u64::MAX, "method {method} told {word:#x}");
            }
        }
    }
    0
}

/// Threads that wait for each other in a circle, and for themselves; the process can end all the same.
fn joins() -> i64 {
    static HANDLES: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
    static STARTED: AtomicU32 = AtomicU32::new(0);
    for number in 0..3_usize {
        let thread = caps::spawn(ThreadOptions::default(), move || {
            while HANDLES.iter().any(|handle| handle.load(Ordering::Acquire) == 0) {
                caps::yield_now();
            }
            STARTED.fetch_add(1, Ordering::AcqRel);
            // The next one, or oneself.
            let cap = HANDLES[(number + usize::from(number < 2)) % 3].load(Ordering::Relaxed);
            ask(CapSqe { cap_id: cap, op: op::CALL, ..CapSqe::default() }).map_or(1, i64::from)
        });
        HANDLES[number].store(thread.expect("within the quota").cap(), Ordering::Release);
    }
    while STARTED.load(Ordering::Acquire) < 3 {
        let _ = caps::sleep(100_000);
    }
    let _ = caps::sleep(1_000_000);
    0
}

/// As many completions as there is room for, and more requests than that, with everything in flight at the end.
fn completions() -> i64 {
    let cap = caps::need("timer");
    for round in 0..20 {
        for _ in 0..100 {
            let _ = client::submit(CapSqeV2::nop(1));
            let sleep = [1_u64 << 32, u64::MAX];
            let request = CapSqe {
                cap_id: cap,
                op: op::CALL,
                method_id: 1,
                params_addr: sleep.as_ptr() as u64,
                params_len: 16,
                ..CapSqe::default()
            };
            let _ = begin(request);
            if round % 2 == 0 {
                let _ = arch::cap_enter(0, 0);
            }
        }
        let _ = arch::cap_enter(0, 0);
    }
    0
}

/// Requests that only the timer interrupt finds: the thread never enters the kernel. What they take is the thread's own time,
/// and they do what they would do anyhow.
fn tick_requests() -> i64 {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let mut results = [[0_u64; 4]; 8];
    let mut tickets = Vec::new();
    let entry = wild::leaf_entry();
    let params = [5_u64 << 32, entry, 0, 0, 0, 0];
    for result in &mut results {
        let request = CapSqe {
            cap_id: caps::need("threads"),
            op: op::CALL,
            params_addr: params.as_ptr() as u64,
            params_len: 48,
            result_addr: result.as_mut_ptr() as u64,
            result_len: 32,
            ..CapSqe::default()
        };
        tickets.push(begin(request).expect("there is room in the ring"));
    }
    let due = caps_now_without_entering() + 400_000_000;
    while caps_now_without_entering() < due && tickets.iter().any(|ticket| !done(*ticket)) {
        arch::spin(20_000);
    }
    let _ = MADE.load(Ordering::Relaxed);
    0
}

fn caps_now_without_entering() -> u64 {
    arch::stamp()
}

fn done(ticket: Ticket) -> bool {
    // A completion that is taken once is gone: all that matters is that the loop ends at some time.
    matches!(client::poll(ticket), Ok(Some(_)))
}

/// Selectors that ring 3 may load, in all its segment registers: everything goes on, and FS is where it was.
fn selectors() -> i64 {
    for selector in [0_u16, 1, 2, 3, 0x1b, 0x23] {
        wild::load_selectors(selector);
        assert!(caps::now() > 0, "system calls work");
        caps::sleep(20_000).expect("within the quota");
        assert!(wild::registers_hold(u64::from(selector), 2000));
    }
    0
}

/// A system call in the last two bytes before a page that is not mapped.
fn edge_of_memory() -> i64 {
    let at = caps::map_at(STACKS - PAGE, 1, Access::Write).expect("the last page is ours");
    // mov eax, 9; syscall: it is refused, and the process goes on behind the end.
    let code = [0xb8_u8, 9, 0, 0, 0, 0x0f, 0x05];
    let end = at + PAGE;
    for (place, byte) in (end - 8..).zip([0x90].into_iter().chain(code)) {
        let word = wild::any_word(place);
        let shift = 8 * (place % 8);
        word.fetch_or(u64::from(byte) << shift, Ordering::Relaxed);
    }
    caps::protect(at, 1, Access::Execute).expect("the page is ours");
    wild::execute(end - 8)
}

/// Wakes of threads that do not wait, of addresses that no thread waits at, and more than there can be.
fn spurious_wakes() -> i64 {
    static WORD: AtomicU32 = AtomicU32::new(0);
    static STOP: AtomicBool = AtomicBool::new(false);
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let thread = caps::spawn(ThreadOptions::default(), || {
                while !STOP.load(Ordering::Relaxed) {
                    let _ = caps::park(WORD.as_ptr() as u64, 0, caps::now() + 50_000);
                }
                0
            });
            thread.expect("within the quota")
        })
        .collect();
    for round in 0..3000_u64 {
        let at = if round % 2 == 0 { WORD.as_ptr() as u64 } else { round * 4 };
        let _ = caps::unpark(at, if round % 3 == 0 { u32::MAX } else { 1 });
    }
    STOP.store(true, Ordering::Relaxed);
    for thread in threads {
        assert_eq!(thread.join(), Ok(0));
    }
    0
}

/// Places that are used again and again: no number that was given up means anything later.
fn reuse() -> i64 {
    let mut stale = Vec::new();
    for round in 0..1500 {
        let thread =
            caps::spawn_raw(ThreadOptions::default(), wild::leaf_entry(), 0).expect("within the quota");
        let cap = thread.cap();
        assert!(!stale.contains(&cap), "a number came back after {round} rounds");
        assert_eq!(thread.join(), Ok(3));
        thread.detach().expect("a handle can be dropped");
        for method_id in 0..2 {
            let again = CapSqe { cap_id: cap, op: op::CALL, method_id, ..CapSqe::default() };
            assert_eq!(ask(again), Err(CapError::InvalidCapability));
        }
        stale.push(cap);
    }
    0
}

/// Processes that are started from the middle of a full ring, by threads that take turns: as deep in the kernel as a request
/// can be.
fn deep() -> i64 {
    static ROUNDS: AtomicU32 = AtomicU32::new(0);
    // An empty list of grants, and the name of a program that ends at once: this one, with no arguments.
    static SPAWN: [u64; 6] =
        [3 << 48, 1 | 2 << 2 | 2 << 32 | 7 << 35, 0, 0, u64::from_le_bytes(*b"invade\0\0"), 0];
    fn fill() {
        let spawner = caps::need("processes");
        let mut made = [0_u64; 4];
        let mut tickets: Vec<Ticket> = Vec::new();
        for number in 0..28 {
            let request = CapSqe {
                cap_id: spawner,
                op: op::CALL,
                params_addr: SPAWN.as_ptr() as u64,
                params_len: 40,
                result_addr: made.as_mut_ptr() as u64,
                result_len: 32,
                ..CapSqe::default()
            };
            let request = if number % 7 == 6 { CapSqeV2::from_v1(request) } else { CapSqeV2::nop(0) };
            tickets.extend(client::submit(request));
        }
        for (number, ticket) in tickets.into_iter().enumerate() {
            if client::wait(ticket).is_ok() && number % 7 == 6 {
                // Only the last one's number is known: its handle is given up, the others go with this process.
                let _ =
                    ask(CapSqe { cap_id: made[1] as u32, op: op::CALL, method_id: 2, ..CapSqe::default() });
            }
        }
    }
    let threads = [(); 3].map(|()| {
        let thread = caps::spawn(ThreadOptions::default(), || {
            while ROUNDS.fetch_add(1, Ordering::Relaxed) < 24 {
                fill();
            }
            0
        });
        thread.expect("within the quota")
    });
    for thread in threads {
        assert_eq!(thread.join(), Ok(0));
    }
    0
}

/// Threads that ask for a nanosecond of service at a time.
fn requests_of_a_nanosecond() -> i64 {
    for request_ns in [1, 2, 1000] {
        let options = ThreadOptions { request_ns, ..ThreadOptions::default() };
        let _ = caps::spawn(options, || {
            loop {
                arch::spin(1 << 20);
            }
        });
    }
    loop {
        arch::spin(1 << 20);
    }
}

const _: () = assert!(THREAD_BLOCK < STACK_BYTES);
