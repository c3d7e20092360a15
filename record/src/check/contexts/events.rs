//! What each event does to contexts, and which outcomes it can have.

use super::super::ensure;
use super::super::machine_model::MachineModel;
use super::super::observation::{Observation, ObservedEvent, StopKind};
use super::{Grants, QueueKind, Right};
use mainspring_abi::{ContextRef, ThreadRef};
use mainspring_sched::flight::Outcome;
use mainspring_sched::{Cpu, Decision, Seat, State, WaitKind};

impl Grants {
    /// Follows `observed` and judges its outcome; `model` is as it was before, `cpu` as it is now.
    pub fn follow(&mut self, model: &MachineModel, cpu: &Cpu, observed: &Observation) -> Result<(), String> {
        self.refilled.clear();
        let (now, at) = (observed.now.get(), observed.cpu);
        self.watch_floor(model, at, now)?;
        match (&observed.event, observed.outcome) {
            (ObservedEvent::Accept(arrival, via), Outcome::Seated(slot, reschedule)) => {
                self.arrive(at, now, arrival.thread, &arrival.authority)?;
                let seat = Seat::from_parts(slot, arrival.thread);
                let direct = *via == mainspring_sched::Via::HandOff
                    && model.cpu_model(at).direct.is_none()
                    && self.held(arrival.thread).is_none();
                self.publish(model, at, now, seat, (!direct).then_some(reschedule))
            }
            (ObservedEvent::Wake(seat) | ObservedEvent::Release(seat), Outcome::Ready(reschedule, _)) => {
                self.publish(model, at, now, *seat, Some(reschedule))
            }
            (ObservedEvent::HandOff(seat), Outcome::Ready(reschedule, _)) => {
                let needed = model.cpu_model(at).direct.is_some() || self.held(seat.thread()).is_some();
                ensure(needed, || "a handoff was queued needlessly".to_owned())?;
                self.publish(model, at, now, *seat, Some(reschedule))
            }
            (ObservedEvent::HandOff(seat), Outcome::Direct(_)) => {
                let right = self.right(seat.thread());
                ensure(right == Right::None, || format!("{seat:?} is the direct target and has {right:?}"))?;
                self.publish(model, at, now, *seat, None)
            }
            (ObservedEvent::Expire, Outcome::Expired(Some((seat, _)), reschedule)) => {
                if self.is_lent(seat.thread()) {
                    self.tally.expired_away += 1;
                    return ensure(!reschedule, || format!("{seat:?} is ready though its context is away"));
                }
                self.publish(model, at, now, seat, Some(reschedule))
            }
            (ObservedEvent::Hold(seat), Outcome::Done) => {
                self.fall_asleep(at, seat.thread(), now);
                Ok(())
            }
            (ObservedEvent::Remove(seat), Outcome::Left(Some(_))) => {
                self.depart(at, seat.thread(), now);
                Ok(())
            }
            (ObservedEvent::Give(_), Outcome::Left(Some((thread, _)))) => {
                let right = self.right(thread);
                ensure(right == Right::None, || format!("{thread:?} was stolen with {right:?}"))
            }
            (ObservedEvent::ExitCurrent, Outcome::Left(Some((thread, _)))) => {
                self.charge(model, at, now)?;
                self.cpus[at].on_context = false;
                self.depart(at, thread, now);
                Ok(())
            }
            (ObservedEvent::BlockCurrent(..), Outcome::Done) => {
                self.charge(model, at, now)?;
                self.cpus[at].on_context = false;
                if let Some(thread) = model.cpu_model(at).running {
                    self.fall_asleep(at, thread, now);
                }
                Ok(())
            }
            (ObservedEvent::Resched(why), Outcome::Decided(decision)) => {
                self.decide(model, at, now, *why, decision)
            }
            (ObservedEvent::Timer, Outcome::Timer(told)) => self.timer(model, at, now, told.reschedule),
            (ObservedEvent::Bind(seat, given), Outcome::Ready(reschedule, _)) => {
                let allowed = self.may_bind(cpu, seat.thread(), given);
                ensure(allowed, || {
                    format!("{seat:?} has {:?} and got {given:?}", self.right(seat.thread()))
                })?;
                self.bind(model, at, now, *seat, given, reschedule)
            }
            (ObservedEvent::Unbind(seat), Outcome::Took(who)) => self.unbind(model, at, now, *seat, who),
            (ObservedEvent::Lend(seat, to), Outcome::Took(who)) => self.lend(model, at, now, *seat, *to, who),
            (ObservedEvent::WriteOff(seat), Outcome::Took(who)) => {
                let right = self.right(seat.thread());
                ensure(right == Right::Lent(who), || {
                    format!("{seat:?} has {right:?}, written off was {who:?}")
                })?;
                self.holder_mut(seat.thread()).right = Right::None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Looks at the windows of the floor that have ended, on a machine whose interrupts come when they are due.
    fn watch_floor(&mut self, model: &MachineModel, at: usize, now: u64) -> Result<(), String> {
        if !self.punctual {
            return Ok(());
        }
        let cpu_contexts = &mut self.cpus[at];
        let best_effort_runs =
            model.cpu_model(at).running.is_some() && !cpu_contexts.on_context && cpu_contexts.holders > 0;
        cpu_contexts.floor.watch(now, &cpu_contexts.here, best_effort_runs.then_some(cpu_contexts.since))
    }

    /// The running interval of CPU number `at` ends: it is charged to the context or counts against the floor.
    fn charge(&mut self, model: &MachineModel, at: usize, now: u64) -> Result<(), String> {
        let start = std::mem::replace(&mut self.cpus[at].since, now);
        let Some(thread) = model.cpu_model(at).running else { return Ok(()) };
        let punctual = self.punctual;
        if self.cpus[at].on_context {
            let grant = self.held_mut(thread).ok_or_else(|| format!("{thread:?} runs on no context"))?;
            return grant.spend(start, now, punctual).map_err(|what| format!("{thread:?}: {what}"));
        }
        if self.cpus[at].holders > 0 {
            self.cpus[at].floor.spend(start, now);
        }
        Ok(())
    }

    fn depart(&mut self, at: usize, thread: ThreadRef, now: u64) {
        self.forget(at, thread);
        self.take_out(at, thread, now);
    }

    fn fall_asleep(&mut self, at: usize, thread: ThreadRef, now: u64) {
        self.forget(at, thread);
        if let Some(grant) = self.held_mut(thread) {
            grant.pause(now);
        }
    }

    /// The thread at `seat` is ready. `told` is whether that asks for a reschedule, if the outcome says.
    fn publish(
        &mut self,
        model: &MachineModel,
        at: usize,
        now: u64,
        seat: Seat,
        told: Option<bool>,
    ) -> Result<(), String> {
        let thread = seat.thread();
        ensure(!self.is_lent(thread), || format!("{thread:?} is ready though its context is away"))?;
        self.resume(seat, now);
        self.enqueue(at, thread, now);
        let cpu_model = model.cpu_model(at);
        let on_context = self.cpus[at].on_context;
        let holds = self.held(thread).is_some();
        let expected = match (self.queue(thread), cpu_model.running) {
            (QueueKind::Throttled, _) => Some(false),
            (_, None) => Some(true),
            (QueueKind::Context, Some(running)) if on_context => Some(self.more_urgent(thread, running)),
            (QueueKind::Context, Some(_)) => Some(true),
            (QueueKind::Fair, Some(_)) if holds => Some(false),
            (QueueKind::Fair, Some(running)) if on_context => {
                let due = self.held(running).map_or(u64::MAX, super::Grant::due);
                let floor = &mut self.cpus[at].floor;
                if told.is_some() {
                    floor.wanted(now, true);
                }
                Some(floor.claims(now, due).is_some())
            }
            // Between two of best effort the exact schedule judges.
            (QueueKind::Fair, Some(_)) => None,
        };
        match (told, expected) {
            (Some(told), Some(expected)) => ensure(told == expected, || {
                let queue = self.queue(thread);
                format!("{thread:?} is ready on {queue:?}: reschedule is {told}, by the rules {expected}")
            }),
            _ => Ok(()),
        }
    }

    fn resume(&mut self, seat: Seat, now: u64) {
        if let Some(grant) = self.held_mut(seat.thread()) {
            grant.resume(now);
        }
    }

    fn bind(
        &mut self,
        model: &MachineModel,
        at: usize,
        now: u64,
        seat: Seat,
        given: &super::ContextCopy,
        reschedule: bool,
    ) -> Result<(), String> {
        let thread = seat.thread();
        let state = model.seated(at, seat).ok_or_else(|| format!("{seat:?} does not sit here"))?;
        if state == State::Running {
            self.charge(model, at, now)?;
        }
        self.take_in(at, now, thread, given)?;
        match state {
            State::Running => {
                let cpu_model = model.cpu_model(at);
                let waiting = cpu_model.queued - cpu_model.urgent + usize::from(cpu_model.direct.is_some());
                self.cpus[at].floor.wanted(now, waiting > 0);
                self.resume(seat, now);
                self.forget(at, thread);
                self.holder_mut(thread).queue = QueueKind::Context;
                self.cpus[at].on_context = true;
                ensure(reschedule, || "a new context asks for no decision".to_owned())
            }
            State::Queued | State::Direct => self.publish(model, at, now, seat, Some(reschedule)),
            State::Held | State::Throttled | State::Asleep(_) => {
                ensure(!reschedule, || format!("{seat:?} is {state:?} and asks for a reschedule"))
            }
        }
    }

    fn unbind(
        &mut self,
        model: &MachineModel,
        at: usize,
        now: u64,
        seat: Seat,
        who: ContextRef,
    ) -> Result<(), String> {
        let thread = seat.thread();
        let right = self.right(thread);
        ensure(right == Right::Holds(who), || format!("{seat:?} has {right:?}, taken was {who:?}"))?;
        let state = model.seated(at, seat).ok_or_else(|| format!("{seat:?} does not sit here"))?;
        if state == State::Running {
            self.charge(model, at, now)?;
            self.cpus[at].on_context = false;
        }
        self.depart(at, thread, now);
        let holder = self.holder_mut(thread);
        (holder.right, holder.queue) = (Right::None, QueueKind::Fair);
        if matches!(state, State::Queued | State::Throttled)
            && self.cpus[at].on_context
            && model.cpu_model(at).running.is_some()
        {
            self.cpus[at].floor.wanted(now, true);
        }
        Ok(())
    }

    fn lend(
        &mut self,
        model: &MachineModel,
        at: usize,
        now: u64,
        seat: Seat,
        to: ThreadRef,
        who: ContextRef,
    ) -> Result<(), String> {
        let thread = seat.thread();
        let right = self.right(thread);
        ensure(right == Right::Holds(who), || format!("{seat:?} has {right:?}, lent was {who:?}"))?;
        let state = model.seated(at, seat);
        ensure(state == Some(State::Asleep(WaitKind::Call)), || format!("{seat:?} is {state:?} and lends"))?;
        ensure(self.may_lend(thread, to), || format!("{thread:?} must not lend {who:?} to {to:?}"))?;
        self.take_out(at, thread, now);
        if let Some(grant) = self.held_mut(thread) {
            grant.donors.push(thread);
        }
        self.tally.lent += 1;
        self.holder_mut(thread).right = Right::Lent(who);
        Ok(())
    }

    fn decide(
        &mut self,
        model: &MachineModel,
        at: usize,
        now: u64,
        why: StopKind,
        decision: Decision,
    ) -> Result<(), String> {
        self.charge(model, at, now)?;
        let cpu_model = model.cpu_model(at);
        let mut waiting = cpu_model.queued - cpu_model.urgent + usize::from(cpu_model.direct.is_some());
        if let Some(thread) = cpu_model.running {
            if let StopKind::Blocked(..) = why {
                self.fall_asleep(at, thread, now);
            } else {
                self.requeue(at, thread, now);
                waiting += usize::from(self.queue(thread) == QueueKind::Fair);
            }
        }
        self.refill(at, now, None);
        waiting -= self.refilled.iter().filter(|(_, queue)| *queue == QueueKind::Fair).count();
        self.choose(at, now, waiting > 0, decision)
    }

    /// `thread` could go on and has been charged. A thread that goes on without its context does so until the
    /// refill.
    fn requeue(&mut self, at: usize, thread: ThreadRef, now: u64) {
        let without = !self.cpus[at].on_context;
        self.enqueue(at, thread, now);
        if without && self.queue(thread) == QueueKind::Throttled {
            let refill = self.holder_mut(thread).refill;
            self.stand(at, thread, QueueKind::Fair, refill);
        }
    }

    fn timer(&mut self, model: &MachineModel, at: usize, now: u64, reschedule: bool) -> Result<(), String> {
        if self.cpus[at].holders == 0 {
            return Ok(());
        }
        let cpu_model = model.cpu_model(at);
        self.refill(at, now, cpu_model.running);
        let left = self.refilled.iter().filter(|(_, queue)| *queue == QueueKind::Fair).count();
        let waiting = cpu_model.queued - cpu_model.urgent + usize::from(cpu_model.direct.is_some()) - left;
        let Some(running) = cpu_model.running else { return Ok(()) };
        let first = self.most_urgent(at);
        let wanted = if self.cpus[at].on_context {
            let over = self.budget_end(model, at).is_some_and(|end| end.get() <= now);
            let outdone = first.is_some_and(|first| self.more_urgent(first, running));
            let due = self.held(running).map_or(u64::MAX, super::Grant::due);
            let floor = &mut self.cpus[at].floor;
            let claims = waiting > 0 && {
                floor.wanted(now, true);
                floor.claims(now, due).is_some()
            };
            over || outdone || claims
        } else {
            first.is_some()
        };
        ensure(reschedule || !wanted, || {
            format!("the timer asks for no decision: {running:?} runs, {first:?} is ready on a context")
        })
    }

    /// A thread whose refill has come is ready on its context; `running` is so from the next decision on.
    fn refill(&mut self, at: usize, now: u64, running: Option<ThreadRef>) {
        while let Some(&(due, index)) = self.cpus[at].refills.first()
            && due <= now
        {
            let Some(thread) = self.holders[index as usize].as_ref().map(|holder| holder.thread) else {
                return;
            };
            let queue = self.queue(thread);
            if running == Some(thread) {
                self.forget(at, thread);
                continue;
            }
            self.stand(at, thread, QueueKind::Context, None);
            self.tally.refilled += 1;
            self.refilled.push((thread, queue));
        }
    }
}
