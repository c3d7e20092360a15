//! What a task knows of itself, and its own `CapBudget`.

use super::{Cx, TaskId};
use crate::audit;
use crate::budget::{Budget, Pool};
use crate::calls;
use crate::caps::{Caps, Held};
use crate::error::RechargeError;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Cx {
    /// What is left of the task's budget.
    pub fn budget(&self) -> Budget {
        calls::count_poll();
        self.task.budget()
    }

    /// Ops that the task has used so far.
    pub fn ops_used(&self) -> u64 {
        calls::count_poll();
        self.task.ops_used()
    }

    /// What the task may do. The halves of a [`Cx::join`] have exactly the capabilities of the task that forked, whichever
    /// worker runs them.
    pub fn caps(&self) -> Caps {
        let (holder, nursery) = (self.account(), self.task.nursery());
        let own = nursery.with_ext(&holder, |ext| ext?.caps.map(|held| held.caps()));
        own.unwrap_or_else(|| Held::usual(&nursery.caps))
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
        calls::count_poll();
        self.task.is_cancelled()
    }

    /// The iterations between two checks of `#[budgeted]` loops.
    pub fn yield_interval(&self) -> u32 {
        self.yield_interval
    }

    /// Time since the runtime started, by its clock: virtual in the deterministic mode.
    pub fn now(&self) -> Duration {
        calls::count_poll();
        Duration::from_nanos(self.rt().timers.now_ns())
    }

    /// Adds to the task's own budget, by its `CapBudget`: takes the amount from the pool of the nursery that the task is a child
    /// of, up to that capability's limit in all.
    pub fn recharge(&self, amount: Budget) -> Result<(), RechargeError> {
        calls::count(self);
        audit::noted(self, "CapBudget", "recharge", self.recharge_by_cap(amount))
    }

    fn recharge_by_cap(&self, amount: Budget) -> Result<(), RechargeError> {
        self.draw_by_cap(&amount)?;
        if let Some(over) = Budget::ZERO.lacking(&self.task.budget().add(amount)) {
            self.undo_draw(amount);
            return Err(RechargeError::WouldOverflow(over.component));
        }
        self.give(amount.into());
        Ok(())
    }

    /// Takes from the pool of the task's nursery by the task's `CapBudget`, all or nothing.
    pub(crate) fn draw_by_cap(&self, amount: &Budget) -> Result<(), RechargeError> {
        let (holder, nursery) = (self.account(), self.task.nursery());
        nursery.with_ext(&holder, |ext| {
            let held = ext.and_then(|ext| ext.caps.as_mut()).filter(|held| held.caps().budget().is_some());
            held.ok_or(RechargeError::NotPermitted)?.draw(amount).map_err(RechargeError::OverLimit)
        })?;
        nursery.draw(&Pool::from(*amount)).map_err(|unpayable| {
            self.restore_cap(*amount);
            RechargeError::Pool(unpayable)
        })
    }

    /// Undoes [`Cx::draw_by_cap`].
    pub(crate) fn undo_draw(&self, amount: Budget) {
        self.restore_cap(amount);
        self.task.nursery().put_back(&amount.into());
    }

    fn restore_cap(&self, amount: Budget) {
        self.task.nursery().with_ext(&self.account(), |ext| {
            if let Some(held) = ext.and_then(|ext| ext.caps.as_mut()) {
                held.restore(amount);
            }
        });
    }
}
