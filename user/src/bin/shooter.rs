//! Writes through a translation that was taken away, on another CPU than the one that took it. Must be stopped.
#![no_std]
#![no_main]

use core::sync::atomic::Ordering;
use mainspring_user::arch;
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::schema::Access;

mainspring_user::program!(main);

//= ARCH:tlb.shootdown ARCH:tlb.drain
fn main() -> i64 {
    let page = caps::map(1, Access::Write).expect("a page is within the quota");
    let writer = caps::spawn(ThreadOptions::default(), move || {
        loop {
            arch::word(page).fetch_add(1, Ordering::Relaxed);
        }
    });
    let writer = writer.expect("within the quota");
    while arch::word(page).load(Ordering::Relaxed) == 0 {
        let _ = caps::sleep(1_000_000);
    }
    if caps::arguments() == "unmapped" {
        caps::unmap(page, 1).expect("the page is ours");
    } else {
        caps::protect(page, 1, Access::Read).expect("the page is ours");
    }
    // The writer faults as soon as it runs, which ends the process; if its old translation still works, nothing does.
    let _ = writer.join();
    1
}
