//! What is said of rings: the events of a run, and its report.

use super::Ring;
use crate::RunError;
use crate::machine::Machine;
use mainspring_report::RingReport;
use mainspring_workload::RingSpec;

impl Machine<'_> {
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
        self.rings.iter().map(|ring| ring.local.charged().get()).sum()
    }

    pub(in crate::machine) fn poller_sleeps(&self) -> u64 {
        self.rings.iter().map(|ring| ring.local.stats().sleeps).sum()
    }

    pub(in crate::machine) fn entries_expired(&self) -> u64 {
        self.rings.iter().map(|ring| ring.local.stats().dropped).sum()
    }

    pub(in crate::machine) fn ring_reports(&mut self) -> Result<Vec<RingReport>, RunError> {
        for ring in 0..self.rings.len() {
            if !self.rings[ring].local.is_closed() {
                self.check_conserved(ring);
            }
        }
        if let Some(trouble) = self.observer.trouble.take() {
            return Err(trouble);
        }
        let report = |(ring, spec): (&Ring, &RingSpec)| {
            RingReport::new(&spec.name, ring.local.stats(), ring.local.mode(), ring.local.poller_state())
        };
        Ok(self.rings.iter().zip(&self.workload.rings).map(report).collect())
    }
}
