//! A hostile program, one attack per run. What the processor stops ends the process; what the kernel refuses must be
//! refused with the right code, else the exit code is not 0.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use mainspring_abi::kernel::{DIRECT, DirectRequest, REFUSED, RING_ARENA};
use mainspring_abi::ring::{CapSqe, CapSqeV2, RING_MAGIC, op, word};
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::schema::Access;
use mainspring_user::{CapError, arch, client};

mainspring_user::program!(main);

fn main() -> i64 {
    let how = caps::arguments();
    match how {
        "pointers" => pointers(),
        "capabilities" => capabilities(),
        "requests" => requests(),
        "system-calls" => system_calls(),
        "ring-tail" => ring_index(word::SQ_TAIL, 1 << 20, CapError::RingCorrupt),
        "ring-head" => ring_index(word::CQ_HEAD, 1 << 20, CapError::RingCorrupt),
        "ring-version" => ring_index(word::ABI_VERSION, 9, CapError::UnsupportedRingAbi),
        "ring-sizes" => ring_index(word::ENTRY_SIZES, 48 | 16 << 16, CapError::UnsupportedSqeVersion),
        "ring-scribble" => ring_scribble(),
        "registers" => registers(),
        "unmap-flood" => unmap_flood(),
        "thread-bomb" => thread_bomb(),
        "thread-entry" => thread_entry(),
        "spin" => loop {
            arch::spin(1 << 20);
        },
        _ => match how.strip_prefix("fork-bomb ") {
            Some(depth) => fork_bomb(depth.parse().unwrap_or(0)),
            None => {
                arch::misbehave(how);
                99
            }
        },
    }
}

/// Addresses that are not the caller's, for parameters and for results.
//= ARCH:inv.user-copy
fn pointers() -> i64 {
    let timer = caps::need("timer");
    let wild = [
        0,
        8,
        0x1000,
        0x5555_5555_5000,
        0x7fff_ffff_fff8,
        0x8000_0000_0000,
        0xffff_8000_0000_0000,
        0xffff_ffff_8010_0000,
        u64::MAX - 7,
    ];
    for address in wild {
        let now = CapSqe {
            cap_id: timer,
            op: op::CALL,
            method_id: 0,
            result_addr: address,
            result_len: 64,
            ..CapSqe::default()
        };
        assert_eq!(ask(now), Err(CapError::BadAddress), "a result at {address:#x}");
        let sleep = CapSqe {
            cap_id: timer,
            op: op::CALL,
            method_id: 1,
            params_addr: address,
            params_len: 16,
            ..CapSqe::default()
        };
        assert_eq!(ask(sleep), Err(CapError::BadAddress), "parameters at {address:#x}");
        let call = CapSqe {
            cap_id: caps::need("console"),
            op: op::CALL,
            params_addr: address,
            params_len: 100,
            ..CapSqe::default()
        };
        assert_eq!(ask(call), Err(CapError::BadAddress), "text at {address:#x}");
        assert_eq!(caps::park(address, 0, 1), Err(CapError::BadAddress));
    }
    let word = [0_u32; 4];
    for off in 1..4 {
        assert_eq!(
            caps::park(word.as_ptr() as u64 + off, 0, 1),
            Err(CapError::BadAddress),
            "a misaligned word"
        );
    }
    // A result on a page that can only be read.
    let now =
        CapSqe { cap_id: timer, op: op::CALL, result_addr: 0x40_0000, result_len: 64, ..CapSqe::default() };
    assert_eq!(ask(now), Err(CapError::BadAddress));
    0
}

fn ask(request: CapSqe) -> Result<u32, CapError> {
    client::wait(client::submit(CapSqeV2::from_v1(request))?)
}

/// Numbers that name no capability, and one that did.
//= ARCH:inv.threadref
fn capabilities() -> i64 {
    for cap in [0, 1, 0xffff, 0x1_0000 | 127, 0x2_0000, 0x1_ffff, 0xdead_beef, u32::MAX] {
        let request = CapSqe { cap_id: cap, op: op::CALL, ..CapSqe::default() };
        assert_eq!(ask(request), Err(CapError::InvalidCapability), "{cap:#x}");
    }
    let thread = caps::spawn(ThreadOptions::default(), || 0).expect("within the quota");
    let stale = thread.cap();
    assert_eq!(thread.join(), Ok(0));
    thread.detach().expect("a handle can be dropped");
    assert_eq!(
        ask(CapSqe { cap_id: stale, op: op::CALL, ..CapSqe::default() }),
        Err(CapError::InvalidCapability)
    );
    // The slot is used again, with another number.
    let next = caps::spawn(ThreadOptions::default(), || 0).expect("within the quota");
    assert_ne!(next.cap(), stale);
    assert_eq!(next.join(), Ok(0));
    0
}

