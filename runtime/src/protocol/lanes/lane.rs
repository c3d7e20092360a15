//! One lane: a worker's scheduler core behind its lock, and what the others may see of it without the lock.
//!
//! Conserved: every event of the core is given a time that does not go back, and is recorded if there is a record. What
//! others see is brought up to date before the lock is let go.

use crate::protocol::prim::{AtomicBool, AtomicIsize, AtomicUsize, Mutex, MutexGuard, Ordering};
use mainspring_abi::{CpuId, Nanos, Weight};
use mainspring_sched::flight::Log;
use mainspring_sched::flight::{EventRef, Outcome};
use mainspring_sched::{
    Cpu, Decision, Dispatch, Entity, Handoff, Offer, Refused, Removed, Seat, SeatError, Stop, Via, Woken,
};

/// A scheduler core, the time of its last event, what it decided and nobody has carried out yet, and its record.
pub(super) struct Core {
    pub(super) cpu: Cpu,
    last: Nanos,
    decided: Option<Dispatch>,
    slice_end: Nanos,
    pub(super) log: Option<Log>,
}

pub(super) struct Lane {
    pub(super) id: CpuId,
    core: Mutex<Core>,
    /// Its worker has been told to look.
    pub(super) message: AtomicBool,
    /// Its worker is about to sleep, or sleeps.
    pub(super) idle: AtomicBool,
    due_in: AtomicIsize,
    reach: AtomicUsize,
    /// Threads that are ready or run here.
    busy: AtomicUsize,
}

impl Lane {
    pub(super) fn new(id: CpuId, cpu: Cpu, log: Option<Log>) -> Self {
        Self {
            id,
            core: Mutex::new(Core { cpu, last: Nanos::ZERO, decided: None, slice_end: Nanos::MAX, log }),
            message: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            due_in: AtomicIsize::new(isize::MAX),
            reach: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
        }
    }

    /// The core, for what others need not see.
    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("no panic while it is held")
    }

    /// Does something with the core, under its lock.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Core, CpuId) -> T) -> T {
        let mut core = self.lock();
        let result = act(&mut core, self.id);
        let offer = core.cpu.offer();
        self.reach.store(offer.bound_reach as usize, Ordering::Relaxed);
        let busy = core.cpu.queued() + usize::from(core.cpu.current().is_some());
        self.busy.store(busy, Ordering::Relaxed);
        // SeqCst: the offer comes before a waker's look at who is idle, and a worker looks at the offers after it has said
        // that it is: one of the two sees the other. The two stores above come before it for whoever reads it.
        self.due_in.store(offer.due_in as isize, Ordering::SeqCst);
        result
    }

    /// What the lane has to give, as it said last.
    pub(super) fn offer(&self) -> Offer {
        // SeqCst: see `with`.
        let due_in = self.due_in.load(Ordering::SeqCst) as i64;
        Offer { due_in, bound_reach: self.reach.load(Ordering::Relaxed) as u64 }
    }

    /// How many threads are ready or run here.
    pub(super) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }
}

impl Core {
    /// Event times of one core do not go back, whichever thread read the clock.
    fn at(&mut self, now: Nanos) -> Nanos {
        self.last = self.last.max(now);
        self.last
    }

    /// The time of the last event.
    pub(super) fn last(&self) -> Nanos {
        self.last
    }

    fn tap<T>(
        &mut self,
        id: CpuId,
        now: Nanos,
        event: EventRef<'_>,
        act: impl FnOnce(&mut Cpu, Nanos) -> T,
        outcome: impl FnOnce(&T) -> Outcome,
    ) -> T {
        let now = self.at(now);
        if let Some(log) = &mut self.log {
            log.begin(now, id, event);
        }
        let result = act(&mut self.cpu, now);
        if let Some(log) = &mut self.log {
            log.finish(outcome(&result));
        }
        result
    }

