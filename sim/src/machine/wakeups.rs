//! Threads become ready, and CPUs hear of it: by the rules of [`placement`], with what a simulated message adds.

use super::Machine;
use mainspring_abi::Nanos;
use mainspring_driver::placement;
use mainspring_sched::WaitPermit;
use mainspring_sched::hint::unlikely;

impl Machine<'_> {
    /// What `thread` waited for has come; CPU `from`, if any, brought it.
    #[inline(always)]
    pub(super) fn wake_thread(&mut self, thread: usize, from: Option<usize>) {
        if unlikely(self.states.is_some()) {
            let by = from.and_then(|cpu| self.vcpus[cpu].running);
            self.note_waker(thread, by);
        }
        let thread = self.threads[thread].identity;
        let _woken = self.on_behalf_of(from, |machine| placement::wake(machine, thread));
    }

    /// The wait of `thread` is about to be ended by the thread `by`, if by any.
    #[cold]
    pub(super) fn note_waker(&mut self, thread: usize, by: Option<u32>) {
        if let (Some(states), Some(by)) = (&self.states, by) {
            states.borrow_mut().woken_by(thread as u32, by);
        }
    }

    /// What `thread` waited for has come from the running thread of `cpu`, which will wait in turn.
    pub(super) fn hand_over(&mut self, cpu: usize, thread: usize) {
        if unlikely(self.states.is_some()) {
            self.note_waker(thread, self.vcpus[cpu].running);
        }
        let thread = self.threads[thread].identity;
        let _woken = self.on_behalf_of(Some(cpu), |machine| placement::hand_over(machine, thread));
    }

    /// Does something without telling CPU `from`, which looks at its queue afterwards.
    #[inline(always)]
    pub(super) fn on_behalf_of<R>(&mut self, from: Option<usize>, act: impl FnOnce(&mut Self) -> R) -> R {
        let here = from.map(|cpu| self.cpu_id(cpu));
        let before = std::mem::replace(&mut self.here, here);
        let result = act(self);
        self.here = before;
        result
    }

    /// `thread`'s wait is over. One that was stopped in order to be moved has not waited.
    #[inline(always)]
    pub(super) fn note_woken(&mut self, thread: usize, permit: Option<WaitPermit>) {
        if let Some(permit) = permit {
            self.quota.give_back(permit);
        }
        let thread = &mut self.threads[thread];
        if thread.wait.take().is_some() {
            thread.woken_at = self.now;
            thread.wakeups += 1;
        }
    }

    /// Asks `cpu` to reschedule, unless it has been asked already; whether it was.
    pub(super) fn send_reschedule(&mut self, cpu: usize) -> bool {
        if self.vcpus[cpu].ipi_pending {
            self.sent.pending += 1;
            return false;
        }
        self.sent.sent += 1;
        let faults = &self.workload.faults;
        let vcpu = &mut self.vcpus[cpu];
        vcpu.ipi_pending = true;
        self.mark_askable(cpu);
        let vcpu = &mut self.vcpus[cpu];
        if vcpu.random.chance(faults.lost_reschedule_ppm) {
            // The sender cannot know. The next timer interrupt there finds the work.
            self.sent.lost += 1;
            return true;
        }
        let late = if vcpu.random.chance(faults.late_reschedule_ppm) {
            vcpu.random.up_to(faults.late_reschedule_by)
        } else {
            Nanos::ZERO
        };
        vcpu.ipi_at = self.now + self.workload.costs.ipi + late;
        self.touch(cpu);
        true
    }
}
