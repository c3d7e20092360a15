//! How a worker goes from one task to the next.
//!
//! Conserved: a context is gone on with once after it was saved. What must not happen before a stack has been left (queueing
//! its task, committing its wait, unmapping it) is noted, and done by the context that runs next on the worker.
#![allow(unsafe_code)]

use super::discipline::Discipline;
use super::{SLOT_STREAK, Worker, finish};
use crate::protocol::bias::Section;
use crate::protocol::roster::may_stay_asleep;
use crate::quota;
use crate::stack::arena::{self, Stack};
use crate::stack::switch::{prepare, switch};
use crate::task::state::{Committed, Event};
use crate::task::{Runnable, Task, TaskPtr, WaitReason};
use std::ptr::null;
use std::sync::atomic::Ordering;

/// What to do for the task that was left, once its stack is no longer in use.
#[derive(Clone, Copy, Debug)]
pub(super) enum After {
    Nothing,
    /// It waits, and was left inside a section, which is to end.
    Leave,
    /// It waits.
    Wait(TaskPtr, Event),
    /// It yielded, and is to be queued.
    Queue(TaskPtr),
    /// It ended on a stack of its own.
    Unmap(Stack),
}

/// What a worker learns when its own stack runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Back {
    /// Nothing is left to run here.
    Idle = 0,
    /// The task that ran used more stack than it has.
    Overflow = 1,
    /// The task that ran took the worker down with it.
    Kill = 2,
}

/// What a task is handed that goes on: something may be noted for the context that was left. To a worker's own context the same says
/// that nothing is left to run.
const LOOK: usize = Back::Idle as usize;
/// Nothing is noted.
const NOTHING_NOTED: usize = 1;

/// Leaves the stack of `task` for `context`. Returns when the task goes on, with what was noted done.
///
/// # Safety
///
/// As for [`switch`]. The task is the one that runs, and what is `handed` is true.
#[inline(always)]
unsafe fn go_over(task: &Task, context: usize, handed: usize) {
    // SAFETY: as the caller promises.
    if unsafe { switch(task.sp.as_ptr(), context, handed) } == LOOK {
        task.worker().finish_switch();
    }
}

impl Worker {
    /// The current task gives way to others that are ready here. It stays Ready.
    #[inline(always)]
    pub(crate) fn yield_now(&self, task: &Task) {
        match self.take_turns(task) {
            Some(next) => {
                // SAFETY: the context of a task that was Ready and is now this worker's; it goes on once.
                unsafe { go_over(task, next.sp.get(), NOTHING_NOTED) };
            }
            None => self.yield_carefully(task),
        }
    }

    /// The usual yield: the worker has nothing to do but the tasks in its line, which take turns. `None` if it has, and then
    /// nothing has changed.
    #[inline(always)]
    fn take_turns(&self, task: &Task) -> Option<TaskPtr> {
        let other_business = !self.picks_left.goes_round()
            || !self.slot.is_empty()
            || self.has_mail()
            || self.line.movable() != 0 && self.rt().idle_workers.sleeping() != 0;
        if other_business {
            return None;
        }
        debug_assert!(!self.has_other_business(), "a line that goes round was not disturbed");
        // SAFETY: the caller does nothing but switch. Until then this thread alone sees the line.
        let left = || unsafe { Runnable::left(TaskPtr::of(task)) };
        // For one that has started, and may move or stays, as the task itself.
        let instead_of = |next: TaskPtr| task.state.give_turn(&next.state).then(left);
        // SAFETY: a step of two states does not use the line.
        let next = unsafe { self.line.rotate(instead_of) }?;
        self.picks_left.count_one();
        self.claim_home(next);
        self.note_running(next);
        Some(next)
    }

    #[inline(never)]
    fn yield_carefully(&self, task: &Task) {
        self.report_tally();
        let queue = After::Queue(TaskPtr::of(task));
        if self.chooses_on_own_stack() {
            self.bill(task);
            task.mark.yielded(self.rt());
            task.state.step(Event::Yield);
            return self.leave_to_worker(task, queue);
        }
        let Some(next) = self.next_local() else {
            // No other task is ready: it goes on, with a new turn.
            return self.begin_turn();
        };
        task.mark.yielded(self.rt());
        task.state.step(Event::Yield);
        self.leave(task, queue, Some(next));
    }

