//! A spawn with options: what it asks for is paid and claimed, or nothing is taken.
#![allow(unsafe_code)]

use super::spawner::Counted;
use super::state::NurseryState;
use super::{Handle, Nursery, Priority};
use crate::budget::{Budget, Component, Pool};
use crate::calls;
use crate::caps::{Caps, Held};
use crate::config::STACK_SIZES;
use crate::context::{ContextError, SchedulingContext};
use crate::cx::Cx;
use crate::error::{SpawnError, TaskError};
use crate::future::FutureBody;
use crate::profile::Profile;
use crate::protocol::fair_tasks::{FairTasks, Schedule, Standing};
use crate::quota::{self, Quota, TaskQuota};
use crate::runtime::Inner;
use crate::task::body::{self};
use crate::task::{Ext, Task, TaskPtr};
use mainspring_abi::{ContextRef, Nanos};
use mainspring_driver::ledgers::LedgerRef;
use std::future::Future;
use std::sync::atomic::Ordering;

/// How often a spawner that is at its limit gives way before it is refused.
const REPORT_TURNS: u32 = 8;

/// A spawn with options.
#[must_use = "a builder does nothing until it spawns"]
pub struct SpawnBuilder<'n, 'scope, 'env: 'scope> {
    pub(super) nursery: &'n Nursery<'scope, 'env>,
    pub(super) budget: Option<Budget>,
    pub(super) ext: Option<Box<Ext>>,
    pub(super) stack_size: Option<usize>,
    pub(super) priority: Priority,
    pub(super) tenant: Option<usize>,
    pub(super) schedule: Option<Schedule>,
    pub(super) context: Option<&'n SchedulingContext>,
    pub(super) quota: Option<&'n Quota>,
}

/// What a child has claimed under the fair discipline by task, before it is paid for.
#[derive(Clone, Copy, Default)]
struct Claim {
    /// The thread that it will be.
    thread: Option<usize>,
    /// The context that was set aside for it.
    context: Option<ContextRef>,
    /// What the contexts that it makes are charged to.
    ledger: Option<LedgerRef>,
}

impl Claim {
    /// The child was not spawned.
    fn undo(self, rt: &Inner, cores: &FairTasks) {
        if let Some(thread) = self.thread {
            cores.release(thread);
        }
        if let Some(context) = self.context {
            rt.notify_contexts(&cores.give_up_promise(context, Nanos::new(rt.timers.now_ns())));
        }
        if let Some(ledger) = self.ledger {
            cores.close_ledger(ledger);
        }
    }
}

