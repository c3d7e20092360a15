//! Contexts of groups: of the tasks of a nursery, or of a tenant. One task of the group has such a context at a time, and
//! when it gives the context up or ends, the next one has it. A group may have several; a task has one at most.
//!
//! Conserved: what [`mainspring_driver::contexts`] conserves; a group's context is bound to one of its threads or at rest. A thread
//! that has had a context is given none by its group, so a context that nobody keeps goes once through the group and comes to
//! rest. A thread is bound in the place where it sits, or moved while it is queued, or moved by the one that may make it ready: it
//! is never woken for a context.
//!
//! A group's context is looked after when it comes to rest, when a thread of the group is admitted, and, for a thread that could
//! not be moved to the context's worker then (it is an *heir*), when that thread is woken or gives way.

use super::FairTasks;
use super::contexts::{Aftermath, Table};
use super::machine::{NOWHERE, Seen};
use crate::protocol::mutant::{Mutant, broken};
use crate::protocol::prim::{Ordering, fence};
use mainspring_abi::{ContextRef, CpuId, Nanos, ThreadRef};
use mainspring_driver::contexts::{ContextError, Location};
use mainspring_driver::{Machine as _, placement};
use mainspring_sched::{Affinity, Authority, State, Via};
use std::sync::Arc;

/// Whose tasks may have a context, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// The children of a nursery, by its number.
    Nursery(u64),
    /// The tasks of a tenant ([`Schedule::process`](super::Schedule::process)).
    Tenant(u32),
}

/// The context of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupContext {
    context: u32,
    group: Group,
}

/// A context could not be given to a group. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// It is gone.
    Context(ContextError),
    /// It is this group's already.
    OfGroup(Group),
}

impl Table {
    /// The group that a context is of.
    pub(super) fn group_of(&self, context: u32) -> Option<Group> {
        self.groups.iter().find(|of| of.context == context).map(|of| of.group)
    }

    /// A context that no thread has and none is being spawned on.
    fn if_free(&self, context: u32) -> Option<ContextRef> {
        let free = self.contexts.is_free(context) && !self.promised.contains(&context);
        self.contexts.names().find(|name| free && name.id() == context)
    }

    /// The first of these groups' contexts that is free.
    fn free_context_of(&self, groups: [Group; 2]) -> Option<ContextRef> {
        let of = |group| self.groups.iter().filter(move |of| of.group == group);
        groups.into_iter().flat_map(of).find_map(|of| self.if_free(of.context))
    }
}

impl FairTasks {
    /// The nursery of a thread that was claimed and is not admitted yet.
    pub fn set_nursery(&self, thread: usize, nursery: u64) {
        // Relaxed: the thread is published under the lock of a core.
        self.threads[thread].nursery.store(nursery, Ordering::Relaxed);
    }

    /// Whether a thread that is about to be spawned may be due a context of its group.
    pub fn has_groups(&self) -> bool {
        // Relaxed: one that is missed is found after the admission.
        self.grouped.load(Ordering::Relaxed) != 0
    }

    /// Makes a context one of a group. If it is at rest, the first task of the group that has had none has it.
    pub fn bind_group(
        &self,
        who: ContextRef,
        group: Group,
        now: Nanos,
    ) -> Option<(Result<(), GroupError>, Aftermath)> {
        self.with_table(None, now, |table, machine| {
            let info = table.contexts.info(machine, now, table.name(who)).map_err(GroupError::Context)?;
            let lives =
                |of: &GroupContext| !matches!(table.contexts.place(of.context), None | Some(Location::Gone));
            table.groups.retain(lives);
            if let Some(group) = table.group_of(info.who.id()) {
                return Err(GroupError::OfGroup(group));
            }
            table.groups.push(GroupContext { context: info.who.id(), group });
            self.note_groups(table);
            // Pairs with the fence in `offer_after_admission`: the thread that is admitted is seen here, or sees the group.
            fence(Ordering::SeqCst);
            self.pass_on(table, machine);
            Ok(())
        })
    }

