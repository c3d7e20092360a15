//! Nurseries: scopes that own tasks.
//!
//! Conserved: every task belongs to one nursery for its whole life, and control does not pass the end of a nursery while a
//! child is unfinished: [`Cx::nursery`](crate::Cx::nursery) waits on every way out, panics included. That is what lets
//! children borrow from around it.
#![allow(unsafe_code)]

pub(crate) mod core;
mod handle;
pub mod state;

pub use self::core::Exhaustion;
pub use handle::Handle;

use self::core::NurseryCore;
use crate::audit;
use crate::budget::{Budget, Pool};
use crate::caps::Caps;
use crate::config::STACK_SIZES;
use crate::cx::{Cx, TaskId};
use crate::error::{RechargeError, SpawnError, TaskError};
use crate::future::FutureBody;
use crate::profile::Profile;
use crate::protocol::lanes::Schedule;
use crate::runtime::Inner;
use crate::task::body::{self, StopUnwind};
use crate::task::{Ext, Task, TaskPtr, WaitReason};
use crate::time::timers::Fire;
use crate::waiter::{ThreadWait, task_word};
use state::NurseryState;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How a nursery ended, if not well: the first error, and whose it was.
#[derive(Debug)]
pub struct NurseryError {
    /// The child that failed first, if it was a child.
    pub task: Option<TaskId>,
    /// Its error.
    pub error: TaskError,
}

impl fmt::Display for NurseryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.task {
            Some(TaskId(id)) => write!(f, "task {id}: {}", self.error),
            None => self.error.fmt(f),
        }
    }
}

impl std::error::Error for NurseryError {}

/// How a nursery is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct NurseryOptions {
    pool: Option<Pool>,
    caps: Option<Caps>,
    deadline: Option<Duration>,
    on_exhausted: Exhaustion,
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

    /// What happens to a child that runs out of budget.
    #[must_use]
    pub fn on_exhausted(mut self, exhaustion: Exhaustion) -> Self {
        self.on_exhausted = exhaustion;
        self
    }
}

/// How often a spawner that is at its limit gives way before it is refused.
const REPORT_TURNS: u32 = 8;

/// Where in a worker's queues a new task goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Where any worker may take it; the spawner takes its newest first.
    #[default]
    Normal,
    /// Next on the spawner's worker.
    High,
}

/// A scope that owns tasks. Only the task or thread that opened it spawns into it.
pub struct Nursery<'scope, 'env: 'scope> {
    core: &'scope NurseryCore,
    owner: Option<TaskPtr>,
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
    _of_its_owner: PhantomData<*const ()>,
}

impl fmt::Debug for Nursery<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nursery")
            .field("id", &self.core.id)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// A spawn with options.
#[must_use = "a builder does nothing until it spawns"]
pub struct SpawnBuilder<'n, 'scope, 'env: 'scope> {
    nursery: &'n Nursery<'scope, 'env>,
    budget: Option<Budget>,
    ext: Option<Box<Ext>>,
    stack_size: Option<usize>,
    priority: Priority,
    tenant: Option<usize>,
    schedule: Option<Schedule>,
}

