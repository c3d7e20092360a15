//! A call lends the caller's context to the server, and every end of the call brings it back.
//!
//! Conserved: between [`Contexts::lend`] and [`Contexts::end_call`] the caller stands on the context's stack of donors and cannot
//! be woken. After `end_call` the caller has the context, or the context is gone for good: never a third.

use super::endings::RevokeReason;
use super::record::{Phase, Position, Record};
use super::transfer::{NotLanded, at_home, bring_over, donor_of, home_of, lent_by, write_off};
use super::{ContextMachine, ContextMoved, Contexts};
use crate::machine::Left;
use crate::observer::Observer;
use crate::recorded_cpu::RecordedCpu;
use core::fmt;
use mainspring_abi::{ContextRef, CpuId, ThreadRef};
use mainspring_sched::context::LoanError;
use mainspring_sched::{Affinity, Authority, Cpu, LendError, Seat, State, WaitKind, WaitPermit};

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallEnd {
    /// The server replied.
    Reply,
    /// The server answered with an exception.
    Exception,
    /// The server's answer could not be given to the caller.
    InvalidResult,
    /// The request could not be given to the server.
    DeliveryFailed,
    /// The caller's time was over.
    TimedOut,
    /// The caller, or another thread on its behalf, gave the call up.
    Cancelled,
    /// The endpoint was torn down.
    EndpointClosed,
    /// The server ended, or took the next request without an answer.
    ServerGone,
    /// The caller ended.
    CallerGone,
}

impl CallEnd {
    /// Every end.
    pub const ALL: [Self; 9] = [
        Self::Reply,
        Self::Exception,
        Self::InvalidResult,
        Self::DeliveryFailed,
        Self::TimedOut,
        Self::Cancelled,
        Self::EndpointClosed,
        Self::ServerGone,
        Self::CallerGone,
    ];
}

/// A loan was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a server that sleeps has to be woken"]
pub enum Lent {
    /// The server holds the context. It still sleeps and has to be woken.
    Asleep(ContextRef),
    /// The server holds the context and is ready: it came over from another CPU, or was awake.
    Ready(ContextRef),
    /// The server moves between two CPUs. The context is in flight until [`Contexts::deliver`].
    InFlight(ContextRef),
}

/// Why no context was lent; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoLoan {
    /// The caller holds no context. The call goes on without.
    NothingToLend,
    /// The server has a context of its own, or has lent it. The call goes on without.
    HasOwn(ContextRef),
    /// The server may not run where the context can be spent. The call goes on without.
    NotAllowed(CpuId),
    /// The server runs on another CPU. It has to stop there and wait before it can come over to this one; otherwise the call goes on
    /// without.
    Elsewhere(CpuId),
    /// The server has ended, or moves at this moment. The call goes on without.
    NotThere,
    /// The caller does not wait for a call.
    NotCalling,
    /// The chain of donations does not allow it. The call is refused.
    Loan(LoanError),
}

impl NoLoan {
    /// Whether the call has to be refused. Otherwise the server serves it on what it has.
    #[must_use]
    pub fn refuses_call(self) -> bool {
        matches!(self, Self::Loan(_) | Self::NotCalling)
    }
}

impl fmt::Display for NoLoan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingToLend => f.write_str("the caller holds no context to lend"),
            Self::HasOwn(who) => write!(f, "the server has context {who:?} of its own"),
            Self::NotAllowed(cpu) => {
                write!(f, "the server may not run on {cpu:?}, where the context is spent")
            }
            Self::Elsewhere(cpu) => write!(f, "the server runs elsewhere; it has to come to {cpu:?} first"),
            Self::NotThere => f.write_str("the server has ended or moves; call again"),
            Self::NotCalling => f.write_str("the caller does not wait for a call; block it first"),
            Self::Loan(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for NoLoan {}

/// What became of a loan when its call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoanEnd {
    /// The caller had lent nothing.
    NothingLent,
    /// The caller has the context back.
    Returned(ContextRef),
    /// The context has ended, and the caller goes on as best effort: its session was logged out meanwhile.
    Ended(ContextRef, RevokeReason),
    /// The context was gone, and the caller goes on as best effort.
    WrittenOff(ContextRef),
}

/// What became of a context in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// None was on its way to the thread.
    Nothing,
    /// The thread holds it.
    Delivered(ContextRef),
    /// The thread still moves.
    StillInFlight(ContextRef),
    /// The thread could not take it. The caller has it back; its call goes on without.
    SentBack(ContextRef),
}

