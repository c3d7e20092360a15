//! The scheduling contexts of a runtime: the driver's table of them behind one lock, and what its operations leave to do.
//!
//! Conserved: what [`mainspring_driver::contexts`] conserves. The lock of the table is taken before that of any core, and never
//! after. A context that was set aside for a task that is being spawned is bound to that task or free again, never both. What
//! was charged to a ledger is charged to the ledgers above it, up to the root's.

use super::calls::{Call, Errand};
use super::groups::{Group, GroupContext};
use super::leases::{self, LeaseEnd};
use super::machine::Seen;
use super::worker_core::Untold;
use super::{FairTaskSettings, FairTasks, Schedule, WakeWorker};
use crate::protocol::prim::{Mutex, MutexGuard, Ordering};
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos, ThreadRef};
use mainspring_driver::contexts::{
    AdmissionRules, BindError, ContextError, ContextInfo, Contexts, CreateError, Drained, Grant, HomeCpu,
    NoticeWait, RevokeReason, WaitError,
};
use mainspring_driver::leases::Leases;
use mainspring_driver::ledgers::{Amounts, LedgerError, LedgerRef, Ledgers, Profile, Resource};
use mainspring_driver::sessions::Sessions;
use mainspring_sched::context::ContextSpec;

/// What is left to do after an operation on contexts, once no lock is held.
#[must_use = "workers that are not woken may sleep over their work"]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aftermath {
    /// Workers that have to look, if they sleep.
    pub workers: Vec<usize>,
    /// Contexts of which a waiting task has to be told something, by number.
    pub contexts: Vec<u32>,
    /// Contexts that were used up, which counts as a fault, and the threads that ran on them, by number.
    pub faults: Vec<(u32, u32)>,
    /// Leases that have ended.
    pub lease_ends: Vec<LeaseEnd>,
    /// Which workers are leased has changed.
    pub leased_changed: bool,
    /// Threads that their group gave a context, by number. They may be throttled by that.
    pub given: Vec<usize>,
}

impl Aftermath {
    /// What this leaves to do, and `other` after it.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.workers.extend(other.workers);
        self.contexts.extend(other.contexts);
        self.faults.extend(other.faults);
        self.lease_ends.extend(other.lease_ends);
        self.leased_changed |= other.leased_changed;
        self.given.extend(other.given);
        self
    }
}

/// What is known of a context, and the group that it is of.
pub type Known = (ContextInfo, Option<Group>);

/// What a ledger of CPU time may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    /// How many contexts at a time.
    pub contexts: u32,
    /// Their shares in all, in millionths of a worker.
    pub share_ppm: u32,
}

impl TimeLimits {
    /// Nothing.
    pub const NONE: Self = Self { contexts: 0, share_ppm: 0 };

    fn profile(self) -> Profile {
        let share = u64::from(self.share_ppm) * 1_000;
        let contexts = Amounts::NONE.with(Resource::Contexts, self.contexts.into());
        Profile { limits: contexts.with(Resource::CpuShare, share) }
    }
}

/// All contexts of a runtime.
pub(super) struct Table {
    pub(super) contexts: Contexts,
    /// What the root was given.
    root: LedgerRef,
    /// Contexts that are set aside for tasks that are being spawned.
    pub(super) promised: Vec<u32>,
    /// The contexts of groups.
    pub(super) groups: Vec<GroupContext>,
    /// Ledgers whose tasks have ended and whose contexts have not.
    orphans: Vec<LedgerRef>,
    /// The last number that a call was given.
    pub(super) last_call: u64,
    /// The call that each thread waits for on its context.
    pub(super) calls: Vec<Option<Call>>,
    /// The call that each thread is about to be woken to serve.
    pub(super) errands: Vec<Option<Errand>>,
    /// Who has which worker to itself, if there can be leases.
    pub(super) leases: Option<Leases>,
    /// The latest time at which something was done about leases.
    pub(super) leases_at: Nanos,
}

