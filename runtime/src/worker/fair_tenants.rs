//! The fair discipline by tenant: a worker's ready tasks, ordered by `core/sched` so that tenants get their share.
//!
//! What the core sees as a thread is a tenant on this worker: it is runnable while it has a ready task here, and which of its
//! tasks runs is first come, first served. So a tenant's share does not grow with the number of its tasks.
//!
//! Conserved: a tenant with a ready task here is queued or running in the core. One without falls asleep there when its turn
//! comes. The whole is the worker's own; tasks that may move leave it for other workers through the global queue.

use crate::task::Runnable;
use mainspring_abi::{CpuId, LatencyClass, Nanos, Policy, ProcessId, ThreadRef, Weight};
use mainspring_sched::{Affinity, Config, Cpu, Decision, Entity, Seat, Spec, Stop, Via, WaitKind};
use std::collections::VecDeque;

struct Tenant {
    weight: Weight,
    /// Its seat, once it has had a task here.
    seat: Option<Seat>,
    /// Whether the core has it as queued or running.
    awake: bool,
    /// Its ready tasks with the number of their arrival, oldest first: those that stay on this worker, and those that may
    /// move.
    staying: VecDeque<(u64, Runnable)>,
    movable: VecDeque<(u64, Runnable)>,
}

impl Tenant {
    fn is_idle(&self) -> bool {
        self.staying.is_empty() && self.movable.is_empty()
    }

    /// First come, first served.
    fn next(&mut self) -> Option<Runnable> {
        let arrived = |line: &VecDeque<(u64, Runnable)>| line.front().map_or(u64::MAX, |(number, _)| *number);
        let line = if arrived(&self.staying) < arrived(&self.movable) {
            &mut self.staying
        } else {
            &mut self.movable
        };
        line.pop_front().map(|(_, task)| task)
    }
}

/// The tenants of one worker.
pub(crate) struct FairTenants {
    cpu: Cpu,
    tenants: Vec<Tenant>,
    running: Option<usize>,
    slice_end: Nanos,
    queued: usize,
    arrivals: u64,
}

impl FairTenants {
    pub(crate) fn new(worker: usize, weights: &[Weight]) -> Self {
        let cpu = CpuId::new(worker).expect("there are fewer workers than CPUs can be named");
        let mut cpu = Cpu::new(Config::new(cpu, Policy::Eevdf));
        cpu.reserve(weights.len()).expect("a few bytes per tenant");
        let tenants = weights
            .iter()
            .map(|&weight| Tenant {
                weight,
                seat: None,
                awake: false,
                staying: VecDeque::new(),
                movable: VecDeque::new(),
            })
            .collect();
        Self { cpu, tenants, running: None, slice_end: Nanos::ZERO, queued: 0, arrivals: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queued == 0
    }

    /// A task of `tenant` is ready.
    pub(crate) fn push(&mut self, now: Nanos, tenant: usize, task: Runnable) {
        let place = &mut self.tenants[tenant];
        let line = if task.is_pinned() { &mut place.staying } else { &mut place.movable };
        line.push_back((self.arrivals, task));
        self.arrivals += 1;
        self.queued += 1;
        if std::mem::replace(&mut place.awake, true) {
            return;
        }
        match place.seat {
            Some(seat) => {
                let _ = self.cpu.wake(now, seat).expect("it is asleep");
            }
            None => {
                let spec = Spec {
                    thread: ThreadRef::new(tenant as u32, 0),
                    process: ProcessId::new(0),
                    weight: place.weight,
                    class: LatencyClass::Normal,
                    request: None,
                    affinity: Affinity::Any,
                };
                let (seat, _) =
                    self.cpu.accept(now, Entity::new(spec), Via::Admit).expect("a seat was reserved");
                place.seat = Some(seat);
            }
        }
    }

    /// The task that ran has left the worker; the next one.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Runnable> {
        loop {
            let stop = match self.running.map(|tenant| &mut self.tenants[tenant]) {
                None => Stop::Nothing,
                Some(tenant) if tenant.is_idle() => {
                    tenant.awake = false;
                    Stop::Blocked(WaitKind::Park, None)
                }
                Some(_) => Stop::Preempted,
            };
            let Decision::Run(dispatch) = self.cpu.resched(now, stop) else {
                self.running = None;
                return None;
            };
            let tenant = dispatch.thread.index() as usize;
            self.running = Some(tenant);
            self.slice_end = dispatch.slice_end;
            if let Some(task) = self.tenants[tenant].next() {
                self.queued -= 1;
                return Some(task);
            }
            // Its tasks went to other workers: it falls asleep.
        }
    }

    /// Whether the running tenant has had its turn and another task waits: of another tenant, of its own, or `elsewhere`.
    pub(crate) fn turn_is_over(&self, now: Nanos, elsewhere: bool) -> bool {
        let others_wait = elsewhere
            || self.cpu.queued() > 0
            || self.running.is_some_and(|tenant| !self.tenants[tenant].is_idle());
        others_wait && now >= self.slice_end
    }

    /// A task for another worker, of the tenant that has most of those that may move.
    pub(crate) fn give(&mut self) -> Option<Runnable> {
        let tenant = self.tenants.iter_mut().max_by_key(|tenant| tenant.movable.len())?;
        let (_, task) = tenant.movable.pop_back()?;
        self.queued -= 1;
        Some(task)
    }
}
