//! The context of a task: the only way from a task to its runtime.
//!
//! Authority is explicit: nothing here is reachable without the `&Cx` that a task's closure is handed, and a `Cx` can
//! neither be made, nor copied, nor sent to another task.

mod own;
mod paid;
mod scope;

pub use paid::Paid;

use crate::budget::{Component, Pool, Unpayable};
use crate::calls;
use crate::error::{BudgetError, TaskError};
use crate::fork::Purse;
use crate::nursery::core::Exhaustion;
use crate::nursery::fails_in_cleanup;
use crate::runtime::Inner;
use crate::spans;
use crate::stack::overflow::stack_pointer;
use crate::task::body::StopUnwind;
use crate::task::mask::Masked;
use crate::task::{Task, TaskPtr, WaitReason};
use crate::task_local::Scope;
use crate::worker::Worker;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU16, Ordering};

/// A system call counts as so many ops towards the next look at timers and the end of the quantum.
const SYSCALL_LOOK: u32 = 4096;
/// So many bytes of an allocation count as an op towards the same: a task that allocates them touches them.
const ALLOC_LOOK_BYTES: usize = 16;

/// How often a task that found its nursery's pool empty gives way before it fails.
const REPORT_TURNS: u32 = 8;

/// What a task can ask of its runtime.
///
/// A `Cx` stays on the task that it was handed to:
///
/// ```compile_fail,E0277
/// # use mainspring::{Config, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// runtime.run(|cx| {
///     cx.nursery(|n| {
///         n.spawn(|_| cx.check()); // the child has a context of its own
///     })
/// });
/// ```
///
/// It does not outlive the closure that it was handed to:
///
/// ```compile_fail
/// # use mainspring::{Config, Cx, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// let mut kept: Option<&Cx> = None;
/// runtime.run(|cx| kept = Some(cx));
/// ```
#[derive(Debug)]
pub struct Cx {
    task: TaskPtr,
    yield_interval: u32,
    /// Below this address the task's stack is low: one comparison tells.
    stack_floor: usize,
    /// The innermost scope of a task-local value, or null.
    locals: *const Scope,
    _of_one_task: PhantomData<*const ()>,
}

/// A task's id: unique in its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

impl Cx {
    pub(crate) fn new(task: TaskPtr) -> Self {
        let yield_interval = task.nursery().rt().config.yield_interval;
        let stack_floor = task.stack().map_or(0, |stack| stack.limit() + stack.reserve());
        Self { task, yield_interval, stack_floor, locals: std::ptr::null(), _of_one_task: PhantomData }
    }

    /// The same, inside of a scope of a task-local value, which outlives it.
    pub(crate) fn with_locals(&self, locals: *const Scope) -> Self {
        Self { locals, ..*self }
    }

    pub(crate) fn locals(&self) -> *const Scope {
        self.locals
    }

    pub(crate) fn task(&self) -> &Task {
        // SAFETY reasons are with `TaskPtr`: the slot lives as long as the runtime.
        &self.task
    }

    pub(crate) fn task_ptr(&self) -> TaskPtr {
        self.task
    }

    pub(crate) fn rt(&self) -> &Inner {
        self.task.nursery().rt()
    }

    /// A yield check: charges one op. With none left the task stops here until it is recharged.
    ///
    /// Now and then it also lets the runtime look up: a cancelled task ends here, by unwinding, and a task that has used
    /// its quantum gives way to others. A task that is low on stack fails here, as
    /// [`TaskError::StackOverflow`].
    #[inline(always)]
    pub fn check(&self) {
        self.probe_stack();
        let fuel = self.task.fuel.load(Ordering::Relaxed);
        if fuel != 0 {
            self.task.fuel.store(fuel - 1, Ordering::Relaxed);
        } else {
            self.check_slow(1);
        }
    }