impl Table {
    /// `None` if there is no memory for that.
    pub(super) fn new(
        workers: usize,
        settings: &FairTaskSettings,
        root: TimeLimits,
    ) -> Option<Box<Mutex<Self>>> {
        let cpus: CpuSet = (0..workers).filter_map(|worker| CpuId::new(worker).ok()).collect();
        let rules = AdmissionRules { cpus, floor: settings.floor, ..AdmissionRules::default() };
        // One for the root, one for each task that may have its own, and those that wait for a context to end.
        let ledgers = settings.threads.checked_add(settings.contexts)?.checked_add(1)?;
        let ledgers = Ledgers::new(ledgers).ok()?;
        let sessions = Sessions::new(settings.sessions).ok()?;
        let mut contexts = Contexts::new(settings.contexts, rules, sessions, ledgers).ok()?;
        let leases = match settings.leases {
            0 => None,
            capacity => Some(leases::leases(workers, capacity)?),
        };
        let root = contexts.ledgers.open(&root.profile(), None).ok()?;
        Some(Box::new(Mutex::new(Self {
            contexts,
            root,
            promised: Vec::new(),
            groups: Vec::new(),
            orphans: Vec::new(),
            last_call: 0,
            calls: vec![None; settings.threads],
            errands: vec![None; settings.threads],
            leases,
            leases_at: Nanos::ZERO,
        })))
    }

    /// A name that was good once: with what it can be called now, or why it cannot.
    pub(super) fn name(&self, who: ContextRef) -> ContextRef {
        let present = self.contexts.names().find(|name| name.id() == who.id());
        present.unwrap_or(who)
    }

    pub(super) fn close_orphans(&mut self) {
        let ledgers = &mut self.contexts.ledgers;
        // Those below before those above: a parent that is in use by a child that goes now is tried again.
        let mut before = usize::MAX;
        while self.orphans.len() < before {
            before = self.orphans.len();
            self.orphans.retain(|ledger| ledgers.close(*ledger).is_err());
        }
    }
}

impl FairTasks {
    /// Whether there can be contexts.
    pub fn has_contexts(&self) -> bool {
        self.has_contexts
    }

    /// An operation on the table, by worker `here` or somebody who is none.
    pub(super) fn with_table<R>(
        &self,
        here: Option<usize>,
        now: Nanos,
        act: impl FnOnce(&mut Table, &mut Seen<'_>) -> R,
    ) -> Option<(R, Aftermath)> {
        let mut table = self.table()?;
        let mut machine = self.seen_from(here, now);
        let result = act(&mut table, &mut machine);
        self.after_operation(&mut table, &mut machine);
        Some((result, machine.aftermath()))
    }

    /// What an operation has put to rest goes to the next of its group.
    fn after_operation(&self, table: &mut Table, machine: &mut Seen<'_>) {
        if machine.take_at_rest() && !table.groups.is_empty() {
            self.pass_on(table, machine);
        }
    }

    pub(super) fn table(&self) -> Option<MutexGuard<'_, Table>> {
        Some(self.contexts.as_ref()?.lock().expect("no panic while it is held"))
    }

    /// Grants a context, charged to `ledger` or else to the root's: on the first worker that `spec` allows and where every
    /// deadline holds. `None` if there can be no contexts.
    pub fn grant_context(
        &self,
        spec: ContextSpec,
        ledger: Option<LedgerRef>,
        now: Nanos,
    ) -> Option<Result<ContextRef, CreateError>> {
        let mut table = self.table()?;
        let ledger = Some(ledger.unwrap_or(table.root));
        let grant = Grant { session: None, process: None, ledger, home: HomeCpu::Admitted };
        Some(table.contexts.grant(now, spec, grant))
    }

    /// A ledger for a task, below `parent` or else the root's. `None` if there can be no contexts.
    pub fn open_ledger(
        &self,
        limits: TimeLimits,
        parent: Option<LedgerRef>,
    ) -> Option<Result<LedgerRef, LedgerError>> {
        let mut table = self.table()?;
        let parent = parent.unwrap_or(table.root);
        Some(table.contexts.ledgers.open(&limits.profile(), Some(parent)))
    }

