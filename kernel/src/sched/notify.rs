//! Messages between CPUs: one CPU makes another look at its queue.
//!
//! Conserved: a CPU whose `message_pending` is set takes a message and looks afterwards. A message that could not be sent leaves
//! the mark as it was.

use super::per_cpu::{PerCpu, mine};
use crate::arch;
use crate::measure::{self, Counter};
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_driver::Notified;

/// Interrupts a CPU, unless that is under way already.
pub fn notify(target: &PerCpu) -> Notified {
    let here = mine();
    if !target.ready.load(Ordering::Relaxed) {
        // It looks for itself when it begins.
        measure::one(Counter::NotReady);
        return Notified::Failed;
    }
    // AcqRel: whoever finds it pending is ordered before the receiver's clearing of it, after which it looks.
    if target.message_pending.swap(true, Ordering::AcqRel) {
        here.pending.fetch_add(1, Ordering::Relaxed);
        measure::one(Counter::IpisPending);
        return Notified::Pending;
    }
    for _ in 0..SENDS {
        if send(here, target) {
            return Notified::Sent;
        }
    }
    // It has not been told: whoever comes next tries again. Release: as if the receiver had taken it.
    target.message_pending.store(false, Ordering::Release);
    Notified::Failed
}

/// How often a message is sent that does not arrive.
const SENDS: u32 = 2;

/// Sends one message; whether it has arrived, as far as this CPU can know.
fn send(here: &PerCpu, target: &PerCpu) -> bool {
    here.sent.fetch_add(1, Ordering::Relaxed);
    if LOSES.load(Ordering::Relaxed) != 0 && loses_this() {
        measure::one(Counter::SendFailures);
        return false;
    }
    let Some(()) = arch::send_reschedule(target.id()) else {
        measure::one(Counter::NoLapic);
        return false;
    };
    if arch::sending_failed() {
        measure::one(Counter::SendFailures);
        return false;
    }
    measure::one(Counter::IpisSent);
    true
}

/// Of this many messages one arrives, if it is not 0: for the proof that no CPU depends on any one of them.
static LOSES: AtomicU32 = AtomicU32::new(0);
static SENT: AtomicU32 = AtomicU32::new(0);

/// Lets only one of `of` messages between CPUs arrive from now on.
pub fn lose_messages(of: u32) {
    LOSES.store(of, Ordering::Relaxed);
}

#[cold]
fn loses_this() -> bool {
    !SENT.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOSES.load(Ordering::Relaxed).max(1))
}
