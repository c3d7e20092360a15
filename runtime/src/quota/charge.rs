//! What a task pays to its quota, and how it waits for it.
//!
//! Conserved: what a task holds of a quota is noted in its rare fields, and goes back when the task waits or ends.

use super::bucket::{Bucket, Reserved};
use super::{Quota, Shared, Ticket, WhenEmpty};
use crate::budget::Component;
use crate::cx::Cx;
use crate::error::{BudgetError, TaskError};
use crate::task::{Task, WaitReason};
use crate::time::timers::Fire;
use crate::waiter;
use std::time::Duration;

/// A slice is at least this part of the burst, so that tasks that are throttled do not wake for each op.
const LEAST_SLICES: u64 = 4;

/// A task's place in a quota.
#[derive(Debug)]
pub(crate) struct TaskQuota {
    pub(crate) quota: Quota,
    /// Ops that were taken out for the task's slice.
    held: u64,
    /// Ops that the task had used when they were.
    mark: u64,
}

impl TaskQuota {
    pub(crate) fn new(quota: Quota) -> Self {
        Self { quota, held: 0, mark: 0 }
    }

    /// The task has used so many ops in all: what it has left of its slice goes back. Ops that it has used beyond the slice are
    /// the result, and are not charged yet.
    fn settle(&mut self, ops_used: u64) -> u64 {
        let used = ops_used.saturating_sub(std::mem::replace(&mut self.mark, ops_used));
        let held = std::mem::take(&mut self.held);
        let within = used.min(held);
        self.quota.0.settle(Component::Ops, held, within);
        used - within
    }

    /// The task has ended: what it used is charged, and it waits for none of it.
    pub(crate) fn end(mut self, ops_used: u64) {
        let owed = self.settle(ops_used);
        self.quota.0.settle(Component::Ops, 0, owed);
    }
}

impl Drop for TaskQuota {
    fn drop(&mut self) {
        // Of a task that was never run, or whose frames were lost.
        self.quota.0.settle(Component::Ops, self.held, self.held);
    }
}

impl Shared {
    /// Of `held` that a task had, it has used so much.
    fn settle(&self, component: Component, held: u64, used: u64) {
        if held != used {
            self.change(component, |bucket| bucket.settle(held, used));
        } else if held != 0 {
            let mut state = self.state.lock().expect("no panic while it is held");
            state.buckets[component as usize].iter_mut().for_each(|bucket| bucket.settle(held, used));
        }
    }

    /// Changes a bucket, and wakes the first in line.
    fn change(&self, component: Component, change: impl FnOnce(&mut Bucket)) {
        let mut state = self.state.lock().expect("no panic while it is held");
        let Some(bucket) = &mut state.buckets[component as usize] else { return };
        change(bucket);
        let first = bucket.first();
        drop(state);
        if let Some(word) = first {
            waiter::wake(word);
        }
    }
}

/// What a task gets from its quota.
enum Drawn {
    /// It is there, or not limited.
    Now,
    /// It waits in line.
    Wait(Ticket),
    /// There will never be so much at once; there may be this much.
    Never(u64),
}

impl Quota {
    fn reserve(&self, component: Component, n: u64, word: usize) -> Drawn {
        let mut state = self.state();
        let Some(bucket) = &mut state.buckets[component as usize] else { return Drawn::Now };
        match bucket.reserve(n, word) {
            Reserved::Now => Drawn::Now,
            Reserved::Never => Drawn::Never(bucket.burst()),
            Reserved::Later(ticket) => {
                state.throttled += 1;
                Drawn::Wait(ticket)
            }
        }
    }

