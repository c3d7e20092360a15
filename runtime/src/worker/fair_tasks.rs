//! A worker and its core: the fair discipline by task, see [`crate::protocol::fair_tasks`].

use super::Worker;
use crate::calls;
use crate::cx::Cx;
use crate::protocol::fair_tasks::{FairTasks, Next, Schedule, Stopped, WakeWorker};
use crate::runtime::Inner;
use crate::task::{Runnable, TaskPtr, WaitReason};
use mainspring_abi::{ContextRef, Nanos, Weight};
use mainspring_sched::WaitKind;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The cores of all workers, and what this worker's current task has said about its next stop.
pub(super) struct TaskCores {
    cores: *const FairTasks,
    /// The current task gives way because its turn is over, not because it wants to.
    preempted: Cell<bool>,
    /// Whom the current task wakes next goes first here, when it stops.
    hands_over: Cell<bool>,
    /// What the current task does once it sleeps, in a frame of its own.
    announces: Cell<Option<NonNull<dyn Fn()>>>,
}

impl TaskCores {
    pub(super) fn new(cores: &FairTasks) -> Self {
        Self { cores, preempted: Cell::new(false), hands_over: Cell::new(false), announces: Cell::new(None) }
    }

    #[allow(unsafe_code)]
    #[inline]
    pub(super) fn cores(&self) -> &FairTasks {
        // SAFETY: part of the runtime, which the thread of the worker keeps for longer than the worker.
        unsafe { &*self.cores }
    }
}

impl Worker {
    /// A task has become ready again.
    pub(super) fn wake_thread(&self, tasks: &TaskCores, task: Runnable) {
        let hands_over = tasks.hands_over.replace(false);
        let thread = task.entity.load(Ordering::Relaxed).into();
        if tasks.cores().is_woken_by_table(thread) {
            let aftermath =
                tasks.cores().wake_by_table(thread, Some(self.index), hands_over, self.fair_now());
            self.rt().notify_contexts(&aftermath);
        } else if hands_over {
            let wake = tasks.cores().hand_off(thread, self.index, self.fair_now());
            self.rt().ring(wake);
        } else {
            return self.rt().wake_thread(task, Some(self.index));
        }
        self.rt().look_after_throttled(thread);
    }

    /// Calls `wake`, and if that wakes a task here, the current one hands over to it.
    pub(crate) fn handing_over(&self, wake: impl FnOnce()) {
        let Some(tasks) = self.discipline.tasks() else { return wake() };
        tasks.hands_over.set(true);
        wake();
        tasks.hands_over.set(false);
    }

