//! Mutexes, semaphores, barriers and conditions of a run on Linux.
//!
//! A player waits by its bell; what it waits for, [`SyncObjects`] knows.
//!
//! Conserved: the weight that is noted of an instance is the weight that the runtime was told last.

use super::player::{Player, count, nanos};
use super::stage::Stage;
use crate::machine_run::instances;
use mainspring::{Cx, WaitReason};
use mainspring_abi::{Nanos, Weight};
use mainspring_program::{Came, GivenUp, SyncMachine, SyncObjects};
use mainspring_report::SyncReport;
use mainspring_workload::{Step, Workload};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

#[derive(Debug)]
struct State {
    sync: SyncObjects,
    /// By instance, what it weighs now.
    weight: Vec<Weight>,
}

/// All that players can wait at.
#[derive(Debug)]
pub struct Objects(Mutex<State>);

impl Objects {
    pub fn new(workload: &Workload) -> Self {
        let threads = instances(workload).count();
        let sync = SyncObjects::new(workload.sync.iter().map(|spec| spec.kind), threads);
        Self(Mutex::new(State { sync, weight: vec![Weight::DEFAULT; threads] }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while it is held")
    }

    /// One row for each.
    pub fn reports(&self, workload: &Workload) -> Vec<SyncReport> {
        let state = self.lock();
        let rows = workload.sync.iter().zip(state.sync.stats());
        rows.map(|(spec, stats)| SyncReport::new(&spec.name, spec.kind, stats)).collect()
    }
}

/// What an operation on the objects does to players.
struct OnPlayers<'o, 's> {
    stage: &'o Stage<'s>,
    weight: &'o mut Vec<Weight>,
}

impl SyncMachine for OnPlayers<'_, '_> {
    fn now(&self) -> Nanos {
        nanos(self.stage.runtime.now())
    }

    fn wake(&mut self, instance: usize) {
        self.stage.instances[instance].bell.unpark();
    }

    fn weight_of(&self, instance: usize) -> Option<Weight> {
        Some(self.weight[instance])
    }

    fn set_weight(&mut self, instance: usize, weight: Weight) {
        self.weight[instance] = weight;
        // One that has ended meanwhile weighs nothing.
        let _set = self.stage.runtime.set_weight_of(instance, weight);
    }
}

impl Player<'_, '_> {
    /// A step at one of the objects, which waits for at most `timeout`.
    pub fn sync_step(&mut self, cx: &Cx, step: &Step, timeout: Option<Duration>) {
        if self.take_sync_step(cx, step, timeout) == Some(GivenUp::TakesStepAgain) {
            // It goes on with the mutex that it gave back, whenever it gets that.
            self.take_sync_step(cx, step, None);
        }
    }

    /// Takes `step`, and waits for what it has to wait for. What is left to do if that did not come in time.
    fn take_sync_step(&mut self, cx: &Cx, step: &Step, timeout: Option<Duration>) -> Option<GivenUp> {
        let (stage, me) = (self.stage, self.number);
        // No other thread gets in between: a wakeup may come only once it is known that the thread waits.
        let waits = stage.with_sync(|sync, players| match sync.step(me, step, players) {
            Came::Through => None,
            Came::Refused => {
                stage.refuse(me);
                None
            }
            Came::Waits => match self.permit(timeout) {
                Ok(permit) => {
                    sync.begin_wait(me, players);
                    Some(permit)
                }
                Err(_) => {
                    sync.refuse_wait(me);
                    None
                }
            },
        });
        let _permit = waits?;
        let through = || !stage.sync.lock().sync.is_waiting(me);
        if self.wait(cx, WaitReason::Park, timeout, through) {
            return None;
        }
        let given_up = stage.with_sync(|sync, players| sync.give_up(me, players))?;
        count(&self.me().timeouts);
        Some(given_up)
    }
}

impl<'s> Stage<'s> {
    fn with_sync<R>(&self, operate: impl FnOnce(&mut SyncObjects, &mut OnPlayers<'_, 's>) -> R) -> R {
        let State { sync, weight } = &mut *self.sync.lock();
        operate(sync, &mut OnPlayers { stage: self, weight })
    }

    /// An instance has another weight of its own. One that is lent others' goes on weighing these too.
    pub fn note_weight(&self, instance: usize, weight: Weight) {
        self.with_sync(|sync, players| {
            players.weight[instance] = weight;
            sync.set_own_weight(instance, weight, players);
        });
    }

    /// An instance has ended: it waits no more, and what it held goes on.
    pub fn end_sync_of(&self, instance: usize) {
        self.with_sync(|sync, players| sync.end(instance, players));
    }

    /// Players that wait for mutexes in a circle, in words.
    pub fn deadlocks(&self) -> Vec<String> {
        let names: Vec<String> = instances(self.workload).map(|(name, _)| name).collect();
        let circles = self.sync.lock().sync.deadlocks();
        circles
            .iter()
            .map(|circle| self.workload.describe_deadlock(circle, |instance| names[instance].clone()))
            .collect()
    }
}
