//! Parks with and without their time running out, and a process that ends with a thread still parked.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::{CapError, say};

mainspring_user::program!(main);

//= ARCH:proof.run-measure ARCH:inv.park ARCH:exit.process
fn main() -> i64 {
    let word = Arc::new(AtomicU32::new(0));
    let at = word.as_ptr() as u64;
    let mut latest = 0;
    for _ in 0..20 {
        let due = caps::now() + 1_000_000;
        assert_eq!(caps::park(at, 0, due), Err(CapError::TimedOut));
        let late = caps::now().checked_sub(due).expect("a park ended early");
        latest = latest.max(late);
    }
    say!("measure: park_timeout=ok worst_late_ns={latest}");
    let turns = 200;
    let other = word.clone();
    let partner = caps::spawn(ThreadOptions::default(), move || {
        let at = other.as_ptr() as u64;
        for turn in 0..turns {
            while other.load(Ordering::Acquire) <= 2 * turn {
                let _ = caps::park(at, 2 * turn, 0);
            }
            other.fetch_add(1, Ordering::AcqRel);
            let _ = caps::unpark(at, 1);
        }
        0
    });
    let partner = partner.expect("within the quota");
    let began = caps::now();
    for turn in 0..turns {
        word.fetch_add(1, Ordering::AcqRel);
        let _ = caps::unpark(at, 1);
        while word.load(Ordering::Acquire) < 2 * turn + 2 {
            let _ = caps::park(at, 2 * turn + 1, 0);
        }
    }
    assert_eq!(partner.join(), Ok(0));
    let round = (caps::now() - began) / u64::from(turns);
    say!("measure: park_resume=ok rounds={turns} round_ns={round}");
    let before = caps::usage().expect("usage can be read");
    let child = caps::start("child", "leave", &["park", "threads", "timer"]).expect("in the image");
    assert_eq!(child.wait(), Ok(0), "it ends by itself, parked thread and all");
    let buried = || caps::usage().is_ok_and(|usage| usage.processes == before.processes);
    assert!(caps::comes_true(2_000_000, buried), "the child was never buried");
    let after = caps::usage().expect("usage can be read");
    assert_eq!((after.threads, after.processes), (before.threads, before.processes));
    assert_eq!(after.free_frames, before.free_frames);
    say!("measure: exit_with_parked_thread=ok");
    0
}
