//! What a nursery and its children share.
//!
//! Conserved: `pool` (the owner's side), `returned` (the children's side) and the budgets of the live children sum to
//! what the nursery was opened with, less what was charged. The scope that holds this record does not end before all
//! children have reported.
#![allow(unsafe_code)]

use super::state::{NurseryEvent, NurseryState};
use crate::budget::{Budget, Pool, Unpayable};
use crate::caps::Caps;
use crate::error::{RechargeError, TaskError};
use crate::protocol::asymmetric;
use crate::protocol::brood::Brood;
use crate::protocol::roster::Roster;
use crate::runtime::Inner;
use crate::spans;
use crate::task::body::Ended;
use crate::task::state::Event;
use crate::task::{Ext, Task, TaskPtr};
use std::cell::Cell;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// What happens to a child that runs out of budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exhaustion {
    /// It waits as BudgetExhausted until somebody recharges it.
    #[default]
    Park,
    /// It fails, and with it the nursery.
    Fail,
    /// It is cancelled; its siblings go on.
    Cancel,
    /// It takes this much from the pool and goes on; it waits when the pool cannot pay.
    Refill(Budget),
}

pub(crate) struct NurseryCore {
    pub(crate) rt: *const Inner,
    pub(crate) id: u64,
    /// The task that opened it; null for an ordinary thread.
    owner: *const Task,
    /// Its id, or 0.
    pub(crate) owner_id: u64,
    /// A child failed, or the deadline passed.
    failed: AtomicBool,
    /// Neighbours in the registry, under its lock.
    pub(crate) chain_prev: Cell<*const NurseryCore>,
    pub(crate) chain_next: Cell<*const NurseryCore>,
    /// The nursery that the owner had open before.
    pub(crate) outer: *const NurseryCore,
    state: AtomicU8,
    /// What children may do if their spawner does not say.
    pub(crate) caps: Caps,
    pub(crate) on_exhausted: Exhaustion,
    /// The owner's side of the pool.
    pub(crate) pool: Cell<Pool>,
    pub(crate) brood: Brood<Shared>,
}

pub(crate) struct Shared {
    returned: Pool,
    /// Tasks that wait for budget which may come from the pool or from their fork tree.
    hungry: Vec<TaskPtr>,
    error: Option<(u64, TaskError)>,
    roster: Roster<Task>,
}

// SAFETY: `pool` is the owner's, the chain the registry's; the rest is immutable, atomic or behind the lock.
unsafe impl Sync for NurseryCore {}

impl NurseryCore {
    pub(crate) fn new(
        rt: &Inner,
        owner: *const Task,
        owner_id: u64,
        outer: *const NurseryCore,
        caps: Caps,
        on_exhausted: Exhaustion,
        pool: Pool,
    ) -> Self {
        Self {
            rt,
            id: rt.next_nursery_id(),
            owner,
            owner_id,
            failed: AtomicBool::new(false),
            chain_prev: Cell::new(null()),
            chain_next: Cell::new(null()),
            outer,
            state: AtomicU8::new(NurseryState::Open as u8),
            caps,
            on_exhausted,
            pool: Cell::new(pool),
            brood: Brood::new(Shared {
                returned: Pool::ZERO,
                hungry: Vec::new(),
                error: None,
                roster: Roster::default(),
            }),
        }
    }

    pub(crate) fn rt(&self) -> &Inner {
        // SAFETY: a runtime outlives its nurseries: they are scopes of its tasks, or of threads that hold it.
        unsafe { &*self.rt }
    }

    pub(crate) fn state(&self) -> NurseryState {
        NurseryState::from_u8(self.state.load(Ordering::SeqCst))
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.state().is_cancelled()
    }

    /// Children that have not ended.
    pub(crate) fn live(&self) -> u64 {
        self.brood.live() as u64
    }

    /// Moves what children gave back to the owner's side. The owner only.
    pub(crate) fn collect(&self) {
        let returned = self.brood.with(|shared| std::mem::take(&mut shared.returned));
        let mut pool = self.pool.get();
        pool.put(&returned);
        self.pool.set(pool);
    }

