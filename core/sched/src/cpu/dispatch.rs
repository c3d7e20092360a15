//! Charge, requeue, choose: one decision.

use super::realtime::Band;
use super::{Cpu, Seat, State, taken};
use crate::entity::{Affinity, Entity};
use crate::hint::likely;
use crate::telemetry::NohzExit;
use crate::waiter::{Timeout, WaitKind, WaitPermit};
use core::hint::cold_path;
use mainspring_abi::{Nanos, ThreadRef};

/// Why the running thread stops.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing is running.
    Nothing,
    /// It could go on: its request is over, or a better thread is ready.
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
    /// The thread's name.
    pub thread: ThreadRef,
    /// Whether it takes over from another thread or from idle.
    pub switched: bool,
    /// When its request, or this quantum of it, or its context's budget, ends. A request's end matters only while
    /// another thread is ready; [`Cpu::next_timer`] accounts for that.
    pub slice_end: Nanos,
}

/// Whether the target of a direct handoff may go first.
#[derive(Clone, Copy)]
enum DirectRule {
    /// The slice it could have had a part of is over; the queue decides.
    Refuse,
    /// No slice is being handed on.
    Free,
    /// For the rest of the slice of the thread that stops. So a pair that hands the CPU to and fro gets no more,
    /// between two choices from the queue, than one of them alone.
    Until(Nanos),
}

/// Ends the running interval that began at `since`; its length. The only place where time becomes charged time.
#[inline]
pub(super) fn end_interval(since: &mut Nanos, charged_total: &mut Nanos, now: Nanos) -> Nanos {
    let ran = now - core::mem::replace(since, now);
    *charged_total += ran;
    ran
}

#[cold]
fn nothing_was_running(stop: &Stop) -> ! {
    panic!("nothing was running that could stop as {stop:?}")
}

#[derive(Clone, Copy)]
pub(super) struct Choice {
    pub slot: u32,
    pub slice_cap: Nanos,
    pub band: Band,
}

impl Choice {
    fn fair(slot: u32, slice_cap: Nanos) -> Self {
        Self { slot, slice_cap, band: Band::Fair }
    }
}

impl Cpu {
    /// The running thread stops as `stop` says, and the next one is chosen.
    ///
    /// # Panics
    ///
    /// If `stop` speaks of a running thread and there is none, or the reverse: the caller has lost track of its CPU.
    #[inline(always)]
    pub fn resched(&mut self, now: Nanos, stop: Stop) -> Decision {
        self.resched_wanted = false;
        match stop {
            Stop::Preempted if likely(self.is_simple()) => self.preempt(now),
            Stop::Preempted => self.preempt_beside_contexts(now),
            Stop::Blocked(kind, timeout) if likely(self.is_simple()) => self.block(now, kind, timeout),
            stop => self.stop_otherwise(now, stop),
        }
    }

    /// Whether no thread here has a context, and none is the direct target: the queue alone says which is
    /// next.
    #[inline(always)]
    fn is_simple(&self) -> bool {
        self.contexts == 0 && self.direct.is_none()
    }

    /// The running thread goes back into the queue and the first one is taken out: nearly every decision there is, so
    /// the usual case is one straight piece of code that looks into each table once per thread.
    #[inline(never)]
    fn preempt(&mut self, now: Nanos) -> Decision {
        let Some(slot) = self.current else { nothing_was_running(&Stop::Preempted) };
        self.bring_fair_clock_up(now);
        let occupant = taken(&mut self.slots, slot);
        let unusual =
            occupant.entity.affinity != Affinity::Any || occupant.entity.weight != self.fair.weight(slot);
        if unusual {
            return self.stop_running(now, slot, Stop::Preempted);
        }
        let ran = end_interval(&mut self.since, &mut self.charged_total, now);
        let moved = self.fair.charge(slot, ran);
        occupant.charge(ran, moved);
        // Counted while the account is at hand, and taken back below if no thread was better.
        occupant.entity.account.preemptions += 1;
        occupant.wait_for_cpu(now);
        let (queued, next) = self.fair.exchange(slot, &occupant.ask_to_run(None), ran, moved);
        self.telemetry.note_queue_depth(queued);
        let Some(next) = next else { unreachable!("the thread that stopped is queued") };
        if next == slot {
            taken(&mut self.slots, slot).entity.account.preemptions -= 1;
        }
        self.run(now, next, next != slot, Nanos::MAX)
    }