    /// The running thread stops, or there was none. What was decided is kept until [`Core::take_decided`].
    pub(super) fn resched(&mut self, id: CpuId, now: Nanos, stop: Stop) {
        debug_assert!(self.decided.is_none(), "a decision was not carried out");
        let now = self.at(now);
        if let Some(log) = &mut self.log {
            log.begin(now, id, EventRef::Resched(&stop));
        }
        let decision = self.cpu.resched(now, stop);
        if let Some(log) = &mut self.log {
            log.finish(decision.into());
        }
        match decision {
            Decision::Run(run) => {
                self.slice_end = run.slice_end;
                self.decided = Some(run);
            }
            Decision::Idle => self.decided = None,
        }
    }

    /// What to run, if that has been decided or somebody is ready.
    pub(super) fn take_decided(&mut self, id: CpuId, now: Nanos) -> Option<Dispatch> {
        if self.decided.is_none() && self.cpu.current().is_none() && self.cpu.queued() > 0 {
            self.resched(id, now, Stop::Nothing);
        }
        self.decided.take()
    }

    /// Whether the running thread should stop: somebody better is ready, or its turn is over and somebody else is ready.
    pub(super) fn turn_is_over(&self, now: Nanos) -> bool {
        self.cpu.reschedule_wanted() || self.cpu.queued() > 0 && now >= self.slice_end
    }

    #[expect(clippy::result_large_err, reason = "a refusal gives the thread back, by value")]
    pub(super) fn accept(
        &mut self,
        id: CpuId,
        now: Nanos,
        entity: Entity,
        via: Via,
    ) -> Result<(Seat, Woken), Refused> {
        let now = self.at(now);
        if let Some(log) = &mut self.log {
            log.begin(now, id, EventRef::Accept(&entity, via));
        }
        let result = self.cpu.accept(now, entity, via);
        if let Some(log) = &mut self.log {
            log.finish((&result).into());
        }
        result
    }

    pub(super) fn wake(&mut self, id: CpuId, now: Nanos, seat: Seat) -> Result<Woken, SeatError> {
        self.tap(id, now, EventRef::Wake(seat), |cpu, now| cpu.wake(now, seat), |result| result.into())
    }

    pub(super) fn hand_off(&mut self, id: CpuId, now: Nanos, seat: Seat) -> Result<Handoff, SeatError> {
        self.tap(id, now, EventRef::HandOff(seat), |cpu, now| cpu.hand_off(now, seat), |result| result.into())
    }

    pub(super) fn remove(&mut self, id: CpuId, now: Nanos, seat: Seat) -> Result<Removed, SeatError> {
        self.tap(id, now, EventRef::Remove(seat), |cpu, now| cpu.remove(now, seat), |result| result.into())
    }

    pub(super) fn give(&mut self, id: CpuId, now: Nanos, thief: CpuId) -> Option<Entity> {
        self.tap(id, now, EventRef::Give(thief), |cpu, now| cpu.give(now, thief), |result| result.into())
    }

    pub(super) fn exit_current(&mut self, id: CpuId, now: Nanos) -> Option<Entity> {
        self.tap(id, now, EventRef::ExitCurrent, Cpu::exit_current, |result| result.into())
    }

    pub(super) fn reschedule_received(&mut self, id: CpuId, now: Nanos) {
        self.tap(id, now, EventRef::RescheduleReceived, Cpu::reschedule_received, |()| Outcome::Done);
    }

    pub(super) fn set_weight(
        &mut self,
        id: CpuId,
        now: Nanos,
        seat: Seat,
        weight: Weight,
    ) -> Result<(), SeatError> {
        let event = EventRef::SetWeight(seat, weight);
        self.tap(id, now, event, |cpu, _| cpu.set_weight(seat, weight), |result| result.into())
    }

    /// CPU time of the running thread, the interval in progress included.
    pub(super) fn time_of_current(&mut self, now: Nanos) -> Option<Nanos> {
        let now = self.at(now);
        let entity = self.cpu.entity(self.cpu.current()?).ok()?;
        Some(entity.account().runtime() + (now - self.cpu.since()))
    }
}