/// Operations, methods, flags and parameters that make no sense.
fn requests() -> i64 {
    let timer = caps::need("timer");
    for bad in [7, 77, u16::MAX] {
        let request = CapSqe { cap_id: timer, op: bad, ..CapSqe::default() };
        assert_eq!(ask(request), Err(CapError::InvalidRequest));
    }
    let nobody = CapSqe { op: op::CANCEL, params_addr: u64::MAX, ..CapSqe::default() };
    assert_eq!(ask(nobody), Err(CapError::NotFound), "there is no such request to withdraw");
    for operation in [op::RECV, op::RETURN, op::RETURN_RECV, op::THROW] {
        assert_eq!(
            ask(CapSqe { cap_id: timer, op: operation, ..CapSqe::default() }),
            Err(CapError::NoSuchMethod)
        );
    }
    for method in [2, 99, u16::MAX] {
        let request = CapSqe { cap_id: timer, op: op::CALL, method_id: method, ..CapSqe::default() };
        assert_eq!(ask(request), Err(CapError::NoSuchMethod));
    }
    let flagged = CapSqe { cap_id: timer, op: op::CALL, flags: 0xff00, ..CapSqe::default() };
    assert_eq!(ask(flagged), Err(CapError::InvalidRequest));
    // A message whose pointer leads nowhere.
    let garbage = [u64::MAX; 8];
    for len in [0, 8, 64] {
        let request = CapSqe {
            cap_id: caps::need("threads"),
            op: op::CALL,
            params_addr: garbage.as_ptr() as u64,
            params_len: len,
            ..CapSqe::default()
        };
        assert_eq!(ask(request), Err(CapError::InvalidParameter), "{len} bytes of garbage");
    }
    let odd = CapSqe {
        cap_id: timer,
        op: op::CALL,
        method_id: 1,
        params_addr: garbage.as_ptr() as u64,
        params_len: 13,
        ..CapSqe::default()
    };
    assert_eq!(ask(odd), Err(CapError::InvalidParameter));
    let huge = CapSqe {
        cap_id: timer,
        op: op::CALL,
        method_id: 1,
        params_addr: garbage.as_ptr() as u64,
        params_len: u32::MAX,
        ..CapSqe::default()
    };
    assert_eq!(ask(huge), Err(CapError::BadAddress));
    for weight in [0, 65_536, u32::MAX] {
        let options = ThreadOptions { weight, ..ThreadOptions::default() };
        assert_eq!(caps::spawn(options, || 0).err(), Some(CapError::InvalidParameter));
    }
    let nowhere = ThreadOptions { cpus: 1 << 63, ..ThreadOptions::default() };
    assert_eq!(caps::spawn(nowhere, || 0).err(), Some(CapError::InvalidParameter));
    let endless = ThreadOptions { request_ns: u64::MAX, ..ThreadOptions::default() };
    assert_eq!(caps::spawn(endless, || 0).err(), Some(CapError::InvalidParameter));
    0
}

fn system_calls() -> i64 {
    for number in [2, 3, 60, 1 << 31, u64::MAX] {
        let answer = arch::any_call(number, u64::MAX, u64::MAX);
        assert_eq!(answer, REFUSED | u64::from(CapError::InvalidRequest.number()));
    }
    assert_eq!(client::enter(0, 0), Ok(0), "the kernel still listens");
    0
}

/// Writes nonsense over a word of the ring: entering is refused, and works again once the word is mended.
//= TICK:L4.reject
fn ring_index(index: usize, nonsense: u32, expected: CapError) -> i64 {
    let ring = arch::ring_word(RING_ARENA, index);
    assert_eq!(arch::ring_word(RING_ARENA, word::MAGIC).load(Ordering::Relaxed), RING_MAGIC);
    let honest = ring.load(Ordering::Relaxed);
    ring.store(honest.wrapping_add(nonsense), Ordering::Relaxed);
    if index == word::ENTRY_SIZES {
        ring.store(nonsense, Ordering::Relaxed);
    }
    assert_eq!(client::enter(0, 0), Err(expected));
    assert_eq!(client::enter(1, 1000), Err(expected));
    ring.store(honest, Ordering::Relaxed);
    assert_eq!(client::enter(0, 0), Ok(0));
    assert!(caps::now() > 0, "the ring works again");
    0
}