    /// A context is its group's no longer: the task that has it keeps it, and nobody else is given it. Whether it was one's.
    pub fn unbind_group(&self, who: ContextRef) -> Option<bool> {
        Some(self.forget_group_of(&mut *self.table()?, who))
    }

    pub(super) fn forget_group_of(&self, table: &mut Table, who: ContextRef) -> bool {
        let before = table.groups.len();
        table.groups.retain(|of| of.context != who.id());
        self.note_groups(table);
        table.groups.len() < before
    }

    /// A group has ended, and its threads before it.
    pub fn end_group(&self, group: Group) {
        if let Some(mut table) = self.table() {
            table.groups.retain(|of| of.group != group);
            self.note_groups(&table);
        }
    }

    fn note_groups(&self, table: &Table) {
        self.grouped.store(table.groups.len(), Ordering::SeqCst);
    }

    /// Sets the context of the nursery or else of the tenant aside for a thread that is about to be spawned, if it is at rest;
    /// with the worker that the thread has to start on.
    pub fn promise_of_group(
        &self,
        nursery: u64,
        tenant: u32,
        may_run_on: impl Fn(CpuId) -> bool,
    ) -> Option<(ContextRef, CpuId)> {
        let mut table = self.table()?;
        let who = table.free_context_of([Group::Nursery(nursery), Group::Tenant(tenant)])?;
        let home = table.contexts.home(who.id()).filter(|home| may_run_on(*home))?;
        table.promised.push(who.id());
        Some((who, home))
    }

    /// `thread` has been admitted without a context: one of its group may have come to rest since it was looked for.
    pub fn offer_after_admission(&self, thread: usize, here: Option<usize>, now: Nanos) -> Aftermath {
        if self.contexts.is_none() {
            return Aftermath::default();
        }
        // Pairs with the fence in `bind_group`.
        fence(Ordering::SeqCst);
        if self.grouped.load(Ordering::Relaxed) == 0 || broken(Mutant::AdmittedPastGroup) {
            return Aftermath::default();
        }
        let groups = self.groups_of(thread);
        let offered = self.with_table(here, now, |table, machine| {
            if table.free_context_of(groups).is_some() {
                self.pass_on(table, machine);
            }
        });
        offered.map_or_else(Aftermath::default, |((), aftermath)| aftermath)
    }

    /// The groups that a thread is of, the one that goes first before the other. If another thread has its number by now, those of
    /// that one.
    fn groups_of(&self, thread: usize) -> [Group; 2] {
        let entry = &self.threads[thread];
        [
            Group::Nursery(entry.nursery.load(Ordering::Relaxed)),
            Group::Tenant(entry.process.load(Ordering::Relaxed)),
        ]
    }

    /// Gives each context of a group that is at rest to the next of its threads.
    pub(super) fn pass_on(&self, table: &mut Table, machine: &mut Seen<'_>) {
        for at in 0..table.groups.len() {
            let GroupContext { context, group } = table.groups[at];
            if let Some(who) = table.if_free(context) {
                let mut waiting: Vec<(u64, usize)> = self.waiting_in(group).collect();
                waiting.sort_unstable();
                let given = waiting.into_iter().find(|(_, thread)| self.give(table, machine, who, *thread));
                machine.note_given(given.map(|(_, thread)| thread));
            }
        }
    }