impl<'n, 'scope> SpawnBuilder<'n, 'scope, '_> {
    /// The child's budget, taken from the pool. It is a bound: the child is not refilled beyond it, unless the nursery says
    /// [`Exhaustion::Refill`](crate::Exhaustion::Refill). More than `CapSpawn` allows a child is refused.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    fn ext(&mut self) -> &mut Ext {
        self.ext.get_or_insert_default()
    }

    /// A pool for the nurseries that the child opens, taken from this one.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.ext().own_pool = Some(pool);
        self
    }

    /// What the child may do: at most what the nursery's children may. What it gets of a `CapBudget`'s limit leaves the
    /// spawner's own, and comes back when the child ends, less what it has drawn. It does not come back to a task that spawns by a
    /// [`Spawner`](crate::Spawner), which may have ended by then.
    pub fn caps(mut self, caps: Caps) -> Self {
        let most = self
            .nursery
            .guest
            .map_or(self.nursery.core.caps, |guest| self.nursery.core.caps.intersect(&guest));
        let held = Held::child(&most, &caps);
        self.ext().caps = Some(held);
        self
    }

    /// Bytes of stack, if not the usual: 16 KiB to 1 GiB.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// A name for snapshots, spans and the errors of the nursery.
    pub fn name(mut self, name: &'static str) -> Self {
        self.ext().name = Some(name);
        self
    }

    /// Whose share it uses under the fair discipline, if not its spawner's. Only the host and tasks of tenant 0 spawn for others.
    pub fn tenant(mut self, tenant: usize) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// How it is scheduled under the fair discipline by task. Without it: as any thread that is free, with the defaults.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// The context that the child runs on from its start, on the context's worker. When the child ends, the context is at rest
    /// again.
    pub fn context(mut self, context: &'n SchedulingContext) -> Self {
        self.context = Some(context);
        self
    }

    /// The quota that the child and all tasks below it share. A task that has one gives that or a part of it ([`Quota::share`]).
    pub fn quota(mut self, quota: &'n Quota) -> Self {
        self.quota = Some(quota);
        self
    }

    /// The quota of the child, if it has one. What its spawner says goes first, then what the spawner has itself, then its tenant's.
    fn quota_of_child(&self) -> Result<Option<Quota>, SpawnError> {
        let (core, owner) = (self.nursery.core, self.nursery.owner);
        let own = owner.and_then(|owner| quota::quota_of(&owner));
        if let Some(quota) = self.quota {
            quota.may_be_bound(core.rt(), own.as_ref()).map_err(SpawnError::Quota)?;
            return Ok(Some(quota.clone()));
        }
        let tenants =
            || self.tenant.and_then(|tenant| core.rt().tenant_quotas.get(tenant).cloned().flatten());
        let usual = core.usual_quota().or_else(tenants);
        // A task that spawns into another's nursery gives no more than it has itself.
        Ok(match own {
            Some(own) => Some(usual.filter(|usual| usual.is_within(&own)).unwrap_or(own)),
            None => usual,
        })
    }

    /// Where it is queued.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Spawns the child.
    #[inline]
    #[cfg_attr(feature = "console", track_caller)]
    pub fn spawn<F, T>(self, f: F) -> Result<Handle<'scope, T>, SpawnError>
    where
        F: FnOnce(&Cx) -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.launch(move |cx: &Cx| Ok(f(cx)))
    }

    /// Spawns the child, without a handle.
    #[cfg_attr(feature = "console", track_caller)]
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
    #[cfg_attr(feature = "console", track_caller)]
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
            // A guest is counted already.
            let limit = u64::from(cap.task_limit()) + u64::from(self.nursery.guest.is_some());
            if core.live() >= limit && !self.wait_for_reports(limit) {
                return Err(SpawnError::TaskLimit(cap.task_limit()));
            }
        }
        let need = Pool::from(self.budget.unwrap_or(Budget { spawn_count: 0, ..default }));
        let need = Pool { spawn_count: need.spawn_count + 1, ..need };
        let at_hand = |is_enough: &dyn Fn(&Pool) -> bool| match self.nursery.guest {
            Some(_) => core.whole_for_others(),
            None => core.at_hand(is_enough),
        };
        core.restock(|| at_hand(&|pool| need.min(pool) == need), &need);
        let mut whole = at_hand(&|pool| pool.spawn_count > 0 && pool.ops >= default.ops.into());
        if whole.spawn_count == 0 {
            return Err(SpawnError::SpawnBudgetExhausted);
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
        // Tenant 0 is the host's own: root tasks are of it.
        if let (Some(tenant), Some(owner)) = (self.tenant, self.nursery.owner) {
            let own = usize::from(owner.entity.load(Ordering::Relaxed));
            if own != 0 && own != tenant {
                return Err(SpawnError::OtherTenant(own));
            }
        }
        if self.schedule.is_some() && core.rt().fair_tasks.is_none() {
            return Err(SpawnError::NotByTask);
        }
        if self.context.is_some_and(|context| !context.is_of(core.rt())) {
            return Err(SpawnError::Context(ContextError::OtherRuntime));
        }
        let mut price = Pool { spawn_count: 1, ..Pool::ZERO };
        if let Some(own_pool) = self.ext.as_ref().and_then(|ext| ext.own_pool) {
            price = price.plus(&own_pool).map_err(SpawnError::Pool)?;
        }
        let budget = match self.budget {
            Some(budget) => {
                most.lacking(&budget).map_or(Ok(budget), |over| Err(SpawnError::OverLimit(over)))?
            }
            None => {
                // What is left when the rest of the price is paid.
                whole.take(&price).map_err(SpawnError::Pool)?;
                whole.child_grant(&default)
            }
        };
        let price = price.plus(&budget.into()).map_err(SpawnError::Pool)?;
        Ok((budget, price))
    }

    /// What the child gets of the right to draw on a pool leaves its spawner's. A host has all authority, and no less after it.
    fn pay_for_caps(&mut self) {
        let Some(owner) = self.nursery.owner else { return };
        let Some(ext) = &mut self.ext else { return };
        let Some(held) = ext.caps.as_mut().filter(|held| held.caps().budget().is_some()) else { return };
        let account = Cx::new(owner).account();
        owner.nursery().change_ext(&account, |spawner| held.paid_by(&mut spawner.caps));
        // A guest may end before the child does, and its record is another task's then.
        ext.caps_from = self.nursery.guest.is_none().then_some(account);
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
    #[cfg_attr(feature = "console", track_caller)]
    pub(super) fn launch<F, T>(self, f: F) -> Result<Handle<'scope, T>, SpawnError>
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

    /// Whether the spawner may spawn futures.
    pub(crate) fn admit_future(&self) -> Result<(), SpawnError> {
        let cap = self.nursery.core.caps.executor().copied().ok_or(SpawnError::NotPermitted);
        self.nursery.audited("CapExecutor", "spawn_future", cap).map(|_| ())
    }

    #[cfg_attr(feature = "console", track_caller)]
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

    /// Under the fair discipline by task: the thread that the child will be, its context, and a ledger if it may make some.
    #[inline]
    fn claim(&mut self) -> Result<Claim, SpawnError> {
        let rt = self.nursery.core.rt();
        let Some(cores) = &rt.fair_tasks else { return Ok(Claim::default()) };
        let mut claim = Claim::default();
        self.claim_of(rt, cores, &mut claim).inspect_err(|_| claim.undo(rt, cores))?;
        Ok(claim)
    }

    fn claim_of(&mut self, rt: &Inner, cores: &FairTasks, claim: &mut Claim) -> Result<(), SpawnError> {
        // The host and the root task of a run may give anything.
        let spawner = self.nursery.owner.filter(|owner| !owner.nursery().is_run);
        let spawner = spawner.map(|owner| cores.standing(owner.entity.load(Ordering::Relaxed).into()));
        let usual = spawner.map_or_else(Schedule::default, Standing::usual);
        if let Some(context) = self.context {
            let now = Nanos::new(rt.timers.now_ns());
            let home = cores.promise_context(context.who(), now);
            let home = home.ok_or(ContextError::NoContexts).and_then(|home| Ok(home?));
            let home = home.map_err(SpawnError::Context)?;
            claim.context = Some(context.who());
            let schedule = self.schedule.get_or_insert_with(|| usual.clone());
            if schedule.workers.as_ref().is_some_and(|workers| !workers.contains(home)) {
                return Err(SpawnError::Context(ContextError::Elsewhere(home.index())));
            }
            schedule.workers = Some([home].into_iter().collect());
        }
        let schedule = self.schedule.get_or_insert(usual);
        if let Some(spawner) = spawner {
            schedule.process = spawner.process;
        }
        let nursery = self.nursery.core.id;
        if claim.context.is_none() && cores.has_groups() {
            let may_run_on = |home| schedule.workers.as_ref().is_none_or(|workers| workers.contains(home));
            if let Some((who, home)) = cores.promise_of_group(nursery, schedule.process, may_run_on) {
                claim.context = Some(who);
                schedule.workers = Some([home].into_iter().collect());
            }
        }
        let thread = cores.claim(schedule, spawner).map_err(SpawnError::Thread)?;
        cores.set_nursery(thread, nursery);
        claim.thread = Some(thread);
        let cap = self.ext.as_ref().and_then(|ext| ext.caps).and_then(|held| held.caps().context().copied());
        if let Some(cap) = cap {
            // What the child makes counts for its spawner too.
            let above = self.nursery.owner.and_then(|owner| {
                let account = Cx::new(owner).account();
                owner.nursery().with_ext(&account, |ext| ext?.time_ledger)
            });
            claim.ledger = cores.open_ledger(cap.limits(), above).transpose().map_err(SpawnError::Ledger)?;
            self.ext().time_ledger = claim.ledger;
        }
        Ok(())
    }

    fn ext_quota(&mut self, quota: Option<Quota>) {
        if let Some(quota) = quota {
            self.ext().quota = Some(TaskQuota::new(quota));
        }
    }

    /// Pays for a task, makes it, and queues it. `fill` puts a body with a result of type `T` into its empty slot.
    #[cfg_attr(feature = "console", track_caller)]
    pub(super) fn publish(
        mut self,
        has_handle: bool,
        fill: impl FnOnce(&Task),
    ) -> Result<TaskPtr, SpawnError> {
        if let Some(owner) = self.nursery.owner {
            owner.probe_stack();
        }
        let (nursery, core) = (self.nursery, self.nursery.core);
        // Here and not where the builder is made: what its holder does with the builder may unwind, or spawn more than once.
        let counted = nursery.guest.is_some().then(|| Counted::begin(core)).transpose()?;
        let paid = self
            .admit()
            .or_else(|error| {
                // A spawn that goes well is traced as such.
                self.nursery.audited("CapSpawn", "spawn", Err(error))
            })
            .and_then(|(budget, price)| {
                let quota = self.quota_of_child()?;
                if let Some(owner) = nursery.owner.filter(|owner| owner.has_quota()) {
                    Cx::new(owner).pay_rate(Component::SpawnCount, 1).map_err(SpawnError::Rate)?;
                }
                let claim = self.claim()?;
                self.ext_quota(quota);
                let carved = if nursery.guest.is_some() { core.draw(&price) } else { core.carve(&price) };
                carved.map(|()| (budget, claim)).map_err(|unpayable| {
                    if let Some(cores) = &core.rt().fair_tasks {
                        claim.undo(core.rt(), cores);
                    }
                    SpawnError::Pool(unpayable)
                })
            });
        // A refused spawn has nothing to pay for, and is tried again.
        let (budget, claim) = paid.inspect_err(|_| calls::count_poll())?;
        self.pay_for_caps();
        if let Some(size) = self.stack_size {
            self.ext().stack_size = Some(size);
        }
        let task = nursery.bear(budget, has_handle);
        if let Some(entity) = claim.thread.or(self.tenant) {
            task.entity.store(entity as u16, Ordering::Relaxed);
        }
        task.own_stack.store(self.stack_size.is_some(), Ordering::Relaxed);
        if self.ext.as_ref().is_some_and(|ext| ext.quota.is_some()) {
            task.bind_quota();
        }
        if self.budget.is_some() {
            task.bound_budget();
        }
        if let Some(ext) = &self.ext {
            core.rt().labels.note(&task, ext);
        }
        // SAFETY: the task is not published yet.
        unsafe { *task.ext.get() = self.ext };
        fill(&task);
        if let Some(counted) = counted {
            counted.spawned();
        }
        match claim.thread {
            Some(thread) => nursery.seat(task, thread, &self.schedule.unwrap_or_default(), claim.context),
            None => nursery.queue(task, self.priority),
        }
        Ok(task)
    }
}
