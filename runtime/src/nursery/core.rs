//! What a nursery and its children share.
//!
//! Conserved: the pool (`pool.rs`) and the budgets of the live children sum to what the nursery was opened with and topped up
//! with, less what was charged. The scope that holds this record does not end before all children have reported.
#![allow(unsafe_code)]

use super::state::{NurseryEvent, NurseryState};
use crate::budget::{Budget, Pool};
use crate::caps::{CapSpawn, Caps};
use crate::error::{RechargeError, TaskError};
use crate::protocol::asymmetric;
use crate::protocol::claim::Claimable;
use crate::protocol::fair_tasks::Group;
use crate::protocol::hunger::{Hunger, Starving};
use crate::protocol::roster::Roster;
use crate::protocol::wait_group::WaitGroup;
use crate::quota::Quota;
use crate::runtime::Inner;
use crate::spans;
use crate::task::body::Ended;
use crate::task::state::Event;
use crate::task::{Ext, Task, TaskPtr};
use std::cell::Cell;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

/// What happens to a child that runs out of budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exhaustion {
    /// A child that was spawned without a budget of its own takes another default amount from the nursery's pool, as long as
    /// the pool has any. A child with a budget of its own, or one that the pool cannot pay, fails with
    /// [`TaskError::BudgetExhausted`], and with it the nursery.
    #[default]
    RefillOrFail,
    /// It fails with [`TaskError::BudgetExhausted`], and with it the nursery.
    Fail,
    /// It alone ends, with [`TaskError::BudgetCut`]; its siblings go on.
    Cancel,
    /// It takes up to this much from the pool and goes on; it waits while the pool has nothing. It fails with
    /// [`TaskError::BudgetExhausted`] when the owner waits and every child of the nursery waits for budget.
    Refill(Budget),
    /// It waits as BudgetExhausted until [`Nursery::recharge`](crate::Nursery::recharge) or
    /// [`Nursery::supervise`](crate::Nursery::supervise). It fails with [`TaskError::BudgetExhausted`] when the owner waits for
    /// it, by a join or at the end of the nursery, since no other task can recharge it.
    Park,
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
    /// A child that fails does not take the others with it.
    pub(crate) isolates: bool,
    /// Its child is the root task of a [`Runtime::run`](crate::Runtime::run).
    pub(crate) is_run: bool,
    /// What its pool lacks is taken from the root pool: it is the nursery of a run, or one that a root task has opened without a
    /// pool of its own.
    pub(crate) draws_on_root: bool,
    /// How many cleanups its owner was in when it opened it. Its failure stops what the owner does in the last of them.
    pub(crate) cleanups: u8,
    /// It has no pool and no children, and only bounds what its owner does: what the owner opens inside of it takes its pool
    /// from around it.
    pub(crate) is_transparent: bool,
    /// The pool, but for what children have given back since. The lock of its claimants is the one of `wait_group`.
    pub(super) pool: Claimable<Pool>,
    /// The length of `Shared::starving`.
    pub(super) hunger: Hunger,
    pub(crate) wait_group: WaitGroup<Shared>,
    /// Children need nothing that only a builder sees to: the discipline is not by task, and there is no quota.
    pub(crate) spawns_plainly: AtomicBool,
    /// The quota of children whose spawner does not say.
    pub(crate) quota: Mutex<Option<Quota>>,
    /// A context is, or was, bound to it.
    has_context: AtomicBool,
}

/// Lets cancelled tasks go on that wait for the refill of a context. No lock is held: the host may be called. The nursery may be
/// gone by now, and so might the runtime.
fn release(throttled: Option<Arc<Inner>>) {
    if let Some(rt) = throttled {
        rt.release_cancelled();
    }
}

/// The child that an error is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose {
    /// 0 for none.
    pub(crate) id: u64,
    pub(crate) name: Option<&'static str>,
}

impl Whose {
    pub(crate) const NOBODY: Self = Self { id: 0, name: None };
}

pub(crate) struct Shared {
    /// What children have given back.
    pub(super) returned: Pool,
    /// The tasks that wait for budget.
    pub(super) starving: Starving<TaskPtr>,
    error: Option<(Whose, TaskError)>,
    /// Children that have failed alone.
    failures: u64,
    roster: Roster<Task>,
}

