//! A context is bound to a thread, and given up again.

use super::record::Position;
use super::transfer::{NotLanded, at_home, bring_over, home_of};
use super::{ContextError, ContextMachine, ContextMoved, Contexts};
use core::fmt;
use mainspring_abi::{ContextRef, CpuId, ThreadRef};
use mainspring_sched::{Affinity, Authority, BindRefusal, State};

/// Why a context was not bound; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindError {
    /// The name could not be used.
    Context(ContextError),
    /// Another thread is bound to it.
    Busy(ThreadRef),
    /// It may not be bound for now: it is promised to a thread that has not started.
    Withheld,
    /// The thread holds this one, or has lent it.
    HasOne(ContextRef),
    /// The thread runs on a CPU where the context may not be spent: it must go to this one first.
    Elsewhere(CpuId),
    /// The thread may not run on this CPU, where the time of the context is set aside.
    NotAllowed(CpuId),
    /// The thread has ended.
    NoThread(ThreadRef),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Context(error) => error.fmt(f),
            Self::Busy(owner) => write!(f, "the context is bound to {owner:?}; release it there first"),
            Self::Withheld => {
                f.write_str("the context is promised to a thread that has not started; take another")
            }
            Self::HasOne(who) => write!(f, "the thread has context {who:?}; release that first"),
            Self::Elsewhere(cpu) => write!(f, "the thread runs elsewhere; move it to {cpu:?} first"),
            Self::NotAllowed(cpu) => write!(f, "the thread may not run on {cpu:?}, where its time would be"),
            Self::NoThread(thread) => write!(f, "{thread:?} has ended"),
        }
    }
}

impl core::error::Error for BindError {}

impl Contexts {
    /// Binds a context that is at rest to `thread`. A thread that waits or is queued on another CPU than the context may be
    /// spent on comes over to the context's home and is ready there; one that runs is refused with [`BindError::Elsewhere`].
    pub fn bind<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        who: ContextRef,
        thread: ThreadRef,
    ) -> Result<(), BindError> {
        self.bind_where(machine, who, thread, bring_over)
    }

    /// As [`Contexts::bind`], of a thread that is not moved and not woken: one that sits elsewhere is refused with
    /// [`BindError::Elsewhere`].
    pub fn bind_in_place<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        who: ContextRef,
        thread: ThreadRef,
    ) -> Result<(), BindError> {
        self.bind_where(machine, who, thread, |_, _, _| false)
    }

    /// Binds a context that is at rest to `thread`. `bring` moves it to the CPU that it has to be on, if it can.
    fn bind_where<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        who: ContextRef,
        thread: ThreadRef,
        bring: impl FnOnce(&mut M, ThreadRef, CpuId) -> bool,
    ) -> Result<(), BindError> {
        let index = self.live(who).map_err(BindError::Context)?;
        let record = &self.records[index];
        if let Some(owner) = record.owner {
            return Err(BindError::Busy(owner));
        }
        if !matches!(record.position, Position::Rest(_)) {
            return Err(BindError::Elsewhere(record.home));
        }
        let home = record.home;
        if let Some(cpu) = self.way_to(machine, &record.spec.cpus, home, thread)?
            && !bring(machine, thread, cpu)
        {
            return Err(BindError::Elsewhere(cpu));
        }
        let lifted = self.lift(machine, index, thread);
        debug_assert_eq!(lifted, Ok(None), "it was at rest");
        // `thread` is the owner from here on, also while the context lands. If the landing fails, the
        // context goes back to rest.
        if let Err(why) = self.land(machine, index) {
            self.put_to_rest(machine, index);
            self.debug_verify(machine);
            return Err(match why {
                NotLanded::Moving => BindError::Elsewhere(home),
                NotLanded::Refused(Some(BindRefusal::Busy(other))) => BindError::HasOne(other),
                NotLanded::Refused(Some(BindRefusal::NotAllowed(_))) => BindError::Elsewhere(home),
                NotLanded::Refused(_) => BindError::NoThread(thread),
            });
        }
        self.records[index].owner = Some(thread);
        machine.context_moved(ContextMoved::Bound { context: who, thread });
        self.debug_verify(machine);
        Ok(())
    }

    /// The CPU that `thread`, which is best effort, has to come over to before it can have a context for `cpus`. `None` if it can
    /// stay where it is.
    fn way_to<M: ContextMachine>(
        &self,
        machine: &mut M,
        cpus: &Affinity,
        home: CpuId,
        thread: ThreadRef,
    ) -> Result<Option<CpuId>, BindError> {
        let found = at_home(machine, thread, |access, seat| {
            let Ok(entity) = access.cpu().entity(seat) else { return Err(BindError::NoThread(thread)) };
            match entity.authority() {
                Authority::Context(other) => return Err(BindError::HasOne(other.who())),
                Authority::Lent(other) => return Err(BindError::HasOne(*other)),
                Authority::BestEffort => {}
            }
            if cpus.allows(access.cpu().id()) {
                return Ok(None);
            }
            if !entity.affinity().allows(home) {
                return Err(BindError::NotAllowed(home));
            }
            let runs = access.cpu().state(seat) == Ok(State::Running);
            if runs { Err(BindError::Elsewhere(home)) } else { Ok(Some(home)) }
        });
        found.unwrap_or(Err(match home_of(machine, thread) {
            Some(_) => BindError::Elsewhere(home),
            None => BindError::NoThread(thread),
        }))
    }

    /// `thread` gives up the context that it is bound to, which is at rest then; which one. `None` if it is bound to none, has
    /// lent it, or holds a loan, which is not its own to give up.
    pub fn unbind<M: ContextMachine>(&mut self, machine: &mut M, thread: ThreadRef) -> Option<ContextRef> {
        let held = self.held_by(machine, thread)?;
        let index = self.of_value(held)?;
        if self.records[index].owner != Some(thread) {
            return None;
        }
        self.lift(machine, index, thread).ok()?;
        self.put_to_rest(machine, index);
        let context = self.records[index].name();
        machine.context_moved(ContextMoved::Unbound { context, thread });
        self.debug_verify(machine);
        Some(context)
    }

    /// A capability for `who` is released. The binding of `thread` is cleared only if it is to that context.
    pub fn release<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        who: ContextRef,
        thread: ThreadRef,
    ) -> Result<bool, ContextError> {
        let index = self.live(who)?;
        let bound = self.records[index].owner == Some(thread) && self.records[index].holder() == Some(thread);
        Ok(bound && self.unbind(machine, thread).is_some())
    }

    /// The context that `thread` holds, bound to it or lent to it.
    pub fn held_by<M: ContextMachine>(&self, machine: &mut M, thread: ThreadRef) -> Option<ContextRef> {
        at_home(machine, thread, |access, seat| {
            let entity = access.cpu().entity(seat).ok()?;
            entity.context().map(|context| context.who())
        })?
    }
}
