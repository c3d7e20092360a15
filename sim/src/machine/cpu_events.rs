//! What happens on one CPU: work done, reschedules, timers, and the ends of lives.

use super::overhead::Cost;
use super::pace::time_at;
use super::thread::FOREVER;
use super::{Machine, VirtualCpu};
use crate::RunError;
use mainspring_abi::Nanos;
use mainspring_driver::placement;
use mainspring_sched::hint::{likely, unlikely};
use mainspring_sched::{Entity, TickMode, WaitKind};

/// How many steps a CPU may take at one instant before that counts as a standstill.
const STANDSTILL: u32 = 1_000_000;

impl Machine<'_> {
    /// Handles the earliest thing that CPU `cpu` has to do at this instant.
    #[inline(always)]
    pub(super) fn cpu_event(&mut self, cpu: usize) {
        self.acting = Some(cpu);
        self.here = Some(self.cpu_id(cpu));
        self.agenda.take_out(cpu);
        self.steal_offers.touch(cpu);
        let vcpu = &mut self.vcpus[cpu];
        if vcpu.done_at <= self.now {
            if unlikely(self.disturbed) {
                self.overheads[cpu].stall(self.now - vcpu.done_at);
            }
            vcpu.done_at = Nanos::MAX;
            if let Some(thread) = vcpu.running {
                self.threads[thread as usize].remaining = Nanos::ZERO;
            }
            self.carry_on(cpu);
        } else if unlikely(vcpu.begin_at <= self.now) {
            self.begin_to_compute(cpu);
        } else if unlikely(vcpu.ipi_at <= self.now) {
            self.reschedule_arrived(cpu);
        } else if unlikely(self.disturbed && vcpu.net_at <= self.now) {
            self.poll_network(cpu);
        } else {
            self.timer_fired(cpu);
        }
    }

    fn reschedule_arrived(&mut self, cpu: usize) {
        self.vcpus[cpu].ipi_at = Nanos::MAX;
        self.vcpus[cpu].ipi_pending = false;
        self.mark_askable(cpu);
        let tickless = matches!(self.cores[cpu].tick_mode(), TickMode::TicklessLease { .. });
        if self.leases.any() {
            self.attend_leases(cpu);
        }
        let core = &self.cores[cpu];
        let work = core.queued() > 0 || core.reschedule_wanted() || core.current().is_none();
        // A CPU that has proved its window again has only been asked whether it still can.
        if work || !tickless {
            self.core(cpu).reschedule_received();
        }
        self.interrupt(cpu, Cost::Interrupt, self.workload.costs.interrupt);
        self.reconsider(cpu);
    }

    #[inline(always)]
    fn timer_fired(&mut self, cpu: usize) {
        if unlikely(self.disturbed) {
            if self.delay_timer(cpu) {
                return;
            }
            self.make_up_for_lost_reschedule(cpu);
        }
        if unlikely(self.authority && self.leases.any()) {
            self.attend_leases(cpu);
        }
        let outcome = self.core(cpu).timer();
        let costs = &self.workload.costs;
        self.interrupt(cpu, Cost::Interrupt, costs.interrupt);
        if unlikely(outcome.ticked) {
            self.interrupt(cpu, Cost::Tick, costs.tick);
        }
        placement::expire(self, self.cpu_id(cpu), u32::MAX);
        if unlikely(outcome.ticked) {
            self.poll_network_on_tick(cpu);
        }
        if unlikely(self.disturbed) {
            self.stall(cpu);
        }
        self.reconsider(cpu);
    }

    /// What `thread` waited for has not come in time.
    #[inline(never)]
    pub(super) fn time_out(&mut self, thread: usize, kind: WaitKind) {
        if kind == WaitKind::Call && self.drop_call(thread) {
            self.threads[thread].stats.dropped += 1;
        } else {
            self.threads[thread].stats.timeouts += 1;
        }
        match kind {
            WaitKind::Join => self.give_up_join(thread),
            WaitKind::Ring => self.give_up_completions(thread),
            WaitKind::Call => self.give_up_call(thread),
            WaitKind::Park => self.give_up_sync(thread),
            WaitKind::Sleep | WaitKind::Receive => {}
        }
    }

    /// Takes `time` from whatever CPU `cpu` is doing.
    #[inline]
    pub(super) fn interrupt(&mut self, cpu: usize, cost: Cost, time: Nanos) {
        if unlikely(!time.is_zero() && self.vcpus[cpu].running.is_some()) {
            self.hold_up(cpu, cost, time);
        }
    }

    fn hold_up(&mut self, cpu: usize, cost: Cost, time: Nanos) {
        self.pause_work(cpu);
        self.book_cost(cpu, cost, time);
        let vcpu = &mut self.vcpus[cpu];
        vcpu.work_from = vcpu.work_from.max(self.now) + time;
        self.expect_done(cpu);
    }

    /// Books the work that the running thread has done so far.
    pub(super) fn pause_work(&mut self, cpu: usize) {
        if unlikely(self.paces.is_some()) {
            return self.pause_work_at_pace(cpu);
        }
        let vcpu = &mut self.vcpus[cpu];
        let Some(thread) = vcpu.running else { return };
        let thread = &mut self.threads[thread as usize];
        if thread.remaining != FOREVER {
            if unlikely(self.disturbed) {
                self.overheads[cpu].stall(self.now - vcpu.work_from - thread.remaining);
            }
            thread.remaining = thread.remaining - (self.now - vcpu.work_from);
        }
        thread.ahead &= self.now < vcpu.work_from;
        vcpu.work_from = vcpu.work_from.max(self.now);
    }

    /// When the running thread's step will be done, if nothing comes between.
    #[inline]
    pub(super) fn expect_done(&mut self, cpu: usize) {
        let vcpu = &mut self.vcpus[cpu];
        vcpu.done_at = match vcpu.running {
            Some(thread) => {
                let remaining = self.threads[thread as usize].remaining;
                vcpu.work_from + time_at(self.paces.as_ref(), cpu, remaining)
            }
            None => Nanos::MAX,
        };
        self.touch(cpu);
    }

    /// After an interrupt: another decision, if one is wanted or the CPU is idle.
    #[inline(always)]
    pub(super) fn reconsider(&mut self, cpu: usize) {
        if unlikely(self.vcpus[cpu].running.is_none()) {
            self.look_for_work(cpu);
            self.carry_on(cpu);
        } else if unlikely(self.cores[cpu].reschedule_wanted()) {
            self.preempt(cpu);
            self.carry_on(cpu);
        }
    }

    /// Lets the running thread go on, and the next one, until one has work to do or the CPU is idle.
    pub(super) fn carry_on(&mut self, cpu: usize) {
        while let VirtualCpu { running: Some(thread), done_at, .. } = self.vcpus[cpu] {
            if done_at != Nanos::MAX && done_at > self.now || self.stands_still(cpu, thread) {
                return;
            }
            let index = thread as usize;
            let thread = &mut self.threads[index];
            if likely(thread.remaining.is_zero()) {
                thread.ahead = false;
                self.take_step(cpu, index);
                continue;
            }
            self.vcpus[cpu].work_from = self.vcpus[cpu].work_from.max(self.now);
            self.expect_done(cpu);
            if !self.cores[cpu].reschedule_wanted() {
                return;
            }
            self.preempt(cpu);
        }
    }

    #[inline(always)]
    fn stands_still(&mut self, cpu: usize, thread: u32) -> bool {
        let vcpu = &mut self.vcpus[cpu];
        if likely(vcpu.standstill_at != self.now) {
            vcpu.standstill_at = self.now;
            vcpu.standstill = 0;
        }
        vcpu.standstill += 1;
        if likely(vcpu.standstill < STANDSTILL) {
            return false;
        }
        let thread = self.thread_name(thread as usize);
        self.observer.trouble.get_or_insert(RunError::Standstill { at: self.now, thread });
        true
    }

    /// The running thread of `cpu` ends.
    pub(super) fn exit(&mut self, cpu: usize) {
        let Some(thread) = self.vcpus[cpu].running else { return };
        self.look_at_lag_of_stopping(cpu, thread);
        self.end_segment(cpu, "exited");
        let id = self.cpu_id(cpu);
        let Some(entity) = placement::exit_current(self, id) else { return };
        if unlikely(self.vcpus[cpu].work_from > self.now) {
            // It was ended by others.
            self.cut_costs(cpu);
        }
        self.vcpus[cpu].running = None;
        self.vcpus[cpu].done_at = Nanos::MAX;
        self.mark_idle(cpu, true);
        self.bury(thread as usize, entity);
        self.choose(cpu);
    }

    pub(super) fn thread_name(&self, index: usize) -> String {
        let spec = self.threads[index].spec as usize;
        self.workload.threads[spec].instance_name(index - self.numbers.first(spec))
    }

    /// Records the end of a life and wakes the threads that waited for it.
    pub(super) fn bury(&mut self, index: usize, entity: Entity) {
        // One that is ended by others may be ready.
        let ready = entity.ready_since().map_or(Nanos::ZERO, |since| self.now - since);
        self.book_life(index, &entity, entity.lag().as_nanos(), ready);
        self.end_jobs(index, false);
        let thread = &mut self.threads[index];
        if thread.wait.take() == Some(WaitKind::Call) {
            self.give_up_call(index);
        }
        let thread = &mut self.threads[index];
        let joiners = std::mem::take(&mut thread.joiners);
        let ended = thread.identity;
        if let Some(next) = thread.identity.successor() {
            thread.identity = next;
        }
        self.call_authority_in(entity);
        self.policy_outlives(index, ended);
        self.fail_requests_of(index);
        self.end_leases_of_thread(index, ended);
        self.end_rings_of_thread(index);
        self.end_sync_of(index);
        for waiter in joiners {
            if self.threads[waiter.thread as usize].is_waiting(waiter, WaitKind::Join) {
                self.note_waker(waiter.thread as usize, Some(index as u32));
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
