//! Tasks of a nursery that wait for budget, and how they learn that none will come.
//!
//! Conserved: a task is in the list from before its last look for budget until it goes on or fails. Whoever gives budget, and
//! an owner that begins to wait, looks at the list afterwards and wakes who is in it: a task that waits for budget has looked
//! after the last event that concerns it.

use super::core::{NurseryCore, Shared};
use crate::protocol::asymmetric;
use crate::task::state::Event;
use crate::task::{Task, TaskPtr};
use std::sync::atomic::Ordering;

/// A task that waits for budget.
pub(crate) struct Starving {
    task: TaskPtr,
    /// No task of the child that it belongs to can go on, and nobody has given anything since that was found.
    whole: bool,
}

/// What can still happen for a task that waits for budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlook {
    /// The owner waits until all children have ended.
    pub(crate) awaited: bool,
    /// Every child of the nursery waits for budget, so that none will give any back.
    pub(crate) all_starve: bool,
}

impl NurseryCore {
    /// A task is about to wait for budget. It looks for budget once more after this.
    pub(crate) fn starves(&self, task: &Task) {
        self.brood.with(|shared| {
            shared.starving.push(Starving { task: TaskPtr::of(task), whole: false });
            self.starving.store(shared.starving.len(), Ordering::Relaxed);
        });
        // Pairs with the light fence of an owner that begins to wait: it sees the count, or the task sees that it waits.
        asymmetric::heavy();
    }

    /// It waits no more.
    pub(crate) fn starves_no_more(&self, task: &Task) {
        self.brood.with(|shared| {
            shared.starving.retain(|starving| starving.task != TaskPtr::of(task));
            self.starving.store(shared.starving.len(), Ordering::Relaxed);
        });
    }

    /// What a task in the list can hope for. `whole`: no other task of its fork tree can go on.
    pub(crate) fn outlook(&self, task: &Task, whole: bool) -> Outlook {
        self.brood.with(|shared| {
            let mut newly = false;
            for starving in &mut shared.starving {
                if starving.task == TaskPtr::of(task) {
                    newly = whole && !starving.whole;
                    starving.whole = whole;
                }
            }
            let wholly = shared.starving.iter().filter(|starving| starving.whole).count();
            let all_starve = wholly as u64 >= self.live();
            if newly && all_starve {
                // Those who looked before could still hope for this one.
                Self::wake_starving(shared);
            }
            Outlook { awaited: shared.awaited, all_starve }
        })
    }

    /// There may be budget for those who wait for it: they look for themselves.
    pub(crate) fn feed(&self) {
        self.brood.with(Self::feed_locked);
    }

    pub(super) fn feed_locked(shared: &mut Shared) {
        shared.starving.iter_mut().for_each(|starving| starving.whole = false);
        Self::wake_starving(shared);
    }

    fn wake_starving(shared: &Shared) {
        shared.starving.iter().for_each(|starving| starving.task.wake(Event::Recharge));
    }

    /// The owner begins to wait until all children have ended, or waits no more.
    pub(crate) fn owner_awaits(&self, awaited: bool) {
        self.brood.with(|shared| {
            shared.awaited = awaited;
            if awaited {
                Self::wake_starving(shared);
            }
        });
    }

    /// The owner has announced that it waits for one child.
    #[inline]
    pub(crate) fn owner_joins(&self) {
        // Between the announcement and the look at the count; see `starves`.
        asymmetric::light();
        if self.starving.load(Ordering::Relaxed) != 0 {
            self.brood.with(|shared| Self::wake_starving(shared));
        }
    }
}
