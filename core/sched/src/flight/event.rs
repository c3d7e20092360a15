//! The list of all events, written once. What has a variant or a rule for each event is generated from it by
//! [`for_each_event`](crate::for_each_event), here and in the checkers.

use super::NohzEvent;
use crate::context::Context;
use crate::cpu::{Seat, Stop, Via};
use crate::entity::Entity;
use crate::tick::IdleConditions;
use crate::waiter::{Timeout, WaitKind};
use alloc::boxed::Box;
use core::fmt;
use mainspring_abi::{CpuId, LatencyClass, ThreadRef, Weight};

/// Gives the list of all events to a macro: name for people, variant, and fields with the types that an [`Event`] owns.
/// Each variant is the method of `Cpu` of the same name.
#[macro_export]
macro_rules! for_each_event {
    ($make:ident) => {
        $make! {
            "accept" Accept(thread: Entity, via: Via),
            "resched" Resched(stop: Stop),
            "exit of the running thread" ExitCurrent,
            "wake" Wake(seat: Seat),
            "handoff" HandOff(seat: Seat),
            "hold" Hold(seat: Seat),
            "release" Release(seat: Seat),
            "remove" Remove(seat: Seat),
            "give" Give(thief: CpuId),
            "timer" Timer,
            "expire" Expire,
            "reschedule" RescheduleReceived,
            "idle" EnterIdle(conditions: IdleConditions),
            "weight" SetWeight(seat: Seat, weight: Weight),
            "class" SetClass(seat: Seat, class: LatencyClass),
            "block" BlockCurrent(kind: WaitKind, timeout: Option<Timeout>),
            "bind" Bind(seat: Seat, context: Box<Context>),
            "unbind" Unbind(seat: Seat),
            "lend" Lend(seat: Seat, to: ThreadRef),
            "write-off" WriteOff(seat: Seat),
            "window" Nohz(event: NohzEvent),
        }
    };
}

/// A value of an event.
pub trait Field {
    /// As a recorder takes it.
    type Ref<'a>: Copy + fmt::Debug
    where
        Self: 'a;

    /// The value, borrowed.
    fn borrowed(&self) -> Self::Ref<'_>;

    /// The thread that it names, if the event is about that thread.
    fn thread(&self) -> Option<ThreadRef> {
        None
    }
}

/// Values that are copied.
macro_rules! copied {
    ($($field:ty),*) => { $(
        impl Field for $field {
            type Ref<'a> = Self;

            #[inline(always)]
            fn borrowed(&self) -> Self {
                *self
            }
        }
    )* };
}

/// Values that are borrowed.
macro_rules! lent {
    ($($field:ty => $target:ty),*) => { $(
        impl Field for $field {
            type Ref<'a> = &'a $target;

            #[inline(always)]
            fn borrowed(&self) -> &$target {
                self
            }
        }
    )* };
}

copied!(Via, CpuId, ThreadRef, Weight, LatencyClass, WaitKind);
lent!(Box<Context> => Context, NohzEvent => NohzEvent, Stop => Stop, IdleConditions => IdleConditions);

impl Field for Seat {
    type Ref<'a> = Self;

    #[inline(always)]
    fn borrowed(&self) -> Self {
        *self
    }

    fn thread(&self) -> Option<ThreadRef> {
        Some(Self::thread(*self))
    }
}

impl Field for Entity {
    type Ref<'a> = &'a Self;

    #[inline(always)]
    fn borrowed(&self) -> &Self {
        self
    }

    fn thread(&self) -> Option<ThreadRef> {
        Some(self.thread)
    }
}

impl Field for Option<Timeout> {
    type Ref<'a> = Option<&'a Timeout>;

    fn borrowed(&self) -> Option<&Timeout> {
        self.as_ref()
    }
}

/// What an event was, for people, once the event itself has been given to a CPU: its name, and the thread that it was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventSummary {
    name: &'static str,
    thread: Option<ThreadRef>,
}

impl fmt::Display for EventSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.thread.map_or(Ok(()), |thread| write!(f, " {thread:?}"))
    }
}

macro_rules! events {
    ($($name:literal $variant:ident $(($($field:ident: $type:ty),*))?,)*) => {
        /// What happened to a CPU.
        #[derive(Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each variant is the method of `Cpu` of the same name")]
        pub enum Event {
            $($variant $(($($type),*))?,)*
        }

        /// An event that is about to be given to a CPU.
        #[derive(Clone, Copy, Debug)]
        #[expect(missing_docs, reason = "each variant is the method of `Cpu` of the same name")]
        pub enum EventRef<'a> {
            $($variant $(($(<$type as Field>::Ref<'a>),*))?,)*
        }

        impl Event {
            /// What it is, for people.
            #[must_use]
            pub fn summary(&self) -> EventSummary {
                match self {
                    $(Self::$variant $(($($field),*))? => {
                        let threads = [None $($(, Field::thread($field))*)?];
                        EventSummary { name: $name, thread: threads.into_iter().flatten().next() }
                    })*
                }
            }

            /// The event as a recorder takes it.
            #[must_use]
            pub fn borrowed(&self) -> EventRef<'_> {
                match self {
                    $(Self::$variant $(($($field),*))? => EventRef::$variant $(($($field.borrowed()),*))?,)*
                }
            }
        }
    };
}

for_each_event!(events);
