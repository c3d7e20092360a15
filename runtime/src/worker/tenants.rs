//! A worker under the fair discipline by tenant: what it bills, and what it hands to the core of its tenants.
#![allow(unsafe_code)]

use super::fair_tenants::FairTenants;
use super::{SWITCH_OPS, Worker};
use crate::runtime::Inner;
use crate::task::{Runnable, Task};
use mainspring_abi::Nanos;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

/// The tenants of one worker, and the clock that they are charged by.
pub(super) struct TenantQueue {
    /// Behind a lock: the monitor takes what may move out of it while a task keeps the worker.
    queue: Arc<Mutex<FairTenants>>,
    /// Ops that tasks have used here: the clock of the deterministic mode.
    op_clock: Cell<u64>,
    ops_at_dispatch: Cell<u64>,
}

impl TenantQueue {
    pub(super) fn new(queue: Arc<Mutex<FairTenants>>) -> Self {
        Self { queue, op_clock: Cell::new(0), ops_at_dispatch: Cell::new(0) }
    }

    fn queue(&self) -> MutexGuard<'_, FairTenants> {
        self.queue.lock().expect("no panic while it is held")
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue().is_empty()
    }

    /// `task` is about to run.
    pub(super) fn dispatched(&self, task: &Task) {
        self.ops_at_dispatch.set(task.ops_used());
    }

    /// Counts the ops that `task` has used since it was dispatched.
    fn bill(&self, task: &Task) {
        let used = task.ops_used();
        // A switch costs something too: a task that only yields must not run for nothing.
        self.count(used.saturating_sub(self.ops_at_dispatch.replace(used)) + SWITCH_OPS);
    }

    fn count(&self, ops: u64) {
        self.op_clock.set(self.op_clock.get() + ops);
    }

    pub(super) fn push(&self, now: Nanos, task: Runnable) {
        let tenant = task.entity.load(Ordering::Relaxed).into();
        self.queue().push(now, tenant, task);
    }
}

impl Worker {
    /// The clock of the fair disciplines: nanoseconds, or ops where the order must not depend on a clock.
    pub(super) fn fair_now(&self) -> Nanos {
        match self.discipline.tenants() {
            Some(tenants) if self.is_virtual => Nanos::new(tenants.op_clock.get()),
            _ => Nanos::new(self.rt().timers.now_ns()),
        }
    }

    /// Under the fair discipline by tenant, counts the ops that `task` has used since it was dispatched.
    #[inline]
    pub(crate) fn bill(&self, task: &Task) {
        if let Some(tenants) = self.discipline.tenants() {
            tenants.bill(task);
        }
    }

    /// The current task has made calls that took about as long as so many ops, and cost none.
    pub(crate) fn count_free(&self, ops: u32) {
        if let Some(tenants) = self.discipline.tenants() {
            tenants.count(ops.into());
        }
    }

    /// Whether the current task's tenant has had its turn and another task waits.
    pub(super) fn tenant_turn_is_over(&self, tenants: &TenantQueue) -> bool {
        // SAFETY: the task that runs here, or null.
        if let Some(task) = unsafe { self.current.get().as_ref() } {
            tenants.bill(task);
        }
        // The monitor may have put those that waited here into the global queue.
        tenants.queue().turn_is_over(self.fair_now(), !self.rt().global.is_empty())
    }

    #[cold]
    pub(super) fn push_to_tenant(&self, tenants: &TenantQueue, task: Runnable) {
        tenants.push(self.fair_now(), task);
        if !self.is_virtual && self.rt().idle_workers.sleeping() != 0 {
            // Others sleep: one that may move, and is not the next here, goes to them.
            let spare = { tenants.queue().give() };
            if let Some(spare) = spare {
                self.rt().inject(spare, false);
            }
        }
    }

    /// The task that ran here gives way. It stands behind those that waited in the global queue while it ran: the monitor may
    /// have put them there, out of this very queue.
    pub(super) fn push_yielded_to_tenant(&self, tenants: &TenantQueue, task: Runnable) {
        self.take_global(tenants);
        self.push_to_tenant(tenants, task);
    }

    pub(super) fn pick_of_tenants(&self, tenants: &TenantQueue, looks: bool) -> Option<Runnable> {
        if looks {
            self.rt().tend_timers();
            self.look_outside(self.rt().timers.now_ns());
        }
        self.take_global(tenants);
        tenants.queue().next(self.fair_now())
    }

    /// Tasks of the global queue join the tenants here, a few at a time.
    fn take_global(&self, tenants: &TenantQueue) {
        for _ in 0..4 {
            let Some(task) = self.rt().global.pop() else { break };
            tenants.push(self.fair_now(), task);
        }
    }
}

impl Inner {
    /// A task keeps `worker`: what others may have of its tenants' tasks goes to them.
    pub(crate) fn take_from_tenants(&self, worker: usize) {
        let Some(queue) = self.tenant_queues.get(worker) else { return };
        loop {
            let task = queue.lock().expect("no panic while it is held").give();
            let Some(task) = task else { break };
            self.inject(task, true);
        }
    }
}
