//! What becomes of a ring's entries when its threads end, and the check that none is lost.

use super::OwnerStep;
use crate::RunError;
use crate::machine::Machine;
use mainspring_ring::StopReason;

impl Machine<'_> {
    /// `thread` has ended: its rings are torn down, and those that it polled go back to their owners.
    pub(in crate::machine) fn end_rings_of_thread(&mut self, thread: usize) {
        for ring in 0..self.rings.len() {
            if self.rings[ring].owner == thread && !self.rings[ring].local.is_closed() {
                self.tear_down(ring);
            } else if self.rings[ring].poller == Some(thread) {
                self.rings[ring].poller = None;
                self.rings[ring].spin = None;
                self.rings[ring].local.poller_ended();
                self.stop_polling(ring, StopReason::Teardown);
            }
        }
    }

    pub(super) fn tear_down(&mut self, ring: usize) {
        self.check_conserved(ring);
        self.rings[ring].owner_step = OwnerStep::None;
        self.stop_polling(ring, StopReason::Teardown);
        self.rings[ring].local.tear_down();
    }

    pub(super) fn check_conserved(&mut self, ring: usize) {
        if let Err(unbalanced) = self.rings[ring].local.check_conserved() {
            let what = format!("ring `{}`: {unbalanced}", self.ring_name(ring));
            self.observer.trouble.get_or_insert(RunError::violation(self.now, 0, what));
        }
    }
}
