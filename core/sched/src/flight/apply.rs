//! Gives a recorded event to a CPU.

use super::{Event, Outcome};
use crate::cpu::{Cpu, Stop};
use crate::entity::Entity;
use core::fmt;
use mainspring_abi::Nanos;

/// An event that cannot happen to a CPU in that state: the record is not this CPU's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Impossible {
    /// It speaks of a running thread, and none runs; or the reverse.
    Running,
    /// Time goes back.
    Time,
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "the record disagrees with the CPU about what is running",
            Self::Time => "the record's time goes back",
        })
    }
}

impl core::error::Error for Impossible {}

impl Cpu {
    /// Does what `event` says, as the method of that name would; the outcome, and the thread that has left this CPU. Where a
    /// thread arrives it is recorded by value, so a replay needs no thread that left.
    pub fn apply(&mut self, now: Nanos, event: Event) -> Result<(Outcome, Option<Entity>), Impossible> {
        if now < self.since() {
            return Err(Impossible::Time);
        }
        let outcome = match event {
            Event::Accept(entity, via) => (&self.accept(now, entity, via)).into(),
            Event::Resched(stop) => {
                if (stop == Stop::Nothing) != self.current().is_none() {
                    return Err(Impossible::Running);
                }
                self.resched(now, stop).into()
            }
            Event::ExitCurrent => {
                let left = self.exit_current(now);
                return Ok(((&left).into(), left));
            }
            Event::Give(thief) => {
                let left = self.give(now, thief);
                return Ok(((&left).into(), left));
            }
            Event::Remove(seat) => {
                let removed = self.remove(now, seat);
                return Ok(((&removed).into(), removed.ok().map(|removed| removed.entity)));
            }
            Event::Wake(seat) => (&self.wake(now, seat)).into(),
            Event::HandOff(seat) => (&self.hand_off(now, seat)).into(),
            Event::Hold(seat) => (&self.hold(now, seat)).into(),
            Event::Release(seat) => (&self.release(now, seat)).into(),
            Event::Timer => self.timer(now).into(),
            Event::Expire => self.expire(now).as_ref().into(),
            Event::RescheduleReceived => {
                self.reschedule_received(now);
                Outcome::Done
            }
            Event::EnterIdle(conditions) => self.enter_idle(now, &conditions).into(),
            Event::SetWeight(seat, weight) => (&self.set_weight(seat, weight)).into(),
            Event::Nohz(event) => Outcome::Nohz(event.apply(self, now)),
            Event::SetClass(seat, class) => (&self.set_class(seat, class)).into(),
            Event::BlockCurrent(kind, timeout) => {
                if !self.block_current(now, kind, timeout) {
                    return Err(Impossible::Running);
                }
                Outcome::Done
            }
            Event::Bind(seat, context) => (&self.bind(now, seat, context)).into(),
            Event::Unbind(seat) => (&self.unbind(now, seat)).into(),
            Event::Lend(seat, to) => (&self.lend(now, seat, to)).into(),
            Event::WriteOff(seat) => (&self.write_off(seat)).into(),
        };
        Ok((outcome, None))
    }
}
