//! Where each thread is: kept from events and outcomes alone.
//!
//! A live thread is on one CPU in one state, or between two CPUs. The model refuses what cannot be: a thread that
//! arrives while it is somewhere, runs while it runs elsewhere, or comes back after its end.

use super::contexts::{Grants, QueueKind};
use super::ensure;
use super::observation::{Observation, ObservedEvent, StopKind};
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_sched::flight::Outcome;
use mainspring_sched::{Decision, Seat, State, Via};
use std::collections::BTreeSet;

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// On a CPU, in a seat.
    On {
        /// Which CPU.
        cpu: usize,
        /// Which seat.
        slot: u32,
        /// Doing what.
        state: State,
    },
    /// Taken out of one CPU and not accepted by another; `owed` if it must be.
    Between {
        /// A thief asked for it.
        owed: bool,
    },
    /// It has ended.
    Ended,
}

/// A thread that the model knows.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The thread.
    pub thread: ThreadRef,
    /// Where.
    pub at: Whereabouts,
    /// When its timed wait ends.
    pub deadline: Option<Nanos>,
    /// On what it competes, while it is ready or running.
    pub queue: QueueKind,
}

/// A CPU as the model sees it.
#[derive(Clone, Debug, Default)]
pub struct CpuModel {
    /// The thread that runs.
    pub running: Option<ThreadRef>,
    /// The target of a direct handoff.
    pub direct: Option<ThreadRef>,
    /// Whether it runs on a context.
    pub on_context: bool,
    /// How many wait in the queue; the direct target does not.
    pub queued: usize,
    /// How many of them are ready on a context.
    pub urgent: usize,
    /// How many are held.
    pub held: usize,
    /// How many seats are taken.
    pub seated: usize,
    /// Pending timed waits: when they are due, and whose they are.
    pub waits: BTreeSet<(Nanos, u32)>,
}

/// All threads and CPUs.
#[derive(Clone, Debug)]
pub struct MachineModel {
    threads: Vec<Option<Known>>,
    cpu_models: Vec<CpuModel>,
}