    /// The task of a ledger has ended. The ledger ends with the last context that is charged to it.
    pub fn close_ledger(&self, ledger: LedgerRef) {
        if let Some(mut table) = self.table() {
            table.orphans.push(ledger);
            table.close_orphans();
        }
    }

    /// Sets a context aside for a task that is about to be spawned; the worker that the task has to start on. The context is
    /// bound by [`FairTasks::admit_on_context`], or free again by [`FairTasks::give_up_promise`].
    pub fn promise_context(&self, who: ContextRef, now: Nanos) -> Option<Result<CpuId, BindError>> {
        let (home, _) = self.with_table(None, now, |table, machine| {
            let info = table.contexts.info(machine, now, table.name(who)).map_err(BindError::Context)?;
            match info.owner {
                Some(owner) => Err(BindError::Busy(owner)),
                None if table.promised.contains(&who.id()) => Err(BindError::Withheld),
                None => {
                    table.promised.push(who.id());
                    Ok(info.home)
                }
            }
        })?;
        Some(home)
    }

    /// The task was not spawned.
    pub fn give_up_promise(&self, who: ContextRef, now: Nanos) -> Aftermath {
        let given_up = self.with_table(None, now, |table, machine| {
            table.promised.retain(|id| *id != who.id());
            self.pass_on(table, machine);
        });
        given_up.map_or_else(Aftermath::default, |((), aftermath)| aftermath)
    }

    /// As [`FairTasks::admit`], of a thread that is bound to a context that was set aside for it. If the context has been revoked
    /// since, the thread is best effort. `schedule` allows the home of the context and no other worker.
    pub fn admit_on_context(
        &self,
        (thread, word): (usize, usize),
        schedule: &Schedule,
        who: ContextRef,
        here: Option<usize>,
        now: Nanos,
    ) -> Aftermath {
        let name = self.name(thread);
        let mut table = self.table();
        let WakeWorker(worker) = self.admit(thread, word, schedule, false, here, now);
        let mut machine = self.seen_from(here, now);
        if let Some(table) = &mut table {
            table.promised.retain(|id| *id != who.id());
            let who = table.name(who);
            // It may have run and ended by now, as best effort.
            let _bound = table.contexts.bind(&mut machine, who, name);
            self.after_operation(table, &mut machine);
        }
        let mut aftermath = machine.aftermath();
        aftermath.workers.extend(worker);
        aftermath
    }

    /// Binds a context to the thread that runs on `here`.
    pub fn bind_current(
        &self,
        who: ContextRef,
        thread: usize,
        here: usize,
        now: Nanos,
    ) -> Option<(Result<(), BindError>, Aftermath)> {
        self.with_table(Some(here), now, |table, machine| {
            if table.promised.contains(&who.id()) {
                return Err(BindError::Withheld);
            }
            table.contexts.bind(machine, table.name(who), self.name(thread))
        })
    }

    /// The thread that runs on `here` gives `who` up, if that is what it is bound to; whether it was.
    pub fn unbind_current(
        &self,
        who: ContextRef,
        thread: usize,
        here: usize,
        now: Nanos,
    ) -> Option<(Result<bool, ContextError>, Aftermath)> {
        self.with_table(Some(here), now, |table, machine| {
            table.contexts.release(machine, table.name(who), self.name(thread))
        })
    }

    /// Takes a context away for good, wherever it is.
    pub fn revoke_context(
        &self,
        who: ContextRef,
        reason: RevokeReason,
        now: Nanos,
    ) -> Option<(Result<(), ContextError>, Aftermath)> {
        self.with_table(None, now, |table, machine| {
            self.forget_group_of(table, who);
            let revoked = table.contexts.revoke(machine, table.name(who), reason);
            table.close_orphans();
            revoked.map(drop)
        })
    }