    /// A batched yield check: pays for `n` iterations at once. What cannot be paid for stops the task afterwards.
    #[inline(always)]
    pub fn check_iterations(&self, n: u32) {
        self.probe_stack();
        let fuel = self.task.fuel.load(Ordering::Relaxed);
        if fuel >= n {
            self.task.fuel.store(fuel - n, Ordering::Relaxed);
        } else {
            self.check_slow(n);
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn check_slow(&self, mut n: u32) {
        let task = self.task();
        if std::thread::panicking() {
            // A destructor runs: nothing may switch or unwind here.
            let ops = task.ops();
            task.force_slow_check();
            task.reserve.store(ops - ops.min(n), Ordering::Relaxed);
            return;
        }
        let slice = task.slice_ops();
        loop {
            self.acknowledge();
            // What costs nothing needs nothing.
            let component = if n == 0 { None } else { self.exhausted_component() };
            let Some(component) = component else {
                let ops = task.ops();
                let paid = ops.min(n);
                let fuel = (ops - paid).min(slice);
                task.reserve.store(ops - paid - fuel, Ordering::Relaxed);
                task.fuel.store(fuel, Ordering::Relaxed);
                if task.has_quota() {
                    self.ask_quota(fuel, n != 0);
                }
                n -= paid;
                if n == 0 {
                    break;
                }
                continue;
            };
            if component == Component::Ops || task.nursery().on_exhausted == Exhaustion::Park {
                self.run_out(component);
            } else if !self.replenish(component) {
                // The last of it was used, and the task has not asked for more: it gives way, and goes on.
                let bits = task.exhausted.load(Ordering::Relaxed);
                task.exhausted.store(bits & !(1 << component as u8), Ordering::Relaxed);
                self.yield_now();
            }
        }
        let worker = task.worker();
        if worker.slice_over() {
            self.yield_now();
        } else if task.cancel.load(Ordering::Relaxed) {
            // The monitor had it cancelled there.
            self.acknowledge();
        }
    }

    /// The task has a slice by its budget, and as much of that as its quota gives. While it waits for that, it has none.
    #[cold]
    fn ask_quota(&self, slice: u32, waits: bool) {
        let task = self.task();
        task.force_slow_check();
        let given = self.pay_for_slice(slice, waits);
        let ops = task.ops();
        let fuel = given.min(ops);
        task.reserve.store(ops - fuel, Ordering::Relaxed);
        task.fuel.store(fuel, Ordering::Relaxed);
    }

    fn exhausted_component(&self) -> Option<Component> {
        let bits = self.task.exhausted.load(Ordering::Relaxed);
        let marked = Component::ALL.into_iter().find(|&component| bits & 1 << component as u8 != 0);
        marked.or((self.task.ops() == 0).then_some(Component::Ops))
    }

    /// The task needs something that it has run out of. Returns when there is some again; ends the task if there will be none.
    #[cold]
    fn run_out(&self, component: Component) {
        let task = self.task();
        if self.replenish(component) {
            return;
        }
        if task.mask.is_set() {
            // Cleanup has a budget of its own, which is never recharged.
            self.stop(TaskError::Cancelled);
        }
        spans::event(|| tracing::debug!(target: "mainspring", task = self.id().0, %component, "exhausted"));
        if self.awaits_reports(component) {
            return;
        }
        let (nursery, purse) = (task.nursery(), self.purse());
        nursery.starves(task);
        let end = loop {
            if let Some(purse) = purse {
                purse.lend(task);
            }
            if self.replenish(component) {
                break None;
            }
            let whole = purse.is_none_or(Purse::starve);
            if let Some(error) = self.end_of_hope(component, whole) {
                // Every task that could give something has given it by now: what came since the last look is found
                // here.
                let replenished = self.replenish(component);
                if let Some(purse) = purse {
                    purse.resume();
                }
                break (!replenished).then_some(error);
            }
            task.mark_exhausted(component);
            self.worker_to_leave().block(task, WaitReason::Budget);
            if let Some(purse) = purse {
                purse.resume();
            }
            if self.must_stop() {
                break Some(TaskError::Cancelled);
            }
        };
        nursery.starves_no_more(task);
        if let Some(error) = end {
            self.stop(error);
        }
    }

    /// Siblings that have ended give back what they have left, but a worker may not have reported them yet: gives them a few
    /// turns before the task fails. True if that brought something.
    fn awaits_reports(&self, component: Component) -> bool {
        let nursery = self.task.nursery();
        let refills = nursery.on_exhausted == Exhaustion::RefillOrFail && !self.task.has_bound_budget();
        refills
            && nursery.live() > 1
            && (0..REPORT_TURNS).any(|_| {
                self.yield_now();
                self.replenish(component)
            })
    }

    /// How the task ends, if no other task will give it any of `component`. `whole`: no other task of its fork tree can
    /// go on.
    fn end_of_hope(&self, component: Component, whole: bool) -> Option<TaskError> {
        let nursery = self.task.nursery();
        let outlook = nursery.outlook(&self.task, whole);
        if !whole {
            return None;
        }
        let owner_waits = outlook.awaited || self.account().join.is_awaited();
        let hopeless = match nursery.on_exhausted {
            Exhaustion::RefillOrFail | Exhaustion::Fail => true,
            Exhaustion::Cancel => return Some(TaskError::BudgetCut(component)),
            Exhaustion::Park => owner_waits,
            Exhaustion::Refill(_) => owner_waits && outlook.all_starve,
        };
        if hopeless && owner_waits {
            spans::event(|| {
                tracing::warn!(
                    target: "mainspring",
                    task = self.id().0,
                    %component,
                    "ran out while its owner waits for it: give it a larger budget, or recharge it before the wait",
                );
            });
        }
        hopeless.then_some(TaskError::BudgetExhausted(component))
    }

    /// Gets more of what has run out: from the fork tree that the task is part of, from what was granted from outside, or
    /// from the nursery's pool if that refills. False if there is nothing of `component`.
    fn replenish(&self, component: Component) -> bool {
        self.replenish_at_least(component, 1);
        self.has(component)
    }

    fn replenish_at_least(&self, component: Component, least: u64) {
        let masked = self.task.mask.is_set();
        if !masked && let Some(purse) = self.purse() {
            let drawn = purse.draw(component, least);
            if !drawn.is_zero() {
                return self.give(drawn.into());
            }
        }
        let before = self.task.budget().get(component);
        let still_lacking = |cx: &Self| cx.task.budget().get(component) < before.saturating_add(least);
        self.take_mail(component);
        if still_lacking(self) && !masked {
            self.give(self.refill(component, least));
        }
    }

    /// What the nursery's pool gives to a child that ran out, at least so much of `component` or nothing.
    fn refill(&self, component: Component, least: u64) -> Pool {
        let nursery = self.task.nursery();
        let most = match nursery.on_exhausted {
            Exhaustion::Refill(amount) => Pool::from(amount),
            Exhaustion::RefillOrFail if !self.task.has_bound_budget() => {
                Pool::only(component, nursery.default_budget().get(component))
            }
            _ => return Pool::ZERO,
        };
        match most.get(component) {
            0 => Pool::ZERO,
            usual => {
                let mut most = most;
                most.put(&Pool::only(component, least.saturating_sub(usual)));
                let drawn = nursery.draw_up_to(component, least, &most);
                if drawn == Pool::ZERO && nursery.is_run { self.draw_own(component, least) } else { drawn }
            }
        }
    }

    /// What a root task has set aside for its nurseries, those included that it has open: it may use that itself when the root
    /// pool is empty.
    #[allow(unsafe_code)]
    fn draw_own(&self, component: Component, least: u64) -> Pool {
        let most = Pool::only(component, least.max(1 << 10));
        let account = self.account();
        let aside = self.task.nursery().with_ext(&account, |ext| {
            let own = ext?.own_pool.as_mut().filter(|own| own.get(component) >= least)?;
            Some(own.take_up_to(&most))
        });
        if let Some(aside) = aside {
            return aside;
        }
        let mut next: *const _ = self.task.owned.load(Ordering::Relaxed);
        // SAFETY: null, or a nursery of a frame of this task's.
        while let Some(core) = unsafe { next.as_ref() } {
            let drawn = core.draw_up_to(component, least, &most);
            if drawn != Pool::ZERO {
                return drawn;
            }
            next = core.outer;
        }
        Pool::ZERO
    }

    /// Takes up what was granted from outside. True if there is something of `component` again.
    fn take_mail(&self, component: Component) -> bool {
        // A grant is never addressed to the task of a stolen half.
        let addressee = self.purse().map_or(self.task, |purse| purse.owner);
        self.give(self.task.nursery().take_mail(&addressee).into());
        self.has(component)
    }

    fn has(&self, component: Component) -> bool {
        self.task.budget().get(component) > 0
    }

    /// Adds to the budget. What the task cannot hold goes to the nursery's pool, where it can be handed out again.
    pub(crate) fn give(&self, amount: Pool) {
        if amount == Pool::ZERO {
            return;
        }
        let mut budget = self.task.budget();
        let before = budget.ops;
        let narrow = amount.narrow();
        let rest = budget.add(narrow);
        let mut over = amount;
        over.take(&narrow.into()).expect("narrow is no more than it");
        over.put(&rest.into());
        self.task.ops_granted.fetch_add((budget.ops - before).into(), Ordering::Relaxed);
        self.task.write_budget(budget);
        if over != Pool::ZERO {
            self.task.nursery().put_back(&over);
        }
    }

    /// What a nursery had left when it ended, and had got from the task's budget.
    pub(crate) fn take_back(&self, pool: Pool) {
        let mut budget = self.task.budget();
        let before = budget.ops;
        let (narrow, mut rest) = (pool.narrow(), pool);
        let over = budget.add(narrow);
        rest.take(&Pool::from(narrow)).expect("narrow is no more than it");
        rest.put(&over.into());
        self.task.ops_granted.fetch_add((budget.ops - before).into(), Ordering::Relaxed);
        self.task.write_budget(budget);
        if rest != Pool::ZERO {
            // More than a task can hold: it is for the nurseries that the task opens later.
            self.task
                .nursery()
                .change_ext(&self.task, |ext| ext.own_pool.get_or_insert(Pool::ZERO).put(&rest));
        }
    }

    /// Charges something other than ops. A component that was never granted is an error; one that has run out stops the
    /// task until it is recharged.
    #[inline(always)]
    pub(crate) fn charge(&self, component: Component) -> Result<(), BudgetError> {
        self.task.assert_running();
        self.probe_stack();
        let (fuel, counter) = (self.task.fuel.load(Ordering::Relaxed), self.counter(component));
        let left = counter.load(Ordering::Relaxed);
        // The last one marks the component as used up.
        if fuel != 0 && left > 1 && component != Component::Syscalls && !self.task.has_quota() {
            self.task.fuel.store(fuel - 1, Ordering::Relaxed);
            counter.store(left - 1, Ordering::Relaxed);
            return Ok(());
        }
        self.charge_slowly(component)
    }

    #[inline(always)]
    fn counter(&self, component: Component) -> &AtomicU16 {
        match component {
            Component::ChannelOps => &self.task.channel_ops,
            Component::Syscalls => &self.task.syscalls,
            Component::SpawnCount => &self.task.spawn_count,
            Component::Ops | Component::Memory => unreachable!("charged by their own methods"),
        }
    }

    /// Whether the task was ever granted any of `component`. A half of a fork has what its tree was granted, though there may be
    /// none left of it when another worker takes the half.
    fn was_granted(&self, component: Component) -> bool {
        self.task.was_granted(component) || self.account().was_granted(component)
    }

    /// What the task does next takes as long as `ops`. An op of the slice is left, so that a call without a context finds the
    /// task in a slice: those calls give way by themselves only if none follows that has a context (see [`calls`]).
    fn look_up_sooner(&self, ops: u32) {
        let within = ops.min(self.task.fuel.load(Ordering::Relaxed).saturating_sub(1));
        self.task.look_up_sooner(within);
        self.task.worker().hurry_slices(ops - within);
    }

    #[inline(never)]
    fn charge_slowly(&self, component: Component) -> Result<(), BudgetError> {
        let (task, counter) = (self.task(), self.counter(component));
        self.check();
        if component == Component::Syscalls {
            self.look_up_sooner(SYSCALL_LOOK);
        }
        if task.has_quota() && self.was_granted(component) {
            self.pay_rate(component, 1)?;
        }
        loop {
            match counter.load(Ordering::Relaxed) {
                0 if !self.was_granted(component) => {
                    if self.take_mail(component) {
                        continue;
                    }
                    return Err(BudgetError::NeverGranted(component));
                }
                0 if std::thread::panicking() => return Err(BudgetError::NeverGranted(component)),
                0 => self.run_out(component),
                1 => {
                    counter.store(0, Ordering::Relaxed);
                    // In a fork tree others may have some: that is found out when it is needed.
                    if self.purse().is_none() {
                        task.mark_exhausted(component);
                    }
                    return Ok(());
                }
                left => {
                    counter.store(left - 1, Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
    }

    /// Charges one of a component (and one op) for what the task does without the runtime's help: a message through a queue of
    /// its own, a call into the operating system, a byte. With none left the task stops here until it is recharged; one that
    /// was never granted any is refused.
    pub fn pay(&self, component: Component) -> Result<(), BudgetError> {
        match component {
            Component::ChannelOps | Component::Syscalls | Component::SpawnCount => self.charge(component),
            Component::Memory => self.charge_alloc(1),
            Component::Ops => {
                self.check();
                Ok(())
            }
        }
    }

    /// Fails the task here if little is left of its stack, rather than the process inside of what follows.
    #[inline(always)]
    pub(crate) fn probe_stack(&self) {
        if stack_pointer() < self.stack_floor {
            self.task.probe_stack();
        }
    }

    /// Charges an allocation of `size` bytes and one op, and checks after it. What is missing is taken from what the task was
    /// recharged with, and from its nursery's pool if that refills. The charge is for good: memory charged here is a total.
    /// [`Cx::try_box`] and [`Cx::try_vec`] refund theirs.
    pub fn charge_alloc(&self, size: usize) -> Result<(), BudgetError> {
        self.charge_memory(size)?;
        self.check_alloc(size);
        Ok(())
    }

    /// The charge alone. [`Cx::check_alloc`] comes when what is charged is refunded on every way out.
    fn charge_memory(&self, size: usize) -> Result<(), BudgetError> {
        calls::count(self);
        let task = self.task();
        let left = loop {
            let have = task.memory.load(Ordering::Relaxed);
            if let Some(left) = have.checked_sub(size) {
                break left;
            }
            let (needed, available) = (size as u64, have as u64);
            self.replenish_at_least(Component::Memory, needed - available);
            if task.memory.load(Ordering::Relaxed) <= have {
                if !self.was_granted(Component::Memory) {
                    return Err(BudgetError::NeverGranted(Component::Memory));
                }
                let component = Component::Memory;
                return Err(BudgetError::MemoryBudgetExhausted(Unpayable { component, needed, available }));
            }
        };
        if task.has_quota() {
            self.pay_rate(Component::Memory, size as u64)?;
        }
        task.memory.store(left, Ordering::Relaxed);
        if left == 0 && size > 0 && self.purse().is_none() {
            task.mark_exhausted(Component::Memory);
        }
        Ok(())
    }

    fn check_alloc(&self, size: usize) {
        self.check();
        self.look_up_sooner(u32::try_from(size / ALLOC_LOOK_BYTES).unwrap_or(u32::MAX));
    }

    /// A boxed value, charged until it is dropped.
    pub fn try_box<T>(&self, value: T) -> Result<Paid<'_, Box<T>>, BudgetError> {
        let bytes = size_of::<T>();
        self.charge_memory(bytes)?;
        let boxed = Paid::new(self, Box::new(value), bytes);
        self.check_alloc(bytes);
        Ok(boxed)
    }

    /// An empty vector with room for `capacity` values, charged until it is dropped. Growth beyond the capacity is not.
    pub fn try_vec<T>(&self, capacity: usize) -> Result<Paid<'_, Vec<T>>, BudgetError> {
        let bytes = capacity.saturating_mul(size_of::<T>());
        self.charge_memory(bytes)?;
        let mut vec = Paid::new(self, Vec::new(), bytes);
        self.check_alloc(bytes);
        // A budget may be larger than the host's memory. An allocation that fails is refunded.
        vec.try_reserve_exact(capacity).map_err(|_| BudgetError::OutOfMemory { bytes })?;
        Ok(vec)
    }

    /// Looks up at once, as a check does now and then: at cancellation, at timers, and at whether others should run. For
    /// code that does much between two checks. Free of charge.
    pub fn look_up(&self) {
        if std::thread::panicking() {
            return;
        }
        self.acknowledge();
        if self.task.worker().slice_over() {
            self.yield_now();
        }
    }

    /// Gives way to other tasks that are ready. Free of charge.
    #[inline(always)]
    pub fn yield_now(&self) {
        if std::thread::panicking() {
            return;
        }
        let task = self.task();
        task.assert_running().yield_now(task);
        if task.is_interrupted() {
            self.acknowledge();
        }
    }

    /// Blocks until woken. The caller has told the task's waker, and looks again afterwards: a return may be spurious.
    /// Must not be called while panicking.
    pub(crate) fn block(&self, reason: WaitReason) {
        let task = self.task();
        let worker = self.worker_to_leave();
        let Some(purse) = self.purse() else { return worker.block(task, reason) };
        purse.pause(task);
        worker.block(task, reason);
        purse.resume();
    }

    /// As [`Cx::block`]. `announce` tells others of the wait: if the task has a context, when it sleeps on its core, else before.
    pub(crate) fn block_then(&self, reason: WaitReason, announce: &dyn Fn()) {
        self.worker_to_leave().announce_asleep(announce);
        self.block(reason);
    }

    /// As [`Cx::block`]: the task's waker is most likely on this worker.
    pub(crate) fn block_at_home(&self, reason: WaitReason) {
        let task = self.task();
        self.worker_to_leave().block_at_home(task, reason);
    }

    /// The worker, which the task is about to leave to others. Entry points have refused before if it must not; by here others
    /// may know of the wait, so that nothing can be done but to end the process.
    #[inline(always)]
    pub(crate) fn worker_to_leave(&self) -> &Worker {
        #[cold]
        #[inline(never)]
        fn must_not_leave(task: &Task) -> ! {
            let id = task.id.load(Ordering::Relaxed);
            if std::thread::panicking() {
                eprintln!(
                    "mainspring: task {id} waits in a destructor while it unwinds, and other tasks would run on a thread that \
                     panics. The process is aborted. Wait in Cx::with_cleanup instead, or not at all if \
                     std::thread::panicking()."
                );
            } else {
                eprintln!(
                    "mainspring: task {id} was to wait while another task runs. The process is aborted."
                );
            }
            std::process::abort()
        }
        if std::thread::panicking() || !self.task.is_current() {
            must_not_leave(&self.task);
        }
        self.task.worker()
    }

    /// Ends the task here if it was cancelled and is not cleaning up.
    pub(crate) fn acknowledge(&self) {
        self.task.assert_running();
        if self.must_stop() {
            self.stop(TaskError::Cancelled);
        }
    }

    pub(crate) fn must_stop(&self) -> bool {
        self.is_to_stop(self.task.mask.get()) && !std::thread::panicking()
    }

    /// Whether the task is to stop, as far as a mask lets it.
    #[inline]
    pub(crate) fn is_to_stop(&self, masked: Masked) -> bool {
        if masked.is_set() { self.cleanup_is_to_stop(masked) } else { self.task.is_interrupted() }
    }

    /// A cleanup is stopped by nothing but a scope of its own, such as a timeout.
    #[cold]
    fn cleanup_is_to_stop(&self, masked: Masked) -> bool {
        let fails = || fails_in_cleanup(self.task.owned.load(Ordering::Relaxed), masked.cleanups());
        !masked.waits() && self.task.scope_failed.load(Ordering::SeqCst) && fails()
    }

    pub(crate) fn stop(&self, error: TaskError) -> ! {
        // A task that caught the last stop and forgot it may do so for ever, but not at the expense of other tasks.
        if self.task.mark_stopped() {
            self.worker_to_leave().yield_now(&self.task);
        }
        StopUnwind::raise(self.task, error)
    }

    /// Takes the worker down as a fault in the scheduler would, for tests of recovery. The task fails as WorkerPanic.
    ///
    /// # Safety
    ///
    /// The task's frames end without their destructors: as for `Config::abandon_overflowed_stacks`.
    #[doc(hidden)]
    #[allow(unsafe_code)]
    pub unsafe fn kill_worker(&self) -> ! {
        let task = self.task();
        task.worker().die(task)
    }
}
