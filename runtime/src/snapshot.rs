//! Seeing what a runtime does, while it does it.
//!
//! A snapshot stops no worker: each value in it was true at some moment while it was taken, not all at the same
//! one.
#![allow(unsafe_code)]

use crate::budget::Budget;
use crate::caps::{Caps, Held};
use crate::cx::TaskId;
use crate::histogram::Durations;
use crate::nursery::core::NurseryCore;
use crate::nursery::state::NurseryState;
use crate::protocol::lock::Lock;
use crate::runtime::{Inner, Runtime, WorkerStats};
use crate::task::state::TaskState;
use crate::task::{Ext, Task, WaitReason};
use crate::watchdog::TURN_BITS;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// A task in a snapshot.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskSnapshot {
    /// Its id.
    pub id: TaskId,
    /// The nursery that owns it, if that was found.
    pub nursery: Option<u64>,
    /// What it does.
    pub state: TaskState,
    /// What it waits for.
    pub waits_for: WaitReason,
    /// What it has left.
    pub budget: Budget,
    /// Ops that it has used.
    pub ops_used: u64,
    /// The name that its spawner gave it.
    pub name: Option<&'static str>,
    /// What it may do: as its spawner granted it, or what children of its nursery usually may.
    pub caps: Option<Caps>,
    /// The worker that runs it.
    pub worker: Option<usize>,
    /// For a running task, how long it has been since its worker last looked up: at a yield or at a slow check. It has
    /// not yielded for at least that long.
    pub since_yield: Option<Duration>,
}

/// A nursery in a snapshot.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NurserySnapshot {
    /// Its id.
    pub id: u64,
    /// The task that opened it; `None` for an ordinary thread.
    pub owner: Option<TaskId>,
    /// What it does.
    pub state: NurseryState,
    /// Children spawned so far.
    pub spawned: u64,
    /// Children that have ended.
    pub completed: u64,
    /// What its children may do at most.
    pub caps: Caps,
}

/// A worker in a snapshot.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WorkerSnapshot {
    /// What it has done.
    pub stats: WorkerStats,
    /// Tasks that others could steal from it.
    pub queued: usize,
}

/// What a runtime did at about one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// All tasks that have not ended.
    pub tasks: Vec<TaskSnapshot>,
    /// All open nurseries.
    pub nurseries: Vec<NurserySnapshot>,
    /// All workers.
    pub workers: Vec<WorkerSnapshot>,
    /// From one switch to the next on a worker, one in about 256.
    pub yield_gap: Durations,
    /// From the first attempt of a round to the stolen task.
    pub steal_latency: Durations,
    /// From a wake on a worker to the task's run there, one in about 256.
    pub wake_latency: Durations,
    /// Stacks that were ever used, and bytes of task records.
    pub stacks: usize,
    /// Bytes of all task records.
    pub record_bytes: usize,
}

/// What a few tasks have beside their records, by their ids, for an observer outside.
#[derive(Debug, Default)]
pub(crate) struct Labels(Mutex<HashMap<u64, Label>>);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Label {
    pub(crate) name: Option<&'static str>,
    caps: Option<Caps>,
}

impl Labels {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Label>> {
        self.0.lock().expect("no panic while it is held")
    }

    /// The name of a task, if it was given one.
    pub(crate) fn name(&self, id: u64) -> Option<&'static str> {
        self.all().get(&id).and_then(|label| label.name)
    }

    fn is_needed(ext: &Ext) -> bool {
        ext.name.is_some() || ext.caps.is_some()
    }

    /// A task is spawned with these options.
    pub(crate) fn note(&self, task: &Task, ext: &Ext) {
        if Self::is_needed(ext) {
            let label = Label { name: ext.name, caps: ext.caps.map(|held| held.caps()) };
            self.all().insert(task.id.load(Ordering::Relaxed), label);
        }
    }

    /// The task is over.
    pub(crate) fn remove(&self, id: u64, ext: &Ext) {
        if Self::is_needed(ext) {
            self.all().remove(&id);
        }
    }

    /// What a task has.
    pub(crate) fn of(&self, id: u64) -> Label {
        self.all().get(&id).copied().unwrap_or_default()
    }
}

/// The open nurseries of a runtime: chains of records, each in the frame of its scope.
#[derive(Debug)]
pub(crate) struct Registry {
    shards: [Lock<Chain>; 16],
}

#[derive(Debug)]
struct Chain(*const NurseryCore);

// SAFETY: the chain is followed under its lock, and a nursery leaves it, under that lock, before it goes.
unsafe impl Send for Chain {}

