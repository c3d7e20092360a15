//! Threads: made, joined, parked, woken, forgotten, refused beyond the quota, and gone without a trace.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::sync::ParkMutex;
use mainspring_user::{CapError, say};

mainspring_user::program!(main);

fn main() -> i64 {
    join_and_stale();
    park();
    mutex();
    quota();
    churn();
    say!("thread-lifecycle: ok");
    0
}

//= ARCH:inv.threadref ARCH:thread.ledger
fn join_and_stale() {
    let thread = caps::spawn(ThreadOptions::default(), || -5).expect("within the quota");
    assert_eq!(thread.join(), Ok(-5));
    assert_eq!(thread.join(), Ok(-5), "the code stays while the handle can ask");
    let cap = thread.cap();
    thread.detach().expect("a handle can be dropped");
    let stale = mainspring_user::client::call(cap, 0, &[], &mut []);
    assert_eq!(stale, Err(CapError::InvalidCapability), "a dropped number means nothing");
    let word = Arc::new(AtomicU32::new(0));
    let held = word.clone();
    let sleeper = caps::spawn(ThreadOptions::default(), move || {
        while held.load(Ordering::Acquire) == 0 {
            let _ = caps::park(held.as_ptr() as u64, 0, 0);
        }
        0
    });
    let sleeper = sleeper.expect("within the quota");
    assert_eq!(sleeper.join_until(caps::now() + 2_000_000), Err(CapError::TimedOut));
    word.store(1, Ordering::Release);
    let _ = caps::unpark(word.as_ptr() as u64, 1);
    assert_eq!(sleeper.join(), Ok(0));
}

//= ARCH:inv.park TICK:L1.deadline-waiter
fn park() {
    let word = Arc::new(AtomicU32::new(0));
    let at = word.as_ptr() as u64;
    assert_eq!(caps::park(at, 1, 0), Ok(false), "another value: no wait");
    let due = caps::now() + 3_000_000;
    assert_eq!(caps::park(at, 0, due), Err(CapError::TimedOut));
    assert!(caps::now() >= due, "a park ended early");
    let other = word.clone();
    let thread = caps::spawn(ThreadOptions::default(), move || {
        let at = other.as_ptr() as u64;
        while other.load(Ordering::Acquire) == 0 {
            let _ = caps::park(at, 0, 0);
        }
        3
    });
    let thread = thread.expect("within the quota");
    // It parks sooner or later, and parks again as long as the word is 0.
    assert!(caps::comes_true(1_000_000, || caps::unpark(at, 8) == Ok(1)), "it never parked");
    word.store(1, Ordering::Release);
    let _ = caps::unpark(at, 8);
    assert_eq!(thread.join(), Ok(3));
    assert_eq!(caps::unpark(at, 8), Ok(0), "nobody waits any more");
}

fn mutex() {
    let total = Arc::new(ParkMutex::new(0_u64));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let total = total.clone();
            caps::spawn(ThreadOptions::default(), move || {
                for _ in 0..200 {
                    let mut held = total.lock();
                    let seen = *held;
                    mainspring_user::arch::spin(50);
                    *held = seen + 1;
                }
                0
            })
            .expect("within the quota")
        })
        .collect();
    for thread in &threads {
        assert_eq!(thread.join(), Ok(0));
    }
    assert_eq!(*total.lock(), 800, "nobody's turn was lost");
}

/// As many threads as there can be of one process, all of them bound to one CPU and made ready at once: its queue has room for all, and
/// what cannot have room is refused when it is made.
//= ARCH:thread.ledger ARCH:queue.reserve
fn quota() {
    let word = Arc::new(AtomicU32::new(0));
    let mut threads = Vec::new();
    let refusal = loop {
        let word = word.clone();
        let made = caps::spawn(ThreadOptions { cpus: 1, ..ThreadOptions::default() }, move || {
            while word.load(Ordering::Acquire) == 0 {
                let _ = caps::park(word.as_ptr() as u64, 0, 0);
            }
            0
        });
        match made {
            Ok(thread) => threads.push(thread),
            Err(code) => break code,
        }
    };
    assert_eq!(refusal, CapError::QuotaExceeded);
    assert!(threads.len() > 60, "{} threads", threads.len());
    word.store(1, Ordering::Release);
    let _ = caps::unpark(word.as_ptr() as u64, u32::MAX);
    let count = threads.len();
    for thread in threads {
        assert_eq!(thread.join(), Ok(0));
        thread.detach().expect("a handle can be dropped");
    }
    say!("thread-lifecycle: quota=ok threads={count}");
}

//= ARCH:inv.exit-clean ARCH:inv.no-alloc TICK:verify.sqpoll EVO:hot-path
fn churn() {
    let before = caps::usage().expect("usage can be read");
    for _ in 0..300 {
        let thread = caps::spawn(ThreadOptions::default(), || 0).expect("within the quota");
        assert_eq!(thread.join(), Ok(0));
        thread.detach().expect("a handle can be dropped");
    }
    let after = caps::usage().expect("usage can be read");
    assert_eq!((after.threads, after.free_frames), (before.threads, before.free_frames));
    assert_eq!(after.hard_path_allocations, 0, "nothing was allocated where nothing may be");
    say!("thread-lifecycle: churn=ok");
}
