//! What a task knows of itself, and its own `CapBudget`.

use super::{Cx, TaskId};
use crate::audit;
use crate::budget::Budget;
use crate::calls;
use crate::caps::Caps;
use crate::error::RechargeError;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Cx {
    /// What is left of the task's budget.
    pub fn budget(&self) -> Budget {
        calls::count(self);
        self.task.budget()
    }

    /// Ops that the task has used so far.
    pub fn ops_used(&self) -> u64 {
        calls::count(self);
        self.task.ops_used()
    }

    /// What the task may do. The halves of a [`Cx::join`] have exactly the capabilities of the task that forked, whoever runs
    /// them.
    pub fn caps(&self) -> Caps {
        let (holder, nursery) = (self.account(), self.task.nursery());
        nursery.with_ext(&holder, |ext| ext.and_then(|ext| ext.caps)).unwrap_or(nursery.caps)
    }

    /// The task's id.
    pub fn id(&self) -> TaskId {
        TaskId(self.task.id.load(Ordering::Relaxed))
    }

    /// The worker that runs the task now.
    pub fn worker(&self) -> usize {
        self.task.worker().index
    }

    /// Whether the task has been cancelled. It ends at its next yield point; this lets a loop end sooner.
    pub fn is_cancelled(&self) -> bool {
        calls::count(self);
        self.task.is_cancelled()
    }

    /// The iterations between two checks of `#[budgeted]` loops.
    pub fn yield_interval(&self) -> u32 {
        self.yield_interval
    }

    /// Time since the runtime started, by its clock: virtual in the deterministic mode.
    pub fn now(&self) -> Duration {
        calls::count(self);
        Duration::from_nanos(self.rt().timers.now_ns())
    }

    /// Adds to the task's own budget, by its `CapBudget`, up to that capability's limit in all.
    pub fn recharge(&self, amount: Budget) -> Result<(), RechargeError> {
        calls::count(self);
        audit::noted(self, "CapBudget", "recharge", self.recharge_by_cap(amount))
    }

    fn recharge_by_cap(&self, amount: Budget) -> Result<(), RechargeError> {
        let cap = self.caps().budget().copied().ok_or(RechargeError::NotPermitted)?;
        let mut budget = self.task.budget();
        self.task.nursery().change_ext(&self.account(), |ext| {
            let mut total = ext.self_recharged;
            if let Some(over) = Budget::ZERO.lacking(&total.add(amount)) {
                return Err(RechargeError::WouldOverflow(over.component));
            }
            if let Some(over) = cap.limit().lacking(&total) {
                return Err(RechargeError::OverLimit(over));
            }
            if let Some(over) = Budget::ZERO.lacking(&budget.add(amount)) {
                return Err(RechargeError::WouldOverflow(over.component));
            }
            ext.self_recharged = total;
            Ok(())
        })?;
        self.task.ops_granted.fetch_add(amount.ops.into(), Ordering::Relaxed);
        self.task.write_budget(budget);
        Ok(())
    }
}