impl<'scope, 'env> Nursery<'scope, 'env> {
    /// Spawns a child with the default budget. It may borrow from around the nursery.
    pub fn spawn<F, T>(&self, f: F) -> Result<Handle<'scope, T>, SpawnError>
    where
        F: FnOnce(&Cx) -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.launch(move |cx: &Cx| Ok(f(cx)))
    }

    /// Spawns a child whose result nobody asks for: cheaper than a spawn whose handle is dropped. The nursery waits for it as
    /// for any other.
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
    pub fn spawn_try<F, T, E>(&self, f: F) -> Result<Handle<'scope, T>, SpawnError>
    where
        F: FnOnce(&Cx) -> Result<T, E> + Send + 'scope,
        T: Send + 'scope,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.launch(move |cx: &Cx| f(cx).map_err(|error| TaskError::Failed(error.into())))
    }

    #[inline]
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
        let may = core.state() == NurseryState::Open
            && core.live() < cap.task_limit().into()
            && core.rt().lanes.is_none();
        let grant = Budget { spawn_count: 0, ..cap.child_budget() };
        (may && core.pay_for_child(&grant)).then_some(grant)
    }

    /// A child that has been paid for, with nothing to run yet. Nobody else knows of it.
    #[inline(always)]
    fn bear(&self, budget: Budget, has_handle: bool) -> TaskPtr {
        let rt = self.core.rt();
        let (task, id, tenant) = match self.owner {
            Some(owner) => {
                let worker = owner.worker();
                let tenant = owner.tenant.load(Ordering::Relaxed);
                (worker.slots.take(&rt.slab), worker.new_task_id(), tenant)
            }
            None => (rt.slab.take_shared(), rt.host_task_id(), 0),
        };
        task.born(id, self.core, budget, has_handle);
        task.tenant.store(tenant, Ordering::Relaxed);
        task.own_stack.store(false, Ordering::Relaxed);
        task
    }

    #[inline(always)]
    fn count_in(&self, task: TaskPtr) {
        self.core.brood.add();
        let id = task.id.load(Ordering::Relaxed);
        tracing::trace!(target: "mainspring", task = id, nursery = self.core.id, "spawn");
    }

    /// Others may run it from here on, as the thread that was claimed for it.
    fn seat(&self, task: TaskPtr, thread: usize, schedule: &Schedule) {
        self.count_in(task);
        let here = self.owner.map(|owner| owner.worker().index);
        self.core.rt().admit_to_lane(task, thread, schedule, here);
    }

    /// Others may run it from here on.
    #[inline(always)]
    fn queue(&self, task: TaskPtr, priority: Priority) {
        self.count_in(task);
        match self.owner.map(|owner| owner.worker.get()) {
            // SAFETY: the owner runs this, on its worker.
            Some(worker) if priority == Priority::High => unsafe { &*worker }.push_woken(task),
            // SAFETY: as above.
            Some(worker) => unsafe { &*worker }.push_spawned(task),
            None => self.core.rt().inject(task),
        }
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
        if owner.worker().has_backlog() {
            cx.yield_now();
        }
    }

    /// Tells all children to stop. The nursery takes no more, and ends as Cancelled. False if it is over already.
    pub fn cancel(&self) -> bool {
        self.core.cancel(None)
    }

    /// The nursery's state.
    pub fn state(&self) -> NurseryState {
        self.core.state()
    }

    pub(crate) fn children_caps(&self) -> &Caps {
        &self.core.caps
    }

    /// How many children have not ended.
    pub fn live(&self) -> u64 {
        self.core.live()
    }

    /// What is left to hand out, what children have given back included.
    pub fn pool(&self) -> Pool {
        self.core.collect();
        let pool = self.core.pool.get();
        self.core.share_pool();
        pool
    }

    /// Grants a child more budget, out of the pool. A child that waits for budget goes on.
    pub fn recharge<T>(&self, child: &Handle<'scope, T>, amount: Budget) -> Result<(), RechargeError> {
        let paid = Pool::from(amount);
        let carved = self.core.carve(&paid).map_err(RechargeError::Pool);
        let mailed = carved.and_then(|()| {
            self.core.mail(child.task(), &amount).inspect_err(|_| {
                let mut pool = self.core.pool.get();
                pool.put(&paid);
                self.core.pool.set(pool);
            })
        });
        self.core.share_pool();
        mailed
    }

    /// Grants a child more budget by the authority of a supervisor: the owner's `CapBudget`, in the cluster profile.
    pub fn supervise<T>(
        &self,
        cx: &Cx,
        child: &Handle<'scope, T>,
        amount: Budget,
    ) -> Result<(), RechargeError> {
        audit::noted(cx, "CapBudget", "supervise", self.supervise_by_cap(cx, child, amount))
    }

    fn supervise_by_cap<T>(
        &self,
        cx: &Cx,
        child: &Handle<'scope, T>,
        amount: Budget,
    ) -> Result<(), RechargeError> {
        let owner =
            self.owner.filter(|owner| *owner == cx.task_ptr()).ok_or(RechargeError::NotASupervisor)?;
        if self.core.rt().config.profile != Profile::Cluster {
            return Err(RechargeError::NotASupervisor);
        }
        let cap = cx.caps().budget().copied().ok_or(RechargeError::NotPermitted)?;
        if let Some(over) = cap.limit().lacking(&amount) {
            return Err(RechargeError::OverLimit(over));
        }
        debug_assert_eq!(owner, cx.task_ptr());
        self.core.mail(child.task(), &amount)
    }

    /// Waits until all children that were spawned so far have ended; the nursery stays open. The nursery's first error,
    /// if there is one, comes when it ends.
    pub fn await_all(&self, cx: &Cx) {
        await_children(self.core, cx);
        cx.acknowledge();
    }
}

