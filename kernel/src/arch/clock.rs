//! The monotonic clock: the time stamp counter, calibrated once against the PIT.

use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering};
use mainspring_abi::Nanos;

static ORIGIN: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds per count, with 32 binary places.
static SCALE: AtomicU64 = AtomicU64::new(0);
/// The latest time that any CPU has been told: none is told an earlier one.
static LATEST: AtomicU64 = AtomicU64::new(0);

pub(super) fn counter() -> u64 {
    // SAFETY: every x86_64 processor has the instruction, and the kernel may use it.
    unsafe { _rdtsc() }
}

/// Time begins, with `counts` of the counter per `nanos` nanoseconds.
pub(super) fn init(counts: u64, nanos: u64) {
    SCALE.store(((u128::from(nanos) << 32) / u128::from(counts.max(1))) as u64, Ordering::Relaxed);
    ORIGIN.store(counter(), Ordering::Relaxed);
}

/// Whether it has been calibrated, and so moves.
#[must_use]
pub fn is_running() -> bool {
    SCALE.load(Ordering::Relaxed) != 0
}

/// Time since boot. Never goes back, on any CPU.
#[must_use]
pub fn now() -> Nanos {
    let counts = counter().saturating_sub(ORIGIN.load(Ordering::Relaxed));
    let time = (u128::from(counts) * u128::from(SCALE.load(Ordering::Relaxed))) >> 32;
    let time = time as u64;
    // Relaxed: the value alone matters, and a maximum is the same in any order.
    Nanos::new(LATEST.fetch_max(time, Ordering::Relaxed).max(time))
}
