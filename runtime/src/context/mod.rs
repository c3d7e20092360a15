//! CPU time as authority: scheduling contexts, as values that tasks hold.
//!
//! A [`SchedulingContext`] grants so much CPU time in every period. The task that it is bound to runs before all tasks without
//! one, by deadline, up to the budget and no further. The scheduler core of one worker enforces it: time is charged by the
//! worker's clock, a budget that is used up is noticed at the task's next check, and the task waits for the refill.
//!
//! # What is conserved
//!
//! * A context is in exactly one place: at rest, with one task (bound, or lent along a call of [`endpoint`](crate::endpoint)), or gone.
//!   One that is bound to a nursery or a tenant is with one of their tasks at a time, or at rest. Each is made by somebody who holds a
//!   [`CapContext`](crate::CapContext), is charged to that holder and to those above it, and is admitted only if every deadline
//!   on its worker still holds. So nothing below the root has more time than the root was given.
//! * The value is the authority: its holder can bind it, see it and revoke it. It cannot be copied. When it is dropped, the
//!   context is revoked, and its time can be granted again.
//! * What was used stays used: neither an unbind nor a bind gives budget back.
//! * A refusal changes nothing.

mod error;
mod fault;
mod group;
mod reservation;

pub use crate::protocol::fair_tasks::Group;
pub use error::ContextError;
pub(crate) use fault::Faults;
pub use mainspring_driver::contexts::{CreateError, RevokeReason};
pub use mainspring_driver::ledgers::LedgerError;
pub use mainspring_sched::Floor;
pub use mainspring_sched::context::SpecError;
pub use reservation::{Depleted, Reservation};

use crate::audit;
use crate::calls;
use crate::cx::Cx;
use crate::parker::Parker;
use crate::protocol::fair_tasks::{Aftermath, FairTasks, Known, Untold};
use crate::runtime::{Inner, Runtime};
use crate::task::WaitReason;
use crate::waiter;
use mainspring_abi::{ContextRef, CpuId, Nanos};
use mainspring_driver::contexts::{Drained, Location, NoticeWait};
use mainspring_driver::ledgers::LedgerRef;
use mainspring_sched::context::Notice;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// CPU time that somebody may use: a budget in every period, with a deadline. See the [module](self).
///
/// ```
/// use mainspring::{Caps, Budget, Config, FairTaskSettings, Profile, Reservation};
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let settings = FairTaskSettings { contexts: 8, ..FairTaskSettings::default() };
/// let caps = Caps::root(100, Budget::MAX, Budget::MAX, 10, 64).with_contexts(8, 500_000);
/// let runtime = Config::new(Profile::Service).root_caps(caps).fair_by_task(settings).build()?;
/// runtime.run(|cx| {
///     let tenant = cx.create_context(Reservation::new(ms(2), ms(10))).unwrap();
///     cx.nursery(|n| {
///         let child = n.builder().context(&tenant).spawn(|cx| cx.context().unwrap().budget).unwrap();
///         assert_eq!(child.join(cx).unwrap(), ms(2));
///     })
///     .unwrap();
///     tenant.revoke().unwrap();
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It cannot be copied:
///
/// ```compile_fail,E0382
/// # use mainspring::SchedulingContext;
/// fn twice(context: SchedulingContext) -> (SchedulingContext, SchedulingContext) {
///     (context, context)
/// }
/// ```
///
/// Nor made without asking:
///
/// ```compile_fail,E0451
/// # use mainspring::CapContext;
/// let mine = CapContext { contexts: 1, share_ppm: 1_000_000 };
/// ```
#[must_use = "a context that is dropped is revoked"]
pub struct SchedulingContext {
    rt: Arc<Inner>,
    who: ContextRef,
    bell: Arc<Parker>,
}

/// Where a context is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextState {
    /// With nobody: it can be bound.
    AtRest,
    /// With the task that it is bound to.
    Bound,
    /// With a task that serves a call of the task that it is bound to.
    Lent,
    /// On its way to a task.
    InFlight,
}

