//! What happens on one CPU: work done, reschedules, timers, and the decisions that follow.

use super::foresight::think_ahead;
use super::thread::{FOREVER, Home};
use super::{Lane, Machine};
use crate::RunError;
use mainspring_abi::Nanos;
use mainspring_report::ScheduleEntry;
use mainspring_sched::{
    Decision, Dispatch, Entity, IdleConditions, Lag, State, Stop, TickMode, Via, WaitKind,
};

/// How many steps a CPU may take at one instant before that counts as a standstill.
const STANDSTILL: u32 = 1_000_000;

impl Machine<'_> {
    /// Handles the earliest thing that CPU `cpu` has to do at this instant.
    #[inline(always)]
    pub(super) fn cpu_event(&mut self, cpu: usize) {
        self.acting = Some(cpu);
        self.agenda.take_out(cpu);
        self.board.touch(cpu);
        let lane = &mut self.lanes[cpu];
        if lane.done_at <= self.now {
            lane.done_at = Nanos::MAX;
            if let Some(thread) = lane.running {
                self.threads[thread as usize].remaining = Nanos::ZERO;
            }
            self.carry_on(cpu);
        } else if lane.begin_at <= self.now {
            self.begin_to_compute(cpu);
        } else if lane.ipi_at <= self.now {
            self.reschedule_arrived(cpu);
        } else if self.disturbed && lane.net_at <= self.now {
            self.poll_network(cpu);
        } else {
            self.timer_fired(cpu);
        }
    }

    fn reschedule_arrived(&mut self, cpu: usize) {
        self.lanes[cpu].ipi_at = Nanos::MAX;
        self.lanes[cpu].ipi_pending = false;
        self.mark_askable(cpu);
        let tickless = matches!(self.cores[cpu].tick_mode(), TickMode::TicklessLease { .. });
        if self.leases.any() {
            self.attend_leases(cpu);
        }
        let core = &self.cores[cpu];
        let work = core.queued() > 0 || core.reschedule_wanted() || core.current().is_none();
        // A CPU that has proved its window again has only been asked whether it still can.
        if work || !tickless {
            self.core_reschedule_received(cpu);
        }
        self.interrupt(cpu, self.workload.costs.interrupt);
        self.reconsider(cpu);
    }

    #[inline(always)]
    fn timer_fired(&mut self, cpu: usize) {
        if self.disturbed {
            if self.delay_timer(cpu) {
                return;
            }
            self.make_up_for_lost_reschedule(cpu);
        }
        if self.authority && self.leases.any() {
            self.attend_leases(cpu);
        }
        let outcome = self.core_timer(cpu);
        let costs = &self.workload.costs;
        let tick_cost = if outcome.ticked { costs.tick } else { Nanos::ZERO };
        self.interrupt(cpu, costs.interrupt + tick_cost);
        while let Some(expired) = self.core_expire(cpu) {
            let thread = expired.thread.index() as usize;
            if expired.kind != WaitKind::Sleep {
                self.time_out(thread, expired.kind);
            }
            if expired.away.is_some() {
                if let Some(permit) = expired.woken.permit {
                    self.quota.give_back(permit);
                }
                self.time_out_on_loan(cpu, thread);
                continue;
            }
            self.note_woken(thread, expired.woken.permit);
            if !(self.authority && self.moves_on(thread)) {
                self.kick(cpu, expired.woken.reschedule, thread, Some(cpu));
            }
        }
        if outcome.ticked {
            self.poll_network_on_tick(cpu);
        }
        if self.disturbed {
            self.stall(cpu);
        }
        self.reconsider(cpu);
    }

    /// What `thread` waited for has not come in time.
    #[inline(never)]
    fn time_out(&mut self, thread: usize, kind: WaitKind) {
        if kind == WaitKind::Call && self.drop_call(thread) {
            self.threads[thread].stats.dropped += 1;
        } else {
            self.threads[thread].stats.timeouts += 1;
        }
        match kind {
            WaitKind::Join => self.give_up_join(thread),
            WaitKind::Ring => self.give_up_completions(thread),
            WaitKind::Sleep | WaitKind::Park | WaitKind::Call | WaitKind::Receive => {}
        }
    }

    /// Takes `cost` from whatever CPU `cpu` is doing.
    #[inline]
    pub(super) fn interrupt(&mut self, cpu: usize, cost: Nanos) {
        if !cost.is_zero() && self.lanes[cpu].running.is_some() {
            self.hold_up(cpu, cost);
        }
    }

    fn hold_up(&mut self, cpu: usize, cost: Nanos) {
        self.pause_work(cpu);
        let lane = &mut self.lanes[cpu];
        lane.work_from = lane.work_from.max(self.now) + cost;
        self.expect_done(cpu);
    }

    /// Books the work that the running thread has done so far.
    pub(super) fn pause_work(&mut self, cpu: usize) {
        let lane = &mut self.lanes[cpu];
        let Some(thread) = lane.running else { return };
        let thread = &mut self.threads[thread as usize];
        if thread.remaining != FOREVER {
            thread.remaining = thread.remaining - (self.now - lane.work_from);
        }
        thread.ahead &= self.now < lane.work_from;
        lane.work_from = lane.work_from.max(self.now);
    }

    /// When the running thread's step will be done, if nothing comes between.
    #[inline]
    pub(super) fn expect_done(&mut self, cpu: usize) {
        let lane = &mut self.lanes[cpu];
        lane.done_at = match lane.running {
            Some(thread) => lane.work_from + self.threads[thread as usize].remaining,
            None => Nanos::MAX,
        };
        self.touch(cpu);
    }

    /// After an interrupt: another decision, if one is wanted or the CPU is idle.
    #[inline(always)]
    pub(super) fn reconsider(&mut self, cpu: usize) {
        if self.lanes[cpu].running.is_none() {
            self.look_for_work(cpu);
            self.carry_on(cpu);
        } else if self.cores[cpu].reschedule_wanted() {
            self.preempt(cpu);
            self.carry_on(cpu);
        }
    }

    /// Lets the running thread go on, and the next one, until one has work to do or the CPU is idle.
    pub(super) fn carry_on(&mut self, cpu: usize) {
        while let Lane { running: Some(thread), done_at, .. } = self.lanes[cpu] {
            if done_at != Nanos::MAX && done_at > self.now || self.stands_still(cpu, thread) {
                return;
            }
            let index = thread as usize;
            let thread = &mut self.threads[index];
            if thread.remaining.is_zero() {
                thread.ahead = false;
                self.take_step(cpu, index);
                continue;
            }
            self.lanes[cpu].work_from = self.lanes[cpu].work_from.max(self.now);
            self.expect_done(cpu);
            if !self.cores[cpu].reschedule_wanted() {
                return;
            }
            self.preempt(cpu);
        }
    }

    #[inline(always)]
    fn stands_still(&mut self, cpu: usize, thread: u32) -> bool {
        let lane = &mut self.lanes[cpu];
        if lane.standstill_at != self.now {
            lane.standstill_at = self.now;
            lane.standstill = 0;
        }
        lane.standstill += 1;
        if lane.standstill < STANDSTILL {
            return false;
        }
        let thread = self.thread_name(thread as usize);
        self.trouble.get_or_insert(RunError::Standstill { at: self.now, thread });
        true
    }

    /// The running thread of `cpu` ends.
    pub(super) fn exit(&mut self, cpu: usize) {
        let Some(thread) = self.lanes[cpu].running else { return };
        self.look_at_lag_of_stopping(cpu, thread);
        self.end_segment(cpu, "exited");
        let Some(entity) = self.core_exit_current(cpu) else { return };
        self.lanes[cpu].running = None;
        self.lanes[cpu].done_at = Nanos::MAX;
        self.mark_idle(cpu, true);
        self.bury(thread as usize, entity);
        self.choose(cpu);
    }

    /// Nothing runs on `cpu`, and somebody is chosen.
    pub(super) fn choose(&mut self, cpu: usize) {
        self.stop_and_decide(cpu, Stop::Nothing);
    }

    /// The running thread of `cpu` could go on, and the best of all is chosen.
    pub(super) fn preempt(&mut self, cpu: usize) {
        self.pause_work(cpu);
        self.stop_and_decide(cpu, Stop::Preempted);
    }

    /// The running thread, which has no work in progress, stops as `stop` says, and another is chosen. Compiled for each
    /// kind of stop on its own.
    #[inline(always)]
    pub(super) fn stop_and_decide(&mut self, cpu: usize, stop: Stop) {
        let before = self.lanes[cpu].running;
        let reason = match &stop {
            Stop::Nothing => "",
            Stop::Preempted => "preempted",
            Stop::Yielded => "yielded",
            Stop::Blocked(..) => "blocked",
        };
        if let Some(thread) = before {
            self.look_at_lag_of_stopping(cpu, thread);
        }
        let decision = self.core_resched(cpu, stop);
        let depleted = self.authority && before.is_some_and(|thread| self.is_throttled(thread));
        self.carry_out(cpu, before, if depleted { "depleted" } else { reason }, decision);
    }

    /// Whether `thread` waits for its context's next refill.
    fn is_throttled(&self, thread: u32) -> bool {
        let index = thread as usize;
        self.threads[index].pinned
            && self
                .place_of(index)
                .is_some_and(|(cpu, seat)| self.cores[cpu].state(seat) == Ok(State::Throttled))
    }

    #[inline(always)]
    fn carry_out(&mut self, cpu: usize, before: Option<u32>, reason: &'static str, decision: Decision) {
        match decision {
            Decision::Run(run) => {
                if before.is_some() && run.switched {
                    self.end_segment(cpu, reason);
                }
                self.begin(cpu, run);
                self.share_leftovers(cpu, before);
            }
            Decision::Idle => {
                if before.is_some() {
                    self.end_segment(cpu, reason);
                }
                self.lanes[cpu].running = None;
                self.lanes[cpu].done_at = Nanos::MAX;
                self.mark_idle(cpu, true);
                if !self.steal(cpu) {
                    self.go_idle(cpu);
                }
            }
        }
    }

    /// An idle CPU looks into its own queue, then into the others'.
    fn look_for_work(&mut self, cpu: usize) {
        if self.cores[cpu].queued() > 0 {
            self.choose(cpu);
        } else if !self.steal(cpu) {
            self.go_idle(cpu);
        }
    }

    fn go_idle(&mut self, cpu: usize) {
        let conditions = IdleConditions { network: self.network_need(cpu), ..IdleConditions::default() };
        let _tick = self.core_enter_idle(cpu, &conditions);
    }

    /// Takes the most overdue thread that this CPU may run from another CPU, and runs it.
    fn steal(&mut self, cpu: usize) -> bool {
        if self.idle_count == self.cores.len() || self.leases.is_leased(cpu) {
            return false;
        }
        let thief = self.cpu_id(cpu);
        let victim = self.board.victim(thief, &self.cores);
        if let Some(acting) = self.acting {
            // Its offer has just been looked at, and its event goes on.
            self.board.touch(acting);
        }
        let Some(victim) = victim else { return false };
        let Some(entity) = self.core_give(victim.index(), thief) else { return false };
        let thread = entity.thread().index() as usize;
        match self.core_accept(cpu, entity, Via::Steal) {
            Ok((seat, _)) => {
                self.threads[thread].home = Some(Home::new(cpu, seat));
                self.threads[thread].moved = true;
                self.choose(cpu);
                true
            }
            Err(refused) => {
                debug_assert!(false, "{refused}");
                false
            }
        }
    }

    /// Threads are still queued here while other CPUs have nothing to do: tells one of them.
    fn share_leftovers(&mut self, cpu: usize, before: Option<u32>) {
        if self.askable_count == 0 || self.cores[cpu].queued() == 0 {
            return;
        }
        if let Some(thread) = before
            && self.threads[thread as usize].wait.is_none()
        {
            self.kick(cpu, false, thread as usize, Some(cpu));
        }
    }

    /// `run` has CPU `cpu` from now on.
    #[inline(always)]
    fn begin(&mut self, cpu: usize, run: Dispatch) {
        let index = run.thread.index();
        self.mark_idle(cpu, false);
        if self.authority {
            self.tell_of_beginning(cpu, run);
        }
        let costs = &self.workload.costs;
        let lane = &mut self.lanes[cpu];
        let thread = &mut self.threads[index as usize];
        let moved = std::mem::take(&mut thread.moved);
        if run.switched {
            lane.work_from = self.now + costs.switch;
            if moved {
                lane.work_from += costs.migration;
            }
        } else {
            lane.work_from = lane.work_from.max(self.now);
        }
        if self.foresight && lane.work_from > self.now && thread.remaining.is_zero() {
            think_ahead(thread, &self.script);
        }
        lane.running = Some(index);
        lane.done_at = lane.work_from + thread.remaining;
        if let Some(lag) = self.cores[cpu].charged_lag() {
            // A thread's lag only grows while it waits and only shrinks while it runs, so its extremes are where it
            // starts and stops. It shrinks by no more than it runs, so until it has run for long enough where it stops
            // is no extreme. Two nanoseconds for what is rounded.
            thread.lag_max = thread.lag_max.max(lag.abs());
            let unseen = Nanos::new((thread.lag_max + lag).as_nanos() as u64);
            lane.lag_known_until = self.now + (unseen - Nanos::new(2));
        }
        let woken_at = std::mem::replace(&mut thread.woken_at, Nanos::MAX);
        if woken_at != Nanos::MAX {
            self.note_latency(index, self.now - woken_at);
        }
        self.touch(cpu);
    }

    #[inline(never)]
    fn tell_of_beginning(&mut self, cpu: usize, run: Dispatch) {
        if run.switched {
            self.lanes[cpu].segment_start = self.now;
        }
        let index = run.thread.index() as usize;
        if self.policy.as_ref().is_some_and(|policy| policy.listens_for(index)) {
            self.policy_heard();
        }
        self.ask_at_end_of_event(cpu);
    }

    /// `thread`, which has `cpu`, is about to stop: looks at its lag.
    #[inline]
    pub(super) fn look_at_lag_of_stopping(&mut self, cpu: usize, thread: u32) {
        // A thread that gains or loses a context while it runs goes on with another lag.
        if self.authority || self.now > self.lanes[cpu].lag_known_until {
            let Some(lag) = self.lag_of_current(cpu) else { return };
            let greatest = &mut self.threads[thread as usize].lag_max;
            *greatest = lag.max(*greatest);
        } else {
            // One more for what is rounded.
            let most = self.threads[thread as usize].lag_max.magnitude() + Nanos::new(1);
            let sound = |lag: Lag| lag.magnitude() <= most;
            debug_assert!(self.lag_of_current(cpu).is_none_or(sound), "more than {most}");
        }
    }

    #[inline(never)]
    fn lag_of_current(&mut self, cpu: usize) -> Option<Lag> {
        self.cores[cpu].current_lag(self.now).map(Lag::abs)
    }

    /// CPU `cpu` has become idle, or has stopped being so.
    fn mark_idle(&mut self, cpu: usize, idle: bool) {
        if self.lanes[cpu].idle == idle {
            return;
        }
        self.lanes[cpu].idle = idle;
        self.idle_count = if idle { self.idle_count + 1 } else { self.idle_count - 1 };
        self.mark_askable(cpu);
    }

    /// Keeps account of whether `cpu` is idle and has not been asked to reschedule.
    pub(super) fn mark_askable(&mut self, cpu: usize) {
        let askable = self.lanes[cpu].idle && !self.lanes[cpu].ipi_pending && !self.leases.is_leased(cpu);
        let id = self.cpu_id(cpu);
        if self.askable.contains(id) == askable {
            return;
        }
        if askable {
            self.askable.insert(id);
            self.askable_count += 1;
        } else {
            self.askable.remove(id);
            self.askable_count -= 1;
        }
    }

    /// The interval in which CPU `cpu` had its running thread is over.
    #[inline]
    pub(super) fn end_segment(&mut self, cpu: usize, reason: &str) {
        if self.schedule.is_some() {
            self.list_segment(cpu, reason);
        }
    }

    fn list_segment(&mut self, cpu: usize, reason: &str) {
        let Some(thread) = self.lanes[cpu].running else { return };
        let entry = ScheduleEntry {
            cpu: cpu as u32,
            thread: self.thread_name(thread as usize),
            start_ns: self.lanes[cpu].segment_start.get(),
            end_ns: self.now.get(),
            reason: reason.to_owned(),
        };
        if let Some(schedule) = &mut self.schedule
            && entry.start_ns < entry.end_ns
        {
            schedule.push(entry);
        }
    }

    pub(super) fn thread_name(&self, index: usize) -> String {
        let spec = self.threads[index].spec as usize;
        self.workload.threads[spec].instance_name(index - self.bases[spec])
    }

    /// Books the end of a life and wakes those who waited for it.
    pub(super) fn bury(&mut self, index: usize, entity: Entity) {
        // One that is ended by others may be ready.
        let ready = entity.ready_since().map_or(Nanos::ZERO, |since| self.now - since);
        self.book_life(index, &entity, entity.lag().as_nanos(), ready);
        let thread = &mut self.threads[index];
        thread.home = None;
        thread.wait = None;
        let joiners = std::mem::take(&mut thread.joiners);
        let ended = thread.identity;
        if let Some(next) = thread.identity.successor() {
            thread.identity = next;
        }
        self.settle_authority(index, entity);
        self.policy_outlives(index, ended);
        self.fail_requests_of(index);
        self.end_leases_of_thread(index);
        self.end_rings_of_thread(index);
        for waiter in joiners {
            if self.threads[waiter.thread as usize].is_waiting(waiter, WaitKind::Join) {
                self.wake_thread(waiter.thread as usize, None);
            }
        }
    }

    /// Adds what a life used to its instance's statistics. `ready` is the part of its ready time that its account
    /// does not hold yet.
    pub(super) fn book_life(&mut self, index: usize, entity: &Entity, lag_ns: i64, ready: Nanos) {
        let now = self.now;
        let thread = &mut self.threads[index];
        let (account, stats) = (entity.account(), &mut thread.stats);
        stats.runtime_ns += account.runtime().get();
        stats.entitled_ns += account.runtime().get().saturating_add_signed(lag_ns);
        stats.ready_ns += (account.runnable_accumulated() + ready).get();
        stats.alive_ns += (now - thread.start).get();
        stats.preemptions += account.preemptions();
        stats.voluntary_blocks += account.voluntary_blocks();
        stats.migrations += account.migrations();
        stats.switches += account.switches();
        stats.weight = entity.weight().get();
    }
}
