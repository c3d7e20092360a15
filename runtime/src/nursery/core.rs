//! What a nursery and its children share.
//!
//! Conserved: `pool` (the owner's side), `returned` (the children's side) and the budgets of the live children sum to
//! what the nursery was opened with, less what was charged. `completed` never exceeds `spawned`, and the scope that
//! holds this record does not end before they are equal: the last child's unlock is its last touch.
#![allow(unsafe_code)]

use super::state::{NurseryEvent, NurseryState};
use crate::budget::{Budget, Pool, Unpayable};
use crate::caps::Caps;
use crate::error::{RechargeError, TaskError};
use crate::protocol::lock::Lock;
use crate::runtime::Inner;
use crate::task::body::Ended;
use crate::task::state::Event;
use crate::task::{Ext, Task, TaskPtr};
use std::cell::Cell;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

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
    /// Written by the owner alone.
    pub(crate) spawned: AtomicU64,
    /// Written under the lock.
    pub(crate) completed: AtomicU64,
    /// The owner's side of the pool.
    pub(crate) pool: Cell<Pool>,
    shared: Lock<Shared>,
}

struct Shared {
    returned: Pool,
    error: Option<(u64, TaskError)>,
    first: *const Task,
    /// Who is woken by the last child; 0 for nobody.
    waiter: usize,
}

// SAFETY: `pool` is the owner's, the chain the registry's; the rest is immutable, atomic or behind the lock.
unsafe impl Sync for NurseryCore {}
// SAFETY: a list of tasks is not of a thread.
unsafe impl Send for Shared {}

