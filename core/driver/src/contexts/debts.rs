//! What contexts leave as [debts](crate::debts) when they end or grant less, and when others are released in their place.
//!
//! Conserved: what the contexts of a ledger and of all below it grant, and its debts at their first releases, are within the ledger's
//! limit; what all contexts and debts of a CPU have together is within the CPU, or no debt is left at the first release. So nobody has
//! more time by ending a context and making it again, in the same ledger or in another one of the same ancestor.

use super::create::share;
use super::record::Position;
use super::transfer::InFlight;
use super::{CallEnd, ContextMachine, Contexts};
use crate::debts::{Debts, Owed};
use crate::ledgers::LedgerRef;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos};
use mainspring_authority::admission::Task;
use mainspring_sched::context::{ContextSpec, Refills};

/// A whole CPU, in the unit of [`Resource::CpuShare`](crate::ledgers::Resource::CpuShare).
const WHOLE: u64 = 1_000_000_000;

/// Nothing is owed on any of these CPUs.
pub(super) fn none(cpus: &CpuSet) -> Result<Vec<Debts>, TryReserveError> {
    let count = cpus.iter().last().map_or(0, |last| last.index() + 1);
    let mut debts = Vec::new();
    debts.try_reserve_exact(count)?;
    debts.resize(count, Debts::NONE);
    Ok(debts)
}

/// What has not come back of a grant, if its first release is still to come, and what comes after it.
pub(super) fn owed(spec: &ContextSpec, refills: &Refills) -> [Owed; 2] {
    let (first, others) =
        refills.list().split_first().map_or((None, &[][..]), |(one, more)| (Some(one), more));
    let of = |amount, until| {
        let used = ContextSpec { budget: amount, ..spec.clone() };
        Owed { share: share(&used, Nanos::ZERO), until }
    };
    let rest = others.iter().fold(Nanos::ZERO, |sum, refill| sum + refill.amount);
    [
        first.map(|head| of(head.amount, head.at)).unwrap_or_default(),
        others.last().map(|last| of(rest, last.at)).unwrap_or_default(),
    ]
}

impl Contexts {
    /// `owed` of a context is given up: it is a debt of `ledger`, of its ancestors, and of the CPU of the record at
    /// `index`.
    pub(super) fn owe(&mut self, index: usize, ledger: Option<LedgerRef>, owed: Owed) {
        if let Some(ledger) = ledger {
            self.ledgers.owe(ledger, owed);
        }
        if let Some(debts) = self.debts.get_mut(self.records[index].home.index()) {
            debts.add(owed);
        }
    }

    /// From when on the record at `index`, which is charged for already, can have what it grants.
    pub(super) fn room_from(&mut self, index: usize, now: Nanos) -> Nanos {
        let record = &self.records[index];
        let (cpu, ledger) = (record.home, record.charge.map(|(ledger, _)| ledger));
        let owes = self.debts.get(cpu.index()).is_some_and(|debts| *debts != Debts::NONE);
        let on_cpu = if owes { WHOLE.saturating_sub(self.promised(cpu)) } else { WHOLE };
        let from = self.debts.get_mut(cpu.index()).map_or(now, |debts| debts.room_from(on_cpu, now));
        ledger.map_or(from, |ledger| from.max(self.ledgers.room_from(ledger, now)))
    }

    /// The record at `index` grants another share from `now` on, `given_up` being what had not come back of it before. What it gives up
    /// is there for others when that has come back, and what it gets when there is room for it.
    pub(super) fn change_share(
        &mut self,
        index: usize,
        (before, granted): (u64, u64),
        given_up: [Owed; 2],
        now: Nanos,
    ) {
        let ledger = self.records[index].charge.map(|(ledger, _)| ledger);
        let mut less = before.saturating_sub(granted);
        for Owed { share, until } in given_up.into_iter().rev().filter(|owed| owed.until > now) {
            let share = share.min(less);
            less -= share;
            self.owe(index, ledger, Owed { share, until });
        }
        if granted > before {
            let from = self.room_from(index, now);
            self.postpone(index, from);
        }
    }

    /// Nothing of the context at `index`, which no thread has at this moment, can be used before `from`.
    pub(super) fn postpone(&mut self, index: usize, from: Nanos) {
        if let Position::Rest(value) | Position::InFlight(InFlight { value, .. }) =
            &mut self.records[index].position
        {
            value.postpone(from);
        }
    }

    /// Nothing of a context whose name can be used can be used before `from`: for grants that the machine itself keeps account of.
    pub fn release_from<M: ContextMachine>(&mut self, machine: &mut M, who: ContextRef, from: Nanos) {
        let Ok(index) = self.live(who) else { return };
        let holder = self.records[index].holder();
        // It is in flight to the thread that has it, for a moment.
        let lifted = holder.is_some_and(|holder| self.lift(machine, index, holder).is_ok());
        self.postpone(index, from);
        if lifted && self.land(machine, index).is_err() {
            self.go_back(machine, index, holder, CallEnd::DeliveryFailed);
        }
        self.debug_verify(machine);
    }

    /// What had not come back of the context with number `id` when it ended or was adjusted, the last time that it was; asked for once.
    pub fn take_owed(&mut self, id: u32) -> [Owed; 2] {
        let record = self.find(id).map(|index| &mut self.records[index]);
        record.map(|record| core::mem::take(&mut record.owed)).unwrap_or_default()
    }

    /// What all contexts with their home on `cpu` and best effort have of it, in billionths.
    fn promised(&self, cpu: CpuId) -> u64 {
        let floor = Task::of_floor(self.rules.floor);
        let floor = floor.map_or(0, |floor| share(&ContextSpec::new(floor.cost, floor.period), Nanos::ZERO));
        let here = self.records.iter().filter(|record| record.home == cpu);
        let live = here.filter(|record| !matches!(record.position, Position::Gone));
        live.fold(floor, |sum, record| sum.saturating_add(record.share))
    }
}
