//! The monotonic clock: the time stamp counter, calibrated once against the PIT, and held to what the timers have seen pass.

use super::apic;
use super::timeline::{SLACK_NS, Timeline};
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering};
use mainspring_abi::Nanos;

/// How much earlier than by the clock a timer may come.
pub const SLACK: Nanos = Nanos::new(SLACK_NS);

static CLOCK: Timeline = Timeline::new();
static STEPS: AtomicU64 = AtomicU64::new(0);

/// What the time stamp counter says.
#[must_use]
pub fn counter() -> u64 {
    // SAFETY: every x86_64 processor has the instruction, and the kernel may use it.
    unsafe { _rdtsc() }
}

/// Time begins, with `counts` of the counter per `nanos` nanoseconds.
pub(super) fn init(counts: u64, nanos: u64) {
    CLOCK.begin(counter(), counts, nanos);
}

/// Whether it has been calibrated, and so moves.
#[must_use]
pub fn is_running() -> bool {
    CLOCK.has_begun()
}

/// Time since boot. Never goes back, on any CPU.
#[must_use]
pub fn now() -> Nanos {
    Nanos::new(CLOCK.at(counter()))
}

/// The timer interrupt has come, with the timer set for `due`. If that is still to come by the counter, it stood still while
/// the machine halted, and time goes on from `due`. An interrupt of an earlier setting, which was under way when the timer was
/// set anew, says nothing: the timer counts on.
#[cold]
pub fn timer_came(due: Nanos) {
    if !apic::is_counting() && CLOCK.timer_came(counter(), due.get()) {
        STEPS.fetch_add(1, Ordering::Relaxed);
    }
}

/// How often time had to be moved on.
#[must_use]
pub fn steps() -> u64 {
    STEPS.load(Ordering::Relaxed)
}
