//! The only way to a scheduler core: each call is announced, made, and concluded, so that it is recorded and shown.

use super::Machine;
use super::observer::Observer;
use crate::RunError;
use mainspring_abi::{ContextRef, CpuId, LatencyClass, ThreadRef, Weight};
use mainspring_sched::context::Context;
use mainspring_sched::flight::{EventRef, NohzEvent, NohzOutcome, Outcome, Place};
use mainspring_sched::hint::unlikely;
use mainspring_sched::lease::LeaseRef;
use mainspring_sched::nohz::{Claim, Conditions};
use mainspring_sched::{
    Decision, Entity, Expired, Handoff, IdleConditions, IdleTick, LendError, NohzEntry, NohzRecheck,
    NotBound, Refused, Removed, Seat, SeatError, Stop, Timeout, TimerOutcome, UnbindError, Via, WaitKind,
    Woken,
};

impl Machine<'_> {
    #[inline(always)]
    fn announce<'e>(&mut self, cpu: usize, event: impl FnOnce() -> EventRef<'e>) {
        self.touch(cpu);
        if !matches!(self.observer, Observer::Nobody) {
            self.show_event(cpu, event);
        }
    }

    #[inline(always)]
    fn conclude(&mut self, cpu: usize, outcome: impl Into<Outcome>) {
        if !matches!(self.observer, Observer::Nobody) {
            self.show_outcome(cpu, outcome);
        }
    }

    /// Compiled for each kind of event on its own, so that whoever announces it need not build it.
    #[inline(never)]
    fn show_event<'e>(&mut self, cpu: usize, event: impl FnOnce() -> EventRef<'e>) {
        let event = event();
        self.begin_record(cpu, event);
        self.let_watch_see_event(cpu, event);
    }

    /// Takes the stop and gives it back: its address would keep it from being spread over registers.
    #[cold]
    #[inline(never)]
    fn show_stop(&mut self, cpu: usize, stop: Stop) -> Stop {
        self.show_event(cpu, || EventRef::Resched(&stop));
        stop
    }

    /// Compiled for each kind of outcome on its own, like [`Machine::show_event`].
    #[inline(never)]
    fn show_outcome(&mut self, cpu: usize, outcome: impl Into<Outcome>) {
        let outcome = outcome.into();
        if let Some(recorder) = self.observer.recorder() {
            recorder.finish(outcome);
        }
        if let Observer::Watch(watch, _) = &mut self.observer
            && let Err(what) = watch.after(self.now, &self.cores[cpu], outcome)
        {
            self.trouble.get_or_insert(RunError::violation(self.now, cpu, what));
        }
    }

    fn begin_record(&mut self, cpu: usize, event: EventRef<'_>) {
        if let Some(recorder) = self.observer.recorder()
            && let Err(error) = recorder.begin(self.now, self.cores[cpu].id(), event)
        {
            self.trouble.get_or_insert(RunError::Record(error));
        }
    }

    #[inline(never)]
    fn let_watch_see_event(&mut self, cpu: usize, event: EventRef<'_>) {
        if let Observer::Watch(watch, _) = &mut self.observer {
            watch.before(self.now, &self.cores[cpu], event);
        }
    }

    /// Announces an event that is recorded together with its outcome.
    #[inline(always)]
    fn announce_unrecorded<'e>(&mut self, cpu: usize, event: impl FnOnce() -> EventRef<'e>) {
        self.touch(cpu);
        if unlikely(matches!(self.observer, Observer::Watch(..))) {
            self.let_watch_see_event(cpu, event());
        }
    }

    /// Records and concludes such an event, if it has not been recorded in one piece.
    #[cold]
    #[inline(never)]
    fn record_and_conclude<'e>(
        &mut self,
        cpu: usize,
        event: impl FnOnce() -> EventRef<'e>,
        outcome: Outcome,
    ) {
        self.begin_record(cpu, event());
        self.show_outcome(cpu, outcome);
    }

    /// Before a thread comes to `cpu` or leaves it. Seats for all threads at once would do too, but hardly any CPU ever
    /// needs more than a few, and the tables of many CPUs stay close together if they are small.
    pub(super) fn make_room(&mut self, cpu: usize) {
        let (core, threads) = (&mut self.cores[cpu], self.threads.len());
        if core.has_room() || core.capacity() >= threads {
            return;
        }
        if core.reserve(threads.min(2 * core.capacity())).is_err() {
            let cpus = self.cores.len();
            self.trouble.get_or_insert(RunError::NoRoom { cpus, threads });
        }
    }

    #[inline(always)]
    pub(super) fn core_resched(&mut self, cpu: usize, stop: Stop) -> Decision {
        self.touch(cpu);
        let place = Place { cpu: self.cores[cpu].id(), now: self.now };
        let half = match &mut self.observer {
            Observer::Recorder(recorder) => recorder.stop(place, &stop),
            Observer::Nobody | Observer::Watch(..) => None,
        };
        let stop = match (half, &self.observer) {
            (Some(_), _) | (None, Observer::Nobody) => stop,
            (None, _) => self.show_stop(cpu, stop),
        };
        let decision = self.cores[cpu].resched(self.now, stop);
        let thread = match decision {
            Decision::Run(run) => Some(run.thread.index()),
            Decision::Idle => None,
        };
        self.decisions += 1;
        self.digest.decision(self.now.get(), cpu, thread);
        if !self.observer.takes(|recorder| recorder.decision(half?, place, &decision)) {
            self.show_outcome(cpu, decision);
        }
        if unlikely(self.authority) {
            self.note_overrun(cpu);
        }
        decision
    }

    #[expect(clippy::result_large_err, reason = "a refusal gives the thread back, by value")]
    pub(super) fn core_accept(
        &mut self,
        cpu: usize,
        entity: Entity,
        via: Via,
    ) -> Result<(Seat, Woken), Refused> {
        self.make_room(cpu);
        self.announce(cpu, || EventRef::Accept(&entity, via));
        let result = self.cores[cpu].accept(self.now, entity, via);
        self.conclude(cpu, &result);
        result
    }

    pub(super) fn core_exit_current(&mut self, cpu: usize) -> Option<Entity> {
        self.make_room(cpu);
        self.announce(cpu, || EventRef::ExitCurrent);
        let left = self.cores[cpu].exit_current(self.now);
        self.conclude(cpu, &left);
        left
    }

    pub(super) fn core_wake(&mut self, cpu: usize, seat: Seat) -> Result<Woken, SeatError> {
        self.announce(cpu, || EventRef::Wake(seat));
        let woken = self.cores[cpu].wake(self.now, seat);
        self.conclude(cpu, &woken);
        woken
    }

    pub(super) fn core_hand_off(&mut self, cpu: usize, seat: Seat) -> Result<Handoff, SeatError> {
        self.announce(cpu, || EventRef::HandOff(seat));
        let handed = self.cores[cpu].hand_off(self.now, seat);
        self.conclude(cpu, &handed);
        handed
    }

    pub(super) fn core_remove(&mut self, cpu: usize, seat: Seat) -> Result<Removed, SeatError> {
        self.make_room(cpu);
        self.announce(cpu, || EventRef::Remove(seat));
        let removed = self.cores[cpu].remove(self.now, seat);
        self.conclude(cpu, &removed);
        removed
    }

    pub(super) fn core_give(&mut self, cpu: usize, thief: CpuId) -> Option<Entity> {
        self.make_room(cpu);
        self.announce(cpu, || EventRef::Give(thief));
        let given = self.cores[cpu].give(self.now, thief);
        self.conclude(cpu, &given);
        given
    }

    /// The running thread waits; the choice of the next comes later.
    pub(super) fn core_block_current(&mut self, cpu: usize, kind: WaitKind, timeout: Option<Timeout>) {
        self.announce(cpu, || EventRef::BlockCurrent(kind, timeout.as_ref()));
        let blocked = self.cores[cpu].block_current(self.now, kind, timeout);
        debug_assert!(blocked, "somebody ran");
        self.conclude(cpu, Outcome::Done);
        self.note_overrun(cpu);
    }

    pub(super) fn core_bind(
        &mut self,
        cpu: usize,
        seat: Seat,
        context: Box<Context>,
    ) -> Result<bool, NotBound> {
        self.announce(cpu, || EventRef::Bind(seat, &context));
        let bound = self.cores[cpu].bind(self.now, seat, context);
        self.conclude(cpu, &bound);
        self.note_overrun(cpu);
        bound
    }

    pub(super) fn core_unbind(&mut self, cpu: usize, seat: Seat) -> Result<Box<Context>, UnbindError> {
        self.announce(cpu, || EventRef::Unbind(seat));
        let taken = self.cores[cpu].unbind(self.now, seat);
        self.conclude(cpu, &taken);
        self.note_overrun(cpu);
        taken
    }

    pub(super) fn core_lend(
        &mut self,
        cpu: usize,
        seat: Seat,
        to: ThreadRef,
    ) -> Result<Box<Context>, LendError> {
        self.announce(cpu, || EventRef::Lend(seat, to));
        let lent = self.cores[cpu].lend(self.now, seat, to);
        self.conclude(cpu, &lent);
        lent
    }

    pub(super) fn core_write_off(&mut self, cpu: usize, seat: Seat) -> Result<ContextRef, UnbindError> {
        self.announce(cpu, || EventRef::WriteOff(seat));
        let written_off = self.cores[cpu].write_off(seat);
        self.conclude(cpu, &written_off);
        written_off
    }

    #[inline(always)]
    pub(super) fn core_timer(&mut self, cpu: usize) -> TimerOutcome {
        self.announce_unrecorded(cpu, || EventRef::Timer);
        let core = &mut self.cores[cpu];
        let outcome = core.timer(self.now);
        let place = Place { cpu: core.id(), now: self.now };
        if !self.observer.takes(|recorder| recorder.timer(place, outcome)) {
            self.record_and_conclude(cpu, || EventRef::Timer, outcome.into());
        }
        outcome
    }

    /// Ends one timed wait, if one is due.
    #[inline(always)]
    pub(super) fn core_expire(&mut self, cpu: usize) -> Option<Expired> {
        if self.cores[cpu].next_deadline().is_none_or(|deadline| deadline > self.now) {
            return None;
        }
        self.announce_unrecorded(cpu, || EventRef::Expire);
        let core = &mut self.cores[cpu];
        let expired = core.expire(self.now);
        let place = Place { cpu: core.id(), now: self.now };
        if !self.observer.takes(|recorder| recorder.expired(place, expired.as_ref())) {
            self.record_and_conclude(cpu, || EventRef::Expire, (&expired).into());
        }
        expired
    }

    pub(super) fn core_reschedule_received(&mut self, cpu: usize) {
        self.announce(cpu, || EventRef::RescheduleReceived);
        self.cores[cpu].reschedule_received(self.now);
        self.conclude(cpu, Outcome::Done);
    }

    pub(super) fn core_nohz_enter(&mut self, cpu: usize, claim: Claim, conditions: Conditions) -> NohzEntry {
        self.announce_window(cpu, &NohzEvent::Enter(claim, conditions));
        let entry = self.cores[cpu].nohz_enter(self.now, &claim, &conditions);
        self.conclude(cpu, Outcome::Nohz(NohzOutcome::Entry(entry)));
        entry
    }

    pub(super) fn core_nohz_recheck(&mut self, cpu: usize, conditions: Conditions) -> NohzRecheck {
        self.announce_window(cpu, &NohzEvent::Recheck(conditions));
        let recheck = self.cores[cpu].nohz_recheck(self.now, &conditions);
        self.conclude(cpu, Outcome::Nohz(NohzOutcome::Recheck(recheck)));
        recheck
    }

    pub(super) fn core_nohz_forget(&mut self, cpu: usize, lease: LeaseRef) -> bool {
        self.announce_window(cpu, &NohzEvent::Forget(lease));
        let forgot = self.cores[cpu].nohz_forget(lease);
        self.conclude(cpu, Outcome::Nohz(NohzOutcome::Forgot(forgot)));
        forgot
    }

    fn announce_window(&mut self, cpu: usize, event: &NohzEvent) {
        self.announce(cpu, || EventRef::Nohz(event));
    }

    pub(super) fn core_enter_idle(&mut self, cpu: usize, conditions: &IdleConditions) -> IdleTick {
        self.announce_unrecorded(cpu, || EventRef::EnterIdle(conditions));
        let core = &mut self.cores[cpu];
        let tick = core.enter_idle(self.now, conditions);
        let place = Place { cpu: core.id(), now: self.now };
        if !self.observer.takes(|recorder| recorder.idle(place, conditions, tick)) {
            self.record_and_conclude(cpu, || EventRef::EnterIdle(conditions), tick.into());
        }
        tick
    }

    pub(super) fn core_set_weight(
        &mut self,
        cpu: usize,
        seat: Seat,
        weight: Weight,
    ) -> Result<(), SeatError> {
        self.announce(cpu, || EventRef::SetWeight(seat, weight));
        let set = self.cores[cpu].set_weight(seat, weight);
        self.conclude(cpu, &set);
        set
    }

    pub(super) fn core_set_class(
        &mut self,
        cpu: usize,
        seat: Seat,
        class: LatencyClass,
    ) -> Result<(), SeatError> {
        self.announce(cpu, || EventRef::SetClass(seat, class));
        let set = self.cores[cpu].set_class(seat, class);
        self.conclude(cpu, &set);
        set
    }
}
