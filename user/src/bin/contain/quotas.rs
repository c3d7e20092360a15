//! What a program can have the kernel keep for it is bounded by its own ledger: neither more, nor at a neighbour's cost, and it
//! can have all of it again once it has given it back.

use super::{MS, ended, start};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_user::caps::{self, Thread, ThreadOptions};
use mainspring_user::{CapError, client};

/// Threads that a process may always have, whatever others do, its first one included.
const GUARANTEED: usize = 8;
/// Sleeps that a process may have pending.
const SLEEPS: usize = 64;
/// Operations that a thread may have in flight.
const IN_FLIGHT: usize = 16;

/// Processes that make as many threads as they can, and keep those that have ended, leave every other process, an old one and a
/// new one, as many as are guaranteed to it.
//= OWN:kernel.charge-all
pub fn thread_hogs() {
    let hogs: Vec<_> = (0..12).map(|_| start("hog-threads")).collect();
    let mut last = u32::MAX;
    let quiet = || {
        let now = caps::usage().map_or(0, |usage| usage.threads);
        core::mem::replace(&mut last, now) == now
    };
    assert!(caps::comes_true(100 * MS, quiet), "hogs that never have enough");
    assert_eq!(have_guaranteed(), 0, "an old neighbour was refused a thread");
    assert_eq!(ended(start("guaranteed-threads")), 0, "a new neighbour was refused a thread");
    for hog in hogs {
        hog.kill().expect("a handle can kill");
        assert_eq!(ended(hog), -3000);
    }
}

/// As many threads as there can be: half of them live, of the others a handle is kept.
pub fn hog_threads() -> i64 {
    let mut held = Vec::new();
    loop {
        let lives = held.len() % 2 == 0;
        let made = caps::spawn(ThreadOptions::default(), move || {
            if !lives {
                return 0;
            }
            loop {
                let _ = caps::sleep(1000 * MS);
            }
        });
        match made {
            Ok(thread) => held.push(thread),
            Err(_) => {
                let _ = caps::sleep(20 * MS);
            }
        }
    }
}

/// Has as many threads at once as are guaranteed.
pub fn have_guaranteed() -> i64 {
    let made: Vec<Result<Thread, CapError>> = (1..GUARANTEED)
        .map(|_| caps::spawn(ThreadOptions::default(), || caps::sleep(MS).map_or(1, |()| 0)))
        .collect();
    let mut refused = 0;
    for thread in made {
        match thread {
            Ok(thread) => {
                refused += i64::from(thread.join() != Ok(0));
                thread.detach().expect("a handle can be dropped");
            }
            Err(_) => refused += 1,
        }
    }
    refused
}

/// Sleeps are charged until they end, however they end: withdrawn, due, or with their thread. Afterwards there can be exactly
/// as many as before.
//= OWN:kernel.charge-all ARCH:inv.sleep-bounded
pub fn sleep_quota() {
    for round in 0..6 {
        let threads: Vec<_> = (0..5)
            .map(|_| {
                caps::spawn(ThreadOptions::default(), move || begin_sleeps(round) as i64)
                    .expect("within the quota")
            })
            .collect();
        let mut begun = 0;
        for thread in threads {
            begun += thread.join().expect("its end is told") as usize;
            thread.detach().expect("a handle can be dropped");
        }
        // Threads may end before others begin, and their sleeps with them.
        assert!(begun >= SLEEPS, "round {round}: only {begun} sleeps");
    }
    // One thread after the other, and none ends meanwhile: exactly as many as there may be.
    static BEGUN: AtomicU32 = AtomicU32::new(0);
    static END: AtomicU32 = AtomicU32::new(0);
    let mut left = SLEEPS;
    let mut waiting = Vec::new();
    while left > 0 {
        let expected = left.min(IN_FLIGHT - 1);
        let thread = caps::spawn(ThreadOptions::default(), || {
            let begun = begin_all(IN_FLIGHT - 1).len();
            BEGUN.fetch_add(1, Ordering::AcqRel);
            while END.load(Ordering::Acquire) == 0 {
                let _ = caps::park(END.as_ptr() as u64, 0, 0);
            }
            begun as i64
        });
        waiting.push((thread.expect("within the quota"), expected));
        while BEGUN.load(Ordering::Acquire) < waiting.len() as u32 {
            caps::yield_now();
        }
        left -= expected;
    }
    END.store(1, Ordering::Release);
    let _ = caps::unpark(END.as_ptr() as u64, u32::MAX);
    for (thread, expected) in waiting {
        assert_eq!(thread.join(), Ok(expected as i32), "the quota of sleeps is not what it was");
        thread.detach().expect("a handle can be dropped");
    }
}

fn begin_all(most: usize) -> Vec<client::Ticket> {
    let mut begun = Vec::new();
    for _ in 0..most {
        let Ok(ticket) = caps::begin_sleep(caps::now() + 1_000_000 * MS) else { break };
        let _ = client::enter(0, 0);
        match client::poll(ticket) {
            Ok(None) => begun.push(ticket),
            _refused => break,
        }
    }
    begun
}

/// Begins as many sleeps as it can, withdraws some, waits for some, and leaves the others to its end.
fn begin_sleeps(round: usize) -> usize {
    let begun = begin_all(IN_FLIGHT);
    for ticket in begun.iter().take(round) {
        assert_eq!(client::cancel(*ticket), Err(CapError::Cancelled));
    }
    if round > 0 {
        caps::sleep(1000).expect("one was withdrawn");
    }
    begun.len()
}
