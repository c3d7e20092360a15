//! A worker and its lane: the fair discipline by task, see [`crate::protocol::lanes`].

use super::Worker;
use crate::calls;
use crate::cx::Cx;
use crate::protocol::lanes::{Lanes, Next, Schedule, Stopped, Tell};
use crate::runtime::Inner;
use crate::task::{Runnable, TaskPtr, WaitReason};
use mainspring_abi::{Nanos, Weight};
use mainspring_sched::WaitKind;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Worker {
    /// The lanes, under the fair discipline by task.
    #[allow(unsafe_code)]
    #[inline]
    pub(super) fn lanes(&self) -> Option<&Lanes> {
        // SAFETY: part of the runtime, which joins its workers before it goes.
        self.lanes.map(|lanes| unsafe { &*lanes })
    }

    /// A task has become ready again.
    pub(super) fn wake_in_lane(&self, task: Runnable) {
        match self.lanes() {
            Some(lanes) if self.hands_over.replace(false) => {
                let thread = task.tenant.load(Ordering::Relaxed).into();
                let tell = lanes.hand_off(thread, self.index, self.fair_now());
                self.rt().ring(tell);
            }
            _ => self.rt().wake_in_lane(task, Some(self.index)),
        }
    }

    /// Calls `wake`, and if that wakes a task here, the current one hands over to it.
    pub(crate) fn handing_over(&self, wake: impl FnOnce()) {
        self.hands_over.set(self.lanes.is_some());
        wake();
        self.hands_over.set(false);
    }

    /// The task that ran here could go on. Its lane has it as the current one.
    pub(super) fn yield_in_lane(&self, lanes: &Lanes, _left: Runnable) {
        let how = if self.preempted.replace(false) { Stopped::Preempted } else { Stopped::Yielded };
        lanes.stop(self.index, how, self.fair_now());
    }

    /// The task that ran here has left its stack, and waits.
    #[inline]
    pub(super) fn wait_in_lane(&self, task: TaskPtr) {
        if let Some(lanes) = self.lanes() {
            let reason = WaitReason::from_u8(task.wait_reason.load(Ordering::Relaxed));
            lanes.stop(self.index, Stopped::Waits(kind_of(reason)), self.fair_now());
        }
    }

    /// The task that ran here is over.
    #[inline]
    pub(super) fn end_in_lane(&self) {
        if let Some(lanes) = self.lanes() {
            lanes.end(self.index, self.fair_now());
        }
    }

    #[cold]
    pub(super) fn pick_in_lane(&self, lanes: &Lanes) -> Option<Runnable> {
        let rt = self.rt();
        rt.tend_timers();
        let share = self.my_share();
        let began = self.fair_now();
        let Next { word, tell, stolen_from } = lanes.next(self.index, share.may_steal(), began)?;
        rt.ring(tell);
        if let Some(victim) = stolen_from {
            share.stolen(1);
            share.steal_latency.record((self.fair_now() - began).get());
            rt.on_steal(self.index, victim, word);
        }
        Some(Runnable::from_word(word))
    }

    /// Says that this worker sleeps, or no longer does.
    pub(super) fn set_idle(&self, idle: bool) {
        if let Some(lanes) = self.lanes() {
            // One that may not steal is of no use to the others' threads; of its own it is told all the same.
            lanes.set_idle(self.index, idle && self.my_share().may_steal());
        }
    }
}

impl Inner {
    /// A new task is ready, as a thread that was claimed for it.
    pub(crate) fn admit_to_lane(
        &self,
        task: Runnable,
        thread: usize,
        schedule: &Schedule,
        here: Option<usize>,
    ) {
        let Some(lanes) = &self.lanes else { return };
        let now = Nanos::new(self.timers.now_ns());
        let stays = !self.config.migrates_started_tasks;
        self.ring(lanes.admit(thread, task.into_word(), schedule, stays, here, now));
    }

    /// A task has become ready again; `here` is the worker that says so, if it is one.
    pub(crate) fn wake_in_lane(&self, task: Runnable, here: Option<usize>) {
        let Some(lanes) = &self.lanes else { return };
        let thread = task.take().tenant.load(Ordering::Relaxed).into();
        let tell = lanes.wake(thread, here, Nanos::new(self.timers.now_ns()));
        self.ring(tell);
    }

    /// Wakes the worker that was told something.
    pub(crate) fn ring(&self, Tell(worker): Tell) {
        if let Some(worker) = worker {
            self.dormitory.wake(worker);
        }
    }
}

impl Cx {
    /// CPU time that the task has been charged with, the interval in progress included. Only the fair discipline by task
    /// keeps such accounts.
    pub fn cpu_time(&self) -> Option<Duration> {
        calls::count(self);
        let worker = self.task().worker();
        let lanes = worker.lanes()?;
        Some(Duration::from_nanos(lanes.cpu_time(worker.index, worker.fair_now()).get()))
    }

    /// Sets the task's own weight, from its next turn on. False unless the fair discipline by task schedules it.
    pub fn set_weight(&self, weight: Weight) -> bool {
        calls::count(self);
        let worker = self.task().worker();
        let lanes = worker.lanes();
        if let Some(lanes) = lanes {
            lanes.set_weight(worker.index, weight, worker.fair_now());
        }
        lanes.is_some()
    }
}

fn kind_of(reason: WaitReason) -> WaitKind {
    match reason {
        WaitReason::Timer => WaitKind::Sleep,
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
