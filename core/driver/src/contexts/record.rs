//! What is known of one context, and by which names.

use super::create::share;
use super::debts::owed;
use super::endings::RevokeReason;
use super::{CallEnd, ContextMachine, Contexts};
use crate::contexts::transfer::{InFlight, at_home};
use crate::debts::Owed;
use crate::ledgers::{Amounts, LedgerRef};
use crate::sessions::SessionRef;
use alloc::boxed::Box;
use core::fmt;
use mainspring_abi::{ContextRef, CpuId, Nanos, ProcessId, ThreadRef};
use mainspring_sched::context::{Context, ContextSpec, SpecError, Usage};
use mainspring_sched::lease::{AccountingTarget, TargetStanding};

/// Where a context is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Location {
    /// At rest: no thread has it.
    Rest,
    /// With this thread, which is bound to it.
    Bound(ThreadRef),
    /// With this thread, which serves a call on it.
    Lent(ThreadRef),
    /// On its way to this thread, which has not been reached yet.
    InFlight(ThreadRef),
    /// Nowhere: it was taken away for good.
    Gone,
}

/// Where a context is, with the value where it is here.
#[derive(Debug)]
pub(super) enum Position {
    Rest(Box<Context>),
    With(ThreadRef),
    InFlight(InFlight),
    Gone,
}

/// How long a context still lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Live,
    /// It is on loan, and ends when it comes back to its owner.
    Ending(RevokeReason),
    Ended(RevokeReason),
}

#[derive(Debug)]
pub(super) struct Record {
    pub id: u32,
    /// The generation of names that can be used.
    pub generation: u32,
    /// The generation that the value carries.
    pub issued: u32,
    pub phase: Phase,
    pub spec: ContextSpec,
    /// The CPU where its time is set aside.
    pub home: CpuId,
    pub position: Position,
    /// The thread that it is bound to, which has it or has lent it.
    pub owner: Option<ThreadRef>,
    pub session: Option<SessionRef>,
    pub process: Option<ProcessId>,
    /// What it was charged to, and how much.
    pub charge: Option<(LedgerRef, Amounts)>,
    /// What it grants, in billionths of a CPU, with what a switch costs.
    pub share: u64,
    /// What its creator held when it was created, without that cost: adjusting it grants no more.
    pub most: u64,
    /// What had not come back of it when it ended or was adjusted.
    pub owed: [Owed; 2],
    /// What was used of it, as of when the value was last here.
    pub usage: Usage,
}

/// A name that could not be used; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContextError {
    /// No such context was ever created.
    Unknown(ContextRef),
    /// The name is of an old generation.
    StaleGeneration {
        /// The present one.
        current: u32,
    },
    /// The context is revoked, and the name is of the generation that it ended with.
    Revoked {
        /// That generation.
        generation: u32,
        /// Why it was revoked.
        reason: RevokeReason,
    },
    /// The context was revoked so long ago that its place was needed for another.
    Forgotten(ContextRef),
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(who) => write!(f, "there is no context {who:?}; create one"),
            Self::StaleGeneration { current } => {
                write!(
                    f,
                    "the name is of an old generation (it is {current} now); ask its owner for a new one"
                )
            }
            Self::Revoked { reason, .. } => {
                write!(f, "the context is revoked ({}); ask for a new one", reason.label())
            }
            Self::Forgotten(who) => write!(f, "context {who:?} was revoked long ago; ask for a new one"),
        }
    }
}

impl core::error::Error for ContextError {}

/// Why a context was not adjusted; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdjustError {
    /// The name could not be used.
    Context(ContextError),
    /// The grant makes no sense.
    Spec(SpecError),
}

impl fmt::Display for AdjustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Context(error) => error.fmt(f),
            Self::Spec(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for AdjustError {}

/// What is known of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextInfo {
    /// Its present name.
    pub who: ContextRef,
    /// What it grants.
    pub spec: ContextSpec,
    /// The CPU where its time is set aside.
    pub home: CpuId,
    /// Where it is.
    pub place: Location,
    /// The thread that it is bound to, which has it or has lent it.
    pub owner: Option<ThreadRef>,
    /// The session that it belongs to.
    pub session: Option<SessionRef>,
    /// Whether its budget is enforced: a thread holds it, so that this thread's time is charged to it.
    pub budget_enforced: bool,
    /// How much of its budget can be used now in one go.
    pub remaining: Nanos,
    /// What has been used of it.
    pub usage: Usage,
}

