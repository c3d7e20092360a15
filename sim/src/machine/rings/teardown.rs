//! What becomes of a ring's entries when its threads end, and the check that none is lost.

use super::{Accepted, OwnerStep};
use crate::RunError;
use crate::machine::Machine;
use mainspring_abi::ring::{CapCqe, CapError, CompletionStatus};
use mainspring_ring::StopReason;

impl Machine<'_> {
    /// `thread` has ended: its rings are torn down, and those that it polled go back to their owners.
    pub(in crate::machine) fn end_rings_of_thread(&mut self, thread: usize) {
        for ring in 0..self.rings.len() {
            if self.rings[ring].owner == thread && !self.rings[ring].closed {
                self.tear_down(ring);
            } else if self.rings[ring].poller == Some(thread) {
                self.rings[ring].poller = None;
                self.rings[ring].spin = None;
                let Accepted { waiting, serving } = std::mem::take(&mut self.rings[ring].by_poller);
                let left = serving.into_iter().chain(waiting);
                // What it accepted is still owed: the owner serves it when it enters next.
                self.rings[ring].by_owner.waiting.extend(left);
                self.stop_polling(ring, StopReason::Teardown);
            }
        }
    }

    pub(super) fn tear_down(&mut self, ring: usize) {
        self.check_conserved(ring);
        self.rings[ring].owner_step = OwnerStep::None;
        self.stop_polling(ring, StopReason::Teardown);
        let one = &mut self.rings[ring];
        let accepted = [std::mem::take(&mut one.by_owner), std::mem::take(&mut one.by_poller)];
        for (entry, place) in
            accepted.into_iter().flat_map(|accepted| accepted.serving.into_iter().chain(accepted.waiting))
        {
            let failed = CapCqe::failed(entry.v1.user_data, CompletionStatus::Failed, CapError::RingClosed);
            self.post(ring, place, &failed);
        }
        let one = &mut self.rings[ring];
        let _revoked = one.endpoint.tear_down();
        one.closed = true;
    }

    /// Every entry that was submitted and not reaped is somewhere, and nothing else is.
    pub(super) fn check_conserved(&mut self, ring: usize) {
        let one = &mut self.rings[ring];
        let queued = one.submitter.in_queue().map_or(0, u64::from);
        let held = (one.by_owner.len() + one.by_poller.len()) as u64;
        let there = queued + held + u64::from(one.unread());
        let owed = one.outstanding.len() as u64;
        if there != owed {
            let what = format!(
                "ring `{}`: {owed} entries are owed, {queued} are queued, {held} in hand and the rest completed: \
                 {there} in all",
                self.ring_name(ring)
            );
            self.observer.trouble.get_or_insert(RunError::violation(self.now, 0, what));
        }
    }
}
