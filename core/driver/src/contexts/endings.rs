//! What takes a context away: revoke, the end of a thread, the exit of its owner, a logout.
//!
//! Conserved: a context that ends is taken from wherever it is, every donor that waits for it is told that it will not come
//! back, the thread that waited for its notices is woken, and its ledger has its charge back. All names of it are stale from
//! then on.

use super::record::{Phase, Position};
use super::transfer::{at_home, write_off};
use super::{CallEnd, ContextError, ContextMachine, Contexts};
use crate::ledgers::LedgerRef;
use crate::machine::{Left, Machine};
use crate::sessions::{SessionError, SessionRef};
use mainspring_abi::{ContextRef, CpuId, ProcessId, ThreadRef};
use mainspring_sched::{Authority, Entity};

/// Why a context was taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RevokeReason {
    /// A caller with the authority to do so revoked it.
    Explicit,
    /// Its session was logged out.
    Logout,
    /// The process that it belonged to ended.
    OwnerExit,
    /// Its island ended.
    IslandEnd,
}

impl RevokeReason {
    /// As proofs and messages name it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Explicit => "explicitRevoke",
            Self::Logout => "logout",
            Self::OwnerExit => "ownerExit",
            Self::IslandEnd => "islandEnd",
        }
    }
}

/// A context was revoked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Revocation {
    /// The name by which it is known as revoked. All others are stale.
    pub who: ContextRef,
    /// The thread that had it, and goes on as best effort.
    pub from: Option<ThreadRef>,
}

/// What a logout did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct Logout {
    /// Contexts that were revoked at once.
    pub revoked: u32,
    /// Loans that were left alone: they end when they come back, if they belong to the session.
    pub inflight_skipped: u32,
}

