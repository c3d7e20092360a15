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
use mainspring_abi::ring::{CapCqe, CapError, CapSqeV2, CompletionStatus, RingAbi};
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_driver::sqpoll::{Poller, Stopped};
use mainspring_report::RingReport;
use mainspring_ring::deadline::MethodTraits;
use mainspring_ring::{
    CqPlace, Endpoint, Geometry, HeapRegion, PollerState, Reaper, RingMode, StopReason, Submitter, Wakeup,
};
use mainspring_workload::RingSpec;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

type Memory = Arc<HeapRegion>;

/// The poller of a ring that no thread has polled yet.
const NOBODY: ThreadRef = ThreadRef::new(u32::MAX, u32::MAX);

/// Entries that one task has accepted.
#[derive(Debug, Default)]
struct Accepted {
    waiting: VecDeque<(CapSqeV2, CqPlace)>,
    serving: Option<(CapSqeV2, CqPlace)>,
}

impl Accepted {
    fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.serving.is_some())
    }

    fn take(&mut self) -> impl Iterator<Item = (CapSqeV2, CqPlace)> + use<> {
        let Self { waiting, serving } = std::mem::take(self);
        serving.into_iter().chain(waiting)
    }
}

struct Inside {
    endpoint: Endpoint<Memory>,
    submitter: Submitter<Memory>,
    reaper: Reaper<Memory>,
    polling: Poller,
    /// The instance that polls.
    poller: Option<usize>,
    by_owner: Accepted,
    by_poller: Accepted,
    /// The owner waits until so many completions can be reaped; 0 if it does not.
    awaited: u32,
    /// The owner waits for room among the submissions.
    waits_for_room: bool,
    /// Its owner has ended: no task consumes any more.
    closed: bool,
    issued: u64,
    /// Entries that have not been reaped.
    outstanding: BTreeSet<u64>,
    report: RingReport,
    charged_ns: u64,
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

/// A fresh ring with room for twice as many completions as submissions.
fn memory(entries: u32) -> (Endpoint<Memory>, Submitter<Memory>, Reaper<Memory>) {
    let made = Geometry::new(RingAbi::V2, entries, 2 * entries).and_then(|geometry| {
        let region = Arc::new(HeapRegion::new(&geometry));
        geometry.format(&region)?;
        let endpoint = Endpoint::attach(region.clone())?;
        Ok((endpoint, Submitter::new(region.clone(), geometry), Reaper::new(region, geometry)))
    });
    made.unwrap_or_else(|error| unreachable!("a workload's ring has a size that rings can have: {error}"))
}

impl Inside {
    fn mode(&self) -> RingMode {
        self.endpoint.sqpoll().mode()
    }

    fn unread(&mut self) -> u32 {
        self.reaper.available().unwrap_or(0)
    }

    /// Posts a completion. The owner is to be woken if that is all that it waited for.
    fn post(&mut self, place: CqPlace, entry: &CapCqe) -> bool {
        self.report.completed += 1;
        match entry.status() {
            Ok(CompletionStatus::NotStartedLate) => self.report.dropped += 1,
            Ok(CompletionStatus::CompletedLate) => self.report.late += 1,
            _ => {}
        }
        let _asked = self.endpoint.complete(place, entry);
        self.awaited > 0 && self.unread() >= self.awaited
    }

    /// Every entry that was submitted and not reaped is somewhere, and nothing else is.
    fn check_conserved(&mut self, name: &str) {
        let queued = self.submitter.in_queue().map_or(0, u64::from);
        let held = (self.by_owner.len() + self.by_poller.len()) as u64;
        let there = queued + held + u64::from(self.unread());
        let owed = self.outstanding.len() as u64;
        if there != owed {
            self.trouble.get_or_insert(format!(
                "ring `{name}`: {owed} entries are owed, {queued} are queued, {held} in hand and the rest completed: \
                 {there} in all"
            ));
        }
    }
}

impl Ring {
    pub fn new(spec: &RingSpec, owner: usize) -> Self {
        let (endpoint, submitter, reaper) = memory(spec.entries);
        let inside = Inside {
            endpoint,
            submitter,
            reaper,
            polling: Poller::new(NOBODY),
            poller: None,
            by_owner: Accepted::default(),
            by_poller: Accepted::default(),
            awaited: 0,
            waits_for_room: false,
            closed: false,
            issued: 0,
            outstanding: BTreeSet::new(),
            report: RingReport { name: spec.name.clone(), ..RingReport::default() },
            charged_ns: 0,
            trouble: None,
        };
        let (owner_bell, poller_bell) = (Parker::default(), Parker::default());
        Self { spec: spec.clone(), owner, inside: Mutex::new(inside), owner_bell, poller_bell }
    }

