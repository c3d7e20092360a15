//! A child that does what it is told: `exit N`, `shared`, or `park` with another thread parked as well.
#![no_std]
#![no_main]

use core::sync::atomic::Ordering;
use mainspring_user::arch;
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::schema::Access;

mainspring_user::program!(main);

static WORD: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// Adds one to the word that it shares with its parent.
fn shared() -> i64 {
    let Ok(at) = caps::map_object(caps::need("pages"), Access::Write) else { return 1 };
    arch::word(at).fetch_add(1, Ordering::Relaxed);
    i64::from(caps::unmap_object(at).is_err())
}

fn main() -> i64 {
    let arguments = caps::arguments();
    if let Some(code) = arguments.strip_prefix("exit ") {
        return code.parse().unwrap_or(-1);
    }
    if arguments == "shared" {
        return shared();
    }
    let thread = caps::spawn(ThreadOptions::default(), || {
        let _ = caps::park(WORD.as_ptr() as u64, 0, 0);
        0
    });
    if arguments == "leave" {
        // Ends with its thread still parked.
        let _ = caps::sleep(5_000_000);
        return i64::from(thread.is_err());
    }
    let _ = caps::park(WORD.as_ptr() as u64, 0, 0);
    0
}
