//! What the tasks of one fork tree have in common: the budget of the task that forked first.
//!
//! Conserved: what is in the purse and what the tree's tasks hold sums to what the owner had when it was opened and what was
//! granted since, less what was charged. `active` counts the tasks of the tree that run or are ready.
//!
//! A task draws when it runs out, and lends all that it holds when it waits. So the tree has run out only when no task of
//! it is active: until then one that found the purse empty waits for what the others put back.
//!
//! A fork that is not stolen does not touch it.

use crate::budget::{Budget, Component, Pool, Unpayable};
use crate::cx::Cx;
use crate::protocol::lock::Lock;
use crate::task::{Task, TaskPtr};
use std::sync::atomic::Ordering;

/// The most ops of a draw: many slices, so that draws are rare.
const DRAW_OPS: u64 = 16 * 1024;

pub(crate) struct Purse {
    /// The task whose budget it is, and to which it goes back.
    pub(crate) owner: TaskPtr,
    inside: Lock<Inside>,
}

struct Inside {
    pool: Pool,
    active: usize,
}

impl Purse {
    /// Opens the purse of a task, with all that the task holds.
    pub(super) fn open(cx: &Cx) -> Self {
        let purse = Self { owner: cx.task_ptr(), inside: Lock::new(Inside { pool: Pool::ZERO, active: 1 }) };
        purse.put(&Self::take_from(cx.task()));
        purse
    }

    /// All that a task holds.
    fn take_from(task: &Task) -> Pool {
        let lent = task.budget();
        task.write_budget(Budget::ZERO);
        let granted = task.ops_granted.load(Ordering::Relaxed);
        task.ops_granted.store(granted.wrapping_sub(lent.ops.into()), Ordering::Relaxed);
        lent.into()
    }

    fn put(&self, amount: &Pool) {
        self.inside.lock().pool.put(amount);
    }

    /// A stolen half becomes a task: its first ops.
    pub(super) fn join_in(&self) -> Budget {
        self.resume();
        self.draw(Component::Ops, 1)
    }

    /// The task of a stolen half has ended, with this left.
    pub(super) fn leave(&self, task: &Task, left: &Pool) {
        {
            let mut inside = self.inside.lock();
            inside.pool.put(left);
            inside.active -= 1;
        }
        task.nursery().feed();
    }

    /// A task of the tree is about to wait for something else than budget.
    pub(crate) fn pause(&self, task: &Task) {
        // What it has while it cleans up is not the tree's.
        let lent = if task.mask.is_set() { Pool::ZERO } else { Self::take_from(task) };
        {
            let mut inside = self.inside.lock();
            inside.pool.put(&lent);
            inside.active -= 1;
        }
        // The starving tasks have more now, or learn that no other task will give them any.
        task.nursery().feed();
    }

    /// A task of the tree lacks something, and puts in what it has: another may wait for that, and have what this one needs.
    pub(crate) fn lend(&self, task: &Task) {
        let lent = Self::take_from(task);
        if lent != Pool::ZERO {
            self.put(&lent);
            task.nursery().feed();
        }
    }

    /// A task of the tree is about to wait for budget. True if no other is active.
    pub(crate) fn starve(&self) -> bool {
        let mut inside = self.inside.lock();
        inside.active -= 1;
        inside.active == 0
    }

    /// It waits no more.
    pub(crate) fn resume(&self) {
        self.inside.lock().active += 1;
    }

    /// Takes at least `need` of a component, or nothing.
    pub(crate) fn draw(&self, component: Component, need: u64) -> Budget {
        let mut inside = self.inside.lock();
        let half = inside.pool.get(component).div_ceil(2);
        let amount = match component {
            Component::Ops => half.min(DRAW_OPS).max(need),
            // A task that lacks memory does not wait for what others hold: no task holds more than it uses.
            Component::Memory => need,
            _ => half.max(need),
        };
        // What is more than a task can hold stays.
        let drawn = Pool::only(component, amount).narrow();
        if inside.pool.take(&drawn.into()).is_ok() { drawn } else { Budget::ZERO }
    }

    /// Takes what `choose` says of all that the tree and the task hold, all of it or nothing.
    pub(crate) fn take_part(
        &self,
        task: &Task,
        choose: impl FnOnce(&Pool) -> Pool,
    ) -> Result<Pool, Unpayable> {
        self.lend(task);
        let mut inside = self.inside.lock();
        let part = choose(&inside.pool);
        inside.pool.take(&part).map(|()| part)
    }

    /// All that is left, when the tree is over.
    pub(super) fn close(&self) -> Pool {
        std::mem::take(&mut self.inside.lock().pool)
    }
}
