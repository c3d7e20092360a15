//! What a checker observed: an event and its outcome, kept by value. [`for_each_event`] lists the events.

use mainspring_abi::{ContextRef, CpuId, LatencyClass, Nanos, ThreadRef, Weight};
use mainspring_sched::context::{Context, ContextSpec};
use mainspring_sched::flight::{EventRef, Field, NohzEvent, Outcome};
use mainspring_sched::{
    Account, Affinity, Authority, Entity, IdleConditions, Seat, Stop, Timeout, Via, WaitKind, for_each_event,
};

/// One event of one CPU, over and done with.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When.
    pub now: Nanos,
    /// Where.
    pub cpu: usize,
    /// What happened.
    pub event: ObservedEvent,
    /// What came of it.
    pub outcome: Outcome,
}

/// StopKind a running thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are documented at `Stop`")]
pub enum StopKind {
    Nothing,
    Preempted,
    Yielded,
    Blocked(WaitKind, Option<Nanos>),
}

/// A thread that came to a CPU.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are documented at `Entity`")]
pub struct Arrival {
    pub thread: ThreadRef,
    pub weight: Weight,
    pub class: LatencyClass,
    pub request: Option<Nanos>,
    pub affinity: Affinity,
    pub lag_ns: i64,
    pub last_cpu: Option<CpuId>,
    pub account: Account,
    pub authority: AuthorityCopy,
}

/// The time that a thread runs on.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the variants are documented at `Authority`")]
pub enum AuthorityCopy {
    BestEffort,
    Context(Box<ContextCopy>),
    Lent(ContextRef),
}

/// A context that came to a thread.
#[derive(Clone, Debug)]
pub struct ContextCopy {
    /// Which.
    pub who: ContextRef,
    /// What it grants.
    pub spec: ContextSpec,
    /// Release and amount of each refill.
    pub refills: Vec<(u64, u64)>,
    /// The time used of it in all.
    pub used: u64,
    /// And on loan.
    pub donated: u64,
    /// The threads that wait for it to come back.
    pub donors: Vec<ThreadRef>,
}

/// A value of an event, as far as it can be kept.
pub trait Snapshot {
    /// As it is kept.
    type Taken: Clone + std::fmt::Debug;

    /// Keeps what matters of it.
    fn snapshot(self) -> Self::Taken;
}

/// Values that are kept as they are.
macro_rules! taken_whole {
    ($($field:ty),*) => { $(
        impl Snapshot for $field {
            type Taken = Self;

            fn snapshot(self) -> Self {
                self
            }
        }
    )* };
}

taken_whole!(Seat, Via, CpuId, ThreadRef, Weight, LatencyClass, WaitKind);

impl Snapshot for &Entity {
    type Taken = Box<Arrival>;

    fn snapshot(self) -> Box<Arrival> {
        Box::new(Arrival::of(self))
    }
}

impl Snapshot for &Stop {
    type Taken = StopKind;

    fn snapshot(self) -> StopKind {
        match self {
            Stop::Nothing => StopKind::Nothing,
            Stop::Preempted => StopKind::Preempted,
            Stop::Yielded => StopKind::Yielded,
            Stop::Blocked(kind, timeout) => StopKind::Blocked(*kind, timeout.as_ref().snapshot()),
        }
    }
}

impl Snapshot for Option<&Timeout> {
    type Taken = Option<Nanos>;

    fn snapshot(self) -> Option<Nanos> {
        self.map(|timeout| timeout.deadline)
    }
}

impl Snapshot for &IdleConditions {
    type Taken = IdleConditions;

    fn snapshot(self) -> IdleConditions {
        *self
    }
}

impl Snapshot for &Context {
    type Taken = Box<ContextCopy>;

    fn snapshot(self) -> Box<ContextCopy> {
        Box::new(ContextCopy::of(self))
    }
}

impl Snapshot for &NohzEvent {
    type Taken = Box<NohzEvent>;

    fn snapshot(self) -> Box<NohzEvent> {
        Box::new(*self)
    }
}

macro_rules! observed_events {
    ($($name:literal $variant:ident $(($($field:ident: $type:ty),*))?,)*) => {
        /// An event, as far as it can be kept.
        #[derive(Clone, Debug)]
        #[expect(missing_docs, reason = "each variant is the method of `Cpu` of the same name")]
        pub enum ObservedEvent {
            $($variant $(($(<<$type as Field>::Ref<'static> as Snapshot>::Taken),*))?,)*
        }

        impl ObservedEvent {
            /// Keeps what matters of `event`.
            #[must_use]
            pub fn of(event: EventRef<'_>) -> Self {
                match event {
                    $(EventRef::$variant $(($($field),*))? => Self::$variant $(($($field.snapshot()),*))?,)*
                }
            }
        }
    };
}

for_each_event!(observed_events);

impl ObservedEvent {
    /// The seat that the event names.
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
    fn of(entity: &Entity) -> Self {
        Self {
            thread: entity.thread(),
            weight: entity.weight(),
            class: entity.class(),
            request: entity.own_request(),
            affinity: entity.affinity().clone(),
            lag_ns: entity.lag().as_nanos(),
            last_cpu: entity.last_cpu(),
            account: entity.account().clone(),
            authority: match entity.authority() {
                Authority::BestEffort => AuthorityCopy::BestEffort,
                Authority::Context(context) => AuthorityCopy::Context(Box::new(ContextCopy::of(context))),
                Authority::Lent(who) => AuthorityCopy::Lent(*who),
            },
        }
    }
}

impl ContextCopy {
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
