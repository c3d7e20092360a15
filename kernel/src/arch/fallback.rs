//! The tick of last resort: the PIT through the old interrupt controller, for a machine whose local APIC timers cannot be
//! measured, or when the boot manifest says so.
//!
//! It has one speed and reaches the boot CPU alone, on vector 32. The boot CPU passes each tick on to the others as if it
//! were their own timer's. A CPU then looks whether anything is due, so nothing has to be armed.

use super::apic;
use super::calibrate::PIT_HZ;
use super::ports;
use core::sync::atomic::{AtomicBool, Ordering};

/// Ticks per second.
pub const TICK_HZ: u64 = 1_000;

static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether ticks come from here, and nowhere else.
#[inline]
#[must_use]
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Lets the PIT tick. Done once, by the boot CPU, before anything is scheduled.
pub fn start() {
    ACTIVE.store(true, Ordering::Relaxed);
    apic::stop_timer();
    apic::open_old_controller();
    ports::pit_tick((PIT_HZ / TICK_HZ) as u16);
    ports::open_pit_line();
}

/// A tick came to the boot CPU, which has been acknowledged: it is the others' too.
pub(super) fn pass_on() {
    apic::send_tick_to_others();
}
