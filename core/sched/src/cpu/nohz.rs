//! Running without a tick under a lease: the CPU's own part of the proof, and the window it is in.
//!
//! Two things say that a CPU is in such a window, as two CPUs may be about to change that at once. The *mark* is the mode
//! of its tick; only the CPU itself sets it or takes it back, for it alone can program its timer. The *record* says under
//! which claim; the CPU that ends the lease may clear it from elsewhere. A mark without a record is the end of the window
//! at the next recheck; a record without a mark means nothing.

use super::Cpu;
use crate::entity::Affinity;
use crate::lease::LeaseRef;
use crate::nohz::{
    Activation, Claim, Conditions, Facts, Obstacle, Preflight, QueueFacts, Recheck, Runner, preflight, prove,
};
use crate::tick::TickMode;
use mainspring_abi::{CpuSet, Nanos};

/// Whether a CPU stopped its tick for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum NohzEntry {
    /// It did; one timer interrupt at this time.
    Tickless {
        /// When.
        wake_at: Nanos,
    },
    /// It ticks on, for this reason.
    Refused(Obstacle),
    /// It is in a window already, under this lease or another. That goes on.
    Already,
}

/// What a recheck of a CPU's window led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum NohzRecheck {
    /// It is in none.
    NotTickless,
    /// It goes on; one timer interrupt at this time.
    Kept {
        /// When.
        wake_at: Nanos,
    },
    /// The periodic tick is back, for this reason.
    RolledBack(Obstacle),
}

impl Cpu {
    /// How every obligation stands for `claim` here. Changes nothing.
    #[must_use]
    pub fn nohz_preflight(&self, now: Nanos, claim: &Claim, conditions: &Conditions) -> Preflight {
        preflight(&Facts { now, claim, conditions, queue: &self.queue_facts() })
    }

    /// Stops the tick for the running thread under `claim`, if every obligation is met. For a claim from another CPU this
    /// is called here, when its request is drained, with what is true then.
    pub fn nohz_enter(&mut self, now: Nanos, claim: &Claim, conditions: &Conditions) -> NohzEntry {
        if self.is_marked() {
            return NohzEntry::Already;
        }
        let queue = self.queue_facts();
        match prove(&Facts { now, claim, conditions, queue: &queue }) {
            Ok(proof) => {
                self.telemetry.nohz_enter_lease[claim.kind as usize] += 1;
                NohzEntry::Tickless { wake_at: self.open(now, Activation::begin(proof)) }
            }
            Err(obstacle) => NohzEntry::Refused(obstacle),
        }
    }

    /// Proves the window again. Call it at every timer interrupt, before [`Cpu::timer`], and at every reschedule that is
    /// not for new work; without that call, [`Cpu::timer`] ends the window.
    pub fn nohz_recheck(&mut self, now: Nanos, conditions: &Conditions) -> NohzRecheck {
        if !self.is_marked() {
            return NohzRecheck::NotTickless;
        }
        let late = now > self.next_timer();
        let outcome = match self.window.take() {
            None => self.roll_back(now, Obstacle::RecordCleared),
            Some(window) => match window.recheck(now, &self.queue_facts(), conditions) {
                Recheck::Keep(window) | Recheck::AskAgain(window) => {
                    NohzRecheck::Kept { wake_at: self.open(now, window) }
                }
                Recheck::RollBack(obstacle) => self.roll_back(now, obstacle),
            },
        };
        // What was late is behind us now, where `timer` does not see it.
        if late && now <= self.next_timer() {
            self.telemetry.oneshot_deadline_misses += 1;
        }
        outcome
    }

    /// `lease` has ended, and its generation is stale already: clears the record of a window under it; whether there was
    /// one. May be called for another CPU: the timer is not touched, and the next recheck restores the tick.
    pub fn nohz_forget(&mut self, lease: LeaseRef) -> bool {
        let cleared = self.window.take_if(|window| window.lease() == lease);
        cleared.is_some() && self.is_marked()
    }

    /// The tickless window under a lease that this CPU is in, if its record has not been cleared.
    #[must_use]
    pub fn nohz(&self) -> Option<&Activation> {
        self.window.as_ref().filter(|_| self.is_marked())
    }

    fn is_marked(&self) -> bool {
        matches!(self.tick.mode(), TickMode::TicklessLease { .. })
    }

    fn open(&mut self, now: Nanos, window: Activation) -> Nanos {
        let wake_at = window.wake_at();
        self.tick.suppress_for_lease(now, wake_at, &mut self.telemetry);
        self.window = Some(window);
        wake_at
    }

    fn roll_back(&mut self, now: Nanos, obstacle: Obstacle) -> NohzRecheck {
        self.window = None;
        self.tick.restore(now, obstacle.exit(), &mut self.telemetry);
        NohzRecheck::RolledBack(obstacle)
    }

    fn queue_facts(&self) -> QueueFacts {
        let running =
            self.current().map(|seat| Runner { thread: seat.thread, pinned: self.is_pinned(seat.slot) });
        QueueFacts {
            cpu: self.id,
            running,
            // A held thread competes for the CPU as soon as it is released.
            runnable: usize::from(running.is_some()) + self.queued() + self.held,
            direct_target: self.direct.is_some(),
            // A throttled thread competes as soon as its context is refilled.
            next_wakeup: self.next_deadline().unwrap_or(Nanos::MAX).min(self.realtime.next_refill()),
        }
    }

    fn is_pinned(&self, slot: u32) -> bool {
        match &self.at(slot).entity.affinity {
            Affinity::Any => false,
            Affinity::Only(cpus) => **cpus == [self.id].into_iter().collect::<CpuSet>(),
        }
    }
}