impl Record {
    /// The name that can be used.
    pub(super) fn name(&self) -> ContextRef {
        ContextRef::new(self.id, self.generation)
    }

    /// The name that the value carries.
    pub(super) fn value_name(&self) -> ContextRef {
        ContextRef::new(self.id, self.issued)
    }

    pub(super) fn place(&self) -> Location {
        match &self.position {
            Position::Rest(_) => Location::Rest,
            Position::With(thread) if self.owner == Some(*thread) => Location::Bound(*thread),
            Position::With(thread) => Location::Lent(*thread),
            Position::InFlight(flight) => Location::InFlight(flight.to),
            Position::Gone => Location::Gone,
        }
    }

    /// The thread that has the value.
    pub(super) fn holder(&self) -> Option<ThreadRef> {
        match self.position {
            Position::With(thread) => Some(thread),
            Position::Rest(_) | Position::InFlight(_) | Position::Gone => None,
        }
    }
}

impl Contexts {
    /// Where the record with number `id` is in the table.
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        // Until a record is forgotten, each stands at its number.
        let guess = (id as usize).checked_sub(1)?;
        if self.records.get(guess).is_some_and(|record| record.id == id) {
            return Some(guess);
        }
        self.search(id)
    }

    #[inline(never)]
    fn search(&self, id: u32) -> Option<usize> {
        self.records.binary_search_by_key(&id, |record| record.id).ok()
    }

    /// The record that `who` names, if the name can be used.
    pub(super) fn live(&self, who: ContextRef) -> Result<usize, ContextError> {
        let Some(index) = self.find(who.id()) else {
            return Err(if self.was_given(who.id()) {
                ContextError::Forgotten(who)
            } else {
                ContextError::Unknown(who)
            });
        };
        let record = &self.records[index];
        if who.generation() != record.generation {
            return Err(ContextError::StaleGeneration { current: record.generation });
        }
        match record.phase {
            Phase::Live => Ok(index),
            Phase::Ending(reason) | Phase::Ended(reason) => {
                Err(ContextError::Revoked { generation: record.generation, reason })
            }
        }
    }

    /// The record of the context whose value has the name `who`.
    pub(super) fn of_value(&self, who: ContextRef) -> Option<usize> {
        self.find(who.id()).filter(|index| self.records[*index].issued == who.generation())
    }

    /// The same, to be changed.
    #[inline(always)]
    pub(super) fn record_of_value(&mut self, who: ContextRef) -> Option<&mut Record> {
        let guess = (who.id() as usize).wrapping_sub(1);
        let at_its_number = self.records.get(guess).is_some_and(|record| record.id == who.id());
        let index = if at_its_number { guess } else { self.search(who.id())? };
        self.records.get_mut(index).filter(|record| record.issued == who.generation())
    }

    /// What is known of a context whose name can be used.
    pub fn info<M: ContextMachine>(
        &self,
        machine: &mut M,
        now: Nanos,
        who: ContextRef,
    ) -> Result<ContextInfo, ContextError> {
        let index = self.live(who)?;
        Ok(self.info_of(machine, now, index))
    }

    fn info_of<M: ContextMachine>(&self, machine: &mut M, now: Nanos, index: usize) -> ContextInfo {
        let record = &self.records[index];
        let (remaining, usage) = match &record.position {
            Position::Rest(value) => (value.refills().usable(now), *value.usage()),
            Position::InFlight(flight) => (flight.value.refills().usable(now), *flight.value.usage()),
            Position::With(thread) => at_home(machine, *thread, |access, seat| {
                let left = access.cpu().budget_left(access.now(), seat).unwrap_or(Nanos::ZERO);
                let context = access.cpu().entity(seat).ok().and_then(|entity| entity.context());
                (left, context.map_or(record.usage, |context| *context.usage()))
            })
            .unwrap_or((Nanos::ZERO, record.usage)),
            Position::Gone => (Nanos::ZERO, record.usage),
        };
        ContextInfo {
            who: record.name(),
            spec: record.spec.clone(),
            home: record.home,
            place: record.place(),
            owner: record.owner,
            session: record.session,
            budget_enforced: matches!(record.position, Position::With(_)),
            remaining,
            usage,
        }
    }

    /// What is known of the context with number `id`, whatever its names are worth: for the machine itself and its reports.
    pub fn inspect<M: ContextMachine>(&self, machine: &mut M, now: Nanos, id: u32) -> Option<ContextInfo> {
        self.find(id).map(|index| self.info_of(machine, now, index))
    }

    /// Where the context with number `id` is.
    #[must_use]
    pub fn place(&self, id: u32) -> Option<Location> {
        self.find(id).map(|index| self.records[index].place())
    }

    /// The thread that has the context with number `id`.
    #[must_use]
    pub fn holder(&self, id: u32) -> Option<ThreadRef> {
        self.records[self.find(id)?].holder()
    }

    /// The thread that the context with number `id` is bound to, which has it or has lent it.
    #[must_use]
    pub fn owner(&self, id: u32) -> Option<ThreadRef> {
        self.records[self.find(id)?].owner
    }

    /// The CPU where the time of the context with number `id` is set aside.
    #[must_use]
    pub fn home(&self, id: u32) -> Option<CpuId> {
        Some(self.records[self.find(id)?].home)
    }

    /// What the context with number `id` grants.
    #[must_use]
    pub fn spec(&self, id: u32) -> Option<&ContextSpec> {
        Some(&self.records[self.find(id)?].spec)
    }

    /// Whether the context with number `id` can be bound now: it is live and at rest.
    #[must_use]
    pub fn is_free(&self, id: u32) -> bool {
        self.find(id).is_some_and(|index| {
            let record = &self.records[index];
            matches!(record.position, Position::Rest(_)) && record.phase == Phase::Live
        })
    }

    /// Whether what `target` names can be charged.
    #[must_use]
    pub fn standing(&self, target: AccountingTarget) -> TargetStanding {
        let AccountingTarget::Context { id, generation } = target else { return TargetStanding::Chargeable };
        let (Ok(id), Ok(generation)) = (u32::try_from(id), u32::try_from(generation)) else {
            return TargetStanding::Fabricated;
        };
        match self.live(ContextRef::new(id, generation)) {
            Ok(_) => TargetStanding::Chargeable,
            Err(ContextError::StaleGeneration { .. } | ContextError::Revoked { .. }) => TargetStanding::Stale,
            Err(ContextError::Unknown(_) | ContextError::Forgotten(_)) => TargetStanding::Fabricated,
        }
    }

    /// Whether the context with number `id` is gone, forgotten or not.
    #[must_use]
    pub fn is_gone(&self, id: u32) -> bool {
        match self.find(id) {
            Some(index) => matches!(self.records[index].phase, Phase::Ended(_)),
            None => self.was_given(id),
        }
    }

    /// Whether there has been a context with number `id`.
    fn was_given(&self, id: u32) -> bool {
        id != 0 && id <= self.last_id
    }

    /// Grants another budget, period and deadline. The machine has admitted them.
    pub fn adjust<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        now: Nanos,
        who: ContextRef,
        (budget, period, deadline): (Nanos, Nanos, Nanos),
    ) -> Result<(), AdjustError> {
        let index = self.live(who).map_err(AdjustError::Context)?;
        let spec = ContextSpec { budget, period, deadline, ..self.records[index].spec.clone() };
        spec.check().map_err(AdjustError::Spec)?;
        let holder = self.records[index].holder();
        // It is in flight to the thread that has it, for a moment.
        let lifted = holder.is_some_and(|holder| self.lift(machine, index, holder).is_ok());
        let granted = share(&spec, self.rules.overhead);
        let record = &mut self.records[index];
        let before = core::mem::replace(&mut record.share, granted);
        let mut given_up = [Owed::default(); 2];
        if let Position::Rest(value) | Position::InFlight(InFlight { value, .. }) = &mut record.position {
            given_up = owed(&record.spec, value.refills());
            let adjusted = value.adjust(budget, period, deadline, now);
            debug_assert!(adjusted.is_ok(), "the grant was found sound");
        }
        record.spec = spec;
        record.owed = given_up;
        self.change_share(index, (before, granted), given_up, now);
        if lifted && self.land(machine, index).is_err() {
            self.go_back(machine, index, holder, CallEnd::DeliveryFailed);
        }
        self.debug_verify(machine);
        Ok(())
    }
}
