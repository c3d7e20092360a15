//! Which task a worker runs next.
//!
//! Conserved: a task that is picked has left the queue that it was in.

use super::discipline::Discipline;
use super::{BACKLOG, HANDFUL, OLDEST_EVERY, OPS_PER_PICK, PLENTY, SAMPLE_EVERY, SLOT_STREAK, Worker};
use crate::fork::task_of;
use crate::task::Runnable;

impl Worker {
    /// Whether so many spawned tasks wait here that their spawner had better give way: records that are used again soon
    /// are still in the cache, and a million are not.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.deque.len() > BACKLOG
    }

    /// Whether something that was spawned here waits here.
    #[inline(always)]
    pub(super) fn has_spawned(&self) -> bool {
        self.in_hand.get() != 0 || !self.deque.is_empty()
    }

    /// Whether its own queues have a task.
    pub(crate) fn has_own(&self) -> bool {
        !self.slot.is_empty()
            || !self.line.is_empty()
            || self.has_spawned()
            || self.has_mail()
            || self.discipline.tenants().is_some_and(|tenants| !tenants.is_empty())
    }

    /// Whether another task could run here.
    pub(crate) fn has_others(&self) -> bool {
        self.has_own() || !self.rt().global.is_empty()
    }

    /// The next task of this worker's own queues.
    #[inline]
    pub(super) fn pick(&self) -> Option<Runnable> {
        let looks = self.picks_left.count_down();
        if self.run_began_ns.get() != 0 {
            self.end_sample();
        }
        if self.has_mail() {
            self.take_mail();
        }
        match &self.discipline {
            Discipline::WorkStealing => {}
            Discipline::FairTenants(tenants) => return self.pick_of_tenants(tenants, looks),
            Discipline::FairTasks(tasks) => return self.pick_thread(tasks),
        }
        if looks {
            return self.pick_fairly();
        }
        if let Some(task) = self.slot.take() {
            let streak = self.slot_streak.get() + 1;
            self.slot_streak.set(streak);
            if streak < SLOT_STREAK {
                return Some(task);
            }
            self.slot_streak.set(0);
            self.line.push_back(task);
            // Tasks that wake each other in turn would keep what was spawned here waiting for ever.
            return self.pop_word().map(|word| task_of(word, self)).or_else(|| self.line.pop_front());
        }
        self.slot_streak.set(0);
        if let Some(word) = self.pop_word() {
            return Some(task_of(word, self));
        }
        if !self.has_other_business() {
            self.picks_left.go_round();
        }
        self.line.pop_front()
    }

    /// Whether the worker has something to do beside the tasks in its line. What may come at any time is not asked for here: mail,
    /// a task in the slot, and workers that sleep.
    pub(super) fn has_other_business(&self) -> bool {
        !self.is_plain
            || self.run_began_ns.get() != 0
            || !self.sampled_wake.get().0.is_null()
            || self.has_tally()
            || self.has_spawned()
            || self.owes_turn.get()
    }

    /// The newest of what this worker has spawned.
    #[inline]
    pub(super) fn pop_word(&self) -> Option<usize> {
        let mut left = self.in_hand.get();
        if left == 0 {
            let handful =
                if self.is_plain && self.deque.len() > PLENTY { self.deque.pop_some() } else { None };
            let Some(handful) = handful else { return self.deque.pop() };
            self.hand.set(handful);
            left = HANDFUL;
        }
        self.in_hand.set(left - 1);
        Some(self.hand.as_array_of_cells()[left - 1].get())
    }

    /// A task that ends here used so many ops since it last looked up.
    #[inline]
    pub(crate) fn hurry_look(&self, ops: u32) {
        self.picks_left.hurry(ops / OPS_PER_PICK);
    }

    /// Now and then: timers, then the global queue, then the line, so that no task waits for ever behind newer
    /// work.
    #[cold]
    pub(super) fn pick_fairly(&self) -> Option<Runnable> {
        let now_ns = self.rt().timers.now_ns();
        self.my_share().looks_up(now_ns);
        if self.looks.get().is_multiple_of(SAMPLE_EVERY) {
            self.run_began_ns.set(now_ns.max(1));
            self.samples_wake.set(true);
        }
        self.looks.set(self.looks.get().wrapping_add(1));
        self.rt().tend_timers();
        self.look_outside(now_ns);
        self.share();
        // Of what was spawned here the newest goes first: a task that spawns and joins in a loop would keep an older one
        // waiting for ever.
        let oldest =
            if self.looks.get().is_multiple_of(OLDEST_EVERY) { self.deque.pop_oldest() } else { None };
        if let Some(word) = oldest {
            return Some(task_of(word, self));
        }
        let global = self.rt().global.pop();
        global
            .or_else(|| self.line.pop_front())
            .or_else(|| self.slot.take())
            .or_else(|| self.pop_word().map(|word| task_of(word, self)))
    }

    /// The next task of this worker's own queues that is still to run: one that was cancelled before it started is
    /// ended here instead.
    #[inline]
    pub(crate) fn next_local(&self) -> Option<Runnable> {
        loop {
            let task = self.pick()?;
            if let Some(task) = self.unless_cancelled(task) {
                return Some(task);
            }
        }
    }

    /// The task, unless it was cancelled before it started, or while it had no frames: then it is ended.
    #[inline]
    pub(crate) fn unless_cancelled(&self, task: Runnable) -> Option<Runnable> {
        if !task.is_started() && task.is_cancelled() {
            self.refuse(task);
            return None;
        }
        Some(task)
    }
}
