//! Contexts in the machine: which thread is due which, and what the table of [`Contexts`] asks of the simulator.
//!
//! Conserved: the table is taken out of the machine while one of its operations runs, and put back afterwards. What comes to rest
//! meanwhile goes to the next thread of its process only then.

use super::Machine;
use mainspring_abi::{ContextRef, CpuId, Nanos, ThreadRef};
use mainspring_driver::contexts::{CallEnd, ContextMachine, ContextMoved, Contexts, RevokeReason};
use mainspring_driver::islands::UsedUp;
use mainspring_driver::sessions::SessionRef;
use mainspring_record::jobs::MISSES_LISTED;
use mainspring_report::{Miss, MissKind};
use mainspring_sched::context::{Context, NoticeKind, Overrun};
use mainspring_sched::lease::SessionId;
use mainspring_sched::{Entity, Overran, Seat, State};

impl ContextMachine for Machine<'_> {
    fn overran(&mut self, overran: Overran) {
        self.take_note_of(overran);
    }

    fn wake_waiter(&mut self, _: ContextRef, waiter: ThreadRef) {
        self.wake_if_parked(waiter);
    }

    fn session_of(&self, thread: ThreadRef) -> Option<SessionRef> {
        let session = self.workload.threads[self.table_of(thread.index() as usize)].session?;
        self.grants.sessions.get(session).copied()
    }

    fn context_moved(&mut self, event: ContextMoved) {
        let index = |thread: ThreadRef| Some(thread.index() as usize);
        match event {
            ContextMoved::Bound { context, thread } => {
                self.log_context("bind", self.grants.index(context), index(thread), None, "");
            }
            ContextMoved::Unbound { context, thread } => {
                self.log_context("unbind", self.grants.index(context), index(thread), None, "");
            }
            ContextMoved::Lent { context, from, to } => {
                self.log_context("donate", self.grants.index(context), index(from), index(to), "");
            }
            ContextMoved::Returned { context, from, to, end } => {
                let why = if end == CallEnd::TimedOut { "timeout" } else { "" };
                self.log_context("return", self.grants.index(context), from.and_then(index), index(to), why);
            }
            ContextMoved::AtRest { context } => self.grants.at_rest.extend(self.grants.index(context)),
            ContextMoved::Revoked { context, from, reason } => {
                let why = if reason == RevokeReason::Logout { "logout" } else { self.grants.why_revoked };
                let grant = self.grants.index(context);
                if let Some(grant) = grant {
                    self.grants.list[grant].revoked = true;
                    self.grants.list[grant].terms.end(self.now);
                }
                self.log_context("revoke", grant, from.and_then(index), None, why);
            }
        }
    }
}

