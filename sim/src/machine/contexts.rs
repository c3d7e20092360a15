//! Contexts in the machine: how they get from one thread to another.
//!
//! Conserved: a context's value is on the registry's shelf or in exactly one thread, its `holder`; whoever has lent it,
//! directly or along a chain of calls, stays blocked until it is back or written off. A thread that holds one sits on the
//! context's home CPU.

use super::Machine;
use super::grants::Grant;
use mainspring_abi::{ContextRef, CpuId, Nanos};
use mainspring_driver::Home;
use mainspring_sched::context::{Context, Drained, Overrun, PutBack};
use mainspring_sched::{Authority, Entity, Overran, Seat};

impl Machine<'_> {
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

    /// The context that `thread` has lent.
    pub(super) fn has_lent(&self, thread: usize) -> Option<ContextRef> {
        match self.entity(thread)?.authority() {
            Authority::Lent(who) => Some(*who),
            Authority::BestEffort | Authority::Context(_) => None,
        }
    }

    /// The grant that instance `index` is bound to from its start, by its table or as its process's default.
    pub(super) fn due_to(&self, index: usize) -> Option<usize> {
        let spec = self.table_of(index);
        let table = &self.workload.threads[spec];
        if let Some(context) = table.context {
            let own = self.grants.bases[context] + index - self.bases[spec];
            return Some(own).filter(|grant| self.is_free(*grant));
        }
        (0..self.grants.list.len()).find(|grant| {
            let spec = &self.workload.contexts[self.grants.list[*grant].table];
            spec.process == Some(table.process) && self.is_free(*grant)
        })
    }

    fn is_free(&self, grant: usize) -> bool {
        let grant = &self.grants.list[grant];
        grant.owner.is_none() && !grant.revoked && !grant.withheld
    }

    /// Where instance `index` must start, if it starts on a context.
    pub(super) fn starting_place(&self, index: usize) -> Option<usize> {
        if self.grants.list.is_empty() {
            return None;
        }
        let home = self.grants.list[self.due_to(index)?].home;
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

    /// Binds a context that is on the shelf to `thread`, which sits on the context's home; whether it is bound.
    pub(super) fn bind_grant(&mut self, grant: usize, thread: usize) -> bool {
        let Some((cpu, _)) = self.place_of(thread) else { return false };
        let Grant { who, home, revoked, withheld, .. } = self.grants.list[grant];
        if cpu != home || revoked || withheld {
            return false;
        }
        let identity = self.threads[thread].identity;
        let Ok(value) = self.grants.registry.bind(who, identity) else { return false };
        if let Err(value) = self.install(thread, value) {
            let _shelved = self.grants.registry.put_back(value);
            return false;
        }
        self.grants.list[grant].owner = Some(thread as u32);
        self.log_context("bind", Some(grant), Some(thread), None, "");
        true
    }

    /// Gives `thread` a context's value; gives it back if that cannot be.
    pub(super) fn install(&mut self, thread: usize, value: Box<Context>) -> Result<(), Box<Context>> {
        let Some((cpu, seat)) = self.place_of(thread) else { return Err(value) };
        let grant = self.grants.index(value.who());
        match self.core_bind(cpu, seat, value) {
            Ok(reschedule) => {
                if let Some(grant) = grant {
                    self.grants.list[grant].holder = Some(thread as u32);
                    self.show_refills(grant);
                }
                self.threads[thread].pinned = true;
                self.kick(reschedule, Home { cpu: self.cpu_id(cpu), seat }, self.acting);
                Ok(())
            }
            Err(refused) => Err(refused.context),
        }
    }

    /// Takes the value of a context from `thread`, which goes on as best effort.
    pub(super) fn strip(&mut self, thread: usize) -> Option<Box<Context>> {
        let (cpu, seat) = self.place_of(thread)?;
        let value = self.core_unbind(cpu, seat).ok()?;
        self.threads[thread].pinned = false;
        if let Some(grant) = self.grants.index(value.who()) {
            self.grants.list[grant].holder = None;
            self.grants.list[grant].usage = *value.usage();
        }
        let wanted = self.cores[cpu].reschedule_wanted();
        self.kick(wanted, Home { cpu: self.cpu_id(cpu), seat }, self.acting);
        Some(value)
    }

    /// Puts a context that nobody is to have any more on the shelf. A process's default goes to its next thread.
    pub(super) fn shelve(&mut self, mut value: Box<Context>) {
        while value.return_to().is_some() {}
        let Some(grant) = self.grants.index(value.who()) else { return };
        self.grants.list[grant].holder = None;
        self.grants.list[grant].owner = None;
        self.grants.list[grant].usage = *value.usage();
        match self.grants.registry.put_back(value) {
            PutBack::Shelved => self.pass_on(grant),
            PutBack::Dropped(_) => self.grants.list[grant].revoked = true,
        }
    }

    fn pass_on(&mut self, grant: usize) {
        let process = self.workload.contexts[self.grants.list[grant].table].process;
        let Some(process) = process else { return };
        let next = (0..self.threads.len()).find(|index| {
            let spec = &self.workload.threads[self.table_of(*index)];
            spec.process == process
                && spec.context.is_none()
                && self.place_of(*index).is_some_and(|(cpu, _)| cpu == self.grants.list[grant].home)
                && self.holds(*index).is_none()
        });
        if let Some(next) = next {
            self.bind_grant(grant, next);
        }
    }

    /// Brings the context that `donor` has lent back to it, from wherever it is. Those whom it was lent to on the way, and
    /// who still wait for it, wait for it no longer. Returns whether anything was away.
    pub(super) fn bring_back(&mut self, donor: usize, late: bool) -> bool {
        let Some(who) = self.has_lent(donor) else { return false };
        let identity = self.threads[donor].identity;
        let taken = self.grants.index(who).and_then(|grant| self.grants.list[grant].holder);
        let Some(mut value) = taken.and_then(|holder| self.strip(holder as usize)) else {
            self.write_off(donor);
            return true;
        };
        self.forget_donors_after(&mut value, identity);
        if late {
            let _waiter = value.note_timeout(identity, self.now);
        }
        let grant = self.grants.index(who);
        self.log_context(
            "return",
            grant,
            taken.map(|holder| holder as usize),
            Some(donor),
            if late { "timeout" } else { "" },
        );
        let owner = value.donors().depth() == 0;
        if owner && self.grants.registry.ends_on_return(who) {
            self.write_off(donor);
            self.end_context(value, "logout");
        } else if let Err(value) = self.install(donor, value) {
            debug_assert!(false, "a donor gets its context back");
            self.write_off(donor);
            self.shelve(value);
        }
        true
    }

    /// `donor`, and those whom it led to, are off the stack of `value`; those others are told that it will not come back.
    fn forget_donors_after(&mut self, value: &mut Context, donor: mainspring_abi::ThreadRef) {
        let later: Vec<_> = value.donors().iter().skip_while(|one| *one != donor).skip(1).collect();
        value.cut(donor);
        for one in later {
            self.write_off(one.index() as usize);
        }
    }

    fn write_off(&mut self, donor: usize) {
        if let Some((cpu, seat)) = self.place_of(donor) {
            let _ = self.core(cpu).write_off(seat);
        }
    }

    /// A context's value is gone for good.
    fn end_context(&mut self, value: Box<Context>, why: &'static str) {
        let Some(grant) = self.grants.index(value.who()) else { return };
        self.grants.list[grant].usage = *value.usage();
        self.grants.list[grant].holder = None;
        self.grants.list[grant].owner = None;
        self.grants.list[grant].revoked = true;
        let _dropped = self.grants.registry.put_back(value);
        self.log_context("revoke", Some(grant), None, None, why);
    }

    /// Takes a context away for good, from whoever has it; whether there was one.
    pub(super) fn revoke_grant(&mut self, grant: usize, why: &'static str) -> bool {
        let who = self.grants.list[grant].who;
        if self.grants.registry.revoke(who).is_err() {
            return false;
        }
        let holder = self.grants.list[grant].holder;
        if let Some(mut value) = holder.and_then(|holder| self.strip(holder as usize)) {
            let donors: Vec<_> = value.donors().iter().collect();
            for donor in donors {
                self.write_off(donor.index() as usize);
            }
            while value.return_to().is_some() {}
            self.grants.list[grant].usage = *value.usage();
        }
        self.grants.list[grant].holder = None;
        self.grants.list[grant].owner = None;
        self.grants.list[grant].revoked = true;
        self.log_context("revoke", Some(grant), holder.map(|holder| holder as usize), None, why);
        true
    }

    /// Gives up the context that `thread` is bound to.
    pub(super) fn release_context(&mut self, thread: usize) -> bool {
        let Some(context) = self.holds(thread) else { return false };
        // What was lent to it is not its own to give up.
        if context.donors().depth() != 0 {
            return false;
        }
        let grant = self.grants.index(context.who());
        let Some(value) = self.strip(thread) else { return false };
        self.shelve(value);
        self.log_context("unbind", grant, Some(thread), None, "");
        true
    }

    /// Empties the notice cells of a context, wherever it is; whether there was anything in them.
    pub(super) fn drain_grant(&mut self, grant: usize) -> bool {
        let Grant { who, holder, .. } = self.grants.list[grant];
        let cells = match holder.and_then(|holder| self.place_of(holder as usize)) {
            Some((cpu, seat)) => {
                self.cores[cpu].notices_mut(seat).map(|notices| notices.drain()).unwrap_or_default()
            }
            None => match self.grants.registry.drain(who) {
                Ok(Drained::Ok(cells)) => cells,
                Ok(Drained::Revoked { .. } | Drained::StaleGeneration { .. }) | Err(_) => [None, None],
            },
        };
        cells.iter().any(Option::is_some)
    }

    /// Grants another budget and period; whether that makes sense.
    pub(super) fn adjust_grant(&mut self, grant: usize, budget: Nanos, period: Nanos) -> bool {
        let Grant { who, holder, .. } = self.grants.list[grant];
        let Some(info) = self.grants.registry.info(who) else { return false };
        let deadline = info.spec.deadline.min(period).max(budget);
        if self.grants.registry.adjust(self.now, who, budget, period, deadline).is_err() {
            return false;
        }
        if let Some(holder) = holder
            && let Some(mut value) = self.strip(holder as usize)
        {
            let adjusted = value.adjust(budget, period, deadline, self.now);
            debug_assert!(adjusted.is_ok(), "the registry found it sound");
            if let Err(value) = self.install(holder as usize, value) {
                self.shelve(value);
            }
        }
        true
    }

    /// The session is over: contexts of its threads are revoked, except those on loan, which end when they come back.
    pub(super) fn logout(&mut self, session: usize) {
        for thread in 0..self.threads.len() {
            if self.workload.threads[self.table_of(thread)].session != Some(session) {
                continue;
            }
            if let Some(who) = self.has_lent(thread) {
                self.grants.inflight_skipped += 1;
                let owner = self
                    .grants
                    .index(who)
                    .is_some_and(|grant| self.grants.list[grant].owner == Some(thread as u32));
                if owner {
                    let _ = self.grants.registry.revoke_on_return(who);
                }
            } else if let Some(context) = self.holds(thread) {
                if context.donors().depth() != 0 {
                    self.grants.inflight_skipped += 1;
                } else if let Some(grant) = self.grants.index(context.who()) {
                    self.revoke_grant(grant, "logout");
                }
            }
        }
    }

    /// `thread` has ended with `entity`: what it held goes back to whom it belongs, and what it lent is called in.
    pub(super) fn settle_authority(&mut self, thread: usize, mut entity: Entity) {
        let identity = entity.thread();
        let lent = match entity.authority() {
            Authority::Lent(who) => Some(*who),
            Authority::BestEffort | Authority::Context(_) => None,
        };
        if let Some(mut value) = entity.take_context() {
            self.threads[thread].pinned = false;
            if let Some(grant) = self.grants.index(value.who()) {
                self.grants.list[grant].holder = None;
            }
            match value.return_to() {
                Some(donor) => self.return_after_death(donor, value),
                None => self.shelve(value),
            }
        } else if let Some(who) = lent
            && let Some(grant) = self.grants.index(who)
            && let Some(holder) = self.grants.list[grant].holder
            && let Some(mut value) = self.strip(holder as usize)
        {
            self.forget_donors_after(&mut value, identity);
            match value.return_to() {
                Some(donor) => self.return_after_death(donor, value),
                None => self.shelve(value),
            }
        }
    }

    fn return_after_death(&mut self, donor: mainspring_abi::ThreadRef, value: Box<Context>) {
        let index = donor.index() as usize;
        let alive = self.threads[index].identity == donor;
        let who = value.who();
        let ends = value.donors().depth() == 0 && self.grants.registry.ends_on_return(who);
        if ends {
            self.write_off(index);
            self.end_context(value, "logout");
        } else if let Err(value) = if alive { self.install(index, value) } else { Err(value) } {
            self.shelve(value);
        }
    }

    /// Notes what overran, to be dealt with when the event in progress is over.
    pub(super) fn note_overrun(&mut self, cpu: usize) {
        if let Some(overran) = self.cores[cpu].take_overrun() {
            let grant = self.grants.index(overran.context);
            let thread = overran.seat.thread().index() as usize;
            if overran.depleted {
                self.log_context("deplete", grant, Some(thread), None, "");
            }
            if overran.missed {
                self.log_context("miss", grant, Some(thread), None, "");
            }
            let acts = matches!(overran.policy, Overrun::Fault | Overrun::Shutdown) && overran.depleted;
            if acts || overran.waiter.is_some() {
                self.overruns.push(overran);
            }
        }
    }

    /// Does what the owners of overrun contexts want to happen.
    pub(super) fn deal_with_overruns(&mut self) {
        while let Some(Overran { seat, context, policy, depleted, waiter, .. }) = self.overruns.pop() {
            let thread = seat.thread().index() as usize;
            if let Some(waiter) = waiter {
                self.wake_if_parked(waiter);
            }
            if !depleted || self.threads[thread].identity != seat.thread() {
                continue;
            }
            match policy {
                Overrun::Fault => self.fault(thread, context),
                Overrun::Shutdown => self.shut_island_of(context),
                Overrun::Throttle | Overrun::Notify => {}
            }
        }
    }

    /// Lists the refills of a context if they have changed.
    pub(super) fn show_refills(&mut self, grant: usize) {
        if self.schedule.is_none() {
            return;
        }
        let holder = self.grants.list[grant].holder;
        let Some(context) = holder.and_then(|holder| self.holds(holder as usize)) else { return };
        let list = context.refills().list().to_vec();
        if self.grants.list[grant].shown != list {
            self.log_refills(grant, &list);
            self.grants.list[grant].shown = list;
        }
    }
}