/// What is known of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextInfo {
    /// The number that a flight record knows it by.
    pub number: u32,
    /// CPU time per period.
    pub budget: Duration,
    /// How long what was used stays away.
    pub period: Duration,
    /// How soon after its release the budget is to be had.
    pub deadline: Duration,
    /// The worker where its time is set aside.
    pub worker: usize,
    /// Where it is.
    pub state: ContextState,
    /// The task that has it, by number ([`Cx::thread_number`]).
    pub holder: Option<usize>,
    /// The nursery or the tenant whose tasks have it one after the other.
    pub group: Option<Group>,
    /// Whether its budget is enforced: a task holds it, so that this task's time is charged to it.
    pub enforced: bool,
    /// How much can be used now in one go.
    pub remaining: Duration,
    /// CPU time used in all, up to the last event.
    pub used: Duration,
    /// The part of it that was used on loan.
    pub used_on_loan: Duration,
    /// How often it was used up.
    pub depletions: u64,
    /// How many releases were not done with by their deadline.
    pub misses: u64,
    /// The furthest that anybody ran past the budget: from the moment when it was used up to the next check.
    pub overshoot: Duration,
}

impl From<Known> for ContextInfo {
    fn from((info, group): Known) -> Self {
        Self {
            number: info.who.id(),
            budget: duration(info.spec.budget),
            period: duration(info.spec.period),
            deadline: duration(info.spec.deadline),
            worker: info.home.index(),
            state: match info.place {
                Location::Bound(_) => ContextState::Bound,
                Location::Lent(_) => ContextState::Lent,
                Location::InFlight(_) => ContextState::InFlight,
                Location::Rest | Location::Gone => ContextState::AtRest,
            },
            holder: match info.place {
                Location::Bound(thread) | Location::Lent(thread) => Some(thread.index() as usize),
                Location::InFlight(_) | Location::Rest | Location::Gone => None,
            },
            group,
            enforced: info.budget_enforced,
            remaining: duration(info.remaining),
            used: duration(info.usage.used),
            used_on_loan: duration(info.usage.donated),
            depletions: info.usage.depletions,
            misses: info.usage.misses,
            overshoot: duration(info.usage.overshoot_max),
        }
    }
}

/// What has happened to a context since it was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    /// The budget was used up.
    pub depleted: Option<Event>,
    /// A deadline passed, or the timeout of a call on the context.
    pub late: Option<Event>,
}

/// Events of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// How many since it was last asked.
    pub times: u32,
    /// What was left of the budget at the last one.
    pub remaining: Duration,
    /// Whether a task had it on loan then.
    pub on_loan: bool,
}

impl Event {
    fn of(notice: Notice) -> Self {
        let remaining = duration(notice.remaining);
        Self { times: notice.coalesced, remaining, on_loan: notice.donated }
    }
}

/// Who waits for notices of which context.
#[derive(Debug, Default)]
pub(crate) struct Bells(Mutex<Vec<(u32, Arc<Parker>)>>);

impl Bells {
    fn with<R>(&self, act: impl FnOnce(&mut Vec<(u32, Arc<Parker>)>) -> R) -> R {
        act(&mut self.0.lock().expect("no panic while it is held"))
    }

    fn of(&self, id: u32) -> Option<Arc<Parker>> {
        self.with(|all| all.iter().find(|(other, _)| *other == id).map(|(_, bell)| bell.clone()))
    }
}

impl Inner {
    /// Wakes those who have to know of an operation on contexts. No lock is held.
    pub(crate) fn notify_contexts(&self, aftermath: &Aftermath) {
        for worker in &aftermath.workers {
            self.idle_workers.wake(*worker);
        }
        self.tell(&aftermath.contexts);
        self.faults.call(&aftermath.faults);
        self.finish_leases(aftermath);
        for thread in &aftermath.given {
            self.look_after_throttled(*thread);
        }
    }

