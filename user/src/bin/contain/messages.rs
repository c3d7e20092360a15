//! Messages go to the thread that asked for them, for as long as it does: neither into memory that is another's by then, nor
//! with a flag of the sender's.

use super::{MS, ended};
use core::sync::atomic::{AtomicU64, Ordering};
use mainspring_abi::kernel::{DIRECT, DirectRequest};
use mainspring_abi::ring::op;
use mainspring_user::arch::wild;
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::{CapError, arch, client};

const GRANTS: &[&str] = &["console", "timer", "threads", "control", "park", "memory", "info"];
/// What the caller puts where an answer was to go, once it has withdrawn its call.
const CANARY: u64 = 0xca4a_117c_a4a1_17ca;

/// A caller withdraws its calls and uses the memory for something else: an answer that comes late is not written there. The
/// server answers at any moment, on any CPU, and is killed in the middle of it now and then.
//= OWN:kernel.refuse-first
pub fn late_answers() {
    let grants = |role| {
        let mut all: alloc::vec::Vec<&str> = GRANTS.to_vec();
        all.push(role);
        all
    };
    for round in 0..8_u64 {
        let server = caps::start("contain", "answer-late", &grants("serve:x")).expect("in the image");
        let caller = caps::start("contain", "withdraw", &grants("call:x")).expect("in the image");
        let code = if round % 2 == 0 {
            caps::sleep(MS + round * 300_000).expect("within the quota");
            server.kill().expect("a handle can kill");
            assert_eq!(ended(server), -3000);
            // No thread serves any more: its calls wait, and are withdrawn.
            ended(caller)
        } else {
            let code = ended(caller);
            server.kill().expect("a handle can kill");
            assert_eq!(ended(server), -3000);
            code
        };
        assert_eq!(code, 0, "a late answer was written");
    }
}

/// Receives and answers, some of it late.
pub fn answer_late() -> i64 {
    let endpoint = caps::need("serve:x");
    let mut buffer = [0; 64];
    let mut count = 0_u64;
    loop {
        let Ok(call) = caps::receive(endpoint, &mut buffer) else { return 1 };
        count += 1;
        arch::spin(count * 7919 % 3000);
        let answer = caps::return_request(endpoint, call.call_id, &[0xee; 32]);
        let _late_or_not = client::wait(client::submit(answer).expect("there is room"));
    }
}

/// Calls, withdraws, and looks whether the memory of a call that is over stays as it is.
pub fn withdraw() -> i64 {
    const CALLS: usize = 600;
    let endpoint = caps::need("call:x");
    let answers: [[AtomicU64; 4]; 8] = Default::default();
    let is_canary =
        |answer: &[AtomicU64; 4]| answer.iter().all(|word| word.load(Ordering::Acquire) == CANARY);
    for round in 0..CALLS {
        let answer = &answers[round % answers.len()];
        let mut request = client::request(endpoint, 0, b"call", &mut []);
        (request.v1.result_addr, request.v1.result_len) = (answer.as_ptr() as u64, 32);
        let ticket = client::submit(request).expect("there is room");
        let _ = client::enter(0, 0);
        arch::spin((round * 31) as u64 % 2000);
        // Withdrawn or answered, and the server may be gone: in any case it is over.
        let _over = client::cancel(ticket);
        for word in answer {
            word.store(CANARY, Ordering::Release);
        }
        let used = answers.len().min(round + 1);
        if !answers[..used].iter().all(is_canary) {
            return 9;
        }
    }
    caps::sleep(2 * MS).expect("within the quota");
    i64::from(!answers.iter().all(is_canary))
}

/// Whatever flags a thread has when it enters with a message in registers or with nonsense, the kernel runs with its own,
/// and the receiver of the message has its own as well.
//= ARCH:inv.user-copy
pub fn direct_flags() {
    let foreign = DirectRequest { op: op::CALL, cap_id: caps::need("timer"), len: 8 }.to_word();
    let nobodys = DirectRequest { op: op::RETURN_RECV, cap_id: 0xffff_ffff, len: 8 }.to_word();
    for flags in [1_u64 << 18, 1 << 10, 1 << 14, 1 << 21, 1 << 16, 0x25_4400] {
        for (number, first) in [(0, foreign), (0, nobodys), (0, DIRECT | 0x7fff << 48), (7, 1), (u64::MAX, 0)]
        {
            let answer = wild::odd_call([number, first, 0], 0x202 | flags, 0x10, 0x1f80, 0x37f);
            assert!(answer >> 63 == 1, "flags {flags:#x}: call {number} with {first:#x} was not refused");
        }
    }
}

/// A handle is dropped while another thread waits by it for the end of its process, and others come to the place: the wait
/// ends with the end of its own process, and with no other's.
//= ARCH:inv.threadref
pub fn waits_outlive_handles() {
    for round in 0..24_u64 {
        let child = caps::start("contain", "exit-soon 21", GRANTS).expect("in the image");
        let cap = child.cap();
        let waiter = caps::spawn(ThreadOptions::default(), move || {
            let wait = client::request(cap, 0, &[], &mut []);
            match client::submit(wait).and_then(client::wait) {
                Ok(code) => i64::from(code),
                // It was dropped before it was asked for.
                Err(CapError::InvalidCapability) => 21,
                Err(_) => -1,
            }
        });
        let waiter = waiter.expect("within the quota");
        arch::spin(round * 20_011 % 150_000);
        child.detach().expect("a handle can be dropped");
        let strangers = [(); 3].map(|()| caps::start("contain", "exit 7", GRANTS).expect("in the image"));
        for stranger in strangers {
            assert_eq!(ended(stranger), 7);
        }
        assert_eq!(waiter.join(), Ok(21), "a wait ended with another's end");
        waiter.detach().expect("a handle can be dropped");
    }
}
