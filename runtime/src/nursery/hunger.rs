//! Tasks of a nursery that wait for budget, and how they learn that none will come. The protocol is `protocol/hunger.rs`.

use super::core::{NurseryCore, Shared};
use crate::protocol::hunger::{Eater, Outlook, Starving};
use crate::task::state::Event;
use crate::task::{Task, TaskPtr};

impl Eater for TaskPtr {
    fn look_again(&self) {
        self.wake(Event::Recharge);
    }
}

impl AsMut<Starving<TaskPtr>> for Shared {
    fn as_mut(&mut self) -> &mut Starving<TaskPtr> {
        &mut self.starving
    }
}

impl NurseryCore {
    /// A task is about to wait for budget. It looks for budget once more after this.
    pub(crate) fn starves(&self, task: &Task) {
        self.hunger.enter(&self.wait_group, TaskPtr::of(task));
    }

    /// It waits no more.
    pub(crate) fn starves_no_more(&self, task: &Task) {
        self.hunger.leave(&self.wait_group, &TaskPtr::of(task));
    }

    /// What a task in the list can hope for. `whole`: no other task of its fork tree can go on.
    pub(crate) fn outlook(&self, task: &Task, whole: bool) -> Outlook {
        self.wait_group
            .with(|shared| shared.starving.outlook(&TaskPtr::of(task), whole, self.wait_group.live()))
    }

    /// There may be budget for the tasks that wait for it: they look for themselves.
    pub(crate) fn feed(&self) {
        self.wait_group.with(|shared| shared.starving.feed());
    }

    /// The owner begins to wait until all children have ended, or waits no more.
    pub(crate) fn owner_awaits(&self, awaited: bool) {
        self.wait_group.with(|shared| shared.starving.owner_awaits(awaited));
    }

    /// The owner has announced that it waits for one child.
    #[inline]
    pub(crate) fn owner_joins(&self) {
        self.hunger.owner_joins(&self.wait_group);
    }
}
