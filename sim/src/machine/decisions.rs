//! The decisions of a CPU: a thread stops, another is chosen and begins, or the CPU steals or is idle.

use super::Machine;
use super::foresight::think_ahead;
use super::overhead::Cost;
use super::pace::time_at;
use mainspring_abi::Nanos;
use mainspring_driver::placement;
use mainspring_report::ScheduleEntry;
use mainspring_sched::hint::{likely, unlikely};
use mainspring_sched::{Decision, Dispatch, IdleConditions, Lag, State, Stop};
use std::hint::cold_path;

impl Machine<'_> {
    /// Nothing runs on `cpu`, and a thread is chosen.
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
        let before = self.vcpus[cpu].running;
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
        let depleted = unlikely(self.authority) && before.is_some_and(|thread| self.is_throttled(thread));
        self.carry_out(cpu, before, if depleted { "depleted" } else { reason }, decision);
    }

    /// Whether `thread` waits for its context's next refill.
    fn is_throttled(&self, thread: u32) -> bool {
        let index = thread as usize;
        self.place_of(index).is_some_and(|(cpu, seat)| self.cores[cpu].state(seat) == Ok(State::Throttled))
    }

    #[inline(always)]
    fn carry_out(&mut self, cpu: usize, before: Option<u32>, reason: &'static str, decision: Decision) {
        match decision {
            Decision::Run(run) => {
                if before.is_some() && run.switched {
                    self.end_segment(cpu, reason);
                }
                self.begin(cpu, run);
                placement::share_leftovers(self, self.cpu_id(cpu));
            }
            Decision::Idle => {
                cold_path();
                if before.is_some() {
                    self.end_segment(cpu, reason);
                    if self.vcpus[cpu].work_from > self.now {
                        self.cut_costs(cpu);
                    }
                }
                self.vcpus[cpu].running = None;
                self.vcpus[cpu].done_at = Nanos::MAX;
                self.mark_idle(cpu, true);
                if !self.steal(cpu) {
                    self.go_idle(cpu);
                }
            }
        }
    }

    /// An idle CPU looks into its own queue, then into the others'.
    pub(super) fn look_for_work(&mut self, cpu: usize) {
        if self.cores[cpu].queued() > 0 {
            self.choose(cpu);
        } else if !self.steal(cpu) {
            self.go_idle(cpu);
        }
    }

    fn go_idle(&mut self, cpu: usize) {
        let conditions = IdleConditions { network: self.network_need(cpu), ..IdleConditions::default() };
        let _tick = self.core(cpu).enter_idle(&conditions);
    }

    /// Takes a thread from another CPU, if one has any to give, and runs it.
    fn steal(&mut self, cpu: usize) -> bool {
        let thief = self.cpu_id(cpu);
        if self.idle_count == self.cores.len() || placement::steal(self, thief, |_, _| ()).is_none() {
            return false;
        }
        self.choose(cpu);
        true
    }

    /// `run` has CPU `cpu` from now on.
    #[inline(always)]
    fn begin(&mut self, cpu: usize, run: Dispatch) {
        let index = run.thread.index();
        self.mark_idle(cpu, false);
        if unlikely(self.authority) {
            self.note_beginning(cpu, run);
        }
        if run.switched {
            self.switches[cpu] += 1;
            if unlikely(self.vcpus[cpu].work_from > self.now) {
                self.cut_costs(cpu);
            }
        }
        let far =
            if unlikely(self.nodes.is_some()) { self.cost_of_node(cpu, index as usize) } else { Nanos::ZERO };
        let costs = &self.workload.costs;
        let vcpu = &mut self.vcpus[cpu];
        let thread = &mut self.threads[index as usize];
        let moved = std::mem::take(&mut thread.moved);
        if run.switched {
            vcpu.work_from = self.now + costs.switch;
            if unlikely(moved) {
                let cost = costs.migration + far;
                if !cost.is_zero() {
                    self.overheads[cpu].add(Cost::Migration, cost, self.now, vcpu.work_from);
                    vcpu.work_from += cost;
                }
            }
        } else {
            vcpu.work_from = vcpu.work_from.max(self.now);
        }
        if self.foresight && vcpu.work_from > self.now && thread.remaining.is_zero() {
            think_ahead(thread, &self.script);
        }
        vcpu.running = Some(index);
        vcpu.done_at = vcpu.work_from + time_at(self.paces.as_ref(), cpu, thread.remaining);
        if let Some(lag) = self.cores[cpu].charged_lag() {
            // A thread's lag only grows while it waits and only shrinks while it runs, so its extremes are where it
            // starts and stops. It shrinks by no more than it runs, so until it has run for long enough where it stops
            // is no extreme. Two nanoseconds for what is rounded.
            thread.lag_max = thread.lag_max.max(lag.abs());
            let unseen = Nanos::new((thread.lag_max + lag).as_nanos() as u64);
            vcpu.lag_known_until = self.now + (unseen - Nanos::new(2));
        }
        let woken_at = std::mem::replace(&mut thread.woken_at, Nanos::MAX);
        let begins = std::mem::take(&mut thread.job_waits);
        if woken_at != Nanos::MAX {
            self.note_latency(index, self.now - woken_at);
        }
        if unlikely(begins) {
            self.begin_job(index as usize);
        }
        self.touch(cpu);
    }

    #[inline(never)]
    fn note_beginning(&mut self, cpu: usize, run: Dispatch) {
        if run.switched {
            self.vcpus[cpu].segment_start = self.now;
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
        if unlikely(self.authority || self.now > self.vcpus[cpu].lag_known_until) {
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
    pub(super) fn mark_idle(&mut self, cpu: usize, idle: bool) {
        if likely(self.vcpus[cpu].idle == idle) {
            return;
        }
        self.vcpus[cpu].idle = idle;
        self.idle_count = if idle { self.idle_count + 1 } else { self.idle_count - 1 };
        self.mark_askable(cpu);
        if unlikely(self.paces.is_some()) {
            self.change_pace(cpu);
        }
    }

    /// Keeps account of whether `cpu` is idle and has not been asked to reschedule.
    pub(super) fn mark_askable(&mut self, cpu: usize) {
        let askable = self.vcpus[cpu].idle && !self.vcpus[cpu].ipi_pending && !self.leases.is_leased(cpu);
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
        if unlikely(self.schedule.is_some()) {
            self.list_segment(cpu, reason);
        }
    }

    fn list_segment(&mut self, cpu: usize, reason: &str) {
        let Some(thread) = self.vcpus[cpu].running else { return };
        let entry = ScheduleEntry {
            cpu: cpu as u32,
            thread: self.thread_name(thread as usize),
            start_ns: self.vcpus[cpu].segment_start.get(),
            end_ns: self.now.get(),
            reason: reason.to_owned(),
        };
        if let Some(schedule) = &mut self.schedule
            && entry.start_ns < entry.end_ns
        {
            schedule.push(entry);
        }
    }
}