    /// The current task is about to wait, and `announce` tells others: at once, or, if the task has a context that they may want,
    /// once the core knows that it sleeps.
    #[allow(unsafe_code)]
    pub(crate) fn announce_asleep(&self, announce: &dyn Fn()) {
        let tasks = self.discipline.tasks().filter(|tasks| tasks.cores().current_has_authority(self.index));
        let Some(tasks) = tasks else { return announce() };
        // SAFETY: only the lifetime changes. It is called by `block_thread`, before the wait is committed: until then the frame
        // that it is in stays.
        let announce = unsafe { std::mem::transmute::<&dyn Fn(), &'static dyn Fn()>(announce) };
        tasks.announces.set(Some(NonNull::from(announce)));
    }

    /// Whether the core of this worker wants to run another thread.
    pub(super) fn thread_turn_is_over(&self, tasks: &TaskCores) -> bool {
        let over = tasks.cores().turn_is_over(self.index, self.fair_now());
        self.rt().tell_untold(&tasks.cores().take_untold(self.index));
        tasks.preempted.set(over);
        over
    }

    /// The task that ran here could go on. Its core has it as the current one.
    pub(super) fn yield_thread(&self, tasks: &TaskCores, left: Runnable) {
        let how = if tasks.preempted.replace(false) { Stopped::Preempted } else { Stopped::Yielded };
        let (thread, cores) = (left.take().entity.load(Ordering::Relaxed).into(), tasks.cores());
        if cores.is_heir(thread) {
            // It sleeps for a moment, so that it can be moved to where its context is.
            cores.stop_before_choice(self.index, WaitKind::Park, self.fair_now());
            self.rt().notify_contexts(&cores.wake_by_table(thread, Some(self.index), false, self.fair_now()));
        } else {
            cores.stop(self.index, how, self.fair_now());
        }
        self.rt().look_after_throttled(thread);
    }

    /// The task that ran here has left its stack, and waits.
    #[allow(unsafe_code)]
    #[inline]
    pub(super) fn block_thread(&self, task: TaskPtr) {
        if let Some(tasks) = self.discipline.tasks() {
            let reason = WaitReason::from_u8(task.wait_reason.load(Ordering::Relaxed));
            match tasks.announces.take() {
                None => tasks.cores().stop(self.index, Stopped::Waits(kind_of(reason)), self.fair_now()),
                Some(announce) => {
                    // The next thread is chosen afterwards: the announcement may make a better one ready.
                    tasks.cores().stop_before_choice(self.index, kind_of(reason), self.fair_now());
                    // SAFETY: set by the task that waits, which stays in that frame until its wait is committed.
                    unsafe { announce.as_ref()() }
                }
            }
        }
    }

    /// The task that ran here is over.
    #[inline]
    pub(super) fn end_thread(&self) {
        if let Some(tasks) = self.discipline.tasks() {
            let aftermath = tasks.cores().end(self.index, self.fair_now());
            self.rt().notify_contexts(&aftermath);
        }
    }

    #[cold]
    pub(super) fn pick_thread(&self, tasks: &TaskCores) -> Option<Runnable> {
        let rt = self.rt();
        rt.tend_timers();
        let share = self.my_share();
        let began = self.fair_now();
        self.look_outside(began.get());
        rt.notify_contexts(&tasks.cores().attend_leases(self.index, began));
        let next = tasks.cores().next(self.index, share.may_steal(), began);
        rt.tell_untold(&tasks.cores().take_untold(self.index));
        let Next { word, wake, stolen_from } = next?;
        rt.ring(wake);
        if let Some(victim) = stolen_from {
            share.stolen(1);
            share.steal_latency.record((self.fair_now() - began).get());
            rt.on_steal(self.index, victim, word);
        }
        Some(Runnable::from_word(word))
    }

    /// Says that this worker sleeps; for how long at most, because of the contexts of its core.
    pub(super) fn fall_asleep(&self) -> Option<Duration> {
        let tasks = self.discipline.tasks()?;
        // One that may not steal is of no use to the others' threads; of its own it is told all the same.
        tasks.cores().set_idle(self.index, self.my_share().may_steal());
        let now = self.fair_now();
        let until = tasks.cores().plan_sleep(self.index, now)?;
        Some(Duration::from_nanos((until - now).get()))
    }

    /// Says that this worker sleeps no longer.
    pub(super) fn wake_up(&self) {
        if let Some(tasks) = self.discipline.tasks() {
            tasks.cores().set_idle(self.index, false);
            tasks.cores().wakes(self.index);
        }
    }
}

/// Calls `wake`, and if that wakes a task of this thread's worker, the task that stops next there hands over to it.
#[allow(unsafe_code)]
pub(crate) fn handing_over(wake: impl FnOnce()) {
    // SAFETY: the pointer is null or the worker of this thread.
    match unsafe { super::current().as_ref() } {
        Some(worker) => worker.handing_over(wake),
        None => wake(),
    }
}

impl Inner {
    /// A new task is ready, as a thread that was claimed for it, on a context that was set aside for it.
    pub(crate) fn admit_thread(
        &self,
        task: Runnable,
        thread: usize,
        schedule: &Schedule,
        context: Option<ContextRef>,
        here: Option<usize>,
    ) {
        let Some(fair_tasks) = &self.fair_tasks else { return };
        let now = Nanos::new(self.timers.now_ns());
        if let Some(context) = context {
            let admitted = (thread, task.into_word());
            self.notify_contexts(&fair_tasks.admit_on_context(admitted, schedule, context, here, now));
            return self.look_after_throttled(thread);
        }
        let stays = !self.config.migrates_started_tasks;
        self.ring(fair_tasks.admit(thread, task.into_word(), schedule, stays, here, now));
        self.notify_contexts(&fair_tasks.offer_after_admission(thread, here, now));
    }