    /// The current task waits until woken. It has told its waker.
    pub(crate) fn block(&self, task: &Task, reason: WaitReason) {
        task.home.move_out();
        self.block_at_home(task, reason);
    }

    /// As [`Worker::block`]: the task's waker is most likely on this worker.
    pub(crate) fn block_at_home(&self, task: &Task, reason: WaitReason) {
        self.report_tally();
        if task.has_quota() {
            quota::pause(task);
        }
        task.wait_reason.store(reason as u8, Ordering::Relaxed);
        if !task.listed.load(Ordering::Relaxed) {
            task.nursery().enlist(task);
        }
        self.bill(task);
        let event = if reason == WaitReason::Budget { Event::Exhaust } else { Event::Block };
        let wait = After::Wait(TaskPtr::of(task), event);
        if let Some(next) = self.take_woken() {
            self.after.set(wait);
            // SAFETY: the context of a task that was Ready and is now this worker's; it goes on once.
            unsafe { go_over(task, next.sp.get(), LOOK) };
        } else if self.is_virtual || self.discipline.tasks().is_some() || self.owes_turn.get() {
            self.leave_to_worker(task, wait);
        } else {
            self.leave(task, wait, self.next_local());
        }
        task.wait_reason.store(WaitReason::None as u8, Ordering::Relaxed);
    }

    /// The current task waits for something of this worker's own, and the task that it woke goes on. The worker is inside,
    /// and stays so until the stack has been left: no other thread can have the task before. True when the task has been
    /// woken, and the section is over; false if the worker has something else to do, and then nothing has changed.
    #[inline(always)]
    pub(crate) fn hand_over(&self, task: &Task, section: &Section<'_>, reason: WaitReason) -> bool {
        let Some(next) = self.woken_next() else { return false };
        if !next.home.is_here(section)
            || self.has_tally()
            || !task.listed.load(Ordering::Relaxed)
            || task.has_quota()
        {
            return false;
        }
        let is_wanted =
            || (!may_stay_asleep(task) || task.scope_failed.load(Ordering::SeqCst)) && !task.mask.is_set();
        if !task.state.wait_inside(&task.home, section, is_wanted) {
            return false;
        }
        task.wait_reason.store(reason as u8, Ordering::Relaxed);
        self.after.set(After::Leave);
        self.take_slot();
        self.begin(next);
        // SAFETY: the context of a task that was Ready and is now this worker's; it goes on once.
        unsafe { go_over(task, next.sp.get(), LOOK) };
        task.wait_reason.store(WaitReason::None as u8, Ordering::Relaxed);
        true
    }

    /// The usual next task after one that waits: the one that it woke. `None` if the worker has something else to do.
    #[inline(always)]
    fn woken_next(&self) -> Option<TaskPtr> {
        let next = self.slot.peek().filter(|next| next.is_started())?;
        let other_business = !self.is_plain
            || self.picks_left.get() == 0
            || self.run_began_ns.get() != 0
            || self.slot_streak.get() + 1 >= SLOT_STREAK && (self.has_spawned() || !self.line.is_empty());
        if other_business { None } else { Some(next) }
    }

    /// Takes the task that [`Worker::woken_next`] has named.
    #[inline(always)]
    fn take_slot(&self) {
        self.picks_left.count_one();
        self.slot_streak.set((self.slot_streak.get() + 1) % SLOT_STREAK);
        self.slot.0.set(None);
    }

    #[inline(always)]
    fn take_woken(&self) -> Option<TaskPtr> {
        let next = self.woken_next()?;
        self.take_slot();
        self.dispatch_plainly(next);
        Some(next)
    }

    /// Leaves the stack of `task` for `next`, or for the worker's own; `after` is done when it has been left.
    #[inline]
    fn leave(&self, task: &Task, after: After, next: Option<Runnable>) {
        let Some(next) = next else { return self.leave_to_worker(task, after) };
        match self.context_of(&next) {
            Some(context) => {
                self.dispatch(next.take());
                self.after.set(after);
                // SAFETY: the context of a task that was Ready and is now this worker's; it goes on once.
                unsafe { go_over(task, context, LOOK) };
            }
            None => {
                self.no_stack(next);
                self.leave_to_worker(task, after);
            }
        }
    }