impl<'scope> SpawnBuilder<'_, 'scope, '_> {
    /// The child's budget, taken from the pool; at most what `CapSpawn` allows a child.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    fn ext(&mut self) -> &mut Ext {
        self.ext.get_or_insert_default()
    }

    /// A pool for the nurseries that the child opens, taken from this one.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.ext().estate = Some(pool);
        self
    }

    /// What the child may do: at most what the nursery's children may.
    pub fn caps(mut self, caps: Caps) -> Self {
        let caps = self.nursery.core.caps.intersect(&caps);
        self.ext().caps = Some(caps);
        self
    }

    /// Bytes of stack, if not the usual: 4 KiB to 1 GiB.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// A name for snapshots and traces.
    pub fn name(mut self, name: &'static str) -> Self {
        self.ext().name = Some(name);
        self
    }

    /// Whose share it uses under the fair discipline, if not its spawner's.
    pub fn tenant(mut self, tenant: usize) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// How it is scheduled under the fair discipline by task. Without it: as any thread that is free, with the defaults.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// Where it is queued.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Spawns the child.
    #[inline]
    pub fn spawn<F, T>(self, f: F) -> Result<Handle<'scope, T>, SpawnError>
    where
        F: FnOnce(&Cx) -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.launch(move |cx: &Cx| Ok(f(cx)))
    }

    /// Spawns the child, without a handle.
    pub fn start<F>(self, f: F) -> Result<(), SpawnError>
    where
        F: FnOnce(&Cx) + Send + 'scope,
    {
        let body = move |cx: &Cx| {
            f(cx);
            Ok(())
        };
        let nursery = self.nursery;
        // SAFETY: the closure borrows what outlives 'scope, and the scope waits for the task.
        self.publish(false, |task| unsafe { body::put_closure(task, body) })?;
        nursery.pay_for_spawn();
        Ok(())
    }

    /// Spawns a child whose error fails the nursery.
    pub fn spawn_try<F, T, E>(self, f: F) -> Result<Handle<'scope, T>, SpawnError>
    where
        F: FnOnce(&Cx) -> Result<T, E> + Send + 'scope,
        T: Send + 'scope,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.launch(move |cx: &Cx| f(cx).map_err(|error| TaskError::Failed(error.into())))
    }

    /// Decides: which budget, and whether the pool and the capabilities allow it.
    #[inline(never)]
    fn admit(&self) -> Result<(Budget, Pool), SpawnError> {
        let core = self.nursery.core;
        if core.state() != NurseryState::Open {
            return Err(SpawnError::NurseryNotActive);
        }
        let mut most = Budget::MAX;
        let mut default = core.rt().config.profile.child_budget();
        if self.nursery.owner.is_some() {
            let cap = core.caps.spawn().ok_or(SpawnError::NotPermitted)?;
            let sovereign = core.rt().config.profile == Profile::Sovereign;
            if sovereign && self.budget.is_some() && core.caps.budget().is_none() {
                return Err(SpawnError::NotPermitted);
            }
            most = cap.child_budget();
            default = most;
            if core.live() >= cap.task_limit().into() && !self.wait_for_reports(cap.task_limit().into()) {
                return Err(SpawnError::TaskLimit(cap.task_limit()));
            }
        }
        if core.pool.get().spawn_count == 0 {
            core.collect();
            if core.pool.get().spawn_count == 0 {
                return Err(SpawnError::SpawnBudgetExhausted);
            }
        }
        if let Some(size) = self.stack_size
            && !STACK_SIZES.contains(&size)
        {
            return Err(SpawnError::StackSize(size));
        }
        if let Some(tenant) = self.tenant
            && tenant >= core.rt().config.tenants.as_ref().map_or(0, Vec::len)
        {
            return Err(SpawnError::NoSuchTenant(tenant));
        }
        if self.schedule.is_some() && core.rt().lanes.is_none() {
            return Err(SpawnError::NotByTask);
        }
        let mut price = Pool { spawn_count: 1, ..Pool::ZERO };
        if let Some(estate) = self.ext.as_ref().and_then(|ext| ext.estate) {
            price.put(&estate);
        }
        let budget = match self.budget {
            Some(budget) => budget.min(most),
            None => {
                if core.pool.get().ops < default.ops.into() {
                    core.collect();
                }
                // What is left when the rest of the price is paid.
                let mut left = core.pool.get();
                left.take(&price).map_err(SpawnError::Pool)?;
                left.child_grant(&default)
            }
        };
        price.put(&budget.into());
        Ok((budget, price))
    }

    /// A child that was joined may not have reported to the nursery yet: gives it a few turns. True if there is room then.
    #[cold]
    fn wait_for_reports(&self, limit: u64) -> bool {
        let Some(owner) = self.nursery.owner else { return false };
        (0..REPORT_TURNS).any(|_| {
            Cx::new(owner).yield_now();
            self.nursery.core.live() < limit
        })
    }

    #[inline]
    fn launch<F, T>(self, f: F) -> Result<Handle<'scope, T>, SpawnError>
    where
        F: FnOnce(&Cx) -> Result<T, TaskError> + Send + 'scope,
        T: Send + 'scope,
    {
        let (nursery, core) = (self.nursery, self.nursery.core);
        // SAFETY: the closure borrows what outlives 'scope, and the scope waits for the task.
        let task = self.publish(true, |task| unsafe { body::put_closure(task, f) })?;
        // The handle first: the check below may unwind, and then lets go of the child.
        let handle = Handle::new(task, core);
        nursery.pay_for_spawn();
        Ok(handle)
    }

    pub(crate) fn launch_future<F>(
        self,
        future: FutureBody<F>,
    ) -> Result<Handle<'scope, F::Output>, SpawnError>
    where
        F: Future + Send + 'scope,
        F::Output: Send + 'scope,
    {
        let (nursery, core) = (self.nursery, self.nursery.core);
        // SAFETY: the future borrows what outlives 'scope, and the scope waits for the task.
        let task = self.publish(true, |task| unsafe { body::put_future(task, future) })?;
        // The handle first: the check below may unwind, and then lets go of the child.
        let handle = Handle::new(task, core);
        nursery.pay_for_spawn();
        Ok(handle)
    }

    /// Under the fair discipline by task, the thread that the child will be.
    #[inline]
    fn claim_thread(&self) -> Result<Option<usize>, SpawnError> {
        let Some(lanes) = &self.nursery.core.rt().lanes else { return Ok(None) };
        let default = Schedule::default();
        let thread = lanes.claim(self.schedule.as_ref().unwrap_or(&default));
        thread.map(Some).map_err(SpawnError::Thread)
    }

    /// Pays for a task, makes it, and queues it. `fill` puts a body with a result of type `T` into its empty slot.
    fn publish(mut self, has_handle: bool, fill: impl FnOnce(&Task)) -> Result<TaskPtr, SpawnError> {
        if let Some(owner) = self.nursery.owner {
            owner.probe_stack();
        }
        let (nursery, core) = (self.nursery, self.nursery.core);
        let paid = self
            .admit()
            .or_else(|error| {
                // A spawn that goes well is traced as such.
                self.nursery.audited("CapSpawn", "spawn", Err(error))
            })
            .and_then(|(budget, price)| {
                let thread = self.claim_thread()?;
                core.carve(&price).map(|()| (budget, thread)).map_err(|unpayable| {
                    if let (Some(lanes), Some(thread)) = (&core.rt().lanes, thread) {
                        lanes.release(thread);
                    }
                    SpawnError::Pool(unpayable)
                })
            });
        core.share_pool();
        let (budget, thread) = paid?;
        if let Some(size) = self.stack_size {
            self.ext().stack_size = Some(size);
        }
        let task = nursery.bear(budget, has_handle);
        if let Some(share) = thread.or(self.tenant) {
            task.tenant.store(share as u16, Ordering::Relaxed);
        }
        task.own_stack.store(self.stack_size.is_some(), Ordering::Relaxed);
        // SAFETY: the task is not published yet.
        unsafe { *task.ext.get() = self.ext };
        fill(&task);
        match thread {
            Some(thread) => nursery.seat(task, thread, &self.schedule.unwrap_or_default()),
            None => nursery.queue(task, self.priority),
        }
        Ok(task)
    }
}