    /// Grants another budget, period and deadline, if every deadline still holds and the ledger allows it.
    pub fn adjust_context(
        &self,
        who: ContextRef,
        terms: (Nanos, Nanos, Nanos),
        now: Nanos,
    ) -> Option<(Result<(), CreateError>, Aftermath)> {
        self.with_table(None, now, |table, machine| {
            let who = table.name(who);
            table.contexts.adjust_if_admitted(machine, now, who, terms)
        })
    }

    /// `thread` sleeps, and is about to be woken: its waker binds it to a context, on the context's worker.
    pub fn send_to_bind(&self, thread: usize, who: ContextRef) {
        if let Some(mut table) = self.table() {
            table.errands[thread] = Some(Errand::Bind(who));
            // Before the wake: the waker sees it.
            self.threads[thread].by_table.store(true, Ordering::Relaxed);
        }
    }

    /// What is known of a context.
    pub fn context_info(&self, who: ContextRef, now: Nanos) -> Option<Result<Known, ContextError>> {
        let (info, _) = self.with_table(None, now, |table, machine| {
            let info = table.contexts.info(machine, now, table.name(who))?;
            Ok((info, table.group_of(who.id())))
        })?;
        Some(info)
    }

    /// What is known of a context, also of one that is gone.
    pub fn last_known_context(&self, who: ContextRef, now: Nanos) -> Option<Known> {
        let (info, _) = self.with_table(None, now, |table, machine| {
            Some((table.contexts.inspect(machine, now, who.id())?, table.group_of(who.id())))
        })?;
        info
    }

    /// What is known of the context that `thread` holds.
    pub fn held_context(&self, thread: usize, now: Nanos) -> Option<Known> {
        let (info, _) = self.with_table(None, now, |table, machine| {
            let held = table.contexts.held_by(machine, self.name(thread))?;
            Some((table.contexts.inspect(machine, now, held.id())?, table.group_of(held.id())))
        })?;
        info
    }

    /// Empties the notice cells of a context.
    pub fn drain_notices(&self, who: ContextRef, now: Nanos) -> Option<Result<Drained, ContextError>> {
        let (drained, _) =
            self.with_table(None, now, |table, machine| table.contexts.drain(machine, table.name(who)))?;
        Some(drained)
    }

    /// Lets `thread` be told of the next event of a context.
    pub fn wait_for_notice(
        &self,
        who: ContextRef,
        thread: usize,
        now: Nanos,
    ) -> Option<Result<NoticeWait, WaitError>> {
        let (wait, _) = self.with_table(None, now, |table, machine| {
            table.contexts.wait_for_notice(machine, table.name(who), self.name(thread))
        })?;
        Some(wait)
    }

    /// `thread` waits no longer for a notice.
    pub fn stop_waiting(&self, who: ContextRef, thread: usize, now: Nanos) {
        self.with_table(None, now, |table, machine| {
            table.contexts.stop_waiting(machine, who, self.name(thread));
        });
    }

    /// What somebody has to be told of because of what happened on the core of `worker`.
    pub fn take_untold(&self, worker: usize) -> Vec<Untold> {
        self.cores[worker].take_untold()
    }

    /// Whether the thread that runs on `worker` has a context, or has lent one.
    pub fn current_has_authority(&self, worker: usize) -> bool {
        self.contexts.is_some() && self.cores[worker].lock().current_has_authority()
    }

    /// The thread that runs on `worker` ends, and what it has goes back to whom it belongs.
    pub(super) fn end_with_authority(&self, worker: usize, now: Nanos) -> (ThreadRef, Aftermath) {
        let mut table = self.table().expect("there are contexts");
        let mut machine = self.seen_from(Some(worker), now);
        let entity = self.cores[worker].with(|core| core.access(now, &mut &self.threads).exit_current());
        let mut entity = entity.expect("a task that ends runs");
        table.contexts.thread_ended(&mut machine, &mut entity);
        self.after_operation(&mut table, &mut machine);
        (entity.thread(), machine.aftermath())
    }
}