    /// Reserves ops, from `least` to `most`: what is there, or as much as is worth waiting for.
    fn reserve_ops(&self, least: u64, most: u64, word: usize) -> (u64, Drawn) {
        let mut state = self.state();
        let Some(bucket) = &mut state.buckets[Component::Ops as usize] else { return (most, Drawn::Now) };
        let worth = bucket.burst().div_ceil(LEAST_SLICES).max(least);
        let n = most.min(bucket.level().max(worth));
        match bucket.reserve(n, word) {
            Reserved::Now if n > 0 => (n, Drawn::Now),
            Reserved::Now | Reserved::Never => (0, Drawn::Never(0)),
            Reserved::Later(ticket) => {
                state.throttled += 1;
                (n, Drawn::Wait(ticket))
            }
        }
    }

    /// Takes the ops out that are there, `most` at most.
    fn take_ops_at_hand(&self, most: u64) -> u64 {
        let mut state = self.state();
        let Some(bucket) = &mut state.buckets[Component::Ops as usize] else { return most };
        let n = most.min(bucket.level());
        match bucket.reserve(n, 0) {
            Reserved::Now => n,
            Reserved::Never => 0,
            Reserved::Later(ticket) => {
                // Others wait for it.
                bucket.leave(&ticket);
                0
            }
        }
    }

    /// In how many nanoseconds a task that waits in line had better look again; `None` if it has what it waits for.
    fn claim(&self, component: Component, ticket: &Ticket) -> Option<u64> {
        let mut state = self.state();
        let bucket = state.buckets[component as usize].as_mut()?;
        let later = bucket.claim(ticket, self.0.period_ns);
        let first = bucket.first().filter(|_| later.is_none());
        drop(state);
        if let Some(word) = first {
            waiter::wake(word);
        }
        later
    }

    fn burst_of_ops(&self) -> u64 {
        let state = self.0.state.lock().expect("no panic while it is held");
        state.buckets[Component::Ops as usize].as_ref().map_or(u64::MAX, Bucket::burst)
    }

    fn limits(&self, component: Component) -> bool {
        self.0.state.lock().expect("no panic while it is held").buckets[component as usize].is_some()
    }
}

impl Cx {
    /// The quota that the task is bound to, if there is one: a part of it can be shared.
    pub fn quota(&self) -> Option<Quota> {
        crate::calls::count(self);
        quota_of(self.task())
    }

    /// The task has a slice of so many ops by its budget, and pays for what it has used: it waits until its quota has both. How many
    /// ops the slice has. With `waits` false nothing is waited for, and the slice may be empty.
    #[cold]
    pub(crate) fn pay_for_slice(&self, most: u32, waits: bool) -> u32 {
        let task = self.task();
        let Some(quota) = quota_of(task) else { return most };
        if !quota.limits(Component::Ops) {
            return most;
        }
        let mut owed = change(task, |own| own.settle(task.ops_used()));
        let cleans_up = task.mask.is_set();
        if !waits || cleans_up {
            quota.0.settle(Component::Ops, 0, owed);
            return if cleans_up { most } else { self.hold(quota.take_ops_at_hand(most.into())) };
        }
        // More than can be had at once is paid in pieces. The last of them comes with the slice, so that what the task has used and
        // what it may use next are there at the same time.
        loop {
            let piece = owed.min(quota.burst_of_ops());
            let slice = if piece == owed { u64::from(most) } else { 0 };
            let drawn = self.draw_ops(&quota, piece, piece + slice);
            if drawn >= piece {
                quota.0.settle(Component::Ops, piece, piece);
                owed -= piece;
                if owed == 0 {
                    return self.hold(drawn - piece);
                }
            }
        }
    }

    /// The task has taken so many ops out.
    fn hold(&self, ops: u64) -> u32 {
        change(self.task(), |own| own.held = ops);
        u32::try_from(ops).unwrap_or(u32::MAX)
    }

