//! Timer interrupts, timed waits that end, and the tick in idle.

use super::{Cpu, Occupant, Seat, State, taken};
use crate::cpu::Woken;
use crate::hint::{likely, unlikely};
use crate::telemetry::NohzExit;
use crate::tick::{HOUSEKEEPING_FLOOR, IdleConditions, KeepTicking, NetworkNeed, TickMode};
use crate::waiter::{Due, WaitKind};
use mainspring_abi::{ContextRef, Nanos, ThreadRef};

/// What a timer interrupt was for. Timed waits come separately, one at a time, from [`Cpu::expire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct TimerOutcome {
    /// It was a scheduler tick.
    pub ticked: bool,
    /// The running thread's request is over and another thread is ready.
    pub reschedule: bool,
}

/// A timed wait ended by its deadline.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Expired {
    /// The thread that waited.
    pub thread: ThreadRef,
    /// Where it sits.
    pub seat: Seat,
    /// What it waited for in vain.
    pub kind: WaitKind,
    /// When it was due.
    pub deadline: Nanos,
    /// What came with the wait.
    pub user_data: u64,
    /// It is ready now, unless its context is away.
    pub woken: Woken,
    /// The context that it has lent and must have back, or see written off, before it can be woken.
    pub away: Option<ContextRef>,
}

/// What happens to the tick of a CPU that goes idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum IdleTick {
    /// No tick; one timer interrupt at this time.
    Suppressed {
        /// When.
        wake_at: Nanos,
    },
    /// The tick goes on, for this reason.
    Kept(KeepTicking),
}

impl Cpu {
    /// When the next timer interrupt must come: the next tick or idle one-shot, the next timed wait, or the end of the
    /// running thread's request if another thread is ready, or of its context's budget in any case, or the next refill.
    /// Read it after each event.
    #[must_use]
    #[inline(always)]
    pub fn next_timer(&self) -> Nanos {
        let wait = self.waits.peek().map_or(Nanos::MAX, |(due, _)| due.deadline);
        // `slice_end` is `Nanos::MAX` while no thread runs.
        let slice = if self.contended() { self.slice_end } else { Nanos::MAX };
        let due = self.tick.due().min(wait).min(slice);
        if likely(self.contexts == 0) { due } else { due.min(self.next_on_contexts()) }
    }

    /// When the next timed wait here ends.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.waits.peek().map(|(due, _)| due.deadline)
    }

    /// A timer interrupt came. Call [`Cpu::expire`] until it returns `None`, then reschedule if wanted.
    // Both always in line: they come before nearly every decision, and a call would pass what they tell through memory.
    #[inline(always)]
    pub fn timer(&mut self, now: Nanos) -> TimerOutcome {
        self.telemetry.timer_interrupts += 1;
        if unlikely(now > self.next_timer()) {
            self.telemetry.oneshot_deadline_misses += 1;
        }
        let ticked = self.tick.interrupt(now, &mut self.telemetry);
        if unlikely(self.slice_end <= now && self.contended()) {
            self.resched_wanted = true;
        }
        if unlikely(self.contexts != 0) {
            self.timer_on_contexts(now);
        }
        TimerOutcome { ticked, reschedule: self.resched_wanted }
    }

    /// Ends one timed wait that is due.
    #[inline(always)]
    pub fn expire(&mut self, now: Nanos) -> Option<Expired> {
        let &(Due { deadline, .. }, slot) = self.waits.peek()?;
        if deadline > now {
            return None;
        }
        self.telemetry.timeouts += 1;
        self.waits.remove_first();
        let Occupant { state, user_data, entity, permit, .. } = taken(&mut self.slots, slot);
        let State::Asleep(kind) = *state else { unreachable!("only sleepers wait") };
        let (thread, user_data, permit) = (entity.thread, *user_data, permit.take());
        let away = if likely(self.lent == 0) { None } else { entity.has_lent() };
        let reschedule = away.is_none() && self.ready_again(now, slot);
        let (seat, woken) = (Seat { slot, thread }, Woken { reschedule, permit });
        Some(Expired { thread, seat, kind, deadline, user_data, woken, away })
    }

    /// Another CPU asks this one to look at its queue.
    pub fn reschedule_received(&mut self, now: Nanos) {
        self.telemetry.reschedules += 1;
        self.tick.restore(now, NohzExit::Reschedule, &mut self.telemetry);
        self.resched_wanted |= self.current.is_none();
    }

    /// Nothing can run here and nothing could be stolen. Decides what becomes of the tick; call it again after each
    /// interrupt that finds nothing to run.
    pub fn enter_idle(&mut self, now: Nanos, conditions: &IdleConditions) -> IdleTick {
        if let Some(reason) = self.keep_ticking(conditions) {
            self.tick.force(now, reason, &mut self.telemetry);
            return IdleTick::Kept(reason);
        }
        let poll = match conditions.network {
            NetworkNeed::PollAt(at) => at,
            NetworkNeed::Inactive | NetworkNeed::EveryTick => Nanos::MAX,
        };
        let wait = self.next_deadline().unwrap_or(Nanos::MAX);
        let wake_at = (now + HOUSEKEEPING_FLOOR).min(poll).min(wait).min(self.realtime.next_refill());
        self.tick.suppress(now, wake_at, &mut self.telemetry);
        IdleTick::Suppressed { wake_at }
    }

    /// What the tick does at present.
    #[must_use]
    pub fn tick_mode(&self) -> TickMode {
        self.tick.mode()
    }

    /// Whether an event since the last decision asks for another.
    #[must_use]
    pub fn reschedule_wanted(&self) -> bool {
        self.resched_wanted
    }

    fn keep_ticking(&self, conditions: &IdleConditions) -> Option<KeepTicking> {
        if self.current.is_some() || self.fair.queued() != 0 || self.realtime.has_ready() {
            return Some(KeepTicking::RunnableWork);
        }
        if self.direct.is_some() {
            return Some(KeepTicking::DirectTarget);
        }
        if self.held != 0 {
            return Some(KeepTicking::RetryWindow);
        }
        conditions.keep_ticking()
    }
}
