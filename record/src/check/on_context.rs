//! Threads step aside from the exact schedule while they are on a context: asleep in it, as the core's promise says. A debt
//! stays, a credit is forfeited, and a thread that goes on without its context competes like any other.

use super::Number;
use super::contexts::{Grants, QueueKind};
use super::fairness::Fairness;
use super::machine_model::MachineModel;
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_sched::State;

impl<N: Number> Fairness<N> {
    /// `thread` is ready, on its context or for its share.
    pub(super) fn wake_up(
        &mut self,
        model: &MachineModel,
        grants: &Grants,
        at: usize,
        now: u64,
        thread: ThreadRef,
        reschedule: bool,
    ) -> Result<(), String> {
        if grants.queue(thread) != QueueKind::Fair {
            return Ok(());
        }
        self.wake(at, thread.index());
        if grants.holds(thread) {
            // It goes on without its context, and preempts no thread.
            self.enqueue(at, thread.index());
            return Ok(());
        }
        self.publish(model, at, now, thread.index(), reschedule)
    }

    /// Thread number `index` stops competing for its share, if it did.
    pub(super) fn withdraw(&mut self, at: usize, index: u32) {
        self.competitor_mut(index).tag = None;
        if self.cpus[at].fluid.standing(index).awake {
            self.cpus[at].fluid.sleep(index);
            self.doubt(at);
        }
    }

    /// A thread that went on without its context until the refill came is on it again.
    pub(super) fn refill(&mut self, at: usize, grants: &Grants) {
        for (thread, queue) in &grants.refilled {
            if *queue == QueueKind::Fair {
                self.withdraw(at, thread.index());
            }
        }
    }

    pub(super) fn bind(
        &mut self,
        model: &MachineModel,
        grants: &Grants,
        at: usize,
        now: u64,
        thread: ThreadRef,
    ) -> Result<(), String> {
        let index = thread.index();
        self.competitor_mut(index).holds = true;
        let state = model.on(at).find(|(one, ..)| *one == thread).map(|(_, _, state)| state);
        match state {
            Some(State::Running) => {
                self.charge(model, at, now, index);
                self.withdraw(at, index);
                self.cpus[at].slice_end = grants.budget_end(model, at).map_or(now, Nanos::get);
                Ok(())
            }
            Some(State::Queued | State::Direct) => {
                self.withdraw(at, index);
                if self.cpus[at].direct == Some(index) {
                    self.cpus[at].direct = None;
                }
                self.wake_up(model, grants, at, now, thread, false)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn unbind(&mut self, model: &MachineModel, at: usize, now: u64, thread: ThreadRef) {
        let index = thread.index();
        self.competitor_mut(index).holds = false;
        let state = model.on(at).find(|(one, ..)| *one == thread).map(|(_, _, state)| state);
        let ready = matches!(state, Some(State::Queued | State::Throttled));
        if state == Some(State::Running) {
            self.charge(model, at, now, index);
            self.cpus[at].slice_end = now;
        }
        if (ready || state == Some(State::Running)) && !self.cpus[at].fluid.standing(index).awake {
            self.wake(at, index);
        }
        if ready {
            self.contend(model, at, now);
            self.enqueue(at, index);
        }
    }

    /// `thread` could go on, on its context or for its share.
    pub(super) fn stop(&mut self, at: usize, grants: &Grants, thread: ThreadRef) {
        let index = thread.index();
        match (grants.queue(thread), self.cpus[at].fluid.standing(index).awake) {
            (QueueKind::Fair, true) => self.requeue(at, index),
            (QueueKind::Fair, false) => {
                // Its context is used up, and it goes on without.
                self.wake(at, index);
                self.enqueue(at, index);
            }
            (QueueKind::Context | QueueKind::Throttled, _) => self.withdraw(at, index),
        }
    }

    pub(super) fn fall_asleep(&mut self, model: &MachineModel, at: usize, index: u32) {
        self.competitor_mut(index).used = 0;
        if !model.cpu_model(at).on_context {
            self.cpus[at].fluid.sleep(index);
            self.doubt(at);
        }
    }
}
