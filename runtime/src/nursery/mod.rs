//! Nurseries: scopes that own tasks.
//!
//! Conserved: every task belongs to one nursery for its whole life, and control does not pass the end of a nursery while a
//! child is unfinished: [`Cx::nursery`](crate::Cx::nursery) waits on every way out, panics included. That is what lets
//! children borrow from around it.
#![allow(unsafe_code)]

mod builder;
pub(crate) mod core;
mod handle;
mod hunger;
pub(crate) mod join_set;
mod open;
mod pool;
mod scope;
mod spawner;
pub mod state;

pub use self::core::Exhaustion;
pub use builder::SpawnBuilder;
pub use handle::Handle;
pub use join_set::JoinSet;
pub use open::{Canceller, OpenNursery};
use scope::await_children_blocking;
pub(crate) use scope::{
    Source, await_children, fails_around, fails_in_cleanup, give_back, host_nursery, interruptible, prepaid,
    take_for_message, task_nursery,
};
pub use spawner::{Spawner, ThreadSpawner};

use self::core::{NurseryCore, Whose};
use crate::audit;
use crate::budget::{Budget, Pool};
use crate::calls;
use crate::caps::Caps;
use crate::cx::{Cx, TaskId};
use crate::error::{RechargeError, SpawnError, TaskError};
use crate::profile::Profile;
use crate::protocol::fair_tasks::Schedule;
use crate::quota::{self, Quota, QuotaError};
use crate::spans;
use crate::task::body::{self, StopUnwind};
use crate::task::{Runnable, TaskPtr};
use crate::worker::BACKLOG;
use mainspring_abi::ContextRef;
use state::NurseryState;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How a nursery ended, if not well: the first error, and whose it was.
#[derive(Debug)]
pub struct NurseryError {
    /// The child that failed first, if it was a child.
    pub task: Option<TaskId>,
    /// The name that its spawner gave it.
    pub name: Option<&'static str>,
    /// Its error.
    pub error: TaskError,
}

impl NurseryError {
    fn of(whose: Whose, error: TaskError) -> Self {
        Self { task: (whose.id != 0).then_some(TaskId(whose.id)), name: whose.name, error }
    }
}

impl fmt::Display for NurseryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.task, self.name) {
            (Some(TaskId(id)), Some(name)) => write!(f, "task {id} ({name}): {}", self.error),
            (Some(TaskId(id)), None) => write!(f, "task {id}: {}", self.error),
            (None, _) => self.error.fmt(f),
        }
    }
}

impl std::error::Error for NurseryError {}

/// What the admission of a thread to a core takes the time of: some microseconds.
const ADMISSION_OPS: u32 = 256;

/// How a nursery is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct NurseryOptions {
    pool: Option<Pool>,
    caps: Option<Caps>,
    deadline: Option<Duration>,
    on_exhausted: Exhaustion,
    isolates: bool,
}

impl NurseryOptions {
    /// The defaults: the task's own pool, or half of its budget, or half of the pool of the nursery that the task has open
    /// around this one; the task's capabilities; no deadline.
    pub fn new() -> Self {
        Self::default()
    }

    /// The pool to take from the opening task.
    #[must_use]
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// What the children may do at most.
    #[must_use]
    pub fn caps(mut self, caps: Caps) -> Self {
        self.caps = Some(caps);
        self
    }

    /// Cancels the nursery when this much time has passed.
    #[must_use]
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// A child that fails does not take its siblings and the body of the nursery with it: its error is its handle's, and
    /// [`Nursery::failures`] counts it.
    #[must_use]
    pub fn isolate(mut self) -> Self {
        self.isolates = true;
        self
    }

    /// What happens to a child that runs out of budget.
    #[must_use]
    pub fn on_exhausted(mut self, exhaustion: Exhaustion) -> Self {
        self.on_exhausted = exhaustion;
        self
    }
}

/// Where in a worker's queues a new task goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Where any worker may take it; the spawner takes its newest first.
    #[default]
    Normal,
    /// Next on the spawner's worker.
    High,
}

