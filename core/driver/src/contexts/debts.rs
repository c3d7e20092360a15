//! Time that was used, and whose context is gone or grants less by now.
//!
//! What was used of a context comes back a period later, and only then is it there for others. A context that ends before, or that gives
//! a part of its grant up, leaves what has not come back as a *debt*. What takes its place is released when the debts leave room for it:
//! in its ledger, and on its CPU. So nobody has more time by ending a context and making it again.
//!
//! Conserved: what the contexts of a ledger grant, and its debts at their first releases, are within the ledger's limit; what all contexts
//! and debts of a CPU have together is within the CPU, or no debt is left at the first release.

use super::create::share;
use super::record::Position;
use super::transfer::InFlight;
use super::{CallEnd, ContextMachine, Contexts};
use crate::ledgers::{LedgerRef, Resource};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use mainspring_abi::{ContextRef, CpuId, Nanos};
use mainspring_authority::admission::Task;
use mainspring_sched::context::{ContextSpec, Refills};

/// A whole CPU, in the unit of [`Resource::CpuShare`].
const WHOLE: u64 = 1_000_000_000;
/// Debts that are known at a time. One more is added to another one.
const DEBTS: usize = 32;

/// Time that has not come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Debt {
    ledger: Option<LedgerRef>,
    cpu: CpuId,
    /// In billionths of a CPU.
    share: u64,
    until: Nanos,
}

/// What has not come back of a context: how much, in billionths of a CPU, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owed {
    /// How much.
    pub share: u64,
    /// Until when.
    pub until: Nanos,
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

/// The debts of a machine, the one that lasts longest first.
#[derive(Debug, Default)]
pub(super) struct Debts(Vec<Debt>);

impl Debts {
    /// None, and room for all that there will be.
    pub fn new() -> Result<Self, TryReserveError> {
        let mut debts = Vec::new();
        debts.try_reserve_exact(DEBTS)?;
        Ok(Self(debts))
    }

    /// Adds a debt. Where there is no room it lasts as long as the next longer one of the same account, or that one as long as it.
    fn add(&mut self, mut debt: Debt) {
        if self.0.len() == self.0.capacity() {
            let alike =
                |one: &Debt| (u8::from(one.ledger == debt.ledger) * 2) + u8::from(one.cpu == debt.cpu);
            let best = self.0.iter().map(alike).max();
            let Some(place) = self.0.iter().rposition(|one| Some(alike(one)) == best) else { return };
            let other = self.0.remove(place);
            debt.share = debt.share.saturating_add(other.share);
            debt.until = debt.until.max(other.until);
        }
        let place = self.0.iter().position(|one| one.until < debt.until).unwrap_or(self.0.len());
        self.0.insert(place, debt);
    }

    fn forget(&mut self, now: Nanos) {
        while self.0.last().is_some_and(|debt| debt.until <= now) {
            self.0.pop();
        }
    }
}

impl Contexts {
    /// `owed` of a context is given up: it is a debt of the ledger and the CPU of the record at `index`.
    pub(super) fn owe(&mut self, index: usize, ledger: Option<LedgerRef>, owed: Owed) {
        if owed.share != 0 {
            let cpu = self.records[index].home;
            self.debts.add(Debt { ledger, cpu, share: owed.share, until: owed.until });
        }
    }

    /// From when on the record at `index`, which is charged for already, can have what it grants.
    pub(super) fn room_from(&mut self, index: usize, now: Nanos) -> Nanos {
        self.debts.forget(now);
        if self.debts.0.is_empty() {
            return now;
        }
        let record = &self.records[index];
        let (cpu, ledger) = (record.home, record.charge.map(|(ledger, _)| ledger));
        let in_ledger = ledger.and_then(|ledger| self.ledgers.info(ledger).ok());
        let in_ledger = in_ledger.map_or(u64::MAX, |(held, limits)| {
            limits.get(Resource::CpuShare).saturating_sub(held.get(Resource::CpuShare))
        });
        let on_cpu = WHOLE.saturating_sub(self.promised(cpu));
        let (mut of_ledger, mut of_cpu) = (0u64, 0u64);
        for debt in &self.debts.0 {
            if debt.ledger.is_some() && debt.ledger == ledger {
                of_ledger = of_ledger.saturating_add(debt.share);
            }
            if debt.cpu == cpu {
                of_cpu = of_cpu.saturating_add(debt.share);
            }
            if of_ledger > in_ledger || of_cpu > on_cpu {
                return debt.until;
            }
        }
        now
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
