//! Mutexes, semaphores, barriers and conditions of the virtual machine.
//!
//! A wait is a park of the core's; which object it is at, [`SyncObjects`] knows.
//!
//! Conserved: the objects are in their place whenever a step, an end or a timeout of a thread is not being dealt with.

use super::Machine;
use super::program::Done;
use mainspring_abi::{Nanos, Weight};
use mainspring_driver::placement;
use mainspring_program::{Came, GivenUp, SyncMachine, SyncObjects};
use mainspring_report::SyncReport;
use mainspring_sched::WaitKind;
use mainspring_workload::Step;

/// What an operation on the objects does to threads, from a CPU if a thread of that does it.
struct OnThreads<'m, 'w> {
    machine: &'m mut Machine<'w>,
    cpu: Option<usize>,
}

impl SyncMachine for OnThreads<'_, '_> {
    fn now(&self) -> Nanos {
        self.machine.now
    }

    fn wake(&mut self, thread: usize) {
        self.machine.wake_thread(thread, self.cpu);
    }

    fn weight_of(&self, thread: usize) -> Option<Weight> {
        let home = self.machine.threads[thread].home?;
        self.machine.cores[home.cpu.index()].entity(home.seat).ok().map(|entity| entity.weight())
    }

    fn set_weight(&mut self, thread: usize, weight: Weight) {
        let identity = self.machine.threads[thread].identity;
        // One that has ended meanwhile weighs nothing.
        let _set = placement::set_weight(&mut *self.machine, identity, weight);
    }
}

impl<'w> Machine<'w> {
    fn with_sync<R>(
        &mut self,
        cpu: Option<usize>,
        operate: impl FnOnce(&mut SyncObjects, &mut OnThreads<'_, 'w>) -> R,
    ) -> R {
        let mut sync = std::mem::take(&mut self.sync);
        let result = operate(&mut sync, &mut OnThreads { machine: self, cpu });
        self.sync = sync;
        result
    }

    /// A step of `thread`, which has `cpu`, at one of the objects. If it waits, then until `until` at the latest.
    pub(super) fn sync_step(&mut self, cpu: usize, thread: usize, step: &Step, until: Option<Nanos>) -> Done {
        match self.with_sync(Some(cpu), |sync, threads| sync.step(thread, step, threads)) {
            Came::Through => Done::Next,
            Came::Refused => {
                self.refuse_step(thread, "the object is not the thread's to release");
                Done::Next
            }
            Came::Waits => {
                self.begin_wait(thread);
                let waits = self.block(thread, WaitKind::Park, until);
                if matches!(waits, Done::Stay(_)) {
                    self.with_sync(Some(cpu), |sync, threads| sync.begin_wait(thread, threads));
                } else {
                    self.sync.refuse_wait(thread);
                }
                waits
            }
        }
    }

    /// What `thread` waited for has not come in time.
    pub(super) fn give_up_sync(&mut self, thread: usize) {
        if self.with_sync(None, |sync, threads| sync.give_up(thread, threads))
            == Some(GivenUp::TakesStepAgain)
        {
            self.retake(thread);
        }
    }

    /// `thread` has ended: it waits no more, and what it held goes on.
    pub(super) fn end_sync_of(&mut self, thread: usize) {
        if !self.sync.is_empty() {
            self.with_sync(None, |sync, threads| sync.end(thread, threads));
        }
    }

    /// The weight that a `weight` step sets, if the thread is lent others' at the moment; then it counts afterwards.
    pub(super) fn weight_for_later(&mut self, thread: usize, weight: Weight) -> bool {
        !self.sync.is_empty()
            && self.with_sync(None, |sync, threads| sync.set_own_weight(thread, weight, threads))
    }

    /// One row per object.
    pub(super) fn sync_reports(&self) -> Vec<SyncReport> {
        self.workload
            .sync
            .iter()
            .zip(self.sync.stats())
            .map(|(spec, stats)| SyncReport::new(&spec.name, spec.kind, stats))
            .collect()
    }

    /// Threads that wait for mutexes in a circle, in words.
    pub(super) fn sync_notices(&self) -> Vec<String> {
        let circles = self.sync.deadlocks();
        circles
            .iter()
            .map(|circle| self.workload.describe_deadlock(circle, |thread| self.thread_name(thread)))
            .collect()
    }
}
