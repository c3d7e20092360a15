//! What happens on one CPU: work done, reschedules, timers, and the decisions that follow.

use super::Machine;
use super::program::Progress;
use super::thread::{FOREVER, Home};
use crate::RunError;
use mainspring_abi::Nanos;
use mainspring_report::ScheduleEntry;
use mainspring_sched::{
    Decision, Dispatch, Entity, IdleConditions, Lag, State, Stop, TickMode, Via, WaitKind,
};

/// How many steps a CPU may take at one instant before that counts as a standstill.
const STANDSTILL: u32 = 100_000;

impl Machine<'_> {
    /// Handles the earliest thing that CPU `cpu` has to do at this instant.
    pub(super) fn cpu_event(&mut self, cpu: usize) {
        self.acting = Some(cpu);
        self.agenda.take_out(cpu);
        let lane = &self.lanes[cpu];
        if lane.done_at <= self.now {
            self.work_done(cpu);
        } else if lane.begin_at <= self.now {
            self.begin_to_compute(cpu);
        } else if lane.ipi_at <= self.now {
            self.reschedule_arrived(cpu);
        } else if lane.net_at <= self.now {
            self.poll_network(cpu);
        } else {
            self.timer_fired(cpu);
        }
    }

    fn work_done(&mut self, cpu: usize) {
        self.lanes[cpu].done_at = Nanos::MAX;
        if let Some(thread) = self.lanes[cpu].running {
            self.threads[thread as usize].remaining = Nanos::ZERO;
        }
        self.carry_on(cpu);
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

    fn timer_fired(&mut self, cpu: usize) {
        if self.delay_timer(cpu) {
            return;
        }
        let lane = &mut self.lanes[cpu];
        if lane.ipi_pending && lane.ipi_at == Nanos::MAX {
            // A lost reschedule is made up for here.
            lane.ipi_pending = false;
            self.mark_askable(cpu);
        }
        if self.leases.any() {
            self.attend_leases(cpu);
        }
        let outcome = self.core_timer(cpu);
        let tick_cost = if outcome.ticked { self.workload.costs.tick } else { Nanos::ZERO };
        self.interrupt(cpu, self.workload.costs.interrupt + tick_cost);
        while let Some(expired) = self.core_expire(cpu) {
            let thread = expired.thread.index() as usize;
            match expired.kind {
                WaitKind::Sleep => {}
                WaitKind::Call if self.drop_call(thread) => self.threads[thread].stats.dropped += 1,
                _ => self.threads[thread].stats.timeouts += 1,
            }
            match expired.kind {
                WaitKind::Join => self.give_up_join(thread),
                WaitKind::Ring => self.give_up_completions(thread),
                WaitKind::Sleep | WaitKind::Park | WaitKind::Call | WaitKind::Receive => {}
            }
            if expired.away.is_some() {
                if let Some(permit) = expired.woken.permit {
                    self.quota.give_back(permit);
                }
                self.time_out_on_loan(cpu, thread);
                continue;
            }
            self.note_woken(thread, expired.woken.permit);
            if !self.moves_on(thread) {
                self.kick(cpu, expired.woken.reschedule, thread, Some(cpu));
            }
        }
        if outcome.ticked {
            self.poll_network_on_tick(cpu);
        }
        self.stall(cpu);
        self.reconsider(cpu);
    }

    /// Takes `cost` from whatever CPU `cpu` is doing.
    pub(super) fn interrupt(&mut self, cpu: usize, cost: Nanos) {
        if cost.is_zero() || self.lanes[cpu].running.is_none() {
            return;
        }
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
            Some(thread) => match self.threads[thread as usize].remaining {
                FOREVER => Nanos::MAX,
                remaining => lane.work_from + remaining,
            },
            None => Nanos::MAX,
        };
        self.touch(cpu);
    }

    /// After an interrupt: another decision, if one is wanted or the CPU is idle.
    pub(super) fn reconsider(&mut self, cpu: usize) {
        if self.lanes[cpu].running.is_none() {
            self.look_for_work(cpu);
            self.carry_on(cpu);
        } else if self.cores[cpu].reschedule_wanted() {
            self.decide(cpu, Stop::Preempted);
            self.carry_on(cpu);
        }
    }

    /// Lets the running thread go on, and the next one, until one has work to do or the CPU is idle.
    pub(super) fn carry_on(&mut self, cpu: usize) {
        while let Some(thread) = self.lanes[cpu].running {
            if self.lanes[cpu].done_at != Nanos::MAX && self.lanes[cpu].done_at > self.now {
                return;
            }
            if self.stands_still(cpu, thread) {
                return;
            }
            match self.execute(cpu, thread as usize) {
                Progress::Compute => {
                    self.lanes[cpu].work_from = self.lanes[cpu].work_from.max(self.now);
                    self.expect_done(cpu);
                    if !self.cores[cpu].reschedule_wanted() {
                        return;
                    }
                    self.decide(cpu, Stop::Preempted);
                }
                Progress::Stop(stop) => self.decide(cpu, stop),
                Progress::Exit => self.exit(cpu),
                Progress::Call { timeout, server, request } => {
                    self.block_and_call(cpu, thread as usize, timeout, server, request);
                }
                Progress::Move(errand) => self.run_errand(cpu, thread as usize, errand),
                Progress::Lease(lease) => {
                    self.grant_lease(lease, Some(thread as usize));
                }
            }
        }
    }

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
        self.decide(cpu, Stop::Nothing);
    }

    /// The running thread stops as `stop` says, and another is chosen.
    pub(super) fn decide(&mut self, cpu: usize, stop: Stop) {
        let before = self.lanes[cpu].running;
        let reason = match &stop {
            Stop::Nothing => "",
            Stop::Preempted => "preempted",
            Stop::Yielded => "yielded",
            Stop::Blocked(..) => "blocked",
        };
        if let Some(thread) = before {
            self.pause_work(cpu);
            self.look_at_lag_of_stopping(cpu, thread);
        }
        let decision = self.core_resched(cpu, stop);
        let reason = if before.is_some_and(|thread| self.is_throttled(thread)) { "depleted" } else { reason };
        self.carry_out(cpu, before, reason, decision);
    }

    /// Whether `thread` waits for its context's next refill.
    fn is_throttled(&self, thread: u32) -> bool {
        let index = thread as usize;
        self.threads[index].pinned
            && self
                .place_of(index)
                .is_some_and(|(cpu, seat)| self.cores[cpu].state(seat) == Ok(State::Throttled))
    }

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
            self.decide(cpu, Stop::Nothing);
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
        let Some(victim) = self.board.victim(thief, &self.cores) else { return false };
        let Some(entity) = self.core_give(victim.index(), thief) else { return false };
        let thread = entity.thread().index() as usize;
        match self.core_accept(cpu, entity, Via::Steal) {
            Ok((seat, _)) => {
                self.threads[thread].home = Some(Home::new(cpu, seat));
                self.threads[thread].moved = true;
                self.decide(cpu, Stop::Nothing);
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
    fn begin(&mut self, cpu: usize, run: Dispatch) {
        let index = run.thread.index();
        self.mark_idle(cpu, false);
        if self.policy.as_ref().is_some_and(|policy| policy.listens_for(index as usize)) {
            self.policy_heard();
        }
        let costs = &self.workload.costs;
        let lane = &mut self.lanes[cpu];
        let thread = &mut self.threads[index as usize];
        let mut overhead = Nanos::ZERO;
        if run.switched {
            lane.segment_start = self.now;
            overhead += costs.switch;
        }
        if std::mem::take(&mut thread.moved) {
            overhead += costs.migration;
        }
        lane.running = Some(index);
        lane.work_from = if run.switched { self.now + overhead } else { lane.work_from.max(self.now) };
        let undecided = lane.work_from > self.now && thread.remaining.is_zero();
        let woken_at = std::mem::replace(&mut thread.woken_at, Nanos::MAX);
        if woken_at != Nanos::MAX {
            self.note_latency(index, self.now - woken_at);
        }
        if undecided {
            self.think_ahead(index as usize);
        }
        self.expect_done(cpu);
        self.ask_at_end_of_event(cpu);
        self.look_at_lag_of_chosen(cpu, index);
    }

    /// A thread's lag only grows while it waits and only shrinks while it runs, so its extremes are where it starts
    /// and stops. It shrinks by no more than it runs, so until it has run for long enough where it stops is no extreme.
    #[inline]
    fn look_at_lag_of_chosen(&mut self, cpu: usize, thread: u32) {
        let Some(lag) = self.cores[cpu].charged_lag() else { return };
        let greatest = &mut self.threads[thread as usize].lag_max;
        *greatest = lag.magnitude().max(*greatest);
        // Two nanoseconds for what is rounded.
        let unseen = greatest.get().saturating_add_signed(lag.as_nanos() - 2);
        self.lanes[cpu].lag_known_until = self.now + Nanos::new(unseen);
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
            let most = self.threads[thread as usize].lag_max + Nanos::new(1);
            debug_assert!(self.lag_of_current(cpu).is_none_or(|lag| lag <= most), "more than {most}");
        }
    }

    #[inline(never)]
    fn lag_of_current(&mut self, cpu: usize) -> Option<Nanos> {
        self.cores[cpu].current_lag(self.now).map(Lag::magnitude)
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