impl MachineModel {
    /// A machine without threads.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        Self { threads: Vec::new(), cpu_models: vec![CpuModel::default(); cpus] }
    }

    /// CPU number `cpu`.
    #[must_use]
    pub fn cpu_model(&self, cpu: usize) -> &CpuModel {
        &self.cpu_models[cpu]
    }

    /// What is known of `thread`.
    #[must_use]
    pub fn find(&self, thread: ThreadRef) -> Option<&Known> {
        self.threads.get(thread.index() as usize)?.as_ref().filter(|known| known.thread == thread)
    }

    /// Every thread on CPU number `cpu`, with seat and state.
    pub fn on(&self, cpu: usize) -> impl Iterator<Item = (ThreadRef, u32, State)> {
        self.threads.iter().flatten().filter_map(move |known| match known.at {
            Whereabouts::On { cpu: at, slot, state } if at == cpu => Some((known.thread, slot, state)),
            _ => None,
        })
    }

    /// The state of the thread at `seat` of `cpu`, if it sits there.
    #[must_use]
    pub fn seated(&self, cpu: usize, seat: Seat) -> Option<State> {
        match self.find(seat.thread())?.at {
            Whereabouts::On { cpu: at, slot, state } if at == cpu && slot == seat.slot() => Some(state),
            _ => None,
        }
    }

    /// On what `thread` competes.
    #[must_use]
    pub fn queue(&self, thread: ThreadRef) -> QueueKind {
        self.find(thread).map_or(QueueKind::Fair, |known| known.queue)
    }

    /// Whether a best-effort thread waits for CPU number `cpu`.
    #[must_use]
    pub fn contended(&self, cpu: usize) -> bool {
        let cpu_model = &self.cpu_models[cpu];
        cpu_model.queued > cpu_model.urgent || cpu_model.direct.is_some()
    }

    /// Writes `observed` down; `grants` have followed it already.
    pub fn note(&mut self, grants: &Grants, observed: &Observation) -> Result<(), String> {
        let cpu = observed.cpu;
        self.happen(grants, observed)?;
        self.cpu_models[cpu].on_context = grants.cpu_contexts(cpu).on_context;
        if let Some(thread) = self.cpu_models[cpu].running {
            self.known(thread)?.queue = grants.queue(thread);
        }
        Ok(())
    }

    fn happen(&mut self, grants: &Grants, observed: &Observation) -> Result<(), String> {
        let cpu = observed.cpu;
        for (thread, queue) in &grants.refilled {
            if *queue == QueueKind::Throttled {
                self.set(grants, cpu, *thread, State::Queued)?;
            } else {
                self.move_lane(grants, cpu, *thread)?;
            }
        }
        match (&observed.event, observed.outcome) {
            (ObservedEvent::Accept(arrival, via), Outcome::Seated(slot, _)) => {
                let best_effort = !grants.holds(arrival.thread);
                let direct = *via == Via::HandOff && self.cpu_models[cpu].direct.is_none() && best_effort;
                let state = if direct { State::Direct } else { ready(grants, arrival.thread) };
                self.arrive(grants, cpu, slot, arrival.thread, state)
            }
            (ObservedEvent::Resched(why), Outcome::Decided(decision)) => {
                self.decided(grants, cpu, *why, decision)
            }
            (ObservedEvent::BlockCurrent(kind, deadline), Outcome::Done) => {
                let running = self.cpu_models[cpu].running.ok_or("nobody ran who could block")?;
                self.known(running)?.deadline = *deadline;
                self.set(grants, cpu, running, State::Asleep(*kind))
            }
            (ObservedEvent::ExitCurrent, Outcome::Left(left)) => {
                let running = self.cpu_models[cpu].running;
                ensure(left.map(|(thread, _)| thread) == running, || {
                    format!("{running:?} runs, {left:?} ended")
                })?;
                running.map_or(Ok(()), |thread| self.depart(cpu, thread, Whereabouts::Ended))
            }
            (
                ObservedEvent::Wake(seat) | ObservedEvent::Release(seat) | ObservedEvent::HandOff(seat),
                Outcome::Ready(..),
            ) => self.set(grants, cpu, seat.thread(), ready(grants, seat.thread())),
            (ObservedEvent::HandOff(seat), Outcome::Direct(_)) => {
                self.set(grants, cpu, seat.thread(), State::Direct)
            }
            (ObservedEvent::Hold(seat), Outcome::Done) => self.set(grants, cpu, seat.thread(), State::Held),
            (ObservedEvent::Expire, Outcome::Expired(Some((seat, _)), _))
                if grants.is_lent(seat.thread()) =>
            {
                self.stop_waiting(cpu, seat.thread())
            }
            (ObservedEvent::Expire, Outcome::Expired(Some((seat, _)), _)) => {
                self.set(grants, cpu, seat.thread(), ready(grants, seat.thread()))
            }
            (ObservedEvent::Bind(seat, _), Outcome::Ready(..))
            | (ObservedEvent::Unbind(seat), Outcome::Took(_)) => self.change_hands(grants, cpu, *seat),
            (ObservedEvent::Lend(..) | ObservedEvent::WriteOff(_), Outcome::Took(_)) => Ok(()),
            (ObservedEvent::Remove(seat), Outcome::Left(Some((thread, _)))) => {
                ensure(seat.thread() == thread, || {
                    format!("{thread:?} was removed from the seat of another")
                })?;
                self.depart(cpu, thread, Whereabouts::Between { owed: false })
            }
            (ObservedEvent::Give(_), Outcome::Left(Some((thread, _)))) => {
                self.depart(cpu, thread, Whereabouts::Between { owed: true })
            }
            (ObservedEvent::Accept(..), Outcome::Refused)
            | (ObservedEvent::Give(_), Outcome::Left(None))
            | (ObservedEvent::Expire, Outcome::Expired(None, _))
            | (ObservedEvent::Timer, Outcome::Timer(_))
            | (ObservedEvent::EnterIdle(_), Outcome::Idle(_))
            | (ObservedEvent::Nohz(_), Outcome::Nohz(_))
            | (
                ObservedEvent::RescheduleReceived
                | ObservedEvent::SetWeight(..)
                | ObservedEvent::SetClass(..),
                Outcome::Done,
            ) => Ok(()),
            (seen, Outcome::BadSeat) if seen.seat().is_some() => Ok(()),
            _ => Err("an outcome that the event cannot have".to_owned()),
        }
    }

    /// The run is over: each thread that was given away must have arrived.
    pub fn end(&self) -> Result<(), String> {
        let lost = |known: &&Known| known.at == Whereabouts::Between { owed: true };
        match self.threads.iter().flatten().find(lost) {
            Some(known) => Err(format!("{:?} was stolen and never arrived", known.thread)),
            None => Ok(()),
        }
    }

    /// The thread at `seat` has got or lost a context, whatever it does.
    fn change_hands(&mut self, grants: &Grants, cpu: usize, seat: Seat) -> Result<(), String> {
        let thread = seat.thread();
        match self.state_on(cpu, thread)? {
            State::Queued | State::Direct | State::Throttled => {
                let to = ready(grants, thread);
                if self.state_on(cpu, thread)? == to {
                    self.move_lane(grants, cpu, thread)
                } else {
                    self.set(grants, cpu, thread, to)
                }
            }
            State::Running | State::Held | State::Asleep(_) => Ok(()),
        }
    }

    /// `thread` stays queued, and competes on something else.
    fn move_lane(&mut self, grants: &Grants, cpu: usize, thread: ThreadRef) -> Result<(), String> {
        self.count(cpu, thread, State::Queued, false);
        self.known(thread)?.queue = grants.queue(thread);
        self.count(cpu, thread, State::Queued, true);
        Ok(())
    }

    /// The time that `thread` may wait is over, and it stays asleep.
    fn stop_waiting(&mut self, cpu: usize, thread: ThreadRef) -> Result<(), String> {
        let state = self.state_on(cpu, thread)?;
        self.count(cpu, thread, state, false);
        self.known(thread)?.deadline = None;
        self.count(cpu, thread, state, true);
        Ok(())
    }

    fn arrive(
        &mut self,
        grants: &Grants,
        cpu: usize,
        slot: u32,
        thread: ThreadRef,
        state: State,
    ) -> Result<(), String> {
        let index = thread.index() as usize;
        if self.threads.len() <= index {
            self.threads.resize(index + 1, None);
        }
        if let Some(known) = &self.threads[index] {
            let same = known.thread == thread && matches!(known.at, Whereabouts::Between { .. });
            let reborn = known.thread.generation() < thread.generation()
                && matches!(known.at, Whereabouts::Between { owed: false } | Whereabouts::Ended);
            ensure(same || reborn, || {
                format!("{thread:?} arrived while {:?} is {:?}", known.thread, known.at)
            })?;
        }
        let at = Whereabouts::On { cpu, slot, state };
        self.threads[index] = Some(Known { thread, at, deadline: None, queue: grants.queue(thread) });
        self.cpu_models[cpu].seated += 1;
        self.count(cpu, thread, state, true);
        Ok(())
    }

    fn depart(&mut self, cpu: usize, thread: ThreadRef, to: Whereabouts) -> Result<(), String> {
        let state = self.state_on(cpu, thread)?;
        self.count(cpu, thread, state, false);
        self.cpu_models[cpu].seated -= 1;
        let known = self.known(thread)?;
        known.at = to;
        known.deadline = None;
        Ok(())
    }

    fn decided(
        &mut self,
        grants: &Grants,
        cpu: usize,
        why: StopKind,
        decision: Decision,
    ) -> Result<(), String> {
        let before = self.cpu_models[cpu].running;
        ensure(before.is_none() == (why == StopKind::Nothing), || {
            format!("{before:?} runs, yet the stop is {why:?}")
        })?;
        // While contexts run, the target of a handoff goes on being one.
        if let Some(direct) = self.cpu_models[cpu].direct
            && !grants.cpu_contexts(cpu).on_context
        {
            self.set(grants, cpu, direct, State::Queued)?;
        }
        if let Some(thread) = before {
            match why {
                StopKind::Blocked(kind, deadline) => {
                    self.known(thread)?.deadline = deadline;
                    self.set(grants, cpu, thread, State::Asleep(kind))?;
                }
                _ => self.set(grants, cpu, thread, ready(grants, thread))?,
            }
        }
        match decision {
            Decision::Run(run) => {
                let state = self.state_on(cpu, run.thread)?;
                ensure(state == State::Queued, || format!("{:?} was chosen while {state:?}", run.thread))?;
                ensure(run.switched == (before != Some(run.thread)), || "a switch miscalled".to_owned())?;
                self.set(grants, cpu, run.thread, State::Running)
            }
            Decision::Idle => {
                let queued = self.cpu_models[cpu].queued;
                ensure(queued == 0, || format!("idle with {queued} threads queued"))
            }
        }
    }

    fn known(&mut self, thread: ThreadRef) -> Result<&mut Known, String> {
        let slot = self.threads.get_mut(thread.index() as usize).and_then(Option::as_mut);
        slot.filter(|known| known.thread == thread).ok_or_else(|| format!("{thread:?} does not exist"))
    }

    fn state_on(&mut self, cpu: usize, thread: ThreadRef) -> Result<State, String> {
        match self.known(thread)?.at {
            Whereabouts::On { cpu: at, state, .. } if at == cpu => Ok(state),
            other => Err(format!("{thread:?} is {other:?}, not on CPU {cpu}")),
        }
    }

    fn set(&mut self, grants: &Grants, cpu: usize, thread: ThreadRef, to: State) -> Result<(), String> {
        let from = self.state_on(cpu, thread)?;
        let right = match to {
            State::Running => from == State::Queued,
            State::Queued => true,
            State::Direct => matches!(from, State::Asleep(_)) && self.cpu_models[cpu].direct.is_none(),
            State::Held => from == State::Queued,
            State::Asleep(_) => from == State::Running,
            State::Throttled => grants.holds(thread),
        };
        ensure(right && from != to, || format!("{thread:?} went from {from:?} to {to:?}"))?;
        self.count(cpu, thread, from, false);
        self.known(thread)?.queue = grants.queue(thread);
        self.count(cpu, thread, to, true);
        let known = self.known(thread)?;
        if let Whereabouts::On { state, .. } = &mut known.at {
            *state = to;
        }
        if !matches!(to, State::Asleep(_)) {
            known.deadline = None;
        }
        Ok(())
    }

    fn count(&mut self, cpu: usize, thread: ThreadRef, state: State, enters: bool) {
        let deadline = self.find(thread).and_then(|known| known.deadline);
        let urgent = self.queue(thread) == QueueKind::Context;
        let cpu_model = &mut self.cpu_models[cpu];
        let change = |count: &mut usize| *count = count.wrapping_add_signed(if enters { 1 } else { -1 });
        match state {
            State::Running => cpu_model.running = enters.then_some(thread),
            State::Direct => cpu_model.direct = enters.then_some(thread),
            State::Queued => {
                change(&mut cpu_model.queued);
                if urgent {
                    change(&mut cpu_model.urgent);
                }
            }
            State::Held => change(&mut cpu_model.held),
            State::Throttled => {}
            State::Asleep(_) => {
                if let Some(deadline) = deadline {
                    let entry = (deadline, thread.index());
                    if enters {
                        cpu_model.waits.insert(entry);
                    } else {
                        cpu_model.waits.remove(&entry);
                    }
                }
            }
        }
    }
}

/// The state of a thread that has just become ready.
fn ready(grants: &Grants, thread: ThreadRef) -> State {
    if grants.queue(thread) == QueueKind::Throttled { State::Throttled } else { State::Queued }
}
