//! The rings of a run: the shipped ring code over ordinary memory, between the task that owns a ring and the task that polls it.
//!
//! Conserved:
//! * an entry that was submitted is in the submission queue, accepted by one task, in the completion queue, or reaped: each
//!   exactly once, which is checked when it is reaped and when the run ends;
//! * an entry that was accepted is completed, even if the task that accepted it ends: its owner serves it then;
//! * a poller sleeps only after it has announced that, under the ring's lock, so a producer sees the announcement or is seen.

mod owner;
mod poller;

pub use owner::Without;
pub use poller::Leave;

use mainspring::Parker;
use mainspring_abi::Nanos;
use mainspring_driver::local_ring::LocalRing;
use mainspring_report::RingReport;
use mainspring_ring::{HeapRegion, StopReason, Wakeup};
use mainspring_workload::RingSpec;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

struct Inside {
    local: LocalRing<Arc<HeapRegion>>,
    /// The instance that polls.
    poller: Option<usize>,
    /// The owner waits until so many completions can be reaped; 0 if it does not.
    awaited: u32,
    /// The owner waits for room among the submissions.
    waits_for_room: bool,
    trouble: Option<String>,
}

/// One ring of the workload.
pub struct Ring {
    pub spec: RingSpec,
    /// The instance that owns it.
    pub owner: usize,
    inside: Mutex<Inside>,
    owner_bell: Parker,
    poller_bell: Parker,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("spec", &self.spec.name).finish_non_exhaustive()
    }
}

impl Inside {
    fn check_conserved(&mut self, name: &str) {
        if let Err(unbalanced) = self.local.check_conserved() {
            self.trouble.get_or_insert(format!("ring `{name}`: {unbalanced}"));
        }
    }
}

impl Ring {
    pub fn new(spec: &RingSpec, owner: usize) -> Self {
        let local =
            LocalRing::new(spec.entries, spec.order(), |geometry| Arc::new(HeapRegion::new(geometry)));
        let inside = Inside { local, poller: None, awaited: 0, waits_for_room: false, trouble: None };
        let (owner_bell, poller_bell) = (Parker::default(), Parker::default());
        Self { spec: spec.clone(), owner, inside: Mutex::new(inside), owner_bell, poller_bell }
    }

    fn locked(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().expect("no panic while it is held")
    }

    /// A completion was posted: the owner is woken if that is all that it waited for.
    fn posted(&self, inside: &mut Inside) {
        if inside.awaited > 0 && inside.local.unread() >= inside.awaited {
            self.owner_bell.unpark();
        }
    }

    /// The poller looks again, if it waits for a lease.
    pub fn rouse_poller(&self) {
        self.poller_bell.unpark();
    }

    /// Wakes the poller, if it sleeps and a producer or reaper found that it has to know.
    fn wake_poller(&self, inside: &mut Inside, needed: Wakeup) {
        if needed == Wakeup::Needed {
            let _its_bell_wakes_it = inside.local.wake_poller();
            self.poller_bell.unpark();
        }
    }

    /// The ring goes back to its owner. What the poller has accepted it finishes.
    pub fn stop_polling(&self, reason: StopReason) {
        let mut inside = self.locked();
        self.stop(&mut inside, reason);
    }

    fn stop(&self, inside: &mut Inside, reason: StopReason) {
        if inside.local.stop_polling(reason) {
            // Both look again: the owner serves itself from now on.
            self.owner_bell.unpark();
            self.poller_bell.unpark();
        }
    }

    /// `instance` has ended: if it owns the ring, the ring is torn down; if it polled, the ring goes back to its owner.
    pub fn thread_ended(&self, instance: usize) {
        let mut inside = self.locked();
        if self.owner == instance && !inside.local.is_closed() {
            self.tear_down(&mut inside);
        } else if inside.poller == Some(instance) {
            inside.poller = None;
            inside.local.poller_ended();
            self.stop(&mut inside, StopReason::Teardown);
        }
    }

    fn tear_down(&self, inside: &mut Inside) {
        inside.check_conserved(&self.spec.name);
        self.stop(inside, StopReason::Teardown);
        inside.local.tear_down();
    }

    fn open_again(&self, inside: &mut Inside) {
        inside.local.open_again();
        self.poller_bell.unpark();
    }

    /// What the poller was charged for, how often it slept, and how many entries were dropped.
    pub fn counted(&self) -> (Nanos, u64, u64) {
        let inside = self.locked();
        let stats = inside.local.stats();
        (inside.local.charged(), stats.sleeps, stats.dropped)
    }

    /// What became of its entries, or what is wrong with them.
    pub fn report(&self) -> Result<RingReport, String> {
        let mut inside = self.locked();
        if !inside.local.is_closed() {
            inside.check_conserved(&self.spec.name);
        }
        if let Some(trouble) = inside.trouble.take() {
            return Err(trouble);
        }
        let local = &inside.local;
        Ok(RingReport::new(&self.spec.name, local.stats(), local.mode(), local.poller_state()))
    }
}