    fn leave_to_worker(&self, task: &Task, after: After) {
        self.after.set(after);
        self.current.set(null());
        // SAFETY: the worker saved its context when it left its stack for a task, and waits to go on.
        unsafe { go_over(task, *self.sp.get(), LOOK) };
    }

    /// The context to go on with: the saved one, or a new stack's.
    #[inline]
    fn context_of(&self, task: &Runnable) -> Option<usize> {
        if task.is_started() {
            // What comes from the slot or the line without this was put there by this worker.
            if !self.may_run(task.ptr()) {
                Self::wrong_thread();
            }
            return Some(task.sp.get());
        }
        let stack = self.take_stack(task.ptr())?;
        task.stack.store(stack.address(), Ordering::Relaxed);
        // SAFETY: the stack was free and is the task's now.
        Some(unsafe { prepare(stack.top(), task_main, task.ptr().word()) })
    }

    /// Does what was noted for the task that was left, and ends the section that it was left in. The context that goes on
    /// does this first: only from here can other threads find the task that was left.
    #[inline(always)]
    pub(crate) fn finish_switch(&self) {
        match self.after.get() {
            After::Nothing => {}
            After::Leave => {
                self.after.set(After::Nothing);
                self.section_flag.leave();
            }
            _ => self.finish_noted(),
        }
    }

    #[inline(never)]
    fn finish_noted(&self) {
        match self.after.replace(After::Nothing) {
            After::Nothing => {}
            After::Leave => self.section_flag.leave(),
            After::Wait(task, event) => {
                // Before the commit: a waker that comes afterwards finds the task asleep on its core.
                self.block_thread(task);
                if task.state.commit_wait(event, &task.home, &self.section_flag) == Committed::Queue {
                    schedule_back(Runnable::woken(task), self);
                } else if (!may_stay_asleep(&*task) || task.scope_failed.load(Ordering::SeqCst))
                    && !task.mask.is_set()
                {
                    // The canceller may have looked before the task waited. Its nursery is not asked: if a waker woke
                    // the task already, the nursery may be gone. The flag is in the slot, which is not.
                    task.wake(Event::Interrupt);
                }
            }
            // SAFETY: the context that notes this switches next, and this runs after the switch.
            After::Queue(task) => self.push_yielded(unsafe { Runnable::left(task) }),
            After::Unmap(stack) => arena::unmap(stack),
        }
    }

    /// A future waits. It left no frame behind, so that its wait can be committed at once.
    pub(crate) fn park_without_stack(&self, task: TaskPtr) {
        self.report_tally();
        if task.has_quota() {
            quota::pause(&task);
        }
        task.stack.store(0, Ordering::Relaxed);
        task.state.lose_frames();
        task.wait_reason.store(WaitReason::Future as u8, Ordering::Relaxed);
        if !task.listed.load(Ordering::Relaxed) {
            task.nursery().enlist(&task);
        }
        self.leave_record();
        self.current.set(null());
        self.after.set(After::Wait(task, Event::Block));
        self.finish_switch();
    }

    fn push_yielded(&self, task: Runnable) {
        debug_assert!(!task.ptr().is_on_its_stack(), "a task on its stack");
        match &self.discipline {
            Discipline::WorkStealing => {}
            Discipline::FairTenants(tenants) => return self.push_yielded_to_tenant(tenants, task),
            Discipline::FairTasks(tasks) => return self.yield_thread(tasks, task),
        }
        self.line.push_back(task);
        self.share();
    }