    /// The running thread waits and the first one is taken out of the queue: the next most frequent decision, as straight.
    #[inline(always)]
    fn block(&mut self, now: Nanos, kind: WaitKind, timeout: Option<Timeout>) -> Decision {
        match timeout {
            Some(Timeout { deadline, user_data, permit }) => {
                self.block_until(now, kind, deadline, user_data, Some(permit))
            }
            None => self.block_until(now, kind, Nanos::MAX, 0, None),
        }
    }

    /// A timeout in its parts, which come in registers; without a permit there is none.
    #[inline(never)]
    fn block_until(
        &mut self,
        now: Nanos,
        kind: WaitKind,
        deadline: Nanos,
        user_data: u64,
        permit: Option<WaitPermit>,
    ) -> Decision {
        let timeout = permit.map(|permit| Timeout { deadline, user_data, permit });
        let Some(slot) = self.current else { nothing_was_running(&Stop::Blocked(kind, timeout)) };
        self.bring_fair_clock_up(now);
        let ran = end_interval(&mut self.since, &mut self.charged_total, now);
        let moved = self.fair.charge_and_sleep(slot, ran);
        let occupant = taken(&mut self.slots, slot);
        // A thread that waits begins another request afterwards, so nothing has to be charged to its current
        // request.
        occupant.entity.account.charge(ran, moved);
        occupant.fall_asleep(kind);
        if let Some(timeout) = timeout {
            self.waits.insert(slot, occupant.set_timeout(timeout));
        }
        match self.fair.take_next() {
            Some(next) => self.run(now, next, true, Nanos::MAX),
            None => {
                cold_path();
                self.nobody_runs();
                Decision::Idle
            }
        }
    }

    #[inline(never)]
    fn preempt_beside_contexts(&mut self, now: Nanos) -> Decision {
        let Some(slot) = self.current else { nothing_was_running(&Stop::Preempted) };
        self.bring_clock_up(now);
        if self.band == Band::Fair {
            return self.stop_running(now, slot, Stop::Preempted);
        }
        match self.preempt_context(now, slot) {
            Ok(decision) => decision,
            Err(slice_cap) => {
                let choice = self.choose_best_effort(now, DirectRule::Refuse, slice_cap);
                self.count_preemption(slot, choice.map(|next| next.slot));
                self.dispatch(now, Some(slot), choice)
            }
        }
    }

    /// `slot` could have gone on, and `next` runs.
    #[inline]
    pub(super) fn count_preemption(&mut self, slot: u32, next: Option<u32>) {
        if next != Some(slot) {
            self.at_mut(slot).entity.account.preemptions += 1;
        }
    }

    #[inline(never)]
    fn stop_otherwise(&mut self, now: Nanos, stop: Stop) -> Decision {
        self.bring_clock_up(now);
        match (self.current, stop) {
            (Some(slot), stop) => self.stop_running(now, slot, stop),
            (None, Stop::Nothing) => {
                let choice = self.choose(now, DirectRule::Free);
                self.dispatch(now, None, choice)
            }
            (None, stop) => nothing_was_running(&stop),
        }
    }

    #[inline(never)]
    pub(super) fn stop_running(&mut self, now: Nanos, slot: u32, stop: Stop) -> Decision {
        self.charge(now, slot);
        let rest = if self.slice_end > now { DirectRule::Until(self.slice_end) } else { DirectRule::Refuse };
        let choice = match stop {
            Stop::Nothing => panic!("{:?} was running", self.at(slot).entity.thread),
            Stop::Preempted => {
                self.requeue(now, slot);
                let choice = self.choose(now, DirectRule::Refuse);
                self.count_preemption(slot, choice.map(|next| next.slot));
                choice
            }
            Stop::Yielded => self.choose_before(now, slot, rest),
            Stop::Blocked(kind, timeout) => {
                self.fall_asleep(now, slot, kind, timeout);
                self.choose(now, rest)
            }
        };
        self.dispatch(now, Some(slot), choice)
    }