    /// Takes from the pool, all or nothing. The owner only.
    pub(crate) fn carve(&self, amount: &Pool) -> Result<(), Unpayable> {
        let mut pool = self.pool.get();
        if pool.take(amount).is_err() {
            self.collect();
            pool = self.pool.get();
            pool.take(amount)?;
        }
        self.pool.set(pool);
        Ok(())
    }

    /// Takes a child's grant, and the spawn itself, from the pool. False, and nothing taken, if the pool does not have all of
    /// it at hand. The owner only.
    #[inline(always)]
    pub(crate) fn pay_for_child(&self, grant: &Budget) -> bool {
        let pool = self.pool.get();
        let price = Pool { spawn_count: 1, ..Pool::from(*grant) };
        let covered = pool.ops >= price.ops
            && pool.memory >= price.memory
            && pool.spawn_count >= price.spawn_count
            && pool.channel_ops >= price.channel_ops
            && pool.syscalls >= price.syscalls;
        if covered {
            self.pool.set(Pool {
                ops: pool.ops - price.ops,
                memory: pool.memory - price.memory,
                spawn_count: pool.spawn_count - price.spawn_count,
                channel_ops: pool.channel_ops - price.channel_ops,
                syscalls: pool.syscalls - price.syscalls,
            });
        }
        covered
    }

    /// The event, if the state has such a step. Under the lock, but for Spawn.
    fn step(&self, event: NurseryEvent) -> bool {
        match self.state().step(event) {
            Ok(next) => {
                // SeqCst: pairs with tasks that commit to a wait and then look whether they are cancelled.
                self.state.store(next as u8, Ordering::SeqCst);
                true
            }
            Err(_) => false,
        }
    }

    /// A task enters the list of those that a cancellation must interrupt: before its first wait.
    pub(crate) fn enlist(&self, task: &Task) {
        // SAFETY: under the lock; a slot stays where it is, and the task leaves the list before its record is used again.
        self.brood.with(|shared| unsafe { shared.roster.enlist(task, self.is_cancelled()) });
    }

    /// A task leaves the list, before its record can be used again.
    pub(crate) fn forget(&self, task: &Task) {
        if task.listed.load(Ordering::Relaxed) {
            // SAFETY: under the lock.
            self.brood.with(|shared| unsafe { shared.roster.delist(task) });
        }
    }

    /// `children` have ended, and give back what they have left. `id` is that of the one that may have failed. Returns whom
    /// to wake.
    #[must_use = "somebody may have to be woken"]
    pub(crate) fn children_done(&self, children: u64, id: u64, left: &Pool, ended: Ended) -> Option<usize> {
        self.brood.ended(children as usize, |shared| {
            shared.returned.put(left);
            if let Exhaustion::Refill(_) = self.on_exhausted {
                Self::wake_hungry(shared);
            }
            if let Ended::Failed(error) = ended {
                shared.error.get_or_insert((id, error));
                self.cancel_locked(shared);
                self.fail_locked();
            }
        })
    }

    /// Tells all children to stop, and interrupts those that wait.
    pub(crate) fn cancel(&self, error: Option<TaskError>) -> bool {
        spans::event(|| tracing::debug!(target: "mainspring", nursery = self.id, "cancel"));
        self.brood.with(|shared| {
            if matches!(self.state(), NurseryState::Closed | NurseryState::Cancelled) {
                return false;
            }
            self.cancel_locked(shared);
            if let Some(error) = error {
                shared.error.get_or_insert((0, error));
                self.fail_locked();
            }
            true
        })
    }

    /// What the owner does inside the nursery is over too: it is interrupted, up to the nursery's end.
    fn fail_locked(&self) {
        self.failed.store(true, Ordering::SeqCst);
        if let Some(owner) = TaskPtr::from_raw(self.owner) {
            // The flag before the state, as for all cancellations.
            owner.scope_failed.store(true, Ordering::SeqCst);
            asymmetric::heavy();
            owner.wake(Event::Interrupt);
        }
    }