impl Default for Registry {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Lock::new(Chain(std::ptr::null()))) }
    }
}

impl Registry {
    fn shard(&self, core: &NurseryCore) -> &Lock<Chain> {
        &self.shards[core.id as usize % self.shards.len()]
    }

    /// A nursery opens.
    pub(crate) fn enter(&self, core: &NurseryCore) {
        let mut chain = self.shard(core).lock();
        core.chain_prev.set(std::ptr::null());
        core.chain_next.set(chain.0);
        // SAFETY: null, or a nursery on the chain, which is locked.
        if let Some(next) = unsafe { chain.0.as_ref() } {
            next.chain_prev.set(core);
        }
        chain.0 = core;
    }

    /// A nursery is over.
    pub(crate) fn leave(&self, core: &NurseryCore) {
        let mut chain = self.shard(core).lock();
        // SAFETY: null, or neighbours on the chain, which is locked.
        let (prev, next) = unsafe { (core.chain_prev.get().as_ref(), core.chain_next.get().as_ref()) };
        match prev {
            Some(prev) => prev.chain_next.set(core.chain_next.get()),
            None => chain.0 = core.chain_next.get(),
        }
        if let Some(next) = next {
            next.chain_prev.set(core.chain_prev.get());
        }
    }

    fn for_each(&self, mut f: impl FnMut(&NurseryCore)) {
        for shard in &self.shards {
            let chain = shard.lock();
            let mut next = chain.0;
            // SAFETY: nurseries on a locked chain do not go.
            while let Some(core) = unsafe { next.as_ref() } {
                f(core);
                next = core.chain_next.get();
            }
        }
    }
}

impl Runtime {
    /// What the runtime does now. Stops no worker.
    pub fn snapshot(&self) -> Snapshot {
        crate::calls::count_poll();
        self.inner().snapshot()
    }
}

impl Inner {
    /// The same, for those who keep the runtime's memory only.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let inner = self;
        let mut nurseries = Vec::new();
        let mut by_address = HashMap::new();
        inner.registry.for_each(|core| {
            by_address.insert(std::ptr::from_ref(core) as usize, (core.id, core.caps));
            nurseries.push(NurserySnapshot {
                id: core.id,
                owner: (core.owner_id != 0).then_some(TaskId(core.owner_id)),
                state: core.state(),
                spawned: core.wait_group.spawned() as u64,
                completed: core.wait_group.completed() as u64,
                caps: core.caps,
            });
        });
        let now_ns = inner.timers.now_ns();
        let running: HashMap<usize, (usize, u64)> = inner
            .shares
            .iter()
            .enumerate()
            .map(|(index, share)| {
                (share.running.load(Ordering::Relaxed) & !TURN_BITS, (index, share.looked_up_ns()))
            })
            .collect();
        let mut tasks = Vec::new();
        inner.slab.for_each_live(|task| {
            let id = task.id.load(Ordering::Relaxed);
            let state = task.state.get();
            if state.is_final() {
                return;
            }
            // An address only: the nursery is not touched.
            let nursery = by_address.get(&(task.nursery.load(Ordering::Relaxed) as usize));
            let label = inner.labels.of(id);
            let on =
                running.get(&(std::ptr::from_ref(task) as usize)).filter(|_| state == TaskState::Running);
            tasks.push(TaskSnapshot {
                id: TaskId(id),
                nursery: nursery.map(|(id, _)| *id),
                state,
                waits_for: WaitReason::from_u8(task.wait_reason.load(Ordering::Relaxed)),
                budget: task.budget(),
                ops_used: task.ops_granted.load(Ordering::Relaxed).saturating_sub(task.ops().into()),
                name: label.name,
                caps: label.caps.or(nursery.map(|(_, caps)| Held::usual(caps))),
                worker: on.map(|(index, _)| *index),
                since_yield: on.map(|(_, at)| Duration::from_nanos(now_ns.saturating_sub(*at))),
            });
        });
        let mut snapshot = Snapshot {
            tasks,
            nurseries,
            workers: Vec::new(),
            yield_gap: Durations::default(),
            steal_latency: Durations::default(),
            wake_latency: Durations::default(),
            stacks: inner.arena.touched(),
            record_bytes: inner.slab.bytes(),
        };
        for share in &inner.shares {
            snapshot.workers.push(WorkerSnapshot { stats: share.stats(), queued: share.stealer.len() });
            snapshot.yield_gap.add(&share.yield_gap);
            snapshot.steal_latency.add(&share.steal_latency);
            snapshot.wake_latency.add(&share.wake_latency);
        }
        snapshot
    }
}
