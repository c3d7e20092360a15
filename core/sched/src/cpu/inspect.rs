//! Looking on: what a checker, a report or an explanation needs to see. Changes nothing.

use super::realtime::Band;
use super::{Cpu, Seat, SeatError, Slot, State};
use crate::context::Urgency;
use crate::entity::Entity;
use crate::fair::Tag;
use crate::telemetry::Telemetry;
use crate::virtual_time::{Lag, VirtualTime};
use alloc::vec::Vec;
use mainspring_abi::{ContextRef, CpuId, LatencyClass, Nanos, ThreadRef, Weight};

/// One thread on a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadView {
    /// The thread.
    pub thread: ThreadRef,
    /// Where it sits.
    pub seat: Seat,
    /// What it does.
    pub state: State,
    /// Its weight as last set.
    pub weight: Weight,
    /// Its latency class.
    pub class: LatencyClass,
    /// What it is owed at the CPU's last event.
    pub lag: Lag,
    /// Its tags, if it is queued, or would have if it were requeued now, if it is running.
    pub tag: Option<Tag>,
    /// The context that it holds, and how urgent that makes it.
    pub context: Option<(ContextRef, Urgency)>,
    /// When its timed wait ends.
    pub deadline: Option<Nanos>,
}

impl Cpu {
    /// Which CPU this is.
    #[must_use]
    pub fn id(&self) -> CpuId {
        self.id
    }

    /// The running thread's seat.
    #[must_use]
    #[inline]
    pub fn current(&self) -> Option<Seat> {
        self.current.map(|slot| self.seat_of(slot))
    }

    /// The scheduling state of the running thread.
    #[must_use]
    #[inline]
    pub fn running(&self) -> Option<&Entity> {
        self.current.map(|slot| &self.at(slot).entity)
    }

    /// The scheduling state of the thread at `seat`.
    pub fn entity(&self, seat: Seat) -> Result<&Entity, SeatError> {
        Ok(&self.occupant(seat)?.entity)
    }

    /// What the thread at `seat` is doing.
    pub fn state(&self, seat: Seat) -> Result<State, SeatError> {
        Ok(self.occupant(seat)?.state)
    }

    /// What the thread at `seat` is owed, as of this CPU's last event; the interval in progress, if it runs, counts
    /// up to `now`.
    pub fn lag(&self, now: Nanos, seat: Seat) -> Result<Lag, SeatError> {
        let state = self.occupant(seat)?.state;
        if !self.competes(seat.slot, state) {
            return Ok(self.lag_aside(seat.slot, state));
        }
        let ran = if self.current == Some(seat.slot) { now - self.since } else { Nanos::ZERO };
        Ok(self.fair.lag_after(seat.slot, ran))
    }

    /// What the running thread is owed at `now`. Brings the clock up to date, which the next event at `now` would do
    /// anyway, so no later decision depends on whether a caller looked.
    #[inline]
    pub fn current_lag(&mut self, now: Nanos) -> Option<Lag> {
        let slot = self.current?;
        if self.band == Band::Deadline {
            return None;
        }
        self.bring_clock_up(now);
        Some(self.fair.lag_after(slot, now - self.since))
    }

    /// What the running thread was owed when it was last charged or chosen.
    #[must_use]
    #[inline]
    pub fn charged_lag(&self) -> Option<Lag> {
        if self.band == Band::Deadline {
            return None;
        }
        Some(self.fair.lag(self.current?))
    }