// SAFETY: the chain is the registry's; the rest is immutable, atomic or behind the lock.
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
            isolates: false,
            is_run: false,
            draws_on_root: false,
            // SAFETY: null, or the task that opens it.
            cleanups: unsafe { owner.as_ref() }.map_or(0, |owner| owner.mask.get().cleanups()),
            is_transparent: false,
            pool: Claimable::new(pool),
            hunger: Hunger::new(),
            wait_group: WaitGroup::new(Shared {
                returned: Pool::ZERO,
                starving: Starving::default(),
                error: None,
                failures: 0,
                roster: Roster::default(),
            }),
            spawns_plainly: AtomicBool::new(rt.fair_tasks.is_none()),
            quota: Mutex::new(None),
            has_context: AtomicBool::new(false),
        }
    }

    pub(crate) fn rt(&self) -> &Inner {
        // SAFETY: a runtime outlives its nurseries: they are scopes of its tasks, or of threads that hold it.
        unsafe { &*self.rt }
    }

    #[inline]
    pub(crate) fn state(&self) -> NurseryState {
        NurseryState::from_u8(self.state.load(Ordering::SeqCst))
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.state().is_cancelled()
    }

    /// What a child gets when its spawner does not say.
    pub(crate) fn default_budget(&self) -> Budget {
        let profile = self.rt().config.profile;
        if self.owner.is_null() {
            return profile.child_budget();
        }
        self.caps.spawn().map_or(Budget::ZERO, CapSpawn::child_budget)
    }

    pub(crate) fn set_quota(&self, quota: Quota) {
        *self.quota.lock().expect("no panic while it is held") = Some(quota);
        self.spawns_plainly.store(false, Ordering::Relaxed);
    }

    /// A context is bound to it, until it ends.
    pub(crate) fn note_context(&self) {
        // Relaxed: read by the owner, which is the one who binds.
        self.has_context.store(true, Ordering::Relaxed);
    }

    /// The quota of children whose spawner does not say.
    pub(crate) fn usual_quota(&self) -> Option<Quota> {
        self.quota.lock().expect("no panic while it is held").clone()
    }

    /// Children that have not ended.
    pub(crate) fn live(&self) -> u64 {
        self.wait_group.live() as u64
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
        self.wait_group.with(|shared| unsafe { shared.roster.enlist(task, self.is_cancelled()) });
    }

    /// A task leaves the list, before its record can be used again.
    pub(crate) fn forget(&self, task: &Task) {
        if task.listed.load(Ordering::Relaxed) {
            // SAFETY: under the lock.
            self.wait_group.with(|shared| unsafe { shared.roster.delist(task) });
        }
    }

    /// `children` have ended, and give back what they have left. `whose` is the one that may have failed. Returns the
    /// waiter to wake.
    #[must_use = "somebody may have to be woken"]
    pub(crate) fn children_done(
        &self,
        children: u64,
        whose: Whose,
        left: &Pool,
        ended: Ended,
    ) -> Option<usize> {
        let mut throttled = None;
        let waiter = self.wait_group.ended(children as usize, |shared| {
            shared.returned.put(left);
            shared.starving.feed();
            if let Ended::Failed(error) = ended {
                if self.isolates {
                    shared.failures += 1;
                    return;
                }
                shared.error.get_or_insert((whose, error));
                throttled = self.cancel_locked(shared);
                self.fail_locked();
            }
        });
        release(throttled);
        waiter
    }

    pub(crate) fn failures(&self) -> u64 {
        self.wait_group.with(|shared| shared.failures)
    }

    /// Tells all children to stop, and interrupts those that wait.
    pub(crate) fn cancel(&self, error: Option<TaskError>) -> bool {
        spans::event(|| tracing::debug!(target: "mainspring", nursery = self.id, "cancel"));
        let (cancels, throttled) = self.wait_group.with(|shared| {
            if matches!(self.state(), NurseryState::Closed | NurseryState::Cancelled) {
                return (false, None);
            }
            let throttled = self.cancel_locked(shared);
            if let Some(error) = error {
                shared.error.get_or_insert((Whose::NOBODY, error));
                self.fail_locked();
            }
            (true, throttled)
        });
        release(throttled);
        cancels
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

    /// Where children may wait for the refill of a context, the runtime: the caller [`release`]s them when it has left the lock.
    fn cancel_locked(&self, shared: &Shared) -> Option<Arc<Inner>> {
        if !self.step(NurseryEvent::Cancel) {
            return None;
        }
        // SAFETY: the caller holds the lock.
        unsafe { shared.roster.interrupt_all() };
        self.rt().has_contexts().then(|| self.rt().memory())
    }

    /// The block has ended: no more spawns. Returns whether children are left.
    pub(crate) fn close(&self) -> bool {
        self.wait_group.with(|_| {
            let active = self.live() > 0;
            let _ = self.step(if active { NurseryEvent::CloseActive } else { NurseryEvent::CloseEmpty });
            active
        })
    }

    /// All children have ended: the final state, the first error and what is left of the pool.
    pub(crate) fn finish(&self) -> (NurseryState, Option<(Whose, TaskError)>, Pool) {
        if let Some(cores) =
            self.rt().fair_tasks.as_ref().filter(|_| self.has_context.load(Ordering::Relaxed))
        {
            cores.end_group(Group::Nursery(self.id));
        }
        self.wait_group.with(|shared| {
            debug_assert_eq!(self.live(), 0);
            let _ = self.step(NurseryEvent::AllDone);
            (self.state(), shared.error.take(), self.empty_pool(shared))
        })
    }

    /// Puts budget into a child's mail and makes it Ready if it waits for that. The pool was paid by the caller.
    pub(crate) fn mail(&self, task: &Task, amount: &Budget) -> Result<(), RechargeError> {
        task.mail_flag.announce();
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
            Ok(())
        })?;
        // The child waits, or a task of its fork tree does.
        self.feed();
        Ok(())
    }

    /// Takes a task's mail out. The task itself only.
    pub(crate) fn take_mail(&self, task: &Task) -> Budget {
        self.with_ext(task, |ext| ext.map_or(Budget::ZERO, |ext| std::mem::take(&mut ext.mail)))
    }

    /// Looks at the rare fields of a child, if it has any.
    pub(crate) fn with_ext<R>(&self, task: &Task, f: impl FnOnce(Option<&mut Ext>) -> R) -> R {
        // SAFETY: under the nursery's lock.
        self.wait_group.with(|_| f(unsafe { (*task.ext.get()).as_deref_mut() }))
    }

    /// Changes the rare fields of a child.
    pub(crate) fn change_ext<R>(&self, task: &Task, f: impl FnOnce(&mut Ext) -> R) -> R {
        // SAFETY: under the nursery's lock.
        self.wait_group.with(|_| f(unsafe { task.ext_mut() }))
    }
}
