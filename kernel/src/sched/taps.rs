//! The only way to a scheduler core: each event is given a time that does not go back, recorded, carried out, and what
//! others may see of the core is brought up to date.

use super::lane::{Core, Lane};
use crate::arch;
use crate::measure::{self, Counter};
use mainspring_abi::{CpuId, LatencyClass, Nanos, Weight};
use mainspring_sched::flight::{EventRef, Outcome};
use mainspring_sched::{
    Cpu, Decision, Entity, Expired, Handoff, IdleConditions, IdleTick, PolicyCap, PolicyError, Refused,
    Removed, Seat, SeatError, Snapshot, Stop, TimerOutcome, Via, WaitKind, WaitPermit, Woken,
};

impl Core {
    /// The time of an event here: CPUs read their clocks apart from each other, a core's events are in order.
    fn now(&mut self) -> Nanos {
        self.last = self.last.max(arch::now());
        self.last
    }

    fn tap<T>(
        &mut self,
        lane: &Lane,
        event: EventRef<'_>,
        act: impl FnOnce(&mut Cpu, Nanos) -> T,
        outcome: impl FnOnce(&T) -> Outcome,
    ) -> T {
        let now = self.now();
        if let Some(log) = &mut self.log {
            log.begin(now, lane.id(), event);
        }
        let result = act(&mut self.cpu, now);
        if let Some(log) = &mut self.log {
            log.finish(outcome(&result));
        }
        lane.publish(self);
        result
    }

    /// See [`mainspring_sched::Cpu::resched`].
    pub fn resched(&mut self, lane: &Lane, stop: Stop) -> Decision {
        let now = self.now();
        if let Some(log) = &mut self.log {
            log.begin(now, lane.id(), EventRef::Resched(&stop));
        }
        measure::one(Counter::Decisions);
        measure::add(Counter::Candidates, self.cpu.queued() as u64);
        let decision = self.cpu.resched(now, stop);
        measure::one(if decision == Decision::Idle { Counter::Idles } else { Counter::Runs });
        if let Some(log) = &mut self.log {
            log.finish(decision.into());
        }
        lane.publish(self);
        decision
    }

    /// See [`mainspring_sched::Cpu::accept`].
    #[expect(clippy::result_large_err, reason = "a refusal gives the thread back, by value")]
    pub fn accept(&mut self, lane: &Lane, entity: Entity, via: Via) -> Result<(Seat, Woken), Refused> {
        let now = self.now();
        if let Some(log) = &mut self.log {
            log.begin(now, lane.id(), EventRef::Accept(&entity, via));
        }
        let result = self.cpu.accept(now, entity, via);
        if let Some(log) = &mut self.log {
            log.finish((&result).into());
        }
        lane.publish(self);
        result
    }

    /// See [`mainspring_sched::Cpu::exit_current`].
    pub fn exit_current(&mut self, lane: &Lane) -> Option<Entity> {
        self.tap(lane, EventRef::ExitCurrent, Cpu::exit_current, |result| result.into())
    }

    /// See [`mainspring_sched::Cpu::wake`].
    pub fn wake(&mut self, lane: &Lane, seat: Seat) -> Result<Woken, SeatError> {
        self.tap(lane, EventRef::Wake(seat), |cpu, now| cpu.wake(now, seat), |result| result.into())
    }

    /// See [`mainspring_sched::Cpu::hand_off`].
    pub fn hand_off(&mut self, lane: &Lane, seat: Seat) -> Result<Handoff, SeatError> {
        self.tap(lane, EventRef::HandOff(seat), |cpu, now| cpu.hand_off(now, seat), |result| result.into())
    }

    /// See [`mainspring_sched::Cpu::switch_directly`]: the permit of the wait that this ends, if it could be done. A record
    /// holds the long way, so whoever records takes it.
    #[inline(always)]
    pub fn switch_directly(&mut self, lane: &Lane, seat: Seat, kind: WaitKind) -> Option<Option<WaitPermit>> {
        if self.log.is_some() {
            return None;
        }
        let now = self.now();
        let permit = switch(&mut self.cpu, now, seat, kind)?;
        lane.publish(self);
        Some(permit)
    }

