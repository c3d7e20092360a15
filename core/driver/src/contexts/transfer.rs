//! How a context gets from one place to another: lifted off, in flight here, landed. No two CPUs are held at once.
//!
//! Conserved: `lift` leaves the value in flight, `land` and `put_to_rest` take it out of flight; a landing that is refused leaves
//! it in flight. So at the end of an operation a value is in flight only if its receiver could not be reached.

use super::debts::owed;
use super::endings::RevokeReason;
use super::record::{Phase, Position};
use super::{CallEnd, ContextMachine, ContextMoved, Contexts};
use crate::machine::{CpuAccess, Home, Left, Machine};
use crate::placement;
use alloc::boxed::Box;
use mainspring_abi::{ContextRef, CpuId, ThreadRef};
use mainspring_sched::context::Context;
use mainspring_sched::{Authority, BindRefusal, Seat, Via};

/// A context on its way to a thread.
#[derive(Debug)]
pub(super) struct InFlight {
    pub value: Box<Context>,
    pub to: ThreadRef,
    /// The CPU that it left, unless it was at rest.
    pub left: Option<Left>,
}

/// Why a context did not land. It is still in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotLanded {
    /// The thread moves between two CPUs.
    Moving,
    /// The thread has ended, or may not have the context.
    Refused(Option<BindRefusal>),
}

/// Where `thread` sits, or sat before it moved. `None` if it has ended: its slot may have another occupant by now.
pub(super) fn home_of<M: Machine>(machine: &M, thread: ThreadRef) -> Option<Home> {
    machine.home(thread).filter(|home| home.seat.thread() == thread)
}