/// Whether a nursery further out that the same task has open has failed.
fn fails_around(mut core: *const NurseryCore) -> bool {
    // SAFETY: null, or a nursery of a frame around this one.
    while let Some(around) = unsafe { core.as_ref() } {
        if around.has_failed() {
            return true;
        }
        core = around.outer;
    }
    false
}

fn is_cancellation(payload: &(dyn std::any::Any + Send)) -> bool {
    payload.downcast_ref::<StopUnwind>().is_some_and(|stop| matches!(stop.0, TaskError::Cancelled))
}

/// The end of a nursery: its result, or the first error. `interrupted`: the nursery's failure interrupted its body.
fn outcome<R>(
    core: &NurseryCore,
    result: std::thread::Result<R>,
    interrupted: bool,
) -> (Pool, std::thread::Result<Result<R, NurseryError>>) {
    let (state, error, pool) = core.finish();
    let result = match (result, error) {
        (Err(payload), Some((task, error))) if interrupted && is_cancellation(&*payload) => {
            Ok(Err(NurseryError { task: (task != 0).then_some(TaskId(task)), error }))
        }
        // What stopped the owner inside its own nursery goes on; it was not the nursery's error.
        (Err(payload), _) => Err(payload),
        (Ok(_), Some((task, error))) => {
            Ok(Err(NurseryError { task: (task != 0).then_some(TaskId(task)), error }))
        }
        (Ok(_), None) if state == NurseryState::Cancelled => {
            Ok(Err(NurseryError { task: None, error: TaskError::Cancelled }))
        }
        (Ok(value), None) => Ok(Ok(value)),
    };
    (pool, result)
}

