//! What one task has done so far.
//!
//! Conserved: each resume follows the spawn, a wake or a yield, and a yield counts as a wake by itself, so that there are at
//! most one more resumes than wakes. Time since the spawn is busy, scheduled or idle, and never two of these.
//!
//! Every field has one writer at a time, the thread that holds the task: the one that spawns it, that has just made it ready, or that
//! runs it. Queues and the task's state order them, so that a load and a store are one step.

use super::buckets::Buckets;
use super::{ObservedTask, TaskKind};
use crate::cx::TaskId;
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What is known of a task when it is spawned.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) id: u64,
    pub(super) name: Option<&'static str>,
    pub(super) nursery: u64,
    pub(super) tenant: Option<usize>,
    pub(super) kind: TaskKind,
}

/// The record of a task. Times are nanoseconds since the runtime was built, and never 0: that is for what has not happened.
#[derive(Debug)]
pub(crate) struct Record {
    location: Option<&'static Location<'static>>,
    origin: OnceLock<Origin>,
    is_future: AtomicBool,
    spawned_ns: AtomicU64,
    ended_ns: AtomicU64,
    polls: AtomicU64,
    first_poll_ns: AtomicU64,
    poll_began_ns: AtomicU64,
    poll_ended_ns: AtomicU64,
    busy_ns: AtomicU64,
    scheduled_ns: AtomicU64,
    wakes: AtomicU64,
    self_wakes: AtomicU64,
    /// When it last became ready; at first, when it was spawned.
    ready_ns: AtomicU64,
    /// It has woken itself while it ran, and not waited since.
    woke_itself: AtomicBool,
    wakers: AtomicU64,
    poll_times: Buckets,
    scheduled_times: Buckets,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

impl Record {
    pub(super) fn new(location: Option<&'static Location<'static>>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            location,
            origin: OnceLock::new(),
            is_future: AtomicBool::new(false),
            spawned_ns: zero(),
            ended_ns: zero(),
            polls: zero(),
            first_poll_ns: zero(),
            poll_began_ns: zero(),
            poll_ended_ns: zero(),
            busy_ns: zero(),
            scheduled_ns: zero(),
            wakes: zero(),
            self_wakes: zero(),
            ready_ns: zero(),
            woke_itself: AtomicBool::new(false),
            wakers: zero(),
            poll_times: Buckets::default(),
            scheduled_times: Buckets::default(),
        }
    }

    /// The task is a future.
    pub(super) fn holds_future(&self) {
        self.is_future.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_future(&self) -> bool {
        self.is_future.load(Ordering::Relaxed)
    }

    /// The task is about to be published.
    pub(super) fn spawned(&self, origin: Origin, now_ns: u64) {
        self.spawned_ns.store(now_ns, Ordering::Relaxed);
        self.ready_ns.store(now_ns, Ordering::Relaxed);
        // A task on a stack is known to whatever it waits for; of a future its wakers are counted when it waits.
        self.wakers.store(u64::from(origin.kind != TaskKind::Future), Ordering::Relaxed);
        let _first = self.origin.set(origin);
    }

    pub(super) fn id(&self) -> Option<u64> {
        self.origin.get().map(|origin| origin.id)
    }

    /// A worker goes on with the task.
    pub(super) fn resumed(&self, now_ns: u64) {
        if self.polls.load(Ordering::Relaxed) == 0 {
            self.first_poll_ns.store(now_ns, Ordering::Relaxed);
        }
        add(&self.polls, 1);
        self.poll_began_ns.store(now_ns, Ordering::Relaxed);
        // A wake may have come while it ran.
        let since = self.ready_ns.load(Ordering::Relaxed).max(self.poll_ended_ns.load(Ordering::Relaxed));
        let scheduled_ns = now_ns.saturating_sub(since);
        add(&self.scheduled_ns, scheduled_ns);
        self.scheduled_times.record(scheduled_ns);
    }

    /// The worker goes on with something else. `wakers`: of a future, how many there are.
    pub(super) fn left(&self, now_ns: u64, wakers: Option<u64>) {
        let busy_ns = now_ns.saturating_sub(self.poll_began_ns.load(Ordering::Relaxed));
        self.poll_ended_ns.store(now_ns, Ordering::Relaxed);
        add(&self.busy_ns, busy_ns);
        self.poll_times.record(busy_ns);
        if let Some(wakers) = wakers {
            self.wakers.store(wakers, Ordering::Relaxed);
        }
    }

    /// A wake has made it ready.
    pub(super) fn woken(&self, now_ns: u64) {
        add(&self.wakes, 1);
        if self.woke_itself.load(Ordering::Relaxed) {
            self.woke_itself.store(false, Ordering::Relaxed);
            add(&self.self_wakes, 1);
        }
        self.ready_ns.store(now_ns, Ordering::Relaxed);
    }

    /// It has woken itself while it ran: its next wait is over at once.
    pub(super) fn woke_itself(&self) {
        self.woke_itself.store(true, Ordering::Relaxed);
    }

    /// It gives way, and stays ready.
    pub(super) fn yielded(&self, now_ns: u64) {
        add(&self.wakes, 1);
        add(&self.self_wakes, 1);
        self.ready_ns.store(now_ns, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, now_ns: u64) {
        self.ended_ns.store(now_ns, Ordering::Relaxed);
    }

    /// What it has done. `None` before it is spawned.
    pub(super) fn view(&self) -> Option<ObservedTask> {
        let origin = self.origin.get()?;
        let of = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let lasted = |value: &AtomicU64| Duration::from_nanos(of(value));
        let at = |value: &AtomicU64| Some(of(value)).filter(|&ns| ns != 0).map(Duration::from_nanos);
        Some(ObservedTask {
            id: TaskId(origin.id),
            name: origin.name,
            nursery: origin.nursery,
            tenant: origin.tenant,
            kind: origin.kind,
            location: self.location,
            spawned: lasted(&self.spawned_ns),
            ended: at(&self.ended_ns),
            polls: of(&self.polls),
            first_poll: at(&self.first_poll_ns),
            poll_began: at(&self.poll_began_ns),
            poll_ended: at(&self.poll_ended_ns),
            busy: lasted(&self.busy_ns),
            scheduled: lasted(&self.scheduled_ns),
            wakes: of(&self.wakes),
            self_wakes: of(&self.self_wakes),
            ready: lasted(&self.ready_ns),
            wakers: of(&self.wakers),
        })
    }

    pub(super) fn poll_times(&self) -> Vec<(Duration, u64)> {
        self.poll_times.counts()
    }

    pub(super) fn scheduled_times(&self) -> Vec<(Duration, u64)> {
        self.scheduled_times.counts()
    }
}
