//! Sleeps without end: the process gets its quota and not one more, and a thread that ends gives its places back.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::{CapError, client, say};

mainspring_user::program!(main);

const QUOTA: u32 = 64;
const THREADS: u32 = 8;
static BEGUN: AtomicU32 = AtomicU32::new(0);
static REFUSED: AtomicU32 = AtomicU32::new(0);

//= ARCH:timer.sleep ARCH:inv.sleep-bounded TICK:verify.sqpoll
fn main() -> i64 {
    // So far away that none of them is due before all have been counted.
    let due = caps::now() + 600_000_000_000;
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            caps::spawn(ThreadOptions::default(), move || {
                loop {
                    let ticket = caps::begin_sleep(due).expect("the ring has room");
                    match client::poll(ticket).expect("the ring is sound") {
                        None => BEGUN.fetch_add(1, Ordering::Relaxed),
                        Some(cqe) => {
                            assert_eq!(cqe.error(), Ok(Some(CapError::QuotaExceeded)));
                            REFUSED.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                    };
                }
                // No thread ends, and frees its places, before every thread has been refused.
                while REFUSED.load(Ordering::Relaxed) < THREADS {
                    caps::yield_now();
                }
                0
            })
            .expect("within the quota")
        })
        .collect();
    for thread in &threads {
        assert_eq!(thread.join(), Ok(0));
    }
    let (begun, refused) = (BEGUN.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed));
    assert_eq!((begun, refused), (QUOTA, THREADS), "exactly the quota was granted");
    caps::sleep(1_000_000).expect("those who ended gave their places back");
    say!("timer-flood: granted={begun} refused={refused}");
    0
}
