//! A worker under the fair discipline by tenant: what it bills, and what it hands to the core of its tenants.
#![allow(unsafe_code)]

use super::fair_tenants::FairTenants;
use super::{SWITCH_OPS, Worker};
use crate::task::{Runnable, Task};
use mainspring_abi::{Nanos, Weight};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

/// The tenants of one worker, and the clock that they are charged by.
pub(super) struct TenantQueue {
    queue: RefCell<FairTenants>,
    /// Ops that tasks have used here: the clock of the deterministic mode.
    op_clock: Cell<u64>,
    ops_at_dispatch: Cell<u64>,
}

impl TenantQueue {
    pub(super) fn new(worker: usize, weights: &[Weight]) -> Self {
        Self {
            queue: RefCell::new(FairTenants::new(worker, weights)),
            op_clock: Cell::new(0),
            ops_at_dispatch: Cell::new(0),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
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
        self.queue.borrow_mut().push(now, tenant, task);
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
        tenants.queue.borrow().turn_is_over(self.fair_now())
    }

    #[cold]
    pub(super) fn push_to_tenant(&self, tenants: &TenantQueue, task: Runnable) {
        tenants.push(self.fair_now(), task);
        if !self.is_virtual && self.rt().idle_workers.sleeping() != 0 {
            // Others sleep: one that may move, and is not the next here, goes to them.
            let spare = { tenants.queue.borrow_mut().give() };
            if let Some(spare) = spare {
                self.rt().inject(spare, false);
            }
        }
    }

    pub(super) fn pick_of_tenants(&self, tenants: &TenantQueue, looks: bool) -> Option<Runnable> {
        if looks {
            self.rt().tend_timers();
        }
        // Tasks of the global queue join the tenants here, a few at a time.
        for _ in 0..4 {
            let Some(task) = self.rt().global.pop() else { break };
            tenants.push(self.fair_now(), task);
        }
        tenants.queue.borrow_mut().next(self.fair_now())
    }
}