    /// The running thread waits, and no thread is chosen yet: what it does on its way, such as handing its context to
    /// its server, comes before the choice. Call [`Cpu::resched`] with [`Stop::Nothing`] next. Returns whether a thread
    /// ran.
    pub fn block_current(&mut self, now: Nanos, kind: WaitKind, timeout: Option<Timeout>) -> bool {
        self.bring_clock_up(now);
        let Some(slot) = self.current else { return false };
        self.charge(now, slot);
        self.fall_asleep(now, slot, kind, timeout);
        self.nobody_runs();
        true
    }

    /// What ran has stopped, and nothing has been chosen.
    pub(super) fn nobody_runs(&mut self) {
        self.current = None;
        self.band = Band::Fair;
        self.slice_end = Nanos::MAX;
    }

    /// The running thread ends. Its state goes to the caller; call [`Cpu::resched`] with [`Stop::Nothing`] next.
    pub fn exit_current(&mut self, now: Nanos) -> Option<Entity> {
        self.bring_clock_up(now);
        let slot = self.current?;
        self.charge(now, slot);
        let lag = self.fair.leave(slot, self.band == Band::Deadline);
        self.suspend_context(now, slot);
        self.nobody_runs();
        let mut occupant = self.vacate(now, slot);
        occupant.entity.lag = lag;
        Some(occupant.entity)
    }

    #[inline(always)]
    pub(super) fn charge(&mut self, now: Nanos, slot: u32) {
        let ran = end_interval(&mut self.since, &mut self.charged_total, now);
        if self.contexts != 0 && self.charge_authority(now, slot, ran) {
            return;
        }
        let moved = self.fair.charge(slot, ran);
        self.at_mut(slot).charge(ran, moved);
    }

    fn requeue(&mut self, now: Nanos, slot: u32) {
        let best_effort = self.is_best_effort(slot);
        let occupant = self.at_mut(slot);
        occupant.wait_for_cpu(now);
        if !best_effort {
            self.requeue_on_context(now, slot);
            return;
        }
        let weight = occupant.entity.weight;
        self.fair.reweigh(slot, weight);
        self.enqueue(slot);
    }

    pub(super) fn enqueue(&mut self, slot: u32) {
        let ask = self.at(slot).ask(self.has_authority());
        self.fair.enqueue(slot, &ask);
        self.telemetry.note_queue_depth(self.fair.queued());
    }

    fn fall_asleep(&mut self, now: Nanos, slot: u32, kind: WaitKind, timeout: Option<Timeout>) {
        if self.contexts != 0 {
            self.suspend_context(now, slot);
        }
        if self.band == Band::Fair {
            self.fair.sleep(slot);
        }
        let occupant = taken(&mut self.slots, slot);
        occupant.fall_asleep(kind);
        if let Some(timeout) = timeout {
            self.waits.insert(slot, occupant.set_timeout(timeout));
        }
    }

    #[inline(always)]
    fn choose(&mut self, now: Nanos, rule: DirectRule) -> Option<Choice> {
        let mut slice_cap = Nanos::MAX;
        if self.contexts != 0 {
            match self.choose_context(now, self.contended()) {
                Ok(choice) => return Some(choice),
                Err(cap) => slice_cap = cap,
            }
        }
        self.choose_best_effort(now, rule, slice_cap)
    }

    #[inline(always)]
    fn choose_best_effort(&mut self, now: Nanos, rule: DirectRule, slice_cap: Nanos) -> Option<Choice> {
        if self.direct.is_some()
            && let Some(choice) = self.choose_direct(now, rule)
        {
            return Some(Choice { slice_cap: slice_cap.min(choice.slice_cap), ..choice });
        }
        Some(Choice::fair(self.fair.take_next()?, slice_cap))
    }

