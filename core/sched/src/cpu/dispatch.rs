//! Charge, requeue, choose: one decision.

use super::{Cpu, Seat, State};
use crate::entity::Entity;
use crate::telemetry::NohzExit;
use crate::waiter::{Due, Timeout, WaitKind};
use mainspring_abi::{Nanos, ThreadRef};

/// Why the running thread stops.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing is running.
    Nothing,
    /// It could go on: its request is over, or somebody better is ready.
    Preempted,
    /// It lets the others go first, once.
    Yielded,
    /// It waits, perhaps not for ever.
    Blocked(WaitKind, Option<Timeout>),
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the CPU must do what was decided"]
pub enum Decision {
    /// Run this thread.
    Run(Dispatch),
    /// Nothing here can run: steal, or call [`Cpu::enter_idle`].
    Idle,
}

/// The thread that has the CPU from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Where it sits.
    pub seat: Seat,
    /// Who it is.
    pub thread: ThreadRef,
    /// Whether it takes over from another thread or from idle.
    pub switched: bool,
    /// When its request, or this quantum of it, ends. Matters only while somebody else is ready; [`Cpu::next_timer`] knows.
    pub slice_end: Nanos,
}

/// Whether the target of a direct handoff may go first.
enum DirectRule {
    /// The slice it could have had a part of is over; the queue decides.
    Refuse,
    /// Nobody's slice is being handed on.
    Free,
    /// For the rest of the slice of the thread that stops. So a pair that hands the CPU to and fro gets no more,
    /// between two choices from the queue, than one of them alone.
    Until(Nanos),
}

struct Choice {
    slot: u32,
    slice_cap: Nanos,
}

impl Cpu {
    /// The running thread stops as `stop` says, and the next one is chosen.
    ///
    /// # Panics
    ///
    /// If `stop` speaks of a running thread and there is none, or the reverse: the caller has lost track of its CPU.
    #[inline]
    pub fn resched(&mut self, now: Nanos, stop: Stop) -> Decision {
        self.resched_wanted = false;
        self.fair.advance(now);
        let before = self.current.take();
        let Some(slot) = before else {
            assert_eq!(stop, Stop::Nothing, "nothing was running");
            let choice = self.choose(DirectRule::Free);
            return self.dispatch(now, None, choice);
        };
        self.charge(now, slot);
        let rest = if self.slice_end > now { DirectRule::Until(self.slice_end) } else { DirectRule::Refuse };
        let choice = match stop {
            Stop::Nothing => panic!("{:?} was running", self.at(slot).entity.thread),
            Stop::Preempted => {
                self.requeue(now, slot);
                let choice = self.choose(DirectRule::Refuse);
                if choice.as_ref().is_none_or(|next| next.slot != slot) {
                    self.at_mut(slot).entity.account.preemptions += 1;
                }
                choice
            }
            Stop::Yielded => self.choose_before(now, slot, rest),
            Stop::Blocked(kind, timeout) => {
                self.fall_asleep(slot, kind, timeout);
                self.choose(rest)
            }
        };
        self.dispatch(now, before, choice)
    }

    /// The running thread ends. Its state goes to the caller; call [`Cpu::resched`] with [`Stop::Nothing`] next.
    pub fn exit_current(&mut self, now: Nanos) -> Option<Entity> {
        self.fair.advance(now);
        let slot = self.current.take()?;
        self.charge(now, slot);
        let lag = self.fair.leave(slot, false);
        let mut occupant = self.vacate(slot);
        occupant.entity.lag = lag;
        Some(occupant.entity)
    }

    /// The only place where running time is charged.
    #[inline]
    fn charge(&mut self, now: Nanos, slot: u32) {
        let ran = now - self.since;
        self.since = now;
        self.charged_total += ran;
        let moved = self.fair.charge(slot, ran);
        let request = self.request_of(&self.at(slot).entity);
        let entity = &mut self.at_mut(slot).entity;
        entity.account.charge(ran, moved);
        entity.used += ran;
        if entity.used >= request {
            // Requests follow each other without a gap; a thread that nobody stopped may have had several.
            entity.used = Nanos::new(entity.used.get() % request.get());
        }
    }