    /// A task has become ready again; `here` is the worker that says so, if it is one.
    pub(crate) fn wake_thread(&self, task: Runnable, here: Option<usize>) {
        let Some(fair_tasks) = &self.fair_tasks else { return };
        let thread = task.take().entity.load(Ordering::Relaxed).into();
        let now = Nanos::new(self.timers.now_ns());
        if fair_tasks.is_woken_by_table(thread) {
            self.notify_contexts(&fair_tasks.wake_by_table(thread, here, false, now));
        } else {
            self.ring(fair_tasks.wake(thread, here, now));
        }
        self.look_after_throttled(thread);
    }

    /// A thread has been made ready. If it is throttled, it may have been cancelled before, when its canceller could not find it.
    pub(crate) fn look_after_throttled(&self, thread: usize) {
        if let Some(cores) = self.fair_tasks.as_ref().filter(|cores| cores.has_contexts()) {
            let now = Nanos::new(self.timers.now_ns());
            self.notify_contexts(&cores.look_after(thread, is_cancelled, now));
        }
    }

    /// Whether tasks may wait for the refill of a context.
    pub(crate) fn has_contexts(&self) -> bool {
        self.fair_tasks.as_ref().is_some_and(|cores| cores.has_contexts())
    }

    /// Tasks have been cancelled. Those that wait for the refill of a context go on without it, so that they end.
    pub(crate) fn release_cancelled(&self) {
        let Some(cores) = self.fair_tasks.as_ref().filter(|cores| cores.has_contexts()) else { return };
        let now = Nanos::new(self.timers.now_ns());
        self.notify_contexts(&cores.release_throttled(is_cancelled, now));
    }

    /// Wakes the worker that was told something.
    pub(crate) fn ring(&self, WakeWorker(worker): WakeWorker) {
        if let Some(worker) = worker {
            self.idle_workers.wake(worker);
        }
    }
}

impl Cx {
    /// CPU time that the task has been charged with, the interval in progress included. Only the fair discipline by task
    /// keeps such accounts.
    pub fn cpu_time(&self) -> Option<Duration> {
        calls::count(self);
        let worker = self.task().worker();
        let tasks = worker.discipline.tasks()?;
        Some(Duration::from_nanos(tasks.cores().cpu_time(worker.index, worker.fair_now()).get()))
    }

    /// Sets the task's own weight, from its next turn on. False if that is more than the task may have
    /// (`Schedule::most_weight`; the root task of a run may have any), or if the fair discipline by task does not schedule it.
    pub fn set_weight(&self, weight: Weight) -> bool {
        calls::count(self);
        let worker = self.task().worker();
        let is_root = self.task().nursery().is_run;
        worker.discipline.tasks().is_some_and(|tasks| {
            let cores = tasks.cores();
            let may = is_root || weight <= cores.standing(self.thread()).most_weight;
            if may {
                cores.set_weight(worker.index, weight, worker.fair_now());
            }
            may
        })
    }
}

/// Whether a task that is throttled has been cancelled. Asked under the lock of its core: there it has not ended, so its nursery
/// has not either.
fn is_cancelled(word: usize) -> bool {
    TaskPtr::from_word(word).is_cancelled()
}

fn kind_of(reason: WaitReason) -> WaitKind {
    match reason {
        WaitReason::Timer | WaitReason::Quota => WaitKind::Sleep,
        WaitReason::NurseryAwait | WaitReason::Join => WaitKind::Join,
        WaitReason::Call => WaitKind::Call,
        WaitReason::Receive => WaitKind::Receive,
        WaitReason::Io | WaitReason::BlockingCall => WaitKind::Ring,
        WaitReason::None
        | WaitReason::Channel
        | WaitReason::Sync
        | WaitReason::Future
        | WaitReason::Budget
        | WaitReason::Park => WaitKind::Park,
    }
}