    /// Runs `task` from the worker's own stack until nothing is left to run here.
    pub(crate) fn enter(&self, task: Runnable) -> Back {
        let Some(context) = self.context_of(&task) else {
            self.no_stack(task);
            return Back::Idle;
        };
        self.dispatch(task.take());
        self.rt().monitored.watch.begin(self.index);
        // SAFETY: the context of a task that was Ready and is now this worker's; it goes on once. The worker's own context
        // goes on when a task leaves to it, or by the overflow handler.
        let back = unsafe { switch(self.sp.get(), context, LOOK) };
        self.rt().monitored.watch.end(self.index);
        self.exit_span();
        let back = match back {
            1 => Back::Overflow,
            2 => Back::Kill,
            _ => Back::Idle,
        };
        if back == Back::Idle {
            self.current.set(null());
        }
        self.finish_switch();
        back
    }

    /// Ends the calling task's worker as a fault would. The task is failed as WorkerPanic.
    pub(crate) fn die(&self, task: &Task) -> ! {
        // SAFETY: the worker waits on its own stack. The task's context is never gone on with.
        unsafe { switch(task.sp.as_ptr(), *self.sp.get(), Back::Kill as usize) };
        std::process::abort()
    }
}

/// The first frame of a pooled stack: runs a task to its end, and then others that have not started, without leaving
/// the stack.
extern "C-unwind" fn task_main(word: usize) -> ! {
    let mut task = TaskPtr::from_word(word);
    task.worker().finish_switch();
    loop {
        let stack = task.stack().expect("a started task has a stack");
        // SAFETY: the worker outlives this thread's stay on the stack.
        let worker = unsafe { &*finish::execute(task) };
        if !stack.is_pooled() {
            worker.report_tally();
            worker.go_on(After::Unmap(stack), None);
        }
        if worker.is_virtual {
            worker.give_stack(stack);
            worker.go_on(After::Nothing, None);
        }
        let mut next = worker.next_local();
        if next.as_ref().is_none_or(|next| next.is_started() || !worker.tallies(next)) {
            worker.report_tally();
            // That may have woken their owner.
            next = next.or_else(|| worker.next_local());
        }
        match next {
            Some(next) if !next.is_started() && !next.own_stack.load(Ordering::Relaxed) => {
                next.stack.store(stack.address(), Ordering::Relaxed);
                task = next.take();
                worker.dispatch(task);
            }
            next => {
                worker.give_stack(stack);
                worker.go_on(After::Nothing, next);
            }
        }
    }
}

impl Worker {
    /// Leaves a stack for good; `after` is done when it has been left.
    fn go_on(&self, after: After, next: Option<Runnable>) -> ! {
        let mut dead = 0;
        let context = match next {
            Some(next) => match self.context_of(&next) {
                Some(context) => {
                    self.dispatch(next.take());
                    Some(context)
                }
                None => {
                    self.no_stack(next);
                    None
                }
            },
            None => None,
        };
        let context = context.unwrap_or_else(|| {
            self.current.set(null());
            // SAFETY: the worker's context, which waits to go on.
            unsafe { *self.sp.get() }
        });
        self.after.set(after);
        // SAFETY: a context of this worker's, gone on with once; the one that is saved here is forgotten.
        unsafe { switch(&raw mut dead, context, LOOK) };
        std::process::abort()
    }

    /// The first frame of a task whose stack is lost.
    pub(crate) fn abandoned_context(&self, task: TaskPtr) -> Option<usize> {
        let stack = self.take_pooled_stack()?;
        task.stack.store(stack.address(), Ordering::Relaxed);
        // SAFETY: the stack was free and is the task's now.
        Some(unsafe { prepare(stack.top(), abandoned_main, task.word()) })
    }
}

/// Waits for what the lost frames own, then ends the task.
extern "C-unwind" fn abandoned_main(word: usize) -> ! {
    let task = TaskPtr::from_word(word);
    task.worker().finish_switch();
    let stack = task.stack().expect("just set");
    // SAFETY: the worker outlives this thread's stay on the stack.
    let worker = unsafe { &*finish::bury(task) };
    worker.give_stack(stack);
    // The lost stack stays mapped and is never used again: what pointed into its frames may still do so.
    worker.go_on(After::Nothing, None)
}

/// Queues a task whose wait ended before it was committed.
#[cold]
fn schedule_back(task: Runnable, worker: &Worker) {
    // By now the record may be another task's, which this wakes for nothing: so it goes where that one belongs.
    super::schedule(task, Some(worker));
}