pub(crate) fn task_nursery<'env, F, R>(cx: &Cx, options: NurseryOptions, f: F) -> Result<R, NurseryError>
where
    F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> R,
{
    let task = cx.task();
    cx.probe_stack();
    let (pool, source) = take_pool(cx, options.pool).map_err(|unpayable| NurseryError {
        task: None,
        error: TaskError::Failed(SpawnError::Pool(unpayable).into()),
    })?;
    let mine = cx.caps();
    let caps = options.caps.map_or(mine, |caps| mine.intersect(&caps));
    let core = NurseryCore::new(
        cx.rt(),
        task,
        cx.id().0,
        task.owned.load(Ordering::Relaxed),
        caps,
        options.on_exhausted,
        pool,
    );
    core.share_pool();
    cx.rt().registry.enter(&core);
    if !task.listed.load(Ordering::Relaxed) {
        task.nursery().enlist(task);
    }
    task.owned.store((&raw const core).cast_mut(), Ordering::Relaxed);
    let deadline = options.deadline.map(|after| {
        let due = cx.rt().timers.now_ns().saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        cx.rt().add_timer(due, Fire::Deadline(&raw const core))
    });
    let nursery = Nursery {
        core: &core,
        owner: Some(cx.task_ptr()),
        _scope: PhantomData,
        _env: PhantomData,
        _of_its_owner: PhantomData,
    };
    // The scope must not end before its children, so every unwind stops here first.
    let result = catch_unwind(AssertUnwindSafe(|| f(&nursery)));
    if result.is_err() {
        core.cancel(None);
    }
    if core.close() {
        await_children(&core, cx);
    }
    if let Some(key) = deadline {
        cx.rt().timers.remove(key);
    }
    task.owned.store(core.outer.cast_mut(), Ordering::Relaxed);
    cx.rt().registry.leave(&core);
    task.scope_failed.store(fails_around(core.outer), Ordering::SeqCst);
    let interrupted = core.has_failed() && !task.is_cancelled();
    let (pool, result) = outcome(&core, result, interrupted);
    give_back(cx, &core, pool, source);
    match result {
        Ok(result) => {
            cx.acknowledge();
            result
        }
        Err(payload) => resume_unwind(payload),
    }
}

/// Where a nursery's pool came from, and goes back to.
#[derive(Clone, Copy)]
enum Source {
    /// The pool of the nursery around it, of the same task.
    Around,
    /// The task's own pool, or its budget.
    Task,
}

