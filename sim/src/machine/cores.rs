//! The machine's way to its CPUs: which one is touched, room for its threads, and overruns that an event leaves behind.

use super::Machine;
use super::observer::Observer;
use crate::RunError;
use mainspring_abi::CpuId;
use mainspring_driver::RecordedCpu;
use mainspring_sched::context::Context;
use mainspring_sched::hint::unlikely;
use mainspring_sched::{
    Decision, Entity, NotBound, Refused, Removed, Seat, SeatError, Stop, Timeout, UnbindError, Via, WaitKind,
    Woken,
};

impl<'a> Machine<'a> {
    /// CPU `cpu`, to which something happens now.
    #[inline(always)]
    pub(super) fn core(&mut self, cpu: usize) -> RecordedCpu<'_, Observer<'a>> {
        self.touch(cpu);
        self.cores[cpu].at(self.now, &mut self.observer)
    }

    /// Before a thread comes to `cpu` or leaves it. Seats for all threads at once would do too, but hardly any CPU ever
    /// needs more than a few, and the tables of many CPUs stay close together if they are small.
    fn make_room(&mut self, cpu: usize) {
        let (core, threads) = (&mut self.cores[cpu], self.threads.len());
        if core.has_room() || core.capacity() >= threads {
            return;
        }
        if core.reserve(threads.min(2 * core.capacity())).is_err() {
            let cpus = self.cores.len();
            self.observer.trouble.get_or_insert(RunError::NoRoom { cpus, threads });
        }
    }

    #[inline(always)]
    pub(super) fn core_resched(&mut self, cpu: usize, stop: Stop) -> Decision {
        let decision = self.core(cpu).resched(stop);
        if unlikely(self.authority) {
            self.note_overrun(cpu);
        }
        decision
    }

    #[expect(clippy::result_large_err, reason = "a refusal gives the thread back, by value")]
    pub(super) fn core_accept(
        &mut self,
        cpu: usize,
        entity: Entity,
        via: Via,
    ) -> Result<(Seat, Woken), Refused> {
        self.make_room(cpu);
        self.core(cpu).accept(entity, via)
    }

    pub(super) fn core_exit_current(&mut self, cpu: usize) -> Option<Entity> {
        self.make_room(cpu);
        self.core(cpu).exit_current()
    }

    pub(super) fn core_remove(&mut self, cpu: usize, seat: Seat) -> Result<Removed, SeatError> {
        self.make_room(cpu);
        self.core(cpu).remove(seat)
    }

    pub(super) fn core_give(&mut self, cpu: usize, thief: CpuId) -> Option<Entity> {
        self.make_room(cpu);
        self.core(cpu).give(thief)
    }

    /// The running thread waits; the choice of the next comes later.
    pub(super) fn core_block_current(&mut self, cpu: usize, kind: WaitKind, timeout: Option<Timeout>) {
        let blocked = self.core(cpu).block_current(kind, timeout);
        debug_assert!(blocked, "somebody ran");
        self.note_overrun(cpu);
    }

    pub(super) fn core_bind(
        &mut self,
        cpu: usize,
        seat: Seat,
        context: Box<Context>,
    ) -> Result<bool, NotBound> {
        let bound = self.core(cpu).bind(seat, context);
        self.note_overrun(cpu);
        bound
    }

    pub(super) fn core_unbind(&mut self, cpu: usize, seat: Seat) -> Result<Box<Context>, UnbindError> {
        let taken = self.core(cpu).unbind(seat);
        self.note_overrun(cpu);
        taken
    }
}
