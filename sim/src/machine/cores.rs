//! The machine's way to its CPUs: which one is touched, room for its threads, and overruns that an event leaves behind.

use super::Machine;
use super::observer::Observer;
use mainspring_driver::RecordedCpu;
use mainspring_sched::hint::unlikely;
use mainspring_sched::{Decision, Stop, Timeout, WaitKind};

impl<'a> Machine<'a> {
    /// CPU `cpu`, to which something happens now.
    #[inline(always)]
    pub(super) fn core(&mut self, cpu: usize) -> RecordedCpu<'_, Observer<'a>> {
        self.touch(cpu);
        self.cores[cpu].at(self.now, &mut self.observer)
    }

    #[inline(always)]
    pub(super) fn core_resched(&mut self, cpu: usize, stop: Stop) -> Decision {
        let decision = self.core(cpu).resched(stop);
        if unlikely(self.authority) {
            self.note_overrun(cpu);
        }
        decision
    }

    /// The running thread waits; the choice of the next comes later.
    pub(super) fn core_block_current(&mut self, cpu: usize, kind: WaitKind, timeout: Option<Timeout>) {
        let blocked = self.core(cpu).block_current(kind, timeout);
        debug_assert!(blocked, "a thread ran");
        self.note_overrun(cpu);
    }
}
