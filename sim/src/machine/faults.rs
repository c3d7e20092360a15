//! What goes wrong, by seed: late timers, stalled CPUs, bursts of wakeups, threads that die.

use super::Machine;
use super::overhead::Cost;
use mainspring_abi::Nanos;
use mainspring_driver::placement;
use mainspring_sched::WaitKind;

impl Machine<'_> {
    /// Whether the timer interrupt that is due on `cpu` comes later instead. It is late once, then comes.
    pub(super) fn delay_timer(&mut self, cpu: usize) -> bool {
        let vcpu = &mut self.vcpus[cpu];
        if std::mem::take(&mut vcpu.timer_late) > Nanos::ZERO {
            return false;
        }
        let faults = &self.workload.faults;
        if !vcpu.random.chance(faults.late_timer_ppm) {
            return false;
        }
        vcpu.timer_late = self.now + vcpu.random.up_to(faults.late_timer_by);
        true
    }

    /// A reschedule of `cpu` that was lost is made up for by the timer interrupt that has come.
    pub(super) fn make_up_for_lost_reschedule(&mut self, cpu: usize) {
        let vcpu = &mut self.vcpus[cpu];
        if vcpu.ipi_pending && vcpu.ipi_at == Nanos::MAX {
            vcpu.ipi_pending = false;
            self.mark_askable(cpu);
        }
    }

    /// Perhaps stalls `cpu`: no interrupt is taken and no work is done for a while.
    pub(super) fn stall(&mut self, cpu: usize) {
        let faults = &self.workload.faults;
        let vcpu = &mut self.vcpus[cpu];
        if !vcpu.random.chance(faults.stall_ppm) {
            return;
        }
        let length = vcpu.random.up_to(faults.stall_for);
        vcpu.stalled_until = self.now + length;
        self.interrupt(cpu, Cost::Stall, length);
    }

    /// Wakes every sleeping or parked thread at once.
    pub(super) fn burst(&mut self) {
        for thread in 0..self.threads.len() {
            let wakes = matches!(self.threads[thread].wait, Some(WaitKind::Sleep | WaitKind::Park));
            if wakes && !self.sync.is_waiting(thread) {
                self.wake_thread(thread, None);
            }
        }
        let every = self.workload.faults.burst_every;
        self.next_burst = self.now + self.random.around(every);
    }

    /// Ends a random thread, wherever it is.
    pub(super) fn kill_one(&mut self) {
        let every = self.workload.faults.exit_every;
        self.next_exit = self.now + self.random.around(every);
        let first = self.random.below(self.threads.len().max(1) as u64) as usize;
        let order = (first..self.threads.len()).chain(0..first);
        let Some(victim) = order.into_iter().find(|index| self.threads[*index].home.is_some()) else {
            return;
        };
        self.kill(victim);
    }

    pub(super) fn kill(&mut self, victim: usize) {
        let Some(home) = self.threads[victim].home else { return };
        let (cpu, who) = (home.cpu.index(), self.threads[victim].identity);
        if self.vcpus[cpu].running == Some(victim as u32) {
            self.exit(cpu);
            self.carry_on(cpu);
        } else if let Some(removed) = placement::remove(self, who) {
            if let Some(permit) = removed.permit {
                self.quota.give_back(permit);
            }
            self.bury(victim, removed.entity);
        }
    }
}
