//! A worker's side of the fair disciplines: what it bills, and what it hands to the scheduler core of its tenants.
#![allow(unsafe_code)]

use super::fair_tenants::FairTenants;
use super::{SWITCH_OPS, Worker};
use crate::task::{Runnable, Task};
use mainspring_abi::Nanos;
use std::cell::RefCell;
use std::sync::atomic::Ordering;

impl Worker {
    #[inline]
    pub(crate) fn is_fair(&self) -> bool {
        self.fair.is_some() || self.fair_tasks.is_some()
    }

    /// The clock of the fair discipline: nanoseconds, or ops where the order must not depend on a clock.
    pub(super) fn fair_now(&self) -> Nanos {
        Nanos::new(if self.is_virtual { self.op_clock.get() } else { self.rt().timers.now_ns() })
    }

    /// Under the fair discipline, counts the ops that `task` has used since it was dispatched.
    pub(crate) fn bill(&self, task: &Task) {
        if self.fair.is_some() {
            let used = task.ops_used();
            // A switch costs something too: a task that only yields must not run for nothing.
            let ops = used.saturating_sub(self.ops_at_dispatch.replace(used)) + SWITCH_OPS;
            self.op_clock.set(self.op_clock.get() + ops);
        }
    }

    pub(super) fn bill_current(&self) {
        // SAFETY: the task that runs here, or null.
        if let Some(task) = unsafe { self.current.get().as_ref() } {
            self.bill(task);
        }
    }

    #[cold]
    pub(super) fn push_fair(&self, task: Runnable) {
        let Some(fair) = &self.fair else { return self.wake_fair_task(task) };
        let now = self.fair_now();
        fair.borrow_mut().push(now, task.tenant.load(Ordering::Relaxed).into(), task);
        if !self.is_virtual && self.rt().idle_workers.sleeping() != 0 {
            // Others sleep: one that may move, and is not the next here, goes to them.
            let spare = { fair.borrow_mut().give() };
            if let Some(spare) = spare {
                self.rt().inject(spare, false);
            }
        }
    }

    pub(super) fn pick_fair(&self, fair: &RefCell<FairTenants>, looks: bool) -> Option<Runnable> {
        if looks {
            self.rt().tend_timers();
        }
        // What waits for anybody joins the tenants here, a few at a time.
        for _ in 0..4 {
            let Some(task) = self.rt().global.pop() else { break };
            fair.borrow_mut().push(self.fair_now(), task.tenant.load(Ordering::Relaxed).into(), task);
        }
        fair.borrow_mut().next(self.fair_now())
    }
}