/// A scope that owns tasks. Only the task or thread that opened it spawns into it:
///
/// ```compile_fail,E0277
/// # use mainspring::{Config, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// runtime.run(|cx| {
///     cx.nursery(|n| {
///         n.start(|_| drop(n.start(|_| ()))).unwrap(); // a child opens a nursery of its own
///     })
/// });
/// ```
///
/// Children borrow from around the nursery, not from inside, which ends before they do:
///
/// ```compile_fail,E0373
/// # use mainspring::{Config, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// runtime.run(|cx| {
///     cx.nursery(|n| {
///         let inside = String::from("gone when this closure returns");
///         n.start(|_| println!("{inside}")).unwrap();
///     })
/// });
/// ```
///
/// Neither the nursery nor a handle leaves the scope:
///
/// ```compile_fail
/// # use mainspring::{Config, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// runtime.run(|cx| {
///     let late = cx.nursery(|n| n.spawn(|_| 1).unwrap()).unwrap();
///     late.join(cx)
/// });
/// ```
pub struct Nursery<'scope, 'env: 'scope> {
    core: &'scope NurseryCore,
    owner: Option<TaskPtr>,
    /// Of a [`Spawner`]: `owner` is another task than the one that opened it, and this is what it may give a child.
    guest: Option<Caps>,
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
    _of_its_owner: PhantomData<*const ()>,
}

impl fmt::Debug for Nursery<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nursery")
            .field("id", &self.core.id)
            .field("state", &self.core.state())
            .finish_non_exhaustive()
    }
}

impl<'scope, 'env> Nursery<'scope, 'env> {
    fn of(core: &'scope NurseryCore, owner: Option<TaskPtr>) -> Self {
        Self { core, owner, guest: None, _scope: PhantomData, _env: PhantomData, _of_its_owner: PhantomData }
    }

