//! Tasks that wait for budget against what ends such a wait: a gift, an owner that begins to wait, a last sibling that starves.
//!
//! Conserved: a task is in the list from before its last look for budget until it goes on or fails. A giver, and an owner that
//! begins to wait, first writes what the task looks at, and then wakes every task in the list. So a task that waits for
//! budget has looked after the last event that concerns it.
//!
//! The list is behind the lock of the nursery's [`WaitGroup`]. An owner that joins one child does not take that lock while
//! no task starves: it looks at the length of the list.

use super::asymmetric;
use super::mutant::{Mutant, broken};
use super::prim::{AtomicUsize, Ordering};
use super::wait_group::WaitGroup;

/// A task that can be woken to look for budget again.
pub trait Eater: PartialEq {
    /// Wakes the task if it waits, and leaves a note if it is about to.
    fn look_again(&self);
}

#[derive(Debug)]
struct Entry<T> {
    task: T,
    /// No task of the child that it belongs to can go on, and no budget was given since that was found.
    whole: bool,
}

/// The tasks of a nursery that wait for budget.
#[derive(Debug)]
pub struct Starving<T> {
    entries: Vec<Entry<T>>,
    /// The owner waits until all children have ended.
    awaited: bool,
}

/// What can still happen for a task that waits for budget.
#[derive(Clone, Copy, Debug)]
pub struct Outlook {
    /// The owner waits until all children have ended.
    pub awaited: bool,
    /// Every child of the nursery waits for budget, so that none will give any back.
    pub all_starve: bool,
}

impl<T> Default for Starving<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), awaited: false }
    }
}

impl<T: Eater> Starving<T> {
    fn wake_all(&self) {
        self.entries.iter().for_each(|entry| entry.task.look_again());
    }

    /// What a task in the list can hope for. `whole`: no other task of its fork tree can go on. `live`: the nursery's children.
    pub fn outlook(&mut self, task: &T, whole: bool, live: usize) -> Outlook {
        let mut newly = false;
        for entry in &mut self.entries {
            if entry.task == *task {
                newly = whole && !entry.whole;
                entry.whole = whole;
            }
        }
        let wholly = self.entries.iter().filter(|entry| entry.whole).count();
        let all_starve = wholly >= live;
        if newly && all_starve && !broken(Mutant::LastStarvesSilently) {
            // The tasks that looked before could still hope for this one.
            self.wake_all();
        }
        Outlook { awaited: self.awaited, all_starve }
    }

    /// There may be budget for the tasks in the list: they look for themselves.
    pub fn feed(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.whole = false);
        if !broken(Mutant::FeedSilently) {
            self.wake_all();
        }
    }

    /// The owner begins to wait until all children have ended, or waits no more.
    pub fn owner_awaits(&mut self, awaited: bool) {
        self.awaited = awaited;
        if awaited && !broken(Mutant::AwaitSilently) {
            self.wake_all();
        }
    }
}

/// How many tasks are in the list, for an owner that does not hold the lock. Written under the lock.
#[derive(Debug)]
pub struct Hunger(AtomicUsize);

impl Default for Hunger {
    fn default() -> Self {
        Self::new()
    }
}

impl Hunger {
    /// No task starves.
    pub fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// A task enters the list. It looks for budget, and whether its owner waits for it, once more after this.
    pub fn enter<T: Eater, S: AsMut<Starving<T>>>(&self, wait_group: &WaitGroup<S>, task: T) {
        wait_group.with(|shared| {
            let starving = shared.as_mut();
            starving.entries.push(Entry { task, whole: false });
            self.0.store(starving.entries.len(), Ordering::Relaxed);
        });
        // Pairs with the light fence of `owner_joins`: the owner sees the length, or the task sees that the owner waits. The
        // lock above is released by a store, so without the fence the look at the owner may come before the length is seen.
        // The models in `tests/loom/hunger.rs` do not fail without it, so no mutant stands for it.
        asymmetric::heavy();
    }

    /// A task leaves the list.
    pub fn leave<T: Eater, S: AsMut<Starving<T>>>(&self, wait_group: &WaitGroup<S>, task: &T) {
        wait_group.with(|shared| {
            let starving = shared.as_mut();
            starving.entries.retain(|entry| entry.task != *task);
            self.0.store(starving.entries.len(), Ordering::Relaxed);
        });
    }

    /// The owner has announced that it waits for one child.
    #[inline]
    pub fn owner_joins<T: Eater, S: AsMut<Starving<T>>>(&self, wait_group: &WaitGroup<S>) {
        // Between the announcement and the look at the length; see `enter`.
        if !broken(Mutant::JoinWithoutFence) {
            asymmetric::light();
        }
        if self.0.load(Ordering::Relaxed) != 0 {
            wait_group.with(|shared| shared.as_mut().wake_all());
        }
    }

    /// The owner has put budget into a pool that was not claimed, without the lock. A task that looked in vain before has claimed the
    /// pool, after it entered the list. The owner has held the lock since, to take the pool back: so it sees the length, without a fence.
    #[inline]
    pub fn owner_gave<T: Eater, S: AsMut<Starving<T>>>(&self, wait_group: &WaitGroup<S>) {
        if self.0.load(Ordering::Relaxed) != 0 && !broken(Mutant::GiveSilently) {
            wait_group.with(|shared| shared.as_mut().feed());
        }
    }
}