/// A thread on borrowed time may wait for nothing but the answer to a call; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnBorrowedTime {
    /// The context that it has on loan.
    pub context: ContextRef,
    /// What it wanted to wait for.
    pub kind: WaitKind,
}

impl fmt::Display for OnBorrowedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { context, kind } = self;
        write!(f, "a wait for {kind:?} on context {context:?}, which is lent; answer the call first")
    }
}

impl core::error::Error for OnBorrowedTime {}

/// Whether the thread at `seat` may wait for `kind`. A thread that serves on a loan may wait only for a call, which takes the
/// loan along: any other wait would keep the donor from its own time.
pub fn may_block(cpu: &Cpu, seat: Seat, kind: WaitKind) -> Result<(), OnBorrowedTime> {
    match cpu.entity(seat).ok().and_then(|entity| entity.context()) {
        Some(context) if context.donors().depth() != 0 && kind != WaitKind::Call => {
            Err(OnBorrowedTime { context: context.who(), kind })
        }
        Some(_) | None => Ok(()),
    }
}

/// How a loan would be made.
struct Plan {
    index: usize,
    /// Where the server has to come over to.
    bring_to: Option<CpuId>,
}

/// The CPU that `server`, which is best effort, has to come over to before it can serve on a context for `cpus`. `None` if it can
/// stay where it is, or moves: then it is ready, and the context is in flight until it arrives.
fn way_for_server<M: ContextMachine>(
    machine: &mut M,
    cpus: &Affinity,
    home: CpuId,
    server: ThreadRef,
) -> Result<Option<CpuId>, NoLoan> {
    let found = at_home(machine, server, |access, seat| {
        let cpu = access.cpu();
        let Ok(entity) = cpu.entity(seat) else { return Err(NoLoan::NotThere) };
        match entity.authority() {
            Authority::Context(own) => return Err(NoLoan::HasOwn(own.who())),
            Authority::Lent(own) => return Err(NoLoan::HasOwn(*own)),
            Authority::BestEffort => {}
        }
        if cpus.allows(cpu.id()) {
            return Ok(None);
        }
        if !entity.affinity().allows(home) {
            return Err(NoLoan::NotAllowed(home));
        }
        if cpu.state(seat) == Ok(State::Running) { Err(NoLoan::Elsewhere(home)) } else { Ok(Some(home)) }
    });
    match found {
        Some(found) => found,
        None if home_of(machine, server).is_some() => Ok(None),
        None => Err(NoLoan::NotThere),
    }
}

impl Contexts {
    /// Whether `server` would serve a call of `caller` on the caller's context; which one. Changes nothing.
    pub fn may_lend<M: ContextMachine>(
        &self,
        machine: &mut M,
        caller: ThreadRef,
        server: ThreadRef,
    ) -> Result<ContextRef, NoLoan> {
        let plan = self.plan_loan(machine, caller, server)?;
        Ok(self.records[plan.index].value_name())
    }

    fn plan_loan<M: ContextMachine>(
        &self,
        machine: &mut M,
        caller: ThreadRef,
        server: ThreadRef,
    ) -> Result<Plan, NoLoan> {
        let held = at_home(machine, caller, |access, seat| {
            let context = access.cpu().entity(seat).ok()?.context()?;
            Some((context.who(), context.may_lend(caller, server)))
        });
        let Some((who, allowed)) = held.flatten() else { return Err(NoLoan::NothingToLend) };
        if let Err(cycle @ LoanError::Cycle(_)) = allowed {
            return Err(NoLoan::Loan(cycle));
        }
        let index = self.of_value(who).ok_or(NoLoan::NothingToLend)?;
        let record = &self.records[index];
        let way = way_for_server(machine, &record.spec.cpus, record.home, server);
        // A call that the server would serve on what it has is never refused for the chain of the context.
        if let Ok(_) | Err(NoLoan::Elsewhere(_)) = way {
            allowed.map_err(NoLoan::Loan)?;
        }
        let bring_to = way?;
        Ok(Plan { index, bring_to })
    }