    /// Tells those who have to know of what happened to contexts on the core of a worker.
    pub(crate) fn tell_untold(&self, untold: &[Untold]) {
        for Untold { context, fault } in untold {
            self.tell(&[*context]);
            if let Some(thread) = fault {
                self.faults.call(&[(*context, *thread)]);
            }
        }
    }

    /// Wakes those who wait for notices of these contexts.
    pub(crate) fn tell(&self, contexts: &[u32]) {
        for bell in contexts.iter().filter_map(|id| self.bells.of(*id)) {
            bell.ring();
        }
    }

    fn context_cores(&self) -> Result<&FairTasks, ContextError> {
        self.fair_tasks.as_ref().filter(|cores| cores.has_contexts()).ok_or(ContextError::NoContexts)
    }

    fn now(&self) -> Nanos {
        Nanos::new(self.timers.now_ns())
    }

    /// Makes a context, charged to `ledger` or else to the root's, on `here` rather than elsewhere.
    fn make_context(
        &self,
        reservation: &Reservation,
        ledger: Option<LedgerRef>,
        here: Option<usize>,
    ) -> Result<SchedulingContext, ContextError> {
        let cores = self.context_cores()?;
        let worker = |worker: usize| {
            let known = worker < self.shares.len();
            CpuId::new(worker).ok().filter(|_| known).ok_or(ContextError::NoWorker(worker))
        };
        let grant = |worker| {
            let granted = cores.grant_context(reservation.spec(worker), ledger, self.now());
            granted.ok_or(ContextError::NoContexts)?.map_err(ContextError::from)
        };
        let who = match (reservation.worker(), here) {
            (Some(asked), _) => grant(Some(worker(asked)?)),
            (None, Some(here)) => match grant(Some(worker(here)?)) {
                Err(ContextError::NotAdmitted(_)) => grant(None),
                granted => granted,
            },
            (None, None) => grant(None),
        }?;
        let bell = Arc::<Parker>::default();
        self.bells.with(|all| all.push((who.id(), bell.clone())));
        Ok(SchedulingContext { rt: self.memory(), who, bell })
    }
}

impl Runtime {
    /// Makes a context by the authority of the host, within the root's `CapContext`.
    pub fn create_context(&self, reservation: Reservation) -> Result<SchedulingContext, ContextError> {
        calls::count_poll();
        self.inner().make_context(&reservation, None, None)
    }
}

impl Cx {
    /// Makes a context, by the task's `CapContext`: exactly admitted, on this worker if its deadlines all hold, or else on
    /// another. It is at rest: bind it ([`SchedulingContext::bind`]) or spawn a task on it (`SpawnBuilder::context`).
    pub fn create_context(&self, reservation: Reservation) -> Result<SchedulingContext, ContextError> {
        calls::count(self);
        let made = self.make_context(&reservation);
        audit::noted(self, "CapContext", "create", made)
    }

    fn make_context(&self, reservation: &Reservation) -> Result<SchedulingContext, ContextError> {
        if self.caps().context().is_none() {
            return Err(ContextError::NotPermitted);
        }
        let holder = self.account();
        let ledger = self.task().nursery().with_ext(&holder, |ext| ext?.time_ledger);
        self.rt().make_context(reservation, ledger, Some(self.task().worker().index))
    }

    /// What is known of the context that the task holds, bound to it or lent to it, if there is one.
    pub fn context(&self) -> Option<ContextInfo> {
        calls::count(self);
        let cores = self.rt().context_cores().ok()?;
        cores.held_context(self.thread(), self.rt().now()).map(ContextInfo::from)
    }

    /// The thread that the task is for its core. Only under the fair discipline by task.
    pub(crate) fn thread(&self) -> usize {
        self.task().entity.load(Ordering::Relaxed).into()
    }
}

impl SchedulingContext {
    fn cores(&self) -> Result<&FairTasks, ContextError> {
        self.rt.context_cores()
    }

