//! Page table changes, told to the CPUs that have the tables loaded: each forgets its translations and says up to which
//! request it has.
//!
//! Conserved: a page that was taken away is not given to anybody before every CPU that may know its translation has
//! forgotten it.

use super::notify::notify;
use super::per_cpu::{PerCpu, mine, per_cpus};
use crate::arch::cpu::{self, MAX_CPUS};
use crate::measure::{self, Counter};
use crate::object::process;
use core::sync::atomic::Ordering;

/// Forgets translations if others asked for it.
#[inline]
pub fn drain_flushes(here: &PerCpu) {
    // Acquire: pairs with the release of who asked; the page tables have changed before.
    let asked = here.flush_asked.load(Ordering::Acquire);
    if asked > here.flush_done.load(Ordering::Relaxed) {
        measure::one(Counter::Flushes);
        cpu::flush_translations();
        here.flush_done.store(asked, Ordering::Release);
    }
}

/// What each CPU that was asked to forget translations has to have done: a number of its own, or 0.
#[derive(Clone, Copy, Debug)]
#[must_use = "nobody can know otherwise that a page may be used again"]
pub struct Flush {
    tickets: [u64; MAX_CPUS],
}

/// Translations of `process`'s pages have changed: this CPU forgets them now, the others are told to. What to wait for.
pub fn shoot_down(process: &process::Process) -> Flush {
    let here = mine();
    measure::one(Counter::Flushes);
    measure::one(Counter::Shootdowns);
    // The changes come before the look at who is resident: loading CR3 lets no store wait. A CPU that is not resident by then
    // loads the tables later, and finds the changes in them.
    cpu::flush_translations();
    let resident = process.resident.load(Ordering::Acquire);
    let mut tickets = [0; MAX_CPUS];
    for (per_cpu, ticket) in per_cpus().iter().zip(&mut tickets) {
        if per_cpu.id() != here.id() && resident >> per_cpu.id().index() & 1 == 1 {
            // Release: pairs with the acquire in `drain_flushes`.
            *ticket = per_cpu.flush_asked.fetch_add(1, Ordering::AcqRel) + 1;
            let _looked_at_again = notify(per_cpu);
        }
    }
    Flush { tickets }
}

impl Flush {
    /// Whether every CPU that was asked has forgotten.
    #[must_use]
    pub fn is_done(&self) -> bool {
        // Acquire: pairs with the release in `drain_flushes` and in `load_space`.
        let done = |(per_cpu, ticket): (&PerCpu, &u64)| per_cpu.flush_done.load(Ordering::Acquire) >= *ticket;
        per_cpus().iter().zip(&self.tickets).all(done)
    }
}
