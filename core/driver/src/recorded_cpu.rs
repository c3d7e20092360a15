//! The only way to a scheduler CPU: each event is given a time that does not go back, announced, carried out and concluded.
//!
//! Conserved: an observer sees every event of a CPU in its order, before and after, and nothing happens to the CPU otherwise. So a
//! record that an observer makes replays.

use crate::observer::{FrequentEvent, Observer};
use alloc::boxed::Box;
use mainspring_abi::{ContextRef, CpuId, LatencyClass, Nanos, ThreadRef, Weight};
use mainspring_sched::context::{Context, Notices};
use mainspring_sched::flight::{EventRef, NohzEvent, NohzOutcome, Outcome};
use mainspring_sched::lease::LeaseRef;
use mainspring_sched::nohz::{Claim, Conditions};
use mainspring_sched::{
    Cpu, Decision, Entity, Expired, Handoff, IdleConditions, IdleTick, LendError, NohzEntry, NohzRecheck,
    NotBound, PolicyCap, PolicyError, Refused, Removed, Seat, SeatError, Stop, Timeout, TimerOutcome,
    UnbindError, Via, WaitKind, WaitPermit, Woken,
};

/// A scheduler CPU and the time of its last event.
#[derive(Debug)]
pub struct CpuCore {
    cpu: Cpu,
    last: Nanos,
}

impl CpuCore {
    /// Around a CPU to which nothing has happened yet.
    #[must_use]
    pub fn new(cpu: Cpu) -> Self {
        Self { cpu, last: Nanos::ZERO }
    }

    /// The time of the last event.
    #[must_use]
    pub fn last(&self) -> Nanos {
        self.last
    }

    /// An event that happens at `now`, or at the time of the last event if that is later: CPUs read their clocks apart from each
    /// other, and the events of one CPU are in order.
    #[inline(always)]
    pub fn at<'a, O: Observer>(&'a mut self, now: Nanos, observer: &'a mut O) -> RecordedCpu<'a, O> {
        self.last = self.last.max(now);
        RecordedCpu { now: self.last, cpu: &mut self.cpu, observer }
    }

    /// Makes room for as many threads. No event: a replay reserves everything at once.
    pub fn reserve(&mut self, threads: usize) -> Result<(), mainspring_sched::NoRoom> {
        self.cpu.reserve(threads)
    }

    /// What overran at the last event; see [`Cpu::take_overrun`]. No decision depends on it.
    #[inline]
    pub fn take_overrun(&mut self) -> Option<mainspring_sched::Overran> {
        self.cpu.take_overrun()
    }

    /// The notices of the context at `seat`; see [`Cpu::notices_mut`]. No decision depends on them.
    pub fn notices_mut(&mut self, seat: Seat) -> Option<&mut Notices> {
        self.cpu.notices_mut(seat)
    }

    /// The lag of the running thread at `now`; see [`Cpu::current_lag`].
    pub fn current_lag(&mut self, now: Nanos) -> Option<mainspring_sched::Lag> {
        self.cpu.current_lag(now)
    }
}

impl core::ops::Deref for CpuCore {
    type Target = Cpu;

    #[inline(always)]
    fn deref(&self) -> &Cpu {
        &self.cpu
    }
}

/// A CPU at the time of an event, with its observer.
#[derive(Debug)]
pub struct RecordedCpu<'a, O> {
    cpu: &'a mut Cpu,
    now: Nanos,
    observer: &'a mut O,
}

