//! The task that owns a ring: it submits, reaps, and serves its own entries while no poller does.

use super::{Inside, Ring};
use crate::linux::player::{compute, nanos, now};
use mainspring::{Cx, WaitReason};
use mainspring_abi::Nanos;
use mainspring_ring::deadline::{self, AtDispatch, Budget, Previous, Verdict};
use mainspring_ring::{Next, Push, Reap, RingMode, SqOwner};
use mainspring_workload::Batch;
use std::time::Duration;

/// A step came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    Refused,
    TimedOut,
}

impl Ring {
    /// Writes entries as long as there is room, and waits for some while there is none.
    pub fn submit(&self, cx: &Cx, batch: &Batch) -> Result<(), Without> {
        let mut left = batch.entries;
        loop {
            while self.serve_next(cx, true) {}
            {
                let at = now(cx);
                let mut inside = self.locked();
                if inside.closed {
                    self.open_again(&mut inside);
                }
                let written = self.write(&mut inside, left, batch, at);
                left -= written;
                if written > 0 {
                    let needed = inside.submitter.publish();
                    self.wake_poller(&mut inside, needed);
                }
                if inside.mode() == RingMode::Syscall && take_own(&mut inside) > 0 {
                    continue;
                }
                if left == 0 {
                    return Ok(());
                }
                let room = inside.endpoint.cq().room().is_ok_and(|room| room > 0);
                if inside.mode() == RingMode::Syscall || !room {
                    // Only this task could make room, by reaping.
                    return Err(Without::Refused);
                }
                inside.waits_for_room = true;
            }
            self.owner_bell.wait(cx, WaitReason::Io, None);
            self.locked().waits_for_room = false;
        }
    }

    fn write(&self, inside: &mut Inside, entries: u32, batch: &Batch, now: Nanos) -> u32 {
        let mut written = 0;
        while written < entries {
            let entry = batch.entry(inside.issued, now, self.spec.reorder);
            if inside.submitter.push(&entry) != Push::Queued {
                break;
            }
            inside.outstanding.insert(inside.issued);
            inside.issued += 1;
            inside.report.submitted += 1;
            written += 1;
        }
        written
    }

    /// Takes completions, and waits for those that are missing, until `until`.
    pub fn complete(&self, cx: &Cx, entries: u32, until: Option<Duration>) -> Result<(), Without> {
        let mut left = entries;
        loop {
            while self.serve_next(cx, true) {}
            {
                let at = cx.now();
                let mut inside = self.locked();
                left -= self.reap(&mut inside, left);
                if left == 0 {
                    return Ok(());
                }
                if inside.mode() == RingMode::Syscall && take_own(&mut inside) > 0 {
                    continue;
                }
                if until.is_some_and(|until| until <= at) {
                    return Err(Without::TimedOut);
                }
                let _announced = inside.reaper.prepare_wait();
                inside.awaited = left;
            }
            let remaining = until.map(|until| until.saturating_sub(cx.now()));
            self.owner_bell.wait(cx, WaitReason::Io, remaining);
            let mut inside = self.locked();
            inside.awaited = 0;
            inside.reaper.awake();
        }
    }

    fn reap(&self, inside: &mut Inside, at_most: u32) -> u32 {
        let mut reaped = 0;
        while reaped < at_most {
            let Reap::Completion(entry) = inside.reaper.reap() else { break };
            if !inside.outstanding.remove(&entry.user_data) {
                let what = format!("ring `{}`: entry {} completed twice", self.spec.name, entry.user_data);
                inside.trouble.get_or_insert(what);
            }
            reaped += 1;
        }
        let needed = inside.reaper.publish();
        self.wake_poller(inside, needed);
        reaped
    }

    /// Serves one entry that the owner, or the poller, has accepted; whether there was one.
    pub(super) fn serve_next(&self, cx: &Cx, by_owner: bool) -> bool {
        let began = cx.cpu_time().unwrap_or_default();
        let entry = loop {
            let at = now(cx);
            let mut inside = self.locked();
            let Some((entry, place)) = inside.accepted(by_owner).waiting.pop_front() else { return false };
            let at = AtDispatch {
                now: at,
                method: self.method(),
                budget: Budget::Available,
                previous: Previous::Completed,
            };
            match deadline::at_dispatch(&entry, 0, &at) {
                Verdict::Run { .. } => {
                    inside.accepted(by_owner).serving = Some((entry, place));
                    break entry;
                }
                Verdict::Refuse(status, error) => {
                    if inside.post(place, &deadline::refused(&entry, status, error)) {
                        self.owner_bell.unpark();
                    }
                }
            }
        };
        compute(cx, Duration::from_nanos(self.spec.cost.get()));
        let spent = nanos(cx.cpu_time().unwrap_or_default().saturating_sub(began));
        let at = now(cx);
        // No call that could let others run while the lock is held.
        let mut inside = self.locked();
        // Torn down meanwhile, the entry has been answered.
        if let Some((_, place)) = inside.accepted(by_owner).serving.take() {
            inside.report.busy_ns += spent.get();
            if !by_owner {
                inside.charge(at, spent);
            }
            if inside.post(place, &deadline::at_completion(&entry, at, Ok(0))) {
                self.owner_bell.unpark();
            }
        }
        true
    }
}

/// Without a poller the owner takes its own entries; how many.
fn take_own(inside: &mut Inside) -> u32 {
    inside.submitter.publish_for_caller();
    let Inside { endpoint, by_owner, .. } = inside;
    let (sq, cq, _) = endpoint.parts();
    let Ok(lease) = sq.acquire(SqOwner::Syscall) else { return 0 };
    let mut taken = 0;
    if let Ok(mut service) = sq.begin(&lease, sq.geometry().sq_entries()) {
        while let Next::Accepted(entry, place) = service.next(cq) {
            by_owner.waiting.push_back((entry, place));
            taken += 1;
        }
        let _kept = service.finish();
    }
    let released = sq.release(lease);
    debug_assert!(released.is_ok(), "nobody takes it away under the lock");
    taken
}
