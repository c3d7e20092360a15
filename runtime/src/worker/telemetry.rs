//! What others see of a worker's work: samples of how long tasks run and wait, and the span and the record of the current task.

use super::Worker;
use super::turn::After;
use crate::foreign::tell_subscriber;
use crate::task::TaskPtr;
use crate::task::state::TaskState;
use std::ptr::null;

impl Worker {
    /// The sampled run is over.
    #[cold]
    pub(super) fn end_sample(&self) {
        let began = self.run_began_ns.replace(0);
        let now_ns = self.rt().timers.now_ns();
        self.my_share().looks_up(now_ns);
        self.note_spawned();
        self.my_share().yield_gap.record(now_ns.saturating_sub(began));
    }

    /// The worker is about to sleep.
    pub(super) fn note_park(&self) {
        self.my_share().parks();
        self.note_spawned();
    }

    fn note_spawned(&self) {
        // The rest of an id is the worker.
        self.my_share().has_spawned(self.next_id.get() & ((1 << 44) - 1));
    }

    #[cold]
    pub(super) fn begin_wake_sample(&self, task: TaskPtr) {
        self.samples_wake.set(false);
        self.picks_left.disturb();
        self.sampled_wake.set((task.raw(), self.rt().timers.now_ns()));
    }

    /// The task whose wake was sampled runs.
    #[cold]
    pub(super) fn end_wake_sample(&self) {
        let (_, woken) = self.sampled_wake.replace((null(), 0));
        let now_ns = self.rt().timers.now_ns();
        self.my_share().wake_latency.record(now_ns.saturating_sub(woken));
    }

    /// Leaves the span and the record of the task that ran, and enters those of the task that is about to run.
    #[cold]
    #[inline(never)]
    pub(super) fn enter_span(&self, task: TaskPtr) {
        self.running.go_on(&task, self.rt());
        self.leave_span();
        if let Some(spans) = &self.rt().spans {
            *self.entered.borrow_mut() = tell_subscriber(|| spans.of(task).entered());
        }
    }

    /// The thread goes on with something else.
    #[inline]
    pub(super) fn exit_span(&self) {
        if self.traces {
            self.leave_record();
            self.leave_span();
        }
    }

    fn leave_span(&self) {
        // Dropped outside of the borrow: a subscriber may do much then.
        let left = self.entered.borrow_mut().take();
        tell_subscriber(|| drop(left));
    }

    /// The current task is about to wait: from then on another thread may go on with it.
    #[inline(always)]
    pub(super) fn leave_record(&self) {
        self.running.leave(self.rt());
    }

    /// The task is over, whether it runs here or never ran.
    #[inline]
    pub(super) fn close_span(&self, task: TaskPtr) {
        if !self.traces {
            return;
        }
        if std::ptr::eq(self.current.get(), task.raw()) {
            self.exit_span();
        }
        task.mark.end(self.rt());
        if let Some(spans) = &self.rt().spans {
            spans.close(task);
        }
    }

    /// The task whose own code runs here. `None` while the worker is between two tasks: destructors of a task that never ran
    /// are called there too, on the stack of one that is about to wait.
    pub(crate) fn running_task(&self) -> Option<TaskPtr> {
        let task = TaskPtr::from_raw(self.current.get())?;
        let runs = task.state.get() == TaskState::Running && matches!(self.after.get(), After::Nothing);
        runs.then_some(task)
    }
}