/// Takes a nursery's pool from its opener: from the pool of the nursery around it, from the task's own pool, or from its
/// budget.
fn take_pool(cx: &Cx, asked: Option<Pool>) -> Result<(Pool, Source), crate::budget::Unpayable> {
    let task = cx.task();
    // SAFETY: null, or a nursery of a frame around this one.
    if let Some(around) = unsafe { task.owned.load(Ordering::Relaxed).as_ref() } {
        around.collect();
        let pool = asked.unwrap_or_else(|| around.pool.get().part(2));
        let carved = around.carve(&pool).map(|()| (pool, Source::Around));
        around.share_pool();
        return carved;
    }
    let from_estate = task.nursery().with_ext(task, |ext| {
        let estate = ext?.estate.as_mut()?;
        let pool = asked.unwrap_or(*estate);
        Some(estate.take(&pool).map(|()| (pool, Source::Task)))
    });
    if let Some(result) = from_estate {
        return result;
    }
    let budget = task.budget();
    let half = Pool { spawn_count: budget.spawn_count.into(), ..Pool::from(budget).part(2) };
    let pool = asked.unwrap_or(half);
    let mut left = Pool::from(budget);
    left.take(&pool)?;
    let had = task.exhausted.load(Ordering::Relaxed);
    task.write_budget(left.narrow());
    task.exhausted.store(had, Ordering::Relaxed);
    Ok((pool, Source::Task))
}

/// What a nursery had left goes back.
fn give_back(cx: &Cx, core: &NurseryCore, pool: Pool, source: Source) {
    match source {
        Source::Task => cx.take_back(pool),
        Source::Around => {
            // SAFETY: the nursery that the pool came from, of a frame around this one.
            let around = unsafe { &*core.outer };
            let mut all = around.pool.get();
            all.put(&pool);
            around.pool.set(all);
            around.share_pool();
        }
    }
}

/// Blocks the task until all children have ended. A cancelled owner cancels its nursery and goes on waiting.
pub(crate) fn await_children(core: &NurseryCore, cx: &Cx) {
    let task = cx.task();
    let was_masked = task.masked.load(Ordering::Relaxed);
    core.lend_pool();
    while core.brood.wait(task_word(cx.task_ptr())) {
        if cx.must_stop() {
            core.cancel(None);
            // The children are told; until they have ended there is nothing to acknowledge.
            task.masked.store(true, Ordering::Relaxed);
        }
        cx.block(WaitReason::NurseryAwait);
    }
    task.masked.store(was_masked, Ordering::Relaxed);
    core.collect();
    core.share_pool();
}

pub(crate) fn host_nursery<'env, F, R>(rt: &Inner, options: NurseryOptions, f: F) -> Result<R, NurseryError>
where
    F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> R,
{
    let pool = {
        let mut root = rt.pool.lock().expect("no panic while it is held");
        let pool = options.pool.unwrap_or(*root);
        root.take(&pool).map_err(|unpayable| NurseryError {
            task: None,
            error: TaskError::Failed(SpawnError::Pool(unpayable).into()),
        })?;
        pool
    };
    let root_caps = rt.config.root_caps;
    let caps = options.caps.map_or(root_caps, |caps| root_caps.intersect(&caps));
    let core = NurseryCore::new(rt, null(), 0, null(), caps, options.on_exhausted, pool);
    core.share_pool();
    rt.registry.enter(&core);
    let deadline = options.deadline.map(|after| {
        let due = rt.timers.now_ns().saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        rt.add_timer(due, Fire::Deadline(&raw const core))
    });
    rt.note_host_nursery(&core, true);
    let nursery = Nursery {
        core: &core,
        owner: None,
        _scope: PhantomData,
        _env: PhantomData,
        _of_its_owner: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| f(&nursery)));
    if result.is_err() {
        core.cancel(None);
    }
    if core.close() {
        core.lend_pool();
        let thread = Arc::new(ThreadWait::default());
        loop {
            let word = thread.word();
            if !core.brood.wait(word) {
                ThreadWait::take_back(word);
                break;
            }
            thread.wait(None);
        }
    }
    if let Some(key) = deadline {
        rt.timers.remove(key);
    }
    rt.note_host_nursery(&core, false);
    rt.registry.leave(&core);
    let (pool, result) = outcome(&core, result, false);
    rt.pool.lock().expect("no panic while it is held").put(&pool);
    match result {
        Ok(result) => result,
        Err(payload) => resume_unwind(payload),
    }
}

/// Whether a payload is the runtime's own way of ending a task, which must not be kept from it.
pub fn is_stop(payload: &(dyn std::any::Any + Send)) -> bool {
    payload.is::<StopUnwind>()
}