    fn locked(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().expect("no panic while it is held")
    }

    /// What the requests of the ring are allowed.
    fn method(&self) -> MethodTraits {
        MethodTraits { realtime_safe: true, reorder_safe: self.spec.reorder }
    }

    /// The poller looks again, if it waits for a lease.
    pub fn rouse_poller(&self) {
        self.poller_bell.unpark();
    }

    /// Wakes the poller, if it sleeps and a producer or reaper found that it has to know.
    fn wake_poller(&self, inside: &mut Inside, needed: Wakeup) {
        if needed == Wakeup::Needed {
            inside.submitter.ring_doorbell();
            if inside.polling.wake(&mut inside.endpoint).is_some() {
                inside.report.wakeups += 1;
            }
            self.poller_bell.unpark();
        }
    }

    /// The ring goes back to its owner. What the poller has accepted it finishes.
    pub fn stop_polling(&self, reason: StopReason) {
        let mut inside = self.locked();
        self.stop(&mut inside, reason);
    }

    fn stop(&self, inside: &mut Inside, reason: StopReason) {
        match inside.polling.stop(&mut inside.endpoint, reason) {
            Stopped::NotPolling => return,
            Stopped::Syscall => {}
            Stopped::AfterService => debug_assert!(false, "nobody serves outside the lock"),
        }
        // Both look again: the owner serves itself from now on.
        self.owner_bell.unpark();
        self.poller_bell.unpark();
    }

    /// `instance` has ended: if it owns the ring, the ring is torn down; if it polled, the ring goes back to its owner.
    pub fn thread_ended(&self, instance: usize) {
        let mut inside = self.locked();
        if self.owner == instance && !inside.closed {
            self.tear_down(&mut inside);
        } else if inside.poller == Some(instance) {
            inside.poller = None;
            // What it accepted is still owed: the owner serves it when it looks next.
            let left = inside.by_poller.take();
            inside.by_owner.waiting.extend(left);
            self.stop(&mut inside, StopReason::Teardown);
        }
    }

    fn tear_down(&self, inside: &mut Inside) {
        inside.check_conserved(&self.spec.name);
        self.stop(inside, StopReason::Teardown);
        let accepted: Vec<_> = inside.by_owner.take().chain(inside.by_poller.take()).collect();
        for (entry, place) in accepted {
            let failed = CapCqe::failed(entry.v1.user_data, CompletionStatus::Failed, CapError::RingClosed);
            inside.post(place, &failed);
        }
        let _revoked = inside.endpoint.tear_down();
        inside.closed = true;
    }

    fn open_again(&self, inside: &mut Inside) {
        inside.report.overflow += inside.endpoint.sq().held_back();
        inside.report.sleeps += inside.endpoint.sqpoll().counters().sleeps;
        (inside.endpoint, inside.submitter, inside.reaper) = memory(self.spec.entries);
        inside.outstanding.clear();
        inside.closed = false;
        self.poller_bell.unpark();
    }

    /// What the poller was charged for, how often it slept, and how many entries were dropped.
    pub fn counted(&self) -> (Nanos, u64, u64) {
        let inside = self.locked();
        let sleeps = inside.report.sleeps + inside.endpoint.sqpoll().counters().sleeps;
        (Nanos::new(inside.charged_ns), sleeps, inside.report.dropped)
    }

    /// What became of its entries, or what is wrong with them.
    pub fn report(&self) -> Result<RingReport, String> {
        let mut inside = self.locked();
        if !inside.closed {
            inside.check_conserved(&self.spec.name);
        }
        if let Some(trouble) = inside.trouble.take() {
            return Err(trouble);
        }
        let (sqpoll, mut report) = (inside.endpoint.sqpoll(), inside.report.clone());
        report.overflow += inside.endpoint.sq().held_back();
        report.sleeps += sqpoll.counters().sleeps;
        report.mode = match (sqpoll.mode(), sqpoll.poller()) {
            (RingMode::Syscall, _) => "syscall",
            (RingMode::SqpollStarting, _) => "sqpoll-starting",
            (RingMode::Sqpoll, PollerState::Sleeping) => "sqpoll-sleeping",
            (RingMode::Sqpoll, _) => "sqpoll-running",
            (RingMode::SqpollStopping, _) => "sqpoll-stopping",
        }
        .to_owned();
        Ok(report)
    }
}