    /// Any thread that is ready and owed, rather than `slot`, which yields; else `slot`.
    fn choose_before(&mut self, now: Nanos, slot: u32, rule: DirectRule) -> Option<Choice> {
        // On a context, or about to be on one again, it stands in line by its deadline.
        let on_context = self.band == Band::Deadline
            || self.contexts != 0
                && self.at(slot).entity.context().is_some_and(|context| context.is_usable(now));
        if on_context {
            self.requeue(now, slot);
            return self.choose(now, DirectRule::Refuse);
        }
        self.fair.forfeit(slot);
        self.at_mut(slot).entity.used = Nanos::ZERO;
        let mut slice_cap = Nanos::MAX;
        if self.contexts != 0 {
            match self.choose_context(now, true) {
                Ok(choice) => {
                    self.requeue(now, slot);
                    return Some(choice);
                }
                Err(cap) => slice_cap = cap,
            }
        }
        let choice = self
            .choose_direct(now, rule)
            .or_else(|| Some(Choice::fair(self.fair.take_next_if_owed()?, Nanos::MAX)));
        self.requeue(now, slot);
        match choice {
            Some(choice) => Some(Choice { slice_cap: slice_cap.min(choice.slice_cap), ..choice }),
            None => self.choose(now, DirectRule::Refuse),
        }
    }

    /// The direct target, if it may go first. A preference, not a privilege: it runs on the rest of the slice that it
    /// was handed, and no further ahead of its share than one request of its own would take it.
    fn choose_direct(&mut self, now: Nanos, rule: DirectRule) -> Option<Choice> {
        let slot = self.direct.take()?;
        let handed = match rule {
            DirectRule::Refuse => Nanos::ZERO,
            DirectRule::Free => Nanos::MAX,
            DirectRule::Until(end) => end - now,
        };
        let slice = handed.min(self.left_of_request(slot));
        if !slice.is_zero() {
            self.telemetry.handoffs += 1;
            return Some(Choice::fair(slot, now + slice));
        }
        self.telemetry.handoffs_queued += 1;
        self.at_mut(slot).state = State::Queued;
        self.enqueue(slot);
        None
    }

    /// How long `slot` may run without a choice from the queue: as if it resumed the request during which it blocked.
    fn left_of_request(&self, slot: u32) -> Nanos {
        let request = self.at(slot).request;
        if self.fair.has_started(self.tag_if_queued(slot).start) {
            return request;
        }
        request - self.fair.lag(slot).magnitude()
    }

    #[inline(always)]
    fn dispatch(&mut self, now: Nanos, before: Option<u32>, choice: Option<Choice>) -> Decision {
        if before.is_none() {
            self.idle_total += now - self.since;
            self.since = now;
        }
        let Some(Choice { slot, slice_cap, band }) = choice else {
            self.nobody_runs();
            return Decision::Idle;
        };
        self.band = band;
        if band == Band::Deadline {
            return self.run_on_context(now, slot, before != Some(slot));
        }
        self.run(now, slot, before != Some(slot), slice_cap)
    }

    #[inline(always)]
    fn run(&mut self, now: Nanos, slot: u32, switched: bool, slice_cap: Nanos) -> Decision {
        self.tick.restore(now, NohzExit::Dispatch, &mut self.telemetry);
        let occupant = taken(&mut self.slots, slot);
        occupant.begin_to_run(now, self.id, switched);
        let thread = occupant.entity.thread;
        // A long request is served a quantum at a time.
        let slice = (occupant.request - occupant.entity.used).min(self.quantum);
        let slice_end = (now + slice).min(slice_cap);
        self.current = Some(slot);
        self.slice_end = slice_end;
        if !self.contended() {
            let start = self.running_tag(slot, Nanos::ZERO).start;
            self.fair.catch_up(start);
        }
        Decision::Run(Dispatch { seat: Seat { slot, thread }, thread, switched, slice_end })
    }
}
