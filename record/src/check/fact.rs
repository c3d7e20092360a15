//! What was seen: an event and its outcome, kept by value.

use mainspring_abi::{ContextRef, CpuId, LatencyClass, Nanos, ThreadRef, Weight};
use mainspring_sched::context::{Context, ContextSpec};
use mainspring_sched::flight::{EventRef, NohzEvent, Outcome};
use mainspring_sched::{Account, Affinity, Authority, Entity, IdleConditions, Seat, Stop, Via, WaitKind};

/// One event of one CPU, over and done with.
#[derive(Clone, Debug)]
pub struct Fact {
    /// When.
    pub now: Nanos,
    /// Where.
    pub cpu: usize,
    /// What happened.
    pub seen: Seen,
    /// What came of it.
    pub outcome: Outcome,
}

/// An event, as far as it can be kept.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each variant is the method of `Cpu` of the same name")]
pub enum Seen {
    Accept(Box<Arrival>),
    Resched(Why),
    ExitCurrent,
    Wake(Seat),
    HandOff(Seat),
    Hold(Seat),
    Release(Seat),
    Remove(Seat),
    Give(CpuId),
    Timer,
    Expire,
    RescheduleReceived,
    EnterIdle(IdleConditions),
    SetWeight(Seat, Weight),
    SetClass(Seat, LatencyClass),
    BlockCurrent(WaitKind, Option<Nanos>),
    Bind(Seat, Box<Given>),
    Unbind(Seat),
    Lend(Seat, ThreadRef),
    WriteOff(Seat),
    Nohz(Box<NohzEvent>),
}

/// Why a running thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is that of `Stop`")]
pub enum Why {
    Nothing,
    Preempted,
    Yielded,
    Blocked(WaitKind, Option<Nanos>),
}

/// A thread that came to a CPU.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each field is that of `Entity`")]
pub struct Arrival {
    pub thread: ThreadRef,
    pub via: Via,
    pub weight: Weight,
    pub class: LatencyClass,
    pub affinity: Affinity,
    pub lag_ns: i64,
    pub last_cpu: Option<CpuId>,
    pub account: Account,
    pub title: Title,
}

/// On whose time a thread runs.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each variant is that of `Authority`")]
pub enum Title {
    BestEffort,
    Context(Box<Given>),
    Lent(ContextRef),
}

/// A context that came to a thread.
#[derive(Clone, Debug)]
pub struct Given {
    /// Which.
    pub who: ContextRef,
    /// What it grants.
    pub spec: ContextSpec,
    /// Release and amount of each refill.
    pub refills: Vec<(u64, u64)>,
    /// What was used of it, in all.
    pub used: u64,
    /// And on loan.
    pub donated: u64,
    /// Who waits for it to come back.
    pub donors: Vec<ThreadRef>,
}

impl Seen {
    /// Keeps what matters of `event`.
    #[must_use]
    pub fn of(event: EventRef<'_>) -> Self {
        match event {
            EventRef::Accept(entity, via) => Self::Accept(Box::new(Arrival::of(entity, via))),
            EventRef::Resched(stop) => Self::Resched(match stop {
                Stop::Nothing => Why::Nothing,
                Stop::Preempted => Why::Preempted,
                Stop::Yielded => Why::Yielded,
                Stop::Blocked(kind, timeout) => {
                    Why::Blocked(*kind, timeout.as_ref().map(|timeout| timeout.deadline))
                }
            }),
            EventRef::ExitCurrent => Self::ExitCurrent,
            EventRef::Wake(seat) => Self::Wake(seat),
            EventRef::HandOff(seat) => Self::HandOff(seat),
            EventRef::Hold(seat) => Self::Hold(seat),
            EventRef::Release(seat) => Self::Release(seat),
            EventRef::Remove(seat) => Self::Remove(seat),
            EventRef::Give(thief) => Self::Give(thief),
            EventRef::Timer => Self::Timer,
            EventRef::Expire => Self::Expire,
            EventRef::RescheduleReceived => Self::RescheduleReceived,
            EventRef::EnterIdle(conditions) => Self::EnterIdle(*conditions),
            EventRef::SetWeight(seat, weight) => Self::SetWeight(seat, weight),
            EventRef::SetClass(seat, class) => Self::SetClass(seat, class),
            EventRef::BlockCurrent(kind, timeout) => {
                Self::BlockCurrent(kind, timeout.map(|timeout| timeout.deadline))
            }
            EventRef::Bind(seat, context) => Self::Bind(seat, Box::new(Given::of(context))),
            EventRef::Unbind(seat) => Self::Unbind(seat),
            EventRef::Lend(seat, to) => Self::Lend(seat, to),
            EventRef::WriteOff(seat) => Self::WriteOff(seat),
            EventRef::Nohz(event) => Self::Nohz(Box::new(*event)),
        }
    }

    /// The seat that the event speaks of.
    #[must_use]
    pub fn seat(&self) -> Option<Seat> {
        match *self {
            Self::Wake(seat)
            | Self::HandOff(seat)
            | Self::Hold(seat)
            | Self::Release(seat)
            | Self::Remove(seat)
            | Self::SetWeight(seat, _)
            | Self::SetClass(seat, _)
            | Self::Bind(seat, _)
            | Self::Unbind(seat)
            | Self::Lend(seat, _)
            | Self::WriteOff(seat) => Some(seat),
            _ => None,
        }
    }
}

impl Arrival {
    fn of(entity: &Entity, via: Via) -> Self {
        Self {
            thread: entity.thread(),
            via,
            weight: entity.weight(),
            class: entity.class(),
            affinity: entity.affinity().clone(),
            lag_ns: entity.lag().as_nanos(),
            last_cpu: entity.last_cpu(),
            account: entity.account().clone(),
            title: match entity.authority() {
                Authority::BestEffort => Title::BestEffort,
                Authority::Context(context) => Title::Context(Box::new(Given::of(context))),
                Authority::Lent(who) => Title::Lent(*who),
            },
        }
    }
}

impl Given {
    /// Keeps what matters of `context`.
    #[must_use]
    pub fn of(context: &Context) -> Self {
        let refills = context.refills().list().iter();
        Self {
            who: context.who(),
            spec: context.spec().clone(),
            refills: refills.map(|refill| (refill.at.get(), refill.amount.get())).collect(),
            used: context.usage().used.get(),
            donated: context.usage().donated.get(),
            donors: context.donors().iter().collect(),
        }
    }
}