    /// Spawns a child with the default budget. It may borrow from around the nursery.
    #[cfg_attr(feature = "console", track_caller)]
    pub fn spawn<F, T>(&self, f: F) -> Result<Handle<'scope, T>, SpawnError>
    where
        F: FnOnce(&Cx) -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.launch(move |cx: &Cx| Ok(f(cx)))
    }

    /// Spawns a child whose result is not asked for: cheaper than a spawn whose handle is dropped. The nursery waits for it
    /// as for any other.
    #[cfg_attr(feature = "console", track_caller)]
    pub fn start<F>(&self, f: F) -> Result<(), SpawnError>
    where
        F: FnOnce(&Cx) + Send + 'scope,
    {
        let body = move |cx: &Cx| {
            f(cx);
            Ok(())
        };
        match self.admit_default() {
            Some(grant) => {
                let task = self.bear(grant, false);
                // SAFETY: the closure borrows what outlives 'scope, and the scope waits for the task.
                unsafe { body::put_closure(&task, body) };
                self.queue(task, Priority::Normal);
            }
            None => {
                // SAFETY: as above.
                self.builder().publish(false, |task| unsafe { body::put_closure(task, body) })?;
            }
        }
        self.pay_for_spawn();
        Ok(())
    }

    /// Spawns a child whose error fails the nursery.
    #[cfg_attr(feature = "console", track_caller)]
    pub fn spawn_try<F, T, E>(&self, f: F) -> Result<Handle<'scope, T>, SpawnError>
    where
        F: FnOnce(&Cx) -> Result<T, E> + Send + 'scope,
        T: Send + 'scope,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.launch(move |cx: &Cx| f(cx).map_err(|error| TaskError::Failed(error.into())))
    }

    #[inline]
    #[cfg_attr(feature = "console", track_caller)]
    fn launch<F, T>(&self, f: F) -> Result<Handle<'scope, T>, SpawnError>
    where
        F: FnOnce(&Cx) -> Result<T, TaskError> + Send + 'scope,
        T: Send + 'scope,
    {
        let Some(grant) = self.admit_default() else { return self.builder().launch(f) };
        let task = self.bear(grant, true);
        // SAFETY: the closure borrows what outlives 'scope, and the scope waits for the task.
        unsafe { body::put_closure(&task, f) };
        self.queue(task, Priority::Normal);
        // The handle first: the check below may unwind, and then lets go of the child.
        let handle = Handle::new(task, self.core);
        self.pay_for_spawn();
        Ok(handle)
    }

    /// Pays for the usual spawn: by a task, with no options, of a child for whose default grant the pool has enough. `None`
    /// if anything is otherwise, and then nothing was taken.
    #[inline(always)]
    fn admit_default(&self) -> Option<Budget> {
        let core = self.core;
        self.owner?.probe_stack();
        let cap = core.caps.spawn()?;
        let may = self.guest.is_none()
            && core.state() == NurseryState::Open
            && core.live() < cap.task_limit().into()
            && core.spawns_plainly.load(Ordering::Relaxed);
        let grant = Budget { spawn_count: 0, ..cap.child_budget() };
        (may && core.pay_for_child(&grant)).then_some(grant)
    }

    /// A child that has been paid for, with nothing to run yet. No other thread knows of it.
    #[inline(always)]
    #[cfg_attr(feature = "console", track_caller)]
    fn bear(&self, budget: Budget, has_handle: bool) -> TaskPtr {
        let rt = self.core.rt();
        let (task, id, entity) = match self.owner {
            Some(owner) => {
                let worker = owner.worker();
                let entity = owner.entity.load(Ordering::Relaxed);
                (worker.slots.take(&rt.slab), worker.new_task_id(), entity)
            }
            None => (rt.slab.take_shared(), rt.host_task_id(), 0),
        };
        task.born(id, self.core, budget, has_handle);
        task.mark.born(rt);
        task.entity.store(entity, Ordering::Relaxed);
        task.own_stack.store(false, Ordering::Relaxed);
        task
    }

    #[inline(always)]
    fn count_in(&self, task: TaskPtr) {
        // A guest was counted before it was paid for.
        if self.guest.is_none() {
            self.core.wait_group.add();
        }
        task.mark.spawned(&task);
        spans::spawned(task);
    }

    /// Others may run it from here on, as the thread that was claimed for it.
    fn seat(&self, task: TaskPtr, thread: usize, schedule: &Schedule, context: Option<ContextRef>) {
        self.count_in(task);
        let here = self.owner.map(|owner| owner.worker().index);
        self.core.rt().admit_thread(Runnable::newborn(task), thread, schedule, context, here);
        if let Some(owner) = self.owner {
            owner.look_up_sooner(ADMISSION_OPS);
        }
    }

    /// Others may run it from here on.
    #[inline(always)]
    fn queue(&self, task: TaskPtr, priority: Priority) {
        let Some(worker) = self.owner.map(|owner| owner.worker.get()) else {
            let rt = self.core.rt();
            if self.guest.is_some() {
                self.count_in(task);
                return rt.inject(Runnable::newborn(task), true);
            }
            return rt.hand_over(|| {
                self.count_in(task);
                rt.inject(Runnable::newborn(task), true);
            });
        };
        self.count_in(task);
        // SAFETY: the owner runs this, on its worker.
        let worker = unsafe { &*worker };
        if priority == Priority::High {
            worker.push_woken(Runnable::newborn(task));
        } else {
            worker.push_spawned(Runnable::newborn(task));
        }
    }

    pub(crate) fn core(&self) -> &NurseryCore {
        self.core
    }

    /// Binds the quota to the children that are spawned from here on, and to all tasks below them. A nursery of a task that has a
    /// quota has that from the start, and takes a part of it ([`Quota::share`]).
    pub fn bind_quota(&self, quota: &Quota) -> Result<(), QuotaError> {
        calls::count_poll();
        let own = self.owner.and_then(|owner| quota::quota_of(&owner));
        quota.may_be_bound(self.core.rt(), own.as_ref())?;
        if self.core.live() > 0 {
            return Err(QuotaError::HasChildren);
        }
        self.core.set_quota(quota.clone());
        Ok(())
    }

    /// A spawn with options.
    pub fn builder(&self) -> SpawnBuilder<'_, 'scope, 'env> {
        SpawnBuilder {
            nursery: self,
            budget: None,
            ext: None,
            stack_size: None,
            priority: Priority::Normal,
            tenant: None,
            schedule: None,
            context: None,
            quota: None,
        }
    }

    /// What the owner tried by a capability; a host has all authority, and no capability.
    pub(crate) fn audited<T>(
        &self,
        capability: &'static str,
        operation: &'static str,
        result: Result<T, SpawnError>,
    ) -> Result<T, SpawnError> {
        match self.owner {
            Some(owner) => audit::noted(&Cx::new(owner), capability, operation, result),
            None => result,
        }
    }

    /// A spawn's own op, at a yield point of the spawner's.
    #[inline]
    fn pay_for_spawn(&self) {
        let Some(owner) = self.owner else { return };
        let fuel = owner.fuel.load(Ordering::Relaxed);
        if fuel == 0 || owner.worker().has_backlog() {
            self.pay_and_give_way(owner);
        } else {
            owner.fuel.store(fuel - 1, Ordering::Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn pay_and_give_way(&self, owner: TaskPtr) {
        let cx = Cx::new(owner);
        cx.check();
        // Only of its own children: in a tree of tasks each spawner has few, and one that gave way would have the tree
        // explored in breadth.
        if owner.worker().has_backlog() && self.core.live() > BACKLOG as u64 {
            cx.yield_now();
        }
    }

    /// Tells all children to stop. The nursery takes no more, and ends as Cancelled. False if it is over already.
    pub fn cancel(&self) -> bool {
        calls::count_costly_action();
        self.core.cancel(None)
    }

    /// The nursery's state.
    pub fn state(&self) -> NurseryState {
        calls::count_poll();
        self.core.state()
    }

    /// How many children have not ended.
    pub fn live(&self) -> u64 {
        calls::count_poll();
        self.core.live()
    }

    /// How many children have failed, in a nursery that isolates failures.
    pub fn failures(&self) -> u64 {
        calls::count_poll();
        self.core.failures()
    }

    /// What is left to hand out, what children have given back included.
    pub fn pool(&self) -> Pool {
        calls::count_poll();
        self.core.whole()
    }

    /// Moves more into the pool, from where the nursery's pool came from: the pool of the nursery around it, the task's own
    /// pool, or its budget; for a nursery of an ordinary thread the root pool. A child that waits for budget goes on.
    ///
    /// ```
    /// # use mainspring::{Config, NurseryOptions, Pool, Profile, SpawnError};
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// runtime.run(|cx| {
    ///     let one = NurseryOptions::new().pool(Pool { spawn_count: 1, ..Pool::ZERO });
    ///     cx.nursery_with(one, |n| {
    ///         n.spawn(|_| ()).unwrap();
    ///         assert_eq!(n.spawn(|_| ()).unwrap_err(), SpawnError::SpawnBudgetExhausted);
    ///         n.top_up(Pool { spawn_count: 1, ..Pool::ZERO }).unwrap();
    ///         n.spawn(|_| ()).unwrap();
    ///     })
    /// });
    /// ```
    pub fn top_up(&self, amount: Pool) -> Result<(), RechargeError> {
        calls::count_poll();
        scope::top_up(self.core, self.owner, &amount).map_err(RechargeError::Pool)
    }

    /// Grants a child more budget, out of the pool. A child that waits for budget goes on.
    pub fn recharge<T>(&self, child: &Handle<'scope, T>, amount: Budget) -> Result<(), RechargeError> {
        calls::count_poll();
        let paid = Pool::from(amount);
        self.core.carve(&paid).map_err(RechargeError::Pool)?;
        self.core.mail(child.task(), &amount).inspect_err(|_| self.core.put_back(&paid))
    }

    /// Grants a child more budget by the authority of a supervisor: the owner's `CapBudget`, in the cluster profile. The
    /// amount leaves the pool of the nursery that the owner is a child of, and counts towards the capability's limit.
    pub fn supervise<T>(
        &self,
        cx: &Cx,
        child: &Handle<'scope, T>,
        amount: Budget,
    ) -> Result<(), RechargeError> {
        calls::count(cx);
        audit::noted(cx, "CapBudget", "supervise", self.supervise_by_cap(cx, child, amount))
    }

    fn supervise_by_cap<T>(
        &self,
        cx: &Cx,
        child: &Handle<'scope, T>,
        amount: Budget,
    ) -> Result<(), RechargeError> {
        if self.owner != Some(cx.task_ptr()) || self.core.rt().config.profile != Profile::Cluster {
            return Err(RechargeError::NotASupervisor);
        }
        cx.draw_by_cap(&amount)?;
        self.core.mail(child.task(), &amount).inspect_err(|_| cx.undo_draw(amount))
    }

    /// Waits until all children that were spawned so far have ended; the nursery stays open. The nursery's first error,
    /// if there is one, comes when it ends.
    ///
    /// # Panics
    ///
    /// If `cx` is not the context of the task that opened the nursery.
    pub fn await_all(&self, cx: &Cx) {
        calls::count(cx);
        match self.owner {
            Some(owner) => {
                assert!(
                    owner == cx.task_ptr(),
                    "await_all with the Cx of a task that did not open the nursery"
                );
                await_children(self.core, cx);
            }
            None => await_children_blocking(self.core),
        }
        cx.acknowledge();
    }
}

/// Whether a payload is the runtime's own way of ending a task, which must not be kept from it.
pub fn is_stop(payload: &(dyn std::any::Any + Send)) -> bool {
    payload.is::<StopUnwind>()
}