    /// The cores, if `cx` is of a task of the same runtime.
    fn cores_of(&self, cx: &Cx) -> Result<&FairTasks, ContextError> {
        if !self.is_of(cx.rt()) {
            return Err(ContextError::OtherRuntime);
        }
        self.cores()
    }

    pub(crate) fn is_of(&self, rt: &Inner) -> bool {
        std::ptr::eq(&raw const *self.rt, rt)
    }

    pub(crate) fn who(&self) -> ContextRef {
        self.who
    }

    /// Binds it to the task, which runs on it from here on. The time must be on the task's worker, see
    /// [`Reservation::on_worker`]; a task that may move (`Config::migrate_started_tasks`) goes there.
    pub fn bind(&self, cx: &Cx) -> Result<(), ContextError> {
        calls::count(cx);
        let bound = self.bind_to(cx);
        // Others may be more urgent than the context, or the context used up.
        cx.look_up();
        audit::noted(cx, "SchedulingContext", "bind", bound)
    }

    fn bind_to(&self, cx: &Cx) -> Result<(), ContextError> {
        let cores = self.cores_of(cx)?;
        let worker = cx.task().worker().index;
        let bound = cores.bind_current(self.who, cx.thread(), worker, self.rt.now());
        let (bound, aftermath) = bound.ok_or(ContextError::NoContexts)?;
        self.rt.notify_contexts(&aftermath);
        match bound.map_err(ContextError::from) {
            Err(error @ ContextError::Elsewhere(_)) if self.rt.config.migrates_started_tasks => {
                self.go_and_bind(cx, cores).then_some(()).ok_or(error)
            }
            bound => bound,
        }
    }

    /// The task goes to where the time is, asleep, and its waker binds it there; whether it is bound.
    fn go_and_bind(&self, cx: &Cx, cores: &FairTasks) -> bool {
        let task = waiter::task_word(cx.task_ptr());
        cx.block_then(WaitReason::Park, &|| {
            cores.send_to_bind(cx.thread(), self.who);
            waiter::wake(task);
        });
        cores.held_context(cx.thread(), self.rt.now()).is_some_and(|(held, _)| held.who.id() == self.who.id())
    }

    /// The task gives it up, and goes on without. False if the task is not bound to it.
    pub fn unbind(&self, cx: &Cx) -> Result<bool, ContextError> {
        calls::count(cx);
        let cores = self.cores_of(cx)?;
        let worker = cx.task().worker().index;
        let unbound = cores.unbind_current(self.who, cx.thread(), worker, self.rt.now());
        let (unbound, aftermath) = unbound.ok_or(ContextError::NoContexts)?;
        self.rt.notify_contexts(&aftermath);
        let unbound = unbound?;
        cx.look_up();
        Ok(unbound)
    }

    /// What is known of it, or was last if it was revoked. `None` once it is forgotten, which takes as many contexts after it as
    /// there can be.
    pub fn last_known(&self) -> Option<ContextInfo> {
        calls::count_poll();
        self.cores().ok()?.last_known_context(self.who, self.rt.now()).map(ContextInfo::from)
    }

    /// What is known of it.
    pub fn info(&self) -> Result<ContextInfo, ContextError> {
        calls::count_poll();
        let info = self.cores()?.context_info(self.who, self.rt.now());
        Ok(info.ok_or(ContextError::NoContexts)??.into())
    }

    /// Grants another budget and period, with the same deadline if that still makes sense: exactly admitted, and within the
    /// `CapContext` of its maker. Only the host can: `runtime` proves that its caller is.
    pub fn adjust(&self, runtime: &Runtime, budget: Duration, period: Duration) -> Result<(), ContextError> {
        calls::count_poll();
        if !self.is_of(runtime.inner()) {
            return Err(ContextError::OtherRuntime);
        }
        let info = self.info()?;
        let deadline = info.deadline.min(period).max(budget);
        let terms = (reservation::nanos(budget), reservation::nanos(period), reservation::nanos(deadline));
        let adjusted = self.cores()?.adjust_context(self.who, terms, self.rt.now());
        let (adjusted, aftermath) = adjusted.ok_or(ContextError::NoContexts)?;
        self.rt.notify_contexts(&aftermath);
        Ok(adjusted?)
    }