impl Machine<'_> {
    /// An operation on the table of contexts, by the CPU whose event is in progress.
    pub(super) fn with_contexts<R>(&mut self, act: impl FnOnce(&mut Contexts, &mut Self) -> R) -> R {
        let mut contexts = std::mem::take(&mut self.contexts);
        let result = self.on_behalf_of(self.acting, |machine| act(&mut contexts, machine));
        self.contexts = contexts;
        while let Some(grant) = self.grants.at_rest.pop() {
            self.pass_on(grant);
        }
        result
    }

    /// Where `thread` sits, if it lives.
    pub(super) fn place_of(&self, thread: usize) -> Option<(usize, Seat)> {
        self.threads[thread].home.map(|home| (home.cpu.index(), home.seat))
    }

    /// The index of the table that instance `thread` is of.
    pub(super) fn table_of(&self, thread: usize) -> usize {
        self.threads[thread].spec as usize
    }

    /// The scheduling state of a thread that lives.
    pub(super) fn entity(&self, thread: usize) -> Option<&Entity> {
        let (cpu, seat) = self.place_of(thread)?;
        self.cores[cpu].entity(seat).ok()
    }

    /// The context that `thread` holds.
    pub(super) fn holds(&self, thread: usize) -> Option<&Context> {
        if self.grants.list.is_empty() {
            return None;
        }
        self.entity(thread)?.context()
    }

    /// The grant that instance `index` is bound to from its start, by its table or as its process's default.
    pub(super) fn due_to(&self, index: usize) -> Option<usize> {
        let spec = self.table_of(index);
        let table = &self.workload.threads[spec];
        if let Some(context) = table.context {
            let own = self.grants.numbers.first(context) + index - self.numbers.first(spec);
            return Some(own).filter(|grant| self.is_free(*grant));
        }
        (0..self.grants.list.len()).find(|grant| {
            let spec = &self.workload.contexts[self.grants.list[*grant].table];
            spec.process == Some(table.process) && self.is_free(*grant)
        })
    }

    /// The thread that has the context.
    pub(super) fn holder_of(&self, grant: usize) -> Option<ThreadRef> {
        self.contexts.holder(self.grants.list[grant].id()?)
    }

    /// Whether a thread could bind the context.
    pub(super) fn is_free(&self, grant: usize) -> bool {
        self.grants.list[grant].id().is_some_and(|id| self.contexts.is_free(id))
    }

    /// Where instance `index` must start, if it starts on a context.
    pub(super) fn starting_place(&self, index: usize) -> Option<usize> {
        if self.grants.list.is_empty() {
            return None;
        }
        let home = self.grants.list[self.due_to(index)?].home?;
        let allowed = CpuId::new(home).is_ok_and(|cpu| self.threads[index].affinity.allows(cpu));
        allowed.then_some(home)
    }

    /// Instance `index` has just started: gives it what it is due.
    pub(super) fn bind_at_start(&mut self, index: usize) {
        if self.grants.list.is_empty() {
            return;
        }
        if let Some(grant) = self.due_to(index) {
            self.bind_grant(grant, index);
        }
    }

    /// Binds a context that is at rest to `thread`, which comes over to the context's home if it does not run; whether it is bound.
    pub(super) fn bind_grant(&mut self, grant: usize, thread: usize) -> bool {
        let Some(who) = self.grants.list[grant].who else { return false };
        let thread = self.threads[thread].identity;
        if self.islands.admission.island_of(grant).is_none() {
            return self.with_contexts(|contexts, machine| contexts.bind(machine, who, thread)).is_ok();
        }
        let bound = self.with_contexts(|contexts, machine| {
            machine.with_leases(|leases, machine| {
                machine.with_islands(|islands, machine| {
                    let node = islands.node_of(who)?;
                    islands.bind(machine, contexts, leases, node, thread).ok()
                })
            })
        });
        bound.flatten().flatten().is_some()
    }

    /// A process's default that has come to rest goes to its next thread.
    fn pass_on(&mut self, grant: usize) {
        let process = self.workload.contexts[self.grants.list[grant].table].process;
        let Some(process) = process else { return };
        let next = (0..self.threads.len()).find(|index| {
            let spec = &self.workload.threads[self.table_of(*index)];
            spec.process == process
                && spec.context.is_none()
                && self.place_of(*index).is_some_and(|(cpu, _)| Some(cpu) == self.grants.list[grant].home)
                && self.holds(*index).is_none()
        });
        if let Some(next) = next {
            self.bind_grant(grant, next);
        }
    }

    /// Takes a context away for good, from its holder; whether there was one.
    pub(super) fn revoke_grant(&mut self, grant: usize, why: &'static str) -> bool {
        let Some(who) = self.grants.list[grant].who else { return false };
        self.grants.why_revoked = why;
        self.with_contexts(|contexts, machine| contexts.revoke(machine, who, RevokeReason::Explicit)).is_ok()
    }

    /// Gives up the context that `thread` is bound to; whether there was one.
    pub(super) fn release_context(&mut self, thread: usize) -> bool {
        let thread = self.threads[thread].identity;
        self.with_contexts(|contexts, machine| contexts.unbind(machine, thread)).is_some()
    }

    /// Empties the notice cells of a context, wherever it is.
    pub(super) fn drain_grant(&mut self, grant: usize) {
        let Some(who) = self.grants.list[grant].who else { return };
        let drained = self.with_contexts(|contexts, machine| contexts.drain(machine, who));
        debug_assert!(drained.is_ok(), "the context was granted");
    }

    /// The session that the workload numbers `session`, as leases name it: by its number, which is never given twice.
    pub(super) fn session_id(&self, session: usize) -> SessionId {
        SessionId(self.grants.sessions[session].id())
    }

    /// The session is over: contexts of its threads are revoked, except those on loan, which end when they come back.
    pub(super) fn logout(&mut self, session: usize) {
        let name = &self.workload.sessions[session];
        let session = self.grants.sessions[session];
        let ended = self.with_contexts(|contexts, machine| contexts.logout(machine, session));
        // A second logout of a session finds that it has ended.
        let skipped = ended.map_or(0, |logout| logout.inflight_skipped);
        if skipped != 0 {
            let now = self.now;
            self.notices.push(format!("at {now} the logout of {name} left loans in flight alone: {skipped}"));
        }
    }

    /// A thread has ended with `entity`: a context that it held goes back to its donor or its owner, and a context
    /// that it lent is called in.
    pub(super) fn call_authority_in(&mut self, mut entity: Entity) {
        if !self.grants.list.is_empty() {
            self.with_contexts(|contexts, machine| contexts.thread_ended(machine, &mut entity));
        }
    }

    /// Notes what overran, to be dealt with when the event in progress is over.
    pub(super) fn note_overrun(&mut self, cpu: usize) {
        if let Some(overran) = self.cores[cpu].take_overrun() {
            self.take_note_of(overran);
        }
    }

    fn take_note_of(&mut self, overran: Overran) {
        let grant = self.grants.index(overran.context);
        let thread = overran.seat.thread().index() as usize;
        if overran.depleted {
            self.log_context("deplete", grant, Some(thread), None, "");
        }
        if overran.missed
            && let Some(grant) = grant
        {
            self.note_context_miss(grant, thread);
        }
        let acts = overran.policy != Overrun::Throttle && overran.depleted;
        if acts || overran.waiter.is_some() {
            self.overruns.push(overran);
        }
    }

    /// The deadline of a context has passed while `thread` had work left. The notice of it says when that was.
    fn note_context_miss(&mut self, grant: usize, thread: usize) {
        let notice = self.holds(thread).and_then(|held| held.notices().peek(NoticeKind::DeadlineOrTimeout));
        let due = notice.map_or(self.now, |notice| notice.next.min(self.now));
        self.list_context_miss(grant, Some(thread), due);
    }

    fn list_context_miss(&mut self, grant: usize, thread: Option<usize>, due: Nanos) {
        self.grants.list[grant].missed_due = Some(due);
        if self.context_misses.len() >= MISSES_LISTED {
            return;
        }
        let id = self.grants.list[grant].id();
        let deadline = id.and_then(|id| self.contexts.spec(id)).map(|spec| spec.deadline);
        self.context_misses.push(Miss {
            time_ns: due.get(),
            kind: MissKind::Context,
            thread: thread.map(|thread| self.thread_name(thread)),
            context: Some(self.context_name(grant)),
            release_ns: (due - deadline.unwrap_or_default()).get(),
            ..Miss::default()
        });
    }

    /// Notes the deadlines that have passed while the holder of a context was ready or ran, and that no charge has shown
    /// so far. One that runs is charged when its thread is booked, and the core counts the miss then.
    pub(super) fn note_unseen_misses(&mut self) {
        for grant in 0..self.grants.list.len() {
            let Some(holder) = self.holder_of(grant) else { continue };
            let thread = holder.index() as usize;
            let Some((cpu, seat)) = self.place_of(thread) else { continue };
            let state = self.cores[cpu].state(seat);
            if !matches!(state, Ok(State::Queued | State::Direct | State::Held | State::Running)) {
                continue;
            }
            let Some(due) = self.holds(thread).map(|context| context.deadline()) else { continue };
            if due < self.now && self.grants.list[grant].missed_due != Some(due) {
                self.list_context_miss(grant, Some(thread), due);
                self.grants.list[grant].unseen_misses += u64::from(state != Ok(State::Running));
            }
        }
    }

    /// Does what the owners of overrun contexts want to happen.
    pub(super) fn deal_with_overruns(&mut self) {
        while let Some(Overran { owner, context, policy, depleted, waiter, .. }) = self.overruns.pop() {
            let thread = owner.index() as usize;
            if let Some(waiter) = waiter {
                self.wake_if_parked(waiter);
            }
            if !depleted || self.threads[thread].identity != owner {
                continue;
            }
            match self.with_islands(|islands, machine| islands.used_up(machine, context, policy)) {
                Some(UsedUp::Fault) => self.fault(thread, context),
                Some(UsedUp::Revoke) => {
                    if let Some(grant) = self.grants.index(context) {
                        self.revoke_grant(grant, "shutdown");
                    }
                }
                Some(UsedUp::Leave(live)) => {
                    if let Some(island) = self.island_named(live) {
                        self.leave_island(island, "shutdown");
                    }
                }
                Some(UsedUp::Nothing) | None => {}
            }
        }
    }

    /// Lists the refills of a context if they have changed.
    pub(super) fn show_refills(&mut self, grant: usize) {
        if self.schedule.is_none() {
            return;
        }
        let Some(context) = self.holder_of(grant).and_then(|holder| self.holds(holder.index() as usize))
        else {
            return;
        };
        let list = context.refills().list().to_vec();
        if self.grants.list[grant].shown != list {
            self.log_refills(grant, &list);
            self.grants.list[grant].shown = list;
        }
    }
}