impl Contexts {
    /// Takes a context away for good, from wherever it is.
    pub fn revoke<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        who: ContextRef,
        reason: RevokeReason,
    ) -> Result<Revocation, ContextError> {
        let index = self.live(who)?;
        let from = self.take_away(machine, index, reason);
        self.debug_verify(machine);
        Ok(Revocation { who: self.records[index].name(), from })
    }

    fn take_away<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        index: usize,
        reason: RevokeReason,
    ) -> Option<ThreadRef> {
        let record = &mut self.records[index];
        record.generation = record.generation.saturating_add(1);
        let holder = record.holder();
        // The target of the lift does not matter: no thread gets the context any more. If its holder cannot be reached,
        // that thread is being ended, and what it had is dropped when it comes to [`Contexts::thread_ended`].
        let target = holder.unwrap_or(ThreadRef::new(u32::MAX, u32::MAX));
        let _taken = self.lift(machine, index, target);
        while let Some(donor) = self.flying(index).and_then(|flight| flight.value.return_to()) {
            write_off(machine, donor);
        }
        self.finish(machine, index, holder, reason);
        holder
    }

    /// `thread` has ended: `entity` was taken off its CPU under the same lock. A context that it held, or that was on its
    /// way to it, goes back to its donor or its owner. A context that it lent is called in.
    pub fn thread_ended<M: ContextMachine>(&mut self, machine: &mut M, entity: &mut Entity) {
        let thread = entity.thread();
        if let Some(index) = self.in_flight_to(thread) {
            self.go_back(machine, index, None, CallEnd::ServerGone);
        }
        let lent = match entity.authority() {
            Authority::Lent(who) => Some(*who),
            Authority::BestEffort | Authority::Context(_) => None,
        };
        if let Some(value) = entity.take_context() {
            // A value whose context was revoked meanwhile is dropped: its record has no place for it.
            let held = self.of_value(value.who());
            if let Some(index) = held.filter(|index| self.records[*index].holder() == Some(thread)) {
                // With a donor it lands elsewhere at once.
                let lent = value.donors().depth() != 0;
                let left = if lent { latest_departure(machine) } else { None };
                self.send(index, value, thread, left);
                self.go_back(machine, index, Some(thread), CallEnd::ServerGone);
            }
        } else if let Some(index) = lent.and_then(|who| self.of_value(who))
            && let Ok(from) = self.lift(machine, index, thread)
        {
            self.cut_chain(machine, index, thread);
            self.go_back(machine, index, from, CallEnd::CallerGone);
        }
        self.debug_verify(machine);
    }

    /// `process` has ended, and its threads before it: its contexts are revoked, wherever they are; how many.
    pub fn owner_exited<M: ContextMachine>(&mut self, machine: &mut M, process: ProcessId) -> u32 {
        let mut revoked = 0;
        for index in 0..self.records.len() {
            let record = &self.records[index];
            if record.process == Some(process) && !matches!(record.phase, Phase::Ended(_)) {
                self.take_away(machine, index, RevokeReason::OwnerExit);
                revoked += 1;
            }
        }
        self.debug_verify(machine);
        revoked
    }

    /// The ledger is to be closed: contexts that are charged to it are revoked, also those of other processes, wherever they are;
    /// how many.
    pub fn ledger_closes<M: ContextMachine>(&mut self, machine: &mut M, ledger: LedgerRef) -> u32 {
        let mut revoked = 0;
        for index in 0..self.records.len() {
            let record = &self.records[index];
            if record.charge.is_some_and(|(charged, _)| charged == ledger) {
                self.take_away(machine, index, RevokeReason::OwnerExit);
                revoked += 1;
            }
        }
        self.debug_verify(machine);
        revoked
    }

    /// `session` ends. Its contexts are revoked: those that were granted to it, and those that its threads are bound to. A loan is
    /// left alone and counted, also one that a thread of the session serves: the donor stays blocked until the call ends. One that
    /// belongs to the session has no usable name from now on, and ends when it comes back.
    pub fn logout<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        session: SessionRef,
    ) -> Result<Logout, SessionError> {
        self.sessions.close(session)?;
        let mut logout = Logout::default();
        for index in 0..self.records.len() {
            if self.records[index].phase != Phase::Live {
                continue;
            }
            let belongs = self.belongs_to(machine, index, session);
            if self.is_on_loan(index) {
                if belongs {
                    let record = &mut self.records[index];
                    record.generation = record.generation.saturating_add(1);
                    record.phase = Phase::Ending(RevokeReason::Logout);
                }
                logout.inflight_skipped += u32::from(belongs || self.serves_for(machine, index, session));
            } else if belongs {
                self.take_away(machine, index, RevokeReason::Logout);
                logout.revoked += 1;
            }
        }
        self.inflight_skipped += u64::from(logout.inflight_skipped);
        self.debug_verify(machine);
        Ok(logout)
    }

    fn belongs_to<M: ContextMachine>(&self, machine: &M, index: usize, session: SessionRef) -> bool {
        let record = &self.records[index];
        let owner = record.owner.and_then(|owner| machine.session_of(owner));
        record.session == Some(session) || owner == Some(session)
    }

    fn is_on_loan(&self, index: usize) -> bool {
        let record = &self.records[index];
        match record.position {
            Position::With(holder) => record.owner != Some(holder),
            Position::InFlight(_) => true,
            Position::Rest(_) | Position::Gone => false,
        }
    }

    /// Whether a thread of `session` holds the context on loan, or has lent it on.
    fn serves_for<M: ContextMachine>(&self, machine: &mut M, index: usize, session: SessionRef) -> bool {
        let of_session = |machine: &mut M, thread| machine.session_of(thread) == Some(session);
        match &self.records[index].position {
            Position::With(holder) => {
                let mut donors = [None; mainspring_sched::context::MAX_DEPTH];
                let _found = at_home(machine, *holder, |access, seat| {
                    let context = access.cpu().entity(seat).ok()?.context()?;
                    for (place, donor) in donors.iter_mut().zip(context.donors().iter()) {
                        *place = Some(donor);
                    }
                    Some(())
                });
                of_session(machine, *holder)
                    || donors.into_iter().flatten().any(|donor| of_session(machine, donor))
            }
            Position::InFlight(flight) => {
                of_session(machine, flight.to)
                    || flight.value.donors().iter().any(|donor| of_session(machine, donor))
            }
            Position::Rest(_) | Position::Gone => false,
        }
    }
}

/// A thread has just left one of the CPUs, and its entity does not say which: the latest moment at which that can have been. A
/// context that it held arrives elsewhere after that, so that the records of the CPUs can be joined by time.
fn latest_departure<M: Machine>(machine: &mut M) -> Option<Left> {
    if M::ARRIVAL_DELAY.is_zero() {
        return None;
    }
    let cpus = (0..machine.cpus()).map_while(|index| CpuId::new(index).ok());
    let at = cpus.map(|cpu| machine.with_cpu(cpu, |access| access.now())).max();
    at.map(|at| Left { cpu: None, at })
}