    /// `caller`, which waits for a call, lends its context to `server`, which is to serve it. The machine sees to it that this is
    /// still the call that is meant: it blocks the caller and lends in one go, or holds the lock of the endpoint that has the call.
    /// The wait of a server that has to come over from another CPU ends here.
    pub fn lend<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        caller: ThreadRef,
        server: ThreadRef,
    ) -> Result<Lent, NoLoan> {
        let waits = |cpu: &Cpu, seat| cpu.state(seat) == Ok(State::Asleep(WaitKind::Call));
        if at_home(machine, caller, |access, seat| waits(access.cpu(), seat)) != Some(true) {
            return Err(NoLoan::NotCalling);
        }
        let Plan { index, bring_to } = self.plan_loan(machine, caller, server)?;
        if let Some(cpu) = bring_to
            && !bring_over(machine, server, cpu)
        {
            return Err(NoLoan::NotThere);
        }
        let taken = at_home(machine, caller, |access, seat| {
            let value = access.event().lend(seat, server)?;
            Ok((value, Left { cpu: Some(access.cpu().id()), at: access.now() }))
        });
        let (value, left) = match taken {
            Some(Ok(taken)) => taken,
            Some(Err(LendError::Loan(error))) => return Err(NoLoan::Loan(error)),
            Some(Err(LendError::NoContext)) => return Err(NoLoan::NothingToLend),
            Some(Err(LendError::Seat(_))) | None => return Err(NoLoan::NotCalling),
        };
        let context = value.who();
        self.send(index, value, server, Some(left));
        let lent = match self.land(machine, index) {
            Ok(()) => {
                machine.context_moved(ContextMoved::Lent { context, from: caller, to: server });
                let asleep = at_home(machine, server, |access, seat| access.is_asleep(seat)) == Some(true);
                Ok(if asleep { Lent::Asleep(context) } else { Lent::Ready(context) })
            }
            Err(NotLanded::Moving) => Ok(Lent::InFlight(context)),
            Err(NotLanded::Refused(_)) => {
                self.go_back(machine, index, None, CallEnd::DeliveryFailed);
                Err(NoLoan::NotThere)
            }
        };
        self.debug_verify(machine);
        lent
    }

    /// Gives `server` the context that is in flight to it, if one is and it can be reached now. A machine does this before the
    /// server begins with the request.
    pub fn deliver<M: ContextMachine>(&mut self, machine: &mut M, server: ThreadRef) -> Delivery {
        let Some(index) = self.in_flight_to(server) else { return Delivery::Nothing };
        let context = self.records[index].value_name();
        let from = self.flying(index).and_then(|flight| flight.value.donors().last());
        let record = &self.records[index];
        let way = way_for_server(machine, &record.spec.cpus, record.home, server);
        // One that sleeps waits for something else by now, and to bring it over would wake it.
        let asleep = at_home(machine, server, |access, seat| access.is_asleep(seat)) == Some(true);
        if let (Ok(Some(cpu)), false) = (way, asleep) {
            bring_over(machine, server, cpu);
        }
        let delivery = match self.land(machine, index) {
            Ok(()) => {
                if let Some(from) = from {
                    machine.context_moved(ContextMoved::Lent { context, from, to: server });
                }
                Delivery::Delivered(context)
            }
            Err(NotLanded::Moving) => Delivery::StillInFlight(context),
            Err(NotLanded::Refused(_)) => {
                self.go_back(machine, index, None, CallEnd::DeliveryFailed);
                Delivery::SentBack(context)
            }
        };
        self.debug_verify(machine);
        delivery
    }

    pub(super) fn in_flight_to(&self, thread: ThreadRef) -> Option<usize> {
        if self.in_flight == 0 {
            return None;
        }
        self.records
            .iter()
            .position(|record| matches!(&record.position, Position::InFlight(flight) if flight.to == thread))
    }

    /// The call of `caller` is over, by whatever `end`. The caller has its context back, from wherever that is, or the context is
    /// gone. Threads further down the chain of calls that wait for it wait for it no longer. The caller can be woken then.
    pub fn end_call<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        caller: ThreadRef,
        end: CallEnd,
    ) -> LoanEnd {
        let Some(who) = lent_by(machine, caller) else { return LoanEnd::NothingLent };
        let Some(index) = self.of_value(who) else {
            write_off(machine, caller);
            return LoanEnd::WrittenOff(who);
        };
        let Ok(from) = self.lift(machine, index, caller) else {
            write_off(machine, caller);
            self.debug_verify(machine);
            return LoanEnd::WrittenOff(who);
        };
        self.cut_chain(machine, index, caller);
        if end == CallEnd::TimedOut {
            self.note_timeout(machine, index, caller);
        }
        machine.context_moved(ContextMoved::Returned { context: who, from, to: caller, end });
        let returned = self.land_with_donor(machine, index, caller);
        debug_assert!(returned, "a caller that waits takes its context back");
        if !returned {
            self.go_back(machine, index, from, end);
        }
        self.debug_verify(machine);
        match self.records[index].phase {
            Phase::Ended(reason) => LoanEnd::Ended(who, reason),
            Phase::Live | Phase::Ending(_) if returned => LoanEnd::Returned(who),
            Phase::Live | Phase::Ending(_) => LoanEnd::WrittenOff(who),
        }
    }

    /// `thread`, which runs, is about to wait for `kind`, if it may: see [`may_block`]. A thread on borrowed time that is about to wait
    /// for its next request has not answered the last one: its caller has the context back, and waits on.
    pub fn about_to_wait<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        thread: ThreadRef,
        kind: WaitKind,
    ) -> Result<(), OnBorrowedTime> {
        if kind == WaitKind::Receive
            && let Some(donor) = donor_of(machine, thread)
        {
            self.end_call(machine, donor, CallEnd::ServerGone);
        }
        at_home(machine, thread, |access, seat| may_block(access.cpu(), seat, kind)).unwrap_or(Ok(()))
    }

    /// `thread` is to end, and goes on as best effort, so that it need not wait for a refill. Its own context is at rest; one that it
    /// has on loan is back with its caller.
    pub fn let_go<M: ContextMachine>(&mut self, machine: &mut M, thread: ThreadRef) {
        match donor_of(machine, thread) {
            Some(donor) => _ = self.end_call(machine, donor, CallEnd::ServerGone),
            None => _ = self.unbind(machine, thread),
        }
    }

    /// `donor`, and the donors after it, are off the stack of a context in flight. The others wait for it no longer.
    pub(super) fn cut_chain<M: ContextMachine>(&mut self, machine: &mut M, index: usize, donor: ThreadRef) {
        while let Some(flight) = self.flying(index) {
            match flight.value.donors().last() {
                Some(last) if last != donor && flight.value.donors().iter().any(|one| one == donor) => {
                    flight.value.cut(last);
                    write_off(machine, last);
                }
                _ => break,
            }
        }
        if let Some(flight) = self.flying(index) {
            flight.value.cut(donor);
        }
    }

    fn note_timeout<M: ContextMachine>(&mut self, machine: &mut M, index: usize, caller: ThreadRef) {
        let Some(now) = at_home(machine, caller, |access, _| access.now()) else { return };
        let Some(flight) = self.flying(index) else { return };
        let (who, waiter) = (flight.value.who(), flight.value.note_timeout(caller, now));
        if let Some(waiter) = waiter {
            machine.wake_waiter(who, waiter);
        }
    }

    /// The running thread of the CPU calls the one at `server` on its context and waits for the answer, in one go; see
    /// [`Cpu::call_directly`]. Whether it did; if not, nothing has changed and the long way has to be taken.
    #[inline(always)]
    pub fn call_directly<O: Observer>(&mut self, cpu: RecordedCpu<'_, O>, server: Seat) -> bool {
        let Some(Record { position: Position::With(holder), .. }) = self.running_on(cpu.cpu()) else {
            return false;
        };
        let called = cpu.call_directly(server);
        if called {
            *holder = server.thread();
        }
        called
    }

    /// The running thread of the CPU answers the call of the one at `caller` and waits for the next, in one go; see
    /// [`Cpu::reply_directly`]. The permit of the wait that this ends; `None` if the long way has to be taken, and nothing has
    /// changed.
    #[inline(always)]
    pub fn reply_directly<O: Observer>(
        &mut self,
        cpu: RecordedCpu<'_, O>,
        caller: Seat,
    ) -> Option<Option<WaitPermit>> {
        // A context that is to end when it comes back takes the long way.
        let Some(Record { position: Position::With(holder), phase: Phase::Live, .. }) =
            self.running_on(cpu.cpu())
        else {
            return None;
        };
        let permit = cpu.reply_directly(caller)?;
        *holder = caller.thread();
        Some(permit)
    }

    /// The record of the context of the running thread of `cpu`.
    #[inline(always)]
    fn running_on(&mut self, cpu: &Cpu) -> Option<&mut Record> {
        self.record_of_value(cpu.running()?.context()?.who())
    }
}