/// Carries `act` out on the CPU where `thread` sits. `None` if it has ended, or moves between two CPUs.
pub(crate) fn at_home<M: Machine, R>(
    machine: &mut M,
    thread: ThreadRef,
    mut act: impl FnMut(&mut CpuAccess<'_, M>, Seat) -> R,
) -> Option<R> {
    let mut known = None;
    loop {
        let home = home_of(machine, thread);
        let Home { cpu, seat } = home?;
        if home == known {
            return None;
        }
        let done = machine.with_cpu(cpu, |access| {
            let sits = access.cpu().entity(seat).is_ok();
            sits.then(|| act(access, seat))
        });
        match done {
            Some(done) => return Some(done),
            // It may have arrived elsewhere meanwhile.
            None => known = home,
        }
    }
}

/// The context that `thread` has lent.
pub fn lent_by<M: Machine>(machine: &mut M, thread: ThreadRef) -> Option<ContextRef> {
    at_home(machine, thread, |access, seat| {
        match access.cpu().entity(seat).map(|entity| entity.authority()) {
            Ok(Authority::Lent(who)) => Some(*who),
            _ => None,
        }
    })?
}

/// The thread whose context `thread` serves a call on.
pub(super) fn donor_of<M: Machine>(machine: &mut M, thread: ThreadRef) -> Option<ThreadRef> {
    at_home(machine, thread, |access, seat| access.cpu().entity(seat).ok()?.context()?.donors().last())?
}

/// `thread` waits no longer for the context that it has lent: it goes on as best effort when it is woken.
pub(super) fn write_off<M: Machine>(machine: &mut M, thread: ThreadRef) {
    let _written = at_home(machine, thread, |access, seat| access.event().write_off(seat).is_ok());
}

/// `thread`, which does not run, comes over to `cpu`, where it is ready; whether it is there.
pub(super) fn bring_over<M: Machine>(machine: &mut M, thread: ThreadRef, cpu: CpuId) -> bool {
    let there = home_of(machine, thread).is_some_and(|home| home.cpu == cpu);
    there || placement::migrate(machine, thread, cpu, None, Via::HandOff).is_some()
}

impl Contexts {
    /// The value in flight of the record at `index`.
    pub(super) fn flying(&mut self, index: usize) -> Option<&mut InFlight> {
        match &mut self.records[index].position {
            Position::InFlight(flight) => Some(flight),
            Position::Rest(_) | Position::With(_) | Position::Gone => None,
        }
    }

    /// Puts the value in flight to `to`.
    pub(super) fn send(&mut self, index: usize, value: Box<Context>, to: ThreadRef, left: Option<Left>) {
        let record = &mut self.records[index];
        debug_assert!(!matches!(record.position, Position::InFlight(_)), "one value, one flight");
        record.usage = *value.usage();
        record.position = Position::InFlight(InFlight { value, to, left });
        self.in_flight += 1;
    }

    /// Takes the context from wherever it is and puts it in flight to `to`; from which thread it was taken, if a thread had it.
    /// `Err` if there is no value: it is gone, or its holder could not be reached.
    pub(super) fn lift<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        index: usize,
        to: ThreadRef,
    ) -> Result<Option<ThreadRef>, Unreachable> {
        let holder = match &mut self.records[index].position {
            Position::InFlight(flight) => {
                flight.to = to;
                return Ok(None);
            }
            Position::Gone => return Err(Unreachable),
            Position::Rest(_) => None,
            Position::With(holder) => Some(*holder),
        };
        let Some(holder) = holder else {
            let Position::Rest(value) = core::mem::replace(&mut self.records[index].position, Position::Gone)
            else {
                unreachable!("it is at rest")
            };
            self.send(index, value, to, None);
            return Ok(None);
        };
        let taken = at_home(machine, holder, |access, seat| {
            let value = access.event().unbind(seat).ok()?;
            let home = Home { cpu: access.cpu().id(), seat };
            Some((value, home, access.now(), access.cpu().reschedule_wanted(), access.take_overrun()))
        });
        let Some((value, home, now, reschedule, overran)) = taken.flatten() else { return Err(Unreachable) };
        debug_assert_eq!(
            self.of_value(value.who()),
            Some(index),
            "a thread had another context than the table says"
        );
        self.send(index, value, to, Some(Left { cpu: Some(home.cpu), at: now }));
        if let Some(overran) = overran {
            machine.overran(overran);
        }
        placement::kick(machine, home, reschedule);
        Ok(Some(holder))
    }

    /// Gives a context in flight to the thread that it is on its way to.
    pub(super) fn land<M: ContextMachine>(&mut self, machine: &mut M, index: usize) -> Result<(), NotLanded> {
        let position = core::mem::replace(&mut self.records[index].position, Position::Gone);
        let Position::InFlight(InFlight { value, to, left }) = position else {
            unreachable!("only what flies can land")
        };
        let who = value.who();
        let mut value = Some(value);
        let bound = at_home(machine, to, |access, seat| {
            let value = value.take()?;
            let bound = access.bind(seat, value, left);
            let home = Home { cpu: access.cpu().id(), seat };
            Some((bound, home, access.take_overrun()))
        });
        let (why, value) = match bound.flatten() {
            Some((Ok(reschedule), home, overran)) => {
                self.records[index].position = Position::With(to);
                self.in_flight -= 1;
                debug_assert_eq!(self.of_value(who), Some(index), "a value has the generation of its record");
                if let Some(overran) = overran {
                    machine.overran(overran);
                }
                placement::kick(machine, home, reschedule);
                return Ok(());
            }
            Some((Err(refused), _, _)) => (NotLanded::Refused(Some(refused.why)), Some(refused.context)),
            None if home_of(machine, to).is_some() => (NotLanded::Moving, value),
            None => (NotLanded::Refused(None), value),
        };
        let Some(value) = value else { unreachable!("a value that was not bound comes back") };
        self.records[index].position = Position::InFlight(InFlight { value, to, left });
        Err(why)
    }

    /// A context in flight goes back to the last donor that still waits, or to rest if there is none. `from` had it.
    pub(super) fn go_back<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        index: usize,
        from: Option<ThreadRef>,
        end: CallEnd,
    ) {
        while let Some(flight) = self.flying(index) {
            let Some(donor) = flight.value.return_to() else { return self.put_to_rest(machine, index) };
            flight.to = donor;
            if self.land_with_donor(machine, index, donor) {
                let context = self.records[index].value_name();
                if self.records[index].holder() == Some(donor) {
                    machine.context_moved(ContextMoved::Returned { context, from, to: donor, end });
                }
                return;
            }
        }
    }

    /// A context in flight is for `donor`, which is off the stack and waits for it. Whether the context is dealt with: it is with
    /// the donor, or it has ended because the donor is its owner and its time is over.
    pub(super) fn land_with_donor<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        index: usize,
        donor: ThreadRef,
    ) -> bool {
        let owned = self.flying(index).is_some_and(|flight| flight.value.donors().depth() == 0);
        if let (true, Phase::Ending(reason)) = (owned, self.records[index].phase) {
            write_off(machine, donor);
            self.finish(machine, index, None, reason);
            return true;
        }
        let landed = self.land(machine, index).is_ok();
        if !landed {
            write_off(machine, donor);
        }
        landed
    }

    /// A context in flight that no thread waits for is at rest, or ends if its time is over.
    pub(super) fn put_to_rest<M: ContextMachine>(&mut self, machine: &mut M, index: usize) {
        if let Phase::Ending(reason) = self.records[index].phase {
            return self.finish(machine, index, None, reason);
        }
        let record = &mut self.records[index];
        let Position::InFlight(InFlight { mut value, .. }) =
            core::mem::replace(&mut record.position, Position::Gone)
        else {
            unreachable!("only what flies comes to rest")
        };
        self.in_flight -= 1;
        debug_assert_eq!(value.donors().depth(), 0, "somebody still waits for it");
        value.suspend();
        record.owner = None;
        record.usage = *value.usage();
        record.position = Position::Rest(value);
        machine.context_moved(ContextMoved::AtRest { context: self.records[index].name() });
    }

    /// The context ends for good: its value, wherever it was, has been lifted or is at rest. Its names were staled before.
    pub(super) fn finish<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        index: usize,
        from: Option<ThreadRef>,
        reason: RevokeReason,
    ) {
        let record = &mut self.records[index];
        let context = record.value_name();
        let (flew, value) = match core::mem::replace(&mut record.position, Position::Gone) {
            Position::Rest(value) => (false, Some(value)),
            Position::InFlight(InFlight { value, .. }) => (true, Some(value)),
            Position::With(_) | Position::Gone => (false, None),
        };
        self.in_flight -= u32::from(flew);
        record.phase = Phase::Ended(reason);
        record.owner = None;
        let charge = record.charge.take();
        if let Some((ledger, amounts)) = &charge {
            self.ledgers.refund(*ledger, amounts);
        }
        if let Some(mut value) = value {
            let ledger = charge.map(|(ledger, _)| ledger);
            let owed = owed(&self.records[index].spec, value.refills());
            self.records[index].owed = owed;
            for owed in owed {
                self.owe(index, ledger, owed);
            }
            self.records[index].usage = *value.usage();
            if let Some(waiter) = value.notices_mut().take_waiter() {
                machine.wake_waiter(context, waiter);
            }
        }
        machine.context_moved(ContextMoved::Revoked { context, from, reason });
    }
}

/// No value could be taken: the context is gone, or its holder is being taken off its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unreachable;
