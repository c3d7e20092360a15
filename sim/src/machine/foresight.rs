//! A step that is taken before its time.
//!
//! A thread that gets a CPU takes its next step when the switch is over. If it only computes then, no other thread can
//! tell whether it took the step earlier. So it takes the step as soon as it is chosen, and its CPU has one event
//! less.
//!
//! With one exception: a thread that begins to compute gives way if a reschedule is wanted by then. So while one is
//! wanted, the end of the switch is an event after all.

use super::script::{Op, Script};
use super::thread::Thread;
use super::{Machine, VirtualCpu};
use crate::tournament::keyed;
use mainspring_abi::Nanos;
use mainspring_workload::Faults;

/// Whether threads may think ahead: not if one may end, or its CPU stall, between the thought and the act.
pub(super) fn is_safe(faults: &Faults) -> bool {
    faults.stall_ppm == 0 && faults.exit_every.is_zero()
}

/// Takes the next step of `thread`, which waits for the end of a switch, if it is to compute.
#[inline(always)]
pub(super) fn think_ahead(thread: &mut Thread, script: &Script<'_>) {
    let (mut pc, mut op) = (thread.pc, script.at(thread.pc));
    // Where rounds are counted, whether there is another is for the program to say.
    if let Op::Again { first, times: None } = op {
        (pc, op) = (first, script.at(first));
    }
    if let Op::Run(range) = op {
        thread.pc = pc + 1;
        thread.remaining = thread.random.pick(range);
        thread.ahead = !thread.remaining.is_zero();
    }
}

impl Machine<'_> {
    /// When the thread that has `cpu` will begin to compute, if it thought ahead and that is still to come.
    pub(super) fn beginning(&self, cpu: usize) -> Nanos {
        let &VirtualCpu { running, work_from, .. } = &self.vcpus[cpu];
        let ahead = running.is_some_and(|thread| self.threads[thread as usize].ahead);
        // At one instant CPUs have their turns in order, after whatever comes from outside.
        let to_come = work_from >= self.now && keyed(work_from.get(), cpu) > self.turn;
        if ahead && to_come { work_from } else { Nanos::MAX }
    }

    /// The thread that has `cpu` begins to compute while a reschedule is wanted.
    pub(super) fn begin_to_compute(&mut self, cpu: usize) {
        self.preempt(cpu);
        self.carry_on(cpu);
    }
}