/// Methods of [`Cpu`] that are an event: the same name, the same arguments but for the time.
macro_rules! events {
    ($($(#[$attribute:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty
        = $event:expr, |$cpu:ident, $now:ident| $act:expr, $outcome:expr;)*) => {
        impl<O: Observer> RecordedCpu<'_, O> {
            $(
                #[doc = concat!("See [`Cpu::", stringify!($name), "`].")]
                $(#[$attribute])*
                pub fn $name(self, $($argument: $kind),*) -> $result {
                    let Self { cpu: $cpu, now: $now, observer } = self;
                    observer.before($now, $cpu, || $event);
                    let result = $act;
                    observer.after($now, $cpu, || $outcome(&result));
                    result
                }
            )*
        }
    };
}

/// The outcome of a result that an event may have.
fn outcome<T>(result: &T) -> Outcome
where
    for<'r> &'r T: Into<Outcome>,
{
    result.into()
}

events! {
    #[expect(clippy::result_large_err, reason = "a refusal gives the thread back, by value")]
    accept(entity: Entity, via: Via) -> Result<(Seat, Woken), Refused>
        = EventRef::Accept(&entity, via), |cpu, now| cpu.accept(now, entity, via), outcome;
    exit_current() -> Option<Entity>
        = EventRef::ExitCurrent, |cpu, now| cpu.exit_current(now), outcome;
    wake(seat: Seat) -> Result<Woken, SeatError>
        = EventRef::Wake(seat), |cpu, now| cpu.wake(now, seat), outcome;
    hand_off(seat: Seat) -> Result<Handoff, SeatError>
        = EventRef::HandOff(seat), |cpu, now| cpu.hand_off(now, seat), outcome;
    remove(seat: Seat) -> Result<Removed, SeatError>
        = EventRef::Remove(seat), |cpu, now| cpu.remove(now, seat), outcome;
    give(thief: CpuId) -> Option<Entity>
        = EventRef::Give(thief), |cpu, now| cpu.give(now, thief), outcome;
    reschedule_received() -> ()
        = EventRef::RescheduleReceived, |cpu, now| cpu.reschedule_received(now), |_: &()| Outcome::Done;
    block_current(kind: WaitKind, timeout: Option<Timeout>) -> bool
        = EventRef::BlockCurrent(kind, timeout.as_ref()), |cpu, now| cpu.block_current(now, kind, timeout),
        |_: &bool| Outcome::Done;
    bind(seat: Seat, context: Box<Context>) -> Result<bool, NotBound>
        = EventRef::Bind(seat, &context), |cpu, now| cpu.bind(now, seat, context), outcome;
    unbind(seat: Seat) -> Result<Box<Context>, UnbindError>
        = EventRef::Unbind(seat), |cpu, now| cpu.unbind(now, seat), outcome;
    lend(seat: Seat, to: ThreadRef) -> Result<Box<Context>, LendError>
        = EventRef::Lend(seat, to), |cpu, now| cpu.lend(now, seat, to), outcome;
    write_off(seat: Seat) -> Result<ContextRef, UnbindError>
        = EventRef::WriteOff(seat), |cpu, _now| cpu.write_off(seat), outcome;
    hold(seat: Seat) -> Result<(), SeatError>
        = EventRef::Hold(seat), |cpu, now| cpu.hold(now, seat), outcome;
    release(seat: Seat) -> Result<Woken, SeatError>
        = EventRef::Release(seat), |cpu, now| cpu.release(now, seat), outcome;
    set_weight(seat: Seat, weight: Weight) -> Result<(), SeatError>
        = EventRef::SetWeight(seat, weight), |cpu, _now| cpu.set_weight(seat, weight), outcome;
    set_class(seat: Seat, class: LatencyClass) -> Result<(), SeatError>
        = EventRef::SetClass(seat, class), |cpu, _now| cpu.set_class(seat, class), outcome;
}

impl<O: Observer> RecordedCpu<'_, O> {
    /// See [`Cpu::resched`].
    #[inline(always)]
    pub fn resched(self, stop: Stop) -> Decision {
        let Self { cpu, now, observer } = self;
        let (stop, half) = observer.before_decision(now, cpu, stop);
        let decision = cpu.resched(now, stop);
        observer.after_decision(now, cpu, half, decision);
        decision
    }

    /// See [`Cpu::timer`].
    #[inline(always)]
    pub fn timer(self) -> TimerOutcome {
        let Self { cpu, now, observer } = self;
        observer.before_frequent(now, cpu, || EventRef::Timer);
        let outcome = cpu.timer(now);
        observer.after_frequent(now, cpu, FrequentEvent::Timer(outcome));
        outcome
    }

    /// Ends one timed wait, if one is due; see [`Cpu::expire`].
    #[inline(always)]
    pub fn expire(self) -> Option<Expired> {
        let Self { cpu, now, observer } = self;
        if cpu.next_deadline().is_none_or(|deadline| deadline > now) {
            return None;
        }
        observer.before_frequent(now, cpu, || EventRef::Expire);
        let expired = cpu.expire(now);
        observer.after_frequent(now, cpu, FrequentEvent::Expired(expired.as_ref()));
        expired
    }

    /// See [`Cpu::enter_idle`].
    #[inline(always)]
    pub fn enter_idle(self, conditions: &IdleConditions) -> IdleTick {
        let Self { cpu, now, observer } = self;
        observer.before_frequent(now, cpu, || EventRef::EnterIdle(conditions));
        let tick = cpu.enter_idle(now, conditions);
        observer.after_frequent(now, cpu, FrequentEvent::Idle(conditions, tick));
        tick
    }

    /// See [`Cpu::switch_directly`]: the permit of the wait that this ends, if it could be done. A record has the long way,
    /// so a machine that records takes that.
    #[inline(always)]
    pub fn switch_directly(self, seat: Seat, kind: WaitKind) -> Option<Option<WaitPermit>> {
        if !self.observer.allows_shortcuts() {
            return None;
        }
        switch_directly(self.cpu, self.now, seat, kind)
    }

    /// See [`Cpu::call_directly`]: whether it could be done. A record has the long way, so a machine that records takes that.
    #[inline(always)]
    pub fn call_directly(self, server: Seat) -> bool {
        self.observer.allows_shortcuts() && self.cpu.call_directly(self.now, server, None).is_ok()
    }

    /// See [`Cpu::reply_directly`]: the permit of the wait that this ends, if it could be done. A record has the long way, so a
    /// machine that records takes that.
    #[inline(always)]
    pub fn reply_directly(self, caller: Seat) -> Option<Option<WaitPermit>> {
        if !self.observer.allows_shortcuts() {
            return None;
        }
        self.cpu.reply_directly(self.now, caller, None).ok().map(|(_, permit)| permit)
    }

    /// The CPU, to look at.
    #[inline(always)]
    pub(crate) fn cpu(&self) -> &Cpu {
        self.cpu
    }

    /// The running thread sets its own weight; see [`Cpu::call_set_weight`]. Recorded as what it comes to.
    pub fn call_set_weight(self, cap: &PolicyCap, weight: u64) -> Result<(), PolicyError> {
        let current = self.cpu.current();
        self.cpu.call_set_weight(cap, weight)?;
        if let (Some(seat), Ok(weight)) = (current, Weight::new(weight)) {
            let _same = self.set_weight(seat, weight);
        }
        Ok(())
    }

    /// The running thread sets its own latency class; see [`Cpu::call_set_class`]. Recorded as what it comes to.
    pub fn call_set_class(self, cap: &PolicyCap, class: LatencyClass) -> Result<(), PolicyError> {
        let current = self.cpu.current();
        self.cpu.call_set_class(cap, class)?;
        if let Some(seat) = current {
            let _same = self.set_class(seat, class);
        }
        Ok(())
    }

    /// See [`Cpu::nohz_enter`].
    pub fn nohz_enter(self, claim: Claim, conditions: Conditions) -> NohzEntry {
        let Self { cpu, now, observer } = self;
        let event = NohzEvent::Enter(claim, conditions);
        observer.before(now, cpu, || EventRef::Nohz(&event));
        let entry = cpu.nohz_enter(now, &claim, &conditions);
        observer.after(now, cpu, || Outcome::Nohz(NohzOutcome::Entry(entry)));
        entry
    }

    /// See [`Cpu::nohz_recheck`].
    pub fn nohz_recheck(self, conditions: Conditions) -> NohzRecheck {
        let Self { cpu, now, observer } = self;
        let event = NohzEvent::Recheck(conditions);
        observer.before(now, cpu, || EventRef::Nohz(&event));
        let recheck = cpu.nohz_recheck(now, &conditions);
        observer.after(now, cpu, || Outcome::Nohz(NohzOutcome::Recheck(recheck)));
        recheck
    }

    /// See [`Cpu::nohz_forget`].
    pub fn nohz_forget(self, lease: LeaseRef) -> bool {
        let Self { cpu, now, observer } = self;
        let event = NohzEvent::Forget(lease);
        observer.before(now, cpu, || EventRef::Nohz(&event));
        let forgot = cpu.nohz_forget(lease);
        observer.after(now, cpu, || Outcome::Nohz(NohzOutcome::Forgot(forgot)));
        forgot
    }
}

/// A function of its own, so that what is around it does not push the CPU's state out of the registers.
#[inline(never)]
fn switch_directly(cpu: &mut Cpu, now: Nanos, seat: Seat, kind: WaitKind) -> Option<Option<WaitPermit>> {
    cpu.switch_directly(now, seat, kind, None).ok().map(|(_, permit)| permit)
}