    /// With [`Depleted::Fault`]: called each time that the budget is used up, with the number of the task whose it is
    /// ([`Cx::thread_number`]: the one that ran on it, or the first that has lent it), by whichever thread finds that. It must not wait. If it panics, only the panic hook hears of it.
    pub fn on_fault(&self, told: impl Fn(usize) + Send + Sync + 'static) {
        calls::count_poll();
        self.rt.faults.set(self.who.id(), Arc::new(told));
    }

    /// The number that a flight record knows it by.
    pub fn number(&self) -> u32 {
        self.who.id()
    }

    /// Takes it away for good, from the task that has it, which goes on without. Its time can be granted again at once.
    pub fn revoke(&self) -> Result<(), ContextError> {
        calls::count_costly_action();
        self.end(RevokeReason::Explicit)
    }

    fn end(&self, reason: RevokeReason) -> Result<(), ContextError> {
        let ended = self.cores()?.revoke_context(self.who, reason, self.rt.now());
        let (ended, aftermath) = ended.ok_or(ContextError::NoContexts)?;
        self.rt.notify_contexts(&aftermath);
        Ok(ended?)
    }

    /// What has happened to it since this was last asked.
    pub fn notices(&self) -> Result<Notices, ContextError> {
        calls::count_poll();
        self.drain()
    }

    fn drain(&self) -> Result<Notices, ContextError> {
        let drained = self.cores()?.drain_notices(self.who, self.rt.now());
        match drained.ok_or(ContextError::NoContexts)?? {
            Drained::Ok([depleted, late]) => {
                Ok(Notices { depleted: depleted.map(Event::of), late: late.map(Event::of) })
            }
            Drained::Revoked { reason, .. } => Err(ContextError::Revoked(reason)),
            Drained::StaleGeneration { .. } => Err(ContextError::Revoked(RevokeReason::Explicit)),
        }
    }

    /// Waits until something has happened to it, for at most `timeout`; empty if nothing has. One task at a time can wait.
    pub fn wait_notices(&self, cx: &Cx, timeout: Option<Duration>) -> Result<Notices, ContextError> {
        calls::count(cx);
        let cores = self.cores_of(cx)?;
        let deadline = timeout.map(|timeout| cx.now().saturating_add(timeout));
        let _armed = Armed { context: self, cores, thread: cx.thread() };
        loop {
            let wait = cores.wait_for_notice(self.who, cx.thread(), self.rt.now());
            if wait.ok_or(ContextError::NoContexts)?? == NoticeWait::Pending {
                return self.drain();
            }
            let left = deadline.map(|deadline| deadline.saturating_sub(cx.now()));
            if !self.bell.wait(cx, WaitReason::Park, left) {
                return self.drain();
            }
        }
    }
}

/// A task that waits for notices, until it is dropped on any way out.
struct Armed<'c> {
    context: &'c SchedulingContext,
    cores: &'c FairTasks,
    thread: usize,
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        self.cores.stop_waiting(self.context.who, self.thread, self.context.rt.now());
    }
}

impl Drop for SchedulingContext {
    fn drop(&mut self) {
        // One that was revoked before is gone already.
        let _ended = self.end(RevokeReason::OwnerExit);
        self.rt.bells.with(|all| all.retain(|(id, _)| *id != self.who.id()));
        self.rt.faults.forget(self.who.id());
    }
}

impl std::fmt::Debug for SchedulingContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SchedulingContext").field("who", &self.who).finish_non_exhaustive()
    }
}

fn duration(length: Nanos) -> Duration {
    Duration::from_nanos(length.get())
}