    /// The threads of a group that have had no context, and when each was admitted.
    fn waiting_in(&self, group: Group) -> impl Iterator<Item = (u64, usize)> + '_ {
        // Relaxed: a thread that is being admitted looks for itself afterwards; `give` asks its core what it is.
        let waits = move |(number, thread): (usize, &super::Thread)| {
            let lives = thread.slot.load(Ordering::Relaxed) != NOWHERE;
            let member = match group {
                Group::Nursery(nursery) => thread.nursery.load(Ordering::Relaxed) == nursery,
                Group::Tenant(tenant) => thread.process.load(Ordering::Relaxed) == tenant,
            };
            let waits = lives && member && !thread.had_context.load(Ordering::Relaxed);
            waits.then(|| (thread.admitted_at.load(Ordering::Relaxed), number))
        };
        self.threads.iter().enumerate().filter_map(waits)
    }

    /// Binds a group's context, which is at rest, to `thread`; whether it has it. If it could have it on another worker than it is
    /// on, it is an heir.
    fn give(&self, table: &mut Table, machine: &mut Seen<'_>, who: ContextRef, thread: usize) -> bool {
        let (name, entry) = (self.name(thread), &self.threads[thread]);
        let Some(home) = table.contexts.home(who.id()) else { return false };
        // Before the look at where it is, which is under the lock of its core: if it stops or is woken after that, this is seen.
        entry.heir.store(true, Ordering::Relaxed);
        // One that stays where it runs first leaves its seat for a moment when it does, which one with a context must not: it is
        // seated to stay here before.
        let stays = entry.stays_when_run.load(Ordering::Relaxed);
        let there = !stays && machine.home(name).is_some_and(|at| at.cpu == home)
            || self.move_queued(machine, name, home);
        let bound = there && table.contexts.bind_in_place(machine, who, name).is_ok();
        let may_come = !bound && machine.may_come_for_context(name, home);
        entry.heir.store(may_come, Ordering::Relaxed);
        bound
    }

    /// Whether `thread` may have its group's context when it is made ready: by [`FairTasks::wake_by_table`].
    pub fn is_heir(&self, thread: usize) -> bool {
        self.threads[thread].heir.load(Ordering::Relaxed)
    }

    /// `thread` is about to be made ready. If its group's context is at rest, it is bound to it, and may be ready on the
    /// context's worker by that; whether it is.
    pub(super) fn inherit(&self, table: &mut Table, machine: &mut Seen<'_>, thread: usize) -> bool {
        let (name, entry) = (self.name(thread), &self.threads[thread]);
        if !entry.heir.swap(false, Ordering::Relaxed) || entry.had_context.load(Ordering::Relaxed) {
            return false;
        }
        let Some(who) = table.free_context_of(self.groups_of(thread)) else { return false };
        let before = machine.home(name);
        // One that may not have it goes on without.
        let _bound = table.contexts.bind(machine, who, name);
        machine.home(name) != before
    }
}

impl FairTasks {
    /// A queued thread without a context comes over to `to`, if it may; whether it is there. One that has not run and is to stay
    /// where it does stays there. One that sleeps is left alone: nobody but its waker may make it ready.
    fn move_queued(&self, machine: &mut Seen<'_>, thread: ThreadRef, to: CpuId) -> bool {
        if !machine.may_enter(thread, to) {
            return false;
        }
        let Some(home) = machine.home(thread) else { return false };
        let removed = machine.with_cpu(home.cpu, |cpu| {
            let entity = cpu.cpu().entity(home.seat).ok()?;
            let movable = *entity.authority() == Authority::BestEffort && entity.affinity().allows(to);
            let queued = cpu.cpu().state(home.seat) == Ok(State::Queued);
            (movable && queued).then(|| cpu.remove(home.seat)).flatten()
        });
        let Some((mut removed, left)) = removed else { return false };
        // It is in nobody else's hands.
        let number = thread.index() as usize;
        if self.threads[number].stays_when_run.swap(false, Ordering::Relaxed) {
            let only_there = Affinity::Only(Arc::new([to].into_iter().collect()));
            self.note_stays(number, &only_there);
            removed.entity.set_affinity(only_there);
        }
        let seated = machine.with_cpu(to, |cpu| cpu.accept(removed.entity, Via::Admit, Some(left)).ok());
        let (home, woken) =
            seated.expect("its affinity allows the worker, and each has a seat for every thread");
        placement::kick(machine, home, woken.reschedule);
        true
    }
}