    /// See [`mainspring_sched::Cpu::remove`].
    pub fn remove(&mut self, lane: &Lane, seat: Seat) -> Result<Removed, SeatError> {
        self.tap(lane, EventRef::Remove(seat), |cpu, now| cpu.remove(now, seat), |result| result.into())
    }

    /// See [`mainspring_sched::Cpu::give`].
    pub fn give(&mut self, lane: &Lane, thief: CpuId) -> Option<Entity> {
        self.tap(lane, EventRef::Give(thief), |cpu, now| cpu.give(now, thief), |result| result.into())
    }

    /// See [`mainspring_sched::Cpu::timer`].
    pub fn timer(&mut self, lane: &Lane) -> TimerOutcome {
        self.tap(lane, EventRef::Timer, Cpu::timer, |outcome| (*outcome).into())
    }

    /// See [`mainspring_sched::Cpu::expire`]. Asks only when a wait is due.
    pub fn expire(&mut self, lane: &Lane) -> Option<Expired> {
        let now = self.now();
        if self.cpu.next_deadline().is_none_or(|deadline| deadline > now) {
            return None;
        }
        self.tap(lane, EventRef::Expire, Cpu::expire, |result| result.into())
    }

    /// See [`mainspring_sched::Cpu::reschedule_received`].
    pub fn reschedule_received(&mut self, lane: &Lane) {
        self.tap(lane, EventRef::RescheduleReceived, Cpu::reschedule_received, |()| Outcome::Done);
    }

    /// See [`mainspring_sched::Cpu::enter_idle`].
    pub fn enter_idle(&mut self, lane: &Lane, conditions: &IdleConditions) -> IdleTick {
        let event = EventRef::EnterIdle(conditions);
        self.tap(lane, event, |cpu, now| cpu.enter_idle(now, conditions), |tick| (*tick).into())
    }

    /// The caller sets its own weight; see [`mainspring_sched::Cpu::call_set_weight`]. Recorded as what it comes to.
    pub fn call_set_weight(&mut self, lane: &Lane, cap: &PolicyCap, weight: u64) -> Result<(), PolicyError> {
        let before = self.cpu.current();
        self.cpu.call_set_weight(cap, weight)?;
        if let (Some(seat), Ok(weight)) = (before, Weight::new(weight)) {
            let event = EventRef::SetWeight(seat, weight);
            let _ = self.tap(lane, event, |cpu, _| cpu.set_weight(seat, weight), |result| result.into());
        }
        Ok(())
    }

    /// The caller sets its own latency class; as above.
    pub fn call_set_class(
        &mut self,
        lane: &Lane,
        cap: &PolicyCap,
        class: LatencyClass,
    ) -> Result<(), PolicyError> {
        let before = self.cpu.current();
        self.cpu.call_set_class(cap, class)?;
        if let Some(seat) = before {
            let event = EventRef::SetClass(seat, class);
            let _ = self.tap(lane, event, |cpu, _| cpu.set_class(seat, class), |result| result.into());
        }
        Ok(())
    }

    /// The caller reads its own account; see [`mainspring_sched::Cpu::call_snapshot`].
    pub fn call_snapshot(&self, cap: &PolicyCap) -> Result<Snapshot, PolicyError> {
        self.cpu.call_snapshot(cap)
    }
}

/// A function of its own, so that what is around it does not push the core's state out of the registers.
#[inline(never)]
fn switch(cpu: &mut Cpu, now: Nanos, seat: Seat, kind: WaitKind) -> Option<Option<WaitPermit>> {
    cpu.switch_directly(now, seat, kind, None).ok().map(|(_, permit)| permit)
}