    /// Whether a child failed or the deadline passed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    fn cancel_locked(&self, shared: &Shared) {
        if !self.step(NurseryEvent::Cancel) {
            return;
        }
        // SAFETY: the caller holds the lock.
        unsafe { shared.roster.interrupt_all() };
    }

    /// The block has ended: no more spawns. Returns whether children are left.
    pub(crate) fn close(&self) -> bool {
        self.brood.with(|_| {
            let active = self.live() > 0;
            let _ = self.step(if active { NurseryEvent::CloseActive } else { NurseryEvent::CloseEmpty });
            active
        })
    }

    /// All children have ended: the final state, the first error and what is left of the pool.
    pub(crate) fn finish(&self) -> (NurseryState, Option<(u64, TaskError)>, Pool) {
        self.brood.with(|shared| {
            debug_assert_eq!(self.live(), 0);
            let _ = self.step(NurseryEvent::AllDone);
            let mut pool = self.pool.replace(Pool::ZERO);
            pool.put(&std::mem::take(&mut shared.returned));
            (self.state(), shared.error.take(), pool)
        })
    }

    /// Puts budget into a child's mail and makes it Ready if it waits for that. The pool was paid by the caller.
    pub(crate) fn mail(&self, task: &Task, amount: &Budget) -> Result<(), RechargeError> {
        task.post.announce();
        self.change_ext(task, |ext| {
            if task.state.get().is_final() {
                return Err(RechargeError::Finished);
            }
            let mut mail = ext.mail;
            let over = mail.add(*amount);
            let too_much = task.budget().add(mail);
            for rest in [over, too_much] {
                if let Some(unpayable) = Budget::ZERO.lacking(&rest) {
                    return Err(RechargeError::WouldOverflow(unpayable.component));
                }
            }
            ext.mail = mail;
            task.wake(Event::Recharge);
            Ok(())
        })?;
        // It may be for a task of the child's fork tree.
        self.feed();
        Ok(())
    }

    /// A task is about to wait for budget that nobody will address to it.
    pub(crate) fn hungers(&self, task: &Task) {
        self.brood.with(|shared| shared.hungry.push(TaskPtr::of(task)));
    }

    /// There may be budget again for those who wait for it: they look for themselves.
    pub(crate) fn feed(&self) {
        self.brood.with(Self::wake_hungry);
    }

    fn wake_hungry(shared: &mut Shared) {
        for task in shared.hungry.drain(..) {
            task.wake(Event::Recharge);
        }
    }

    /// Puts into the pool what a task could not hold.
    pub(crate) fn put_back(&self, amount: &Pool) {
        self.brood.with(|shared| {
            shared.returned.put(amount);
            Self::wake_hungry(shared);
        });
    }

    /// Takes a task's mail out. The task itself only.
    pub(crate) fn take_mail(&self, task: &Task) -> Budget {
        self.with_ext(task, |ext| ext.map_or(Budget::ZERO, |ext| std::mem::take(&mut ext.mail)))
    }

    /// Looks at the rare fields of a child, if it has any.
    pub(crate) fn with_ext<R>(&self, task: &Task, f: impl FnOnce(Option<&mut Ext>) -> R) -> R {
        // SAFETY: under the nursery's lock.
        self.brood.with(|_| f(unsafe { (*task.ext.get()).as_deref_mut() }))
    }

    /// Changes the rare fields of a child.
    pub(crate) fn change_ext<R>(&self, task: &Task, f: impl FnOnce(&mut Ext) -> R) -> R {
        // SAFETY: under the nursery's lock.
        self.brood.with(|_| f(unsafe { task.ext_mut() }))
    }

    /// Takes a refill from the children's side of the pool, for a child that ran out. Only what was returned is within a
    /// child's reach without disturbing the owner.
    pub(crate) fn refill(&self, amount: &Budget) -> bool {
        self.brood.with(|shared| shared.returned.take(&Pool::from(*amount)).is_ok())
    }

    /// Moves the owner's side to the children's side, so that refills can be paid while the owner waits.
    pub(crate) fn lend_pool(&self) {
        let pool = self.pool.replace(Pool::ZERO);
        self.brood.with(|shared| {
            shared.returned.put(&pool);
            Self::wake_hungry(shared);
        });
    }

    /// Where children are refilled from the pool, the owner has it only while it hands out: it may wait for them anywhere.
    pub(crate) fn share_pool(&self) {
        if let Exhaustion::Refill(_) = self.on_exhausted {
            self.lend_pool();
        }
    }
}