    /// Takes ops out, from `least` to `most`, and waits until they are there. 0 if there can be none for now, and it has waited a while.
    /// Ends the task if it must stop, or if its quota does not let it wait.
    fn draw_ops(&self, quota: &Quota, least: u64, most: u64) -> u64 {
        if most == 0 {
            return 0;
        }
        let (n, drawn) = quota.reserve_ops(least, most, waiter::task_word(self.task_ptr()));
        let refused = match drawn {
            Drawn::Now => false,
            Drawn::Wait(ticket) => self.wait_in_line(quota, Component::Ops, n, ticket).is_err(),
            // All of it has been shared out: some comes back when a part ends.
            Drawn::Never(_) if quota.0.when_empty == WhenEmpty::Throttle => {
                self.wait_for_ns(quota.0.period_ns);
                return 0;
            }
            Drawn::Never(_) => true,
        };
        if refused {
            self.stop(TaskError::BudgetExhausted(Component::Ops));
        }
        n
    }

    /// Takes `n` of a component out, and waits until that is there.
    fn draw(&self, quota: &Quota, component: Component, n: u64) -> Result<(), BudgetError> {
        match quota.reserve(component, n, waiter::task_word(self.task_ptr())) {
            Drawn::Now => Ok(()),
            Drawn::Never(most) => Err(BudgetError::OverRate { component, needed: n, most, retry_in: None }),
            Drawn::Wait(ticket) => self.wait_in_line(quota, component, n, ticket),
        }
    }

    /// Waits until what it stands in line for is there. Ends the task if it must stop.
    fn wait_in_line(
        &self,
        quota: &Quota,
        component: Component,
        n: u64,
        ticket: Ticket,
    ) -> Result<(), BudgetError> {
        let line = InLine { quota, component, ticket };
        while let Some(in_ns) = quota.claim(component, &line.ticket) {
            if quota.0.when_empty == WhenEmpty::Fail || std::thread::panicking() {
                let retry_in = Some(Duration::from_nanos(in_ns));
                return Err(BudgetError::OverRate { component, needed: n, most: n, retry_in });
            }
            self.wait_for_ns(in_ns);
        }
        Ok(())
    }

    /// Waits for so long at most. Ends the task if it must stop.
    fn wait_for_ns(&self, in_ns: u64) {
        self.acknowledge();
        let timers = &self.rt().timers;
        let due_ns = timers.now_ns().saturating_add(in_ns);
        let timer = self.rt().add_timer(due_ns, Fire::Wake(self.task_ptr()));
        if !self.must_stop() {
            self.block(WaitReason::Quota);
        }
        timers.remove(timer);
        self.acknowledge();
    }

    /// Pays `n` of a component other than ops to the task's quota, if it has one: waits for it, or is refused.
    pub(crate) fn pay_rate(&self, component: Component, n: u64) -> Result<(), BudgetError> {
        let Some(quota) = quota_of(self.task()) else { return Ok(()) };
        if self.task().mask.is_set() || std::thread::panicking() {
            quota.0.settle(component, 0, n);
            return Ok(());
        }
        self.draw(&quota, component, n)?;
        quota.0.settle(component, n, n);
        Ok(())
    }
}

/// A place in line, until this is dropped on any way out. What was claimed by then stays the task's.
struct InLine<'q> {
    quota: &'q Quota,
    component: Component,
    ticket: Ticket,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.quota.0.change(self.component, |bucket| bucket.leave(&self.ticket));
    }
}

/// The task's quota.
pub(crate) fn quota_of(task: &Task) -> Option<Quota> {
    if !task.has_quota() {
        return None;
    }
    task.nursery().with_ext(task, |ext| Some(ext?.quota.as_ref()?.quota.clone()))
}

fn change<R: Default>(task: &Task, change: impl FnOnce(&mut TaskQuota) -> R) -> R {
    task.nursery()
        .with_ext(task, |ext| ext.and_then(|ext| ext.quota.as_mut()).map(change).unwrap_or_default())
}

/// A task with a quota is about to wait: what it has left of its slice goes back, and its next check asks anew.
#[cold]
#[inline(never)]
pub(crate) fn pause(task: &Task) {
    let owed = change(task, |own| own.settle(task.ops_used()));
    if let Some(quota) = quota_of(task).filter(|_| owed > 0) {
        quota.0.settle(Component::Ops, 0, owed);
    }
    task.force_slow_check();
}
