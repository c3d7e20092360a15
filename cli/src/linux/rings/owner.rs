//! The task that owns a ring: it submits, reaps, and serves its own entries while no poller does.

use super::{Inside, Ring};
use crate::linux::player::{compute, nanos, now};
use mainspring::{Cx, WaitReason};
use mainspring_driver::local_ring::{Reaped, Server, Service};
use mainspring_ring::RingMode;
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
            while self.serve_next(cx, Server::Owner) {}
            {
                let at = now(cx);
                let mut inside = self.locked();
                if inside.local.is_closed() {
                    self.open_again(&mut inside);
                }
                let reorder = self.spec.reorder;
                let written = inside.local.write(left, |number| batch.entry(number, at, reorder));
                left -= written;
                if written > 0 {
                    let needed = inside.local.publish();
                    self.wake_poller(&mut inside, needed);
                }
                if inside.local.mode() == RingMode::Syscall && inside.local.take_own() > 0 {
                    continue;
                }
                if left == 0 {
                    return Ok(());
                }
                if inside.local.mode() == RingMode::Syscall || !inside.local.has_room() {
                    // Only this task could make room, by reaping.
                    return Err(Without::Refused);
                }
                inside.waits_for_room = true;
            }
            self.owner_bell.wait(cx, WaitReason::Io, None);
            self.locked().waits_for_room = false;
        }
    }

    /// Takes completions, and waits for those that are missing, until `until`.
    pub fn complete(&self, cx: &Cx, entries: u32, until: Option<Duration>) -> Result<(), Without> {
        let mut left = entries;
        loop {
            while self.serve_next(cx, Server::Owner) {}
            {
                let at = cx.now();
                let mut inside = self.locked();
                left -= self.reap(&mut inside, left);
                if left == 0 {
                    return Ok(());
                }
                if inside.local.mode() == RingMode::Syscall && inside.local.take_own() > 0 {
                    continue;
                }
                if until.is_some_and(|until| until <= at) {
                    return Err(Without::TimedOut);
                }
                inside.local.announce_wait();
                inside.awaited = left;
            }
            let remaining = until.map(|until| until.saturating_sub(cx.now()));
            self.owner_bell.wait(cx, WaitReason::Io, remaining);
            let mut inside = self.locked();
            inside.awaited = 0;
            inside.local.end_wait();
        }
    }

    fn reap(&self, inside: &mut Inside, at_most: u32) -> u32 {
        let Reaped { count, twice, wakeup } = inside.local.reap(at_most);
        if let Some(entry) = twice {
            let what = format!("ring `{}`: entry {entry} completed twice", self.spec.name);
            inside.trouble.get_or_insert(what);
        }
        self.wake_poller(inside, wakeup);
        count
    }

    /// Serves one entry that the owner, or the poller, has accepted; whether there was one.
    pub(super) fn serve_next(&self, cx: &Cx, server: Server) -> bool {
        let began = cx.cpu_time().unwrap_or_default();
        loop {
            let at = now(cx);
            let mut inside = self.locked();
            match inside.local.begin(server, at) {
                Service::Begun => break,
                Service::Refused(_) => self.posted(&mut inside),
                Service::Nothing => return false,
            }
        }
        compute(cx, Duration::from_nanos(self.spec.cost.get()));
        let spent = nanos(cx.cpu_time().unwrap_or_default().saturating_sub(began));
        let at = now(cx);
        // No call that could let others run while the lock is held.
        let mut inside = self.locked();
        // Torn down meanwhile, the entry has been answered.
        if inside.local.finish(server, at, spent).is_some() {
            self.posted(&mut inside);
        }
        true
    }
}