/// What the last child must do.
#[must_use]
pub(crate) enum ChildDone {
    Nothing,
    Wake(usize),
}

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
            spawned: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            pool: Cell::new(pool),
            shared: Lock::new(Shared { returned: Pool::ZERO, error: None, first: null(), waiter: 0 }),
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
        self.spawned.load(Ordering::Relaxed) - self.completed.load(Ordering::Relaxed)
    }

    /// Moves what children gave back to the owner's side. The owner only.
    pub(crate) fn collect(&self) {
        let returned = std::mem::take(&mut self.shared.lock().returned);
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
        let mut shared = self.shared.lock();
        task.prev.set(null());
        task.next.set(shared.first);
        if let Some(next) = TaskPtr::from_raw(shared.first) {
            next.prev.set(task);
        }
        shared.first = task;
        task.listed.store(true, Ordering::Relaxed);
        if self.is_cancelled() {
            task.cancel.store(true, Ordering::SeqCst);
        }
    }

    fn delist(shared: &mut Shared, task: &Task) {
        match TaskPtr::from_raw(task.prev.get()) {
            Some(prev) => prev.next.set(task.next.get()),
            None => shared.first = task.next.get(),
        }
        if let Some(next) = TaskPtr::from_raw(task.next.get()) {
            next.prev.set(task.prev.get());
        }
        task.listed.store(false, Ordering::Relaxed);
    }

    /// A task leaves the list, before its record can be used again.
    pub(crate) fn forget(&self, task: &Task) {
        if task.listed.load(Ordering::Relaxed) {
            Self::delist(&mut self.shared.lock(), task);
        }
    }

    /// `children` have ended, and give back what they have left. `id` is that of the one that may have failed.
    pub(crate) fn children_done(&self, children: u64, id: u64, left: &Pool, ended: Ended) -> ChildDone {
        let mut shared = self.shared.lock();
        shared.returned.put(left);
        if let Ended::Failed(error) = ended {
            if shared.error.is_none() {
                shared.error = Some((id, error));
            }
            self.cancel_locked(&shared);
            self.fail_locked();
        }
        let completed = self.completed.load(Ordering::Relaxed) + children;
        // Release: whoever reads the count without the lock, to see that all are done, sees what they wrote.
        self.completed.store(completed, Ordering::Release);
        if shared.waiter != 0 && completed == self.spawned.load(Ordering::Relaxed) {
            ChildDone::Wake(std::mem::take(&mut shared.waiter))
        } else {
            ChildDone::Nothing
        }
    }

    /// Tells all children to stop, and interrupts those that wait.
    pub(crate) fn cancel(&self, error: Option<TaskError>) -> bool {
        tracing::debug!(target: "mainspring", nursery = self.id, "cancel");
        let mut shared = self.shared.lock();
        if matches!(self.state(), NurseryState::Closed | NurseryState::Cancelled) {
            return false;
        }
        let fails = error.is_some();
        if let Some(error) = error
            && shared.error.is_none()
        {
            shared.error = Some((0, error));
        }
        self.cancel_locked(&shared);
        if fails {
            self.fail_locked();
        }
        true
    }

    /// What the owner does inside the nursery is over too: it is interrupted, up to the nursery's end.
    fn fail_locked(&self) {
        self.failed.store(true, Ordering::SeqCst);
        if let Some(owner) = TaskPtr::from_raw(self.owner) {
            // The flag before the state, as for all cancellations.
            owner.scope_failed.store(true, Ordering::SeqCst);
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
        let mut next = TaskPtr::from_raw(shared.first);
        while let Some(task) = next {
            next = TaskPtr::from_raw(task.next.get());
            // SeqCst: the flag before the state; a task commits to a wait and then looks at the flag.
            task.cancel.store(true, Ordering::SeqCst);
            task.wake(Event::Interrupt);
        }
    }

    /// Announces who waits for the last child. False if there is none to wait for.
    pub(crate) fn wait(&self, waiter: usize) -> bool {
        let mut shared = self.shared.lock();
        if self.completed.load(Ordering::Relaxed) == self.spawned.load(Ordering::Relaxed) {
            shared.waiter = 0;
            return false;
        }
        shared.waiter = waiter;
        true
    }

    /// The block has ended: no more spawns. Returns whether children are left.
    pub(crate) fn close(&self) -> bool {
        let _shared = self.shared.lock();
        let active = self.live() > 0;
        let _ = self.step(if active { NurseryEvent::CloseActive } else { NurseryEvent::CloseEmpty });
        active
    }

    /// All children have ended: the final state, the first error and what is left of the pool.
    pub(crate) fn finish(&self) -> (NurseryState, Option<(u64, TaskError)>, Pool) {
        let mut shared = self.shared.lock();
        debug_assert_eq!(self.live(), 0);
        let _ = self.step(NurseryEvent::AllDone);
        let mut pool = self.pool.get();
        pool.put(&std::mem::take(&mut shared.returned));
        self.pool.set(Pool::ZERO);
        (self.state(), shared.error.take(), pool)
    }

    /// Puts budget into a child's mail and makes it Ready if it waits for that. The pool was paid by the caller.
    pub(crate) fn mail(&self, task: &Task, amount: &Budget) -> Result<(), RechargeError> {
        let _shared = self.shared.lock();
        if task.state.get().is_final() {
            return Err(RechargeError::Finished);
        }
        // SAFETY: under the nursery's lock.
        let ext = unsafe { task.ext_mut() };
        let mut mail = ext.mail;
        let over = mail.add(*amount);
        let mut held = task.budget();
        let too_much = held.add(mail);
        for rest in [over, too_much] {
            if let Some(unpayable) = Budget::ZERO.lacking(&rest) {
                return Err(RechargeError::WouldOverflow(unpayable.component));
            }
        }
        ext.mail = mail;
        task.wake(Event::Recharge);
        Ok(())
    }

    /// Takes a task's mail out. The task itself only.
    pub(crate) fn take_mail(&self, task: &Task) -> Budget {
        self.with_ext(task, |ext| ext.map_or(Budget::ZERO, |ext| std::mem::take(&mut ext.mail)))
    }

    /// Looks at the rare fields of a child, if it has any.
    pub(crate) fn with_ext<R>(&self, task: &Task, f: impl FnOnce(Option<&mut Ext>) -> R) -> R {
        let _shared = self.shared.lock();
        // SAFETY: under the nursery's lock.
        f(unsafe { (*task.ext.get()).as_deref_mut() })
    }

    /// Changes the rare fields of a child.
    pub(crate) fn change_ext<R>(&self, task: &Task, f: impl FnOnce(&mut Ext) -> R) -> R {
        let _shared = self.shared.lock();
        // SAFETY: under the nursery's lock.
        f(unsafe { task.ext_mut() })
    }

    /// Takes a refill from the children's side of the pool, for a child that ran out. Only what was returned is within a
    /// child's reach without disturbing the owner.
    pub(crate) fn refill(&self, amount: &Budget) -> bool {
        self.shared.lock().returned.take(&Pool::from(*amount)).is_ok()
    }

    /// Moves the owner's side to the children's side, so that refills can be paid while the owner waits.
    pub(crate) fn lend_pool(&self) {
        let pool = self.pool.replace(Pool::ZERO);
        self.shared.lock().returned.put(&pool);
    }
}
