//! Page table changes, told to the CPUs that have the tables loaded: each forgets its translations and says up to which
//! change it has.
//!
//! Conserved: a page that was taken away is not given to anybody before every CPU that may know its translation has
//! forgotten it.

use super::lane::{Lane, lanes, mine};
use super::wakeup;
use crate::arch::cpu;
use crate::measure::{self, Counter};
use crate::object::process;
use core::sync::atomic::{AtomicU64, Ordering};
use spin::Mutex;

/// The latest flush whose CPUs have all been asked.
static FLUSH: AtomicU64 = AtomicU64::new(0);
/// Held by whoever asks: generations become known in their order, and each only once everybody knows of it who must.
static ASKING: Mutex<()> = Mutex::new(());

/// Forgets translations if others asked for it.
#[inline]
pub fn drain_flushes(here: &Lane) {
    // Acquire: pairs with the release of who asked; the page tables have changed before.
    let asked = here.flush_asked.load(Ordering::Acquire);
    if asked > here.flush_done.load(Ordering::Relaxed) {
        measure::one(Counter::Flushes);
        cpu::flush_translations();
        here.flush_done.store(asked, Ordering::Release);
    }
}

/// Translations of `process`'s pages have changed: this CPU forgets them now, the others are told to. What to wait for.
pub fn shoot_down(process: &process::Process) -> u64 {
    let here = mine();
    measure::one(Counter::Flushes);
    measure::one(Counter::Shootdowns);
    cpu::flush_translations();
    let asking = ASKING.lock();
    let resident = process.resident.load(Ordering::Acquire);
    let generation = FLUSH.load(Ordering::Relaxed) + 1;
    for lane in lanes() {
        if lane.id() != here.id() && resident >> lane.id().index() & 1 == 1 {
            // Release: pairs with the acquire in `drain_flushes`.
            lane.flush_asked.fetch_max(generation, Ordering::Release);
            wakeup::tell(lane);
        }
    }
    // Release: pairs with the acquire in `flushed`; who sees the generation sees what was asked for it.
    FLUSH.store(generation, Ordering::Release);
    drop(asking);
    generation
}

/// Up to which generation every CPU that was asked has forgotten.
#[must_use]
pub fn flushed() -> u64 {
    let mut done = FLUSH.load(Ordering::Acquire);
    for lane in lanes() {
        let (asked, has) =
            (lane.flush_asked.load(Ordering::Acquire), lane.flush_done.load(Ordering::Acquire));
        if has < asked {
            done = done.min(has);
        }
    }
    done
}
