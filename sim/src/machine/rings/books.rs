//! What becomes of a ring's entries when its threads end, and what the report says of them.

use super::{Errand, Hands, Ring};
use crate::RunError;
use crate::machine::Machine;
use mainspring_abi::ring::{CapCqe, CapError, CompletionStatus};
use mainspring_report::RingReport;
use mainspring_ring::{PollerState, RingMode, StopReason};

impl Machine<'_> {
    /// `thread` has ended: its rings are torn down, and those that it polled go back to their owners.
    pub(in crate::machine) fn end_rings_of_thread(&mut self, thread: usize) {
        for ring in 0..self.rings.len() {
            if self.rings[ring].owner == thread && !self.rings[ring].closed {
                self.tear_down(ring);
            } else if self.rings[ring].poller == Some(thread) {
                self.rings[ring].poller = None;
                self.rings[ring].spin = None;
                let Hands { waiting, serving } = std::mem::take(&mut self.rings[ring].by_poller);
                let left = serving.into_iter().chain(waiting);
                // What it accepted is still owed: the owner serves it when it enters next.
                self.rings[ring].by_owner.waiting.extend(left);
                self.stop_polling(ring, StopReason::Teardown);
            }
        }
    }

    pub(super) fn tear_down(&mut self, ring: usize) {
        self.check_conserved(ring);
        self.rings[ring].errand = Errand::None;
        self.stop_polling(ring, StopReason::Teardown);
        let one = &mut self.rings[ring];
        let hands = [std::mem::take(&mut one.by_owner), std::mem::take(&mut one.by_poller)];
        for (entry, place) in
            hands.into_iter().flat_map(|hands| hands.serving.into_iter().chain(hands.waiting))
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

    pub(super) fn ring_name(&self, ring: usize) -> &str {
        &self.workload.rings[ring].name
    }

    pub(super) fn log_ring(
        &mut self,
        kind: &str,
        ring: usize,
        thread: Option<usize>,
        count: Option<u64>,
        reason: &'static str,
    ) {
        self.log(kind, |machine, event| {
            event.ring = Some(machine.ring_name(ring).to_owned());
            event.thread = thread.map(|thread| machine.thread_name(thread));
            event.cpu = thread.and_then(|thread| machine.place_of(thread)).map(|(cpu, _)| cpu as u32);
            event.count = count;
            event.reason = (!reason.is_empty()).then(|| reason.to_owned());
        });
    }

    /// Time charged for pollers: what they served and what they spun.
    pub(in crate::machine) fn poller_busy_ns(&self) -> u64 {
        self.rings.iter().map(|ring| ring.charged_ns).sum()
    }

    pub(in crate::machine) fn poller_sleeps(&self) -> u64 {
        let sleeps = |ring: &Ring| ring.report.sleeps + ring.endpoint.sqpoll().counters().sleeps;
        self.rings.iter().map(sleeps).sum()
    }

    pub(in crate::machine) fn entries_expired(&self) -> u64 {
        self.rings.iter().map(|ring| ring.report.dropped).sum()
    }

    pub(in crate::machine) fn ring_reports(&mut self) -> Result<Vec<RingReport>, RunError> {
        for ring in 0..self.rings.len() {
            if !self.rings[ring].closed {
                self.check_conserved(ring);
            }
        }
        if let Some(trouble) = self.observer.trouble.take() {
            return Err(trouble);
        }
        let report = |ring: &Ring| {
            let (sqpoll, mut report) = (ring.endpoint.sqpoll(), ring.report.clone());
            report.overflow += ring.endpoint.sq().held_back();
            report.sleeps += sqpoll.counters().sleeps;
            report.mode = match (sqpoll.mode(), sqpoll.poller()) {
                (RingMode::Syscall, _) => "syscall",
                (RingMode::SqpollStarting, _) => "sqpoll-starting",
                (RingMode::Sqpoll, PollerState::Sleeping) => "sqpoll-sleeping",
                (RingMode::Sqpoll, _) => "sqpoll-running",
                (RingMode::SqpollStopping, _) => "sqpoll-stopping",
            }
            .to_owned();
            report
        };
        Ok(self.rings.iter().map(report).collect())
    }
}
