//! Looking on at a machine's CPUs: recorders, watchers, digests.

use mainspring_abi::Nanos;
use mainspring_sched::flight::{EventRef, Log, Outcome};
use mainspring_sched::{Cpu, Decision, Expired, IdleConditions, IdleTick, Stop, TimerOutcome};

/// The events that happen most, with their outcomes. An observer may take one in one piece.
#[derive(Clone, Copy, Debug)]
pub enum FrequentEvent<'a> {
    /// A timer interrupt.
    Timer(TimerOutcome),
    /// The end of a timed wait, or that none was due.
    Expired(Option<&'a Expired>),
    /// A CPU that has nothing to run.
    Idle(&'a IdleConditions, IdleTick),
}

impl<'a> FrequentEvent<'a> {
    /// The event alone.
    #[must_use]
    pub fn event(self) -> EventRef<'a> {
        match self {
            Self::Timer(_) => EventRef::Timer,
            Self::Expired(_) => EventRef::Expire,
            Self::Idle(conditions, _) => EventRef::EnterIdle(conditions),
        }
    }

    /// The outcome alone.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Timer(outcome) => outcome.into(),
            Self::Expired(expired) => expired.into(),
            Self::Idle(_, tick) => tick.into(),
        }
    }
}

/// Looks on at the CPUs of a machine. A machine without an observer uses `()`, which costs nothing.
pub trait Observer {
    /// What is kept of a stop until its decision is known.
    type Half;

    /// `event` is about to be given to `cpu`. It is only built if an observer wants it.
    fn before<'e>(&mut self, now: Nanos, cpu: &Cpu, event: impl FnOnce() -> EventRef<'e>);

    /// `cpu` answered the event announced last with `outcome`.
    fn after(&mut self, now: Nanos, cpu: &Cpu, outcome: impl FnOnce() -> Outcome);

    /// The running thread of `cpu` is about to stop as `stop` says. The stop is handed through: its address would keep it from
    /// being spread over registers.
    fn before_decision(&mut self, now: Nanos, cpu: &Cpu, stop: Stop) -> (Stop, Self::Half);

    /// `cpu` has decided.
    fn after_decision(&mut self, now: Nanos, cpu: &Cpu, half: Self::Half, decision: Decision);

    /// One of the events that happen most is about to be given to `cpu`.
    #[inline(always)]
    fn before_frequent<'e>(&mut self, now: Nanos, cpu: &Cpu, event: impl FnOnce() -> EventRef<'e>) {
        self.before(now, cpu, event);
    }

    /// It has happened.
    #[inline(always)]
    fn after_frequent(&mut self, now: Nanos, cpu: &Cpu, frequent: FrequentEvent<'_>) {
        self.after(now, cpu, || frequent.outcome());
    }

    /// Whether events may be joined to one that no record has a form for. An observer that records needs each by itself.
    fn allows_shortcuts(&self) -> bool {
        false
    }
}

/// No observer.
impl Observer for () {
    type Half = ();

    #[inline(always)]
    fn before<'e>(&mut self, _: Nanos, _: &Cpu, _: impl FnOnce() -> EventRef<'e>) {}
    #[inline(always)]
    fn after(&mut self, _: Nanos, _: &Cpu, _: impl FnOnce() -> Outcome) {}
    #[inline(always)]
    fn before_decision(&mut self, _: Nanos, _: &Cpu, stop: Stop) -> (Stop, ()) {
        (stop, ())
    }
    #[inline(always)]
    fn after_decision(&mut self, _: Nanos, _: &Cpu, (): (), _: Decision) {}

    fn allows_shortcuts(&self) -> bool {
        true
    }
}

/// A log in memory, or no observer.
impl Observer for Option<Log> {
    type Half = ();

    #[inline(always)]
    fn before<'e>(&mut self, now: Nanos, cpu: &Cpu, event: impl FnOnce() -> EventRef<'e>) {
        if let Some(log) = self {
            log.begin(now, cpu.id(), event());
        }
    }

    #[inline(always)]
    fn after(&mut self, _: Nanos, _: &Cpu, outcome: impl FnOnce() -> Outcome) {
        if let Some(log) = self {
            log.finish(outcome());
        }
    }

    #[inline(always)]
    fn before_decision(&mut self, now: Nanos, cpu: &Cpu, stop: Stop) -> (Stop, ()) {
        if let Some(log) = self {
            log.begin(now, cpu.id(), EventRef::Resched(&stop));
        }
        (stop, ())
    }

    #[inline(always)]
    fn after_decision(&mut self, _: Nanos, _: &Cpu, (): (), decision: Decision) {
        if let Some(log) = self {
            log.finish(decision.into());
        }
    }

    #[inline(always)]
    fn allows_shortcuts(&self) -> bool {
        self.is_none()
    }
}