    /// How many threads are queued, the direct target included.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.fair.queued() as usize + usize::from(self.direct.is_some()) + self.realtime.ready()
    }

    /// How many threads here hold a context. While none does, no timer is needed for contexts.
    #[must_use]
    pub fn contexts(&self) -> u32 {
        self.contexts
    }

    /// How many threads sit here, asleep ones included.
    #[must_use]
    pub fn occupied(&self) -> usize {
        self.occupied
    }

    /// Sum of the weights of all threads that compete here.
    #[must_use]
    pub fn load(&self) -> u64 {
        self.fair.load()
    }

    /// The fluid schedule's clock, as of the last event.
    #[must_use]
    pub fn virtual_clock(&self) -> VirtualTime {
        self.fair.clock()
    }

    /// The counters.
    #[must_use]
    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Time with nothing to run, up to `now`.
    #[must_use]
    pub fn idle_time(&self, now: Nanos) -> Nanos {
        if self.current.is_some() { self.idle_total } else { self.idle_total + (now - self.since) }
    }

    /// Time charged to threads so far; the interval in progress is not.
    #[must_use]
    pub fn charged_time(&self) -> Nanos {
        self.charged_total
    }

    /// When the running interval, or idle time, began.
    #[must_use]
    pub fn since(&self) -> Nanos {
        self.since
    }

    /// Whether the running thread runs on a context.
    #[must_use]
    #[inline]
    pub fn runs_on_context(&self) -> bool {
        self.band == Band::Deadline
    }

    /// Queued threads in the order in which they stand: those on contexts, then best effort. Allocates: for onlookers
    /// only.
    #[must_use]
    pub fn queue(&self) -> Vec<ThreadView> {
        let mut queue = self.realtime_queue();
        queue.extend(self.fair_queue());
        queue
    }

    fn fair_queue(&self) -> impl Iterator<Item = ThreadView> + '_ {
        self.fair.in_order().into_iter().map(|slot| self.view(slot))
    }

    /// Every thread that sits here. Allocates: for onlookers only.
    #[must_use]
    pub fn threads(&self) -> Vec<ThreadView> {
        let taken = |slot: &u32| matches!(self.slots[*slot as usize], Slot::Taken(_));
        (0..self.slots.len() as u32).filter(taken).map(|slot| self.view(slot)).collect()
    }

    /// The thread with the lowest seat from `slot` on, and what it is doing. For going through all without allocating, while
    /// threads come and go.
    #[must_use]
    pub fn resident_from(&self, slot: u32) -> Option<(Seat, State)> {
        let rest = self.slots.get(slot as usize..)?;
        rest.iter().zip(slot..).find_map(|(occupant, slot)| match occupant {
            Slot::Taken(occupant) => Some((Seat { slot, thread: occupant.entity.thread }, occupant.state)),
            _ => None,
        })
    }

    /// Every thread that sits here, as it stands at `now`: the clock is brought up to date, and what the running thread
    /// has had so far counts. Allocates: for onlookers only.
    pub fn threads_at(&mut self, now: Nanos) -> Vec<ThreadView> {
        self.bring_clock_up(now);
        let ran = now - self.since;
        let mut threads = self.threads();
        let fair = self.band == Band::Fair;
        for view in threads.iter_mut().filter(|view| fair && view.state == State::Running) {
            view.lag = self.fair.lag_after(view.seat.slot, ran);
            view.tag = Some(self.running_tag(view.seat.slot, ran));
        }
        threads
    }

    /// Whether the clock has reached `start`, so that a request with that start may be chosen.
    #[must_use]
    pub fn is_eligible(&self, start: VirtualTime) -> bool {
        self.fair.has_reached(start)
    }

    /// Checks the queue's own structure; `Err` says what does not hold. Slow.
    pub fn verify(&self) -> Result<(), &'static str> {
        self.fair.verify()?;
        let states: Vec<State> = self.threads().into_iter().map(|view| view.state).collect();
        let count = |wanted: State| states.iter().filter(|state| **state == wanted).count();
        if count(State::Running) != usize::from(self.current.is_some()) {
            return Err("running threads miscounted");
        }
        if count(State::Direct) != usize::from(self.direct.is_some()) {
            return Err("direct target miscounted");
        }
        if count(State::Queued) != self.fair.queued() as usize + self.realtime.ready() {
            return Err("queued threads miscounted");
        }
        self.verify_contexts()?;
        if count(State::Held) != self.held || states.len() != self.occupied {
            return Err("seats miscounted");
        }
        Ok(())
    }

    /// A held thread's credit waits for it; its debt is being repaid meanwhile.
    fn lag_held(&self, slot: u32) -> Lag {
        self.at(slot).entity.lag.max(self.fair.lag_asleep(slot))
    }

    /// Whether `slot`, which is in `state`, has its share of the fluid schedule.
    fn competes(&self, slot: u32, state: State) -> bool {
        match state {
            State::Queued => !self.realtime.is_ready(slot),
            State::Running => self.band == Band::Fair,
            State::Direct => true,
            State::Held | State::Throttled | State::Asleep(_) => false,
        }
    }

    /// What `slot` is owed while it has no share.
    fn lag_aside(&self, slot: u32, state: State) -> Lag {
        if state == State::Held { self.lag_held(slot) } else { self.fair.lag_asleep(slot) }
    }

    pub(super) fn view(&self, slot: u32) -> ThreadView {
        let occupant = self.at(slot);
        let competes = self.competes(slot, occupant.state);
        let tag = match occupant.state {
            _ if !competes => None,
            State::Queued => Some(self.fair.queued_tag(slot)),
            _ => Some(self.tag_if_queued(slot)),
        };
        ThreadView {
            thread: occupant.entity.thread,
            seat: self.seat_of(slot),
            state: occupant.state,
            weight: occupant.entity.weight,
            class: occupant.entity.class,
            lag: if competes { self.fair.lag(slot) } else { self.lag_aside(slot, occupant.state) },
            tag,
            context: occupant
                .entity
                .context()
                .map(|context| (context.who(), context.urgency(occupant.entity.thread.index()))),
            deadline: self.waits.key(slot).map(|due| due.deadline),
        }
    }
}
