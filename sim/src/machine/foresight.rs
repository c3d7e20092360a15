//! A step that is taken before its time.
//!
//! A thread that gets a CPU takes its next step when the switch is over. If all it does then is to compute, nobody can
//! tell whether it made up its mind earlier, so it does as soon as it is chosen, and its CPU has one event less.
//!
//! With one exception: a thread that begins to compute gives way if a reschedule is wanted by then. So while one is
//! wanted, the end of the switch is an event after all.

use super::{Lane, Machine};
use crate::tournament::keyed;
use mainspring_abi::Nanos;
use mainspring_sched::Stop;
use mainspring_workload::{Faults, Step};

/// Whether threads may think ahead: not if one may end, or its CPU stall, between the thought and the act.
pub(super) fn is_safe(faults: &Faults) -> bool {
    faults.stall_ppm == 0 && faults.exit_every.is_zero()
}

impl Machine<'_> {
    /// Takes the next step of `thread`, which waits for the end of a switch, if it is to compute.
    pub(super) fn think_ahead(&mut self, thread: usize) {
        if !self.foresight {
            return;
        }
        let thread = &mut self.threads[thread];
        let spec = &self.workload.threads[thread.spec as usize];
        // Whether there is another round is for the program to say.
        let over = thread.pc as usize == spec.program.len() && spec.times.is_none();
        let pc = if over { 0 } else { thread.pc };
        if let Some(&Step::Run(span)) = spec.program.get(pc as usize) {
            thread.pc = pc + 1;
            thread.rounds += u64::from(over);
            thread.remaining = thread.random.draw(span);
            thread.ahead = !thread.remaining.is_zero();
        }
    }

    /// When the thread that has `cpu` will begin to compute, if it thought ahead and that is still to come.
    pub(super) fn beginning(&self, cpu: usize) -> Nanos {
        let &Lane { running, work_from, .. } = &self.lanes[cpu];
        let ahead = running.is_some_and(|thread| self.threads[thread as usize].ahead);
        // At one instant CPUs have their turns in order, after whatever comes from outside.
        let to_come = work_from >= self.now && keyed(work_from.get(), cpu) > self.turn;
        if ahead && to_come { work_from } else { Nanos::MAX }
    }

    /// The thread that has `cpu` begins to compute while a reschedule is wanted.
    pub(super) fn begin_to_compute(&mut self, cpu: usize) {
        self.decide(cpu, Stop::Preempted);
        self.carry_on(cpu);
    }
}