    #[inline]
    fn requeue(&mut self, now: Nanos, slot: u32) {
        let occupant = self.at_mut(slot);
        occupant.state = State::Queued;
        occupant.entity.runnable_since = Some(now);
        let weight = occupant.entity.weight;
        self.fair.reweigh(slot, weight);
        self.enqueue(slot);
    }

    #[inline]
    pub(super) fn enqueue(&mut self, slot: u32) {
        let ask = self.ask_of(slot);
        self.fair.enqueue(slot, &ask);
        self.telemetry.queue_depth_max = self.telemetry.queue_depth_max.max(u64::from(self.fair.queued()));
    }

    fn fall_asleep(&mut self, slot: u32, kind: WaitKind, timeout: Option<Timeout>) {
        self.fair.sleep(slot);
        let occupant = self.at_mut(slot);
        occupant.state = State::Asleep(kind);
        occupant.entity.used = Nanos::ZERO;
        occupant.entity.account.voluntary_blocks += 1;
        if let Some(Timeout { deadline, permit }) = timeout {
            occupant.permit = Some(permit);
            let thread_index = occupant.entity.thread.index();
            self.waits.insert(slot, Due { deadline, thread_index });
        }
    }

    #[inline]
    fn choose(&mut self, rule: DirectRule) -> Option<Choice> {
        if let Some(choice) = self.choose_direct(rule) {
            return Some(choice);
        }
        let slot = self.fair.choose()?;
        self.fair.dequeue(slot);
        Some(Choice { slot, slice_cap: Nanos::MAX })
    }

    /// Anybody who is ready and owed, rather than `slot`, which yields; else `slot`.
    fn choose_before(&mut self, now: Nanos, slot: u32, rule: DirectRule) -> Option<Choice> {
        self.fair.forfeit(slot);
        self.at_mut(slot).entity.used = Nanos::ZERO;
        let choice = self.choose_direct(rule).or_else(|| {
            let other = self.fair.first_eligible()?;
            self.fair.dequeue(other);
            Some(Choice { slot: other, slice_cap: Nanos::MAX })
        });
        self.requeue(now, slot);
        choice.or_else(|| self.choose(DirectRule::Refuse))
    }

    #[inline]
    fn choose_direct(&mut self, rule: DirectRule) -> Option<Choice> {
        let slot = self.direct.take()?;
        let ask = self.ask_of(slot);
        let slice_cap = match rule {
            DirectRule::Refuse => None,
            DirectRule::Free => Some(Nanos::MAX),
            DirectRule::Until(end) => Some(end),
        };
        // A preference, not a privilege: who could not be chosen from the queue is not chosen here.
        let owed = self.fair.has_reached(self.fair.tag(slot, &ask, Nanos::ZERO).start);
        if let Some(slice_cap) = slice_cap.filter(|_| owed) {
            self.telemetry.handoffs += 1;
            return Some(Choice { slot, slice_cap });
        }
        self.telemetry.handoffs_queued += 1;
        self.at_mut(slot).state = State::Queued;
        self.enqueue(slot);
        None
    }

    #[inline]
    fn dispatch(&mut self, now: Nanos, before: Option<u32>, choice: Option<Choice>) -> Decision {
        if before.is_none() {
            self.idle_total += now - self.since;
        }
        self.since = now;
        let Some(Choice { slot, slice_cap }) = choice else {
            self.slice_end = Nanos::MAX;
            return Decision::Idle;
        };
        self.tick.restore(now, NohzExit::Dispatch, &mut self.telemetry);
        let switched = before != Some(slot);
        let (cpu, quantum) = (self.config.cpu, self.config.quantum);
        let request = self.request_of(&self.at(slot).entity);
        let occupant = self.at_mut(slot);
        occupant.state = State::Running;
        let entity = &mut occupant.entity;
        let ready_for = entity.runnable_since.take().map_or(Nanos::ZERO, |since| now - since);
        entity.account.runnable_accumulated += ready_for;
        entity.account.last_started = now;
        entity.account.switches += u64::from(switched);
        entity.last_cpu = Some(cpu);
        let thread = entity.thread;
        // A long request is served a quantum at a time.
        let slice = (request - entity.used).min(quantum);
        let slice_end = (now + slice).min(slice_cap);
        self.current = Some(slot);
        self.slice_end = slice_end;
        Decision::Run(Dispatch { seat: Seat { slot, thread }, thread, switched, slice_end })
    }
}