/// Another thread writes over the whole ring while requests go through it.
fn ring_scribble() -> i64 {
    static GO: AtomicBool = AtomicBool::new(false);
    static STOP: AtomicBool = AtomicBool::new(false);
    let scribbler = caps::spawn(ThreadOptions::default(), || {
        // Not before this thread's own making has been answered through that ring.
        while !GO.load(Ordering::Acquire) {
            arch::spin(100);
        }
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        while !STOP.load(Ordering::Relaxed) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            arch::ring_word(RING_ARENA, (seed % 1024) as usize).store((seed >> 32) as u32, Ordering::Relaxed);
        }
        0
    });
    let scribbler = scribbler.expect("within the quota");
    GO.store(true, Ordering::Release);
    for _ in 0..3000 {
        let _ = client::submit(CapSqeV2::nop(0));
        // Whatever comes of it is this thread's own problem.
        let _ = arch::cap_enter(0, 0);
    }
    STOP.store(true, Ordering::Relaxed);
    // This thread's ring is beyond repair; the other's is not.
    arch::spin(1 << 22);
    let _ = scribbler;
    0
}

/// Requests in registers, of all bits that there are: none of them is one.
fn registers() -> i64 {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..5000 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        // Every other one is well formed, with a capability that the process has.
        let word = if round % 2 == 0 {
            seed
        } else {
            let (op, cap_id) = (seed as u16 % 8, 0x1_0000 | ((seed >> 16) as u32 % 16));
            DirectRequest { op, cap_id, len: (seed >> 40) as u32 % 33 }.to_word()
        };
        let (answer, _, _) = arch::cap_enter_direct(word | DIRECT, seed as u32, [seed; 4]);
        assert_ne!(answer & REFUSED, 0, "{word:#x}");
    }
    assert_eq!(client::enter(0, 0), Ok(0), "the kernel still listens");
    0
}

/// As many threads as can be had, each making as many as it can.
//= ARCH:thread.ledger
fn thread_bomb() -> i64 {
    fn more(depth: u32) -> i64 {
        let mut made = Vec::new();
        while let Ok(thread) =
            caps::spawn(ThreadOptions::default(), move || if depth > 0 { more(depth - 1) } else { 0 })
        {
            made.push(thread);
            if made.len() > 200 {
                break;
            }
        }
        for thread in made {
            let _ = thread.join();
            let _ = thread.detach();
        }
        0
    }
    more(2)
}

/// Page table changes by a thread that has as much in flight as it may: each is refused before anything has changed.
//= ARCH:tlb.deferred
fn unmap_flood() -> i64 {
    const IN_FLIGHT: usize = 16;
    let page = caps::map(1, Access::Write).expect("a page is within the quota");
    arch::word(page).store(7, Ordering::Relaxed);
    // So far away that none of them ends by itself, however long the host holds the machine up.
    let due = caps::now() + 600_000_000_000;
    let sleeps = [(); IN_FLIGHT].map(|()| caps::begin_sleep(due).expect("within the quota"));
    for _ in 0..10 {
        let refused = [caps::unmap(page, 1), caps::protect(page, 1, Access::Read)];
        assert_eq!(refused, [Err(CapError::Overloaded); 2]);
    }
    for sleep in sleeps {
        assert_eq!(client::cancel(sleep), Err(CapError::Cancelled));
    }
    arch::word(page).fetch_add(1, Ordering::Relaxed);
    assert_eq!(arch::word(page).load(Ordering::Relaxed), 8, "the page is there, and can be written");
    assert_eq!(caps::unmap(page, 1), Ok(()));
    0
}

/// A thread that begins nowhere stops its own process and no other.
fn thread_entry() -> i64 {
    assert_eq!(
        caps::spawn_raw(ThreadOptions::default(), 0xffff_8000_0000_0000, 0).err(),
        Some(CapError::BadAddress)
    );
    let lost =
        caps::spawn_raw(ThreadOptions::default(), 0x5000_0000, 0).expect("the address is not looked at");
    let _ = lost.join();
    1
}

/// Processes that make processes, until there is no room for more.
fn fork_bomb(depth: u32) -> i64 {
    if depth == 0 {
        return 0;
    }
    let arguments = alloc::format!("fork-bomb {}", depth - 1);
    let mut children = Vec::new();
    for _ in 0..3 {
        match caps::start("attack", &arguments, &["processes"]) {
            Ok(child) => children.push(child),
            Err(code) => {
                if !matches!(code, CapError::QuotaExceeded | CapError::NoMemory) {
                    return 2;
                }
            }
        }
    }
    for child in children {
        if child.wait() != Ok(0) || child.detach().is_err() {
            return 3;
        }
    }
    0
}
