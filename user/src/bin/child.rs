//! A child that does what it is told: `exit N`, or `park` with another thread parked as well.
#![no_std]
#![no_main]

use mainspring_user::caps::{self, ThreadOptions};

mainspring_user::program!(main);

static WORD: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

fn main() -> i64 {
    let arguments = caps::arguments();
    if let Some(code) = arguments.strip_prefix("exit ") {
        return code.parse().unwrap_or(-1);
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
