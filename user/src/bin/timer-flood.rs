//! Sleeps without end: the process gets its quota and not one more, and a freed place can be used again.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::{CapError, client, say};

mainspring_user::program!(main);

const QUOTA: u32 = 64;
static BEGUN: AtomicU32 = AtomicU32::new(0);
static REFUSED: AtomicU32 = AtomicU32::new(0);

//= ARCH:timer.sleep ARCH:inv.sleep-bounded
fn main() -> i64 {
    let due = caps::now() + 80_000_000;
    let threads: Vec<_> = (0..8)
        .map(|_| {
            caps::spawn(ThreadOptions::default(), move || {
                let mut tickets = Vec::new();
                loop {
                    let ticket = caps::begin_sleep(due).expect("the ring has room");
                    match client::poll(ticket).expect("the ring is sound") {
                        None => {
                            BEGUN.fetch_add(1, Ordering::Relaxed);
                            tickets.push(ticket);
                        }
                        Some(cqe) => {
                            assert_eq!(cqe.error(), Ok(Some(CapError::QuotaExceeded)));
                            REFUSED.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                    }
                }
                for ticket in tickets {
                    client::wait(ticket).expect("a sleep that began ends");
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
    assert_eq!((begun, refused), (QUOTA, 8), "exactly the quota was granted");
    caps::sleep(1_000_000).expect("the quota is free again");
    say!("timer-flood: granted={begun} refused={refused}");
    0
}
